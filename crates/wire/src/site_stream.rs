//! The first message of a stream of the trunk that the gateways of two sites keep: which
//! nodes it joins. There is no answer: what the two agents say to each other follows.
//!
//! ```text
//!  0  4B magic "ISTN"
//!  4  u8 VERSION
//!  5  3B zero
//!  8  u32 virtual address of the acceptor's node, big-endian
//! 12  u32 virtual address of the initiator's node
//! ```

use crate::{DecodeError, VirtualAddress, array, opening};

/// Length of the message, in bytes.
pub const SITE_STREAM_LEN: usize = 16;

const MESSAGE: &str = "stream of two sites' trunk";

/// The two nodes that a stream of the gateways' trunk joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SiteStream {
    /// The acceptor's node, at the site that receives the message.
    pub destination: VirtualAddress,
    /// The initiator's node, at the site that sends the message.
    pub initiator: VirtualAddress,
}

impl SiteStream {
    /// The message as bytes.
    pub fn encode(&self) -> [u8; SITE_STREAM_LEN] {
        let mut out = opening::begin::<SITE_STREAM_LEN>(opening::SITE_STREAM);
        out[8..12].copy_from_slice(&self.destination.ip().octets());
        out[12..16].copy_from_slice(&self.initiator.ip().octets());
        out
    }

    /// Reads the message.
    ///
    /// # Errors
    /// If the bytes aren't a message of this version, or if an address isn't virtual.
    pub fn decode(bytes: &[u8; SITE_STREAM_LEN]) -> Result<Self, DecodeError> {
        opening::check(MESSAGE, bytes, opening::SITE_STREAM)?;
        let address = |at| {
            let ip = array::<4>(bytes, at).into();
            VirtualAddress::new(ip).ok_or_else(|| DecodeError::new(MESSAGE, format!("{ip} is not virtual")))
        };
        let read = Self { destination: address(8)?, initiator: address(12)? };
        opening::same(MESSAGE, &read.encode(), bytes)?;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn address(text: &str) -> VirtualAddress {
        VirtualAddress::new(text.parse().unwrap()).unwrap()
    }

    #[test]
    fn the_layout_is_this() {
        let stream = SiteStream { destination: address("240.64.2.7"), initiator: address("240.64.1.9") };
        let bytes = stream.encode();
        assert_eq!(&bytes, b"ISTN\x01\0\0\0\xf0\x40\x02\x07\xf0\x40\x01\x09");
        assert_eq!(SiteStream::decode(&bytes), Ok(stream));
        for (place, byte, why) in [
            (0, b'X', "starts with"),
            (4, 9, "version 9"),
            (5, 1, "not zero"),
            (8, 10, "10.64.2.7 is not virtual"),
            (12, 127, "127.64.1.9 is not virtual"),
        ] {
            let mut bytes = bytes;
            bytes[place] = byte;
            let error = SiteStream::decode(&bytes).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_fail_without_panic(bytes in any::<[u8; SITE_STREAM_LEN]>(), whole in any::<bool>()) {
            let mut bytes = bytes;
            if whole {
                bytes[..8].copy_from_slice(b"ISTN\x01\0\0\0");
                (bytes[8], bytes[12]) = (240, 240);
            }
            if let Ok(stream) = SiteStream::decode(&bytes) {
                prop_assert_eq!(stream.encode(), bytes);
            }
        }
    }
}
