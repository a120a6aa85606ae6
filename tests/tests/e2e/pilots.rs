//! Jobs over nodes that the batch schedulers of two sites, real Slurms, give for them.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Mpi, Output, Shared, World, isthmus, promised};

static GRID: Shared = Shared::new("two-slurms");

/// Deadline of runs that end by themselves. It guards against hanging only.
const SOON: Duration = Duration::from_secs(240);
/// Deadline of commands that only ask. It guards against hanging only.
const LOOK: Duration = Duration::from_secs(60);
/// Time within which nothing of a pilot is left.
const GONE: Duration = Duration::from_secs(30);
/// The address that the lab gives to n1, the front-end, of both sites.
const VIA: &str = "192.168.1.2";
const SITES: [&str; 2] = ["alpha", "beta"];

/// The user's agents on the login nodes of both sites, which submit batch jobs. They end with this
/// value.
struct Logins<'a>(&'a World);

impl<'a> Logins<'a> {
    fn start(world: &'a World) -> Result<Self> {
        Self::start_for(world, "4")
    }

    /// Starts them with the right to so many nodes at a time each.
    fn start_for(world: &'a World, nodes: &str) -> Result<Self> {
        let logins = Self(world);
        for site in SITES {
            let state = logins.state(site);
            std::fs::create_dir_all(&state)?;
            let config = "[agent]\nsubmit = \"slurm\"\nruntime_directory = \"/run/isthmus-login\"\n";
            std::fs::write(state.join("isthmus.toml"), config)?;
            let token = world.directory.path().join(format!("{site}.token"));
            let _ = std::fs::remove_file(&token);
            let (token, state) = (token.display().to_string(), state.display().to_string());
            let invite = ["grid", "invite", "--state", "/var/lib/isthmus/broker", "--site", site, "--owner"];
            let more = ["root", "--nodes", "1", "--pilot-nodes", nodes, "--out", &token];
            logins.isthmus("hub", &[&invite[..], &more[..]].concat())?;
            let up = ["up", "--state", &state, "--token", &token, "--via", VIA, "--name", "login"];
            logins.isthmus(&format!("n1.{site}"), &up)?;
        }
        Ok(logins)
    }

    fn state(&self, site: &str) -> PathBuf {
        self.0.directory.path().join(format!("login-{site}"))
    }

    /// Runs an isthmus command that must succeed.
    fn isthmus(&self, node: &str, words: &[&str]) -> Result<Output> {
        let binary = isthmus().display().to_string();
        let output = self.0.sh(node, LOOK, &[&[binary.as_str()], words].concat())?;
        ensure!(output.status == 0, "{}", output.whole());
        Ok(output)
    }

    /// A run over nodes that the schedulers give.
    fn run(&self, pilots: &str, words: &[&str]) -> Result<Command> {
        let binary = isthmus().display().to_string();
        let run = [&binary, "run", "--pilots", pilots, "--time", "10m", "--"];
        self.0.command("n1.alpha", SOON, &[&run[..], words].concat())
    }

    /// Waits until nothing of any pilot is left: no batch job, agent or member.
    fn nothing_left(&self, deadline: Duration) -> Result<()> {
        let mut found = Vec::new();
        let gone = World::eventually("nothing is left", deadline, || {
            found = self.left()?;
            Ok(found.is_empty())
        });
        gone.with_context(|| found.join("\n"))
    }

    fn left(&self) -> Result<Vec<String>> {
        let mut all = Vec::new();
        for site in SITES {
            let queued = self.0.sh(&format!("n1.{site}"), LOOK, &["squeue", "--noheader"])?;
            ensure!(queued.status == 0, "{}", queued.whole());
            all.extend(queued.stdout.lines().map(|line| format!("squeue at {site}: {line}")));
            for node in ["n2", "n3"] {
                let name = format!("{node}.{site}");
                let agents = self.0.sh(&name, LOOK, &["pgrep", "-a", "isthmus"])?;
                all.extend(agents.stdout.lines().map(|line| format!("{name}: {line}")));
            }
            let kept = self.state(site).join("pilots");
            let records = std::fs::read_dir(kept).into_iter().flatten().flatten();
            let records = records.map(|entry| entry.path().display().to_string());
            all.extend(records.filter(|path| path.ends_with(".pilot.json")));
        }
        let members = self.isthmus("hub", &["grid", "list", "--state", "/var/lib/isthmus/broker/admin"])?;
        all.extend(members.stdout.lines().filter(|line| line.contains("-root-p")).map(ToOwned::to_owned));
        Ok(all)
    }
}

