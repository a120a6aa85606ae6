//! Nebula from one node to another: a network over UDP, whose members have certificates of one
//! authority. By AES-256-GCM.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

use crate::confine::Running;
use crate::grid::{Bench, Node};
use crate::tunnel::{start, wait_for_listener};

const UDP_PORT: u16 = 4242;
const SSH_PORT: u16 = 22;
/// Addresses of the two ends within the network.
pub(crate) const ENDS: [&str; 2] = ["10.98.0.1", "10.98.0.2"];
/// Name of both ends' interface.
const INTERFACE: &str = "nebula1";

/// Sets up the network of two nodes, which have an sshd. It ends with the processes.
///
/// # Errors
/// The tool isn't installed, or the network doesn't stand in time.
pub(crate) fn link(bench: &Bench, nodes: [&Node; 2]) -> anyhow::Result<Vec<Running>> {
    let at = |name: &str| bench.scratch().join(format!("nebula-{name}")).display().to_string();
    sign(&["ca", "-name", "bench", "-out-crt", &at("ca.crt"), "-out-key", &at("ca.key")])?;
    let mut processes = Vec::new();
    for (end, peer) in [(0, 1), (1, 0)] {
        let (node, name) = (nodes[end], format!("end{end}"));
        let (certificate, key) = (at(&format!("{name}.crt")), at(&format!("{name}.key")));
        let address = format!("{}/24", ENDS[end]);
        let by =
            ["sign", "-ca-crt", &at("ca.crt"), "-ca-key", &at("ca.key"), "-name", &name, "-ip", &address];
        sign(&[&by[..], &["-out-crt", &certificate, "-out-key", &key]].concat())?;
        let config = format!(
            "pki: {{ca: {}, cert: {certificate}, key: {key}}}\n\
             static_host_map: {{\"{}\": [\"{}:{UDP_PORT}\"]}}\n\
             lighthouse: {{am_lighthouse: false, hosts: []}}\n\
             listen: {{host: 0.0.0.0, port: {UDP_PORT}}}\n\
             cipher: aes\n\
             tun: {{dev: {INTERFACE}, mtu: 1300}}\n\
             logging: {{level: error, format: text}}\n\
             firewall:\n  outbound: [{{port: any, proto: any, host: any}}]\n  \
             inbound: [{{port: any, proto: any, host: any}}]\n",
            at("ca.crt"),
            ENDS[peer],
            nodes[peer].address
        );
        let file = at(&format!("{name}.yml"));
        fs::write(&file, config)?;
        let mut nebula = bench.lab().machine(&node.name)?.privileged_command("nebula");
        nebula.args(["-config", &file]).stdout(Stdio::null());
        processes.push(start(nebula)?);
    }
    // The benchmark's sshd.
    wait_for_listener(bench, nodes[0], ENDS[1].parse().context("an address")?, SSH_PORT)?;
    Ok(processes)
}

fn sign(words: &[&str]) -> anyhow::Result<()> {
    let made = Command::new("nebula-cert").args(words).stdin(Stdio::null()).output();
    let made = made.context("cannot run nebula-cert; is nebula installed?")?;
    ensure!(made.status.success(), "nebula-cert: {}", String::from_utf8_lossy(&made.stderr));
    Ok(())
}
