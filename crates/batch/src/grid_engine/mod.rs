//! Grid Engine, from 8.1 on, by its own commands: `qsub`, `qstat`, `qacct`, `qdel`, `qhost`, `qconf`.
//!
//! A pilot of several nodes needs a parallel environment that gives each of its hosts a fixed number
//! of slots, the pilot's cores, and that has `control_slaves`. One of several cores on one node needs
//! one with `$pe_slots`. They are looked for.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::command::{Output, Runner};
use crate::private::Private;
use crate::state::{Estimate, Job, JobId, NodeClass};
use crate::{Batch, BatchError, End, Pilot, Request, State, Word, script};

mod arguments;
pub mod parse;
#[cfg(test)]
mod tests;

use parse::{Listed, Phase};

/// For how long a job that is gone may have no account: the master writes accounts every 15 s
/// (sge_conf(5), `accounting_flush_time`).
const ACCOUNTED: Duration = Duration::from_secs(60);
/// Most parallel environments that are looked at.
const MOST_ENVIRONMENTS: usize = 64;
/// Files of a pilot that are removed once it has ended. Its log stays.
const FILES: &[&str] = &["node", "secret", "cancelled", "time"];

/// A cluster with Grid Engine.
#[derive(Debug)]
pub struct GridEngine {
    runner: Runner,
    private: Private,
    /// Jobs that are gone and have no account yet, and since when.
    gone: Mutex<HashMap<JobId, Instant>>,
}

impl GridEngine {
    /// A cluster, whose commands `runner` runs. Its pilots' scripts, secrets and logs are in
    /// `directory`, which the hosts must share.
    ///
    /// # Errors
    /// If the directory can't be made, or others may open it.
    pub fn new(runner: Runner, directory: &Path) -> Result<Self, BatchError> {
        let private = Private::open(directory)?;
        let runner = Runner { directory: Some(directory.to_owned()), ..runner };
        Ok(Self { runner, private, gone: Mutex::default() })
    }

    async fn run(&self, program: &str, arguments: &[&str]) -> Result<Output, BatchError> {
        let arguments: Vec<_> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let output = self.runner.run(program, &arguments, b"").await?;
        if parse::is_unreachable(&output.said) { Err(self.runner.unreachable(&output)) } else { Ok(output) }
    }

    /// Runs a command that must succeed.
    async fn must(&self, program: &str, arguments: &[&str]) -> Result<Output, BatchError> {
        let output = self.run(program, arguments).await?;
        if output.is_ok() { Ok(output) } else { Err(self.runner.failed(&output)) }
    }

    fn unclear(&self, output: &Output, what: String) -> BatchError {
        self.runner.unclear(&output.command, what)
    }

    /// The user's jobs that wait or run.
    async fn jobs(&self) -> Result<Vec<Listed>, BatchError> {
        let user = user().await.unwrap_or_else(|| "*".to_owned());
        let output = self.must("qstat", &["-u", &user, "-g", "t", "-xml"]).await?;
        parse::jobs(&output.out).map_err(|what| self.unclear(&output, what))
    }

    /// A job's name and why it waits.
    async fn described(&self, id: &JobId) -> Result<Option<(String, String)>, BatchError> {
        let output = self.run("qstat", &["-j", id.0.as_str(), "-xml"]).await?;
        parse::described(&output.out).map_err(|what| self.unclear(&output, what))
    }

    /// The options for what is asked for.
    async fn requested(&self, request: &Request) -> Result<Result<Vec<String>, String>, BatchError> {
        if !arguments::is_parallel(request) {
            return Ok(Ok(arguments::requested(request, None)));
        }
        let listed = self.run("qconf", &["-spl"]).await?;
        let mut found = Vec::new();
        for name in listed
            .out
            .lines()
            .map(str::trim)
            .filter(|name| name.parse::<Word>().is_ok())
            .take(MOST_ENVIRONMENTS)
        {
            found.extend(parse::environment(&self.run("qconf", &["-sp", name]).await?.out));
        }
        let cores = request.cores.map_or(1, std::num::NonZeroU32::get);
        let environment = arguments::environment(request, &found).ok_or_else(|| {
            format!(
                "{} has no parallel environment that gives {} nodes {cores} slots each",
                self.runner.cluster, request.nodes
            )
        });
        Ok(environment.map(|environment| arguments::requested(request, Some(&environment))))
    }

