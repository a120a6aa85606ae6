//! Why a carrier or a trunk ends: the codes in CLOSE, and the rules that a peer broke.

use std::fmt;

use crate::StreamId;

macro_rules! reasons {
    ($($name:ident($code:literal) $text:literal;)*) => {
        /// Why a carrier or a trunk ends, as CLOSE says it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Reason {
            $(#[doc = $text] $name,)*
            /// A reason whose code this version doesn't know.
            Other(u16),
        }

        impl Reason {
            /// All reasons that have a name.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The reason's code in the frame.
            pub fn code(self) -> u16 {
                match self {
                    $(Self::$name => $code,)*
                    Self::Other(code) => code,
                }
            }

            /// The reason that has this code.
            pub fn from_code(code: u16) -> Self {
                match code {
                    $($code => Self::$name,)*
                    other => Self::Other(other),
                }
            }
        }

        impl fmt::Display for Reason {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$name => f.pad($text),)*
                    Self::Other(code) => write!(f, "reason {code}"),
                }
            }
        }
    };
}

reasons! {
    Done(0) "it is no longer needed";
    Malformed(1) "a frame has no valid layout";
    Hello(2) "HELLO is not the first frame, or comes twice";
    Version(3) "the ends have no version in common";
    Trunk(4) "the trunk is unknown at this end";
    Parameters(5) "HELLO differs from the one before";
    Stream(6) "a frame is for a stream that was never opened";
    Streams(7) "more streams are open than allowed";
    Credit(8) "data exceeds its credit";
    End(9) "data and end of a stream contradict each other";
    Ack(10) "more frames are acknowledged than were sent";
    Holes(11) "data has more holes than frames can be under way";
    Carriers(12) "there are too many carriers";
    Silent(13) "nothing was heard";
    Overflow(14) "an offset or limit is out of range";
}

/// What a [`Reason`] ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// One carrier ends. The trunk goes on over others.
    Carrier,
    /// The trunk ends with all its streams.
    Trunk,
}

/// The rule that a peer broke.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum ProtocolError {
    #[error("frame type {0} is unknown")]
    UnknownType(u8),
    #[error("frame type {kind} has flags {flags:#04x}, which are unknown")]
    UnknownFlags { kind: u8, flags: u8 },
    #[error("frame type {kind} has a body of {length} bytes")]
    BodyLength { kind: u8, length: usize },
    #[error("HELLO begins with {0:02x?}")]
    Magic([u8; 4]),
    #[error("HELLO has versions {lowest} to {highest}, credit {credit}, streams {streams}")]
    HelloFields { lowest: u16, highest: u16, credit: u32, streams: u32 },
    #[error("HELLO has too many addresses, or a part of one")]
    HelloAddresses,
    #[error("a DATA frame of stream {0} has neither payload nor end")]
    EmptyData(StreamId),
    #[error("the text of CLOSE is no UTF-8")]
    Text,
    #[error("the first frame is of type {0}, not HELLO")]
    NotHello(u8),
    #[error("HELLO came twice")]
    SecondHello,
    #[error("HELLO is of the same end: both say that the trunk is theirs, or neither")]
    SameRole,
    #[error("the peer speaks versions {lowest} to {highest}, this end 1 to 1")]
    NoVersion { lowest: u16, highest: u16 },
    #[error("HELLO is of another trunk")]
    OtherTrunk,
    #[error("HELLO differs from that of an earlier carrier")]
    OtherParameters,
    #[error("stream {0} was never opened")]
    NeverOpened(StreamId),
    #[error("OPEN of stream {0}, which only this end may open")]
    NotTheirs(StreamId),
    #[error("stream {stream} is opened, of {allowed} that may be")]
    TooManyStreams { stream: StreamId, allowed: u64 },
    #[error("stream {stream} has data up to {end}, its credit ends at {limit}")]
    OverCredit { stream: StreamId, end: u64, limit: u64 },
    #[error("stream {stream} ends at {end}, but has or had {other}")]
    Contradiction { stream: StreamId, end: u64, other: u64 },
    #[error("stream {stream} has offset or limit {value}, beyond 2^62")]
    TooLarge { stream: StreamId, value: u64 },
    #[error("{acknowledged} frames of carrier {carrier} are acknowledged, {sent} were sent")]
    AckBeyond { carrier: u32, acknowledged: u64, sent: u64 },
    #[error("carrier {0} is acknowledged, which never was")]
    AckUnknown(u32),
    #[error("the data of all streams has {0} holes")]
    TooManyHoles(usize),
}

impl ProtocolError {
    /// The reason for the CLOSE that tells the peer of its error.
    pub fn reason(&self) -> Reason {
        match self {
            Self::UnknownType(_)
            | Self::UnknownFlags { .. }
            | Self::BodyLength { .. }
            | Self::Magic(_)
            | Self::HelloFields { .. }
            | Self::HelloAddresses
            | Self::EmptyData(_)
            | Self::Text => Reason::Malformed,
            Self::NotHello(_) | Self::SecondHello | Self::SameRole => Reason::Hello,
            Self::NoVersion { .. } => Reason::Version,
            Self::OtherTrunk => Reason::Trunk,
            Self::OtherParameters => Reason::Parameters,
            Self::NeverOpened(_) | Self::NotTheirs(_) => Reason::Stream,
            Self::TooManyStreams { .. } => Reason::Streams,
            Self::OverCredit { .. } => Reason::Credit,
            Self::Contradiction { .. } => Reason::End,
            Self::TooLarge { .. } => Reason::Overflow,
            Self::AckBeyond { .. } | Self::AckUnknown(_) => Reason::Ack,
            Self::TooManyHoles(_) => Reason::Holes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_read_as_they_are_written_and_all_differ() {
        for (index, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(usize::from(reason.code()), index);
            assert_eq!(Reason::from_code(reason.code()), *reason);
        }
        assert_eq!(Reason::from_code(999), Reason::Other(999));
    }
}
