//! TCP's simultaneous open between two sites: which kinds it passes, when
//! each side expects the other where it listens.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use isthmus_lab::grid::{Site, SiteBuilder, Unsolicited};
use isthmus_lab::probe;

use crate::common::{SOON, lab_of, labs_run_here};

/// How long both sides try in vain. SYNs are sent again in that time, and another attempt follows a
/// reset.
const PATIENCE: Duration = Duration::from_millis(2200);

/// Makes a site of some kind with this name.
type Kind = fn(&str) -> SiteBuilder;

fn resetting_nat(name: &str) -> SiteBuilder {
    Site::nat(name).unsolicited(Unsolicited::Reset)
}

/// Whether two nodes, at sites of kinds `a` and `b`, come by a connection within `patience`.
fn opens(a: Kind, b: Kind, patience: Duration) -> bool {
    let lab = lab_of([a("alpha"), b("beta")].map(|site| site.delay(Duration::from_millis(2)).nodes(1)));
    let grid = &lab.record().grid;
    let side = |number: usize, port: u16| {
        let site = &grid.sites[number];
        let seen: Ipv4Addr = if site.kind.translates() { site.outside } else { site.nodes[0].address };
        let machine = lab.machine(&format!("n1.{}", site.name)).unwrap();
        (machine, SocketAddrV4::new(seen, port))
    };
    let opened = probe::simultaneous_open([side(0, 5001), side(1, 5002)], patience).unwrap();
    lab.down().unwrap();
    opened.is_some()
}

/// Defines a test for each pair of kinds of sites.
macro_rules! cells {
    ($($name:ident: $a:expr, $b:expr => $verdict:ident;)+) => {$(
        #[test]
        fn $name() {
            if labs_run_here() {
                let (verdict, patience) = cells!($verdict);
                assert_eq!(opens($a, $b, patience), verdict);
            }
        }
    )+};
    (opens) => { (true, SOON) };
    (fails) => { (false, PATIENCE) };
}

cells! {
    firewall_to_firewall: Site::firewall, Site::firewall => opens;
    firewall_to_nat: Site::firewall, Site::nat => opens;
    firewall_to_open: Site::firewall, Site::open => opens;
    nat_to_nat: Site::nat, Site::nat => opens;
    nat_to_open: Site::nat, Site::open => opens;
    firewall_to_stateless_firewall: Site::firewall, Site::stateless_firewall => opens;
    nat_to_stateless_firewall: Site::nat, Site::stateless_firewall => opens;
    carrier_nat_to_carrier_nat: Site::carrier_nat, Site::carrier_nat => opens;
    carrier_nat_to_nat: Site::carrier_nat, Site::nat => opens;
    carrier_nat_to_stateless_firewall: Site::carrier_nat, Site::stateless_firewall => opens;
    a_nat_that_resets_to_nat: resetting_nat, Site::nat => opens;
    a_nat_that_resets_to_firewall: resetting_nat, Site::firewall => opens;
    a_nat_that_resets_to_stateless_firewall: resetting_nat, Site::stateless_firewall => opens;
    symmetric_nat_to_open: Site::symmetric_nat, Site::open => opens;
    symmetric_nat_to_nat: Site::symmetric_nat, Site::nat => fails;
    symmetric_nat_to_firewall: Site::symmetric_nat, Site::firewall => fails;
    symmetric_nat_to_stateless_firewall: Site::symmetric_nat, Site::stateless_firewall => fails;
    symmetric_nat_to_symmetric_nat: Site::symmetric_nat, Site::symmetric_nat => fails;
    stateless_firewall_to_stateless_firewall: Site::stateless_firewall, Site::stateless_firewall => fails;
}
