//! The helper, in a network namespace of its own. Each test starts itself anew in
//! one, where it has `CAP_NET_RAW` as an ordinary user, too.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail the test")]

use std::io::{IoSlice, Read as _};
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use caps::{CapSet, Capability};
use isthmus_raw::Syn;
use isthmus_raw::message::{MAX_LEN, Reply, Request, decode_reply};
use isthmus_raw::syn::Options;
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::sockopt::{BindToDevice, ReceiveTimeout};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, Shutdown, SockFlag, SockType, SockaddrIn, bind, getsockname,
    recv, sendmsg, setsockopt, shutdown, socket, socketpair,
};
use nix::sys::time::TimeVal;

const HELPER: &str = env!("CARGO_BIN_EXE_isthmus-raw");
/// Variable with the test's name, set in a test that runs in the namespace.
const INSIDE: &str = "ISTHMUS_RAW_TEST_INSIDE";

struct Helper {
    process: Child,
    socket: OwnedFd,
}

impl Helper {
    fn start(command: &mut Command) -> Self {
        let flags = SockFlag::SOCK_CLOEXEC;
        let (socket, its) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).unwrap();
        setsockopt(&socket, ReceiveTimeout, &TimeVal::new(10, 0)).unwrap();
        let process = command.stdin(Stdio::from(its)).spawn().unwrap();
        // The command would keep its copy of the other end open.
        command.stdin(Stdio::null());
        Self { process, socket }
    }

    fn ask(&self, request: &Request, with: Option<BorrowedFd<'_>>) -> Reply {
        let with: Vec<_> = with.iter().map(|descriptor| descriptor.as_raw_fd()).collect();
        let rights = [ControlMessage::ScmRights(&with)];
        let control = if with.is_empty() { &rights[..0] } else { &rights[..] };
        let bytes = request.encode(7);
        sendmsg::<()>(self.socket.as_raw_fd(), &[IoSlice::new(&bytes)], control, MsgFlags::empty(), None)
            .unwrap();
        let mut bytes = [0; MAX_LEN];
        let length = recv(self.socket.as_raw_fd(), &mut bytes, MsgFlags::empty()).unwrap();
        let (id, reply) = decode_reply(&bytes[..length]).unwrap();
        assert_eq!(id, 7);
        reply
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn address(listener: &TcpListener) -> SocketAddrV4 {
    match listener.local_addr().unwrap() {
        SocketAddr::V4(address) => address,
        other => panic!("{other}"),
    }
}

/// Runs one of the tests below in a network namespace of its own, as that namespace's root.
fn in_a_namespace(test: &str) {
    let own = std::env::current_exe().unwrap();
    let output = Command::new("unshare")
        .args(["--map-root-user", "--net", "--"])
        .arg(own)
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(INSIDE, test)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// Whether this process runs the test in its namespace.
fn inside(test: &str) -> bool {
    std::env::var(INSIDE).is_ok_and(|value| value == test)
}

fn ip(arguments: &str) {
    let done = Command::new("ip").args(arguments.split(' ')).status().unwrap();
    assert!(done.success(), "ip {arguments}");
}

/// Makes this namespace a host with an address besides loopback's, and a network.
fn network() {
    ip("link set lo up");
    ip("link add outside type veth peer name other");
    ip("address add 192.0.2.7/24 dev outside");
    ip("link set other up");
    ip("link set outside up");
}

fn syn_for(destination: SocketAddrV4) -> Syn {
    Syn {
        source: "192.0.2.99:40000".parse().unwrap(),
        destination,
        sequence: 1000,
        window: 64_240,
        options: Options { max_segment: Some(1460), ..Options::default() },
    }
}

/// The number of connections in state SYN-RECEIVED.
fn half_open() -> usize {
    let table = std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
    table.lines().filter(|line| line.split_whitespace().nth(3) == Some("03")).count()
}

#[test]
fn injects_only_a_syn_for_its_listener() {
    const NAME: &str = "injects_only_a_syn_for_its_listener";
    if !inside(NAME) {
        return in_a_namespace(NAME);
    }
    network();
    let listener = TcpListener::bind("192.0.2.7:0").unwrap();
    let neighbour = TcpListener::bind("192.0.2.7:0").unwrap();
    let helper = Helper::start(&mut Command::new(HELPER));
    assert_eq!(helper.ask(&Request::Listen, Some(listener.as_fd())), Ok(vec![]));
    let good = syn_for(address(&listener));
    let inject = |bytes: Vec<u8>| helper.ask(&Request::Inject(bytes), None);
    let with = |offset: usize, value: u8| {
        let mut bytes = good.to_bytes();
        bytes[offset] = value;
        bytes
    };
    let from = |source: &str| Syn { source: source.parse().unwrap(), ..good }.to_bytes();
    let to = |destination: SocketAddrV4| Syn { destination, ..good }.to_bytes();
    for (name, bytes, want) in [
        ("a neighbour's listener", to(address(&neighbour)), "it is for 192.0.2.7"),
        ("another host", to("192.0.2.99:80".parse().unwrap()), "it is for 192.0.2.99:80"),
        (
            "loopback",
            to(SocketAddrV4::new([127, 0, 0, 1].into(), good.destination.port())),
            "it is for 127.0.0.1",
        ),
        ("from loopback", from("127.0.0.1:40000"), "its source 127.0.0.1 can't be"),
        ("from this host", from("192.0.2.7:40000"), "its source 192.0.2.7 can't be"),
        ("a reset", with(33, 4), "is no SYN"),
        ("an answer", with(33, 0x12), "is no SYN"),
        ("UDP", with(9, 17), "is no SYN"),
        ("nothing", vec![], "is no SYN"),
        ("with data", [good.to_bytes(), vec![0]].concat(), "is no SYN"),
    ] {
        let error = inject(bytes).unwrap_err();
        assert!(error.contains(want), "{name}: {error}");
    }
    assert_eq!(inject(good.to_bytes()), Ok(vec![]));
    // The kernel may process it a moment later.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while half_open() == 0 {
        assert!(std::time::Instant::now() < until, "the SYN did not arrive");
        std::thread::yield_now();
    }
    assert_eq!(half_open(), 1, "none of the refused ones arrived");
}

/// An attacker listens in a network namespace of its own, at the address of another user's listener
/// of this host.
#[test]
fn a_socket_of_another_network_namespace_is_refused() {
    const NAME: &str = "a_socket_of_another_network_namespace_is_refused";
    if !inside(NAME) {
        return in_a_namespace(NAME);
    }
    network();
    let victim = TcpListener::bind("0.0.0.0:0").unwrap();
    let to = SocketAddrV4::new([192, 0, 2, 7].into(), address(&victim).port());
    let elsewhere = move || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let connecting = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
        (TcpListener::bind(("0.0.0.0", to.port())).unwrap(), connecting)
    };
    let (foreign, connecting) = std::thread::spawn(elsewhere).join().unwrap();
    let helper = Helper::start(&mut Command::new(HELPER));
    let error = helper.ask(&Request::Listen, Some(foreign.as_fd())).unwrap_err();
    assert!(error.contains("another network namespace"), "{error}");

    let own = TcpListener::bind("192.0.2.7:0").unwrap();
    let helper = Helper::start(&mut Command::new(HELPER));
    assert_eq!(helper.ask(&Request::Listen, Some(own.as_fd())), Ok(vec![]));
    let error = helper.ask(&Request::Connect(to), Some(connecting.as_fd())).unwrap_err();
    assert!(error.contains("another network namespace"), "{error}");
}

