//! The supervisor process: one thread, one `poll` loop.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use isthmus_wire::launchers::DAEMONS;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{Pid, getpid};

use super::message::{END, FROM_TERMINAL, GONE, GRACE, KILLED, MESSAGE_LEN, NAME_LEN, SIGNALLED, STATUS};
use super::tree;

/// The supervisor's command line.
#[derive(Debug)]
pub struct Options {
    /// Descriptor number of the control socket.
    pub control: RawFd,
    /// Whether the command gets a session of its own, as by a remote login.
    pub session: bool,
    /// The command and its arguments.
    pub command: Vec<OsString>,
}

/// Runs the command and returns once no descendant is left.
///
/// # Errors
/// If the process can't be set up. A failure of the command is reported over the
/// control socket instead.
pub fn run(options: Options) -> io::Result<ExitCode> {
    // SAFETY: the parent made this descriptor for this process, and nothing else here
    // uses it.
    let control = UnixStream::from(unsafe { OwnedFd::from_raw_fd(options.control) });
    control.set_nonblocking(true)?;
    nix::fcntl::fcntl(&control, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC))?;
    nix::sys::prctl::set_child_subreaper(true)?;
    if options.session {
        nix::unistd::setsid()?;
    }
    let mut signals = SigSet::empty();
    // The terminal sends SIGINT, SIGQUIT and SIGHUP to the command as well. The
    // supervisor only counts them. A batch system sends SIGUSR1 and SIGUSR2 to all of a job step.
    for signal in [
        Signal::SIGCHLD,
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGHUP,
        Signal::SIGTERM,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
    ] {
        signals.add(signal);
    }
    signals.thread_block()?;
    let signal_fd = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;

    let mut supervisor = Supervisor {
        control,
        signal_fd,
        command: None,
        from_terminal: HashMap::new(),
        killed: HashSet::new(),
        passed_on: Vec::new(),
        is_told: false,
        is_unreaped: false,
        ending: None,
        killing: false,
    };
    supervisor.start(&options.command)?;
    loop {
        supervisor.reap();
        if ended_child() == Err(Errno::ECHILD) {
            break;
        }
        // After the reaping: a launcher may notice the loss of its daemon before this
        // process does, and have a signal passed on.
        supervisor.read_signals();
        // A child may have ended since then: nothing else tells of it.
        if supervisor.is_unreaped {
            continue;
        }
        supervisor.read_control();
        let timeout = supervisor.kill_step();
        let mut polled = [
            PollFd::new(supervisor.signal_fd.as_fd(), PollFlags::POLLIN),
            PollFd::new(supervisor.control.as_fd(), PollFlags::POLLIN),
        ];
        // A control socket at its end would make poll return at once for ever.
        let count = if supervisor.ending.is_some() { 1 } else { 2 };
        match poll(&mut polled[..count], timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    supervisor.report(GONE, i32::try_from(supervisor.killed.len()).unwrap_or(i32::MAX));
    Ok(ExitCode::SUCCESS)
}

/// The text for the user of why a program could not be started.
fn unstarted(program: &Path, error: &io::Error) -> String {
    let name = program.display();
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT) if program.is_file() => {
            format!("cannot start {name}: the interpreter or loader that it names is missing")
        }
        Some(Errno::ENOENT) => format!("{name}: command not found on this node"),
        Some(Errno::ENOEXEC) => {
            format!(
                "cannot start {name}: it is no program of this machine, and no script that begins with #!"
            )
        }
        Some(known) => format!("cannot start {name}: {}", known.desc()),
        None => format!("cannot start {name}: {error}"),
    }
}

/// The status of a child that has ended. The child isn't collected: until it is, its name can be
/// read, and no end goes unnoticed.
fn ended_child() -> nix::Result<WaitStatus> {
    waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT)
}

