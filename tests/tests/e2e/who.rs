//! Whatever ends a job is named in the first line that `isthmus run` writes of its end: who
//! it was, where, and what happened. No consequence is named in its place.
//!
//! News of a cause may come a moment after its consequences. So these tests have the machine
//! alone.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Job, Mpi, World, isthmus, promised};

use crate::life::{GRID, NODES, SECONDS, SOON, daemon};
use crate::nothing_left::seen;

const HEAD: &str = NODES[0];
const FAR: &str = NODES[1];
/// End of a line about a rank that has ended. The line is told only if the rank's launcher is slow.
const GOES_ON: &str = "; the command goes on";

/// What is broken under a job.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// A rank of the first node gets the second text's signal.
    Rank(&'static str, &'static str),
    Launcher,
    /// The launcher gets this signal, and ends its job.
    LauncherTold(&'static str),
    /// The process that the launcher has in place of ssh is killed.
    Launch,
    Daemon,
    /// MPICH's daemon on the head's node is killed.
    OwnDaemon,
    /// The supervisor of the daemon is killed.
    Supervisor,
    Agent,
    /// `isthmus run` gets SIGTERM, as from a batch system.
    Cancelled,
}

/// Breaks a job by a fault. Returns what the user is to read.
fn kill(world: &World, mpi: Mpi, fault: Fault) -> Result<String> {
    match fault {
        Fault::Rank(node, signal) => {
            let pid = world.processes(node, "/die")?.pop().context("no rank")?;
            let rank = rank_of(world, node, &pid)?;
            world.kill(node, &format!("-{signal}"), &pid)?;
            Ok(format!("rank {rank} on {node} was ended by SIG{signal}"))
        }
        Fault::Launcher => kill_launcher(world, mpi, "KILL"),
        Fault::LauncherTold(signal) => kill_launcher(world, mpi, signal),
        Fault::Launch => {
            world.kill(HEAD, "-KILL", &world.service(HEAD, "launch")?)?;
            Ok(format!("`isthmus launch {FAR}` on {HEAD} was ended by SIGKILL"))
        }
        Fault::OwnDaemon => {
            let pid = world.processes(HEAD, daemon(mpi))?.pop().context("no daemon")?;
            world.kill(HEAD, "-KILL", &pid)?;
            Ok(format!("{} on {HEAD} was ended by SIGKILL", daemon(mpi)))
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

fn kill_launcher(world: &World, mpi: Mpi, signal: &str) -> Result<String> {
    let launcher = match mpi {
        // The launcher of Open MPI 5 runs another program in its place.
        Mpi::OpenMpi5 => "prterun".to_owned(),
        _ => mpi.launcher(),
    };
    let pid = world.processes(HEAD, &launcher)?.pop().context("no launcher")?;
    world.kill(HEAD, &format!("-{signal}"), &pid)?;
    let name = launcher.rsplit('/').next().unwrap_or(&launcher);
    Ok(format!("{name} on {HEAD} was ended by SIG{signal}"))
}

/// The rank that the launcher has given to a process.
fn rank_of(world: &World, node: &str, pid: &str) -> Result<String> {
    let file = format!("/proc/{pid}/environ");
    let environment = world.sh(node, SOON, &["sh", "-c", &format!(r"tr '\0' '\n' < {file}")])?.stdout;
    let value = |name: &str| {
        environment.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
    };
    value("OMPI_COMM_WORLD_RANK").or_else(|| value("PMI_RANK")).context("no rank in its environment")
}

/// Breaks a job by a single fault, and checks what the user reads.
fn check(world: &World, mpi: Mpi, fault: Fault) -> Result<()> {
    // A rank that dies while Hydra starts may end Hydra's proxy before it collects the rank.
    let job = seen(world, mpi)?;
    let expected = kill(world, mpi, fault)?;
    let (status, printed) = job.end()?;
    ensure!(status != 0 && status != 124, "{mpi:?}, {fault:?}: status {status}\n{printed}");
    let is_cancelled = matches!(fault, Fault::Cancelled);
    ensure!(!is_cancelled || status == 128 + 15, "{mpi:?}: status {status}\n{printed}");
    expect_first(&printed, &expected).with_context(|| format!("{mpi:?}, {fault:?}: status {status}"))
}

/// Checks that the expected text is told first, once more in the account with the same words, and
/// nowhere else.
fn expect_first(printed: &str, expected: &str) -> Result<()> {
    let of_the_end = |line: &&str| {
        let meanwhile = [GOES_ON, " the job outlives a cut of ", " can't connect to ", " has connected to "];
        line.starts_with("isthmus: ") && !meanwhile.iter().any(|text| line.contains(text))
    };
    // A launcher's last line may lack its end, or end in a NUL.
    let from_text = |line: &'_ str| line.find(|c: char| !c.is_whitespace() && !c.is_control()).unwrap_or(0);
    let own = printed.lines().map(|line| &line[from_text(line)..]).find(of_the_end).unwrap_or_default();
    ensure!(own.starts_with(&format!("isthmus: {expected}")), "not first: {expected}\n{printed}");
    ensure!(printed.contains(&format!("\n  cause: {expected}")), "not in the account\n{printed}");
    let of_the_end = printed.lines().filter(|line| !line.contains(GOES_ON));
    let told: usize = of_the_end.map(|line| line.matches(expected).count()).sum();
    ensure!(told == 2, "told {told} times\n{printed}");
    ensure!(!printed.contains("h2 protocol"), "{printed}");
    Ok(())
}

/// Checks faults one after the other, after each of which the grid is as before.
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

/// Launchers handle these signals, and end their ranks themselves.
#[test]
#[ignore = "test-all"]
fn a_launcher_that_is_told_to_end_is_named() -> Result<()> {
    let told = ["TERM", "INT"].map(Fault::LauncherTold);
    [Mpi::OpenMpi, Mpi::OpenMpi5, Mpi::Mpich].into_iter().try_for_each(|mpi| check_all(mpi, &told))
}

#[test]
#[ignore = "test-all"]
fn what_stands_between_a_launcher_and_its_ranks_is_named() -> Result<()> {
    check_all(Mpi::OpenMpi, &[Fault::Launch])?;
    check_all(Mpi::OpenMpi5, &[Fault::Launch])?;
    check_all(Mpi::Mpich, &[Fault::Launch, Fault::OwnDaemon])
}

#[test]
#[ignore = "test-all"]
fn an_agent_is_named() -> Result<()> {
    for mpi in [Mpi::OpenMpi, Mpi::Mpich] {
        check(&World::up_alone("two-relays")?, mpi, Fault::Agent)?;
    }
    Ok(())
}

/// Starts a job over a site of two nodes, of which the first stands for the site.
fn beyond_one(world: &World, mpi: Mpi) -> Result<Job> {
    const NODES: [&str; 3] = [HEAD, FAR, "n2.beta"];
    let job = world.endless(mpi, &NODES.join(","), &[])?;
    World::eventually("all ranks run", SOON, || {
        let counts = NODES.map(|node| world.processes(node, "/die").map(|found| found.len()));
        counts.into_iter().try_fold(true, |all, count| Ok(all && count? == 2))
    })?;
    Ok(job)
}

/// Checks that the node which stands for its site is named as lost. The site's other node ends its
/// part, and so the launcher its job, before the head has lost the first node. It has told the head
/// why.
fn lead_is_named(mpi: Mpi) -> Result<()> {
    let world = World::up_alone("two-relays")?;
    let job = beyond_one(&world, mpi)?;
    world.signal_all(FAR, "-STOP")?;
    let (status, printed) = job.end()?;
    world.signal_all(FAR, "-CONT")?;
    ensure!(status != 0 && status != 124, "{mpi:?}, frozen: status {status}\n{printed}");
    expect_first(&printed, &format!("lost node {FAR}: no sign of life for "))
        .with_context(|| format!("{mpi:?}, frozen"))?;
    world.expect_clean_within(promised(SECONDS))?;
    let job = beyond_one(&world, mpi)?;
    let expected = kill(&world, mpi, Fault::Agent)?;
    let (status, printed) = job.end()?;
    ensure!(status != 0 && status != 124, "{mpi:?}, killed: status {status}\n{printed}");
    expect_first(&printed, &expected).with_context(|| format!("{mpi:?}, killed"))
}

#[test]
fn the_agent_that_stands_for_its_site_is_named_of_mpich() -> Result<()> {
    lead_is_named(Mpi::Mpich)
}

#[test]
#[ignore = "test-all"]
fn the_agent_that_stands_for_its_site_is_named_of_openmpi() -> Result<()> {
    [Mpi::OpenMpi, Mpi::OpenMpi5].into_iter().try_for_each(lead_is_named)
}

/// Neither the other site nor the broker is heard, so the fault isn't the other site's.
#[test]
#[ignore = "test-all"]
fn the_head_s_own_site_is_named() -> Result<()> {
    let world = World::up_alone("two-relays")?;
    let job = world.endless(Mpi::OpenMpi, &NODES.join(","), &["--outlive", "8s"])?;
    crate::life::running(&world)?;
    world.cut_site("alpha")?;
    let (status, printed) = job.end()?;
    ensure!(status != 0 && status != 124, "status {status}\n{printed}");
    ensure!(!printed.contains("lost node"), "{printed}");
    expect_first(&printed, &format!("site alpha is cut off from {FAR}, and from the broker, for "))
}

/// A relay that is killed is no cut: the connection over it breaks.
#[test]
#[ignore = "test-all"]
fn a_connection_over_a_killed_relay_is_told_as_broken() -> Result<()> {
    let world = World::up_alone("two-relays")?;
    let job = crate::outlive::lasting(&world, Mpi::OpenMpi, &["--outlive", "8s"])?;
    for host in ["hub", "spare"] {
        world.kill(host, "-KILL", &world.service(host, "relay")?)?;
    }
    let (status, printed) = job.ended()?;
    ensure!(status != 0 && status != 124, "status {status}\n{printed}");
    for text in [
        format!("the connection to {FAR} broke (relay "),
        format!("\n  cause: lost node {FAR}: no connection to it for 8 s; the last one broke (relay "),
    ] {
        ensure!(printed.contains(&text), "no {text:?} in\n{printed}");
    }
    ensure!(!printed.contains("is cut, or it is frozen"), "{printed}");
    Ok(())
}

/// Starts `isthmus run WORDS` on both nodes, with its standard error in the file `errors`, which
/// can be read at any time.
fn begin(world: &World, errors: &Path, words: &[&str]) -> Result<Job> {
    let (binary, nodes) = (isthmus().display().to_string(), NODES.join(","));
    let shown = errors.display().to_string();
    let shell = ["sh", "-c", "exec \"$@\" 2>\"$0\"", shown.as_str()];
    let run = [binary.as_str(), "run", "--nodes", nodes.as_str(), "--"];
    Job::start(world.command(HEAD, SOON * 4, &[&shell[..], &run[..], words].concat())?)
}

/// What has come to the file `errors` so far.
fn read(errors: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(errors).unwrap_or_default()).into_owned()
}

/// A script runs two launchers. Only a rank of the last one ended the job: that of the first one
/// ended long ago.
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

/// Also without a launcher, the connection to the command isn't named as the culprit.
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

/// Open MPI's launcher ends a job itself whose rank ends without MPI_Finalize.
#[test]
#[ignore = "test-all"]
fn a_rank_of_openmpi_that_ends_without_finalize_is_named() -> Result<()> {
    let world = GRID.take_alone()?;
    for mode in ["leave", "quit", "stop"] {
        let nodes = NODES.join(",");
        let job = world.begin(Mpi::OpenMpi, &nodes, &["--outlive", "0"], "die", &[mode, "3", "sleep"])?;
        let (status, printed) = job.end()?;
        ensure!(status != 0 && status != 124, "{mode}: status {status}\n{printed}");
        expect_first(&printed, &format!("rank 3 on {FAR} ended without MPI_Finalize"))?;
    }
    world.expect_clean_within(promised(SECONDS))
}

/// Hydra doesn't end a job whose rank ends without MPI_Finalize, and says nothing.
#[test]
fn a_rank_of_mpich_that_ends_without_finalize_is_told() -> Result<()> {
    missed("leave", "without MPI_Finalize")
}

#[test]
#[ignore = "test-all"]
fn a_rank_that_ends_at_once_without_finalize_is_told() -> Result<()> {
    missed("quit", "without MPI_Finalize")
}

/// Hydra doesn't always end a job when a rank on another node has ended badly. Then the user reads
/// of it after 5 s, and can end the job.
#[test]
#[ignore = "test-all"]
fn a_rank_that_mpich_does_not_miss_is_told() -> Result<()> {
    missed("exit", "with status ")
}

/// Checks a job in which a rank of MPICH ends as `mode` says, while the others wait.
fn missed(mode: &str, how: &str) -> Result<()> {
    let world = GRID.take_alone()?;
    let errors = world.directory.path().join("missed.errors");
    let _ = std::fs::remove_file(&errors);
    let before = world.logs()?.matches("a rank has ended").count();
    let (launcher, die) = (Mpi::Mpich.launcher(), Mpi::Mpich.program("die"));
    let job = begin(&world, &errors, &[&launcher, "-n", "4", &die, mode, "3", "sleep"])?;
    let has_ended = || Ok(world.logs()?.matches("a rank has ended").count() > before);
    World::eventually("a rank has ended", SOON, has_ended)?;
    // Either Hydra ends the job, or the user reads that it doesn't.
    let mut goes_on = false;
    let known = World::eventually("the job has ended, or the user knows", promised(SECONDS), || {
        goes_on = read(&errors).contains(GOES_ON);
        Ok(goes_on || world.service(HEAD, "run").is_err())
    });
    if known.is_err() || goes_on {
        // The run may have ended by now.
        if let Ok(run) = world.service(HEAD, "run") {
            let _ = world.kill(HEAD, "-TERM", &run);
        }
    }
    let (status, _) = job.end()?;
    let printed = read(&errors);
    known.with_context(|| printed.clone())?;
    ensure!(status != 124, "status {status}\n{printed}");
    let named = format!("rank 3 on {FAR} ended {how}");
    ensure!(printed.contains(&named), "no {named:?} in\n{printed}");
    world.expect_clean_within(promised(SECONDS))
}
