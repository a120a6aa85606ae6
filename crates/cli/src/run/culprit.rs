//! Who ended a job: of all that went wrong, the one event that the others follow from. A
//! pure decision.

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
/// Events that are kept: the culprit is among the first.
const EVENTS_MAX: usize = 4096;
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
    /// What a launcher's cleanup kills is among these.
    Command,
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
        }
    }

    fn lost(&self) -> Option<&NodeLost> {
        match self {
            Self::NodeLost(lost) | Self::NodeLostLate(lost) => Some(lost),
            _ => None,
        }
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

/// What went wrong so far, in the order in which it arrived, each with the time since the
/// command began.
#[derive(Debug, Default)]
pub(super) struct Events(Vec<(Duration, Event)>);

impl Events {
    /// Adds an event. The same may come as news and in the answer at the end.
    pub(super) fn add(&mut self, at: Duration, event: Event) {
        let is_known = self.0.iter().any(|(_, known)| known.same(&event));
        if !is_known && self.0.len() < EVENTS_MAX {
            self.0.push((at, event));
        }
    }

    /// What ended the job, in words; none if only its command is to blame.
    pub(super) fn culprit(&self) -> Option<String> {
        let mut events = self.0.iter();
        let mut culprit = events.next()?;
        for event in events {
            if explains(event, culprit) {
                culprit = event;
            }
        }
        Some(one_line(&self.words(&culprit.1)))
    }

    fn words(&self, event: &Event) -> String {
        match event {
            Event::Signal(words) | Event::Lost(words) | Event::Unconnected(words) => words.clone(),
            Event::NodeLost(lost) | Event::NodeLostLate(lost) => self.lost_words(lost),
            Event::Rank(RankEnded { node, rank, signal: 0, status }) => {
                format!("rank {rank} on {node} ended with status {status}")
            }
            Event::Rank(RankEnded { node, rank, signal, .. }) => {
                format!("rank {rank} on {node} was ended by {}", name_of(*signal))
            }
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
            .filter_map(|(_, event)| event.lost())
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
fn explains((at, later): &(Duration, Event), (since, earlier): &(Duration, Event)) -> bool {
    let is_weak = earlier.class() >= Class::Unconnected;
    later.class() < earlier.class() && (is_weak || at.saturating_sub(*since) <= TOGETHER)
}

/// A reason without its numbers, such as how long nothing was heard.
fn kind(reason: &str) -> String {
    reason.chars().filter(|character| !character.is_ascii_digit()).collect()
}

fn name_of(signal: i32) -> &'static str {
    Signal::try_from(signal).map_or("a signal", Signal::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(rank: u32, signal: i32, status: i32) -> Event {
        Event::Rank(RankEnded { node: "n2.beta".to_owned(), rank, signal, status })
    }

    fn killed(command: &str) -> CommandKilled {
        CommandKilled { node: "n1.beta".to_owned(), command: command.to_owned(), signal: libc::SIGKILL }
    }

    fn daemon(command: &str) -> Event {
        Event::Command(killed(command))
    }

    fn lost(node: &str, reason: &str) -> NodeLost {
        NodeLost { node: node.to_owned(), reason: reason.to_owned() }
    }

    fn node(name: &str) -> Event {
        Event::NodeLost(lost(name, "its agent has ended"))
    }

    fn late(name: &str) -> Event {
        Event::NodeLostLate(lost(name, "the connection broke"))
    }

    fn culprit(events: Vec<(u64, Event)>) -> Option<String> {
        let mut all = Events::default();
        for (millis, event) in events {
            all.add(Duration::from_millis(millis), event);
        }
        all.culprit()
    }

    #[test]
    fn one_is_to_blame() {
        use libc::{SIGABRT, SIGKILL, SIGSEGV};
        let signal = || Event::Signal("SIGTERM to `isthmus run`".to_owned());
        let launcher = || Event::Launcher(killed("mpirun"));
        let unconnected = || Event::Unconnected("n1.a could not connect to n1.b: no relay".to_owned());
        let rank_killed = "rank 3 on n2.beta was ended by SIGKILL";
        for (name, events, want) in [
            ("a killed rank", vec![(0, rank(3, SIGKILL, 0))], rank_killed),
            ("a crash", vec![(0, rank(3, SIGSEGV, 0))], "rank 3 on n2.beta was ended by SIGSEGV"),
            ("a status", vec![(0, rank(3, 0, 7))], "rank 3 on n2.beta ended with status 7"),
            ("two ranks", vec![(0, rank(3, SIGKILL, 0)), (1, rank(4, SIGKILL, 0))], rank_killed),
            ("the others abort first", vec![(0, rank(1, SIGABRT, 0)), (9, rank(3, SIGKILL, 0))], rank_killed),
            ("the others exit first", vec![(0, rank(1, 0, 1)), (9, rank(3, SIGKILL, 0))], rank_killed),
            ("MPICH's cleanup", vec![(0, daemon("die")), (20, rank(3, SIGKILL, 0))], rank_killed),
            (
                "ranks of a killed daemon",
                vec![(0, rank(1, SIGABRT, 0)), (500, daemon("orted"))],
                "orted on n1.beta was ended by SIGKILL",
            ),
            (
                "a supervisor",
                vec![(0, rank(1, 0, 1)), (500, daemon("the supervisor of prted"))],
                "the supervisor of prted on n1.beta was ended by SIGKILL",
            ),
            (
                "the launcher",
                vec![(0, rank(1, 0, 1)), (5, daemon("die")), (9, launcher())],
                "mpirun on n1.beta was ended by SIGKILL",
            ),
            ("a launcher with a killed rank", vec![(0, rank(3, SIGKILL, 0)), (9, launcher())], rank_killed),
            (
                "a lost agent",
                vec![(0, daemon("orted")), (300, node("n1.beta"))],
                "lost node n1.beta: its agent has ended",
            ),
            (
                "ranks notice a frozen node before its silence is long enough",
                vec![(0, rank(1, 0, 1)), (5000, node("n1.beta"))],
                "lost node n1.beta: its agent has ended",
            ),
            (
                "found lost at the end",
                vec![(0, rank(1, SIGABRT, 0)), (900, late("n1.beta"))],
                "lost node n1.beta: the connection broke",
            ),
            ("lost by the end", vec![(0, rank(3, SIGKILL, 0)), (900, late("n1.beta"))], rank_killed),
            ("lost long after", vec![(0, rank(3, SIGKILL, 0)), (9000, node("n1.beta"))], rank_killed),
            (
                "a cancelled batch job",
                vec![(0, rank(3, SIGKILL, 0)), (3, node("n1.beta")), (900, signal())],
                "SIGTERM to `isthmus run`",
            ),
            ("an impatient user", vec![(0, rank(3, SIGKILL, 0)), (9000, signal())], rank_killed),
            (
                "no way",
                vec![(0, unconnected()), (3, rank(1, 0, 1))],
                "n1.a could not connect to n1.b: no relay",
            ),
        ] {
            assert_eq!(culprit(events).as_deref(), Some(want), "{name}");
        }
        assert_eq!(culprit(Vec::new()), None);
    }

    #[test]
    fn lost_nodes_are_one_line() {
        let silent = |name: &str, seconds: u32| {
            Event::NodeLost(lost(name, &format!("no sign of life for {seconds} s")))
        };
        for (name, events, want) in [
            (
                "two of a site",
                vec![silent("n1.beta", 6), silent("n2.beta", 7)],
                "lost nodes n1.beta, n2.beta of site beta: no sign of life for 6 s",
            ),
            (
                "many of a site",
                (1..=32).map(|number| silent(&format!("n{number}.beta"), 6)).collect(),
                "lost nodes n1.beta, n2.beta and 30 more of site beta: no sign of life for 6 s",
            ),
            (
                "of two sites",
                vec![silent("n1.beta", 6), silent("n1.gamma", 6)],
                "lost nodes n1.beta, n1.gamma: no sign of life for 6 s",
            ),
            (
                "for two reasons",
                vec![silent("n1.beta", 6), node("n2.beta")],
                "lost node n1.beta: no sign of life for 6 s",
            ),
            (
                "told twice",
                vec![silent("n1.beta", 6), late("n1.beta")],
                "lost node n1.beta: no sign of life for 6 s",
            ),
        ] {
            let events = events.into_iter().map(|event| (0, event)).collect();
            assert_eq!(culprit(events).as_deref(), Some(want), "{name}");
        }
    }
}
