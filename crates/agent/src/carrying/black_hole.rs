//! The black-hole listener: its queue is full, so the kernel drops every SYN. A
//! program's non-blocking connect to it stays pending in the kernel until the shim
//! swaps the real socket in.

use std::io;
use std::net::SocketAddrV4;

use isthmus_wire::address::BLACK_HOLE;
use socket2::{Domain, Socket, Type};

/// Connects to it stay pending until it is dropped.
#[derive(Debug)]
pub(crate) struct BlackHole {
    port: u16,
    _listener: Socket,
    _filler: Socket,
}

impl BlackHole {
    /// Makes the listener and fills its queue.
    ///
    /// # Errors
    /// As `bind(2)` and `connect(2)`.
    pub(crate) fn new() -> io::Result<Self> {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        listener.bind(&SocketAddrV4::new(BLACK_HOLE, 0).into())?;
        listener.listen(0)?;
        let address = listener.local_addr()?;
        let port = address.as_socket_ipv4().map_or(0, |address| address.port());
        let filler = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        filler.connect(&address)?;
        Ok(Self { port, _listener: listener, _filler: filler })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connect_stays_pending() {
        let black_hole = BlackHole::new().unwrap();
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let address = SocketAddrV4::new(BLACK_HOLE, black_hole.port()).into();
        let error = socket.connect_timeout(&address, std::time::Duration::from_millis(200)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
