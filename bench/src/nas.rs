//! Messages as BT, SP and LU of the NAS Parallel Benchmarks send them, over three sites:
//! a job of isthmus, over encrypted trunks, against plain MPI on the same nodes, whose
//! connections are its own and aren't encrypted.

use std::fmt;

use anyhow::{Context as _, ensure};
use clap::Args;

use crate::grid::{Bench, json, words};
use crate::mpi::Mpi;
use crate::report::Comparison;
use crate::rounds::{self, Case, Experiment, Run, in_turns};
use crate::verdict::Bar;

/// As long as with connections of their own, encrypted and over any network.
const BAR: Bar = Bar::AtMost(1.0);
const PATTERNS: [&str; 3] = ["bt", "sp", "lu"];
const LOSSES: [&str; 2] = ["0.1 %", "0 %"];
const SITES: [&str; 3] = ["alpha", "beta", "gamma"];
const RANKS: usize = 4;

/// How to measure.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    rounds: rounds::RoundOptions,
    /// Steps of each pattern and round.
    #[arg(long, default_value_t = 20)]
    steps: u32,
}

#[derive(Debug, Clone, Copy)]
struct Pattern {
    name: &'static str,
    loss: &'static str,
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {RANKS} ranks on 3 sites, loss {}, a step", self.name.to_uppercase(), self.loss)
    }
}

/// Measures, writes the results, and returns whether every bar holds.
///
/// # Errors
/// If the results can't be written.
pub(crate) fn run(options: &Options) -> anyhow::Result<bool> {
    let tools = [(Mpi::Openmpi.launcher(), "--version")];
    let mut run = Run::begin("nas", &options.rounds, &tools)?;
    let patterns = LOSSES.iter().flat_map(|loss| PATTERNS.map(|name| Pattern { name, loss }));
    let cases = patterns.map(|pattern| {
        let against_plain = Comparison::new(pattern.to_string(), "ms", "plain Open MPI").bar(BAR);
        Case::new(pattern, vec![against_plain])
    });
    run.part(1, cases.collect(), || Ok(Sites { bench: Bench::up("nas")?, steps: options.steps }))?;
    run.finish()
}

/// Three sites with four nodes.
struct Sites {
    bench: Bench,
    steps: u32,
}

impl Experiment for Sites {
    type Case = Pattern;

    fn measure(&mut self, pattern: &Pattern, round: usize) -> anyhow::Result<Vec<[f64; 2]>> {
        for site in SITES {
            self.bench.lab().set_link(site, &[format!("loss={}", pattern.loss)])?;
        }
        let nodes = self.bench.nodes();
        ensure!(nodes.len() == RANKS, "one rank on each node");
        let (program, options) = (Mpi::Openmpi.program("nas")?, Mpi::Openmpi.on_shared_cores().join(" "));
        let arguments = words(&format!("-n {RANKS} {options} {program} {} {}", pattern.name, self.steps));
        let pair = in_turns(round, |side| {
            let command = match side {
                0 => self.bench.ours(Mpi::Openmpi, &[], nodes, &arguments),
                _ => self.bench.plain(Mpi::Openmpi, nodes, 1, &arguments),
            };
            let found = json(&self.bench.output(&nodes[0].name, &command)?)?;
            let seconds = found["seconds"].as_f64().context("no time")?;
            Ok(seconds * 1e3 / f64::from(self.steps))
        })?;
        Ok(vec![pair])
    }
}
