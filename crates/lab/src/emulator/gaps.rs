//! How to keep the processor at a real-time priority: Linux stops what uses more of a
//! processor than `sched_rt_runtime_us` allows, by default 95 % of each second, until the
//! second is over (sched(7)). So a busy emulator leaves short gaps itself.

use std::time::Duration;

/// One part in this many of the time at work is left as gaps, so that work takes at most 94 % of
/// all time.
const SHARE: u32 = 16;

/// Shortest gap that is left. Shorter ones would be wake-ups for nothing.
const LEAST: Duration = Duration::from_micros(100);

/// Processor time of a call that waits, whether it waits or not.
const CALL: Duration = Duration::from_micros(10);

/// Weighs the loop's work against its sleep.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    owed: Duration,
}

impl Gaps {
    /// Takes in one turn of the loop: how long it worked, and how long it slept then. Returns the
    /// gap to leave now, `None` if none is due.
    pub(super) fn after(&mut self, worked: Duration, slept: Duration) -> Option<Duration> {
        self.owed = (self.owed + (worked + CALL) / SHARE).saturating_sub(slept.saturating_sub(CALL));
        (self.owed >= LEAST).then(|| std::mem::take(&mut self.owed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of work in all time, if each turn works and sleeps for so many microseconds.
    fn share(work: u64, sleep: u64) -> f64 {
        let [work, sleep] = [work, sleep].map(Duration::from_micros);
        let (mut gaps, mut worked, mut all) = (Gaps::default(), Duration::ZERO, Duration::ZERO);
        while all < Duration::from_secs(1) {
            worked += work;
            all += work + sleep + gaps.after(work, sleep).unwrap_or_default();
        }
        worked.as_secs_f64() / all.as_secs_f64()
    }

    #[test]
    fn work_stays_below_the_kernel_s_limit() {
        for work in [5, 100, 1000, 20_000] {
            for sleep in [0, 1, 10, 20] {
                let share = share(work, sleep);
                assert!(share < 0.945, "{work} µs of work, {sleep} µs of sleep: {share}");
            }
        }
    }

    #[test]
    fn whoever_sleeps_enough_leaves_no_gaps() {
        let mut gaps = Gaps::default();
        for _ in 0..10_000 {
            assert_eq!(gaps.after(Duration::from_micros(100), Duration::from_micros(30)), None);
        }
    }
}
