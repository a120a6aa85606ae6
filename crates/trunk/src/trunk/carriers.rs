//! Carriers join, fall silent, and end; what was under way on them goes elsewhere.

use std::time::Instant;

use super::{MAX_LAST_ACKS, Trunk};
use crate::carrier::{Carrier, LEAVE_TIMEOUT, Sent};
use crate::{CarrierId, CarrierState, Ended, Event, Frame, Purpose, Reason, Scope, StreamId};

/// Why a carrier can't join.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// The trunk has as many carriers as its configuration allows, and none of them is silent.
    #[error("the trunk has {0} carriers, as many as it may")]
    TooMany(usize),
    /// The trunk has ended, so it takes no carriers.
    #[error("the trunk has ended")]
    Ended,
}

impl Trunk {
    /// Adds a carrier that is connected. If there are as many as may be, the carrier that is silent
    /// longest is done.
    ///
    /// # Errors
    /// If there are too many, or the trunk has ended.
    pub fn carrier_joined(&mut self, now: Instant) -> Result<CarrierId, JoinError> {
        self.carrier_joined_for(Purpose::Bulk, now)
    }

    /// Adds a carrier that this end has dialed for a purpose. The other end learns the purpose by
    /// HELLO.
    ///
    /// # Errors If there are too many carriers, or the trunk has ended.
    pub fn carrier_joined_for(&mut self, purpose: Purpose, now: Instant) -> Result<CarrierId, JoinError> {
        if self.ended.is_some() {
            return Err(JoinError::Ended);
        }
        let carriers = self.carriers.iter().filter(|(_, carrier)| carrier.state != CarrierState::Done);
        if carriers.clone().count() >= self.config.max_carriers {
            let silent = carriers.filter(|(_, carrier)| carrier.state == CarrierState::Silent);
            let Some((&longest, _)) = silent.min_by_key(|(_, carrier)| carrier.heard) else {
                return Err(JoinError::TooMany(self.config.max_carriers));
            };
            let reason = Reason::Carriers;
            self.finish_carrier(longest, Some(Ended::Here(reason)), Some((reason, reason.to_string())));
        }
        let id = CarrierId(self.next_carrier);
        let Some(next) = self.next_carrier.checked_add(1) else {
            return Err(JoinError::TooMany(self.config.max_carriers));
        };
        self.next_carrier = next;
        self.carriers.insert(id, Carrier::new(purpose, now));
        self.on_deadline(now);
        Ok(id)
    }

    /// To be called when a carrier's pipe is closed at this end, or broken. What was under way on
    /// it goes over others. The id is forgotten.
    pub fn carrier_ended(&mut self, id: CarrierId) {
        self.finish_carrier(id, None, None);
        self.carriers.remove(&id);
    }

    /// Has a carrier end in order. It gets no more data, and is done when the peer has acknowledged
    /// what is under way, or after [`LEAVE_TIMEOUT`].
    pub fn leave(&mut self, id: CarrierId, now: Instant) {
        let Some(carrier) = self.carriers.get_mut(&id) else { return };
        match carrier.state {
            CarrierState::Joining | CarrierState::Live => {
                carrier.state = CarrierState::Leaving;
                carrier.leaves = Some(now + LEAVE_TIMEOUT);
                self.leave_if_empty(id);
            }
            CarrierState::Silent => self.finish_leaving(id),
            CarrierState::Leaving | CarrierState::Done => {}
        }
    }

    pub(super) fn leave_if_empty(&mut self, id: CarrierId) {
        let empty = |carrier: &Carrier| carrier.state == CarrierState::Leaving && carrier.sent.is_empty();
        if self.carriers.get(&id).is_some_and(empty) {
            self.finish_leaving(id);
        }
    }

    fn finish_leaving(&mut self, id: CarrierId) {
        let reason = Reason::Done;
        self.finish_carrier(id, Some(Ended::Here(reason)), Some((reason, reason.to_string())));
    }

    /// To be called when [`next_deadline`](Self::next_deadline) is reached; at any other
    /// time it does no harm.
    pub fn on_deadline(&mut self, now: Instant) {
        self.see(now);
        for refused in &mut self.refused {
            refused.again = refused.again.filter(|again| *again > now);
        }
        let rtt = self.measured_rtt();
        // Mostly there are none: this is called with each message.
        let mut overdue = Vec::new();
        for (id, carrier) in &mut self.carriers {
            carrier.mark_due(now);
            if carrier.is_overdue(rtt, now) {
                overdue.push(*id);
            }
        }
        for id in overdue {
            let Some(carrier) = self.carriers.get_mut(&id) else { continue };
            if carrier.hello_is_overdue(now) {
                let reason = Reason::Silent;
                self.finish_carrier(id, Some(Ended::Here(reason)), Some((reason, reason.to_string())));
            } else if carrier.leaves.is_some_and(|leaves| leaves <= now) {
                self.finish_leaving(id);
            } else if carrier.silent_at(rtt).is_some_and(|silent| silent <= now) {
                self.on_silent(id);
            }
        }
    }

