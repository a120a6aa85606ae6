//! Round trips of one carrier.

use std::time::Duration;

/// Before the first measurement: long enough for any path on earth.
pub(crate) const UNKNOWN: Duration = Duration::from_millis(500);

/// A smoothed round-trip time (RFC 6298 section 2, SRTT).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rtt {
    smoothed: Option<Duration>,
}

impl Rtt {
    /// Takes in one measurement.
    pub(crate) fn add(&mut self, measured: Duration) {
        self.smoothed = Some(self.smoothed.map_or(measured, |smoothed| (smoothed * 7 + measured) / 8));
    }

    pub(crate) fn measured(&self) -> Option<Duration> {
        self.smoothed
    }
}
