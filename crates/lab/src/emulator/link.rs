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
use crate::grid::{BitRate, LinkShape};
use bottleneck::{Bottleneck, Passage};
use loss::Losses;

/// Rate of the network card before the bottleneck. Without it a 64 KiB burst
/// would arrive at the queue at once, and small queues would drop more than
/// those of a real access link.
pub(crate) const ACCESS_RATE: BitRate = BitRate(10_000_000_000);

/// How long a group of segments may take at the bottleneck: the price of
/// carrying them together is that the first of them arrives this much late.
pub(crate) const QUANTUM: Duration = Duration::from_micros(250);

/// One direction of a link.
///
/// Input: [`handle_frame`](Self::handle_frame),
/// [`set_shape`](Self::set_shape). Output:
/// [`poll_transmit`](Self::poll_transmit), to be called until it gives
/// nothing; then [`next_due`](Self::next_due) gives the time of the next call.
#[derive(Debug)]
pub struct Direction {
    shape: LinkShape,
    delay: Duration,
    jitter: Duration,
    bottleneck: Bottleneck,
    losses: Losses,
    random: Rng,
    in_flight: VecDeque<Transmit>,
    /// When the frame that left last was due.
    last_due: Option<Instant>,
    counters: Counters,
}

/// A frame whose time has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transmit {
    /// When it should leave.
    pub due: Instant,
    /// virtio-net header and packet.
    pub frame: Vec<u8>,
}

/// Counts of packets by outcome, in segments on the wire.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Segments that came in.
    pub segments: u64,
    /// Their bytes, IP headers included.
    pub bytes: u64,
    /// Segments dropped because the queue was full.
    pub dropped: u64,
    /// Segments lost behind the bottleneck, at random or for their length.
    pub lost: u64,
    /// The fullest the queue has been, in bytes.
    pub queue_peak: u64,
}

impl Direction {
    /// A direction of a link of this shape, empty. The same seed and the same
    /// packets give the same losses and delays.
    pub fn new(shape: &LinkShape, seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        Self {
            shape: *shape,
            delay: shape.delay.duration(),
            jitter: shape.jitter.duration(),
            bottleneck: Bottleneck::new(shape.rate, shape.queue),
            losses: Losses::new(shape.loss, &mut random),
            random,
            in_flight: VecDeque::new(),
            last_due: None,
            counters: Counters::default(),
        }
    }

    /// Changes what happens to packets that come from here on. Those that
    /// have passed the queue keep their time, also where that makes later
    /// ones wait; a queue that became shorter keeps what it holds.
    pub(crate) fn set_shape(&mut self, shape: &LinkShape) {
        self.shape = *shape;
        self.delay = shape.delay.duration();
        self.jitter = shape.jitter.duration();
        self.bottleneck.set(shape.rate, shape.queue);
        self.losses.set(shape.loss, &mut self.random);
    }

    /// What is done to packets that come at the moment.
    pub fn shape(&self) -> LinkShape {
        self.shape
    }

    /// Counters since the start.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// When the next frame is due.
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

    /// The next frame that is due at `now`.
    pub(crate) fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        if self.next_due()? > now { None } else { self.in_flight.pop_front() }
    }

    fn send(&mut self, departure: Instant, frame: Vec<u8>) {
        let due = departure + self.way();
        let due = self.last_due.map_or(due, |last| last.max(due));
        self.last_due = Some(due);
        self.in_flight.push_back(Transmit { due, frame });
    }

    /// How long a frame takes from the bottleneck to the other end.
    fn way(&mut self) -> Duration {
        if self.jitter.is_zero() {
            return self.delay;
        }
        let spread = (2 * self.jitter).as_nanos() as u64;
        let more = Duration::from_nanos(self.random.u64(0..=spread));
        (self.delay + more).saturating_sub(self.jitter)
    }

    /// Sends segments one by one through the bottleneck and groups those that
    /// leave it close together.
    fn admit_segments(&mut self, found: &packet::SuperPacket, now: Instant) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for segment in 0..found.count() {
            let Some(departure) = self.admit(found.wire_length(segment), now) else { continue };
            match groups.last_mut() {
                Some(group) if group.segments.end == segment && departure - group.first <= QUANTUM => {
                    group.segments.end = segment + 1;
                    group.last = departure;
                }
                _ => groups.push(Group { segments: segment..segment + 1, first: departure, last: departure }),
            }
        }
        groups
    }

    /// When a packet of `length` bytes sent at `now` has left the bottleneck;
    /// none if it was dropped or lost.
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

/// Consecutive segments that travel together.
struct Group {
    segments: std::ops::Range<usize>,
    /// When the first of them left the bottleneck.
    first: Instant,
    /// When the last of them did.
    last: Instant,
}

#[cfg(test)]
mod tests;
