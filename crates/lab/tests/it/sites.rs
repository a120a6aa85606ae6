//! Every kind of site behaves by its name, as seen by packets from inside
//! and outside: a rule that silently does nothing fails here.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::sync::OnceLock;

use isthmus_lab::grid::{Node, PortRange, Site, SiteBuilder, SiteKind, Unsolicited};
use isthmus_lab::probe::Answer::{Accepted, Dropped, Reset};
use isthmus_lab::probe::Filtering::{self, AddressAndPortDependent as Strict, EndpointIndependent as All};
use isthmus_lab::probe::Mapping::{
    self, AddressAndPortDependent as PerDestination, EndpointIndependent as Constant,
};
use isthmus_lab::probe::{self, Answer, Behaviour, PATIENCE, Prober, Segment};
use isthmus_lab::{Lab, Machine};

use crate::common::{self, lab_of, labs_run_here};

/// A lab of a site with two nodes, and two public hosts.
fn lab_with(site: SiteBuilder) -> Lab {
    lab_of([site.outside(OUTSIDE).nodes(2)])
}

fn resetting(site: SiteBuilder) -> SiteBuilder {
    site.unsolicited(Unsolicited::Reset)
}

fn ports(text: &str) -> PortRange {
    text.parse().unwrap()
}

const OUTSIDE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 21);

fn machine<'a>(lab: &'a Lab, name: &str) -> Machine<'a> {
    lab.machine(name).unwrap()
}

/// What a router's behaviour for a protocol must be, apart from addresses and ports.
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

/// A lab with a site of every kind, each with a node, for all tests that change nothing. The lab
/// ends with this process.
fn kinds() -> &'static Lab {
    static KINDS: OnceLock<Lab> = OnceLock::new();
    KINDS.get_or_init(|| {
        let sites = [
            Site::open("open"),
            Site::firewall("firewall"),
            resetting(Site::firewall("firewall-that-resets")),
            Site::stateless_firewall("stateless-firewall"),
            resetting(Site::stateless_firewall("stateless-firewall-that-resets")),
            Site::nat("nat"),
            resetting(Site::nat("nat-that-resets")),
            Site::symmetric_nat("symmetric-nat"),
            resetting(Site::symmetric_nat("symmetric-nat-that-resets")),
            Site::carrier_nat("carrier-nat"),
            resetting(Site::carrier_nat("carrier-nat-that-resets")),
        ];
        lab_of(sites.map(|site| site.nodes(1)))
    })
}

/// Defines a test for a kind of site and a protocol.
macro_rules! probe {
    ($name:ident: $site:literal => $protocol:ident
        maps $maps:ident, filters $filters:ident, preserves_ports $preserves:literal, unsolicited $unsolicited:ident) => {
        #[test]
        fn $name() {
            if !labs_run_here() {
                return;
            }
            let lab = kinds();
            let site = lab.record().grid.sites.iter().find(|site| site.name == $site).unwrap();
            let inside = machine(lab, concat!("n1.", $site));
            let outside = [machine(lab, "hub"), machine(lab, "pub")];
            let seen = Prober { inside, outside }.$protocol().unwrap();
            let seen_as = if site.kind.translates() { site.outside } else { site.nodes[0].address };
            assert_eq!(*seen.seen_as.ip(), seen_as);
            let expected =
                Expected { maps: $maps, filters: $filters, preserves: $preserves, unsolicited: $unsolicited };
            assert_eq!(Expected::from(seen), expected);
        }
    };
}

probe!(an_open_site_over_tcp: "open" => tcp
    maps Constant, filters All, preserves_ports true, unsolicited Accepted);
probe!(an_open_site_over_udp: "open" => udp
    maps Constant, filters All, preserves_ports true, unsolicited Accepted);
probe!(a_firewall_over_tcp: "firewall" => tcp
    maps Constant, filters Strict, preserves_ports true, unsolicited Dropped);
probe!(a_firewall_over_udp: "firewall" => udp
    maps Constant, filters Strict, preserves_ports true, unsolicited Dropped);
probe!(a_firewall_that_resets: "firewall-that-resets" => tcp
    maps Constant, filters Strict, preserves_ports true, unsolicited Reset);
probe!(a_stateless_firewall_over_tcp: "stateless-firewall" => tcp
    maps Constant, filters Strict, preserves_ports true, unsolicited Dropped);
probe!(a_stateless_firewall_over_udp: "stateless-firewall" => udp
    maps Constant, filters All, preserves_ports true, unsolicited Accepted);
probe!(a_stateless_firewall_that_resets: "stateless-firewall-that-resets" => tcp
    maps Constant, filters Strict, preserves_ports true, unsolicited Reset);
