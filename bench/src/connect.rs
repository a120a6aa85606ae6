//! Every way between sites against plain MPI on an open network: what a
//! connection is like once it is set up, and how long that takes.
//!
//! The sites trust each other, so that nothing is encrypted: then a way is the
//! kernel's own socket, or the relay's two.
//!
//! Over a long way the network decides, and bars are for times. Where there is no delay processors
//! decide. The bar of small messages is for their processor time where no NAT is on the way: ranks of
//! MPIs poll, and are slower by chance where others use the machine. That of their time only finds
//! detours.

pub(crate) mod besides;
mod cost;

use std::panic::resume_unwind;
use std::thread;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use isthmus_lab::grid::Slow;
use serde_json::Value;

use crate::grid::{Bench, Node, json, root, words};
use crate::mpi::Mpi;
use crate::report::Comparison;
use crate::rounds::{self, Case, Experiment, Run, in_turns};
use crate::served;
use crate::verdict::Bar;

/// Bar of the ways on which both ends hold a kernel socket of their own, as without isthmus.
const BAR: Bar = Bar::AtMost(1.02);

/// Names of the grids, and what rows call them.
pub(crate) const GRIDS: [(&str, &str); 2] =
    [("connect-near", "no delay between sites"), ("connect-far", "sites 10 ms apart")];

/// A way, as "DIAL" or "ROUTE DIAL", and the two nodes that it joins.
pub(crate) type MeasuredWay = (&'static str, [&'static str; 2]);

/// All ways that are measured. The rank of the first node connects and sends first.
pub(crate) const WAYS: [MeasuredWay; 8] = [
    ("direct", ["n1.nat-a", "n1.open-b"]),
    ("port-range", ["n1.nat-a", "n1.port-b"]),
    ("reverse", ["n1.open-a", "n1.nat-b"]),
    ("punch", ["n1.nat-a", "n1.nat-b"]),
    ("traverse", ["n1.less-a", "n1.less-b"]),
    ("relay", ["n1.sym-a", "n1.nat-b"]),
    ("one-gateway direct", ["n1.nat-a", "n1.inner-b"]),
    ("two-gateway direct", ["n1.inner-a", "n1.inner-b"]),
];
/// The nodes of the reference. They reach each other as on any open network, over routers that keep
/// state, as those of the other nodes do.
const PLAIN: [&str; 2] = ["n1.plain-a", "n1.plain-b"];

/// The way on which no router translates addresses, as on that of the reference. On the others routers
/// do so in the programs' processor time, which is none of isthmus's.
const WITHOUT_NAT: &str = "traverse";

/// What rows call a connection between the nodes of the reference, without MPI.
pub(crate) const PLAIN_TCP: &str = "plain TCP";
/// The port at which the second node of the reference listens. `BROKER` is where the broker
/// listens.
const SSH_PORT: &str = "22";
const BROKER: [&str; 2] = ["198.51.100.10", "7700"];

/// Sizes of messages in bytes.
const SIZES: [&str; 2] = ["1", "10000000"];
/// How often nodes are asked, ten times a second, until they know what their sites let in.
const KNOWN_TRIES: u32 = 300;

const MPIS: [Mpi; 2] = [Mpi::Openmpi, Mpi::Mpich];

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    rounds: rounds::RoundOptions,
    /// Seconds per way, message size and round, and as many for the reference.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// The MPIs whose jobs are measured.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = MPIS)]
    mpis: Vec<Mpi>,
}

