//! Collectives over sites: those that cross between sites once, against the MPI's own
//! in the same process, in turns (paper 2, section 4.2), and against what the links allow.

mod bound;
mod platform;

use std::fmt;
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;
use isthmus_lab::Grid;
use isthmus_lab::grid::Slow;

use crate::grid::{Bench, Node, json, words};
use crate::mpi::Mpi;
use crate::report::Comparison;
use crate::rounds::{self, Case, Experiment, Run};
use crate::verdict::Bar;
use bound::{Bound, Operation, Sites};
use platform::{Layout, PLATFORMS, Platform};

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
/// Least size in bytes of large messages.
const LARGE_BYTES: u64 = 1 << 20;
/// Share of the least time that a measured call must take. Less is no measurement.
const CREDIBLE: f64 = 0.98;

/// Sizes in bytes of what each rank contributes, with the number of calls in a round. A call of the
/// large ones takes a second or more.
const SIZES: [(&[u64], u32); 2] = [(&[8, 4 << 10, 32 << 10, 256 << 10], 7), (&[1 << 20, 4 << 20], 3)];
/// Number of calls in a round of slow motion, in which calls differ little. So a start is a round.
const SLOW_REPETITIONS: u32 = 1;
/// How many times less slow motion is for the large sizes, which the links' rates decide: they take
/// much longer than what processors do beside them.
const LARGE_FASTER: u32 = 2;
/// Index of the site of rank 0, which is the root.
const ROOT_SITE: usize = 0;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    rounds: rounds::RoundOptions,
    /// The MPIs whose collectives are measured.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Mpi::Openmpi, Mpi::Mpich])]
    mpis: Vec<Mpi>,
}

/// The calls that a run of the program measures.
#[derive(Debug, Clone, Copy)]
struct Calls {
    operation: Operation,
    sizes: &'static [u64],
    repetitions: u32,
    mpi: Mpi,
    platform: Platform,
    layout: Layout,
}