probe!(a_nat_over_tcp: "nat" => tcp
    maps Constant, filters Strict, preserves_ports true, unsolicited Dropped);
probe!(a_nat_over_udp: "nat" => udp
    maps Constant, filters Strict, preserves_ports true, unsolicited Dropped);
probe!(a_nat_that_resets: "nat-that-resets" => tcp
    maps Constant, filters Strict, preserves_ports true, unsolicited Reset);
probe!(a_nat_that_resets_drops_udp: "nat-that-resets" => udp
    maps Constant, filters Strict, preserves_ports true, unsolicited Dropped);
probe!(a_symmetric_nat_over_tcp: "symmetric-nat" => tcp
    maps PerDestination, filters Strict, preserves_ports false, unsolicited Dropped);
probe!(a_symmetric_nat_over_udp: "symmetric-nat" => udp
    maps PerDestination, filters Strict, preserves_ports false, unsolicited Dropped);
probe!(a_symmetric_nat_that_resets: "symmetric-nat-that-resets" => tcp
    maps PerDestination, filters Strict, preserves_ports false, unsolicited Reset);
probe!(a_carriers_nat_over_tcp: "carrier-nat" => tcp
    maps Constant, filters Strict, preserves_ports true, unsolicited Dropped);
probe!(a_carriers_nat_over_udp: "carrier-nat" => udp
    maps Constant, filters Strict, preserves_ports true, unsolicited Dropped);
probe!(a_carriers_nat_that_resets: "carrier-nat-that-resets" => tcp
    maps Constant, filters Strict, preserves_ports true, unsolicited Reset);
/// What a public host gets back for a segment to a node's closed port.
fn answer_of_a_closed_port(lab: &Lab, segment: Segment) -> Answer {
    let to = SocketAddrV4::new(machine(lab, "n1.alpha").address(), 9);
    probe::answer(machine(lab, "hub"), 40_000, to, segment, PATIENCE).unwrap()
}

/// How many connections the kernel of a router tracks while a connection from inside is open.
fn tracked(lab: &Lab, router: &str) -> u32 {
    let (listener, port) = common::listen(machine(lab, "hub"));
    let hub = machine(lab, "hub").address();
    let _near = common::connect(machine(lab, "n1.alpha"), hub, port, common::SOON).unwrap();
    let _far = listener.accept().unwrap();
    let count = "/proc/sys/net/netfilter/nf_conntrack_count";
    let count = machine(lab, router).in_network(|| std::fs::read_to_string(count)).unwrap();
    count.unwrap().trim().parse().unwrap()
}

#[test]
fn a_stateless_firewall_lets_in_a_bare_ack_and_tracks_nothing() {
    if !labs_run_here() {
        return;
    }
    // The node's reset comes back: the segment got in.
    let stateless = lab_with(Site::stateless_firewall("alpha"));
    assert_eq!(answer_of_a_closed_port(&stateless, Segment::Ack), Reset);
    assert_eq!(answer_of_a_closed_port(&stateless, Segment::Syn), Dropped);
    assert_eq!(tracked(&stateless, "router.alpha"), 0);
    stateless.down().unwrap();
}

#[test]
fn a_stateful_firewall_drops_a_bare_ack_and_tracks_connections() {
    if !labs_run_here() {
        return;
    }
    let stateful = lab_with(Site::firewall("alpha"));
    assert_eq!(answer_of_a_closed_port(&stateful, Segment::Ack), Dropped);
    assert!(tracked(&stateful, "router.alpha") > 0);
    stateful.down().unwrap();
}

#[test]
fn a_carriers_nat_translates_twice() {
    if !labs_run_here() {
        return;
    }
    let lab = lab_with(Site::carrier_nat("alpha"));
    let (listener, port) = common::listen(machine(&lab, "hub"));
    let hub = machine(&lab, "hub").address();
    let near = common::connect(machine(&lab, "n1.alpha"), hub, port, common::SOON).unwrap();
    let (_far, seen) = listener.accept().unwrap();
    assert_eq!(seen.ip(), OUTSIDE, "outside, it is the carrier's address");
    // What the carrier's side sees of the site's router: listen there.
    let (between, port) = common::listen(machine(&lab, "carrier.alpha"));
    let carrier = machine(&lab, "carrier.alpha").address();
    let _near = common::connect(machine(&lab, "n1.alpha"), carrier, port, common::SOON).unwrap();
    let (_far, seen) = between.accept().unwrap();
    let shared: ipnet::Ipv4Net = "100.64.0.0/10".parse().unwrap();
    let std::net::IpAddr::V4(seen) = seen.ip() else { panic!("{seen}") };
    assert!(shared.contains(&seen) && seen != carrier, "between the NATs it is one of RFC 6598's: {seen}");
    assert!(tracked(&lab, "router.alpha") > 0 && tracked(&lab, "carrier.alpha") > 0);
    drop(near);
    lab.down().unwrap();
}

