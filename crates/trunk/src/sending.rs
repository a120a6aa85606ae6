//! The direction of a stream from this end to the peer.

use std::collections::BTreeMap;

use bytes::{Buf as _, Bytes};

use crate::chunks::Chunks;
use crate::frame::MAX_PAYLOAD;

/// How the direction stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// It takes data.
    Open,
    /// The program has ended it; the end isn't in a frame yet.
    Finishing,
    /// The end is in a frame.
    Ended,
    /// This end has reset it, at the offset `next`.
    Reset(u32),
    /// The peer takes no more.
    Stopped(u32),
}

/// Data as it goes into a DATA frame. A frame is sent again as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) payload: Bytes,
    pub(crate) end: bool,
    /// Its number among the frames that wait, once it is in one.
    pub(crate) number: Option<u64>,
}

/// Data to be sent, and what to send again.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) state: State,
    /// Accepted from the program, in no frame yet. All within the credit.
    pub(crate) queue: Chunks,
    /// The offset of the first byte of `queue`.
    next: u64,
    /// Credit: bytes since the beginning that the peer takes.
    limit: u64,
    /// More credit follows when the peer's program has read up to here, about.
    half: u64,
    /// Pieces of a carrier that was cut, by offset.
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

    /// The offset behind what is in frames.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Bytes that the peer takes beyond what was accepted.
    pub(crate) fn credit(&self) -> u64 {
        self.limit.saturating_sub(self.next + self.queue.len() as u64)
    }

    /// Bytes that may come before the next piece without delay to the next credit.
    pub(crate) fn slack(&self) -> u64 {
        match self.half.checked_sub(self.next) {
            None | Some(0) => u64::MAX,
            Some(left) => left / 2,
        }
    }

    /// Takes in a credit; an older one changes nothing. `true` if it is more.
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

    /// Whether a piece waits.
    pub(crate) fn has_piece(&self) -> bool {
        !self.again.is_empty() || !self.queue.is_empty() || self.state == State::Finishing
    }

    /// Bytes that wait for a frame, if no more than one piece is to be sent again; else
    /// more than fit into one.
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

    /// The next piece of at most `room` bytes and its offset; those to be sent again
    /// first, as they were.
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

    /// Takes back a piece whose carrier was cut. `false` if it isn't needed any more.
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

    /// Drops what is in no frame: the program has reset the direction. Gives the number
    /// of bytes. What is in frames still goes out, as TCP's does before a RST.
    pub(crate) fn reset(&mut self, code: u32) -> u64 {
        self.state = State::Reset(code);
        self.drop_queue()
    }

    /// Drops all that isn't under way: the peer takes no more. Gives the number of bytes,
    /// and the pieces that were to be sent again.
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
