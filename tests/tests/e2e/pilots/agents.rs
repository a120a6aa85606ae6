//! The agent on a login node, or its site's gateway, is killed and started again.

use std::time::Duration;

use anyhow::{Result, ensure};
use isthmus_e2e::{World, promised};

use super::logins::Logins;
use crate::clusters::{Busy, GONE, GRID};

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

#[test]
#[ignore = "test-all"]
fn a_job_outlives_its_site_s_gateway() -> Result<()> {
    // No other test gets a lab whose gateway ends with this one.
    let world = World::up("two-slurms")?;
    let logins = Logins::start(&world)?;
    let job = logins.lasting()?;
    world.kill("n1.beta", "-KILL", &world.service("n1.beta", "gateway")?)?;
    let _gateway = world.serve("n1.beta", "gateway", &[], &World::config("gateway"))?;
    world.attached("n1.alpha", "login.beta")?;
    logins.ends_well(job, promised(GONE))
}
