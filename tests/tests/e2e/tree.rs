//! Jobs hang together as a tree: one node of each other site stands for the
//! rest of it, in the start and the end and when something breaks.

use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Mpi, Shared, World, isthmus, promised};

static GRID: Shared = Shared::new("two-relays");

/// The head, the node that stands for its site, and the node below that.
const NODES: [&str; 3] = ["n1.alpha", "n1.beta", "n2.beta"];
/// Time within which a job must be gone, as docs/design.md promises.
const SECONDS: Duration = Duration::from_secs(10);
/// Deadline that guards against hanging only.
const SOON: Duration = Duration::from_secs(90);
/// Seconds by which a node's times may be wrong. A node counts them from when it receives the call.
/// The head takes that for half of a round trip after the call. On a busy machine this is wrong by
/// as much as either is late.
const WRONG_SECONDS: f64 = 1.0;

#[test]
fn a_site_is_reached_once() -> Result<()> {
    let world = GRID.take_alone()?;
    let picture = world.directory.path().join("start.svg");
    let timing = format!("--timing={}", picture.display());
    let (launcher, hello) = (Mpi::OpenMpi.launcher(), Mpi::OpenMpi.program("hello"));
    let nodes = NODES.join(",");
    let (output, report) = world.run_reported(
        "n1.alpha",
        &["--nodes", &nodes, &timing],
        &[&launcher, "-n", "6", "--map-by", "node", &hello],
    )?;
    ensure!(output.status == 0, "{}", output.whole());
    let times = |name: &str| {
        let nodes = report["timing"]["nodes"].as_array().context("no nodes")?;
        nodes.iter().find(|node| node["node"] == name).with_context(|| format!("no times of {name}"))
    };
    let (lead, below) = (times("n1.beta")?, times("n2.beta")?);
    let seconds = |value: &serde_json::Value| value.as_f64().context("no time");
    ensure!(seconds(&below["reached_seconds"][0])? >= seconds(&lead["reached_seconds"][1])?, "{report}");
    let ready = [below, lead].map(|node| seconds(&node["ready_seconds"][1]));
    let [below_ready, lead_ready] = ready;
    ensure!(below_ready? <= lead_ready? + WRONG_SECONDS, "{report}");
    for node in [lead, below] {
        ensure!(node["commands"][0]["command"] == "orted", "{report}");
    }
    let phases = report["timing"]["phases"].as_array().context("no phases")?;
    let names: Vec<_> = phases.iter().filter_map(|phase| phase["name"].as_str()).collect();
    ensure!(names == ["look", "nodes", "launcher", "commands", "connections", "program", "end"], "{names:?}");
    ensure!(output.stderr.contains("orted on n2.beta"), "{}", output.whole());
    let drawn = std::fs::read_to_string(&picture)?;
    ensure!(drawn.starts_with("<svg") && drawn.contains("n2.beta"), "{drawn}");
    let output = world.run("n1.alpha", &["--timing"], &["true"])?;
    ensure!(output.status == 0 && output.stderr.contains("job ended"), "{}", output.whole());
    world.expect_clean()
}

/// An agent may have a higher rank than programs, but programs don't inherit it.
#[test]
fn programs_get_their_usual_share_of_the_processor() -> Result<()> {
    const SHARE: &str = "nice; sed 's/.* nice/session nice/' /proc/self/autogroup";
    let world = GRID.take()?;
    let nodes = NODES.join(",");
    let output = world.run("n1.alpha", &["--nodes", &nodes, "--each"], &["sh", "-c", SHARE])?;
    for node in NODES {
        for line in ["0", "session nice 0"] {
            let printed = format!("{node}: {line}");
            ensure!(
                output.stdout.lines().any(|line| line == printed),
                "no {printed:?} in {}",
                output.whole()
            );
        }
    }
    let agent = world.service("n1.alpha", "agent")?;
    let shares = format!("ps -L -o ni= -p {agent}; cat /proc/{agent}/autogroup");
    let output = world.sh("n1.alpha", SOON, &["sh", "-c", &shares])?;
    let privileged = std::fs::metadata("/proc/self")?.uid() == 0;
    ensure!(output.stdout.contains("-10") == privileged, "{}", output.whole());
    ensure!(output.stdout.contains(" nice -10") == privileged, "{}", output.whole());
    Ok(())
}

