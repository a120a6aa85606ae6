//! The frames of version 1 and their layouts. docs/trunk.md describes each.
//!
//! A frame is a head of 4 bytes (type, flags, length of the body) and a body. All
//! integers are big-endian. No frame is longer than [`MAX_FRAME`].

pub(crate) mod decode;
mod encode;
#[cfg(test)]
mod tests;

use std::fmt;

use bytes::Bytes;

use crate::{Hello, Reason, Role, Scope};

pub use encode::Encoded;

/// The longest frame, in bytes: the plaintext of one TLS record (RFC 8446 section 5.1).
pub const MAX_FRAME: usize = 1 << 14;
/// Length in bytes of a frame's head: type, flags and length of the body.
pub const HEAD: usize = 4;
/// Length in bytes of a DATA frame before its payload: head, stream, offset.
pub const DATA_HEAD: usize = HEAD + 16;
/// The longest payload of a DATA frame, in bytes.
pub const MAX_PAYLOAD: usize = MAX_FRAME - DATA_HEAD;
/// The longest text in CLOSE, in bytes.
pub const MAX_TEXT: usize = 256;
/// Offsets and limits are below this, so that sums never overflow.
pub const MAX_OFFSET: u64 = 1 << 62;

pub(crate) const HELLO: u8 = 1;
pub(crate) const OPEN: u8 = 2;
pub(crate) const DATA: u8 = 3;
pub(crate) const CREDIT: u8 = 4;
pub(crate) const RESET: u8 = 5;
pub(crate) const ACK: u8 = 6;
pub(crate) const PING: u8 = 7;
pub(crate) const CLOSE: u8 = 8;

/// HELLO: the sender made the trunk.
pub(crate) const FLAG_INITIATOR: u8 = 1;
/// HELLO: the sender has heard a HELLO of this trunk.
pub(crate) const FLAG_STANDING: u8 = 2;
/// HELLO: the carrier is for small frames.
pub(crate) const FLAG_SMALL: u8 = 4;
/// HELLO: the sender's sockets have BBR.
pub(crate) const FLAG_BBR: u8 = 8;
/// DATA: the stream's direction ends behind the payload.
pub(crate) const FLAG_END: u8 = 1;
/// CREDIT: the limit is one of streams, not of a stream's bytes.
pub(crate) const FLAG_STREAMS: u8 = 1;
/// RESET: it is for the direction towards the sender of the frame.
pub(crate) const FLAG_STOP: u8 = 1;
/// PING: the frame is the answer to a PING.
pub(crate) const FLAG_ANSWER: u8 = 1;
/// CLOSE: the whole trunk ends.
pub(crate) const FLAG_TRUNK: u8 = 1;

/// The id of a stream: its number among those that its end opened, times two, plus one
/// if the trunk's acceptor opened it (as RFC 9000 section 2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

impl StreamId {
    /// The id of the stream that an end opens as its `index`-th, from 0.
    pub fn new(opener: Role, index: u64) -> Self {
        Self(index << 1 | u64::from(opener == Role::Acceptor))
    }

    /// The role of the end that opened the stream.
    pub fn opener(self) -> Role {
        if self.0 & 1 == 0 { Role::Initiator } else { Role::Acceptor }
    }

    /// The stream's number among those of the same opener, from 0.
    pub fn index(self) -> u64 {
        self.0 >> 1
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A frame of version 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// The first frame of each end on each carrier.
    Hello(Hello),
    /// Opens a stream of the trunk.
    Open {
        /// The stream that is opened.
        stream: StreamId,
    },
    /// Carries bytes of a stream.
    Data {
        /// The stream whose bytes these are.
        stream: StreamId,
        /// Number of bytes of this direction before the payload.
        offset: u64,
        /// Whether the direction ends behind the payload.
        end: bool,
        /// The bytes; empty only if the direction ends.
        payload: Bytes,
    },
    /// How many bytes of a stream's direction the receiver of the frame may have sent
    /// since its beginning.
    Credit {
        /// The stream that gets the credit.
        stream: StreamId,
        /// How many bytes may have been sent since the beginning of the stream.
        limit: u64,
    },
    /// How many streams the receiver of the frame may have opened since the trunk's
    /// beginning. On the wire it is a CREDIT with a flag.
    Streams {
        /// How many streams may have been opened since the beginning of the trunk.
        limit: u64,
    },
    /// Ends one direction of a stream early.
    Reset {
        /// The stream of which a direction ends.
        stream: StreamId,
        /// Whether it is the direction towards the sender of the frame, which takes no more data.
        /// Otherwise the sender of the frame sends no more.
        stop: bool,
        /// A code that the program which embeds the trunk has chosen.
        code: u32,
        /// Where the direction ends, in bytes; 0 with `stop`.
        offset: u64,
    },
    /// How many counted frames have arrived over one carrier.
    Ack {
        /// The carrier's number at the receiver of the frame.
        carrier: u32,
        /// How many counted frames have arrived since the beginning of the carrier.
        frames: u64,
    },
    /// Asks for an answer, or is the answer.
    Ping {
        /// Whether the frame is the answer.
        answer: bool,
        /// A number that question and answer share.
        nonce: u64,
        /// In a question: how many carriers for bulk the sender could use; 0 if it doesn't know.
        carriers: u8,
    },
    /// Ends the carrier or the trunk. It is the last frame on its carrier.
    Close {
        /// Whether the carrier or the whole trunk ends.
        scope: Scope,
        /// The reason of the end.
        reason: Reason,
        /// The reason for a person; at most [`MAX_TEXT`] bytes.
        text: String,
    },
}

impl Frame {
    /// The number of the frame's type on the wire.
    pub(crate) fn kind(&self) -> u8 {
        match self {
            Self::Hello(_) => HELLO,
            Self::Open { .. } => OPEN,
            Self::Data { .. } => DATA,
            Self::Credit { .. } | Self::Streams { .. } => CREDIT,
            Self::Reset { .. } => RESET,
            Self::Ack { .. } => ACK,
            Self::Ping { .. } => PING,
            Self::Close { .. } => CLOSE,
        }
    }

    /// Whether the frame is counted, acknowledged, and sent again after a cut.
    pub fn is_counted(&self) -> bool {
        matches!(self.kind(), OPEN | DATA | CREDIT | RESET)
    }
}