/// Name of the machine that a TCP connection reaches, of those listening at the port. `None` if it
/// doesn't get through.
fn reaches(lab: &Lab, from: &str, to: Ipv4Addr, port: u16, listening: &[&str]) -> Option<String> {
    let listeners: Vec<_> =
        listening.iter().map(|name| (name, probe::listen(machine(lab, name), port).unwrap())).collect();
    let _near = probe::connect(machine(lab, from), 0, SocketAddrV4::new(to, port), PATIENCE).ok()?;
    let mut reached = None;
    common::eventually("a listener accepts", || {
        let accepts = |listener: &TcpListener| {
            listener.set_nonblocking(true).unwrap();
            listener.accept().is_ok()
        };
        reached =
            listeners.iter().find(|(_, listener)| accepts(listener)).map(|(name, _)| (**name).to_owned());
        reached.is_some()
    });
    reached
}

/// Runs the checks of a table all at once, as most of them wait for what never comes.
fn all<T: Sync>(table: &[T], check: impl Fn(&T) + Sync) {
    std::thread::scope(|scope| {
        for row in table {
            let check = &check;
            scope.spawn(move || check(row));
        }
    });
}

/// Whether a datagram reaches the machine `listening`.
fn receives(lab: &Lab, from: &str, to: Ipv4Addr, port: u16, listening: &str) -> bool {
    let socket = |name: &str, port: u16| {
        machine(lab, name).in_network(|| std::net::UdpSocket::bind(("0.0.0.0", port))).unwrap().unwrap()
    };
    let listener = socket(listening, port);
    socket(from, 0).send_to(b"!", (to, port)).unwrap();
    listener.set_read_timeout(Some(PATIENCE)).unwrap();
    listener.recv(&mut [0]).is_ok()
}

#[test]
fn a_nat_forwards_exactly_the_ports_it_is_told_to() {
    if !labs_run_here() {
        return;
    }
    for kind in [SiteKind::Nat, SiteKind::SymmetricNat] {
        let site = Site::build(kind, "alpha");
        let lab = lab_with(site.forward(ports("7000-7099"), "n2").forward(ports("7200"), "n1"));
        let nodes = ["n1.alpha", "n2.alpha"];
        let table = [
            (7000, Some("n2.alpha")),
            (7099, Some("n2.alpha")),
            (7200, Some("n1.alpha")),
            (6999, None),
            (7100, None),
        ];
        all(&table, |(port, reached)| {
            let to = reaches(&lab, "hub", OUTSIDE, *port, &nodes);
            assert_eq!(to.as_deref(), *reached, "{kind}: port {port}");
        });
        assert!(receives(&lab, "hub", OUTSIDE, 7099, "n2.alpha"));
        assert!(!receives(&lab, "hub", OUTSIDE, 7100, "n2.alpha"));
        lab.down().unwrap();
    }
}

#[test]
fn a_firewall_lets_in_exactly_the_ports_it_is_told_to() {
    if !labs_run_here() {
        return;
    }
    for kind in [SiteKind::Firewall, SiteKind::StatelessFirewall] {
        let lab = lab_with(Site::build(kind, "alpha").forward(ports("7000-7099"), "n2"));
        let table = [
            ("n2.alpha", 7000, true),
            ("n2.alpha", 7099, true),
            ("n2.alpha", 6999, false),
            ("n2.alpha", 7100, false),
            ("n1.alpha", 7050, false),
        ];
        all(&table, |(name, port, let_in)| {
            let to = machine(&lab, name).address();
            let reached = reaches(&lab, "hub", to, *port, &[name]).is_some();
            assert_eq!(reached, *let_in, "{kind}: {name} port {port}");
        });
        let to = machine(&lab, "n2.alpha").address();
        assert!(receives(&lab, "hub", to, 7099, "n2.alpha"), "{kind}");
        assert_eq!(receives(&lab, "hub", to, 7100, "n2.alpha"), kind == SiteKind::StatelessFirewall);
        lab.down().unwrap();
    }
}

