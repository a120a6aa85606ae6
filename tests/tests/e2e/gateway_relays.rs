//! Two closed sites whose grid has no relay: gateways of other sites relay for them, within their shares,
//! and try what they let in.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Job, Lasting, Mpi, Stream, World, isthmus};
use serde_json::{Value, json};

use crate::doctor::{doctor, site};
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

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The relays that join alpha and beta, as `isthmus status` says.
fn joining(world: &World) -> Result<Vec<String>> {
    let status = world.status(NODES[0])?;
    let relays = status["relays"].as_array().context("no relays")?;
    let both = json!(["alpha", "beta"]);
    let joins = |relay: &&Value| relay["joins"].as_array().is_some_and(|all| all.contains(&both));
    Ok(relays.iter().filter(joins).map(|relay| text(&relay["name"])).collect())
}

/// What `isthmus status -v` writes of a relay.
fn line_of(world: &World, relay: &str) -> Result<String> {
    let shown = world.sh(NODES[0], SOON, &[&isthmus().display().to_string(), "status", "-v"])?;
    ensure!(shown.status == 0, "{}", shown.whole());
    let mut lines = shown.stdout.lines().map(str::trim);
    let line = lines.find(|line| line.split_whitespace().next() == Some(relay));
    Ok(line.with_context(|| shown.whole())?.to_owned())
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
    World::eventually("the status says who relays", SOON, || Ok(!joining(&world)?.is_empty()))?;
    for relay in joining(&world)? {
        let line = line_of(&world, &relay)?;
        ensure!(relay.starts_with("gateway.") && line.ends_with(" alpha – beta"), "{relay}: {line}");
    }
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

/// There is no relay that could.
#[test]
#[ignore = "test-all"]
fn gateways_that_relay_try_what_sites_let_in() -> Result<()> {
    let world = up()?;
    // The ports of a node, forwarded to it and not.
    for (name, want) in [("port", "reachable"), ("alpha", "filtered")] {
        let mut outside = Value::Null;
        let tried = World::eventually("a node's port outside is tried", SOON, || {
            let (_, mut found) = site(&world, name)?;
            outside = found["nodes"][0]["outside"].take();
            Ok(outside["result"] == want)
        });
        tried.with_context(|| format!("{name}: {outside:#}"))?;
        ensure!(SITES.iter().any(|site| outside["relay"] == format!("gateway.{site}")), "{outside:#}");
    }
    World::eventually("the plan goes by that", SOON, || {
        Ok(world.plan(NODES[1], "n1.port")?["steps"][0]["dial"] == "port-range")
    })?;
    // Their own ports: each tries the other's.
    let [delta, gamma] = SITES;
    for (name, other) in [(delta, gamma), (gamma, delta)] {
        let mut outside = Value::Null;
        let tried = World::eventually("a gateway's port outside is tried", SOON, || {
            let (_, mut found) = doctor(&world, NODES[0], &["site", name])?;
            outside = found[0]["gateway_outside"].take();
            Ok(outside["result"] == "reachable" && outside["relay"] == format!("gateway.{other}"))
        });
        tried.with_context(|| format!("{name}: {outside:#}"))?;
    }
    Ok(())
}

/// Has the gateway of gamma, which runs, relay within this share, and waits until it does. The gateway ends
/// with the value.
fn relays_within(world: &World, share: &str) -> Result<Job> {
    let (front_end, shared) = ("fe.gamma", "/run/isthmus-machine/share.toml");
    let edit =
        format!("{{ cat {}; printf '[gateway.relay]\\n{share}\\n'; }} > {shared}", World::config("gateway"));
    let edited = world.sh(front_end, SOON, &["sh", "-c", &edit])?;
    ensure!(edited.status == 0, "{}", edited.whole());
    world.stop(front_end, "gateway")?;
    World::eventually("it relays no more", SOON, || Ok(connections(world)?.is_empty()))?;
    let gateway = world.serve(front_end, "gateway", &[], shared)?;
    World::eventually("the gateway relays", SOON, || {
        let plan = world.plan(NODES[0], NODES[1])?;
        let steps = plan["steps"].as_array().context("no steps")?;
        Ok(connections(world)?.len() == 1 && steps.iter().any(|step| step["dial"] == "relay"))
    })?;
    Ok(gateway)
}

#[test]
#[ignore = "test-all"]
fn a_gateway_relays_so_many_connections_and_no_more() -> Result<()> {
    let world = World::up("gateway-share")?;
    let _narrow = relays_within(&world, "connections = 2")?;
    // The nodes have as many between them at least.
    let job = Lasting::start(&world, Mpi::OpenMpi, &NODES, &[])?;
    World::eventually("the gateway is full", SOON, || {
        Ok(world.status(NODES[0])?["relays"][0]["full"] == true)
    })?;
    let line = line_of(&world, "gateway.gamma")?;
    ensure!(line.split_whitespace().nth(1) == Some("full"), "{line}");
    let third = "n1.alpha,n1.delta";
    let refused = world.run(NODES[0], &["--try-for", "0", "--nodes", third], &["true"])?;
    let reason = "relay gateway.gamma has as many connections as it takes";
    ensure!(refused.status == 125 && refused.stderr.contains(reason), "{}", refused.whole());
    job.goes_on()?;
    let (status, printed) = job.end()?;
    ensure!(status == 0, "status {status}\n{printed}");
    // It was the share that kept the third site out.
    let _wide = relays_within(&world, "connections = 100")?;
    let joined = world.run(NODES[0], &["--nodes", third], &["true"])?;
    ensure!(joined.status == 0, "{}", joined.whole());
    world.expect_clean()
}

/// Bytes that the gateway of gamma has sent so far.
fn sent(world: &World) -> Result<u64> {
    let counter = "/sys/class/net/eth0/statistics/tx_bytes";
    let read = world.sh("fe.gamma", SOON, &["cat", counter])?;
    read.stdout.trim().parse().with_context(|| read.whole())
}

#[test]
#[ignore = "test-all"]
fn a_gateway_relays_no_faster_than_its_share() -> Result<()> {
    /// Most of each direction.
    const BYTES_PER_SECOND: u64 = 2_000_000;
    /// What both directions carry in ten seconds.
    const SOME: u64 = 20 * BYTES_PER_SECOND;
    let world = World::up("gateway-share")?;
    let _gateway = relays_within(&world, "megabits_per_second = 16")?;
    let stream = Stream::start(&world, &NODES, &[])?;
    stream.flows()?;
    let (began, before) = (Instant::now(), sent(&world)?);
    World::eventually("so much is relayed", SOON, || Ok(sent(&world)? >= before + SOME))?;
    let took = began.elapsed();
    // A connection that has just become busy is paced for a moment as if it were alone. By the share that
    // gateways have by default it would take two seconds.
    ensure!(took >= Duration::from_secs(6), "{SOME} bytes took {took:?}");
    stream.end()?;
    world.expect_clean()
}
