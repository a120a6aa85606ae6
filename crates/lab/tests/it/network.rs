//! Who reaches whom through which kind of router.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use isthmus_lab::grid::Slow;
use isthmus_lab::{Grid, Lab};

use crate::common::{self, connect, exchange, lab, labs_run_here, listen, privileged_shell, shell};

const GRID: &str = r#"
    [[host]]
    name = "hub"
    address = "198.51.100.10"
    [[site]]
    name = "alpha"
    kind = "nat"
    subnet = "192.168.1.0/24"
    outside = "198.51.100.21"
    nodes = [{ name = "n1" }, { name = "n2" }]
    [[site]]
    name = "beta"
    kind = "nat"
    subnet = "192.168.1.0/24"
    outside = "198.51.100.22"
    link = { delay = "1 ms" }
    nodes = [{ name = "n1" }]
    [[site]]
    name = "gamma"
    kind = "firewall"
    subnet = "203.0.113.0/26"
    link = { delay = "1 ms" }
    nodes = [{ name = "n1" }, { name = "n2" }]
    [[site]]
    name = "delta"
    kind = "open"
    subnet = "203.0.113.64/26"
    nodes = [{ name = "n1" }]
"#;

/// How long to wait for no answer: long enough for three SYNs.
const UNANSWERED: Duration = Duration::from_millis(3500);

#[test]
fn all_of_it_as_an_ordinary_user() {
    common::rerun_as_an_ordinary_user(module_path!(), &[]);
}

#[test]
fn the_kinds_of_sites_let_in_and_out_what_they_should() {
    if !labs_run_here() {
        return;
    }
    let lab = lab(GRID);
    let machine = |name| lab.machine(name).unwrap();

    // All nodes get out; the public host sees the outside address of a NAT
    // and the own address of a node behind a firewall.
    let (hub, _) = listen(machine("hub"));
    for (name, seen_as) in [
        ("n1.alpha", [198, 51, 100, 21]),
        ("n1.beta", [198, 51, 100, 22]),
        ("n1.gamma", [203, 0, 113, 2]),
        ("n1.delta", [203, 0, 113, 66]),
    ] {
        let seen = exchange(machine(name), &hub, machine("hub").address());
        assert_eq!(seen.ip(), Ipv4Addr::from(seen_as), "{name}");
    }

    // The nodes of a site share a local network. Each site has a network of its own, though the
    // addresses are the same.
    for (from, to) in [("n1.alpha", "n2.alpha"), ("n2.gamma", "n1.gamma")] {
        let (listener, _) = listen(machine(to));
        let seen = exchange(machine(from), &listener, machine(to).address());
        assert_eq!(seen.ip(), machine(from).address(), "no translation inside");
    }
    let own = machine("n1.beta").in_network(|| TcpListener::bind("192.168.1.2:0")).unwrap();
    assert!(own.is_ok(), "the same address as n1.alpha's");

    // An open site lets in all that is routed to it.
    let (open, _) = listen(machine("n1.delta"));
    for name in ["hub", "n1.alpha", "n1.gamma"] {
        exchange(machine(name), &open, machine("n1.delta").address());
    }

    // Nothing gets in behind a NAT or a firewall, not even with an answer.
    let (_nat, behind_nat) = listen(machine("n1.alpha"));
    let (_firewall, behind_firewall) = listen(machine("n1.gamma"));
    std::thread::scope(|scope| {
        for (from, to, port) in [
            ("hub", Ipv4Addr::new(198, 51, 100, 21), behind_nat),
            ("n1.beta", Ipv4Addr::new(198, 51, 100, 21), behind_nat),
            ("hub", machine("n1.gamma").address(), behind_firewall),
            ("n1.alpha", machine("n1.gamma").address(), behind_firewall),
        ] {
            let lab = &lab;
            scope.spawn(move || {
                let error = connect(lab.machine(from).unwrap(), to, port, UNANSWERED).unwrap_err();
                assert_eq!(error.kind(), std::io::ErrorKind::TimedOut, "{from} to {to}");
            });
        }
    });
    // A private address means nothing outside.
    let error = connect(machine("hub"), machine("n1.alpha").address(), behind_nat, UNANSWERED).unwrap_err();
    assert_ne!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    lab.down().unwrap();
}

