//! TCP's simultaneous open between two sites: which kinds it passes, when
//! each side expects the other where it listens.

// Helpers outside test functions fail the test as asserts do.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use common::{is_root, lab};
use isthmus_lab::probe;

/// How long both sides try: enough for SYNs to be sent again, and for resets
/// to be met by another attempt.
const PATIENCE: Duration = Duration::from_millis(3500);

/// Whether two nodes, at sites of these kinds, come by a connection.
fn opens(kinds: [&str; 2]) -> bool {
    let sites = kinds.iter().zip(["alpha", "beta"]).map(|(kind, name)| {
        let (kind, unsolicited) = match kind.strip_suffix("-that-resets") {
            Some(kind) => (kind, "unsolicited = 'reset'"),
            None => (*kind, ""),
        };
        format!(
            "[[site]]\nname = '{name}'\nkind = '{kind}'\nlink = {{ delay = '2 ms' }}\n{unsolicited}\n\
             nodes = [{{ name = 'n1' }}]\n"
        )
    });
    let lab = lab(&sites.collect::<String>());
    let grid = &lab.record().grid;
    let side = |number: usize, port: u16| {
        let site = &grid.sites[number];
        let seen: Ipv4Addr = if site.kind.translates() { site.outside } else { site.nodes[0].address };
        let machine = lab.machine(&format!("n1.{}", site.name)).unwrap();
        (machine, SocketAddrV4::new(seen, port))
    };
    let opened = probe::simultaneous_open([side(0, 5001), side(1, 5002)], PATIENCE).unwrap();
    eprintln!("{} - {}: {opened:?}", kinds[0], kinds[1]);
    lab.down().unwrap();
    opened.is_some()
}

/// One test per pair of kinds.
macro_rules! cells {
    ($($name:ident: $a:literal - $b:literal $verdict:ident;)+) => {$(
        #[test]
        fn $name() {
            if is_root() {
                assert_eq!(opens([$a, $b]), cells!($verdict));
            }
        }
    )+};
    (opens) => { true };
    (fails) => { false };
}

cells! {
    firewall_to_firewall: "firewall" - "firewall" opens;
    firewall_to_nat: "firewall" - "nat" opens;
    firewall_to_open: "firewall" - "open" opens;
    nat_to_nat: "nat" - "nat" opens;
    nat_to_open: "nat" - "open" opens;
    firewall_to_stateless_firewall: "firewall" - "stateless-firewall" opens;
    nat_to_stateless_firewall: "nat" - "stateless-firewall" opens;
    carrier_nat_to_carrier_nat: "carrier-nat" - "carrier-nat" opens;
    carrier_nat_to_nat: "carrier-nat" - "nat" opens;
    carrier_nat_to_stateless_firewall: "carrier-nat" - "stateless-firewall" opens;
    a_nat_that_resets_to_nat: "nat-that-resets" - "nat" opens;
    a_nat_that_resets_to_firewall: "nat-that-resets" - "firewall" opens;
    a_nat_that_resets_to_stateless_firewall: "nat-that-resets" - "stateless-firewall" opens;
    symmetric_nat_to_open: "symmetric-nat" - "open" opens;
    symmetric_nat_to_nat: "symmetric-nat" - "nat" fails;
    symmetric_nat_to_firewall: "symmetric-nat" - "firewall" fails;
    symmetric_nat_to_stateless_firewall: "symmetric-nat" - "stateless-firewall" fails;
    symmetric_nat_to_symmetric_nat: "symmetric-nat" - "symmetric-nat" fails;
    stateless_firewall_to_stateless_firewall: "stateless-firewall" - "stateless-firewall" fails;
}
