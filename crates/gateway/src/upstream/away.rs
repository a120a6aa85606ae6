//! Whether it is certain that the broker is away. Plain data; the caller has the clock.

use std::time::{Duration, Instant};

/// How long a broker may take to be back that is started anew. Calls wait for it that long.
const RESTART: Duration = Duration::from_secs(3);
/// How long an attempt that failed counts for further calls.
const FRESH: Duration = Duration::from_secs(1);

/// Since when the broker isn't reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Away {
    since: Instant,
    /// When the last attempt failed.
    tried: Instant,
}

impl Away {
    pub(super) fn since(now: Instant) -> Self {
        Self { since: now, tried: now }
    }

    /// Takes in that an attempt to reach the broker has failed.
    pub(super) fn tried(&mut self, now: Instant) {
        self.tried = now;
    }

    pub(super) fn for_how_long(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    /// When failed attempts begin to show that the broker is away.
    pub(super) fn certain_from(&self) -> Instant {
        self.since + RESTART
    }

    /// Whether it is certain that the broker is away, so that a call needs no further attempt.
    pub(super) fn is_certain(&self, now: Instant) -> bool {
        now >= self.certain_from() && now.saturating_duration_since(self.tried) < FRESH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_is_away_for_certain_after_a_while_and_a_fresh_attempt() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        for (tried, now, want) in [(0, 0, false), (2, 2, false), (0, 9, false), (9, 9, true), (9, 10, false)]
        {
            let mut away = Away::since(began);
            away.tried(at(tried));
            assert_eq!(away.is_certain(at(now)), want, "tried at {tried} s, asked at {now} s");
            assert_eq!(away.for_how_long(at(now)).as_secs(), now);
        }
    }
}
