//! `--timing`: how long each phase of a job's start took.

mod picture;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use isthmus_front::format::count;
use isthmus_wire::proto::{CommandStarted, HeldNode};
use serde::Serialize;

pub(super) use picture::draw;

/// Times of a run, in seconds since `isthmus run` was called.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Timing {
    /// The phases in their order; connections begin while commands are still being started.
    pub phases: Vec<Phase>,
    /// All nodes but the head, in alphabetical order.
    pub nodes: Vec<NodeTimes>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Phase {
    /// The phase's name in one word, for scripts.
    pub name: &'static str,
    /// A description of the phase for people.
    pub what: String,
    pub from_seconds: f64,
    pub to_seconds: f64,
}

/// How one node joined the job.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct NodeTimes {
    /// The node's grid name.
    pub node: String,
    /// When the connection to the node's agent was asked for, and when it stood.
    pub reached_seconds: [f64; 2],
    /// When that connection stood, and when the node was ready, with its programs checked.
    pub ready_seconds: [f64; 2],
    /// The commands that the launcher started on the node.
    pub commands: Vec<CommandTimes>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct CommandTimes {
    pub command: String,
    /// When the launcher asked for the command, and when it ran.
    pub started_seconds: [f64; 2],
}

/// Records times during a run.
#[derive(Debug, Clone)]
pub(crate) struct Stopwatch {
    origin: Instant,
    /// When the nodes were asked to take part.
    asked: Option<Instant>,
    held: Vec<HeldNode>,
    ready: Option<Instant>,
    command: Option<Instant>,
    /// The commands that were started on nodes, each with when it ran.
    commands: Vec<(CommandStarted, Instant)>,
    /// When the first and the last connection of the start were made.
    connections: Option<(Instant, Instant)>,
    ended: Option<Instant>,
}

impl Stopwatch {
    pub(super) fn start() -> Self {
        Self {
            origin: Instant::now(),
            asked: None,
            held: Vec::new(),
            ready: None,
            command: None,
            commands: Vec::new(),
            connections: None,
            ended: None,
        }
    }

    /// Notes that the nodes are asked to take part.
    pub(super) fn asked(&mut self) {
        self.asked = Some(Instant::now());
    }

    pub(super) fn ready(&mut self, held: &[HeldNode]) {
        self.ready = Some(Instant::now());
        self.held = held.to_vec();
    }

    pub(super) fn command(&mut self, now: Instant) {
        self.command = Some(now);
    }

    /// Notes that a command runs on a node.
    pub(crate) fn command_started(&mut self, started: CommandStarted) {
        self.commands.push((started, Instant::now()));
    }

    pub(super) fn commands(&self) -> usize {
        self.commands.len()
    }

    pub(super) fn ended(&mut self, connections: Option<(Instant, Instant)>) {
        self.ended = Some(Instant::now());
        self.connections = connections;
    }

    /// All times; `now` is the end of the run.
    pub(super) fn times(&self, now: Instant) -> Timing {
        let at = |time: Instant| time.saturating_duration_since(self.origin).as_secs_f64();
        let mut phases = Vec::new();
        let mut phase = |name, what: String, from: Option<f64>, to: Option<f64>| {
            if let (Some(from_seconds), Some(to_seconds)) = (from, to) {
                phases.push(Phase { name, what, from_seconds, to_seconds });
            }
        };
        let nodes = self.nodes(at);
        let commands = || nodes.iter().flat_map(|node| &node.commands).map(|command| command.started_seconds);
        let first_asked = commands().map(|[asked, _]| asked).reduce(f64::min);
        let last_started = commands().map(|[_, started]| started).reduce(f64::max);
        let last_connection = self.connections.map(|(_, last)| at(last));
        let command = self.command.map(at);
        let started = [command, last_started, last_connection].into_iter().flatten().reduce(f64::max);
        phase("look", "grid and launcher looked at".to_owned(), Some(0.0), self.asked.map(at));
        let others = count(self.held.len() as u64, "other node");
        phase("nodes", format!("{others} taking part"), self.asked.map(at), self.ready.map(at));
        phase("launcher", "launcher until its first command".to_owned(), command, first_asked);
        let number = count(commands().count() as u64, "command");
        phase("commands", format!("{number} started on nodes"), first_asked, last_started);
        let first_connection = self.connections.map(|(first, _)| at(first));
        phase("connections", "connections made".to_owned(), first_connection, last_connection);
        phase("program", "program".to_owned(), started, self.ended.map(at));
        phase("end", "job ended on all nodes".to_owned(), self.ended.map(at), Some(at(now)));
        Timing { phases, nodes }
    }

