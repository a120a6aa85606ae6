//! What the end-to-end tests share: emulated grids with real services, and
//! commands in their nodes, each with a deadline.

mod breaking;
mod built;
mod job;
mod lasting;
mod mpi;
mod pool;
mod printing;
mod programs;
mod promised;
mod prterun;
mod services;
mod stream;
mod ways;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use isthmus_lab::grid::{Role, Site};
use isthmus_lab::lab::Options;
use isthmus_lab::{Grid, Lab};

pub use built::{files, isthmus};
pub use job::Job;
pub use lasting::Lasting;
pub use mpi::Mpi;
pub use pool::{Places, Shared, SharedWorld};
pub use printing::Printing;
pub use programs::{compile_program, write_program};
pub use promised::promised;
pub use services::logs;
pub use stream::Stream;

/// Deadline of commands that only look at something. It guards against hanging only: on a busy
/// machine a command of a few milliseconds has taken seconds.
const LOOK: Duration = Duration::from_secs(60);
/// How long something of an ended job may be left. It guards against hanging only: tests of how
/// jobs end say themselves what is promised.
const CLEAN: Duration = Duration::from_secs(60);

/// The variable by which the Slurms of all grids confine jobs, as in `slurm_confines` of a grid file.
const SLURM_CONFINES: &str = "ISTHMUS_SLURM_CONFINES";

/// Path of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_owned).unwrap_or_default()
}

/// The directory in which `make` puts what it builds.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// A running grid with its services.
pub struct World {
    lab: Lab,
    /// The directory of files that a test and the nodes share.
    pub directory: tempfile::TempDir,
    /// The test's places. `None` while the pool has the grid.
    _places: Option<Places>,
}

/// The result of a command that has ended.
#[derive(Debug)]
pub struct Output {
    /// The command's exit status, or 128 + signal. 124 if it didn't end in time.
    pub status: i32,
    /// What the command wrote to its standard output.
    pub stdout: String,
    /// What the command wrote to its standard error.
    pub stderr: String,
    /// How long the command took.
    pub took: Duration,
}

impl Output {
    /// The command's status, time and both outputs, for failure messages.
    pub fn whole(&self) -> String {
        format!(
            "status {} after {:?}\n-- stdout\n{}\n-- stderr\n{}",
            self.status, self.took, self.stdout, self.stderr
        )
    }
}

impl World {
    /// Brings up the grid of this name in tests/grids with its services, for the calling test.
    ///
    /// # Errors
    /// The grid doesn't come up.
    pub fn up(name: &str) -> Result<Self> {
        let places = Places::one();
        Ok(Self { _places: Some(places), ..Self::start(name)? })
    }

    /// Brings up the grid of this name in tests/grids, with no other test beside the calling one.
    /// It is for tests that assert a time.
    ///
    /// # Errors
    /// The grid doesn't come up.
    pub fn up_alone(name: &str) -> Result<Self> {
        let places = Places::all();
        Ok(Self { _places: Some(places), ..Self::start(name)? })
    }

