//! What comes from the peer.

use std::time::Instant;

use bytes::Bytes;

use super::{KEPT, MAX_UNDER_WAY, Trunk};
use crate::carrier::{Carrier, LARGE, Sent};
use crate::frame::MAX_OFFSET;
use crate::receiving::DirectionEnd;
use crate::table::Known;
use crate::{CarrierId, CarrierState, Ended, Event, Frame, Hello, ProtocolError, Purpose, Scope, StreamId};

impl Trunk {
    /// Takes in what a carrier has delivered, in whatever pieces. Whole frames are not copied: a
    /// payload stays a part of `bytes`.
    ///
    /// Hand over buffers of 16 KiB at most, such as TLS records: a payload of half a buffer's
    /// length may hold all of the buffer.
    pub fn receive(&mut self, id: CarrierId, mut bytes: Bytes, now: Instant) {
        self.see(now);
        loop {
            let Some(carrier) = self.carriers.get_mut(&id) else { return };
            if carrier.state == CarrierState::Done {
                return;
            }
            carrier.heard = now;
            let before = bytes.len();
            let result = match carrier.input.next(&mut bytes) {
                Ok(Some(frame)) => {
                    let taken = self.on_frame(id, frame, before - bytes.len(), now);
                    self.tell_large(id);
                    taken
                }
                Ok(None) => return,
                Err(error) => Err(error),
            };
            if let Err(error) = result {
                self.on_broken(id, error);
            }
        }
    }

    fn tell_large(&mut self, id: CarrierId) {
        let Some(Carrier { large, .. }) = self.carriers.get_mut(&id) else { return };
        let both = large.there;
        if large.back && large.told.is_none_or(|told| both && !told) {
            large.told = Some(both);
            self.events.push_back(Event::CarrierLarge { carrier: id, both });
        }
    }

    /// Ends the trunk, since the peer has broken a rule over a carrier. Before its HELLO, a carrier
    /// can't hurt the trunk, so only the carrier ends.
    fn on_broken(&mut self, id: CarrierId, error: ProtocolError) {
        let known = self.carriers.get(&id).is_some_and(|carrier| carrier.peers_number.is_some());
        let (reason, text) = (error.reason(), error.to_string());
        if known {
            self.end(Ended::Broke(error), Some((reason, text)));
        } else {
            self.finish_carrier(id, Some(Ended::Broke(error)), Some((reason, text)));
        }
    }

    fn on_frame(
        &mut self,
        id: CarrierId,
        frame: Frame,
        size: usize,
        now: Instant,
    ) -> Result<(), ProtocolError> {
        let Some(carrier) = self.carriers.get_mut(&id) else { return Ok(()) };
        if carrier.peers_number.is_none() {
            return match frame {
                Frame::Hello(hello) => self.on_hello(id, hello),
                Frame::Close { scope, reason, text } => {
                    self.on_close(id, scope, Ended::ByPeer { reason, text });
                    Ok(())
                }
                other => Err(ProtocolError::NotHello(other.kind())),
            };
        }
        carrier.large.back |= size >= LARGE;
        if frame.is_counted() {
            carrier.arrived.count(size, now);
        }
        match frame {
            Frame::Hello(_) => return Err(ProtocolError::SecondHello),
            Frame::Open { stream } => {
                if stream.opener() == self.config.role {
                    return Err(ProtocolError::NotTheirs(stream));
                }
                self.find_or_insert(stream)?;
            }
            Frame::Data { stream, offset, end, payload } => self.on_data(id, stream, offset, payload, end)?,
            Frame::Credit { stream, limit } => {
                in_range(stream, limit)?;
                if self.find_or_insert(stream)?
                    && self.streams.get(stream).is_some_and(|stream| stream.sending.raise(limit))
                {
                    self.wake_writer(stream);
                }
            }
            Frame::Streams { limit } => {
                in_range(StreamId(0), limit)?;
                if self.streams.allow(limit) && std::mem::take(&mut self.open_refused) {
                    self.events.push_back(Event::CanOpen);
                }
            }
            Frame::Reset { stream, stop: false, code, offset } => self.on_reset(stream, code, offset)?,
            Frame::Reset { stream, stop: true, code, .. } => self.on_stop(stream, code)?,
            Frame::Ack { carrier, frames } => self.on_ack(CarrierId(carrier), frames, now)?,
            Frame::Ping { answer: false, nonce, carriers } => {
                carrier.answer = Some(nonce);
                self.spare.told(carriers.into(), now);
                carrier.arrived.now |= carrier.arrived.is_pending();
            }
            Frame::Ping { answer: true, nonce, .. } => {
                if nonce <= self.nonce && carrier.answered(nonce, now) {
                    self.on_proof(id, now);
                }
            }
            Frame::Close { scope, reason, text } => self.on_close(id, scope, Ended::ByPeer { reason, text }),
        }
        Ok(())
    }

