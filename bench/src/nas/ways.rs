//! CG and BT by the way between three sites: figures 4 and 5 of Coti et al., CCGRID 2008. 15 ranks are at the
//! first site, 5 at each of the two others, as in the paper's example of 25 nodes. The sites of a way trust
//! each other, as the paper's, so that nothing is encrypted.

use anyhow::Context as _;
use isthmus_lab::grid::Slow;

use crate::connect::until_known;
use crate::grid::{Bench, Node, json, words};
use crate::mpi::Mpi;
use crate::report::Comparison;
use crate::rounds::{Case, Experiment, in_turns};

pub(super) const GRID: &str = "nas-ways";
/// The programs, with the paper's figures.
pub(crate) const PROGRAMS: [(&str, &str); 2] = [("cg", "figure 4"), ("bt", "figure 5")];
/// The ways, each with how its sites' names begin and the paper's technique.
pub(crate) const WAYS: [(&str, &str, &str); 3] =
    [("direct", "open", "direct"), ("traverse", "less", "traversing"), ("relay", "sym", "proxy")];
/// Where the reference runs.
const PLAIN: &str = "open";
const RANKS: usize = 25;
const SLOTS: u32 = 5;
/// What the reference is called in rows.
pub(crate) const AGAINST: &str = "plain Open MPI, no way";

/// A program over a way.
pub(super) struct Ways {
    program: &'static str,
    way: &'static str,
    sites: &'static str,
}

/// Name of a row.
pub(crate) fn what(program: &str, way: &str) -> String {
    format!("{}, {RANKS} ranks on 3 sites (15 + 5 + 5), {way}, a step", program.to_uppercase())
}

pub(super) fn cases(slow: Slow) -> Vec<Case<Ways>> {
    let all = PROGRAMS
        .into_iter()
        .flat_map(|(program, _)| WAYS.map(|(way, sites, _)| Ways { program, way, sites }));
    let case = |ways: Ways| {
        let row = Comparison::new(what(ways.program, ways.way), "ms", AGAINST);
        Case::new(ways, vec![row]).slowed(slow)
    };
    all.map(case).collect()
}

/// The sites of all ways.
pub(super) struct Sites {
    bench: Bench,
    steps: u32,
}

impl Sites {
    pub(super) fn up(slow: Slow, steps: u32) -> anyhow::Result<Self> {
        let bench = Bench::up(GRID, slow)?;
        for (way, sites, _) in WAYS {
            for [from, to] in [["a", "b"], ["a", "c"], ["b", "c"]] {
                until_known(&bench, way, [&format!("n1.{sites}-{from}"), &format!("n1.{sites}-{to}")])?;
            }
        }
        Ok(Self { bench, steps })
    }

    /// The nodes of a way, the first site's first.
    fn nodes(&self, sites: &str) -> Vec<Node> {
        let is_meant =
            |node: &&Node| node.name.split_once('.').is_some_and(|(_, site)| site.starts_with(sites));
        self.bench.nodes().iter().filter(is_meant).cloned().collect()
    }
}

impl Experiment for Sites {
    type Case = Ways;

    fn polling(&self) -> &'static [&'static str] {
        &["nas"]
    }

    fn measure(&mut self, ways: &Ways, round: usize) -> anyhow::Result<Vec<[f64; 2]>> {
        let mpi = Mpi::Openmpi;
        let program = format!("{} {} {}", mpi.pausing("nas", self.bench.slow())?, ways.program, self.steps);
        let arguments = words(&format!("-n {RANKS} {} {program}", mpi.in_blocks().join(" ")));
        let pair = in_turns(round, |side| {
            let nodes = self.nodes([ways.sites, PLAIN][side]);
            // The paper's collectives are the MPI's own.
            let command = match side {
                0 => self.bench.ours(mpi, &["--no-coll"], &nodes, &arguments),
                _ => self.bench.plain(mpi, &nodes, SLOTS, &arguments),
            };
            let first = nodes.first().context("no node")?;
            let seconds = json(&self.bench.output(&first.name, &command)?)?["seconds"].as_f64();
            let seconds = self.bench.slow().as_described(seconds.context("no time")?);
            Ok(seconds * 1e3 / f64::from(self.steps))
        })?;
        Ok(vec![pair])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::root;

    #[test]
    fn three_fifths_are_at_the_first_site() {
        let grid = isthmus_lab::Grid::load(&root().join(format!("bench/grids/{GRID}.toml"))).unwrap();
        for (way, sites, _) in WAYS {
            let nodes: Vec<usize> = ["a", "b", "c"]
                .iter()
                .filter_map(|which| grid.sites.iter().find(|site| site.name == format!("{sites}-{which}")))
                .map(|site| site.nodes.len())
                .collect();
            assert_eq!(nodes, [3, 1, 1], "{way}");
        }
    }
}
