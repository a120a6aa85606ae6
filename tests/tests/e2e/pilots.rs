//! Jobs over nodes that the batch schedulers of two sites, mostly real Slurms, give for them.

mod agents;
mod allocations;
mod asked_for;
mod clocks;
mod come_and_go;
mod controllers;
mod files;
mod grid_engine;
mod hosts;
pub(crate) mod logins;
mod out_of_service;
mod secrets;
mod users;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Mpi, World, isthmus, promised};

use crate::clusters::{self, Busy, GONE, GRID, SOON, sh};
use logins::{Logins, isthmus_on};

/// What a command has written.
fn written(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Checks that a text has all of these words.
fn has(text: &str, all: &[&str]) -> Result<()> {
    for words in all {
        ensure!(text.contains(words), "{words:?} is not in\n{text}");
    }
    Ok(())
}

#[test]
fn a_run_gets_nodes_of_two_schedulers_and_gives_them_back() -> Result<()> {
    let world = GRID.take()?;
    let logins = Logins::start(&world)?;
    let ring = Mpi::OpenMpi.program("ring");
    let output =
        logins.run("alpha=2,beta=2", &["mpirun.openmpi", "-n", "4", "--map-by", "node", &ring])?.output()?;
    let text = written(&output);
    ensure!(output.status.success(), "{text}");
    let pilots = [
        "of Slurm at alpha: n2-root-p1.alpha, n3-root-p1.alpha",
        "of Slurm at beta: n2-root-p1.beta, n3-root-p1.beta",
    ];
    has(&text, &pilots)?;
    has(&text, &[" No Errors", "4 nodes at 2 sites"])?;
    logins.nothing_left(promised(GONE))
}

#[test]
fn a_cancelled_pilot_ends_the_run_and_is_named() -> Result<()> {
    let world = GRID.take()?;
    let logins = Logins::start(&world)?;
    let die = Mpi::OpenMpi.program("die");
    let mut run =
        logins.run("alpha=1,beta=1", &["mpirun.openmpi", "-n", "2", &die, "never", "0", "sleep"])?;
    let run = isthmus_e2e::Job::start({
        run.env("LC_ALL", "C");
        run
    })?;
    World::eventually("the ranks run", SOON, || {
        let nodes = ["n2.alpha", "n3.alpha", "n2.beta", "n3.beta"];
        let mut ranks = 0;
        for node in nodes {
            ranks += world.processes(node, "/die")?.len();
        }
        Ok(ranks == 2)
    })?;
    let job = clusters::pilot(&world, "beta", "RUNNING")?.id;
    sh(&world, "n1.beta", &["scancel", &job])?;
    let (status, text) = run.end()?;
    let want = format!("batch job {job} of Slurm at beta: it was cancelled");
    ensure!(status != 0 && text.contains(&want), "{want:?} is not in\n{text}");
    logins.nothing_left(promised(GONE))
}

#[test]
fn a_run_that_waits_is_listed_and_cancelled() -> Result<()> {
    let world = GRID.take()?;
    let logins = Logins::start(&world)?;
    let busy = Busy::start(&world, "beta")?;
    let run = isthmus_e2e::Job::start(logins.run("alpha=1,beta=1", &["hostname"])?)?;
    let mut shown = serde_json::Value::Null;
    World::eventually("the run waits", SOON, || {
        shown = serde_json::from_str(&isthmus_on(&world, "n1.alpha", &["jobs", "--json"])?.stdout)?;
        let queued = sh(&world, "n1.beta", &["squeue", "--noheader"])?;
        Ok(shown["commands"][0]["phase"] == "waits" && queued.stdout.lines().count() == 2)
    })?;
    let id = shown["commands"][0]["id"].as_str().context("no id")?;
    let text = isthmus_on(&world, "n1.alpha", &["jobs", &id[..6]])?.stdout;
    let want = format!("job {}: hostname waits for nodes of alpha, beta, for ", &id[..8]);
    ensure!(text.starts_with(&want), "{want:?} is not in\n{text}");
    let cancelled = isthmus_on(&world, "n1.alpha", &["cancel", &id[..6]])?;
    ensure!(cancelled.stdout.contains(&format!("job {} has ended\n", &id[..8])), "{}", cancelled.whole());
    let (status, text) = run.end()?;
    let want = "cancelled by `isthmus cancel`: interrupted by SIGTERM";
    ensure!(status == 128 + libc::SIGTERM && text.contains(want), "status {status}\n{text}");
    busy.end()?;
    logins.nothing_left(promised(GONE))
}

#[test]
fn all_nodes_or_none() -> Result<()> {
    let world = GRID.take()?;
    let logins = Logins::start(&world)?;
    let busy = Busy::start(&world, "beta")?;
    let binary = isthmus().display().to_string();
    let words = [&binary, "run", "--pilots", "alpha=1,beta=1", "--wait", "10s", "--", "hostname"];
    let output = world.sh("n1.alpha", SOON, &words)?;
    let text = output.whole();
    ensure!(output.status == 125 && text.contains("of Slurm at beta"), "{text}");
    let words = [&binary, "run", "--pilots", "alpha=1,beta=1", "--hold", "5s", "--", "hostname"];
    let output = world.sh("n1.alpha", SOON, &words)?;
    let text = output.whole();
    ensure!(output.status == 125 && text.contains("--hold keeps nodes longer"), "{text}");
    ensure!(text.contains("used 1 node of alpha for "), "{text}");
    let refused = world.sh("n1.alpha", SOON, &[&binary, "run", "--pilots", "alpha=9", "--", "hostname"])?;
    let text = refused.whole();
    ensure!(refused.status == 125 && text.contains("it can't start as things are"), "{text}");
    busy.end()?;
    logins.nothing_left(promised(GONE))
}

/// Two groups of which each fills a site, but for a node.
const PROFILE: &str = "time = '10m'\n[[group]]\nname = 'masters'\nranks = 2\n\
                       [[group]]\nname = 'workers'\nranks = '4-9'\n";

/// Rounds over both sites that take some seconds.
const ROUNDS: &str = "200";

#[test]
fn a_profile_gets_nodes_of_schedulers() -> Result<()> {
    let world = GRID.take()?;
    let logins = Logins::start(&world)?;
    let path = world.directory.path().join("job.toml");
    std::fs::write(&path, PROFILE)?;
    let (path, binary) = (path.display().to_string(), isthmus().display().to_string());
    let ring = Mpi::OpenMpi.program("ring");
    let run = |options: &[&str]| {
        let words = [&[&binary, "run", "--profile", &path, "--pilots", "alpha,beta"], options].concat();
        // Agents look for ranks each second.
        let program = ["--", "mpirun.openmpi", &ring, "1024", ROUNDS];
        world.sh("n1.alpha", SOON, &[&words[..], &program].concat())
    };
    let asked = run(&["--start-estimate"])?;
    ensure!(asked.status == 0, "{}", asked.whole());
    has(&asked.stdout, &["masters: 2 ranks on 1 node with 2 cores of Slurm at "])?;
    has(&asked.stdout, &["workers: 4 ranks on 2 nodes with 2 cores of Slurm at "])?;
    ensure!(asked.stdout.matches(": at once").count() == 2, "{}", asked.whole());
    let report = world.directory.path().join("placed.json");
    let output = run(&["--report", &report.display().to_string()])?;
    let text = output.whole();
    ensure!(output.status == 0, "{text}");
    let report: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(report)?)?;
    let workers = &report["groups"][1];
    let nodes = workers["nodes"].as_array().context("no nodes")?;
    ensure!(workers["ranks"] == 4 && nodes.len() == 2 && nodes[0]["ranks"] == 2, "{report:#}");
    has(
        &text,
        &[" No Errors", "masters: 2 ranks at ", "workers: 4 ranks at ", "6 ranks on 3 nodes at 2 sites"],
    )?;
    logins.nothing_left(promised(GONE))?;

    std::fs::write(&path, PROFILE.replace("4-9", "5"))?;
    let refused = run(&[])?;
    let text = refused.whole();
    ensure!(refused.status == 125 && text.contains("workers needs 5 ranks"), "{text}");
    logins.nothing_left(promised(GONE))
}

