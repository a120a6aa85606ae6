//! Whatever ends a job is named in the first line that `isthmus run` writes of its end: who
//! it was, where, and what happened. No consequence is named in its place.
//!
//! `isthmus run` tells a cause from its consequences by what arrives within 2 s. So these tests
//! have the machine alone.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Job, Mpi, World, isthmus, promised};

use crate::life::{GRID, NODES, SECONDS, SOON, daemon};
use crate::nothing_left::seen;

const HEAD: &str = NODES[0];
const FAR: &str = NODES[1];
/// Ends a line about a rank that has ended, which is told only if its launcher is slow.
const GOES_ON: &str = "; the command goes on";

/// What is broken.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// A rank of this node gets this signal.
    Rank(&'static str, &'static str),
    Launcher,
    Daemon,
    /// The supervisor of the daemon.
    Supervisor,
    Agent,
    /// `isthmus run` gets SIGTERM, as by a batch system.
    Cancelled,
}

/// Kills a process, and returns what the user is to read.
fn kill(world: &World, mpi: Mpi, fault: Fault) -> Result<String> {
    match fault {
        Fault::Rank(node, signal) => {
            let pid = world.processes(node, "/die")?.pop().context("no rank")?;
            let rank = rank_of(world, node, &pid)?;
            world.kill(node, &format!("-{signal}"), &pid)?;
            Ok(format!("rank {rank} on {node} was ended by SIG{signal}"))
        }
        Fault::Launcher => {
            let launcher = mpi.launcher();
            let pid = world.processes(HEAD, &launcher)?.pop().context("no launcher")?;
            world.kill(HEAD, "-KILL", &pid)?;
            let name = launcher.rsplit('/').next().unwrap_or(&launcher);
            Ok(format!("{name} on {HEAD} was ended by SIGKILL"))
        }
        Fault::Daemon => {
            let pid = world.processes(FAR, daemon(mpi))?.pop().context("no daemon")?;
            world.kill(FAR, "-KILL", &pid)?;
            Ok(format!("{} on {FAR} was ended by SIGKILL", daemon(mpi)))
        }
        Fault::Supervisor => {
            world.kill(FAR, "-KILL", &world.service(FAR, "supervise")?)?;
            Ok(format!("the supervisor of {} on {FAR} was ended by SIGKILL", daemon(mpi)))
        }
        Fault::Agent => {
            world.kill(FAR, "-KILL", &world.service(FAR, "agent")?)?;
            Ok(format!("lost node {FAR}: its agent has ended"))
        }
        Fault::Cancelled => {
            world.kill(HEAD, "-TERM", &world.service(HEAD, "run")?)?;
            Ok("SIGTERM to `isthmus run`".to_owned())
        }
    }
}

/// The number that a process has of its launcher.
fn rank_of(world: &World, node: &str, pid: &str) -> Result<String> {
    let file = format!("/proc/{pid}/environ");
    let environment = world.sh(node, SOON, &["sh", "-c", &format!(r"tr '\0' '\n' < {file}")])?.stdout;
    let value = |name: &str| {
        environment.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
    };
    value("OMPI_COMM_WORLD_RANK").or_else(|| value("PMI_RANK")).context("no rank in its environment")
}

/// Breaks one thing under a job, and reads what the user reads.
fn check(world: &World, mpi: Mpi, fault: Fault) -> Result<()> {
    // A rank that dies while Hydra starts may end Hydra's proxy before it collects the rank.
    let job = seen(world, mpi)?;
    let expected = kill(world, mpi, fault)?;
    let (status, printed) = job.end()?;
    ensure!(status != 0 && status != 124, "{mpi:?}, {fault:?}: status {status}\n{printed}");
    expect_first(&printed, &expected).with_context(|| format!("{mpi:?}, {fault:?}: status {status}"))
}

