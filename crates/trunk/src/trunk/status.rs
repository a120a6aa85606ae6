//! What a trunk and its carriers look like, for metrics and tests.

use std::time::{Duration, Instant};

use super::Trunk;
use crate::{Addresses, CarrierId, CarrierState, Congestion, Incarnation, Purpose, StreamId};

/// A trunk at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Status {
    /// Streams that are open, or not over in both directions.
    pub streams: usize,
    /// Bytes that were accepted from the program and are not acknowledged.
    pub held: u64,
    /// Bytes that have come and are not read.
    pub unread: u64,
    /// Bytes of credit that are promised beyond the initial ones.
    pub promised: u64,
    /// How many DATA frames are under way or to be sent again.
    pub under_way: usize,
    /// How many holes the data of all streams has.
    pub holes: usize,
    /// How many carriers carry data.
    pub live: usize,
}

/// A carrier at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CarrierStatus {
    /// The carrier's state at this end.
    pub state: CarrierState,
    /// Whether an answer has shown that both directions work.
    pub proved: bool,
    /// The number by which the peer names it, once its HELLO has come.
    pub peers_number: Option<u32>,
    /// What the carrier is for.
    pub purpose: Purpose,
    /// The carrier's smoothed round trip, if one was measured.
    pub rtt: Option<Duration>,
    /// The rate at which the carrier delivers, if one was measured.
    pub bytes_per_second: Option<u64>,
    /// How many counted frames were sent and not acknowledged.
    pub under_way: usize,
    /// How many counted frames were acknowledged.
    pub acknowledged: u64,
    /// Since when a PING waits for its answer, if one does.
    pub unanswered: Option<Instant>,
}

impl Trunk {
    /// What is known of the trunk now. Takes time for each stream.
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

    /// The incarnation of the peer's service; `None` before its HELLO has come, or if that doesn't
    /// tell.
    pub fn peers_incarnation(&self) -> Option<Incarnation> {
        self.peer.as_ref().and_then(|(hello, _)| hello.incarnation)
    }

    /// Where the peer is reached on each of its rails; empty before its HELLO has come, or if that
    /// doesn't tell.
    pub fn peers_addresses(&self) -> Addresses {
        self.peer.as_ref().map_or_else(Addresses::default, |(hello, _)| hello.addresses)
    }

    /// How many bytes of a stream were accepted and are in no frame yet.
    pub fn unsent(&self, id: StreamId) -> usize {
        self.streams.peek(id).map_or(0, |stream| stream.sending.queue.len())
    }

    /// Whether a stream is open, or not over in both directions.
    pub fn is_open(&self, id: StreamId) -> bool {
        self.streams.peek(id).is_some()
    }

    /// What is known of a carrier now; `None` if it has ended.
    pub fn carrier(&self, id: CarrierId) -> Option<CarrierStatus> {
        self.carriers.get(&id).map(|carrier| CarrierStatus {
            state: carrier.state,
            proved: carrier.proved,
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
