//! Starting the Slurms of a lab's sites: each a real one, with a key of its own.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, bail};

use super::Starter;
use super::daemons::{READY_WITHIN, record};
use crate::clock;
use crate::grid::Role;
use crate::network::find_program;
use crate::services::ServiceRecord;
use crate::services::slurm::{self, Slurm};

/// Bytes of a munge key. munged accepts 32 to 1024 (mungekey(8)).
const KEY_BYTES: usize = 128;
/// Programs of Slurm and munge, and the packages of Debian that have them.
const PACKAGES: &str = "apt-get install slurmctld slurmd slurm-client munge";

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

    /// Whether all nodes of a Slurm take jobs (sinfo(1), "NODE STATE CODES").
    fn is_idle(&self, slurm: &Slurm, deadline: Instant) -> anyhow::Result<bool> {
        let words = ["sinfo", "--noheader", "--Node", "--format=%T"];
        let states = self.asked((Role::Slurmctld, &slurm.controller), &words, deadline)?.unwrap_or_default();
        Ok(states.lines().count() == slurm.nodes && states.lines().all(|state| state.trim() == "idle"))
    }
}
