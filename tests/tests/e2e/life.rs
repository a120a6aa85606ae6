//! How jobs end: whatever breaks, within 10 s nothing of the job is left on any
//! node that can be reached, the message names what ended it and where, and the
//! next job works.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Job, Mpi, Shared, World, promised};

pub(crate) static GRID: Shared = Shared::new("two-relays");

/// Time within which a job must be gone, as docs/design.md promises.
pub(crate) const SECONDS: Duration = Duration::from_secs(10);
/// Deadline that guards against hanging only: the start of a job has taken half a minute on a busy
/// machine.
pub(crate) const SOON: Duration = Duration::from_secs(90);
pub(crate) const NODES: [&str; 2] = ["n1.alpha", "n1.beta"];

/// Waits until two ranks run on each node.
pub(crate) fn running(world: &World) -> Result<()> {
    World::eventually("all ranks run", SOON, || {
        let counts = NODES.map(|node| world.processes(node, "/die").map(|found| found.len()));
        let [here, there] = counts;
        Ok(here? == 2 && there? == 2)
    })
}

/// Starts a job that lasts, and that silence of a node ends at once.
fn endless(world: &World, mpi: Mpi) -> Result<Job> {
    let job = world.endless(mpi, &NODES.join(","), &["--outlive", "0"])?;
    running(world)?;
    Ok(job)
}

pub(crate) fn daemon(mpi: Mpi) -> &'static str {
    match mpi {
        Mpi::OpenMpi => "orted",
        Mpi::OpenMpi5 => "prted",
        Mpi::Mpich | Mpi::Mpich4 | Mpi::MpiAbi => "hydra_pmi_proxy",
    }
}

/// What is broken while a job runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Rank,
    Daemon,
    Agent,
    Run,
    Signal(&'static str),
    Frozen,
    Cut,
}

/// Breaks a running job by a fault, and measures how long anything of it is left.
fn cell(world: &World, mpi: Mpi, fault: Fault) -> Result<()> {
    let job = endless(world, mpi)?;
    let broken = Instant::now();
    let far = "n1.beta";
    let expected = match fault {
        Fault::Rank => {
            let rank = world.processes(far, "/die")?.pop().context("no rank")?;
            world.kill(far, "-KILL", &rank)?;
            format!(" on {far} was ended by SIGKILL")
        }
        Fault::Daemon => {
            let daemon = daemon(mpi);
            // The daemon of Open MPI 5 is a pair of processes, parent and child.
            let pids = world.processes(far, daemon)?;
            ensure!(!pids.is_empty(), "no {daemon}");
            let mut words = vec!["kill", "-KILL"];
            words.extend(pids.iter().map(String::as_str));
            world.sh(far, SOON, &words)?;
            format!("{daemon} on {far} was ended by SIGKILL")
        }
        Fault::Agent => {
            world.kill(far, "-KILL", &world.service(far, "agent")?)?;
            format!("lost node {far}")
        }
        Fault::Run => {
            world.kill("n1.alpha", "-KILL", &world.service("n1.alpha", "run")?)?;
            String::new()
        }
        Fault::Signal(signal) => {
            world.kill("n1.alpha", &format!("-{signal}"), &world.service("n1.alpha", "run")?)?;
            format!("cause: SIG{signal} to `isthmus run`")
        }
        Fault::Frozen => {
            world.signal_all(far, "-STOP")?;
            format!("lost node {far}: no sign of life for ")
        }
        Fault::Cut => {
            world.cut(far)?;
            format!("lost node {far}: no sign of life for ")
        }
    };
    // A node that is cut off is reached by the test, though not by the grid.
    let reachable = if fault == Fault::Frozen { &NODES[..1] } else { &NODES[..] };
    let took = world.gone(reachable, broken, promised(SECONDS));
    if fault == Fault::Frozen {
        world.signal_all(far, "-CONT")?;
        world.gone(&NODES, Instant::now(), promised(SECONDS)).context("after it thawed")?;
    }
    let (status, printed) = job.end()?;
    let took = took.with_context(|| format!("{mpi:?}, {fault:?}\n{printed}"))?;
    eprintln!("{mpi:?}, {fault:?}: gone after {:.1} s", took.as_secs_f64());
    ensure!(status != 0 && status != 124, "{mpi:?}, {fault:?}: status {status}\n{printed}");
    let of_shells = match fault {
        Fault::Signal("HUP") => 129,
        Fault::Signal("INT") => 130,
        Fault::Signal("TERM") => 143,
        _ => status,
    };
    ensure!(status == of_shells, "{mpi:?}, {fault:?}: status {status}\n{printed}");
    ensure!(printed.contains(&expected), "{mpi:?}, {fault:?}: no {expected:?} in\n{printed}");
    // The directory of a dead agent's job stays, with no agent to remove it.
    if MENDED.contains(&fault) { world.expect_clean_within(promised(SECONDS)) } else { Ok(()) }
}

