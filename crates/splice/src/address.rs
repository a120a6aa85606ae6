//! The address that a service announces if none is configured: that from which this machine reaches
//! the broker.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// Longest wait for a connection to the broker.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// Pauses between attempts to reach the broker: the first pause, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// The address that was found is one that other machines can't reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoAddress {
    /// The address at which the service listens.
    pub listen: SocketAddr,
    /// The address from which this machine reaches the broker.
    pub towards_broker: IpAddr,
}

/// The address to announce: the configured one, if there is one. Otherwise it is the address at
/// which the service listens. If that is the unspecified address, it is the one from which this
/// machine reaches the broker. Tries until the broker can be reached.
///
/// # Errors
/// [`NoAddress`] if the address that was found is one that other machines can't reach.
pub async fn of(
    configured: Option<String>,
    listening: SocketAddr,
    broker: &str,
) -> Result<String, NoAddress> {
    match configured {
        Some(address) => Ok(address),
        None if listening.ip().is_unspecified() => Ok(find(listening, broker).await?.to_string()),
        None => Ok(listening.to_string()),
    }
}

async fn find(listening: SocketAddr, broker: &str) -> Result<SocketAddr, NoAddress> {
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
    let found = announced(listening, local).ok_or(NoAddress { listen: listening, towards_broker: local })?;
    tracing::info!(address = %found, "no address is configured: announcing the one that faces the broker");
    Ok(found)
}

/// The address from which this machine reaches the broker. It is found by a connection, because the
/// broker's name may have several addresses, some of them unreachable.
async fn local_towards(broker: &str) -> io::Result<IpAddr> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {CONNECT_DEADLINE:?}"));
    let stream = timeout(CONNECT_DEADLINE, TcpStream::connect(broker)).await.map_err(late)??;
    Ok(stream.local_addr()?.ip())
}

/// The address to announce; `None` if other machines can't reach it or the service doesn't listen
/// there.
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
    fn only_addresses_that_others_can_reach_are_announced() {
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
