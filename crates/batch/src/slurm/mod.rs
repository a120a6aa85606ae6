//! Slurm, from 22.05 on, by its own commands: `sbatch`, `squeue`, `scontrol`, `sacct`, `scancel`,
//! `sinfo`. None of its plugins is needed. Where the cluster keeps accounts (slurmdbd), jobs that
//! ended more than `MinJobAge` (300 s) ago are known, and who cancelled one.

use std::collections::HashMap;
use std::path::Path;

use nix::unistd::{Uid, User};

use crate::command::{Output, Runner};
use crate::private::Private;
use crate::state::{End, Estimate, Job, JobId, NodeClass, State};
use crate::{Batch, BatchError, Pilot, Request, Word, script};

mod arguments;
mod nodes;
pub mod parse;
#[cfg(test)]
mod tests;

use parse::{Account, Phase, Queued, Trouble};

/// Most jobs that one command asks for.
const AT_ONCE: usize = 200;
/// Files of a pilot that are removed once it has ended. Its log stays.
const FILES: &[&str] = &["secret"];

/// A cluster with Slurm.
#[derive(Debug)]
pub struct Slurm {
    runner: Runner,
    private: Private,
}

impl Slurm {
    /// A cluster, whose commands `runner` runs. Its pilots' secrets and logs are in `directory`,
    /// which the nodes must share.
    ///
    /// # Errors
    /// If the directory can't be made, or others may open it.
    pub fn new(runner: Runner, directory: &Path) -> Result<Self, BatchError> {
        let private = Private::open(directory)?;
        Ok(Self { runner: Runner { directory: Some(directory.to_owned()), ..runner }, private })
    }

    async fn run(&self, program: &str, arguments: &[String], input: &[u8]) -> Result<Output, BatchError> {
        self.runner.run(program, arguments, input).await
    }

    /// What is wrong if a command failed whose request Slurm may refuse.
    fn refusal(&self, output: &Output) -> BatchError {
        match parse::trouble(&output.said) {
            Trouble::Unreachable => self.runner.unreachable(output),
            _ => self.runner.refused(output),
        }
    }

    /// What is wrong if another command failed.
    fn failure(&self, output: &Output) -> BatchError {
        match parse::trouble(&output.said) {
            Trouble::Unreachable => self.runner.unreachable(output),
            _ => self.runner.failed(output),
        }
    }

    /// Why a job can't start, in Slurm's words. Of nodes that are drained or down it says no more than
    /// that nodes aren't available, so these are named.
    async fn never(&self, output: &Output) -> String {
        let reason = output.reason();
        if !output.said.contains("not available") {
            return reason;
        }
        let format = format!("--format={}", parse::REASONS_FORMAT);
        let arguments = ["--noheader".to_owned(), "--list-reasons".to_owned(), format];
        let nodes = match self.run("sinfo", &arguments, b"").await {
            Ok(listed) if listed.is_ok() => parse::out_of_service(&listed.out),
            // Slurm's words alone must do.
            Ok(_) | Err(_) => String::new(),
        };
        if nodes.is_empty() { reason } else { format!("{reason}; out of service: {nodes}") }
    }

    /// What `squeue` says of jobs, of those that it knows.
    async fn queue(&self, options: Vec<String>) -> Result<Vec<Queued>, BatchError> {
        let mut arguments = vec!["--noheader".to_owned(), "--all".to_owned()];
        arguments.extend(options);
        arguments.push(format!("--format={}", parse::SQUEUE_FORMAT));
        let output = self.run("squeue", &arguments, b"").await?;
        // It fails if none of the jobs is known.
        if !output.is_ok() && parse::trouble(&output.said) == Trouble::UnknownJob {
            return Ok(Vec::new());
        }
        if !output.is_ok() {
            return Err(self.failure(&output));
        }
        parse::queue(&output.out).map_err(|what| self.runner.unclear(&output.command, what))
    }

    /// How a job ended that the controller still knows; `None` if it no longer does.
    async fn described(&self, id: &str) -> Result<Option<Account>, BatchError> {
        let arguments = ["show", "job", "-o", id].map(str::to_owned);
        let output = self.run("scontrol", &arguments, b"").await?;
        if !output.is_ok() {
            return match parse::trouble(&output.said) {
                Trouble::UnknownJob => Ok(None),
                _ => Err(self.failure(&output)),
            };
        }
        let account =
            parse::described(&output.out).map_err(|what| self.runner.unclear(&output.command, what))?;
        Ok(Some(account))
    }

