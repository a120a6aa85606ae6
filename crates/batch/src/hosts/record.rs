//! The pilots of plain hosts, as they are kept, and who is next. Pure functions.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Host;
use super::parse::{Looked, OnHost};
use crate::state::{Estimate, NodeClass};
use crate::{End, Request, State, Word};

/// For how long a host may be silent before its pilot counts as lost.
const SILENCE: Duration = Duration::from_secs(300);

/// What hosts say, by their addresses; `None` stands for one that doesn't answer.
pub(crate) type Answers = BTreeMap<String, Option<Looked>>;

/// A pilot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Its number: they start in this order.
    pub(crate) number: u64,
    pub(crate) nodes: u32,
    pub(crate) cores: Option<u32>,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) tags: Vec<String>,
    /// Its time limit, in seconds.
    pub(crate) seconds: Option<u64>,
    pub(crate) script: String,
    /// Where it runs or ran, by the hosts' addresses; empty while it waits.
    pub(crate) hosts: Vec<String>,
    /// When it started, in seconds since 1970.
    pub(crate) started: Option<u64>,
    /// How it ended; `None` before that.
    pub(crate) end: Option<Ended>,
    /// Hosts that may still have something of it.
    pub(crate) unclean: Vec<String>,
    /// Hosts that don't answer, and since when, in seconds since 1970.
    pub(crate) silent: BTreeMap<String, u64>,
}

/// How and when a pilot ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    /// In seconds since 1970.
    pub(crate) at: u64,
    pub(crate) how: How,
}

/// [`End`], as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum How {
    Completed,
    Failed(u8, u8),
    Cancelled(Option<String>),
    TimeLimit,
    NodeFailure,
    Other(String),
}

impl How {
    fn end(&self) -> End {
        match self {
            Self::Completed => End::Completed,
            Self::Failed(status, signal) => End::Failed { status: *status, signal: *signal },
            Self::Cancelled(by) => End::Cancelled { by: by.clone() },
            Self::TimeLimit => End::TimeLimit,
            Self::NodeFailure => End::NodeFailure,
            Self::Other(said) => End::Other { said: said.clone() },
        }
    }

    fn of(end: &End) -> Self {
        match end {
            End::Completed => Self::Completed,
            End::Failed { status, signal } => Self::Failed(*status, *signal),
            End::Cancelled { by } => Self::Cancelled(by.clone()),
            End::TimeLimit => Self::TimeLimit,
            End::NodeFailure => Self::NodeFailure,
            End::Preempted | End::OutOfMemory => Self::Other(end.to_string()),
            End::Other { said } => Self::Other(said.clone()),
        }
    }
}

impl Record {
    pub(crate) fn new(number: u64, request: &Request, script: &str) -> Self {
        Self {
            number,
            nodes: request.nodes.get(),
            cores: request.cores.map(NonZeroU32::get),
            memory_bytes: request.memory_bytes,
            tags: request.tags.iter().map(Word::to_string).collect(),
            seconds: request.time.map(seconds),
            script: script.to_owned(),
            hosts: Vec::new(),
            started: None,
            end: None,
            unclean: Vec::new(),
            silent: BTreeMap::new(),
        }
    }

    pub(crate) fn waits(&self) -> bool {
        self.end.is_none() && self.hosts.is_empty()
    }

    pub(crate) fn runs(&self) -> bool {
        self.end.is_none() && !self.hosts.is_empty()
    }

    pub(crate) fn ended(&mut self, at: u64, end: &End) {
        self.end = Some(Ended { at, how: How::of(end) });
        self.unclean.clone_from(&self.hosts);
    }

    /// The state, of a pilot that waits behind `before` others.
    pub(crate) fn state(&self, before: usize, running: Vec<String>) -> State {
        let time = |at: u64| std::time::UNIX_EPOCH.checked_add(Duration::from_secs(at));
        if let Some(end) = &self.end {
            State::Ended(end.how.end())
        } else if self.hosts.is_empty() {
            let reason = match before {
                0 => format!("{} free hosts are needed", self.nodes),
                _ => format!("{before} pilots are before it"),
            };
            State::Pending { reason, start: None }
        } else {
            let end =
                self.started.zip(self.seconds).and_then(|(from, length)| time(from.saturating_add(length)));
            State::Running { nodes: running, end }
        }
    }

