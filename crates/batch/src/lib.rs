//! What is asked of a batch scheduler: submit a pilot, its state, when it could start, cancel it,
//! which nodes there are.
//!
//! A *pilot* is a batch job that runs one script on each of its nodes. All is done as the user who
//! runs this, by the scheduler's own commands.
//!
//! | module | what |
//! |---|---|
//! | [`pilot`] | a pilot, and what it asks for |
//! | [`state`] | what a scheduler answers |
//! | [`slurm`] | Slurm, from 22.05 on |
//! | [`grid_engine`] | Grid Engine, from 8.1 on |
//! | [`hosts`] | hosts without a scheduler, over ssh |
//! | [`command`] | running a program within a time, and its bounded output |
//!
//! Reading an output is a pure function, in a file `parse.rs` of each scheduler.
#![forbid(unsafe_code)]

use std::future::Future;

pub mod command;
mod error;
pub mod grid_engine;
pub mod hosts;
pub mod pilot;
mod private;
mod script;
pub mod slurm;
pub mod state;
mod word;

pub use error::BatchError;
pub use grid_engine::GridEngine;
pub use hosts::Hosts;
pub use pilot::{Pilot, Request, Secret};
pub use slurm::Slurm;
pub use state::{End, Estimate, Job, JobId, NodeClass, State};
pub use word::{Word, WordError};

/// What every scheduler can do. Each call ends within the deadline of the commands that it runs.
pub trait Batch {
    /// Submits a pilot, whose name differs from those of the user's other jobs there.
    ///
    /// # Errors
    /// [`BatchError::Refused`] if the scheduler doesn't take such a job. If the scheduler doesn't
    /// answer, it may have taken the job all the same: [`find`](Self::find) tells.
    fn submit(&self, pilot: &Pilot) -> impl Future<Output = Result<Job, BatchError>> + Send;

    /// The user's job of this name that waits or runs; `None` if there is none.
    ///
    /// # Errors
    /// If the scheduler doesn't answer.
    fn find(&self, name: &Word) -> impl Future<Output = Result<Option<Job>, BatchError>> + Send;

    /// The states of jobs, in their order. A job that the scheduler doesn't know is
    /// [`State::Unknown`]. The files of a job that has ended are removed, those of an unknown one by
    /// [`cancel`](Self::cancel).
    ///
    /// # Errors
    /// If the scheduler doesn't answer.
    fn states(&self, jobs: &[Job]) -> impl Future<Output = Result<Vec<State>, BatchError>> + Send;

    /// When a pilot that asks for this could start. Nothing is submitted.
    ///
    /// # Errors
    /// If the scheduler doesn't answer.
    fn estimate(&self, request: &Request) -> impl Future<Output = Result<Estimate, BatchError>> + Send;

    /// Cancels a job, and removes its files. It is no error if the job has ended, or isn't known.
    ///
    /// # Errors
    /// If the scheduler doesn't answer, or doesn't let this user cancel the job.
    fn cancel(&self, job: &Job) -> impl Future<Output = Result<(), BatchError>> + Send;

    /// The end of what a pilot has written, 8 KiB at most; `None` if nothing is known of it.
    fn written(&self, name: &Word) -> Option<String>;

    /// Removes the files of a pilot that has no job.
    ///
    /// # Errors
    /// If they can't be removed.
    fn forget(&self, name: &Word) -> impl Future<Output = Result<(), BatchError>> + Send;

    /// The nodes, by class. Nodes that are down or drained aren't counted.
    ///
    /// # Errors
    /// If the scheduler doesn't answer.
    fn capacity(&self) -> impl Future<Output = Result<Vec<NodeClass>, BatchError>> + Send;
}

/// A scheduler of one of the kinds that are known.
#[derive(Debug)]
pub enum Scheduler {
    /// Slurm.
    Slurm(Slurm),
    /// Grid Engine.
    GridEngine(GridEngine),
    /// Hosts without a scheduler.
    Hosts(Hosts),
}

impl Scheduler {
    /// The scheduler's name, for people.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Slurm(_) => "Slurm",
            Self::GridEngine(_) => "Grid Engine",
            Self::Hosts(_) => "plain hosts",
        }
    }
}

macro_rules! each {
    ($scheduler:expr, $one:ident => $call:expr) => {
        match $scheduler {
            Scheduler::Slurm($one) => $call,
            Scheduler::GridEngine($one) => $call,
            Scheduler::Hosts($one) => $call,
        }
    };
}

impl Batch for Scheduler {
    async fn submit(&self, pilot: &Pilot) -> Result<Job, BatchError> {
        each!(self, one => one.submit(pilot).await)
    }

    async fn find(&self, name: &Word) -> Result<Option<Job>, BatchError> {
        each!(self, one => one.find(name).await)
    }

    async fn states(&self, jobs: &[Job]) -> Result<Vec<State>, BatchError> {
        each!(self, one => one.states(jobs).await)
    }

    async fn estimate(&self, request: &Request) -> Result<Estimate, BatchError> {
        each!(self, one => one.estimate(request).await)
    }

    async fn cancel(&self, job: &Job) -> Result<(), BatchError> {
        each!(self, one => one.cancel(job).await)
    }

    fn written(&self, name: &Word) -> Option<String> {
        each!(self, one => one.written(name))
    }

    async fn forget(&self, name: &Word) -> Result<(), BatchError> {
        each!(self, one => one.forget(name).await)
    }

    async fn capacity(&self) -> Result<Vec<NodeClass>, BatchError> {
        each!(self, one => one.capacity().await)
    }
}
