//! The rounds that every benchmark runs: until each row is decided or the budget ends.
//!
//! A benchmark consists of parts (an emulated grid each), a part of cases. A case is
//! measured once in a round and gives one pair of figures for each of its rows. A case
//! that fails, or that was measured while others used the machine, does not end the
//! run; the rest of the round goes on.

mod case;

use std::fmt;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use clap::Args;

use crate::conditions::Conditions;
use crate::confine;
use crate::load::Limit;
use crate::report::{Report, Row, SCHEMA, write_json};
use crate::sources::Sources;

pub(crate) use case::Case;

/// How long to measure, and where results go.
#[derive(Debug, Clone, Args)]
pub(crate) struct RoundOptions {
    /// Most rounds that count. Rounds end sooner if all rows are decided.
    #[arg(long, default_value_t = 30)]
    rounds: usize,
    /// Time after which no measurement begins.
    #[arg(long, default_value = "45m")]
    budget: humantime::Duration,
    /// Share of all cores that other processes may use; more of it voids a
    /// measurement.
    #[arg(long, default_value_t = 0.1)]
    others: f64,
    /// Measure only rows with this in their name; the results are not complete then.
    #[arg(long)]
    only: Option<String>,
    /// Directory of the results.
    #[arg(long, default_value = "bench/results")]
    pub results: PathBuf,
}

/// The error of a measurement that doesn't count although it didn't fail. The place where it was
/// made wasn't what it should be.
#[derive(Debug)]
pub(crate) struct Void(pub String);

impl fmt::Display for Void {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Void {}

/// What measures the cases of a benchmark's part.
pub(crate) trait Experiment {
    /// The description of a measurement.
    type Case;

    /// Measures a case. Returns isthmus's figure and the reference's for each of its rows.
    ///
    /// # Errors
    /// The case can't be measured, and the row gets the reason. [`Void`] if the measurement doesn't
    /// count.
    fn measure(&mut self, case: &Self::Case, round: usize) -> anyhow::Result<Vec<[f64; 2]>>;

    /// Whether other programs that use the machine make a measurement void. A simulation gives the
    /// same figures all the same.
    fn needs_quiet(&self) -> bool {
        true
    }

    /// Whether the experiment can go on after a failed measurement. If not, it is made anew.
    fn survives_failure(&self) -> bool {
        true
    }

    /// Ends the experiment, and checks that it did what was to be measured.
    ///
    /// # Errors
    /// It didn't. Then no round counts.
    fn finish(self) -> anyhow::Result<()>
    where
        Self: Sized,
    {
        Ok(())
    }
}

/// A run of a benchmark.
pub(crate) struct Run {
    options: RoundOptions,
    limit: Limit,
    started: Instant,
    report: Report,
}

impl Run {
    /// Begins a run in namespaces of its own. `tools` are asked for their versions.
    ///
    /// # Errors
    /// The user isn't root, or `--rounds` is 0.
    pub(crate) fn begin(
        name: &str,
        options: &RoundOptions,
        tools: &[(String, &str)],
    ) -> anyhow::Result<Self> {
        ensure!(options.rounds > 0, "--rounds must be at least 1");
        confine::enter()?;
        let sources =
            Sources::here(name).inspect_err(|error| eprintln!("the results name no commit: {error:#}"));
        let report = Report {
            schema: SCHEMA,
            name: name.to_owned(),
            complete: false,
            sources: sources.ok(),
            rows: Vec::new(),
            conditions: Conditions::here(tools),
        };
        Ok(Self {
            options: options.clone(),
            limit: Limit::new(options.others),
            started: Instant::now(),
            report,
        })
    }

    /// Adds a remark to the conditions of the results.
    pub(crate) fn remark(&mut self, remark: String) {
        self.report.conditions.remarks.push(remark);
    }

    /// The rows of the parts that have been measured.
    pub(crate) fn rows(&self) -> &[Row] {
        &self.report.rows
    }

