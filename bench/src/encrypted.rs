//! A connection that the agents encrypt, program to program, against what
//! people use today for the same.
//!
//! program – loopback – agent – TLS – agent – loopback – program, between two
//! nodes of two sites. Beside it, between the same two nodes: `ssh -L` and a
//! pair of HAProxy.

use std::fs;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use crate::contest::{self, Contest, Options, Streaming};
use crate::grid::{Bench, words};
use crate::line_client::LineClient;
use crate::report::Row;
use crate::traffic::{Latency, Throughput};
use crate::tunnel::{self, JOB_PORT, Tunnel};

/// What stands while it is measured, in the order of the names.
struct Setup {
    tunnels: [Tunnel; 3],
    /// A rank of the job.
    ours: LineClient,
    /// A program as any other.
    plain: LineClient,
}

/// What `isthmus run` tells of the job, as far as it matters here.
#[derive(Debug, Deserialize)]
struct Account {
    pairs: Vec<Pair>,
}

#[derive(Debug, Deserialize)]
struct Pair {
    dial: String,
    encrypted: bool,
    bytes: Option<[u64; 2]>,
}

/// Measures.
///
/// # Errors
/// If something can't be started, a measurement fails, or the job's connections
/// were not what is to be measured.
pub fn measure(options: Options) -> anyhow::Result<Vec<Row>> {
    let bench = Bench::up("two-near")?;
    let [near, far] = bench.nodes() else { anyhow::bail!("two-near must have two nodes") };
    let _server = tunnel::server(&bench, far)?;
    let account = bench.scratch().join("account.json");
    let program = tunnel::itself()?;
    let job = format!(
        "{} run --quiet --report {} --nodes {},{} -- mpirun.openmpi \
         -n 1 --host {} {program} traffic obey : \
         -n 1 --host {} {program} traffic serve --listen 0.0.0.0:{JOB_PORT}",
        bench.isthmus().display(),
        account.display(),
        near.name,
        far.name,
        near.name,
        far.name
    );
    let mut setup = Setup {
        tunnels: [
            Tunnel::isthmus(&bench, near, far)?,
            Tunnel::ssh(&bench, near, far)?,
            Tunnel::haproxy(&bench, near, far)?,
        ],
        ours: LineClient::start(bench.standing(&near.name, &words(&job))?)?,
        plain: tunnel::client(&bench, near)?,
    };
    let rows = contest::measure(&mut setup, "encrypted, ", options)?;
    let Setup { tunnels: [isthmus, ..], ours, .. } = setup;
    ours.finish(&format!("stop {}", isthmus.target))?;
    let said = fs::read_to_string(&account).context("the job left no account")?;
    let Account { pairs } = serde_json::from_str(&said)?;
    let carried: u64 = pairs.iter().filter_map(|pair| pair.bytes).flatten().sum();
    ensure!(
        carried > 0 && pairs.iter().all(|pair| pair.dial == "direct" && pair.encrypted),
        "the job's connections were not direct and encrypted: {said}"
    );
    Ok(rows)
}

impl Setup {
    fn client(&mut self, tool: usize) -> &mut LineClient {
        if tool == 0 { &mut self.ours } else { &mut self.plain }
    }
}

impl Contest for Setup {
    fn names(&self) -> [&'static str; 3] {
        ["isthmus", "ssh -L", "HAProxy pair"]
    }

    fn latency(&mut self, tool: usize, duration: humantime::Duration) -> anyhow::Result<f64> {
        let line = format!("ping {}", self.tunnels[tool].target);
        let found: Latency = self.client(tool).ask(&line, duration)?;
        Ok(found.half_rtt_seconds)
    }

    fn streaming(
        &mut self,
        tool: usize,
        streams: usize,
        duration: humantime::Duration,
    ) -> anyhow::Result<Streaming> {
        let line = format!("stream {} --streams {streams}", self.tunnels[tool].target);
        let before = self.tunnels[tool].cpu_time()?;
        let Throughput { bytes, seconds } = self.client(tool).ask(&line, duration)?;
        let spent = self.tunnels[tool].cpu_time()?.saturating_sub(before).as_secs_f64();
        ensure!(spent > 0.0, "{bytes} bytes cost no processor time at all: the wrong processes are measured");
        Ok(Streaming::new(bytes, seconds, spent))
    }
}