#[test]
fn a_picture_that_cannot_be_written_ends_the_run_before_anything_starts() -> Result<()> {
    let world = GRID.take()?;
    let output = world.run("n1.alpha", &["--timing=/proc/none/start.svg"], &["touch", "/tmp/started"])?;
    ensure!(output.status == 125, "{}", output.whole());
    ensure!(output.stderr.contains("cannot write /proc/none/start.svg"), "{}", output.whole());
    Ok(())
}

/// What breaks in another site than the head's, or at the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The node below the site's lead is frozen.
    BelowFrozen,
    /// The agent that stands for its site is killed.
    LeadAgent,
    /// The node that stands for its site is frozen.
    LeadFrozen,
    /// `isthmus run` is killed.
    Run,
}

fn cell(world: &World, fault: Fault) -> Result<()> {
    let job = world.endless(Mpi::OpenMpi, &NODES.join(","), &["--outlive", "0"])?;
    World::eventually("all ranks run", SOON, || {
        let counts = NODES.map(|node| world.processes(node, "/die").map(|found| found.len()));
        counts.into_iter().try_fold(true, |all, count| Ok(all && count? == 2))
    })?;
    let broken = Instant::now();
    let [head, lead, below] = NODES;
    let (reachable, expected) = match fault {
        Fault::BelowFrozen => {
            world.signal_all(below, "-STOP")?;
            (vec![head, lead], format!("lost node {below}: no sign of life for "))
        }
        Fault::LeadAgent => {
            world.kill(lead, "-KILL", &world.service(lead, "agent")?)?;
            (NODES.to_vec(), format!("lost node {lead}"))
        }
        Fault::LeadFrozen => {
            world.signal_all(lead, "-STOP")?;
            (vec![head, below], format!("lost node {lead}: no sign of life for "))
        }
        Fault::Run => {
            world.kill(head, "-KILL", &world.service(head, "run")?)?;
            (NODES.to_vec(), String::new())
        }
    };
    let took = world.gone(&reachable, broken, promised(SECONDS));
    if matches!(fault, Fault::BelowFrozen | Fault::LeadFrozen) {
        let frozen = if fault == Fault::LeadFrozen { lead } else { below };
        world.signal_all(frozen, "-CONT")?;
        world.gone(&NODES, Instant::now(), promised(SECONDS)).context("after it thawed")?;
    }
    let (status, printed) = job.end()?;
    let took = took.with_context(|| format!("{fault:?}\n{printed}"))?;
    eprintln!("{fault:?}: gone after {:.1} s", took.as_secs_f64());
    ensure!(status != 0 && status != 124, "{fault:?}: status {status}\n{printed}");
    ensure!(printed.contains(&expected), "{fault:?}: no {expected:?} in\n{printed}");
    Ok(())
}

#[test]
#[ignore = "test-all"]
fn a_job_ends_whatever_breaks_in_another_site() -> Result<()> {
    // The last of them leaves a node without its agent.
    let world = World::up_alone("two-relays")?;
    for fault in [Fault::BelowFrozen, Fault::Run, Fault::LeadFrozen, Fault::LeadAgent] {
        cell(&world, fault)?;
    }
    Ok(())
}

/// A node that can't take part is named, although the head didn't ask it itself.
#[test]
#[ignore = "test-all"]
fn who_cannot_take_part_is_named() -> Result<()> {
    let world = World::up("two-relays")?;
    let agent = world.service("n2.beta", "agent")?;
    // The node is known to the grid as long as its connections stand.
    world.kill("n2.beta", "-STOP", &agent)?;
    let binary = isthmus().display().to_string();
    let output = world.sh(
        "n1.alpha",
        SOON * 2,
        &[&binary, "run", "--nodes", &NODES.join(","), "--", "mpirun.openmpi", "-n", "3", "true"],
    )?;
    world.kill("n2.beta", "-CONT", &agent)?;
    // The run has ended by itself: a run that hangs is ended with another status.
    ensure!(output.status == 125, "{}", output.whole());
    ensure!(output.stderr.contains("n2.beta"), "{}", output.whole());
    Ok(())
}
