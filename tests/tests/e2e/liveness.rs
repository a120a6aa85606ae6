//! Silence within a site: as long as is stated it ends nothing, whoever falls silent is
//! noticed soon after, and who is cut off says so of itself.

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use isthmus_e2e::{Job, Mpi, World, promised};

use crate::life::{self, SECONDS, SOON};

/// The nodes of a site.
const NODES: [&str; 3] = ["n1.alpha", "n2.alpha", "n3.alpha"];
/// Longest cut that ends nothing, unless `--patience` says otherwise.
const TOLERATED: Duration = Duration::from_secs(5);
/// How long a job is watched after a cut: longer than any silence that it would wait for by
/// default.
const WATCHED: Duration = Duration::from_secs(9);
/// Time within which `isthmus run` notices that its agent is frozen, and has ended.
const NOTICED: Duration = Duration::from_secs(12);
/// Time within which other sites notice a frozen agent, by way of the gateway and the broker.
/// Agents that were late before extend their tolerance by up to 25 s.
const LATE: Duration = Duration::from_secs(40);

/// Whether both ranks run on each of the nodes.
fn run(world: &World, nodes: &[&str]) -> Result<bool> {
    let mut all = nodes.iter().map(|node| world.processes(node, "/die").map(|found| found.len() == 2));
    all.try_fold(true, |all, both| Ok(all && both?))
}

fn endless(world: &World, mpi: Mpi, nodes: &[&str], options: &[&str]) -> Result<Job> {
    let job = world.endless(mpi, &nodes.join(","), options)?;
    World::eventually("all ranks run", SOON, || run(world, nodes))?;
    Ok(job)
}

/// Checks that a job outlives a cut of one of its two nodes. A cut longer than `tolerated` tells
/// nothing and is repeated.
fn outlives(mpi: Mpi, cut: Duration, tolerated: Duration, options: &[&str]) -> Result<()> {
    const TRIES: usize = 3;
    let world = World::up_alone("liveness")?;
    for _ in 0..TRIES {
        let Some(longer) = outlives_once(&world, mpi, cut, tolerated, options)? else { return Ok(()) };
        // Not by a macro, whose output of a passed test is not shown.
        let _ = writeln!(
            std::io::stderr(),
            "the machine made a cut of {cut:.1?} one of {longer:.1?}, beyond {tolerated:?}: it tells nothing"
        );
    }
    bail!("the machine made a cut of {cut:?} too long {TRIES} times")
}

