//! The commands of the program that embeds the trunk.

use std::time::Instant;

use bytes::Bytes;

use super::Trunk;
use crate::receiving::{self, DirectionEnd};
use crate::sending;
use crate::stream::Stream;
use crate::{Ended, OpenError, Read, Reason, StreamError, StreamId};

/// One of the two directions of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The direction from this end to the peer.
    ToPeer,
    /// The direction from the peer to this end.
    FromPeer,
}

impl Trunk {
    /// Opens a stream, at once. The peer learns of it with the next frames.
    ///
    /// # Errors
    /// If the trunk isn't established or has ended, or the peer allows no more streams.
    pub fn open(&mut self) -> Result<StreamId, OpenError> {
        if self.ended.is_some() {
            return Err(OpenError::Ended);
        }
        if self.peer.is_none() {
            return Err(OpenError::NotEstablished);
        }
        let mut state = self.new_stream();
        state.due.open = true;
        match self.streams.open(state) {
            Ok(id) => {
                self.queue_control(id);
                Ok(id)
            }
            Err(limit) => {
                self.open_refused = true;
                Err(OpenError::Limit(limit))
            }
        }
    }

    /// How many bytes [`write`](Self::write) would take: as far as the peer's credit, the stream's
    /// queue and the trunk's memory allow. If it is none,
    /// [`Event::Writable`](crate::Event::Writable) follows.
    ///
    /// # Errors
    /// If the direction takes no data.
    pub fn poll_room(&mut self, id: StreamId) -> Result<usize, StreamError> {
        let most = self.stream_queue();
        let stream = self.streams.get(id).ok_or(StreamError::Gone)?;
        match stream.sending.state {
            sending::State::Open => {}
            sending::State::Stopped(code) => return Err(StreamError::Stopped(code)),
            _ => return Err(StreamError::Ended),
        }
        let memory = self.config.send_memory.saturating_sub(self.held);
        let memory = memory.max(self.config.send_reserve.saturating_sub(stream.sending.held));
        let queue = most.saturating_sub(stream.sending.queue.len());
        let room = stream.sending.credit().min(memory).min(queue as u64);
        if room == 0 {
            stream.blocked = true;
            if memory == 0 && !stream.waits_for_memory {
                stream.waits_for_memory = true;
                self.waiting.push_back(id);
            }
        }
        Ok(room as usize)
    }

    /// Takes bytes off the front of `data`, as many as there is room for, and returns their number.
    /// If any are left, [`Event::Writable`](crate::Event::Writable) follows. Large pieces are not
    /// copied.
    ///
    /// # Errors
    /// If the direction takes no data.
    pub fn write(&mut self, id: StreamId, data: &mut Bytes) -> Result<usize, StreamError> {
        self.accept(id, data.len(), |sending, room, _| sending.accept(data, room))
    }

    /// Takes a copy of bytes off the front of `data`, as [`write`](Self::write) takes bytes.
    ///
    /// # Errors
    /// If the direction takes no data.
    pub fn write_copy(&mut self, id: StreamId, data: &[u8]) -> Result<usize, StreamError> {
        self.accept(id, data.len(), |sending, room, taken| sending.accept_copy(&data[taken..], room))
    }

    /// Has a stream take `length` bytes by `take`, which gets the room and how many were taken
    /// before.
    fn accept(
        &mut self,
        id: StreamId,
        length: usize,
        mut take: impl FnMut(&mut sending::Sending, usize, usize) -> usize,
    ) -> Result<usize, StreamError> {
        let mut taken = 0;
        // The last round finds no room if any data is left, so that an event follows.
        loop {
            let room = self.poll_room(id)?;
            let Some(stream) = self.streams.get(id).filter(|_| room > 0) else { break };
            let accepted = take(&mut stream.sending, room, taken);
            self.held += accepted as u64;
            taken += accepted;
            if taken == length {
                break;
            }
        }
        if taken > 0 {
            self.queue_data(id);
        }
        Ok(taken)
    }

    /// Ends the direction to the peer behind what was written.
    ///
    /// # Errors
    /// If it has ended before.
    pub fn finish(&mut self, id: StreamId) -> Result<(), StreamError> {
        let stream = self.streams.get(id).ok_or(StreamError::Gone)?;
        match stream.sending.state {
            sending::State::Open => stream.sending.state = sending::State::Finishing,
            sending::State::Stopped(code) => return Err(StreamError::Stopped(code)),
            _ => return Err(StreamError::Ended),
        }
        self.queue_data(id);
        Ok(())
    }

