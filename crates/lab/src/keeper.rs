//! The process all others of a lab are children of: it builds the lab,
//! reports when it stands, and waits for the order to end. When it ends, for any
//! reason, the kernel ends the rest.

mod build;
mod sweeper;

use std::convert::Infallible;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::Flock;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::dup2_stderr;
use serde::{Deserialize, Serialize};

use crate::emulator::DeviceKind;
use crate::grid::Grid;
use crate::groups;
use crate::process::{ProcessId, close_all_but};
use crate::services;
use crate::state::{LabDirectory, Record, StateError};

/// Pause between two looks whether the lab's processes have ended.
const LOOK: Duration = Duration::from_millis(2);

/// The keeper's input, as one line of JSON on its standard input. The process that writes it owns
/// the lab, which ends when that process does. If it sends another byte once the lab stands, the
/// lab stays.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    /// The grid to build.
    pub grid: Grid,
    /// Whether to start isthmus's own services on machines that have roles.
    pub services: bool,
    /// The devices that emulated links end at. `None`: the best that this user may use.
    pub devices: Option<DeviceKind>,
}

/// A message of the keeper to the process that started it, as one line of JSON on its standard
/// output.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Report {
    /// The lab stands and can be used.
    Ready,
    /// The lab doesn't stand, and nothing of it is left. The text says why.
    Failed(String),
}

/// Runs the keeper of a lab. Returns when the lab has ended.
pub(crate) fn run() -> anyhow::Result<()> {
    match keep() {
        Ok(()) => Ok(()),
        Err(error) => {
            report(&Report::Failed(format!("{error:#}")));
            Err(error)
        }
    }
}

fn keep() -> anyhow::Result<()> {
    // The lab may live longer than the process that started it, and must not keep that process's
    // files open.
    close_all_but(&[]);
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    let start: Start = serde_json::from_str(&line)?;
    let directory = LabDirectory::of(&start.grid.name);
    // Before there is something to sweep.
    let (sweeper, _alive) = sweeper::start(&directory)?;
    let lock = directory.claim()?;
    log_to(&directory)?;
    let signals = block_signals()?;

    let mut children = vec![ProcessId::of(sweeper)?];
    let result = build::build(&start, &directory, lock.as_fd(), &mut children)
        .and_then(|record| Ok(directory.write(&record).map(|()| record)?))
        .and_then(|record| match start.services {
            true => start_services(record, &directory, &signals, &mut children),
            false => Ok(record),
        })
        .and_then(|record| {
            if report(&Report::Ready) {
                Ok(record)
            } else {
                anyhow::bail!("the process that waited for the lab has ended")
            }
        });
    let result = result.and_then(|record| {
        close_standard_output()?;
        wait(&signals, &directory, &lock, record)
    });
    end(&children, &directory);
    let removed = if directory.is_locked_by(&lock) { directory.remove() } else { Ok(()) };
    match result {
        Ok(()) => Ok(removed?),
        Err(error) => Err(error),
    }
}

fn start_services(
    mut record: Record,
    directory: &LabDirectory,
    signals: &SignalFd,
    children: &mut Vec<ProcessId>,
) -> anyhow::Result<Record> {
    record.services = services::run::start(&record, directory, signals, children)?;
    // Faults may have changed the rest of it meanwhile.
    directory.update(|written| {
        written.services.clone_from(&record.services);
        Ok::<_, StateError>(())
    })?;
    Ok(record)
}

/// Sends messages to the lab's log from now on. The process that started the lab sees the standard
/// error end.
fn log_to(directory: &LabDirectory) -> anyhow::Result<()> {
    let log = OpenOptions::new().create(true).append(true).mode(0o600).open(directory.log())?;
    Ok(dup2_stderr(&log)?)
}

fn close_standard_output() -> anyhow::Result<()> {
    let null = File::options().write(true).open("/dev/null")?;
    Ok(nix::unistd::dup2_stdout(&null)?)
}

fn report(what: &Report) -> bool {
    let Ok(mut line) = serde_json::to_vec(what) else { return false };
    line.push(b'\n');
    io::stdout().lock().write_all(&line).is_ok()
}

fn block_signals() -> nix::Result<SignalFd> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGCHLD] {
        set.add(signal);
    }
    set.thread_block()?;
    SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
}