    /// Notes that nothing is heard over a carrier: its frames go over others. They stay counted on
    /// it, in case that they are acknowledged after all.
    fn on_silent(&mut self, id: CarrierId) {
        let Some(carrier) = self.carriers.get_mut(&id) else { return };
        if carrier.state == CarrierState::Leaving {
            return self.finish_leaving(id);
        }
        carrier.state = CarrierState::Silent;
        self.events.push_back(Event::CarrierSilent(id));
        let sent = carrier.give_up();
        let counted: Vec<Sent> = sent.into_iter().map(|sent| self.send_again(id, sent)).collect();
        if let Some(carrier) = self.carriers.get_mut(&id) {
            carrier.sent = counted.into();
        }
    }

    /// Has a carrier be done. The program is told `why`, the peer `close`.
    pub(super) fn finish_carrier(
        &mut self,
        id: CarrierId,
        why: Option<Ended>,
        close: Option<(Reason, String)>,
    ) {
        self.deep_queue = 0;
        let Some(carrier) = self.carriers.get_mut(&id) else { return };
        if carrier.state == CarrierState::Done {
            return;
        }
        carrier.state = CarrierState::Done;
        carrier.leaves = None;
        carrier.input = Default::default();
        carrier.close = close.map(|(reason, text)| Frame::Close { scope: Scope::Carrier, reason, text });
        let sent = carrier.give_up();
        if let Some(number) = carrier.peers_number
            && carrier.arrived.is_pending()
        {
            self.last_acks.push_back((number, carrier.arrived.acknowledge()));
            if self.last_acks.len() > MAX_LAST_ACKS {
                self.last_acks.pop_front();
            }
        }
        if let Some(why) = why {
            self.events.push_back(Event::CarrierDone(id, why));
        }
        for sent in sent {
            self.send_again(id, sent);
        }
    }

    /// Has a frame be sent again over any carrier. Returns what stays counted for it on its old
    /// carrier, should that live on.
    fn send_again(&mut self, carrier: CarrierId, sent: Sent) -> Sent {
        if let Sent::Data(stream, _, piece) = &sent {
            self.note_moved((*stream, carrier), (-(piece.payload.len() as i64), 0));
        }
        let (id, kept) = match &sent {
            Sent::Moved(..) | Sent::Forgotten => return sent,
            Sent::Streams => {
                self.streams_due = true;
                return Sent::Forgotten;
            }
            Sent::Data(id, offset, _) => (*id, Sent::Moved(*id, *offset)),
            Sent::Open(id) | Sent::Credit(id) | Sent::Reset(id, _) => (*id, Sent::Forgotten),
        };
        let Some(stream) = self.streams.get(id) else { return kept };
        stream.under_way -= 1;
        match sent {
            Sent::Open(_) => stream.due.open = true,
            Sent::Credit(_) => {
                stream.due.credit = stream.receiving.end.is_none() && !stream.receiving.is_over()
            }
            Sent::Reset(_, true) => stream.due.stop = true,
            Sent::Reset(_, false) => stream.due.reset = stream.reset().is_some(),
            Sent::Data(_, offset, piece) => self.put_back(id, offset, piece),
            Sent::Moved(..) | Sent::Forgotten | Sent::Streams => {}
        }
        self.queue_control(id);
        self.remove_if_over(id);
        kept
    }

    fn put_back(&mut self, id: StreamId, offset: u64, piece: crate::sending::Piece) {
        let Some(stream) = self.streams.get(id) else { return };
        let (bytes, number) = (piece.payload.len() as u64, piece.number);
        if stream.sending.put_back(offset, piece) {
            self.queue_data(id);
        } else {
            stream.sending.held -= bytes;
            self.release(bytes, 1);
            if let Some(number) = number {
                self.progress.settled(number, self.seen);
            }
        }
    }

    /// Ends the trunk with all its streams. The peer is told `close`, over every carrier.
    pub(super) fn end(&mut self, why: Ended, close: Option<(Reason, String)>) {
        if self.ended.is_some() {
            return;
        }
        self.ended = Some(why.clone());
        self.streams.clear();
        self.schedule = Default::default();
        self.stalled.clear();
        self.control.clear();
        self.waiting.clear();
        self.last_acks.clear();
        self.refused = Default::default();
        self.progress = Default::default();
        (self.held, self.under_way, self.holes) = (0, 0, 0);
        self.pool = crate::credit::Pool::new(0, 0, 0);
        self.events.push_back(Event::Closed(why.clone()));
        for (id, carrier) in &mut self.carriers {
            if carrier.state != CarrierState::Done {
                carrier.state = CarrierState::Done;
                carrier.give_up();
                carrier.leaves = None;
                carrier.input = Default::default();
                let close = close.clone();
                carrier.close =
                    close.map(|(reason, text)| Frame::Close { scope: Scope::Trunk, reason, text });
                self.events.push_back(Event::CarrierDone(*id, why.clone()));
            }
        }
    }
}
