//! The short preamble by which two agents open a connection for a program:
//! one message each way, raw or inside TLS, before the first byte of the
//! program.
//!
//! Integers are big-endian.
//!
//! ```text
//! Preamble, 88 bytes                     Answer, 40 bytes
//!  0  4B magic "ISTH"                     0  4B magic "ISTA"
//!  4  u8 VERSION                          4  u8 VERSION
//!  5  3B zero                             5  u8 status
//!  8 16B job id                           6  2B zero
//! 24 16B nonce                            8 32B HMAC-SHA256(token,
//! 40  u32 source (virtual)                       "answer" ‖ nonce ‖ bytes 0..8)
//! 44  u32 destination (virtual)
//! 48  u16 source port
//! 50  u16 destination port
//! 52  4B zero
//! 56 32B HMAC-SHA256(token, bytes 0..56)
//! ```
//!
//! The token never travels. The destination is under the HMAC and the acceptor
//! remembers the nonces of a running job, so a recorded preamble opens nothing
//! a second time; the answer's HMAC proves the acceptor to the initiator.
//! While a listener's backlog is full there are two answers: [`Status::Waiting`]
//! and later the final one.
//! The HMAC (RFC 2104, FIPS 180-4) is computed by the caller over
//! [`Preamble::signed_bytes`] and [`Answer::signed_bytes`].

use std::fmt;
use std::net::Ipv4Addr;

use crate::{DecodeError, JobId, Nonce, array, opening};

/// Length of an encoded [`Preamble`], in bytes.
pub const PREAMBLE_LEN: usize = 88;
/// Length of an encoded [`Answer`], in bytes.
pub const ANSWER_LEN: usize = 40;
/// First byte of every preamble. A TLS record can't start with it (RFC 8446 section 5.1), so both
/// may arrive at the same port.
pub const FIRST_BYTE: u8 = opening::PREAMBLE[0];

const PREAMBLE_SIGNED: usize = PREAMBLE_LEN - 32;
const ANSWER_SIGNED: usize = ANSWER_LEN - 32;

/// A code of HMAC-SHA256.
pub type Mac = [u8; 32];

/// The two ends of a connection, and its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preamble {
    /// The job both ends belong to.
    pub job: JobId,
    /// Random, never used twice in a job.
    pub nonce: Nonce,
    /// Virtual address of the connecting node.
    pub source: Ipv4Addr,
    /// Port of the connecting program.
    pub source_port: u16,
    /// Virtual address of the accepting node.
    pub destination: Ipv4Addr,
    /// Port the accepting program listens on.
    pub destination_port: u16,
}

impl Preamble {
    /// The bytes that the HMAC covers.
    pub fn signed_bytes(&self) -> [u8; PREAMBLE_SIGNED] {
        let mut out: [u8; PREAMBLE_SIGNED] = opening::begin(opening::PREAMBLE);
        out[8..24].copy_from_slice(&self.job.0);
        out[24..40].copy_from_slice(&self.nonce.0);
        out[40..44].copy_from_slice(&self.source.octets());
        out[44..48].copy_from_slice(&self.destination.octets());
        out[48..50].copy_from_slice(&self.source_port.to_be_bytes());
        out[50..52].copy_from_slice(&self.destination_port.to_be_bytes());
        out
    }

    /// The preamble as bytes, with the HMAC of [`signed_bytes`](Self::signed_bytes).
    pub fn encode(&self, mac: &Mac) -> [u8; PREAMBLE_LEN] {
        let mut out = [0; PREAMBLE_LEN];
        out[..PREAMBLE_SIGNED].copy_from_slice(&self.signed_bytes());
        out[PREAMBLE_SIGNED..].copy_from_slice(mac);
        out
    }

    /// Reads a message and its HMAC, which the caller must verify.
    ///
    /// # Errors
    /// If the bytes don't start as a preamble of this version does.
    pub fn decode(bytes: &[u8; PREAMBLE_LEN]) -> Result<(Self, Mac), DecodeError> {
        opening::check("preamble", bytes, opening::PREAMBLE)?;
        let preamble = Self {
            job: JobId(array(bytes, 8)),
            nonce: Nonce(array(bytes, 24)),
            source: Ipv4Addr::from(array::<4>(bytes, 40)),
            destination: Ipv4Addr::from(array::<4>(bytes, 44)),
            source_port: u16::from_be_bytes(array(bytes, 48)),
            destination_port: u16::from_be_bytes(array(bytes, 50)),
        };
        opening::same("preamble", &preamble.signed_bytes(), &bytes[..PREAMBLE_SIGNED])?;
        Ok((preamble, array(bytes, PREAMBLE_SIGNED)))
    }
}