/// A socket belongs to the user in whose name it was made.
#[test]
fn a_socket_of_another_user_is_refused() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: making a socket of another user needs root");
        return;
    }
    let of_another_user = || {
        // This changes the user of this thread alone.
        nix::unistd::setfsuid(nix::unistd::Uid::from_raw(65534));
        TcpListener::bind("127.0.0.1:0").unwrap()
    };
    let foreign = std::thread::spawn(of_another_user).join().unwrap();
    let helper = Helper::start(&mut Command::new(HELPER));
    let error = helper.ask(&Request::Listen, Some(foreign.as_fd())).unwrap_err();
    assert!(error.contains("of user 65534"), "{error}");
}

#[test]
fn a_port_of_the_system_is_refused() {
    const NAME: &str = "a_port_of_the_system_is_refused";
    if !inside(NAME) {
        return in_a_namespace(NAME);
    }
    network();
    let listener = TcpListener::bind("192.0.2.7:22").unwrap();
    let helper = Helper::start(&mut Command::new(HELPER));
    let error = helper.ask(&Request::Listen, Some(listener.as_fd())).unwrap_err();
    assert!(error.contains("192.0.2.7:22 is at a port below 1024"), "{error}");
}

/// The port of a listener that has ended could belong to another user's listener by then.
#[test]
fn nothing_is_injected_for_a_listener_that_has_ended_or_is_bound_to_a_device() {
    const NAME: &str = "nothing_is_injected_for_a_listener_that_has_ended_or_is_bound_to_a_device";
    if !inside(NAME) {
        return in_a_namespace(NAME);
    }
    network();
    let end = |listener: &TcpListener| shutdown(listener.as_raw_fd(), Shutdown::Both).unwrap();
    let to_device = |listener: &TcpListener| setsockopt(listener, BindToDevice, &"lo".into()).unwrap();
    for (change, want) in
        [(&end as &dyn Fn(&TcpListener), "does not listen"), (&to_device, "is bound to one device")]
    {
        let listener = TcpListener::bind("192.0.2.7:0").unwrap();
        let helper = Helper::start(&mut Command::new(HELPER));
        assert_eq!(helper.ask(&Request::Listen, Some(listener.as_fd())), Ok(vec![]));
        change(&listener);
        let error = helper.ask(&Request::Inject(syn_for(address(&listener)).to_bytes()), None).unwrap_err();
        assert!(error.contains(want), "{error}");
    }
}

