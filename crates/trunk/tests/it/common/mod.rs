//! Two ends of a trunk in memory, over pipes that can be cut, and a clock that the test
//! moves.
#![allow(dead_code, reason = "no test uses all of it")]
#![allow(unreachable_pub, reason = "each test is a crate of its own")]

pub mod links;
pub mod ops;
pub mod played;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use isthmus_trunk::frame::MAX_FRAME;
use isthmus_trunk::{CarrierId, Config, Ended, Event, Purpose, Role, StreamId, Trunk, TrunkId};

/// The end that made the trunk. `B` is the other.
pub const A: usize = 0;
pub const B: usize = 1;
pub const SIDES: [usize; 2] = [A, B];

pub fn config(role: Role) -> Config {
    Config::new(role, TrunkId([7; 16]))
}

/// One direction of a pipe.
#[derive(Debug, Default)]
pub struct Half {
    /// Bytes under way, each piece with the time at which it arrives.
    pub queue: VecDeque<(Instant, Bytes)>,
    /// Whether what is written vanishes.
    pub swallows: bool,
    /// Whether what is written waits until this is taken back.
    pub stalls: bool,
    /// The longest frame that passes. A longer one vanishes, and all that is written behind it.
    pub passes: Option<usize>,
}

impl Half {
    fn put(&mut self, at: Instant, bytes: Vec<u8>) {
        self.swallows |= self.passes.is_some_and(|most| bytes.len() > most);
        if !self.swallows {
            self.queue.push_back((at, bytes.into()));
        }
    }

    /// How many bytes are under way.
    pub fn len(&self) -> usize {
        self.queue.iter().map(|(_, bytes)| bytes.len()).sum()
    }

    /// Takes up to `count` bytes that are under way, in one piece.
    pub fn take(&mut self, count: usize) -> Bytes {
        let Some((_, front)) = self.queue.front_mut() else { return Bytes::new() };
        let taken = front.split_to(count.min(front.len()));
        if front.is_empty() {
            self.queue.pop_front();
        }
        taken
    }
}

/// A carrier's pipe with its ids at both ends; `None` for an end that has ended the carrier.
#[derive(Debug)]
pub struct Pipe {
    pub ids: [Option<CarrierId>; 2],
    /// The pipe's directions, by the end that writes.
    pub halves: [Half; 2],
}

#[derive(Debug)]
pub struct Pair {
    pub ends: [Trunk; 2],
    pub pipes: Vec<Pipe>,
    pub now: Instant,
    pub latency: Duration,
    /// Events that no test has taken.
    pub events: [VecDeque<Event>; 2],
    /// How many frames of the largest size a carrier takes per step.
    pub burst: usize,
}

impl Pair {
    pub fn new() -> Self {
        Self::with([config(Role::Initiator), config(Role::Acceptor)])
    }

    pub fn with(configs: [Config; 2]) -> Self {
        Self {
            ends: configs.map(Trunk::new),
            pipes: Vec::new(),
            now: Instant::now(),
            latency: Duration::from_millis(5),
            events: Default::default(),
            burst: 64,
        }
    }

    /// Two ends with a carrier over which both have heard HELLO.
    pub fn standing() -> Self {
        let mut pair = Self::new();
        pair.join();
        pair.run(Duration::from_millis(100));
        pair
    }

    pub fn join(&mut self) -> usize {
        self.join_for(Purpose::Bulk)
    }

    /// Joins a carrier that end A has dialed for a purpose.
    pub fn join_for(&mut self, purpose: Purpose) -> usize {
        let ids = [
            Some(self.ends[A].carrier_joined_for(purpose, self.now).unwrap()),
            Some(self.ends[B].carrier_joined(self.now).unwrap()),
        ];
        self.pipes.push(Pipe { ids, halves: Default::default() });
        self.pipes.len() - 1
    }

    /// Takes all events of both ends.
    pub fn collect(&mut self) {
        for side in SIDES {
            while let Some(event) = self.ends[side].poll_event() {
                if let Event::CarrierDone(id, _) = event {
                    self.last_words(side, id);
                    self.end_carrier(side, id);
                }
                self.events[side].push_back(event);
            }
        }
    }

    /// Writes what a carrier that is done still has to say.
    fn last_words(&mut self, side: usize, id: CarrierId) {
        let (now, latency) = (self.now, self.latency);
        while let Some(frame) = self.ends[side].poll_transmit(id, MAX_FRAME, now) {
            if let Some(pipe) = self.pipes.iter_mut().find(|pipe| pipe.ids[side] == Some(id)) {
                pipe.halves[side].put(now + latency, frame.to_vec());
            }
        }
    }

    fn end_carrier(&mut self, side: usize, id: CarrierId) {
        self.ends[side].carrier_ended(id);
        for pipe in &mut self.pipes {
            if pipe.ids[side] == Some(id) {
                pipe.ids[side] = None;
            }
        }
    }

    /// Has one end notice that a pipe is gone.
    pub fn notice(&mut self, side: usize, pipe: usize) {
        if let Some(id) = self.pipes[pipe].ids[side].take() {
            self.ends[side].carrier_ended(id);
        }
    }

