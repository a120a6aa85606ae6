//! Identifiers that cross the wire: 16 random bytes each, written as hex.

use std::fmt;
use std::str::FromStr;

use crate::DecodeError;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub [u8; 16]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl FromStr for $name {
            type Err = DecodeError;

            fn from_str(text: &str) -> Result<Self, DecodeError> {
                let wrong = || DecodeError::new($what, "expected 32 hexadecimal digits");
                if text.len() != 32 || !text.is_ascii() {
                    return Err(wrong());
                }
                let mut bytes = [0; 16];
                for (index, byte) in bytes.iter_mut().enumerate() {
                    *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).map_err(|_| wrong())?;
                }
                Ok(Self(bytes))
            }
        }

        impl TryFrom<&[u8]> for $name {
            type Error = DecodeError;

            fn try_from(bytes: &[u8]) -> Result<Self, DecodeError> {
                bytes
                    .try_into()
                    .map(Self)
                    .map_err(|_| DecodeError::new($what, format!("expected 16 bytes, got {}", bytes.len())))
            }
        }
    };
}

id!(
    /// Names an `isthmus run`: all its processes on all its nodes.
    JobId,
    "job id"
);
id!(
    /// The id by which a relay or gateway matches two connections.
    ConnectionId,
    "connection id"
);
id!(
    /// Makes each [`Preamble`](crate::preamble::Preamble) unique, so that a preamble that is
    /// replayed is recognised.
    Nonce,
    "nonce"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips_and_rejects_everything_else() {
        let id = JobId([0xa5; 16]);
        assert_eq!(id.to_string().parse(), Ok(id));
        for text in ["", "a5", &"g".repeat(32), &"é".repeat(16), &"0".repeat(33)] {
            assert!(text.parse::<JobId>().is_err(), "{text:?}");
        }
    }
}
