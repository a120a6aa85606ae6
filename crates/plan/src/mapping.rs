//! How a NAT maps ports (RFC 4787 section 4.1, RFC 5382 section 4.1).

use std::fmt;
use std::net::SocketAddr;

/// How a node's address and port are translated on the way out of its site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mapping {
    /// The mapping was not measured.
    #[default]
    Unknown,
    /// There is no NAT.
    Untranslated,
    /// Endpoint-independent mapping: all peers see the same port. So a node can tell its peers the
    /// port.
    EndpointIndependent,
    /// Address- and port-dependent mapping: each peer sees another port.
    PortDependent,
}

/// The source address of one connection, at both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sighting {
    /// The source address that the node sees.
    pub local: SocketAddr,
    /// The source address that the reflector sees.
    pub seen: SocketAddr,
}

impl Mapping {
    /// Concludes the mapping from sightings of one local port at two reflectors, or of two local
    /// ports at one reflector.
    ///
    /// A NAT that preserves ports maps them independently of the endpoint, as long as no other node
    /// has taken them. One reflector can show no more than whether ports are preserved.
    pub fn of(sightings: &[Sighting]) -> Self {
        let [first, second, ..] = sightings else { return Self::Unknown };
        if sightings.iter().all(|sighting| sighting.local == sighting.seen) {
            return Self::Untranslated;
        }
        let same_source = first.local == second.local && first.seen == second.seen;
        if preserved(sightings) || same_source { Self::EndpointIndependent } else { Self::PortDependent }
    }
}

/// Whether the NAT preserves ports; fewer than two sightings don't show it. The outside port of a
/// local port can then be predicted before the port is used.
pub fn preserved(sightings: &[Sighting]) -> bool {
    sightings.len() > 1 && sightings.iter().all(|sighting| sighting.local.port() == sighting.seen.port())
}

impl fmt::Display for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Unknown => "unknown",
            Self::Untranslated => "untranslated",
            Self::EndpointIndependent => "endpoint-independent",
            Self::PortDependent => "address- and port-dependent",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_follow_from_sightings() {
        let sighting =
            |local: &str, seen: &str| Sighting { local: local.parse().unwrap(), seen: seen.parse().unwrap() };
        for (name, sightings, want) in [
            ("nothing seen", vec![], Mapping::Unknown),
            ("seen once", vec![sighting("10.0.0.2:4000", "192.0.2.1:4000")], Mapping::Unknown),
            (
                "no NAT",
                vec![
                    sighting("192.0.2.2:4000", "192.0.2.2:4000"),
                    sighting("192.0.2.2:4001", "192.0.2.2:4001"),
                ],
                Mapping::Untranslated,
            ),
            (
                "ports preserved",
                vec![
                    sighting("10.0.0.2:4000", "192.0.2.1:4000"),
                    sighting("10.0.0.2:4001", "192.0.2.1:4001"),
                ],
                Mapping::EndpointIndependent,
            ),
            (
                "another port, but the same from two places",
                vec![sighting("10.0.0.2:4000", "192.0.2.1:999"), sighting("10.0.0.2:4000", "192.0.2.1:999")],
                Mapping::EndpointIndependent,
            ),
            (
                "another port for each place",
                vec![sighting("10.0.0.2:4000", "192.0.2.1:999"), sighting("10.0.0.2:4000", "192.0.2.1:998")],
                Mapping::PortDependent,
            ),
            (
                "one place, ports not preserved: another place may see another port",
                vec![sighting("10.0.0.2:4000", "192.0.2.1:999"), sighting("10.0.0.2:4001", "192.0.2.1:998")],
                Mapping::PortDependent,
            ),
        ] {
            assert_eq!(Mapping::of(&sightings), want, "{name}");
        }
    }
}