/// It is named first, and once more in the account, with the same words.
fn expect_first(printed: &str, expected: &str) -> Result<()> {
    let of_the_end = |line: &&str| {
        let meanwhile = [GOES_ON, " can't connect to ", " has connected to "];
        line.starts_with("isthmus: ") && !meanwhile.iter().any(|text| line.contains(text))
    };
    // A launcher's last line may lack its end.
    let own = printed.lines().map(str::trim_start).find(of_the_end).unwrap_or_default();
    ensure!(own.starts_with(&format!("isthmus: {expected}")), "not first: {expected}\n{printed}");
    ensure!(printed.contains(&format!("\n  ended by {expected}")), "not in the account\n{printed}");
    let of_the_end = printed.lines().filter(|line| !line.contains(GOES_ON));
    let told: usize = of_the_end.map(|line| line.matches(expected).count()).sum();
    ensure!(told == 2, "told {told} times\n{printed}");
    ensure!(!printed.contains("h2 protocol"), "{printed}");
    Ok(())
}

/// Faults after which the grid is as before.
fn check_all(mpi: Mpi, faults: &[Fault]) -> Result<()> {
    let world = GRID.take_alone()?;
    for fault in faults {
        check(&world, mpi, *fault)?;
        world.expect_clean_within(promised(SECONDS))?;
    }
    Ok(())
}

const RANKS: [Fault; 4] = [
    Fault::Rank(FAR, "KILL"),
    Fault::Rank(HEAD, "KILL"),
    Fault::Rank(HEAD, "SEGV"),
    Fault::Rank(FAR, "SEGV"),
];
const STARTERS: [Fault; 4] = [Fault::Launcher, Fault::Daemon, Fault::Supervisor, Fault::Cancelled];

#[test]
fn a_rank_of_openmpi_is_named() -> Result<()> {
    check_all(Mpi::OpenMpi, &RANKS[..1])
}

#[test]
fn a_rank_of_mpich_is_named() -> Result<()> {
    check_all(Mpi::Mpich, &RANKS[..1])
}

#[test]
#[ignore = "test-all"]
fn any_rank_of_openmpi_is_named() -> Result<()> {
    check_all(Mpi::OpenMpi, &RANKS[1..])
}

#[test]
#[ignore = "test-all"]
fn any_rank_of_mpich_is_named() -> Result<()> {
    check_all(Mpi::Mpich, &RANKS[1..])
}

#[test]
#[ignore = "test-all"]
fn a_rank_of_openmpi5_is_named() -> Result<()> {
    check_all(Mpi::OpenMpi5, &RANKS[..1])
}

#[test]
#[ignore = "test-all"]
fn a_rank_of_mpich4_is_named() -> Result<()> {
    check_all(Mpi::Mpich4, &RANKS[..1])
}

#[test]
#[ignore = "test-all"]
fn what_starts_ranks_of_openmpi_is_named() -> Result<()> {
    check_all(Mpi::OpenMpi, &STARTERS)
}

#[test]
#[ignore = "test-all"]
fn what_starts_ranks_of_mpich_is_named() -> Result<()> {
    check_all(Mpi::Mpich, &STARTERS)
}

#[test]
#[ignore = "test-all"]
fn an_agent_is_named() -> Result<()> {
    for mpi in [Mpi::OpenMpi, Mpi::Mpich] {
        check(&World::up_alone("two-relays")?, mpi, Fault::Agent)?;
    }
    Ok(())
}

/// Starts `isthmus run WORDS` on both nodes; what it writes to its standard error comes to a
/// file, which can be read at any time.
fn begin(world: &World, errors: &Path, words: &[&str]) -> Result<Job> {
    let (binary, nodes) = (isthmus().display().to_string(), NODES.join(","));
    let shown = errors.display().to_string();
    let shell = ["sh", "-c", "exec \"$@\" 2>\"$0\"", shown.as_str()];
    let run = [binary.as_str(), "run", "--nodes", nodes.as_str(), "--"];
    Job::start(world.command(HEAD, SOON * 4, &[&shell[..], &run[..], words].concat())?)
}

/// What has come to such a file.
fn read(errors: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(errors).unwrap_or_default()).into_owned()
}