    /// What the accounts say of jobs; nothing if the cluster keeps none.
    async fn accounts(&self, ids: &[&str]) -> Result<Vec<Account>, BatchError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut arguments = ["--allocations", "--parsable2", "--noheader"].map(str::to_owned).to_vec();
        arguments.extend([format!("--jobs={}", ids.join(",")), format!("--format={}", parse::SACCT_FORMAT)]);
        let output = match self.run("sacct", &arguments, b"").await {
            Err(BatchError::Start { .. }) => return Ok(Vec::new()),
            output => output?,
        };
        if !output.is_ok() {
            return match parse::trouble(&output.said) {
                Trouble::NoAccounts => Ok(Vec::new()),
                _ => Err(self.failure(&output)),
            };
        }
        parse::accounts(&output.out).map_err(|what| self.runner.unclear(&output.command, what))
    }

    /// The state of a job that `squeue` has listed.
    async fn listed(&self, queued: &Queued) -> Result<State, BatchError> {
        let nodes = queued.nodes.clone();
        let state = match &queued.phase {
            Phase::Pending => State::Pending { reason: queued.reason.clone(), start: queued.start },
            Phase::Running => State::Running { nodes, end: queued.end },
            Phase::Suspended => State::Suspended { nodes },
            Phase::Ending => State::Ending { nodes },
            Phase::Ended(End::Failed { .. }) => {
                match self.described(&queued.id).await?.map(|account| account.phase) {
                    Some(Phase::Ended(end)) => State::Ended(end),
                    _ => State::Ended(End::Failed { status: 0, signal: 0 }),
                }
            }
            Phase::Ended(end) => State::Ended(end.clone()),
            // A state of a later Slurm. Whether it has nodes is what matters.
            Phase::Other if nodes.is_empty() => {
                State::Pending { reason: queued.word.clone(), start: queued.start }
            }
            Phase::Other => State::Suspended { nodes },
        };
        Ok(state)
    }

    async fn states_of(&self, jobs: &[Job]) -> Result<Vec<State>, BatchError> {
        let ids: Vec<_> = jobs.iter().map(|job| job.id.0.as_str()).collect();
        let listed = self.queue(vec![format!("--jobs={}", ids.join(",")), "--states=all".to_owned()]).await?;
        let mut states = HashMap::new();
        for job in jobs {
            // A job of another name has got the number since.
            if let Some(queued) = listed.iter().find(|queued| is(job, &queued.id, &queued.name)) {
                states.insert(&job.id, self.listed(queued).await?);
            }
        }
        let cancelled = |id: &JobId| states.get(id) == Some(&State::Ended(End::Cancelled { by: None }));
        let missing = jobs.iter().any(|job| !states.contains_key(&job.id));
        let asked: Vec<_> = jobs
            .iter()
            .filter(|job| !states.contains_key(&job.id) || cancelled(&job.id))
            .map(|job| job.id.0.as_str())
            .collect();
        let accounts = match self.accounts(&asked).await {
            // Who cancelled a job may stay unknown.
            Err(_) if !missing => Vec::new(),
            accounts => accounts?,
        };
        for job in jobs {
            let found = accounts.iter().find(|account| is(job, &account.id, &account.name));
            if let Some(Account { phase: Phase::Ended(end), .. }) = found {
                states.insert(&job.id, State::Ended(with_name(end.clone()).await));
            }
        }
        Ok(jobs.iter().map(|job| states.get(&job.id).cloned().unwrap_or(State::Unknown)).collect())
    }
}

/// Whether a number and a name are those of a job.
fn is(job: &Job, id: &str, name: &str) -> bool {
    job.id.0.as_str() == id && job.name.as_str() == name
}

/// An end with the user's name in place of its number, if this machine knows the user.
async fn with_name(end: End) -> End {
    let End::Cancelled { by: Some(by) } = &end else { return end };
    let Ok(uid) = by.parse() else { return end };
    // The look-up may ask a directory service.
    let user = tokio::task::spawn_blocking(move || User::from_uid(Uid::from_raw(uid))).await;
    match user {
        Ok(Ok(Some(user))) => End::Cancelled { by: Some(user.name) },
        _ => end,
    }
}

