//! What goes to the peer: the next frame of a carrier.

use std::time::Instant;

use super::{MAX_COUNTED, MAX_UNDER_WAY, Trunk};
use crate::carrier::{Carrier, LARGE, Sent};
use crate::frame::{DATA_HEAD, HEAD, MAX_FRAME, MAX_PAYLOAD, MAX_TEXT};
use crate::rails::Lane;
use crate::receiving;
use crate::schedule::List;
use crate::{CarrierId, CarrierState, Encoded, Frame, Hello, Purpose, StreamId, VERSIONS};

/// Length in bytes of the longest frame but DATA.
const LONGEST_CONTROL: usize = HEAD + 2 + MAX_TEXT;
/// Least room for a frame by [`fill`](Trunk::fill), lest data be cut into slivers.
const LEAST_ROOM: usize = 1 << 10;

/// What there is to send for a carrier.
enum Next {
    Frame(Frame, Sent, Lane),
    NoRoom,
    Nothing,
}

impl Trunk {
    /// The next frame for a carrier whose socket takes `room` bytes. Returns `None` if there is no
    /// frame, or not enough room. Ask again with [`MAX_FRAME`] at least, once the socket has that
    /// room: a frame that is sent again is as long as it was.
    pub fn poll_transmit(&mut self, id: CarrierId, room: usize, now: Instant) -> Option<Encoded> {
        self.see(now);
        if room < LONGEST_CONTROL {
            return None;
        }
        let frame = match self.control_of_carrier(id, now) {
            Some(frame) => frame,
            None => match self.counted_frame(id, room, now) {
                Some(frame) => frame,
                None => return self.padding(id, room, now),
            },
        };
        Some(frame.encode())
    }

    /// Appends frames for a carrier to a buffer, up to `room` bytes in all, and returns their
    /// length. Many small frames fill one TLS record.
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