/// Checks once that a job outlives a cut. Returns the length of the cut if it was too long to tell
/// anything.
fn outlives_once(
    world: &World,
    mpi: Mpi,
    cut: Duration,
    tolerated: Duration,
    options: &[&str],
) -> Result<Option<Duration>> {
    let nodes = &NODES[..2];
    let job = endless(world, mpi, nodes, options)?;
    let length = world.cut_for(nodes[1], cut)?;
    if length > tolerated {
        drop(job);
        world.expect_clean()?;
        return Ok(Some(length));
    }
    let healed = Instant::now();
    while healed.elapsed() < WATCHED {
        if !run(world, nodes)? {
            let (status, printed) = job.end()?;
            bail!(
                "{mpi:?}: ended {:.1} s after a cut of {length:?}: status {status}\n{printed}\n{}",
                healed.elapsed().as_secs_f64(),
                world.logs()?
            );
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    world.kill(nodes[0], "-TERM", &world.service(nodes[0], "run")?)?;
    let (_, printed) = job.end()?;
    ensure!(!printed.contains("lost node") && !printed.contains("cut off"), "{mpi:?}\n{printed}");
    world.expect_clean_within(promised(SECONDS))?;
    Ok(None)
}

/// What is lost at the beginning of the cut is sent again by TCP 6.2 s later.
#[test]
fn a_cut_of_four_seconds_ends_no_openmpi_job() -> Result<()> {
    outlives(Mpi::OpenMpi, Duration::from_secs(4), TOLERATED, &[])
}

#[test]
#[ignore = "test-all"]
fn a_cut_of_four_seconds_ends_no_mpich_job() -> Result<()> {
    outlives(Mpi::Mpich, Duration::from_secs(4), TOLERATED, &[])
}

#[test]
#[ignore = "test-all"]
fn with_patience_a_job_outlives_a_longer_cut() -> Result<()> {
    let patience = Duration::from_secs(20);
    outlives(Mpi::OpenMpi, Duration::from_secs(14), patience, &["--patience", "20s"])
}

#[test]
fn patience_has_bounds() -> Result<()> {
    let world = World::up("liveness")?;
    for time in ["4s", "2m", "5500ms"] {
        let output = world.run("n1.alpha", &["--patience", time], &["true"])?;
        ensure!(output.status != 0 && output.stderr.contains("--patience"), "{}", output.whole());
    }
    let output = world.run("n1.alpha", &["--patience", "1m"], &["true"])?;
    ensure!(output.status == 0, "{}", output.whole());
    Ok(())
}

/// Freezes only the agent of the node of `isthmus run`, and checks that the job ends. The other
/// nodes' parts must end by the deadline. Returns the services' logs of that moment.
fn frozen_agent(world: &World, mpi: Mpi, nodes: &[&str], deadline: Duration) -> Result<String> {
    let job = endless(world, mpi, nodes, &[])?;
    let agent = world.service(nodes[0], "agent")?;
    let frozen = Instant::now();
    world.kill(nodes[0], "-STOP", &agent)?;
    let (status, printed) = job.end()?;
    let took = frozen.elapsed();
    let others = world.gone(&nodes[1..], frozen, deadline);
    let logs = world.logs()?;
    world.kill(nodes[0], "-CONT", &agent)?;
    let others = others.with_context(|| format!("at the other node\n{logs}"))?;
    eprintln!("{mpi:?}: ended {took:.1?} after its agent had frozen, elsewhere {others:.1?}");
    ensure!(status != 0 && status != 124, "{mpi:?}: status {status}\n{printed}");
    ensure!(took < promised(NOTICED), "{mpi:?}: {took:?}\n{printed}");
    let text = "this node's agent gives no sign of life for ";
    ensure!(printed.contains(text), "{mpi:?}: no {text:?} in\n{printed}");
    world.expect_clean_within(promised(SECONDS)).context("after it thawed")?;
    Ok(logs)
}

#[test]
fn a_frozen_agent_at_the_head_ends_an_openmpi_job() -> Result<()> {
    frozen_agent(&World::up_alone("liveness")?, Mpi::OpenMpi, &NODES[..2], promised(NOTICED))?;
    Ok(())
}

#[test]
#[ignore = "test-all"]
fn a_frozen_agent_at_the_head_ends_an_mpich_job() -> Result<()> {
    frozen_agent(&World::up_alone("liveness")?, Mpi::Mpich, &NODES[..2], promised(NOTICED))?;
    Ok(())
}

/// To another site it looks as if the head's site were cut off, which a job outlives.
#[test]
#[ignore = "test-all"]
fn a_frozen_agent_at_the_head_ends_the_job_at_other_sites() -> Result<()> {
    let logs = frozen_agent(&World::up_alone("two-relays")?, Mpi::OpenMpi, &life::NODES, promised(LATE))?;
    let text = "the agent at the job's head is frozen: other sites end the job";
    ensure!(logs.contains(text), "no {text:?} in\n{logs}");
    Ok(())
}

/// The head that was frozen is to blame, and not the node that has noticed it.
#[test]
#[ignore = "test-all"]
fn a_head_that_was_frozen_says_so_of_itself() -> Result<()> {
    let world = World::up_alone("liveness")?;
    let [head, other, _] = NODES;
    let job = endless(&world, Mpi::OpenMpi, &[head, other], &[])?;
    world.lab().freeze(head)?;
    let left = || Ok(world.processes(other, "/die")?.is_empty());
    World::eventually("the other node has ended its part", SOON, left)?;
    world.lab().thaw(head)?;
    let (status, printed) = job.end()?;
    let named = format!("lost node {head}: {other} had no sign of life of it for ");
    ensure!(status != 0 && status != 124, "{status}\n{printed}");
    for start in ["isthmus: ", "  cause: "].map(|start| format!("{start}{named}")) {
        ensure!(printed.lines().any(|line| line.starts_with(&start)), "no {start:?} in\n{printed}");
    }
    world.expect_clean_within(promised(SECONDS))
}

/// A busy or stopped `isthmus run` doesn't count as a frozen agent.
#[test]
#[ignore = "test-all"]
fn a_stopped_run_goes_on() -> Result<()> {
    let world = World::up_alone("liveness")?;
    let nodes = &NODES[..2];
    let job = endless(&world, Mpi::OpenMpi, nodes, &[])?;
    let run_id = world.service(nodes[0], "run")?;
    world.kill(nodes[0], "-STOP", &run_id)?;
    // A pause has a length.
    std::thread::sleep(WATCHED);
    world.kill(nodes[0], "-CONT", &run_id)?;
    let thawed = Instant::now();
    while thawed.elapsed() < Duration::from_secs(2) {
        ensure!(run(&world, nodes)?, "it has ended: {:?}", job.end()?);
        std::thread::sleep(Duration::from_millis(200));
    }
    world.kill(nodes[0], "-TERM", &run_id)?;
    let (_, printed) = job.end()?;
    ensure!(!printed.contains("no sign of life"), "{printed}");
    world.expect_clean_within(promised(SECONDS))
}

#[test]
#[ignore = "test-all"]
fn a_head_that_is_cut_off_says_so_of_itself() -> Result<()> {
    let world = World::up_alone("liveness")?;
    let job = endless(&world, Mpi::OpenMpi, &NODES, &[])?;
    let cut = Instant::now();
    world.cut(NODES[0])?;
    let took = world.gone(&NODES, cut, promised(NOTICED));
    let (status, printed) = job.end()?;
    took.with_context(|| printed.clone())?;
    ensure!(status != 0 && status != 124, "{status}\n{printed}");
    let text = "this node is cut off from n2.alpha, n3.alpha: ";
    ensure!(printed.contains(text) && !printed.contains("lost node"), "no {text:?} alone in\n{printed}");
    let text = "the node that holds the job here is frozen or cut off";
    World::eventually(text, SOON, || Ok(world.logs()?.contains(text)))
}

#[test]
#[ignore = "test-all"]
fn a_node_that_is_cut_off_says_so_of_itself() -> Result<()> {
    let world = World::up_alone("liveness")?;
    let job = endless(&world, Mpi::OpenMpi, &NODES, &[])?;
    let cut = Instant::now();
    world.cut(NODES[1])?;
    let took = world.gone(&NODES, cut, promised(NOTICED));
    let (status, printed) = job.end()?;
    took.with_context(|| printed.clone())?;
    ensure!(status != 0 && status != 124, "{status}\n{printed}");
    ensure!(printed.contains("lost node n2.alpha: no sign of life for "), "{printed}");
    ensure!(!printed.contains("is cut off from") && !printed.contains("lost node n3"), "{printed}");
    let text = "this node is cut off: it hears neither of the node that holds the job here";
    World::eventually(text, SOON, || Ok(world.logs()?.contains(text)))
}
