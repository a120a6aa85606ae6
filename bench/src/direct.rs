//! Handed-over sockets against plain MPI, between the same two nodes of one
//! site: the cost of interposing on set-up afterwards, which should be none.

use anyhow::Context as _;
use clap::Args;
use isthmus_lab::grid::Slow;

use crate::grid::{Bench, json, words};
use crate::mpi::Mpi;
use crate::report::Comparison;
use crate::rounds::{self, Case, Experiment, Run, in_turns};
use crate::verdict::Bar;

/// Limit of the ratio to plain MPI. A handed-over socket is the kernel's own, so the rest is the
/// machine's noise.
const BAR: Bar = Bar::AtMost(1.02);

/// Sizes of messages in bytes.
const SIZES: [&str; 2] = ["1", "10000000"];

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    rounds: rounds::RoundOptions,
    /// Seconds per message size and round.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
}

/// Measures, writes the results, and returns whether every bar holds.
pub(crate) fn run(options: &Options) -> anyhow::Result<bool> {
    let tools = [(Mpi::Openmpi.launcher(), "--version")];
    let mut run = Run::begin("direct", &options.rounds, &tools)?;
    let cases = SIZES.map(|size| {
        let what = format!("ping-pong {size} B, half round trip");
        Case::new(size, vec![Comparison::new(what, "µs", "plain Open MPI").bar(BAR)])
    });
    run.part(1, cases.into(), || Ok(Lan { bench: Bench::up("lan", Slow::NONE)?, seconds: options.seconds }))?;
    run.finish()
}

/// The nodes of a site.
struct Lan {
    bench: Bench,
    seconds: f64,
}

impl Experiment for Lan {
    type Case = &'static str;

    fn measure(&mut self, size: &&'static str, round: usize) -> anyhow::Result<Vec<[f64; 2]>> {
        let nodes = self.bench.nodes().get(..2).context("lan has fewer than two nodes")?;
        let program = Mpi::Openmpi.program("pingpong")?;
        let arguments = words(&format!("-n 2 --map-by node {program} --seconds {} {size}", self.seconds));
        let pair = in_turns(round, |side| {
            let command = match side {
                0 => self.bench.ours(Mpi::Openmpi, &[], nodes, &arguments),
                _ => self.bench.plain(Mpi::Openmpi, nodes, 8, &arguments),
            };
            let found = json(&self.bench.output(&nodes[0].name, &command)?)?;
            found["median_half_rtt_us"].as_f64().context("no latency")
        })?;
        Ok(vec![pair])
    }
}
