//! What is left on a node of a job whose processes or supervisors are killed: nothing.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Job, Lasting, Mpi, World, promised};

use crate::life::{GRID, NODES, SECONDS, SOON, daemon, running};

/// The directories in which MPIs put files, and how the names of their files begin. In /dev/shm
/// they are those of Open MPI 4 and 5, MPICH and UCX. In /tmp they are those of session directories
/// and of Hydra.
const FILES: [(&str, &[&str]); 2] = [
    ("/dev/shm/", &["vader_segment.", "sm_segment.", "mpich_shm_", "mpich_shar_tmp", "ucx_shm_posix_"]),
    ("/tmp/", &["ompi.", "prted.", "prterun.", "prte.", "hydra_hwloc_xmlfile_"]),
];

/// Whether the file or directory with this path is one that MPIs make.
fn is_of_mpi(path: &str) -> bool {
    FILES.iter().any(|(directory, names)| {
        path.strip_prefix(directory).is_some_and(|name| names.iter().any(|begin| name.starts_with(begin)))
    })
}

/// The files and directories of a node where MPIs put theirs.
fn files(world: &World, node: &str) -> Result<BTreeSet<String>> {
    let found = world.sh(node, SOON, &["find", "/tmp", "/dev/shm", "-mindepth", "1"])?;
    // find(1) fails if a file is removed meanwhile. That file doesn't count.
    ensure!([0, 1].contains(&found.status), "{}", found.whole());
    Ok(found.stdout.lines().map(str::to_owned).collect())
}

/// The files and directories that a node had before a job, where MPIs put theirs.
pub(crate) struct Before {
    node: &'static str,
    files: BTreeSet<String>,
}

impl Before {
    pub(crate) fn of(world: &World, node: &'static str) -> Result<Self> {
        Ok(Self { node, files: files(world, node)? })
    }

    /// The files and directories that have been made since.
    fn made(&self, world: &World) -> Result<BTreeSet<String>> {
        Ok(files(world, self.node)?.difference(&self.files).cloned().collect())
    }

    /// Waits until the agent has noted the job's shared memory. Returns all that the job has made.
    /// When all processes are killed, the agent can remove only what it has noted.
    fn noted(&self, world: &World) -> Result<BTreeSet<String>> {
        let (mut made, mut notes) = (BTreeSet::new(), String::new());
        World::eventually("the agent has noted what the MPI has made", SOON, || {
            made = self.made(world)?;
            // One line for each: device, inode and path.
            notes = world.sh(self.node, SOON, &["sh", "-c", "cat /run/isthmus/*/leftovers"])?.stdout;
            let is_shared = |path: &&String| path.starts_with("/dev/shm/") && is_of_mpi(path);
            let mut shared = made.iter().filter(is_shared).peekable();
            let is_noted = |path: &String| notes.lines().any(|line| line.ends_with(&format!(" {path}")));
            Ok(shared.peek().is_some() && shared.all(is_noted))
        })
        .with_context(|| format!("{}: made {made:?}, noted\n{notes}", self.node))?;
        Ok(made)
    }

    /// Waits until nothing of the job is left: neither what it was seen to make, nor anything else
    /// that an MPI makes.
    pub(crate) fn nothing_left(
        &self,
        world: &World,
        made: &BTreeSet<String>,
        deadline: Duration,
    ) -> Result<()> {
        let mut left = BTreeSet::new();
        World::eventually("nothing of the MPI is left", deadline, || {
            left = self.made(world)?;
            left.retain(|path| made.contains(path) || is_of_mpi(path));
            Ok(left.is_empty())
        })
        .with_context(|| format!("{} has {left:?} left; of {made:?}", self.node))
    }
}

/// How often agents have said that they found both ranks of their node.
fn looks(world: &World) -> Result<usize> {
    let is_look = |line: &&str| line.contains("ranks run here") && line.contains("ranks=2");
    Ok(world.logs()?.lines().filter(is_look).count())
}

/// Starts an endless job, and waits until the agents of both nodes have seen its ranks.
pub(crate) fn seen(world: &World, mpi: Mpi) -> Result<Job> {
    let before = looks(world)?;
    let job = world.endless(mpi, &NODES.join(","), &["--outlive", "0"])?;
    running(world)?;
    World::eventually("both agents have seen the ranks", SOON, || Ok(looks(world)? >= before + 2))?;
    Ok(job)
}

/// Kills the launcher or its daemon and all ranks of a node at once, so that none of them removes
/// anything. Checks that nothing is left.
fn killed(world: &World, mpi: Mpi, node: &str) -> Result<()> {
    let before = [Before::of(world, NODES[0])?, Before::of(world, NODES[1])?];
    let job = Lasting::start(world, mpi, &NODES, &["--outlive", "0"])?;
    let made = [before[0].noted(world)?, before[1].noted(world)?];
    let launcher = match mpi {
        // The launcher of Open MPI 5 runs another program in its place.
        Mpi::OpenMpi5 => "prterun".to_owned(),
        _ => mpi.launcher(),
    };
    let starter = if node == NODES[0] { launcher.as_str() } else { daemon(mpi) };
    let mut pids = world.processes(node, starter)?;
    ensure!(!pids.is_empty(), "{mpi:?}: no {starter} on {node}");
    pids.extend(world.processes(node, "/visit")?);
    let words: Vec<&str> = ["kill", "-KILL"].into_iter().chain(pids.iter().map(String::as_str)).collect();
    let ended = Instant::now();
    // A process may have ended by the end of another process.
    world.sh(node, SOON, &words)?;
    let took = world.gone(&NODES, ended, promised(SECONDS));
    let (status, printed) = job.ended()?;
    took.with_context(|| format!("{mpi:?}, {node}\n{printed}"))?;
    ensure!(status != 0 && status != 124, "{mpi:?}, {node}: status {status}\n{printed}");
    world.expect_clean_within(promised(SECONDS))?;
    for (before, made) in before.iter().zip(&made) {
        before.nothing_left(world, made, promised(SECONDS)).with_context(|| format!("{mpi:?}, {node}"))?;
    }
    Ok(())
}