    fn on_hello(&mut self, id: CarrierId, hello: Hello) -> Result<(), ProtocolError> {
        if hello.role == self.config.role {
            return Err(ProtocolError::SameRole);
        }
        if hello.trunk != self.config.trunk {
            return Err(ProtocolError::OtherTrunk);
        }
        let version = hello.version()?;
        match self.peer {
            None => {
                self.peer = Some((hello, version));
                self.streams.allow(hello.streams.into());
                self.events.push_back(Event::Established { version });
            }
            Some((first, _)) => {
                let parameters = |hello: Hello| {
                    (hello.lowest, hello.highest, hello.credit, hello.streams, hello.incarnation)
                };
                if parameters(first) != parameters(hello) {
                    return Err(ProtocolError::OtherParameters);
                }
            }
        }
        if let Some(carrier) = self.carriers.get_mut(&id) {
            carrier.peers_number = Some(hello.carrier);
            if hello.purpose == Purpose::Small {
                carrier.purpose = Purpose::Small;
            }
            if matches!(carrier.state, CarrierState::Joining | CarrierState::Silent) {
                carrier.state = CarrierState::Live;
            }
        }
        Ok(())
    }

    /// Whether the stream is open; this frame may open it. If not, it is closed, and the frame a
    /// duplicate.
    fn find_or_insert(&mut self, id: StreamId) -> Result<bool, ProtocolError> {
        let known = self.streams.find(id)?;
        if known == Known::New {
            let state = self.new_stream();
            self.streams.insert(id, state);
            self.events.push_back(Event::Opened(id));
        }
        Ok(known != Known::Closed)
    }

    fn on_data(
        &mut self,
        carrier: CarrierId,
        id: StreamId,
        offset: u64,
        payload: Bytes,
        end: bool,
    ) -> Result<(), ProtocolError> {
        in_range(id, offset)?;
        in_range(id, offset + payload.len() as u64)?;
        if !self.find_or_insert(id)? {
            return Ok(());
        }
        let Some(stream) = self.streams.get(id) else { return Ok(()) };
        self.carried += payload.len() as u64;
        if payload.len() >= LARGE
            && let Some(now) = self.seen
        {
            self.need.passed(&mut stream.receiving.counted, now);
        }
        let before = stream.receiving.data.holes();
        let new = stream.receiving.take(id, offset, payload, end)?;
        let after = stream.receiving.data.holes();
        self.holes = self.holes - before + after;
        if self.holes > MAX_UNDER_WAY {
            return Err(ProtocolError::TooManyHoles(self.holes));
        }
        self.note_moved((id, carrier), (0, new));
        self.on_arrived(id);
        Ok(())
    }

    /// Follows up on data or an end that has arrived: wakes the reader, and gives no credit beyond
    /// the end.
    fn on_arrived(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get(id)
            && let Some(end) = stream.receiving.end
        {
            stream.due.credit = false;
            let read = stream.receiving.read();
            if !stream.receiving.is_over() {
                stream.receiving.window.ends_at(end.offset, read, &mut self.pool);
            }
        }
        self.wake_reader(id);
    }

    /// Takes in a RESET by which the peer sends no more on a stream than it had sent before.
    fn on_reset(&mut self, id: StreamId, code: u32, offset: u64) -> Result<(), ProtocolError> {
        in_range(id, offset)?;
        if !self.find_or_insert(id)? {
            return Ok(());
        }
        let Some(stream) = self.streams.get(id) else { return Ok(()) };
        let news = stream.receiving.end.is_none() && !stream.receiving.is_over();
        stream.receiving.ends(id, DirectionEnd { offset, reset: Some(code) })?;
        if news {
            self.events.push_back(Event::Reset(id, code));
        }
        self.on_arrived(id);
        Ok(())
    }

