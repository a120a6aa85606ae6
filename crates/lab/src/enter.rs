//! Running a command in a machine of the lab, as if one had logged in there.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use caps::CapsHashSet;
use nix::fcntl::OFlag;
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, pipe2};

use crate::clock;
use crate::groups;
use crate::machine::NAMESPACES;
use crate::mounts::{private_above, runtime_directory};
use crate::network;
use crate::process::die_with_parent;
use crate::rootless;
use crate::services::{grid_engine, slurm};
use crate::state::MachineRecord;

#[derive(Debug)]
pub(crate) struct Job {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Variables set on top of the caller's environment.
    pub environment: Vec<(String, String)>,
    /// The directory to run the command in. `None`: the caller's directory if the machine has it,
    /// else `/`.
    pub directory: Option<PathBuf>,
    /// Whether standard error gets a line if the command doesn't run in the caller's directory.
    pub says_where: bool,
    /// Whether the command of an ordinary user has root's rights over the
    /// machine's network.
    pub privileged: bool,
}

/// Exit status when a program can't be run, as shells have it.
const CANNOT_RUN: i32 = 126;
/// Exit status when the program doesn't exist, as shells have it.
const NOT_FOUND: i32 = 127;

/// Runs a command in a machine. Returns its exit status, or 128 plus the number of the signal that
/// ended it. When this process ends, the command is killed. Signals sent to this process are passed
/// on.
///
/// The caller must have one thread only.
pub(crate) fn run(machine: &MachineRecord, job: &Job) -> anyhow::Result<u8> {
    let gone = || format!("machine {} is gone", machine.name);
    let init = machine.init.open().with_context(gone)?;
    // Only children are in the new PID namespace, so this process itself stays where it is. But it
    // enters the user namespace of an ordinary user's lab: without that namespace's rights, it
    // could not enter the others.
    let user = rootless::entry_flag(machine.init.pid).with_context(gone)?;
    setns(&init, user | CloneFlags::CLONE_NEWPID).with_context(gone)?;
    let (alive, alive_writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
    let (before, signals) = block_signals()?;
    // SAFETY: there is one thread only.
    match unsafe { fork() }? {
        ForkResult::Child => {
            drop(alive_writer);
            let (status, error) = match become_command(&init, &alive, &before, machine, job) {
                Ok(never) => match never {},
                Err(failure) => failure,
            };
            eprintln!("isthmus lab: {}: {error}", machine.name);
            std::process::exit(status)
        }
        ForkResult::Parent { child } => {
            rootless::keep_only(&CapsHashSet::new())?;
            Ok(wait(child, &signals)?)
        }
    }
}

fn become_command(
    init: &OwnedFd,
    parent: &OwnedFd,
    signal_mask: &SigSet,
    machine: &MachineRecord,
    job: &Job,
) -> Result<std::convert::Infallible, (i32, String)> {
    let failed = |step: &'static str| move |error: nix::Error| (CANNOT_RUN, format!("{step}: {error}"));
    die_with_parent().map_err(failed("parent-death signal"))?;
    // The parent may have ended before the line above: then the pipe has.
    if nix::unistd::read(parent, &mut [0]) == Ok(0) {
        return Err((CANNOT_RUN, "the caller ended".into()));
    }
    let caller_directory = std::env::current_dir();
    let mut namespaces = NAMESPACES.difference(CloneFlags::CLONE_NEWPID);
    if let Some(group) = groups::of_machine(machine.init.pid) {
        groups::join(&group)
            .map_err(|error| (CANNOT_RUN, format!("the machine's control group: {error}")))?;
        namespaces |= CloneFlags::CLONE_NEWCGROUP;
    }
    setns(init, namespaces).map_err(failed("entering the machine"))?;
    let kept = if job.privileged { rootless::network_rights() } else { CapsHashSet::new() };
    rootless::keep_only(&kept).map_err(|error| (CANNOT_RUN, error.to_string()))?;
    let [program, arguments @ ..] = job.command.as_slice() else {
        return Err((CANNOT_RUN, "no command given".into()));
    };
    match (&job.directory, caller_directory) {
        (Some(directory), _) => std::env::set_current_dir(directory)
            .map_err(|error| (CANNOT_RUN, format!("directory {}: {error}", directory.display())))?,
        (None, Ok(directory)) if std::env::set_current_dir(&directory).is_ok() => {}
        (None, caller) => {
            if let (true, Ok(directory)) = (job.says_where, caller) {
                eprintln!("isthmus lab: {}", elsewhere(&machine.name, &directory));
            }
            std::env::set_current_dir("/").map_err(|error| (CANNOT_RUN, format!("directory /: {error}")))?;
        }
    }
    let mut command = Command::new(program);
    command.args(arguments);
    // What stands for a directory that the machine doesn't have misleads.
    for name in ["TMPDIR", "XDG_RUNTIME_DIR"] {
        if std::env::var_os(name).is_some_and(|directory| !PathBuf::from(directory).is_dir()) {
            command.env_remove(name);
        }
    }
    if let Some(directory) = runtime_directory() {
        command.env("XDG_RUNTIME_DIR", directory);
    }
    if job.privileged {
        // The programs that these rights are for often aren't in an ordinary
        // user's path.
        command.env("PATH", network::with_system_directories(std::env::var_os("PATH")));
    }
    if PathBuf::from(slurm::CONFIGURATION).is_file() {
        command.env("SLURM_CONF", slurm::CONFIGURATION);
    }
    if PathBuf::from(grid_engine::BOOTSTRAP).is_file() {
        command.envs(grid_engine::VARIABLES);
    }
    command.envs(clock::variables(machine.clock_ahead_seconds));
    command.envs(job.environment.iter().map(|(name, value)| (name, value)));
    command.env("ISTHMUS_LAB_MACHINE", &machine.name);
    signal_mask.thread_set_mask().map_err(failed("signal mask"))?;
    let error = command.exec();
    let status = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN };
    let hint = match PathBuf::from(program) {
        path if status == NOT_FOUND && path.is_absolute() && crate::mounts::is_private(&path) => {
            "; each machine of the lab has its own directory there: list the program's directory \
             under `share` in the grid file"
        }
        _ => "",
    };
    Err((status, format!("cannot run {program}: {error}{hint}")))
}

