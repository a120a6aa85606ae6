//! Which carrier gets the next frame, and how many carriers there should be.

use std::time::{Duration, Instant};

use super::{Refused, Trunk};
use crate::carrier::Carrier;
use crate::frame::MAX_FRAME;
use crate::priming::Priming;
use crate::rails::{self, Lane, Path, Verdict};
use crate::spare::Report;
use crate::{CarrierId, CarrierState, Congestion, Encoded, Frame, Measured, Purpose, SILENCE, Wanted};

/// Bytes under way beside which padding does no harm.
const LITTLE: u64 = 2 * MAX_FRAME as u64;
/// Shortest time after which a carrier that was refused a frame for its backlog is asked again.
const LEAST_PAUSE: Duration = Duration::from_millis(1);

/// By which factor streams may queue more than would make a slow or far carrier take frames. Such a
/// carrier is of use only for a message of some size. The size of a message is known only by how
/// much of it is queued.
const QUEUED_MORE: f64 = 1.5;
/// Most bytes that each stream may queue for that.
const DEEPEST_QUEUE: usize = 4 << 20;

impl Trunk {
    /// Takes in what the embedding has measured of a carrier. Call this while the carrier is busy,
    /// each round trip or each 50 ms. It changes which carrier gets the next frame.
    pub fn carrier_measured(&mut self, id: CarrierId, measured: Measured, now: Instant) {
        self.see(now);
        let Some(carrier) = self.carriers.get_mut(&id) else { return };
        carrier.estimate.report(measured, now);
        self.look_for_spare(id, measured, now);
    }

    /// Finds out whether carriers for bulk leave a part of their path unused. Over several rails
    /// each carrier for bulk has a path of its own, so nothing follows from all of them together.
    fn look_for_spare(&mut self, id: CarrierId, measured: Measured, now: Instant) {
        let bulk =
            |carrier: &&Carrier| carrier.purpose == Purpose::Bulk && carrier.state == CarrierState::Live;
        let is_meant = self.carriers.get(&id).filter(bulk).is_some() && self.rails() == 1;
        if let (true, Some(rtt), Some(least)) = (is_meant, measured.rtt, self.least_of(bulk)) {
            let report = Report {
                waits: measured.unsent.is_some_and(|unsent| unsent > 0),
                held_back: measured.held_back,
                rtt,
                least,
                carriers: self.carriers.values().filter(bulk).count(),
                carried: self.carried,
            };
            self.spare.take(report, now);
        }
    }

    /// How many rails there are between the two ends.
    fn rails(&self) -> usize {
        1 + self.config.further_rails.max(self.peers_addresses().iter().count())
    }

    /// The shortest round trip of those carriers, if any was measured.
    fn least_of(&self, which: impl Fn(&&Carrier) -> bool) -> Option<Duration> {
        let carriers = self.carriers.values().filter(which);
        carriers.filter_map(|carrier| carrier.estimate.least(&carrier.rtt)).min()
    }

    /// Lets the congestion window of a carrier grow, by padding of up to
    /// [`MAX_PRIMING`](crate::MAX_PRIMING) bytes, while the trunk has nothing to send and next to
    /// nothing is under way. Call this when a carrier has joined, and before a burst after idle.
    pub fn prime(&mut self, id: CarrierId) {
        if let Some(carrier) = self.carriers.get_mut(&id) {
            carrier.priming = Some(Priming::new());
        }
    }

    /// The next padding for a carrier, if it is to be primed and nothing waits.
    pub(super) fn padding(&mut self, id: CarrierId, room: usize, now: Instant) -> Option<Encoded> {
        let under_way: u64 = self.carriers.values().map(|carrier| carrier.payload).sum();
        // Carriers share a path, on which padding would delay what is under way. What congestion control
        // learns of the path beside padding is less than there is, and holds for as long as a program
        // sends little.
        let idle = self.held == under_way && under_way <= LITTLE;
        let carrier = self.carriers.get_mut(&id)?;
        let live = carrier.state == CarrierState::Live;
        let priming = carrier.priming.as_mut().filter(|priming| priming.may_send())?;
        if !idle || !live || room < MAX_FRAME {
            return None;
        }
        self.nonce += 1;
        priming.sent(self.nonce, now);
        Some(Frame::Ping { answer: false, nonce: self.nonce, carriers: 0 }.encode().padded())
    }

    /// How many carriers the end that dials should keep. More are wanted at once when streams
    /// become busy in either direction, and fewer after a minute of less need.
    pub fn wanted(&self, now: Instant) -> Wanted {
        let both = [Some(self.config.congestion), self.peer.map(|(hello, _)| hello.congestion)];
        let slowed = both.contains(&Some(Congestion::Other));
        let congestion = if slowed { Congestion::Other } else { Congestion::Bbr };
        let wanted = self.need.wanted(self.carried, congestion, self.spare.carriers(now), now);
        let Wanted { bulk, small } = wanted.on_rails(self.rails());
        let most = self.config.max_carriers.saturating_sub(usize::from(small)).max(1);
        Wanted { bulk: bulk.min(most), small }
    }

    /// Whether a carrier takes the next frame of a lane. If not, there is another that does, or a
    /// time at which this one is to be asked again.
    ///
    /// `slack` bytes of the frame's stream may come before the frame without harm: the stream gets
    /// no credit before the frame has been read.
    pub(super) fn takes(
        &mut self,
        id: CarrierId,
        lane: Lane,
        frame: usize,
        slack: u64,
        now: Instant,
    ) -> bool {
        let others: Vec<Path> = self
            .carriers
            .iter()
            .filter(|(other, carrier)| **other != id && self.may_carry(carrier))
            .map(|(_, carrier)| carrier.path(now))
            .collect();
        let Some(own) = self.carriers.get(&id).map(|carrier| carrier.path(now)) else { return false };
        let under_way: u64 = self.carriers.values().map(|carrier| carrier.payload).sum();
        // All streams' bytes come by turns.
        let busy = self.schedule.busy().max(1) as u64;
        let refused = &mut self.refused[lane as usize];
        let next = rails::Next {
            lane,
            frame,
            queued: self.held.saturating_sub(under_way).min(slack.saturating_mul(busy)),
            waits: refused.since.is_some(),
        };
        match rails::judge(&own, &others, next) {
            Verdict::Takes => return true,
            Verdict::Reserved => return false,
            Verdict::Waits(queued) if lane == Lane::Bulk => {
                let each = queued * QUEUED_MORE / busy as f64;
                self.deep_queue = (each as usize).min(DEEPEST_QUEUE);
            }
            Verdict::Waits(_) => {}
        }
        // The others may be slower than they were: no frame waits for them longer than it
        // would take over this one.
        let since = *refused.since.get_or_insert(now);
        let patience = since + own.patience(frame);
        if patience <= now {
            return true;
        }
        let again = match rails::seconds(own.drained()) {
            Duration::ZERO => patience,
            drained => patience.min(now + drained.clamp(LEAST_PAUSE, SILENCE)),
        };
        refused.again = Some(refused.again.map_or(again, |earlier| earlier.min(again)));
        false
    }

    /// Notes that a frame of a lane has gone out.
    pub(super) fn went_out(&mut self, lane: Lane) {
        self.refused[lane as usize] = Refused { since: None, ..self.refused[lane as usize] };
    }
}