    /// Whether the scheduler finds a queue for a job: `how` is `p` for now, `v` for an empty cluster.
    async fn verified(&self, how: &str, options: &[String]) -> Result<(bool, String), BatchError> {
        let mut arguments = vec!["-w".to_owned(), how.to_owned()];
        arguments.extend_from_slice(options);
        let output = self.runner.run("qsub", &arguments, b"#!/bin/sh\n").await?;
        let reason = output.reason();
        if parse::is_unreachable(&output.said) {
            return Err(self.runner.unreachable(&output));
        }
        Ok((output.is_ok(), reason))
    }

    /// The state of a job that qstat lists.
    async fn listed(&self, job: &Job, listed: &Listed) -> Result<State, BatchError> {
        let nodes = listed.hosts.clone();
        Ok(match listed.phase {
            Phase::Running => State::Running { nodes, end: self.end(job, listed.start)? },
            Phase::Suspended => State::Suspended { nodes },
            Phase::Ending => State::Ending { nodes },
            Phase::Pending | Phase::Error => {
                let described = self.described(&job.id).await?;
                State::Pending {
                    reason: described.map(|(_, reason)| reason).unwrap_or_default(),
                    start: None,
                }
            }
        })
    }

    /// When a job's time ends that started then.
    fn end(&self, job: &Job, start: Option<SystemTime>) -> Result<Option<SystemTime>, BatchError> {
        let seconds = self
            .private
            .read(&job.name, "time", 32)?
            .and_then(|bytes| String::from_utf8(bytes).ok()?.parse().ok());
        Ok(start.zip(seconds).and_then(|(start, seconds)| start.checked_add(Duration::from_secs(seconds))))
    }

    /// The state of a job that qstat doesn't list.
    async fn ended(&self, job: &Job) -> Result<State, BatchError> {
        let output = self.run("qacct", &["-j", job.id.0.as_str()]).await?;
        let cancelled = self.private.read(&job.name, "cancelled", 1024)?;
        let cancelled = cancelled.filter(|id| id == job.id.0.as_str().as_bytes()).is_some();
        match parse::account(&output.out, job.id.0.as_str(), job.name.as_str()) {
            // What qdel has killed has no account of its own kind.
            Some(End::Failed { signal: 1.., .. }) | None if cancelled => {
                Ok(State::Ended(End::Cancelled { by: user().await }))
            }
            Some(end) => Ok(State::Ended(end)),
            None => {
                let ours = self.private.read(&job.name, "node", u64::MAX - 1)?.is_some();
                let mut gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
                let since = *gone.entry(job.id.clone()).or_insert_with(Instant::now);
                let soon = ours && since.elapsed() < ACCOUNTED;
                Ok(if soon { State::Ending { nodes: Vec::new() } } else { State::Unknown })
            }
        }
    }
}

/// The user's name.
async fn user() -> Option<String> {
    let uid = nix::unistd::geteuid();
    let user = tokio::task::spawn_blocking(move || nix::unistd::User::from_uid(uid)).await;
    user.ok()?.ok()?.map(|user| user.name)
}

