//! Where another node may have this agent dial to. Whoever asks is a member of
//! the grid, and the broker passes it on; but an agent stands inside its site,
//! where it reaches what outsiders don't, so that it dials nothing but what an
//! agent can be.

use std::net::{IpAddr, SocketAddr};

/// Ports below are for services of the system.
const FIRST_PORT: u16 = 1024;

/// Why an address isn't dialed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAnAgent {
    /// Nothing outside this node is there.
    #[error("{0} is no address of another node")]
    OwnNode(SocketAddr),
    /// An agent doesn't listen or dial there.
    #[error("{0} has a port of the system's services")]
    SystemPort(SocketAddr),
}

/// Whether this agent may be asked to dial there.
///
/// # Errors
/// [`NotAnAgent`].
pub fn check(address: SocketAddr) -> Result<(), NotAnAgent> {
    let ip = address.ip().to_canonical();
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    if ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || link_local {
        return Err(NotAnAgent::OwnNode(address));
    }
    if address.port() < FIRST_PORT {
        return Err(NotAnAgent::SystemPort(address));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_an_agent_can_be() {
        for (address, good) in [
            ("192.0.2.1:7730", true),
            ("10.0.0.7:40000", true),
            ("[2001:db8::1]:1024", true),
            ("192.0.2.1:22", false),
            ("127.0.0.1:7730", false),
            ("[::ffff:127.0.0.1]:7730", false),
            ("0.0.0.0:7730", false),
            ("169.254.169.254:8080", false),
            ("[fe80::1]:7730", false),
            ("224.0.0.1:7730", false),
        ] {
            let found = check(address.parse().unwrap());
            assert_eq!(found.is_ok(), good, "{address}: {found:?}");
        }
    }
}