    /// Brings up the grid of this name in tests/grids. The caller must have a place.
    fn start(name: &str) -> Result<Self> {
        prterun::print_at_exit();
        let program = built::checked()?;
        let file = root().join("tests/grids").join(format!("{name}.toml"));
        let mut grid = Grid::load(&file)?;
        // Several grids of a kind may run at once.
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        grid.name = format!("{name}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        // Wherever the repository lies, nodes must see what is in it.
        grid.share.extend([root(), target()]);
        if std::env::var_os(SLURM_CONFINES).is_some_and(|value| !value.is_empty()) {
            let has_slurm = |site: &Site| site.nodes.iter().any(|node| node.roles.contains(&Role::Slurmd));
            for site in grid.sites.iter_mut().filter(|site| has_slurm(site)) {
                site.slurm_confines = true;
            }
        }
        let scratch = target().join("tmp");
        std::fs::create_dir_all(&scratch)?;
        let directory = tempfile::Builder::new().prefix("e2e-").tempdir_in(scratch)?;
        let options = Options { program, ..Options::default() };
        Ok(Self { lab: Lab::up_with(&grid, &options)?, directory, _places: None })
    }

    /// The lab that the grid runs in.
    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    /// A command in a node, which is ended after `deadline`.
    ///
    /// # Errors
    /// The grid has no such node.
    pub fn command(&self, node: &str, deadline: Duration, words: &[&str]) -> Result<Command> {
        let mut command = self.lab.machine(node)?.command("timeout");
        command.args(["--kill-after=5", &deadline.as_secs().to_string()]).args(words);
        for (name, value) in [
            ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
            ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
            ("PRTE_ALLOW_RUN_AS_ROOT", "1"),
            ("PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
            // Emulated nodes share few cores: ranks that wait must yield.
            ("OMPI_MCA_mpi_yield_when_idle", "1"),
            ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
        ] {
            command.env(name, value);
        }
        // Otherwise ranks of all nodes would be bound to the same core. Open MPI 5 doesn't get this
        // setting, as it crashes by it.
        if words.iter().any(|word| word.contains(&Mpi::OpenMpi.launcher())) {
            command.env("OMPI_MCA_hwloc_base_binding_policy", "none");
        }
        Ok(command)
    }

    /// Runs a command in a node and waits for its end.
    ///
    /// # Errors
    /// The command can't be run.
    pub fn sh(&self, node: &str, deadline: Duration, words: &[&str]) -> Result<Output> {
        let started = Instant::now();
        let output = self.command(node, deadline, words)?.stdin(Stdio::null()).output()?;
        Ok(Output {
            status: output.status.code().unwrap_or(128),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            took: started.elapsed(),
        })
    }

    /// Runs `isthmus run OPTIONS -- WORDS` in a node.
    ///
    /// A run in which Open MPI 5's prterun itself failed is repeated (see `prterun`), at most
    /// twice.
    ///
    /// # Errors
    /// The command can't be run.
    pub fn run(&self, node: &str, options: &[&str], words: &[&str]) -> Result<Output> {
        let program = isthmus().display().to_string();
        let mut all = vec![program.as_str(), "run"];
        all.extend(options);
        all.push("--");
        all.extend(words);
        if words.first().is_none_or(|launcher| *launcher != Mpi::OpenMpi5.launcher()) {
            return self.sh(node, Duration::from_secs(180), &all);
        }
        for attempt in 1.. {
            // Three labs on two busy cores have taken a run of 3 s to more than 30 s.
            let output = self.sh(node, Duration::from_secs(60), &all)?;
            if !prterun::failed(&output) || attempt == 3 {
                return Ok(output);
            }
            prterun::repeated(&output)?;
        }
        bail!("no attempt was made")
    }

    /// Starts a job of two ranks on each of some nodes that lasts until it is ended.
    ///
    /// # Errors
    /// The job can't be started.
    pub fn endless(&self, mpi: Mpi, nodes: &str, options: &[&str]) -> Result<Job> {
        self.begin(mpi, nodes, options, "die", &["never", "0", "sleep"])
    }

    /// Starts a job of two ranks on each of some nodes, which a test watches.
    ///
    /// # Errors
    /// The job can't be started.
    pub fn begin(
        &self,
        mpi: Mpi,
        nodes: &str,
        options: &[&str],
        program: &str,
        arguments: &[&str],
    ) -> Result<Job> {
        self.begin_for(Duration::from_secs(400), mpi, nodes, options, (program, arguments))
    }

    /// Starts a job of two ranks on each of some nodes, as [`begin`](Self::begin) does, which is
    /// ended after `deadline`.
    ///
    /// # Errors
    /// The job can't be started.
    pub fn begin_for(
        &self,
        deadline: Duration,
        mpi: Mpi,
        nodes: &str,
        options: &[&str],
        (program, arguments): (&str, &[&str]),
    ) -> Result<Job> {
        let binary = isthmus().display().to_string();
        let (launcher, program) = (mpi.launcher(), mpi.program(program));
        let ranks = (2 * nodes.split(',').count()).to_string();
        let mut words = vec![binary.as_str(), "run", "--nodes", nodes];
        words.extend(options);
        words.extend(["--", launcher.as_str(), "-n", &ranks, program.as_str()]);
        words.extend(arguments);
        Job::start(self.command("n1.alpha", deadline, &words)?)
    }

    /// Runs `isthmus run`, as [`World::run`] does, and returns the account that `--report` gives as
    /// well.
    ///
    /// # Errors
    /// The command can't be run or wrote no account.
    pub fn run_reported(
        &self,
        node: &str,
        options: &[&str],
        words: &[&str],
    ) -> Result<(Output, serde_json::Value)> {
        let file = self.directory.path().join("report.json");
        let _ = std::fs::remove_file(&file);
        let path = file.display().to_string();
        let mut all = options.to_vec();
        all.extend(["--report", &path]);
        let output = self.run(node, &all, words)?;
        let text =
            std::fs::read_to_string(&file).with_context(|| format!("no account; {}", output.whole()))?;
        Ok((output, serde_json::from_str(&text)?))
    }

    /// Ids and command lines of the processes in a node that belong to no service of the lab.
    ///
    /// # Errors
    /// The processes can't be listed.
    pub fn leftovers(&self, node: &str) -> Result<Vec<String>> {
        let listing = self.sh(node, LOOK, &["ps", "-eo", "pid=,args="])?;
        // A listing that was ended halfway would miss leftovers.
        ensure!(listing.status == 0, "{}", listing.whole());
        let service = |line: &str| {
            [
                "isthmus broker",
                "isthmus gateway",
                "isthmus agent",
                "isthmus relay",
                "isthmus-raw",
                "lab keeper",
                "lab machine",
                "ps -eo",
                "timeout ",
            ]
            .iter()
            .any(|known| line.contains(known))
                || line.trim_start().starts_with("1 ")
        };
        Ok(listing.stdout.lines().filter(|line| !service(line)).map(str::to_owned).collect())
    }

    /// Waits until no node has a process of a job or a job's directory left.
    ///
    /// # Errors
    /// Something stays. The error names it and its node.
    pub fn expect_clean(&self) -> Result<()> {
        self.expect_clean_within(CLEAN)
    }

    /// Waits until no node has a process of a job or a job's directory left, as promised within
    /// `deadline`.
    ///
    /// # Errors
    /// Something is left at the deadline. The error names it and its node.
    pub fn expect_clean_within(&self, deadline: Duration) -> Result<()> {
        let until = Instant::now() + deadline;
        loop {
            let mut left = Vec::new();
            for name in self.nodes() {
                let processes = self.leftovers(&name)?;
                let directories = self.sh(&name, LOOK, &["sh", "-c", "ls -d /run/isthmus/*/ 2>/dev/null"])?;
                left.extend(processes.into_iter().map(|line| format!("{name}: {line}")));
                left.extend(directories.stdout.lines().map(|line| format!("{name}: {line}")));
            }
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() > until {
                bail!("left behind after {deadline:?}:\n{}", left.join("\n"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Names of all nodes with an agent.
    pub fn nodes(&self) -> Vec<String> {
        let grid = &self.lab.record().grid;
        let nodes = grid.sites.iter().flat_map(|site| {
            site.nodes
                .iter()
                .filter(|node| node.roles.contains(&isthmus_lab::grid::Role::Agent))
                .map(|node| format!("{}.{}", node.name, site.name))
        });
        nodes.collect()
    }

    /// Waits until `holds` returns true. `what` describes that in the error.
    ///
    /// # Errors
    /// `holds` fails, or returns false at the deadline.
    pub fn eventually(what: &str, deadline: Duration, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
        let until = Instant::now() + deadline;
        while !holds()? {
            if Instant::now() > until {
                bail!("not within {deadline:?}: {what}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}
