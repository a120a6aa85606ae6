//! A grid whose sites let out one port of one address: that of its broker, which the
//! broker's relay shares.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::World;
use serde_json::{Value, json};

use crate::first_hours::{good, isthmus_on};

/// Deadline that guards against hanging only.
const LONG: Duration = Duration::from_secs(180);
const STATE: &str = "/var/lib/isthmus";
const CONFIG: &str = "[broker]\nlisten = \"0.0.0.0:443\"\n[relay]\nlisten = \"0.0.0.0:443\"\n";

/// Writes the isthmus.toml of a machine.
fn configure(world: &World, machine: &str, text: &str) -> Result<()> {
    let write = format!("mkdir -p -m 700 {STATE} && printf '%s' '{text}' > {STATE}/isthmus.toml");
    let written = world.sh(machine, LONG, &["sh", "-c", &write])?;
    ensure!(written.status == 0, "{}", written.whole());
    Ok(())
}

/// Brings up the grid, with a node at each of its two sites.
fn up() -> Result<World> {
    let world = World::up("one-port")?;
    let init = ["grid", "init", "--name", "lab", "--address", "198.51.100.10:443"];
    good(&world, "hub", &init, &["the same `listen` in section [relay]"])?;
    configure(&world, "hub", CONFIG)?;
    good(&world, "hub", &["up"], &["The broker of grid lab, with a relay, runs"])?;
    for site in ["alpha", "beta"] {
        let token = world.directory.path().join(format!("{site}.token")).display().to_string();
        let words = ["grid", "invite", "--site", site, "--owner", "ada", "--nodes", "1", "--gateways", "1"];
        good(&world, "hub", &[&words[..], &["--out", &token]].concat(), &[])?;
        let front_end = format!("fe.{site}");
        let via = world.lab().machine(&front_end)?.address().to_string();
        good(&world, &front_end, &["up", "--token", &token], &["runs;"])?;
        let node = format!("n1.{site}");
        configure(&world, &node, "[agent]\nslots = 1\n")?;
        good(&world, &node, &["up", "--token", &token, "--via", &via], &[&format!("agent {node} runs;")])?;
    }
    Ok(world)
}

/// What `isthmus doctor site --json` finds about the only node of a site.
fn node_of<'a>(sites: &'a Value, site: &str) -> Option<&'a Value> {
    sites.as_array()?.iter().find(|found| found["site"] == site)?["nodes"].get(0)
}

#[test]
#[ignore = "test-all"]
fn a_job_crosses_two_sites_that_let_out_one_port() -> Result<()> {
    let world = up()?;
    let status = world.status("n1.alpha")?;
    ensure!(status["relays"][0]["address"] == "198.51.100.10:443", "{status:#}");
    World::eventually("the doctor finds all well, and what is let out", LONG, || {
        let verdict = isthmus_on(&world, "n1.alpha", &["doctor"])?;
        let sites = isthmus_on(&world, "n1.alpha", &["doctor", "site", "--json"])?;
        let sites: Value = serde_json::from_str(&sites.stdout).context(sites.whole())?;
        let let_out = |site: &str| node_of(&sites, site).map(|node| node["let_out"].clone());
        let known = ["alpha", "beta"].iter().all(|site| let_out(site) == Some(json!([443])));
        Ok(known && verdict.status == 0 && verdict.stdout.starts_with("All is well: 2 sites, 2 nodes up."))
    })?;
    // Nothing else leaves.
    let other = "import socket; socket.create_connection(('198.51.100.10', 7720), timeout=3)";
    let tried = world.sh("n1.alpha", LONG, &["python3", "-c", other])?;
    ensure!(tried.stderr.contains("timed out"), "{}", tried.whole());
    world.joined_by("n1.alpha", "n1.beta", "relay")
}
