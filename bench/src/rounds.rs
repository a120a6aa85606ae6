//! The rounds that every benchmark runs: until each row is decided or the budget ends.
//!
//! A benchmark consists of parts (an emulated grid each), a part of cases. A case is
//! measured once in a round and gives one pair of figures for each of its rows. A case
//! that fails, or that was measured while others used the machine, does not end the
//! run; the rest of the round goes on.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use clap::Args;

use crate::conditions::Conditions;
use crate::confine;
use crate::load::Limit;
use crate::report::{Comparison, Report, Row, SCHEMA, write_json};
use crate::sources::Sources;
use crate::verdict::{LEAST_ROUNDS, Verdict};

/// Rounds that a row without a bar needs.
const ENOUGH_ROUNDS: usize = 3;
/// Void rounds after which a case is given up.
const MOST_VOID: usize = 10;
/// Failed rounds after which a case is given up, unless more rounds count.
const MOST_FAILED: usize = 3;

/// How long to measure, and where results go.
#[derive(Debug, Clone, Args)]
pub struct Options {
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
    /// Directory of the results.
    #[arg(long, default_value = "bench/results")]
    pub results: PathBuf,
}

/// What measures the cases of a part.
pub trait Experiment {
    /// Which measurement.
    type Case;

    /// Measures a case: ours and the reference's figure for each of its rows.
    ///
    /// # Errors
    /// If it can't be measured; the row has the reason.
    fn measure(&mut self, case: &Self::Case, round: usize) -> anyhow::Result<Vec<[f64; 2]>>;

    /// Whether it can go on after a measurement failed. If not, it is made anew.
    fn survives_failure(&self) -> bool {
        true
    }

    /// Ends it, and checks that it was what was to be measured.
    ///
    /// # Errors
    /// If it was not: then no round counts.
    fn finish(self) -> anyhow::Result<()>
    where
        Self: Sized,
    {
        Ok(())
    }
}

/// A case with its rows and the rounds so far.
pub struct Case<C> {
    case: C,
    /// Rounds that count before it may be decided.
    least: usize,
    rows: Vec<(Comparison, Vec<[f64; 2]>)>,
    tally: Tally,
    reason: Option<String>,
}

impl<C> Case<C> {
    /// A case with these rows.
    pub fn new(case: C, rows: Vec<Comparison>) -> Self {
        let judged = rows.iter().any(|row| row.bar.is_some());
        Self {
            case,
            least: if judged { LEAST_ROUNDS } else { ENOUGH_ROUNDS },
            rows: rows.into_iter().map(|row| (row, Vec::new())).collect(),
            tally: Tally::default(),
            reason: None,
        }
    }

    /// The same with another number of rounds that suffices, if no row has a bar.
    pub fn enough(self, rounds: usize) -> Self {
        let judged = self.rows.iter().any(|(row, _)| row.bar.is_some());
        Self { least: if judged { self.least } else { rounds }, ..self }
    }

    fn rows(&self) -> impl Iterator<Item = Row> {
        self.rows.iter().map(|(comparison, rounds)| {
            let row = Row::new(comparison.clone(), rounds);
            let undecided = matches!(row.verdict, Some(Verdict::Undecided | Verdict::NotMeasured));
            let reason = if undecided { self.reason.clone() } else { None };
            let reason = reason.or_else(|| self.tally.last_failure.clone());
            Row { reason, void: self.tally.void, failed: self.tally.failed, ..row }
        })
    }

    fn take(&mut self, figures: Vec<[f64; 2]>) -> anyhow::Result<()> {
        ensure!(figures.len() == self.rows.len(), "{} figures for {} rows", figures.len(), self.rows.len());
        for ([ours, reference], (row, _)) in figures.iter().zip(&self.rows) {
            ensure!((ours / reference).is_finite(), "{}: {ours} to {reference} is no ratio", row.what);
        }
        self.rows.iter_mut().zip(figures).for_each(|((_, rounds), pair)| rounds.push(pair));
        self.tally.counted += 1;
        Ok(())
    }

    /// Whether it needs no further round, and why.
    fn is_done(&mut self, most: usize) -> bool {
        let undecided = || self.rows().any(|row| row.verdict == Some(Verdict::Undecided));
        let next = self.tally.next(self.least, most, undecided);
        if let Next::Stop(reason) = &next {
            self.reason.get_or_insert_with(|| reason.clone());
        }
        self.reason.is_some() || next == Next::Decided
    }
}

