//! What goes to the peer: the next frame of a carrier.

use std::time::Instant;

use super::{MAX_UNDER_WAY, Trunk};
use crate::carrier::{Carrier, Sent};
use crate::frame::{DATA_HEAD, HEAD, MAX_FRAME, MAX_TEXT};
use crate::receiving;
use crate::{CarrierId, CarrierState, Encoded, Frame, Hello, StreamId, VERSIONS};

/// The longest frame but DATA.
const LONGEST_CONTROL: usize = HEAD + 2 + MAX_TEXT;
/// `fill` puts no frame into less room, lest data be cut into slivers.
const LEAST_ROOM: usize = 1 << 10;

impl Trunk {
    /// The next frame for a carrier whose socket takes `room` bytes. Gives nothing if
    /// there is none, or not enough room. Ask again with [`MAX_FRAME`] at least, once the
    /// socket has it: a frame that is sent again is as long as it was.
    pub fn poll_transmit(&mut self, id: CarrierId, room: usize, now: Instant) -> Option<Encoded> {
        self.see(now);
        if room < LONGEST_CONTROL {
            return None;
        }
        let frame = match self.control_of_carrier(id, now) {
            Some(frame) => frame,
            None => self.counted_frame(id, room)?,
        };
        Some(frame.encode())
    }

    /// Appends frames for a carrier to a buffer, up to `room` bytes in all, and gives
    /// their length: many small ones for one TLS record.
    pub fn fill(&mut self, id: CarrierId, buffer: &mut Vec<u8>, room: usize, now: Instant) -> usize {
        let before = buffer.len();
        loop {
            let filled = buffer.len() - before;
            let left = room.saturating_sub(filled);
            if filled > 0 && left < LEAST_ROOM {
                return filled;
            }
            match self.poll_transmit(id, left, now) {
                Some(frame) => frame.write_to(buffer),
                None => return filled,
            }
        }
    }

    /// A frame that belongs to the carrier itself. None of them is counted.
    fn control_of_carrier(&mut self, id: CarrierId, now: Instant) -> Option<Frame> {
        let carrier = self.carriers.get_mut(&id)?;
        if carrier.state == CarrierState::Done {
            return carrier.close.take();
        }
        if !std::mem::replace(&mut carrier.hello_sent, true) {
            return Some(Frame::Hello(self.hello(id)));
        }
        if carrier.arrived.now
            && let Some(number) = carrier.peers_number
        {
            return Some(Frame::Ack { carrier: number, frames: carrier.arrived.acknowledge() });
        }
        if let Some(nonce) = carrier.answer.take() {
            return Some(Frame::Ping { answer: true, nonce });
        }
        if let Some(asked) = carrier.asked.as_mut()
            && asked.sent.is_none()
        {
            self.nonce += 1;
            asked.sent = Some((self.nonce, now));
            return Some(Frame::Ping { answer: false, nonce: self.nonce });
        }
        if carrier.state == CarrierState::Live
            && let Some((carrier, frames)) = self.last_acks.pop_front()
        {
            return Some(Frame::Ack { carrier, frames });
        }
        None
    }

    fn hello(&self, id: CarrierId) -> Hello {
        Hello {
            role: self.config.role,
            standing: self.peer.is_some(),
            lowest: VERSIONS.0,
            highest: VERSIONS.1,
            trunk: self.config.trunk,
            carrier: id.0,
            credit: self.config.initial_credit,
            streams: self.config.max_streams,
        }
    }

    /// Whether a carrier may get counted frames. On a trunk that stands, a new one needn't
    /// wait for the peer's HELLO, unless another is known to work.
    fn may_carry(&self, carrier: &Carrier) -> bool {
        match carrier.state {
            CarrierState::Live => true,
            CarrierState::Joining => {
                let live = |carrier: &Carrier| carrier.state == CarrierState::Live;
                self.peer.is_some() && !self.carriers.values().any(live)
            }
            CarrierState::Silent | CarrierState::Leaving | CarrierState::Done => false,
        }
    }

    /// Control frames of streams first, then their data.
    fn counted_frame(&mut self, id: CarrierId, room: usize) -> Option<Frame> {
        if !self.may_carry(self.carriers.get(&id)?) {
            return None;
        }
        let (frame, sent) = match self.control_of_streams() {
            Some(found) => found,
            None => self.data(room)?,
        };
        let carrier = self.carriers.get_mut(&id)?;
        carrier.sent.push_back(sent);
        // An ACK rides along: it costs no record of its own.
        carrier.arrived.now |= carrier.arrived.is_pending();
        Some(frame)
    }

    fn control_of_streams(&mut self) -> Option<(Frame, Sent)> {
        if std::mem::take(&mut self.streams_due) {
            return Some((Frame::Streams { limit: self.streams.peers_limit() }, Sent::Streams));
        }
        while let Some(&stream) = self.control.front() {
            if let Some(found) = self.control_of_stream(stream) {
                return Some(found);
            }
            self.control.pop_front();
        }
        None
    }

    /// A control frame of a stream; if there is none, the stream is not in the queue.
    fn control_of_stream(&mut self, id: StreamId) -> Option<(Frame, Sent)> {
        let stream = self.streams.get(id)?;
        let found = if std::mem::take(&mut stream.due.open) {
            (Frame::Open { stream: id }, Sent::Open(id))
        } else if std::mem::take(&mut stream.due.credit) {
            let limit = stream.receiving.window.limit();
            (Frame::Credit { stream: id, limit }, Sent::Credit(id))
        } else if std::mem::take(&mut stream.due.stop)
            && let receiving::State::Stopped(code) = stream.receiving.state
        {
            (Frame::Reset { stream: id, stop: true, code, offset: 0 }, Sent::Reset(id, true))
        } else if std::mem::take(&mut stream.due.reset)
            && let Some((code, offset)) = stream.reset()
        {
            (Frame::Reset { stream: id, stop: false, code, offset }, Sent::Reset(id, false))
        } else {
            stream.queued = false;
            return None;
        };
        stream.under_way += 1;
        Some(found)
    }

    fn data(&mut self, room: usize) -> Option<(Frame, Sent)> {
        let room = room.min(MAX_FRAME).checked_sub(DATA_HEAD)?;
        loop {
            let id = self.schedule.head()?;
            let Some(stream) = self.streams.get(id) else {
                self.schedule.had_none(None);
                continue;
            };
            if self.schedule.turn(&mut stream.place) {
                continue;
            }
            let again = stream.sending.has_again();
            let fresh = self.under_way < MAX_UNDER_WAY;
            if let Some((offset, piece)) = stream.sending.take_piece(room, fresh) {
                self.schedule.sent(&mut stream.place, DATA_HEAD + piece.payload.len());
                stream.under_way += 1;
                self.under_way += usize::from(!again);
                let (payload, end) = (piece.payload.clone(), piece.end);
                self.wake_writer(id);
                return Some((
                    Frame::Data { stream: id, offset, end, payload },
                    Sent::Data(id, offset, piece),
                ));
            }
            if again || (fresh && stream.sending.has_piece()) {
                // Not enough room.
                return None;
            }
            self.schedule.had_none(Some(&mut stream.place));
            if stream.sending.has_piece() && !stream.stalled {
                stream.stalled = true;
                self.stalled.push(id);
            }
        }
    }
}
