//! Which addresses a party of another site may have an agent or a gateway dial.
//! The requester is a member of the grid, and the order comes from the broker.
//! But agents and gateways reach services inside their site that outsiders don't.
//! So they dial only addresses that an agent, a gateway or a relay can have.

use std::net::{IpAddr, SocketAddr};

/// The lowest port that is dialed. Ports below it are for services of the system.
pub const FIRST_PORT: u16 = 1024;
/// The only port below [`FIRST_PORT`] that gateways and relays may have, because most sites let it
/// out.
pub const HTTPS: u16 = 443;

/// Why an address isn't dialed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAnAgent {
    /// The address is no unicast address of another machine.
    #[error("{0} is no address of another node")]
    OwnNode(SocketAddr),
    /// The port is one of the system's; no service of the grid has it.
    #[error("{0} has a port of the system's services")]
    SystemPort(SocketAddr),
}

/// Checks that an agent can have this address.
///
/// # Errors
/// [`NotAnAgent`] if it can't.
pub fn check(address: SocketAddr) -> Result<(), NotAnAgent> {
    if address.port() < FIRST_PORT {
        return Err(NotAnAgent::SystemPort(address));
    }
    elsewhere(address)
}

/// Checks that a gateway's outside port or a relay can have this address.
///
/// # Errors
/// [`NotAnAgent`] if neither can.
pub fn check_service(address: SocketAddr) -> Result<(), NotAnAgent> {
    if address.port() == HTTPS { elsewhere(address) } else { check(address) }
}

/// Whether an address is private, so that each site may use it (RFC 1918, RFC 6598,
/// RFC 4193).
pub fn is_private(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.is_private() || matches!(ip.octets(), [100, 64..128, ..]),
        IpAddr::V6(ip) => ip.is_unique_local(),
    }
}

/// Checks that an address may be another machine's.
fn elsewhere(address: SocketAddr) -> Result<(), NotAnAgent> {
    let ip = address.ip().to_canonical();
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    if ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || link_local {
        return Err(NotAnAgent::OwnNode(address));
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
            assert_eq!(check_service(address.parse().unwrap()).is_ok(), good, "{address}");
        }
        let https: SocketAddr = "192.0.2.1:443".parse().unwrap();
        assert!(check(https).is_err() && check_service(https).is_ok());
        assert!(check_service("127.0.0.1:443".parse().unwrap()).is_err());
    }

    #[test]
    fn addresses_that_each_site_may_have_are_private() {
        for (ip, want) in [
            ("10.1.2.3", true),
            ("172.16.0.1", true),
            ("192.168.1.1", true),
            ("100.64.0.1", true),
            ("100.128.0.1", false),
            ("203.0.113.2", false),
            ("::ffff:10.0.0.1", true),
            ("fd00::1", true),
            ("2001:db8::1", false),
        ] {
            assert_eq!(is_private(ip.parse().unwrap()), want, "{ip}");
        }
    }
}