/// The rounds of a case so far.
#[derive(Debug, Clone, Default)]
struct Tally {
    counted: usize,
    void: usize,
    failed: usize,
    last_failure: Option<String>,
}

/// What becomes of a case after its rounds so far.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Round,
    Decided,
    Stop(String),
}

impl Tally {
    fn next(&self, least: usize, most: usize, undecided: impl Fn() -> bool) -> Next {
        if self.counted >= least && !undecided() {
            Next::Decided
        } else if self.counted >= most {
            Next::Stop(format!("not decided after {} rounds", self.counted))
        } else if self.void >= MOST_VOID && self.void > self.counted {
            Next::Stop(format!("other processes used the machine during {} rounds", self.void))
        } else if self.failed >= MOST_FAILED && self.failed > self.counted {
            Next::Stop(self.last_failure.clone().unwrap_or_default())
        } else {
            Next::Round
        }
    }
}

/// A run of one benchmark.
pub struct Run {
    options: Options,
    limit: Limit,
    started: Instant,
    report: Report,
}

impl Run {
    /// Begins a run, in namespaces of its own; `tools` are asked for their versions.
    ///
    /// # Errors
    /// Without root.
    pub fn begin(name: &str, options: &Options, tools: &[(String, &str)]) -> anyhow::Result<Self> {
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

    /// Measures one part. `parts_left` counts this one: it gets its share of the budget
    /// that is left. `make` brings up what measures.
    ///
    /// # Errors
    /// If the results can't be written.
    pub fn part<E: Experiment>(
        &mut self,
        parts_left: u32,
        mut cases: Vec<Case<E::Case>>,
        mut make: impl FnMut() -> anyhow::Result<E>,
    ) -> anyhow::Result<()> {
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

    /// Measures a case in one round.
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
        let what = case.rows.first().map_or("", |(row, _)| row.what.as_str());
        if let Some(others) = self.limit.quiet()? {
            eprintln!("  void: others use {:.0} % of the machine: {what}", others.share * 100.0);
            case.tally.void += 1;
            return Ok(());
        }
        let (found, busy) = self.limit.during(|| standing.measure(&case.case, round))?;
        if let (Ok(_), Some(others)) = (&found, busy) {
            eprintln!("  void: others used {:.0} % of the machine: {what}", others.share * 100.0);
            case.tally.void += 1;
        } else if let Err(error) = found.and_then(|figures| case.take(figures)) {
            eprintln!("  failed: {}: {error:#}", case.rows.first().map_or("", |(row, _)| row.what.as_str()));
            case.tally.failed += 1;
            case.tally.last_failure = Some(shortened(&format!("{error:#}")));
            if !standing.survives_failure() {
                *experiment = None;
            }
        }
        Ok(())
    }

    /// Writes what there is, so that a killed run keeps it.
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

    /// Writes and prints the results, and gives whether every bar holds.
    ///
    /// # Errors
    /// If the results can't be written.
    pub fn finish(mut self) -> anyhow::Result<bool> {
        self.report.complete = true;
        self.publish()?;
        println!("{}", self.report);
        Ok(self.report.holds())
    }
}

/// The beginning of a reason: a failed program may print a lot.
fn shortened(reason: &str) -> String {
    const LONGEST: usize = 600;
    let line = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{} …", &line[..at]),
        None => line,
    }
}

/// Sides in turns: neither ours (0) nor the reference (1) always goes first.
///
/// # Errors
/// If a side can't be measured.
pub fn in_turns<T>(round: usize, mut one: impl FnMut(usize) -> anyhow::Result<T>) -> anyhow::Result<[T; 2]> {
    let first = round % 2;
    let (found, other) = (one(first)?, one(1 - first)?);
    Ok(if first == 0 { [found, other] } else { [other, found] })
}

/// Two figures of one side each, as one pair.
pub fn pair_up(ours: &[f64], reference: &[f64]) -> Vec<[f64; 2]> {
    ours.iter().zip(reference).map(|(ours, reference)| [*ours, *reference]).collect()
}

#[cfg(test)]
#[path = "rounds/tests.rs"]
mod tests;
