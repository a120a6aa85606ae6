//! gRPC over mutual TLS: connecting, serving, and the caller's identity.
//!
//! Servers do the TLS handshake themselves, with a deadline, so every request
//! carries its caller's [`Identity`](crate::Identity): see [`caller`]. Both ends send
//! HTTP/2 pings while idle, so a vanished peer is noticed within
//! `KEEPALIVE_INTERVAL` + `PING_TIMEOUT`.

mod anonymous;
pub mod attachments;
pub mod call;
mod client;
mod in_connection;
mod member;
mod served;
mod server;
mod versions;

use std::error::Error as _;
use std::time::Duration;

use isthmus_wire::text;
use tonic::Status;

pub use call::{Call, Connections, Repeat, budget};
pub use client::{
    ConnectError, Stage, channel_over, channel_over_for, channel_within, connect, connect_unidentified,
};
pub use served::{Carried, Served};
pub use server::{Peer, accept, caller, peer, serve, serve_streams, serve_streams_for};
pub use versions::{check_caller, check_server, with_versions};

/// Longest wait for name resolution and TCP connect together.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for a TLS handshake.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between two pings. The first ping after a NAT has restarted finds that out.
pub(crate) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// How long a ping may stay unanswered, unless an end has more patience.
pub const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// The message of a failed call, on one line, with the causes below it: "transport error"
/// alone doesn't help. Any party may have written the message, so the characters that a
/// terminal obeys or hides are escaped.
pub fn reason(status: &Status) -> String {
    text::one_line(&whole(status))
}

/// The same of an answer that has one line for each of several nodes.
pub fn reasons(status: &Status) -> String {
    text::lines(&whole(status))
}

fn whole(status: &Status) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_obeys_no_reason() {
        let status = Status::unavailable("no\u{1b}[2J\nisthmus: all is well\u{202e}");
        assert_eq!(reason(&status), r"no\u{1b}[2J\nisthmus: all is well\u{202e}");
        assert_eq!(reasons(&status), "no\\u{1b}[2J\nisthmus: all is well\\u{202e}");
    }
}
