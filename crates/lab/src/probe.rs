//! Measures the behaviour of a site's router, by packets alone: from one node
//! inside to two public hosts, and from these back. The words are those of
//! [RFC 4787](https://www.rfc-editor.org/rfc/rfc4787) and
//! [RFC 5382](https://www.rfc-editor.org/rfc/rfc5382), the way of asking that
//! of [RFC 5780](https://www.rfc-editor.org/rfc/rfc5780).
//!
//! It measures the lab, so it knows nothing of the grid file: a rule that
//! silently does nothing is found here.

mod punch;
mod segment;
mod tcp;
mod udp;

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use crate::lab::Machine;

pub use punch::{Opened, simultaneous_open};
pub use segment::{Answer, Segment, answer};
pub use tcp::{connect, listen};

/// How long to wait for packets that may never arrive. Packets that arrive take milliseconds, but a
/// busy machine may be late.
pub const PATIENCE: Duration = Duration::from_millis(500);

/// How long packets that must arrive may take.
const SOON: Duration = Duration::from_secs(10);

/// How an inside endpoint appears to several outside endpoints (RFC 4787, 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mapping {
    /// The endpoint appears the same to all addresses.
    EndpointIndependent,
    /// The endpoint appears the same to all ports of an address, but not to all addresses.
    AddressDependent,
    /// The endpoint appears as another endpoint to every port of every address.
    AddressAndPortDependent,
}

/// Who outside may send to the endpoint that an inside endpoint has appeared as (RFC 4787, 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filtering {
    /// All addresses may send.
    EndpointIndependent,
    /// All ports of the addresses that the inside endpoint sent to may send.
    AddressDependent,
    /// Only the endpoint that the inside endpoint sent to may send.
    AddressAndPortDependent,
}

/// Measured behaviour of a router for TCP or UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Behaviour {
    /// How the inside endpoint appeared to the first outside endpoint.
    pub seen_as: SocketAddrV4,
    /// Whether the inside endpoint appeared with another address than the node's own.
    pub translated: bool,
    /// How inside endpoints appear outside.
    pub mapping: Mapping,
    /// Whether the inside endpoint appeared with its own port every time.
    pub preserves_ports: bool,
    /// Who may send to the inside endpoint from outside.
    pub filtering: Filtering,
    /// What a stranger's packet to an endpoint gets back that no node inside has sent from.
    pub unsolicited: Answer,
}

/// Measures a router's behaviour with a node and two public hosts, all of one lab.
#[derive(Debug, Clone, Copy)]
pub struct Prober<'a> {
    /// The node behind the router in question.
    pub inside: Machine<'a>,
    /// Two public hosts, which the node sends to.
    pub outside: [Machine<'a>; 2],
}

impl Prober<'_> {
    /// Measures the router's behaviour for TCP.
    pub fn tcp(&self) -> io::Result<Behaviour> {
        let seen = tcp::appearances(self)?;
        let (filtering, unsolicited) = tcp::filtering(self)?;
        Ok(self.behaviour(&seen, filtering, unsolicited))
    }

    /// Measures the router's behaviour for UDP.
    pub fn udp(&self) -> io::Result<Behaviour> {
        let seen = udp::appearances(self)?;
        let (filtering, unsolicited) = udp::filtering(self)?;
        Ok(self.behaviour(&seen, filtering, unsolicited))
    }

    fn behaviour(&self, seen: &Seen, filtering: Filtering, unsolicited: Answer) -> Behaviour {
        let seen_as = seen.seen_as[0][0];
        Behaviour {
            seen_as,
            translated: *seen_as.ip() != self.inside.address(),
            mapping: seen.mapping(),
            preserves_ports: seen.seen_as.iter().flatten().all(|seen_as| seen_as.port() == seen.port),
            filtering,
            unsolicited,
        }
    }
}

/// How an inside port appeared to two ports of each of two hosts.
#[derive(Debug, Clone, Copy)]
struct Seen {
    port: u16,
    seen_as: [[SocketAddrV4; 2]; 2],
}

impl Seen {
    fn mapping(&self) -> Mapping {
        let [[a, b], [c, d]] = self.seen_as;
        match (a == b && c == d, a == c) {
            (true, true) => Mapping::EndpointIndependent,
            (true, false) => Mapping::AddressDependent,
            (false, _) => Mapping::AddressAndPortDependent,
        }
    }
}

/// The filtering of a router, given whether it lets in a known host's other port, and a stranger.
fn filtering(other_port: bool, stranger: bool) -> Filtering {
    match (other_port, stranger) {
        (_, true) => Filtering::EndpointIndependent,
        (true, false) => Filtering::AddressDependent,
        (false, false) => Filtering::AddressAndPortDependent,
    }
}

fn v4(address: SocketAddr) -> io::Result<SocketAddrV4> {
    match address.ip() {
        IpAddr::V4(ip) => Ok(SocketAddrV4::new(ip, address.port())),
        IpAddr::V6(_) => Err(io::Error::new(io::ErrorKind::AddrNotAvailable, "the lab speaks IPv4")),
    }
}

fn missing(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("{what}: nothing came within {} s", SOON.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_have_their_names() {
        let at = |port| SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, port);
        for (ports, mapping) in [
            ([[5, 5], [5, 5]], Mapping::EndpointIndependent),
            ([[5, 5], [6, 6]], Mapping::AddressDependent),
            ([[5, 6], [5, 6]], Mapping::AddressAndPortDependent),
            ([[5, 6], [7, 8]], Mapping::AddressAndPortDependent),
            ([[5, 5], [5, 6]], Mapping::AddressAndPortDependent),
        ] {
            let seen = Seen { port: 5, seen_as: ports.map(|ports| ports.map(at)) };
            assert_eq!(seen.mapping(), mapping, "{ports:?}");
        }
    }
}
