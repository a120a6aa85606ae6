//! The emulator's report: how much it carried, and how late.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::device::DeviceKind;
use super::fidelity::Lapse;
use super::link::Direction;
use crate::grid::LinkShape;

/// What one emulated wide area reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The device between the kernel and the emulator.
    pub devices: DeviceKind,
    /// What everything random follows from: a grid file with this `seed` gives
    /// the same losses to the same packets.
    pub seed: u64,
    /// Processor time the emulator used since it started, in seconds.
    pub processor_seconds: f64,
    /// Time since it started, in seconds.
    pub running_seconds: f64,
    /// Its links, in the order of the grid file.
    pub links: Vec<LinkReport>,
    /// How often it wasn't faithful: what was measured at such a time is void.
    pub lapses: u64,
    /// The last of these moments, oldest first.
    pub recent_lapses: Vec<Lapse>,
}

impl Report {
    /// Whether the links did at all times what their shapes say.
    pub fn is_faithful(&self) -> bool {
        self.lapses == 0
    }

    /// Whether they did since an earlier report.
    pub fn is_faithful_since(&self, earlier: &Self) -> bool {
        self.lapses == earlier.lapses
    }

    /// The link of this name.
    pub fn link(&self, name: &str) -> Option<&LinkReport> {
        self.links.iter().find(|link| link.name == name)
    }
}

/// One link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkReport {
    /// Name of the host or site at the link's end.
    pub name: String,
    /// From the host or site to the internet.
    pub up: DirectionReport,
    /// From the internet to the host or site.
    pub down: DirectionReport,
}

/// One direction of a link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DirectionReport {
    /// How it treats packets at present.
    pub shape: LinkShape,
    /// Packets, as segments on the wire.
    pub packets: u64,
    /// Their bytes, IP headers included.
    pub bytes: u64,
    /// Packets dropped because the queue was full.
    pub dropped: u64,
    /// Packets lost behind the bottleneck, at random or for their length.
    pub lost: u64,
    /// The fullest the queue has been, in bytes.
    pub queue_peak_bytes: u64,
    /// Frames the receiving interface refused, also because it was down.
    pub write_errors: u64,
    /// Packets that the kernel dropped before they were read.
    pub unread: u64,
    /// How late frames left, against the time they were due.
    pub lateness: LatenessReport,
}

/// How late frames left, in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LatenessReport {
    /// Median.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// The latest of all.
    pub max_us: f64,
}

/// Collects how late frames left.
#[derive(Debug)]
pub struct Lateness {
    nanoseconds: Histogram<u32>,
}

/// Longest lateness told apart; a later frame counts as this late.
const LATEST: Duration = Duration::from_secs(600);

/// Two decimal digits of every value are kept: 2,600 counters per direction.
const SIGNIFICANT_DIGITS: u8 = 2;

impl Lateness {
    /// Nothing recorded yet.
    pub fn new() -> Result<Self, hdrhistogram::CreationError> {
        let latest = LATEST.as_nanos() as u64;
        Ok(Self { nanoseconds: Histogram::new_with_bounds(1, latest, SIGNIFICANT_DIGITS)? })
    }

    /// A frame left this long after it was due.
    pub fn record(&mut self, late: Duration) {
        self.nanoseconds.saturating_record(late.as_nanos().min(u128::from(u64::MAX)) as u64);
    }

    /// How many were recorded.
    pub fn frames(&self) -> u64 {
        self.nanoseconds.len()
    }

    /// The 99th percentile.
    pub fn p99(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.value_at_quantile(0.99))
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.nanoseconds.reset();
    }

    /// The percentiles of all that was recorded.
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