impl Batch for Slurm {
    async fn submit(&self, pilot: &Pilot) -> Result<Job, BatchError> {
        pilot.check()?;
        let secret = match &pilot.secret {
            Some(secret) => Some(self.private.write(&pilot.name, "secret", secret.bytes())?),
            None => None,
        };
        let secret = secret.map(|path| script::quoted(&path.to_string_lossy()));
        let batch =
            arguments::batch_script(&pilot.request, &script::of_node(&pilot.script, secret.as_deref()));
        let log = self.private.path(&pilot.name, "log");
        let arguments = arguments::submission(&pilot.name, &pilot.request, &log);
        let submitted = async {
            let output = self.run("sbatch", &arguments, batch.as_bytes()).await?;
            if !output.is_ok() {
                return Err(self.refusal(&output));
            }
            let id = parse::job_id(&output.out).map_err(|what| self.runner.unclear(&output.command, what))?;
            id.parse().map_err(|_| self.runner.unclear(&output.command, "no job's number".to_owned()))
        };
        match submitted.await {
            Ok(id) => Ok(Job { id: JobId(id), name: pilot.name.clone() }),
            // The controller may have taken the job before it fell silent: the secret stays.
            Err(error) if error.is_unreachable() => Err(error),
            Err(error) => {
                self.private.remove(&pilot.name, FILES)?;
                Err(error)
            }
        }
    }

    async fn find(&self, name: &Word) -> Result<Option<Job>, BatchError> {
        let user = nix::unistd::geteuid();
        let listed = self.queue(vec![format!("--user={user}"), format!("--name={name}")]).await?;
        let Some(queued) = listed.into_iter().find(|queued| queued.name == name.as_str()) else {
            return Ok(None);
        };
        let id =
            queued.id.parse().map_err(|_| self.runner.unclear("squeue", format!("a job {:?}", queued.id)))?;
        Ok(Some(Job { id: JobId(id), name: name.clone() }))
    }

    async fn states(&self, jobs: &[Job]) -> Result<Vec<State>, BatchError> {
        let mut states = Vec::with_capacity(jobs.len());
        for jobs in jobs.chunks(AT_ONCE) {
            states.append(&mut self.states_of(jobs).await?);
        }
        for (job, state) in jobs.iter().zip(&states) {
            if matches!(state, State::Ended(_)) {
                self.private.remove(&job.name, FILES)?;
            }
        }
        Ok(states)
    }

    async fn estimate(&self, request: &Request) -> Result<Estimate, BatchError> {
        let mut arguments = vec!["--test-only".to_owned()];
        arguments.extend(arguments::requested(request));
        let output = self.run("sbatch", &arguments, b"#!/bin/sh\n").await?;
        if let Some(start) = parse::estimate(&output.said) {
            return Ok(Estimate::At(start));
        }
        match parse::trouble(&output.said) {
            Trouble::Unreachable => Err(self.runner.unreachable(&output)),
            _ if output.is_ok() => Ok(Estimate::Unknown { reason: output.reason() }),
            _ => Ok(Estimate::Never { reason: self.never(&output).await }),
        }
    }

    async fn cancel(&self, job: &Job) -> Result<(), BatchError> {
        // By the name, which no other job has: the number may be another job's by now, and an sbatch
        // that got no answer may have submitted this one a second time.
        let user = nix::unistd::geteuid();
        let user = User::from_uid(user).ok().flatten().map_or_else(|| user.to_string(), |user| user.name);
        let output =
            self.run("scancel", &[format!("--name={}", job.name), format!("--user={user}")], b"").await?;
        if !output.is_ok() && parse::trouble(&output.said) != Trouble::UnknownJob {
            return Err(self.failure(&output));
        }
        self.private.remove(&job.name, FILES)
    }

    fn written(&self, name: &Word) -> Option<String> {
        self.private.tail(name, "log")
    }

    async fn forget(&self, name: &Word) -> Result<(), BatchError> {
        self.private.remove(name, FILES)
    }

    async fn capacity(&self) -> Result<Vec<NodeClass>, BatchError> {
        let arguments =
            ["--noheader".to_owned(), "--exact".to_owned(), format!("--format={}", parse::SINFO_FORMAT)];
        let output = self.run("sinfo", &arguments, b"").await?;
        if !output.is_ok() {
            return Err(self.failure(&output));
        }
        parse::capacity(&output.out).map_err(|what| self.runner.unclear(&output.command, what))
    }
}