/// Defines a test for a kind of site: nothing new leaves but TCP to the given ports.
macro_rules! strict_egress {
    ($name:ident: $site:expr) => {
        #[test]
        fn $name() {
            if !labs_run_here() {
                return;
            }
            let lab = lab_with($site.egress([ports("443"), ports("7700-7710")]));
            let hub = machine(&lab, "hub").address();
            let table = [(443, true), (7700, true), (7710, true), (442, false), (7711, false)];
            all(&table, |(port, let_out)| {
                let reached = reaches(&lab, "n1.alpha", hub, *port, &["hub"]).is_some();
                assert_eq!(reached, *let_out, "port {port}");
            });
            assert!(!receives(&lab, "n1.alpha", hub, 443, "hub"), "no UDP");
            let inside = machine(&lab, "n2.alpha").address();
            assert!(reaches(&lab, "n1.alpha", inside, 442, &["n2.alpha"]).is_some(), "inside, all is free");
            lab.down().unwrap();
        }
    };
}

strict_egress!(an_open_site_with_strict_egress: Site::open("alpha"));
strict_egress!(a_firewall_with_strict_egress: Site::firewall("alpha"));
strict_egress!(a_stateless_firewall_with_strict_egress: Site::stateless_firewall("alpha"));
strict_egress!(a_nat_with_strict_egress: Site::nat("alpha"));
strict_egress!(a_symmetric_nat_with_strict_egress: Site::symmetric_nat("alpha"));
strict_egress!(a_carriers_nat_with_strict_egress: Site::carrier_nat("alpha"));

#[test]
fn strict_egress_lets_answers_out() {
    if !labs_run_here() {
        return;
    }
    let open = lab_with(Site::open("alpha").egress([ports("443")]));
    let to = machine(&open, "n1.alpha").address();
    assert!(reaches(&open, "hub", to, 5000, &["n1.alpha"]).is_some());
    open.down().unwrap();
    let nat = lab_with(Site::nat("alpha").egress([]).forward(ports("7000"), "n1"));
    assert!(reaches(&nat, "hub", OUTSIDE, 7000, &["n1.alpha"]).is_some());
    nat.down().unwrap();
}

#[test]
fn a_node_without_a_way_out_reaches_nothing_and_is_not_reached() {
    if !labs_run_here() {
        return;
    }
    for kind in [SiteKind::Open, SiteKind::Firewall, SiteKind::StatelessFirewall, SiteKind::Nat] {
        let nodes = [Node::build("n1"), Node::build("n2").no_way_out()];
        let lab = lab_of([nodes.into_iter().fold(Site::build(kind, "alpha"), SiteBuilder::node)]);
        let [hub, n1, n2] = ["hub", "n1.alpha", "n2.alpha"].map(|name| machine(&lab, name).address());
        assert!(reaches(&lab, "n1.alpha", hub, 80, &["hub"]).is_some(), "{kind}: its neighbour gets out");
        // A node without a route fails at once: its own kernel says so.
        let to = SocketAddrV4::new(hub, 80);
        let error = probe::connect(machine(&lab, "n2.alpha"), 0, to, PATIENCE).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NetworkUnreachable, "{kind}: no route");
        assert!(reaches(&lab, "n2.alpha", n1, 80, &["n1.alpha"]).is_some(), "{kind}: inside");
        // A node that adds the route itself gets no further.
        let router = lab.record().grid.sites[0].router;
        common::privileged_shell(machine(&lab, "n2.alpha"), &format!("ip route add default via {router}"));
        let table = [("n2.alpha", hub, "hub"), ("hub", n2, "n2.alpha")];
        all(&table, |(from, to, name)| {
            assert_eq!(reaches(&lab, from, *to, 80, &[name]), None, "{kind}: the router refuses {from}");
        });
        lab.down().unwrap();
    }
}

#[test]
fn no_nat_hairpins() {
    if !labs_run_here() {
        return;
    }
    for kind in [SiteKind::Nat, SiteKind::SymmetricNat, SiteKind::CarrierNat] {
        let lab = lab_with(Site::build(kind, "alpha"));
        let node = machine(&lab, "n1.alpha");
        // A listening endpoint that appears outside, asked by its neighbour.
        let inside = probe::listen(node, 0).unwrap();
        let (hub, port) = common::listen(machine(&lab, "hub"));
        let to = SocketAddrV4::new(machine(&lab, "hub").address(), port);
        let _near = probe::connect(node, inside.local_addr().unwrap().port(), to, common::SOON).unwrap();
        let (_far, seen) = hub.accept().unwrap();
        let seen = SocketAddrV4::new(OUTSIDE, seen.port());
        let connected = probe::connect(machine(&lab, "n2.alpha"), 0, seen, PATIENCE);
        assert!(connected.is_err(), "{kind}");
        lab.down().unwrap();
    }
}
