//! Streams over carriers that are cut, stalled, silenced and joined at any moment,
//! against plain byte strings.

use std::collections::BTreeMap;
use std::time::Duration;

use isthmus_trunk::{Config, Direction, Event, Measured, Purpose, Read, Role, StreamError, StreamId};
use proptest::prelude::*;

use crate::common::ops::{Op, ROOMS, Small, op, small};
use crate::common::{A, B, Pair, SIDES, bytes_of};

/// What one direction of a stream should carry, and how it should end.
#[derive(Debug, Default)]
struct Plain {
    written: u64,
    finished: bool,
    /// Whether its sender has reset it.
    reset: bool,
    /// Whether its receiver has reset it.
    stopped: bool,
    read: u64,
    /// Whether the receiver has got its end.
    over: bool,
    /// Whether the sender has learned that it was stopped.
    told: bool,
}

struct Model {
    pair: Pair,
    configs: [Config; 2],
    /// What the directions of each stream should carry, by the end that sends.
    plain: BTreeMap<StreamId, [Plain; 2]>,
    /// The streams that each end knows of.
    known: [Vec<StreamId>; 2],
}

impl Model {
    fn new(small: &Small) -> Self {
        let configs = [Role::Initiator, Role::Acceptor].map(|role| small.config(role));
        let mut model =
            Self { pair: Pair::with(configs), configs, plain: BTreeMap::new(), known: Default::default() };
        model.pair.join();
        model.pair.run(Duration::from_millis(50));
        model.look();
        model
    }

    /// Takes events, and checks what must hold at any moment.
    fn look(&mut self) {
        self.pair.collect();
        for side in SIDES {
            for event in std::mem::take(&mut self.pair.events[side]) {
                match event {
                    Event::Opened(stream) => self.known[side].push(stream),
                    Event::Closed(why) => panic!("{side} closed: {why:?}"),
                    Event::Reset(stream, code) => {
                        assert!(self.plain[&stream][1 - side].reset);
                        assert_eq!(code, 40 + (1 - side) as u32);
                    }
                    Event::Stopped(stream, code) => {
                        let plain = &mut self.plain.get_mut(&stream).unwrap()[side];
                        assert!(plain.stopped);
                        plain.told = true;
                        assert_eq!(code, 50 + (1 - side) as u32);
                    }
                    _ => {}
                }
            }
            let (status, config) = (self.pair.ends[side].status(), &self.configs[side]);
            let streams = status.streams as u64;
            assert!(status.held <= config.send_memory + streams * config.send_reserve, "{status:?}");
            assert!(status.unread <= streams * u64::from(config.initial_credit) + config.receive_pool);
            assert!(status.promised <= config.receive_pool, "{status:?}");
        }
    }

    fn pick(&self, side: usize, pick: usize) -> Option<StreamId> {
        let known = &self.known[side];
        (!known.is_empty()).then(|| known[pick % known.len()])
    }

    fn pipe(&self, pick: usize) -> usize {
        // The youngest ones: the others have ended mostly.
        self.pair.pipes.len() - 1 - pick % self.pair.pipes.len().min(4)
    }

    fn write(&mut self, side: usize, stream: StreamId, length: usize) {
        let plain = &mut self.plain.get_mut(&stream).unwrap()[side];
        let mut data = bytes_of(stream, side, plain.written, length);
        match self.pair.ends[side].write(stream, &mut data) {
            Ok(taken) => {
                assert!(!plain.finished && !plain.reset && taken + data.len() == length);
                plain.written += taken as u64;
            }
            Err(StreamError::Ended) => assert!(plain.finished || plain.reset),
            Err(StreamError::Stopped(_)) => assert!(plain.stopped),
            Err(StreamError::Gone) => assert!(plain.finished || plain.reset || plain.stopped),
        }
    }

    fn read(&mut self, side: usize, stream: StreamId, max: usize) -> bool {
        let plain = &mut self.plain.get_mut(&stream).unwrap()[1 - side];
        match self.pair.ends[side].read(stream, max, self.pair.now) {
            Ok(Read::Data(bytes)) => {
                assert!(bytes.len() <= max && !plain.over && !plain.stopped);
                assert_eq!(bytes, bytes_of(stream, 1 - side, plain.read, bytes.len()));
                plain.read += bytes.len() as u64;
                assert!(plain.read <= plain.written);
                return true;
            }
            Ok(Read::Blocked) => assert!(!plain.over),
            Ok(Read::End) => {
                assert!(plain.finished && plain.read == plain.written && !plain.over);
                plain.over = true;
            }
            Ok(Read::Reset(code)) => {
                assert!(plain.reset && !plain.over && code == 40 + (1 - side) as u32);
                plain.over = true;
            }
            Err(StreamError::Ended | StreamError::Gone) => assert!(plain.over || plain.stopped),
            Err(error) => panic!("{error}"),
        }
        false
    }

    fn finish(&mut self, side: usize, stream: StreamId) {
        if self.pair.ends[side].finish(stream).is_ok() {
            self.plain.get_mut(&stream).unwrap()[side].finished = true;
        }
    }

