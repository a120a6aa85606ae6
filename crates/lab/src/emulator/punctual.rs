//! How to be on time: sleep until shortly before, then look at the clock.
//! Looking at the clock takes a processor from the nodes of the lab, so only
//! a share of the time may go there; a busy link then has its packets some
//! tens of microseconds late, which a bulk transfer doesn't notice, while the
//! sparse packets whose delay somebody measures are on time.

use std::time::{Duration, Instant};

/// How long before a packet is due the loop stops sleeping, as a wake-up comes tens of microseconds
/// late.
const SPIN: Duration = Duration::from_micros(60);

/// At most one part in this many of all time is spent looking at the clock.
const SHARE: u32 = 10;

/// Most time for looking at the clock that can be saved up: enough for a burst of some thirty
/// packets.
const MOST_SAVED: Duration = Duration::from_millis(2);

/// Decides how long to sleep before a packet is due.
#[derive(Debug)]
pub(super) struct Punctual {
    saved: Duration,
    last: Instant,
    spinning: bool,
}

impl Punctual {
    /// Starts at `now` with the most time saved up.
    pub(super) fn new(now: Instant) -> Self {
        Self { saved: MOST_SAVED, last: now, spinning: false }
    }

    /// How long to sleep at `now` if the next packet is due at `due`. To be called before every
    /// sleep, also if the sleep lasts no time.
    pub(super) fn sleep(&mut self, due: Instant, now: Instant) -> Duration {
        let passed = now.saturating_duration_since(self.last);
        self.last = now;
        self.saved = (self.saved + passed / SHARE).min(MOST_SAVED);
        if self.spinning {
            self.saved = self.saved.saturating_sub(passed);
        }
        let left = due.saturating_duration_since(now);
        let early = if self.saved >= SPIN || (self.spinning && !self.saved.is_zero()) {
            SPIN
        } else {
            Duration::ZERO
        };
        self.spinning = left <= early && !left.is_zero();
        left.saturating_sub(early)
    }

    /// Takes in that the loop sleeps without a packet that is due. To be called instead of
    /// [`sleep`](Self::sleep) then.
    pub(super) fn rest(&mut self) {
        self.spinning = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICROSECOND: Duration = Duration::from_micros(1);

    /// Simulates one second with a packet due every `gap`. Returns the share of time spent looking
    /// at the clock, and how many packets were awaited so.
    fn run(gap: Duration) -> (f64, usize) {
        let start = Instant::now();
        let mut punctual = Punctual::new(start);
        let (mut now, mut spun, mut awaited) = (start, Duration::ZERO, 0);
        let packets = 1_000_000 / gap.as_micros() as u32;
        for packet in 1..=packets {
            let due = start + gap * packet;
            let mut looked = false;
            while now < due {
                let sleep = punctual.sleep(due, now);
                if sleep.is_zero() {
                    looked = true;
                    spun += MICROSECOND;
                }
                now += sleep.max(MICROSECOND);
            }
            awaited += usize::from(looked);
        }
        (spun.as_secs_f64() / (now - start).as_secs_f64(), awaited)
    }

    #[test]
    fn sparse_packets_are_awaited() {
        assert_eq!(run(Duration::from_millis(5)).1, 200);
        assert_eq!(run(Duration::from_millis(1)).1, 1000);
    }

    #[test]
    fn dense_packets_cost_a_bounded_share() {
        for gap in [10, 50, 100, 250] {
            let (share, _) = run(Duration::from_micros(gap));
            assert!(share < 0.11, "{gap} µs apart: {share}");
        }
    }
}
