//! Messages of the NAS Parallel Benchmarks, and LAMMPS, over three sites.
//!
//! BT, SP and LU: a job of isthmus, over encrypted trunks, against plain MPI on the same
//! nodes, whose connections are its own and aren't encrypted. CG, FT, IS and LAMMPS with
//! long-range forces: a job with the library for collectives against one without.
//!
//! BT, SP and LU over trunks between gateways (gateways.rs). CG and BT once more, by the way between
//! sites (ways.rs).

pub(crate) mod gateways;
pub(crate) mod ways;

use std::fmt;

use anyhow::{Context as _, ensure};
use clap::Args;

use crate::grid::{Bench, json, root, words};
use crate::mpi::Mpi;
use crate::report::Comparison;
use crate::rounds::{self, Case, Experiment, Run, in_turns};
use crate::verdict::Bar;

/// Bar of patterns without collectives. They take at most as long as over connections of their own,
/// although isthmus encrypts and works over any network.
const BAR: Bar = Bar::AtMost(1.0);
const PATTERNS: [&str; 3] = ["bt", "sp", "lu"];
/// Bar of patterns with collectives: with the library, they are nowhere slower.
const WITH_COLLECTIVES: Bar = Bar::AtMost(1.05);
const COLLECTIVE_PATTERNS: [&str; 3] = ["cg", "ft", "is"];
const LAMMPS: &str = "lammps";
const LAMMPS_PROGRAM: &str = "lmp";
/// Shares of packets that links lose.
pub(crate) const LOSSES: [&str; 2] = ["0.1 %", "0 %"];
const SITES: [&str; 3] = ["alpha", "beta", "gamma"];
const RANKS: usize = 4;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    rounds: rounds::RoundOptions,
    /// Steps of each pattern and round.
    #[arg(long, default_value_t = 20)]
    steps: u32,
    /// Steps of each program and round by the way between sites.
    #[arg(long, default_value_t = 2)]
    ways_steps: u32,
}

#[derive(Debug, Clone, Copy)]
struct Pattern {
    name: &'static str,
    loss: &'static str,
    against: Against,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Against {
    /// The reference is Open MPI over ssh.
    Plain,
    /// The reference is a job without the library for collectives.
    NoCollectives,
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {RANKS} ranks on 3 sites, loss {}, a step", self.name.to_uppercase(), self.loss)
    }
}

/// Measures, writes the results, and returns whether every bar holds.
///
/// # Errors
/// The results can't be written.
pub(crate) fn run(options: &Options) -> anyhow::Result<bool> {
    let tools = [(Mpi::Openmpi.launcher(), "--version")];
    let mut run = Run::begin("nas", &options.rounds, &tools)?;
    let slow = options.rounds.slow;
    let against = Against::Plain;
    let plain = LOSSES.iter().flat_map(|loss| PATTERNS.map(|name| Pattern { name, loss, against }));
    let against = Against::NoCollectives;
    let without = COLLECTIVE_PATTERNS.into_iter().chain([LAMMPS]);
    let without = without.map(|name| Pattern { name, loss: LOSSES[1], against });
    let cases = plain.chain(without).map(|pattern| {
        let row = |against: &str, bar| Comparison::new(pattern.to_string(), "ms", against).bar(bar);
        let row = match pattern.against {
            Against::Plain => row("plain Open MPI", BAR),
            Against::NoCollectives => row("without the library for collectives", WITH_COLLECTIVES),
        };
        Case::new(pattern, vec![row]).slowed(slow)
    });
    run.part_in_slow_motion(3, cases.collect(), |slow| {
        Ok(Sites { bench: Bench::up("nas", slow)?, steps: options.steps })
    })?;
    run.part_in_slow_motion(2, gateways::cases(slow), |slow| gateways::Sites::up(slow, options.steps))?;
    run.part_in_slow_motion(1, ways::cases(slow), |slow| ways::Sites::up(slow, options.ways_steps))?;
    run.finish()
}

/// A grid of three sites with four nodes.
struct Sites {
    bench: Bench,
    steps: u32,
}

impl Experiment for Sites {
    type Case = Pattern;

    fn polling(&self) -> &'static [&'static str] {
        &["nas", LAMMPS_PROGRAM]
    }

    fn measure(&mut self, pattern: &Pattern, round: usize) -> anyhow::Result<Vec<[f64; 2]>> {
        for site in SITES {
            self.bench.lab().set_link(site, &[format!("loss={}", pattern.loss)])?;
        }
        let nodes = self.bench.nodes();
        ensure!(nodes.len() == RANKS, "one rank on each node");
        let options = Mpi::Openmpi.on_shared_cores().join(" ");
        let program = match pattern.name {
            LAMMPS => {
                let input = root().join("bench/programs/salt.in");
                format!("{LAMMPS_PROGRAM} -log none -in {} -var steps {}", input.display(), self.steps)
            }
            name => {
                let nas = Mpi::Openmpi.pausing("nas", self.bench.slow())?;
                format!("{nas} {name} {}", self.steps)
            }
        };
        let arguments = words(&format!("-n {RANKS} {options} {program}"));
        let pair = in_turns(round, |side| {
            let command = match (side, pattern.against) {
                (0, _) => self.bench.ours(Mpi::Openmpi, &[], nodes, &arguments),
                (_, Against::Plain) => self.bench.plain(Mpi::Openmpi, nodes, 1, &arguments),
                (_, Against::NoCollectives) => {
                    self.bench.ours(Mpi::Openmpi, &["--no-coll"], nodes, &arguments)
                }
            };
            let output = self.bench.output(&nodes[0].name, &command)?;
            let seconds = match pattern.name {
                LAMMPS => loop_seconds(&output),
                _ => json(&output)?["seconds"].as_f64(),
            };
            let seconds = self.bench.slow().as_described(seconds.context("no time")?);
            Ok(seconds * 1e3 / f64::from(self.steps))
        })?;
        Ok(vec![pair])
    }
}

/// Seconds of the steps, from LAMMPS's line "Loop time of 2.32 on 4 procs for 20 steps with 1728
/// atoms".
pub(crate) fn loop_seconds(output: &str) -> Option<f64> {
    let line = output.lines().find_map(|line| line.strip_prefix("Loop time of "))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_lammps() {
        let output = "Step Temp\n0 3\nLoop time of 2.32 on 4 procs for 20 steps with 1728 atoms\n";
        assert_eq!(loop_seconds(output), Some(2.32));
        assert_eq!(loop_seconds("ERROR: no atoms\n"), None);
    }
}
