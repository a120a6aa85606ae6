//! Layouts of everything that crosses a socket in isthmus: encode and decode
//! only. No I/O, no clock, no randomness.
//!
//! | module | between | transport |
//! |---|---|---|
//! | [`shim`] | shim and its agent | Unix socket, fixed-size messages |
//! | [`settings`] | agent and shim | a small text file in the job's directory |
//! | [`opening`] | the table of the first messages of connections | |
//! | [`preamble`] | two agents, once per connection | the connection itself |
//! | [`ticket`] | agent and relay, once per connection | the connection itself |
//! | [`way`] | two agents, once per carrier of a trunk | a stream of the trunk |
//! | [`calls`] | two agents, once per stream that carries gRPC | a stream of a trunk |
//! | [`site_stream`] | the gateways of two sites, once per connection | a stream of their trunk |
//! | [`hello`] | two agents, where the acceptor dials; relay and gateway, now and then | the connection itself |
//! | [`reflect`] | agent and relay, now and then | a connection of its own |
//! | [`keepalive`] | both ends of an idle connection | TCP, without data |
//! | [`upgrade`] | a service and the program that takes its place | a memory file |
//! | [`launchers`] | agent and shim: which programs start ranks | names |
//! | [`patience`] | how long an agent may be silent | a field of [`proto`] |
//! | [`topology`] | agent and MPI library | a text file in the job's directory |
//! | [`proto`] (feature `grpc`) | control plane | gRPC over mutual TLS or a Unix socket |
//! | [`protocol`] | both ends of that | its headers |

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests read files"))]

pub mod address;
pub mod bounds;
pub mod calls;
pub mod hello;
mod id;
pub mod keepalive;
pub mod launchers;
mod name;
pub mod opening;
pub mod patience;
pub mod preamble;
pub mod protocol;
pub mod reflect;
pub mod sanitizer;
pub mod settings;
pub mod shim;
pub mod site_stream;
pub mod sock_diag;
pub mod text;
pub mod ticket;
pub mod topology;
pub mod upgrade;
pub mod way;

pub use address::{VirtualAddress, VirtualRange};
pub use id::{ConnectionId, JobId, Nonce};
pub use name::{GridName, Label, NameError, RelayName};

/// Messages and services of the control plane, generated from
/// `proto/isthmus.proto`, which documents them.
#[cfg(feature = "grpc")]
#[allow(missing_docs, clippy::all, clippy::pedantic)]
pub mod proto {
    tonic::include_proto!("isthmus.v1");
}

/// Bytes are not the expected message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("malformed {message}: {reason}")]
pub struct DecodeError {
    /// The message that was expected.
    pub message: &'static str,
    /// How the bytes differ from the message.
    pub reason: String,
}

impl DecodeError {
    /// A message of the wrong length.
    pub fn wrong_length(message: &'static str, length: usize) -> Self {
        Self::new(message, format!("{length} bytes"))
    }

    pub(crate) fn new(message: &'static str, reason: impl Into<String>) -> Self {
        Self { message, reason: reason.into() }
    }
}

/// Reads `N` bytes at `offset` of a buffer whose length the caller's type
/// guarantees; out of range yields zeroes rather than a panic.
pub(crate) fn array<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut out = [0; N];
    if let Some(slice) = bytes.get(offset..offset + N) {
        out.copy_from_slice(slice);
    }
    out
}
