//! An emulated grid in which the same command runs with isthmus and, for
//! reference, as people run it today: plain MPI over ssh.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use isthmus_lab::grid::{Role, Slow};
use isthmus_lab::lab::Options;
use isthmus_lab::{Grid, Lab};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::account;
use crate::confine::wait_for;
use crate::mpi::Mpi;

/// Longest time of a command in a node, after which it is ended. Here and below, slow motion makes it
/// longer.
const DEADLINE: Duration = Duration::from_secs(180);
/// How long a program may take to end after it has printed its figure.
const END: Duration = Duration::from_secs(20);

/// A running grid. Unless it was made without, each node has an sshd.
pub(crate) struct Bench {
    lab: Lab,
    slow: Slow,
    isthmus: PathBuf,
    nodes: Vec<Node>,
    files: tempfile::TempDir,
    daemons: Vec<Child>,
}

/// A node of a site.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// The node's name in the grid, which is its name in the lab, too.
    pub name: String,
    /// The node's address on its site's main network.
    pub address: Ipv4Addr,
}

/// Path of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_owned).unwrap_or_default()
}

/// The directory in which `make` puts what it builds.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

impl Bench {
    /// Brings up the grid of this name in bench/grids, in slow motion.
    pub(crate) fn up(name: &str, slow: Slow) -> anyhow::Result<Self> {
        let mut bench = Self::without_sshd(name, slow)?;
        bench.start_sshd()?;
        Ok(bench)
    }

    /// Brings up the grid of this name in bench/grids, in slow motion, for measurements that need no
    /// launcher, and so no sshd.
    pub(crate) fn without_sshd(name: &str, slow: Slow) -> anyhow::Result<Self> {
        Self::with(name, slow, target().join("release/isthmus"))
    }

    /// Brings up the grid of this name in bench/grids, in slow motion, with the isthmus command
    /// `isthmus`, and without sshd.
    pub(crate) fn with(name: &str, slow: Slow, isthmus: PathBuf) -> anyhow::Result<Self> {
        static LABS: AtomicUsize = AtomicUsize::new(0);
        ensure!(isthmus.is_file(), "{} is not there: run `make build`", isthmus.display());
        let mut grid = Grid::load(&root().join(format!("bench/grids/{name}.toml")))?.slowed(slow)?;
        let lab = LABS.fetch_add(1, Ordering::Relaxed);
        grid.name = format!("bench-{name}-{}-{lab}", std::process::id());
        // Wherever the repository lies, nodes must see what is in it.
        let directory = isthmus.parent().context("no directory")?.to_owned();
        grid.share.extend([root(), target(), directory]);
        let nodes = grid
            .sites
            .iter()
            .flat_map(|site| {
                site.nodes
                    .iter()
                    .map(|node| Node { name: format!("{}.{}", node.name, site.name), address: node.address })
            })
            .collect();
        let scratch = target().join("tmp");
        fs::create_dir_all(&scratch)?;
        let files = tempfile::Builder::new().prefix("bench-").tempdir_in(scratch)?;
        let options = Options { program: isthmus.clone(), ..Options::default() };
        let lab = Lab::up_with(&grid, &options)?;
        Ok(Self { lab, slow, isthmus, nodes, files, daemons: Vec::new() })
    }

    /// How slow the network is.
    pub(crate) fn slow(&self) -> Slow {
        self.slow
    }

    /// All nodes of the grid's sites.
    pub(crate) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// A directory for files, which all nodes see. It ends with this value.
    pub(crate) fn scratch(&self) -> &Path {
        self.files.path()
    }

    /// Path of the isthmus command.
    pub(crate) fn isthmus(&self) -> &Path {
        &self.isthmus
    }

    /// Process id of the sshd in a node, given by its index. The sshd's sessions are its
    /// descendants.
    pub(crate) fn sshd(&self, node: usize) -> anyhow::Result<u32> {
        self.daemons.get(node).map(Child::id).context("no such node")
    }

