//! The parent's end: starts a supervisor and communicates with it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::Path;
use std::process::Stdio;

use isthmus_wire::launchers::DAEMONS;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;

use super::message::{END, FROM_TERMINAL, GONE, KILLED, MESSAGE_LEN, NAME_LEN, SIGNALLED, STATUS};
use crate::starting::limits;

/// The name that stands for the command itself in reports of killed processes.
const COMMAND: [u8; NAME_LEN] = [0; NAME_LEN];

/// What is known of a supervised command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcome {
    /// The command's exit status, or 128 + signal, once it has ended.
    pub status: Option<i32>,
    /// A process that another party's signal ended: the signal, and the process's name padded with
    /// zeroes. The command, which has an empty name, counts before a daemon, and a daemon before
    /// other descendants.
    pub killed: Option<(i32, [u8; NAME_LEN])>,
    /// The signal of another party that ended the command's own process. A signal that ended a
    /// shell's program doesn't count.
    pub signalled: Option<i32>,
    /// Whether the supervisor itself was killed, and the command with it.
    pub supervisor_killed: bool,
    /// The number of descendants that had to be killed, once none is left.
    pub gone: Option<u32>,
}

impl Outcome {
    /// The signal of another party that ended a process, and the process's name. The command's name
    /// is empty.
    pub fn killed(&self) -> Option<(i32, String)> {
        let (signal, name) = self.killed?;
        let name = String::from_utf8_lossy(&name);
        Some((signal, name.trim_end_matches('\0').to_owned()))
    }
}

/// An environment variable, with its value, for the command. It has libraries that read name
/// servers and hosts files by themselves ask the C library, which knows the nodes' names. A user's
/// setting goes before.
pub const BY_LIBC: [(&str, &str); 1] = [("GRPC_DNS_RESOLVER", "native")];

/// What a supervised command is started with.
#[derive(Debug)]
pub struct Launch<'a> {
    /// The `isthmus` binary, whose `supervise` subcommand is the supervisor.
    pub isthmus: &'a Path,
    /// The command and its arguments.
    pub command: Vec<OsString>,
    /// The command's whole environment.
    pub environment: Vec<(OsString, OsString)>,
    /// The command's working directory.
    pub working_directory: &'a Path,
    /// Whether the command gets pipes and a session of its own, as a remote command does. Otherwise
    /// it has the parent's terminal and process group.
    pub detached: bool,
}

/// A running command. Dropping this ends the command with all its descendants.
#[derive(Debug)]
pub struct Supervised {
    control: OwnedWriteHalf,
    supervisor: Option<Pid>,
    outcome: watch::Receiver<Outcome>,
    /// The command's standard input, if it is a pipe.
    pub stdin: Option<ChildStdin>,
    /// The command's standard output, if it is a pipe.
    pub stdout: Option<ChildStdout>,
    /// The command's standard error, if it is a pipe.
    pub stderr: Option<ChildStderr>,
}

