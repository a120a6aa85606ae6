//! The direction of a stream from this end to the peer.

use std::collections::BTreeMap;

use bytes::{Buf as _, Bytes};

use crate::chunks::Chunks;
use crate::frame::MAX_PAYLOAD;

/// The state of the direction to the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// The direction takes data from the program.
    Open,
    /// The program has ended the direction; the end isn't in a frame yet.
    Finishing,
    /// The direction's end is in a frame.
    Ended,
    /// This end has reset the direction with this code, at the offset `next`.
    Reset(u32),
    /// The peer takes no more, for this code.
    Stopped(u32),
}

/// Data as it goes into a DATA frame. A frame is sent again as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) payload: Bytes,
    pub(crate) end: bool,
    /// The piece's number among the frames that wait; `None` before it is in a frame.
    pub(crate) number: Option<u64>,
}

/// The data of a direction that is to be sent, or to be sent again.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) state: State,
    /// Bytes that were accepted from the program, and are in no frame yet. All are within the
    /// credit.
    pub(crate) queue: Chunks,
    /// The offset of the first byte of `queue`.
    next: u64,
    /// The offset up to which the peer takes bytes: its credit.
    limit: u64,
    /// The offset up to which the peer's program has read, about, when more credit follows.
    half: u64,
    /// Pieces to be sent again, by offset: their carrier was cut.
    again: BTreeMap<u64, Piece>,
    /// Bytes in `queue`, in `again` and in frames under way.
    pub(crate) held: u64,
}

impl Sending {
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            state: State::Open,
            queue: Chunks::default(),
            next: 0,
            limit: limit.into(),
            half: u64::from(limit) / 2,
            again: BTreeMap::new(),
            held: 0,
        }
    }

    /// The offset behind all bytes that are in frames.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// How many bytes the peer takes beyond those that were accepted.
    pub(crate) fn credit(&self) -> u64 {
        self.limit.saturating_sub(self.next + self.queue.len() as u64)
    }

    /// How many bytes may go before the next piece without delaying the next credit.
    pub(crate) fn slack(&self) -> u64 {
        match self.half.checked_sub(self.next) {
            None | Some(0) => u64::MAX,
            Some(left) => left / 2,
        }
    }

    /// Takes in a credit; an older one changes nothing. Returns whether it is more than before.
    pub(crate) fn raise(&mut self, limit: u64) -> bool {
        let more = limit > self.limit;
        if more {
            self.half = limit - limit.saturating_sub(self.next) / 2;
        }
        self.limit = self.limit.max(limit);
        more
    }

    /// Takes up to `room` bytes off the front of `data`.
    pub(crate) fn accept(&mut self, data: &mut Bytes, room: usize) -> usize {
        let taken = room.min(data.len());
        self.queue.push_back(data.slice(..taken));
        data.advance(taken);
        self.held += taken as u64;
        taken
    }

    /// Takes a copy of up to `room` bytes off the front of `data`; returns their number.
    pub(crate) fn accept_copy(&mut self, data: &[u8], room: usize) -> usize {
        let taken = room.min(data.len());
        self.queue.push_copy(&data[..taken]);
        self.held += taken as u64;
        taken
    }

    /// Whether a piece waits to be sent.
    pub(crate) fn has_piece(&self) -> bool {
        !self.again.is_empty() || !self.queue.is_empty() || self.state == State::Finishing
    }

    /// How many bytes wait for a frame. If more than one piece is to be sent again, returns more
    /// than fit into a frame.
    pub(crate) fn waiting(&self) -> usize {
        let again = match self.again.len() {
            0 => 0,
            1 => self.again.first_key_value().map_or(0, |(_, piece)| piece.payload.len()),
            _ => MAX_PAYLOAD,
        };
        again + self.queue.len() + usize::from(self.again.len() > 1)
    }

    /// Whether a piece of a carrier that was cut waits.
    pub(crate) fn has_again(&self) -> bool {
        !self.again.is_empty()
    }

    /// Takes the next piece of at most `room` bytes, and its offset. Pieces that are to be sent
    /// again come first, as they were.
    pub(crate) fn take_piece(&mut self, room: usize) -> Option<(u64, Piece)> {
        if let Some(first) = self.again.first_entry() {
            if first.get().payload.len() > room {
                return None;
            }
            return Some(first.remove_entry());
        }
        if room == 0 && !self.queue.is_empty() {
            return None;
        }
        if self.queue.is_empty() && self.state != State::Finishing {
            return None;
        }
        let payload = self.queue.pop_front(room.min(MAX_PAYLOAD));
        let offset = self.next;
        self.next += payload.len() as u64;
        let end = self.state == State::Finishing && self.queue.is_empty();
        if end {
            self.state = State::Ended;
        }
        Some((offset, Piece { payload, end, number: None }))
    }

    /// Takes back a piece whose carrier was cut. Returns `false` if it isn't needed any more.
    pub(crate) fn put_back(&mut self, offset: u64, piece: Piece) -> bool {
        if matches!(self.state, State::Stopped(_)) {
            return false;
        }
        self.again.insert(offset, piece);
        true
    }

    /// Forgets a piece that was to be sent again: it has arrived after all.
    pub(crate) fn cancel(&mut self, offset: u64) -> Option<Piece> {
        self.again.remove(&offset)
    }

    /// Resets the direction for the program: drops what is in no frame. Returns the number of bytes
    /// dropped. What is in frames still goes out, as TCP's does before a RST.
    pub(crate) fn reset(&mut self, code: u32) -> u64 {
        self.state = State::Reset(code);
        self.drop_queue()
    }

    /// Stops the direction for the peer, which takes no more: drops all that isn't under way.
    /// Returns the number of bytes dropped, and the pieces that were to be sent again.
    pub(crate) fn stop(&mut self, code: u32) -> (u64, BTreeMap<u64, Piece>) {
        self.state = State::Stopped(code);
        let pieces = std::mem::take(&mut self.again);
        let again: u64 = pieces.values().map(|piece| piece.payload.len() as u64).sum();
        self.held -= again;
        (self.drop_queue() + again, pieces)
    }

    fn drop_queue(&mut self) -> u64 {
        let dropped = self.queue.len() as u64;
        self.queue.clear();
        self.held -= dropped;
        dropped
    }

    /// Whether nothing is left to be put into frames.
    pub(crate) fn is_over(&self) -> bool {
        match self.state {
            State::Open | State::Finishing => false,
            State::Ended | State::Reset(_) | State::Stopped(_) => !self.has_piece(),
        }
    }
}
