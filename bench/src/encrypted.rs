//! A connection that the agents encrypt, program to program, against what
//! people use today.
//!
//! program – loopback – agent – TLS – agent – loopback – program, between two
//! nodes of two sites. Beside it, between the same two nodes: `ssh -L`, a pair of
//! HAProxy, a pair of stunnel, and WireGuard in user space.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use isthmus_lab::grid::Slow;
use serde::Deserialize;

use crate::confine::Running;
use crate::contest::{Contest, Messaging, Streaming};
use crate::grid::Bench;
use crate::line_client::LineClient;
use crate::traffic::{Latency, Throughput};
use crate::tunnel::{self, Tunnel};
use crate::wireguard;

/// Encrypted connections between two nodes, by isthmus and by other tools. The tunnels are in the
/// order of the names in the rows.
pub(crate) struct Encrypted {
    tunnels: [Tunnel; 5],
    /// The client of isthmus: a rank of the job.
    ours: LineClient,
    /// The client of the other tools: a program outside of any job.
    plain: LineClient,
    account: PathBuf,
    _server: Running,
    _bench: Bench,
}

/// The report of `isthmus run`, as far as the benchmark reads it.
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

impl Encrypted {
    /// Sets up all tools with their servers and clients.
    ///
    /// # Errors
    /// Something can't be started.
    pub(crate) fn up() -> anyhow::Result<Self> {
        let bench = Bench::up("two-near", Slow::NONE)?;
        let [near, far] = bench.nodes() else { anyhow::bail!("two-near must have two nodes") };
        let server = tunnel::server(&bench, far)?;
        let account = bench.scratch().join("account.json");
        tunnel::certificate(&bench, far)?;
        let tunnels = [
            Tunnel::isthmus(&bench, near, far)?,
            Tunnel::ssh(&bench, near, far)?,
            Tunnel::haproxy(&bench, near, far)?,
            Tunnel::stunnel(&bench, near, far)?,
            wireguard::tunnel(&bench, near, far)?,
        ];
        let ours = tunnel::job(&bench, near, far, &format!("--report {}", account.display()))?;
        let plain = tunnel::client(&bench, near)?;
        Ok(Self { tunnels, ours, plain, account, _server: server, _bench: bench })
    }

    fn client(&mut self, tool: usize) -> &mut LineClient {
        if tool == 0 { &mut self.ours } else { &mut self.plain }
    }
}

impl Contest for Encrypted {
    const NAMES: &'static [&'static str] =
        &["isthmus", "ssh -L", "HAProxy pair", "stunnel pair", "wireguard-go"];

    fn latency(&mut self, tool: usize, duration: Duration) -> anyhow::Result<Messaging> {
        let line = format!("ping {}", self.tunnels[tool].target);
        let before = self.tunnels[tool].cpu_time()?;
        let found: Latency = self.client(tool).ask(&line, duration)?;
        let spent = self.tunnels[tool].cpu_time()?.saturating_sub(before).as_secs_f64();
        ensure!(spent > 0.0, "messages cost no processor time at all: the wrong processes are measured");
        Ok(Messaging::new(found, spent))
    }

    fn streaming(&mut self, tool: usize, streams: usize, duration: Duration) -> anyhow::Result<Streaming> {
        let line = format!("stream {} --streams {streams}", self.tunnels[tool].target);
        let before = self.tunnels[tool].cpu_time()?;
        let Throughput { bytes, seconds } = self.client(tool).ask(&line, duration)?;
        let spent = self.tunnels[tool].cpu_time()?.saturating_sub(before).as_secs_f64();
        ensure!(spent > 0.0, "{bytes} bytes cost no processor time at all: the wrong processes are measured");
        Ok(Streaming::new(bytes, seconds, spent))
    }

    fn finish(self) -> anyhow::Result<()> {
        let Self { tunnels: [isthmus, ..], ours, account, _bench, .. } = self;
        ours.finish(&format!("stop {}", isthmus.target))?;
        let text = fs::read_to_string(&account).context("the job left no report")?;
        let Account { pairs } = serde_json::from_str(&text)?;
        let carried: u64 = pairs.iter().filter_map(|pair| pair.bytes).flatten().sum();
        ensure!(
            carried > 0 && pairs.iter().all(|pair| pair.dial == "direct" && pair.encrypted),
            "the job's connections were not direct and encrypted: {text}"
        );
        Ok(())
    }
}
