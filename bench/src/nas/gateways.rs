//! BT, SP and LU over trunks between gateways, as over MPI5000's front-ends (Alter and Glück,
//! RR-6986, 2009, §6): against plain MPI, whose connections are its own.

use anyhow::{Context as _, ensure};
use isthmus_lab::grid::Slow;
use serde_json::Value;

use super::{BAR, LOSSES, RANKS, SITES};
use crate::grid::{Bench, Node, json, words};
use crate::mpi::Mpi;
use crate::report::Comparison;
use crate::rounds::{Case, Experiment, in_turns};

const GRID: &str = "nas-site-trunk";
/// The programs, each with the paper's time with MPI5000 by that without it.
pub(crate) const PROGRAMS: [(&str, f64); 3] = [("bt", 0.65), ("sp", 0.72), ("lu", 0.85)];
/// What the reference is called in rows.
pub(crate) const AGAINST: &str = "plain Open MPI, no gateways";
/// The sites' machines that have no ranks.
const FRONT_END: &str = "fe.";

/// A program over links that lose this share of packets.
#[derive(Debug, Clone, Copy)]
pub(super) struct OverTrunks {
    program: &'static str,
    loss: &'static str,
}

/// Name of a row.
pub(crate) fn what(program: &str, loss: &str) -> String {
    format!("{}, {RANKS} ranks on 3 sites, site trunks, loss {loss}, a step", program.to_uppercase())
}

pub(super) fn cases(slow: Slow) -> Vec<Case<OverTrunks>> {
    let all = LOSSES.into_iter().flat_map(|loss| PROGRAMS.map(|(program, _)| OverTrunks { program, loss }));
    let case = |over: OverTrunks| {
        let row = Comparison::new(what(over.program, over.loss), "ms", AGAINST).bar(BAR);
        Case::new(over, vec![row]).slowed(slow)
    };
    all.map(case).collect()
}

/// Three sites whose gateways keep trunks.
pub(super) struct Sites {
    bench: Bench,
    /// The nodes that have ranks.
    nodes: Vec<Node>,
    steps: u32,
}

impl Sites {
    pub(super) fn up(slow: Slow, steps: u32) -> anyhow::Result<Self> {
        let bench = Bench::up(GRID, slow)?;
        let has_ranks = |node: &&Node| !node.name.starts_with(FRONT_END);
        let nodes: Vec<_> = bench.nodes().iter().filter(has_ranks).cloned().collect();
        ensure!(nodes.len() == RANKS, "one rank on each node");
        Ok(Self { bench, nodes, steps })
    }
}

impl Experiment for Sites {
    type Case = OverTrunks;

    fn polling(&self) -> &'static [&'static str] {
        &["nas"]
    }

    fn measure(&mut self, over: &OverTrunks, round: usize) -> anyhow::Result<Vec<[f64; 2]>> {
        for site in SITES {
            self.bench.lab().set_link(site, &[format!("loss={}", over.loss)])?;
        }
        let mpi = Mpi::Openmpi;
        let account = self.bench.scratch().join("account.json").display().to_string();
        let options = mpi.on_shared_cores().join(" ");
        let program = format!("{} {} {}", mpi.pausing("nas", self.bench.slow())?, over.program, self.steps);
        let arguments = words(&format!("-n {RANKS} {options} {program}"));
        let pair = in_turns(round, |side| {
            let command = match side {
                0 => self.bench.ours(mpi, &["--report", &account], &self.nodes, &arguments),
                _ => self.bench.plain(mpi, &self.nodes, 1, &arguments),
            };
            let first = self.nodes.first().context("no node")?;
            let seconds = json(&self.bench.output(&first.name, &command)?)?["seconds"].as_f64();
            let seconds = self.bench.slow().as_described(seconds.context("no time")?);
            Ok(seconds * 1e3 / f64::from(self.steps))
        })?;
        let report: Value = serde_json::from_str(&std::fs::read_to_string(&account)?)?;
        let pairs = report["pairs"].as_array().context("no pairs")?;
        let by_gateways = |pair: &Value| pair["encryption"] == "gateways";
        ensure!(!pairs.is_empty() && pairs.iter().all(by_gateways), "not over site trunks: {pairs:?}");
        Ok(vec![pair])
    }
}
