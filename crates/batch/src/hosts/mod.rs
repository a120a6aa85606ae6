//! Hosts without a scheduler, over ssh with the user's own keys.
//!
//! Pilots start in the order in which they were submitted, each on hosts that have fewer pilots of
//! this user's than they may. There is no daemon: the queue moves when something is asked. What is
//! known of pilots is in a directory that only the user can open.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::fcntl::{Flock, FlockArg};
use tokio::time::Instant;

use crate::command::Runner;
use crate::private::Private;
use crate::state::{Estimate, Job, JobId, NodeClass};
use crate::{Batch, BatchError, End, Pilot, Request, State, Word};

pub mod parse;
mod queue;
mod record;
mod remote;
mod ssh;
#[cfg(test)]
mod tests;

use record::Record;

/// Most bytes of a record.
const MOST_RECORD: u64 = 1 << 20;
/// Most pilots that are kept.
const MOST_RECORDS: usize = 10_000;

/// A host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Where ssh connects to: `HOST`, `USER@HOST`, or a name in the user's ssh configuration.
    pub address: Word,
    /// How many pilots of this user's may run there at once, at least one.
    pub pilots: u32,
    /// What the host has, such as `gpu`.
    pub tags: Vec<Word>,
}

/// Hosts without a scheduler.
#[derive(Debug)]
pub struct Hosts {
    runner: Runner,
    private: Private,
    hosts: Vec<Host>,
    /// Further options of ssh.
    options: Vec<String>,
}

/// What is known, under the lock.
struct Held {
    records: BTreeMap<Word, Record>,
    _lock: Flock<fs::File>,
}

impl Held {
    fn all(&self) -> Vec<Record> {
        self.records.values().cloned().collect()
    }
}

impl Hosts {
    /// These hosts, each once. `options` are further options of ssh, such as `-F FILE`. The state is in
    /// `directory`, which must be on this machine or where flock(2) works.
    ///
    /// # Errors
    /// If the directory can't be made, or others may open it, or a host is there twice.
    pub fn new(
        runner: Runner,
        directory: &Path,
        hosts: Vec<Host>,
        options: Vec<String>,
    ) -> Result<Self, BatchError> {
        for (index, host) in hosts.iter().enumerate() {
            if hosts.iter().take(index).any(|other| other.address == host.address) {
                return Err(BatchError::Request {
                    what: format!("host {} is in the list twice", host.address),
                });
            }
        }
        let mut runner = runner;
        let agent = std::env::var_os("SSH_AUTH_SOCK").map(|path| ("SSH_AUTH_SOCK".into(), path));
        runner.environment.splice(0..0, agent);
        Ok(Self { runner, private: Private::open(directory)?, hosts, options })
    }

