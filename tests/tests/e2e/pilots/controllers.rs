//! A site's slurmctld is away for a while: nobody's run ends by that.

use anyhow::{Result, ensure};
use isthmus_e2e::{World, promised};

use super::logins::Logins;
use crate::clusters::{Busy, Controller, GONE, GRID, SOON};

#[test]
#[ignore = "test-all"]
fn a_run_that_waits_outlives_its_scheduler() -> Result<()> {
    let world = GRID.take()?;
    let logins = Logins::start(&world)?;
    let busy = Busy::start(&world, "alpha")?;
    let run = logins.waiting("1")?;
    let controller = Controller::down(&world, "alpha")?;
    // Slurm's commands say so themselves, or have tried for too long.
    run.prints_one_of(&["alpha does not answer: squeue", "did not answer for alpha within"])?;
    controller.back()?;
    busy.end()?;
    let (status, text) = run.ended()?;
    ensure!(status == 0 && text.contains("of Slurm at alpha: n"), "status {status}\n{text}");
    logins.nothing_left(promised(GONE))
}

#[test]
#[ignore = "test-all"]
fn a_job_outlives_its_scheduler() -> Result<()> {
    let world = GRID.take()?;
    let logins = Logins::start(&world)?;
    let job = logins.lasting()?;
    let controller = Controller::down(&world, "beta")?;
    World::eventually("it is asked in vain", SOON, || Ok(!world.processes("n1.beta", "squeue")?.is_empty()))?;
    job.goes_on()?;
    controller.back()?;
    logins.ends_well(job, promised(GONE))
}