    /// Takes in a RESET by which the peer takes no more data on a stream.
    fn on_stop(&mut self, id: StreamId, code: u32) -> Result<(), ProtocolError> {
        if !self.find_or_insert(id)? {
            return Ok(());
        }
        let Some(stream) = self.streams.get(id) else { return Ok(()) };
        if matches!(stream.sending.state, crate::sending::State::Stopped(_)) {
            return Ok(());
        }
        let (bytes, pieces) = stream.sending.stop(code);
        stream.due.reset = false;
        stream.blocked = false;
        self.events.push_back(Event::Stopped(id, code));
        pieces.values().for_each(|piece| self.settled(piece));
        self.release(bytes, pieces.len());
        self.remove_if_over(id);
        Ok(())
    }

    fn on_close(&mut self, id: CarrierId, scope: Scope, ended: Ended) {
        match scope {
            Scope::Carrier => self.finish_carrier(id, Some(ended), None),
            Scope::Trunk => self.end(ended, None),
        }
    }

    /// Notes that a carrier is shown to work in both directions.
    fn on_proof(&mut self, id: CarrierId, now: Instant) {
        if self.carriers.get_mut(&id).is_some_and(|carrier| carrier.prove(now)) {
            self.events.push_back(Event::CarrierLive(id));
        }
    }

    fn on_ack(&mut self, id: CarrierId, frames: u64, now: Instant) -> Result<(), ProtocolError> {
        if id.0 >= self.next_carrier {
            return Err(ProtocolError::AckUnknown(id.0));
        }
        let Some(carrier) = self.carriers.get_mut(&id) else { return Ok(()) };
        if carrier.state == CarrierState::Done {
            return Ok(());
        }
        let sent = carrier.sent_frames();
        if frames > sent {
            return Err(ProtocolError::AckBeyond { carrier: id.0, acknowledged: frames, sent });
        }
        let news = frames.saturating_sub(carrier.acknowledged);
        let mut bytes = 0;
        for _ in 0..news {
            let Some(carrier) = self.carriers.get_mut(&id) else { break };
            let Some(sent) = carrier.take_acknowledged() else { break };
            bytes += sent.bytes();
            self.on_acknowledged(sent);
        }
        if news > 0 {
            if let Some(carrier) = self.carriers.get_mut(&id) {
                carrier.estimate.acknowledged(bytes, &carrier.rtt, now);
            }
            self.on_proof(id, now);
            if let Some(carrier) = self.carriers.get_mut(&id)
                && carrier.sent.is_empty()
            {
                carrier.sent.shrink_to(KEPT);
            }
            self.leave_if_empty(id);
        }
        Ok(())
    }

    /// Notes that a counted frame is in the peer's memory.
    fn on_acknowledged(&mut self, sent: Sent) {
        let (id, arrived) = match sent {
            Sent::Streams | Sent::Forgotten => return,
            Sent::Open(id) | Sent::Credit(id) | Sent::Reset(id, _) => (id, None),
            Sent::Data(id, _, piece) => {
                self.settled(&piece);
                (id, Some(piece))
            }
            Sent::Moved(id, offset) => {
                let Some(stream) = self.streams.get(id) else { return };
                let Some(piece) = stream.sending.cancel(offset) else { return };
                // The frame was to be sent again, and isn't under way.
                stream.under_way += 1;
                self.settled(&piece);
                (id, Some(piece))
            }
        };
        let Some(stream) = self.streams.get(id) else { return };
        stream.under_way -= 1;
        if let Some(piece) = arrived {
            let bytes = piece.payload.len() as u64;
            stream.sending.held -= bytes;
            self.carried += bytes;
            self.release(bytes, 1);
        }
        self.remove_if_over(id);
    }
}

/// Checks that an offset or limit is below 2^62.
fn in_range(stream: StreamId, value: u64) -> Result<(), ProtocolError> {
    if value < MAX_OFFSET { Ok(()) } else { Err(ProtocolError::TooLarge { stream, value }) }
}
