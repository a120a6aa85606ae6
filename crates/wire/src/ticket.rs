//! Tickets: the first message to a relay or a gateway, minted by the broker. There is
//! no answer: bytes flow once both sides of a connection id have arrived.
//!
//! The broker shares a key with each relay and gateway, sent over their mutual TLS.
//! So they serve only connections that the broker planned. A ticket is good for one
//! use of one side until it expires.
//!
//! Integers are big-endian.
//!
//! ```text
//! Ticket, 64 bytes
//!  0  4B magic "ISTR"
//!  4  u8 VERSION
//!  5  u8 side: 0 initiator, 1 acceptor
//!  6  2B zero
//!  8 16B connection id
//! 24  u64 expiry, seconds since 1970-01-01 UTC
//! 32 32B HMAC-SHA256(that key, bytes 0..32)
//! ```

use crate::preamble::Mac;
use crate::{ConnectionId, DecodeError, array, opening};

/// Length of an encoded [`Ticket`], in bytes.
pub const TICKET_LEN: usize = 64;
/// First byte of every ticket. A TLS record can't start with it (RFC 8446 section 5.1), so both may
/// arrive at the same port.
pub const FIRST_BYTE: u8 = opening::TICKET[0];

const SIGNED: usize = TICKET_LEN - 32;

/// A side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Side {
    /// The agent whose program called `connect`.
    Initiator = 0,
    /// The agent whose program listens.
    Acceptor = 1,
}

impl Side {
    /// The opposite side of the connection.
    pub fn other(self) -> Self {
        match self {
            Self::Initiator => Self::Acceptor,
            Self::Acceptor => Self::Initiator,
        }
    }
}

/// The right to a side of a relayed connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// The connection that the ticket is for.
    pub connection: ConnectionId,
    /// The side of the connection that the ticket admits.
    pub side: Side,
    /// When the ticket stops being valid, in seconds since 1970-01-01 UTC.
    pub expiry_unix_seconds: u64,
}

impl Ticket {
    /// The bytes that the HMAC covers.
    pub fn signed_bytes(&self) -> [u8; SIGNED] {
        let mut out: [u8; SIGNED] = opening::begin(opening::TICKET);
        out[5] = self.side as u8;
        out[8..24].copy_from_slice(&self.connection.0);
        out[24..32].copy_from_slice(&self.expiry_unix_seconds.to_be_bytes());
        out
    }

    /// The ticket as bytes, with the HMAC of [`signed_bytes`](Self::signed_bytes).
    pub fn encode(&self, mac: &Mac) -> [u8; TICKET_LEN] {
        let mut out = [0; TICKET_LEN];
        out[..SIGNED].copy_from_slice(&self.signed_bytes());
        out[SIGNED..].copy_from_slice(mac);
        out
    }

    /// Reads a message and its HMAC, which the caller must verify.
    ///
    /// # Errors
    /// If the bytes aren't a ticket of this version.
    pub fn decode(bytes: &[u8; TICKET_LEN]) -> Result<(Self, Mac), DecodeError> {
        opening::check("ticket", bytes, opening::TICKET)?;
        let side = match bytes[5] {
            0 => Side::Initiator,
            1 => Side::Acceptor,
            other => return Err(DecodeError::new("ticket", format!("unknown side {other}"))),
        };
        let ticket = Self {
            connection: ConnectionId(array(bytes, 8)),
            side,
            expiry_unix_seconds: u64::from_be_bytes(array(bytes, 24)),
        };
        opening::same("ticket", &ticket.signed_bytes(), &bytes[..SIGNED])?;
        Ok((ticket, array(bytes, SIGNED)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn round_trip() {
        for side in [Side::Initiator, Side::Acceptor] {
            let ticket = Ticket { connection: ConnectionId([9; 16]), side, expiry_unix_seconds: 1 << 33 };
            assert_eq!(Ticket::decode(&ticket.encode(&[4; 32])), Ok((ticket, [4; 32])));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_fail_without_panic(bytes in prop::collection::vec(any::<u8>(), TICKET_LEN)) {
            let whole: [u8; TICKET_LEN] = array(&bytes, 0);
            if let Ok((ticket, mac)) = Ticket::decode(&whole) {
                prop_assert_eq!(ticket.encode(&mac), whole);
            }
        }
    }
}
