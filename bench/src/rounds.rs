//! The rounds that every benchmark runs: until each row is decided or the budget ends.
//!
//! A benchmark consists of parts (an emulated grid each), a part of cases. A case is
//! measured once in a round and gives one pair of figures for each of its rows. A case
//! that fails, or that was measured while the machine was busy, does not end the run; the
//! rest of the round goes on. Rounds add up: a run goes on from those that earlier runs of
//! the same sources wrote, and begins with the cases that have the fewest.

mod case;
mod experiment;
mod known;
mod motion;
mod part;
mod plan;
mod wanted;

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use clap::Args;
use isthmus_lab::grid::Slow;

use crate::conditions::Conditions;
use crate::confine;
use crate::files::{read_json, write_json};
use crate::load::{Shares, Watch};
use crate::papers;
use crate::report::{Comparison, Report, Row, SCHEMA};
use crate::sources::Sources;

pub(crate) use case::Case;
pub(crate) use experiment::{Experiment, Void, in_turns, pair_up};
use known::Known;
use plan::Plan;
use wanted::{Wanted, is_wanted};

/// How deep values of results begin lines of their own: a row is a line.
const ROW_DEPTH: usize = 2;

/// How long to measure, and where results go.
#[derive(Debug, Clone, Args)]
pub(crate) struct RoundOptions {
    /// Most rounds of this run that count. Rounds end sooner if all rows are decided.
    #[arg(long, default_value_t = 30)]
    rounds: usize,
    /// Time after which no measurement begins.
    #[arg(long, default_value = "45m")]
    budget: humantime::Duration,
    /// The budget is for so many benchmarks, of which this is the next.
    #[arg(long, default_value_t = 1)]
    share: u32,
    /// When the budget began, in seconds since 1970: what earlier benchmarks left of it is for the
    /// next ones. The default is now.
    #[arg(long)]
    began: Option<u64>,
    /// Slow motion: delays and the kernel's times are so many times longer, and rates so
    /// many times smaller, where links are emulated. The figures are those of the network
    /// as described. What has rounds already goes on in theirs, unless the machine was too busy
    /// in it, or anew takes less time.
    #[arg(long, default_value_t = Slow::NONE)]
    pub slow: Slow,
    /// Where the machine is too busy for that, slow motion gets slower by itself, up to this.
    /// The default is three times as slow.
    #[arg(long)]
    slowest: Option<Slow>,
    /// Emulated grids that measure side by side, in slow motion. The machine's share that may be
    /// used by all together stays the same. Ranks that can't but poll have a grid alone.
    #[arg(long, default_value_t = 1)]
    labs: usize,
    /// Measure nothing. Tell how long it takes until all rows are decided.
    #[arg(long)]
    pub plan: bool,
    #[command(flatten)]
    shares: Shares,
    /// Measure only rows with this in their name, or those that are `undecided` (also: not
    /// measured with these sources) or `missed`. All that are given must apply.
    #[arg(long)]
    only: Vec<Wanted>,
    /// Begin anew, and drop the rows that this benchmark no longer has.
    #[arg(long)]
    anew: bool,
    /// Directory of the results.
    #[arg(long, default_value = "bench/results")]
    pub results: PathBuf,
}

impl RoundOptions {
    /// The time for this benchmark, at `now` seconds since 1970.
    fn time(&self, now: u64) -> Duration {
        let spent = now.saturating_sub(self.began.unwrap_or(now));
        self.budget.saturating_sub(Duration::from_secs(spent)) / self.share
    }

    fn slowest(&self) -> Slow {
        let default = || Slow::try_from(self.slow.factor().saturating_mul(3)).unwrap_or(self.slow);
        self.slowest.unwrap_or_else(default).max(self.slow)
    }

    /// Writes the papers' page anew, if something was measured.
    ///
    /// # Errors
    /// It can't be written.
    pub(crate) fn refresh_papers(&self) -> anyhow::Result<()> {
        if self.plan { Ok(()) } else { papers::refresh(&self.results) }
    }
}

/// A run of a benchmark.
pub(crate) struct Run {
    options: RoundOptions,
    watch: Watch,
    started: Instant,
    /// The time for the run.
    time: Duration,
    report: Report,
    known: Known,
    /// What the parts so far were to measure, and the rows that they have.
    planned: Vec<Comparison>,
    measured: Vec<Row>,
    /// Whether something is left out that the benchmark measures by default.
    is_partial: bool,
    plan: Plan,
}

