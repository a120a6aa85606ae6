//! Who ended a job: of all that went wrong, the one event that the others follow from. A
//! pure decision: an event explains those that can follow from it and that happened after it.

#[cfg(test)]
mod tests;

use std::time::Duration;

use isthmus_agent::starting::processes::{LAUNCH, SUPERVISOR};
use isthmus_front::format::site;
use isthmus_wire::launchers::DAEMONS;
use isthmus_wire::proto::{CommandKilled, NodeLost, RankEnded};
use isthmus_wire::text::{first, one_line};
use nix::libc;
use nix::sys::signal::Signal;

use super::signals::Received;

/// Within this time one blow hits processes one after another: a batch system that ends them, or a
/// machine that goes down.
const BLOW: Duration = Duration::from_secs(2);
/// How long a call may wait for a resource that has run out: as long as a kernel tries to connect.
const SHORTAGE: Duration = Duration::from_secs(127);
/// Most lost nodes that are named one by one.
const NAMED: usize = 2;
/// Most events that are kept: the culprit is among the first. Lost nodes are counted for the user.
const EVENTS_MAX: usize = 4096;
/// Most events of one class that are kept, apart from lost nodes. Thousands of ranks may end
/// because of one node, whose silence takes seconds.
const ALIKE_MAX: usize = 64;
/// A launcher that starts a daemon so long after an event wasn't ended by that event. A script may
/// start one launcher after another.
const SURVIVED: Duration = Duration::from_secs(5);
/// A command that ends so long after an interrupt wasn't ended by it: the command decided to go on.
const INTERRUPT: Duration = Duration::from_secs(60);
/// Signals by which a program ends itself, mostly since something else is amiss.
const OWN: [i32; 5] = [libc::SIGABRT, libc::SIGPIPE, libc::SIGTERM, libc::SIGHUP, libc::SIGINT];
/// Signals of a program's own fault. A process that starts ranks may fail by them when its job
/// ends.
const FAULTS: [i32; 5] = [libc::SIGABRT, libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];

/// Something that may have ended a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    /// `isthmus run` got a signal.
    Signal(Received),
    /// An agent reported that a node was lost.
    NodeLost(NodeLost),
    /// This node's agent was lost, or nodes were cut off; the text tells which.
    Lost(String),
    /// A rank ended badly, not by its launcher.
    Rank(RankEnded),
    /// A command of a launcher, such as its daemon, was killed.
    Command(CommandKilled),
    /// A launcher was killed, or told to end.
    Launcher(CommandKilled),
    /// A node lacks a resource; the text tells which. That alone ends no job.
    Short(String),
    /// A connection couldn't be made; the text tells why.
    Unconnected(String),
    /// With `--each`, the command on one of several nodes failed; the text tells how.
    Each(String),
    /// As the command ends, nothing is heard of this node, which stands for a site.
    Silent(String),
}

/// The class of an event. An event may follow from one of an earlier class, never from one of a
/// later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Signal,
    Lost,
    RankKilled,
    Daemon,
    Launcher,
    Short,
    Unconnected,
    /// A launcher, or its daemon, ended by a signal of a fault of its own.
    StarterFailed,
    RankAborted,
    RankExited,
    Each,
    /// Another command was killed: perhaps by a launcher's cleanup.
    Command,
    Silent,
}

impl Event {
    fn class(&self) -> Class {
        match self {
            Self::Signal(_) => Class::Signal,
            Self::NodeLost(_) | Self::Lost(_) => Class::Lost,
            Self::Rank(RankEnded { signal: 0, .. }) => Class::RankExited,
            Self::Rank(ended) if OWN.contains(&ended.signal) => Class::RankAborted,
            Self::Rank(_) => Class::RankKilled,
            Self::Command(killed) if !is_daemon(&killed.command) => Class::Command,
            Self::Command(killed) | Self::Launcher(killed) if FAULTS.contains(&killed.signal) => {
                Class::StarterFailed
            }
            Self::Command(_) => Class::Daemon,
            Self::Launcher(_) => Class::Launcher,
            Self::Short(_) => Class::Short,
            Self::Unconnected(_) => Class::Unconnected,
            Self::Each(_) => Class::Each,
            Self::Silent(_) => Class::Silent,
        }
    }

