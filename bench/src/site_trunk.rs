//! The trunk of two gateways: what it takes of gateways and nodes, against plain
//! connections between the nodes.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;
use isthmus_lab::grid::Slow;
use serde::{Deserialize, Serialize};

use crate::account::{CpuTimes, exact_cpu_time, network_cpu_time};
use crate::confine::Running;
use crate::files::{read_json, write_json};
use crate::grid::{Bench, Node};
use crate::line_client::LineClient;
use crate::report::Comparison;
use crate::rounds::{self, Case, Experiment, Run, in_turns};
use crate::tcp::Tcp;
use crate::traffic::{Latency, Throughput};
use crate::tunnel::{self, JOB_PORT};
use crate::verdict::Bar;

/// The port that plain connections go to, which the site lets in.
const PLAIN_PORT: u16 = 7109;
/// Microseconds that a gateway may add to a small message in one direction, of time and of a
/// processor.
const GATEWAY_MICROSECONDS: f64 = 100.0;
/// Bar of what nodes take, as a ratio to plain connections.
const NODES: Bar = Bar::AtMost(1.02);
const LONG_STREAMS: usize = 8;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    rounds: rounds::RoundOptions,
    /// How long each way is measured per figure and round.
    #[arg(long, default_value = "2s")]
    duration: humantime::Duration,
}

/// What is measured over the trunk and over plain connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Message,
    /// So many streams over a link that doesn't limit them.
    Near(usize),
    /// Streams over the long link.
    Long,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message => f.write_str("64 B, one way, added by each gateway"),
            Self::Near(1) => f.write_str("one stream, no delay"),
            Self::Near(streams) => write!(f, "{streams} streams, no delay"),
            Self::Long => write!(f, "{LONG_STREAMS} streams, 10.6 ms, 200 Mb/s, loss 0.1 %"),
        }
    }
}

impl What {
    fn comparisons(self) -> Vec<Comparison> {
        let rate = Comparison::new(format!("{self}, rate"), "Gb/s", "plain");
        match self {
            Self::Message => {
                let limit = format!("{GATEWAY_MICROSECONDS} µs");
                let processors = format!("{self}, processor time");
                vec![
                    Comparison::new(self.to_string(), "µs", &limit).bar(Bar::AtMost(1.0)),
                    Comparison::new(processors, "µs", &limit).bar(Bar::AtMost(1.0)),
                ]
            }
            Self::Near(_) => {
                let nodes = format!("{self}, processor time of both nodes");
                vec![rate, Comparison::new(nodes, "s/GB", "plain").bar(NODES)]
            }
            Self::Long => vec![rate],
        }
    }
}

/// Measures, writes the results, and returns whether every bar holds.
///
/// # Errors
/// The results can't be written.
pub(crate) fn run(options: &Options) -> anyhow::Result<bool> {
    let mut run = Run::begin("site-trunk", &options.rounds, &[])?;
    let goes_on = run.goes_on();
    let counts = options.rounds.results.join("site-trunk-counts.json");
    let counts = Arc::new(Mutex::new(Counts::new(counts, goes_on)));
    let near = [What::Message, What::Near(1), What::Near(8)];
    let grids = [("site-trunk", &near[..]), ("site-trunk-far", &[What::Long])];
    for (left, (grid, cases)) in (1..=2).rev().zip(grids) {
        // Only the long link is emulated.
        let slow = if cases == [What::Long] { options.rounds.slow } else { Slow::NONE };
        let cases = cases.iter().map(|what| Case::new(*what, what.comparisons()).slowed(slow));
        run.part_in_slow_motion(left, cases.collect(), |slow| {
            Sites::up(Bench::up(grid, slow)?, *options.duration, Arc::clone(&counts))
        })?;
    }
    run.finish()
}

/// A job whose data goes over the gateways' trunk, and a client outside of the job.
struct Sites {
    /// The job's client and the plain client, each with the address that it connects to.
    clients: [(LineClient, String); 2],
    duration: Duration,
    counts: Arc<Mutex<Counts>>,
    _server: Running,
    bench: Bench,
}

impl Sites {
    fn up(bench: Bench, duration: Duration, counts: Arc<Mutex<Counts>>) -> anyhow::Result<Self> {
        let [near, far] = nodes(&bench, "n1")?;
        let mut serving = bench.lab().machine(&far.name)?.command(tunnel::itself()?);
        serving.args(["traffic", "serve", "--listen", &format!("0.0.0.0:{PLAIN_PORT}")]);
        let server = tunnel::start(serving)?;
        tunnel::wait_for_listener(&bench, &near, far.address, PLAIN_PORT)?;
        let ours = tunnel::job(&bench, &near, &far, "")?;
        let plain = tunnel::client(&bench, &near)?;
        let targets = [format!("{}:{JOB_PORT}", far.name), format!("{}:{PLAIN_PORT}", far.address)];
        let [to_ours, to_plain] = targets;
        let clients = [(ours, to_ours), (plain, to_plain)];
        Ok(Self { clients, duration, counts, _server: server, bench })
    }

    /// Half a round trip, and the processor time that each gateway takes for a message, in seconds.
    fn message(&mut self, side: usize) -> anyhow::Result<[f64; 2]> {
        let before = self.of_gateways()?;
        let (client, target) = &mut self.clients[side];
        let found: Latency = client.ask(&format!("ping {target}"), self.duration)?;
        let spent = self.of_gateways()?.since(&before)?.as_secs_f64();
        // A message passes both.
        Ok([found.half_rtt_seconds, spent / found.messages as f64 / 2.0])
    }

