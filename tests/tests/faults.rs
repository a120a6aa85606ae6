//! Whatever breaks, a job ends on every node within seconds, says why, and the
//! next one works.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Job, Mpi, Shared, World};

static GRID: Shared = Shared::new("two-relays");

/// Within which a job must be gone everywhere.
const SECONDS: Duration = Duration::from_secs(10);

/// Starts a job that would last for ever and waits until its ranks run.
fn endless(world: &World, mpi: Mpi) -> Result<Job> {
    let job = world.endless(mpi, "n1.alpha,n1.beta")?;
    World::eventually("all ranks run", Duration::from_secs(30), || {
        Ok(ranks(world, "n1.alpha")? == 2 && ranks(world, "n1.beta")? == 2)
    })?;
    Ok(job)
}

fn ranks(world: &World, node: &str) -> Result<usize> {
    Ok(processes(world, node, "/die")?.len())
}

/// Ids, as the node sees them, of processes that run a program.
fn processes(world: &World, node: &str, program: &str) -> Result<Vec<String>> {
    let listing = world.sh(node, Duration::from_secs(10), &["ps", "-eo", "pid=,args="])?;
    let found = listing.stdout.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let pid = words.next()?;
        words.next()?.ends_with(program).then(|| pid.to_owned())
    });
    Ok(found.collect())
}

/// The id of a node's service.
fn service(world: &World, node: &str, role: &str) -> Result<String> {
    let listing = world.sh(node, Duration::from_secs(10), &["ps", "-eo", "pid=,args="])?;
    let word = format!("isthmus {role}");
    let line = listing.stdout.lines().find(|line| line.contains(&word)).with_context(|| listing.whole())?;
    Ok(line.split_whitespace().next().unwrap_or_default().to_owned())
}

fn kill(world: &World, node: &str, signal: &str, pid: &str) -> Result<()> {
    let killed = world.sh(node, Duration::from_secs(10), &["kill", signal, pid])?;
    ensure!(killed.status == 0, "{}", killed.whole());
    Ok(())
}

/// A job after a fault works.
fn expect_working(world: &World) -> Result<()> {
    let hello = Mpi::OpenMpi.program("hello");
    let output =
        world.run("n1.alpha", &["--nodes", "n1.alpha,n1.beta"], &["mpirun.openmpi", "-n", "4", &hello])?;
    ensure!(output.status == 0 && output.stdout.contains(" No Errors"), "{}", output.whole());
    world.expect_clean(SECONDS)
}

fn a_killed_rank(mpi: Mpi) -> Result<()> {
    let world = GRID.take()?;
    let job = endless(&world, mpi)?;
    let rank = processes(&world, "n1.beta", "/die")?.pop().context("no rank")?;
    let killed = Instant::now();
    kill(&world, "n1.beta", "-KILL", &rank)?;
    let (status, said) = job.end()?;
    ensure!(status != 0, "{said}");
    ensure!(killed.elapsed() < SECONDS, "it took {:?}", killed.elapsed());
    world.expect_clean(SECONDS)?;
    expect_working(&world)
}

#[test]
fn a_killed_rank_ends_an_openmpi_job() -> Result<()> {
    a_killed_rank(Mpi::OpenMpi)
}

#[test]
fn a_killed_rank_ends_an_mpich_job() -> Result<()> {
    a_killed_rank(Mpi::Mpich)
}

#[test]
fn ctrl_c_ends_a_job() -> Result<()> {
    for signal in ["-INT", "-TERM", "-HUP"] {
        let world = GRID.take()?;
        let job = endless(&world, Mpi::OpenMpi)?;
        let run = service(&world, "n1.alpha", "run")?;
        kill(&world, "n1.alpha", signal, &run)?;
        let (status, said) = job.end()?;
        ensure!(status != 0 && status != 124, "{signal}: {status}\n{said}");
        world.expect_clean(SECONDS)?;
    }
    expect_working(&*GRID.take()?)
}

#[test]
fn a_killed_isthmus_run_leaves_nothing() -> Result<()> {
    let world = GRID.take()?;
    let job = endless(&world, Mpi::OpenMpi)?;
    // The `timeout` that the test put before it has the same words.
    let listing = world.sh("n1.alpha", Duration::from_secs(10), &["ps", "-eo", "pid=,args="])?;
    let run = listing
        .stdout
        .lines()
        .find(|line| line.contains("isthmus run") && !line.contains("timeout"))
        .and_then(|line| line.split_whitespace().next())
        .context("no `isthmus run`")?;
    kill(&world, "n1.alpha", "-KILL", run)?;
    job.end()?;
    world.expect_clean(SECONDS)?;
    expect_working(&world)
}

