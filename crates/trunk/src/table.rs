//! The streams of a trunk, and which ids are closed: below a watermark, but for those
//! that are open or missing.

use std::collections::BTreeSet;

use crate::id_map::IdMap;
use crate::stream::Stream;
use crate::{ProtocolError, Role, StreamId};

/// What a stream's id stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    Open,
    /// The stream was open; frames for it are duplicates.
    Closed,
    /// The peer opens the stream by this frame.
    New,
}

/// All open streams of a trunk, and how many more may be opened.
#[derive(Debug)]
pub(crate) struct Table {
    role: Role,
    open: IdMap<StreamId, Box<Stream>>,
    /// How many streams this end has opened since the beginning.
    own: u64,
    /// How many streams this end may open since the beginning.
    own_limit: u64,
    /// One more than the highest index of the peer's streams that was seen.
    peers: u64,
    /// Indices below `peers` that were not seen: their frames are on another carrier.
    missing: BTreeSet<u64>,
    /// How many streams the peer may open since the beginning.
    peers_limit: u64,
    /// How many of the peer's streams are closed.
    peers_closed: u64,
    /// How many streams the peer may have open at once.
    max: u64,
}

impl Table {
    pub(crate) fn new(role: Role, max: u32) -> Self {
        Self {
            role,
            open: IdMap::default(),
            own: 0,
            own_limit: 0,
            peers: 0,
            missing: BTreeSet::new(),
            peers_limit: max.into(),
            peers_closed: 0,
            max: max.into(),
        }
    }

    pub(crate) fn get(&mut self, stream: StreamId) -> Option<&mut Stream> {
        self.open.get_mut(&stream).map(|stream| &mut **stream)
    }

    pub(crate) fn peek(&self, stream: StreamId) -> Option<&Stream> {
        self.open.get(&stream).map(|stream| &**stream)
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// All open streams, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.open.values().map(|stream| &**stream)
    }

    /// What the id of a frame stands for.
    pub(crate) fn find(&self, stream: StreamId) -> Result<Known, ProtocolError> {
        if self.open.contains_key(&stream) {
            return Ok(Known::Open);
        }
        let index = stream.index();
        if stream.opener() == self.role {
            return if index < self.own {
                Ok(Known::Closed)
            } else {
                Err(ProtocolError::NeverOpened(stream))
            };
        }
        if index >= self.peers_limit {
            return Err(ProtocolError::TooManyStreams { stream, allowed: self.peers_limit });
        }
        let new = index >= self.peers || self.missing.contains(&index);
        Ok(if new { Known::New } else { Known::Closed })
    }

    /// Adds a stream that [`find`](Self::find) has called new.
    pub(crate) fn insert(&mut self, stream: StreamId, state: Stream) {
        let index = stream.index();
        if index >= self.peers {
            self.missing.extend(self.peers..index);
            self.peers = index + 1;
        } else {
            self.missing.remove(&index);
        }
        self.open.insert(stream, Box::new(state));
    }

    /// Opens a stream of this end.
    ///
    /// # Errors The number of streams that this end may open, if it is reached.
    pub(crate) fn open(&mut self, state: Stream) -> Result<StreamId, u64> {
        if self.own >= self.own_limit {
            return Err(self.own_limit);
        }
        let stream = StreamId::new(self.role, self.own);
        self.own += 1;
        self.open.insert(stream, Box::new(state));
        Ok(stream)
    }

    /// Takes in how many streams this end may open. Returns whether that is more than before.
    pub(crate) fn allow(&mut self, limit: u64) -> bool {
        let more = limit > self.own_limit;
        self.own_limit = self.own_limit.max(limit);
        more
    }

    /// Forgets a stream that is over. Returns whether the peer is to be told that it may open more,
    /// which is due when half of its streams are used up.
    pub(crate) fn remove(&mut self, stream: StreamId) -> bool {
        if self.open.remove(&stream).is_none() || stream.opener() == self.role {
            return false;
        }
        self.peers_closed += 1;
        let limit = self.peers_closed + self.max;
        let due = limit - self.peers_limit >= (self.max / 2).max(1);
        if due {
            self.peers_limit = limit;
        }
        due
    }

    /// How many streams the peer may open since the beginning.
    pub(crate) fn peers_limit(&self) -> u64 {
        self.peers_limit
    }

    /// Forgets all streams of a trunk that has ended.
    pub(crate) fn clear(&mut self) {
        self.open = IdMap::default();
        self.missing.clear();
        self.own_limit = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn theirs(index: u64) -> StreamId {
        StreamId::new(Role::Initiator, index)
    }

    #[test]
    fn an_id_is_new_once_then_open_then_closed() {
        let mut table = Table::new(Role::Acceptor, 4);
        for index in [2, 0, 1, 3] {
            assert_eq!(table.find(theirs(index)), Ok(Known::New), "{index}");
            table.insert(theirs(index), Stream::new(1, 1, None));
            assert_eq!(table.find(theirs(index)), Ok(Known::Open), "{index}");
        }
        for index in [3, 0] {
            table.remove(theirs(index));
            assert_eq!(table.find(theirs(index)), Ok(Known::Closed), "{index}");
        }
    }

    #[test]
    fn the_peer_may_open_more_once_half_of_its_streams_are_closed() {
        let mut table = Table::new(Role::Acceptor, 4);
        for index in 0..4 {
            table.insert(theirs(index), Stream::new(1, 1, None));
        }
        let allowed = |table: &Table| table.find(theirs(4)).is_ok();
        assert!(!table.remove(theirs(0)) && !allowed(&table));
        assert!(table.remove(theirs(1)) && allowed(&table));
        assert_eq!(table.peers_limit(), 6);
    }

    #[test]
    fn ids_of_this_end_are_opened_by_this_end_alone() {
        let mut table = Table::new(Role::Acceptor, 4);
        let own = StreamId::new(Role::Acceptor, 0);
        assert_eq!(table.find(own), Err(ProtocolError::NeverOpened(own)));
        assert_eq!(table.open(Stream::new(1, 1, None)), Err(0));
        assert!(table.allow(1) && !table.allow(1));
        assert_eq!(table.open(Stream::new(1, 1, None)), Ok(own));
        assert_eq!(table.find(own), Ok(Known::Open));
        assert_eq!(table.open(Stream::new(1, 1, None)), Err(1));
    }
}