impl Drop for Logins<'_> {
    fn drop(&mut self) {
        for site in SITES {
            let state = self.state(site).display().to_string();
            if let Err(error) = self.isthmus(&format!("n1.{site}"), &["down", "--state", &state]) {
                eprintln!("the login agent of {site} isn't stopped: {error:#}");
            }
        }
    }
}

/// What a command has written.
fn written(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn a_run_gets_nodes_of_two_schedulers_and_gives_them_back() -> Result<()> {
    let world = GRID.take()?;
    let logins = Logins::start(&world)?;
    let ring = Mpi::OpenMpi.program("ring");
    let output =
        logins.run("alpha=2,beta=2", &["mpirun.openmpi", "-n", "4", "--map-by", "node", &ring])?.output()?;
    let text = written(&output);
    ensure!(output.status.success(), "{text}");
    for words in [
        " No Errors",
        "of Slurm at alpha: n2-root-p1.alpha, n3-root-p1.alpha",
        "of Slurm at beta: n2-root-p1.beta, n3-root-p1.beta",
        "4 nodes at 2 sites",
    ] {
        ensure!(text.contains(words), "{words:?} is not in\n{text}");
    }
    logins.nothing_left(promised(GONE))
}

#[test]
fn a_cancelled_pilot_ends_the_run_and_is_named() -> Result<()> {
    let world = GRID.take()?;
    let logins = Logins::start(&world)?;
    let die = Mpi::OpenMpi.program("die");
    let mut run =
        logins.run("alpha=1,beta=1", &["mpirun.openmpi", "-n", "2", &die, "never", "0", "sleep"])?;
    let run = isthmus_e2e::Job::start({
        run.env("LC_ALL", "C");
        run
    })?;
    World::eventually("the ranks run", SOON, || {
        let nodes = ["n2.alpha", "n3.alpha", "n2.beta", "n3.beta"];
        let mut ranks = 0;
        for node in nodes {
            ranks += world.processes(node, "/die")?.len();
        }
        Ok(ranks == 2)
    })?;
    let job = world.sh("n1.beta", LOOK, &["squeue", "--noheader", "--format=%i"])?.stdout.trim().to_owned();
    // Others can read the script, and what processes are called with.
    let script = world.sh("n1.beta", LOOK, &["scontrol", "write", "batch_script", &job, "-"])?;
    ensure!(script.status == 0 && script.stdout.contains("isthmus"), "{}", script.whole());
    let called = world.sh("n2.beta", LOOK, &["ps", "-eo", "args"])?.stdout;
    for text in [&script.stdout, &called] {
        ensure!(!text.contains("isthmus-pilot-"), "a token is in\n{text}");
    }
    let cancelled = world.sh("n1.beta", LOOK, &["scancel", &job])?;
    ensure!(cancelled.status == 0, "{}", cancelled.whole());
    let (status, text) = run.end()?;
    let want = format!("batch job {job} of Slurm at beta: it was cancelled");
    ensure!(status != 0 && text.contains(&want), "{want:?} is not in\n{text}");
    logins.nothing_left(promised(GONE))
}

#[test]
fn all_nodes_or_none() -> Result<()> {
    let world = GRID.take()?;
    let logins = Logins::start(&world)?;
    // Both nodes of beta are somebody else's.
    let busy = ["sbatch", "--parsable", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 600"];
    let busy = world.sh("n1.beta", LOOK, &busy)?;
    ensure!(busy.status == 0, "{}", busy.whole());
    let job = busy.stdout.trim().to_owned();
    let binary = isthmus().display().to_string();
    let words = [&binary, "run", "--pilots", "alpha=1,beta=1", "--wait", "10s", "--", "hostname"];
    let output = world.sh("n1.alpha", SOON, &words)?;
    let text = output.whole();
    ensure!(output.status == 125 && text.contains("of Slurm at beta"), "{text}");
    let words = [&binary, "run", "--pilots", "alpha=1,beta=1", "--hold", "5s", "--", "hostname"];
    let output = world.sh("n1.alpha", SOON, &words)?;
    let text = output.whole();
    ensure!(output.status == 125 && text.contains("--hold keeps nodes longer"), "{text}");
    ensure!(text.contains("used 1 node of alpha for "), "{text}");
    let refused = world.sh("n1.alpha", SOON, &[&binary, "run", "--pilots", "alpha=9", "--", "hostname"])?;
    let text = refused.whole();
    ensure!(refused.status == 125 && text.contains("it can't start as things are"), "{text}");
    let cancelled = world.sh("n1.beta", LOOK, &["scancel", &job])?;
    ensure!(cancelled.status == 0, "{}", cancelled.whole());
    logins.nothing_left(promised(GONE))
}

/// Two groups of which each fills a site, but for a node.
const PROFILE: &str = "time = '10m'\n[[group]]\nname = 'masters'\nranks = 2\n\
                       [[group]]\nname = 'workers'\nranks = '4-9'\n";

#[test]
fn a_profile_gets_nodes_of_schedulers() -> Result<()> {
    let world = GRID.take()?;
    let logins = Logins::start(&world)?;
    let path = world.directory.path().join("job.toml");
    std::fs::write(&path, PROFILE)?;
    let (path, binary) = (path.display().to_string(), isthmus().display().to_string());
    let ring = Mpi::OpenMpi.program("ring");
    let run = |options: &[&str]| {
        let words = [&[&binary, "run", "--profile", &path, "--pilots", "alpha,beta"], options].concat();
        world.sh("n1.alpha", SOON, &[&words[..], &["--", "mpirun.openmpi", &ring]].concat())
    };
    let asked = run(&["--start-estimate"])?;
    for words in [
        "masters: 2 ranks on 1 node with 2 cores of Slurm at ",
        "workers: 4 ranks on 2 nodes with 2 cores of Slurm at ",
    ] {
        ensure!(asked.status == 0 && asked.stdout.contains(words), "{words:?} is not in\n{}", asked.whole());
    }
    ensure!(asked.stdout.matches(": at once").count() == 2, "{}", asked.whole());
    let output = run(&[])?;
    let text = output.whole();
    for words in
        [" No Errors", "masters: 2 ranks at ", "workers: 4 ranks at ", "6 ranks on 3 nodes at 2 sites"]
    {
        ensure!(output.status == 0 && text.contains(words), "{words:?} is not in\n{text}");
    }
    logins.nothing_left(promised(GONE))?;

    std::fs::write(&path, PROFILE.replace("4-9", "5"))?;
    let refused = run(&[])?;
    let text = refused.whole();
    ensure!(refused.status == 125 && text.contains("workers needs 5 ranks"), "{text}");
    logins.nothing_left(promised(GONE))
}

#[test]
fn an_allocation_is_kept_for_several_runs() -> Result<()> {
    let world = GRID.take()?;
    let logins = Logins::start(&world)?;
    let binary = isthmus().display().to_string();
    let ring = Mpi::OpenMpi.program("ring");
    let script = format!(
        "{binary} run -- mpirun.openmpi -n 2 --map-by node {ring} && {binary} run --each --no-prefix -- \
         sh -c 'echo on $ISTHMUS_NODE' && exit 7"
    );
    let words = [&binary, "alloc", "--pilots", "alpha=1,beta=1", "--time", "10m", "--", "sh", "-c", &script];
    let output = world.sh("n1.alpha", SOON, &words)?;
    let text = output.whole();
    ensure!(output.status == 7, "{text}");
    for words in
        [" No Errors", "2 ranks on 2 nodes at 2 sites", "of Slurm at alpha: n", "of Slurm at beta: n"]
    {
        ensure!(text.contains(words), "{words:?} is not in\n{text}");
    }
    let on: Vec<&str> = output.stdout.lines().filter_map(|line| line.strip_prefix("on ")).collect();
    ensure!(on.len() == 2 && on.iter().all(|node| node.contains("-root-p")), "{text}");
    logins.nothing_left(promised(GONE))
}

/// A shell ignores SIGTERM while it waits. `isthmus alloc` doesn't keep nodes for it.
#[test]
fn an_allocation_ends_by_a_signal() -> Result<()> {
    let world = GRID.take()?;
    let logins = Logins::start(&world)?;
    let binary = isthmus().display().to_string();
    let words =
        [&binary, "alloc", "--pilots", "alpha=1", "--", "sh", "-c", "trap '' TERM; echo; sleep 600; true"];
    let alloc = isthmus_e2e::Job::start(world.command("n1.alpha", SOON, &words)?)?;
    World::eventually("the command runs", SOON, || Ok(!world.processes("n1.alpha", "sleep")?.is_empty()))?;
    let pid = world.service("n1.alpha", "alloc")?;
    world.kill("n1.alpha", "-TERM", &pid)?;
    let (_, text) = alloc.end()?;
    ensure!(text.contains("giving the nodes back"), "{text}");
    logins.nothing_left(promised(GONE))
}

/// A process that stands still until this value is dropped.
struct Stopped<'a>(&'a World, &'static str, String);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.kill(self.1, "-CONT", &self.2) {
            eprintln!("process {} at {} doesn't go on: {error:#}", self.2, self.1);
        }
    }
}

