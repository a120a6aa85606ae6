//! What a trunk tells the program that embeds it.

use bytes::Bytes;

use crate::{CarrierId, ProtocolError, Reason, StreamId};

/// Something has happened. A stream's event may name a stream that is gone since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The peer's first HELLO has arrived: streams may be opened.
    Established {
        /// The version that both ends speak.
        version: u16,
    },
    /// The peer has opened a stream.
    Opened(StreamId),
    /// A stream has something to read after it had nothing: bytes, the end, or a reset.
    Readable(StreamId),
    /// A stream takes data again, after it took less than it was given.
    Writable(StreamId),
    /// The peer has reset the direction towards this end, with this code. Bytes that it had sent
    /// before can still be read.
    Reset(StreamId, u32),
    /// The peer takes no more data on the stream, for this code.
    Stopped(StreamId, u32),
    /// A stream may be opened again, after an open was refused.
    CanOpen,
    /// A carrier works in both directions: the peer has answered over it, for the first time
    /// or after silence.
    CarrierLive(CarrierId),
    /// A frame of [`LARGE`](crate::LARGE) bytes has come over a carrier.
    CarrierLarge {
        /// The carrier over which the frame has come.
        carrier: CarrierId,
        /// Whether a large frame is known to have arrived at the peer, too.
        both: bool,
    },
    /// Nothing is heard over a carrier, so its frames go over others. Dial a new carrier; once it
    /// is live, end this one.
    CarrierSilent(CarrierId),
    /// A carrier is of no more use, for this reason. Write what `poll_transmit` still gives for it,
    /// close it, and tell by `carrier_ended`.
    CarrierDone(CarrierId, Ended),
    /// The trunk has ended with all its streams, for this reason. Each carrier ends as well.
    Closed(Ended),
}

/// Why a carrier or a trunk has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// This end wanted the end.
    Here(Reason),
    /// The peer has told of the end.
    ByPeer {
        /// The reason that the peer gave.
        reason: Reason,
        /// The reason for a person. It comes from the peer: escape it before you print it.
        text: String,
    },
    /// The peer broke a rule.
    Broke(ProtocolError),
}

/// The result of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read {
    /// Bytes were read, at least one.
    Data(Bytes),
    /// There is nothing to read yet: [`Event::Readable`] follows.
    Blocked,
    /// The peer has ended the direction, and all its bytes are read.
    End,
    /// The peer has reset the direction with this code, and all that it had sent before is read.
    Reset(u32),
}

/// Why a command for a stream has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// The stream is over in both directions, or was never opened, or the trunk has ended.
    #[error("the stream is gone")]
    Gone,
    /// The program itself has ended this direction.
    #[error("the direction has been ended at this end")]
    Ended,
    /// The peer takes no more data, for this code.
    #[error("the peer takes no more (code {0})")]
    Stopped(u32),
}

/// Why a stream can't be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The peer's first HELLO has not come: [`Event::Established`] follows.
    #[error("the trunk isn't established")]
    NotEstablished,
    /// The peer allows no more than so many streams: [`Event::CanOpen`] follows.
    #[error("the peer allows no more than {0} streams since the trunk's beginning")]
    Limit(u64),
    /// The trunk has ended, so no more streams can be opened.
    #[error("the trunk has ended")]
    Ended,
}
