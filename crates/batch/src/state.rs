//! What a scheduler answers.

use std::fmt;
use std::time::{Duration, SystemTime};

use crate::Word;

/// A job's id at its scheduler, such as Slurm's number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub Word);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A job. Schedulers give numbers a second time, so its name belongs to it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// Its name, as [submitted](crate::Pilot::name).
    pub name: Word,
}

/// Where a job is. Times are by the scheduler's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It waits for nodes.
    Pending {
        /// Why, in the scheduler's words; empty if it gives no reason.
        reason: String,
        /// When the scheduler expects it to start; `None` if it doesn't say.
        start: Option<SystemTime>,
    },
    /// It runs.
    Running {
        /// Its nodes, by the scheduler's names. Sorted for plain hosts and Grid Engine, in the
        /// scheduler's order for Slurm.
        nodes: Vec<String>,
        /// When its time ends; `None` if the scheduler doesn't say.
        end: Option<SystemTime>,
    },
    /// It has nodes, and the scheduler has stopped its processes for a while.
    Suspended {
        /// Its nodes.
        nodes: Vec<String>,
    },
    /// It has ended or is being ended, and its nodes aren't free yet.
    Ending {
        /// Its nodes.
        nodes: Vec<String>,
    },
    /// It has ended.
    Ended(End),
    /// The scheduler answers, and doesn't know the job: it ended long ago, or never was.
    Unknown,
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The script ended with status 0, on each node.
    Completed,
    /// The script ended with another status, or by a signal. Both are 0 if the scheduler doesn't
    /// know, as for a job that could not be started.
    Failed {
        /// The status.
        status: u8,
        /// The signal; 0 if none.
        signal: u8,
    },
    /// Somebody cancelled it.
    Cancelled {
        /// Who, if the scheduler says so.
        by: Option<String>,
    },
    /// Its time was over.
    TimeLimit,
    /// A node failed, or was started anew.
    NodeFailure,
    /// Another job took its nodes.
    Preempted,
    /// It used more memory than it had asked for.
    OutOfMemory,
    /// It has ended, and the scheduler doesn't tell how, or in words that aren't known here.
    Other {
        /// The scheduler's words; may be empty.
        said: String,
    },
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Completed => f.write_str("it completed"),
            Self::Failed { status: 0, signal: 0 } => f.write_str("it failed"),
            Self::Failed { status, signal: 0 } => write!(f, "its script ended with status {status}"),
            Self::Failed { signal, .. } => write!(f, "its script was ended by signal {signal}"),
            Self::Cancelled { by: None } => f.write_str("it was cancelled"),
            Self::Cancelled { by: Some(by) } => write!(f, "it was cancelled by {by}"),
            Self::TimeLimit => f.write_str("its time limit was reached"),
            Self::NodeFailure => f.write_str("a node failed"),
            Self::Preempted => f.write_str("another job took its nodes"),
            Self::OutOfMemory => f.write_str("it used more memory than it had asked for"),
            Self::Other { said } if said.is_empty() => {
                f.write_str("it has ended; the scheduler doesn't say how")
            }
            Self::Other { said } => write!(f, "it has ended: {said}"),
        }
    }
}

/// When a job could start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Estimate {
    /// At this time, by the scheduler's clock and as things stand. In the past means at once.
    At(SystemTime),
    /// Some day; the scheduler doesn't say when.
    Unknown {
        /// What it says.
        reason: String,
    },
    /// Not with the nodes that are in service, the rules and the limits that hold.
    Never {
        /// What the scheduler says.
        reason: String,
    },
}

/// Nodes that are alike, in one queue. The same nodes may stand in several queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeClass {
    /// The queue (Slurm: partition); `None` where there are none.
    pub queue: Option<String>,
    /// Whether a job that names no queue comes here.
    pub default: bool,
    /// How many nodes are in service, free or not.
    pub nodes: u32,
    /// How many of them run nothing. The scheduler may keep them for others.
    pub nodes_free: u32,
    /// Cores of each node.
    pub cores: u32,
    /// Free cores of all these nodes together.
    pub cores_free: u64,
    /// Bytes of memory of each node.
    pub memory_bytes: u64,
    /// The longest time that a job may ask for; `None` if there is no limit.
    pub time: Option<Duration>,
    /// What the nodes' owner says that they have. Sorted, each is there once.
    pub features: Vec<String>,
}