#[test]
fn a_missing_program_on_one_node_starts_nothing() -> Result<()> {
    for mpi in [Mpi::OpenMpi, Mpi::Mpich] {
        let world = GRID.take()?;
        let hello = mpi.program("hello");
        // /tmp is each node's own.
        let copied = world.sh("n1.alpha", SECONDS, &["cp", &hello, "/tmp/only-here"])?;
        ensure!(copied.status == 0, "{}", copied.whole());
        let launcher = mpi.launcher();
        let words = [launcher.as_str(), "-n", "4", "/tmp/only-here"];
        let output = world.run("n1.alpha", &["--nodes", "n1.alpha,n1.beta"], &words)?;
        ensure!(output.status != 0 && output.status != 124, "{}", output.whole());
        ensure!(!output.stdout.contains("No Errors"), "{}", output.whole());
        ensure!((output.stdout.clone() + &output.stderr).contains("only-here"), "{}", output.whole());
        world.expect_clean(SECONDS)?;
    }
    expect_working(&*GRID.take()?)
}

#[test]
fn a_missing_launcher_is_said_before_anything_starts() -> Result<()> {
    let world = GRID.take()?;
    let output = world.run("n1.alpha", &[], &["mpirun.nowhere", "-n", "2", "true"])?;
    ensure!(output.status == 125, "{}", output.whole());
    ensure!(output.stderr.contains("mpirun.nowhere: command not found"), "{}", output.whole());
    let output = world.run("n1.alpha", &["--nodes", "n1.alpha"], &["/no/such/program"])?;
    ensure!(output.status == 127, "{}", output.whole());
    world.expect_clean(SECONDS)
}

#[test]
fn an_unknown_node_is_said_before_anything_starts() -> Result<()> {
    let world = GRID.take()?;
    let output = world.run("n1.alpha", &["--nodes", "n9.beta"], &["true"])?;
    ensure!(output.status == 125, "{}", output.whole());
    ensure!(output.stderr.contains("\"n9.beta\" is neither a node nor a site"), "{}", output.whole());
    Ok(())
}

/// In grids of their own: what they break stays broken.
mod breaking {
    use super::*;

    #[test]
    fn a_dead_agent_ends_the_job() -> Result<()> {
        let world = World::up("two-relays")?;
        let job = endless(&world, Mpi::OpenMpi)?;
        let agent = service(&world, "n1.beta", "agent")?;
        let killed = Instant::now();
        kill(&world, "n1.beta", "-KILL", &agent)?;
        let (status, said) = job.end()?;
        ensure!(status != 0 && said.contains("n1.beta"), "{status}\n{said}");
        ensure!(killed.elapsed() < Duration::from_secs(20), "it took {:?}", killed.elapsed());
        // The job's directory stays with nobody to remove it; no process may.
        World::eventually("no process is left at n1.beta", SECONDS, || {
            Ok(world.leftovers("n1.beta")?.is_empty() && world.leftovers("n1.alpha")?.is_empty())
        })?;
        // Without the node the others work on.
        let hello = Mpi::OpenMpi.program("hello");
        let words = ["mpirun.openmpi", "-n", "4", &hello];
        let output = world.run("n1.alpha", &["--nodes", "n1.alpha,n2.beta"], &words)?;
        ensure!(output.status == 0, "{}", output.whole());
        let output = world.run("n1.alpha", &["--nodes", "n1.alpha,n1.beta"], &words)?;
        ensure!(
            output.status == 125 && output.stderr.contains("n1.beta cannot take part"),
            "{}",
            output.whole()
        );
        Ok(())
    }

    #[test]
    fn a_dead_relay_is_replaced_by_another_and_its_loss_is_said() -> Result<()> {
        let world = World::up("two-relays")?;
        let first = service(&world, "hub", "relay")?;
        kill(&world, "hub", "-KILL", &first)?;
        expect_working(&world)?;
        let second = service(&world, "spare", "relay")?;
        kill(&world, "spare", "-KILL", &second)?;
        let hello = Mpi::OpenMpi.program("hello");
        let words = ["mpirun.openmpi", "-n", "4", &hello];
        let output = world.run("n1.alpha", &["--nodes", "n1.alpha,n1.beta"], &words)?;
        ensure!(output.status == 125 && output.took < Duration::from_secs(60), "{}", output.whole());
        ensure!(output.stderr.contains("relay"), "{}", output.whole());
        world.expect_clean(SECONDS)
    }

    #[test]
    fn a_relay_that_dies_during_a_job_ends_it() -> Result<()> {
        let world = World::up("two-relays")?;
        let job = endless(&world, Mpi::OpenMpi)?;
        for host in ["hub", "spare"] {
            let relay = service(&world, host, "relay")?;
            kill(&world, host, "-KILL", &relay)?;
        }
        let (status, said) = job.end()?;
        ensure!(status != 0 && status != 124, "{status}\n{said}");
        World::eventually("no process is left", Duration::from_secs(30), || {
            Ok(world.leftovers("n1.beta")?.is_empty() && world.leftovers("n1.alpha")?.is_empty())
        })
    }
}
