//! `isthmus jobs` shows what runs, and `isthmus cancel` ends it: in order, with the right words, and
//! only for who has started it.

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Mpi, Output, World, isthmus, promised};
use serde_json::{Value, json};

use crate::life::{GRID, NODES, SECONDS, SOON, running};

const HEAD: &str = NODES[0];
const FAR: &str = NODES[1];
/// The id of a user of the machines who has no part in the grid.
const STRANGER: &str = "65534";

/// Runs an isthmus command in a node.
fn ask(world: &World, node: &str, words: &[&str]) -> Result<Output> {
    let binary = isthmus().display().to_string();
    world.sh(node, SOON, &[&[binary.as_str()], words].concat())
}

/// Checks a command's status and words.
fn expect(output: &Output, status: i32, words: &[&str]) -> Result<()> {
    ensure!(output.status == status, "{}", output.whole());
    for words in words {
        let is_said = output.stdout.contains(words) || output.stderr.contains(words);
        ensure!(is_said, "{words:?} is not in {}", output.whole());
    }
    Ok(())
}

/// The id of the only job, once it is listed.
fn listed(world: &World) -> Result<String> {
    let mut shown = Value::Null;
    World::eventually("the job is listed alone", SOON, || {
        let output = ask(world, FAR, &["jobs", "--json"])?;
        expect(&output, 0, &[])?;
        shown = serde_json::from_str(&output.stdout)?;
        Ok(shown["jobs"].as_array().is_some_and(|jobs| jobs.len() == 1))
    })?;
    let job = &shown["jobs"][0];
    ensure!(job["nodes"] == json!(NODES) && shown["commands"] == json!([]), "{shown:#}");
    Ok(job["id"].as_str().context("no id")?.to_owned())
}

/// Waits until no job is listed.
fn none(world: &World) -> Result<()> {
    World::eventually("no job is listed", SOON, || Ok(ask(world, HEAD, &["jobs"])?.stdout == "no job runs\n"))
}

#[test]
fn a_job_is_listed_and_cancelled() -> Result<()> {
    let world = GRID.take()?;
    none(&world)?;
    let job = world.endless(Mpi::OpenMpi, &NODES.join(","), &[])?;
    running(&world)?;
    let id = listed(&world)?;
    let (short, shorter) = (&id[..8], &id[..6]);
    expect(&ask(&world, HEAD, &["jobs"])?, 0, &[short, "mpirun.openmpi", "alpha 1, beta 1", HEAD])?;
    World::eventually("its sites are joined", SOON, || {
        let shown = ask(&world, HEAD, &["jobs", shorter])?;
        expect(&shown, 0, &[&id, "nodes of alpha: n1.alpha", "nodes of beta: n1.beta"])?;
        Ok(shown.stdout.contains("alpha – beta"))
    })?;

    // No id of a job begins so.
    let wrong = if id.starts_with('0') { "1" } else { "0" };
    for command in ["jobs", "cancel"] {
        expect(&ask(&world, HEAD, &[command, wrong])?, 1, &["has an id that begins with"])?;
    }
    let there = format!("job {short} was started on n1.alpha: `isthmus cancel {short}` there ends it");
    expect(&ask(&world, FAR, &["cancel", shorter])?, 1, &[&there])?;
    expect(&ask(&world, FAR, &["cancel", "--all"])?, 0, &["no job of yours"])?;
    // Nothing below the repository need be open to other users.
    let stranger = format!(
        "chmod 1777 /tmp; mkdir -p /tmp/bin; cp {} /tmp/bin; cd /; setpriv --reuid {STRANGER} --regid {STRANGER} \
         --clear-groups env HOME=/nonexistent /tmp/bin/isthmus cancel",
        isthmus().display()
    );
    let refused = world.sh(HEAD, SOON, &["sh", "-c", &format!("{stranger} {id}")])?;
    expect(&refused, 1, &["no job of yours that was started on this machine"])?;
    let refused = world.sh(HEAD, SOON, &["sh", "-c", &format!("{stranger} --all")])?;
    expect(&refused, 0, &["no job of yours that was started on this machine"])?;
    running(&world)?;

    let cancelled = ask(&world, HEAD, &["cancel", shorter])?;
    expect(&cancelled, 0, &[&format!("job {short} has ended\n")])?;
    let (status, text) = job.end()?;
    ensure!(status == 128 + libc::SIGTERM, "status {status}\n{text}");
    for words in ["isthmus: cancelled by `isthmus cancel`\n", "\n  cause: cancelled by `isthmus cancel`\n"] {
        ensure!(text.contains(words), "{words:?} is not in\n{text}");
    }
    world.expect_clean()?;
    none(&world)
}

/// The agents end what a killed `isthmus run` has left, and nobody takes its note for a command that
/// runs.
#[test]
#[ignore = "test-all"]
fn a_job_is_killed() -> Result<()> {
    let world = GRID.take_alone()?;
    let job = world.endless(Mpi::OpenMpi, &NODES.join(","), &["--outlive", "0"])?;
    running(&world)?;
    let id = listed(&world)?;
    expect(&ask(&world, HEAD, &["cancel", "--now", &id])?, 0, &[&format!("job {} killed", &id[..8])])?;
    world.expect_clean_within(promised(SECONDS))?;
    let (status, text) = job.end()?;
    ensure!(status != 0, "{text}");
    none(&world)
}