    /// Measures a part of the benchmark. `parts_left` counts this part as well, which gets its
    /// share of the budget that is left. `make` brings up what measures.
    ///
    /// # Errors
    /// The results can't be written.
    pub(crate) fn part<E: Experiment>(
        &mut self,
        parts_left: u32,
        mut cases: Vec<Case<E::Case>>,
        mut make: impl FnMut() -> anyhow::Result<E>,
    ) -> anyhow::Result<()> {
        if let Some(only) = &self.options.only {
            cases.retain(|case| case.rows.iter().any(|(row, _)| row.what.contains(only.as_str())));
        }
        let left = self.options.budget.saturating_sub(self.started.elapsed());
        let deadline = Instant::now() + left / parts_left;
        let mut experiment = None;
        for round in 0.. {
            let open: Vec<usize> =
                (0..cases.len()).filter(|index| !cases[*index].is_done(self.options.rounds)).collect();
            if open.is_empty() {
                break;
            }
            eprintln!("round {}: {} of {} measurements go on", round + 1, open.len(), cases.len());
            for index in open {
                self.measure(&mut cases[index], &mut experiment, &mut make, round, deadline)?;
            }
            self.write(&cases)?;
        }
        if let Some(Err(error)) = experiment.map(E::finish) {
            for case in &mut cases {
                case.rows.iter_mut().for_each(|(_, rounds)| rounds.clear());
                case.reason = Some(format!("{error:#}"));
            }
        }
        self.write(&cases)?;
        self.report.rows.extend(cases.iter().flat_map(Case::rows));
        Ok(())
    }

    /// Measures a case once. If that isn't possible, the case gets the reason.
    fn measure<E: Experiment>(
        &self,
        case: &mut Case<E::Case>,
        experiment: &mut Option<E>,
        make: &mut impl FnMut() -> anyhow::Result<E>,
        round: usize,
        deadline: Instant,
    ) -> anyhow::Result<()> {
        if Instant::now() > deadline {
            case.reason = Some(format!("the budget ended after {} rounds", case.tally.counted));
            return Ok(());
        }
        if experiment.is_none() {
            match make() {
                Ok(made) => *experiment = Some(made),
                Err(error) => {
                    case.reason = Some(format!("cannot bring it up: {error:#}"));
                    return Ok(());
                }
            }
        }
        let standing = experiment.as_mut().context("nothing to measure with")?;
        let needs_quiet = standing.needs_quiet();
        if let Some(others) = if needs_quiet { self.limit.quiet()? } else { None } {
            eprintln!("  void: others use {:.0} % of the machine: {}", others.share * 100.0, case.what());
            case.tally.void += 1;
            return Ok(());
        }
        let (found, busy) = self.limit.during(|| standing.measure(&case.case, round))?;
        if let (Ok(_), Some(others)) = (&found, busy.filter(|_| needs_quiet)) {
            eprintln!("  void: others used {:.0} % of the machine: {}", others.share * 100.0, case.what());
            case.tally.void += 1;
        } else if let Some(why) = found.as_ref().err().and_then(anyhow::Error::downcast_ref::<Void>) {
            eprintln!("  void: {why}: {}", case.what());
            case.tally.void += 1;
        } else if let Err(error) = found.and_then(|figures| case.take(figures)) {
            eprintln!("  failed: {}: {error:#}", case.what());
            case.fail(&error);
            if !standing.survives_failure() {
                *experiment = None;
            }
        }
        Ok(())
    }

    /// Writes the results so far, so that a killed run keeps them.
    fn write<C>(&mut self, cases: &[Case<C>]) -> anyhow::Result<()> {
        let finished = self.report.rows.len();
        self.report.rows.extend(cases.iter().flat_map(Case::rows));
        let written = self.publish();
        self.report.rows.truncate(finished);
        written
    }

    fn publish(&mut self) -> anyhow::Result<()> {
        self.report.conditions.stamp();
        write_json(&self.options.results.join(format!("{}.json", self.report.name)), &self.report)
    }

    /// Writes and prints the results. Returns whether every bar holds.
    ///
    /// # Errors
    /// The results can't be written.
    pub(crate) fn finish(mut self) -> anyhow::Result<bool> {
        self.report.complete = self.options.only.is_none();
        self.publish()?;
        println!("{}", self.report);
        Ok(self.report.holds())
    }
}

/// Measures both sides, and in every second round the reference (1) before isthmus (0).
///
/// # Errors
/// A side can't be measured.
pub(crate) fn in_turns<T>(
    round: usize,
    mut one: impl FnMut(usize) -> anyhow::Result<T>,
) -> anyhow::Result<[T; 2]> {
    let first = round % 2;
    let (found, other) = (one(first)?, one(1 - first)?);
    Ok(if first == 0 { [found, other] } else { [other, found] })
}

/// Pairs the figures of isthmus with those of the reference.
pub(crate) fn pair_up(ours: &[f64], reference: &[f64]) -> Vec<[f64; 2]> {
    ours.iter().zip(reference).map(|(ours, reference)| [*ours, *reference]).collect()
}

#[cfg(test)]
#[path = "rounds/tests.rs"]
mod tests;
