//! The trunk's protocol: streams over carriers that may be cut at any time. Bytes and
//! time in, bytes and events out; no I/O, no clock. docs/trunk.md describes it.
//!
//! Two ends hold a trunk. Its *carriers* are ordered pipes of bytes, such as TLS
//! connections, that join and leave at any time. Its *streams* are pairs of byte
//! strings. Nothing of them is lost, doubled or reordered as long as both ends live,
//! whatever happens to carriers.
//!
//! | module | what |
//! |---|---|
//! | [`frame`] | the frames and their layouts |
//! | `hello` | the first frame: which trunk, versions, bounds |
//! | `addresses` | where an end is reached on each of its rails |
//! | `id_map` | maps by streams' ids |
//! | `input` | from bytes in pieces to frames |
//! | `reason` | why a carrier or trunk ends, and the rules that a peer can break |
//! | `trunk` | [`Trunk`]: everything together |
//! | `carrier` | one carrier: what is under way, acknowledgements, silence |
//! | `estimate` | a carrier's rate, delay and queue |
//! | `rails` | which carrier takes the next frame |
//! | `need` | how many carriers a trunk needs |
//! | `spare` | whether carriers leave a part of their path unused |
//! | `launch` | how a new carrier with BBR is kept from overfilling its path |
//! | `priming` | padding by which a carrier's congestion window grows |
//! | `table` | which streams are open, closed, or allowed |
//! | `stream`, `sending`, `receiving` | one stream and its directions |
//! | `reassembly`, `chunks` | data in order; queues of bytes |
//! | `credit` | how much the peer may send, out of a pool |
//! | `progress` | since when the oldest frame waits |
//! | `schedule` | whose turn it is |
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests have a clock"))]

mod addresses;
mod carrier;
mod chunks;
mod config;
mod credit;
mod estimate;
mod event;
pub mod frame;
mod hello;
mod id_map;
mod input;
mod launch;
mod need;
mod priming;
mod progress;
mod rails;
mod reason;
mod reassembly;
mod receiving;
mod rtt;
mod schedule;
mod sending;
mod spare;
mod stream;
mod table;
mod trunk;

pub use addresses::{Addresses, MAX_RAILS};
pub use carrier::{
    ACK_BYTES, ACK_FRAMES, CarrierId, CarrierState, HELLO_TIMEOUT, LARGE, LEAVE_TIMEOUT, ONE_WAY, PING_BUSY,
    PING_IDLE, SILENCE,
};
pub use config::{Config, Role};
pub use estimate::Measured;
pub use event::{Ended, Event, OpenError, Read, StreamError};
pub use frame::{Encoded, Frame, StreamId};
pub use hello::{Hello, Incarnation, Purpose, TrunkId, VERSIONS};
pub use id_map::{IdHasher, IdMap};
pub use launch::{Launch, Observed};
pub use need::{Congestion, Wanted};
pub use priming::MAX_PRIMING;
pub use reason::{ProtocolError, Reason, Scope};
pub use rtt::ACK_DELAY;
pub use trunk::{CarrierStatus, Direction, JoinError, MAX_UNDER_WAY, Moved, Status, Trunk};
