//! Round trips of one carrier.

use std::time::{Duration, Instant};

/// The round trip before the first measurement: long enough for any path on earth.
pub(crate) const UNKNOWN: Duration = Duration::from_millis(500);

/// Counted frames are acknowledged at the latest after this time.
pub const ACK_DELAY: Duration = Duration::from_millis(20);
/// After this time the shortest round trip is forgotten: the path may have changed. Mostly at least
/// one PING within it finds the carrier without a queue.
const LEAST_AGE: Duration = Duration::from_secs(60);

/// A queue makes round trips longer by so much at least. Processors do, too.
const LEAST_QUEUE: Duration = Duration::from_millis(1);

/// Whether a round trip is longer than the least by such a part of it that it shows a queue.
pub(crate) fn shows_queue(rtt: Duration, least: Duration, part: Duration) -> bool {
    rtt > least + part.max(LEAST_QUEUE)
}

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
    fn what_shows_a_queue() {
        let micros = Duration::from_micros;
        for (rtt, least, part, want) in [
            (12_000, 10_000, 2_500, false),
            (12_600, 10_000, 2_500, true),
            (900, 100, 25, false),
            (1_200, 100, 25, true),
        ] {
            assert_eq!(shows_queue(micros(rtt), micros(least), micros(part)), want, "{rtt} {least}");
        }
    }

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