/// Checks that a job after a fault works.
fn expect_working(world: &World) -> Result<()> {
    let hello = Mpi::OpenMpi.program("hello");
    let output =
        world.run("n1.alpha", &["--nodes", "n1.alpha,n1.beta"], &["mpirun.openmpi", "-n", "4", &hello])?;
    ensure!(output.status == 0 && output.stdout.contains(" No Errors"), "{}", output.whole());
    world.expect_clean()
}

/// The faults that leave the grid as it was.
const MENDED: [Fault; 7] = [
    Fault::Rank,
    Fault::Daemon,
    Fault::Run,
    Fault::Signal("INT"),
    Fault::Signal("TERM"),
    Fault::Signal("HUP"),
    Fault::Frozen,
];

#[test]
#[ignore = "test-all"]
fn openmpi_ends_whatever_breaks() -> Result<()> {
    let world = GRID.take_alone()?;
    MENDED
        .iter()
        .try_for_each(|fault| cell(&world, Mpi::OpenMpi, *fault).and_then(|()| expect_working(&world)))
}

/// Hydra may go on once all ranks have aborted at the same time.
#[test]
#[ignore = "test-all"]
fn a_job_ends_whose_ranks_abort_all_at_once() -> Result<()> {
    let world = GRID.take_alone()?;
    for mpi in [Mpi::Mpich, Mpi::Mpich4, Mpi::OpenMpi, Mpi::OpenMpi5] {
        for _ in 0..5 {
            let since = Instant::now();
            let job = world.begin(mpi, &NODES.join(","), &[], "die", &["all"])?;
            let (status, printed) = job.end()?;
            let took = since.elapsed();
            eprintln!("{mpi:?}: ended after {:.1} s", took.as_secs_f64());
            ensure!(status != 0 && status != 124, "{mpi:?}: status {status}\n{printed}");
            ensure!(took <= promised(SECONDS), "{mpi:?}: {took:?}\n{printed}");
        }
    }
    world.expect_clean_within(promised(SECONDS))
}

#[test]
fn a_killed_rank_ends_an_mpich_job() -> Result<()> {
    let world = GRID.take_alone()?;
    cell(&world, Mpi::Mpich, Fault::Rank)?;
    expect_working(&world)
}

/// The faults whose outcome depends on the launcher.
#[test]
#[ignore = "test-all"]
fn openmpi5_and_mpich_end_when_a_daemon_dies_or_a_node_freezes() -> Result<()> {
    let world = GRID.take_alone()?;
    for mpi in [Mpi::OpenMpi5, Mpi::Mpich] {
        [Fault::Daemon, Fault::Frozen].iter().try_for_each(|fault| cell(&world, mpi, *fault))?;
    }
    Ok(())
}

#[test]
#[ignore = "test-all"]
fn openmpi5_and_mpich_end_whatever_breaks() -> Result<()> {
    let world = GRID.take_alone()?;
    for mpi in [Mpi::OpenMpi5, Mpi::Mpich] {
        MENDED.iter().try_for_each(|fault| cell(&world, mpi, *fault))?;
    }
    drop(world);
    for mpi in [Mpi::OpenMpi5, Mpi::Mpich] {
        for fault in [Fault::Agent, Fault::Cut] {
            cell(&World::up_alone("two-relays")?, mpi, fault)?;
        }
    }
    Ok(())
}

#[test]
#[ignore = "test-all"]
fn a_cut_network_ends_a_job_on_both_sides_of_the_cut() -> Result<()> {
    cell(&World::up_alone("two-relays")?, Mpi::OpenMpi, Fault::Cut)
}

