//! What a relay shows at a gateway's port outside when it was asked to see
//! whether it gets there, in the place of a ticket: a number that nobody else can
//! know. There is no answer.
//!
//! ```text
//!  0  4B magic "ISVT"
//!  4  u8 VERSION
//!  5  3B zero
//!  8 16B number
//! 24 40B zero
//! ```

use crate::ticket::TICKET_LEN;
use crate::{ConnectionId, DecodeError, array};

/// Version of this layout.
pub(crate) const VERSION: u8 = 1;
/// Length of a reach test: that of a ticket, because it comes in its place.
pub const REACH_TEST_LEN: usize = TICKET_LEN;

const MAGIC: [u8; 4] = *b"ISVT";

/// A reach test.
pub fn encode(number: ConnectionId) -> [u8; REACH_TEST_LEN] {
    let mut out = [0; REACH_TEST_LEN];
    out[..4].copy_from_slice(&MAGIC);
    out[4] = VERSION;
    out[8..24].copy_from_slice(&number.0);
    out
}

/// Reads a reach test.
///
/// # Errors
/// If it isn't one of this version.
pub fn decode(bytes: &[u8; REACH_TEST_LEN]) -> Result<ConnectionId, DecodeError> {
    let number = ConnectionId(array(bytes, 8));
    match (array::<4>(bytes, 0), bytes[4]) {
        (MAGIC, VERSION) if encode(number) == *bytes => Ok(number),
        (MAGIC, VERSION) => Err(DecodeError::new("reach test", "reserved bytes are not zero")),
        (MAGIC, other) => {
            Err(DecodeError::new("reach test", format!("version {other}, this gateway speaks {VERSION}")))
        }
        (other, _) => Err(DecodeError::new("reach test", format!("starts with {other:02x?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_layout_is_this() {
        let bytes = encode(ConnectionId([7; 16]));
        assert_eq!(&bytes[..9], b"ISVT\x01\0\0\0\x07");
        assert!(crate::ticket::Ticket::decode(&bytes).is_err() && !crate::reflect::is_question(&bytes));
        let wrong = |change: fn(&mut [u8; REACH_TEST_LEN])| {
            let mut bytes = bytes;
            change(&mut bytes);
            decode(&bytes).unwrap_err().to_string()
        };
        assert!(wrong(|bytes| bytes[0] = 0).contains("starts with"));
        assert!(wrong(|bytes| bytes[4] = 9).contains("version 9"));
        assert!(wrong(|bytes| bytes[63] = 1).contains("not zero"));
    }

    proptest! {
        #[test]
        fn numbers_survive(number in any::<[u8; 16]>()) {
            prop_assert_eq!(decode(&encode(ConnectionId(number))), Ok(ConnectionId(number)));
        }

        #[test]
        fn any_bytes_decode_or_fail_without_panic(bytes in prop::collection::vec(any::<u8>(), REACH_TEST_LEN)) {
            let whole: [u8; REACH_TEST_LEN] = array(&bytes, 0);
            if let Ok(number) = decode(&whole) {
                prop_assert_eq!(encode(number), whole);
            }
        }
    }
}