impl Supervised {
    /// Starts a command.
    ///
    /// # Errors If the supervisor can't be started. If only the command can't be started, the
    /// [`Outcome`] gets status 126 or 127.
    pub fn start(launch: Launch<'_>) -> io::Result<Self> {
        let (own, theirs) = StdUnixStream::pair()?;
        let mut command = Command::new(launch.isthmus);
        command.arg("supervise").arg("--control").arg(theirs.as_raw_fd().to_string());
        if launch.detached {
            command.arg("--session").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        command.arg("--").args(&launch.command);
        command.env_clear().envs(launch.environment).current_dir(launch.working_directory);
        let inherited = theirs.as_raw_fd();
        // SAFETY: fcntl and setrlimit only make system calls, and only the new
        // process's copy of the descriptor is changed, so no other child
        // inherits it.
        unsafe {
            command.pre_exec(move || match libc::fcntl(inherited, libc::F_SETFD, 0) {
                0 => limits::restore_descriptors(),
                _ => Err(io::Error::last_os_error()),
            })
        };
        let mut child = command.spawn()?;
        drop(theirs);
        own.set_nonblocking(true)?;
        let (read, control) = UnixStream::from_std(own)?.into_split();
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let supervisor = child.id().and_then(|pid| i32::try_from(pid).ok()).map(Pid::from_raw);
        let (outcome_tx, outcome) = watch::channel(Outcome::default());
        tokio::spawn(follow(child, read, outcome_tx));
        Ok(Self { control, supervisor, outcome, stdin, stdout, stderr })
    }

    /// Passes a signal to the command itself. `from_terminal` says that the parent has the signal
    /// from its terminal: then the supervisor passes it on only if the command doesn't have it.
    pub async fn signal(&mut self, signal: i32, from_terminal: bool) {
        if let Ok(byte) = u8::try_from(signal)
            && byte != END
            && byte < FROM_TERMINAL
        {
            let flag = if from_terminal { FROM_TERMINAL } else { 0 };
            // Writing fails if the supervisor is gone, and the command with it.
            let _ = self.control.write_all(&[byte | flag]).await;
        }
    }

    /// Ends the command with all its descendants.
    pub async fn end(&mut self) {
        let _ = self.control.write_all(&[END]).await;
        // A stopped supervisor goes on. Until no descendant is left, the id stands for no other
        // process.
        if let Some(supervisor) = self.supervisor.filter(|_| self.outcome.borrow().gone.is_none()) {
            let _ = kill(supervisor, Signal::SIGCONT);
        }
    }

    /// A receiver that follows what is known of the command.
    pub fn outcome(&self) -> watch::Receiver<Outcome> {
        self.outcome.clone()
    }
}

/// Waits until the command has ended, and returns its exit status: 137 if the supervisor was
/// killed.
pub async fn status(outcome: &mut watch::Receiver<Outcome>) -> i32 {
    outcome
        .wait_for(|outcome| outcome.status.is_some())
        .await
        .ok()
        .and_then(|outcome| outcome.status)
        .unwrap_or(137)
}

/// Waits until no descendant is left, and returns how many had to be killed.
pub async fn gone(outcome: &mut watch::Receiver<Outcome>) -> u32 {
    outcome
        .wait_for(|outcome| outcome.gone.is_some())
        .await
        .ok()
        .and_then(|outcome| outcome.gone)
        .unwrap_or(0)
}

async fn follow(mut child: Child, mut control: OwnedReadHalf, outcome_tx: watch::Sender<Outcome>) {
    let mut message = [0; MESSAGE_LEN];
    while control.read_exact(&mut message).await.is_ok() {
        let [kind, value @ ..] = message;
        let value = i32::from_ne_bytes(value);
        let mut name = [0; NAME_LEN];
        if kind == KILLED && control.read_exact(&mut name).await.is_err() {
            break;
        }
        outcome_tx.send_modify(|outcome| match kind {
            STATUS => outcome.status = Some(value),
            KILLED if counts_more(&name, outcome.killed.as_ref()) => outcome.killed = Some((value, name)),
            SIGNALLED => outcome.signalled = Some(value),
            GONE => outcome.gone = u32::try_from(value).ok(),
            _ => {}
        });
    }
    let _ = child.wait().await;
    outcome_tx.send_modify(|outcome| {
        if outcome.gone.is_none() {
            outcome.killed = Some((libc::SIGKILL, COMMAND));
            outcome.supervisor_killed = true;
        }
        outcome.status.get_or_insert(137);
        outcome.gone.get_or_insert(0);
    });
}

/// Whether the killed process of this name is to be told in place of `known`, which was reported
/// before. A descendant may end because of the command's end, and be reported first. So may a rank
/// beside its daemon: the kernel gives ended children in no order of time.
fn counts_more(name: &[u8; NAME_LEN], known: Option<&(i32, [u8; NAME_LEN])>) -> bool {
    let weight = |name: &[u8; NAME_LEN]| {
        let is_daemon = DAEMONS.iter().any(|daemon| name.strip_prefix(daemon.as_bytes()).is_some_and(is_end));
        if *name == COMMAND { 2 } else { u8::from(is_daemon) }
    };
    known.is_none_or(|(_, known)| weight(name) > weight(known) || *name == COMMAND)
}

/// Whether nothing but padding follows a name's beginning.
fn is_end(rest: &[u8]) -> bool {
    rest.iter().all(|byte| *byte == 0)
}

/// The variables of this process without those that isthmus or a preload set, for
/// commands that start as after a new login.
pub fn clean_environment() -> Vec<(OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| !private(name)).collect()
}

fn private(name: &OsStr) -> bool {
    name == "LD_PRELOAD" || name == "NOTIFY_SOCKET" || name.as_encoded_bytes().starts_with(b"ISTHMUS_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_killed_processes_the_command_counts_most_and_then_daemons() {
        let name = |text: &str| {
            let mut name = COMMAND;
            name[..text.len()].copy_from_slice(text.as_bytes());
            name
        };
        for (known, then, want) in [
            (None, "die", true),
            (None, "", true),
            (Some("die"), "prted", true),
            (Some("die"), "", true),
            (Some("die"), "app", false),
            (Some("die"), "prted2", false),
            (Some("prted"), "die", false),
            (Some("prted"), "hydra_pmi_proxy", false),
            (Some("prted"), "", true),
            (Some(""), "prted", false),
            (Some(""), "", true),
        ] {
            let known = known.map(|known| (libc::SIGKILL, name(known)));
            assert_eq!(counts_more(&name(then), known.as_ref()), want, "{known:?}, then {then:?}");
        }
    }
}
