//! What goes wrong between here and a scheduler.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// A call of a scheduler that failed.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// A command of the scheduler could not be started.
    #[error(
        "cannot start {command} for {cluster}: {source}; is it installed here, and in PATH? Some clusters need a `module load` for it"
    )]
    Start {
        /// The command.
        command: String,
        /// The cluster.
        cluster: String,
        /// Why.
        source: io::Error,
    },
    /// A command took too long.
    #[error(
        "{command} did not answer for {cluster} within {limit:?}; the scheduler may be down or busy: try again later, or ask the administrators of {cluster}"
    )]
    Late {
        /// The command.
        command: String,
        /// The cluster.
        cluster: String,
        /// How long it was waited for.
        limit: Duration,
    },
    /// The scheduler's daemon, or a host, doesn't answer. Nothing is known of jobs there.
    #[error(
        "{cluster} does not answer: {command} says: {said}; try again later, or ask the administrators of {cluster}"
    )]
    Unreachable {
        /// The command.
        command: String,
        /// The cluster.
        cluster: String,
        /// What it wrote, cut.
        said: String,
    },
    /// The scheduler answers, and doesn't do what was asked.
    #[error("{cluster} refuses: {command} says: {said}; change what is asked for (see docs/schedulers.md)")]
    Refused {
        /// The command.
        command: String,
        /// The cluster.
        cluster: String,
        /// What it wrote, cut.
        said: String,
    },
    /// A command failed in another way.
    #[error("{command} failed for {cluster} with {status}: {said}; run it by hand there to see more")]
    Failed {
        /// The command.
        command: String,
        /// The cluster.
        cluster: String,
        /// How it ended, such as `exit status: 1`.
        status: String,
        /// What it wrote, cut.
        said: String,
    },
    /// A command's output isn't what it is documented to be.
    #[error(
        "{command} for {cluster} answered what isn't understood: {what}; is it the scheduler's own command, and of a version that is known?"
    )]
    Output {
        /// The command.
        command: String,
        /// The cluster.
        cluster: String,
        /// What was expected, and what was got.
        what: String,
    },
    /// The request can't be put to this scheduler.
    #[error("a pilot can't be asked for: {what}")]
    Request {
        /// What is wrong.
        what: String,
    },
    /// A file of this user's can't be used.
    #[error("cannot use {}: {why}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// Why, and what to do.
        why: String,
    },
}

impl BatchError {
    /// Whether the scheduler did not answer, so that nothing is known of the jobs.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Late { .. } | Self::Unreachable { .. })
    }
}
