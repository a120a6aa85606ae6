//! The first messages of connections begin with 4 bytes of magic and the version of
//! their layout. The table names all of them, so that no two are alike. None can be
//! taken for a TLS record, which may arrive at the same ports (RFC 8446 section 5.1).
//!
//! | magic | message | bytes | from, to |
//! |---|---|---|---|
//! | `ISTH` | [`preamble`](crate::preamble) | 88 | agent, agent |
//! | `ISTA` | its answer | 40 | agent, agent |
//! | `ISTW` | [`way`](crate::way), instead of a preamble on a trunk's stream | 88 | agent, agent |
//! | `ISTG` | [`calls`](crate::calls), instead of a preamble on a trunk's stream | 88 | agent, agent |
//! | `ISTN` | [`site_stream`](crate::site_stream), on a stream of the gateways' trunk | 16 | gateway, gateway |
//! | `MEET` | [`hello::RENDEZVOUS`](crate::hello::RENDEZVOUS) | 24 | agent, gateway or relay that dials on order, agent |
//! | `ISTR` | [`ticket`](crate::ticket) | 64 | agent or gateway, relay or gateway |
//! | `ISRQ` | [`reflect`](crate::reflect), instead of a ticket | 64 | agent or gateway, relay |
//! | `ISRA` | its answer | 24 | relay, agent or gateway |
//! | `ISVT` | [`hello::REACH_TEST`](crate::hello::REACH_TEST), instead of a ticket | 64 | relay, gateway |

use crate::{DecodeError, array};

/// The version of every layout in the table.
pub(crate) const VERSION: u8 = 1;

pub(crate) const PREAMBLE: [u8; 4] = *b"ISTH";
pub(crate) const PREAMBLE_ANSWER: [u8; 4] = *b"ISTA";
pub(crate) const WAY: [u8; 4] = *b"ISTW";
pub(crate) const CALLS: [u8; 4] = *b"ISTG";
pub(crate) const SITE_STREAM: [u8; 4] = *b"ISTN";
pub(crate) const RENDEZVOUS: [u8; 4] = *b"MEET";
pub(crate) const TICKET: [u8; 4] = *b"ISTR";
pub(crate) const REFLECT: [u8; 4] = *b"ISRQ";
pub(crate) const REFLECT_ANSWER: [u8; 4] = *b"ISRA";
pub(crate) const REACH_TEST: [u8; 4] = *b"ISVT";

/// The message with its magic and version, zero elsewhere.
pub(crate) fn begin<const N: usize>(magic: [u8; 4]) -> [u8; N] {
    let mut out = [0; N];
    out[..4].copy_from_slice(&magic);
    out[4] = VERSION;
    out
}

/// Checks the magic and the version at the beginning of a message.
pub(crate) fn check(message: &'static str, bytes: &[u8], magic: [u8; 4]) -> Result<(), DecodeError> {
    let [found @ .., version] = array::<5>(bytes, 0);
    if found != magic {
        return Err(DecodeError::new(message, format!("starts with {found:02x?}")));
    }
    if version != VERSION {
        return Err(DecodeError::new(message, format!("version {version}, this end speaks {VERSION}")));
    }
    Ok(())
}

/// Checks that reserved bytes are zero: `anew` is the message as read and written again.
pub(crate) fn same(message: &'static str, anew: &[u8], bytes: &[u8]) -> Result<(), DecodeError> {
    if anew == bytes { Ok(()) } else { Err(DecodeError::new(message, "reserved bytes are not zero")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_messages_begin_alike_and_none_as_a_tls_record() {
        let all = [
            PREAMBLE,
            PREAMBLE_ANSWER,
            WAY,
            CALLS,
            SITE_STREAM,
            RENDEZVOUS,
            TICKET,
            REFLECT,
            REFLECT_ANSWER,
            REACH_TEST,
        ];
        for (index, magic) in all.iter().enumerate() {
            assert!(!all[..index].contains(magic), "{magic:?}");
            assert!(!(20..=24).contains(&magic[0]), "content types of TLS (RFC 8446, appendix B.1)");
        }
        assert_ne!(PREAMBLE[0], RENDEZVOUS[0], "agents distinguish these two by the first byte");
    }
}
