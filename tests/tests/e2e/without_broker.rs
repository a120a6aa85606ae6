//! Jobs start while the broker is away, where the ways between their nodes don't need it.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Job, Mpi, Output, World, isthmus, root};

const INSIDE: [&str; 2] = ["n1.alpha", "n2.alpha"];
const DIRECT: [&str; 2] = ["n1.alpha", "n1.beta"];
const OUT_BY_GATEWAY: [&str; 2] = ["n1.gamma", "n1.alpha"];
const BY_RELAY: [&str; 2] = ["n1.alpha", "n1.delta"];
/// Deadline that guards against hanging only.
const SOON: Duration = Duration::from_secs(90);
/// What a user reads with an answer that a gateway gives by itself.
const AWAY: &str = "the broker can't be reached for ";

/// Brings up a grid, and waits until its nodes have found out how to reach each other.
fn known() -> Result<World> {
    let world = World::up("without-broker")?;
    for [from, to] in [DIRECT, OUT_BY_GATEWAY, BY_RELAY] {
        let is_known = || {
            let plan = world.plan(from, to)?;
            Ok(plan["steps"].as_array().is_some_and(|steps| !steps.is_empty()))
        };
        World::eventually("the plan has a step", SOON, is_known)?;
    }
    Ok(world)
}

/// Whether the gateway of this node answers by itself.
fn is_alone(world: &World, node: &str) -> Result<bool> {
    Ok(!world.status(node)?["without_broker"].is_null())
}

fn take_away(world: &World, asking: &[&str]) -> Result<()> {
    world.stop("hub", "broker")?;
    for node in asking {
        World::eventually("its gateway answers by itself", SOON, || is_alone(world, node))?;
    }
    Ok(())
}

/// Starts the broker again, and waits until it knows all nodes.
fn bring_back(world: &World, asking: &str) -> Result<Job> {
    let broker = world.serve("hub", "broker", &[], &World::config("broker"))?;
    let all = world.nodes().len();
    World::eventually("the broker knows all nodes", SOON, || {
        let status = world.status(asking)?;
        let up = |node: &serde_json::Value| node["up"] == true;
        let nodes =
            status["nodes"].as_array().map_or(0, |nodes| nodes.iter().filter(|node| up(node)).count());
        Ok(status["without_broker"].is_null() && nodes == all)
    })?;
    Ok(broker)
}

fn job(world: &World, mpi: Mpi, nodes: [&str; 2]) -> Result<Output> {
    let (launcher, alltoall) = (mpi.launcher(), mpi.program("alltoall"));
    // A job that outlives no cuts leaves no trunk that the next one could use.
    let options = ["--outlive", "0", "--try-for", "2s", "--nodes", &nodes.join(",")];
    world.run(nodes[0], &options, &[&launcher, "-n", "2", &alltoall])
}

fn works(world: &World, mpi: Mpi, nodes: [&str; 2], is_alone: bool) -> Result<()> {
    let output = job(world, mpi, nodes)?;
    let done = output.status == 0 && output.stdout.contains(" No Errors");
    ensure!(done && output.stderr.contains(AWAY) == is_alone, "{mpi:?}: {}", output.whole());
    Ok(())
}

#[test]
#[ignore = "test-all"]
fn jobs_of_one_site_start() -> Result<()> {
    let world = known()?;
    take_away(&world, &["n1.alpha"])?;
    for mpi in [Mpi::OpenMpi, Mpi::Mpich] {
        works(&world, mpi, INSIDE, true)?;
    }
    // No list of the grid was asked for before, and no job ran.
    let plan = world.plan(INSIDE[0], INSIDE[1])?;
    ensure!(plan["steps"][0]["dial"] == "direct" && !plan["without_broker"].is_null(), "{plan:#}");
    let _broker = bring_back(&world, "n1.alpha")?;
    for mpi in [Mpi::OpenMpi, Mpi::Mpich] {
        works(&world, mpi, INSIDE, false)?;
    }
    world.expect_clean()
}

