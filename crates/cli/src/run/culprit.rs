//! Who ended a job: of all that went wrong, the one event that the others follow from. A
//! pure decision.

#[cfg(test)]
mod tests;

use std::time::Duration;

use isthmus_agent::starting::processes::SUPERVISOR;
use isthmus_wire::launchers::DAEMONS;
use isthmus_wire::proto::{CommandKilled, NodeLost, RankEnded};
use isthmus_wire::text::{first, one_line};
use nix::libc;
use nix::sys::signal::Signal;

use crate::format::site;

/// What has one cause arrives within this time. Clocks of nodes differ, and so do their ways.
const TOGETHER: Duration = Duration::from_secs(2);
/// As many lost nodes are named one by one.
const NAMED: usize = 2;
/// Events that are kept: the culprit is among the first. Lost nodes are counted for the user.
const EVENTS_MAX: usize = 4096;
/// The same of one class but lost nodes: thousands of ranks may end because of one node,
/// whose silence takes seconds.
const ALIKE_MAX: usize = 64;
/// A launcher that starts a daemon so long after an event wasn't ended by it: a script may
/// start one launcher after another.
const SURVIVED: Duration = Duration::from_secs(5);
/// Signals by which a program ends itself, mostly since something else is amiss.
const OWN: [i32; 5] = [libc::SIGABRT, libc::SIGPIPE, libc::SIGTERM, libc::SIGHUP, libc::SIGINT];

/// Something that may have ended a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    /// A signal to `isthmus run`, in words.
    Signal(String),
    /// A node was lost.
    NodeLost(NodeLost),
    /// A node was found lost only when the job was to end.
    NodeLostLate(NodeLost),
    /// This node's agent was lost, or nodes were cut off, in words.
    Lost(String),
    /// A rank ended badly, not by its launcher.
    Rank(RankEnded),
    /// A command of a launcher, such as its daemon, was killed.
    Command(CommandKilled),
    /// The command of `isthmus run` itself was killed.
    Launcher(CommandKilled),
    /// A connection couldn't be made, in words.
    Unconnected(String),
    /// The command on one of several nodes failed, in words.
    Each(String),
    /// Nothing is heard of this node, which stands for a site, as the command ends.
    Silent(String),
}

/// How much an event explains: an event of a later class may follow from one of an earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Signal,
    Lost,
    RankKilled,
    Daemon,
    Launcher,
    Unconnected,
    LostLate,
    RankAborted,
    RankExited,
    Each,
    /// What a launcher's cleanup kills is among these.
    Command,
    Silent,
}

impl Event {
    fn class(&self) -> Class {
        match self {
            Self::Signal(_) => Class::Signal,
            Self::NodeLost(_) | Self::Lost(_) => Class::Lost,
            Self::NodeLostLate(_) => Class::LostLate,
            Self::Rank(RankEnded { signal: 0, .. }) => Class::RankExited,
            Self::Rank(ended) if OWN.contains(&ended.signal) => Class::RankAborted,
            Self::Rank(_) => Class::RankKilled,
            Self::Command(killed) if is_daemon(&killed.command) => Class::Daemon,
            Self::Command(_) => Class::Command,
            Self::Launcher(_) => Class::Launcher,
            Self::Unconnected(_) => Class::Unconnected,
            Self::Each(_) => Class::Each,
            Self::Silent(_) => Class::Silent,
        }
    }

    fn lost(&self) -> Option<&NodeLost> {
        match self {
            Self::NodeLost(lost) | Self::NodeLostLate(lost) => Some(lost),
            _ => None,
        }
    }

    /// Whether a job can go on after it.
    fn may_be_survived(&self) -> bool {
        matches!(self, Self::Rank(_) | Self::Command(_))
    }

    fn same(&self, other: &Self) -> bool {
        match (self.lost(), other.lost()) {
            (Some(lost), Some(other)) => lost.node == other.node,
            _ => self == other,
        }
    }
}

/// Whether a command, as an agent names it, is a launcher's daemon or the supervisor of one.
pub(super) fn is_daemon(command: &str) -> bool {
    DAEMONS.contains(&command.strip_prefix(SUPERVISOR).unwrap_or(command))
}

/// An event, and when it arrived, since the command began.
#[derive(Debug)]
struct Entry {
    at: Duration,
    event: Event,
    /// The job went on: another event has ended it.
    survived: bool,
}

/// What went wrong so far, in the order in which it arrived.
#[derive(Debug, Default)]
pub(super) struct Events(Vec<Entry>);

impl Events {
    /// Adds an event. The same may come as news and in the answer at the end.
    pub(super) fn add(&mut self, at: Duration, event: Event) {
        let is_known = self.0.iter().any(|entry| entry.event.same(&event));
        let class = event.class();
        let alike = self.0.iter().filter(|entry| !entry.survived && entry.event.class() == class);
        let has_room = event.lost().is_some() || alike.count() < ALIKE_MAX;
        if !is_known && has_room && self.0.len() < EVENTS_MAX {
            self.0.push(Entry { at, event, survived: false });
        }
    }

    /// A launcher starts a daemon: the job has survived what was long before.
    pub(super) fn goes_on(&mut self, at: Duration) {
        for entry in &mut self.0 {
            let is_long_ago = at.saturating_sub(entry.at) >= SURVIVED;
            entry.survived |= is_long_ago && entry.event.may_be_survived();
        }
    }

    /// What ended the job, in words; none if only its command is to blame.
    pub(super) fn culprit(&self) -> Option<String> {
        let mut entries = self.0.iter().filter(|entry| !entry.survived);
        let mut culprit = entries.next()?;
        for entry in entries {
            if explains(entry, culprit) {
                culprit = entry;
            }
        }
        Some(one_line(&self.words(&culprit.event)))
    }

    fn words(&self, event: &Event) -> String {
        match event {
            Event::Signal(words) | Event::Lost(words) | Event::Unconnected(words) | Event::Each(words) => {
                words.clone()
            }
            Event::Silent(node) => {
                format!("nothing is heard of {node}: it is frozen, or the network between is cut")
            }
            Event::NodeLost(lost) | Event::NodeLostLate(lost) => self.lost_words(lost),
            Event::Rank(ended) => rank_words(ended),
            Event::Command(killed) | Event::Launcher(killed) => {
                format!("{} on {} was ended by {}", killed.command, killed.node, name_of(killed.signal))
            }
        }
    }

    /// A lost node with the others that were lost in the same way.
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

/// Whether a later event explains an earlier one that seemed to be the culprit. What is
/// mostly a consequence is explained whenever its cause arrives: silence takes seconds.
fn explains(later: &Entry, earlier: &Entry) -> bool {
    let (class, since) = (earlier.event.class(), later.at.saturating_sub(earlier.at));
    let is_weak = class >= Class::Unconnected;
    later.event.class() < class && (is_weak || since <= TOGETHER)
}

/// How a rank has ended.
pub(super) fn rank_words(RankEnded { node, rank, signal, status }: &RankEnded) -> String {
    match signal {
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
