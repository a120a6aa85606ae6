//! How a trunk's carrier was dialed. The agent that dials the carrier tells the other agent, on a
//! stream of the trunk. So both agents account for what the carrier carries by the same way.
//!
//! ```text
//!  0  4B magic
//!  4  u8 VERSION
//!  5  u8 route, as in isthmus.proto
//!  6  u8 dial, as in isthmus.proto
//!  7  u8 length of the relay's name, 0 for none
//!  8 63B the relay's name
//! 71  u32 the number of the carrier at the receiver's end, plus 1; 0: not told
//! 75  zero to the length of a preamble, in whose place it stands
//! ```

use crate::preamble::PREAMBLE_LEN;
use crate::{DecodeError, Label, opening};

/// Length of the message, in bytes.
pub const WAY_LEN: usize = PREAMBLE_LEN;

const MESSAGE: &str = "way";
const NAME: usize = 8;
const NAME_MAX: usize = 63;
const CARRIER: usize = 71;

/// How a carrier was dialed, and by which number the receiver knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CarrierWay {
    /// The number of a route in isthmus.proto.
    pub route: u8,
    /// The number of a dial in isthmus.proto.
    pub dial: u8,
    /// The name of the relay that splices the carrier; `None` without a relay.
    pub relay: Option<Label>,
    /// The number by which the receiver names the carrier; `None` if it isn't told.
    pub carrier: Option<u32>,
}

impl CarrierWay {
    /// Whether the first message of a stream is a way. If not, it is a preamble.
    pub fn is(bytes: &[u8; WAY_LEN]) -> bool {
        bytes.starts_with(&opening::WAY)
    }

    /// The message as bytes.
    pub fn encode(&self) -> [u8; WAY_LEN] {
        let mut out = opening::begin::<WAY_LEN>(opening::WAY);
        (out[5], out[6]) = (self.route, self.dial);
        if let Some(relay) = &self.relay {
            let name = relay.as_str().as_bytes();
            // A label isn't longer.
            out[7] = name.len() as u8;
            out[NAME..NAME + name.len()].copy_from_slice(name);
        }
        let carrier = self.carrier.map_or(0, |carrier| carrier.saturating_add(1));
        out[CARRIER..CARRIER + 4].copy_from_slice(&carrier.to_be_bytes());
        out
    }

    /// Reads the message.
    ///
    /// # Errors
    /// If the bytes aren't a message of this version, or if the relay's name isn't a valid name.
    pub fn decode(bytes: &[u8; WAY_LEN]) -> Result<Self, DecodeError> {
        opening::check(MESSAGE, bytes, opening::WAY)?;
        let wrong = |reason: String| DecodeError::new(MESSAGE, reason);
        let relay = match usize::from(bytes[7]) {
            0 => None,
            length if length > NAME_MAX => return Err(wrong(format!("a name of {length} bytes"))),
            length => {
                let name = std::str::from_utf8(&bytes[NAME..NAME + length]);
                let name = name.map_err(|error| wrong(error.to_string()))?;
                Some(name.parse::<Label>().map_err(|error| wrong(error.to_string()))?)
            }
        };
        let carrier = bytes[CARRIER..].first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        let way = Self { route: bytes[5], dial: bytes[6], relay, carrier: carrier.checked_sub(1) };
        opening::same(MESSAGE, &way.encode(), bytes)?;
        Ok(way)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_read_as_it_was_written() {
        for relay in [None, Some("hub"), Some(&*"a".repeat(63))] {
            for carrier in [None, Some(0), Some(u32::MAX - 1)] {
                let way =
                    CarrierWay { route: 1, dial: 2, relay: relay.map(|name| name.parse().unwrap()), carrier };
                let bytes = way.encode();
                assert!(CarrierWay::is(&bytes));
                assert_eq!(CarrierWay::decode(&bytes), Ok(way));
            }
        }
    }

    #[test]
    fn what_is_no_way_is_refused() {
        let good =
            CarrierWay { route: 1, dial: 2, relay: Some("hub".parse().unwrap()), carrier: None }.encode();
        for (place, byte, why) in [
            (0, b'X', "magic"),
            (4, 9, "version"),
            (7, 64, "too long a name"),
            (7, 4, "a name with a zero byte"),
            (8, b'!', "no name"),
            (20, 1, "a reserved byte"),
            (87, 1, "a reserved byte"),
        ] {
            let mut bytes = good;
            bytes[place] = byte;
            assert!(CarrierWay::decode(&bytes).is_err(), "{why}");
        }
    }
}
