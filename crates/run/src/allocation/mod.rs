//! Nodes that a batch system has given to the job that `isthmus run` is called in: it takes them
//! unasked, and starts agents on those that have none.

mod known;
pub mod note;
mod own;
pub mod step;

pub(crate) use own::{OwnBatchJob, nears_end};

use std::path::PathBuf;

use isthmus_front::state::state_without_option;
use isthmus_slurm::Allocation;

use note::Note;

/// The batch job of this process; `None` if it is in none.
///
/// # Errors
/// If Slurm's variables can't be read.
pub fn of_this_process() -> anyhow::Result<Option<Allocation>> {
    Ok(Allocation::find(|name| std::env::var(name).ok())?)
}

/// The socket of the agent that `isthmus up --slurm` has started on this node in the batch job of this
/// process; `None` if it has started none.
pub(crate) fn socket() -> Option<PathBuf> {
    let allocation = of_this_process().ok()??;
    let here = allocation.here.as_deref()?;
    let nodes = Note::read(&state_without_option(), &allocation)?.nodes;
    nodes.into_iter().find(|node| node.host == here).map(|node| node.socket)
}