    fn lost(&self) -> Option<&NodeLost> {
        match self {
            Self::NodeLost(lost) => Some(lost),
            _ => None,
        }
    }

    /// The node at which the event happened; `None` unless it is a process's end.
    fn node(&self) -> Option<&str> {
        match self {
            Self::Rank(ended) => Some(&ended.node),
            Self::Command(killed) | Self::Launcher(killed) => Some(&killed.node),
            _ => None,
        }
    }

    /// Whether a job can go on after the event.
    fn may_be_survived(&self) -> bool {
        matches!(self, Self::Rank(_) | Self::Command(_) | Self::Launcher(_) | Self::Short(_))
    }

    fn same(&self, other: &Self) -> bool {
        match (self.lost(), other.lost()) {
            (Some(lost), Some(other)) => lost.node == other.node,
            _ => self == other,
        }
    }
}

/// Whether a command, as an agent names it, is a launcher's daemon, or stands for one: its
/// supervisor, or what the launcher has in place of ssh.
pub(super) fn is_daemon(command: &str) -> bool {
    command.starts_with(LAUNCH) || DAEMONS.contains(&command.strip_prefix(SUPERVISOR).unwrap_or(command))
}

/// An event, with times since the command began.
#[derive(Debug)]
struct Entry {
    /// When the event happened.
    began: Duration,
    /// When the event was last told.
    last: Duration,
    event: Event,
    /// Whether the job went on after the event, so that another one has ended it.
    survived: bool,
}

impl Entry {
    /// Whether the event is an interrupt after which the command, which ended at `ended`, has gone
    /// on.
    fn is_ignored(&self, ended: Duration) -> bool {
        matches!(self.event, Event::Signal(signal) if !signal.is_final()) && ended > self.last + INTERRUPT
    }
}

/// The event that ended a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Culprit {
    /// The event in words, for the user.
    pub words: String,
    /// The signal that `isthmus run` got, if the event is one.
    pub signal: Option<Received>,
}

/// What went wrong so far, in the order in which it was told first.
#[derive(Debug, Default)]
pub(super) struct Events(Vec<Entry>);

impl Events {
    /// Adds an event that happened so long `ago`. One event may come twice: as news, and in the
    /// answer at the job's end.
    pub(super) fn add(&mut self, now: Duration, ago: Duration, event: Event) {
        if let Some(known) = self.0.iter_mut().find(|entry| entry.event.same(&event)) {
            known.last = now;
            return;
        }
        let class = event.class();
        let alike = self.0.iter().filter(|entry| !entry.survived && entry.event.class() == class);
        let has_room = event.lost().is_some() || alike.count() < ALIKE_MAX;
        if has_room && self.0.len() < EVENTS_MAX {
            self.0.push(Entry { began: now.saturating_sub(ago), last: now, event, survived: false });
        }
    }

    /// Notes that a launcher starts a daemon: the job has survived the events that were told long
    /// before.
    pub(super) fn goes_on(&mut self, at: Duration) {
        for entry in &mut self.0 {
            let is_long_ago = at.saturating_sub(entry.last) >= SURVIVED;
            entry.survived |= is_long_ago && entry.event.may_be_survived();
        }
    }