/// Waits until the lab is to end: its owner has ended, a signal says so, or its directory was
/// removed.
fn wait(
    signals: &SignalFd,
    directory: &LabDirectory,
    lock: &Flock<File>,
    record: Record,
) -> anyhow::Result<()> {
    let stdin = io::stdin();
    let mut tethered = true;
    let complain = |error: &Errno| eprintln!("cannot watch the lab's directory: {error}");
    let watch = watch(directory).inspect_err(complain).ok();
    // From here on, the watch reports it.
    if !directory.is_locked_by(lock) {
        return Ok(());
    }
    loop {
        let mut polled = vec![PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        polled.extend(watch.as_ref().map(|watch| PollFd::new(watch.as_fd(), PollFlags::POLLIN)));
        // Standard input is the last entry, if it is polled at all.
        if tethered {
            polled.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
        }
        match poll(&mut polled, PollTimeout::NONE) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        if tethered && polled.last().is_some_and(|stdin| stdin.any().unwrap_or(true)) {
            match nix::unistd::read(stdin.as_fd(), &mut [0; 256]) {
                Ok(1..) => tethered = false,
                Err(nix::Error::EINTR | nix::Error::EAGAIN) => {}
                // The owner of the lab has ended.
                Ok(0) | Err(_) => return Ok(()),
            }
        }
        if watch.as_ref().is_some_and(|watch| !matches!(watch.read_events(), Err(Errno::EAGAIN)))
            && !directory.is_locked_by(lock)
        {
            eprintln!("the lab's directory {} was removed", directory.path().display());
            return Ok(());
        }
        while let Some(signal) = signals.read_signal()? {
            if signal.ssi_signo != Signal::SIGCHLD as u32 {
                return Ok(());
            }
            report_the_dead(&record);
        }
    }
}

/// Watches for the removal of the lab's lock file. An ordinary user's runtime directory may be
/// removed at logout. Without a watch, the lab would stay, and no command would find it any more.
///
/// The watch is on the directory, not the file. When a file that is still open loses its name,
/// Linux tells it (`IN_ATTRIB`) a moment before the name is gone.
fn watch(directory: &LabDirectory) -> nix::Result<Inotify> {
    let watch = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
    let file = AddWatchFlags::IN_DELETE | AddWatchFlags::IN_MOVED_FROM;
    let itself = AddWatchFlags::IN_DELETE_SELF | AddWatchFlags::IN_MOVE_SELF;
    watch.add_watch(directory.path(), file | itself)?;
    Ok(watch)
}

fn report_the_dead(record: &Record) {
    while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
        let Some(pid) = status.pid() else { break };
        if let Some(what) = name_of(record, pid.as_raw()) {
            eprintln!("{what} ended ({})", describe(status));
        }
    }
}

/// The name of the part of the lab that a child process is. `None` if the child was only a helper.
fn name_of(record: &Record, pid: i32) -> Option<String> {
    let machine = record.machines.iter().find(|machine| machine.init.pid == pid);
    let service = record.services.iter().find(|service| service.process.pid == pid);
    let emulator = record.emulator.filter(|emulator| emulator.pid == pid);
    machine
        .map(|machine| format!("machine {}", machine.name))
        .or_else(|| service.map(|service| format!("{} at {}", service.role.command(), service.machine)))
        .or_else(|| emulator.map(|_| "the emulator".to_owned()))
}

fn describe(status: WaitStatus) -> String {
    match status {
        WaitStatus::Exited(_, code) => format!("exit status {code}"),
        WaitStatus::Signaled(_, signal, _) => format!("killed by {signal}"),
        other => format!("{other:?}"),
    }
}

/// Kills the children, and waits until they and all processes in their namespaces are gone.
fn end(children: &[ProcessId], directory: &LabDirectory) {
    for child in children {
        // The child may have ended by itself.
        let _ = child.signal(Signal::SIGKILL);
    }
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => std::thread::sleep(LOOK),
            Ok(_) | Err(nix::Error::EINTR) => continue,
            Err(_) => break,
        }
        // Slurm may have frozen a job just before it was killed itself.
        groups::thaw(directory.lab());
    }
    groups::remove(directory.lab());
}

/// Prints why the emulator ended. It never ends without an error.
fn complain<E: std::fmt::Display>(result: Result<Infallible, E>) {
    match result {
        Ok(never) => match never {},
        Err(error) => eprintln!("emulator: {error}"),
    }
}
