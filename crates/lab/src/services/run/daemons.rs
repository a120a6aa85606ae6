//! Daemons of the batch systems of a lab's sites: started, and watched until their commands say that they
//! take jobs.

use std::io::Read as _;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::unistd::Pid;

use super::{Starter, end_of};
use crate::grid::Role;
use crate::network::find_program;
use crate::process::ProcessId;
use crate::services::ServiceRecord;
use crate::services::daemon::Daemon;

/// How long daemons may take until they answer, or until all nodes take jobs. It takes some seconds on
/// an idle machine.
pub(super) const READY_WITHIN: Duration = Duration::from_secs(60);
/// Pause between two looks at what starts.
const PAUSE: Duration = Duration::from_millis(250);
/// How long a command that only asks may take.
const LOOK_WITHIN: Duration = Duration::from_secs(10);
/// Most bytes of its answer.
const ANSWER: u64 = 64 << 10;

/// A daemon that was started.
pub(super) struct Started<'a> {
    pub(super) daemon: &'a Daemon,
    pub(super) child: Child,
}

impl Starter<'_> {
    pub(super) fn start_daemon<'d>(&mut self, daemon: &'d Daemon) -> anyhow::Result<Started<'d>> {
        let program = daemon.role.command();
        let path = find_program(program).with_context(|| format!("{program} is gone"))?;
        let arguments: Vec<&str> = daemon.arguments.iter().map(String::as_str).collect();
        let log = self.log_of(daemon.role, &daemon.machine);
        let mut command = self.program(&path, &log, &daemon.machine, &arguments)?;
        command.envs(daemon.variables.iter().copied());
        let child =
            command.spawn().with_context(|| format!("cannot run {}", self.record.program.display()))?;
        // If it has ended already, there is nothing to end.
        self.children.extend(ProcessId::of(Pid::from_raw(child.id() as i32)));
        Ok(Started { daemon, child })
    }

    /// Waits until `holds` does. `else_what` says what is wrong if it doesn't at the deadline.
    pub(super) fn wait_until(
        &self,
        started: &mut [Started<'_>],
        deadline: Instant,
        else_what: &str,
        holds: impl Fn(&Self) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        loop {
            for one in started.iter_mut() {
                if let Some(status) = one.child.try_wait()? {
                    bail!(self.failure_of(one.daemon, &format!("it has ended ({status})")));
                }
            }
            if holds(self)? {
                return Ok(());
            }
            if Instant::now() >= deadline {
                bail!("{else_what} after {} s; isthmus lab logs has what they say", READY_WITHIN.as_secs());
            }
            self.wait_for_news(&[], deadline.min(Instant::now() + PAUSE))?;
        }
    }

    /// What a command answers in a machine. `None` if it fails or takes too long, as while what it asks is
    /// starting. Its log is that of the machine's service of this role.
    pub(super) fn asked(
        &self,
        (role, machine): (Role, &str),
        words: &[&str],
        deadline: Instant,
    ) -> anyhow::Result<Option<String>> {
        let [program, arguments @ ..] = words else { bail!("no command") };
        let path = find_program(program).with_context(|| format!("{program} is gone"))?;
        let mut command = self.program(&path, &self.log_of(role, machine), machine, arguments)?;
        // Until the service listens, there are errors to tell.
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let ended = self.ended(&mut child, deadline.min(Instant::now() + LOOK_WITHIN))?;
        if !ended.is_some_and(|status| status.success()) {
            return Ok(None);
        }
        let mut answer = String::new();
        if let Some(output) = child.stdout.take() {
            output.take(ANSWER).read_to_string(&mut answer)?;
        }
        Ok(Some(answer))
    }

    /// Runs a script of `sh` in the machine of a daemon, whose log gets what it writes.
    pub(super) fn run_script(&self, daemon: &Daemon, script: &str, deadline: Instant) -> anyhow::Result<()> {
        let shell = find_program("sh").context("sh is gone")?;
        let log = self.log_of(daemon.role, &daemon.machine);
        let mut command = self.program(&shell, &log, &daemon.machine, &["-ec", script])?;
        let mut child = command.spawn()?;
        match self.ended(&mut child, deadline)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => bail!(self.failure_of(daemon, &format!("setting it up failed ({status})"))),
            None => bail!(self.failure_of(daemon, "setting it up took too long")),
        }
    }

    /// Waits for a command's end. At the deadline the command is killed, and there is no status.
    fn ended(&self, child: &mut Child, deadline: Instant) -> anyhow::Result<Option<ExitStatus>> {
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status));
            }
            let is_late = Instant::now() >= deadline;
            let news = if is_late { Ok(()) } else { self.wait_for_news(&[], deadline) };
            if is_late || news.is_err() {
                let _ = child.kill();
                let _ = child.wait();
                return news.map(|()| None);
            }
        }
    }

    fn failure_of(&self, daemon: &Daemon, message: &str) -> anyhow::Error {
        let Daemon { role, machine, .. } = daemon;
        let end = end_of(&self.log_of(*role, machine)).unwrap_or_else(|error| format!("(no log: {error})"));
        anyhow::anyhow!("{} at {machine}: {message}; its log ends:\n{end}", role.command())
    }
}

pub(super) fn record(started: &Started<'_>) -> anyhow::Result<ServiceRecord> {
    let Daemon { role, machine, .. } = started.daemon;
    let process = ProcessId::of(Pid::from_raw(started.child.id() as i32))
        .with_context(|| format!("{} at {machine} ended right after the start", role.command()))?;
    Ok(ServiceRecord { role: *role, machine: machine.clone(), process })
}
