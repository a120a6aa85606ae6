//! What spliced pairs may use together of a machine, and what they have carried.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::pacing_rate;
use crate::plane::Totals;
use crate::socket::Socket;

/// Pairs that share a rate. The kernel paces each pair's sockets at an equal part of it. A part that
/// one pair doesn't need isn't given to others.
#[derive(Debug, Default)]
pub struct Share {
    bytes_per_second: Option<NonZeroU64>,
    connections: AtomicU64,
    running: AtomicU64,
    bytes: AtomicU64,
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

    /// The bytes per second of each pair, if so many run.
    fn part(&self, running: u64) -> Option<u64> {
        self.bytes_per_second.map(|all| (all.get() / running.max(1)).max(1))
    }
}

/// A pair's place in a share.
#[derive(Debug)]
pub(super) struct Member {
    share: Arc<Share>,
    /// The number of pairs by which this one's sockets are paced; 0 before they are.
    paced_for: u64,
}

impl Member {
    pub(super) fn join(share: &Arc<Share>) -> Self {
        share.connections.fetch_add(1, Relaxed);
        share.running.fetch_add(1, Relaxed);
        Self { share: share.clone(), paced_for: 0 }
    }

    /// Paces the pair's sockets by the number of pairs that run now. To be called before each turn: a
    /// pair that sends nothing needs no pace.
    pub(super) fn pace(&mut self, ends: &[Socket; 2]) {
        let running = self.share.running.load(Relaxed);
        if self.paced_for == running {
            return;
        }
        self.paced_for = running;
        let Some(part) = self.share.part(running) else { return };
        for end in ends {
            // It fails on sockets that aren't TCP's alone.
            if let Err(error) = pacing_rate::set_most(end, Some(part)) {
                tracing::debug!(%error, "cannot pace a spliced connection");
            }
        }
    }

    pub(super) fn carried(&self, bytes: u64) {
        if bytes > 0 {
            self.share.bytes.fetch_add(bytes, Relaxed);
        }
    }
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
    fn a_member_counts_until_it_is_dropped() {
        let share = Arc::new(Share::new(None));
        let (first, second) = (Member::join(&share), Member::join(&share));
        first.carried(5);
        drop(second);
        assert_eq!(share.totals(), Totals { connections: 2, running: 1, bytes: 5 });
    }
}