#[test]
fn an_allocation_is_kept_for_several_runs() -> Result<()> {
    let world = GRID.take()?;
    let logins = Logins::start(&world)?;
    let binary = isthmus().display().to_string();
    let ring = Mpi::OpenMpi.program("ring");
    let script = format!(
        "{binary} run -- mpirun.openmpi -n 2 --map-by node {ring} && {binary} run --each --no-prefix -- \
         sh -c 'echo on $ISTHMUS_NODE' && exit 7"
    );
    let words = [&binary, "alloc", "--pilots", "alpha=1,beta=1", "--time", "10m", "--", "sh", "-c", &script];
    let output = world.sh("n1.alpha", SOON, &words)?;
    let text = output.whole();
    ensure!(output.status == 7, "{text}");
    has(
        &text,
        &[" No Errors", "2 ranks on 2 nodes at 2 sites", "of Slurm at alpha: n", "of Slurm at beta: n"],
    )?;
    let on: Vec<&str> = output.stdout.lines().filter_map(|line| line.strip_prefix("on ")).collect();
    ensure!(on.len() == 2 && on.iter().all(|node| node.contains("-root-p")), "{text}");
    logins.nothing_left(promised(GONE))
}

/// A shell ignores SIGTERM while it waits. `isthmus alloc` doesn't keep nodes for it.
#[test]
fn an_allocation_ends_by_a_signal() -> Result<()> {
    let world = GRID.take()?;
    let logins = Logins::start(&world)?;
    let binary = isthmus().display().to_string();
    let words =
        [&binary, "alloc", "--pilots", "alpha=1", "--", "sh", "-c", "trap '' TERM; echo; sleep 600; true"];
    let alloc = isthmus_e2e::Job::start(world.command("n1.alpha", SOON, &words)?)?;
    World::eventually("the command runs", SOON, || Ok(!world.processes("n1.alpha", "sleep")?.is_empty()))?;
    let pid = world.service("n1.alpha", "alloc")?;
    world.kill("n1.alpha", "-TERM", &pid)?;
    let (_, text) = alloc.end()?;
    ensure!(text.contains("giving the nodes back"), "{text}");
    logins.nothing_left(promised(GONE))
}