#[test]
fn jobs_of_two_sites_that_know_each_other_start() -> Result<()> {
    let world = known()?;
    let mpis = [Mpi::OpenMpi, Mpi::Mpich];
    for mpi in mpis {
        works(&world, mpi, DIRECT, false)?;
    }
    take_away(&world, &DIRECT)?;
    for mpi in mpis {
        works(&world, mpi, DIRECT, true)?;
    }
    let status = world.sh("n1.alpha", SOON, &[&isthmus().display().to_string(), "status", "--nodes"])?;
    ensure!(status.status == 0 && status.stdout.starts_with(AWAY), "{}", status.whole());
    for want in ["; of other sites it heard up to ", "n2.alpha", "n1.beta"] {
        ensure!(status.stdout.contains(want), "no {want:?} in {}", status.whole());
    }
    let plan = world.plan(DIRECT[0], DIRECT[1])?;
    ensure!(plan["steps"][0]["dial"] == "direct" && !plan["without_broker"].is_null(), "{plan:#}");
    let _broker = bring_back(&world, "n1.alpha")?;
    for mpi in mpis {
        works(&world, mpi, DIRECT, false)?;
    }
    world.expect_clean()
}

/// Only the first node connects, and its gateway dials for it.
#[test]
#[ignore = "test-all"]
fn a_gateway_dials_out_for_its_node() -> Result<()> {
    let world = known()?;
    let [from, to] = OUT_BY_GATEWAY;
    let is_known = || Ok(world.plan(from, to)?["from"]["way_out"] == false);
    World::eventually("the enclosed node knows that it is", SOON * 2, is_known)?;
    let nodes = OUT_BY_GATEWAY.join(",");
    let program = root().join("tests/programs/hundred.py").display().to_string();
    let hundred = || {
        // The other direction isn't tried: it needs the broker.
        let options = ["--nodes", &nodes, "--each", "--no-check"];
        let (output, report) = world.run_reported(from, &options, &["python3", &program])?;
        ensure!(output.status == 0, "{}", output.whole());
        let pairs = report["node_pairs"].as_array().context("no pairs")?;
        let by_gateway =
            |pair: &&serde_json::Value| pair["route"] == "gateway-out" && pair["dial"] == "direct";
        let connections = pairs.iter().filter(by_gateway).filter_map(|pair| pair["connections"].as_u64());
        ensure!(connections.sum::<u64>() == 100, "{report:#}");
        Ok(())
    };
    hundred()?;
    take_away(&world, &OUT_BY_GATEWAY)?;
    hundred()?;
    let _broker = bring_back(&world, from)?;
    hundred()?;
    world.expect_clean()
}

#[test]
fn a_way_that_the_broker_must_arrange_is_named() -> Result<()> {
    let world = known()?;
    works(&world, Mpi::OpenMpi, BY_RELAY, false)?;
    take_away(&world, &BY_RELAY)?;
    let plan = world.plan(BY_RELAY[0], BY_RELAY[1])?;
    let reason = "the broker must arrange it, and it can't be reached";
    let left_out = plan["left_out"].as_array().context("nothing is left out")?;
    ensure!(left_out.iter().any(|left| left["dial"] == "relay" && left["reason"] == reason), "{plan:#}");
    for mpi in [Mpi::OpenMpi, Mpi::Mpich] {
        let output = job(&world, mpi, BY_RELAY)?;
        // The run has ended by itself: a run that hangs is ended with another status.
        ensure!(output.status == 125, "{mpi:?}: {}", output.whole());
        for want in [AWAY, "the gateway has had no connection to the broker for "] {
            ensure!(output.stderr.contains(want), "{mpi:?}: no {want:?} in {}", output.whole());
        }
        world.expect_clean()?;
    }
    // A node that nobody was told of.
    let output = world.run("n1.beta", &["--try-for", "0", "--nodes", "n1.beta,n1.delta"], &["true"])?;
    ensure!(output.status == 125 && output.stderr.contains(AWAY), "{}", output.whole());
    let _broker = bring_back(&world, "n1.alpha")?;
    for mpi in [Mpi::OpenMpi, Mpi::Mpich] {
        works(&world, mpi, BY_RELAY, false)?;
    }
    world.expect_clean()
}
