//! What is broken on purpose is broken as intended, and mended afterwards.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::process::Stdio;
use std::time::Duration;

use isthmus_lab::faults::Flap;
use isthmus_lab::{FaultError, Lab, Machine};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{
    self, SOON, connect, eventually, lab, labs_run_here, listen, privileged_shell, program, promised,
    round_trips, shell,
};

/// A grid with an emulated link, a plain link and wires within sites.
const GRID: &str = r#"
    [[host]]
    name = "hub"
    address = "198.51.100.10"
    [[site]]
    name = "alpha"
    kind = "nat"
    subnet = "192.168.1.0/24"
    outside = "198.51.100.21"
    link = { delay = "1 ms" }
    nodes = [{ name = "n1" }, { name = "n2" }]
    [[site]]
    name = "beta"
    kind = "open"
    subnet = "203.0.113.0/26"
    nodes = [{ name = "n1" }]
"#;

/// A time within which all that arrives has arrived.
const QUIET: Duration = Duration::from_millis(150);

/// Both ends of a new TCP connection.
fn connection(from: Machine<'_>, to: Machine<'_>) -> (TcpStream, TcpStream) {
    let (listener, port) = listen(to);
    let near = connect(from, to.address(), port, SOON).unwrap();
    let far = listener.accept().unwrap().0;
    for stream in [&near, &far] {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
    }
    (near, far)
}

fn passes(from: &mut TcpStream, to: &mut TcpStream, text: &[u8]) {
    from.write_all(text).unwrap();
    let mut got = vec![0; text.len()];
    to.read_exact(&mut got).unwrap();
    assert_eq!(got, text);
}

fn udp(machine: Machine<'_>) -> UdpSocket {
    let socket = machine.in_network(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    socket
}

fn port(socket: &UdpSocket) -> u16 {
    socket.local_addr().unwrap().port()
}

/// Receives, again and again while it is interrupted. A socket with a timeout is interrupted if its
/// process was stopped for a moment (signal(7)).
fn received<T>(mut receive: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    loop {
        match receive() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            received => return received,
        }
    }
}

fn receives(socket: &UdpSocket, text: &[u8]) -> SocketAddr {
    let mut buffer = [0; 64];
    let (length, from) = received(|| socket.recv_from(&mut buffer)).unwrap();
    assert_eq!(&buffer[..length], text);
    from
}

fn hears_nothing(socket: &UdpSocket) {
    socket.set_read_timeout(Some(QUIET)).unwrap();
    let heard = received(|| socket.recv_from(&mut [0; 64]));
    socket.set_read_timeout(Some(SOON)).unwrap();
    assert!(matches!(&heard, Err(error) if error.kind() == ErrorKind::WouldBlock), "{heard:?}");
}

fn cut_in(lab: &Lab) -> Vec<String> {
    lab.current().unwrap().faults.cut.into_iter().collect()
}

#[test]
fn all_of_it_as_an_ordinary_user() {
    common::rerun_as_an_ordinary_user(module_path!(), &[]);
}

