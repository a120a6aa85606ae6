//! What simulations are compared with: the same program with as many real ranks, as a job of
//! isthmus over the lab's four sites. The links are in slow motion, in the lab and in the
//! simulation, so that processors, which nobody simulates, decide little. The library chooses by the
//! same paths in both. The least time of
//! several calls counts, since whatever else the machine does only ever adds to it. All ranks
//! begin at the same moment.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, ensure};
use isthmus_lab::Grid;
use isthmus_lab::grid::Slow;

use super::platform::{Order, Platform};
use super::smpi::{Selection, Times, read_times, simulate, words};
use super::{OPERATIONS, sizes};
use crate::coll::{Clock, PROGRAM, TO_TELL};
use crate::grid::{Bench, root};
use crate::report::{Comparison, Row};
use crate::rounds::{Case, Experiment};

/// All ranks, two on each of four nodes: few enough for a machine of two cores.
const RANKS: u32 = 8;
/// How ranks are placed. Both must agree with the lab.
const ORDERS: [Order; 2] = [Order::BySite, Order::InTurns];
/// How far the simulation may be from the lab, as a share of the lab's time.
const TOLERANCE: f64 = 0.15;
const SIDES: [&str; 2] = ["the library", "the MPI's own"];
const GRID: &str = "coll";

/// A job that measures all sizes of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Job {
    selection: Selection,
    order: Order,
    operation: &'static str,
}

impl Job {
    fn what(self, bytes: u64, side: &str) -> String {
        let Self { selection, order, operation } = self;
        format!("check, {}, {RANKS} ranks{order}, {operation}, {bytes} B, {side}", selection.title())
    }

    /// Options of the launcher that place the ranks.
    fn placing(self) -> Vec<String> {
        let mpi = self.selection.mpi();
        match self.order {
            Order::BySite => mpi.in_blocks(),
            Order::InTurns => mpi.on_shared_cores(),
        }
    }
}

/// The cases in which the simulation is compared with the lab.
pub(super) fn cases(slow: Slow) -> Vec<Case<Job>> {
    let mut cases = Vec::new();
    for selection in Selection::ALL {
        for order in ORDERS {
            for operation in OPERATIONS {
                let job = Job { selection, order, operation };
                let rows = sizes(operation).iter().flat_map(|bytes| {
                    SIDES.map(|side| Comparison::new(job.what(*bytes, side), "ms", "the lab"))
                });
                cases.push(Case::new(job, rows.collect()).slowed(slow).enough(1));
            }
        }
    }
    cases
}

/// The lab's sites, and what was simulated of them.
pub(super) struct Sites {
    bench: Bench,
    grid: Grid,
    scratch: tempfile::TempDir,
    repetitions: u32,
    simulated: BTreeMap<Job, Vec<Times>>,
}

impl Sites {
    pub(super) fn up(repetitions: u32, slow: Slow) -> anyhow::Result<Self> {
        Ok(Self {
            bench: Bench::without_sshd(GRID, slow)?,
            grid: Grid::load(&root().join(format!("bench/grids/{GRID}.toml")))?.slowed(slow)?,
            scratch: tempfile::tempdir()?,
            repetitions,
            simulated: BTreeMap::new(),
        })
    }

    fn simulated(&mut self, job: Job) -> anyhow::Result<&[Times]> {
        if !self.simulated.contains_key(&job) {
            let platform = Platform::of_lab(&self.grid, RANKS as usize, job.order)?;
            let cases = [(job.operation, sizes(job.operation))];
            let times = simulate(&platform, job.selection, &cases, self.scratch.path())?;
            let slow = self.bench.slow();
            self.simulated.insert(job, times.into_iter().map(|times| times.described(slow)).collect());
        }
        self.simulated.get(&job).map(Vec::as_slice).context("it was not simulated")
    }

