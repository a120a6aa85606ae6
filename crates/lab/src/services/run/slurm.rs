//! Starting the Slurms of a lab's sites: each a real one, with a key of its own.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::unistd::Pid;

use super::{Starter, end_of};
use crate::clock;
use crate::grid::Role;
use crate::network::find_program;
use crate::process::ProcessId;
use crate::services::ServiceRecord;
use crate::services::slurm::{self, Daemon, Slurm};

/// How long a site's munged may take to listen, and then its Slurm until all nodes are idle. It
/// takes some seconds on an idle machine.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// Pause between two looks at what starts.
const PAUSE: Duration = Duration::from_millis(250);
/// How long `sinfo` may take.
const LOOK_WITHIN: Duration = Duration::from_secs(10);
/// Bytes of a munge key. munged accepts 32 to 1024 (mungekey(8)).
const KEY_BYTES: usize = 128;
/// Programs of Slurm and munge, and the packages of Debian that have them.
const PACKAGES: &str = "apt-get install slurmctld slurmd slurm-client munge";

/// A daemon that was started.
struct Started<'a> {
    daemon: &'a Daemon,
    child: Child,
}

impl Starter<'_> {
    /// Starts the daemons of these Slurms, and waits until all their nodes take jobs.
    pub(super) fn start_slurms(&mut self, slurms: &[Slurm]) -> anyhow::Result<Vec<ServiceRecord>> {
        for slurm in slurms {
            self.prepare(slurm)?;
        }
        let mut started = Vec::new();
        for slurm in slurms {
            for daemon in slurm.daemons.iter().filter(|daemon| daemon.role == Role::Munged) {
                started.push(self.start_daemon(daemon)?);
            }
        }
        let deadline = Instant::now() + READY_WITHIN;
        let listens = |starter: &Self, machine: &str| {
            Ok(UnixStream::connect(starter.inside(machine, slurm::SOCKET)?).is_ok())
        };
        for number in 0..started.len() {
            let machine = started[number].daemon.machine.clone();
            self.wait_until(
                &mut started,
                deadline,
                &format!("munged at {machine} doesn't listen"),
                |starter| listens(starter, &machine),
            )?;
        }
        for slurm in slurms {
            for daemon in slurm.daemons.iter().filter(|daemon| daemon.role != Role::Munged) {
                started.push(self.start_daemon(daemon)?);
            }
        }
        let deadline = Instant::now() + READY_WITHIN;
        for slurm in slurms {
            let what = format!("the Slurm of site {} has nodes that take no jobs", slurm.site);
            self.wait_until(&mut started, deadline, &what, |starter| starter.is_idle(slurm, deadline))?;
        }
        started.iter().map(record).collect()
    }

    /// Makes the directories and files that the daemons and commands of a Slurm read.
    fn prepare(&self, slurm: &Slurm) -> anyhow::Result<()> {
        for program in ["munged", "slurmctld", "slurmd", "sinfo"] {
            if find_program(program).is_none() {
                bail!("site {} has a Slurm, and {program} isn't installed here: {PACKAGES}", slurm.site);
            }
        }
        let mut key = [0; KEY_BYTES];
        File::open("/dev/urandom")
            .and_then(|mut random| random.read_exact(&mut key))
            .context("no munge key")?;
        for daemon in slurm.daemons.iter().filter(|daemon| daemon.role == Role::Munged) {
            let directory = |path: &str, mode| -> anyhow::Result<()> {
                let path = self.inside(&daemon.machine, path)?;
                let cannot = || format!("cannot make {}", path.display());
                DirBuilder::new().mode(mode).create(&path).with_context(cannot)?;
                // Regardless of the umask: munged refuses a directory that others can't enter.
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).with_context(cannot)
            };
            directory(slurm::DIRECTORY, 0o700)?;
            for records in slurm::RECORDS {
                directory(records, 0o700)?;
            }
            let socket = Path::new(slurm::SOCKET).parent().and_then(Path::to_str).unwrap_or_default();
            directory(socket, 0o755)?;
            let clock = clock::task_prolog(slurm.clock_ahead_seconds);
            let (path, text) = slurm::GROUPS;
            let groups = slurm.confines.then_some((path, 0o600, text.as_bytes()));
            for (path, mode, content) in [
                (slurm::KEY, 0o600, &key[..]),
                (slurm::CONFIGURATION, 0o600, slurm.configuration.as_bytes()),
                (slurm::CLOCK, 0o700, clock.as_bytes()),
            ]
            .into_iter()
            .chain(groups)
            {
                let path = self.inside(&daemon.machine, path)?;
                let mut options = OpenOptions::new();
                let written = options.create_new(true).write(true).mode(mode).open(&path);
                let written = written.and_then(|mut file| file.write_all(content));
                written.with_context(|| format!("cannot write {}", path.display()))?;
            }
        }
        Ok(())
    }

    fn start_daemon<'d>(&mut self, daemon: &'d Daemon) -> anyhow::Result<Started<'d>> {
        let program = daemon.role.command();
        let path = find_program(program).with_context(|| format!("{program} is gone"))?;
        let arguments: Vec<&str> = daemon.arguments.iter().map(String::as_str).collect();
        let log = self.log_of(daemon.role, &daemon.machine);
        let mut command = self.program(&path, &log, &daemon.machine, &arguments)?;
        let child =
            command.spawn().with_context(|| format!("cannot run {}", self.record.program.display()))?;
        // If it has ended already, there is nothing to end.
        self.children.extend(ProcessId::of(Pid::from_raw(child.id() as i32)));
        Ok(Started { daemon, child })
    }

    /// Waits until `holds` does. `else_what` says what is wrong if it doesn't at the deadline.
    fn wait_until(
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

    /// Whether all nodes of a Slurm take jobs (sinfo(1), "NODE STATE CODES").
    fn is_idle(&self, slurm: &Slurm, deadline: Instant) -> anyhow::Result<bool> {
        let arguments = ["--noheader", "--Node", "--format=%T"];
        let sinfo = find_program("sinfo").context("sinfo is gone")?;
        let log = self.log_of(Role::Slurmctld, &slurm.controller);
        let mut command = self.program(&sinfo, &log, &slurm.controller, &arguments)?;
        // Until slurmctld listens, sinfo has errors to tell.
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let ends = deadline.min(Instant::now() + LOOK_WITHIN);
        while child.try_wait()?.is_none() {
            if Instant::now() >= ends {
                child.kill()?;
                child.wait()?;
                return Ok(false);
            }
            if let Err(error) = self.wait_for_news(&[], ends) {
                let _ = child.kill();
                let _ = child.wait();
                return Err(error);
            }
        }
        let mut states = String::new();
        if let Some(output) = child.stdout.take() {
            output.take(64 << 10).read_to_string(&mut states)?;
        }
        Ok(states.lines().count() == slurm.nodes && states.lines().all(|state| state.trim() == "idle"))
    }

    fn failure_of(&self, daemon: &Daemon, message: &str) -> anyhow::Error {
        let Daemon { role, machine, .. } = daemon;
        let end = end_of(&self.log_of(*role, machine)).unwrap_or_else(|error| format!("(no log: {error})"));
        anyhow::anyhow!("{} at {machine}: {message}; its log ends:\n{end}", role.command())
    }
}

fn record(started: &Started<'_>) -> anyhow::Result<ServiceRecord> {
    let Daemon { role, machine, .. } = started.daemon;
    let process = ProcessId::of(Pid::from_raw(started.child.id() as i32))
        .with_context(|| format!("{} at {machine} ended right after the start", role.command()))?;
    Ok(ServiceRecord { role: *role, machine: machine.clone(), process })
}
