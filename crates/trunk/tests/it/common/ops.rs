//! What happens in the model: programs' commands, and what befalls carriers.

use isthmus_trunk::frame::MAX_FRAME;
use isthmus_trunk::{Config, Role};
use proptest::prelude::*;

use super::config;

/// Rooms of sockets; the smallest makes frames of 280 bytes of data.
pub const ROOMS: [usize; 3] = [300, 2000, MAX_FRAME];

#[derive(Debug, Clone)]
pub enum Op {
    Open(usize),
    Write(usize, usize, usize),
    Finish(usize, usize),
    Reset(usize, usize, bool),
    Read(usize, usize, usize),
    /// An end writes frames into a carrier.
    Send(usize, usize, usize, usize),
    /// So many bytes of a carrier arrive, whether they are whole frames or not.
    Deliver(usize, usize, usize),
    /// A carrier joins, which may be for small frames.
    Join(bool),
    /// An end is told a round trip in ms, a rate and what is unsent.
    Measure(usize, usize, u64, u64, u64),
    /// A carrier is cut: how many bytes of each direction still arrive, and which ends notice.
    Cut(usize, [usize; 2], [bool; 2]),
    /// A direction of a carrier swallows all from here on.
    Silence(usize, usize),
    /// A carrier delivers nothing from here on, until it resumes.
    Stall(usize),
    Resume(usize),
    Leave(usize, usize),
    Wait(u64),
}

pub fn op() -> impl Strategy<Value = Op> {
    let (side, pick) = (0..2_usize, 0..16_usize);
    prop_oneof![
        2 => side.clone().prop_map(Op::Open),
        8 => (side.clone(), pick.clone(), 1..900_usize).prop_map(|(s, p, n)| Op::Write(s, p, n)),
        2 => (side.clone(), pick.clone()).prop_map(|(s, p)| Op::Finish(s, p)),
        1 => (side.clone(), pick.clone(), any::<bool>()).prop_map(|(s, p, d)| Op::Reset(s, p, d)),
        6 => (side.clone(), pick.clone(), 1..1500_usize).prop_map(|(s, p, n)| Op::Read(s, p, n)),
        16 => (side.clone(), pick.clone(), 0..3_usize, 1..5_usize).prop_map(|(s, p, r, n)| Op::Send(s, p, r, n)),
        16 => (side.clone(), pick.clone(), 1..2500_usize).prop_map(|(s, p, n)| Op::Deliver(s, p, n)),
        3 => prop::bool::weighted(0.3).prop_map(Op::Join),
        3 => (side.clone(), pick.clone(), 1..200_u64, 1..100_000_000_u64, 0..100_000_u64)
            .prop_map(|(s, p, rtt, rate, unsent)| Op::Measure(s, p, rtt, rate, unsent)),
        2 => (pick.clone(), [0..1500_usize, 0..1500], any::<[bool; 2]>()).prop_map(|(p, k, n)| Op::Cut(p, k, n)),
        1 => (side.clone(), pick.clone()).prop_map(|(s, p)| Op::Silence(s, p)),
        1 => pick.clone().prop_map(Op::Stall),
        1 => pick.clone().prop_map(Op::Resume),
        1 => (side, pick).prop_map(|(s, p)| Op::Leave(s, p)),
        2 => (1..3000_u64).prop_map(Op::Wait),
    ]
}

/// Small bounds of a trunk, so that each bound is met.
#[derive(Debug, Clone)]
pub struct Small {
    pub credit: u32,
    pub pool: u64,
    pub memory: u64,
    pub queue: usize,
    pub streams: u32,
}

impl Small {
    pub fn config(&self, role: Role) -> Config {
        Config {
            initial_credit: self.credit,
            receive_pool: self.pool,
            max_window: self.pool,
            max_streams: self.streams,
            send_memory: self.memory,
            send_reserve: 50,
            stream_queue: self.queue,
            ..config(role)
        }
    }
}

pub fn small() -> impl Strategy<Value = Small> {
    (1..2000_u32, 0..9000_u64, 100..6000_u64, 60..2000_usize, 1..7_u32)
        .prop_map(|(credit, pool, memory, queue, streams)| Small { credit, pool, memory, queue, streams })
}
