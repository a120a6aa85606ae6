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

/// The message that begins a stream with gRPC.
pub fn message() -> [u8; PREAMBLE_LEN] {
    opening::begin(opening::CALLS)
}

/// Whether the first message of a stream announces gRPC. If not, it is a preamble.
pub fn is(bytes: &[u8; PREAMBLE_LEN]) -> bool {
    *bytes == message()
}
