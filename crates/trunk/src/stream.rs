//! One stream: its two directions, and which of its frames are due.

use std::time::Instant;

use crate::receiving::Receiving;
use crate::schedule::Place;
use crate::sending::{self, Sending};

/// Control frames of a stream that are to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Due {
    pub(crate) open: bool,
    pub(crate) credit: bool,
    /// A RESET of the direction to the peer.
    pub(crate) reset: bool,
    /// A RESET of the direction from the peer.
    pub(crate) stop: bool,
}

impl Due {
    pub(crate) fn any(self) -> bool {
        self != Self::default()
    }
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) sending: Sending,
    pub(crate) receiving: Receiving,
    pub(crate) due: Due,
    /// Whether it is in the queue of streams with control frames.
    pub(crate) queued: bool,
    /// Its place among the streams with data.
    pub(crate) place: Place,
    /// Its frames that are under way: on a carrier and not acknowledged.
    pub(crate) under_way: u32,
    /// The program has been refused room, and waits for an event.
    pub(crate) blocked: bool,
    /// It waits for memory of the trunk, in the queue for it.
    pub(crate) waits_for_memory: bool,
    /// Its data waits until fewer frames are under way.
    pub(crate) stalled: bool,
}

impl Stream {
    pub(crate) fn new(peers_credit: u32, own_credit: u32, now: Option<Instant>) -> Self {
        Self {
            sending: Sending::new(peers_credit),
            receiving: Receiving::new(own_credit, now),
            due: Due::default(),
            queued: false,
            place: Place::default(),
            under_way: 0,
            blocked: false,
            waits_for_memory: false,
            stalled: false,
        }
    }

    /// Whether nothing of it matters to either end any more: later frames for it are
    /// duplicates.
    pub(crate) fn is_over(&self) -> bool {
        self.sending.is_over() && self.receiving.is_over() && !self.due.any() && self.under_way == 0
    }

    /// The RESET of the direction to the peer, if it is still of use: code and offset.
    pub(crate) fn reset(&self) -> Option<(u32, u64)> {
        match self.sending.state {
            sending::State::Reset(code) => Some((code, self.sending.next())),
            _ => None,
        }
    }
}
