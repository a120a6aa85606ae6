//! Agents that tests of pilots start beside the lab's: those on the login nodes, which submit batch
//! jobs; runs over nodes that they get, and what is left of these.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Lasting, Mpi, Output, Printing, World, isthmus};

use crate::clusters::{self, LOOK, SITES, SOON, VIA, login, sh};

/// Longest time of a run that a test ends, after which it is ended.
const LASTS: Duration = Duration::from_secs(600);
/// The state directory of the grid's broker, on hub.
pub(crate) const BROKER: &str = "/var/lib/isthmus/broker";

/// An agent on a site's login node, beside the lab's. It ends with this value.
pub(crate) struct Agent<'a> {
    world: &'a World,
    name: String,
    machine: String,
    /// A directory of programs that it finds before others of their names.
    programs: Option<PathBuf>,
}

impl<'a> Agent<'a> {
    /// Makes an agent a member of the grid by a token with these options of `isthmus grid invite`, and
    /// starts it with these further lines of configuration.
    pub(crate) fn start(
        world: &'a World,
        site: &str,
        name: (&str, &str),
        options: &[&str],
        lines: &str,
    ) -> Result<Self> {
        Self::start_by(world, (site, None), name, options, lines)
    }

    /// As [`start`](Self::start), with a directory of programs that the agent finds before others of
    /// their names.
    pub(crate) fn start_by(
        world: &'a World,
        (site, programs): (&str, Option<&Path>),
        (name, owner): (&str, &str),
        options: &[&str],
        lines: &str,
    ) -> Result<Self> {
        let programs = programs.map(Path::to_owned);
        let agent = Self { world, name: name.to_owned(), machine: login(site), programs };
        let state = agent.state();
        std::fs::create_dir_all(&state)?;
        let config = format!("[agent]\nruntime_directory = \"/run/isthmus-{name}\"\n{lines}");
        std::fs::write(state.join("isthmus.toml"), config)?;
        let token = world.directory.path().join(format!("{name}-{site}.token"));
        let _ = std::fs::remove_file(&token);
        let token = token.display().to_string();
        let invite = ["grid", "invite", "--state", BROKER, "--site", site, "--owner", owner, "--out", &token];
        isthmus_on(world, "hub", &[&invite[..], options].concat())?;
        let state = state.display().to_string();
        agent.up(&["--state", &state, "--token", &token, "--via", VIA, "--name", name])?;
        Ok(agent)
    }

    fn up(&self, options: &[&str]) -> Result<()> {
        let binary = isthmus().display().to_string();
        let path = std::env::var("PATH").unwrap_or_default();
        let path = match &self.programs {
            Some(programs) => format!("PATH={}:{path}", programs.display()),
            None => format!("PATH={path}"),
        };
        sh(self.world, &self.machine, &[&["env", &path, &binary, "up"][..], options].concat()).map(drop)
    }

    /// Its state directory, which all machines see.
    pub(crate) fn state(&self) -> PathBuf {
        self.world.directory.path().join(format!("{}-{}", self.name, self.machine))
    }

    /// The path of its socket on its machine.
    pub(crate) fn socket(&self) -> String {
        format!("/run/isthmus-{}/agent.sock", self.name)
    }

    /// Kills it, and starts it again.
    pub(crate) fn restart(&self) -> Result<()> {
        let process = self.process()?.context("it doesn't run")?;
        self.world.kill(&self.machine, "-KILL", &process)?;
        World::eventually("the agent is gone", SOON, || Ok(self.process()?.is_none()))?;
        self.up(&["--state", &self.state().display().to_string()])
    }

    /// The id of its process on its machine.
    fn process(&self) -> Result<Option<String>> {
        let state = self.state().display().to_string();
        let listing = sh(self.world, &self.machine, &["ps", "-eo", "pid=,args="])?.stdout;
        let found = listing.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            let pid = words.next()?;
            let is_agent = words.next()?.ends_with("/isthmus") && words.next()? == "agent";
            (is_agent && words.any(|word| word == state)).then(|| pid.to_owned())
        });
        Ok(found)
    }
}

impl Drop for Agent<'_> {
    fn drop(&mut self) {
        let state = self.state().display().to_string();
        if let Err(error) = isthmus_on(self.world, &self.machine, &["down", "--state", &state]) {
            eprintln!("the agent {} at {} isn't stopped: {error:#}", self.name, self.machine);
        }
    }
}

/// Runs an isthmus command that must succeed.
pub(crate) fn isthmus_on(world: &World, machine: &str, words: &[&str]) -> Result<Output> {
    let binary = isthmus().display().to_string();
    sh(world, machine, &[&[binary.as_str()], words].concat())
}

/// The command line of a run over nodes that the schedulers give, with these further options.
fn run_on<'w>(binary: &'w str, pilots: &'w str, options: &[&'w str], words: &[&'w str]) -> Vec<&'w str> {
    [&[binary, "run", "--pilots", pilots, "--time", "10m"][..], options, &["--"], words].concat()
}

/// The user's agents on the login nodes of both sites, which submit batch jobs. They end with this
/// value.
pub(crate) struct Logins<'a> {
    world: &'a World,
    agents: Vec<Agent<'a>>,
}

