//! Connections to a port whose peers have not proved an identity yet, by a
//! certificate, a ticket or a job's token. Their number is bounded, so that their
//! memory is. A port that is full still accepts: the newcomer takes the place of the
//! oldest connection of the source that has the most.

mod by_source;
mod turns;

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::{counters, lock};

pub use by_source::{BySource, Evicted, Key, Source};
pub use turns::Turns;

/// Interval between two warnings about the same port.
const WARNING: Duration = Duration::from_secs(60);
/// The share of the process's descriptors that a port's unidentified connections may take: one in
/// so many.
const DESCRIPTORS: u64 = 4;

/// A number of connections: `most`, or a quarter of the descriptors that the process may have if
/// that is less.
pub fn within_descriptors(most: usize) -> usize {
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(limit, _)| limit);
    usize::try_from(limit / DESCRIPTORS).unwrap_or(usize::MAX).clamp(1, most.max(1))
}

/// The unidentified connections of a port.
#[derive(Debug)]
pub struct Unidentified {
    /// The port in log lines, such as "the port inside".
    port: &'static str,
    capacity: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    tokens: BySource<CancellationToken>,
    warned: Option<Instant>,
}

impl Unidentified {
    /// Holds at most `capacity` connections, and at most as many as a quarter of the descriptors
    /// that the process may have.
    pub fn new(port: &'static str, capacity: usize) -> Arc<Self> {
        let capacity = within_descriptors(capacity);
        let state = State { tokens: BySource::new(capacity), warned: None };
        Arc::new(Self { port, capacity, state: Mutex::new(state) })
    }

    /// Takes in a connection. If there are too many, another connection is evicted.
    pub fn enter(self: &Arc<Self>, peer: IpAddr) -> UnidentifiedEntry {
        let evicted = CancellationToken::new();
        let mut state = lock(&self.state);
        let (key, other) = state.tokens.enter(peer.into(), evicted.clone());
        if let Some(Evicted { source, value }) = other {
            value.cancel();
            counters::refused("too many without identity");
            let due = state.warned.is_none_or(|at| at.elapsed() >= WARNING);
            if due {
                state.warned = Some(Instant::now());
            }
            drop(state);
            let (port, capacity) = (self.port, self.capacity);
            if due {
                warn!(port, capacity, %source, "too many connections without identity: the oldest of the source with the most was closed");
            } else {
                debug!(port, %source, "closed, to make room for another connection");
            }
        }
        UnidentifiedEntry { of: self.clone(), key, evicted }
    }

    /// How many unidentified connections there are.
    pub fn len(&self) -> usize {
        lock(&self.state).tokens.len()
    }

    /// Whether there is no unidentified connection.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The entry of a connection among the unidentified connections. It is dropped when the peer has
/// proved its identity, or with the connection.
#[derive(Debug)]
pub struct UnidentifiedEntry {
    of: Arc<Unidentified>,
    key: Key,
    evicted: CancellationToken,
}

impl UnidentifiedEntry {
    /// A token that is cancelled when the connection must end to make room. It is never cancelled
    /// after the entry was dropped.
    pub fn evicted(&self) -> CancellationToken {
        self.evicted.clone()
    }
}

impl Drop for UnidentifiedEntry {
    fn drop(&mut self) {
        lock(&self.of.state).tokens.leave(self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_entry_makes_room() {
        let unidentified = Unidentified::new("a test", 2);
        let [flood, far] = [[192, 0, 2, 1], [192, 0, 2, 2]].map(IpAddr::from);
        let first = unidentified.enter(far);
        let second = unidentified.enter(flood);
        let third = unidentified.enter(flood);
        let evicted = [&first, &second, &third].map(|entry| entry.evicted().is_cancelled());
        assert_eq!((evicted, unidentified.len()), ([false, true, false], 2));
        let former = first.evicted();
        drop(first);
        let _fourth = unidentified.enter(far);
        assert!(!former.is_cancelled() && !third.evicted().is_cancelled());
        drop((second, third));
        assert_eq!(unidentified.len(), 1);
    }
}
