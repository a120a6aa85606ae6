//! What is known of a run's pilots, and the words for it: pure.

use std::time::{Duration, Instant};

use isthmus_front::format::count;
use isthmus_front::output::one_line;
use isthmus_service::clock::humane;
use isthmus_wire::proto::{PilotDown, pilot_down};
use isthmus_wire::text::first;
use serde::Serialize;

/// Most nodes that a message names.
const NAMED: usize = 8;
/// Nodes that wait for others for so long are told.
const TOLD: Duration = Duration::from_secs(10);

/// All pilots of a run.
#[derive(Debug)]
pub(super) struct Board(Vec<Entry>);

/// One pilot.
#[derive(Debug)]
pub(super) struct Entry {
    site: String,
    /// How many nodes are asked for.
    nodes: u32,
    scheduler: String,
    /// The batch job's number; empty as long as it isn't known.
    job: String,
    phase: Phase,
    /// Names of the nodes that are there, by their names at the scheduler.
    arrived: Vec<(String, String)>,
    trouble: String,
    answers: u64,
    /// When its nodes were given, and when they were gone.
    had: (Option<Instant>, Option<Instant>),
}

/// The nodes of a batch job, and for how long a run has had them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Cost {
    pub site: String,
    pub scheduler: String,
    /// The batch job's number.
    pub job: String,
    pub nodes: u32,
    pub seconds: f64,
    pub node_hours: f64,
}

impl Cost {
    fn text(&self) -> String {
        let (nodes, took) = (count(self.nodes.into(), "node"), Duration::from_secs_f64(self.seconds));
        format!("{nodes} of {} for {} ({:.2} node-hours)", self.site, humane(took), self.node_hours)
    }
}

/// How far a pilot is.
#[derive(Debug)]
pub(super) enum Phase {
    Ordered,
    Waits {
        reason: String,
        starts: Option<Instant>,
    },
    Runs {
        ends: Option<Instant>,
        suspended: bool,
        ending: bool,
    },
    Ends(String),
    /// Nothing of it is left.
    Ended(String),
    /// Nothing more is heard of it.
    Lost(String),
}

impl Entry {
    pub(super) fn new(site: &str, nodes: u32) -> Self {
        Self {
            site: site.to_owned(),
            nodes,
            scheduler: String::new(),
            job: String::new(),
            phase: Phase::Ordered,
            arrived: Vec::new(),
            trouble: String::new(),
            answers: 0,
            had: (None, None),
        }
    }

    /// The batch job, in words.
    fn name(&self) -> String {
        match (self.scheduler.as_str(), self.job.as_str()) {
            (_, "") => format!("the batch job at {}", self.site),
            (scheduler, job) => format!("batch job {job} of {scheduler} at {}", self.site),
        }
    }

    fn is_complete(&self) -> bool {
        let lives = matches!(self.phase, Phase::Ordered | Phase::Waits { .. } | Phase::Runs { .. });
        lives && self.arrived.len() >= self.nodes as usize
    }

    /// What was had of it until now; `None` if it has given no nodes.
    fn cost(&self, now: Instant) -> Option<Cost> {
        let seconds = self.had.1.unwrap_or(now).saturating_duration_since(self.had.0?).as_secs_f64();
        Some(Cost {
            site: self.site.clone(),
            scheduler: self.scheduler.clone(),
            job: self.job.clone(),
            nodes: self.nodes,
            seconds,
            node_hours: f64::from(self.nodes) * seconds / 3600.0,
        })
    }

    fn line(&self, now: Instant) -> String {
        let what = match &self.phase {
            Phase::Ordered => "is being submitted".to_owned(),
            Phase::Waits { reason, starts } => {
                let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
                match starts.map(|starts| starts.saturating_duration_since(now)) {
                    Some(left) if !left.is_zero() => {
                        format!("waits{reason}, to start in about {}", humane(left))
                    }
                    _ => format!("waits{reason}"),
                }
            }
            Phase::Runs { suspended: true, .. } => "is suspended by the scheduler".to_owned(),
            Phase::Runs { .. } => {
                format!("runs, {} of {} there", self.arrived.len(), count(self.nodes.into(), "node"))
            }
            Phase::Ends(why) | Phase::Ended(why) => why.clone(),
            Phase::Lost(reason) => format!("is not heard of any more: {reason}"),
        };
        match self.trouble.as_str() {
            "" => format!("{} {what}", self.name()),
            trouble => format!("{} {what}; {trouble}", self.name()),
        }
    }
}

