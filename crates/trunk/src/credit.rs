//! How much the peer may send on each stream, out of one pool for all.
//!
//! Each stream has the initial credit for itself. What it gets beyond comes out of the
//! pool, and no stream may take more than a share of what the others leave: the dynamic
//! threshold of Choudhury and Hahne ("Dynamic queue length thresholds for shared-memory
//! packet switches", IEEE/ACM Transactions on Networking 6(2), 1998). So a slow reader
//! holds its share and no more, and a part of the pool is free for the next stream.

use std::time::{Duration, Instant};

/// A stream may take up to 1/SHARE of what the others leave of the pool.
const SHARE: u64 = 4;

/// By how much the first step multiplies the credit of a stream that needs more than its initial
/// one: 16 KiB become 256 KiB. Later steps double it. So the first megabyte takes no more round
/// trips than over a TCP connection of its own.
const FIRST_STEP: u64 = 16;

/// The pool of one trunk, in bytes.
#[derive(Debug)]
pub(crate) struct Pool {
    total: u64,
    used: u64,
    initial: u64,
    max_window: u64,
    /// Whether an initial credit, or what waited for more, has come in two round trips without
    /// queues, on some stream: then the trunk's carriers are not slow.
    quick: bool,
}

impl Pool {
    pub(crate) fn new(total: u64, initial: u32, max_window: u64) -> Self {
        let initial = u64::from(initial);
        Self { total, used: 0, initial, max_window: max_window.max(initial), quick: false }
    }

    /// How many bytes of credit are promised out of the pool.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// The largest window for a stream that already takes `charged` bytes of the pool.
    fn threshold(&self, charged: u64) -> u64 {
        let left = self.total.saturating_sub(self.used - charged);
        (left / SHARE + self.initial).min(self.max_window)
    }

    /// Whether less than half of the pool is promised; otherwise no stream takes the first step.
    /// Idle streams may hold what the first step gave them. So half of the pool is left to streams
    /// that prove their need by doubling.
    fn is_mostly_free(&self) -> bool {
        self.used < self.total / 2
    }
}

/// Round trips of the trunk's carriers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rtts {
    /// The round trip with queues, and at least the longest carrier's without.
    pub(crate) smoothed: Duration,
    /// The round trip of the shortest carrier, without queues.
    pub(crate) least: Duration,
}

/// The credit of one stream.
#[derive(Debug)]
pub(crate) struct Window {
    /// The offset up to which the peer may send.
    limit: u64,
    /// How many bytes the limit is to be beyond what the program has read.
    window: u64,
    /// When the limit was last raised, or the stream opened.
    raised: Option<Instant>,
    /// The limit before that.
    former: u64,
    /// How many bytes the pool has promised to this stream.
    charged: u64,
}

impl Window {
    pub(crate) fn new(initial: u32, now: Option<Instant>) -> Self {
        Self { limit: initial.into(), window: initial.into(), raised: now, former: u64::MAX, charged: 0 }
    }

    /// The offset up to which the peer may send.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Raises the limit, if the program has read half a window since it was last raised. Returns
    /// whether a CREDIT is due. `arrived` is the offset behind the last byte that came.
    ///
    /// The window doubles if that took less than two round trips: the sender is held up
    /// by its credit. So it grows to about four times rate times RTT, and follows a
    /// stream whose rate falls only by way of the pool.
    ///
    /// The initial window grows by [`FIRST_STEP`] instead, if it took two round trips
    /// without queues: with queues, a slow link would seem fast. For a stream that was
    /// idle before, three quarters of the credit used are enough, if the trunk's carriers
    /// are not slow. They also count as quick if more comes within two round trips of the last
    /// raise than the former limit allowed: the sender waited for that. So a message that is a
    /// little longer than the initial credit waits once, and not each time.
    pub(crate) fn raise(
        &mut self,
        read: u64,
        arrived: u64,
        rtts: Rtts,
        now: Instant,
        pool: &mut Pool,
    ) -> bool {
        self.charge(self.limit, read, pool);
        let took = self.raised.map_or(Duration::MAX, |raised| now.saturating_duration_since(raised));
        pool.quick |= arrived > self.former && took < 2 * rtts.least;
        if (read + self.window).saturating_sub(self.limit) < (self.window / 2).max(1) {
            return false;
        }
        let initial = self.window <= pool.initial;
        // One message isn't a sender that is held up.
        let unproved = self.limit <= pool.initial;
        pool.quick |= initial && took < 2 * rtts.least;
        let mostly_used = pool.quick && arrived >= self.limit - self.limit / 4;
        let wanted = if initial && pool.is_mostly_free() && (took < 2 * rtts.least || mostly_used) {
            self.window.saturating_mul(FIRST_STEP)
        } else if !unproved && took < 2 * rtts.smoothed {
            self.window.saturating_mul(2)
        } else {
            self.window
        };
        self.window = wanted.min(pool.threshold(self.charged)).max(pool.initial);
        self.raised = Some(now);
        let limit = read + self.window;
        if limit <= self.limit {
            return false;
        }
        self.former = std::mem::replace(&mut self.limit, limit);
        self.charge(limit, read, pool);
        true
    }

    /// Sets what the stream takes from the pool: what the peer may still send up to `end`, beyond
    /// the initial credit. Gives back the rest.
    fn charge(&mut self, end: u64, read: u64, pool: &mut Pool) {
        let charged = end.saturating_sub(read).saturating_sub(pool.initial);
        pool.used = pool.used - self.charged + charged;
        self.charged = charged;
    }

