//! The black-hole listener: the kernel drops every SYN for it. A program's non-blocking
//! connect to it stays pending in the kernel until the shim swaps the real socket in.

use std::io;
use std::net::SocketAddrV4;

use isthmus_net::loopback;
use isthmus_wire::address::BLACK_HOLE;
use socket2::{Domain, Socket, Type};

/// A listener at which connects stay pending until it is dropped.
#[derive(Debug)]
pub(crate) struct BlackHole {
    port: u16,
    _listener: Socket,
    /// A connection that fills the listener's queue; only where the kernel refuses the filter.
    _filler: Option<Socket>,
}

impl BlackHole {
    /// Makes the listener. A filter drops the SYNs: a full queue would drop them, too,
    /// but another user's connect could fill it first.
    ///
    /// # Errors
    /// As `bind(2)`.
    pub(crate) fn new() -> io::Result<Self> {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        listener.bind(&SocketAddrV4::new(BLACK_HOLE, 0).into())?;
        let filtered = loopback::drop_all(&listener)?;
        listener.listen(0)?;
        let address = listener.local_addr()?;
        let port = address.as_socket_ipv4().map_or(0, |address| address.port());
        let filler = (!filtered)
            .then(|| {
                let filler = Socket::new(Domain::IPV4, Type::STREAM, None)?;
                filler.connect(&address).map(|()| filler)
            })
            .transpose()?;
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
    fn connects_stay_pending() {
        let black_hole = BlackHole::new().unwrap();
        let address = SocketAddrV4::new(BLACK_HOLE, black_hole.port()).into();
        for _ in 0..3 {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            let error = socket.connect_timeout(&address, std::time::Duration::from_millis(200)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        }
    }
}
