//! Which carrier has carried what of each stream, for the account of the embedding.

use super::Trunk;
use crate::sending::Piece;
use crate::{CarrierId, StreamId};

/// What a carrier has carried of a stream since that was last taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// The stream whose bytes were carried.
    pub stream: StreamId,
    /// The carrier that carried them.
    pub carrier: CarrierId,
    /// Bytes that this end has put into the carrier. Less than 0 if the carrier gave back more, to
    /// be sent again over others.
    pub sent: i64,
    /// Bytes that came over the carrier for the first time.
    pub received: u64,
}

impl Trunk {
    /// What carriers have carried since this was last called, with
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

    /// Notes that a piece has arrived, or is of no use any more.
    pub(super) fn settled(&mut self, piece: &Piece) {
        if let Some(number) = piece.number {
            self.progress.settled(number, self.seen);
        }
    }
}
