//! Nodes of batch schedulers that join a job, leave it and join again, under programs other than MPI's.

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Printing, promised, root};

use super::logins::Logins;
use crate::clusters::{self, GONE, GRID, sh};

/// Debian's own Python, which Debian's packages are for.
const PYTHON: &str = "/usr/bin/python3";

/// The only node of beta that a run has been given, as it has said.
fn node(run: &Printing) -> Result<String> {
    let printed = run.printed();
    let (_, rest) = printed.split_once("of Slurm at beta: ").context("no node")?;
    Ok(rest.split_whitespace().next().context("no name")?.to_owned())
}

/// A second site's node joins a program's job, its batch job is cancelled, and another node joins. `comes` is
/// what the program's head says of each node that has come, without the node's name.
fn a_site_leaves_and_comes_back(program: &str, comes: &str) -> Result<()> {
    let world = GRID.take()?;
    let logins = Logins::start(&world)?;
    let directory = tempfile::tempdir_in(world.directory.path())?;
    let shown = directory.path().display().to_string();
    let program = root().join("tests/programs").join(program).display().to_string();
    let head = logins.printing_with("alpha=1", &["--each"], &[PYTHON, &program, "head", &shown])?;
    head.prints("serving")?;
    let job = world.only_job("n1.alpha")?;
    let join = ["--each", "--join", &job];
    let member = || logins.printing_with("beta=1", &join, &[PYTHON, &program, "member"]);

    let first = member()?;
    head.prints_times(comes, 1).with_context(|| first.printed())?;
    let pilot = clusters::pilot(&world, "beta", "RUNNING")?.id;
    let left = format!("{} has left", node(&first)?);
    sh(&world, "n1.beta", &["scancel", &pilot])?;
    head.prints(&left)?;
    let (status, text) = first.ended()?;
    let want = format!("batch job {pilot} of Slurm at beta: it was cancelled");
    ensure!(status != 0 && text.contains(&want), "status {status}, {want:?} is not in\n{text}");

    let second = member()?;
    head.prints_times(comes, 2).with_context(|| second.printed())?;
    let came = node(&second)?;
    std::fs::write(directory.path().join("end"), "")?;
    let (status, text) = head.ended()?;
    ensure!(status == 0 && text.contains(&came), "status {status}, {came} is not in\n{text}");
    let (status, text) = second.ended()?;
    ensure!(status == 0, "status {status}\n{text}");
    logins.nothing_left(promised(GONE))
}

#[test]
fn a_service_loses_a_pilot_and_gets_another() -> Result<()> {
    a_site_leaves_and_comes_back("joins.py", "connected back to ")
}

#[test]
#[ignore = "test-all"]
fn dask_loses_a_pilot_and_gets_another() -> Result<()> {
    a_site_leaves_and_comes_back("dask_members.py", " has come")
}
