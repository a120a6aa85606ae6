//! What carries the connections of two nodes' programs: a trunk of the two sites' gateways, a trunk
//! of the two agents, or a socket for each connection. How many carriers a trunk has, by busy
//! connections and the sizes of messages, is the trunk's own decision (docs/trunk.md).

use std::fmt;

use crate::judged::Judged;
pub use crate::path::Path;
use crate::{Encryption, PairFacts, Reason};

/// What carries a connection between two nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// A stream of the trunk that the two sites' gateways keep for their nodes.
    SiteTrunk,
    /// A stream of the trunk that the two nodes' agents keep.
    Trunk,
    /// A socket of its own, which the program gets.
    Socket,
}

/// A transport that is tried, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// What carries the connection.
    pub transport: Transport,
    /// Why this transport is planned.
    pub reason: Reason,
}

/// What the grid's configuration says of trunks between two sites.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pin {
    /// Connections share trunks, also where data needn't be encrypted.
    Always,
    /// Each connection has a socket of its own where data needn't be encrypted.
    Never,
}

impl Transport {
    /// Who encrypts the data between the sites.
    pub fn encryption(self) -> Encryption {
        match self {
            Self::SiteTrunk => Encryption::Gateways,
            Self::Trunk => Encryption::Agents,
            Self::Socket => Encryption::None,
        }
    }
}

/// The name in plans and messages.
impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::SiteTrunk => "site trunk",
            Self::Trunk => "trunk",
            Self::Socket => "socket",
        })
    }
}

/// The ways for two nodes of one site.
pub(crate) fn within_a_site(site: &str) -> Vec<Way> {
    sockets(Reason::SameSite { site: site.to_owned() })
}

/// The ways for two nodes of different sites, and why there is none over the trunk of the gateways.
/// `site_trunk` says whether there is one.
pub(crate) fn between_sites(pair: &PairFacts, site_trunk: Judged) -> (Vec<Way>, Option<Reason>) {
    let trunk = |reason| vec![Way { transport: Transport::Trunk, reason }];
    let others = match (pair.pin, pair.path) {
        (Some(Pin::Always), _) => trunk(Reason::TrunksAlways),
        _ if !pair.trusted => trunk(Reason::Encrypted),
        (Some(Pin::Never), _) => sockets(Reason::TrunksNever),
        (None, path) => match path.lossy() {
            Some((loss_ppm, rtt)) => trunk(Reason::Lossy { loss_ppm, rtt }),
            None => sockets(Reason::Plain { path }),
        },
    };
    match site_trunk {
        Ok(reason) => {
            let first = Way { transport: Transport::SiteTrunk, reason };
            ([vec![first], others].concat(), None)
        }
        Err(reason) => (others, Some(reason)),
    }
}

/// Sockets for this reason. Unencrypted data goes only where the other node's agent has signed that
/// it is, so a trunk follows.
fn sockets(reason: Reason) -> Vec<Way> {
    let socket = Way { transport: Transport::Socket, reason };
    vec![socket, Way { transport: Transport::Trunk, reason: Reason::Unsigned }]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Forbidden, RoundTrips};

    const PAIR: PairFacts = PairFacts {
        trusted: false,
        relays: 1,
        gateways_join_none: false,
        forbidden: Forbidden::NOTHING,
        round_trips: RoundTrips { relay: None, to_acceptors_gateway: None, to_initiators_gateway: None },
        pin: None,
        path: Path { rtt: None, loss_ppm: None },
    };

    fn transports(ways: &[Way]) -> Vec<Transport> {
        ways.iter().map(|way| way.transport).collect()
    }

    #[test]
    fn when_connections_share_a_trunk() {
        use Transport::{Socket, Trunk};
        let ms = |ms| Some(Duration::from_millis(ms));
        let encrypted = "data is encrypted: a trunk does that once, and outlives cuts";
        let trunk = &[Trunk][..];
        let sockets = &[Socket, Trunk][..];
        for (trusted, pin, rtt, loss_ppm, want, reason) in [
            (false, None, None, None, trunk, encrypted),
            (false, Some(Pin::Never), ms(10), Some(9_000), trunk, encrypted),
            (
                true,
                Some(Pin::Never),
                ms(10),
                Some(9_000),
                sockets,
                "the broker's configuration forbids trunks",
            ),
            (true, Some(Pin::Always), None, None, trunk, "the broker's configuration says so"),
            (
                true,
                None,
                None,
                None,
                sockets,
                "data isn't encrypted, and loss between the sites isn't measured",
            ),
            (true, None, ms(10), None, sockets, "data isn't encrypted, and loss"),
            (
                true,
                None,
                ms(10),
                Some(499),
                sockets,
                "data isn't encrypted, and 0.0499 % of segments are lost",
            ),
            (
                true,
                None,
                ms(10),
                Some(500),
                trunk,
                "0.05 % of segments are lost over 10.0ms: a trunk is faster",
            ),
            (
                true,
                None,
                Some(Duration::from_micros(999)),
                Some(500),
                sockets,
                "data isn't encrypted, and 0.05 %",
            ),
        ] {
            let pair = PairFacts { trusted, pin, path: Path { rtt, loss_ppm }, ..PAIR };
            let (found, _) = between_sites(&pair, Err(Reason::NoSuchWay));
            assert_eq!(transports(&found), want, "{pair:?}");
            assert!(found[0].reason.to_string().starts_with(reason), "{}", found[0].reason);
        }
    }

    #[test]
    fn the_trunk_of_the_gateways_comes_first() {
        let (with, left_out) = between_sites(&PAIR, Ok(Reason::GatewaysTrunk));
        assert_eq!((transports(&with), left_out), (vec![Transport::SiteTrunk, Transport::Trunk], None));
        let (without, left_out) = between_sites(&PAIR, Err(Reason::NoSuchWay));
        assert_eq!((transports(&without), left_out), (vec![Transport::Trunk], Some(Reason::NoSuchWay)));
    }
}