    /// Takes note of what its hosts say, and returns those on which it runs. It ends when it has
    /// ended on each. `None` stands for a host that didn't answer.
    pub(crate) fn heard(&mut self, now: u64, hosts: &Answers) -> Vec<String> {
        let mut running = Vec::new();
        let mut ends = Vec::new();
        for host in &self.hosts {
            let Some(Some(looked)) = hosts.get(host) else {
                let since = *self.silent.entry(host.clone()).or_insert(now);
                // A host that was taken from the list is never heard again.
                if hosts.contains_key(host) && now.saturating_sub(since) < SILENCE.as_secs() {
                    running.push(host.clone());
                } else {
                    ends.push(End::NodeFailure);
                }
                continue;
            };
            self.silent.remove(host);
            match looked.pilots.get(&self.number) {
                Some(OnHost::Running) => running.push(host.clone()),
                Some(OnHost::Ended(end)) => ends.push(end.clone()),
                Some(OnHost::Lost) | None => ends.push(End::NodeFailure),
            }
        }
        if running.is_empty() && self.runs() {
            let end = worst(&ends);
            self.ended(now, &end);
        }
        running.sort_unstable();
        running
    }
}

/// How a pilot ended that ended like this on its hosts.
fn worst(ends: &[End]) -> End {
    let rank = |end: &&End| match end {
        End::Completed => 0,
        End::Failed { .. } => 2,
        End::TimeLimit => 1,
        _ => 3,
    };
    ends.iter().max_by_key(rank).cloned().unwrap_or(End::Completed)
}

/// A time in whole seconds, at least one.
pub(crate) fn seconds(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0)).max(1)
}

/// Whether a host has what is asked for.
fn fits(host: &Host, looked: &Looked, asked: &Record) -> bool {
    let tagged = |tag: &String| host.tags.iter().any(|own| own.as_str() == tag);
    asked.cores.is_none_or(|cores| cores <= looked.cores)
        && asked.memory_bytes.is_none_or(|bytes| bytes <= looked.memory_bytes)
        && asked.tags.iter().all(tagged)
}

/// How many pilots there are on a host, by what is kept here.
fn taken(host: &Host, records: &[Record]) -> usize {
    let address = host.address.as_str();
    records.iter().filter(|record| record.runs() && record.hosts.iter().any(|own| own == address)).count()
}

/// The hosts on which a pilot can start, in the list's order; `None` if there are too few.
pub(crate) fn places(
    asked: &Record,
    hosts: &[Host],
    looked: &Answers,
    records: &[Record],
) -> Option<Vec<String>> {
    let free = |host: &&Host| {
        let answer = looked.get(host.address.as_str()).and_then(Option::as_ref);
        answer.is_some_and(|answer| fits(host, answer, asked)) && taken(host, records) < host.pilots as usize
    };
    let nodes = asked.nodes as usize;
    let found: Vec<_> = hosts.iter().filter(free).take(nodes).map(|host| host.address.to_string()).collect();
    (found.len() == nodes).then_some(found)
}

/// When a request could start.
pub(crate) fn estimate(
    asked: &Record,
    now: std::time::SystemTime,
    hosts: &[Host],
    looked: &Answers,
    records: &[Record],
) -> Estimate {
    if places(asked, hosts, looked, &[]).is_none() {
        let reason = format!("there are no {} hosts that answer and have what is asked for", asked.nodes);
        return Estimate::Never { reason };
    }
    let before = records.iter().filter(|record| record.waits()).count();
    if before > 0 {
        Estimate::Unknown { reason: format!("{before} pilots are before it") }
    } else if places(asked, hosts, looked, records).is_some() {
        Estimate::At(now)
    } else {
        Estimate::Unknown { reason: "too many hosts have as many pilots as they may".to_owned() }
    }
}

/// The hosts that answer, by class.
pub(crate) fn capacity(hosts: &[Host], looked: &Answers, records: &[Record]) -> Vec<NodeClass> {
    let mut classes: Vec<NodeClass> = Vec::new();
    for host in hosts {
        let Some(Some(answer)) = looked.get(host.address.as_str()) else { continue };
        let free = taken(host, records) < host.pilots as usize;
        let mut features: Vec<_> = host.tags.iter().map(Word::to_string).collect();
        features.sort_unstable();
        features.dedup();
        let cores_free = if free { u64::from(answer.cores) } else { 0 };
        let same = |class: &&mut NodeClass| {
            (class.cores, class.memory_bytes, &class.features)
                == (answer.cores, answer.memory_bytes, &features)
        };
        if let Some(class) = classes.iter_mut().find(same) {
            class.nodes += 1;
            class.nodes_free += u32::from(free);
            class.cores_free += cores_free;
            continue;
        }
        classes.push(NodeClass {
            queue: None,
            default: true,
            nodes: 1,
            nodes_free: u32::from(free),
            cores: answer.cores,
            cores_free,
            memory_bytes: answer.memory_bytes,
            time: None,
            features,
        });
    }
    classes
}
