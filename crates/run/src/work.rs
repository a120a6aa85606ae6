//! A job's command: one on this node, or one on every node.

use isthmus_agent::starting::supervise::{Outcome, Supervised};
use tokio::sync::watch;

use super::each::Each;

#[derive(Debug)]
pub(crate) enum Work {
    Here(Supervised),
    Each(Each),
}

impl Work {
    /// A receiver that follows the command's outcome.
    pub(super) fn outcome(&self) -> watch::Receiver<Outcome> {
        match self {
            Self::Here(supervised) => supervised.outcome(),
            Self::Each(each) => each.outcome(),
        }
    }

    /// Why the command has failed on one of several nodes, in words; `None` if it hasn't.
    pub(super) fn failure(&self) -> Option<String> {
        match self {
            Self::Here(_) => None,
            Self::Each(each) => each.failure(),
        }
    }

    /// Passes a signal on to the command, unless the command has it from the terminal.
    pub(super) async fn signal(&mut self, number: i32, from_terminal: bool) {
        match self {
            Self::Here(supervised) => supervised.signal(number, from_terminal).await,
            Self::Each(each) => each.signal(number).await,
        }
    }

    /// Ends the command, with all processes that it started.
    pub(super) async fn end(&mut self) {
        match self {
            Self::Here(supervised) => supervised.end().await,
            Self::Each(each) => each.end(),
        }
    }
}
