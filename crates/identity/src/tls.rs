//! TLS (RFC 8446) by rustls's unbuffered API, in two layers:
//!
//! | module | what |
//! |---|---|
//! | [`session`] | [`Session`]: one connection's TLS without I/O, over the caller's buffers |
//! | [`stream`] | [`Stream`]: a session on a tokio socket, as `AsyncRead` and `AsyncWrite` |
//! | `handshake` | the handshakes that make streams |
//! | `records`, `steps` | lengths of records; one step of rustls |
//! | `resumption` | the sessions that a client resumes |
//!
//! [`Secured`](crate::secured::Secured) adds the check of the peer's certificate. The
//! cryptography and the protocol are rustls's and ring's. Figures and reasons are in
//! docs/decisions/0022-unbuffered-tls.md.

mod handshake;
mod records;
pub(crate) mod resumption;
mod scratch;
pub mod session;
mod steps;
pub mod stream;
#[cfg(test)]
mod tests;

pub use handshake::{accept, connect};
pub(crate) use handshake::{accept_read, first_message};
pub use records::{MAX_RECORD, sealed_len};
pub use session::{Opened, Session};
pub use stream::{Parts, Stream};
