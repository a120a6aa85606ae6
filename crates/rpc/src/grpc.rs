//! gRPC over mutual TLS: connecting, serving, and the caller's identity.
//!
//! Servers do the TLS handshake themselves, with a deadline, so every request
//! carries its caller's [`Identity`](isthmus_identity::Identity): see [`caller`]. Both ends send
//! HTTP/2 pings while idle, so a vanished peer is noticed within
//! `KEEPALIVE_INTERVAL` + `PING_TIMEOUT`. A dead way is noticed sooner, by the kernel: see
//! [`bound_silence`](isthmus_net::keepalive::bound_silence).

mod anonymous;
pub mod attachments;
mod bounded;
pub mod call;
mod client;
mod framing;
mod in_connection;
mod members;
mod misdirected;
mod peer;
mod remedy;
mod served;
mod server;
mod settings;
mod share;
mod versions;

use std::error::Error as _;
use std::time::Duration;

use isthmus_wire::text;
use tonic::Status;

pub use call::{Call, Connections, Repeat, broke, budget, may_pass};
pub use client::{
    ConnectError, Stage, channel_over, channel_over_for, channel_within, connect, connect_identified,
    connect_unidentified,
};
pub use peer::{Peer, caller, peer};
pub use remedy::{told, with_remedy};
pub use served::{Carried, Served};
pub use server::{accept, serve, serve_streams, serve_streams_for};
pub use versions::{check_caller, check_server, with_versions};

/// Longest wait for name resolution and TCP connect together.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for a TLS handshake.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between two pings. If a NAT has restarted, the first ping after that shows it.
pub(crate) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// How long a ping may stay unanswered, unless an end asks for more patience.
pub const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// The message of a failed call, on a single line, with the causes below it: "transport error"
/// alone doesn't help. Any party may have written the message, so the characters that a terminal
/// obeys or hides are escaped.
pub fn reason(status: &Status) -> String {
    text::one_line(&whole(status))
}

/// The message of a failed call, on as many lines as it has. An answer about several nodes has a
/// line for each.
pub fn reasons(status: &Status) -> String {
    text::lines(&whole(status))
}

/// Whether a connection broke below a call: here, or at a service that has passed the failure on.
/// The libraries give such a failure no type that is passed on, so their messages decide.
pub fn connection_broke(status: &Status) -> bool {
    whole(status).starts_with(BROKE)
}

/// What a user reads of a connection that broke below a call.
const BROKE: &str = "the connection broke";
/// How messages of the libraries about broken connections begin. These messages name parts of the
/// libraries, which tell a user nothing.
const OF_LIBRARIES: [&str; 15] = [
    "transport error",
    "h2 protocol error",
    "http2 error",
    "connection error",
    "stream error",
    "stream closed",
    "operation was canceled",
    "channel closed",
    "client error",
    "dispatch",
    "error trying to connect",
    "tcp connect error",
    "error reading a body",
    "connection closed before",
    "service was not ready",
];

fn whole(status: &Status) -> String {
    let mut lines = vec![status.message().to_owned()];
    let mut cause = status.source();
    while let Some(error) = cause {
        lines.push(error.to_string());
        cause = error.source();
    }
    let text = plain(&lines);
    if text.is_empty() { status.code().to_string() } else { text }
}

/// A message and its causes in plain words, each once. What libraries say of a broken
/// connection becomes [`BROKE`].
fn plain(lines: &[String]) -> String {
    let mut text = String::new();
    let mut broke = false;
    for line in lines.iter().map(|line| line.trim()).filter(|line| !line.is_empty()) {
        let begins =
            |known: &&str| line.get(..known.len()).is_some_and(|head| head.eq_ignore_ascii_case(known));
        if OF_LIBRARIES.iter().any(begins) {
            broke = true;
        } else if text.is_empty() {
            line.clone_into(&mut text);
        } else if !text.contains(line) {
            text = format!("{text}: {line}");
        }
    }
    match (broke, text.is_empty()) {
        (true, true) => BROKE.to_owned(),
        (true, false) => format!("{BROKE}: {text}"),
        (false, _) => text,
    }
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

    #[test]
    fn users_read_nothing_of_the_libraries() {
        for (lines, want) in [
            (&["the job is ending"][..], "the job is ending"),
            (&["h2 protocol error: http2 error", "stream error received: unexpected"], BROKE),
            (
                &["transport error", "Connection reset by peer (os error 104)"],
                "the connection broke: Connection reset by peer (os error 104)",
            ),
            (&["a", "b", "a"], "a: b"),
            (&["", "why"], "why"),
            (&[""], ""),
        ] {
            let lines: Vec<_> = lines.iter().map(|line| (*line).to_owned()).collect();
            assert_eq!(plain(&lines), want, "{lines:?}");
        }
    }
}