/// Text that a machine lacks the caller's directory, why, and what to do about it.
fn elsewhere(machine: &str, directory: &Path) -> String {
    let why = private_above(directory).map(|private| format!(" (its {private} is its own)"));
    format!(
        "{machine} has no {}{}: the command runs in /; give --cwd DIR, or list it under `share` in the grid file",
        directory.display(),
        why.unwrap_or_default()
    )
}

/// Signals that are passed on to the command.
const PASSED_ON: [Signal; 7] = [
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGCONT,
];

/// Has signals read from a descriptor. Returns the earlier signal mask, and the descriptor.
fn block_signals() -> nix::Result<(SigSet, SignalFd)> {
    let mut set: SigSet = PASSED_ON.into_iter().collect();
    set.add(Signal::SIGCHLD);
    let before = set.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    Ok((before, SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC)?))
}

fn wait(child: Pid, signals: &SignalFd) -> nix::Result<u8> {
    loop {
        let Some(signal) = signals.read_signal()? else { continue };
        let from_terminal = signal.ssi_code == libc::SI_KERNEL;
        match Signal::try_from(signal.ssi_signo as i32)? {
            Signal::SIGCHLD => match waitpid(child, Some(WaitPidFlag::WNOHANG))? {
                WaitStatus::Exited(_, status) => return Ok(status as u8),
                WaitStatus::Signaled(_, signal, _) => return Ok(128 + signal as u8),
                WaitStatus::Stopped(..)
                | WaitStatus::Continued(_)
                | WaitStatus::StillAlive
                | WaitStatus::PtraceEvent(..)
                | WaitStatus::PtraceSyscall(_) => {}
            },
            // The command is in the terminal's foreground group as well, and has got this signal
            // itself. But the kernel tells the end of a terminal to the session's leader alone.
            other if from_terminal && other != Signal::SIGHUP => {}
            // The command may have ended just now.
            other => drop(kill(child, other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_directory_is_told_with_its_reason() {
        for (directory, want) in [
            ("/tmp/x/y", "n1.alpha has no /tmp/x/y (its /tmp is its own): the command runs in /; give --cwd"),
            ("/root/x", "n1.alpha has no /root/x: the command runs in /"),
        ] {
            let said = elsewhere("n1.alpha", Path::new(directory));
            assert!(said.starts_with(want) && said.contains("`share`"), "{said}");
        }
    }
}
