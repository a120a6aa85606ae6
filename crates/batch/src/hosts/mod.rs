//! Hosts without a scheduler, over ssh with the user's own keys.
//!
//! Pilots start in the order in which they were submitted, each on hosts that have fewer pilots of
//! this user's than they may. There is no daemon: the queue moves when something is asked. What is
//! known of pilots is in a directory that only the user can open.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::fcntl::{Flock, FlockArg};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::command::{Output, Runner};
use crate::private::Private;
use crate::state::{Estimate, Job, JobId, NodeClass};
use crate::{Batch, BatchError, End, Pilot, Request, State, Word, script};

pub mod parse;
mod record;
mod remote;
mod ssh;
#[cfg(test)]
mod tests;

use record::{Answers, Record};

/// Most hosts that are asked at once.
const AT_ONCE: usize = 16;
/// Most bytes of a record.
const MOST_RECORD: u64 = 1 << 20;
/// Most bytes of a pilot's log here.
const MOST_LOG: u64 = 1 << 20;
/// Most pilots that are kept.
const MOST_RECORDS: usize = 10_000;
/// For how long it is known how a pilot ended.
const KEPT: Duration = Duration::from_secs(7 * 86_400);

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
    pub fn new(runner: Runner, directory: &Path, hosts: Vec<Host>, options: Vec<String>) -> Result<Self, BatchError> {
        for (index, host) in hosts.iter().enumerate() {
            if hosts.iter().take(index).any(|other| other.address == host.address) {
                return Err(BatchError::Request { what: format!("host {} is in the list twice", host.address) });
            }
        }
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
                    return Err(wrong(format!("another process of yours that uses it doesn't let go: {error}")));
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
            let name = file.to_str().and_then(|file| file.strip_suffix(".pilot")).and_then(|name| name.parse().ok());
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
        let text = serde_json::to_string(record)
            .map_err(|error| BatchError::File { path: self.private.path(name, "pilot"), why: error.to_string() })?;
        self.private.write(name, "pilot", text.as_bytes()).map(drop)
    }

    /// Runs a script on a host.
    async fn on(&self, address: &str, text: String) -> Result<Output, BatchError> {
        ssh::on(&self.runner, &self.options, address, text).await
    }

    /// Looks at all hosts. `None` stands for one that doesn't answer.
    async fn look(&self) -> Answers {
        let places = Arc::new(Semaphore::new(AT_ONCE));
        let mut asked = JoinSet::new();
        for host in &self.hosts {
            let (runner, options, places) = (self.runner.clone(), self.options.clone(), places.clone());
            let (address, text) = (host.address.to_string(), remote::look(&host.address));
            asked.spawn(async move {
                let _place = places.acquire_owned().await;
                let output = ssh::on(&runner, &options, &address, text).await.ok().filter(Output::is_ok);
                (address, output.and_then(|output| parse::looked(&output.out).ok()))
            });
        }
        let mut looked: BTreeMap<_, _> = self.hosts.iter().map(|host| (host.address.to_string(), None)).collect();
        while let Some(answer) = asked.join_next().await {
            if let Ok((address, answer)) = answer {
                looked.insert(address, answer);
            }
        }
        looked
    }

    /// Takes note of what the hosts say, removes what has ended, and starts who is next. Returns the
    /// hosts' answers, and on which hosts each pilot runs.
    async fn advance(&self, held: &mut Held) -> Result<Advanced, BatchError> {
        let looked = self.look().await;
        let mut running = BTreeMap::new();
        for (name, record) in &mut held.records {
            let before = record.clone();
            if record.runs() {
                running.insert(name.clone(), record.heard(now(), &looked));
            }
            self.clean(name, record, Some(&looked)).await?;
            if *record != before {
                self.keep(name, record)?;
            }
        }
        let old = |record: &Record| {
            let gone = |at| now().saturating_sub(at) > KEPT.as_secs();
            record.unclean.is_empty() && record.end.as_ref().is_some_and(|end| gone(end.at))
        };
        let old: Vec<_> = held.records.iter().filter(|(_, record)| old(record)).map(|(name, _)| name.clone()).collect();
        for name in old {
            held.records.remove(&name);
            self.private.remove(&name, &["pilot", "secret", "log"])?;
        }
        let mut waiting: Vec<_> =
            held.records.iter().filter(|(_, record)| record.waits()).map(|(name, record)| (record.number, name.clone())).collect();
        waiting.sort_unstable();
        for (_, name) in waiting {
            let all = held.all();
            let Some(record) = held.records.get_mut(&name) else { continue };
            // Who comes later waits, even if there is room for it.
            let Some(places) = record::places(record, &self.hosts, &looked, &all) else { break };
            self.start(&name, record, places).await?;
            running.insert(name.clone(), record.hosts.clone());
        }
        Ok(Advanced { looked, running })
    }

    /// Starts a pilot on all of these hosts, or on none.
    async fn start(&self, name: &Word, record: &mut Record, places: Vec<String>) -> Result<(), BatchError> {
        let secret = self.private.read(name, "secret", MOST_RECORD)?.unwrap_or_default();
        record.hosts = places;
        record.started = Some(now());
        // Kept before anything starts: what is started is never forgotten.
        self.keep(name, record)?;
        for host in record.hosts.clone() {
            let Some(host) = self.hosts.iter().find(|known| known.address.as_str() == host) else { continue };
            let path = remote::secret_path(&host.address, name);
            let script = script::of_node(&record.script, Some(&path).filter(|_| !secret.is_empty()).map(String::as_str));
            let text = remote::start(&host.address, name, record.number, record.seconds, &script, &secret);
            let output = self.on(host.address.as_str(), text).await;
            let said = match output {
                Ok(output) if output.is_ok() => continue,
                Ok(output) => output.reason(),
                Err(error) => error.to_string(),
            };
            record.ended(now(), &End::Other { said: format!("it could not be started on {}: {said}", host.address) });
            break;
        }
        if record.end.is_some() {
            self.clean(name, record, None).await?;
        }
        self.keep(name, record)
    }

    /// Ends what runs of a pilot that has ended, and removes its files. Of hosts that were looked at,
    /// only those that answered are asked.
    async fn clean(&self, name: &Word, record: &mut Record, looked: Option<&Answers>) -> Result<(), BatchError> {
        let mut left = Vec::new();
        for address in std::mem::take(&mut record.unclean) {
            // A host that was taken from the list is left as it is.
            let Some(host) = self.hosts.iter().find(|host| host.address.as_str() == address) else { continue };
            if looked.is_some_and(|looked| matches!(looked.get(&address), Some(None))) {
                left.push(address);
                continue;
            }
            match self.on(&address, remote::stop(&host.address, name)).await {
                Ok(output) if output.is_ok() => self.log(name, &address, &output.out)?,
                _ => left.push(address),
            }
        }
        record.unclean = left;
        if record.end.is_some() {
            self.private.remove(name, &["secret"])?;
        }
        Ok(())
    }

    /// Adds what a pilot wrote on a host to its log here.
    fn log(&self, name: &Word, address: &str, text: &str) -> Result<(), BatchError> {
        if text.is_empty() {
            return Ok(());
        }
        let mut log = self.private.read(name, "log", MOST_LOG)?.unwrap_or_default();
        log.extend_from_slice(format!("{address}:\n{text}\n").as_bytes());
        // More hosts than this has room for say nothing new.
        log.truncate(MOST_LOG as usize);
        self.private.write(name, "log", &log).map(drop)
    }
}

/// What an advance of the queue has found.
struct Advanced {
    looked: Answers,
    running: BTreeMap<Word, Vec<String>>,
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
        let other = [("queue", &asked.queue), ("reservation", &asked.reservation), ("account", &asked.account)];
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
            let before = held.records.values().filter(|other| other.waits() && other.number < record.number).count();
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
            said: format!("{} of the pilot's hosts don't answer; it is ended there once they do and something is asked", left.len()),
        })
    }

    async fn capacity(&self) -> Result<Vec<NodeClass>, BatchError> {
        let mut held = self.hold().await?;
        let advanced = self.advance(&mut held).await?;
        Ok(record::capacity(&self.hosts, &advanced.looked, &held.all()))
    }
}

fn job(name: &Word, number: u64) -> Result<Job, BatchError> {
    let id = number.to_string().parse().map_err(|_| BatchError::Request { what: format!("a number {number}") })?;
    Ok(Job { id: JobId(id), name: name.clone() })
}
