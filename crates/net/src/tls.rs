//! TLS (RFC 8446) by rustls's unbuffered API, in two layers:
//!
//! | module | what |
//! |---|---|
//! | [`session`] | [`Session`]: one connection's TLS without I/O, over the caller's buffers |
//! | [`stream`] | [`Stream`]: a session on a tokio socket, as `AsyncRead` and `AsyncWrite` |
//! | `handshake` | the handshakes that make streams |
//! | `resumption` | the sessions that a client resumes |
//!
//! [`Secured`](crate::secured::Secured) adds the check of the peer's certificate. The
//! cryptography and the protocol are rustls's and ring's. Figures and reasons are in
//! docs/decisions/0022-unbuffered-tls.md.

mod handshake;
pub(crate) mod resumption;
mod scratch;
pub mod session;
pub mod stream;
#[cfg(test)]
mod tests;

pub use handshake::{accept, connect};
pub use session::{MAX_RECORD, Opened, Session, sealed_len};
pub use stream::{Parts, Stream};
