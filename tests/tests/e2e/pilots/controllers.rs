//! A site's slurmctld is away for a while: nobody's run ends by that.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use isthmus_e2e::{World, promised, write_program};

use super::logins::Logins;
use crate::clusters::{self, Busy, Controller, GONE, GRID, SOON};

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

/// Makes a directory with an `sbatch` that tries for a few seconds only. The lab's Slurm has it try for a
/// minute, as machines of tests are busy.
fn hasty_sbatch(world: &World) -> Result<PathBuf> {
    let directory = world.directory.path().join("hasty");
    std::fs::create_dir_all(&directory)?;
    let script = "#!/bin/sh\n\
                  sed 's/^MessageTimeout=.*/MessageTimeout=5/' \"$SLURM_CONF\" >/tmp/hasty.conf\n\
                  SLURM_CONF=/tmp/hasty.conf exec /usr/bin/sbatch \"$@\"\n";
    write_program(&directory.join("sbatch"), script.as_bytes(), 0o755)?;
    Ok(directory)
}

/// sbatch has given up before the scheduler is back, so the batch job is submitted once more.
#[test]
#[ignore = "test-all"]
fn a_run_that_submits_outlives_its_scheduler() -> Result<()> {
    let world = GRID.take()?;
    let hasty = hasty_sbatch(&world)?;
    let slurm = || "submit = \"slurm\"\n".to_owned();
    let sites = [("alpha", slurm(), Some(hasty.as_path())), ("beta", slurm(), None)];
    let logins = Logins::start_by(&world, "4", sites)?;
    let before = clusters::pilots_known(&world, "alpha")?;
    let controller = Controller::down(&world, "alpha")?;
    let run = logins.printing("alpha=1", &["hostname"])?;
    run.prints("the batch job at alpha is being submitted; alpha does not answer: sbatch --parsable")?;
    controller.back()?;
    let (status, text) = run.ended()?;
    ensure!(status == 0 && text.contains("of Slurm at alpha: n"), "status {status}\n{text}");
    let mut pilots = clusters::pilots_known(&world, "alpha")?;
    pilots.retain(|pilot| !before.contains(pilot));
    ensure!(pilots.len() == 1, "it was submitted {} times: {pilots:?}\n{text}", pilots.len());
    logins.nothing_left(promised(GONE))
}
