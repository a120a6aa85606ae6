//! Collectives over sites: those that cross between sites once, against the MPI's own
//! in the same process, in turns (paper 2, section 4.2), and against what the links allow.

mod bound;
mod platform;
mod scope;

use std::fmt;
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;
use isthmus_lab::Grid;
use isthmus_lab::grid::Slow;

use crate::conditions::cores;
use crate::grid::{Bench, Node, json, words};
use crate::mpi::Mpi;
use crate::report::Comparison;
use crate::rounds::{self, Case, Experiment, Run, Void};
use crate::verdict::Bar;
use bound::{Bound, Operation, Sites};
use platform::{Layout, PLATFORMS, Platform};
use scope::Call;

/// References of the two rows of each call.
pub(crate) const OWN: &str = "the MPI's own";
pub(crate) const BOUND: &str = "the bound";

/// Bar of all calls against the MPI's own: the library must not be slower.
const NEVER_SLOWER: Bar = Bar::AtMost(1.05);
/// Bar of small messages against the bound, in which crossings count for nearly all.
const SMALL_AT_BOUND: Bar = Bar::AtMost(1.05);
/// Bar of all other messages against the bound, in which headers alone take up to 3.6 %.
const AT_BOUND: Bar = Bar::AtMost(1.15);
/// Largest size in bytes of small messages.
const SMALL_BYTES: u64 = 4096;
/// Share of the least time that a measured call must take. Less is no measurement.
const CREDIBLE: f64 = 0.98;

/// Sizes that a run of the program measures, one after the other.
struct Sizes {
    /// What each rank contributes, in bytes.
    bytes: &'static [u64],
    /// The number of calls in a round.
    repetitions: u32,
    /// The number in slow motion. A rank that got no processor delays a small call noticeably. So does
    /// BBR, which sends next to nothing for 200 ms of every 10 s: those don't become longer, and so are more
    /// of a call's time.
    slow_repetitions: u32,
    /// How many times less slow motion is. Large calls are decided by the links' rates, and take much
    /// longer than what processors do beside them.
    faster: u32,
}

/// All sizes. A call of the large ones takes a second or more.
const SIZES: [Sizes; 2] = [
    Sizes { bytes: &[8, 4 << 10, 32 << 10], repetitions: 7, slow_repetitions: 5, faster: 1 },
    Sizes { bytes: &[256 << 10, 1 << 20, 4 << 20], repetitions: 3, slow_repetitions: 3, faster: 3 },
];
/// The size that a barrier is measured with.
const NO_SIZE: u64 = SIZES[0].bytes[0];
/// Index of the site of rank 0, which is the root.
const ROOT_SITE: usize = 0;

const MPIS: [Mpi; 4] = [Mpi::Openmpi, Mpi::Mpich, Mpi::Openmpi5, Mpi::Mpich4];

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    rounds: rounds::RoundOptions,
    /// The MPIs whose collectives are measured. One that can't let others run while it waits is left
    /// out where it has more ranks than there are cores.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = MPIS)]
    mpis: Vec<Mpi>,
    /// Every operation and size over every platform, with both layouts of ranks, under each MPI. By
    /// default what other rows show as well is left out.
    #[arg(long)]
    all: bool,
}

/// The calls that a run of the program measures.
#[derive(Debug, Clone)]
struct Calls {
    operation: Operation,
    sizes: Vec<u64>,
    repetitions: u32,
    mpi: Mpi,
    platform: Platform,
    layout: Layout,
}

impl Calls {
    /// The rows of a size: against the MPI's own, and against the bound.
    fn rows(&self, bytes: u64) -> [Comparison; 2] {
        let size = if self.operation == Operation::Barrier { String::new() } else { format!(", {bytes} B") };
        let what = format!("{self}{size}{}{}", self.platform.name, self.layout);
        let at_bound = if bytes <= SMALL_BYTES { SMALL_AT_BOUND } else { AT_BOUND };
        [(OWN, NEVER_SLOWER), (BOUND, at_bound)]
            .map(|(against, bar)| Comparison::new(what.clone(), "ms", against).bar(bar))
    }
}

impl fmt::Display for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.mpi.title(), self.operation.name())
    }
}