#[test]
#[ignore = "test-all"]
fn a_scheduler_that_is_away_is_waited_for() -> Result<()> {
    let world = GRID.take()?;
    let logins = Logins::start(&world)?;
    let daemon = world.processes("n1.beta", "slurmctld")?.pop().context("no slurmctld")?;
    world.kill("n1.beta", "-STOP", &daemon)?;
    let stopped = Stopped(&world, "n1.beta", daemon);
    let run = isthmus_e2e::Job::start(logins.run("alpha=1,beta=1", &["hostname"])?)?;
    World::eventually("alpha's pilot is there", SOON, || {
        let agents = ["n2.alpha", "n3.alpha"].map(|node| world.processes(node, "/isthmus"));
        Ok(agents.into_iter().collect::<Result<Vec<_>>>()?.concat().len() == 1)
    })?;
    drop(stopped);
    let (status, text) = run.end()?;
    ensure!(status == 0 && text.contains("of Slurm at beta: n"), "{text}");
    logins.nothing_left(promised(GONE))
}

#[test]
#[ignore = "test-all"]
fn fifty_pilots_at_once() -> Result<()> {
    let world = GRID.take()?;
    let logins = Logins::start_for(&world, "50")?;
    let runs = (0..50).map(|_| isthmus_e2e::Job::start(logins.run("alpha=1", &["true"])?));
    let runs = runs.collect::<Result<Vec<_>>>()?;
    for run in runs {
        let (status, text) = run.end()?;
        ensure!(status == 0, "{text}");
    }
    logins.nothing_left(promised(GONE))
}

#[test]
#[ignore = "test-all"]
fn dask_runs_over_pilots() -> Result<()> {
    let world = GRID.take()?;
    let logins = Logins::start(&world)?;
    let program = isthmus_e2e::root().join("tests/programs/dask_cluster.py").display().to_string();
    let binary = isthmus().display().to_string();
    let run = [&binary, "run", "--pilots", "alpha=1,beta=1", "--time", "10m", "--each", "--no-prefix", "--"];
    let output = world.sh("n1.alpha", SOON, &[&run[..], &["/usr/bin/python3", &program]].concat())?;
    let right = "40 digests of the other worker's data are right";
    ensure!(output.status == 0 && output.stdout.contains(right), "{}", output.whole());
    logins.nothing_left(promised(GONE))
}
