//! The slowest place of a way and the drop-tail queue before it.

use std::collections::VecDeque;
use std::time::Instant;

use crate::grid::{BitRate, ByteSize};

/// A bottleneck, its queue, and the network card that feeds it.
#[derive(Debug)]
pub(super) struct Bottleneck {
    /// Rate of the network card.
    access: BitRate,
    rate: Option<BitRate>,
    queue: ByteSize,
    /// When the network card has sent all that it got. `None` before the first packet.
    card_free: Option<Instant>,
    /// How long the bottleneck is busy with the packets that wait. It works without a pause until
    /// the end of the last stretch, at one rate in each stretch. Several stretches exist only after
    /// the rate has been changed.
    busy: VecDeque<Stretch>,
}

#[derive(Debug)]
struct Stretch {
    until: Instant,
    rate: BitRate,
}

/// What becomes of a packet at the bottleneck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Passage {
    /// The packet leaves the bottleneck at `departure`. With it, the queue held `waiting` bytes.
    Through { departure: Instant, waiting: u64 },
    /// The queue had no room for the packet.
    Dropped,
}

impl Bottleneck {
    /// Makes an idle bottleneck behind a network card with the rate `access`. Without a rate, no
    /// packet waits.
    pub(super) fn new(access: BitRate, rate: Option<BitRate>, queue: ByteSize) -> Self {
        Self { access, rate, queue, card_free: None, busy: VecDeque::new() }
    }

    /// Changes rate and queue. Packets that wait already leave when they would have.
    pub(super) fn set(&mut self, rate: Option<BitRate>, queue: ByteSize) {
        (self.rate, self.queue) = (rate, queue);
    }

    /// Takes a packet of `length` bytes that was sent at `now`, and says what becomes of it.
    pub(super) fn admit(&mut self, length: u64, now: Instant) -> Passage {
        let Some(rate) = self.rate else {
            let departure = self.busy.back().map_or(now, |last| last.until.max(now));
            return Passage::Through { departure, waiting: 0 };
        };
        let arrival = self.card_free.map_or(now, |free| free.max(now)) + self.access.time_for(length);
        self.card_free = Some(arrival);
        let (mut start, mut waiting) = (arrival, length);
        while self.busy.front().is_some_and(|first| first.until <= arrival) {
            self.busy.pop_front();
        }
        for stretch in &self.busy {
            waiting += stretch.rate.bytes_in(stretch.until - start);
            start = stretch.until;
        }
        if waiting > self.queue.0 {
            return Passage::Dropped;
        }
        let departure = start + rate.time_for(length);
        match self.busy.back_mut().filter(|last| last.rate == rate) {
            Some(last) => last.until = departure,
            None => self.busy.push_back(Stretch { until: departure, rate }),
        }
        Passage::Through { departure, waiting }
    }
}
