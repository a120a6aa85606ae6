//! Nodes that something else than the command line gives to a run: the batch job or the allocation that
//! it is called in, or batch jobs that it has had submitted.

use std::path::PathBuf;
use std::time::Duration;

use isthmus_front::notes;
use isthmus_profile::Tag;
use isthmus_wire::proto::JobNode;

use super::allocation::OwnBatchJob;
use super::args::RunArgs;
use super::kept::KeptNodes;
use super::notice::End;
use super::pilots::{BatchArgs, Cost, Pilots};
use super::progress::Progress;
use super::signals::Signals;

/// Nodes of batch jobs.
#[derive(Debug)]
pub(crate) enum Given {
    /// Of the batch job that `isthmus run` is called in.
    Own(Box<OwnBatchJob>),
    /// Of batch jobs that were submitted for this run.
    Pilots(Pilots),
    /// Of batch jobs that `isthmus alloc` keeps.
    Kept(KeptNodes),
}

impl Given {
    /// The nodes that batch jobs give; `None` if the run is in none and asks for none.
    ///
    /// # Errors
    /// As [`Pilots::find`] and [`OwnBatchJob::find`].
    pub(crate) async fn find(
        args: &RunArgs,
        note: &notes::Own,
        progress: &mut Progress,
        signals: &mut Signals,
    ) -> anyhow::Result<Option<Self>> {
        if let Some(pilots) = Pilots::find(args.asking(note), progress, signals).await? {
            return Ok(Some(Self::Pilots(pilots)));
        }
        if !args.no_allocation
            && args.asks_for_no_nodes()
            && let Some(kept) = Self::kept()
        {
            return Ok(Some(kept));
        }
        Ok(OwnBatchJob::find(args, progress, signals).await?.map(|job| Self::Own(Box::new(job))))
    }

    /// The nodes of the allocation that the run is called in; `None` if it is called in none.
    pub(crate) fn kept() -> Option<Self> {
        KeptNodes::of_this_process().map(Self::Kept)
    }

    /// The names of the nodes that the job is to have.
    pub(crate) fn names(&self, args: &RunArgs) -> Vec<String> {
        match self {
            Self::Own(job) => job.names(args),
            Self::Pilots(pilots) => pilots.names().into_iter().chain(args.nodes.iter().cloned()).collect(),
            Self::Kept(kept) => kept.names.iter().chain(&args.with).cloned().collect(),
        }
    }

    /// The features that a node was asked for with, by these options if by this run.
    pub(crate) fn tags(&self, node: &str, batch: &BatchArgs) -> Vec<Tag> {
        match self {
            Self::Own(_) => Vec::new(),
            Self::Pilots(pilots) => KeptNodes::with_tags(pilots.names(), &batch.tags).tags_of(node),
            Self::Kept(kept) => kept.tags_of(node),
        }
    }

    /// The socket of the agent on this node; `None` for the default.
    pub(crate) fn socket(&self) -> Option<&PathBuf> {
        match self {
            Self::Own(job) => job.socket(),
            Self::Pilots(_) | Self::Kept(_) => None,
        }
    }

    /// Gives the job's nodes the slots that batch jobs have there.
    pub(crate) fn set_slots(&self, nodes: &mut [JobNode]) {
        match self {
            Self::Own(job) => job.set_slots(nodes),
            // As their agents offer them.
            Self::Pilots(_) | Self::Kept(_) => {}
        }
    }

    /// How a batch job is ended, in words; `None` if none is, or the scheduler doesn't say so in time. The
    /// end of a pilot interrupts no run, so nobody is asked if this one was interrupted.
    pub(crate) async fn end_of_job(&self, was_interrupted: bool) -> Option<String> {
        match self {
            Self::Own(job) => job.end_of_job().await,
            Self::Pilots(_) if was_interrupted => None,
            Self::Pilots(pilots) => pilots.end_of_job().await,
            // `isthmus alloc` says so.
            Self::Kept(_) => None,
        }
    }

    /// What tells that the time of a batch job is over in less than `before`, in words; `None` for the batch
    /// job that `isthmus run` is called in.
    pub(crate) fn nears_end(&self, before: Duration) -> Option<End> {
        match self {
            Self::Own(_) => None,
            Self::Pilots(pilots) => Some(Box::pin(pilots.nears_end(before))),
            Self::Kept(kept) => Some(Box::pin(kept.nears_end(before))),
        }
    }

    /// What was had until now of batch jobs that were submitted for this run.
    pub(crate) fn costs(&self) -> Vec<Cost> {
        match self {
            Self::Pilots(pilots) => pilots.costs(),
            Self::Own(_) | Self::Kept(_) => Vec::new(),
        }
    }

    /// Ends what was started for this run.
    pub(crate) async fn finish(self) {
        match self {
            Self::Own(job) => job.finish().await,
            Self::Pilots(pilots) => pilots.finish().await,
            Self::Kept(_) => {}
        }
    }
}
