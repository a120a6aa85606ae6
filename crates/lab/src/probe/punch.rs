//! TCP's simultaneous open (RFC 9293, 3.5): both sides connect to where the
//! other appears.

use std::io::{self, Read, Write};
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::tcp::{connect, listen};
use crate::lab::Machine;

/// How one side of a connection came by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opened {
    /// The side's own connect succeeded.
    Connected,
    /// The side's listener, at the same port, took the connection.
    Accepted,
}

/// How long an attempt to connect waits, which includes a second SYN.
const ATTEMPT: Duration = Duration::from_millis(1500);

/// Has two machines open a connection between them, each from a port of its own. The
/// [`SocketAddrV4`] of a side is where the other side expects it, and its port is the machine's
/// own. Both listen and connect at once, again and again until a byte has crossed both ways or the
/// time is up. Returns how each side came by the connection, `None` if there was none.
pub fn simultaneous_open(
    sides: [(Machine<'_>, SocketAddrV4); 2],
    patience: Duration,
) -> io::Result<Option<[Opened; 2]>> {
    let [(a, a_seen), (b, b_seen)] = sides;
    let deadline = Instant::now() + patience;
    let listeners = [listen(a, a_seen.port())?, listen(b, b_seen.port())?];
    let results = std::thread::scope(|scope| {
        let [a_listener, b_listener] = &listeners;
        let a = scope.spawn(move || side(a, a_seen.port(), b_seen, a_listener, deadline));
        let b = scope.spawn(move || side(b, b_seen.port(), a_seen, b_listener, deadline));
        [a, b].map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let [a, b] = results;
    Ok(a?.zip(b?).map(|(a, b)| [a, b]))
}

fn side(
    machine: Machine<'_>,
    port: u16,
    to: SocketAddrV4,
    listener: &TcpListener,
    deadline: Instant,
) -> io::Result<Option<Opened>> {
    listener.set_nonblocking(true)?;
    while Instant::now() < deadline {
        let left = deadline.saturating_duration_since(Instant::now());
        if let Ok(stream) = connect(machine, port, to, left.min(ATTEMPT).max(Duration::from_millis(1)))
            && greet(stream, left)
        {
            return Ok(Some(Opened::Connected));
        }
        match listener.accept() {
            Ok((stream, _)) => {
                if greet(stream, left) {
                    return Ok(Some(Opened::Accepted));
                }
            }
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    Ok(None)
}

/// Whether a byte crosses the connection both ways.
fn greet(mut stream: TcpStream, patience: Duration) -> bool {
    let mut byte = [0];
    let greeted = stream
        .set_nonblocking(false)
        .and_then(|()| stream.set_read_timeout(Some(patience.max(Duration::from_millis(1)))))
        .and_then(|()| stream.write_all(b"!"))
        .and_then(|()| stream.read_exact(&mut byte));
    greeted.is_ok()
}
