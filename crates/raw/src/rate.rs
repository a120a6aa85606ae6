//! How many requests an agent may make: a token bucket.

use std::time::Duration;

/// Requests that may come at once: one from each rank of a job of 10,000, twice.
const BURST: u32 = 20_000;
/// Time in which one more request is allowed, once the burst is used up.
const INTERVAL: Duration = Duration::from_micros(500);

/// A bucket of 20,000 requests, refilled at 2,000 per second. It is full at first.
#[derive(Debug, Default)]
pub struct Rate {
    /// When the bucket is full again, as the time since the start.
    full_at: Duration,
}

impl Rate {
    /// Takes one request from the bucket; `now` is the time since the start. `false` if the bucket
    /// is empty.
    pub fn take(&mut self, now: Duration) -> bool {
        let full_at = self.full_at.max(now) + INTERVAL;
        let allowed = full_at - now <= INTERVAL * BURST;
        if allowed {
            self.full_at = full_at;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_then_a_constant_rate() {
        let mut rate = Rate::default();
        // Milliseconds, requests, how many of them are allowed.
        for (now, requests, want) in [
            (0, 20_000, 20_000),
            (0, 5, 0),
            (1, 5, 2),
            (1000, 5000, 1998),
            (1000, 1, 0),
            (6000, 20_000, 10_000),
            (100_000, 30_000, 20_000),
        ] {
            let allowed = (0..requests).filter(|_| rate.take(Duration::from_millis(now))).count();
            assert_eq!(allowed, want, "{requests} after {now} ms");
        }
    }
}
