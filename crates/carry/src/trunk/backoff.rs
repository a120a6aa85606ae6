//! Pauses between dials that fail.

use std::time::{Duration, Instant};

/// The pause after the first dial that failed. It doubles with each further failure, up to
/// [`LONGEST_PAUSE`].
const PAUSE: Duration = Duration::from_secs(10);
/// The longest pause after a dial that failed.
const LONGEST_PAUSE: Duration = Duration::from_secs(320);

/// Pauses between dials that fail, doubling.
#[derive(Debug, Clone, Default)]
pub(super) struct Backoff {
    failures: u32,
    /// When the pause ends; `None` if no dial has failed.
    until: Option<Instant>,
}

impl Backoff {
    /// Whether no dial failed of late.
    pub(super) fn is_new(&self) -> bool {
        self.failures == 0
    }

    pub(super) fn lasts(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// Notes that a dial has failed. Several dials that fail at once have one cause, and make one
    /// pause.
    pub(super) fn failed(&mut self, now: Instant) {
        if !self.lasts(now) {
            self.until = Some(now + pause(self.failures));
            self.failures = self.failures.saturating_add(1);
        }
    }
}

fn pause(failures: u32) -> Duration {
    PAUSE.saturating_mul(1 << failures.min(5)).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound() {
        let pauses = [0, 1, 4, 5, 6, u32::MAX].map(|failures| pause(failures).as_secs());
        assert_eq!(pauses, [10, 20, 160, 320, 320, 320]);
    }

    #[test]
    fn dials_that_fail_at_once_make_one_pause() {
        let (begun, mut backoff) = (Instant::now(), Backoff::default());
        // Seconds at which a dial fails; when the pause ends.
        for (second, until) in [(0, 10), (0, 10), (9, 10), (10, 30), (12, 30), (31, 71)] {
            backoff.failed(begun + Duration::from_secs(second));
            assert_eq!(backoff.until, Some(begun + Duration::from_secs(until)), "at {second} s");
        }
        assert!(backoff.lasts(begun + Duration::from_secs(70)) && !Backoff::default().lasts(begun));
    }
}
