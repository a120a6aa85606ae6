//! WireGuard in user space (wireguard-go) from one node to another: a tunnel of packets,
//! by ChaCha20-Poly1305 over UDP.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

use crate::confine::{Running, wait_for};
use crate::grid::{Bench, Node};
use crate::tunnel::{Cost, Tunnel, itself, start, wait_for_listener};

const UDP_PORT: u16 = 51820;
/// The port at which the server listens within the tunnel.
const PORT: u16 = 7005;
/// Addresses of the near end and the far end within the tunnel.
pub(crate) const ENDS: [&str; 2] = ["10.99.0.1", "10.99.0.2"];

/// Sets up the tunnel, with a server at its far end.
///
/// # Errors
/// A tool isn't installed, or the tunnel doesn't stand in time.
pub(crate) fn tunnel(bench: &Bench, near: &Node, far: &Node) -> anyhow::Result<Tunnel> {
    let mut processes = link(bench, [near, far])?;
    let costs = processes.iter().map(|process| Cost::Family(process.0.id())).collect();
    let mut serving = bench.lab().machine(&far.name)?.command(itself()?);
    serving.args(["traffic", "serve", "--listen", &format!("{}:{PORT}", ENDS[1])]);
    processes.push(start(serving)?);
    let target = ENDS[1].parse().context("an address")?;
    wait_for_listener(bench, near, target, PORT)?;
    Ok(Tunnel { target: format!("{}:{PORT}", ENDS[1]), costs, _processes: processes })
}

/// Sets up the tunnel alone. It ends with the processes.
///
/// # Errors
/// A tool isn't installed.
pub(crate) fn link(bench: &Bench, [near, far]: [&Node; 2]) -> anyhow::Result<Vec<Running>> {
    // The interfaces' control sockets are named after them and lie in one directory.
    let ends = [
        TunnelEnd { node: near, name: "wgnear", address: ENDS[0] },
        TunnelEnd { node: far, name: "wgfar", address: ENDS[1] },
    ];
    let keys = [key(bench, &ends[0])?, key(bench, &ends[1])?];
    let mut processes = Vec::new();
    for (end, peer) in [(0, 1), (1, 0)] {
        let (own, other) = (&ends[end], &ends[peer]);
        let mut device = bench.lab().machine(&own.node.name)?.command("wireguard-go");
        device.args(["--foreground", own.name]).env("LOG_LEVEL", "error");
        processes.push(start(device)?);
        wait_for(&format!("{} in {}", own.name, own.node.name), || {
            run(bench, own.node, &["wg", "show", own.name]).is_ok()
        })?;
        let endpoint = format!("{}:{UDP_PORT}", other.node.address);
        let (port, allowed) = (UDP_PORT.to_string(), format!("{}/32", other.address));
        let set = ["wg", "set", own.name, "listen-port", &port, "private-key", &keys[end].file];
        let to = ["peer", &keys[peer].public, "endpoint", &endpoint, "allowed-ips", &allowed];
        run(bench, own.node, &[&set[..], &to[..]].concat())?;
        run(bench, own.node, &["ip", "address", "add", &format!("{}/24", own.address), "dev", own.name])?;
        run(bench, own.node, &["ip", "link", "set", own.name, "up"])?;
    }
    Ok(processes)
}

struct TunnelEnd<'a> {
    node: &'a Node,
    /// Name of the end's interface.
    name: &'a str,
    address: &'a str,
}

struct Key {
    public: String,
    file: String,
}

fn key(bench: &Bench, end: &TunnelEnd<'_>) -> anyhow::Result<Key> {
    let file = bench.scratch().join(format!("{}.key", end.name));
    let private = Command::new("wg").arg("genkey").output().context("cannot run wg; is it installed?")?;
    ensure!(private.status.success(), "wg made no key");
    fs::write(&file, &private.stdout)?;
    let public = Command::new("wg").arg("pubkey").stdin(fs::File::open(&file)?).output()?;
    ensure!(public.status.success(), "wg made no public key");
    Ok(Key { public: String::from_utf8(public.stdout)?.trim().to_owned(), file: shown(&file) })
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Runs a command on a node and waits for its end.
fn run(bench: &Bench, node: &Node, words: &[&str]) -> anyhow::Result<()> {
    let (program, arguments) = words.split_first().context("no command")?;
    let mut command = bench.lab().machine(&node.name)?.privileged_command(program);
    let output = command.args(arguments).stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} in {}: {said}", words.join(" "), node.name);
    Ok(())
}
