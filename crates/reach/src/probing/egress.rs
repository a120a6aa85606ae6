//! Which ports of a relay's host answer this node, be it by a refusal.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use isthmus_plan::egress::{Answers, TRIED};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::outside::Relay;

/// How long a host may take to answer. One SYN may be lost (RFC 6298).
const DEADLINE: Duration = Duration::from_millis(2500);
/// Relays whose hosts are tried.
pub(super) const HOSTS: usize = 2;

/// Connects to each port, and closes the connection at once.
pub(super) async fn find(relay: Relay) -> Answers {
    let mut answers = Answers { relay: relay.name, ..Answers::default() };
    let Some(at) = relay.at else { return answers };
    let mut trying = JoinSet::new();
    for port in TRIED.into_iter().filter(|port| *port != at.port()) {
        let address = SocketAddr::new(at.ip(), port);
        trying.spawn(async move {
            let tried = tokio::time::timeout(DEADLINE, TcpStream::connect(address)).await;
            (port, tried)
        });
    }
    for (port, tried) in trying.join_all().await {
        match tried {
            Ok(Ok(_)) => answers.answered.push(port),
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => answers.answered.push(port),
            Ok(Err(_)) | Err(_) => answers.silent.push(port),
        }
    }
    answers.answered.sort_unstable();
    answers.silent.sort_unstable();
    answers
}