struct Supervisor {
    control: UnixStream,
    signal_fd: SignalFd,
    /// The process id of the command itself, while it runs.
    command: Option<Pid>,
    /// How often the terminal has sent each signal, less those of which the parent has told. The
    /// command has these signals as well.
    from_terminal: HashMap<Signal, u32>,
    killed: HashSet<i32>,
    /// The signals that the parent has had this process pass on, each once.
    passed_on: Vec<Signal>,
    /// Whether another party has sent SIGTERM to this process. It was sent to this process's group,
    /// or to all of a session or a machine, so the command has it as well.
    is_told: bool,
    /// Whether the kernel has told of a child's end since the last reaping.
    is_unreaped: bool,
    /// When the end of the command was ordered; `None` before that.
    ending: Option<Instant>,
    /// Whether descendants have been sent SIGKILL after the grace period.
    killing: bool,
}

impl Supervisor {
    fn start(&mut self, command: &[OsString]) -> io::Result<()> {
        let [program, arguments @ ..] = command else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no command given"));
        };
        // A signal to all of a group reaches only those that are there.
        self.read_signals();
        if self.is_told {
            self.report(STATUS, 128 + Signal::SIGTERM as i32);
            return Ok(());
        }
        let mut command = Command::new(program);
        command.args(arguments);
        // SAFETY: both calls are async-signal-safe and touch only the new
        // process.
        unsafe {
            command.pre_exec(|| {
                SigSet::all().thread_unblock()?;
                nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
                Ok(())
            })
        };
        match command.spawn() {
            Ok(child) => {
                // It may run for a while already, and has a SIGTERM that has come meanwhile. One that
                // came in the moment before the fork it has missed: it ends after the grace period.
                self.command = i32::try_from(child.id()).ok().map(Pid::from_raw);
                self.read_signals();
                // The command may have missed what came of the terminal.
                self.from_terminal.clear();
            }
            Err(error) => {
                eprintln!("isthmus: {}", unstarted(Path::new(program), &error));
                let status = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
                self.report(STATUS, status);
            }
        }
        Ok(())
    }

    /// Collects the children that have ended, adopted descendants too, and reports ends by signals.
    fn reap(&mut self) {
        self.is_unreaped = false;
        loop {
            let (pid, status) = match ended_child() {
                Ok(WaitStatus::Exited(pid, status)) => (pid, status),
                Ok(WaitStatus::Signaled(pid, signal, _)) => {
                    if self.command == Some(pid) {
                        if !self.is_ours(signal) {
                            self.report(SIGNALLED, signal as i32);
                        }
                    } else {
                        let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
                        self.report_killed(signal, name.trim_ascii_end());
                    }
                    (pid, 128 + signal as i32)
                }
                Ok(_) | Err(_) => return,
            };
            // Nobody else collects the child.
            let _ = waitpid(pid, Some(WaitPidFlag::WNOHANG));
            if self.command == Some(pid) {
                self.command = None;
                // A shell tells by its status that a signal ended its command.
                if let Ok(signal) = Signal::try_from(status - 128) {
                    self.report_killed(signal, b"");
                }
                self.report(STATUS, status);
            }
        }
    }

    /// Whether this process may have sent a signal itself.
    fn is_ours(&self, signal: Signal) -> bool {
        self.killing
            || self.passed_on.contains(&signal)
            || (self.ending.is_some() && signal == Signal::SIGTERM)
    }

    /// Reports a process's end by a signal that neither this process nor the command sent. `name`
    /// is the process's name, empty for the command itself.
    ///
    /// A launcher may notice the loss of its daemon, and have the job ended, before the report is
    /// read.
    fn report_killed(&self, signal: Signal, name: &[u8]) {
        // A command that was signalled may kill what it has started, but no daemon.
        let is_daemon = name.is_empty() || DAEMONS.iter().any(|daemon| daemon.as_bytes() == name);
        if self.is_ours(signal) || (!self.passed_on.is_empty() && !is_daemon) {
            return;
        }
        let mut padded = [0; NAME_LEN];
        let length = name.len().min(NAME_LEN);
        padded[..length].copy_from_slice(&name[..length]);
        self.report(KILLED, signal as i32);
        let _ = (&self.control).write_all(&padded);
    }

    fn read_signals(&mut self) {
        while let Ok(Some(info)) = self.signal_fd.read_signal() {
            let signal = i32::try_from(info.ssi_signo).ok().and_then(|number| Signal::try_from(number).ok());
            match signal {
                Some(Signal::SIGTERM) => {
                    self.is_told = true;
                    self.end();
                }
                Some(Signal::SIGCHLD) => self.is_unreaped = true,
                Some(signal) if info.ssi_code == libc::SI_KERNEL => {
                    *self.from_terminal.entry(signal).or_default() += 1;
                }
                _ => {}
            }
        }
    }

    /// Whether the command already has a signal of the terminal of which the parent tells.
    fn has(&mut self, signal: Signal) -> bool {
        let had = self.from_terminal.get_mut(&signal).filter(|count| **count > 0);
        had.map(|count| *count -= 1).is_some()
    }

    /// Reads the parent's orders.
    fn read_control(&mut self) {
        let mut bytes = [0; 16];
        loop {
            match self.control.read(&mut bytes) {
                Ok(0) => return self.end(),
                Ok(count) => {
                    for &byte in &bytes[..count] {
                        self.take_order(byte);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return self.end(),
            }
        }
    }

    fn take_order(&mut self, byte: u8) {
        if byte == END {
            return self.end();
        }
        let Ok(signal) = Signal::try_from(i32::from(byte & !FROM_TERMINAL)) else { return };
        if byte & FROM_TERMINAL != 0 && self.has(signal) {
            return;
        }
        // A second SIGTERM has Open MPI's launcher exit at once, without its cleanup. A SIGTERM
        // that was sent to all of a group before may not have been read here yet.
        if signal == Signal::SIGTERM {
            self.read_signals();
            if self.has_term() {
                return;
            }
        }
        if let Some(pid) = self.command {
            // These two only tell something. A command that ends by them was ended by who sent them.
            let tells = matches!(signal, Signal::SIGUSR1 | Signal::SIGUSR2);
            if !tells && !self.passed_on.contains(&signal) {
                self.passed_on.push(signal);
            }
            // The command may have just ended.
            let _ = kill(pid, signal);
        }
    }

    fn end(&mut self) {
        if self.ending.is_none() {
            let spared = self.command.filter(|_| self.has_term());
            self.ending = Some(Instant::now());
            self.signal_descendants(Signal::SIGTERM, spared);
            self.signal_descendants(Signal::SIGCONT, None);
        }
    }

    /// Whether the command has got SIGTERM.
    fn has_term(&self) -> bool {
        self.is_told || self.ending.is_some() || self.passed_on.contains(&Signal::SIGTERM)
    }

    /// Kills the descendants that are left after the grace period. Returns how long to wait for the
    /// next event.
    fn kill_step(&mut self) -> PollTimeout {
        let Some(since) = self.ending else { return PollTimeout::NONE };
        let left = GRACE.saturating_sub(since.elapsed());
        if left.is_zero() {
            self.killing = true;
            // A process that ends takes a while, and is signalled again.
            self.killed.extend(self.signal_descendants(Signal::SIGKILL, None));
            // Repeated soon: a process may have forked meanwhile.
            return PollTimeout::from(50u8);
        }
        PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO)
    }

    /// Sends all descendants a signal, but not to `spared`. Returns those that could be signalled.
    fn signal_descendants(&self, signal: Signal, spared: Option<Pid>) -> Vec<i32> {
        let mut descendants = tree::descendants(getpid().as_raw(), &tree::snapshot());
        descendants.retain(|pid| {
            let pid = Pid::from_raw(*pid);
            Some(pid) != spared && kill(pid, signal).is_ok()
        });
        descendants
    }

    fn report(&self, kind: u8, value: i32) {
        let mut message = [0; MESSAGE_LEN];
        message[0] = kind;
        message[1..].copy_from_slice(&value.to_ne_bytes());
        // Writing fails if the parent is gone; the supervisor's work goes on.
        let _ = (&self.control).write_all(&message);
    }
}
