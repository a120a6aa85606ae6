//! The trunk: its frames, and one end of it whose peer sends whatever it likes.

use std::time::{Duration, Instant};

use bytes::Bytes;
use isthmus_trunk::frame::MAX_FRAME;
use isthmus_trunk::{
    CarrierId, Config, Congestion, Direction, Event, Frame, Hello, MAX_UNDER_WAY, Measured, Purpose, Reason,
    Role, Scope, StreamId, Trunk, TrunkId,
};

/// Frames of trunks: what is read means the same when written and read again.
pub fn trunk_frame(bytes: &[u8]) {
    let _ = Hello::peek(bytes);
    let mut rest = Bytes::copy_from_slice(bytes);
    while let Ok(Some(frame)) = Frame::decode(&mut rest) {
        let mut again = Bytes::from(frame.encode().to_vec());
        assert!(again.len() <= MAX_FRAME);
        assert_eq!(Frame::decode(&mut again), Ok(Some(frame)));
    }
}

/// An end of a trunk: each byte of the input is a step or a part of one. Nothing panics, and what
/// the end holds stays within its bounds.
pub fn trunk(bytes: &[u8]) {
    let mut steps = Steps(bytes);
    let mut end = TrunkEnd::new();
    while let Some(step) = steps.byte() {
        end.step(step, &mut steps);
        end.check();
    }
}

/// The part of the input that hasn't been read.
struct Steps<'a>(&'a [u8]);

impl Steps<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// Reads a number. It is mostly small, but may be of any size.
    fn number(&mut self) -> u64 {
        match self.byte().unwrap_or_default() {
            small @ 0..0xe0 => small.into(),
            large => u64::MAX >> ((large & 0x1f) * 2) | 1,
        }
    }

    fn flag(&mut self) -> bool {
        self.byte().is_some_and(|byte| byte & 1 == 1)
    }
}

struct TrunkEnd {
    trunk: Trunk,
    config: Config,
    now: Instant,
    carriers: Vec<CarrierId>,
    streams: Vec<StreamId>,
}

impl TrunkEnd {
    fn new() -> Self {
        let config = Config {
            initial_credit: 500,
            receive_pool: 3000,
            max_streams: 20,
            max_carriers: 4,
            send_memory: 2000,
            ..Config::new(Role::Acceptor, TrunkId([7; 16]))
        };
        let now = Instant::now();
        Self { trunk: Trunk::new(config), config, now, carriers: Vec::new(), streams: Vec::new() }
    }

    fn step(&mut self, step: u8, steps: &mut Steps) {
        match step % 8 {
            0 => self.carriers.extend(self.trunk.carrier_joined(self.now)),
            1..=3 => {
                let carrier = self.carrier(steps);
                let frame = frame(steps).encode().to_vec();
                self.trunk.receive(carrier, frame.into(), self.now);
            }
            4 => {
                let carrier = self.carrier(steps);
                let count = usize::from(steps.byte().unwrap_or_default()).min(steps.0.len());
                let (raw, rest) = steps.0.split_at(count);
                steps.0 = rest;
                self.trunk.receive(carrier, Bytes::copy_from_slice(raw), self.now);
            }
            5 => self.command(steps),
            6 => {
                self.now += Duration::from_millis(steps.number().min(20_000));
                self.trunk.on_deadline(self.now);
            }
            _ => {
                let carrier = self.carrier(steps);
                let mut record = Vec::new();
                let length = self.trunk.fill(carrier, &mut record, MAX_FRAME, self.now);
                assert!(length == record.len() && length <= MAX_FRAME);
            }
        }
        while let Some(event) = self.trunk.poll_event() {
            match event {
                Event::Opened(stream) => self.streams.push(stream),
                Event::CarrierDone(carrier, _) => {
                    let _ = self.trunk.poll_transmit(carrier, MAX_FRAME, self.now);
                    self.trunk.carrier_ended(carrier);
                }
                _ => {}
            }
        }
    }

    fn carrier(&self, steps: &mut Steps) -> CarrierId {
        let pick = usize::from(steps.byte().unwrap_or_default());
        self.carriers.get(pick % self.carriers.len().max(1)).copied().unwrap_or(CarrierId(0))
    }