/// The cases of a platform.
///
/// # Errors
/// The platform's grid has too few sites, or links that a bound doesn't know.
fn cases(options: &Options, platform: Platform, described: &Grid) -> anyhow::Result<Vec<Case<Calls>>> {
    let slow = options.rounds.slow;
    let links = Sites::of(described, platform.sites, platform.ranks_per_site)?;
    let fitting = options.mpis.iter().filter(|mpi| scope::fits(**mpi, platform, cores()));
    let mut cases = Vec::new();
    for (mpi, layout) in fitting.flat_map(|mpi| Layout::ALL.map(|layout| (*mpi, layout))) {
        for operation in Operation::ALL {
            for Sizes { bytes, repetitions, slow_repetitions, faster } in &SIZES {
                let is_needed = |bytes: &u64| {
                    let needed = links.bound(operation, ROOT_SITE, *bytes).needed;
                    Call { mpi, platform, layout, bytes: *bytes, needed }.is_needed()
                };
                // A barrier has no size.
                let is_barrier = operation == Operation::Barrier;
                let sizes = bytes.iter().copied().filter(|bytes| !is_barrier || *bytes == NO_SIZE);
                // What is left out by default is measured apart: so the rounds of the others go on.
                let (needed, further): (Vec<u64>, Vec<u64>) = sizes.partition(is_needed);
                for sizes in [needed, if options.all { further } else { Vec::new() }] {
                    if sizes.is_empty() {
                        continue;
                    }
                    let repetitions = if slow.is_none() { *repetitions } else { *slow_repetitions };
                    let calls = Calls { operation, sizes, repetitions, mpi, platform, layout };
                    let rows = calls.sizes.iter().flat_map(|bytes| calls.rows(*bytes)).collect();
                    let case = Case::new(calls, rows).slowed(slow.less(*faster));
                    cases.push(if mpi.can_yield() { case } else { case.alone() });
                }
            }
        }
    }
    Ok(cases)
}

/// Measures, writes the results, and returns whether every bar holds.
///
/// # Errors
/// The results can't be written.
pub(crate) fn run(options: &Options) -> anyhow::Result<bool> {
    let tools: Vec<_> = options.mpis.iter().map(|mpi| (mpi.launcher(), "--version")).collect();
    let mut run = Run::begin("coll", &options.rounds, &tools)?;
    run.leaves_out(&MPIS, &options.mpis);
    for (parts_left, platforms) in (1..=PLATFORMS.len()).rev().zip(PLATFORMS) {
        let Some(first) = platforms.first() else { continue };
        let described = first.described()?;
        let mut all = Vec::new();
        for platform in platforms {
            all.extend(cases(options, *platform, &described)?);
        }
        run.part_in_slow_motion(u32::try_from(parts_left)?, all, |slow| {
            let (bench, described) = (Bench::without_sshd(first.grid, slow)?, first.described()?);
            Ok(Jobs { bench, described, algorithms: Vec::new() })
        })?;
    }
    let holds = run.finish()?;
    options.rounds.refresh_papers()?;
    Ok(holds)
}

/// A grid in which jobs measure.
struct Jobs {
    bench: Bench,
    /// The grid without slow motion.
    described: Grid,
    /// The algorithms of the last measurement, one for each row.
    algorithms: Vec<Option<String>>,
}

impl Experiment for Jobs {
    type Case = Calls;

    fn measure(&mut self, calls: &Calls, _round: usize) -> anyhow::Result<Vec<[f64; 2]>> {
        let Calls { operation, ref sizes, repetitions, mpi, platform, layout } = *calls;
        let nodes = platform.nodes(&self.described, self.bench.nodes(), layout);
        let texts: Vec<_> = sizes.iter().map(u64::to_string).collect();
        let ranks = platform.ranks();
        let options = format!("-n {ranks} {} {}", layout.options(mpi).join(" "), mpi.yielding().join(" "));
        let arguments = format!("{} {} {repetitions}", operation.name(), texts.join(","));
        let topology = self.bench.scratch().join("topology");
        fs::write(&topology, platform.topology(&self.described, &nodes, layout)?)?;
        let options = format!("{options} env ISTHMUS_TOPOLOGY={}", topology.display());
        let links = Sites::of(&self.described, platform.sites, platform.ranks_per_site)?;
        let least = sizes.iter().map(|bytes| links.bound(operation, ROOT_SITE, *bytes).least).min();
        let least = least.unwrap_or_default();
        let clock = Clock { ranks, to_tell: TO_TELL, least };
        let measured = timed(&self.bench, &nodes, mpi, &options, &arguments, clock)?;
        ensure!(measured.len() == sizes.len(), "not a line for each size");
        let mut figures = Vec::new();
        self.algorithms.clear();
        for (bytes, Timed { milliseconds, algorithm }) in sizes.iter().zip(measured) {
            let rows = compared(milliseconds, links.bound(operation, ROOT_SITE, *bytes))?;
            self.algorithms.extend(rows.iter().map(|_| Some(algorithm.clone())));
            figures.extend(rows);
        }
        Ok(figures)
    }