    /// Process id of the agent in a node.
    pub(crate) fn agent(&self, node: &str) -> anyhow::Result<u32> {
        let services = &self.lab.record().services;
        let stand_in = services
            .iter()
            .find(|service| service.machine == node && service.role == Role::Agent)
            .with_context(|| format!("no agent in {node}"))?;
        account::descendants(u32::try_from(stand_in.process.pid)?)?
            .into_iter()
            .find(|pid| {
                let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                words.split(|byte| *byte == 0).nth(1) == Some(b"agent")
            })
            .with_context(|| format!("the agent in {node} has ended"))
    }

    /// Process ids of isthmus's services in the machines that `is_meant`, by their names. Programs
    /// that agents have started are descendants.
    pub(crate) fn services_in(&self, is_meant: impl Fn(&str) -> bool) -> anyhow::Result<Vec<u32>> {
        let services = self.lab.record().services.iter().filter(|service| is_meant(&service.machine));
        services.map(|service| Ok(u32::try_from(service.process.pid)?)).collect()
    }

    /// Processor time so far of isthmus's services in the machines that `is_meant`, by their names.
    /// Programs that agents have started are included.
    pub(crate) fn services_cpu_time(&self, is_meant: impl Fn(&str) -> bool) -> anyhow::Result<Duration> {
        self.services_in(is_meant)?.into_iter().map(account::cpu_time).sum()
    }

    /// The lab that the grid runs in.
    pub(crate) fn lab(&self) -> &Lab {
        &self.lab
    }