    /// Processor time so far of both sites' gateways.
    fn of_gateways(&self) -> anyhow::Result<CpuTimes> {
        let gateways = self.bench.services_in(|machine| machine.starts_with("fe."))?;
        exact_cpu_time(&gateways)
    }

    fn stream(&mut self, side: usize, streams: usize) -> anyhow::Result<Throughput> {
        let (client, target) = &mut self.clients[side];
        let duration = self.bench.slow().time(self.duration);
        let found: Throughput = client.ask(&format!("stream {target} --streams {streams}"), duration)?;
        Ok(Throughput { seconds: self.bench.slow().as_described(found.seconds), ..found })
    }

    /// Rate of a side's streams in Gb/s, and processor seconds of both nodes per GB.
    fn costs(&mut self, side: usize, streams: usize) -> anyhow::Result<[f64; 2]> {
        let of_nodes = |bench: &Bench| -> anyhow::Result<Duration> {
            let nodes = nodes(bench, "n1")?;
            nodes.iter().map(|node| network_cpu_time(bench.agent(&node.name)?)).sum()
        };
        let before = of_nodes(&self.bench)?;
        let Throughput { bytes, seconds } = self.stream(side, streams)?;
        let spent = of_nodes(&self.bench)?.saturating_sub(before).as_secs_f64();
        ensure!(bytes > 0 && spent > 0.0, "{bytes} bytes, and {spent} s of processor time");
        Ok([bytes as f64 * 8e-9 / seconds, spent / (bytes as f64 * 1e-9)])
    }

    /// Rate of a side's streams in Gb/s. Adds what TCP counted meanwhile to the counts.
    fn counted(&mut self, side: usize, streams: usize) -> anyhow::Result<f64> {
        let before = self.tcp()?;
        let Throughput { bytes, seconds } = self.stream(side, streams)?;
        let way = ["trunk", "plain"][side];
        let after = self.tcp()?;
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        for (machines, (after, before)) in MACHINES.iter().zip(after.into_iter().zip(before)) {
            counts.add((way, machines), bytes, after.since(before));
        }
        counts.write()?;
        Ok(bytes as f64 * 8e-9 / seconds)
    }

    /// TCP's counters of both nodes, and of both gateways' machines.
    fn tcp(&self) -> anyhow::Result<[Tcp; 2]> {
        let mut sums = [Tcp::default(); 2];
        for (sum, name) in sums.iter_mut().zip(["n1", "fe"]) {
            for node in nodes(&self.bench, name)? {
                sum.add(Tcp::of(self.bench.lab().machine(&node.name)?)?);
            }
        }
        Ok(sums)
    }
}

/// The nodes of both sites that have this name.
fn nodes(bench: &Bench, name: &str) -> anyhow::Result<[Node; 2]> {
    let mut found = bench.nodes().iter().filter(|node| node.name.starts_with(&format!("{name}."))).cloned();
    let mut next = || found.next().with_context(|| format!("both sites must have a node {name}"));
    Ok([next()?, next()?])
}

impl Experiment for Sites {
    type Case = What;

    fn measure(&mut self, what: &What, round: usize) -> anyhow::Result<Vec<[f64; 2]>> {
        match what {
            What::Message => {
                let [ours, plain] = in_turns(round, |side| self.message(side))?;
                let added = (ours[0] - plain[0]) * 1e6 / 2.0;
                // A ratio needs figures above 0.
                Ok([added.max(0.1), ours[1] * 1e6].map(|figure| [figure, GATEWAY_MICROSECONDS]).into())
            }
            What::Near(streams) => {
                let [ours, plain] = in_turns(round, |side| self.costs(side, *streams))?;
                Ok(rounds::pair_up(&ours, &plain))
            }
            What::Long => Ok(vec![in_turns(round, |side| self.counted(side, LONG_STREAMS))?]),
        }
    }

    fn finish(self) -> anyhow::Result<()> {
        let [(ours, target), _] = self.clients;
        ours.finish(&format!("stop {target}"))
    }
}

/// The machines that TCP's counters are of. Nodes are the ends of connections within a site, and of
/// plain ones over the long link. Gateways are the ends of a trunk over it.
const MACHINES: [&str; 2] = ["nodes", "gateways"];

/// TCP's counters over the long link, for `site-trunk-counts.json`.
#[derive(Debug)]
struct Counts {
    path: PathBuf,
    sums: BTreeMap<String, Sum>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Sum {
    /// Bytes of programs in all rounds.
    bytes: u64,
    tcp: Tcp,
}

impl Counts {
    /// The counts in the file. With `goes_on` they add to those of earlier runs.
    fn new(path: PathBuf, goes_on: bool) -> Self {
        let earlier = if goes_on { read_json(&path).ok() } else { None };
        Self { path, sums: earlier.unwrap_or_default() }
    }

    fn add(&mut self, (way, machines): (&str, &str), bytes: u64, tcp: Tcp) {
        let sum = self.sums.entry(format!("{way}, {machines}")).or_default();
        sum.bytes += bytes;
        sum.tcp.add(tcp);
    }

    fn write(&self) -> anyhow::Result<()> {
        write_json(&self.path, 2, &self.sums)
    }
}