    fn how(&self) -> Vec<Option<String>> {
        self.algorithms.clone()
    }

    fn polling(&self) -> &'static [&'static str] {
        PROGRAM
    }
}

/// The figures of both rows of a size, from milliseconds by the library and by the MPI's own.
///
/// # Errors
/// A time is less than what links allow.
fn compared([ours, own]: [f64; 2], bound: Bound) -> anyhow::Result<[[f64; 2]; 2]> {
    let [needed, least] = [bound.needed, bound.least].map(|time| time.as_secs_f64() * 1e3);
    for (whose, took) in [("library", ours), ("MPI", own)] {
        ensure!(
            took >= least * CREDIBLE,
            "the {whose} took {took} ms, less than the {least} ms of the links"
        );
    }
    Ok([[ours, own], [ours, needed]])
}

/// The name of the program that times calls.
pub(crate) const PROGRAM: &[&str] = &["colltime"];

/// Calls that were timed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Timed {
    /// Times by the library and by the MPI's own, as they would be without slow motion.
    pub milliseconds: [f64; 2],
    /// What the library took. `native` is the MPI's own as well.
    pub algorithm: String,
}

/// Times each size in `calls`. `options` are the launcher's, which takes `nodes` in their order.
/// `calls` are arguments of the program.
pub(crate) fn timed(
    bench: &Bench,
    nodes: &[Node],
    mpi: Mpi,
    options: &str,
    calls: &str,
    clock: Clock,
) -> anyhow::Result<Vec<Timed>> {
    let slow = bench.slow();
    let program = mpi.pausing("colltime", slow)?;
    let words = words(&format!("{options} {program} {calls} {}", clock.argument(slow)));
    let first = nodes.first().context("no node")?;
    let output = bench.output(&first.name, &bench.ours(mpi, &[], nodes, &words))?;
    output
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| figures(line, slow, clock.most_late(slow)))
        .collect()
}

/// How long the program takes to tell all ranks when to begin, over these platforms: more than two
/// crossings, of which one is needed. A crossing takes 7.8 ms at most (coll-clusters).
pub(crate) const TO_TELL: Duration = Duration::from_millis(20);
/// And what processors take for it, for each rank: many that poll may share a core. Slow motion makes
/// only the way longer.
const PROCESSORS: Duration = Duration::from_millis(25);
/// The part of a call's time, as a divisor, by which ranks may begin too late.
const MOST_LATE: u32 = 50;
/// Processors wake ranks no more exactly than that.
const EXACT: Duration = Duration::from_millis(2);

/// How all ranks begin at the same moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    pub ranks: u32,
    /// A message from rank 0 reaches each rank within this, as described.
    pub to_tell: Duration,
    /// No call takes less, as described.
    pub least: Duration,
}

impl Clock {
    /// The program's last argument.
    pub(crate) fn argument(self, slow: Slow) -> String {
        let head_start = slow.time(self.to_tell) + PROCESSORS * self.ranks;
        format!("clock={},{}", head_start.as_secs_f64(), self.most_late(slow).as_secs_f64())
    }

    /// By how much ranks may begin too late for a call that counts.
    fn most_late(self, slow: Slow) -> Duration {
        (slow.time(self.least) / MOST_LATE).max(EXACT)
    }
}

