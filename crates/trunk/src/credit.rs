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

/// The pool of one trunk, in bytes.
#[derive(Debug)]
pub(crate) struct Pool {
    total: u64,
    used: u64,
    initial: u64,
    max_window: u64,
}

impl Pool {
    pub(crate) fn new(total: u64, initial: u32, max_window: u64) -> Self {
        let initial = u64::from(initial);
        Self { total, used: 0, initial, max_window: max_window.max(initial) }
    }

    /// Bytes of credit that are promised out of the pool.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// The window that a stream may have which takes `charged` bytes of the pool.
    fn threshold(&self, charged: u64) -> u64 {
        let left = self.total.saturating_sub(self.used - charged);
        (left / SHARE + self.initial).min(self.max_window)
    }
}

/// The credit of one stream.
#[derive(Debug)]
pub(crate) struct Window {
    /// Bytes since the beginning that the peer may send.
    limit: u64,
    /// How far the limit is to be beyond what the program has read.
    window: u64,
    /// When the limit was raised last.
    raised: Option<Instant>,
    /// What the pool has promised to this stream.
    charged: u64,
}

impl Window {
    pub(crate) fn new(initial: u32) -> Self {
        Self { limit: initial.into(), window: initial.into(), raised: None, charged: 0 }
    }

    /// Bytes since the beginning that the peer may send.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Raises the limit, if the program has read half a window since it was raised last.
    /// `true` if a CREDIT is due.
    ///
    /// The window doubles if that took less than two round trips: the sender is held up
    /// by its credit. So it grows to about four times rate times RTT, and follows a
    /// stream whose rate falls only by way of the pool.
    pub(crate) fn raise(&mut self, read: u64, rtt: Duration, now: Instant, pool: &mut Pool) -> bool {
        self.charge(self.limit, read, pool);
        if (read + self.window).saturating_sub(self.limit) < (self.window / 2).max(1) {
            return false;
        }
        let fast = self.raised.is_some_and(|raised| now.saturating_duration_since(raised) < 2 * rtt);
        let wanted = if fast { self.window.saturating_mul(2) } else { self.window };
        self.window = wanted.min(pool.threshold(self.charged)).max(pool.initial);
        self.raised = Some(now);
        let limit = read + self.window;
        if limit <= self.limit {
            return false;
        }
        self.limit = limit;
        self.charge(limit, read, pool);
        true
    }

    /// Takes from the pool what the peer may still send up to `end`, beyond the initial
    /// credit; gives back the rest.
    fn charge(&mut self, end: u64, read: u64, pool: &mut Pool) {
        let charged = end.saturating_sub(read).saturating_sub(pool.initial);
        pool.used = pool.used - self.charged + charged;
        self.charged = charged;
    }

    /// Gives back what the stream won't use, once its end is known.
    pub(crate) fn ends_at(&mut self, end: u64, read: u64, pool: &mut Pool) {
        self.charge(end.min(self.limit), read, pool);
    }

    /// Gives all back.
    pub(crate) fn close(&mut self, pool: &mut Pool) {
        self.charge(0, 0, pool);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(10);

    #[test]
    fn a_window_grows_while_it_is_used_up_in_two_round_trips() {
        for (name, pause, grown) in [("fast", RTT, true), ("slow", 3 * RTT, false)] {
            let mut pool = Pool::new(1 << 20, 1000, 1 << 30);
            let mut window = Window::new(1000);
            let mut now = Instant::now();
            for _ in 0..4 {
                now += pause;
                let read = window.limit();
                assert!(window.raise(read, RTT, now, &mut pool), "{name}");
            }
            assert_eq!(window.window > 1000, grown, "{name}");
        }
    }

    #[test]
    fn credit_is_raised_by_halves() {
        let mut pool = Pool::new(0, 1000, 1 << 30);
        let mut window = Window::new(1000);
        let now = Instant::now();
        assert!(!window.raise(499, RTT, now, &mut pool));
        assert!(window.raise(500, RTT, now, &mut pool));
        assert_eq!(window.limit(), 1500);
    }

    #[test]
    fn all_streams_together_stay_within_the_pool_and_the_last_still_gets_some() {
        let mut pool = Pool::new(1 << 20, 1000, 1 << 30);
        let mut windows: Vec<Window> = (0..20).map(|_| Window::new(1000)).collect();
        let mut now = Instant::now();
        for _ in 0..30 {
            now += RTT;
            for window in &mut windows {
                let read = window.limit();
                window.raise(read, RTT, now, &mut pool);
                assert!(pool.used() <= 1 << 20);
            }
        }
        let mut late = Window::new(1000);
        for _ in 0..10 {
            now += RTT;
            let read = late.limit();
            late.raise(read, RTT, now, &mut pool);
        }
        assert!(late.window > 10_000, "{}", late.window);
        for window in windows.iter_mut().chain([&mut late]) {
            window.close(&mut pool);
        }
        assert_eq!(pool.used(), 0);
    }
}
