//! What is left on a node of a job whose processes or supervisors are killed: nothing.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Job, Mpi, World};

use crate::life::{GRID, NODES, SECONDS, SOON, daemon, running};

/// Files and directories where MPIs put theirs.
fn files(world: &World, node: &str) -> Result<String> {
    let found = world.sh(node, SOON, &["sh", "-c", "find /tmp /dev/shm -mindepth 1 | sort"])?;
    ensure!(found.status == 0, "{}", found.whole());
    Ok(found.stdout)
}

/// How often agents have said that they found ranks.
fn looks(world: &World) -> Result<usize> {
    Ok(world.logs()?.matches("ranks run here").count())
}

/// An endless job whose ranks the agents of both nodes have seen.
pub(crate) fn seen(world: &World, mpi: Mpi) -> Result<Job> {
    let before = looks(world)?;
    let job = world.endless(mpi, &NODES.join(","), &["--outlive", "0"])?;
    running(world)?;
    World::eventually("both agents have seen the ranks", SOON, || Ok(looks(world)? >= before + 2))?;
    Ok(job)
}

/// The launcher, or its daemon, and all ranks of one node are killed at once, so none of
/// them removes anything.
fn killed(world: &World, mpi: Mpi, node: &str) -> Result<()> {
    let before = NODES.map(|node| files(world, node));
    let job = seen(world, mpi)?;
    let launcher = match mpi {
        // That of Open MPI 5 runs another program in its place.
        Mpi::OpenMpi5 => "prterun".to_owned(),
        _ => mpi.launcher(),
    };
    let starter = if node == NODES[0] { launcher.as_str() } else { daemon(mpi) };
    let mut pids = world.processes(node, starter)?;
    ensure!(!pids.is_empty(), "{mpi:?}: no {starter} on {node}");
    pids.extend(world.processes(node, "/die")?);
    let made = files(world, node)?;
    let words: Vec<&str> = ["kill", "-KILL"].into_iter().chain(pids.iter().map(String::as_str)).collect();
    let ended = Instant::now();
    // One may have ended by the end of another.
    world.sh(node, SOON, &words)?;
    let took = world.gone(&NODES, ended, SECONDS);
    let (status, printed) = job.end()?;
    took.with_context(|| format!("{mpi:?}, {node}\n{printed}"))?;
    ensure!(status != 0 && status != 124, "{mpi:?}, {node}: status {status}\n{printed}");
    world.expect_clean_within(SECONDS)?;
    for (node, before) in NODES.iter().zip(before) {
        let (before, now) = (before?, files(world, node)?);
        ensure!(now == before, "{mpi:?}: {node} had {before:?}, and has {now:?} left; of {made:?}");
    }
    // Otherwise there was nothing to remove.
    ensure!(made.contains("/dev/shm/"), "{mpi:?}, {node}: the MPI made no file: {made:?}");
    Ok(())
}

#[test]
fn of_a_killed_open_mpi_4() -> Result<()> {
    let world = GRID.take()?;
    NODES.iter().rev().try_for_each(|node| killed(&world, Mpi::OpenMpi, node))
}

#[test]
fn of_a_killed_open_mpi_5() -> Result<()> {
    let world = GRID.take()?;
    NODES.iter().rev().try_for_each(|node| killed(&world, Mpi::OpenMpi5, node))
}

#[test]
fn of_a_killed_mpich() -> Result<()> {
    let world = GRID.take()?;
    NODES.iter().rev().try_for_each(|node| killed(&world, Mpi::Mpich, node))
}

/// A supervisor is a process like any other: what it has left is ended all the same.
#[test]
fn of_a_killed_supervisor() -> Result<()> {
    let world = GRID.take()?;
    for (mpi, node) in [(Mpi::OpenMpi, NODES[1]), (Mpi::Mpich, NODES[1]), (Mpi::OpenMpi, NODES[0])] {
        let job = seen(&world, mpi)?;
        let ended = Instant::now();
        world.kill(node, "-KILL", &world.service(node, "supervise")?)?;
        let took = world.gone(&NODES, ended, SECONDS + Duration::from_secs(2));
        let (status, printed) = job.end()?;
        took.with_context(|| format!("{mpi:?}, {node}\n{printed}"))?;
        ensure!(status != 0 && status != 124, "{mpi:?}, {node}: status {status}\n{printed}");
        world.expect_clean_within(SECONDS)?;
    }
    Ok(())
}

/// Processes that ignore SIGTERM are killed, and each is counted once.
#[test]
fn of_processes_that_ignore_their_end() -> Result<()> {
    let world = GRID.take()?;
    let script = "trap '' TERM; for i in 1 2 3 4 5; do setsid sleep 600 & done";
    let output = world.run(NODES[0], &["--nodes", &NODES.join(","), "--each"], &["sh", "-c", script])?;
    ensure!(output.status == 0, "{}", output.whole());
    ensure!(output.stderr.contains("  10 processes had to be killed at the end\n"), "{}", output.whole());
    world.expect_clean_within(SECONDS)
}

/// A stopped supervisor ends with its job.
#[test]
fn of_a_stopped_supervisor() -> Result<()> {
    let world = GRID.take()?;
    let job = world.endless(Mpi::OpenMpi, &NODES.join(","), &[])?;
    running(&world)?;
    world.kill(NODES[1], "-STOP", &world.service(NODES[1], "supervise")?)?;
    world.kill(NODES[0], "-TERM", &world.service(NODES[0], "run")?)?;
    let ended = Instant::now();
    let (status, printed) = job.end()?;
    ensure!(status != 0 && status != 124, "{status}\n{printed}");
    world.expect_clean_within(SECONDS)?;
    ensure!(ended.elapsed() < SECONDS, "{:?}\n{printed}", ended.elapsed());
    Ok(())
}

/// What a killed agent had noted is removed by the next one.
#[test]
fn of_a_killed_agent() -> Result<()> {
    let world = World::up("two-relays")?;
    let before = files(&world, NODES[0])?;
    let job = seen(&world, Mpi::OpenMpi)?;
    let ranks = world.processes(NODES[0], "/die")?;
    world.kill(NODES[0], "-KILL", &world.service(NODES[0], "agent")?)?;
    for rank in ranks {
        // A launcher that loses its ranks removes nothing of theirs.
        let _ = world.kill(NODES[0], "-KILL", &rank);
    }
    let (status, printed) = job.end()?;
    ensure!(status != 0 && status != 124, "{status}\n{printed}");
    let _agent = world.serve(NODES[0], "agent", &[], &World::config("agent"))?;
    World::eventually("nothing is left", SOON, || Ok(files(&world, NODES[0])? == before))
}
