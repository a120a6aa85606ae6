//! gRPC over mutual TLS: connecting, serving, and the caller's identity.
//!
//! Servers do the TLS handshake themselves, with a deadline, so every request
//! carries its caller's [`Identity`](crate::Identity): see [`caller`]. Both ends send
//! HTTP/2 pings while idle, so a vanished peer is noticed within
//! `KEEPALIVE_INTERVAL` + `KEEPALIVE_TIMEOUT`.

mod anonymous;
pub mod attachments;
pub mod call;
mod client;
mod in_connection;
mod member;
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
/// Time between two pings. The first ping after a NAT has restarted finds that out.
pub(crate) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// How long a ping may stay unanswered.
pub(crate) const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// The message of a failed call with the causes below it: "transport error" alone
/// doesn't help.
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
