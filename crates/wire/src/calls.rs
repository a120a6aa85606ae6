//! The first message of a trunk's stream that carries gRPC between two agents. There is
//! no answer: HTTP/2 follows.
//!
//! ```text
//!  0  4B magic
//!  4  u8 VERSION
//!  5  zero to the length of a preamble, in whose place it stands
//! ```

use crate::opening;
use crate::preamble::PREAMBLE_LEN;

/// The message.
pub fn message() -> [u8; PREAMBLE_LEN] {
    opening::begin(opening::CALLS)
}

/// Whether a message of this length is it: a preamble otherwise.
pub fn is(bytes: &[u8; PREAMBLE_LEN]) -> bool {
    *bytes == message()
}
