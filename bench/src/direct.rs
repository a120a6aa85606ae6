//! Handed-over sockets against plain ones, between the same two nodes of one
//! site: the cost of interposing on set-up afterwards, which should be none.
//!
//! No link is slow here: processors decide. So the bar of small messages is for their processor time.
//! What ranks of an MPI see is told beside it, as a time, whose bar only finds detours: they poll, and
//! are slower by chance where others use the machine. Large messages are judged by that time.

use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use isthmus_lab::grid::Slow;

use crate::grid::{Bench, json, words};
use crate::mpi::Mpi;
use crate::report::Comparison;
use crate::rounds::{self, Case, Experiment, Run, in_turns};
use crate::served;
use crate::verdict::Bar;

/// Limit of the ratio to plain TCP. A handed-over socket is the kernel's own, so the rest is the
/// machine's noise.
const BAR: Bar = Bar::AtMost(1.02);

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    rounds: rounds::RoundOptions,
    /// Seconds per message size and round.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
}

/// A figure that is measured.
enum Figure {
    /// Half a round trip between ranks of an MPI.
    PingPong(u32),
    /// Processor time of a message between programs that don't poll.
    Message(u32),
}

/// Measures, writes the results, and returns whether every bar holds.
pub(crate) fn run(options: &Options) -> anyhow::Result<bool> {
    let tools = [(Mpi::Openmpi.launcher(), "--version")];
    let times = served::SIZES.map(|size| {
        let what = format!("ping-pong {size} B, half round trip");
        let bar = if served::is_judged(size) { served::NO_DETOUR } else { BAR };
        Case::new(Figure::PingPong(size), vec![Comparison::new(what, "µs", "plain Open MPI").bar(bar)])
    });
    let costs = served::SIZES.map(|size| {
        Case::new(Figure::Message(size), served::rows(&format!("message of {size} B"), size, Some(BAR)))
    });
    let seconds = Duration::try_from_secs_f64(options.seconds).context("--seconds is no time")?;
    let mut run = Run::begin("direct", &options.rounds, &tools)?;
    let up = |seconds| Ok(Lan { bench: Bench::up("lan", Slow::NONE)?, seconds });
    run.part(2, costs.into(), || up(seconds).map(Costs))?;
    run.part(1, times.into(), || up(seconds))?;
    run.finish()
}

/// The nodes of a site.
struct Lan {
    bench: Bench,
    seconds: Duration,
}

impl Experiment for Lan {
    type Case = Figure;

    fn measure(&mut self, figure: &Figure, round: usize) -> anyhow::Result<Vec<[f64; 2]>> {
        let nodes = self.bench.nodes().get(..2).context("lan has fewer than two nodes")?;
        let pair = match figure {
            Figure::PingPong(size) => {
                let program = Mpi::Openmpi.program("pingpong")?;
                let seconds = self.seconds.as_secs_f64();
                let arguments = words(&format!("-n 2 --map-by node {program} --seconds {seconds} {size}"));
                in_turns(round, |side| {
                    let command = match side {
                        0 => self.bench.ours(Mpi::Openmpi, &[], nodes, &arguments),
                        _ => self.bench.plain(Mpi::Openmpi, nodes, 8, &arguments),
                    };
                    let found = json(&self.bench.output(&nodes[0].name, &command)?)?;
                    found["median_half_rtt_us"].as_f64().context("no latency")
                })?
            }
            Figure::Message(size) => {
                let ends = [&nodes[0], &nodes[1]];
                return Ok(served::figures(served::costs(&self.bench, ends, ends, *size, round)?));
            }
        };
        Ok(vec![pair])
    }
}

/// The same nodes, where others who use the machine make no measurement void: they hardly change
/// processor time.
struct Costs(Lan);

impl Experiment for Costs {
    type Case = Figure;

    fn measure(&mut self, figure: &Figure, round: usize) -> anyhow::Result<Vec<[f64; 2]>> {
        self.0.measure(figure, round)
    }

    fn needs_quiet(&self) -> bool {
        false
    }
}