    fn measured(&self, job: Job) -> anyhow::Result<Vec<Times>> {
        let (mpi, nodes) = (job.selection.mpi(), self.bench.nodes());
        let (program, options) = (mpi.pausing("colltime", self.bench.slow())?, job.placing().join(" "));
        let further = mpi.yielding().join(" ");
        // The longest first: connections that have carried little begin slowly, which nobody simulates.
        let descending: Vec<u64> = sizes(job.operation).iter().rev().copied().collect();
        let cases = [(job.operation, descending.as_slice())];
        let words = words(&cases, self.repetitions).join(" ");
        // Otherwise the library would choose by what agents have measured of the sites' paths so far.
        let topology = self.bench.scratch().join("topology");
        fs::write(&topology, Platform::of_lab(&self.grid, RANKS as usize, job.order)?.topology())?;
        let clock = Clock { ranks: RANKS, to_tell: TO_TELL, least: TO_TELL / 4 };
        let arguments = crate::grid::words(&format!(
            "-n {RANKS} {options} {further} env ISTHMUS_TOPOLOGY={} {program} {words} {}",
            topology.display(),
            clock.argument(self.bench.slow())
        ));
        let output = self.bench.output(&nodes[0].name, &self.bench.ours(mpi, &[], nodes, &arguments))?;
        let slow = self.bench.slow();
        let times = read_times(&output, &cases)?.into_iter().rev();
        Ok(times.map(|times| times.described(slow)).collect())
    }
}

impl Experiment for Sites {
    type Case = Job;

    fn polling(&self) -> &'static [&'static str] {
        PROGRAM
    }

    fn measure(&mut self, job: &Job, _round: usize) -> anyhow::Result<Vec<[f64; 2]>> {
        let measured = self.measured(*job)?;
        let simulated = self.simulated(*job)?;
        ensure!(measured.len() == simulated.len(), "not the same figures");
        Ok(simulated
            .iter()
            .zip(&measured)
            .flat_map(|(simulated, measured)| {
                let (simulated, measured) = (simulated.milliseconds(), measured.milliseconds());
                [0, 1].map(|side| [simulated[side], measured[side]])
            })
            .collect())
    }
}

/// The ratio of simulation to lab that is farthest from 1 however ranks are placed, for the
/// library and for the MPI's own. `None` if a ratio wasn't measured.
pub(crate) fn farthest(
    rows: &[Row],
    selection: Selection,
    operation: &'static str,
    bytes: u64,
) -> [Option<f64>; 2] {
    SIDES.map(|side| {
        let ratios = ORDERS.map(|order| {
            let what = Job { selection, order, operation }.what(bytes, side);
            let row = rows.iter().find(|row| row.comparison.what == what)?;
            row.figures.as_ref().map(|figures| figures.ratio)
        });
        let farther =
            |one: f64, other: f64| if (one - 1.0).abs() > (other - 1.0).abs() { one } else { other };
        ratios.into_iter().reduce(|one, other| Some(farther(one?, other?))).flatten()
    })
}

/// Why an operation's figures of a size aren't published. `None` if all are near the lab's.
pub(super) fn objection(
    rows: &[Row],
    selection: Selection,
    operation: &'static str,
    bytes: u64,
) -> Option<String> {
    let found = farthest(rows, selection, operation, bytes);
    if found.iter().all(|ratio| ratio.is_some_and(|ratio| (ratio - 1.0).abs() <= TOLERANCE)) {
        return None;
    }
    let [library, own] =
        found.map(|ratio| ratio.map_or_else(|| "not measured".to_owned(), |ratio| format!("{ratio:.2}")));
    let title = selection.title();
    Some(format!("{title}, {operation}, {bytes} B: simulation to lab {library}, {own} of the MPI's own"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_must_be_near_the_lab() {
        let rows = |figures: &[[f64; 2]]| -> Vec<Row> {
            let jobs = ORDERS.map(|order| Job { selection: Selection::Mpich, order, operation: "bcast" });
            let whats = jobs.iter().flat_map(|job| SIDES.map(|side| job.what(4, side)));
            whats
                .zip(figures)
                .map(|(what, pair)| Row::new(Comparison::new(what, "ms", "the lab"), &[*pair]))
                .collect()
        };
        for (name, figures, want) in [
            ("near", [[10.0, 10.0], [11.4, 10.0], [8.6, 10.0], [10.0, 10.0]].as_slice(), None),
            (
                "one is too slow",
                &[[10.0, 10.0], [12.0, 10.0], [11.0, 10.0], [10.0, 10.0]],
                Some("1.10, 1.20 of"),
            ),
            (
                "one is too fast",
                &[[10.0, 10.0], [10.0, 10.0], [8.0, 10.0], [10.0, 10.0]],
                Some("lab 0.80, 1.00 of"),
            ),
            ("one is missing", &[[10.0, 10.0], [10.0, 10.0], [10.0, 10.0]], Some("not measured")),
        ] {
            let found = objection(&rows(figures), Selection::Mpich, "bcast", 4);
            assert_eq!(found.is_some(), want.is_some(), "{name}: {found:?}");
            assert!(found.unwrap_or_default().contains(want.unwrap_or_default()), "{name}");
        }
    }
}
