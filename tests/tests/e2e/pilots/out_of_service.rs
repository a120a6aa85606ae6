//! A site takes a node away: by its administrators, or as its time is over.

use anyhow::{Context as _, Result, bail, ensure};
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
    let report = world.directory.path().join("limit.json").display().to_string();
    let run = [binary.as_str(), "run", "--pilots", "alpha=1", "--time", "1m", "--report", &report, "--"];
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
    let report: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(report)?)?;
    let [job] = report["batch_jobs"].as_array().context("no batch jobs")?.as_slice() else {
        bail!("{report}");
    };
    let hours = job["node_hours"].as_f64().context("no node-hours")?;
    ensure!(job["site"] == "alpha" && job["nodes"] == 1 && hours > 0.0 && hours < 0.1, "{report}");
    logins.nothing_left(promised(GONE))
}

#[test]
#[ignore = "test-all"]
fn ranks_get_a_signal_before_the_time_is_over() -> Result<()> {
    let world = GRID.take()?;
    let logins = Logins::start(&world)?;
    let binary = isthmus().display().to_string();
    let program = "trap 'echo saves; exit 0' USR1; while :; do sleep 0.1; done";
    for mpi in [Mpi::OpenMpi, Mpi::Mpich] {
        let pilots = ["--pilots", "alpha=1,beta=1", "--time", "2m", "--signal", "USR1@85s"];
        let ranks = [&mpi.launcher(), "-n", "2", "sh", "-c", program];
        let words = [&[&binary, "run"][..], &pilots, &["--"], &ranks].concat();
        let output = world.sh("n1.alpha", SOON, &words)?;
        let text = output.whole();
        let saved = text.lines().filter(|line| line.ends_with("saves")).count();
        ensure!(output.status == 0 && saved == 2, "{mpi:?}, status {}\n{text}", output.status);
        ensure!(text.contains(" s, by its time limit; the command gets SIGUSR1"), "{text}");
        logins.nothing_left(promised(GONE))?;
    }
    Ok(())
}