impl Calls {
    /// The rows of a size: against the MPI's own, and against the bound.
    fn rows(self, bytes: u64) -> [Comparison; 2] {
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
fn cases(mpis: &[Mpi], platform: Platform, slow: Slow) -> Vec<Case<Calls>> {
    let mut cases = Vec::new();
    for (mpi, layout) in mpis.iter().flat_map(|mpi| Layout::ALL.map(|layout| (*mpi, layout))) {
        for operation in Operation::ALL {
            let is_barrier = operation == Operation::Barrier;
            let groups = if is_barrier { &SIZES[..1] } else { &SIZES[..] };
            for (sizes, repetitions) in groups {
                let sizes = if is_barrier { &sizes[..1] } else { sizes };
                let repetitions = if slow.is_none() { *repetitions } else { SLOW_REPETITIONS };
                let calls = Calls { operation, sizes, repetitions, mpi, platform, layout };
                let rows = sizes.iter().flat_map(|bytes| calls.rows(*bytes)).collect();
                let is_large = sizes.iter().all(|bytes| *bytes >= LARGE_BYTES);
                cases.push(Case::new(calls, rows).slowed(if is_large { less(slow) } else { slow }));
            }
        }
    }
    cases
}

/// The slow motion of large sizes.
fn less(slow: Slow) -> Slow {
    Slow::try_from(slow.factor().div_ceil(LARGE_FASTER)).unwrap_or(slow)
}

/// Measures, writes the results, and returns whether every bar holds.
///
/// # Errors
/// The results can't be written.
pub(crate) fn run(options: &Options) -> anyhow::Result<bool> {
    let slow = options.rounds.slow;
    let tools: Vec<_> = options.mpis.iter().map(|mpi| (mpi.launcher(), "--version")).collect();
    let mut run = Run::begin("coll", &options.rounds, &tools)?;
    for (parts_left, platforms) in (1..=PLATFORMS.len()).rev().zip(PLATFORMS) {
        let Some(first) = platforms.first() else { continue };
        let cases = platforms.iter().flat_map(|platform| cases(&options.mpis, *platform, slow)).collect();
        run.part_in_slow_motion(u32::try_from(parts_left)?, cases, |slow| {
            Ok(Jobs { bench: Bench::without_sshd(first.grid, slow)?, described: first.described()? })
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
}

impl Experiment for Jobs {
    type Case = Calls;

    fn measure(&mut self, calls: &Calls, _round: usize) -> anyhow::Result<Vec<[f64; 2]>> {
        let Calls { operation, sizes, repetitions, mpi, platform, layout } = *calls;
        let nodes = platform.nodes(&self.described, self.bench.nodes(), layout);
        let texts: Vec<_> = sizes.iter().map(u64::to_string).collect();
        let ranks = platform.ranks();
        let options = format!("-n {ranks} {} {}", layout.options(mpi).join(" "), mpi.yielding().join(" "));
        let arguments = format!("{} {} {repetitions}", operation.name(), texts.join(","));
        let topology = self.bench.scratch().join("topology");
        fs::write(&topology, platform.topology(&self.described, &nodes, layout)?)?;
        let options = format!("{options} env ISTHMUS_TOPOLOGY={}", topology.display());
        let measured = milliseconds(&self.bench, &nodes, mpi, &options, &arguments)?;
        ensure!(measured.len() == sizes.len(), "not a line for each size");
        let links = Sites::of(&self.described, platform.sites, platform.ranks_per_site)?;
        let mut figures = Vec::new();
        for (bytes, pair) in sizes.iter().zip(measured) {
            figures.extend(compared(pair, links.bound(operation, ROOT_SITE, *bytes))?);
        }
        Ok(figures)
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

/// Milliseconds of a call by the library and by the MPI's own, for each size in `calls`, as they
/// would be without slow motion. `options` are the launcher's, which takes `nodes` in their order.
/// `calls` are arguments of the program.
pub(crate) fn milliseconds(
    bench: &Bench,
    nodes: &[Node],
    mpi: Mpi,
    options: &str,
    calls: &str,
) -> anyhow::Result<Vec<[f64; 2]>> {
    let slow = bench.slow();
    let program = mpi.program("colltime")?;
    let words = words(&format!("{options} {program} {calls} {}", by_clock(slow)));
    let first = nodes.first().context("no node")?;
    let output = bench.output(&first.name, &bench.ours(mpi, &[], nodes, &words))?;
    output.lines().filter(|line| line.starts_with('{')).map(|line| figures(line, slow)).collect()
}

/// How long the program takes to tell all ranks when to begin: longer than the longest way, on which
/// a broadcast crosses several times, and than what processors take for it. Slow motion makes only
/// the way longer.
const HEAD_START: (Duration, Duration) = (Duration::from_millis(25), Duration::from_millis(50));

/// The program's last argument, by which all ranks begin at the same moment.
pub(crate) fn by_clock(slow: Slow) -> String {
    let (way, processors) = HEAD_START;
    format!("clock={}", (slow.time(way) + processors).as_secs_f64())
}

/// Milliseconds of a call by the library and by the MPI's own, from a line of the program.
fn figures(line: &str, slow: Slow) -> anyhow::Result<[f64; 2]> {
    let found = json(line)?;
    ensure!(found["interposed"] == true, "the library isn't in the program: {found}");
    let milliseconds = |name: &str| found[name].as_f64().with_context(|| format!("no {name}: {found}"));
    Ok([milliseconds("ours_us")?, milliseconds("native_us")?].map(|us| slow.as_described(us) / 1e3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_of_rows() {
        let [platforms, _] = PLATFORMS;
        let calls = |operation, platform, layout| Calls {
            operation,
            sizes: SIZES[0].0,
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
    fn less_than_links_allow_is_no_measurement() {
        let milliseconds = Duration::from_millis;
        let bound = Bound { needed: milliseconds(20), least: milliseconds(10) };
        assert_eq!(compared([15.0, 30.0], bound).unwrap(), [[15.0, 30.0], [15.0, 20.0]]);
        assert_eq!(compared([9.9, 30.0], bound).unwrap()[1], [9.9, 20.0]);
        assert!(compared([9.0, 30.0], bound).is_err());
        assert!(compared([15.0, 9.0], bound).is_err());
    }
}
