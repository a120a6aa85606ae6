//! Which SYNs may be injected into this host's IP stack: those from another host to
//! the agent's own listener. So the helper reaches no other user's listener, and
//! sends nothing to another host.

use std::net::{Ipv4Addr, SocketAddrV4};

use crate::Syn;

/// Why a SYN is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The SYN's destination is not the agent's listener.
    #[error("it is for {destination}, and this agent listens at {listener}")]
    NotTheListener {
        /// The destination that the SYN has.
        destination: SocketAddrV4,
        /// The address of the agent's listener.
        listener: SocketAddrV4,
    },
    /// The port of this address is one that only root may bind.
    #[error("{0} is at a port below 1024")]
    SystemPort(SocketAddrV4),
    /// The SYN's source, this address, can't be another host.
    #[error("its source {0} can't be an address of another host")]
    Source(Ipv4Addr),
}

/// The first port that a listener may have. Ports below belong to services of the system.
const FIRST_PORT: u16 = 1024;

/// Checks the port of an agent's listener, or of a socket that the helper connects.
///
/// # Errors
/// [`Refused::SystemPort`].
pub fn port_permitted(address: SocketAddrV4) -> Result<(), Refused> {
    if address.port() < FIRST_PORT { Err(Refused::SystemPort(address)) } else { Ok(()) }
}

/// Checks that a SYN may be injected for the agent's listener on a host with the addresses `own`.
///
/// # Errors
/// [`Refused::NotTheListener`] or [`Refused::Source`].
pub fn permitted(syn: &Syn, listener: SocketAddrV4, own: &[Ipv4Addr]) -> Result<(), Refused> {
    let (source, destination) = (*syn.source.ip(), *syn.destination.ip());
    let listened = listener.ip().is_unspecified() || *listener.ip() == destination;
    let here = own.contains(&destination) && !destination.is_loopback();
    if !here || !listened || syn.destination.port() != listener.port() {
        return Err(Refused::NotTheListener { destination: syn.destination, listener });
    }
    let not_remote = source.is_loopback()
        || source.is_unspecified()
        || source.is_multicast()
        || source.is_broadcast()
        || own.contains(&source);
    if not_remote { Err(Refused::Source(source)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syn::Options;

    #[test]
    fn ports_of_the_system_are_refused() {
        for (port, good) in
            [(1, false), (22, false), (1023, false), (1024, true), (7730, true), (65535, true)]
        {
            let address = SocketAddrV4::new([192, 0, 2, 7].into(), port);
            assert_eq!(port_permitted(address).is_ok(), good, "{port}");
        }
    }

    #[test]
    fn only_from_another_host_to_the_agents_listener() {
        let own = ["127.0.0.1", "192.0.2.7", "10.0.0.7"].map(|ip| ip.parse().unwrap());
        for (source, destination, listener, good) in [
            ("198.51.100.1:4000", "192.0.2.7:7730", "192.0.2.7:7730", true),
            ("198.51.100.1:4000", "192.0.2.7:7730", "0.0.0.0:7730", true),
            ("198.51.100.1:4000", "192.0.2.7:22", "192.0.2.7:7730", false),
            ("198.51.100.1:4000", "192.0.2.8:7730", "0.0.0.0:7730", false),
            ("198.51.100.1:4000", "10.0.0.7:7730", "192.0.2.7:7730", false),
            ("198.51.100.1:4000", "127.0.0.1:7730", "0.0.0.0:7730", false),
            ("198.51.100.1:4000", "255.255.255.255:7730", "0.0.0.0:7730", false),
            ("127.0.0.1:4000", "192.0.2.7:7730", "192.0.2.7:7730", false),
            ("10.0.0.7:4000", "192.0.2.7:7730", "192.0.2.7:7730", false),
            ("0.0.0.0:4000", "192.0.2.7:7730", "192.0.2.7:7730", false),
            ("224.0.0.1:4000", "192.0.2.7:7730", "192.0.2.7:7730", false),
            ("255.255.255.255:4000", "192.0.2.7:7730", "192.0.2.7:7730", false),
        ] {
            let syn = Syn {
                source: source.parse().unwrap(),
                destination: destination.parse().unwrap(),
                sequence: 1,
                window: 1,
                options: Options::default(),
            };
            let found = permitted(&syn, listener.parse().unwrap(), &own);
            assert_eq!(found.is_ok(), good, "{source} to {destination}, {listener} listens: {found:?}");
        }
    }
}
