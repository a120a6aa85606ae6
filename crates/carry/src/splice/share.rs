//! What spliced pairs may use together of a machine, and what they have carried.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use isthmus_service::lock;

use crate::pacing_rate;
use crate::plane::Totals;
use crate::socket::Socket;

/// A pair that carries more than an idle one counts as busy in this time and in the next.
const TICK: Duration = Duration::from_millis(500);
/// Ticks in a second.
const TICKS: u64 = 2;
/// What an idle pair doesn't carry in a tick.
const SOME: u64 = 8 << 10;

/// Pairs that share a rate. The kernel paces the sockets of each at an equal part of it: the part is that
/// of the pairs that are busy.
#[derive(Debug, Default)]
pub struct Share {
    bytes_per_second: Option<NonZeroU64>,
    connections: AtomicU64,
    running: AtomicU64,
    bytes: AtomicU64,
    busy: Mutex<Busy>,
}

/// How many pairs were busy in a tick, and in the tick before it.
#[derive(Debug, Default)]
struct Busy {
    tick: u64,
    now: u64,
    before: u64,
}

impl Busy {
    /// Takes in that this tick has come, and that one more pair is busy in it or not. Returns how many
    /// are.
    fn count(&mut self, tick: u64, one_more: bool) -> u64 {
        if tick > self.tick {
            self.before = if tick == self.tick + 1 { self.now } else { 0 };
            (self.tick, self.now) = (tick, 0);
        }
        self.now += u64::from(one_more);
        self.now.max(self.before).max(1)
    }
}

impl Share {
    /// A share of this rate in each direction, or without a bound.
    pub fn new(bytes_per_second: Option<NonZeroU64>) -> Self {
        Self { bytes_per_second, ..Self::default() }
    }

    /// The counters of the pairs so far.
    pub fn totals(&self) -> Totals {
        Totals {
            connections: self.connections.load(Relaxed),
            running: self.running.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
        }
    }

    /// The bytes from which on a pair counts as busy in a tick, if so many are: a pair of many that are
    /// busy may carry few.
    fn least(&self, busy: u64) -> u64 {
        self.part(busy).map_or(SOME, |part| (part / TICKS / 4).clamp(1, SOME))
    }

    /// The bytes per second of each pair, if so many are busy.
    fn part(&self, busy: u64) -> Option<u64> {
        self.bytes_per_second.map(|all| (all.get() / busy.max(1)).max(1))
    }
}

/// A pair's place in a share.
#[derive(Debug)]
pub(super) struct Member {
    share: Arc<Share>,
    /// The number of pairs by which this one's sockets are paced; 0 before they are.
    paced_for: u64,
    /// What it has carried in this tick.
    carried: (u64, u64),
}

impl Member {
    pub(super) fn join(share: &Arc<Share>) -> Self {
        share.connections.fetch_add(1, Relaxed);
        share.running.fetch_add(1, Relaxed);
        Self { share: share.clone(), paced_for: 0, carried: (0, 0) }
    }

    /// Notes what the pair has carried in a turn, and paces its sockets by the number of pairs that are
    /// busy. To be called at the begin and after each turn: a pair that sends nothing needs no other
    /// pace.
    pub(super) fn carried(&mut self, bytes: u64, ends: &[Socket; 2]) {
        self.share.bytes.fetch_add(bytes, Relaxed);
        if self.share.bytes_per_second.is_none() {
            return;
        }
        let tick = u64::try_from(begin().elapsed().as_millis() / TICK.as_millis()).unwrap_or(u64::MAX);
        let before = if self.carried.0 == tick { self.carried.1 } else { 0 };
        self.carried = (tick, before + bytes);
        let least = self.share.least(self.paced_for);
        let is_newly_busy = before < least && before + bytes >= least;
        let busy = lock(&self.share.busy).count(tick, is_newly_busy);
        if self.paced_for != busy {
            self.paced_for = busy;
            self.pace(ends);
        }
    }

    fn pace(&self, ends: &[Socket; 2]) {
        let Some(part) = self.share.part(self.paced_for) else { return };
        for end in ends {
            // It fails on sockets that aren't TCP's alone.
            if let Err(error) = pacing_rate::set_most(end, Some(part)) {
                tracing::debug!(%error, "cannot pace a spliced connection");
            }
        }
    }
}

/// When ticks begin to count.
fn begin() -> Instant {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    *BEGIN.get_or_init(Instant::now)
}

impl Drop for Member {
    fn drop(&mut self) {
        self.share.running.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_get_equal_parts() {
        for (all, running, want) in [
            (NonZeroU64::new(100), 1, Some(100)),
            (NonZeroU64::new(100), 3, Some(33)),
            (NonZeroU64::new(100), 0, Some(100)),
            // Zero would be no pace at all.
            (NonZeroU64::new(2), 3, Some(1)),
            (None, 3, None),
        ] {
            assert_eq!(Share::new(all).part(running), want, "{all:?} for {running}");
        }
    }

    #[test]
    fn a_pair_of_many_is_busy_with_little() {
        for (all, busy, want) in [(1 << 30, 1, SOME), (125_000, 20, 781), (125_000, 1, SOME), (2, 9, 1)] {
            assert_eq!(Share::new(NonZeroU64::new(all)).least(busy), want, "{all} for {busy}");
        }
    }

    #[test]
    fn a_member_counts_until_it_is_dropped() {
        let share = Arc::new(Share::new(None));
        let (_first, second) = (Member::join(&share), Member::join(&share));
        drop(second);
        assert_eq!(share.totals(), Totals { connections: 2, running: 1, bytes: 0 });
    }

    #[test]
    fn pairs_are_busy_for_a_tick_or_two() {
        let mut busy = Busy::default();
        for (tick, one_more, want) in [
            (1, false, 1),
            (1, true, 1),
            (1, true, 2),
            (2, false, 2),
            (2, true, 2),
            (3, false, 1),
            (3, true, 1),
            (9, false, 1),
        ] {
            assert_eq!(busy.count(tick, one_more), want, "{tick} {one_more}");
        }
    }
}