impl Board {
    pub(super) fn new(entries: Vec<Entry>) -> Self {
        Self(entries)
    }

    /// Takes what the agent that submits one of the pilots has told.
    pub(super) fn take(&mut self, index: usize, told: PilotDown, now: Instant) {
        let Some(entry) = self.0.get_mut(index) else { return };
        let at = |seconds: Option<u64>| now.checked_add(Duration::from_secs(seconds?));
        (entry.scheduler, entry.job) = (one_line(&told.scheduler), one_line(&told.job));
        (entry.trouble, entry.answers) = (one_line(&told.trouble), told.answers);
        match told.phase {
            Some(pilot_down::Phase::Waits(waits)) => {
                let (reason, starts) = (one_line(&waits.reason), at(waits.starts_in_seconds));
                entry.phase = Phase::Waits { reason, starts };
            }
            Some(pilot_down::Phase::Runs(runs)) => {
                let (suspended, ending) = (runs.suspended, runs.ending);
                entry.phase = Phase::Runs { ends: at(runs.ends_in_seconds), suspended, ending };
            }
            Some(pilot_down::Phase::Ends(why)) => entry.phase = Phase::Ends(one_line(&why)),
            Some(pilot_down::Phase::Ended(why)) => entry.phase = Phase::Ended(one_line(&why)),
            None => {}
        }
        match entry.phase {
            Phase::Runs { .. } => entry.had.0 = entry.had.0.or(Some(now)),
            Phase::Ended(_) => entry.had.1 = entry.had.1.or(Some(now)),
            _ => {}
        }
        entry.arrived.retain(|(_, host)| !told.gone.contains(host));
        for node in told.arrived {
            entry.arrived.retain(|(_, host)| *host != node.host);
            entry.arrived.push((node.name, node.host));
        }
        // n2 comes before n10.
        entry.arrived.sort_by_cached_key(|(_, host)| (host.len(), host.clone()));
    }

    /// Notes that nothing more is heard of a pilot, for this reason. Its nodes end by themselves.
    pub(super) fn lose(&mut self, index: usize, reason: &str) {
        if let Some(entry) = self.0.get_mut(index).filter(|entry| !matches!(entry.phase, Phase::Ended(_))) {
            entry.phase = Phase::Lost(one_line(reason));
        }
    }

    /// Whether all nodes are there.
    pub(super) fn is_complete(&self) -> bool {
        self.0.iter().all(Entry::is_complete)
    }

    /// Whether nothing of any pilot is left.
    pub(super) fn is_over(&self) -> bool {
        (0..self.0.len()).all(|index| self.is_over_at(index))
    }

    /// Whether nothing of this pilot is left.
    pub(super) fn is_over_at(&self, index: usize) -> bool {
        self.0.get(index).is_none_or(|entry| matches!(entry.phase, Phase::Ended(_) | Phase::Lost(_)))
    }

    /// Which pilot has ended, and why; `None` if none has.
    pub(super) fn failure(&self) -> Option<String> {
        self.failures().into_iter().next()
    }

    /// Which pilots have ended, and why.
    pub(super) fn failures(&self) -> Vec<String> {
        let each = self.0.iter().filter_map(|entry| match &entry.phase {
            Phase::Ends(why) | Phase::Ended(why) => Some(format!("{}: {why}", entry.name())),
            Phase::Lost(reason) => Some(format!("nothing is heard of {}: {reason}", entry.name())),
            Phase::Ordered | Phase::Waits { .. } | Phase::Runs { .. } => None,
        });
        each.collect()
    }

    /// Whether a scheduler ends a pilot, and hasn't said how yet.
    pub(super) fn is_ending(&self) -> bool {
        self.0.iter().any(|entry| matches!(entry.phase, Phase::Runs { ending: true, .. }))
    }

