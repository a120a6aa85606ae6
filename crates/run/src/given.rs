//! Nodes that something else than the command line gives to a run: the batch job or the allocation that
//! it is called in, or batch jobs that it has had submitted.

use std::path::PathBuf;
use std::time::Duration;

use isthmus_front::notes;
use isthmus_wire::proto::JobNode;

use super::alloc;
use super::allocation::OwnBatchJob;
use super::args::RunArgs;
use super::notice::End;
use super::pilots::{Cost, Pilots};
use super::progress::Progress;
use super::signals::Signals;

/// Nodes of batch jobs.
#[derive(Debug)]
pub(crate) enum Given {
    /// Of the batch job that `isthmus run` is called in.
    Own(Box<OwnBatchJob>),
    /// Of batch jobs that were submitted for this run.
    Pilots(Pilots),
    /// Of batch jobs that `isthmus alloc` keeps: their names.
    Kept(Vec<String>),
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
        kept(std::env::var(alloc::NODES).ok()).map(Self::Kept)
    }

    /// The names of the nodes that the job is to have.
    pub(crate) fn names(&self, args: &RunArgs) -> Vec<String> {
        match self {
            Self::Own(job) => job.names(args),
            Self::Pilots(pilots) => pilots.names().into_iter().chain(args.nodes.iter().cloned()).collect(),
            Self::Kept(names) => names.iter().chain(&args.with).cloned().collect(),
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

    /// What tells that the time of a batch job is over in less than `before`, in words; `None` if something
    /// else keeps the batch jobs.
    pub(crate) fn nears_end(&self, before: Duration) -> Option<End> {
        match self {
            Self::Own(job) => Some(Box::pin(job.nears_end(before))),
            Self::Pilots(pilots) => Some(Box::pin(pilots.nears_end(before))),
            Self::Kept(_) => None,
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

/// The nodes that `isthmus alloc` tells by its variable; `None` if it tells none.
fn kept(value: Option<String>) -> Option<Vec<String>> {
    let names: Vec<String> =
        value?.split(',').map(str::trim).filter(|name| !name.is_empty()).map(ToOwned::to_owned).collect();
    (!names.is_empty()).then_some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_an_allocation() {
        for (value, want) in [
            (None, None),
            (Some(""), None),
            (Some(","), None),
            (Some("n1-p1.a,n2-p1.a"), Some(vec!["n1-p1.a".to_owned(), "n2-p1.a".to_owned()])),
        ] {
            assert_eq!(kept(value.map(ToOwned::to_owned)), want, "{value:?}");
        }
    }
}
