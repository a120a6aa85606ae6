//! Nodes with several networks: who is reached by which, and how fast.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::{Duration, Instant};

use isthmus_lab::grid::{Rail, Site};
use isthmus_lab::{Lab, Machine, probe};
use socket2::{Domain, Protocol, Socket, Type};

use crate::common::{self, SOON, lab, lab_of, labs_run_here, shell};

/// Connects from an address of a machine. Returns the address that the other end sees, and how long
/// the handshake took.
fn connect(
    lab: &Lab,
    from: (&str, Ipv4Addr),
    to: (&str, Ipv4Addr),
) -> std::io::Result<(SocketAddr, Duration)> {
    let machine = |name: &str| -> Machine<'_> { lab.machine(name).unwrap() };
    let listener = probe::listen(machine(to.0), 0)?;
    let port = listener.local_addr()?.port();
    let socket = machine(from.0).in_network(|| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        socket.bind(&SocketAddrV4::new(from.1, 0).into()).map(|()| socket)
    })??;
    let start = Instant::now();
    socket.connect_timeout(&SocketAddrV4::new(to.1, port).into(), probe::PATIENCE)?;
    let took = start.elapsed();
    Ok((listener.accept()?.1, took))
}

fn address(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

const GRID: &str = r#"
    [[host]]
    name = "hub"
    [[site]]
    name = "alpha"
    kind = "nat"
    outside = "198.51.100.21"
    link = { delay = "1 ms" }
    forward = [{ ports = 7000, to = "n1" }]
    rails = [
      { name = "fast", subnet = "10.10.0.0/24" },
      { name = "far", subnet = "10.11.0.0/24", link = { delay = "15 ms" }, outside = "198.51.100.31" },
    ]
    nodes = [{ name = "n1" }, { name = "n2" }, { name = "n3", way_out = false }]
    [[site]]
    name = "beta"
    kind = "firewall"
    subnet = "203.0.113.0/26"
    rails = [{ name = "far", subnet = "203.0.113.64/26", link = {} }]
    forward = [{ ports = "1-65535", to = "n1" }]
    nodes = [{ name = "n1" }]
"#;

#[test]
fn all_of_it_as_an_ordinary_user() {
    common::rerun_as_an_ordinary_user(module_path!(), &[]);
}

#[test]
fn a_rail_without_a_link_leads_nowhere_else() {
    if !labs_run_here() {
        return;
    }
    let lab = lab(GRID);
    let hub = lab.machine("hub").unwrap().address();
    let inside =
        connect(&lab, ("n1.alpha", address("10.10.0.2")), ("n2.alpha", address("10.10.0.3"))).unwrap();
    assert_eq!(inside.0.ip(), address("10.10.0.2"));
    for (node, own) in [("n1.alpha", "10.10.0.2"), ("n3.alpha", "10.11.0.4"), ("n3.alpha", "192.168.1.4")] {
        assert!(connect(&lab, (node, address(own)), ("hub", hub)).is_err(), "{node} from {own}");
    }
    // A node without a way out has its rails inside.
    connect(&lab, ("n3.alpha", address("10.11.0.4")), ("n1.alpha", address("10.11.0.2"))).unwrap();
    let interfaces = shell(lab.machine("n1.alpha").unwrap(), "ls /sys/class/net");
    for name in ["eth0", "fast", "far"] {
        assert!(interfaces.split_whitespace().any(|interface| interface == name), "{interfaces}");
    }
    lab.down().unwrap();
}

/// Bits per second that a connection carries between two nodes' addresses, from the first byte to
/// the last.
fn throughput(lab: &Lab, from: &str, to: (&str, Ipv4Addr)) -> f64 {
    let listener = probe::listen(lab.machine(to.0).unwrap(), 0).unwrap();
    let to = SocketAddrV4::new(to.1, listener.local_addr().unwrap().port());
    let mut near = probe::connect(lab.machine(from).unwrap(), 0, to, SOON).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (start, block) = (Instant::now(), vec![0; 1 << 16]);
            while start.elapsed() < Duration::from_secs(1) {
                near.write_all(&block).unwrap();
            }
        });
        let mut buffer = vec![0; 1 << 18];
        let (mut bytes, mut start) = (0, None);
        loop {
            match far.read(&mut buffer).unwrap() {
                0 => break,
                read => bytes += read,
            }
            start.get_or_insert_with(Instant::now);
        }
        bytes as f64 * 8.0 / start.unwrap().elapsed().as_secs_f64()
    })
}