impl<'a> Logins<'a> {
    pub(crate) fn start(world: &'a World) -> Result<Self> {
        Self::start_for(world, "4")
    }

    /// Starts them with the right to so many nodes at a time each.
    pub(crate) fn start_for(world: &'a World, nodes: &str) -> Result<Self> {
        Self::start_by(world, nodes, SITES.map(|site| (site, "submit = \"slurm\"\n".to_owned(), None)))
    }

    /// Starts them with these further lines of configuration, and directories of programs.
    pub(crate) fn start_by(
        world: &'a World,
        nodes: &str,
        sites: [(&str, String, Option<&Path>); 2],
    ) -> Result<Self> {
        let options = ["--nodes", "1", "--pilot-nodes", nodes];
        let start = |(site, lines, programs): (&str, String, Option<&Path>)| {
            Agent::start_by(world, (site, programs), ("login", "root"), &options, &lines)
        };
        Ok(Self::of(world, sites.into_iter().map(start).collect::<Result<Vec<_>>>()?))
    }

    /// These agents.
    pub(crate) fn of(world: &'a World, agents: Vec<Agent<'a>>) -> Self {
        Self { world, agents }
    }

    /// The agent of a site.
    pub(crate) fn agent(&self, site: &str) -> Result<&Agent<'a>> {
        self.agents.iter().find(|agent| agent.machine == login(site)).context("no such site")
    }

    /// A run over nodes that the schedulers give.
    pub(crate) fn run(&self, pilots: &str, words: &[&str]) -> Result<Command> {
        self.run_with(pilots, &[], words)
    }

    /// As [`run`](Self::run), with these further options of `isthmus run`.
    pub(crate) fn run_with(&self, pilots: &str, options: &[&str], words: &[&str]) -> Result<Command> {
        let binary = isthmus().display().to_string();
        self.world.command("n1.alpha", SOON, &run_on(&binary, pilots, options, words))
    }

    /// A run over nodes that the schedulers give, whose output a test reads meanwhile.
    pub(crate) fn printing(&self, pilots: &str, words: &[&str]) -> Result<Printing> {
        self.printing_with(pilots, &[], words)
    }

    /// As [`printing`](Self::printing), with these further options of `isthmus run`.
    pub(crate) fn printing_with(&self, pilots: &str, options: &[&str], words: &[&str]) -> Result<Printing> {
        let binary = isthmus().display().to_string();
        Printing::start(self.world, "n1.alpha", LASTS, &run_on(&binary, pilots, options, words))
    }

    /// A run that waits for nodes of alpha, which others have. Its batch job is known to it.
    pub(crate) fn waiting(&self, nodes: &str) -> Result<Printing> {
        let run = self.printing(&format!("alpha={nodes}"), &["hostname"])?;
        run.prints("of Slurm at alpha waits")?;
        Ok(run)
    }

    /// A job with a rank on a node of each site, which lasts.
    pub(crate) fn lasting(&self) -> Result<Lasting> {
        let options = ["--pilots", "alpha=1,beta=1", "--time", "10m"];
        let launched = (Mpi::OpenMpi, &["-n", "2", "--map-by", "node"][..]);
        Lasting::start_by(self.world, "n1.alpha", &options, launched)
    }

    /// Checks that a job goes on and ends in order, and waits until nothing of its pilots is left.
    pub(crate) fn ends_well(&self, job: Lasting, deadline: Duration) -> Result<()> {
        job.goes_on()?;
        let (status, text) = job.end()?;
        ensure!(status == 0 && text.contains(" No Errors"), "status {status}\n{text}");
        // The run has heard of each pilot until its end.
        ensure!(!text.contains(" may go on, "), "{text}");
        self.nothing_left(deadline)
    }

    /// Waits until nothing of any pilot is left: no batch job, agent or member.
    pub(crate) fn nothing_left(&self, deadline: Duration) -> Result<()> {
        clusters::nothing_left(deadline, || self.left())
    }

    /// What is left of pilots.
    pub(crate) fn left(&self) -> Result<Vec<String>> {
        let mut all = left(self.world, &["root"])?;
        for agent in &self.agents {
            let records = std::fs::read_dir(agent.state().join("pilots")).into_iter().flatten().flatten();
            let records = records.map(|entry| entry.path().display().to_string());
            all.extend(records.filter(|path| path.ends_with(".pilot.json")));
        }
        Ok(all)
    }
}

/// What is left of pilots of these owners: batch jobs, agents and members.
pub(crate) fn left(world: &World, owners: &[&str]) -> Result<Vec<String>> {
    let mut all = clusters::queued(world)?;
    for name in clusters::of_jobs(world) {
        let agents = world.sh(&name, LOOK, &["pgrep", "-a", "isthmus"])?;
        all.extend(agents.stdout.lines().map(|line| format!("{name}: {line}")));
    }
    let members = isthmus_on(world, "hub", &["grid", "list", "--state", &format!("{BROKER}/admin")])?;
    let is_of_pilot = |line: &&str| owners.iter().any(|owner| line.contains(&format!("-{owner}-p")));
    all.extend(members.stdout.lines().filter(is_of_pilot).map(ToOwned::to_owned));
    Ok(all)
}
