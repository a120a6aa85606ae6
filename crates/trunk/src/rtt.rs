//! Round trips of one carrier.

use std::time::{Duration, Instant};

/// The round trip before the first measurement: long enough for any path on earth.
pub(crate) const UNKNOWN: Duration = Duration::from_millis(500);

/// Counted frames are acknowledged at the latest after this time.
pub const ACK_DELAY: Duration = Duration::from_millis(20);
/// After this time the shortest round trip is forgotten: the path may have changed. Mostly at least
/// one PING within it finds the carrier without a queue.
const LEAST_AGE: Duration = Duration::from_secs(60);

/// Round-trip times: smoothed (RFC 6298 section 2, SRTT), and the shortest of late.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rtt {
    smoothed: Option<Duration>,
    least: Option<(Duration, Instant)>,
}

impl Rtt {
    /// Takes in one measurement.
    pub(crate) fn add(&mut self, measured: Duration, now: Instant) {
        self.smoothed = Some(self.smoothed.map_or(measured, |smoothed| (smoothed * 7 + measured) / 8));
        let lower = |(least, since): (Duration, Instant)| measured <= least || since + LEAST_AGE <= now;
        if self.least.is_none_or(lower) {
            self.least = Some((measured, now));
        }
    }

    pub(crate) fn measured(&self) -> Option<Duration> {
        self.smoothed
    }

    /// The round trip without queues, as far as it is known.
    pub(crate) fn least(&self) -> Option<Duration> {
        self.least.map(|(least, _)| least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_is_kept_for_a_while() {
        let ms = Duration::from_millis;
        let (mut rtt, begun) = (Rtt::default(), Instant::now());
        for (after, measured, least) in
            [(0, 10, 10), (1, 30, 10), (2, 8, 8), (61, 30, 8), (62, 30, 30), (63, 20, 20)]
        {
            rtt.add(ms(measured), begun + Duration::from_secs(after));
            assert_eq!(rtt.least(), Some(ms(least)), "after {after} s");
        }
    }
}
