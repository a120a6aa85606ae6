//! Rails: further links of a machine, beside the one that its routing table takes.

use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};

use serde::Deserialize;

/// Most further rails of a machine: as many as a trunk's HELLO has room for.
pub const MOST: usize = 8;

/// A further link of this machine to other sites.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rail {
    /// This machine's address on the link. The routing table must send what comes from this address
    /// over the link (`ip rule add from`).
    pub source: Ipv4Addr,
    /// `ADDRESS:PORT` at which other sites reach this service over the link, if they do.
    pub address: Option<SocketAddrV4>,
}

/// How a connection is dialed to take a certain rail. By default the routing table chooses, and the
/// other end is dialed where it is known to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RailWay {
    /// The address that the connection leaves from; `None` lets the routing table choose.
    pub source: Option<Ipv4Addr>,
    /// The address that is dialed; `None` is where the other end is known to be.
    pub address: Option<SocketAddrV4>,
}

/// The way of each rail between two ends, by their further rails. The first way takes none of them.
/// Then each end takes its own rails in turn, so that the links of both are used.
pub fn ways(own: &[Rail], peers: &[SocketAddrV4]) -> Vec<RailWay> {
    let of = |rail: usize, rails: usize| (rail % (rails + 1)).checked_sub(1);
    let way = |rail| RailWay {
        source: of(rail, own.len()).map(|at| own[at].source),
        address: of(rail, peers.len()).map(|at| peers[at]),
    };
    (0..=own.len().max(peers.len())).map(way).collect()
}

/// The addresses of these rails at which other sites reach this service.
pub fn addresses(rails: &[Rail]) -> impl Iterator<Item = SocketAddrV4> {
    rails.iter().filter_map(|rail| rail.address)
}

/// Checks that a configuration of rails makes sense.
///
/// # Errors
/// Why it doesn't.
pub fn check(rails: &[Rail]) -> Result<(), String> {
    if rails.len() > MOST {
        return Err(format!("there are {} rails, {MOST} at most are possible", rails.len()));
    }
    for (at, Rail { source, address }) in rails.iter().enumerate() {
        if source.is_unspecified() || source.is_multicast() || source.is_broadcast() || source.is_loopback() {
            return Err(format!("rail {source}: no other machine is reached from this address"));
        }
        if rails[..at].iter().any(|other| other.source == *source) {
            return Err(format!("rail {source} is there twice"));
        }
        if let Some(address) = address {
            if address.port() == 0 || address.ip().is_unspecified() || address.ip().is_loopback() {
                return Err(format!("rail {source}: no service can be reached at {address}"));
            }
            if rails[..at].iter().any(|other| other.address == Some(*address)) {
                return Err(format!("rail {source}: another rail has the address {address}, too"));
            }
        }
    }
    Ok(())
}

/// Warns of rails whose addresses this machine doesn't have now. A link may come up later.
pub fn warn_of_absent(rails: &[Rail]) {
    for Rail { source, .. } in rails {
        if let Err(error) = TcpListener::bind((*source, 0)) {
            tracing::warn!(%source, %error, "a rail's address isn't this machine's: nothing can take that rail");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rail(number: u8) -> Rail {
        let address = SocketAddrV4::new([198, 51, 100, number].into(), 7740);
        Rail { source: [10, 0, 0, number].into(), address: Some(address) }
    }

    #[test]
    fn both_ends_rails_are_used() {
        // The further rails of each end; for each way the number of each end's, 0 for none.
        for (own, peers, want) in [
            (0, 0, vec![(0, 0)]),
            (1, 0, vec![(0, 0), (1, 0)]),
            (0, 1, vec![(0, 0), (0, 1)]),
            (1, 1, vec![(0, 0), (1, 1)]),
            (2, 1, vec![(0, 0), (1, 1), (2, 0)]),
            (1, 3, vec![(0, 0), (1, 1), (0, 2), (1, 3)]),
        ] {
            let own: Vec<_> = (1..=own).map(rail).collect();
            let peers: Vec<_> = (1..=peers).filter_map(|number| rail(number).address).collect();
            let number = |way: &RailWay| {
                let last = |octets: [u8; 4]| octets[3];
                (
                    way.source.map_or(0, |source| last(source.octets())),
                    way.address.map_or(0, |address| last(address.ip().octets())),
                )
            };
            let numbers: Vec<_> = ways(&own, &peers).iter().map(number).collect();
            assert_eq!(numbers, want, "{own:?} {peers:?}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let with = |source: [u8; 4], address: &str| Rail {
            source: source.into(),
            address: Some(address.parse().unwrap()),
        };
        for (rails, why) in [
            (vec![rail(1), rail(2)], None),
            ((1..=8).map(rail).collect(), None),
            ((1..=9).map(rail).collect(), Some("there are 9 rails, 8 at most are possible")),
            (vec![rail(1), rail(1)], Some("rail 10.0.0.1 is there twice")),
            (
                vec![with([10, 0, 0, 1], "192.0.2.1:0")],
                Some("rail 10.0.0.1: no service can be reached at 192.0.2.1:0"),
            ),
            (
                vec![with([10, 0, 0, 1], "0.0.0.0:7740")],
                Some("rail 10.0.0.1: no service can be reached at 0.0.0.0:7740"),
            ),
            (
                vec![with([10, 0, 0, 1], "127.0.0.1:7740")],
                Some("rail 10.0.0.1: no service can be reached at 127.0.0.1:7740"),
            ),
            (
                vec![with([10, 0, 0, 1], "192.0.2.1:7740"), with([10, 0, 0, 2], "192.0.2.1:7740")],
                Some("rail 10.0.0.2: another rail has the address 192.0.2.1:7740, too"),
            ),
            (
                vec![with([0; 4], "192.0.2.1:7740")],
                Some("rail 0.0.0.0: no other machine is reached from this address"),
            ),
            (
                vec![with([127, 0, 0, 1], "192.0.2.1:7740")],
                Some("rail 127.0.0.1: no other machine is reached from this address"),
            ),
        ] {
            assert_eq!(check(&rails).err().as_deref(), why, "{rails:?}");
        }
    }
}