    /// The event that ended the job, whose command ended at this time: the first of those that
    /// don't follow from others. `None` if only the command itself is to blame.
    pub(super) fn culprit(&self, ended: Duration) -> Option<Culprit> {
        let has_survived = |entry: &Entry| entry.survived || entry.is_ignored(ended);
        let entries: Vec<&Entry> = self.0.iter().filter(|entry| !has_survived(entry)).collect();
        let is_explained = |effect: &Entry| entries.iter().any(|cause| explains(cause, effect));
        let has_effect = |cause: &Entry| {
            !matches!(cause.event, Event::Short(_))
                || ended <= cause.last + SHORTAGE
                || entries.iter().any(|effect| explains(cause, effect))
        };
        let causes = entries.iter().filter(|entry| !is_explained(entry) && has_effect(entry));
        let culprit = causes.min_by_key(|entry| entry.began)?;
        let signal = match culprit.event {
            Event::Signal(signal) => Some(signal),
            _ => None,
        };
        Some(Culprit { words: one_line(&self.words(&culprit.event)), signal })
    }

    fn words(&self, event: &Event) -> String {
        match event {
            Event::Signal(signal) => signal.to_string(),
            Event::Lost(words) | Event::Short(words) | Event::Unconnected(words) | Event::Each(words) => {
                words.clone()
            }
            Event::Silent(node) => {
                format!("nothing is heard of {node}: it is frozen, or the network between is cut")
            }
            Event::NodeLost(lost) => self.lost_words(lost),
            Event::Rank(ended) => rank_words(ended),
            Event::Command(killed) | Event::Launcher(killed) => {
                format!("{} on {} was ended by {}", killed.command, killed.node, name_of(killed.signal))
            }
        }
    }

    /// A lost node in words, with the others that were lost for the same reason.
    fn lost_words(&self, lost: &NodeLost) -> String {
        let together: Vec<&str> = self
            .0
            .iter()
            .filter_map(|entry| entry.event.lost())
            .filter(|other| kind(&other.reason) == kind(&lost.reason))
            .map(|other| other.node.as_str())
            .collect();
        let reason = &lost.reason;
        let own = site(&lost.node);
        match together.as_slice() {
            [] | [_] => format!("lost node {}: {reason}", lost.node),
            nodes if nodes.iter().all(|node| site(node) == own) => {
                format!("lost nodes {} of site {own}: {reason}", first(nodes.iter(), 0, NAMED))
            }
            nodes => format!("lost nodes {}: {reason}", first(nodes.iter(), 0, NAMED)),
        }
    }
}

/// Whether one event follows from another.
fn explains(cause: &Entry, effect: &Entry) -> bool {
    let (class, of_effect) = (cause.event.class(), effect.event.class());
    if class >= of_effect {
        return false;
    }
    let is_first = cause.began <= effect.began;
    match class {
        // A shortage is over at some time.
        Class::Short => cause.began <= effect.began + BLOW && effect.began <= cause.last + SHORTAGE,
        Class::StarterFailed => is_first,
        // What is mostly a consequence may be told long before its cause: silence takes seconds.
        _ => is_first || of_effect >= Class::Short || is_one_blow(cause, effect),
    }
}

/// Whether one blow explains both events, although the effect was hit first.
fn is_one_blow(cause: &Entry, effect: &Entry) -> bool {
    let hits_both = match &cause.event {
        Event::Signal(signal) => !signal.from_terminal,
        Event::NodeLost(lost) => effect.event.node() == Some(&lost.node),
        _ => false,
    };
    hits_both && cause.began.saturating_sub(effect.began) <= BLOW
}

/// How a rank has ended, in words for the user.
pub(super) fn rank_words(ended: &RankEnded) -> String {
    let RankEnded { node, rank, signal, status, .. } = ended;
    match signal {
        _ if ended.unfinished => format!("rank {rank} on {node} ended without MPI_Finalize"),
        0 => format!("rank {rank} on {node} ended with status {status}"),
        _ => format!("rank {rank} on {node} was ended by {}", name_of(*signal)),
    }
}

/// A reason without its numbers, such as how long nothing was heard.
fn kind(reason: &str) -> String {
    reason.chars().filter(|character| !character.is_ascii_digit()).collect()
}

fn name_of(signal: i32) -> &'static str {
    Signal::try_from(signal).map_or("a signal", Signal::as_str)
}
