//! Whether slow motion changes what is measured. What a network decides must come out the same at
//! each factor. This is checked over links on which the machine is quiet without slow motion, too.

use std::fmt;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use isthmus_lab::grid::Slow;

use crate::coll;
use crate::confine::Running;
use crate::connect;
use crate::grid::Bench;
use crate::line_client::LineClient;
use crate::mpi::Mpi;
use crate::report::{Comparison, Pair};
use crate::rounds::{self, Case, Experiment, Run};
use crate::traffic::Throughput;
use crate::tunnel::{self, JOB_PORT};
use crate::verdict::Bar;

/// Bar of figures that the network decides.
const AGREES: Bar = Bar::Near(0.05);
const GRID: &str = "slow";
const NODES: [&str; 2] = ["n1.alpha", "n1.beta"];
/// The port of the plain server.
const PLAIN_PORT: u16 = 7109;
/// The calls that are measured: an operation, and bytes of each rank.
const CALLS: [(&str, u64); 3] = [("barrier", 4), ("allreduce", 4), ("bcast", 256 << 10)];
const REPETITIONS: u32 = 3;
/// How long it takes at most until all ranks know when to begin: five times the way. After bulk, 1.25
/// times and 50 ms weren't enough.
const TO_TELL: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    rounds: rounds::RoundOptions,
    /// The factors that are compared with none.
    #[arg(long, value_delimiter = ',', default_values_t = [4, 10])]
    factors: Vec<u32>,
    /// How long streams last, as described. BBR pauses after 10 s at any
    /// factor.
    #[arg(long, default_value = "500ms")]
    duration: humantime::Duration,
}

/// What is measured at each factor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// A stream over plain TCP, and one in a job of isthmus.
    Streams,
    /// A job's first connection, and the next ones.
    Connections,
    /// Calls of the library for MPI, and of the MPI's own.
    Calls(&'static str, u64),
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Streams => f.write_str("stream"),
            Self::Connections => f.write_str("connection"),
            Self::Calls(operation, bytes) => write!(f, "{operation}, {bytes} B"),
        }
    }
}

impl What {
    /// The rows: two figures at each factor against those at none.
    fn comparisons(self, factors: &[Slow]) -> Vec<Comparison> {
        let (names, unit, bar) = match self {
            Self::Streams => (["plain TCP", "isthmus"], "Mb/s", Some(AGREES)),
            // Processors take a part of it, which shrinks.
            Self::Connections => (["a job's first", "the next"], "ms", None),
            Self::Calls(..) => (["the library", "the MPI's own"], "ms", Some(AGREES)),
        };
        let row = |slow: Slow, name: &str| {
            let row = Comparison::new(format!("{self}, {name}, {slow} times slower"), unit, "as described");
            Comparison { slow, ..row.bar(bar) }
        };
        factors.iter().flat_map(|slow| names.map(|name| row(*slow, name))).collect()
    }
}

/// Measures, writes the results, and returns whether all factors agree.
///
/// # Errors
/// The results can't be written, or a number is no factor.
pub(crate) fn run(options: &Options) -> anyhow::Result<bool> {
    let factors: Vec<Slow> =
        options.factors.iter().map(|factor| Slow::try_from(*factor)).collect::<Result<_, _>>()?;
    let mut run = Run::begin("slow", &options.rounds, &[(Mpi::Openmpi.launcher(), "--version")])?;
    let whats = [What::Streams, What::Connections].into_iter();
    let whats = whats.chain(CALLS.map(|(operation, bytes)| What::Calls(operation, bytes)));
    let cases = whats.map(|what| Case::new(what, what.comparisons(&factors))).collect();
    run.part(1, cases, || {
        let all = [Slow::NONE].into_iter().chain(factors.iter().copied());
        Ok(Factors { grids: all.map(Sites::up).collect::<Result<_, _>>()?, duration: *options.duration })
    })?;
    run.finish()
}

/// The grid at each factor, first at none.
struct Factors {
    grids: Vec<Sites>,
    duration: Duration,
}