/// A figure that is measured for each way.
enum Figure {
    PingPong { way: MeasuredWay, mpi: Mpi, size: &'static str },
    SetUp { way: MeasuredWay },
}

/// Measures, writes the results, and returns whether every bar holds.
pub(crate) fn run(options: &Options) -> anyhow::Result<bool> {
    let tools: Vec<_> = options.mpis.iter().map(|mpi| (mpi.launcher(), "--version")).collect();
    let mut run = Run::begin("connect", &options.rounds, &tools)?;
    run.leaves_out(&MPIS, &options.mpis);
    for (parts_left, (grid, place)) in [4, 3].into_iter().zip(GRIDS) {
        let far = grid == GRIDS[1].0;
        // Without a delay no link is emulated.
        let slow = if far { options.rounds.slow } else { Slow::NONE };
        let make = |slow| {
            let bench = Bench::up(grid, slow)?;
            let unknown = WAYS
                .into_iter()
                .filter_map(|way| until_known(&bench, way.0, way.1).err().map(|error| (way, error)));
            let unknown = unknown.map(|(way, error)| (way, error.to_string())).collect();
            Ok(RunningGrid { bench, far, seconds: options.seconds, unknown })
        };
        let cases = cases(options, place, far).into_iter().map(|case| case.slowed(slow));
        run.part_in_slow_motion(parts_left, cases.collect(), make)?;
    }
    let slow = options.rounds.slow;
    run.part_in_slow_motion(2, besides::cases(&options.mpis, slow), |slow| {
        besides::Sites::up(slow, options.seconds)
    })?;
    let (grid, place) = GRIDS[0];
    run.part(1, cost::cases(place), || Ok(cost::Costs::up(Bench::without_sshd(grid, Slow::NONE)?)))?;
    let holds = run.finish()?;
    options.rounds.refresh_papers()?;
    Ok(holds)
}

/// Whether both ends of a way hold a kernel socket of their own.
fn is_kernels_own(way: &str) -> bool {
    way != "relay" && !way.contains("gateway")
}

/// Bar of a ping-pong's time. Small messages without a delay are judged by processor time where no NAT is
/// on the way, and then time only finds detours.
fn bar(way: &str, far: bool, size: &str) -> Option<Bar> {
    let judged = far || size != SIZES[0] || way != WITHOUT_NAT;
    is_kernels_own(way).then_some(if judged { BAR } else { served::NO_DETOUR })
}

/// The cases of a grid: every way with each MPI and message size, and every way's set-up.
fn cases(options: &Options, place: &str, far: bool) -> Vec<Case<Figure>> {
    let mut cases = Vec::new();
    for mpi in options.mpis.iter().copied() {
        for size in SIZES {
            cases.extend(WAYS.map(|way| {
                let what = format!("{}, {}, ping-pong {size} B, {place}", way.0, mpi.title());
                let bar = bar(way.0, far, size);
                let row = Comparison::new(what, "µs", "plain").bar(bar);
                let case = Case::new(Figure::PingPong { way, mpi, size }, vec![row]);
                if mpi.can_yield() { case } else { case.alone() }
            }));
        }
    }
    cases.extend(WAYS.map(|way| {
        let rows = allowed(way.0, far).into_iter().flat_map(|(what, allowed)| {
            let what = format!("{}, {what} connection, {place}", way.0);
            let bounded = allowed.map(|against| Comparison::new(&what, "ms", against).bar(Bar::AtMost(1.0)));
            std::iter::once(Comparison::new(&what, "ms", PLAIN_TCP)).chain(bounded)
        });
        Case::new(Figure::SetUp { way }, rows.collect())
    }));
    cases
}

/// What the first connection of a job and the next connections may take over a wide area. `None` if
/// they have no limit.
fn allowed(way: &str, far: bool) -> [(&'static str, Option<&'static str>); 2] {
    let by_broker = far && ["punch", "traverse"].contains(&way);
    let as_direct = far && way != "direct";
    [
        ("first", by_broker.then_some("3 broker round trips and 2 RTT")),
        ("next", as_direct.then_some("direct and 2 RTT")),
    ]
}

/// Waits until the plan between two nodes begins with the way.
pub(crate) fn until_known(bench: &Bench, way: &str, [from, to]: [&str; 2]) -> anyhow::Result<()> {
    let isthmus = bench.isthmus().display().to_string();
    let (route, dial) = way.split_once(' ').unwrap_or(("end-to-end", way));
    for _ in 0..KNOWN_TRIES * bench.slow().factor() {
        let plan = bench.output(from, &[isthmus.as_str(), "plan", from, to, "--json"].map(str::to_owned))?;
        let plan: Value = serde_json::from_str(&plan)?;
        let first = &plan["steps"][0];
        if first["dial"] == dial && first["route"] == route {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    bail!("{way} does not become the first way from {from} to {to}")
}

fn nodes(bench: &Bench, names: [&str; 2]) -> anyhow::Result<Vec<Node>> {
    let find = |name: &str| bench.nodes().iter().find(|node| node.name == name).cloned();
    names.iter().map(|name| find(name).with_context(|| format!("no node {name}"))).collect()
}

/// A grid that is up.
struct RunningGrid {
    bench: Bench,
    far: bool,
    seconds: f64,
    /// The ways that no plan begins with, each with the reason.
    unknown: Vec<(MeasuredWay, String)>,
}

impl Experiment for RunningGrid {
    type Case = Figure;

    fn polling(&self) -> &'static [&'static str] {
        &["pingpong"]
    }

    fn measure(&mut self, figure: &Figure, round: usize) -> anyhow::Result<Vec<[f64; 2]>> {
        let (Figure::PingPong { way, .. } | Figure::SetUp { way }) = figure;
        if let Some((_, reason)) = self.unknown.iter().find(|(unknown, _)| unknown == way) {
            bail!("{reason}");
        }
        match figure {
            Figure::PingPong { way, mpi, size } => Ok(vec![self.ping_pong(*way, *mpi, size, round)?]),
            Figure::SetUp { way } => self.set_up(*way, round),
        }
    }
}

impl RunningGrid {
    /// Measures half round trips over the way and the reference.
    fn ping_pong(
        &self,
        (way, ends): MeasuredWay,
        mpi: Mpi,
        size: &str,
        round: usize,
    ) -> anyhow::Result<[f64; 2]> {
        let account = self.bench.scratch().join("account.json").display().to_string();
        let pair = ping_pong(&self.bench, self.seconds, (mpi, size), round, ends[0], |arguments| {
            Ok(self.bench.ours(mpi, &["--report", &account], &nodes(&self.bench, ends)?, arguments))
        })?;
        let report: Value = serde_json::from_str(&std::fs::read_to_string(&account)?)?;
        let (route, dial) = way.split_once(' ').unwrap_or(("end-to-end", way));
        let mut pairs = report["pairs"].as_array().into_iter().flatten();
        let joined = pairs.any(|pair| pair["dial"] == dial && pair["route"] == route);
        ensure!(joined, "not joined by {way}: {}", report["pairs"]);
        Ok(pair)
    }

    /// Measures a job's first connection and the next ones. They are compared with plain TCP, and
    /// with what this round's round trips allow.
    fn set_up(&self, (way, ends): MeasuredWay, round: usize) -> anyhow::Result<Vec<[f64; 2]>> {
        let acceptor = nodes(&self.bench, PLAIN)?.pop().context("no node")?.address.to_string();
        let rtt = self.plain_tcp([&acceptor, SSH_PORT])?;
        let limits = allowed(way, self.far);
        let mut limit_ms = [0.0; 2];
        if limits[0].1.is_some() {
            limit_ms[0] = 3.0 * self.plain_tcp(BROKER)? + 2.0 * rtt;
        }
        let ours = if limits[1].1.is_some() {
            let [ours, direct] = in_turns(round, |side| connect(&self.bench, [ends, WAYS[0].1][side]))?;
            limit_ms[1] = direct[1] + 2.0 * rtt;
            ours
        } else {
            connect(&self.bench, ends)?
        };
        let rows = (0..2).flat_map(|which| {
            let limit = limits[which].1.map(|_| [ours[which], limit_ms[which]]);
            std::iter::once([ours[which], rtt]).chain(limit)
        });
        Ok(rows.collect())
    }

    /// Milliseconds of a TCP connect between nodes of the reference, without a job.
    fn plain_tcp(&self, [host, port]: [&str; 2]) -> anyhow::Result<f64> {
        let plain = words(&format!("{} {host} {port}", program(&self.bench)));
        let found = json(&self.bench.output(PLAIN[0], &plain)?)?;
        let found = found["plain_ms"].as_f64().context("no plain_ms")?;
        Ok(self.bench.slow().as_described(found))
    }
}

/// Measures half round trips in microseconds of a command with these arguments of the MPI's launcher,
/// given on the node `first`, and of the reference. Both run at once and take turns of half a second, so
/// that other load falls on both.
fn ping_pong(
    bench: &Bench,
    seconds: f64,
    (mpi, size): (Mpi, &str),
    round: usize,
    first: &str,
    command: impl FnOnce(&[String]) -> anyhow::Result<Vec<String>>,
) -> anyhow::Result<[f64; 2]> {
    let program = mpi.program("pingpong")?;
    let arguments = |turn: usize| {
        let mut arguments = words("-n 2");
        arguments.extend(mpi.on_shared_cores());
        let seconds = seconds * f64::from(bench.slow().factor());
        arguments.extend(words(&format!("{program} --seconds {seconds} --turn {turn}/2 {size}")));
        arguments
    };
    let half_rtt = |node: &str, command: &[String]| -> anyhow::Result<f64> {
        let found = json(&bench.output(node, command)?)?;
        let found = found["median_half_rtt_us"].as_f64().context("no latency")?;
        Ok(bench.slow().as_described(found))
    };
    let turns = [round % 2, (round + 1) % 2].map(arguments);
    let command = command(&turns[0])?;
    let beside = bench.plain(mpi, &nodes(bench, PLAIN)?, 1, &turns[1]);
    let [ours, plain] = thread::scope(|scope| {
        let beside = scope.spawn(|| half_rtt(PLAIN[0], &beside));
        [half_rtt(first, &command), beside.join().unwrap_or_else(|panic| resume_unwind(panic))]
    });
    Ok([ours?, plain?])
}

/// The words of the program that connects.
fn program(bench: &Bench) -> String {
    format!("python3 {} --slow {}", root().join("bench/programs/connect.py").display(), bench.slow())
}

/// Milliseconds of a job's first connection between two nodes, and of the next connections.
pub(crate) fn connect(bench: &Bench, ends: [&str; 2]) -> anyhow::Result<[f64; 2]> {
    let options = format!("--quiet --nodes {} --each --no-prefix", ends.join(","));
    let job = words(&format!("{} run {options} -- {}", bench.isthmus().display(), program(bench)));
    let found = json(&bench.output(ends[0], &job)?)?;
    let of = |name: &str| found[name].as_f64().with_context(|| format!("no {name}"));
    Ok([of("first_ms")?, of("next_ms")?].map(|ms| bench.slow().as_described(ms)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_of_times() {
        let [small, large] = SIZES;
        for (way, far, size, want) in [
            ("traverse", false, small, Some(served::NO_DETOUR)),
            ("traverse", false, large, Some(BAR)),
            ("traverse", true, small, Some(BAR)),
            ("punch", false, small, Some(BAR)),
            ("relay", false, small, None),
        ] {
            assert_eq!(bar(way, far, size), want, "{way} {far} {size}");
        }
    }

    #[test]
    fn limits() {
        // way, far, whether the first and the next connection have a limit
        for (way, far, want) in [
            ("direct", true, [false, false]),
            ("punch", true, [true, true]),
            ("traverse", true, [true, true]),
            ("relay", true, [false, true]),
            ("punch", false, [false, false]),
        ] {
            assert_eq!(allowed(way, far).map(|(_, limit)| limit.is_some()), want, "{way}, {far}");
        }
    }
}
