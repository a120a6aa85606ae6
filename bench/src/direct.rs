//! Handed-over sockets against plain MPI, between the same two nodes of one
//! site: the cost of interposing on set-up afterwards, which should be none.
//!
//! No link limits them, so the bar is for processor time: of messages between two
//! programs, with isthmus's services and without. Times are told beside it.

use anyhow::Context as _;
use clap::Args;
use isthmus_lab::grid::Slow;

use crate::connect::cost;
use crate::grid::{Bench, json, words};
use crate::mpi::Mpi;
use crate::report::Comparison;
use crate::rounds::{self, Case, Experiment, Run, in_turns};

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
    let ping_pongs = SIZES.map(|size| {
        let what = format!("ping-pong {size} B, half round trip");
        Case::new(Figure::PingPong(size), vec![Comparison::new(what, "µs", "plain Open MPI")])
    });
    let message = cost::of_message("message of 64 B, processor time".to_owned());
    let cases = ping_pongs.into_iter().chain([Case::new(Figure::Message, vec![message])]).collect();
    run.part(1, cases, || Ok(Lan { bench: Bench::up("lan", Slow::NONE)?, seconds: options.seconds }))?;
    run.finish()
}

/// A figure that is measured.
#[derive(Debug, Clone, Copy)]
enum Figure {
    /// Half round trips of messages of so many bytes.
    PingPong(&'static str),
    /// The processor time of a message.
    Message,
}

/// The nodes of a site.
struct Lan {
    bench: Bench,
    seconds: f64,
}

impl Experiment for Lan {
    type Case = Figure;

    fn measure(&mut self, figure: &Figure, round: usize) -> anyhow::Result<Vec<[f64; 2]>> {
        let [near, far, ..] = self.bench.nodes() else { anyhow::bail!("lan has fewer than two nodes") };
        let size = match figure {
            Figure::PingPong(size) => *size,
            Figure::Message => return Ok(vec![cost::message(&self.bench, near, far)?]),
        };
        let nodes = &[near.clone(), far.clone()];
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
