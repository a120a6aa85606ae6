//! Jobs that begin while something is away that a running job outlives: `isthmus run` tries on
//! for 30 s.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use isthmus_e2e::{Job, Mpi, World, isthmus, promised};

use crate::life::{NODES, SOON};

/// How long a service stays away.
const AWAY: Duration = Duration::from_secs(5);
/// A time longer than [`AWAY`], and shorter than `isthmus run` tries on.
const TRIES_ON: Duration = Duration::from_secs(30);
/// What the user reads while a job can't be started yet.
const WORD: &str = "not started yet: ";

fn hello(world: &World) -> Result<Job> {
    let (binary, nodes) = (isthmus().display().to_string(), NODES.join(","));
    let (launcher, program) = (Mpi::OpenMpi.launcher(), Mpi::OpenMpi.program("hello"));
    let words = [&binary, "run", "--nodes", &nodes, "--", &launcher, "-n", "4", &program];
    Job::start(world.command(NODES[0], SOON * 2, &words)?)
}

fn expect_success(job: Job) -> Result<String> {
    let (status, printed) = job.end()?;
    ensure!(status == 0, "status {status}\n{printed}");
    Ok(printed)
}

/// Kills a service, has a job begin, and starts the service again. Checks that the job works.
fn starts_without(machine: &str, role: &str) -> Result<()> {
    let world = World::up("two-relays")?;
    expect_success(hello(&world)?)?;
    world.kill(machine, "-KILL", &world.service(machine, role)?)?;
    let job = hello(&world)?;
    // The service is away for a while.
    std::thread::sleep(AWAY);
    let _service = world.serve(machine, role, &[], &World::config(role))?;
    expect_success(job)?;
    world.expect_clean()
}

#[test]
#[ignore = "test-all"]
fn a_job_starts_when_the_broker_was_killed() -> Result<()> {
    starts_without("hub", "broker")
}

#[test]
#[ignore = "test-all"]
fn a_job_starts_when_the_own_gateway_was_killed() -> Result<()> {
    starts_without("n1.alpha", "gateway")
}

#[test]
#[ignore = "test-all"]
fn a_job_starts_when_the_other_gateway_was_killed() -> Result<()> {
    starts_without("n2.beta", "gateway")
}

#[test]
#[ignore = "test-all"]
fn a_job_starts_when_the_own_agent_was_killed() -> Result<()> {
    starts_without("n1.alpha", "agent")
}

#[test]
fn a_job_starts_when_the_agent_of_another_node_was_killed() -> Result<()> {
    starts_without("n1.beta", "agent")
}

/// Both relays are away, and a single one comes back.
#[test]
#[ignore = "test-all"]
fn a_job_starts_when_its_relays_were_killed() -> Result<()> {
    let world = World::up("two-relays")?;
    expect_success(hello(&world)?)?;
    for host in ["hub", "spare"] {
        world.kill(host, "-KILL", &world.service(host, "relay")?)?;
    }
    let job = hello(&world)?;
    std::thread::sleep(AWAY);
    let _relay = world.serve("spare", "relay", &[], &World::config("relay"))?;
    expect_success(job)?;
    world.expect_clean()
}

/// The broker had to arrange the way of the trunk, which the jobs then use without it.
#[test]
fn jobs_start_without_the_broker_over_a_trunk_that_stands() -> Result<()> {
    let world = World::up("two-relays")?;
    expect_success(hello(&world)?)?;
    world.stop("hub", "broker")?;
    for node in NODES {
        World::eventually("its gateway answers by itself", SOON, || {
            Ok(!world.status(node)?["without_broker"].is_null())
        })?;
    }
    let printed = expect_success(hello(&world)?)?;
    ensure!(printed.contains("the broker can't be reached for "), "{printed}");
    world.expect_clean()
}

/// A node that stays away is named at first and at the end.
#[test]
#[ignore = "test-all"]
fn a_node_that_stays_away_is_named() -> Result<()> {
    let world = World::up_alone("two-relays")?;
    world.kill(NODES[1], "-KILL", &world.service(NODES[1], "agent")?)?;
    World::eventually("the broker knows", SOON, || {
        let nodes = world.status(NODES[0])?["nodes"].clone();
        let nodes = nodes.as_array().cloned().unwrap_or_default();
        Ok(nodes.iter().any(|node| node["name"] == NODES[1] && node["up"] == false))
    })?;
    let begun = Instant::now();
    let (status, printed) = hello(&world)?.end()?;
    let took = begun.elapsed();
    let reason = "n1.beta cannot take part: its agent is not attached";
    ensure!(status == 125 && printed.contains(&format!("{WORD}{reason}")), "status {status}\n{printed}");
    ensure!(printed.matches(WORD).count() == 1 && printed.matches(reason).count() == 2, "{printed}");
    ensure!(took > TRIES_ON - AWAY && took < promised(TRIES_ON + AWAY), "{took:?}\n{printed}");
    Ok(())
}

/// The trunk with the former agent doesn't stand in the way of the next job.
#[test]
fn a_job_starts_at_once_after_an_agent_was_killed_and_is_back() -> Result<()> {
    /// Time within which the job starts. An agent attaches within a second, and the next try
    /// follows within another second.
    const SECONDS: Duration = Duration::from_secs(6);
    let world = World::up_alone("two-relays")?;
    let mut agents = Vec::new();
    let begun = Instant::now();
    expect_success(hello(&world)?)?;
    let usual = begun.elapsed();
    for node in [NODES[1], NODES[0]] {
        world.kill(node, "-KILL", &world.service(node, "agent")?)?;
        agents.push(world.serve(node, "agent", &[], &World::config("agent"))?);
        let begun = Instant::now();
        expect_success(hello(&world)?)?;
        let took = begun.elapsed();
        eprintln!("{node}: {took:?}; usually {usual:?}");
        ensure!(took < usual + promised(SECONDS), "{node}: {took:?}, usually {usual:?}");
    }
    world.expect_clean()
}
