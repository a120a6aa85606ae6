//! Where agents reach the relay if its configuration doesn't say: at the
//! address from which it reaches the broker.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::service::RelayError;

/// Longest wait for a connection to the broker.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// Pauses between attempts: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// Finds the address that goes with `listening`, an unspecified one; tries
/// until the broker can be reached.
///
/// # Errors
/// If agents could not reach what is found.
pub(crate) async fn find(listening: SocketAddr, broker: &str) -> Result<SocketAddr, RelayError> {
    let mut pause = PAUSES.0;
    let local = loop {
        match local_towards(broker).await {
            Ok(local) => break local,
            Err(reason) => {
                tracing::warn!(broker, %reason, retry_in = ?pause, "cannot reach the broker");
                sleep(pause).await;
                pause = (pause * 2).min(PAUSES.1);
            }
        }
    };
    let found = announced(listening, local)
        .ok_or(RelayError::NoAddress { listen: listening, towards_broker: local })?;
    tracing::info!(address = %found, "no `address` is configured: agents are told the one that faces the broker");
    Ok(found)
}

/// The address from which this machine reaches the broker. Connects, because
/// the broker's name may stand for several addresses, not all of them in reach.
async fn local_towards(broker: &str) -> io::Result<IpAddr> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {CONNECT_DEADLINE:?}"));
    let stream = timeout(CONNECT_DEADLINE, TcpStream::connect(broker)).await.map_err(late)??;
    Ok(stream.local_addr()?.ip())
}

/// What others may be told, if anything: an address that means the same on
/// their machines, and that the relay listens on.
fn announced(listening: SocketAddr, local: IpAddr) -> Option<SocketAddr> {
    let local = local.to_canonical();
    let means_something = match local {
        IpAddr::V4(local) => !local.is_loopback() && !local.is_unspecified() && !local.is_link_local(),
        IpAddr::V6(local) => {
            !local.is_loopback() && !local.is_unspecified() && !local.is_unicast_link_local()
        }
    };
    // Listening on :: takes IPv4 as well, but not the other way round.
    let listens = listening.is_ipv6() || local.is_ipv4();
    (means_something && listens).then(|| SocketAddr::new(local, listening.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_are_told_what_they_can_use() {
        for (listening, local, want) in [
            ("0.0.0.0:7720", "198.51.100.10", Some("198.51.100.10:7720")),
            ("0.0.0.0:9", "10.1.2.3", Some("10.1.2.3:9")),
            ("[::]:7720", "198.51.100.10", Some("198.51.100.10:7720")),
            ("[::]:7720", "::ffff:198.51.100.10", Some("198.51.100.10:7720")),
            ("[::]:7720", "2001:db8::1", Some("[2001:db8::1]:7720")),
            ("0.0.0.0:7720", "2001:db8::1", None),
            ("0.0.0.0:7720", "127.0.0.1", None),
            ("0.0.0.0:7720", "127.0.1.1", None),
            ("0.0.0.0:7720", "169.254.7.7", None),
            ("[::]:7720", "::1", None),
            ("[::]:7720", "::ffff:127.0.0.1", None),
            ("[::]:7720", "fe80::1", None),
        ] {
            let found = announced(listening.parse().unwrap(), local.parse().unwrap());
            assert_eq!(found, want.map(|text| text.parse().unwrap()), "{listening} from {local}");
        }
    }
}
