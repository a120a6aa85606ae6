//! Minutes of a trunk's life: streams come and go, carriers are cut again and again,
//! noticed by both ends, one, or none, and dialed anew.

use std::collections::BTreeMap;
use std::time::Duration;

use isthmus_trunk::{Config, Event, PING_BUSY, Read, Role, SILENCE, StreamId};

use crate::common::{self, A, Pair, SIDES, bytes_of, config};

const MS: Duration = Duration::from_millis(1);

/// Random numbers by xorshift64: the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// What one direction of a stream has still to carry, and has carried.
#[derive(Clone, Copy)]
struct Direction {
    length: u64,
    written: u64,
    read: u64,
    ended: bool,
}

struct Life {
    pair: Pair,
    numbers: Numbers,
    streams: BTreeMap<StreamId, [Direction; 2]>,
    over: u64,
    bytes: u64,
}

impl Life {
    fn new(seed: u64) -> Self {
        let bounds =
            |role| Config { receive_pool: 1 << 20, send_memory: 1 << 20, max_streams: 30, ..config(role) };
        let pair = Pair::with([bounds(Role::Initiator), bounds(Role::Acceptor)]);
        let mut life = Self { pair, numbers: Numbers(seed), streams: BTreeMap::new(), over: 0, bytes: 0 };
        life.pair.join();
        life.pair.run(100 * MS);
        life
    }

    /// Opens a new stream, mostly a short one.
    fn open(&mut self, side: usize) {
        let Ok(stream) = self.pair.ends[side].open() else { return };
        let longest = [100, 5000, 300_000][self.numbers.below(3) as usize];
        let mut direction =
            || Direction { length: self.numbers.below(longest), written: 0, read: 0, ended: false };
        self.streams.insert(stream, [direction(), direction()]);
    }

    fn write(&mut self, side: usize, stream: StreamId) {
        let direction = &mut self.streams.get_mut(&stream).unwrap()[side];
        while direction.written < direction.length {
            let length = (direction.length - direction.written).min(50_000) as usize;
            let mut data = bytes_of(stream, side, direction.written, length);
            match self.pair.ends[side].write(stream, &mut data) {
                Ok(0) | Err(_) => return,
                Ok(taken) => direction.written += taken as u64,
            }
        }
        let _ = self.pair.ends[side].finish(stream);
    }

    fn read(&mut self, side: usize, stream: StreamId) {
        let direction = &mut self.streams.get_mut(&stream).unwrap()[1 - side];
        while !direction.ended {
            match self.pair.ends[side].read(stream, usize::MAX, self.pair.now) {
                Ok(Read::Data(bytes)) => {
                    assert_eq!(bytes, bytes_of(stream, 1 - side, direction.read, bytes.len()));
                    direction.read += bytes.len() as u64;
                    self.bytes += bytes.len() as u64;
                }
                Ok(Read::End) => direction.ended = true,
                // It isn't known at this end yet.
                Ok(Read::Blocked) | Err(_) => return,
                Ok(Read::Reset(_)) => panic!("{stream} is reset"),
            }
        }
        assert_eq!(direction.read, direction.length);
    }

    fn use_streams(&mut self) {
        for stream in self.streams.keys().copied().collect::<Vec<_>>() {
            for side in SIDES {
                // The peer's end writes once it knows the stream.
                if self.pair.ends[side].poll_room(stream).is_ok() {
                    self.write(side, stream);
                }
                self.read(side, stream);
            }
        }
        let before = self.streams.len();
        self.streams.retain(|_, directions| !directions.iter().all(|direction| direction.ended));
        self.over += (before - self.streams.len()) as u64;
    }

    /// Cuts a carrier in the network. Which ends notice is chance.
    fn cut(&mut self) {
        let pipe = self.pair.pipes.len() - 1;
        let kept = [self.numbers.below(40_000) as usize, self.numbers.below(40_000) as usize];
        self.pair.cut(pipe, kept);
        for side in SIDES {
            if self.numbers.below(2) == 0 {
                self.pair.notice(side, pipe);
            }
        }
    }

    /// Does what an embedding does: dials when a carrier is silent or gone, and ends the silent one
    /// when the new one is live.
    fn dial(&mut self) {
        let none = SIDES.iter().all(|side| self.pair.ends[*side].status().live == 0);
        if none && self.numbers.below(4) == 0 {
            self.pair.join();
        }
        for side in SIDES {
            for event in std::mem::take(&mut self.pair.events[side]) {
                match event {
                    Event::CarrierLive(live) => {
                        let old = |pipe: &common::Pipe| pipe.ids[side].is_some_and(|id| id < live);
                        let old: Vec<usize> =
                            (0..self.pair.pipes.len()).filter(|pipe| old(&self.pair.pipes[*pipe])).collect();
                        for pipe in old {
                            self.pair.notice(side, pipe);
                        }
                    }
                    Event::Closed(why) => panic!("{side}: {why:?}"),
                    _ => {}
                }
            }
        }
    }

    /// Lets time pass, in which streams are used and carriers are cut.
    fn live(&mut self, time: Duration, cut_every: u64) {
        let until = self.pair.now + time;
        while self.pair.now < until {
            self.pair.run(20 * MS);
            self.use_streams();
            for side in SIDES {
                if self.numbers.below(8) == 0 {
                    self.open(side);
                }
            }
            if self.numbers.below(cut_every) == 0 {
                self.cut();
            }
            self.dial();
        }
    }
}

#[test]
fn minutes_of_cuts_lose_nothing() {
    for seed in [1, 2] {
        let mut life = Life::new(seed);
        life.live(Duration::from_secs(120), 100);
        let (over, cut) = (life.over, life.pair.pipes.len());
        assert!(over > 100 && cut > 15, "{over} streams, {cut} carriers");
        // Without cuts all come to their ends.
        for _ in 0..500 {
            life.pair.run(20 * MS);
            life.use_streams();
            life.dial();
        }
        assert!(life.streams.is_empty(), "{} streams are left", life.streams.len());
        for side in SIDES {
            let status = life.pair.ends[side].status();
            assert_eq!((status.streams, status.held, status.unread, status.holes), (0, 0, 0, 0));
        }
    }
}

#[test]
fn a_cut_that_nobody_notices_pauses_streams_no_longer_than_stated() {
    let mut pair = Pair::standing();
    pair.join();
    pair.run(1000 * MS);
    let stream = pair.ends[A].open().unwrap();
    let (mut last, mut longest, mut read) = (pair.now, Duration::ZERO, 0);
    for round in 0..1000 {
        if round == 200 {
            pair.cut(0, [0, 0]);
        }
        pair.ends[A].write(stream, &mut bytes_of(stream, A, 0, 10_000)).unwrap();
        pair.run(10 * MS);
        let got = pair.read(1 - A, stream).len();
        read += got;
        if got > 0 {
            longest = longest.max(pair.now - last);
            last = pair.now;
        }
    }
    assert!(read > 5_000_000 && pair.now - last < 50 * MS, "{read} bytes");
    // A round trip takes 10 ms, and a frame's way another 5.
    assert!(longest <= PING_BUSY + SILENCE + 60 * MS, "{longest:?}");
    assert!(longest >= SILENCE, "the cut did not matter: {longest:?}");
}
