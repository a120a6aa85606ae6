//! Which carrier has carried what of each stream, for the account of those who use it.

use super::Trunk;
use crate::sending::Piece;
use crate::{CarrierId, StreamId};

/// What a carrier has carried of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// The stream.
    pub stream: StreamId,
    /// The carrier.
    pub carrier: CarrierId,
    /// Bytes that this end has put into it; less than 0 if it gave back more, to be sent
    /// again elsewhere.
    pub sent: i64,
    /// Bytes that came over it for the first time.
    pub received: u64,
}

impl Trunk {
    /// What carriers have carried since this was called last, with
    /// [`Config::notes_moved`](crate::Config::notes_moved).
    pub fn take_moved(&mut self) -> Vec<Moved> {
        std::mem::take(&mut self.moved)
    }

    pub(super) fn note_moved(
        &mut self,
        (stream, carrier): (StreamId, CarrierId),
        (sent, received): (i64, u64),
    ) {
        if !self.config.notes_moved || (sent, received) == (0, 0) {
            return;
        }
        match self.moved.last_mut() {
            // Frames of one stream come in rows.
            Some(last) if (last.stream, last.carrier) == (stream, carrier) => {
                last.sent += sent;
                last.received += received;
            }
            _ => self.moved.push(Moved { stream, carrier, sent, received }),
        }
    }

    /// A piece has arrived, or is of no use any more.
    pub(super) fn settled(&mut self, piece: &Piece) {
        if let Some(number) = piece.number {
            self.progress.settled(number, self.seen);
        }
    }
}
