//! Where relays may be, as one site sees it. A relay names its address itself, and the site's
//! agents and gateways connect there, from inside the site: a captured one could name any host
//! that they reach. So a private address, or one of the site's own network, counts only where
//! the site's gateway says so: at the broker's host, and in networks of its configuration.

use std::net::{IpAddr, SocketAddr};

pub use ipnet::IpNet as Network;

use ipnet::IpNet;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::SockaddrStorage;

use crate::callback::{self, NotAnAgent, is_private};
use crate::dial::{self, DialError};

/// The places where relays may be, as a site's gateway names them. Without places, relays may be at
/// public addresses outside the site.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RelayPlaces {
    networks: Vec<IpNet>,
    /// Names of hosts where relays may be.
    hosts: Vec<String>,
}

/// Why no relay is dialed at an address.
#[derive(Debug, thiserror::Error)]
pub enum NotARelay {
    /// The host has no address.
    #[error(transparent)]
    Unresolved(#[from] DialError),
    /// No service of the grid can have the address.
    #[error(transparent)]
    Nowhere(#[from] NotAnAgent),
    /// The address is private, so each site may have it.
    #[error(
        "{0} is a private address; if a relay is there, add its network to `relay_networks` of [gateway]"
    )]
    Private(SocketAddr),
    /// The address is in a network of this machine.
    #[error(
        "{0} is in this site's own network; if a relay is there, add it to `relay_networks` of [gateway]"
    )]
    OwnSite(SocketAddr),
}

impl RelayPlaces {
    /// Places from networks (`10.1.0.0/16`), addresses, and names of hosts.
    pub fn new<T: AsRef<str>>(places: impl IntoIterator<Item = T>) -> Self {
        let mut read = Self::default();
        for place in places {
            let place = place.as_ref();
            let bare = place.trim_matches(['[', ']']);
            match (place.parse(), bare.parse::<IpAddr>()) {
                (Ok(network), _) => read.networks.push(network),
                (_, Ok(ip)) => read.networks.push(ip.into()),
                _ => read.hosts.push(place.to_owned()),
            }
        }
        read
    }

    /// Resolves a relay's address, `HOST:PORT`.
    ///
    /// # Errors
    /// If the host has no address, or if no relay may be there.
    pub async fn resolve(&self, address: &str) -> Result<SocketAddr, NotARelay> {
        let found = dial::resolve(address).await?;
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        self.check(host, found, &own_networks())?;
        Ok(found)
    }

    /// Checks that a relay of this host name may have this address; `own` are the networks of this
    /// machine.
    fn check(&self, host: &str, address: SocketAddr, own: &[IpNet]) -> Result<(), NotARelay> {
        let ip = address.ip().to_canonical();
        let is_named = self.hosts.iter().any(|known| known.eq_ignore_ascii_case(host))
            || self.networks.iter().any(|network| network.contains(&ip));
        if is_named {
            return Ok(());
        }
        callback::check_service(address)?;
        if is_private(ip) {
            return Err(NotARelay::Private(address));
        }
        if own.iter().any(|network| network.contains(&ip)) {
            return Err(NotARelay::OwnSite(address));
        }
        Ok(())
    }
}

/// The networks that this machine is in; empty if the kernel doesn't say.
fn own_networks() -> Vec<IpNet> {
    let Ok(interfaces) = getifaddrs() else { return Vec::new() };
    let interfaces = interfaces.filter(|interface| !interface.flags.contains(InterfaceFlags::IFF_LOOPBACK));
    let network = |address: Option<SockaddrStorage>, mask: Option<SockaddrStorage>| {
        IpNet::with_netmask(ip_of(&address?)?, ip_of(&mask?)?).ok()
    };
    interfaces.filter_map(|interface| network(interface.address, interface.netmask)).collect()
}

fn ip_of(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|address| address.ip().into());
    v4.or_else(|| address.as_sockaddr_in6().map(|address| address.ip().into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_is_outside_unless_the_site_says_where_it_is() {
        let own: Vec<IpNet> = vec!["203.0.113.0/26".parse().unwrap(), "2001:db8:1::/64".parse().unwrap()];
        let none: &[&str] = &[];
        let named = &["Broker.example.org", "10.9.0.0/16", "192.168.7.1", "[fd00::1]", "203.0.113.9"][..];
        // What the site names, the host and the address of a relay; whether it may be there.
        for (places, host, address, want) in [
            (none, "r", "198.51.100.7:7720", true),
            (none, "r", "198.51.100.7:443", true),
            (none, "r", "198.51.100.7:22", false),
            (none, "r", "192.168.7.1:7720", false),
            (none, "r", "10.9.1.1:7720", false),
            (none, "r", "100.64.0.1:7720", false),
            (none, "r", "[::ffff:10.9.1.1]:7720", false),
            (none, "r", "[fd00::1]:7720", false),
            (none, "r", "127.0.0.1:7720", false),
            (none, "r", "203.0.113.9:7720", false),
            (none, "r", "203.0.113.64:7720", true),
            (none, "r", "[2001:db8:1::9]:7720", false),
            (none, "broker.example.org", "10.1.1.1:7720", false),
            (named, "broker.example.org", "10.1.1.1:7720", true),
            (named, "broker.example.org", "127.0.1.1:7720", true),
            (named, "r", "10.1.1.1:7720", false),
            (named, "r", "10.9.1.1:7720", true),
            (named, "r", "192.168.7.1:80", true),
            (named, "r", "192.168.7.2:7720", false),
            (named, "[fd00::1]", "[fd00::1]:7720", true),
            (named, "r", "203.0.113.9:7720", true),
            (named, "r", "203.0.113.10:7720", false),
            (named, "r", "198.51.100.7:7720", true),
        ] {
            let found = RelayPlaces::new(places).check(host, address.parse().unwrap(), &own);
            assert_eq!(found.is_ok(), want, "{places:?} {host} {address}: {found:?}");
        }
    }

    #[test]
    fn what_is_refused_says_what_to_do() {
        let refused = |address: &str| {
            let own = ["203.0.113.0/26".parse().unwrap()];
            RelayPlaces::default().check("r", address.parse().unwrap(), &own).unwrap_err().to_string()
        };
        for address in ["10.0.0.1:7720", "203.0.113.1:7720"] {
            let text = refused(address);
            assert!(text.starts_with(address) && text.contains("`relay_networks` of [gateway]"), "{text}");
        }
    }
}