    /// Gives back to the pool what the stream won't use, once its end is known.
    pub(crate) fn ends_at(&mut self, end: u64, read: u64, pool: &mut Pool) {
        self.charge(end.min(self.limit), read, pool);
    }

    /// Gives all back to the pool.
    pub(crate) fn close(&mut self, pool: &mut Pool) {
        self.charge(0, 0, pool);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(10);
    const RTTS: Rtts = Rtts { smoothed: RTT, least: RTT };

    #[test]
    fn a_window_grows_while_it_is_used_up_in_two_round_trips() {
        for (name, pause, grown) in [("fast", RTT, true), ("slow", 3 * RTT, false)] {
            let mut pool = Pool::new(1 << 20, 1000, 1 << 30);
            let mut window = Window::new(1000, None);
            let mut now = Instant::now();
            for _ in 0..4 {
                now += pause;
                let read = window.limit();
                assert!(window.raise(read, 0, RTTS, now, &mut pool), "{name}");
            }
            assert_eq!(window.window > 1000, grown, "{name}");
        }
    }

    /// Messages that are a little longer than the initial credit, each long after the one before.
    #[test]
    fn carriers_are_quick_if_what_was_held_up_comes_a_round_trip_later() {
        for (name, rest_after, quick) in [("quick", RTT, true), ("slow", 2 * RTT, false)] {
            let mut pool = Pool::new(1 << 20, 1000, 1 << 30);
            let mut stream = Window::new(1000, None);
            let now = Instant::now();
            assert!(stream.raise(1000, 1000, RTTS, now, &mut pool), "{name}");
            assert!(!stream.raise(1001, 1001, RTTS, now + rest_after, &mut pool), "{name}");
            assert_eq!((stream.window, pool.quick), (1000, quick), "{name}");
            assert!(stream.raise(2000, 2000, RTTS, now + 100 * RTT, &mut pool), "{name}");
            assert_eq!(stream.window, if quick { 16_000 } else { 1000 }, "{name}");
        }
        // What the former limit allowed may have been on its way already.
        for (arrived, quick) in [(1000, false), (1001, true)] {
            let mut pool = Pool::new(1 << 20, 1000, 1 << 30);
            let mut stream = Window::new(1000, None);
            let now = Instant::now();
            assert!(stream.raise(600, 600, RTTS, now, &mut pool));
            assert!(!stream.raise(arrived, arrived, RTTS, now + RTT, &mut pool));
            assert_eq!(pool.quick, quick, "{arrived}");
        }
    }

    #[test]
    fn the_first_step_is_a_large_one_for_a_sender_that_is_held_up() {
        let (soon, late) = (RTT, 3 * RTT);
        let queued = Rtts { smoothed: 10 * RTT, least: RTT };
        // Whether carriers are known to be quick, the pool, what is used of it, bytes that
        // came, after which time half the window is read, round trips; the next window.
        for (name, quick, total, used, arrived, took, rtts, window) in [
            ("soon", false, 1 << 20, 0, 500, soon, RTTS, 16_000),
            ("soon, half of the pool free", false, 1 << 20, (1 << 19) - 1, 500, soon, RTTS, 16_000),
            ("soon, half of it used", false, 1 << 20, 1 << 19, 500, soon, RTTS, 1000),
            ("soon, a small pool", false, 8000, 0, 500, soon, RTTS, 3000),
            ("late", true, 1 << 20, 0, 749, late, RTTS, 1000),
            ("late, three quarters used", true, 1 << 20, 0, 750, late, RTTS, 16_000),
            ("late, all used, half of the pool used", true, 1 << 20, 1 << 19, 1000, late, RTTS, 1000),
            ("late, all used, slow", false, 1 << 20, 0, 1000, late, RTTS, 1000),
            ("late, behind a queue", false, 1 << 20, 0, 1000, late, queued, 1000),
        ] {
            let mut pool = Pool { quick, used, ..Pool::new(total, 1000, 1 << 30) };
            let now = Instant::now();
            let mut stream = Window::new(1000, Some(now));
            assert!(stream.raise(500, arrived, rtts, now + took, &mut pool), "{name}");
            assert_eq!(stream.window, window, "{name}");
            assert_eq!(pool.quick, quick || took == soon, "{name}");
        }
    }

    #[test]
    fn credit_is_raised_by_halves() {
        let mut pool = Pool::new(0, 1000, 1 << 30);
        let mut window = Window::new(1000, None);
        let now = Instant::now();
        assert!(!window.raise(499, 0, RTTS, now, &mut pool));
        assert!(window.raise(500, 0, RTTS, now, &mut pool));
        assert_eq!(window.limit(), 1500);
    }

    #[test]
    fn all_streams_together_stay_within_the_pool_and_the_last_still_gets_some() {
        let mut pool = Pool::new(1 << 20, 1000, 1 << 30);
        let mut windows: Vec<Window> = (0..20).map(|_| Window::new(1000, None)).collect();
        let mut now = Instant::now();
        for _ in 0..30 {
            now += RTT;
            for window in &mut windows {
                let read = window.limit();
                window.raise(read, 0, RTTS, now, &mut pool);
                assert!(pool.used() <= 1 << 20);
            }
        }
        let mut late = Window::new(1000, None);
        for _ in 0..10 {
            now += RTT;
            let read = late.limit();
            late.raise(read, 0, RTTS, now, &mut pool);
        }
        assert!(late.window > 10_000, "{}", late.window);
        for window in windows.iter_mut().chain([&mut late]) {
            window.close(&mut pool);
        }
        assert_eq!(pool.used(), 0);
    }
}