    fn nodes(&self, at: impl Fn(Instant) -> f64) -> Vec<NodeTimes> {
        let asked = self.asked.map_or(0.0, &at);
        let since = |micros: u64| asked + Duration::from_micros(micros).as_secs_f64();
        let mut nodes: BTreeMap<&str, NodeTimes> = BTreeMap::new();
        for held in &self.held {
            let node = nodes.entry(&held.node).or_default();
            node.reached_seconds = [held.asked_us, held.reached_us].map(since);
            node.ready_seconds = [held.reached_us, held.ready_us].map(since);
        }
        for (started, time) in &self.commands {
            let to = at(*time);
            let from = to - Duration::from_micros(started.took_us).as_secs_f64();
            let times =
                CommandTimes { command: started.command.clone(), started_seconds: [from.max(0.0), to] };
            nodes.entry(&started.node).or_default().commands.push(times);
        }
        nodes.into_iter().map(|(name, node)| NodeTimes { node: name.to_owned(), ..node }).collect()
    }
}

impl Timing {
    /// Seconds until the start was over, and the program's own time began.
    pub(crate) fn start_seconds(&self) -> f64 {
        let own = |phase: &&Phase| !matches!(phase.name, "program" | "end");
        self.phases.iter().filter(own).map(|phase| phase.to_seconds).fold(0.0, f64::max)
    }

    pub(crate) fn table(&self) -> String {
        let mut table = Table::new();
        table.load_preset(NOTHING);
        table.set_header(["", "at", "took"]);
        let mut row = |what: String, [from, to]: [f64; 2]| {
            table.add_row([what, format!("{from:.3} s"), format!("{:.3} s", to - from)]);
        };
        for phase in &self.phases {
            row(phase.what.clone(), [phase.from_seconds, phase.to_seconds]);
            if phase.name == "nodes" {
                for node in &self.nodes {
                    if node.ready_seconds[1] > 0.0 {
                        row(format!("  {} reached", node.node), node.reached_seconds);
                        row(format!("  {} ready", node.node), node.ready_seconds);
                    }
                }
            }
            if phase.name == "commands" {
                for node in &self.nodes {
                    for command in &node.commands {
                        row(format!("  {} on {}", command.command, node.node), command.started_seconds);
                    }
                }
            }
        }
        for index in 1..3 {
            if let Some(column) = table.column_mut(index) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.lines().map(|line| format!(" {}\n", line.trim_end())).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The times of a start of two nodes, as an example.
    pub(crate) fn example() -> Timing {
        let origin = Instant::now();
        let at = |millis| origin + Duration::from_millis(millis);
        let held = |node: &str, times: [u64; 3]| HeldNode {
            node: node.to_owned(),
            asked_us: times[0],
            reached_us: times[1],
            ready_us: times[2],
            ..HeldNode::default()
        };
        let started = |node: &str, took_us, millis| {
            (CommandStarted { node: node.to_owned(), command: "orted".to_owned(), took_us }, at(millis))
        };
        let watch = Stopwatch {
            origin,
            asked: Some(at(10)),
            held: vec![held("n2.beta", [20_000, 25_000, 50_000]), held("n1.beta", [0, 20_000, 60_000])],
            ready: Some(at(80)),
            command: Some(at(81)),
            commands: vec![started("n1.beta", 30_000, 180), started("n2.beta", 60_000, 200)],
            connections: Some((at(190), at(400))),
            ended: Some(at(900)),
        };
        watch.times(at(950))
    }

    #[test]
    fn phases_follow_one_another() {
        let timing = example();
        let found: Vec<_> = timing
            .phases
            .iter()
            .map(|phase| {
                let millis = |seconds: f64| (seconds * 1000.0).round();
                (phase.name, millis(phase.from_seconds), millis(phase.to_seconds))
            })
            .collect();
        let want = [
            ("look", 0.0, 10.0),
            ("nodes", 10.0, 80.0),
            ("launcher", 81.0, 140.0),
            ("commands", 140.0, 200.0),
            ("connections", 190.0, 400.0),
            ("program", 400.0, 900.0),
            ("end", 900.0, 950.0),
        ];
        assert_eq!(found, want);
        assert_eq!((timing.start_seconds() * 1000.0).round(), 400.0);
    }

    #[test]
    fn a_job_without_a_launcher_has_fewer() {
        let mut watch = Stopwatch::start();
        watch.asked();
        watch.ready(&[]);
        watch.command(Instant::now());
        watch.ended(None);
        let names: Vec<_> = watch.times(Instant::now()).phases.iter().map(|phase| phase.name).collect();
        assert_eq!(names, ["look", "nodes", "program", "end"]);
    }

    #[test]
    fn the_table_has_a_line_for_each_step() {
        let table = example().table();
        let line = |what: &str| {
            let line = table.lines().find(|line| line.contains(what)).unwrap_or_default();
            line.split_whitespace().map(ToOwned::to_owned).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(line("2 other nodes"), "2 other nodes taking part 0.010 s 0.070 s");
        assert_eq!(line("n1.beta ready"), "n1.beta ready 0.030 s 0.040 s");
        assert_eq!(line("orted on n2.beta"), "orted on n2.beta 0.140 s 0.060 s");
    }
}
