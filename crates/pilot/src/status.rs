//! What is known of a pilot, and why one ended.

use std::fmt;
use std::time::SystemTime;

use isthmus_batch::{End, Job, State};

/// A node of a pilot, whose agent is attached.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Arrived {
    /// The node's name in the grid, `n2-ada-1.alpha`.
    pub name: String,
    /// The host's name at the scheduler.
    pub host: String,
}

/// What is known of a pilot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// The batch job; `None` as long as the scheduler has told none.
    pub job: Option<Job>,
    /// How far it is.
    pub phase: Phase,
    /// The nodes whose agents are attached, or were.
    pub arrived: Vec<Arrived>,
    /// Why the scheduler can't be asked at the moment; `None` if it has answered last.
    pub trouble: Option<String>,
    /// How often the scheduler has answered.
    pub answers: u64,
}

/// How far a pilot is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Phase {
    /// The scheduler is to take the batch job.
    #[default]
    Submitting,
    /// The batch job waits for nodes.
    Waits {
        /// Why, in the scheduler's words; may be empty.
        reason: String,
        /// When the scheduler expects it to start; `None` if it doesn't say.
        start: Option<SystemTime>,
    },
    /// The batch job runs, or is stopped for a while.
    Runs {
        /// How many nodes it has.
        nodes: u32,
        /// When its time ends; `None` if the scheduler doesn't say.
        end: Option<SystemTime>,
        /// Whether the scheduler has stopped it for a while.
        suspended: bool,
        /// Whether the scheduler ends it.
        ending: bool,
    },
    /// It has ended, or is to end, and something of it may be left.
    Ends(Why),
    /// Nothing of it is left.
    Ended(Why),
}

/// Why a pilot ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// The batch job ended.
    Job(End),
    /// One of its nodes could not have an agent.
    Node {
        /// The node's name at the scheduler.
        host: String,
        /// Why.
        reason: String,
    },
    /// The scheduler doesn't know the batch job any more.
    Forgotten,
    /// It could not be submitted, for this reason.
    Unsubmitted(String),
    /// Nobody wants it any more.
    Unwanted,
    /// It has waited for nodes for as long as it was to.
    Late,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Job(end) => end.fmt(f),
            Self::Node { host, reason } => write!(f, "no agent on {host}: {reason}"),
            Self::Forgotten => f.write_str("the scheduler doesn't know it any more"),
            Self::Unsubmitted(reason) => write!(f, "it could not be submitted: {reason}"),
            Self::Unwanted => f.write_str("nobody wants it any more"),
            Self::Late => f.write_str("it got no nodes in time"),
        }
    }
}

impl Phase {
    /// Why the pilot has ended or is to end; `None` before.
    pub fn why(&self) -> Option<&Why> {
        match self {
            Self::Ends(why) | Self::Ended(why) => Some(why),
            Self::Submitting | Self::Waits { .. } | Self::Runs { .. } => None,
        }
    }

    /// The phase that follows when the scheduler says that the batch job has this state. A job that
    /// is unknown is so for good if `long_unknown`: an answer may be older than the job, and a
    /// scheduler that was started again reads its state first.
    pub fn after(self, state: State, long_unknown: bool) -> Self {
        let runs = |nodes: &[String], end, suspended| {
            let nodes = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
            Self::Runs { nodes, end, suspended, ending: false }
        };
        match (self, state) {
            (ended @ (Self::Ends(_) | Self::Ended(_)), _) => ended,
            (_, State::Pending { reason, start }) => Self::Waits { reason, start },
            (_, State::Running { nodes, end }) => runs(&nodes, end, false),
            (_, State::Suspended { nodes }) => runs(&nodes, None, true),
            (_, State::Ended(end)) => Self::Ends(Why::Job(end)),
            (_, State::Unknown) if long_unknown => Self::Ends(Why::Forgotten),
            // The end and its reason follow.
            (Self::Runs { nodes, end, suspended, .. }, State::Ending { .. }) => {
                Self::Runs { nodes, end, suspended, ending: true }
            }
            (former, State::Ending { .. } | State::Unknown) => former,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_scheduler_says_leads_on() {
        let waits = || Phase::Waits { reason: "Resources".to_owned(), start: None };
        let runs = |suspended| Phase::Runs { nodes: 2, end: None, suspended, ending: false };
        let ending = Phase::Runs { nodes: 2, end: None, suspended: false, ending: true };
        let nodes = || vec!["n1".to_owned(), "n2".to_owned()];
        let ended = |end: &End| Phase::Ends(Why::Job(end.clone()));
        let pending = State::Pending { reason: "Resources".to_owned(), start: None };
        for (case, phase, state, long, want) in [
            ("it waits", Phase::Submitting, pending.clone(), false, waits()),
            ("it starts", waits(), State::Running { nodes: nodes(), end: None }, false, runs(false)),
            ("it is stopped", runs(false), State::Suspended { nodes: nodes() }, false, runs(true)),
            ("it is requeued", runs(false), pending, false, waits()),
            ("it is ending", runs(false), State::Ending { nodes: nodes() }, false, ending),
            ("it has ended", runs(false), State::Ended(End::TimeLimit), false, ended(&End::TimeLimit)),
            ("not known yet", Phase::Submitting, State::Unknown, false, Phase::Submitting),
            ("not known any more", runs(false), State::Unknown, true, Phase::Ends(Why::Forgotten)),
            (
                "an end stays",
                Phase::Ends(Why::Unwanted),
                State::Ended(End::Cancelled { by: None }),
                false,
                Phase::Ends(Why::Unwanted),
            ),
        ] {
            assert_eq!(phase.after(state, long), want, "{case}");
        }
    }

    #[test]
    fn an_end_is_said_plainly() {
        let cancelled = Why::Job(End::Cancelled { by: Some("ada".to_owned()) });
        assert_eq!(cancelled.to_string(), "it was cancelled by ada");
        assert_eq!(Why::Job(End::TimeLimit).to_string(), "its time limit was reached");
    }
}