impl Run {
    /// Begins a run in namespaces of its own. `tools` are asked for their versions.
    ///
    /// # Errors
    /// The user isn't root, `--rounds` or `--share` is 0, or the results of earlier runs can't be
    /// read.
    pub(crate) fn begin(
        name: &str,
        options: &RoundOptions,
        tools: &[(String, &str)],
    ) -> anyhow::Result<Self> {
        ensure!(options.rounds > 0, "--rounds must be at least 1");
        ensure!(options.share > 0, "--share must be at least 1");
        ensure!(options.labs > 0, "--labs must be at least 1");
        ensure!(
            options.labs == 1 || !options.slow.is_none(),
            "--labs needs --slow: grids side by side share processors"
        );
        if !options.plan {
            confine::enter()?;
        }
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
        Self::of(options, report)
    }

    /// A run whose results go to `report`.
    fn of(options: &RoundOptions, report: Report) -> anyhow::Result<Self> {
        let path = options.results.join(format!("{}.json", report.name));
        let known = if options.anew || !path.exists() {
            Known::default()
        } else {
            let earlier = read_json(&path).context("--anew begins without it")?;
            Known::new(earlier, report.sources.as_ref(), &report.conditions)
        };
        Ok(Self {
            options: options.clone(),
            watch: Watch::new(options.shares),
            started: Instant::now(),
            time: options.time(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs()),
            report,
            known,
            planned: Vec::new(),
            measured: Vec::new(),
            is_partial: false,
            plan: Plan::new(options.labs),
        })
    }

    /// Whether this run goes on from earlier ones.
    pub(crate) fn goes_on(&self) -> bool {
        self.known.adds_up()
    }

    /// Notes whether the run's options leave something out that the benchmark measures by default.
    /// Then its results aren't complete.
    pub(crate) fn leaves_out<T: PartialEq>(&mut self, by_default: &[T], taken: &[T]) {
        self.is_partial |= by_default.iter().any(|one| !taken.contains(one));
    }

    /// Adds a remark to the conditions of the results.
    pub(crate) fn remark(&mut self, remark: String) {
        self.report.conditions.remarks.push(remark);
    }

    /// The rows of the parts that have been measured.
    #[cfg(test)]
    fn rows(&self) -> &[Row] {
        &self.measured
    }

    /// The cases that are measured, each with the rounds of earlier runs.
    fn wanted<C>(&self, cases: Vec<Case<C>>) -> Vec<Case<C>> {
        let only = &self.options.only;
        let before = |row: Comparison| self.known.row(&row).cloned().unwrap_or_else(|| Row::new(row, &[]));
        let wanted = cases.into_iter().filter(|case| {
            let rows: Vec<Row> = case.comparisons().into_iter().map(before).collect();
            is_wanted(only, &rows)
        });
        let going_on = |case: Case<C>| {
            let earlier = self.known.rounds(&case.comparisons());
            case.going_on(earlier, only.contains(&Wanted::Missed))
        };
        wanted.map(going_on).collect()
    }

    /// Whether nothing is measured. Then the plan has the cases.
    fn plans<C>(&mut self, cases: &mut [Case<C>]) -> bool {
        if self.options.plan {
            for case in &mut *cases {
                let seconds = self.known.seconds(&case.comparisons());
                case.foresee(seconds);
            }
            self.plan.add(cases, self.options.rounds);
        }
        self.options.plan
    }

    /// Writes the results so far, so that a killed run keeps them.
    fn write<C>(&mut self, cases: &[Case<C>]) -> anyhow::Result<()> {
        let rows = self.measured.iter().cloned().chain(cases.iter().flat_map(Case::rows));
        self.report.rows = self.known.with(rows);
        self.publish()
    }

    fn publish(&mut self) -> anyhow::Result<()> {
        self.report.conditions.stamp();
        let path = self.options.results.join(format!("{}.json", self.report.name));
        write_json(&path, ROW_DEPTH, &self.report)
    }

    /// Writes and prints the results. Returns whether every bar holds.
    ///
    /// # Errors
    /// The results can't be written.
    pub(crate) fn finish(mut self) -> anyhow::Result<bool> {
        if self.options.plan {
            println!("{}: {}", self.report.name, self.plan);
            return Ok(true);
        }
        self.report.complete = !self.is_partial && is_complete(&self.planned, &self.report.rows);
        self.publish()?;
        println!("{}", self.report);
        Ok(self.report.holds())
    }
}

/// Whether all that a benchmark measures has been measured with its present sources. The results may
/// have further rows, which it leaves out.
fn is_complete(planned: &[Comparison], rows: &[Row]) -> bool {
    let is_fresh = |row: &Row| row.older.is_none() && row.figures.is_some();
    planned.iter().all(|one| rows.iter().any(|row| row.comparison.is_same(one) && is_fresh(row)))
}

#[cfg(test)]
#[path = "rounds/tests.rs"]
mod tests;