/// Of a script only the last launcher's rank ended the job: the first one's is long ago.
#[test]
#[ignore = "test-all"]
fn a_rank_of_an_earlier_launcher_is_not_named() -> Result<()> {
    let world = GRID.take_alone()?;
    let place = |name: &str| world.directory.path().join(format!("earlier.{name}"));
    let (errors, go) = (place("errors"), place("go"));
    for file in [&errors, &go] {
        let _ = std::fs::remove_file(file);
    }
    let start = format!("{} -n 4 {}", Mpi::OpenMpi.launcher(), Mpi::OpenMpi.program("die"));
    let wait = format!("until [ -e {} ]; do sleep 0.05; done", go.display());
    let job = begin(&world, &errors, &["sh", "-c", &format!("{start} kill 3; {wait}; {start} exit 2")])?;
    // `isthmus run` tells of it as late as after which an event is long ago: after 5 s.
    let survived = format!("rank 3 on {FAR} was ended by SIGKILL{GOES_ON}");
    let told = World::eventually(&survived, SOON, || Ok(read(&errors).contains(&survived)));
    std::fs::write(&go, "")?;
    let (status, _) = job.end()?;
    let printed = read(&errors);
    told.with_context(|| printed.clone())?;
    ensure!(status != 0 && status != 124, "status {status}\n{printed}");
    expect_first(&printed, &format!("rank 2 on {FAR} ended with status 7"))?;
    world.expect_clean_within(promised(SECONDS))
}

/// Without a launcher, too, the connection to the command is no culprit.
#[test]
#[ignore = "test-all"]
fn an_agent_is_named_of_commands_on_each_node() -> Result<()> {
    let world = World::up_alone("two-relays")?;
    let (binary, nodes) = (isthmus().display().to_string(), NODES.join(","));
    let words = [&binary, "run", "--nodes", &nodes, "--outlive", "0", "--each", "--", "/bin/sleep", "3600"];
    let job = Job::start(world.command(HEAD, SOON * 3, &words)?)?;
    let runs = |node| Ok::<_, anyhow::Error>(!world.processes(node, "/bin/sleep")?.is_empty());
    World::eventually("both commands run", SOON, || Ok(runs(HEAD)? && runs(FAR)?))?;
    let expected = kill(&world, Mpi::OpenMpi, Fault::Agent)?;
    let (status, printed) = job.end()?;
    ensure!(status == 125, "status {status}\n{printed}");
    ensure!(!printed.contains("the command on"), "{printed}");
    expect_first(&printed, &expected)
}

/// Hydra doesn't always end a job of which a rank on another node has ended badly: then the
/// user reads of it after 5 s, and can end the job.
#[test]
#[ignore = "test-all"]
fn a_rank_that_mpich_does_not_miss_is_told() -> Result<()> {
    let world = GRID.take_alone()?;
    let errors = world.directory.path().join("missed.errors");
    let _ = std::fs::remove_file(&errors);
    let before = world.logs()?.matches("a rank has ended").count();
    let (launcher, die) = (Mpi::Mpich.launcher(), Mpi::Mpich.program("die"));
    let job = begin(&world, &errors, &[&launcher, "-n", "4", &die, "exit", "3", "sleep"])?;
    let has_ended = || Ok(world.logs()?.matches("a rank has ended").count() > before);
    World::eventually("a rank has ended", SOON, has_ended)?;
    // Either Hydra ends the job, or the user reads that it doesn't.
    let mut goes_on = false;
    let known = World::eventually("the job has ended, or the user knows", promised(SECONDS), || {
        goes_on = read(&errors).contains(GOES_ON);
        Ok(goes_on || world.service(HEAD, "run").is_err())
    });
    if known.is_err() || goes_on {
        // It may have ended by now.
        if let Ok(run) = world.service(HEAD, "run") {
            let _ = world.kill(HEAD, "-TERM", &run);
        }
    }
    let (status, _) = job.end()?;
    let printed = read(&errors);
    known.with_context(|| printed.clone())?;
    ensure!(status != 124, "status {status}\n{printed}");
    let named = format!("rank 3 on {FAR} ended with status ");
    ensure!(printed.contains(&named), "no {named:?} in\n{printed}");
    world.expect_clean_within(promised(SECONDS))
}