    /// Ends a direction early, with a code of the program's own.
    ///
    /// To the peer: what is in no frame yet is dropped, and nothing happens if the direction's end
    /// is in a frame. From the peer: what has come is dropped, and the peer is told to send no
    /// more.
    ///
    /// # Errors
    /// If the stream is gone.
    pub fn reset(&mut self, id: StreamId, direction: Direction, code: u32) -> Result<(), StreamError> {
        let stream = self.streams.get(id).ok_or(StreamError::Gone)?;
        match direction {
            Direction::ToPeer => {
                if matches!(stream.sending.state, sending::State::Open | sending::State::Finishing) {
                    let dropped = stream.sending.reset(code);
                    stream.due.reset = true;
                    stream.blocked = false;
                    self.release(dropped, 0);
                }
            }
            Direction::FromPeer => {
                if stream.receiving.state == receiving::State::Open {
                    stream.due.stop = true;
                    self.close_receiving(id, receiving::State::Stopped(code));
                }
            }
        }
        self.queue_control(id);
        self.remove_if_over(id);
        Ok(())
    }

    /// Takes up to `max` bytes that have come, or tells how the direction has ended.
    ///
    /// # Errors
    /// If the program has ended the direction, or has read its end before.
    pub fn read(&mut self, id: StreamId, max: usize, now: Instant) -> Result<Read, StreamError> {
        let stream = self.streams.get(id).ok_or(StreamError::Gone)?;
        if stream.receiving.is_over() {
            return Err(StreamError::Ended);
        }
        let data = stream.receiving.data.ready.pop_front(max);
        if !data.is_empty() {
            self.on_read(id, now);
            return Ok(Read::Data(data));
        }
        if !stream.receiving.data.ready.is_empty() {
            return Ok(Read::Blocked);
        }
        let Some(DirectionEnd { reset, .. }) = stream.receiving.at_end() else {
            stream.receiving.waits = true;
            return Ok(Read::Blocked);
        };
        self.close_receiving(id, receiving::State::Finished);
        self.remove_if_over(id);
        Ok(reset.map_or(Read::End, Read::Reset))
    }

    /// The bytes that have come and are not read, in pieces, for vectored writing.
    /// [`consume`](Self::consume) takes them off. When there are none, call [`read`](Self::read):
    /// it tells whether more follow.
    pub fn peek(&self, id: StreamId) -> impl Iterator<Item = &Bytes> {
        self.streams.peek(id).into_iter().flat_map(|stream| stream.receiving.data.ready.iter())
    }

    /// Takes bytes off that [`peek`](Self::peek) has shown.
    ///
    /// # Errors
    /// If the stream is gone.
    pub fn consume(&mut self, id: StreamId, count: usize, now: Instant) -> Result<(), StreamError> {
        let stream = self.streams.get(id).ok_or(StreamError::Gone)?;
        stream.receiving.data.ready.skip(count);
        self.on_read(id, now);
        Ok(())
    }

    /// Gives the peer credit for more after the program has read bytes, if that is due.
    fn on_read(&mut self, id: StreamId, now: Instant) {
        self.see(now);
        let rtts = self.rtts();
        let Some(stream) = self.streams.get(id) else { return };
        let Stream { receiving, due, .. } = stream;
        if receiving.is_over() {
            return;
        }
        let read = receiving.read();
        match receiving.end {
            Some(end) => receiving.window.ends_at(end.offset, read, &mut self.pool),
            None => {
                let arrived = receiving.data.highest();
                due.credit |= receiving.window.raise(read, arrived, rtts, now, &mut self.pool);
            }
        }
        self.queue_control(id);
    }

    fn close_receiving(&mut self, id: StreamId, state: receiving::State) {
        let Some(stream) = self.streams.get(id) else { return };
        self.holes -= stream.receiving.data.holes();
        stream.receiving.state = state;
        stream.receiving.data.clear();
        stream.receiving.window.close(&mut self.pool);
        stream.due.credit = false;
    }

    /// Ends the trunk with all its streams. Each carrier gets a CLOSE.
    pub fn close(&mut self, reason: Reason, text: &str) {
        self.end(Ended::Here(reason), Some((reason, text.to_owned())));
    }
}
