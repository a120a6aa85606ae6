//! The agent on a login node, or its site's gateway, is killed and started again; or an agent of a pilot is
//! killed.

use std::time::Duration;

use anyhow::{Result, ensure};
use isthmus_e2e::{Job, World, promised};

use super::logins::Logins;
use crate::clusters::{self, Busy, GONE, GRID};

/// For how long a pilot stays that nobody holds.
const UNHELD: Duration = Duration::from_secs(30);

#[test]
fn a_job_outlives_the_agent_that_has_submitted_it() -> Result<()> {
    let world = GRID.take()?;
    let logins = Logins::start(&world)?;
    let job = logins.lasting()?;
    logins.agent("beta")?.restart()?;
    logins.ends_well(job, promised(GONE))
}

#[test]
#[ignore = "test-all"]
fn a_run_that_waits_outlives_the_agent_that_has_submitted_it() -> Result<()> {
    let world = GRID.take()?;
    let logins = Logins::start(&world)?;
    let busy = Busy::start(&world, "alpha")?;
    let run = logins.waiting("1")?;
    logins.agent("alpha")?.restart()?;
    busy.end()?;
    let (status, text) = run.ended()?;
    ensure!(status == 0 && text.contains("of Slurm at alpha: n"), "status {status}\n{text}");
    logins.nothing_left(promised(GONE))
}

/// An agent that starts again finds pilots of runs that are gone.
#[test]
#[ignore = "test-all"]
fn a_killed_run_gives_its_nodes_back() -> Result<()> {
    let world = GRID.take()?;
    let logins = Logins::start(&world)?;
    let _job = logins.lasting()?;
    world.kill("n1.alpha", "-KILL", &world.service("n1.alpha", "run")?)?;
    logins.agent("beta")?.restart()?;
    logins.nothing_left(promised(UNHELD + GONE))
}

/// Kills the gateway of beta, and starts it again. Waits until the agent that submits there is attached to
/// it. The gateway ends with the value.
fn restart_gateway(world: &World) -> Result<Job> {
    world.kill("n1.beta", "-KILL", &world.service("n1.beta", "gateway")?)?;
    let gateway = world.serve("n1.beta", "gateway", &[], &World::config("gateway"))?;
    world.attached("n1.alpha", "login.beta")?;
    Ok(gateway)
}

#[test]
#[ignore = "test-all"]
fn a_job_outlives_its_site_s_gateway() -> Result<()> {
    // No other test gets a lab whose gateway ends with this one.
    let world = World::up("two-slurms")?;
    let logins = Logins::start(&world)?;
    let job = logins.lasting()?;
    let _gateway = restart_gateway(&world)?;
    logins.ends_well(job, promised(GONE))
}

#[test]
#[ignore = "test-all"]
fn a_run_that_waits_outlives_its_site_s_gateway() -> Result<()> {
    let world = World::up("two-slurms")?;
    let logins = Logins::start(&world)?;
    let busy = Busy::start(&world, "beta")?;
    let run = logins.printing("alpha=1,beta=1", &["hostname"])?;
    run.prints("of Slurm at beta waits")?;
    let _gateway = restart_gateway(&world)?;
    busy.end()?;
    let (status, text) = run.ended()?;
    ensure!(status == 0 && text.contains("of Slurm at beta: n"), "status {status}\n{text}");
    logins.nothing_left(promised(GONE))
}

/// The batch job goes on at first: it has lost its agent alone.
#[test]
#[ignore = "test-all"]
fn a_pilot_whose_agent_is_killed_is_named() -> Result<()> {
    let world = GRID.take()?;
    let logins = Logins::start(&world)?;
    let job = logins.lasting()?;
    let pilot = clusters::pilot(&world, "beta", "RUNNING")?;
    let machine = format!("{}.beta", pilot.nodes);
    let before = job.printed();
    world.kill(&machine, "-KILL", &world.service(&machine, "agent")?)?;
    let (status, text) = job.ended()?;
    // The nodes were named at the start, too.
    let rest = text.strip_prefix(&before).unwrap_or_default();
    let (id, node) = (&pilot.id, &pilot.nodes);
    let batch = format!("batch job {id} of Slurm at beta: no agent on {node}: its agent has ended");
    // Slurm may learn of it when the run has ended.
    let is_named = [batch, format!("{node}-root-p1.beta")].iter().any(|words| rest.contains(words.as_str()));
    ensure!(status != 0 && is_named, "status {status}, {node} isn't named in\n{text}");
    logins.nothing_left(promised(GONE))
}
