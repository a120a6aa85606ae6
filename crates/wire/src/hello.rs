//! Messages that carry only the id of the request that a connection belongs to. The
//! party that waits has made the id, and has sent it over mutual TLS only. So only
//! the party that received the order to dial has it. There is no answer.
//!
//! ```text
//!  0  4B magic
//!  4  u8 VERSION
//!  5  3B zero
//!  8 16B id
//! 24  zero to the message's length
//! ```

use crate::ticket::TICKET_LEN;
use crate::{ConnectionId, DecodeError, array, opening};

/// Length of the message [`RENDEZVOUS`], in bytes.
pub const RENDEZVOUS_LEN: usize = 24;
/// Length of the message [`REACH_TEST`], in bytes: that of a ticket, in whose place it is sent.
pub const REACH_TEST_LEN: usize = TICKET_LEN;

/// The first message of a party that dials on order (`reverse`): the id of the
/// rendezvous. TLS or a preamble then authenticates the party.
pub const RENDEZVOUS: Hello<RENDEZVOUS_LEN> = Hello { message: "hello", magic: opening::RENDEZVOUS };

/// The message of a relay that tests whether a gateway's port outside is reached.
pub const REACH_TEST: Hello<REACH_TEST_LEN> = Hello { message: "reach test", magic: opening::REACH_TEST };

/// A kind of message that carries only an id, of `LEN` bytes.
#[derive(Debug, Clone, Copy)]
pub struct Hello<const LEN: usize> {
    message: &'static str,
    magic: [u8; 4],
}

impl<const LEN: usize> Hello<LEN> {
    /// First byte of every message of this kind.
    pub const fn first_byte(&self) -> u8 {
        self.magic[0]
    }

    /// The message for this id.
    pub fn encode(&self, id: ConnectionId) -> [u8; LEN] {
        let mut out = opening::begin::<LEN>(self.magic);
        out[8..24].copy_from_slice(&id.0);
        out
    }

    /// The id in a message.
    ///
    /// # Errors
    /// If the message is of another kind or version.
    pub fn decode(&self, bytes: &[u8; LEN]) -> Result<ConnectionId, DecodeError> {
        opening::check(self.message, bytes, self.magic)?;
        let id = ConnectionId(array(bytes, 8));
        opening::same(self.message, &self.encode(id), bytes)?;
        Ok(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_layout_is_this() {
        assert_eq!(&RENDEZVOUS.encode(ConnectionId([7; 16]))[..9], b"MEET\x01\0\0\0\x07");
        let bytes = REACH_TEST.encode(ConnectionId([7; 16]));
        assert_eq!(&bytes[..9], b"ISVT\x01\0\0\0\x07");
        assert!(
            crate::ticket::Ticket::decode(&bytes).is_err()
                && crate::reflect::decode_question(&bytes).is_err()
        );
        let wrong = |change: fn(&mut [u8; REACH_TEST_LEN])| {
            let mut bytes = bytes;
            change(&mut bytes);
            REACH_TEST.decode(&bytes).unwrap_err().to_string()
        };
        assert!(wrong(|bytes| bytes[0] = 0).contains("starts with"));
        assert!(wrong(|bytes| bytes[4] = 9).contains("version 9"));
        assert!(wrong(|bytes| bytes[63] = 1).contains("not zero"));
    }

    proptest! {
        #[test]
        fn ids_survive(id in any::<[u8; 16]>()) {
            let id = ConnectionId(id);
            prop_assert_eq!(RENDEZVOUS.decode(&RENDEZVOUS.encode(id)), Ok(id));
            prop_assert_eq!(REACH_TEST.decode(&REACH_TEST.encode(id)), Ok(id));
        }

        #[test]
        fn any_bytes_decode_or_fail_without_panic(bytes in prop::collection::vec(any::<u8>(), REACH_TEST_LEN)) {
            let whole: [u8; REACH_TEST_LEN] = array(&bytes, 0);
            if let Ok(id) = REACH_TEST.decode(&whole) {
                prop_assert_eq!(REACH_TEST.encode(id), whole);
            }
            let whole: [u8; RENDEZVOUS_LEN] = array(&bytes, 0);
            if let Ok(id) = RENDEZVOUS.decode(&whole) {
                prop_assert_eq!(RENDEZVOUS.encode(id), whole);
            }
        }
    }
}
