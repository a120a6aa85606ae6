//! The emulator's report: how much it carried, and how late.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::device::DeviceKind;
use super::fidelity::Lapse;
use super::link::Direction;
use crate::grid::LinkShape;

/// What the emulator of a wide area reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The kind of device between the kernel and the emulator.
    pub devices: DeviceKind,
    /// The seed of all random losses and delays. A grid file with this `seed` gives the same losses
    /// to the same packets.
    pub seed: u64,
    /// Processor time that the emulator used since its start, in seconds.
    pub processor_seconds: f64,
    /// Time since the emulator's start, in seconds.
    pub running_seconds: f64,
    /// Reports of the links, in the order of the grid file.
    pub links: Vec<LinkReport>,
    /// How often the emulation wasn't faithful. What was measured at such a moment is void.
    pub lapses: u64,
    /// The most recent lapses, oldest first.
    pub recent_lapses: Vec<Lapse>,
}

impl Report {
    /// Whether the links did at all times what their shapes say.
    pub fn is_faithful(&self) -> bool {
        self.lapses == 0
    }

    /// Whether the links did what their shapes say at all times since an earlier report.
    pub fn is_faithful_since(&self, earlier: &Self) -> bool {
        self.lapses == earlier.lapses
    }

    /// The report of the link of this name. `None` if no emulated link has it.
    pub fn link(&self, name: &str) -> Option<&LinkReport> {
        self.links.iter().find(|link| link.name == name)
    }
}

/// What a link carried since the emulator's start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkReport {
    /// Name of the host or site at the link's end.
    pub name: String,
    /// The direction from the host or site to the internet.
    pub up: DirectionReport,
    /// The direction from the internet to the host or site.
    pub down: DirectionReport,
}

/// What one direction of a link carried since the emulator's start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DirectionReport {
    /// What the direction does to packets at present.
    pub shape: LinkShape,
    /// Packets that the direction was given, as segments on the wire.
    pub packets: u64,
    /// Bytes of the packets that the direction was given, IP headers included.
    pub bytes: u64,
    /// Packets dropped because the queue was full.
    pub dropped: u64,
    /// Packets lost behind the bottleneck, at random or for their length.
    pub lost: u64,
    /// The most bytes that the queue has held.
    pub queue_peak_bytes: u64,
    /// Frames that the receiving interface refused, also because it was down.
    pub write_errors: u64,
    /// Packets that the kernel dropped before the emulator read them.
    pub unread: u64,
    /// How late frames left, compared with the time when they were due.
    pub lateness: LatenessReport,
}

/// How late the frames of a direction left, in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LatenessReport {
    /// Median of the lateness.
    pub p50_us: f64,
    /// 90th percentile of the lateness.
    pub p90_us: f64,
    /// 99th percentile of the lateness.
    pub p99_us: f64,
    /// 99.9th percentile of the lateness.
    pub p999_us: f64,
    /// Lateness of the latest frame.
    pub max_us: f64,
}

/// Records how late frames left.
#[derive(Debug)]
pub struct Lateness {
    nanoseconds: Histogram<u32>,
}

/// Longest lateness that is recorded. A frame that left later counts as this late.
const LATEST: Duration = Duration::from_secs(600);

/// How many decimal digits of each lateness are kept. Two digits take 2,600 counters per direction.
const SIGNIFICANT_DIGITS: u8 = 2;

impl Lateness {
    /// Makes an empty record.
    pub fn new() -> Result<Self, hdrhistogram::CreationError> {
        let latest = LATEST.as_nanos() as u64;
        Ok(Self { nanoseconds: Histogram::new_with_bounds(1, latest, SIGNIFICANT_DIGITS)? })
    }

    /// Records a frame that left `late` after it was due.
    pub fn record(&mut self, late: Duration) {
        self.nanoseconds.saturating_record(late.as_nanos().min(u128::from(u64::MAX)) as u64);
    }

    /// How many frames were recorded since the last [`clear`](Self::clear).
    pub fn frames(&self) -> u64 {
        self.nanoseconds.len()
    }

    /// 99th percentile of the recorded lateness.
    pub fn p99(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.value_at_quantile(0.99))
    }

    /// Forgets all recorded frames.
    pub fn clear(&mut self) {
        self.nanoseconds.reset();
    }

    /// The percentiles of the recorded lateness.
    pub fn report(&self) -> LatenessReport {
        let microseconds = |quantile| self.nanoseconds.value_at_quantile(quantile) as f64 / 1e3;
        LatenessReport {
            p50_us: microseconds(0.5),
            p90_us: microseconds(0.9),
            p99_us: microseconds(0.99),
            p999_us: microseconds(0.999),
            max_us: self.nanoseconds.max() as f64 / 1e3,
        }
    }
}

impl DirectionReport {
    pub(super) fn new(direction: &Direction, write_errors: u64, unread: u64, lateness: &Lateness) -> Self {
        let counters = direction.counters();
        Self {
            shape: direction.shape(),
            packets: counters.segments,
            bytes: counters.bytes,
            dropped: counters.dropped,
            lost: counters.lost,
            queue_peak_bytes: counters.queue_peak,
            write_errors,
            unread,
            lateness: lateness.report(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_what_was_recorded() {
        let mut lateness = Lateness::new().unwrap();
        for microseconds in 1..=1000 {
            lateness.record(Duration::from_micros(microseconds));
        }
        let report = lateness.report();
        for (got, want) in [
            (report.p50_us, 500.0),
            (report.p90_us, 900.0),
            (report.p99_us, 990.0),
            (report.p999_us, 999.0),
            (report.max_us, 1000.0),
        ] {
            assert!((got / want - 1.0).abs() < 0.01, "{got} instead of {want}");
        }
    }
}
