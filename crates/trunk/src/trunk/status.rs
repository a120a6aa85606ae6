//! What a trunk and its carriers look like, for metrics and tests.

use std::time::{Duration, Instant};

use super::Trunk;
use crate::{Addresses, CarrierId, CarrierState, Congestion, Incarnation, Purpose, StreamId};

/// A trunk at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Status {
    /// Streams that are open, or not over in both directions.
    pub streams: usize,
    /// Bytes accepted from the program and not acknowledged.
    pub held: u64,
    /// Bytes that have come and are not read.
    pub unread: u64,
    /// Bytes of credit beyond the initial ones.
    pub promised: u64,
    /// DATA frames under way or to be sent again.
    pub under_way: usize,
    /// Holes in the data of all streams.
    pub holes: usize,
    /// Carriers that carry data.
    pub live: usize,
}

/// A carrier at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CarrierStatus {
    /// How it stands.
    pub state: CarrierState,
    /// The number by which the peer names it, once its HELLO has come.
    pub peers_number: Option<u32>,
    /// What it is for.
    pub purpose: Purpose,
    /// Its smoothed round trip, if one was measured.
    pub rtt: Option<Duration>,
    /// The rate at which it delivers, if one was measured.
    pub bytes_per_second: Option<u64>,
    /// Counted frames that were sent and not acknowledged.
    pub under_way: usize,
    /// Counted frames that were acknowledged.
    pub acknowledged: u64,
    /// Since when a PING waits for its answer, if one does.
    pub unanswered: Option<Instant>,
}

impl Trunk {
    /// The trunk as it is. Takes time for each stream.
    pub fn status(&self) -> Status {
        let live = |carrier: &&crate::carrier::Carrier| carrier.state == CarrierState::Live;
        Status {
            streams: self.streams.len(),
            held: self.held,
            unread: self.streams.iter().map(|stream| stream.receiving.data.unread() as u64).sum(),
            promised: self.pool.used(),
            under_way: self.under_way,
            holes: self.holes,
            live: self.carriers.values().filter(live).count(),
        }
    }

    /// How this end's sockets control congestion.
    pub fn congestion(&self) -> Congestion {
        self.config.congestion
    }

    /// Since which start the peer has been there, once its HELLO has come, if that tells.
    pub fn peers_incarnation(&self) -> Option<Incarnation> {
        self.peer.as_ref().and_then(|(hello, _)| hello.incarnation)
    }

    /// Where the peer is reached on each of its rails, once its HELLO has come, if that tells.
    pub fn peers_addresses(&self) -> Addresses {
        self.peer.as_ref().map_or_else(Addresses::default, |(hello, _)| hello.addresses)
    }

    /// Bytes of a stream that were accepted and are in no frame yet.
    pub fn unsent(&self, id: StreamId) -> usize {
        self.streams.peek(id).map_or(0, |stream| stream.sending.queue.len())
    }

    /// Whether a stream is open, or not over in both directions.
    pub fn is_open(&self, id: StreamId) -> bool {
        self.streams.peek(id).is_some()
    }

    /// A carrier as it is.
    pub fn carrier(&self, id: CarrierId) -> Option<CarrierStatus> {
        self.carriers.get(&id).map(|carrier| CarrierStatus {
            state: carrier.state,
            peers_number: carrier.peers_number,
            purpose: carrier.purpose,
            bytes_per_second: carrier.estimate.rate(),
            rtt: carrier.rtt.measured(),
            under_way: carrier.sent.len(),
            acknowledged: carrier.acknowledged,
            unanswered: carrier.asked.map(|asked| asked.since),
        })
    }
}
