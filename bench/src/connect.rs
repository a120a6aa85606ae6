//! Every way between sites against plain MPI on an open network: what a
//! connection is like once it stands, and how long it takes to set up.
//!
//! The sites trust each other, so that nothing is encrypted: then a way is the
//! kernel's own socket, or the relay's two.

use std::panic::resume_unwind;
use std::path::PathBuf;
use std::thread;

use anyhow::{Context as _, ensure};
use clap::Args;
use serde_json::Value;

use crate::grid::{Bench, Node, json, root, words};
use crate::mpi::Mpi;
use crate::papers;
use crate::report::{Bar, Conditions, Report, Row};

/// Both ends hold the same kernel socket as ever.
const BAR: Bar = Bar::AtMost(1.02);

/// Where it is measured.
const GRIDS: [(&str, &str); 2] =
    [("connect-near", "no delay between sites"), ("connect-far", "sites 10 ms apart")];

/// A way, as "DIAL" or "ROUTE DIAL", and nodes that it leads from and to. The rank
/// that connects first is the one that sends first.
const WAYS: [(&str, [&str; 2]); 8] = [
    ("direct", ["n1.nat-a", "n1.open-b"]),
    ("port-range", ["n1.nat-a", "n1.port-b"]),
    ("reverse", ["n1.open-a", "n1.nat-b"]),
    ("punch", ["n1.nat-a", "n1.nat-b"]),
    ("traverse", ["n1.less-a", "n1.less-b"]),
    ("relay", ["n1.sym-a", "n1.nat-b"]),
    ("one-gateway direct", ["n1.nat-a", "n1.inner-b"]),
    ("two-gateway direct", ["n1.inner-a", "n1.inner-b"]),
];
/// The nodes of the reference: they reach each other as on any open network,
/// over routers that keep state as those of the others do.
const PLAIN: [&str; 2] = ["n1.plain-a", "n1.plain-b"];

/// A connection between the nodes of the reference, without MPI.
pub const PLAIN_TCP: &str = "plain TCP";
/// Where the second of them listens, and where the broker does.
const SSH_PORT: &str = "22";
const BROKER: [&str; 2] = ["198.51.100.10", "7700"];

/// Message sizes in bytes.
const SIZES: [&str; 2] = ["1", "10000000"];
/// Tries, ten in a second, until nodes have found out what their sites let in.
const KNOWN_TRIES: usize = 300;

/// How to measure.
#[derive(Debug, Args)]
pub struct Options {
    /// Rounds; each measures every way once, and the reference beside each.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds per way, message size and round, and as many for the reference.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// The MPIs.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Mpi::Openmpi, Mpi::Mpich])]
    mpis: Vec<Mpi>,
    /// Where the results go.
    #[arg(long, default_value = "bench/results")]
    results: PathBuf,
}

/// Measures, writes the results, and says whether every bar holds.
pub fn run(options: &Options) -> anyhow::Result<bool> {
    ensure!(options.rounds > 0, "--rounds must be at least 1");
    let mut rows = Vec::new();
    for (grid, place) in GRIDS {
        let bench = Bench::up(grid)?;
        for (way, ends) in WAYS {
            until_known(&bench, way, ends)?;
        }
        for mpi in &options.mpis {
            for size in SIZES {
                rows.extend(ping_pong(&bench, *mpi, size, options, place)?);
            }
        }
        rows.extend(set_up(&bench, options.rounds, place)?);
    }
    let tools: Vec<_> = options.mpis.iter().map(|mpi| (mpi.launcher(), "--version")).collect();
    let tools: Vec<_> = tools.iter().map(|(tool, argument)| (tool.as_str(), *argument)).collect();
    let report = Report { name: "connect".to_owned(), rows, conditions: Conditions::here(&tools) };
    report.publish(&options.results)?;
    papers::refresh(&options.results)?;
    Ok(report.holds())
}

