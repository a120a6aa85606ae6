//! Nodes that a batch system has given to the job that `isthmus run` is called in: it takes them
//! unasked, and starts agents on those that have none.

mod known;
pub mod note;
mod own;
pub mod step;

pub(crate) use own::OwnBatchJob;

use isthmus_slurm::Allocation;

/// The batch job of this process; `None` if it is in none.
///
/// # Errors
/// If Slurm's variables can't be read.
pub fn of_this_process() -> anyhow::Result<Option<Allocation>> {
    Ok(Allocation::find(|name| std::env::var(name).ok())?)
}
