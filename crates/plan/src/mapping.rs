//! What a NAT does with ports (RFC 4787 section 4.1, RFC 5382 section 4.1).

use std::fmt;
use std::net::SocketAddr;

/// What becomes of a node's address and port on the way out of its site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mapping {
    /// Nobody outside has told yet.
    #[default]
    Unknown,
    /// Nothing: there is no NAT.
    Untranslated,
    /// Endpoint-independent mapping: whoever is asked sees the same port, so
    /// that it can be told to others.
    EndpointIndependent,
    /// Address- and port-dependent mapping: everybody sees another port.
    PortDependent,
}

/// What one reflector saw of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sighting {
    /// The connection's address at the node.
    pub local: SocketAddr,
    /// What it was where it arrived.
    pub seen: SocketAddr,
}

impl Mapping {
    /// What follows from some sightings. From one local port seen from two
    /// places, or two local ports seen from one.
    ///
    /// A NAT that preserves ports maps them independently of the endpoint as
    /// long as nobody else has taken them, which is all that one reflector can
    /// tell.
    pub fn of(sightings: &[Sighting]) -> Self {
        let [first, second, ..] = sightings else { return Self::Unknown };
        if sightings.iter().all(|sighting| sighting.local == sighting.seen) {
            return Self::Untranslated;
        }
        let same_source = first.local == second.local && first.seen == second.seen;
        if preserved(sightings) || same_source { Self::EndpointIndependent } else { Self::PortDependent }
    }
}

/// Whether ports come out as they are, as far as two sightings tell: then how a
/// port will be seen can be told before it is used.
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
    fn mappings_follow_from_what_was_seen() {
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
                "one place, ports not preserved: nothing promises that another place sees the same",
                vec![sighting("10.0.0.2:4000", "192.0.2.1:999"), sighting("10.0.0.2:4001", "192.0.2.1:998")],
                Mapping::PortDependent,
            ),
        ] {
            assert_eq!(Mapping::of(&sightings), want, "{name}");
        }
    }
}
