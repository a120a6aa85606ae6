//! The dial `traverse`: through a NAT at the initiator's side, and what becomes
//! of a node without the right to raw packets. That it joins two stateless
//! firewalls is among the pairs in ways.rs.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Job, World, isthmus};

/// Time within which services that are started anew are attached again. It guards against hanging
/// only.
const SOON: Duration = Duration::from_secs(90);
/// The broker's policy that leaves a pair nothing but `traverse` and a relay. From `beta` to
/// `home`, no traversing of the NAT is possible.
const ONLY: &str = "[[broker.pairs]]\nsites = [\"home\", \"beta\"]\nonly = [\"traverse\", \"relay\"]\n";

/// The output of `isthmus plan` about two nodes.
fn plan(world: &World, from: &str, to: &str) -> Result<serde_json::Value> {
    let binary = isthmus().display().to_string();
    let output = world.sh(from, SOON, &[&binary, "plan", from, to, "--json"])?;
    ensure!(output.status == 0, "{}", output.whole());
    Ok(serde_json::from_str(&output.stdout)?)
}

/// The dials of a plan's steps, in order.
fn dials(plan: &serde_json::Value) -> Vec<&str> {
    let steps = plan["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    steps.iter().filter_map(|step| step["dial"].as_str()).collect()
}

/// Waits until the plan between two nodes has these dials. Returns the plan.
fn planned(world: &World, from: &str, to: &str, want: &[&str]) -> Result<serde_json::Value> {
    let mut last = serde_json::Value::Null;
    let done = World::eventually("the plan is as expected", SOON, || {
        // While services come and go there may be no answer.
        last = plan(world, from, to).unwrap_or_default();
        Ok(dials(&last) == want)
    });
    done.with_context(|| format!("{last:#}"))?;
    Ok(last)
}

/// Ends a service of the lab and starts it anew. `before` is put in front of its command, and
/// `settings` are added to its configuration.
fn anew(world: &World, node: &str, role: &str, before: &[&str], settings: &str) -> Result<Job> {
    world.stop(node, role)?;
    let (old, new) = (World::config(role), "/tmp/anew.toml");
    let script = format!("cat {old} - > {new} <<'END'\n{settings}END\n");
    let written = world.sh(node, SOON, &["sh", "-c", &script])?;
    ensure!(written.status == 0, "{}", written.whole());
    world.serve(node, role, before, new)
}

#[test]
fn a_nat_at_the_initiators_side_is_passed() -> Result<()> {
    let world = World::up("stateless")?;
    let _broker = anew(&world, "hub", "broker", &[], ONLY)?;
    planned(&world, "n1.home", "n1.beta", &["traverse", "relay"])?;
    let ways = world.hundred("n1.home", "n1.beta")?;
    ensure!(ways == BTreeMap::from([("traverse".to_owned(), 100)]), "{ways:?}");
    Ok(())
}

#[test]
#[ignore = "test-all"]
fn without_the_right_it_is_left_out_and_the_plan_says_why() -> Result<()> {
    let world = World::up("stateless")?;
    planned(&world, "n1.alpha", "n1.beta", &["traverse", "relay"])?;
    let _agent = anew(&world, "n1.beta", "agent", &["setpriv", "--bounding-set=-net_raw"], "")?;
    for (from, to) in [("n1.alpha", "n1.beta"), ("n1.beta", "n1.alpha")] {
        let plan = planned(&world, from, to, &["relay"])?;
        let left_out = plan["left_out"].as_array().context("nothing left out")?;
        let traverse = left_out.iter().find(|left| left["dial"] == "traverse").context("no traverse")?;
        let reason = traverse["reason"].as_str().context("no reason")?;
        ensure!(reason.contains("beta") && reason.contains("setcap cap_net_raw=ep"), "{reason}");
    }
    let ways = world.hundred("n1.alpha", "n1.beta")?;
    ensure!(ways == BTreeMap::from([("relay".to_owned(), 100)]), "{ways:?}");
    Ok(())
}

/// The helpers of both ends are killed twice, and started anew each time.
#[test]
#[ignore = "test-all"]
fn a_helper_that_dies_is_started_again() -> Result<()> {
    let world = World::up("stateless")?;
    planned(&world, "n1.alpha", "n1.beta", &["traverse", "relay"])?;
    for _ in 0..2 {
        for node in ["n1.alpha", "n1.beta"] {
            let before = helpers(&world, node)?;
            ensure!(before.len() == 1, "{node}: {before:?}");
            before.iter().try_for_each(|pid| world.kill(node, "-KILL", pid))?;
            World::eventually("another helper runs", SOON, || {
                let now = helpers(&world, node)?;
                Ok(now.len() == 1 && now != before)
            })?;
        }
    }
    let all = || Ok(world.logs()?.matches("isthmus-raw was started again").count() == 4);
    World::eventually("the agents say so each time", SOON, all)?;
    let ways = world.hundred("n1.alpha", "n1.beta")?;
    ensure!(ways == BTreeMap::from([("traverse".to_owned(), 100)]), "{ways:?}");
    Ok(())
}

/// Ids of the helper's processes at a node.
fn helpers(world: &World, node: &str) -> Result<Vec<String>> {
    let found = world.sh(node, SOON, &["pgrep", "-x", "isthmus-raw"])?;
    Ok(found.stdout.lines().map(str::to_owned).collect())
}