#[test]
fn a_cut_stops_both_directions_without_a_word_and_a_heal_resumes_connections() {
    if !labs_run_here() {
        return;
    }
    let lab = lab(GRID);
    // Emulated and plain links, a node's wire, a whole router.
    for (target, from, to, cut) in [
        ("alpha", "n1.alpha", "hub", vec!["alpha"]),
        ("beta", "n1.beta", "hub", vec!["beta"]),
        ("hub", "n1.alpha", "hub", vec!["hub"]),
        ("n2.alpha", "n2.alpha", "n1.alpha", vec!["n2.alpha"]),
        ("router.alpha", "n1.alpha", "hub", vec!["alpha", "n1.alpha", "n2.alpha"]),
    ] {
        let (from, to) = (lab.machine(from).unwrap(), lab.machine(to).unwrap());
        let (mut near, mut far) = connection(from, to);
        passes(&mut near, &mut far, b"before");
        let (caller, listener) = (udp(from), udp(to));
        caller.connect((to.address(), port(&listener))).unwrap();
        caller.send(b"knock").unwrap();
        let seen_as = receives(&listener, b"knock");

        assert_eq!(lab.cut(target).unwrap(), cut, "{target}");
        assert_eq!(cut_in(&lab), cut);
        near.write_all(b"from near").unwrap();
        far.write_all(b"from far").unwrap();
        caller.send(b"lost").unwrap();
        listener.send_to(b"lost", seen_as).unwrap();
        hears_nothing(&listener);
        hears_nothing(&caller);
        for stream in [&near, &far] {
            stream.set_nonblocking(true).unwrap();
            assert_eq!(stream.peek(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock, "{target}");
            stream.set_nonblocking(false).unwrap();
            assert!(stream.take_error().unwrap().is_none());
        }
        // Cutting twice is cutting once.
        lab.cut(target).unwrap();

        assert_eq!(lab.heal(target).unwrap(), cut, "{target}");
        assert!(cut_in(&lab).is_empty());
        let mut buffer = [0; 9];
        far.read_exact(&mut buffer).unwrap();
        assert_eq!(&buffer, b"from near");
        near.read_exact(&mut buffer[..8]).unwrap();
        assert_eq!(&buffer[..8], b"from far");
        caller.send(b"again").unwrap();
        receives(&listener, b"again");
        assert!(lab.heal(target).unwrap().is_empty(), "nothing is cut any more");
    }
    lab.cut("alpha").unwrap();
    lab.cut("n1.beta").unwrap();
    assert_eq!(lab.heal_all().unwrap(), ["alpha", "n1.beta"]);
    let error = lab.cut("alfa").unwrap_err().to_string();
    assert!(error.contains("no link or machine \"alfa\"; it has: alpha, beta, hub, n1.alpha"), "{error}");
    lab.down().unwrap();
}

#[test]
fn changes_of_a_lab_come_one_after_another() {
    if !labs_run_here() {
        return;
    }
    let lab = lab(GRID);
    let targets = ["alpha", "beta", "hub", "n1.alpha", "n2.alpha", "n1.beta"];
    std::thread::scope(|scope| {
        for target in targets {
            let lab = &lab;
            scope.spawn(move || {
                lab.cut(target).unwrap();
                lab.heal(target).unwrap();
                lab.cut(target).unwrap();
            });
        }
    });
    let all: std::collections::BTreeSet<String> = targets.map(str::to_owned).into();
    assert_eq!(lab.current().unwrap().faults.cut, all);
    assert_eq!(lab.heal_all().unwrap().len(), targets.len());
    round_trips(lab.machine("n1.alpha").unwrap(), lab.machine("hub").unwrap(), 1);
    lab.down().unwrap();
}

#[test]
fn a_frozen_machine_does_nothing_until_it_thaws() {
    if !labs_run_here() {
        return;
    }
    let lab = lab(GRID);
    let machine = lab.machine("n1.alpha").unwrap();
    let mut counter = machine
        .command("sh")
        .args([
            "-c",
            "unshare --user --pid --fork sh -c 'while :; do echo tick; done' & while :; do echo tock; done",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = counter.stdout.take().unwrap();
    let mut buffer = vec![0; 1 << 16];
    out.read_exact(&mut buffer).unwrap();
    let frozen = machine.freeze().unwrap();
    assert!(frozen >= 3, "a shell, unshare and a shell in a namespace of its own, not {frozen}");
    assert!(lab.current().unwrap().faults.frozen.contains("n1.alpha"));
    // What was in the pipe is all there is.
    nix::fcntl::fcntl(&out, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK)).unwrap();
    while out.read(&mut buffer).is_ok_and(|read| read > 0) {}
    std::thread::sleep(QUIET);
    assert_eq!(out.read(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
    // The machine is there still, and other machines go on.
    shell(lab.machine("n2.alpha").unwrap(), "true");
    assert_eq!(machine.thaw().unwrap(), frozen);
    assert!(lab.current().unwrap().faults.frozen.is_empty());
    nix::fcntl::fcntl(&out, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::empty())).unwrap();
    out.read_exact(&mut buffer).unwrap();
    assert!(machine.kill(None, Signal::SIGKILL).unwrap() >= 3);
    assert_eq!(counter.wait().unwrap().code(), Some(137));
    shell(machine, "true");
    lab.down().unwrap();
}

#[test]
fn a_signal_reaches_the_processes_of_one_machine_only() {
    if !labs_run_here() {
        return;
    }
    let lab = lab(GRID);
    let script = "trap 'echo ended; exit 5' TERM; echo ready; while :; do sleep 0.02; done";
    let start = |name: &str| {
        let mut child = lab
            .machine(name)
            .unwrap()
            .command("sh")
            .args(["-c", script])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        (child, lines)
    };
    let ((mut one, mut lines), (mut other, _lines)) = (start("n1.alpha"), start("n2.alpha"));
    let name = lab.name();
    let output = program(&["kill", "--lab", name, "n1.alpha", "--signal", "term"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(lines.next().unwrap().unwrap(), "ended");
    assert_eq!(one.wait().unwrap().code(), Some(5));
    assert!(other.try_wait().unwrap().is_none());
    let error = lab.machine("n1.alpha").unwrap().kill(Some(isthmus_lab::grid::Role::Agent), Signal::SIGKILL);
    assert!(matches!(&error, Err(FaultError::NoService { .. })), "{error:?}");
    let output = program(&["kill", "--lab", name, "n2.alpha"]).output().unwrap();
    assert!(output.status.success());
    assert_eq!(other.wait().unwrap().code(), Some(137));
    lab.down().unwrap();
}

#[test]
fn flapping_ends_healed_however_it_ends() {
    if !labs_run_here() {
        return;
    }
    let lab = lab(GRID);
    let times = |down, up| ["--down".to_owned(), down, "--up".to_owned(), up];
    let flap = |down: &str, up: &str| {
        let mut command = program(&["flap", "--lab", lab.name(), "alpha"]);
        command.args(times(down.to_owned(), up.to_owned()));
        command
    };
    let output = flap("1ms", "1ms").args(["--count", "3"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = "alpha down\nalpha up\n".repeat(3) + "alpha healed after 3 cuts\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), text);

    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGKILL] {
        let mut child = flap("1h", "1h").stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "alpha down");
        assert_eq!(cut_in(&lab), ["alpha"]);
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        assert_eq!(child.wait().unwrap().success(), signal != Signal::SIGKILL);
        eventually("healed", || cut_in(&lab).is_empty());
        round_trips(lab.machine("n1.alpha").unwrap(), lab.machine("hub").unwrap(), 1);
    }

    let hour = Duration::from_secs(3600);
    let flapping = lab.flapping("n1.beta", Flap { down: hour, up: hour, count: None }).unwrap();
    eventually("cut", || cut_in(&lab) == ["n1.beta"]);
    assert_eq!(flapping.stop().unwrap(), 1);
    assert!(cut_in(&lab).is_empty());
    lab.down().unwrap();
}

/// A UDP socket of a node and another of the hub, with a mapping between them. Also returns the
/// node's address as the hub sees it.
fn mapping(lab: &Lab) -> (UdpSocket, UdpSocket, SocketAddr) {
    let (node, hub) = (udp(lab.machine("n1.alpha").unwrap()), udp(lab.machine("hub").unwrap()));
    node.connect(("198.51.100.10", port(&hub))).unwrap();
    node.send(b"first").unwrap();
    let mapped = receives(&hub, b"first");
    hub.send_to(b"answer", mapped).unwrap();
    let mut buffer = [0; 6];
    received(|| node.recv(&mut buffer)).unwrap();
    (node, hub, mapped)
}

#[test]
fn an_expired_mapping_lets_nothing_in_until_the_inside_sends_again() {
    if !labs_run_here() {
        return;
    }
    let lab = lab(GRID);
    let (node, hub, mapped) = mapping(&lab);
    let (mut near, mut far) = connection(lab.machine("n1.alpha").unwrap(), lab.machine("hub").unwrap());
    assert!(lab.nat("alpha").unwrap().expire().unwrap() >= 2);
    hub.send_to(b"unsolicited", mapped).unwrap();
    hears_nothing(&node);
    far.write_all(b"unsolicited").unwrap();
    near.set_read_timeout(Some(QUIET)).unwrap();
    assert_eq!(received(|| near.read(&mut [0; 16])).unwrap_err().kind(), ErrorKind::WouldBlock);
    near.set_read_timeout(Some(SOON)).unwrap();

    node.send(b"again").unwrap();
    let mapped = receives(&hub, b"again");
    hub.send_to(b"welcome", mapped).unwrap();
    receives(&node, b"welcome");
    passes(&mut near, &mut far, b"again");
    let error = lab.nat("beta").unwrap_err().to_string();
    assert!(error.contains("the site's kind is open"), "{error}");
    lab.down().unwrap();
}

#[test]
fn a_restarted_nat_is_off_for_a_while_and_knows_no_connection() {
    if !labs_run_here() {
        return;
    }
    let lab = lab(GRID);
    let (node, hub, mapped) = mapping(&lab);
    let (mut near, mut far) = connection(lab.machine("n1.alpha").unwrap(), lab.machine("hub").unwrap());
    // Much longer than anything is looked at meanwhile.
    let outage = Duration::from_secs(3);
    std::thread::scope(|scope| {
        let restarting = scope.spawn(|| lab.nat("alpha").unwrap().restart(outage).unwrap());
        let router = lab.machine("router.alpha").unwrap();
        eventually("the outage", || privileged_shell(router, "nft list tables").contains("lab_off"));
        node.send(b"lost").unwrap();
        hears_nothing(&hub);
        restarting.join().unwrap();
    });
    hub.send_to(b"unsolicited", mapped).unwrap();
    hears_nothing(&node);
    // The outage ends without the process that asked for it.
    let mut command = program(&["nat", "restart", "--lab", lab.name(), "alpha", "--for", "3s"]);
    let mut child = command.spawn().unwrap();
    eventually("the outage", || {
        privileged_shell(lab.machine("router.alpha").unwrap(), "nft list tables").contains("lab_off")
    });
    kill(Pid::from_raw(child.id() as i32), Signal::SIGKILL).unwrap();
    child.wait().unwrap();
    node.send(b"lost").unwrap();
    hears_nothing(&hub);
    hub.set_nonblocking(true).unwrap();
    eventually("the end of the outage", || {
        node.send(b"again").unwrap();
        hub.recv_from(&mut [0; 16]).is_ok()
    });
    hub.set_nonblocking(false).unwrap();
    while hub.set_read_timeout(Some(QUIET)).is_ok() && received(|| hub.recv_from(&mut [0; 16])).is_ok() {}
    hub.set_read_timeout(Some(SOON)).unwrap();
    // A connection from before stays dead, from both sides.
    near.write_all(b"lost").unwrap();
    far.write_all(b"lost").unwrap();
    for stream in [&mut near, &mut far] {
        // Time for two retransmissions.
        stream.set_read_timeout(Some(Duration::from_millis(700))).unwrap();
        assert_eq!(received(|| stream.read(&mut [0; 16])).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
    // What is new passes.
    node.send(b"again").unwrap();
    receives(&hub, b"again");
    let (mut near, mut far) = connection(lab.machine("n1.alpha").unwrap(), lab.machine("hub").unwrap());
    passes(&mut near, &mut far, b"new");
    lab.down().unwrap();
}

#[test]
fn a_site_that_moves_is_seen_under_its_new_address_only() {
    if !labs_run_here() {
        return;
    }
    // Behind the emulator, and behind a plain link.
    for text in [GRID.to_owned(), GRID.replace("link = { delay = \"1 ms\" }", "")] {
        let lab = lab(&text);
        let new = Ipv4Addr::new(198, 51, 100, 99);
        let (node, hub, mapped) = mapping(&lab);
        assert_eq!(mapped.ip(), Ipv4Addr::new(198, 51, 100, 21));
        lab.nat("alpha").unwrap().move_to(new).unwrap();
        hub.send_to(b"void", mapped).unwrap();
        hears_nothing(&node);
        node.send(b"here").unwrap();
        let mapped = receives(&hub, b"here");
        assert_eq!(mapped.ip(), new);
        hub.send_to(b"there", mapped).unwrap();
        receives(&node, b"there");
        let (_near, far) = connection(lab.machine("n2.alpha").unwrap(), lab.machine("hub").unwrap());
        assert_eq!(far.peer_addr().unwrap().ip(), new);
        assert_eq!(lab.current().unwrap().grid.sites[0].outside, new);

        let refused = |address: [u8; 4]| {
            lab.nat("alpha").unwrap().move_to(Ipv4Addr::from(address)).unwrap_err().to_string()
        };
        assert_eq!(refused([198, 51, 100, 10]), "198.51.100.10 is the address of host hub");
        assert_eq!(refused([198, 51, 100, 1]), "198.51.100.1 is the address of the wide area's router");
        assert_eq!(refused([10, 0, 0, 1]), "10.0.0.1 is no host address of the wide area, 198.51.100.0/24");
        lab.down().unwrap();
    }
}

#[test]
fn a_firewall_forgets_but_does_not_move() {
    if !labs_run_here() {
        return;
    }
    let lab = lab(&GRID.replace("kind = \"open\"", "kind = \"firewall\""));
    let (node, hub) = (udp(lab.machine("n1.beta").unwrap()), udp(lab.machine("hub").unwrap()));
    node.send_to(b"first", ("198.51.100.10", port(&hub))).unwrap();
    let seen = receives(&hub, b"first");
    lab.nat("beta").unwrap().expire().unwrap();
    hub.send_to(b"unsolicited", seen).unwrap();
    hears_nothing(&node);
    let error = lab.nat("beta").unwrap().move_to(Ipv4Addr::new(198, 51, 100, 99)).unwrap_err().to_string();
    assert!(error.contains("its kind is firewall"), "{error}");
    lab.down().unwrap();
}

#[test]
fn status_and_exit_codes_tell() {
    if !labs_run_here() {
        return;
    }
    let lab = lab(GRID);
    let name = lab.name();
    let run = |arguments: &[&str]| program(arguments).args(["--lab", name]).output().unwrap();
    assert!(run(&["cut", "alpha", "n1.beta"]).status.success());
    assert!(run(&["freeze", "n2.alpha"]).status.success());
    let status = String::from_utf8(run(&["status"]).stdout).unwrap();
    assert!(status.contains("CUT: alpha, n1.beta") && status.contains("FROZEN: n2.alpha"), "{status}");
    let status: serde_json::Value = serde_json::from_slice(&run(&["status", "--json"]).stdout).unwrap();
    assert_eq!(status["faults"]["cut"], serde_json::json!(["alpha", "n1.beta"]));
    assert_eq!(status["faults"]["frozen"], serde_json::json!(["n2.alpha"]));
    let healed = run(&["heal", "--all"]);
    assert_eq!(String::from_utf8_lossy(&healed.stdout), "alpha, n1.beta are healed\n");
    assert!(run(&["thaw", "n2.alpha"]).status.success());
    for (arguments, code, message) in [
        (&["cut", "gamma"][..], 1, "no link or machine \"gamma\""),
        (&["set", "alpha", "speed=1"], 1, "a link has no \"speed\""),
        (&["set", "alpha"], 2, "KEY=VALUE"),
        (&["heal"], 2, "LINK|NODE"),
        (&["nat", "expire", "gamma"], 1, "no site \"gamma\"; it has: alpha, beta"),
        (&["freeze", "n9.alpha"], 1, "no machine \"n9.alpha\""),
        (&["flap", "alpha", "--down", "soon"], 2, "--down"),
    ] {
        let output = run(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(message), "{arguments:?}: {error}");
    }
    lab.down().unwrap();
    let gone = program(&["cut", "--lab", "never-there", "alpha"]).output().unwrap();
    assert_eq!(gone.status.code(), Some(1));
}

const KINDS: &str = r#"
    [[host]]
    name = "hub"
    address = "198.51.100.10"
    [[site]]
    name = "alpha"
    kind = "carrier-nat"
    subnet = "192.168.1.0/24"
    outside = "198.51.100.21"
    nodes = [{ name = "n1" }]
    [[site]]
    name = "beta"
    kind = "open"
    subnet = "203.0.113.0/27"
    rails = [{ name = "ib", subnet = "203.0.113.32/27", link = { delay = "1 ms" } }]
    nodes = [{ name = "n1" }]
    [[site]]
    name = "gamma"
    kind = "stateless-firewall"
    subnet = "203.0.113.64/27"
    nodes = [{ name = "n1" }]
"#;

#[test]
fn both_nats_of_a_carrier_s_customer_forget_and_the_outer_one_moves() {
    if !labs_run_here() {
        return;
    }
    let lab = lab(KINDS);
    let (node, hub, mapped) = mapping(&lab);
    assert!(lab.nat("alpha").unwrap().expire().unwrap() >= 2, "one session in each router");
    hub.send_to(b"unsolicited", mapped).unwrap();
    hears_nothing(&node);
    node.send(b"again").unwrap();
    receives(&hub, b"again");
    let new = Ipv4Addr::new(198, 51, 100, 99);
    lab.nat("alpha").unwrap().move_to(new).unwrap();
    node.send(b"here").unwrap();
    assert_eq!(receives(&hub, b"here").ip(), new);
    lab.nat("alpha").unwrap().restart(Duration::from_millis(50)).unwrap();
    node.send(b"back").unwrap();
    receives(&hub, b"back");
    assert!(matches!(lab.nat("gamma"), Err(FaultError::Stateless { .. })));
    lab.down().unwrap();
}

#[test]
fn rails_are_cut_and_set_one_by_one() {
    if !labs_run_here() {
        return;
    }
    let lab = lab(KINDS);
    let (node, hub) = (lab.machine("n1.beta").unwrap(), lab.machine("hub").unwrap());
    let from = |address: [u8; 4]| {
        let socket = node.in_network(|| UdpSocket::bind((Ipv4Addr::from(address), 0))).unwrap().unwrap();
        socket.set_read_timeout(Some(SOON)).unwrap();
        socket
    };
    let (main, rail, listener) = (from([203, 0, 113, 2]), from([203, 0, 113, 34]), udp(hub));
    let to = ("198.51.100.10", port(&listener));
    for (cut, passing, lost) in
        [("beta", &rail, &main), ("beta/ib", &main, &rail), ("n1.beta/ib", &main, &rail)]
    {
        lab.cut(cut).unwrap();
        lost.send_to(b"lost", to).unwrap();
        passing.send_to(b"passes", to).unwrap();
        receives(&listener, b"passes");
        hears_nothing(&listener);
        lab.heal(cut).unwrap();
    }
    assert_eq!(lab.cut("n1.beta").unwrap(), ["n1.beta/eth0", "n1.beta/ib"]);
    lab.heal_all().unwrap();
    lab.set_link("beta/ib", &["delay=15ms"]).unwrap();
    let start = std::time::Instant::now();
    rail.send_to(b"later", to).unwrap();
    receives(&listener, b"later");
    assert!(start.elapsed() >= Duration::from_millis(15));
    lab.down().unwrap();
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
    fn a_link_does_what_it_was_last_set_to() {
        let Some(_alone) = common::alone() else { return };
        let lab = lab(GRID);
        let least = || round_trips(lab.machine("n1.alpha").unwrap(), lab.machine("hub").unwrap(), 20)[0];
        let (before, slack) = (least(), promised(Duration::from_millis(3)));
        assert!(
            before >= Duration::from_millis(2) && before < Duration::from_millis(2) + slack,
            "{before:?}"
        );
        lab.set_link("alpha", &["delay=20ms", "down.delay=5ms"]).unwrap();
        let after = least();
        assert!(after >= Duration::from_millis(25) && after < Duration::from_millis(25) + slack, "{after:?}");
        let link = lab.current().unwrap().grid.sites[0].link;
        assert_eq!((link.up.delay.to_string(), link.down.delay.to_string()), ("20 ms".into(), "5 ms".into()));
        lab.set_link("alpha", &["delay=1ms", "loss=100%"]).unwrap();
        let (caller, listener) = (udp(lab.machine("n1.alpha").unwrap()), udp(lab.machine("hub").unwrap()));
        caller.send_to(b"lost", ("198.51.100.10", port(&listener))).unwrap();
        hears_nothing(&listener);

        let refused = |link: &str, change: &str| lab.set_link(link, &[change]).unwrap_err().to_string();
        assert!(refused("hub", "delay=1ms").contains("is not emulated"), "{}", refused("hub", "delay=1ms"));
        assert!(refused("alpha", "delay=1").contains("\"1\" is not a delay"));
        assert!(refused("n1.alpha", "delay=1ms").contains("it has: alpha, beta, hub"));
        lab.down().unwrap();
    }
}
