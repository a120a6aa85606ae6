//! Tools that carry the same traffic, measured in turns: latency, bandwidth and
//! processor time.

use std::time::Duration;

use anyhow::Context as _;
use clap::Args;

use crate::report::Comparison;
use crate::rounds::{self, Case, Experiment};
use crate::traffic::Latency;
use crate::verdict::Bar;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    pub rounds: rounds::RoundOptions,
    /// How long each tool is measured per figure and round.
    #[arg(long, default_value = "2s")]
    pub duration: humantime::Duration,
}

/// What streams through a tool reached and cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Streaming {
    /// Rate of all streams together.
    pub gigabits_per_second: f64,
    /// Processor seconds of the tool's processes, user and system, per 10⁹ bytes.
    pub cpu_seconds_per_gigabyte: f64,
}

impl Streaming {
    /// The figures for `bytes` in so many seconds, with so many processor seconds.
    pub(crate) fn new(bytes: u64, seconds: f64, cpu_seconds: f64) -> Self {
        let bytes = bytes as f64;
        Self {
            gigabits_per_second: bytes * 8e-9 / seconds,
            cpu_seconds_per_gigabyte: cpu_seconds / (bytes * 1e-9),
        }
    }
}

/// What messages through a tool took and cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Messaging {
    /// Half of a round trip's time.
    pub half_rtt_seconds: f64,
    /// Processor seconds of the tool's processes, user and system, per message.
    pub cpu_seconds_per_message: f64,
}

impl Messaging {
    /// The figures of a measurement that took so many processor seconds.
    pub(crate) fn new(found: Latency, cpu_seconds: f64) -> Self {
        let Latency { half_rtt_seconds, messages, .. } = found;
        Self { half_rtt_seconds, cpu_seconds_per_message: cpu_seconds / messages as f64 }
    }
}

/// Tools that are set up and compared with each other.
pub(crate) trait Contest {
    /// Names of the tools in the rows. The first is isthmus.
    const NAMES: &'static [&'static str];
    /// Measures round trips of 64 bytes through the tool.
    fn latency(&mut self, tool: usize, duration: Duration) -> anyhow::Result<Messaging>;
    /// Measures so many streams at once through the tool.
    fn streaming(&mut self, tool: usize, streams: usize, duration: Duration) -> anyhow::Result<Streaming>;
    /// Ends the tools, and checks that isthmus did what was to be measured.
    fn finish(self) -> anyhow::Result<()>;
}

/// A figure that is measured of each tool.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Figure {
    /// Half a round trip of a small message, and its cost.
    Latency,
    /// The rate and cost of so many streams at once.
    Streams(usize),
}

/// The cases of a contest. Each row's name begins with `prefix`.
pub(crate) fn cases<C: Contest>(prefix: &str) -> Vec<Case<Figure>> {
    let against_each = |what: &str, unit: &'static str, bar: Option<Bar>| {
        let what = format!("{prefix}{what}");
        C::NAMES
            .iter()
            .skip(1)
            .map(move |name| Comparison::new(&what, unit, name).bar(bar))
            .collect::<Vec<_>>()
    };
    // No link limits these tools. Their times are those of processors, which others use as well, so
    // the bars are for processor time.
    let cost = Some(Bar::AtMost(1.0));
    let mut latency = against_each("half round trip, 64 B", "µs", None);
    latency.extend(against_each("processor time, message of 64 B", "µs", cost));
    let streams = [(1, "1 stream"), (8, "8 streams")].map(|(count, name)| {
        let mut rows = against_each(&format!("bandwidth, {name}"), "Gb/s", None);
        rows.extend(against_each(&format!("processor time, {name}"), "s/GB", cost));
        Case::new(Figure::Streams(count), rows)
    });
    std::iter::once(Case::new(Figure::Latency, latency)).chain(streams).collect()
}

/// A contest that is measured in rounds, in which the tools take turns.
pub(crate) struct InTurns<C> {
    /// The tools that are set up.
    pub contest: C,
    /// How long each tool is measured.
    pub duration: Duration,
}

impl<C: Contest> Experiment for InTurns<C> {
    type Case = Figure;

    fn measure(&mut self, figure: &Figure, round: usize) -> anyhow::Result<Vec<[f64; 2]>> {
        let tools = C::NAMES.len();
        // Each tool has two figures.
        let mut found = vec![[0.0; 2]; tools];
        for turn in 0..tools {
            // No tool always goes first.
            let tool = (round + turn) % tools;
            found[tool] = match *figure {
                Figure::Latency => {
                    let found = self.contest.latency(tool, self.duration)?;
                    [found.half_rtt_seconds, found.cpu_seconds_per_message].map(|seconds| seconds * 1e6)
                }
                Figure::Streams(count) => {
                    let found = self.contest.streaming(tool, count, self.duration)?;
                    [found.gigabits_per_second, found.cpu_seconds_per_gigabyte]
                }
            };
        }
        let (ours, references) = found.split_first().context("no tools")?;
        Ok((0..2).flat_map(|at| references.iter().map(move |reference| [ours[at], reference[at]])).collect())
    }

    /// Whether the contest goes on after a failure. It doesn't, as client and server may disagree
    /// about the next measurement.
    fn survives_failure(&self) -> bool {
        false
    }

    fn finish(self) -> anyhow::Result<()> {
        self.contest.finish()
    }
}