#[test]
fn a_flood_of_injections_is_refused() {
    const NAME: &str = "a_flood_of_injections_is_refused";
    if !inside(NAME) {
        return in_a_namespace(NAME);
    }
    network();
    let listener = TcpListener::bind("192.0.2.7:0").unwrap();
    let helper = Helper::start(&mut Command::new(HELPER));
    assert_eq!(helper.ask(&Request::Listen, Some(listener.as_fd())), Ok(vec![]));
    // Each SYN is refused for its destination, which costs as much of the limit.
    let other = syn_for("192.0.2.99:80".parse().unwrap()).to_bytes();
    let refused = (0..100_000).find(|_| {
        let error = helper.ask(&Request::Inject(other.clone()), None).unwrap_err();
        error.contains("more than 2,000 requests per second")
    });
    assert!(refused.is_some_and(|sent| sent >= 20_000), "{refused:?}");
}

#[test]
fn returns_the_syn_of_the_socket_that_it_connects() {
    const NAME: &str = "returns_the_syn_of_the_socket_that_it_connects";
    if !inside(NAME) {
        return in_a_namespace(NAME);
    }
    network();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let helper = Helper::start(&mut Command::new(HELPER));
    assert_eq!(helper.ask(&Request::Listen, Some(listener.as_fd())), Ok(vec![]));
    let to = address(&listener);
    for _ in 0..20 {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let own = socket(AddressFamily::Inet, SockType::Stream, flags, None).unwrap();
        bind(own.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, 0)).unwrap();
        // This stands for another process's connection at the same time.
        let _other = TcpStream::connect(to).unwrap();
        let packet = helper.ask(&Request::Connect(to), Some(own.as_fd())).unwrap();
        let syn = Syn::parse(&packet).unwrap();
        let local: SockaddrIn = getsockname(own.as_raw_fd()).unwrap();
        assert_eq!((syn.source, syn.destination), (local.into(), to));
        assert!(syn.options.max_segment.is_some());
    }
    let error = helper.ask(&Request::Connect(to), None).unwrap_err();
    assert!(error.contains("doesn't fit"), "{error}");
    let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let error = helper.ask(&Request::Connect(to), Some(datagrams.as_fd())).unwrap_err();
    assert!(error.contains("no TCP socket"), "{error}");
}

#[test]
fn ends_with_its_agent() {
    const NAME: &str = "ends_with_its_agent";
    if !inside(NAME) {
        return in_a_namespace(NAME);
    }
    network();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut helper = Helper::start(&mut Command::new(HELPER));
    assert_eq!(helper.ask(&Request::Listen, Some(listener.as_fd())), Ok(vec![]));
    helper.socket = std::fs::File::open("/dev/null").unwrap().into();
    assert!(helper.process.wait().unwrap().success());
}

#[test]
fn keeps_one_capability_only() {
    const NAME: &str = "keeps_one_capability_only";
    if !inside(NAME) {
        return in_a_namespace(NAME);
    }
    network();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let helper = Helper::start(&mut Command::new(HELPER));
    assert_eq!(helper.ask(&Request::Listen, Some(listener.as_fd())), Ok(vec![]));
    let status = std::fs::read_to_string(format!("/proc/{}/status", helper.process.id())).unwrap();
    let raw = format!("{:016x}", Capability::CAP_NET_RAW.bitmask());
    let none = format!("{:016x}", 0);
    for (line, want) in
        [("CapEff:", &raw), ("CapPrm:", &raw), ("CapBnd:", &raw), ("CapInh:", &none), ("CapAmb:", &none)]
    {
        assert!(status.contains(&format!("{line}\t{want}")), "{line}\n{status}");
    }
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
}

#[test]
fn without_the_capability_the_error_names_the_remedy() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = Command::new(HELPER);
    // SAFETY: two system calls, allowed between fork and exec.
    unsafe {
        command.pre_exec(|| {
            // Fails for ordinary users, who lack the capability anyway.
            let _ = caps::drop(None, CapSet::Bounding, Capability::CAP_NET_RAW);
            Ok(())
        });
    }
    let mut helper = Helper::start(&mut command);
    let error = helper.ask(&Request::Listen, Some(listener.as_fd())).unwrap_err();
    assert!(error.contains("setcap cap_net_raw=ep") && error.contains(HELPER), "{error}");
    assert!(helper.process.wait().unwrap().success());
}

#[test]
fn a_socket_that_does_not_listen_is_refused() {
    let bound = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
    let helper = Helper::start(&mut Command::new(HELPER));
    assert!(helper.ask(&Request::Listen, Some(bound.as_fd())).is_err());
}

#[test]
fn started_by_hand_it_ends_with_an_error() {
    let mut child = Command::new(HELPER).stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(!child.wait().unwrap().success());
    assert!(text.contains("started by `isthmus agent`"), "{text}");
}