    /// The next frame that belongs to the carrier itself. No such frame is counted.
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
            return Some(Frame::Ping { answer: true, nonce, carriers: 0 });
        }
        if let Some(asked) = carrier.asked.as_mut()
            && asked.sent.is_none()
        {
            self.nonce += 1;
            asked.sent = Some((self.nonce, now));
            let carriers = self.spare.own(now);
            return Some(Frame::Ping { answer: false, nonce: self.nonce, carriers });
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
            purpose: self.carriers.get(&id).map_or_else(Purpose::default, |carrier| carrier.purpose),
            congestion: self.config.congestion,
            credit: self.config.initial_credit,
            streams: self.config.max_streams,
            incarnation: self.config.incarnation,
            addresses: self.config.addresses,
        }
    }

    /// Whether a carrier may get counted frames. On a trunk that stands, a new carrier needn't wait
    /// for the peer's HELLO, unless another is known to work.
    pub(super) fn may_carry(&self, carrier: &Carrier) -> bool {
        match carrier.state {
            CarrierState::Live => true,
            CarrierState::Joining => {
                let live = |carrier: &Carrier| carrier.state == CarrierState::Live;
                self.peer.is_some() && !self.carriers.values().any(live)
            }
            CarrierState::Silent | CarrierState::Leaving | CarrierState::Done => false,
        }
    }

    /// The next counted frame for a carrier: control frames of streams first, then small pieces of
    /// their data, then bulk.
    fn counted_frame(&mut self, id: CarrierId, room: usize, now: Instant) -> Option<Frame> {
        let carrier = self.carriers.get(&id)?;
        if !self.may_carry(carrier) || carrier.sent.len() >= MAX_COUNTED {
            return None;
        }
        let (frame, sent, lane) = match self.next_of_lanes(id, room, now) {
            Next::Frame(frame, sent, lane) => (frame, sent, lane),
            Next::NoRoom => return None,
            Next::Nothing => {
                self.carriers.get_mut(&id)?.estimate.has_room();
                return None;
            }
        };
        self.went_out(lane);
        if let Sent::Data(stream, _, piece) = &sent {
            self.note_moved((*stream, id), (piece.payload.len() as i64, 0));
        }
        let carrier = self.carriers.get_mut(&id)?;
        carrier.put(sent, now);
        // An ACK rides along: it costs no record of its own.
        carrier.arrived.now |= carrier.arrived.is_pending();
        Some(frame)
    }

    fn next_of_lanes(&mut self, id: CarrierId, room: usize, now: Instant) -> Next {
        if let Some(bytes) = self.next_small()
            && self.takes(id, Lane::Small, bytes, u64::MAX, now)
        {
            if let Some((frame, sent)) = self.control_of_streams() {
                return Next::Frame(frame, sent, Lane::Small);
            }
            match self.data(Lane::Small, room) {
                Next::Nothing => {}
                found => return found,
            }
        }
        let Some((_, stream)) = self.ready(Lane::Bulk) else { return Next::Nothing };
        let slack = self.streams.peek(stream).map_or(0, |stream| stream.sending.slack());
        if !self.takes(id, Lane::Bulk, MAX_FRAME, slack, now) {
            return Next::Nothing;
        }
        let found = self.data(Lane::Bulk, room);
        self.need.observe(self.schedule.busy(), now);
        found
    }

    /// The length of the next small frame, about; `None` if there seems to be none.
    fn next_small(&mut self) -> Option<usize> {
        while let Some(stream) = self.control.front() {
            match self.streams.get(*stream) {
                Some(stream) if stream.due.any() => break,
                Some(stream) => stream.queued = false,
                None => {}
            }
            self.control.pop_front();
        }
        if self.streams_due || !self.control.is_empty() {
            return Some(LONGEST_CONTROL);
        }
        let (_, stream) = self.ready(Lane::Small)?;
        let waiting = self.streams.peek(stream).map_or(0, |stream| stream.sending.waiting());
        Some(DATA_HEAD + waiting.min(MAX_PAYLOAD))
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

    /// The next control frame of a stream. If the stream has none, takes it off the queue.
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

    /// The stream of a lane whose turn it is, and the list in which it waits. The stream has a
    /// piece that may go out.
    fn ready(&mut self, lane: Lane) -> Option<(List, StreamId)> {
        loop {
            let (list, id) = self.schedule.head(lane)?;
            let Some(stream) = self.streams.get(id) else {
                self.schedule.had_none(list, None);
                continue;
            };
            if self.schedule.turn(list, &mut stream.scheduled) {
                continue;
            }
            let has_piece = stream.sending.has_piece();
            if stream.sending.has_again() || (has_piece && self.under_way < MAX_UNDER_WAY) {
                return Some((list, id));
            }
            self.schedule.had_none(list, Some(&mut stream.scheduled));
            if has_piece && !stream.stalled {
                stream.stalled = true;
                self.stalled.push(id);
            }
        }
    }

    fn data(&mut self, lane: Lane, room: usize) -> Next {
        let room = room.min(MAX_FRAME).saturating_sub(DATA_HEAD);
        let clock_ms = self.clock_ms();
        let Some((list, id)) = self.ready(lane) else { return Next::Nothing };
        let Some(stream) = self.streams.get(id) else { return Next::Nothing };
        let again = stream.sending.has_again();
        let Some((offset, mut piece)) = stream.sending.take_piece(room) else { return Next::NoRoom };
        piece.number.get_or_insert_with(|| self.progress.sent(self.seen));
        let length = DATA_HEAD + piece.payload.len();
        self.schedule.sent(list, &mut stream.scheduled, length, clock_ms);
        if piece.payload.len() >= LARGE
            && let Some(now) = self.seen
        {
            self.need.passed(&mut stream.receiving.counted, now);
        }
        stream.under_way += 1;
        self.under_way += usize::from(!again);
        let (payload, end) = (piece.payload.clone(), piece.end);
        self.wake_writer(id);
        let frame = Frame::Data { stream: id, offset, end, payload };
        Next::Frame(frame, Sent::Data(id, offset, piece), lane)
    }
}
