//! Collectives of more ranks than the lab holds, simulated: the library for MPI against the
//! MPI's own, on the platforms of the paper that they come from, and on ten sites. The lab's
//! sites are simulated first, and only what agrees with the lab is published.

mod lab;
mod platform;
mod platforms;
mod smpi;

use std::path::Path;

use anyhow::Context as _;
use clap::Args;
use isthmus_lab::grid::Slow;

use crate::files::read_json;
use crate::mpi::Mpi;
use crate::report::{Comparison, Report, Row};
use crate::rounds::{self, Case, Experiment, Run};
pub(crate) use lab::farthest;
pub(crate) use platform::{Order, Platform};
pub(crate) use platforms::grid5000;
pub(crate) use smpi::{Program, Selection, run as simulated};

pub(crate) const OPERATIONS: [&str; 7] =
    ["barrier", "bcast", "reduce", "allreduce", "gather", "scatter", "allgather"];
/// How many times slower than described the network of the check is, unless something else is asked for.
const CHECK_FACTOR: u32 = 10;
/// Bytes that each rank contributes. The first size is that of an integer.
pub(crate) const SIZES: [u64; 5] = [4, 1 << 10, 16 << 10, 256 << 10, 1 << 20];
/// Most bytes of all ranks' results together, as a single process copies them.
const MOST_BYTES: u64 = 8 << 30;
/// Most bytes of the root's result alone. The library leaves calls with more than an `int` counts
/// to the MPI.
const MOST_AT_ROOT: u64 = 1 << 30;
/// From so many ranks on, calls of all kinds have at most `MOST_OF_MANY` bytes, and those whose results
/// grow with the number of ranks fewer.
const MANY_RANKS: u64 = 1000;
const MOST_OF_MANY: u64 = 256 << 10;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    rounds: rounds::RoundOptions,
    /// Calls of each kind in a job of the lab. Simulations are all alike.
    #[arg(long, default_value_t = 1)]
    repetitions: u32,
}

/// The sizes with which an operation is measured.
pub(crate) fn sizes(operation: &str) -> &'static [u64] {
    match operation {
        "barrier" => &SIZES[..1],
        _ => &SIZES,
    }
}

/// Whether a call is simulated. Of very many ranks only some are, so that all end within an hour.
fn is_affordable(operation: &str, ranks: usize, bytes: u64) -> bool {
    let ranks = ranks as u64;
    let most = if ranks > MANY_RANKS { MOST_OF_MANY } else { u64::MAX };
    match operation {
        "gather" | "scatter" => ranks * bytes <= MOST_AT_ROOT && bytes <= most / 16,
        "allgather" => ranks * ranks * bytes <= MOST_BYTES && bytes <= most / 256,
        _ => bytes <= most,
    }
}

/// Name of a row of the results.
pub(crate) fn what(platform: &str, selection: Selection, operation: &str, bytes: u64) -> String {
    format!("{platform}, {}, {operation}, {bytes} B", selection.title())
}

/// Name of the reference that the library is compared with.
pub(crate) const AGAINST: &str = "the MPI's own";

/// The names of the platforms, in the order of the results.
pub(crate) fn platform_names() -> Vec<String> {
    platforms::all().into_iter().map(|platform| platform.name).collect()
}

/// Measures, writes the results, and returns whether every row was measured.
///
/// # Errors
/// The results can't be written.
pub(crate) fn run(options: &Options) -> anyhow::Result<bool> {
    let launchers = [Mpi::Openmpi, Mpi::Mpich].map(|mpi| (mpi.launcher(), "--version"));
    let [openmpi, mpich] = launchers;
    let mut run = Run::begin("simulate", &options.rounds, &[openmpi, mpich, ("smpirun".into(), "-version")])?;
    let repetitions = options.repetitions;
    let asked = options.rounds.slow;
    let slow = if asked.is_none() { Slow::try_from(CHECK_FACTOR)? } else { asked };
    run.part_in_slow_motion(2, lab::cases(slow), |slow| lab::Sites::up(repetitions, slow))?;
    let platforms = platforms::all();
    let first = platforms.first().context("no platform")?;
    run.remark(format!("smpirun {}; smpi/bw-factor 0.96533 for the lab", smpi::settings(first).join(" ")));
    let checked = checked(&options.rounds.results)?;
    for objection in objections(&checked) {
        run.remark(format!("not published: {objection}"));
    }
    let cases = platforms.iter().flat_map(|platform| simulations(platform, &checked)).collect();
    run.part(1, cases, || Ok(Simulated { scratch: tempfile::tempdir()? }))?;
    run.finish()
}

