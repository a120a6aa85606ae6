//! TCP's part: connections from one inside port, and segments back to it.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::segment::{Answer, Segment, answer};
use super::{Filtering, PATIENCE, Prober, SOON, Seen, filtering as named, missing, v4};
use crate::lab::Machine;

/// Makes a socket of a machine at `port`, which other sockets may share. 0 stands for any port.
fn bound(machine: Machine<'_>, port: u16) -> io::Result<Socket> {
    let make = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        socket.bind(&SockAddr::from(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port)))?;
        Ok(socket)
    };
    machine.in_network(make)?
}

/// Listens at a port of a machine, from which the machine may [`connect`] as well. 0 stands for any
/// port.
pub fn listen(machine: Machine<'_>, port: u16) -> io::Result<TcpListener> {
    let socket = bound(machine, port)?;
    socket.listen(16)?;
    Ok(socket.into())
}

/// Connects a machine from `port` of its own. 0 stands for any port.
pub fn connect(from: Machine<'_>, port: u16, to: SocketAddrV4, patience: Duration) -> io::Result<TcpStream> {
    let socket = bound(from, port)?;
    socket.connect_timeout(&to.into(), patience)?;
    Ok(socket.into())
}

fn local_port(listener: &TcpListener) -> io::Result<u16> {
    Ok(listener.local_addr()?.port())
}

/// Accepts a connection. Returns it with its other end's address as the listener sees it.
fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddrV4)> {
    listener.set_nonblocking(true)?;
    let deadline = Instant::now() + SOON;
    loop {
        match listener.accept() {
            Ok((stream, peer)) => return Ok((stream, v4(peer)?)),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            Err(_) if Instant::now() >= deadline => return Err(missing("a connection")),
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Connects from an inside port to two ports of each host. Returns how the port appeared.
pub(super) fn appearances(prober: &Prober<'_>) -> io::Result<Seen> {
    let port = local_port(&listen(prober.inside, 0)?)?;
    // The connections stay open to the end: a NAT may give the port of a closed connection away.
    let mut open = Vec::new();
    let mut seen_by = |host: Machine<'_>| -> io::Result<SocketAddrV4> {
        let listener = listen(host, 0)?;
        let to = SocketAddrV4::new(host.address(), local_port(&listener)?);
        open.push(connect(prober.inside, port, to, SOON)?);
        let (stream, peer) = accept(&listener)?;
        open.push(stream);
        Ok(peer)
    };
    let [first, second] = prober.outside;
    Ok(Seen { port, seen_as: [[seen_by(first)?, seen_by(first)?], [seen_by(second)?, seen_by(second)?]] })
}

/// Measures who may connect to a listening endpoint after it has connected to one port of a host.
/// Also measures what a SYN gets back from an endpoint that has sent nothing.
pub(super) fn filtering(prober: &Prober<'_>) -> io::Result<(Filtering, Answer)> {
    let [known, stranger] = prober.outside;
    let inside = listen(prober.inside, 0)?;
    let silent = listen(prober.inside, 0)?;
    let host = listen(known, 0)?;
    let to = SocketAddrV4::new(known.address(), local_port(&host)?);
    let _near = connect(prober.inside, local_port(&inside)?, to, SOON)?;
    let (_far, seen_as) = accept(&host)?;
    let unused = SocketAddrV4::new(*seen_as.ip(), local_port(&silent)?);

    let ask = |from: Machine<'_>, to: SocketAddrV4| {
        // A port of the asking host that nothing else there has.
        let port = bound(from, 0)?;
        let number = port.local_addr()?.as_socket_ipv4().map_or(0, |address| address.port());
        answer(from, number, to, Segment::Syn, PATIENCE)
    };
    let answers = std::thread::scope(|scope| {
        let asking = [(known, seen_as), (stranger, seen_as), (stranger, unused)]
            .map(|(from, to)| scope.spawn(move || ask(from, to)));
        asking.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let [other_port, stranger, unsolicited] = answers;
    Ok((named(other_port? == Answer::Accepted, stranger? == Answer::Accepted), unsolicited?))
}
