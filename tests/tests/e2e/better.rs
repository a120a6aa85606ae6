//! A trunk that had to take a worse way leaves it once a better one works, or there is a nearer relay,
//! under a running job.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Job, Mpi, World, isthmus, promised, root};

use crate::life::NODES;
use crate::outlive::ring_of;

/// Deadline that guards against hanging only. A better way is tried again after some seconds, and
/// then less often, for which `AGAIN` is.
const SOON: Duration = Duration::from_secs(90);
const AGAIN: Duration = Duration::from_secs(300);
/// The round trip over the far relay. While a trunk moves, no stream stands still for longer.
const OVER_HUB: Duration = Duration::from_millis(85);
/// More rounds than the job ever does, as it is ended.
const ROUNDS: &str = "100000000";

/// The dial by which the trunk between the two nodes was made last, and the relay on its way. `None`
/// if no trunk works.
fn way(world: &World) -> Result<Option<[String; 2]>> {
    let binary = isthmus().display().to_string();
    let output = world.sh(NODES[0], SOON, &[&binary, "trunks", "--json"])?;
    ensure!(output.status == 0, "{}", output.whole());
    let shown: serde_json::Value = serde_json::from_str(&output.stdout)?;
    let trunks = shown["trunks"].as_array().context("no list")?;
    let works = |trunk: &&serde_json::Value| trunk["cut_seconds"].is_null();
    let own = trunks.iter().filter(works).find(|trunk| trunk["peer"] == NODES[1]);
    Ok(own.map(|trunk| ["dial", "relay"].map(|key| trunk[key].as_str().unwrap_or_default().to_owned())))
}

fn goes_by(world: &World, want: [&str; 2], within: Duration) -> Result<()> {
    World::eventually(&format!("the trunk goes by {}", want.join(" ")), within, || {
        Ok(way(world)?.is_some_and(|way| way == want))
    })
}

#[test]
#[ignore = "test-all"]
fn a_trunk_leaves_the_relay_once_the_nodes_connect_themselves() -> Result<()> {
    let world = World::up("better")?;
    World::eventually("the plan begins with punch", SOON, || {
        Ok(world.plan(NODES[0], NODES[1])?["steps"][0]["dial"] == "punch")
    })?;
    let report = world.directory.path().join("report.json");
    let path = report.display().to_string();
    let job = ring_of(&world, Mpi::OpenMpi, &["--report", &path], ROUNDS)?;
    goes_by(&world, ["punch", ""], SOON)?;
    // Nothing passes between the two sites but over the relay.
    let rules = "add table ip apart; \
                 add chain ip apart pass { type filter hook forward priority -300; }; \
                 add rule ip apart pass ip saddr != 198.51.100.10 ip daddr != 198.51.100.10 drop";
    let router = "router.beta";
    let done = world.sh(router, SOON, &["nft", rules])?;
    ensure!(done.status == 0, "{}", done.whole());
    goes_by(&world, ["relay", "hub"], AGAIN)?;
    let done = world.sh(router, SOON, &["nft", "delete", "table", "ip", "apart"])?;
    ensure!(done.status == 0, "{}", done.whole());
    goes_by(&world, ["punch", ""], AGAIN)?;
    world.kill(NODES[0], "-TERM", &world.service(NODES[0], "run")?)?;
    let (status, printed) = job.end()?;
    ensure!(status != 0 && !printed.contains("got 0x"), "status {status}\n{printed}");
    let report: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&report)?)?;
    for want in ["punch", "relay"] {
        let pairs = report["node_pairs"].as_array().context("no pairs")?;
        let bytes = pairs.iter().filter(|pair| pair["dial"] == want).map(|pair| &pair["bytes"]);
        let sum: u64 = bytes.flat_map(|bytes| [bytes[0].as_u64(), bytes[1].as_u64()]).flatten().sum();
        ensure!(sum > 0, "the account has no bytes by {want}: {report:#}");
    }
    // The ranks have connected at the start alone.
    ensure!(printed.contains(" –  "), "{printed}");
    world.expect_clean()
}

#[test]
#[ignore = "test-all"]
fn a_trunk_leaves_a_relay_for_a_nearer_one() -> Result<()> {
    let world = World::up_alone("nearer")?;
    World::eventually("the near relay is known", SOON, || {
        Ok(world.plan(NODES[0], NODES[1])?["far_relays"] == serde_json::json!(["hub"]))
    })?;
    let directory = world.directory.path();
    let program = root().join("tests/programs/ticks.py").display().to_string();
    let (binary, shared) = (isthmus().display().to_string(), directory.display().to_string());
    let run = [&*binary, "run", "--quiet", "--no-prefix", "--each", "--nodes", &NODES.join(",")];
    let words = [&run[..], &["--", "python3", &program, &shared]].concat();
    let job = Job::start(world.command(NODES[0], AGAIN, &words)?)?;
    goes_by(&world, ["relay", "near"], SOON)?;
    world.stop("near", "relay")?;
    goes_by(&world, ["relay", "hub"], SOON)?;
    World::eventually("no relay is known to be nearer", SOON, || {
        Ok(world.plan(NODES[0], NODES[1])?["far_relays"] == serde_json::json!([]))
    })?;
    std::fs::write(directory.join("watch"), "")?;
    let _relay = world.serve("near", "relay", &[], &World::config("relay"))?;
    goes_by(&world, ["relay", "near"], promised(Duration::from_secs(10)))?;
    std::fs::write(directory.join("end"), "")?;
    let (status, printed) = job.end()?;
    let longest = printed.split_once("longest ").and_then(|(_, rest)| rest.split_once(" ms"));
    let longest = longest.with_context(|| format!("status {status}\n{printed}"))?.0.parse::<f64>()?;
    ensure!(status == 0 && longest <= promised(OVER_HUB).as_secs_f64() * 1e3, "{printed}");
    world.expect_clean()
}
