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
            let more = ["root", "--nodes", "1", "--pilot-nodes", "4", "--out", &token];
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
    let refused = world.sh("n1.alpha", SOON, &[&binary, "run", "--pilots", "alpha=9", "--", "hostname"])?;
    let text = refused.whole();
    ensure!(refused.status == 125 && text.contains("it can't start as things are"), "{text}");
    let cancelled = world.sh("n1.beta", LOOK, &["scancel", &job])?;
    ensure!(cancelled.status == 0, "{}", cancelled.whole());
    logins.nothing_left(promised(GONE))
}
