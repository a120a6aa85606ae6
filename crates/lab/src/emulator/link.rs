//! One direction of a link as a sans-io state machine: frames and the time
//! go in, frames come out when they are due. It does no I/O and reads no
//! clock.
//!
//! What a packet meets, in this order:
//! 1. the sender's own network card: a burst doesn't reach the bottleneck in
//!    no time but at [`ACCESS_RATE`];
//! 2. a drop-tail queue of so many bytes before the bottleneck;
//! 3. the bottleneck, at its rate;
//! 4. the way, with its delay.
//!
//! All of it is judged per segment as on the wire; segments of one
//! super-packet that leave the bottleneck within [`QUANTUM`] travel on
//! together and arrive when the last of them does.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::packet::{self, Shape};
use crate::grid::{BitRate, LinkShape};

/// Rate of the network card before the bottleneck. Without it a 64 KiB burst
/// would arrive at the queue at once, and small queues would drop more than
/// those of a real access link.
pub const ACCESS_RATE: BitRate = BitRate(10_000_000_000);

/// How long a group of segments may take at the bottleneck: the price of
/// carrying them together is that the first of them arrives this much late.
pub const QUANTUM: Duration = Duration::from_micros(250);

/// One direction of a link.
///
/// Input: [`handle_frame`](Self::handle_frame). Output:
/// [`poll_transmit`](Self::poll_transmit), to be called until it gives
/// nothing; then [`next_due`](Self::next_due) says when to call it again.
#[derive(Debug)]
pub struct Direction {
    delay: Duration,
    bottleneck: Option<Bottleneck>,
    in_flight: VecDeque<Transmit>,
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

/// What happened to packets, counted as segments on the wire.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Segments that came in.
    pub segments: u64,
    /// Their bytes, IP headers included.
    pub bytes: u64,
    /// Segments dropped because the queue was full.
    pub dropped: u64,
    /// The fullest the queue has been, in bytes.
    pub queue_peak: u64,
}

#[derive(Debug)]
struct Bottleneck {
    rate: BitRate,
    queue: u64,
    /// When the network card has sent all it got.
    card_free: Option<Instant>,
    /// When the bottleneck has sent all that waits in its queue.
    free: Option<Instant>,
}

impl Direction {
    /// A direction of a link of this shape, empty.
    pub fn new(shape: &LinkShape) -> Self {
        let bottleneck =
            shape.rate.map(|rate| Bottleneck { rate, queue: shape.queue.0, card_free: None, free: None });
        Self {
            delay: shape.delay.duration(),
            bottleneck,
            in_flight: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Counters since the start.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// When the next frame is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.in_flight.front().map(|transmit| transmit.due)
    }

    /// Takes a frame (virtio-net header and packet) that was sent at `now`.
    pub fn handle_frame(&mut self, frame: &[u8], now: Instant) {
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
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        if self.next_due()? > now { None } else { self.in_flight.pop_front() }
    }

    fn send(&mut self, departure: Instant, frame: Vec<u8>) {
        self.in_flight.push_back(Transmit { due: departure + self.delay, frame });
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
    /// none if the queue had no room for it.
    fn admit(&mut self, length: usize, now: Instant) -> Option<Instant> {
        let length = length as u64;
        self.counters.segments += 1;
        self.counters.bytes += length;
        let Some(bottleneck) = &mut self.bottleneck else { return Some(now) };
        let arrival = bottleneck.card_free.map_or(now, |free| free.max(now)) + ACCESS_RATE.time_for(length);
        bottleneck.card_free = Some(arrival);
        let start = bottleneck.free.map_or(arrival, |free| free.max(arrival));
        let waiting = bottleneck.rate.bytes_in(start - arrival) + length;
        if waiting > bottleneck.queue {
            self.counters.dropped += 1;
            return None;
        }
        self.counters.queue_peak = self.counters.queue_peak.max(waiting);
        let departure = start + bottleneck.rate.time_for(length);
        bottleneck.free = Some(departure);
        Some(departure)
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
