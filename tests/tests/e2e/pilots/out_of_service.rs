//! A site takes a node away: by its administrators, or as its time is over.

use anyhow::{Result, ensure};
use isthmus_e2e::{Mpi, isthmus, promised};

use super::logins::Logins;
use crate::clusters::{self, Busy, GONE, GRID, OutOfService, SOON};

#[test]
fn a_drained_node_keeps_its_job_and_gets_no_other() -> Result<()> {
    let world = GRID.take()?;
    let logins = Logins::start(&world)?;
    let job = logins.lasting()?;
    let node = clusters::pilot(&world, "beta", "RUNNING")?.nodes;
    let drained = OutOfService::set(&world, "beta", &node, "drain")?;
    // It needs both nodes of the site.
    let (status, text) = logins.printing("beta=2", &["hostname"])?.ended()?;
    let which = format!("out of service: {node} (drain");
    for words in ["not started: the batch job at beta", "it can't start as things are", &which, ": test"] {
        ensure!(status == 125 && text.contains(words), "status {status}, {words:?} is not in\n{text}");
    }
    logins.ends_well(job, promised(GONE))?;
    drained.back()
}

#[test]
#[ignore = "test-all"]
fn a_run_that_waits_for_a_drained_node_says_so() -> Result<()> {
    let world = GRID.take()?;
    let logins = Logins::start(&world)?;
    let busy = Busy::start(&world, "alpha")?;
    let run = logins.waiting("2")?;
    let drained = OutOfService::set(&world, "alpha", "n3", "drain")?;
    busy.end()?;
    // Slurm has two ways to say it.
    run.prints_one_of(&["UnavailableNodes:n3", "Nodes required for job are DOWN, DRAINED"])?;
    world.kill("n1.alpha", "-INT", &world.service("n1.alpha", "run")?)?;
    let (status, text) = run.ended()?;
    let told = text.contains("interrupted by SIGINT before anything was started");
    ensure!(status == 130 && told, "status {status}\n{text}");
    logins.nothing_left(promised(GONE))?;
    drained.back()
}

#[test]
fn a_node_that_is_down_ends_the_run_and_is_told() -> Result<()> {
    let world = GRID.take()?;
    let logins = Logins::start(&world)?;
    let job = logins.lasting()?;
    let pilot = clusters::pilot(&world, "beta", "RUNNING")?;
    let down = OutOfService::set(&world, "beta", &pilot.nodes, "down")?;
    let (status, text) = job.ended()?;
    let want = format!("batch job {} of Slurm at beta: a node failed", pilot.id);
    ensure!(status != 0 && text.contains(&want), "status {status}, {want:?} is not in\n{text}");
    ensure!(!text.contains("peer closed connection"), "{text}");
    logins.nothing_left(promised(GONE))?;
    down.back()
}

#[test]
#[ignore = "test-all"]
fn a_time_limit_is_told_and_ends_the_run() -> Result<()> {
    let world = GRID.take()?;
    let logins = Logins::start(&world)?;
    let (binary, die) = (isthmus().display().to_string(), Mpi::OpenMpi.program("die"));
    // The shortest limit that Slurm knows is a minute.
    let run = [binary.as_str(), "run", "--pilots", "alpha=1", "--time", "1m", "--"];
    let words = [&run[..], &["mpirun.openmpi", "-n", "1", &die, "never", "0", "sleep"]].concat();
    let output = world.sh("n1.alpha", SOON, &words)?;
    let text = output.whole();
    ensure!(output.status != 0 && output.status != 124, "{text}");
    for words in [
        "of Slurm at alpha ends in ",
        " s, by its time limit",
        "of Slurm at alpha: its time limit was reached",
    ] {
        ensure!(text.contains(words), "{words:?} is not in\n{text}");
    }
    logins.nothing_left(promised(GONE))
}
