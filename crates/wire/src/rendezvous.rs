//! What an agent says first that was told to dial another one (`reverse`): for
//! which rendezvous it comes. The one that waits made the id up and told it over
//! mutual TLS only, so that whoever knows it is the one who was asked; who that
//! is, TLS or a preamble then proves.
//!
//! ```text
//! Hello, 24 bytes
//!  0  4B magic "MEET"
//!  4  u8 VERSION
//!  5  3B zero
//!  8 16B connection id
//! ```

use crate::{ConnectionId, DecodeError, array};

/// Version of this layout.
pub(crate) const VERSION: u8 = 1;
/// Length of an encoded hello.
pub const HELLO_LEN: usize = 24;
/// First byte of every hello; neither a preamble nor a TLS record can start
/// with it, so that all may come to one port.
pub const FIRST_BYTE: u8 = MAGIC[0];

const MAGIC: [u8; 4] = *b"MEET";

/// The hello for a rendezvous.
pub fn encode(rendezvous: ConnectionId) -> [u8; HELLO_LEN] {
    let mut out = [0; HELLO_LEN];
    out[..4].copy_from_slice(&MAGIC);
    out[4] = VERSION;
    out[8..].copy_from_slice(&rendezvous.0);
    out
}

/// Reads a hello.
///
/// # Errors
/// If it isn't one of this version.
pub fn decode(bytes: &[u8; HELLO_LEN]) -> Result<ConnectionId, DecodeError> {
    let rendezvous = ConnectionId(array(bytes, 8));
    match (array::<4>(bytes, 0), bytes[4]) {
        (MAGIC, VERSION) if encode(rendezvous) == *bytes => Ok(rendezvous),
        (MAGIC, VERSION) => Err(DecodeError::new("hello", "reserved bytes are not zero")),
        (MAGIC, other) => {
            Err(DecodeError::new("hello", format!("version {other}, this agent speaks {VERSION}")))
        }
        (other, _) => Err(DecodeError::new("hello", format!("starts with {other:02x?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn round_trip() {
        let rendezvous = ConnectionId([7; 16]);
        assert_eq!(decode(&encode(rendezvous)), Ok(rendezvous));
        assert_ne!(FIRST_BYTE, crate::preamble::FIRST_BYTE);
        assert!(!(20..=24).contains(&FIRST_BYTE), "content types of TLS (RFC 8446, appendix B.1)");
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_fail_without_panic(bytes in prop::collection::vec(any::<u8>(), HELLO_LEN)) {
            let whole: [u8; HELLO_LEN] = array(&bytes, 0);
            if let Ok(rendezvous) = decode(&whole) {
                prop_assert_eq!(encode(rendezvous), whole);
            }
        }
    }
}
