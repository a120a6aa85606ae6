//! One direction of a link as a sans-io state machine: frames and the time
//! go in, frames come out when they are due. It does no I/O and reads no
//! clock.
//!
//! A packet passes, in this order:
//! 1. the sender's own network card: a burst doesn't reach the bottleneck in
//!    no time but at [`ACCESS_RATE`];
//! 2. a drop-tail queue of so many bytes before the bottleneck;
//! 3. the bottleneck, at its rate;
//! 4. loss, at random or of what is too long: a packet that is lost has taken its place in the queue and
//!    its time at the bottleneck, as it does where the bottleneck is the way
//!    out of a site and the loss is somewhere behind it;
//! 5. the way, with its delay and jitter. Packets stay in order: one whose
//!    delay would let it overtake arrives with the one before it.
//!
//! All of it is judged per segment as on the wire; segments of one
//! super-packet that leave the bottleneck within [`QUANTUM`] travel on
//! together, with one delay, and arrive when the last of them does.

mod bottleneck;
mod loss;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::packet::{self, Shape};
use crate::grid::{BitRate, LinkShape, Slow};
use bottleneck::{Bottleneck, Passage};
use loss::Losses;

/// Rate of the network card before the bottleneck, without slow motion. Without it, a 64 KiB burst would arrive at the
/// queue at once. Small queues would then drop more than those of a real access link.
pub(crate) const ACCESS_RATE: BitRate = BitRate(10_000_000_000);

/// How long a group of segments may take at the bottleneck, without slow motion. Segments that travel together arrive
/// together, so the first of a group arrives up to this much late.
pub(crate) const QUANTUM: Duration = Duration::from_micros(250);

/// One direction of a link.
///
/// Input: [`handle_frame`](Self::handle_frame), [`set_shape`](Self::set_shape). Output:
/// [`poll_transmit`](Self::poll_transmit), to be called until it returns `None`. Then
/// [`next_due`](Self::next_due) is the time of the next call.
#[derive(Debug)]
pub struct Direction {
    shape: LinkShape,
    delay: Duration,
    jitter: Duration,
    bottleneck: Bottleneck,
    /// How long a group of segments may take at the bottleneck.
    quantum: Duration,
    losses: Losses,
    random: Rng,
    in_flight: VecDeque<Transmit>,
    /// When the frame that was queued last is due. No later frame leaves before it.
    last_due: Option<Instant>,
    counters: Counters,
}

/// A frame, and when it leaves the link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transmit {
    /// When the frame should leave.
    pub due: Instant,
    /// The virtio-net header and the packet.
    pub frame: Vec<u8>,
}

/// Counts of a direction's packets by outcome, in segments on the wire.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Segments that the link was given.
    pub segments: u64,
    /// Bytes of the segments that the link was given, IP headers included.
    pub bytes: u64,
    /// Segments dropped because the queue was full.
    pub dropped: u64,
    /// Segments lost behind the bottleneck, at random or for their length.
    pub lost: u64,
    /// The most bytes that the queue has held.
    pub queue_peak: u64,
}

impl Direction {
    /// Makes a direction of this shape, with nothing under way, in a network that is `slow`. The
    /// same seed and the same packets give the same losses and delays.
    pub fn new(shape: &LinkShape, slow: Slow, seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        Self {
            shape: *shape,
            delay: shape.delay.duration(),
            jitter: shape.jitter.duration(),
            bottleneck: Bottleneck::new(slow.rate(ACCESS_RATE), shape.rate, shape.queue),
            quantum: slow.time(QUANTUM),
            losses: Losses::new(shape.loss, &mut random),
            random,
            in_flight: VecDeque::new(),
            last_due: None,
            counters: Counters::default(),
        }
    }

    /// Changes what happens to later packets. Packets that have passed the queue keep their time,
    /// also where later packets must wait for them. A queue that became shorter keeps what it
    /// holds.
    pub(crate) fn set_shape(&mut self, shape: &LinkShape) {
        self.shape = *shape;
        self.delay = shape.delay.duration();
        self.jitter = shape.jitter.duration();
        self.bottleneck.set(shape.rate, shape.queue);
        self.losses.set(shape.loss, &mut self.random);
    }

    /// What the direction does to packets at present.
    pub fn shape(&self) -> LinkShape {
        self.shape
    }

    /// The direction's counters since its start.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// When the next frame is due. `None` if no frame is under way.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.in_flight.front().map(|transmit| transmit.due)
    }

    /// Takes a frame (virtio-net header and packet) that was sent at `now`.
    pub(crate) fn handle_frame(&mut self, frame: &[u8], now: Instant) {
        match packet::shape(frame) {
            Shape::Single(length) => {
                if let Some(departure) = self.admit(length, now) {
                    self.send(departure, frame.to_vec());
                }
            }
            Shape::Segments(found) => {
                for group in self.admit_segments(&found, now) {
                    let part = found.extract(frame, group.segments);
                    self.send(group.last, part);
                }
            }
        }
    }

    /// Returns the next frame that is due at `now`. `None` if no frame is due.
    pub(crate) fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        if self.next_due()? > now { None } else { self.in_flight.pop_front() }
    }

    fn send(&mut self, departure: Instant, frame: Vec<u8>) {
        let due = departure + self.way();
        let due = self.last_due.map_or(due, |last| last.max(due));
        self.last_due = Some(due);
        self.in_flight.push_back(Transmit { due, frame });
    }

    /// Draws how long a frame takes from the bottleneck to the other end: the delay, more or less
    /// the jitter.
    fn way(&mut self) -> Duration {
        if self.jitter.is_zero() {
            return self.delay;
        }
        let spread = (2 * self.jitter).as_nanos() as u64;
        let more = Duration::from_nanos(self.random.u64(0..=spread));
        (self.delay + more).saturating_sub(self.jitter)
    }

    /// Sends segments singly through the bottleneck. Groups consecutive segments that leave it
    /// close together.
    fn admit_segments(&mut self, found: &packet::SuperPacket, now: Instant) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for segment in 0..found.count() {
            let Some(departure) = self.admit(found.wire_length(segment), now) else { continue };
            match groups.last_mut() {
                Some(group) if group.segments.end == segment && departure - group.first <= self.quantum => {
                    group.segments.end = segment + 1;
                    group.last = departure;
                }
                _ => groups.push(Group { segments: segment..segment + 1, first: departure, last: departure }),
            }
        }
        groups
    }

    /// When a packet of `length` bytes that was sent at `now` leaves the bottleneck. `None` if it
    /// is dropped or lost.
    fn admit(&mut self, length: usize, now: Instant) -> Option<Instant> {
        let length = length as u64;
        self.counters.segments += 1;
        self.counters.bytes += length;
        match self.bottleneck.admit(length, now) {
            Passage::Through { departure, waiting } => {
                self.counters.queue_peak = self.counters.queue_peak.max(waiting);
                if self.losses.loses(&mut self.random) || self.shape.swallows(length) {
                    self.counters.lost += 1;
                    return None;
                }
                Some(departure)
            }
            Passage::Dropped => {
                self.counters.dropped += 1;
                None
            }
        }
    }
}

/// Consecutive segments of a super-packet that travel together.
struct Group {
    segments: std::ops::Range<usize>,
    /// When the group's first segment left the bottleneck.
    first: Instant,
    /// When the group's last segment left the bottleneck.
    last: Instant,
}

#[cfg(test)]
mod tests;