    /// Cuts a pipe: of what is under way, so many bytes of each direction still arrive.
    /// Nobody notices yet.
    pub fn cut(&mut self, pipe: usize, kept: [usize; 2]) {
        for side in SIDES {
            self.pipes[pipe].halves[side].stalls = false;
            self.deliver(side, pipe, kept[side]);
            let half = &mut self.pipes[pipe].halves[side];
            half.queue.clear();
            half.swallows = true;
        }
    }

    /// Cuts a pipe at once, and both ends notice.
    pub fn cut_noticed(&mut self, pipe: usize) {
        self.cut(pipe, [0, 0]);
        for side in SIDES {
            self.notice(side, pipe);
        }
    }

    /// Writes up to `frames` frames of one end into a pipe.
    pub fn transmit(&mut self, side: usize, pipe: usize, room: usize, frames: usize) -> usize {
        let Some(id) = self.pipes[pipe].ids[side] else { return 0 };
        let arrives = self.now + self.latency;
        let mut sent = 0;
        while sent < frames
            && let Some(frame) = self.ends[side].poll_transmit(id, room, self.now)
        {
            self.pipes[pipe].halves[side].put(arrives, frame.to_vec());
            sent += 1;
        }
        sent
    }

    /// Hands up to `count` bytes that `side` has written to the other end.
    pub fn deliver(&mut self, side: usize, pipe: usize, count: usize) -> usize {
        let mut left = count;
        while left > 0 && !self.pipes[pipe].halves[side].stalls {
            let bytes = self.pipes[pipe].halves[side].take(left);
            if bytes.is_empty() {
                break;
            }
            left -= bytes.len();
            if let Some(id) = self.pipes[pipe].ids[1 - side] {
                self.ends[1 - side].receive(id, bytes, self.now);
            }
        }
        count - left
    }

    /// Moves all that has arrived by now, lets both ends send what they can, and does what is due.
    /// Returns `false` if nothing happened.
    pub fn step(&mut self) -> bool {
        let mut moved = false;
        for pipe in 0..self.pipes.len() {
            for side in SIDES {
                while let Some((at, bytes)) = self.pipes[pipe].halves[side].queue.front()
                    && *at <= self.now
                    && !self.pipes[pipe].halves[side].stalls
                {
                    let count = bytes.len();
                    self.deliver(side, pipe, count);
                    moved = true;
                }
            }
        }
        for side in SIDES {
            if self.ends[side].next_deadline().is_some_and(|deadline| deadline <= self.now) {
                self.ends[side].on_deadline(self.now);
                moved = true;
            }
            for pipe in 0..self.pipes.len() {
                moved |= self.transmit(side, pipe, MAX_FRAME, self.burst) > 0;
            }
        }
        self.collect();
        moved
    }

    /// When the next thing happens by itself.
    pub fn next(&self) -> Option<Instant> {
        let deadlines = self.ends.iter().filter_map(Trunk::next_deadline);
        let halves = self.pipes.iter().flat_map(|pipe| &pipe.halves).filter(|half| !half.stalls);
        let arrivals = halves.filter_map(|half| half.queue.front().map(|(at, _)| *at));
        deadlines.chain(arrivals).min()
    }

    /// Lets time pass, with all that happens in it.
    pub fn run(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            let mut steps = 0;
            while self.step() {
                steps += 1;
                assert!(steps < 100_000, "no end at {:?}", self.now);
            }
            match self.next() {
                Some(next) if next < until => self.now = next.max(self.now),
                _ => break,
            }
        }
        self.now = until;
    }

    /// Writes all of `data`, as far as there is room. Returns how much that was.
    pub fn write(&mut self, side: usize, stream: StreamId, data: impl Into<Bytes>) -> usize {
        self.ends[side].write(stream, &mut data.into()).unwrap()
    }

    /// Reads all that a stream has.
    pub fn read(&mut self, side: usize, stream: StreamId) -> Vec<u8> {
        let mut out = Vec::new();
        while let Ok(isthmus_trunk::Read::Data(bytes)) = self.ends[side].read(stream, usize::MAX, self.now) {
            out.extend_from_slice(&bytes);
        }
        out
    }

    /// Whether an event has come. Takes it with all before it.
    pub fn saw(&mut self, side: usize, event: &Event) -> bool {
        let found = self.events[side].iter().position(|seen| seen == event);
        found.is_some_and(|index| self.events[side].drain(..=index).count() > 0)
    }

    /// Why an end's trunk has ended.
    pub fn closed(&self, side: usize) -> Option<&Ended> {
        self.events[side].iter().find_map(|event| match event {
            Event::Closed(why) => Some(why),
            _ => None,
        })
    }
}

/// The byte of a stream's direction at an offset.
pub fn content(stream: StreamId, from: usize, offset: u64) -> u8 {
    (offset.wrapping_mul(31) ^ (offset >> 8) ^ stream.0.wrapping_mul(17) ^ (from as u64) << 7) as u8
}

/// A range of a direction's bytes.
pub fn bytes_of(stream: StreamId, from: usize, offset: u64, length: usize) -> Bytes {
    (0..length as u64).map(|index| content(stream, from, offset.wrapping_add(index))).collect()
}