/// Tests that measure, which run one at a time.
mod alone {
    use super::*;

    #[test]
    fn all_of_it_as_an_ordinary_user() {
        let Some(_alone) = common::alone() else { return };
        common::rerun_as_an_ordinary_user(module_path!(), &[]);
    }

    #[test]
    fn a_socket_leaves_by_the_link_of_its_rail_and_is_answered_by_it() {
        let Some(_alone) = common::alone() else { return };
        let lab = lab(GRID);
        let hub = lab.machine("hub").unwrap().address();
        for (from, seen_as, round_trip) in [
            ("0.0.0.0", "198.51.100.21", 2),
            ("192.168.1.2", "198.51.100.21", 2),
            ("10.11.0.2", "198.51.100.31", 30),
        ] {
            let (seen, took) = connect(&lab, ("n1.alpha", address(from)), ("hub", hub)).unwrap();
            assert_eq!(seen.ip(), address(seen_as), "from {from}");
            let round_trip = Duration::from_millis(round_trip);
            assert!(
                took >= round_trip && took < round_trip + Duration::from_millis(20),
                "from {from}: {took:?}"
            );
        }
        // Link to link: each of beta's networks by its own.
        for (from, to, seen_as) in [
            ("192.168.1.2", "203.0.113.2", "198.51.100.21"),
            ("10.11.0.2", "203.0.113.66", "198.51.100.31"),
            ("192.168.1.2", "203.0.113.66", "198.51.100.21"),
        ] {
            let (seen, _) = connect(&lab, ("n1.alpha", address(from)), ("n1.beta", address(to))).unwrap();
            assert_eq!(seen.ip(), address(seen_as), "from {from} to {to}");
        }
        // In the other direction, connections come by a forwarded port of each link.
        for outside in ["198.51.100.21", "198.51.100.31"] {
            let listener = probe::listen(lab.machine("n1.alpha").unwrap(), 7000).unwrap();
            let to = SocketAddrV4::new(address(outside), 7000);
            probe::connect(lab.machine("hub").unwrap(), 0, to, SOON).unwrap();
            listener.accept().unwrap();
        }
        let report = lab.emulation().unwrap().unwrap();
        let names: Vec<_> = report.links.iter().map(|link| link.name.as_str()).collect();
        assert_eq!(names, ["alpha", "alpha/far"]);
        lab.down().unwrap();
    }

    #[test]
    fn every_network_of_a_site_has_the_rate_it_was_given() {
        let Some(_alone) = common::alone() else { return };
        let rail = Rail::build("slow", "10.10.0.0/24".parse().unwrap()).rate("20 Mbit/s".parse().unwrap());
        let site = Site::nat("alpha").lan_rate("200 Mbit/s".parse().unwrap()).rail(rail).nodes(2);
        let lab = lab_of([site]);
        for (to, rate) in [("192.168.1.3", 200e6), ("10.10.0.3", 20e6)] {
            let reached = throughput(&lab, "n1.alpha", ("n2.alpha", address(to)));
            eprintln!("{to}: {:.1} Mbit/s", reached / 1e6);
            // What was on its way when the first byte came counts as well; half,
            // because the machine may be busy with something else.
            assert!(reached < rate * 1.05 && reached > rate / 2.0, "to {to}: {reached} bit/s");
        }
        lab.down().unwrap();
    }
}
