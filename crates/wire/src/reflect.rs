//! A node asks a relay for its outside address. The question is sent instead of a
//! ticket. The relay answers with the address that the connection came from, as STUN
//! does for UDP (RFC 8489). The answer contains nothing secret, so every peer may ask.
//!
//! Integers are big-endian.
//!
//! ```text
//! Question, 64 bytes                     Answer, 24 bytes
//!  0  4B magic "ISRQ"                     0  4B magic "ISRA"
//!  4  u8 VERSION                          4  u8 VERSION
//!  5  59B zero                            5  u8 4 or 6, for the kind of address
//!                                         6  u16 port
//!                                         8 16B address; of IPv4 the first 4, then zero
//! ```

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::ticket::TICKET_LEN;
use crate::{DecodeError, array, opening};

/// Length of a question: that of a ticket, because it is sent instead of one.
pub const QUESTION_LEN: usize = TICKET_LEN;
/// Length of an answer.
pub const ANSWER_LEN: usize = 24;

/// The question.
pub fn question() -> [u8; QUESTION_LEN] {
    opening::begin(opening::REFLECT)
}

/// Whether these bytes are the question.
pub fn is_question(bytes: &[u8; QUESTION_LEN]) -> bool {
    *bytes == question()
}

/// The answer to a peer that is seen at this address.
pub fn encode_answer(seen: SocketAddr) -> [u8; ANSWER_LEN] {
    let mut out: [u8; ANSWER_LEN] = opening::begin(opening::REFLECT_ANSWER);
    out[6..8].copy_from_slice(&seen.port().to_be_bytes());
    match seen.ip().to_canonical() {
        IpAddr::V4(ip) => {
            out[5] = 4;
            out[8..12].copy_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            out[5] = 6;
            out[8..].copy_from_slice(&ip.octets());
        }
    }
    out
}

/// Reads an answer.
///
/// # Errors
/// If it isn't one of this version.
pub fn decode_answer(bytes: &[u8; ANSWER_LEN]) -> Result<SocketAddr, DecodeError> {
    let wrong = |what: String| DecodeError::new("reflection", what);
    opening::check("reflection", bytes, opening::REFLECT_ANSWER)?;
    let ip: IpAddr = match bytes[5] {
        4 => array::<4>(bytes, 8).into(),
        6 => Ipv6Addr::from(array::<16>(bytes, 8)).into(),
        other => return Err(wrong(format!("unknown kind of address {other}"))),
    };
    let seen = SocketAddr::new(ip, u16::from_be_bytes(array(bytes, 6)));
    if encode_answer(seen) != *bytes {
        return Err(wrong("not in its canonical form".to_owned()));
    }
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn round_trip() {
        for text in ["192.0.2.1:7", "[2001:db8::1]:65535"] {
            let seen = text.parse().unwrap();
            assert_eq!(decode_answer(&encode_answer(seen)), Ok(seen));
        }
        let mapped = "[::ffff:192.0.2.1]:7".parse().unwrap();
        assert_eq!(decode_answer(&encode_answer(mapped)), Ok("192.0.2.1:7".parse().unwrap()));
    }

    #[test]
    fn a_question_is_no_ticket() {
        assert!(is_question(&question()));
        assert!(crate::ticket::Ticket::decode(&question()).is_err());
        let mut other = question();
        other[63] = 1;
        assert!(!is_question(&other));
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_fail_without_panic(bytes in prop::collection::vec(any::<u8>(), ANSWER_LEN)) {
            let whole: [u8; ANSWER_LEN] = array(&bytes, 0);
            if let Ok(seen) = decode_answer(&whole) {
                prop_assert_eq!(encode_answer(seen), whole);
            }
        }
    }
}
