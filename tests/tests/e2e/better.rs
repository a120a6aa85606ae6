//! A trunk that had to take a worse way leaves it once a better one works, under a running job.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Mpi, World, isthmus};

use crate::life::NODES;
use crate::outlive::ring_of;

/// Deadline that guards against hanging only. A better way is tried again after some seconds, and
/// then less often, for which `AGAIN` is.
const SOON: Duration = Duration::from_secs(90);
const AGAIN: Duration = Duration::from_secs(300);
/// More rounds than the job ever does, as it is ended.
const ROUNDS: &str = "100000000";

/// The dial by which the trunk between the two nodes was made last. `None` if no trunk works.
fn dial(world: &World) -> Result<Option<String>> {
    let binary = isthmus().display().to_string();
    let output = world.sh(NODES[0], SOON, &[&binary, "trunks", "--json"])?;
    ensure!(output.status == 0, "{}", output.whole());
    let shown: serde_json::Value = serde_json::from_str(&output.stdout)?;
    let trunks = shown["trunks"].as_array().context("no list")?;
    let works = |trunk: &&serde_json::Value| trunk["cut_seconds"].is_null();
    let own = trunks.iter().filter(works).find(|trunk| trunk["peer"] == NODES[1]);
    Ok(own.and_then(|trunk| Some(trunk["dial"].as_str()?.to_owned())))
}

fn goes_by(world: &World, want: &str, within: Duration) -> Result<()> {
    World::eventually(&format!("the trunk goes by {want}"), within, || {
        Ok(dial(world)?.as_deref() == Some(want))
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
    goes_by(&world, "punch", SOON)?;
    // Nothing passes between the two sites but over the relay.
    let rules = "add table ip apart; \
                 add chain ip apart pass { type filter hook forward priority -300; }; \
                 add rule ip apart pass ip saddr != 198.51.100.10 ip daddr != 198.51.100.10 drop";
    let router = "router.beta";
    let done = world.sh(router, SOON, &["nft", rules])?;
    ensure!(done.status == 0, "{}", done.whole());
    goes_by(&world, "relay", AGAIN)?;
    let done = world.sh(router, SOON, &["nft", "delete", "table", "ip", "apart"])?;
    ensure!(done.status == 0, "{}", done.whole());
    goes_by(&world, "punch", AGAIN)?;
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