    /// How far each pilot is, but for times and nodes that are there.
    pub(super) fn phases(&self) -> Vec<std::mem::Discriminant<Phase>> {
        self.0.iter().map(|entry| std::mem::discriminant(&entry.phase)).collect()
    }

    /// Why pilots wait, and why schedulers can't be asked; each with the number of its pilot.
    pub(super) fn reasons(&self) -> Vec<(usize, String)> {
        let each = self.0.iter().enumerate().flat_map(|(index, entry)| {
            let waits = match &entry.phase {
                Phase::Waits { reason, .. } => reason.as_str(),
                _ => "",
            };
            let reasons = [waits, entry.trouble.as_str()].into_iter().filter(|reason| !reason.is_empty());
            reasons.map(move |reason| (index, reason.to_owned()))
        });
        each.collect()
    }

    /// How far the pilots are, in one line: those that lack nodes, and what the others cost meanwhile.
    pub(super) fn line(&self, now: Instant) -> String {
        let lacking = self.0.iter().filter(|entry| !entry.is_complete()).map(|entry| entry.line(now));
        let held = self.held(now).filter(|held| *held >= TOLD).map(|_| {
            let complete = self.0.iter().filter(|entry| entry.is_complete());
            let costs: Vec<String> = complete.filter_map(|entry| Some(entry.cost(now)?.text())).collect();
            format!("meanwhile held: {}", costs.join(", "))
        });
        lacking.chain(held).collect::<Vec<_>>().join("; ")
    }

    /// For how long pilots with all their nodes have waited for others; `None` if none does.
    pub(super) fn held(&self, now: Instant) -> Option<Duration> {
        let complete = self.0.iter().filter(|entry| entry.is_complete());
        let since = complete.filter_map(|entry| entry.had.0).min()?;
        (!self.is_complete()).then(|| now.saturating_duration_since(since))
    }

    /// Which nodes there are, in one line.
    pub(super) fn given(&self) -> String {
        let each = self.0.iter().map(|entry| {
            let nodes = first(entry.arrived.iter().map(|(name, _)| name), 0, NAMED);
            format!("{}: {nodes}", entry.name())
        });
        each.collect::<Vec<_>>().join("; ")
    }

    /// What to tell of pilots that are left when the run has ended; empty if none is.
    pub(super) fn left(&self) -> Vec<String> {
        let each = self.0.iter().filter_map(|entry| match &entry.phase {
            Phase::Ended(_) => None,
            Phase::Lost(reason) => Some(format!(
                "{} may go on, as nothing is heard of it ({reason}): isthmus up on the login node of {} ends it, and \
                 its nodes end by themselves within 10 min",
                entry.name(),
                entry.site
            )),
            _ => Some(format!(
                "{} is still ending; the agent on the login node of {} goes on until it is",
                entry.name(),
                entry.site
            )),
        });
        each.collect()
    }

    /// How long which site's nodes were had, in words; `None` if there were none.
    pub(super) fn hours(&self, now: Instant) -> Option<String> {
        let all = self.costs(now).iter().map(Cost::text).collect::<Vec<_>>().join(", ");
        (!all.is_empty()).then(|| format!("used {all}"))
    }

    /// What was had until now of the batch jobs that have given nodes.
    pub(super) fn costs(&self, now: Instant) -> Vec<Cost> {
        self.0.iter().filter_map(|entry| entry.cost(now)).collect()
    }

    /// Names of all nodes that are there.
    pub(super) fn names(&self) -> Vec<String> {
        self.0.iter().flat_map(|entry| entry.arrived.iter().map(|(name, _)| name.clone())).collect()
    }

    /// Names of the nodes of one pilot that are there.
    pub(super) fn names_of(&self, index: usize) -> Vec<String> {
        let arrived = self.0.get(index).map_or(&[][..], |entry| entry.arrived.as_slice());
        arrived.iter().map(|(name, _)| name.clone()).collect()
    }

    /// How often the scheduler of each pilot has answered.
    pub(super) fn answers(&self) -> Vec<u64> {
        self.0.iter().map(|entry| entry.answers).collect()
    }

