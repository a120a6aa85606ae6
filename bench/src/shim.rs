//! What the preloaded library costs a program: whether a connect that doesn't
//! wait ever holds it up, each call that the library stands in front of, a
//! connection, and the start of a process.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use clap::Args;
use serde_json::Value;

use crate::grid::{Bench, json, root};
use crate::report::{Bar, Conditions, Report, Row, median};

/// Connects that one thread starts at once.
const CONNECTS: usize = 128;
/// Round-trip time between the sites, seconds.
const RTT_SECONDS: f64 = 0.1;
/// Longest that one call may hold up the thread, milliseconds.
const HELD_UP_MS: f64 = 1.0;
/// Round trips until all are up: the connection between the agents, TLS, the
/// preamble and its answer, and twice as many again for the work of securing
/// that many connections on few cores.
const ROUND_TRIPS: f64 = 9.0;

/// How to measure.
#[derive(Debug, Args)]
pub struct Options {
    /// Rounds; each measures with the library and without.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Where the results go.
    #[arg(long, default_value = "bench/results")]
    results: PathBuf,
}

/// Figures of both sides, round by round.
type Pair = [Vec<f64>; 2];

struct Measurement {
    bench: Bench,
    program: String,
}

/// Measures, writes the results, and says whether every bar holds.
pub fn run(options: &Options) -> anyhow::Result<bool> {
    ensure!(options.rounds > 0, "--rounds must be at least 1");
    let bench = Bench::up("two-far")?;
    let program = bench.scratch().join("shim");
    let compiled = Command::new("cc")
        .args(["-O2", "-o"])
        .arg(&program)
        .arg(root().join("bench/programs/shim.c"))
        .status()
        .context("cannot run cc")?;
    ensure!(compiled.success(), "bench/programs/shim.c does not compile");
    let measurement = Measurement { bench, program: program.display().to_string() };
    let mut rows = measurement.storm(options.rounds)?;
    rows.extend(measurement.connections(options.rounds)?);
    rows.extend(measurement.calls(options.rounds)?);
    rows.extend(measurement.starts(options.rounds)?);
    let report =
        Report { name: "shim".to_owned(), rows, conditions: Conditions::here(&[("cc", "--version")]) };
    report.publish(&options.results)?;
    Ok(report.holds())
}

impl Measurement {
    /// The event loop, over the long path.
    fn storm(&self, rounds: usize) -> anyhow::Result<Vec<Row>> {
        let (mut longest, mut own, mut clock, mut p99): (Pair, Pair, Pair, Pair) = Default::default();
        let (mut connect, mut connect_p99): (Pair, Pair) = Default::default();
        let (mut middle, mut trips, mut issued): (Pair, Pair, Pair) = Default::default();
        let (mut over, mut clock_over, mut calls) = (0.0, 0.0, 0.0);
        for round in 0..rounds {
            eprintln!("{CONNECTS} connects: round {} of {rounds}", round + 1);
            for turn in 0..2 {
                let side = (round + turn) % 2;
                let found = self.beside("n1.beta", CONNECTS, side == 0, "storm", &[])?;
                let of = |group: &str, name: &str| {
                    found[group][name].as_f64().with_context(|| format!("no {name} in {found}"))
                };
                let all_s = found["all_s"].as_f64().context("no time")?;
                longest[side].push(of("calls", "max_us")? / 1e3);
                connect[side].push(of("connect", "median_us")?);
                connect_p99[side].push(of("connect", "p99_us")?);
                own[side].push(of("own", "max_us")? / 1e3);
                clock[side].push(of("clock", "max_us")? / 1e3);
                p99[side].push(of("calls", "p99_us")?);
                middle[side].push(of("calls", "median_us")?);
                issued[side].push(found["issued_s"].as_f64().context("no time")? * 1e3);
                trips[side].push(all_s / RTT_SECONDS);
                if side == 0 {
                    over += of("calls", "over_1ms")?;
                    clock_over += of("clock", "over_1ms")?;
                    calls += of("calls", "count")?;
                }
            }
        }
        eprintln!(
            "longer than 1 ms: {over} of {calls} calls; of the same time spent reading the clock: {clock_over} reads"
        );
        let what = |text: &str| format!("{CONNECTS} non-blocking connects, 100 ms RTT: {text}");
        let plain = "without the library";
        let limit = vec![HELD_UP_MS; rounds];
        let allowed = vec![ROUND_TRIPS; rounds];
        Ok(vec![
            Row::compare(
                &what("longest call, without what the machine took"),
                "ms",
                &own[0],
                ("1 ms", &limit),
                Some(Bar::AtMost(1.0)),
            ),
            Row::compare(&what("longest call"), "ms", &longest[0], ("1 ms", &limit), None),
            Row::compare(
                &what("longest call"),
                "ms",
                &longest[0],
                ("longest read of the clock", &clock[0]),
                None,
            ),
            Row::compare(&what("longest call"), "ms", &longest[0], (plain, &longest[1]), None),
            Row::compare(&what("99th percentile"), "µs", &p99[0], (plain, &p99[1]), None),
            Row::compare(&what("median call"), "µs", &middle[0], (plain, &middle[1]), None),
            Row::compare(&what("connect, median"), "µs", &connect[0], (plain, &connect[1]), None),
            Row::compare(
                &what("connect, 99th percentile"),
                "µs",
                &connect_p99[0],
                (plain, &connect_p99[1]),
                None,
            ),
            Row::compare(&what("all started"), "ms", &issued[0], (plain, &issued[1]), None),
            Row::compare(&what("all up"), "RTT", &trips[0], ("9 RTT", &allowed), Some(Bar::AtMost(1.0))),
            Row::compare(&what("all up"), "RTT", &trips[0], (plain, &trips[1]), None),
        ])
    }