/// What the acceptor's agent has found or done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Status {
    /// The connection stands; the program's bytes follow.
    Connected = 0,
    /// No program listens on the destination port.
    Refused = 1,
    /// The listener's backlog stayed full.
    TimedOut = 2,
    /// The acceptor's node doesn't run the job.
    UnknownJob = 3,
    /// The HMAC is wrong, or the preamble was seen before.
    Denied = 4,
    /// The destination isn't this node.
    WrongNode = 5,
    /// The acceptor failed in another way; its log has the error.
    Failed = 6,
    /// The preamble is right, and the listener's backlog is full; the final
    /// answer follows.
    Waiting = 7,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connected => "connected",
            Self::Refused => "no program listens there",
            Self::TimedOut => "the listener does not accept: its backlog stayed full",
            Self::UnknownJob => "the node does not take part in this job (did its agent restart?)",
            Self::Denied => "the node denied it: the log of its agent says why",
            Self::WrongNode => "another node answered: does the contact's address belong to another node?",
            Self::Failed => "the node's agent failed; see its log",
            Self::Waiting => "the listener's backlog is full",
        })
    }
}

/// The answer of the acceptor's agent to a [`Preamble`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// What the acceptor's agent has found or done.
    pub status: Status,
}

impl Answer {
    fn head(self) -> [u8; ANSWER_SIGNED] {
        let mut out: [u8; ANSWER_SIGNED] = opening::begin(opening::PREAMBLE_ANSWER);
        out[5] = self.status as u8;
        out
    }

    /// The bytes that the HMAC covers.
    pub fn signed_bytes(&self, nonce: &Nonce) -> [u8; 6 + 16 + ANSWER_SIGNED] {
        let mut out = [0; 6 + 16 + ANSWER_SIGNED];
        out[..6].copy_from_slice(b"answer");
        out[6..22].copy_from_slice(&nonce.0);
        out[22..].copy_from_slice(&self.head());
        out
    }

    /// The answer as bytes, with the HMAC of [`signed_bytes`](Self::signed_bytes). An acceptor that
    /// doesn't run the job sends zeroes for the HMAC.
    pub fn encode(&self, mac: &Mac) -> [u8; ANSWER_LEN] {
        let mut out = [0; ANSWER_LEN];
        out[..ANSWER_SIGNED].copy_from_slice(&self.head());
        out[ANSWER_SIGNED..].copy_from_slice(mac);
        out
    }

    /// Reads a message and its HMAC, which the caller must verify before it believes
    /// [`Status::Connected`].
    ///
    /// # Errors
    /// If the bytes don't start as an answer of this version does, or if the status is unknown.
    pub fn decode(bytes: &[u8; ANSWER_LEN]) -> Result<(Self, Mac), DecodeError> {
        opening::check("answer", bytes, opening::PREAMBLE_ANSWER)?;
        let status = match bytes[5] {
            0 => Status::Connected,
            1 => Status::Refused,
            2 => Status::TimedOut,
            3 => Status::UnknownJob,
            4 => Status::Denied,
            5 => Status::WrongNode,
            6 => Status::Failed,
            7 => Status::Waiting,
            other => return Err(DecodeError::new("answer", format!("unknown status {other}"))),
        };
        Ok((Self { status }, array(bytes, ANSWER_SIGNED)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn preamble() -> Preamble {
        Preamble {
            job: JobId([1; 16]),
            nonce: Nonce([2; 16]),
            source: Ipv4Addr::new(240, 64, 1, 1),
            source_port: 0x1234,
            destination: Ipv4Addr::new(240, 64, 2, 1),
            destination_port: 0x5678,
        }
    }

    #[test]
    fn layout_is_as_documented() {
        let bytes = preamble().encode(&[0xee; 32]);
        assert_eq!(&bytes[..8], b"ISTH\x01\0\0\0");
        assert_eq!(bytes[40..56], [240, 64, 1, 1, 240, 64, 2, 1, 0x12, 0x34, 0x56, 0x78, 0, 0, 0, 0]);
        assert_eq!(Preamble::decode(&bytes), Ok((preamble(), [0xee; 32])));
    }

    #[test]
    fn answers_round_trip() {
        for status in [
            Status::Connected,
            Status::Refused,
            Status::TimedOut,
            Status::UnknownJob,
            Status::Denied,
            Status::WrongNode,
            Status::Failed,
            Status::Waiting,
        ] {
            let answer = Answer { status };
            assert_eq!(Answer::decode(&answer.encode(&[3; 32])), Ok((answer, [3; 32])));
        }
    }

    #[test]
    fn the_hmac_of_an_answer_covers_its_nonce() {
        let answer = Answer { status: Status::Connected };
        assert_ne!(answer.signed_bytes(&Nonce([1; 16])), answer.signed_bytes(&Nonce([2; 16])));
    }

    proptest! {
        #[test]
        fn a_changed_signed_byte_is_seen(index in 0..PREAMBLE_SIGNED, flip in 1..=255u8) {
            let mut bytes = preamble().encode(&[0; 32]);
            bytes[index] ^= flip;
            if let Ok((decoded, _)) = Preamble::decode(&bytes) {
                prop_assert_ne!(decoded.signed_bytes(), preamble().signed_bytes());
            }
        }

        #[test]
        fn any_bytes_decode_or_fail_without_panic(bytes in prop::collection::vec(any::<u8>(), PREAMBLE_LEN)) {
            let mut whole = [0; PREAMBLE_LEN];
            whole.copy_from_slice(&bytes);
            let _ = Preamble::decode(&whole);
            let _ = Answer::decode(&array(&bytes, 0));
        }
    }
}
