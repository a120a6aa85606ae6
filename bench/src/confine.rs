//! Network namespaces for a benchmark, gone with it however it ends.
//!
//! The benchmark runs in a PID namespace of its own, whose first process ends
//! with it: then, even by SIGKILL, the kernel kills everything it started, and
//! the network namespaces, held by processes only, go with them.

use std::ffi::OsStr;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use procfs::net::TcpState;
use procfs::process::Process;

/// Environment variable of the confined process: id of the process outside that started it.
const OUTSIDE: &str = "ISTHMUS_BENCH_OUTSIDE";
/// Environment variable of the confined process: a descriptor of the outer /proc, which has
/// everyone's processes.
const OUTSIDE_PROC: &str = "ISTHMUS_BENCH_OUTSIDE_PROC";
/// Longest wait until something is there, such as a namespace.
const DEADLINE: Duration = Duration::from_secs(10);

/// Goes on in a new process with a PID, mount and network namespace of its own. This process waits
/// for it and ends with its exit status. So the call returns in the new process only.
///
/// # Errors
/// The user isn't root, or the process can't be made.
pub(crate) fn enter() -> anyhow::Result<()> {
    if std::env::var_os(OUTSIDE).is_some() {
        return Ok(());
    }
    ensure!(nix::unistd::geteuid().is_root(), "this benchmark makes network namespaces: run it as root");
    // Left open for the confined process.
    let proc = nix::fcntl::open("/proc", OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty())?;
    // Killed when this process dies, and with it its child, the namespace's
    // first process.
    let status = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--", "unshare", "--kill-child=KILL"])
        .args(["--pid", "--fork", "--mount", "--mount-proc", "--net", "--"])
        // The namespace's orphans come to its first process; a shell waits for
        // them, which the end of a lab depends on.
        .args(["sh", "-c", "\"$@\"; exit $?", "sh"])
        .arg(std::env::current_exe().context("cannot find this program")?)
        .args(std::env::args_os().skip(1))
        .env(OUTSIDE, std::process::id().to_string())
        .env(OUTSIDE_PROC, proc.as_raw_fd().to_string())
        .status()
        .context("cannot run setpriv and unshare (package util-linux)")?;
    std::process::exit(status.code().unwrap_or(2));
}

/// The /proc with everyone's processes, and the id of this benchmark's first process in it.
pub(crate) fn outside() -> (PathBuf, i32) {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<i32>().ok());
    match (number(OUTSIDE_PROC), number(OUTSIDE)) {
        (Some(proc), Some(first)) => (format!("/proc/self/fd/{proc}").into(), first),
        _ => ("/proc".into(), std::process::id().cast_signed()),
    }
}

/// A host with nothing but a loopback interface: a network namespace.
#[derive(Debug)]
pub(crate) struct Host {
    holder: Child,
}

impl Host {
    /// Makes a host.
    ///
    /// # Errors
    /// The namespace can't be made within some seconds.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let holder = Command::new("unshare")
            .args(["--net", "--", "sleep", "infinity"])
            .stdin(Stdio::null())
            .spawn()
            .context("cannot run unshare")?;
        let host = Self { holder };
        let ours = std::fs::read_link("/proc/self/ns/net")?;
        wait_for("a network namespace", || {
            std::fs::read_link(host.namespace()).is_ok_and(|theirs| theirs != ours)
        })?;
        host.run(["ip", "link", "set", "lo", "up"])?;
        Ok(host)
    }

    fn namespace(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.holder.id()).into()
    }

    /// A command that will run on this host. Its process id is that of the program.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.namespace().display())).arg("--").arg(program);
        command
    }

    /// Runs a command on this host and waits for its end.
    ///
    /// # Errors
    /// The command fails. The error has its standard error.
    pub(crate) fn run<const N: usize>(&self, words: [&str; N]) -> anyhow::Result<()> {
        let (program, arguments) = words.split_first().context("no command")?;
        let output = self.command(program).args(arguments).stdin(Stdio::null()).output()?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`{}` failed: {}", words.join(" "), stderr.trim());
        Ok(())
    }

    /// Waits until a program on this host listens at a TCP port.
    ///
    /// # Errors
    /// No program does within some seconds.
    pub(crate) fn wait_for_listener(&self, port: u16) -> anyhow::Result<()> {
        let holder = Process::new(i32::try_from(self.holder.id())?)?;
        wait_for(&format!("a listener on port {port}"), || {
            holder.tcp().is_ok_and(|sockets| {
                sockets
                    .iter()
                    .any(|entry| entry.state == TcpState::Listen && entry.local_address.port() == port)
            })
        })
    }

    /// Lays a cable between two hosts. At each end is an interface named like the cable, with an
    /// address such as `10.0.1.1/24`.
    ///
    /// # Errors
    /// An interface can't be made or set up.
    pub(crate) fn connect(&self, other: &Self, cable: &str, addresses: (&str, &str)) -> anyhow::Result<()> {
        let (mine, theirs) = (self.holder.id().to_string(), other.holder.id().to_string());
        let add =
            ["link", "add", cable, "netns", &mine, "type", "veth", "peer", "name", cable, "netns", &theirs];
        let output = Command::new("ip").args(add).output().context("cannot run ip (package iproute2)")?;
        ensure!(output.status.success(), "ip: {}", String::from_utf8_lossy(&output.stderr).trim());
        for (host, address) in [(self, addresses.0), (other, addresses.1)] {
            host.run(["ip", "address", "add", address, "dev", cable])?;
            host.run(["ip", "link", "set", cable, "up"])?;
        }
        Ok(())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Gone already, if it fails.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// A process that is killed when this value is dropped.
#[derive(Debug)]
pub(crate) struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Calls `so` every few milliseconds until it returns true.
///
/// # Errors
/// It doesn't within some seconds.
pub(crate) fn wait_for(what: &str, mut so: impl FnMut() -> bool) -> anyhow::Result<()> {
    let start = Instant::now();
    while !so() {
        if start.elapsed() > DEADLINE {
            bail!("waited {} s for {what}", DEADLINE.as_secs());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