/// The router's bridge is a switch, whatever the router's kernel filters.
#[test]
fn a_site_that_is_cut_off_is_whole_inside() {
    if !labs_run_here() {
        return;
    }
    let lab = lab(GRID);
    let machine = |name| lab.machine(name).unwrap();
    let (inside, _) = listen(machine("n2.alpha"));
    let (outside, port) = listen(machine("hub"));
    exchange(machine("n1.alpha"), &outside, machine("hub").address());
    let rules =
        "add table inet cut; add chain inet cut pass { type filter hook forward priority 0; policy drop; }";
    privileged_shell(machine("router.alpha"), &format!("nft '{rules}'"));
    exchange(machine("n1.alpha"), &inside, machine("n2.alpha").address());
    let error = connect(machine("n1.alpha"), machine("hub").address(), port, UNANSWERED).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    lab.down().unwrap();
}

#[test]
fn a_nat_keeps_connections_apart() {
    if !labs_run_here() {
        return;
    }
    let lab = lab(GRID);
    let hub = lab.machine("hub").unwrap();
    let (listener, port) = listen(hub);
    // Two nodes use the same port; both connections must work.
    let from = |name: &str| {
        let line = format!("exec 3<>/dev/tcp/{}/{port} && echo $0 >&3 && head -1 <&3", hub.address());
        let mut command = lab.machine(name).unwrap().command("bash");
        command.args(["-c", &line, name]).stdout(std::process::Stdio::piped()).spawn().unwrap()
    };
    let children = [from("n1.alpha"), from("n2.alpha")];
    let mut peers: Vec<SocketAddr> = Vec::new();
    for _ in 0..2 {
        let (mut stream, peer) = listener.accept().unwrap();
        peers.push(peer);
        std::thread::spawn(move || {
            let mut reader = std::io::BufReader::new(stream.try_clone().unwrap());
            let mut line = String::new();
            std::io::BufRead::read_line(&mut reader, &mut line).unwrap();
            std::io::Write::write_all(&mut stream, line.as_bytes()).unwrap();
        });
    }
    for (child, name) in children.into_iter().zip(["n1.alpha", "n2.alpha"]) {
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{name}\n"));
    }
    assert_ne!(peers[0].port(), peers[1].port());
    assert!(peers.iter().all(|peer| peer.ip() == Ipv4Addr::new(198, 51, 100, 21)));
    assert!(
        privileged_shell(lab.machine("router.alpha").unwrap(), "nft list ruleset").contains("masquerade")
    );
    lab.down().unwrap();
}

#[test]
fn slow_motion_stretches_ways_and_the_kernel_s_times() {
    if !labs_run_here() {
        return;
    }
    const FACTOR: u32 = 20;
    let time_of = |lab: &Lab| -> u64 {
        shell(lab.machine("n1.gamma").unwrap(), "cat /proc/sys/net/ipv4/tcp_keepalive_time")
            .trim()
            .parse()
            .unwrap()
    };
    let described = time_of(&lab(GRID));
    let grid = Grid::parse(GRID, "test", &common::unique_name()).unwrap();
    let grid = grid.slowed(Slow::try_from(FACTOR).unwrap()).unwrap();
    let lab = Lab::up_with(&grid, &common::options()).unwrap();
    assert_eq!(time_of(&lab), described * u64::from(FACTOR));
    // The one link between them has a delay of 1 ms as described. No packet is ever early.
    let (near, far) = (lab.machine("n1.gamma").unwrap(), lab.machine("hub").unwrap());
    let least = common::round_trips(near, far, 5).into_iter().min().unwrap();
    assert!(least >= Duration::from_millis(2) * FACTOR, "{least:?}");
}