#[test]
fn a_dead_agent_ends_a_job_and_the_other_nodes_work_on() -> Result<()> {
    let world = World::up_alone("two-relays")?;
    cell(&world, Mpi::OpenMpi, Fault::Agent)?;
    let hello = Mpi::OpenMpi.program("hello");
    let words = ["mpirun.openmpi", "-n", "4", &hello];
    let output = world.run("n1.alpha", &["--nodes", "n1.alpha,n2.beta"], &words)?;
    ensure!(output.status == 0, "{}", output.whole());
    let output = world.run("n1.alpha", &["--try-for", "0", "--nodes", "n1.alpha,n1.beta"], &words)?;
    ensure!(output.status == 125 && output.stderr.contains("n1.beta cannot take part"), "{}", output.whole());
    Ok(())
}

/// A service manager stops an agent: first that of another node than `isthmus run`, and then that
/// of the head.
#[test]
fn a_stopped_agent_ends_its_jobs_in_order() -> Result<()> {
    let world = World::up_alone("two-relays")?;
    for (mpi, nodes, stopped, signal) in [
        (Mpi::OpenMpi, ["n1.alpha", "n1.beta"], "n1.beta", "-TERM"),
        (Mpi::Mpich, ["n1.alpha", "n2.beta"], "n1.alpha", "-INT"),
    ] {
        let job = world.endless(mpi, &nodes.join(","), &[])?;
        World::eventually("all ranks run", SOON, || {
            let counts = nodes.map(|node| world.processes(node, "/die").map(|found| found.len()));
            let [here, there] = counts;
            Ok(here? == 2 && there? == 2)
        })?;
        let asked = Instant::now();
        world.kill(stopped, signal, &world.service(stopped, "agent")?)?;
        let ended = || Ok(world.service(stopped, "agent").is_err());
        World::eventually("the agent has ended", promised(SECONDS), ended)?;
        // The job's directory is gone as soon as the agent is, too. Only the agent removes it.
        let left = world.sh(stopped, SOON, &["sh", "-c", "ls -d /run/isthmus/*/ 2>/dev/null"])?.stdout;
        let took = world.gone(&nodes, asked, promised(SECONDS));
        let (status, printed) = job.end()?;
        took.with_context(|| format!("{stopped}\n{printed}"))?;
        ensure!(left.is_empty(), "{stopped}: left behind: {left}\n{printed}");
        ensure!(status != 0 && status != 124, "{stopped}: status {status}\n{printed}");
        let reason = format!("lost node {stopped}: its agent was stopped");
        ensure!(printed.contains(&reason), "no {reason:?} in\n{printed}");
        // Nothing twice, and no broken connection in its place.
        ensure!(printed.matches("lost node").count() <= 2, "{printed}");
        ensure!(!printed.contains("the connection broke"), "{printed}");
        world.expect_clean_within(promised(SECONDS))?;
    }
    Ok(())
}

#[test]
fn a_dead_relay_is_replaced_by_another_and_its_loss_is_reported() -> Result<()> {
    let world = World::up("two-relays")?;
    let first = world.service("hub", "relay")?;
    world.kill("hub", "-KILL", &first)?;
    expect_working(&world)?;
    let second = world.service("spare", "relay")?;
    world.kill("spare", "-KILL", &second)?;
    let hello = Mpi::OpenMpi.program("hello");
    let words = ["mpirun.openmpi", "-n", "4", &hello];
    let output = world.run("n1.alpha", &["--try-for", "0", "--nodes", "n1.alpha,n1.beta"], &words)?;
    // The run has ended by itself: a run that hangs is ended with another status.
    ensure!(output.status == 125, "{}", output.whole());
    ensure!(output.stderr.contains("relay"), "{}", output.whole());
    world.expect_clean()
}

#[test]
fn a_relay_that_dies_during_a_job_ends_it() -> Result<()> {
    let world = World::up("two-relays")?;
    let job = endless(&world, Mpi::OpenMpi)?;
    for host in ["hub", "spare"] {
        let relay = world.service(host, "relay")?;
        world.kill(host, "-KILL", &relay)?;
    }
    let (status, printed) = job.end()?;
    ensure!(status != 0 && status != 124, "{status}\n{printed}");
    World::eventually("no process is left", SOON, || {
        Ok(world.leftovers("n1.beta")?.is_empty() && world.leftovers("n1.alpha")?.is_empty())
    })
}