    /// When a pilot's time ends, if its scheduler says so; and its name.
    pub(super) fn end_of(&self, index: usize) -> Option<(Instant, String)> {
        let entry = self.0.get(index)?;
        match entry.phase {
            Phase::Runs { ends: Some(ends), .. } => Some((ends, entry.name())),
            _ => None,
        }
    }

    /// When the time of the first pilot is over, and its name; `None` if none has a time limit.
    pub(super) fn first_end(&self) -> Option<(Instant, String)> {
        (0..self.0.len()).filter_map(|index| self.end_of(index)).min()
    }
}

#[cfg(test)]
mod tests {
    use isthmus_wire::proto::{PilotNode, PilotRuns, PilotWaits};

    use super::*;

    fn told(phase: pilot_down::Phase, hosts: &[&str]) -> PilotDown {
        let node = |host: &&str| PilotNode { name: format!("{host}-ada-p1.beta"), host: (*host).to_owned() };
        PilotDown {
            scheduler: "Slurm".to_owned(),
            job: "12".to_owned(),
            phase: Some(phase),
            arrived: hosts.iter().map(node).collect(),
            ..PilotDown::default()
        }
    }

    #[test]
    fn a_run_has_all_nodes_or_says_what_it_waits_for() {
        let now = Instant::now();
        let mut board = Board::new(vec![Entry::new("alpha", 1), Entry::new("beta", 2)]);
        assert_eq!(
            board.line(now),
            "the batch job at alpha is being submitted; the batch job at beta is being submitted"
        );
        let runs = || {
            pilot_down::Phase::Runs(PilotRuns { nodes: 2, ends_in_seconds: Some(60), ..PilotRuns::default() })
        };
        board.take(0, told(runs(), &["n1"]), now);
        let waits = PilotWaits { reason: "Priority".to_owned(), starts_in_seconds: Some(300) };
        board.take(1, told(pilot_down::Phase::Waits(waits), &[]), now);
        assert_eq!(
            board.line(now),
            "batch job 12 of Slurm at beta waits (Priority), to start in about 5 min"
        );
        board.take(1, told(runs(), &["n1"]), now);
        assert_eq!(board.line(now), "batch job 12 of Slurm at beta runs, 1 of 2 nodes there");
        let later = now + Duration::from_secs(360);
        assert_eq!(
            board.line(later),
            "batch job 12 of Slurm at beta runs, 1 of 2 nodes there; meanwhile held: 1 node of alpha for 6 min \
             (0.10 node-hours)"
        );
        assert!(!board.is_complete() && board.held(later) == Some(Duration::from_secs(360)));
        board.take(1, told(runs(), &["n2"]), now);
        assert!(board.is_complete() && board.failure().is_none() && board.held(later).is_none());
        assert_eq!(board.names(), ["n1-ada-p1.beta", "n1-ada-p1.beta", "n2-ada-p1.beta"]);
        assert_eq!(board.names_of(1), ["n1-ada-p1.beta", "n2-ada-p1.beta"]);
        assert_eq!(board.end_of(1).unwrap().0, now + Duration::from_secs(60));
        assert_eq!(board.first_end(), board.end_of(0));

        board.take(1, told(pilot_down::Phase::Ends("its time limit was reached".to_owned()), &[]), now);
        assert_eq!(
            board.failure().as_deref(),
            Some("batch job 12 of Slurm at beta: its time limit was reached")
        );
        assert!(!board.is_complete() && !board.is_over());
        let later = now + Duration::from_secs(900);
        board.take(1, told(pilot_down::Phase::Ended(String::new()), &[]), later);
        assert_eq!(
            board.hours(later + later.duration_since(now)).as_deref(),
            Some(
                "used 1 node of alpha for 30 min (0.50 node-hours), 2 nodes of beta for 15 min (0.50 node-hours)"
            )
        );
        board.lose(0, "its agent is gone");
        board.lose(1, "its agent is gone");
        let left = board.left();
        assert!(board.is_over() && left.len() == 1 && left[0].contains("its agent is gone"), "{left:?}");
    }
}