/// The rows of the check that were measured with the present sources, in this run or an earlier one:
/// the part before has written them, unless this run only plans.
fn checked(results: &Path) -> anyhow::Result<Vec<Row>> {
    let path = results.join("simulate.json");
    if !path.exists() {
        return Ok(Vec::new());
    }
    let report: Report = read_json(&path)?;
    Ok(report.rows.into_iter().filter(|row| row.older.is_none()).collect())
}

/// Reasons why operations and sizes aren't published, for each of them.
fn objections(rows: &[Row]) -> Vec<String> {
    let of = |selection| {
        OPERATIONS.iter().flat_map(move |operation| {
            sizes(operation)
                .iter()
                .filter_map(move |bytes| lab::objection(rows, selection, operation, *bytes))
        })
    };
    Selection::ALL.into_iter().flat_map(of).collect()
}

/// A run of the simulator.
struct Simulation {
    platform: Platform,
    selection: Selection,
    sizes: Vec<(&'static str, Vec<u64>)>,
}

/// The cases to simulate on a platform. `checked` are the rows that compare the simulation with the
/// lab.
fn simulations(platform: &Platform, checked: &[Row]) -> Vec<Case<Simulation>> {
    let published = |selection, operation| {
        let affordable =
            sizes(operation).iter().filter(|bytes| is_affordable(operation, platform.ranks(), **bytes));
        let near =
            affordable.filter(|bytes| lab::objection(checked, selection, operation, **bytes).is_none());
        (operation, near.copied().collect::<Vec<_>>())
    };
    let case = |selection, operations: &[&'static str]| {
        let all = operations.iter().map(|operation| published(selection, operation));
        let sizes: Vec<_> = all.filter(|(_, sizes)| !sizes.is_empty()).collect();
        let name = |(operation, sizes): &(&'static str, Vec<u64>)| {
            let what = |bytes: &u64| what(&platform.name, selection, operation, *bytes);
            sizes.iter().map(|bytes| Comparison::new(what(bytes), "ms", AGAINST)).collect::<Vec<_>>()
        };
        let rows: Vec<_> = sizes.iter().flat_map(name).collect();
        let simulation = Simulation { platform: platform.clone(), selection, sizes };
        (!rows.is_empty()).then(|| Case::new(simulation, rows).enough(1))
    };
    // Of many ranks, what precedes the first collective takes the longest.
    let together = if platform.ranks() as u64 > MANY_RANKS { OPERATIONS.len() } else { 1 };
    let runs = || OPERATIONS.chunks(together);
    Selection::ALL
        .into_iter()
        .flat_map(|selection| runs().filter_map(|run| case(selection, run)).collect::<Vec<_>>())
        .collect()
}

/// The simulator, as it measures cases.
struct Simulated {
    scratch: tempfile::TempDir,
}

impl Experiment for Simulated {
    type Case = Simulation;

    fn measure(&mut self, case: &Simulation, _round: usize) -> anyhow::Result<Vec<[f64; 2]>> {
        let Simulation { platform, selection, sizes } = case;
        let cases: Vec<_> = sizes.iter().map(|(operation, sizes)| (*operation, sizes.as_slice())).collect();
        let times = smpi::simulate(platform, *selection, &cases, self.scratch.path())?;
        Ok(times.iter().map(smpi::Times::milliseconds).collect())
    }

    fn needs_quiet(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_simulated_of_very_many_ranks() {
        for (operation, ranks, bytes, want) in [
            ("bcast", 504, 1 << 20, true),
            ("bcast", 2000, 256 << 10, true),
            ("bcast", 2000, 1 << 20, false),
            ("gather", 504, 1 << 20, true),
            ("gather", 2000, 16 << 10, true),
            ("gather", 2000, 256 << 10, false),
            ("allgather", 180, 256 << 10, true),
            ("allgather", 504, 256 << 10, false),
            ("allgather", 2000, 1 << 10, true),
            ("allgather", 2000, 16 << 10, false),
        ] {
            assert_eq!(is_affordable(operation, ranks, bytes), want, "{operation} of {ranks}, {bytes} B");
        }
    }

    #[test]
    fn nothing_is_published_that_was_not_compared() {
        let platform = platforms::all().remove(0);
        assert!(simulations(&platform, &[]).is_empty());
        let figures: usize = OPERATIONS.iter().map(|operation| sizes(operation).len()).sum();
        assert_eq!(objections(&[]).len(), 2 * figures);
    }
}