impl Experiment for Factors {
    type Case = What;

    fn measure(&mut self, what: &What, round: usize) -> anyhow::Result<Vec<Pair>> {
        let count = self.grids.len();
        let mut found = vec![[0.0; 2]; count];
        for turn in 0..count {
            // No factor always goes first.
            let at = (round + turn) % count;
            found[at] = self.grids[at].measure(*what, self.duration)?;
        }
        let (described, slowed) = found.split_first().context("no grid")?;
        Ok(slowed.iter().flat_map(|slow| [0, 1].map(|side| [slow[side], described[side]])).collect())
    }

    fn polling(&self) -> &'static [&'static str] {
        coll::PROGRAM
    }

    fn survives_failure(&self) -> bool {
        false
    }

    fn finish(self) -> anyhow::Result<()> {
        self.grids.into_iter().try_for_each(|grid| grid.ours.finish(&format!("stop {}:{JOB_PORT}", NODES[1])))
    }
}

/// Two sites with a job's client and server, and plain ones.
struct Sites {
    plain: LineClient,
    ours: LineClient,
    _server: Running,
    bench: Bench,
}

impl Sites {
    fn up(slow: Slow) -> anyhow::Result<Self> {
        let bench = Bench::without_sshd(GRID, slow)?;
        let [near, far] = bench.nodes() else { anyhow::bail!("{GRID} must have two nodes") };
        let mut serving = bench.lab().machine(&far.name)?.command(tunnel::itself()?);
        serving.args(["traffic", "serve", "--listen", &format!("0.0.0.0:{PLAIN_PORT}")]);
        let server = tunnel::start(serving)?;
        tunnel::wait_for_listener(&bench, near, far.address, PLAIN_PORT)?;
        let (ours, plain) = (tunnel::job(&bench, near, far, "")?, tunnel::client(&bench, near)?);
        Ok(Self { plain, ours, _server: server, bench })
    }

    /// Two figures, as they would be without slow motion.
    fn measure(&mut self, what: What, duration: Duration) -> anyhow::Result<[f64; 2]> {
        match what {
            What::Connections => connect::connect(&self.bench, NODES),
            What::Calls(operation, bytes) => {
                let calls = format!("{operation} {bytes} {REPETITIONS}");
                let found = coll::timed(
                    &self.bench,
                    self.bench.nodes(),
                    Mpi::Openmpi,
                    "-n 2 --map-by node",
                    &calls,
                    coll::Clock { ranks: 2, to_tell: TO_TELL, least: TO_TELL / 5 },
                )?;
                found.first().map(|call| call.milliseconds).context("no figures")
            }
            What::Streams => {
                let slow = self.bench.slow();
                let plain = self.bench.nodes().last().context("no node")?.address;
                let rate = |client: &mut LineClient, target: String| -> anyhow::Result<f64> {
                    let found: Throughput = client.ask(&format!("stream {target}"), slow.time(duration))?;
                    Ok(found.bytes as f64 * 8e-6 / slow.as_described(found.seconds))
                };
                let ours = format!("{}:{JOB_PORT}", NODES[1]);
                Ok([rate(&mut self.plain, format!("{plain}:{PLAIN_PORT}"))?, rate(&mut self.ours, ours)?])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_factor_has_its_rows() {
        let factors = [4, 10].map(|factor| Slow::try_from(factor).unwrap());
        let rows = What::Streams.comparisons(&factors);
        let found: Vec<_> = rows.iter().map(|row| (row.what.as_str(), row.slow.factor(), row.bar)).collect();
        assert_eq!(
            found,
            [
                ("stream, plain TCP, 4 times slower", 4, Some(AGREES)),
                ("stream, isthmus, 4 times slower", 4, Some(AGREES)),
                ("stream, plain TCP, 10 times slower", 10, Some(AGREES)),
                ("stream, isthmus, 10 times slower", 10, Some(AGREES)),
            ]
        );
        assert!(What::Connections.comparisons(&factors).iter().all(|row| row.bar.is_none()));
    }
}
