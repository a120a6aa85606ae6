//! From a frame to its bytes.

use bytes::Bytes;

use super::{
    CLOSE, FLAG_ANSWER, FLAG_BBR, FLAG_END, FLAG_INITIATOR, FLAG_SMALL, FLAG_STANDING, FLAG_STOP,
    FLAG_STREAMS, FLAG_TRUNK, Frame, HEAD, MAX_FRAME, MAX_TEXT,
};
use crate::hello::MAGIC;
use crate::{Congestion, Hello, Purpose, Role, Scope};

/// Length in bytes of the longest frame without its payload: HELLO.
const LONGEST: usize = HEAD + crate::hello::BODY_WITH_INCARNATION;

/// A frame as bytes: what stands before the payload, and the payload itself, which is not copied.
/// It can be written by vectored writing, or put into a buffer.
#[derive(Debug, Clone)]
pub struct Encoded {
    front: [u8; LONGEST],
    length: usize,
    payload: Bytes,
}

impl Encoded {
    fn begin(kind: u8, flags: u8) -> Self {
        let mut this = Self { front: [0; LONGEST], length: HEAD, payload: Bytes::new() };
        this.front[..2].copy_from_slice(&[kind, flags]);
        this
    }

    fn put(mut self, bytes: &[u8]) -> Self {
        self.front[self.length..][..bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
        self
    }

    /// Fills in the length of the frame's body, which is below 2^14.
    fn finish(mut self, payload: Bytes) -> Self {
        self.payload = payload;
        debug_assert!(self.len() <= MAX_FRAME, "the payload is too long");
        let body = self.len() - HEAD;
        self.front[2..HEAD].copy_from_slice(&(body as u16).to_be_bytes());
        self
    }

    /// Gives a PING as much padding as makes its frame the longest.
    pub(crate) fn padded(self) -> Self {
        static PADDING: [u8; MAX_FRAME] = [0; MAX_FRAME];
        let padding = Bytes::from_static(&PADDING[..MAX_FRAME - self.length]);
        self.finish(padding)
    }

    /// The bytes of the frame that stand before the payload.
    pub fn front(&self) -> &[u8] {
        &self.front[..self.length]
    }

    /// The payload of DATA, or the text of CLOSE; empty for other frames.
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// The frame's length in bytes: at most [`MAX_FRAME`](super::MAX_FRAME).
    #[expect(clippy::len_without_is_empty, reason = "no frame is empty")]
    pub fn len(&self) -> usize {
        self.length + self.payload.len()
    }

    /// Appends the whole frame to a buffer.
    pub fn write_to(&self, buffer: &mut Vec<u8>) {
        buffer.extend_from_slice(self.front());
        buffer.extend_from_slice(&self.payload);
    }

    /// The whole frame in one piece.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len());
        self.write_to(&mut out);
        out
    }
}

impl Frame {
    /// The frame as bytes. A payload beyond [`MAX_PAYLOAD`](super::MAX_PAYLOAD) has no
    /// encoding; the caller cuts it before.
    pub fn encode(&self) -> Encoded {
        let kind = self.kind();
        match self {
            Self::Hello(hello) => encode_hello(kind, hello),
            Self::Open { stream } => {
                Encoded::begin(kind, 0).put(&stream.0.to_be_bytes()).finish(Bytes::new())
            }
            Self::Data { stream, offset, end, payload } => Encoded::begin(kind, flag(*end, FLAG_END))
                .put(&stream.0.to_be_bytes())
                .put(&offset.to_be_bytes())
                .finish(payload.clone()),
            Self::Credit { stream, limit } => credit(kind, 0, stream.0, *limit),
            Self::Streams { limit } => credit(kind, FLAG_STREAMS, 0, *limit),
            Self::Reset { stream, stop, code, offset } => Encoded::begin(kind, flag(*stop, FLAG_STOP))
                .put(&stream.0.to_be_bytes())
                .put(&offset.to_be_bytes())
                .put(&code.to_be_bytes())
                .finish(Bytes::new()),
            Self::Ack { carrier, frames } => Encoded::begin(kind, 0)
                .put(&carrier.to_be_bytes())
                .put(&frames.to_be_bytes())
                .finish(Bytes::new()),
            Self::Ping { answer, nonce, carriers } => {
                let told: &[u8] = if *carriers > 0 { &[*carriers] } else { &[] };
                let encoded = Encoded::begin(kind, flag(*answer, FLAG_ANSWER)).put(&nonce.to_be_bytes());
                encoded.put(told).finish(Bytes::new())
            }
            Self::Close { scope, reason, text } => {
                Encoded::begin(CLOSE, flag(*scope == Scope::Trunk, FLAG_TRUNK))
                    .put(&reason.code().to_be_bytes())
                    .finish(Bytes::copy_from_slice(cut(text).as_bytes()))
            }
        }
    }
}

fn flag(set: bool, flag: u8) -> u8 {
    if set { flag } else { 0 }
}

fn credit(kind: u8, flags: u8, stream: u64, limit: u64) -> Encoded {
    Encoded::begin(kind, flags).put(&stream.to_be_bytes()).put(&limit.to_be_bytes()).finish(Bytes::new())
}

fn encode_hello(kind: u8, hello: &Hello) -> Encoded {
    let flags = flag(hello.role == Role::Initiator, FLAG_INITIATOR)
        | flag(hello.standing, FLAG_STANDING)
        | flag(hello.purpose == Purpose::Small, FLAG_SMALL)
        | flag(hello.congestion == Congestion::Bbr, FLAG_BBR);
    let addresses = hello.addresses.encode();
    let incarnation: &[u8] = match &hello.incarnation {
        Some(incarnation) => &incarnation.0,
        None if addresses.is_empty() => &[],
        None => &[0; 16],
    };
    Encoded::begin(kind, flags)
        .put(&MAGIC)
        .put(&hello.lowest.to_be_bytes())
        .put(&hello.highest.to_be_bytes())
        .put(&hello.trunk.0)
        .put(&hello.carrier.to_be_bytes())
        .put(&hello.credit.to_be_bytes())
        .put(&hello.streams.to_be_bytes())
        .put(incarnation)
        .finish(addresses)
}

/// The text, cut at a character's end to what CLOSE may have.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(MAX_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