#[test]
fn of_a_killed_open_mpi_4() -> Result<()> {
    let world = GRID.take_alone()?;
    NODES.iter().rev().try_for_each(|node| killed(&world, Mpi::OpenMpi, node))
}

#[test]
#[ignore = "test-all"]
fn of_a_killed_open_mpi_5() -> Result<()> {
    let world = GRID.take_alone()?;
    NODES.iter().rev().try_for_each(|node| killed(&world, Mpi::OpenMpi5, node))
}

#[test]
fn of_a_killed_mpich() -> Result<()> {
    let world = GRID.take_alone()?;
    NODES.iter().rev().try_for_each(|node| killed(&world, Mpi::Mpich, node))
}

/// The supervisor of a node's processes is killed. What it leaves behind is ended all the same.
#[test]
#[ignore = "test-all"]
fn of_a_killed_supervisor() -> Result<()> {
    // Processes without a supervisor are killed later than others.
    const LATER: Duration = Duration::from_secs(2);
    let world = GRID.take_alone()?;
    for (mpi, node) in [(Mpi::OpenMpi, NODES[1]), (Mpi::Mpich, NODES[1]), (Mpi::OpenMpi, NODES[0])] {
        let job = seen(&world, mpi)?;
        let ended = Instant::now();
        world.kill(node, "-KILL", &world.service(node, "supervise")?)?;
        let took = world.gone(&NODES, ended, promised(SECONDS + LATER));
        let (status, printed) = job.end()?;
        took.with_context(|| format!("{mpi:?}, {node}\n{printed}"))?;
        ensure!(status != 0 && status != 124, "{mpi:?}, {node}: status {status}\n{printed}");
        world.expect_clean_within(promised(SECONDS))?;
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
    world.expect_clean()
}

/// A stopped supervisor ends with its job.
#[test]
#[ignore = "test-all"]
fn of_a_stopped_supervisor() -> Result<()> {
    let world = GRID.take_alone()?;
    let job = world.endless(Mpi::OpenMpi, &NODES.join(","), &[])?;
    running(&world)?;
    world.kill(NODES[1], "-STOP", &world.service(NODES[1], "supervise")?)?;
    world.kill(NODES[0], "-TERM", &world.service(NODES[0], "run")?)?;
    let ended = Instant::now();
    let (status, printed) = job.end()?;
    ensure!(status != 0 && status != 124, "{status}\n{printed}");
    world.expect_clean_within(promised(SECONDS)).with_context(|| printed.clone())?;
    ensure!(ended.elapsed() < promised(SECONDS), "{:?}\n{printed}", ended.elapsed());
    Ok(())
}

/// What a killed agent had noted is removed by the agent that is started next.
#[test]
#[ignore = "test-all"]
fn of_a_killed_agent() -> Result<()> {
    let world = World::up_alone("two-relays")?;
    let before = Before::of(&world, NODES[0])?;
    let job = Lasting::start(&world, Mpi::OpenMpi, &NODES, &["--outlive", "0"])?;
    let made = before.noted(&world)?;
    let ranks = world.processes(NODES[0], "/visit")?;
    world.kill(NODES[0], "-KILL", &world.service(NODES[0], "agent")?)?;
    for rank in ranks {
        // A launcher that loses its ranks removes nothing of theirs.
        let _ = world.kill(NODES[0], "-KILL", &rank);
    }
    let (status, printed) = job.ended()?;
    ensure!(status != 0 && status != 124, "{status}\n{printed}");
    let _agent = world.serve(NODES[0], "agent", &[], &World::config("agent"))?;
    before.nothing_left(&world, &made, SOON)
}

/// Checks that a stopped agent removes what its job has left before it ends. No other agent may
/// ever be started on the node.
fn of_a_stopped_agent(mpi: Mpi) -> Result<()> {
    for node in [NODES[1], NODES[0]] {
        let world = World::up_alone("two-relays")?;
        let before = Before::of(&world, node)?;
        let job = Lasting::start(&world, mpi, &NODES, &[])?;
        let made = before.noted(&world)?;
        world.stop(node, "agent")?;
        let left = before.made(&world)?;
        let (status, printed) = job.ended()?;
        ensure!(status != 0 && status != 124, "{mpi:?}, {node}: status {status}\n{printed}");
        let left: Vec<_> = left.iter().filter(|path| made.contains(*path) || is_of_mpi(path)).collect();
        ensure!(left.is_empty(), "{mpi:?}: {node} has {left:?} left\n{printed}");
        world.expect_clean_within(promised(SECONDS))?;
    }
    Ok(())
}

#[test]
fn of_a_stopped_agent_under_mpich() -> Result<()> {
    of_a_stopped_agent(Mpi::Mpich)
}

#[test]
#[ignore = "test-all"]
fn of_a_stopped_agent_under_open_mpi() -> Result<()> {
    of_a_stopped_agent(Mpi::OpenMpi)
}
