//! UDP's part: datagrams from one inside port, and others back to it.

use std::io;
use std::net::{SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

use super::segment::Answer;
use super::{Filtering, PATIENCE, Prober, SOON, Seen, filtering as named, missing, v4};
use crate::lab::Machine;

fn socket(machine: Machine<'_>) -> io::Result<UdpSocket> {
    machine.in_network(|| UdpSocket::bind("0.0.0.0:0"))?
}

fn at(machine: Machine<'_>, socket: &UdpSocket) -> io::Result<SocketAddrV4> {
    Ok(SocketAddrV4::new(machine.address(), socket.local_addr()?.port()))
}

/// The next datagram's first byte and its source. `None` if none comes in time.
fn receive(socket: &UdpSocket, patience: Duration) -> io::Result<Option<(u8, SocketAddrV4)>> {
    let mut byte = [0];
    socket.set_read_timeout(Some(patience.max(Duration::from_millis(1))))?;
    match socket.recv_from(&mut byte) {
        Ok((_, from)) => Ok(Some((byte[0], v4(from)?))),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Sends from an inside socket to a host's socket. Returns the source that the host sees.
fn appearance(inside: &UdpSocket, host: Machine<'_>, socket: &UdpSocket) -> io::Result<SocketAddrV4> {
    inside.send_to(&[0], at(host, socket)?)?;
    receive(socket, SOON)?.map(|(_, from)| from).ok_or_else(|| missing("a datagram"))
}

/// Sends datagrams from an inside port to two ports of each host. Returns how the port appeared.
pub(super) fn appearances(prober: &Prober<'_>) -> io::Result<Seen> {
    let inside = socket(prober.inside)?;
    let seen_by = |host: Machine<'_>| appearance(&inside, host, &socket(host)?);
    let [first, second] = prober.outside;
    let seen_as = [[seen_by(first)?, seen_by(first)?], [seen_by(second)?, seen_by(second)?]];
    Ok(Seen { port: inside.local_addr()?.port(), seen_as })
}

/// Measures from where an endpoint receives datagrams after it has sent to one port of a host. Also
/// measures whether an endpoint that has sent nothing receives any.
pub(super) fn filtering(prober: &Prober<'_>) -> io::Result<(Filtering, Answer)> {
    const KNOWN: u8 = 1;
    const OTHER_PORT: u8 = 2;
    const STRANGER: u8 = 3;
    const UNSOLICITED: u8 = 4;

    let [known, stranger] = prober.outside;
    let (inside, silent, host) = (socket(prober.inside)?, socket(prober.inside)?, socket(known)?);
    let seen_as = appearance(&inside, known, &host)?;
    let unused = SocketAddrV4::new(*seen_as.ip(), silent.local_addr()?.port());
    socket(known)?.send_to(&[OTHER_PORT], seen_as)?;
    let strange = socket(stranger)?;
    strange.send_to(&[STRANGER], seen_as)?;
    strange.send_to(&[UNSOLICITED], unused)?;
    // What is let in for sure, last.
    host.send_to(&[KNOWN], seen_as)?;

    let mut received = Vec::new();
    let mut deadline = Instant::now() + SOON;
    while let Some((what, _)) = receive(&inside, deadline.saturating_duration_since(Instant::now()))? {
        received.push(what);
        if what == KNOWN {
            deadline = Instant::now() + PATIENCE;
        }
    }
    if !received.contains(&KNOWN) {
        return Err(missing("an answer"));
    }
    let unsolicited = match receive(&silent, Duration::ZERO)? {
        Some(_) => Answer::Accepted,
        None => Answer::Dropped,
    };
    Ok((named(received.contains(&OTHER_PORT), received.contains(&STRANGER)), unsolicited))
}
