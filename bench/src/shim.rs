//! What the preloaded library costs a program: whether a connect that doesn't
//! wait ever holds it up, each call that the library stands in front of, a
//! connection, and the start of a process.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use clap::Args;
use isthmus_lab::grid::Slow;
use serde_json::Value;

use crate::grid::{Bench, json, root};
use crate::report::Comparison;
use crate::rounds::{self, Case, Experiment, Run, in_turns};
use crate::verdict::Bar;

/// Slowest motion of the grid, whose round trip takes 100 ms. TCP would take a longer one for a loss.
const MOST_SLOW: u32 = 9;
/// How many connects a thread starts at once.
const CONNECTS: usize = 128;
/// Round-trip time between the sites, in seconds.
const RTT_SECONDS: f64 = 0.1;
/// Longest time in milliseconds that a call may hold up its thread.
const HELD_UP_MS: f64 = 1.0;
/// Round trips until all connections are up. They cover the connection between the agents, TLS, the
/// preamble and its answer.
const ROUND_TRIPS: f64 = 3.0;
/// As many round trips without slow motion cover the work of securing so many connections on few
/// cores, which takes as long in slow motion.
const WORK_ROUND_TRIPS: f64 = 6.0;

/// The node at the other site.
const FAR: &str = "n1.beta";
/// Places of connections: their name, the node connected to, and how many connections a round has.
const PLACES: [(&str, &str, &str); 3] = [
    ("within a node", "n1.alpha", "200"),
    ("within a site", "n2.alpha", "200"),
    ("between sites, 100 ms", FAR, "5"),
];
/// The calls that bench/programs/shim.c measures.
const CALLS: [&str; 13] = [
    "getsockname",
    "getpeername",
    "getsockopt",
    "setsockopt",
    "dup and close",
    "dup2",
    "fcntl",
    "epoll_ctl",
    "ioctl",
    "gethostname",
    "uname",
    "getaddrinfo of an address",
    "socket, bind, listen, close",
];
const WITHOUT: &str = "without the library";

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    rounds: rounds::RoundOptions,
}