/// Waits until the way is the first of the plan.
pub fn until_known(bench: &Bench, way: &str, [from, to]: [&str; 2]) -> anyhow::Result<()> {
    let isthmus = bench.isthmus().display().to_string();
    let (route, dial) = way.split_once(' ').unwrap_or(("end-to-end", way));
    for _ in 0..KNOWN_TRIES {
        let plan = bench.output(from, &[isthmus.as_str(), "plan", from, to, "--json"].map(str::to_owned))?;
        let plan: Value = serde_json::from_str(&plan)?;
        let first = &plan["steps"][0];
        if first["dial"] == dial && first["route"] == route {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    anyhow::bail!("{way} does not become the first way from {from} to {to}")
}

fn nodes(bench: &Bench, names: [&str; 2]) -> anyhow::Result<Vec<Node>> {
    let find = |name: &str| bench.nodes().iter().find(|node| node.name == name).cloned();
    names.iter().map(|name| find(name).with_context(|| format!("no node {name}"))).collect()
}

/// Each way and the reference run at once and take turns of half a second, so that
/// whatever else the machine does falls on both.
fn ping_pong(
    bench: &Bench,
    mpi: Mpi,
    size: &str,
    options: &Options,
    place: &str,
) -> anyhow::Result<Vec<Row>> {
    let program = mpi.program("pingpong")?;
    let account = bench.scratch().join("account.json").display().to_string();
    let arguments = |turn: usize| {
        let mut arguments = words("-n 2");
        arguments.extend(mpi.on_shared_cores());
        let seconds = options.seconds;
        arguments.extend(words(&format!("{program} --seconds {seconds} --turn {turn}/2 {size}")));
        arguments
    };
    let half_rtt = |node: &str, command: &[String]| -> anyhow::Result<f64> {
        let found = json(&bench.output(node, command)?)?;
        found["median_half_rtt_us"].as_f64().context("no latency")
    };
    let reference = nodes(bench, PLAIN)?;
    let mut figures = vec![[Vec::new(), Vec::new()]; WAYS.len()];
    for round in 0..options.rounds {
        eprintln!("{place}, {}, {size} B: round {} of {}", mpi.title(), round + 1, options.rounds);
        for ((way, ends), [ours, plain]) in WAYS.iter().zip(&mut figures) {
            let turns = [round % 2, (round + 1) % 2].map(arguments);
            let command = bench.ours(mpi, &["--report", &account], &nodes(bench, *ends)?, &turns[0]);
            let beside = bench.plain(mpi, &reference, 1, &turns[1]);
            let found = thread::scope(|scope| {
                let beside = scope.spawn(|| half_rtt(PLAIN[0], &beside));
                [half_rtt(ends[0], &command), beside.join().unwrap_or_else(|panic| resume_unwind(panic))]
            });
            for (values, value) in [ours, plain].into_iter().zip(found) {
                values.push(value?);
            }
            let report: Value = serde_json::from_str(&std::fs::read_to_string(&account)?)?;
            let (route, dial) = way.split_once(' ').unwrap_or(("end-to-end", way));
            let mut pairs = report["pairs"].as_array().into_iter().flatten();
            let joined = pairs.any(|pair| pair["dial"] == dial && pair["route"] == route);
            ensure!(joined, "not joined by {way}: {report}");
        }
    }
    let rows = WAYS.iter().zip(&figures).map(|((way, _), [ours, plain])| {
        let what = format!("{way}, {}, ping-pong {size} B, {place}", mpi.title());
        let kernels_own = *way != "relay" && !way.contains("gateway");
        let bar = kernels_own.then_some(BAR);
        Row::compare(&what, "µs", ours, ("plain", plain), bar)
    });
    Ok(rows.collect())
}

/// The first connection of a job and the next ones, against plain TCP and, over a
/// wide area, against what its round trips allow.
fn set_up(bench: &Bench, rounds: usize, place: &str) -> anyhow::Result<Vec<Row>> {
    let program = root().join("bench/programs/connect.py").display().to_string();
    let isthmus = bench.isthmus().display().to_string();
    let acceptor = nodes(bench, PLAIN)?.pop().context("no node")?.address.to_string();
    let milliseconds = |node: &str, command: &[String], names: &[&str]| -> anyhow::Result<Vec<f64>> {
        let found = json(&bench.output(node, command)?)?;
        names.iter().map(|name| found[*name].as_f64().with_context(|| format!("no {name}"))).collect()
    };
    let (mut rtt, mut broker_rtt) = (Vec::new(), Vec::new());
    let mut figures = vec![[Vec::new(), Vec::new()]; WAYS.len()];
    for round in 0..rounds {
        eprintln!("{place}, set-up: round {} of {rounds}", round + 1);
        for (values, [host, port]) in [(&mut rtt, [acceptor.as_str(), SSH_PORT]), (&mut broker_rtt, BROKER)] {
            let plain = words(&format!("python3 {program} {host} {port}"));
            values.extend(milliseconds(PLAIN[0], &plain, &["plain_ms"])?);
        }
        for ((_, ends), values) in WAYS.iter().zip(&mut figures) {
            let names = ends.join(",");
            let options = format!("--quiet --nodes {names} --each --no-prefix");
            let job = words(&format!("{isthmus} run {options} -- python3 {program}"));
            let found = milliseconds(ends[0], &job, &["first_ms", "next_ms"])?;
            values.iter_mut().zip(found).for_each(|(values, found)| values.push(found));
        }
    }
    let far = place == GRIDS[1].1;
    let plus_two = |values: &[f64]| values.iter().zip(&rtt).map(|(value, rtt)| value + 2.0 * rtt).collect();
    let by_broker: Vec<f64> = broker_rtt.iter().map(|rtt| 3.0 * rtt).collect();
    let allowed: [(&str, Vec<f64>); 2] = [
        ("3 broker round trips and 2 RTT", plus_two(&by_broker)),
        ("direct and 2 RTT", plus_two(&figures[0][1])),
    ];
    let mut rows = Vec::new();
    for ((way, _), measured) in WAYS.iter().zip(&figures) {
        let bars = [["punch", "traverse"].contains(way), *way != "direct"];
        for (index, what) in ["first connection", "next connection"].into_iter().enumerate() {
            let what = format!("{way}, {what}, {place}");
            rows.push(Row::compare(&what, "ms", &measured[index], (PLAIN_TCP, &rtt), None));
            if far && bars[index] {
                let (against, reference) = &allowed[index];
                let bar = Some(Bar::AtMost(1.0));
                rows.push(Row::compare(&what, "ms", &measured[index], (against, reference), bar));
            }
        }
    }
    Ok(rows)
}
