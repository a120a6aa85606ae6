//! Data of programs through two agents, which encrypt it between two sites: what a
//! message and a stream cost both agents, under each command.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use isthmus_lab::grid::Slow;

use crate::contest::{Messaging, Streaming};
use crate::grid::{Bench, target};
use crate::line_client::LineClient;
use crate::report::Comparison;
use crate::rounds::{self, Case, Experiment, in_turns};
use crate::traffic::{Latency, Throughput};
use crate::tunnel::{self, Tunnel};
use crate::verdict::Bar;

/// What both commands carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Data {
    /// Messages of so many bytes, each answered by one.
    Messages(u32),
    /// So many streams at once.
    Streams(usize),
}

impl Data {
    const ALL: [Self; 5] = [
        Self::Messages(1000),
        Self::Messages(64),
        Self::Messages(10_000),
        Self::Streams(1),
        Self::Streams(8),
    ];

    /// All that is measured. Processor time must stay below the bar.
    pub(super) fn cases(bar: f64) -> Vec<Case<Self>> {
        let rows = |data: Self| {
            let cost = if matches!(data, Self::Messages(_)) { "µs" } else { "s/GB" };
            let speed = if matches!(data, Self::Messages(_)) {
                Comparison::new(format!("{data}, half round trip"), "µs", "before")
            } else {
                Comparison::new(format!("{data}, rate"), "Gb/s", "before")
            };
            let cost = Comparison::new(format!("{data}, processor time of both agents"), cost, "before");
            vec![cost.bar(Bar::AtMost(bar)), speed]
        };
        Self::ALL.map(|data| Case::new(data, rows(data))).into()
    }
}

impl fmt::Display for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Messages(size) => write!(f, "message of {size} B"),
            Self::Streams(1) => f.write_str("1 stream"),
            Self::Streams(streams) => write!(f, "{streams} streams"),
        }
    }
}

/// A job on two sites that don't trust each other.
struct Side {
    tunnel: Tunnel,
    client: LineClient,
    _bench: Bench,
}

impl Side {
    fn up(isthmus: &Path) -> anyhow::Result<Self> {
        let bench = Bench::with("two-near", Slow::NONE, isthmus.to_owned())?;
        let [near, far] = bench.nodes() else { anyhow::bail!("two-near must have two nodes") };
        let tunnel = Tunnel::isthmus(&bench, near, far)?;
        let client = tunnel::job(&bench, near, far, "")?;
        Ok(Self { tunnel, client, _bench: bench })
    }

    /// What the data cost and how fast it was.
    fn measure(&mut self, data: Data, duration: Duration) -> anyhow::Result<[f64; 2]> {
        let target = &self.tunnel.target;
        let before = self.tunnel.cpu_time()?;
        let spent = || -> anyhow::Result<f64> {
            let spent = self.tunnel.cpu_time()?.saturating_sub(before).as_secs_f64();
            ensure!(spent > 0.0, "no processor time at all: the wrong processes are measured");
            Ok(spent)
        };
        match data {
            Data::Messages(size) => {
                let found: Latency = self.client.ask(&format!("ping {target} --size {size}"), duration)?;
                let found = Messaging::new(found, spent()?);
                Ok([found.cpu_seconds_per_message, found.half_rtt_seconds].map(|seconds| seconds * 1e6))
            }
            Data::Streams(streams) => {
                let line = format!("stream {target} --streams {streams}");
                let Throughput { bytes, seconds } = self.client.ask(&line, duration)?;
                let found = Streaming::new(bytes, seconds, spent()?);
                Ok([found.cpu_seconds_per_gigabyte, found.gigabits_per_second])
            }
        }
    }
}

/// The jobs of both commands, that of this tree first.
pub(super) struct Both {
    sides: [Side; 2],
    duration: Duration,
}

impl Both {
    pub(super) fn up(binary: &Path, duration: Duration) -> anyhow::Result<Self> {
        let [ours, before] = [target().join("release/isthmus"), binary.to_owned()].map(|it| Side::up(&it));
        Ok(Self { sides: [ours?, before?], duration })
    }
}

impl Experiment for Both {
    type Case = Data;

    fn measure(&mut self, data: &Data, round: usize) -> anyhow::Result<Vec<[f64; 2]>> {
        let duration = self.duration;
        let [ours, before] = in_turns(round, |side| self.sides[side].measure(*data, duration))?;
        Ok(rounds::pair_up(&ours, &before))
    }

    /// Whether the jobs are used further after a failure. They aren't, as client and server may
    /// disagree about the next measurement.
    fn survives_failure(&self) -> bool {
        false
    }

    fn finish(self) -> anyhow::Result<()> {
        let stop = |Side { tunnel, client, _bench }: Side| client.finish(&format!("stop {}", tunnel.target));
        self.sides.into_iter().try_for_each(stop)
    }
}
