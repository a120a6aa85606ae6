//! A node asks a relay for its outside address. The question is sent instead of a
//! ticket. The relay answers with the address that the connection came from, as STUN
//! does for UDP (RFC 8489). The answer contains nothing secret, so every peer may ask.
//! The question may name the reach test that the node is about to order: the relay dials
//! only the address from which the test was named.
//!
//! Integers are big-endian.
//!
//! ```text
//! Question, 64 bytes                     Answer, 24 bytes
//!  0  4B magic "ISRQ"                     0  4B magic "ISRA"
//!  4  u8 VERSION                          4  u8 VERSION
//!  5  3B zero                             5  u8 4 or 6, for the kind of address
//!  8  16B id of a reach test, or zero     6  u16 port
//! 24  40B zero                            8 16B address; of IPv4 the first 4, then zero
//! ```

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::ticket::TICKET_LEN;
use crate::{ConnectionId, DecodeError, array, opening};

/// Length of a question, in bytes: that of a ticket, in whose place it is sent.
pub const QUESTION_LEN: usize = TICKET_LEN;
/// Length of an answer, in bytes.
pub const ANSWER_LEN: usize = 24;

/// A question as bytes; `test` is the reach test that it names, if any.
pub fn encode_question(test: Option<ConnectionId>) -> [u8; QUESTION_LEN] {
    let mut out: [u8; QUESTION_LEN] = opening::begin(opening::REFLECT);
    if let Some(ConnectionId(id)) = test {
        out[8..24].copy_from_slice(&id);
    }
    out
}

/// Reads a question. Returns the reach test that it names; `None` if it names none.
///
/// # Errors
/// If the bytes aren't a question of this version.
pub fn decode_question(bytes: &[u8; QUESTION_LEN]) -> Result<Option<ConnectionId>, DecodeError> {
    opening::check("question", bytes, opening::REFLECT)?;
    let id = ConnectionId(array(bytes, 8));
    let test = (id != ConnectionId([0; 16])).then_some(id);
    opening::same("question", &encode_question(test), bytes)?;
    Ok(test)
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

/// Reads an answer: the address at which the relay sees the peer.
///
/// # Errors
/// If the bytes aren't an answer of this version.
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
        for test in [None, Some(ConnectionId([7; 16]))] {
            let question = encode_question(test);
            assert_eq!(decode_question(&question), Ok(test));
            assert!(crate::ticket::Ticket::decode(&question).is_err());
            for reserved in [5, 24, 63] {
                let mut other = question;
                other[reserved] = 1;
                decode_question(&other).unwrap_err();
            }
        }
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
