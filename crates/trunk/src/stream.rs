//! One stream: its two directions, and which of its frames are due.

use std::time::Instant;

use crate::receiving::Receiving;
use crate::schedule::Scheduled;
use crate::sending::{self, Sending};

/// Control frames of a stream that are to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Due {
    pub(crate) open: bool,
    pub(crate) credit: bool,
    /// Whether a RESET of the direction to the peer is due.
    pub(crate) reset: bool,
    /// Whether a RESET of the direction from the peer is due.
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
    /// Whether the stream is in the queue of those with control frames.
    pub(crate) queued: bool,
    /// The stream's place among those with data.
    pub(crate) scheduled: Scheduled,
    /// How many of the stream's frames are under way: on a carrier and not acknowledged.
    pub(crate) under_way: u32,
    /// Whether the program was refused room, and waits for an event.
    pub(crate) blocked: bool,
    /// Whether the stream waits for memory of the trunk, in the queue for it.
    pub(crate) waits_for_memory: bool,
    /// Whether the stream's data waits until fewer frames are under way.
    pub(crate) stalled: bool,
}

impl Stream {
    pub(crate) fn new(peers_credit: u32, own_credit: u32, now: Option<Instant>) -> Self {
        Self {
            sending: Sending::new(peers_credit),
            receiving: Receiving::new(own_credit, now),
            due: Due::default(),
            queued: false,
            scheduled: Scheduled::default(),
            under_way: 0,
            blocked: false,
            waits_for_memory: false,
            stalled: false,
        }
    }

    /// Whether the stream matters to neither end any more: later frames for it are duplicates.
    pub(crate) fn is_over(&self) -> bool {
        self.sending.is_over() && self.receiving.is_over() && !self.due.any() && self.under_way == 0
    }

    /// Code and offset for the RESET of the direction to the peer; `None` if it is of no use any
    /// more.
    pub(crate) fn reset(&self) -> Option<(u32, u64)> {
        match self.sending.state {
            sending::State::Reset(code) => Some((code, self.sending.next())),
            _ => None,
        }
    }
}
