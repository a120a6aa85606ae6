//! Two closed sites whose grid has no relay: gateways of other sites relay for them.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Lasting, Mpi, World};

use crate::life::NODES;

/// Deadline that guards against hanging only.
const SOON: Duration = Duration::from_secs(90);
/// The sites whose gateways relay.
const SITES: [&str; 2] = ["delta", "gamma"];

/// Brings up the grid, until both gateways relay and both nodes know it.
fn up() -> Result<World> {
    let world = World::up("gateway-relays")?;
    World::eventually("both gateways relay", SOON, || {
        Ok(connections(&world)?.into_keys().eq(SITES.map(|site| format!("gateway.{site}"))))
    })?;
    World::eventually("the plan has a relay", SOON, || {
        let plan = world.plan(NODES[0], NODES[1])?;
        let steps = plan["steps"].as_array().context("no steps")?;
        Ok(steps.iter().any(|step| step["dial"] == "relay"))
    })?;
    Ok(world)
}

/// How many connections each relay that is up has spliced.
fn connections(world: &World) -> Result<BTreeMap<String, u64>> {
    let status = world.status(NODES[0])?;
    let relays = status["relays"].as_array().context("no relays")?;
    let up = relays.iter().filter(|relay| relay["up"] == true);
    Ok(up.map(|relay| (text(&relay["name"]), relay["connections"].as_u64().unwrap_or(0))).collect())
}

fn text(value: &serde_json::Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[test]
fn gateways_join_two_closed_sites() -> Result<()> {
    let world = up()?;
    world.joined_by(NODES[0], NODES[1], "relay")?;
    World::eventually("the broker knows who relayed", SOON, || {
        Ok(connections(&world)?.values().sum::<u64>() > 0)
    })
}

#[test]
fn a_job_outlives_each_gateway_that_relays() -> Result<()> {
    let world = up()?;
    let job = Lasting::start(&world, Mpi::OpenMpi, &NODES, &[])?;
    job.goes_on()?;
    // Whichever of them relays, one of the two kills meets it.
    let mut restarted = Vec::new();
    for site in SITES {
        let front_end = format!("fe.{site}");
        world.kill(&front_end, "-KILL", &world.service(&front_end, "gateway")?)?;
        job.goes_on()?;
        restarted.push(world.serve(&front_end, "gateway", &[], &World::config("gateway"))?);
        World::eventually("both gateways relay again", SOON, || Ok(connections(&world)?.len() == 2))?;
    }
    let (status, printed) = job.end()?;
    ensure!(status == 0, "status {status}\n{printed}");
    world.expect_clean()
}

/// What a gateway relays isn't handed over to the program that takes its place.
#[test]
#[ignore = "test-all"]
fn a_job_outlives_an_upgrade_of_each_gateway_that_relays() -> Result<()> {
    let world = up()?;
    let job = Lasting::start(&world, Mpi::Mpich, &NODES, &[])?;
    for (upgraded, site) in SITES.iter().enumerate() {
        let front_end = format!("fe.{site}");
        world.kill(&front_end, "-HUP", &world.service(&front_end, "gateway")?)?;
        let carries_on = || Ok(world.logs()?.matches("upgraded in place").count() > upgraded);
        World::eventually("the gateway is replaced", SOON, carries_on)?;
        job.goes_on()?;
        World::eventually("both gateways relay", SOON, || Ok(connections(&world)?.len() == 2))?;
    }
    let (status, printed) = job.end()?;
    ensure!(status == 0, "status {status}\n{printed}");
    world.expect_clean()
}
