//! The agent on a cluster's login node, which submits batch jobs.

use anyhow::Context as _;

use crate::grid::{Bench, words};

/// Where the broker is, and its state directory.
const BROKER: (&str, &str) = ("hub", "/var/lib/isthmus/broker");
/// The address that the lab gives to n1, the front-end, of each site.
const VIA: &str = "192.168.1.2";

/// The login node of a site.
pub(super) fn node(site: &str) -> String {
    format!("n1.{site}")
}

/// Starts the agent of a site, which may have so many nodes at a time.
pub(super) fn start(bench: &Bench, site: &str, nodes: u32) -> anyhow::Result<()> {
    let state = bench.scratch().join(format!("login-{site}"));
    std::fs::create_dir_all(&state)?;
    let config = "[agent]\nsubmit = \"slurm\"\nruntime_directory = \"/run/isthmus-login\"\n";
    std::fs::write(state.join("isthmus.toml"), config)?;
    let token = bench.scratch().join(format!("token-{site}")).display().to_string();
    let invite = format!(
        "grid invite --state {} --site {site} --owner root --nodes 1 --pilot-nodes {nodes} --out {token}",
        BROKER.1
    );
    isthmus(bench, BROKER.0, &invite)?;
    let up = format!("up --state {} --token {token} --via {VIA} --name login", state.display());
    isthmus(bench, &node(site), &up).with_context(|| format!("the login node of {site}"))?;
    Ok(())
}

/// Runs an isthmus command, and returns what it writes.
pub(super) fn isthmus(bench: &Bench, node: &str, arguments: &str) -> anyhow::Result<String> {
    let line = format!("{} {arguments}", bench.isthmus().display());
    bench.output(node, &words(&line))
}
