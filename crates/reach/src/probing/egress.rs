//! Which ports of a relay's host answer this node, be it by a refusal.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use isthmus_plan::egress::{Answers, TRIED};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::outside::Relay;

/// How long a host may take to answer. A single SYN may be lost meanwhile (RFC 6298).
const DEADLINE: Duration = Duration::from_millis(2500);
/// How many relays' hosts are tried.
pub(super) const HOSTS: usize = 2;

/// Connects to each port of the relay's host, and closes the connection at once. The relay's own
/// port counts as answered without a try, as the relay has answered there.
pub(super) async fn find(relay: Relay) -> Answers {
    let mut answers = Answers { relay: relay.name, ..Answers::default() };
    let Some(at) = relay.at else { return answers };
    let (own, others): (Vec<u16>, Vec<u16>) = TRIED.into_iter().partition(|port| *port == at.port());
    answers.answered = own;
    let mut trying = JoinSet::new();
    for port in others {
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

#[cfg(test)]
mod tests {
    use isthmus_wire::proto::DirectoryEntry;
    use tokio::net::TcpListener;

    use super::*;

    /// If a relay has one of the tried ports, its answer has shown that the port is let out.
    #[tokio::test]
    async fn the_relay_s_own_port_has_answered() {
        let anywhere = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        for (port, want) in [(443, true), (7730, true), (anywhere.port(), false)] {
            let mut relay = Relay::new(DirectoryEntry::default(), None);
            relay.at = Some(SocketAddr::new(anywhere.ip(), port));
            let answers = find(relay).await;
            assert_eq!((answers.answered.contains(&port), answers.silent.contains(&port)), (want, false));
        }
    }
}
