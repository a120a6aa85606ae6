//! What bounds a trunk.

use crate::{Addresses, Congestion, Incarnation, TrunkId};

/// The two ends of a trunk, by which one made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The end that made the trunk and chose its id. Either end may dial carriers.
    Initiator,
    /// The end that did not make the trunk.
    Acceptor,
}

impl Role {
    /// The role of the end at the other side.
    pub fn other(self) -> Self {
        match self {
            Self::Initiator => Self::Acceptor,
            Self::Acceptor => Self::Initiator,
        }
    }
}

/// The bounds of one trunk. An end holds at most `streams × initial_credit +
/// receive_pool` bytes of unread data, and at most `send_memory + streams ×
/// send_reserve` bytes that the peer hasn't acknowledged. There are as many streams as
/// `max_streams` of both ends at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Which end of the trunk this is.
    pub role: Role,
    /// The id of the trunk.
    pub trunk: TrunkId,
    /// The incarnation of this end's service, which the peer is told; `None` tells nothing.
    pub incarnation: Option<Incarnation>,
    /// Where this end is reached on each of its rails; empty if it has one rail only.
    pub addresses: Addresses,
    /// How many links this end has beside the first one.
    pub further_rails: usize,
    /// Bytes that the peer may send on each stream before it gets credit.
    pub initial_credit: u32,
    /// Bytes of credit beyond the initial ones, for all streams together.
    pub receive_pool: u64,
    /// The largest credit that one stream may have unused, in bytes.
    pub max_window: u64,
    /// Streams that the peer may have open at once, at most 2^20.
    pub max_streams: u32,
    /// Most carriers that the trunk has at once.
    pub max_carriers: usize,
    /// How this end's sockets control congestion.
    pub congestion: Congestion,
    /// Most bytes of all streams together that are accepted from programs and not acknowledged.
    pub send_memory: u64,
    /// Bytes that each stream may hold even if `send_memory` is used up, so that small
    /// messages never wait for bulk.
    pub send_reserve: u64,
    /// Most bytes of one stream that are accepted and not in a frame yet.
    pub stream_queue: usize,
    /// Whether the trunk notes which carrier has carried what of each stream. The embedding takes
    /// that after each call: see [`Trunk::take_moved`](crate::Trunk::take_moved).
    pub notes_moved: bool,
}

impl Config {
    /// The bounds that suit a trunk between nodes.
    pub fn new(role: Role, trunk: TrunkId) -> Self {
        Self {
            role,
            trunk,
            incarnation: None,
            addresses: Addresses::default(),
            further_rails: 0,
            initial_credit: 16 << 10,
            receive_pool: 64 << 20,
            max_window: 16 << 20,
            max_streams: 16 << 10,
            max_carriers: 64,
            congestion: Congestion::default(),
            send_memory: 64 << 20,
            send_reserve: 4 << 10,
            stream_queue: 128 << 10,
            notes_moved: false,
        }
    }
}