#[test]
#[ignore = "test-all"]
fn an_allocation_is_cancelled() -> Result<()> {
    let world = GRID.take()?;
    let logins = Logins::start(&world)?;
    let binary = isthmus().display().to_string();
    let words = [&binary, "alloc", "--pilots", "alpha=1", "--", "sleep", "600"];
    let alloc = isthmus_e2e::Job::start(world.command("n1.alpha", SOON, &words)?)?;
    World::eventually("the command runs", SOON, || {
        let shown = isthmus_on(&world, "n1.alpha", &["jobs"])?.stdout;
        Ok(shown.starts_with("allocation ") && shown.contains(": sleep has nodes of alpha, for "))
    })?;
    let cancelled = isthmus_on(&world, "n1.alpha", &["cancel", "--all"])?;
    ensure!(cancelled.stdout.starts_with("allocation "), "{}", cancelled.whole());
    let (status, text) = alloc.end()?;
    ensure!(status == 128 + libc::SIGTERM, "status {status}\n{text}");
    has(&text, &["isthmus: cancelled by `isthmus cancel`\n", "giving the nodes back"])?;
    logins.nothing_left(promised(GONE))
}

/// A process that stands still until this value is dropped.
struct Stopped<'a>(&'a World, &'static str, String);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.kill(self.1, "-CONT", &self.2) {
            eprintln!("process {} at {} doesn't go on: {error:#}", self.2, self.1);
        }
    }
}

#[test]
#[ignore = "test-all"]
fn a_scheduler_that_is_away_is_waited_for() -> Result<()> {
    let world = GRID.take()?;
    let logins = Logins::start(&world)?;
    let daemon = world.processes("n1.beta", "slurmctld")?.pop().context("no slurmctld")?;
    world.kill("n1.beta", "-STOP", &daemon)?;
    let stopped = Stopped(&world, "n1.beta", daemon);
    let run = isthmus_e2e::Job::start(logins.run("alpha=1,beta=1", &["hostname"])?)?;
    clusters::pilot(&world, "alpha", "RUNNING")?;
    drop(stopped);
    let (status, text) = run.end()?;
    ensure!(status == 0 && text.contains("of Slurm at beta: n"), "{text}");
    logins.nothing_left(promised(GONE))
}

#[test]
#[ignore = "test-all"]
fn fifty_pilots_at_once() -> Result<()> {
    let world = GRID.take()?;
    let logins = Logins::start_for(&world, "50")?;
    let runs = (0..50).map(|_| isthmus_e2e::Job::start(logins.run("alpha=1", &["true"])?));
    let runs = runs.collect::<Result<Vec<_>>>()?;
    for run in runs {
        let (status, text) = run.end()?;
        ensure!(status == 0, "{text}");
    }
    logins.nothing_left(promised(GONE))
}

#[test]
#[ignore = "test-all"]
fn dask_runs_over_pilots() -> Result<()> {
    let world = GRID.take()?;
    let logins = Logins::start(&world)?;
    let program = isthmus_e2e::root().join("tests/programs/dask_cluster.py").display().to_string();
    let binary = isthmus().display().to_string();
    let run = [&binary, "run", "--pilots", "alpha=1,beta=1", "--time", "10m", "--each", "--no-prefix", "--"];
    let output = world.sh("n1.alpha", SOON, &[&run[..], &["/usr/bin/python3", &program]].concat())?;
    let right = "40 digests of the other worker's data are right";
    ensure!(output.status == 0 && output.stdout.contains(right), "{}", output.whole());
    logins.nothing_left(promised(GONE))
}