    fn start_sshd(&mut self) -> anyhow::Result<()> {
        let at = |name: &str| self.files.path().join(name);
        for key in ["host", "user"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(at(key))
                .status()?;
            ensure!(made.success(), "ssh-keygen failed");
        }
        fs::copy(at("user.pub"), at("authorized"))?;
        fs::write(
            at("sshd_config"),
            format!(
                "HostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nPidFile none\nUsePAM no\n\
                 PermitRootLogin prohibit-password\nPermitUserEnvironment no\nMaxStartups 200\nAcceptEnv *\n",
                at("host").display(),
                at("authorized").display()
            ),
        )?;
        // The agents' own way is no terminal and no banner, either.
        fs::write(
            at("ssh_config"),
            format!(
                "IdentityFile {}\nStrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\nBatchMode yes\n",
                at("user").display()
            ),
        )?;
        let ssh = at("ssh");
        fs::write(&ssh, format!("#!/bin/sh\nexec ssh -F {} \"$@\"\n", at("ssh_config").display()))?;
        fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755))?;
        let serve =
            format!("mkdir -p /run/sshd && exec /usr/sbin/sshd -D -e -f {}", at("sshd_config").display());
        for node in &self.nodes {
            let machine = self.lab.machine(&node.name)?;
            let daemon = machine
                .command("sh")
                .args(["-c", &serve])
                .stdin(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?;
            self.daemons.push(daemon);
            let address = (node.address, 22);
            machine.in_network(|| {
                wait_for("sshd listens", || std::net::TcpStream::connect(address).is_ok())
            })??;
        }
        Ok(())
    }

    /// Path of the program that the references use instead of ssh.
    pub(crate) fn ssh(&self) -> PathBuf {
        self.files.path().join("ssh")
    }

    /// A command in a node that ends after some minutes at the latest. Its environment suits MPIs
    /// whose many ranks share few cores.
    pub(crate) fn command(&self, node: &str, words: &[String]) -> anyhow::Result<Command> {
        self.limited(node, words, self.slow.time(DEADLINE))
    }

    fn limited(&self, node: &str, words: &[String], deadline: Duration) -> anyhow::Result<Command> {
        let timeout = format!("timeout --kill-after=5 {}", deadline.as_secs());
        let mut command = self.standing(node, &crate::grid::words(&timeout))?;
        command.args(words).stdin(Stdio::null());
        Ok(command)
    }

    /// Runs a command and returns all that it wrote, whether it failed or not. It is ended if its
    /// output is still open some seconds after its first line.
    pub(crate) fn attempt(&self, node: &str, words: &[String], deadline: Duration) -> anyhow::Result<Output> {
        let mut command = self.limited(node, words, deadline)?;
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let pipes = child.stdout.take().zip(child.stderr.take());
        let (stdout, mut stderr) = pipes.context("no pipes")?;
        let (line_tx, line_rx) = mpsc::channel();
        let out = thread::spawn(move || {
            let (mut stdout, mut read) = (BufReader::new(stdout), Vec::new());
            stdout.read_until(b'\n', &mut read)?;
            let _ = line_tx.send(());
            stdout.read_to_end(&mut read)?;
            drop(line_tx);
            io::Result::Ok(read)
        });
        let err = thread::spawn(move || {
            let mut read = Vec::new();
            stderr.read_to_end(&mut read).map(|_| read)
        });
        let written = line_rx.recv();
        if written.is_ok() && line_rx.recv_timeout(self.slow.time(END)) == Err(RecvTimeoutError::Timeout) {
            kill(Pid::from_raw(i32::try_from(child.id())?), Signal::SIGTERM)?;
        }
        let status = child.wait()?;
        let join = |thread: JoinHandle<io::Result<Vec<u8>>>| thread.join().ok().context("a reader panicked");
        Ok(Output { status, stdout: join(out)??, stderr: join(err)?? })
    }

    /// A command in a node without a deadline, for programs that run as long as the benchmark. Its
    /// environment suits MPIs whose many ranks share few cores.
    pub(crate) fn standing(&self, node: &str, words: &[String]) -> anyhow::Result<Command> {
        let (program, arguments) = words.split_first().context("no command")?;
        let mut command = self.lab.machine(node)?.command(program);
        command.args(arguments);
        for (name, value) in [
            ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
            ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
            ("OMPI_MCA_mpi_yield_when_idle", "1"),
            ("OMPI_MCA_hwloc_base_binding_policy", "none"),
            ("PRTE_MCA_hwloc_default_binding_policy", "none"),
            ("PRTE_ALLOW_RUN_AS_ROOT", "1"),
            ("PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        ] {
            command.env(name, value);
        }
        Ok(command)
    }

    /// Runs a command in a node and returns its standard output. The error of a failed command has
    /// all its output.
    pub(crate) fn output(&self, node: &str, words: &[String]) -> anyhow::Result<String> {
        let output = self.command(node, words)?.output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            bail!(
                "{} in {node}: {}\n{text}\n{}",
                words.join(" "),
                output.status,
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(text)
    }

    /// Words of a command that starts the MPI's launcher with these arguments as a job of isthmus.
    /// `options` are those of `isthmus run`.
    pub(crate) fn ours(
        &self,
        mpi: Mpi,
        options: &[&str],
        nodes: &[Node],
        arguments: &[String],
    ) -> Vec<String> {
        let names = nodes.iter().map(|node| node.name.clone()).collect::<Vec<_>>().join(",");
        let isthmus = self.isthmus.display().to_string();
        let mut words: Vec<String> =
            [isthmus.as_str(), "run", "--quiet", "--nodes", &names].map(str::to_owned).to_vec();
        words.extend(options.iter().map(|option| (*option).to_owned()));
        words.extend(["--".to_owned(), mpi.launcher()]);
        words.extend_from_slice(arguments);
        words
    }

    /// Words of a command that starts the MPI's launcher with these arguments over ssh. It uses the
    /// same transports as a job of isthmus.
    pub(crate) fn plain(&self, mpi: Mpi, nodes: &[Node], slots: u32, arguments: &[String]) -> Vec<String> {
        let mut words = vec![mpi.launcher()];
        words.extend(mpi.over_ssh(&self.ssh(), nodes, slots));
        words.extend_from_slice(arguments);
        words
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

/// The words of a text, as the functions of a grid take commands.
pub(crate) fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Reads the first line of a program's output that is a JSON object.
pub(crate) fn json(output: &str) -> anyhow::Result<serde_json::Value> {
    let line = output
        .lines()
        .find(|line| line.starts_with('{'))
        .with_context(|| format!("no figures in {output:?}"))?;
    serde_json::from_str(line).with_context(|| format!("cannot read {line:?}"))
}