    /// Reads what is known, once no other process of the user's changes it.
    async fn hold(&self) -> Result<Held, BatchError> {
        let path = self.private.directory().join("lock");
        let wrong = |why: String| BatchError::File { path: path.clone(), why };
        let mut options = fs::OpenOptions::new();
        let open = || options.write(true).create(true).truncate(false).mode(0o600).open(&path);
        let mut file = { open }().map_err(|error| wrong(error.to_string()))?;
        let deadline = Instant::now() + self.runner.limit;
        let lock = loop {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => break lock,
                Err((back, nix::Error::EWOULDBLOCK)) if Instant::now() < deadline => file = back,
                Err((_, error)) => {
                    return Err(wrong(format!(
                        "another process of yours that uses it doesn't let go: {error}"
                    )));
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        Ok(Held { records: self.records()?, _lock: lock })
    }

    fn records(&self) -> Result<BTreeMap<Word, Record>, BatchError> {
        let directory = self.private.directory();
        let wrong = |why: String| BatchError::File { path: directory.to_owned(), why };
        let mut records = BTreeMap::new();
        for entry in fs::read_dir(directory).map_err(|error| wrong(error.to_string()))? {
            let file = entry.map_err(|error| wrong(error.to_string()))?.file_name();
            let name =
                file.to_str().and_then(|file| file.strip_suffix(".pilot")).and_then(|name| name.parse().ok());
            let Some(name) = name else { continue };
            let Some(bytes) = self.private.read(&name, "pilot", MOST_RECORD)? else { continue };
            let path = self.private.path(&name, "pilot");
            let record = serde_json::from_slice(&bytes)
                .map_err(|error| BatchError::File { path, why: format!("{error}; remove it") })?;
            records.insert(name, record);
            if records.len() > MOST_RECORDS {
                return Err(wrong(format!("it has more than {MOST_RECORDS} pilots; remove old ones")));
            }
        }
        Ok(records)
    }

    fn keep(&self, name: &Word, record: &Record) -> Result<(), BatchError> {
        let text = serde_json::to_string(record).map_err(|error| BatchError::File {
            path: self.private.path(name, "pilot"),
            why: error.to_string(),
        })?;
        self.private.write(name, "pilot", text.as_bytes()).map(drop)
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn user() -> Option<String> {
    nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten().map(|user| user.name)
}

impl Batch for Hosts {
    async fn submit(&self, pilot: &Pilot) -> Result<Job, BatchError> {
        pilot.check()?;
        let asked = &pilot.request;
        let other =
            [("queue", &asked.queue), ("reservation", &asked.reservation), ("account", &asked.account)];
        if let Some((what, _)) = other.iter().find(|(_, value)| value.is_some()) {
            return Err(BatchError::Request { what: format!("hosts without a scheduler have no {what}") });
        }
        let mut held = self.hold().await?;
        if held.records.contains_key(&pilot.name) {
            return Err(BatchError::Request { what: format!("there is a pilot {} already", pilot.name) });
        }
        let number = 1 + held.records.values().map(|record| record.number).max().unwrap_or(0).max(now());
        if let Some(secret) = &pilot.secret {
            self.private.write(&pilot.name, "secret", secret.bytes())?;
        }
        let record = Record::new(number, asked, &pilot.script);
        self.keep(&pilot.name, &record)?;
        held.records.insert(pilot.name.clone(), record);
        self.advance(&mut held).await?;
        job(&pilot.name, number)
    }

    async fn find(&self, name: &Word) -> Result<Option<Job>, BatchError> {
        let held = self.hold().await?;
        let found = held.records.get(name).filter(|record| record.end.is_none());
        found.map(|record| job(name, record.number)).transpose()
    }

    async fn states(&self, jobs: &[Job]) -> Result<Vec<State>, BatchError> {
        let mut held = self.hold().await?;
        let advanced = self.advance(&mut held).await?;
        let state = |asked: &Job| {
            let record = held.records.get(&asked.name)?;
            if record.number.to_string() != asked.id.0.as_str() {
                return None;
            }
            let before =
                held.records.values().filter(|other| other.waits() && other.number < record.number).count();
            Some(record.state(before, advanced.running.get(&asked.name).cloned().unwrap_or_default()))
        };
        Ok(jobs.iter().map(|job| state(job).unwrap_or(State::Unknown)).collect())
    }

    async fn estimate(&self, request: &Request) -> Result<Estimate, BatchError> {
        let mut held = self.hold().await?;
        let advanced = self.advance(&mut held).await?;
        let asked = Record::new(0, request, "");
        Ok(record::estimate(&asked, SystemTime::now(), &self.hosts, &advanced.looked, &held.all()))
    }

    async fn cancel(&self, job: &Job) -> Result<(), BatchError> {
        let mut held = self.hold().await?;
        let Some(record) = held.records.get_mut(&job.name) else { return Ok(()) };
        if record.number.to_string() != job.id.0.as_str() {
            return Ok(());
        }
        if record.end.is_none() {
            record.ended(now(), &End::Cancelled { by: user() });
            self.keep(&job.name, record)?;
        }
        self.clean(&job.name, record, None).await?;
        self.keep(&job.name, record)?;
        let left = record.unclean.clone();
        let Some(address) = left.first() else { return Ok(()) };
        Err(BatchError::Unreachable {
            command: format!("ssh {address}"),
            cluster: self.runner.cluster.clone(),
            said: format!(
                "{} of the pilot's hosts don't answer; it is ended there once they do and something is asked",
                left.len()
            ),
        })
    }

    fn written(&self, _: &Word) -> Option<String> {
        None
    }

    async fn forget(&self, name: &Word) -> Result<(), BatchError> {
        let held = self.hold().await?;
        if held.records.contains_key(name) { Ok(()) } else { self.private.remove(name, &["secret"]) }
    }

    async fn capacity(&self) -> Result<Vec<NodeClass>, BatchError> {
        let mut held = self.hold().await?;
        let advanced = self.advance(&mut held).await?;
        Ok(record::capacity(&self.hosts, &advanced.looked, &held.all()))
    }
}

fn job(name: &Word, number: u64) -> Result<Job, BatchError> {
    let id =
        number.to_string().parse().map_err(|_| BatchError::Request { what: format!("a number {number}") })?;
    Ok(Job { id: JobId(id), name: name.clone() })
}