    /// One connection after the other.
    fn connections(&self, rounds: usize) -> anyhow::Result<Vec<Row>> {
        let mut rows = Vec::new();
        for (place, node, count) in [
            ("within a node", "n1.alpha", 200),
            ("within a site", "n2.alpha", 200),
            ("between sites, 100 ms", "n1.beta", 5),
        ] {
            let mut figures = Pair::default();
            for round in 0..rounds {
                eprintln!("connections {place}: round {} of {rounds}", round + 1);
                for turn in 0..2 {
                    let side = (round + turn) % 2;
                    let found = self.beside(node, 1, side == 0, "connects", &[&count.to_string()])?;
                    figures[side].push(found["connect"]["median_us"].as_f64().context("no time")?);
                }
            }
            let [ours, plain] = &figures;
            rows.push(Row::compare(&format!("a connection {place}"), "µs", ours, ("plain TCP", plain), None));
        }
        Ok(rows)
    }

    fn calls(&self, rounds: usize) -> anyhow::Result<Vec<Row>> {
        let mut figures: Vec<(String, Pair)> = Vec::new();
        for round in 0..rounds {
            eprintln!("calls: round {} of {rounds}", round + 1);
            for turn in 0..2 {
                let side = (round + turn) % 2;
                let found = self.here(side == 0, &["calls"])?;
                for (name, value) in found.as_object().context("no figures")? {
                    let index = figures.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
                        figures.push((name.clone(), Pair::default()));
                        figures.len() - 1
                    });
                    figures[index].1[side].push(value.as_f64().context("no time")?);
                }
            }
        }
        let rows = figures.iter().map(|(name, [ours, plain])| {
            Row::compare(name, "ns", ours, ("without the library", plain), None)
        });
        Ok(rows.collect())
    }

    fn starts(&self, rounds: usize) -> anyhow::Result<Vec<Row>> {
        let mut figures = Pair::default();
        for round in 0..rounds {
            eprintln!("starts: round {} of {rounds}", round + 1);
            for turn in 0..2 {
                let side = (round + turn) % 2;
                let found = self.here(side == 0, &["starts", "/bin/true", "1000"])?;
                figures[side].push(found["start_us"].as_f64().context("no time")?);
            }
        }
        let [ours, plain] = &figures;
        eprintln!("having the library loaded: {:.0} µs per process", median(ours) - median(plain));
        Ok(vec![Row::compare("start and end of /bin/true", "µs", ours, ("without the library", plain), None)])
    }

    /// Runs the program on this node alone.
    fn here(&self, with_library: bool, words: &[&str]) -> anyhow::Result<Value> {
        let mut all = if with_library { self.job("n1.alpha") } else { Vec::new() };
        all.push(self.program.clone());
        all.extend(words.iter().map(|word| (*word).to_owned()));
        json(&self.bench.output("n1.alpha", &all)?)
    }

    /// Runs the program against listeners on another node.
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
