//! One end of a trunk, whose peer the test plays frame by frame.

use std::time::Instant;

use bytes::Bytes;
use isthmus_trunk::frame::MAX_FRAME;
use isthmus_trunk::{CarrierId, Config, Event, Frame, Hello, Purpose, Role, StreamId, Trunk, TrunkId};

use super::{bytes_of, config};

/// A trunk's acceptor, whose peer the test plays frame by frame.
pub struct Played {
    pub trunk: Trunk,
    pub carrier: CarrierId,
    pub now: Instant,
}

pub fn hello() -> Hello {
    let trunk = TrunkId([7; 16]);
    let role = Role::Initiator;
    Hello {
        role,
        standing: false,
        lowest: 1,
        highest: 3,
        trunk,
        carrier: 5,
        purpose: Purpose::Bulk,
        congestion: isthmus_trunk::Congestion::Other,
        credit: 1000,
        streams: 10,
        incarnation: None,
        addresses: isthmus_trunk::Addresses::default(),
    }
}

impl Played {
    pub fn fresh(config: Config) -> Self {
        let (mut trunk, now) = (Trunk::new(config), Instant::now());
        let carrier = trunk.carrier_joined(now).unwrap();
        Self { trunk, carrier, now }
    }

    /// A trunk with HELLO from both ends, and one stream that this end has opened: id 1.
    pub fn standing(config: Config) -> Self {
        let mut played = Self::fresh(config);
        played.send(Frame::Hello(hello()));
        played.trunk.open().unwrap();
        played.sent();
        played
    }

    pub fn send(&mut self, frame: Frame) {
        self.trunk.receive(self.carrier, frame.encode().to_vec().into(), self.now);
    }

    /// The frames that the trunk sends now.
    pub fn sent(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.trunk.poll_transmit(self.carrier, MAX_FRAME, self.now) {
            frames.push(Frame::decode(&mut frame.to_vec().into()).unwrap().unwrap());
        }
        frames
    }

    pub fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.trunk.poll_event()).collect()
    }
}

pub fn small() -> Config {
    Config { initial_credit: 100, max_streams: 4, ..config(Role::Acceptor) }
}

/// The id of a stream that the peer opens.
pub const THEIRS: StreamId = StreamId(0);
/// The id of the stream that this end has opened.
pub const OWN: StreamId = StreamId(1);

pub fn data(offset: u64, length: usize) -> Frame {
    Frame::Data { stream: THEIRS, offset, end: false, payload: bytes_of(THEIRS, 0, offset, length) }
}

pub fn end(offset: u64) -> Frame {
    Frame::Data { stream: THEIRS, offset, end: true, payload: Bytes::new() }
}

pub fn reset(offset: u64) -> Frame {
    Frame::Reset { stream: THEIRS, stop: false, code: 1, offset }
}

pub fn stop(stream: StreamId) -> Frame {
    Frame::Reset { stream, stop: true, code: 2, offset: 0 }
}
