//! Every kind of site does what its name says, as seen by packets from inside
//! and outside: a rule that silently does nothing fails here.

// Helpers outside test functions fail the test as asserts do.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::net::{Ipv4Addr, SocketAddrV4};

use common::{is_root, lab};
use isthmus_lab::probe::Answer::{Accepted, Dropped, Reset};
use isthmus_lab::probe::Filtering::{
    self, AddressAndPortDependent as Strict, EndpointIndependent as Anybody,
};
use isthmus_lab::probe::Mapping::{
    self, AddressAndPortDependent as PerDestination, EndpointIndependent as Constant,
};
use isthmus_lab::probe::{self, Answer, Behaviour, PATIENCE, Prober, Segment};
use isthmus_lab::{Lab, Machine};

/// A lab of one site and two public hosts.
fn site(kind: &str, keys: &str) -> Lab {
    lab(&format!(
        r#"
        [[host]]
        name = "hub"
        [[host]]
        name = "pub"
        [[site]]
        name = "alpha"
        kind = "{kind}"
        outside = "198.51.100.21"
        nodes = [{{ name = "n1" }}, {{ name = "n2" }}]
        {keys}
    "#
    ))
}

const OUTSIDE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 21);

fn machine<'a>(lab: &'a Lab, name: &str) -> Machine<'a> {
    lab.machine(name).unwrap()
}

fn prober(lab: &Lab) -> Prober<'_> {
    Prober { inside: machine(lab, "n1.alpha"), outside: [machine(lab, "hub"), machine(lab, "pub")] }
}

/// What one protocol's behaviour must be, apart from addresses and ports.
#[derive(Debug, PartialEq)]
struct Expected {
    maps: Mapping,
    filters: Filtering,
    preserves: bool,
    unsolicited: Answer,
}

impl From<Behaviour> for Expected {
    fn from(seen: Behaviour) -> Self {
        let Behaviour { mapping, filtering, preserves_ports, unsolicited, .. } = seen;
        Self { maps: mapping, filters: filtering, preserves: preserves_ports, unsolicited }
    }
}

/// One test per kind, protocol and attribute.
macro_rules! probe {
    ($name:ident: $kind:literal $keys:literal over $protocol:ident
        maps $maps:ident, filters $filters:ident, preserves_ports $preserves:literal, unsolicited $unsolicited:ident) => {
        #[test]
        fn $name() {
            if !is_root() {
                return;
            }
            let lab = site($kind, $keys);
            let seen = prober(&lab).$protocol().unwrap();
            let outside = if $kind.ends_with("nat") { OUTSIDE } else { machine(&lab, "n1.alpha").address() };
            assert_eq!(*seen.seen_as.ip(), outside);
            let expected =
                Expected { maps: $maps, filters: $filters, preserves: $preserves, unsolicited: $unsolicited };
            assert_eq!(Expected::from(seen), expected);
            lab.down().unwrap();
        }
    };
}

probe!(an_open_site_over_tcp: "open" "" over tcp
    maps Constant, filters Anybody, preserves_ports true, unsolicited Accepted);
probe!(an_open_site_over_udp: "open" "" over udp
    maps Constant, filters Anybody, preserves_ports true, unsolicited Accepted);
probe!(a_firewall_over_tcp: "firewall" "" over tcp
    maps Constant, filters Strict, preserves_ports true, unsolicited Dropped);
probe!(a_firewall_over_udp: "firewall" "" over udp
    maps Constant, filters Strict, preserves_ports true, unsolicited Dropped);
probe!(a_firewall_that_resets: "firewall" "unsolicited = 'reset'" over tcp
    maps Constant, filters Strict, preserves_ports true, unsolicited Reset);
probe!(a_stateless_firewall_over_tcp: "stateless-firewall" "" over tcp
    maps Constant, filters Strict, preserves_ports true, unsolicited Dropped);
probe!(a_stateless_firewall_over_udp: "stateless-firewall" "" over udp
    maps Constant, filters Anybody, preserves_ports true, unsolicited Accepted);
probe!(a_stateless_firewall_that_resets: "stateless-firewall" "unsolicited = 'reset'" over tcp
    maps Constant, filters Strict, preserves_ports true, unsolicited Reset);
probe!(a_nat_over_tcp: "nat" "" over tcp
    maps Constant, filters Strict, preserves_ports true, unsolicited Dropped);
probe!(a_nat_over_udp: "nat" "" over udp
    maps Constant, filters Strict, preserves_ports true, unsolicited Dropped);
probe!(a_nat_that_resets: "nat" "unsolicited = 'reset'" over tcp
    maps Constant, filters Strict, preserves_ports true, unsolicited Reset);
probe!(a_nat_that_resets_drops_udp: "nat" "unsolicited = 'reset'" over udp
    maps Constant, filters Strict, preserves_ports true, unsolicited Dropped);
probe!(a_symmetric_nat_over_tcp: "symmetric-nat" "" over tcp
    maps PerDestination, filters Strict, preserves_ports false, unsolicited Dropped);
probe!(a_symmetric_nat_over_udp: "symmetric-nat" "" over udp
    maps PerDestination, filters Strict, preserves_ports false, unsolicited Dropped);
probe!(a_symmetric_nat_that_resets: "symmetric-nat" "unsolicited = 'reset'" over tcp
    maps PerDestination, filters Strict, preserves_ports false, unsolicited Reset);
probe!(a_carriers_nat_over_tcp: "carrier-nat" "" over tcp
    maps Constant, filters Strict, preserves_ports true, unsolicited Dropped);
probe!(a_carriers_nat_over_udp: "carrier-nat" "" over udp
    maps Constant, filters Strict, preserves_ports true, unsolicited Dropped);
probe!(a_carriers_nat_that_resets: "carrier-nat" "unsolicited = 'reset'" over tcp
    maps Constant, filters Strict, preserves_ports true, unsolicited Reset);