/// A figure that is measured.
enum Figure {
    /// Many connects in an event loop, between the sites.
    Storm,
    /// Connections to a node, one after the other. The texts are the node and their number.
    Connections([&'static str; 2]),
    /// The time of each call that the library stands in front of.
    Calls,
    /// The time that starts of a process take.
    Starts,
}

struct Measurement {
    bench: Bench,
    program: String,
}

/// Measures, writes the results, and returns whether every bar holds.
pub(crate) fn run(options: &Options) -> anyhow::Result<bool> {
    let mut run = Run::begin("shim", &options.rounds, &[("cc".to_owned(), "--version")])?;
    let slow = options.rounds.slow.min(Slow::try_from(MOST_SLOW)?);
    let mut cases = vec![Case::new(Figure::Storm, storm_rows()).slowed(slow)];
    cases.extend(PLACES.map(|(place, node, count)| {
        let row = Comparison::new(format!("a connection {place}"), "µs", "plain TCP");
        // Only between the sites a link is emulated.
        let slow = if node == FAR { slow } else { Slow::NONE };
        Case::new(Figure::Connections([node, count]), vec![row]).slowed(slow)
    }));
    cases.push(Case::new(Figure::Calls, CALLS.map(|name| Comparison::new(name, "ns", WITHOUT)).into()));
    cases.push(Case::new(Figure::Starts, vec![Comparison::new("start and end of /bin/true", "µs", WITHOUT)]));
    run.part_in_slow_motion(1, cases, Measurement::up)?;
    run.finish()
}

fn storm_rows() -> Vec<Comparison> {
    let row = |what: &str, unit: &str, against: &str| {
        Comparison::new(format!("{CONNECTS} non-blocking connects, 100 ms RTT: {what}"), unit, against)
    };
    vec![
        row("longest call, without what the machine took", "ms", "1 ms").bar(Bar::AtMost(1.0)),
        row("longest call", "ms", "1 ms"),
        row("longest call", "ms", "longest read of the clock"),
        row("longest call", "ms", WITHOUT),
        row("99th percentile", "µs", WITHOUT),
        row("median call", "µs", WITHOUT),
        row("connect, median", "µs", WITHOUT),
        row("connect, 99th percentile", "µs", WITHOUT),
        row("all started", "ms", WITHOUT),
        row("all up", "RTT", "9 RTT, 6 of them not slower in slow motion").bar(Bar::AtMost(1.0)),
        row("all up", "RTT", WITHOUT),
    ]
}

impl Experiment for Measurement {
    type Case = Figure;

    fn measure(&mut self, figure: &Figure, round: usize) -> anyhow::Result<Vec<[f64; 2]>> {
        let with_library = |side| side == 0;
        match *figure {
            Figure::Storm => {
                let count = CONNECTS;
                let found =
                    in_turns(round, |side| self.beside(FAR, count, with_library(side), "storm", &[]))?;
                storm(&found, self.bench.slow())
            }
            Figure::Connections([node, count]) => Ok(vec![in_turns(round, |side| {
                let found = self.beside(node, 1, with_library(side), "connects", &[count])?;
                Ok(self.bench.slow().as_described(number(&found, "/connect/median_us")?))
            })?]),
            Figure::Calls => {
                let found = in_turns(round, |side| self.here(with_library(side), &["calls"]))?;
                let of = |side: usize, name: &str| found[side][name].as_f64().context("no time of a call");
                CALLS.iter().map(|name| Ok([of(0, name)?, of(1, name)?])).collect()
            }
            Figure::Starts => Ok(vec![in_turns(round, |side| {
                number(&self.here(with_library(side), &["starts", "/bin/true", "1000"])?, "/start_us")
            })?]),
        }
    }
}

/// The figures of [`storm_rows`], from what the program printed with the library and without it. In
/// slow motion connections take longer to be up, and calls don't, as none waits.
fn storm(found: &[Value; 2], slow: Slow) -> anyhow::Result<Vec<[f64; 2]>> {
    let both = |path: &str| Ok::<_, anyhow::Error>([number(&found[0], path)?, number(&found[1], path)?]);
    let scaled = |pair: [f64; 2], factor: f64| pair.map(|value| value * factor);
    let longest = scaled(both("/calls/max_us")?, 1e-3);
    let up = scaled(both("/all_s")?, slow.as_described(1.0 / RTT_SECONDS));
    Ok(vec![
        [number(&found[0], "/own/max_us")? * 1e-3, HELD_UP_MS],
        [longest[0], HELD_UP_MS],
        [longest[0], number(&found[0], "/clock/max_us")? * 1e-3],
        longest,
        both("/calls/p99_us")?,
        both("/calls/median_us")?,
        both("/connect/median_us")?,
        both("/connect/p99_us")?,
        scaled(both("/issued_s")?, 1e3),
        [up[0], ROUND_TRIPS + slow.as_described(WORK_ROUND_TRIPS)],
        up,
    ])
}

fn number(found: &Value, path: &str) -> anyhow::Result<f64> {
    found.pointer(path).and_then(Value::as_f64).with_context(|| format!("no {path} in {found}"))
}

impl Measurement {
    fn up(slow: Slow) -> anyhow::Result<Self> {
        let bench = Bench::up("two-far", slow)?;
        let program = bench.scratch().join("shim");
        let compiled = Command::new("cc")
            .args(["-O2", "-o"])
            .arg(&program)
            .arg(root().join("bench/programs/shim.c"))
            .status()
            .context("cannot run cc")?;
        ensure!(compiled.success(), "bench/programs/shim.c does not compile");
        Ok(Self { bench, program: program.display().to_string() })
    }

    /// Runs the program on the node `n1.alpha` alone, with the library or without it.
    fn here(&self, with_library: bool, words: &[&str]) -> anyhow::Result<Value> {
        let mut all = if with_library { self.job("n1.alpha") } else { Vec::new() };
        all.push(self.program.clone());
        all.extend(words.iter().map(|word| (*word).to_owned()));
        json(&self.bench.output("n1.alpha", &all)?)
    }

    /// Runs the program on `n1.alpha` against listeners on another node, with the library or
    /// without it.
    fn beside(
        &self,
        node: &str,
        listeners: usize,
        with_library: bool,
        mode: &str,
        words: &[&str],
    ) -> anyhow::Result<Value> {
        if with_library {
            let script = root().join("bench/programs/shim-job.sh").display().to_string();
            let listeners = listeners.to_string();
            let mut all = self.job(&format!("n1.alpha,{node}"));
            all.extend([script.as_str(), &self.program, node, &listeners, mode].map(str::to_owned));
            all.extend(words.iter().map(|word| (*word).to_owned()));
            return json(&self.bench.output("n1.alpha", &all)?);
        }
        let address =
            self.bench.nodes().iter().find(|known| known.name == node).context("no such node")?.address;
        let listen = [self.program.clone(), "listen".to_owned(), listeners.to_string()];
        let mut server =
            self.bench.standing(node, &listen)?.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut ports = String::new();
        BufReader::new(server.stdout.take().context("no output")?).read_line(&mut ports)?;
        let mut all = vec![self.program.clone(), mode.to_owned(), address.to_string()];
        all.extend(ports.split_whitespace().map(str::to_owned));
        all.extend(words.iter().map(|word| (*word).to_owned()));
        let found = self.bench.output("n1.alpha", &all);
        drop(server.stdin.take());
        server.wait()?;
        json(&found?)
    }

    fn job(&self, nodes: &str) -> Vec<String> {
        let isthmus = self.bench.isthmus().display().to_string();
        let mut nodes: Vec<&str> = nodes.split(',').collect();
        nodes.dedup();
        [isthmus.as_str(), "run", "--quiet", "--nodes", &nodes.join(","), "--"].map(str::to_owned).to_vec()
    }
}
