//! gRPC over mutual TLS: connecting, serving, and who called.
//!
//! Servers do the TLS handshake themselves, with a deadline, so that every
//! request carries its caller's [`Identity`]: see [`caller`]. Both ends send
//! HTTP/2 pings while idle: a peer that is gone without a word is noticed
//! within [`KEEPALIVE_INTERVAL`] + [`KEEPALIVE_TIMEOUT`].

pub mod attachments;
pub mod call;
mod client;
mod in_connection;
mod server;
mod versions;

use std::error::Error as _;
use std::time::Duration;

use tonic::Status;

pub use call::{Call, Connections, Repeat, budget};
pub use client::{ConnectError, Stage, channel_over, channel_within, connect, connect_unidentified};
pub use server::{Peer, accept, caller, peer, serve, serve_streams};
pub use versions::{check_caller, check_server, with_versions};

/// Longest wait for name resolution and TCP connect together.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for a TLS handshake.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a connection is probed. A NAT that has moved or begun anew is found
/// by the first probe after it.
pub(crate) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// How long a probe may stay unanswered.
pub(crate) const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// What a failed call has to say, with the causes below it: "transport error"
/// alone helps nobody.
pub fn reason(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut cause = status.source();
    while let Some(error) = cause {
        let line = error.to_string();
        if !text.contains(&line) {
            text = if text.is_empty() { line } else { format!("{text}: {line}") };
        }
        cause = error.source();
    }
    if text.is_empty() { status.code().to_string() } else { text }
}