/// What a line of the program says of calls that all ranks began at most `most_late` too late.
///
/// # Errors
/// The library wasn't there, or it didn't know of several sites. [`Void`] if ranks got no processor
/// when they were to begin, again and again.
fn figures(line: &str, slow: Slow, most_late: Duration) -> anyhow::Result<Timed> {
    let found = json(line)?;
    ensure!(found["interposed"] == true, "the library isn't in the program: {found}");
    let algorithm = found["algorithm"].as_str().unwrap_or_default().to_owned();
    ensure!(!algorithm.is_empty(), "the library knows of no sites: {found}");
    let late = found["late_us"].as_f64().unwrap_or_default();
    if late > most_late.as_secs_f64() * 1e6 {
        return Err(Void(format!("a rank began {:.1} ms late", late / 1e3)).into());
    }
    let milliseconds = |name: &str| found[name].as_f64().with_context(|| format!("no {name}: {found}"));
    let both = [milliseconds("ours_us")?, milliseconds("native_us")?];
    Ok(Timed { milliseconds: both.map(|us| slow.as_described(us) / 1e3), algorithm })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_of_rows() {
        let [platforms, _] = PLATFORMS;
        let calls = |operation, platform, layout| Calls {
            operation,
            sizes: SIZES[0].bytes.to_vec(),
            repetitions: 1,
            mpi: Mpi::Openmpi,
            platform,
            layout,
        };
        for (calls, bytes, what, bar) in [
            (calls(Operation::Barrier, platforms[0], Layout::Blocks), 8, "barrier", 1.05),
            (
                calls(Operation::Bcast, platforms[0], Layout::Turns),
                4096,
                "bcast, 4096 B, sites in turns",
                1.05,
            ),
            (
                calls(Operation::Bcast, platforms[2], Layout::Blocks),
                32 << 10,
                "bcast, 32768 B, two sites",
                1.15,
            ),
        ] {
            let what = format!("Open MPI 4, {what}");
            let row = |against, bar| Comparison::new(what.clone(), "ms", against).bar(Bar::AtMost(bar));
            assert_eq!(calls.rows(bytes), [row(OWN, 1.05), row(BOUND, bar)]);
        }
    }

    #[test]
    fn a_line_says_what_the_library_took() {
        let late = |interposed: bool, algorithm: &str, late_us: f64| {
            format!(
                r#"{{"ours_us": 2000.0, "native_us": 6000.0, "late_us": {late_us}, "interposed": {interposed}, "algorithm": "{algorithm}"}}"#
            )
        };
        let line = |interposed, algorithm| late(interposed, algorithm, 1900.0);
        let slow = Slow::try_from(2).unwrap();
        let want = Timed { milliseconds: [1.0, 3.0], algorithm: "relayed".into() };
        let short = Duration::from_millis(2);
        assert_eq!(figures(&line(true, "relayed"), slow, short).unwrap(), want);
        assert!(figures(&line(true, ""), slow, short).is_err());
        assert!(figures(&line(false, "relayed"), slow, short).is_err());
        let error = figures(&late(true, "relayed", 2100.0), slow, short).unwrap_err();
        assert!(error.downcast_ref::<Void>().is_some(), "{error:#}");
        assert!(figures(&late(true, "relayed", 2100.0), slow, Duration::from_millis(3)).is_ok());
    }

    #[test]
    fn ranks_have_time_to_hear_when_to_begin() {
        let slow = Slow::try_from(10).unwrap();
        for (ranks, least_ms, want) in [(4, 5, "clock=0.3,0.002"), (32, 50, "clock=1,0.01")] {
            let clock = Clock { ranks, to_tell: TO_TELL, least: Duration::from_millis(least_ms) };
            assert_eq!(clock.argument(slow), want);
        }
    }

    #[test]
    fn less_than_links_allow_is_no_measurement() {
        let milliseconds = Duration::from_millis;
        let bound = Bound { needed: milliseconds(20), least: milliseconds(10) };
        assert_eq!(compared([15.0, 30.0], bound).unwrap(), [[15.0, 30.0], [15.0, 20.0]]);
        assert_eq!(compared([9.9, 30.0], bound).unwrap()[1], [9.9, 20.0]);
        assert!(compared([9.0, 30.0], bound).is_err());
        assert!(compared([15.0, 9.0], bound).is_err());
    }
}
