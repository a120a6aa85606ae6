//! Nodes that something else than the command line gives to a run: the batch job that it is called in,
//! or batch jobs that it has had submitted.

use std::path::PathBuf;

use isthmus_wire::proto::JobNode;

use super::allocation::OwnBatchJob;
use super::args::RunArgs;
use super::pilots::Pilots;
use super::progress::Progress;
use super::signals::Signals;

/// Nodes of batch jobs.
#[derive(Debug)]
pub(crate) enum Given {
    /// Of the batch job that `isthmus run` is called in.
    Own(Box<OwnBatchJob>),
    /// Of batch jobs that were submitted for this run.
    Pilots(Pilots),
}

impl Given {
    /// The nodes that batch jobs give; `None` if the run is in none and asks for none.
    ///
    /// # Errors
    /// As [`Pilots::find`] and [`OwnBatchJob::find`].
    pub(crate) async fn find(
        args: &RunArgs,
        progress: &mut Progress,
        signals: &mut Signals,
    ) -> anyhow::Result<Option<Self>> {
        if let Some(pilots) = Pilots::find(args, progress, signals).await? {
            return Ok(Some(Self::Pilots(pilots)));
        }
        Ok(OwnBatchJob::find(args, progress, signals).await?.map(|job| Self::Own(Box::new(job))))
    }

    /// The names of the nodes that the job is to have.
    pub(crate) fn names(&self, args: &RunArgs) -> Vec<String> {
        match self {
            Self::Own(job) => job.names(args),
            Self::Pilots(pilots) => pilots.names().into_iter().chain(args.nodes.iter().cloned()).collect(),
        }
    }

    /// The socket of the agent on this node; `None` for the default.
    pub(crate) fn socket(&self) -> Option<&PathBuf> {
        match self {
            Self::Own(job) => job.socket(),
            Self::Pilots(_) => None,
        }
    }

    /// Gives the job's nodes the slots that batch jobs have there.
    pub(crate) fn set_slots(&self, nodes: &mut [JobNode]) {
        match self {
            Self::Own(job) => job.set_slots(nodes),
            // As their agents offer them.
            Self::Pilots(_) => {}
        }
    }

    /// How a batch job is ended, in words; `None` if none is, or the scheduler doesn't say so in time.
    pub(crate) async fn end_of_job(&self) -> Option<String> {
        match self {
            Self::Own(job) => job.end_of_job().await,
            Self::Pilots(pilots) => pilots.end_of_job().await,
        }
    }

    /// Ends what was started for this run.
    pub(crate) async fn finish(self) {
        match self {
            Self::Own(job) => job.finish().await,
            Self::Pilots(pilots) => pilots.finish().await,
        }
    }
}
