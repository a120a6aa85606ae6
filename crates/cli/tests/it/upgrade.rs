//! A relay that takes over from another process: this one, which stands for its former
//! program.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Instant;

use isthmus_wire::upgrade::{Flow, Held, Listener, Pair, PairSocket, Service, State};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::Signal;

use crate::playground::{Playground, SOON, read_to_string};

const VARIABLE: &str = "ISTHMUS_UPGRADE";

fn number(descriptor: &impl AsRawFd) -> u32 {
    descriptor.as_raw_fd().unsigned_abs()
}

/// A memory file with these bytes. What a former program hands over is sealed.
fn memory(bytes: &[u8], sealed: bool) -> OwnedFd {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let mut file = File::from(memfd_create(c"test", flags).unwrap());
    file.write_all(bytes).unwrap();
    if sealed {
        let seals =
            SealFlag::F_SEAL_SEAL | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_WRITE;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).unwrap();
    }
    file.into()
}

/// Has the command's process keep these descriptors, and no other one of this process.
fn keep(command: &mut Command, descriptors: Vec<RawFd>) {
    let keep = move || {
        for descriptor in &descriptors {
            // SAFETY: it concerns the child alone, and a closed descriptor is an error.
            unsafe { libc::fcntl(*descriptor, libc::F_SETFD, 0) };
        }
        Ok(())
    };
    // SAFETY: between fork and exec it makes system calls only.
    unsafe { command.pre_exec(keep) };
}

/// The two ends of a new connection.
fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connected = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (connected, listener.accept().unwrap().0)
}

fn state(listeners: Vec<Listener>, pairs: Vec<Pair>) -> State {
    State { service: Service::Relay, connections: 5, bytes: 70, listeners, pairs }
}

fn pair(ends: [u32; 2]) -> Pair {
    let [one, other] = ends.map(|descriptor| PairSocket { descriptor, ..PairSocket::default() });
    Pair { ends: [one, other], ..Pair::default() }
}

/// What a relay prints that gets this variable and these descriptors. It must refuse them.
fn refused(value: &str, descriptors: Vec<RawFd>) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_isthmus"));
    command.args(["relay", "--state", "nowhere"]).env(VARIABLE, value).stdin(Stdio::null());
    keep(&mut command, descriptors);
    let output = command.output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{value}: {message}");
    assert_eq!(message.lines().count(), 1, "{value}: {message}");
    message
}

#[test]
fn a_variable_that_is_not_from_an_upgrade_is_refused() {
    for value in ["", "abc", "2", "-1", "007", "99999999999", "3 "] {
        let message = refused(value, Vec::new());
        assert!(message.contains("it is no number of a descriptor"), "{value}: {message}");
        assert!(message.contains("unset it, and start the service again"), "{message}");
    }
    let message = refused("900", Vec::new());
    assert!(message.contains("descriptor 900, the state: EBADF"), "{message}");
}

#[test]
fn a_file_that_is_not_what_it_should_be_is_refused() {
    let (socket, _other) = connected();
    let whole = state(Vec::new(), Vec::new()).encode().unwrap();
    let gateway = State { service: Service::Gateway, ..state(Vec::new(), Vec::new()) }.encode().unwrap();
    for (file, want) in [
        (OwnedFd::from(socket), "it is no memory file"),
        (memory(&whole, false), "the memory file isn't sealed"),
        (memory(b"", true), "malformed state of an upgrade: it ends too early"),
        (memory(&[0; 1000], true), "malformed state of an upgrade: it doesn't begin with ISUP"),
        (memory(&gateway, true), "was a Gateway, and this is a Relay"),
    ] {
        let message = refused(&number(&file).to_string(), vec![file.as_raw_fd()]);
        assert!(message.contains(want), "{want}: {message}");
    }
}