    fn command(&mut self, steps: &mut Steps) {
        let command = steps.byte().unwrap_or_default() % 11;
        if command == 0 {
            self.streams.extend(self.trunk.open());
        }
        let pick = usize::from(steps.byte().unwrap_or_default());
        let Some(&stream) = self.streams.get(pick % self.streams.len().max(1)) else { return };
        match command {
            1 => {
                let mut data = Bytes::from(vec![command; steps.number().min(1000) as usize]);
                let _ = self.trunk.write(stream, &mut data);
            }
            2 => ignore(self.trunk.finish(stream)),
            3 => ignore(self.trunk.reset(stream, Direction::ToPeer, 1)),
            4 => ignore(self.trunk.reset(stream, Direction::FromPeer, 2)),
            5 => ignore(self.trunk.read(stream, steps.number() as usize, self.now)),
            6 => self.trunk.leave(self.carrier(steps), self.now),
            7 => self.trunk.carrier_ended(self.carrier(steps)),
            8 => {
                let measured = Measured {
                    rtt: Some(Duration::from_micros(steps.number())),
                    min_rtt: Some(Duration::from_micros(steps.number())),
                    bytes_per_second: Some(steps.number()),
                    app_limited: steps.flag(),
                    unsent: Some(steps.number()),
                    held_back: steps.flag(),
                };
                self.trunk.carrier_measured(self.carrier(steps), measured, self.now);
            }
            10 => self.trunk.prime(self.carrier(steps)),
            9 => self.carriers.extend(self.trunk.carrier_joined_for(Purpose::Small, self.now)),
            _ => {}
        }
    }

    fn check(&self) {
        let (status, config) = (self.trunk.status(), &self.config);
        let streams = status.streams as u64;
        assert!(status.held <= config.send_memory + streams * config.send_reserve, "{status:?}");
        assert!(
            status.unread <= streams * u64::from(config.initial_credit) + config.receive_pool,
            "{status:?}"
        );
        assert!(status.promised <= config.receive_pool && status.holes <= MAX_UNDER_WAY, "{status:?}");
        let _ = self.trunk.next_deadline();
    }
}

/// Ignores the result of a command, which may be refused.
fn ignore<T, E>(_: Result<T, E>) {}

/// Reads a frame as a peer may send it.
fn frame(steps: &mut Steps) -> Frame {
    let kind = steps.byte().unwrap_or_default() % 12;
    let stream = StreamId(if kind == 0 { 0 } else { steps.number() });
    match kind {
        0 => Frame::Hello(Hello {
            role: Role::Initiator,
            standing: steps.flag(),
            lowest: 1,
            highest: 1,
            trunk: TrunkId([7; 16]),
            carrier: 0,
            purpose: if steps.flag() { Purpose::Small } else { Purpose::Bulk },
            congestion: if steps.flag() { Congestion::Bbr } else { Congestion::Other },
            credit: 1000,
            streams: 10,
            incarnation: None,
            addresses: isthmus_trunk::Addresses::default(),
        }),
        1 => Frame::Open { stream },
        2..=4 => {
            let length = steps.byte().unwrap_or_default().max(1);
            let payload = vec![kind; length.into()].into();
            Frame::Data { stream, offset: steps.number(), end: kind == 4, payload }
        }
        5 => Frame::Data { stream, offset: steps.number(), end: true, payload: Bytes::new() },
        6 => Frame::Credit { stream, limit: steps.number().saturating_mul(16) },
        7 => Frame::Streams { limit: stream.0 },
        8 => Frame::Reset { stream, stop: steps.flag(), code: 3, offset: steps.number() },
        9 => Frame::Ack { carrier: stream.0 as u32, frames: steps.number() },
        10 => Frame::Ping { answer: steps.flag(), nonce: stream.0, carriers: steps.number() as u8 },
        _ => {
            let scope = if steps.flag() { Scope::Trunk } else { Scope::Carrier };
            Frame::Close { scope, reason: Reason::from_code(stream.0 as u16), text: "over".into() }
        }
    }
}