    fn reset(&mut self, side: usize, stream: StreamId, to_peer: bool) {
        let plain = self.plain.get_mut(&stream).unwrap();
        let (direction, code) = match to_peer {
            true => (Direction::ToPeer, 40),
            false => (Direction::FromPeer, 50),
        };
        if self.pair.ends[side].reset(stream, direction, code + side as u32).is_ok() {
            match to_peer {
                true => plain[side].reset = true,
                false => plain[1 - side].stopped |= !plain[1 - side].over,
            }
        }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Open(side) => {
                if let Ok(stream) = self.pair.ends[side].open() {
                    self.plain.insert(stream, Default::default());
                    self.known[side].push(stream);
                }
            }
            Op::Write(side, pick, length) => {
                if let Some(stream) = self.pick(side, pick) {
                    self.write(side, stream, length);
                }
            }
            Op::Finish(side, pick) => {
                if let Some(stream) = self.pick(side, pick) {
                    self.finish(side, stream);
                }
            }
            Op::Reset(side, pick, to_peer) => {
                if let Some(stream) = self.pick(side, pick) {
                    self.reset(side, stream, to_peer);
                }
            }
            Op::Read(side, pick, max) => {
                if let Some(stream) = self.pick(side, pick) {
                    self.read(side, stream, max);
                }
            }
            Op::Send(side, pick, room, frames) => {
                self.pair.transmit(side, self.pipe(pick), ROOMS[room], frames);
            }
            Op::Deliver(side, pick, count) => {
                self.pair.deliver(side, self.pipe(pick), count);
            }
            Op::Join(small) => {
                if self.pair.pipes.iter().filter(|pipe| pipe.ids != [None; 2]).count() < 5 {
                    self.pair.join_for(if small { Purpose::Small } else { Purpose::Bulk });
                }
            }
            Op::Measure(side, pick, rtt_ms, rate, unsent) => {
                let measured = Measured {
                    rtt: Some(Duration::from_millis(rtt_ms)),
                    bytes_per_second: Some(rate),
                    unsent: Some(unsent),
                    ..Measured::default()
                };
                if let Some(id) = self.pair.pipes[self.pipe(pick)].ids[side] {
                    self.pair.ends[side].carrier_measured(id, measured, self.pair.now);
                    if unsent < 30_000 {
                        self.pair.ends[side].prime(id);
                    }
                }
            }
            _ => self.disturb(op),
        }
        self.look();
    }

    /// Does to carriers what an operation says.
    fn disturb(&mut self, op: &Op) {
        match *op {
            Op::Cut(pick, kept, notice) => {
                let pipe = self.pipe(pick);
                self.pair.cut(pipe, kept);
                for side in SIDES {
                    if notice[side] {
                        self.pair.notice(side, pipe);
                    }
                }
            }
            Op::Silence(side, pick) => {
                let pipe = self.pipe(pick);
                self.pair.pipes[pipe].halves[side].queue.clear();
                self.pair.pipes[pipe].halves[side].swallows = true;
            }
            Op::Stall(pick) => self.stall(pick, true),
            Op::Resume(pick) => self.stall(pick, false),
            Op::Leave(side, pick) => {
                if let Some(id) = self.pair.pipes[self.pipe(pick)].ids[side] {
                    self.pair.ends[side].leave(id, self.pair.now);
                }
            }
            Op::Wait(ms) => {
                self.pair.now += Duration::from_millis(ms);
                for side in SIDES {
                    self.pair.ends[side].on_deadline(self.pair.now);
                }
            }
            _ => {}
        }
    }

    fn stall(&mut self, pick: usize, stalls: bool) {
        let pipe = self.pipe(pick);
        for half in &mut self.pair.pipes[pipe].halves {
            half.stalls = stalls;
        }
    }

    /// Heals the network: a new carrier works from here on. All that was written must arrive, and
    /// every direction must end as it was ended.
    fn heal(&mut self) {
        self.pair.join_for(if self.pair.pipes.len().is_multiple_of(2) {
            Purpose::Small
        } else {
            Purpose::Bulk
        });
        for round in 0..600 {
            self.pair.run(Duration::from_millis(100));
            self.look();
            for side in SIDES {
                for stream in self.known[side].clone() {
                    while self.read(side, stream, 700) {}
                    let plain = &self.plain[&stream][side];
                    let told = plain.told || !plain.stopped || plain.finished || plain.reset;
                    assert!(told || round < 299, "{stream}: {side} doesn't know that it was stopped");
                    // All is read, so that there is credit for more.
                    let room = self.pair.ends[side].poll_room(stream);
                    assert!(room != Ok(0) || round < 299, "{stream}: {side} has no credit");
                    if round >= 300 {
                        self.finish(side, stream);
                    }
                }
            }
        }
        for (stream, plain) in &self.plain {
            for from in [A, B] {
                let direction = &plain[from];
                assert!(direction.over || direction.stopped, "{stream} from {from}: {direction:?}");
                if direction.finished && !direction.reset && !direction.stopped {
                    assert_eq!(direction.read, direction.written, "{stream} from {from}");
                }
            }
        }
        for side in SIDES {
            let status = self.pair.ends[side].status();
            let nothing =
                (status.streams, status.held, status.unread, status.promised, status.under_way, status.holes);
            assert_eq!(nothing, (0, 0, 0, 0, 0, 0), "end {side}");
            // Others may be opened: all but those for which the limit isn't raised yet.
            let max = self.configs[1 - side].max_streams;
            for _ in 0..=max - (max / 2).max(1) {
                assert!(self.pair.ends[side].open().is_ok(), "end {side}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn streams_are_plain_byte_strings_whatever_happens_to_carriers(
        small in small(), ops in prop::collection::vec(op(), 1..400),
    ) {
        let mut model = Model::new(&small);
        for op in &ops {
            model.apply(op);
        }
        model.heal();
    }
}