#[test]
fn descriptors_that_are_not_what_they_should_be_are_refused() {
    let (socket, other) = connected();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (read, write) = std::io::pipe().unwrap();
    let [socket_, other_, listener_] = [number(&socket), number(&other), number(&listener)];
    let [udp_, read_, write_] = [number(&udp), number(&read), number(&write)];
    let listening = |descriptor, configured| state(vec![Listener { descriptor, configured }], Vec::new());
    let paired = |one, other| state(Vec::new(), vec![pair([one, other])]);
    let piped = |read, write| {
        let mut pair = pair([socket_, other_]);
        pair.flows[0] = Flow { held: Held::Piped { read, write, length: 1 }, ..Flow::default() };
        state(Vec::new(), vec![pair])
    };
    let elsewhere: SocketAddr = "127.0.0.1:1".parse().unwrap();
    for (state, want) in [
        (listening(socket_, at), "a listener: it doesn't listen"),
        (listening(udp_, at), "a listener: it is no TCP socket"),
        (listening(read_, at), "a listener: "),
        (listening(901, at), "descriptor 901, a listener: EBADF"),
        (listening(listener_, elsewhere), ", not at 127.0.0.1:1"),
        (paired(socket_, listener_), "a socket: it is a listener"),
        (paired(socket_, udp_), "a socket: it is no TCP socket"),
        (paired(socket_, 902), "descriptor 902, a socket: EBADF"),
        (paired(socket_, socket_), "occurs twice"),
        (piped(write_, read_), "to read from: it is something else"),
        (piped(read_, udp_), "to write to: it is something else"),
    ] {
        let file = memory(&state.encode().unwrap(), true);
        let given = [socket_, other_, listener_, udp_, read_, write_, number(&file)];
        let given = given.map(|number| RawFd::try_from(number).unwrap()).to_vec();
        let message = refused(&number(&file).to_string(), given);
        assert!(message.contains(want), "{want}: {message}");
    }
    // A state that names the file it is in.
    let file = memory(&[0; 0], false);
    let mut file = File::from(file);
    file.write_all(&paired(socket_, number(&file)).encode().unwrap()).unwrap();
    let seals =
        SealFlag::F_SEAL_SEAL | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_WRITE;
    fcntl(file.as_fd(), FcntlArg::F_ADD_SEALS(seals)).unwrap();
    let message = refused(&number(&file).to_string(), vec![socket.as_raw_fd(), file.as_raw_fd()]);
    assert!(message.contains("the state: it names itself"), "{message}");
}

/// Waits for a line in a log.
fn until_logged(log: &std::path::Path, text: &str) {
    let begun = Instant::now();
    while !read_to_string(log).contains(text) {
        assert!(begun.elapsed() < SOON, "no {text:?} in\n{}", read_to_string(log));
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

fn passes(from: &mut TcpStream, to: &mut TcpStream, bytes: &[u8]) {
    from.write_all(bytes).unwrap();
    let mut got = vec![0; bytes.len()];
    to.set_read_timeout(Some(SOON)).unwrap();
    to.read_exact(&mut got).unwrap();
    assert_eq!(got, bytes);
}

/// The relay gets a listener and a pair that holds bytes. Then it is upgraded itself, with another
/// address to listen on.
#[test]
fn a_relay_takes_over_and_is_upgraded() {
    let playground = Playground::new();
    playground.init();
    let _broker = playground.start("broker", "broker");
    playground.good("grid invite --state broker --role relay --name r1 --out relay.token");
    playground.good("join --state relay --token relay.token");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let configure = |address: &str| {
        let text = format!("[relay]\nlisten = \"{address}\"\naddress = \"127.0.0.1:1\"\n");
        std::fs::write(playground.path("relay/isthmus.toml"), text).unwrap();
    };
    configure(&at.to_string());
    let ((mut near, one), (mut far, other)) = (connected(), connected());
    let (read, mut write) = std::io::pipe().unwrap();
    write.write_all(b"in the pipe").unwrap();
    let mut pair = pair([number(&one), number(&other)]);
    let held = Held::Piped { read: number(&read), write: number(&write), length: 11 };
    pair.flows[0] = Flow { held, ..Flow::default() };
    pair.flows[1] = Flow { held: Held::Bytes(b"in the file".to_vec()), ..Flow::default() };
    let listening = Listener { descriptor: number(&listener), configured: at };
    let file = memory(&state(vec![listening], vec![pair]).encode().unwrap(), true);
    let mut command = Command::new("setpriv");
    command.env(VARIABLE, number(&file).to_string());
    let given = [number(&listener), number(&one), number(&other), number(&read), number(&write)];
    let given = given.into_iter().chain([number(&file)]).map(|number| RawFd::try_from(number).unwrap());
    keep(&mut command, given.collect());
    let relay = playground.start_by(command, "relay", "relay");
    drop((listener, one, other, read, write, file));

    until_logged(&relay.log, "upgraded in place: carries on what the former program spliced pairs=1");
    let mut got = [0; 11];
    for (stream, want) in [(&mut far, b"in the pipe"), (&mut near, b"in the file")] {
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.read_exact(&mut got).unwrap();
        assert_eq!(&got, want);
    }
    passes(&mut near, &mut far, b"there");
    TcpStream::connect(at).unwrap();

    // The program says that the configuration names an address that is taken.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    configure(&taken.local_addr().unwrap().to_string());
    relay.signal(Signal::SIGHUP);
    until_logged(&relay.log, "not upgraded, and all goes on as before");
    assert!(read_to_string(&relay.log).contains("cannot listen on"), "{}", read_to_string(&relay.log));
    passes(&mut near, &mut far, b"still");

    let free = taken.local_addr().unwrap();
    drop(taken);
    configure(&free.to_string());
    relay.signal(Signal::SIGHUP);
    relay.expect_notification("READY=1");
    passes(&mut far, &mut near, b"back");
    TcpStream::connect(free).unwrap();
    TcpStream::connect(at).unwrap_err();
    relay.stop(Signal::SIGTERM);
    // As ever, what a relay carries is reset at its end.
    near.read_to_end(&mut Vec::new()).unwrap_err();
}