impl Batch for GridEngine {
    async fn submit(&self, pilot: &Pilot) -> Result<Job, BatchError> {
        pilot.check()?;
        let asked = self.requested(&pilot.request).await?.map_err(|what| BatchError::Request { what })?;
        let name = &pilot.name;
        self.private.remove(name, FILES)?;
        let secret = match &pilot.secret {
            Some(secret) => Some(self.private.write(name, "secret", secret.bytes())?),
            None => None,
        };
        let secret = secret.map(|path| script::quoted(&path.to_string_lossy()));
        let text = script::of_node(&pilot.script, secret.as_deref());
        let node = self.private.write(name, "node", text.as_bytes())?;
        if let Some(time) = pilot.request.time {
            self.private.write(name, "time", time.as_secs().to_string().as_bytes())?;
        }
        let mut options = arguments::submission(name, &self.private.path(name, "log"));
        options.extend(asked);
        let submitted = async {
            let output = self.runner.run("qsub", &options, arguments::batch_script(&node).as_bytes()).await?;
            if !output.is_ok() {
                let silent = parse::is_unreachable(&output.said);
                return Err(if silent {
                    self.runner.unreachable(&output)
                } else {
                    self.runner.refused(&output)
                });
            }
            let id = parse::job_id(&output.out).map_err(|what| self.unclear(&output, what))?;
            id.parse().map_err(|_| self.unclear(&output, "no job's number".to_owned()))
        };
        match submitted.await {
            Ok(id) => Ok(Job { id: JobId(id), name: name.clone() }),
            // The master may have taken the job before it fell silent: the files stay.
            Err(error) if error.is_unreachable() => Err(error),
            Err(error) => {
                self.private.remove(name, FILES)?;
                Err(error)
            }
        }
    }

    async fn find(&self, name: &Word) -> Result<Option<Job>, BatchError> {
        let jobs = self.jobs().await?;
        let found = jobs.into_iter().find(|job| job.name == name.as_str());
        Ok(found.and_then(|job| Some(Job { id: JobId(job.id.parse().ok()?), name: name.clone() })))
    }

    async fn states(&self, jobs: &[Job]) -> Result<Vec<State>, BatchError> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let listed = self.jobs().await?;
        let mut states = Vec::with_capacity(jobs.len());
        for job in jobs {
            let is = |listed: &&Listed| listed.id == job.id.0.as_str() && listed.name == job.name.as_str();
            let state = match listed.iter().find(is) {
                Some(listed) => self.listed(job, listed).await?,
                None => self.ended(job).await?,
            };
            if matches!(state, State::Ended(_) | State::Unknown) {
                self.gone.lock().unwrap_or_else(PoisonError::into_inner).remove(&job.id);
            }
            if matches!(state, State::Ended(_)) {
                let kept: Vec<_> = FILES.iter().copied().filter(|kind| *kind != "cancelled").collect();
                self.private.remove(&job.name, &kept)?;
            }
            states.push(state);
        }
        Ok(states)
    }

    async fn estimate(&self, request: &Request) -> Result<Estimate, BatchError> {
        let options = match self.requested(request).await? {
            Ok(options) => options,
            Err(reason) => return Ok(Estimate::Never { reason }),
        };
        let (now, reason) = self.verified("p", &options).await?;
        if now {
            return Ok(Estimate::At(SystemTime::now()));
        }
        let (ever, never) = self.verified("v", &options).await?;
        Ok(if ever { Estimate::Unknown { reason } } else { Estimate::Never { reason: never } })
    }

    async fn cancel(&self, job: &Job) -> Result<(), BatchError> {
        // Another job of this user's may have got the number since.
        match self.described(&job.id).await? {
            Some((name, _)) if name == job.name.as_str() => {}
            Some(_) => return Ok(()),
            // By the other files it is known, if it has ended and has no account yet.
            None => return self.private.remove(&job.name, &["secret"]),
        }
        self.private.write(&job.name, "cancelled", job.id.0.as_str().as_bytes())?;
        let output = self.run("qdel", &[job.id.0.as_str()]).await?;
        if !output.is_ok()
            && !output.reason().contains("does not exist")
            && !output.out.contains("does not exist")
        {
            self.private.remove(&job.name, &["cancelled"])?;
            return Err(self.runner.failed(&output));
        }
        self.private.remove(&job.name, &["secret"])
    }

    fn written(&self, name: &Word) -> Option<String> {
        self.private.tail(name, "log")
    }

    async fn forget(&self, name: &Word) -> Result<(), BatchError> {
        self.private.remove(name, FILES)
    }

    async fn capacity(&self) -> Result<Vec<NodeClass>, BatchError> {
        let output = self.must("qhost", &["-F", "-xml"]).await?;
        let hosts = parse::hosts(&output.out).map_err(|what| self.unclear(&output, what))?;
        let output = self.must("qstat", &["-f", "-xml"]).await?;
        parse::capacity(&output.out, &hosts).map_err(|what| self.unclear(&output, what))
    }
}
