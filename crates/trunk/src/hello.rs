//! HELLO: which trunk a carrier joins, versions, and the sender's bounds.

use bytes::Bytes;

use crate::{Addresses, Congestion, Frame, ProtocolError, Role};

/// The first bytes of HELLO's body.
pub(crate) const MAGIC: [u8; 4] = *b"ISTK";
/// The length of the body without the incarnation, which may be left out.
pub(crate) const BODY: usize = 36;
/// The length of the body with the incarnation. Addresses of rails may follow.
pub(crate) const BODY_WITH_INCARNATION: usize = BODY + 16;
/// The longest body that is taken. What a later version appends is skipped.
pub(crate) const LONGEST_BODY: usize = 256;
/// The most streams that an end may allow.
pub(crate) const MAX_STREAMS: u32 = 1 << 20;
/// The versions that this end speaks: lowest and highest.
pub const VERSIONS: (u16, u16) = (1, 1);

/// A trunk's id: 128 random bits that its initiator chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TrunkId(pub [u8; 16]);

/// What a service chooses at its start, 128 bits: by another value the peer learns that its former
/// state is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Incarnation(pub [u8; 16]);

/// The first frame of each end on each carrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// Whether the sender made the trunk.
    pub role: Role,
    /// Whether the sender has heard a HELLO of this trunk. An end that doesn't know the
    /// trunk must refuse such a carrier: it has lost the trunk's state.
    pub standing: bool,
    /// The lowest version that the sender speaks.
    pub lowest: u16,
    /// The highest version that the sender speaks.
    pub highest: u16,
    /// The id of the trunk that the carrier joins.
    pub trunk: TrunkId,
    /// The carrier's number at the sender. ACKs of the sender's frames name it.
    pub carrier: u32,
    /// What the sender wants the carrier for. It is for small frames if either end says so.
    pub purpose: Purpose,
    /// How the sender's sockets control congestion.
    pub congestion: Congestion,
    /// Bytes that may be sent to the sender on each stream before it gives credit.
    pub credit: u32,
    /// Streams that may be opened towards the sender before it allows more.
    pub streams: u32,
    /// The incarnation of the sender's service, if it tells.
    pub incarnation: Option<Incarnation>,
    /// Where the sender is reached on each of its rails; empty if it has one rail only.
    pub addresses: Addresses,
}

/// What a carrier is for. The end that dials it chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Purpose {
    /// The carrier is for all frames.
    #[default]
    Bulk,
    /// The carrier is for small frames alone, so that they don't wait behind others in its buffers.
    /// It carries others only while no carrier for them is live.
    Small,
}

impl Hello {
    /// Reads the HELLO at the beginning of a carrier, and leaves it in `bytes`. By it, an end finds
    /// the trunk that the carrier joins, or makes one. Returns `None` if more bytes are needed.
    ///
    /// # Errors
    /// If the carrier doesn't begin with a HELLO.
    pub fn peek(bytes: &[u8]) -> Result<Option<Self>, ProtocolError> {
        let longest = bytes.len().min(crate::frame::HEAD + LONGEST_BODY);
        match bytes.first() {
            Some(&kind) if kind != crate::frame::HELLO => return Err(ProtocolError::NotHello(kind)),
            _ => {}
        }
        match Frame::decode(&mut Bytes::copy_from_slice(&bytes[..longest]))? {
            Some(Frame::Hello(hello)) => Ok(Some(hello)),
            _ => Ok(None),
        }
    }

    /// The highest version that both ends speak.
    ///
    /// # Errors If they have no version in common.
    pub(crate) fn version(&self) -> Result<u16, ProtocolError> {
        let version = self.highest.min(VERSIONS.1);
        if version < self.lowest.max(VERSIONS.0) {
            return Err(ProtocolError::NoVersion { lowest: self.lowest, highest: self.highest });
        }
        Ok(version)
    }
}
