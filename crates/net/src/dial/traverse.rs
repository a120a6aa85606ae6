//! `traverse`, the initiator's end: an ordinary connect of a socket whose outside
//! address is known. The acceptor's firewall drops the SYN, so the agents carry it
//! by another path. The answer comes back through the firewall.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream};

use super::{DialError, PunchPort, SocketOptions};

/// A socket that the raw helper connects.
#[derive(Debug)]
pub struct TraverseSocket {
    socket: TcpSocket,
    /// Keeps the mapping of the socket's port behind a NAT; `None` without a NAT.
    port: Option<PunchPort>,
}

impl TraverseSocket {
    /// Makes a socket. Behind a NAT (`reflector` given), a relay reports how the socket is seen.
    ///
    /// # Errors
    /// [`DialError`], at the latest after `deadline`.
    pub async fn open(
        reflector: Option<SocketAddr>,
        options: SocketOptions,
        deadline: Duration,
    ) -> Result<Self, DialError> {
        let port = match reflector {
            Some(reflector) => Some(PunchPort::open(reflector, deadline).await?),
            None => None,
        };
        let made = match &port {
            Some(port) => port.another(),
            None => TcpSocket::new_v4(),
        };
        let socket = made.and_then(|socket| options.apply(&socket).map(|()| socket));
        let socket = socket.map_err(|source| DialError::Socket { source })?;
        Ok(Self { socket, port })
    }

    /// The socket's address as seen from outside; `None` if no relay was asked.
    pub fn seen(&self) -> Option<SocketAddr> {
        self.port.as_ref().map(PunchPort::seen)
    }

    /// Waits for the end of the connect that is under way.
    ///
    /// # Errors
    /// [`DialError::Connect`] if the connect fails.
    pub async fn connected(self, to: SocketAddr) -> Result<TcpStream, DialError> {
        let from = self.socket.local_addr().map_or_else(|_| "?".to_owned(), |local| local.to_string());
        let connecting = async {
            // A stream's readiness can be waited for, a socket's can't.
            let socket: std::net::TcpStream = self.socket.as_fd().try_clone_to_owned()?.into();
            drop(self.socket);
            let stream = TcpStream::from_std(socket)?;
            stream.writable().await?;
            if let Some(error) = stream.take_error()? {
                return Err(error);
            }
            stream.set_nodelay(true)?;
            Ok(stream)
        };
        connecting.await.map_err(|source: io::Error| DialError::Connect { from, to, source })
    }
}

impl AsFd for TraverseSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use nix::sys::socket::{SockaddrIn, connect};

    use super::*;

    const SOON: Duration = Duration::from_secs(5);

    async fn begun(to: SocketAddr) -> TraverseSocket {
        let socket = TraverseSocket::open(None, SocketOptions::default(), SOON).await.unwrap();
        assert_eq!(socket.seen(), None);
        let SocketAddr::V4(to) = to else { panic!("{to}") };
        let _ = connect(socket.as_fd().as_raw_fd(), &SockaddrIn::from(to));
        socket
    }

    #[tokio::test]
    async fn a_connect_under_way_is_waited_for() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = listener.local_addr().unwrap();
        let stream = begun(to).await.connected(to).await.unwrap();
        assert_eq!(listener.accept().await.unwrap().1, stream.local_addr().unwrap());
    }

    #[tokio::test]
    async fn a_refused_connect_names_both_addresses() {
        // Bound, so that no other socket listens there.
        let taken = TcpSocket::new_v4().unwrap();
        taken.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let to = taken.local_addr().unwrap();
        let error = begun(to).await.connected(to).await.unwrap_err().to_string();
        assert!(error.starts_with("cannot connect from 127.0.0.1:"), "{error}");
        assert!(error.contains(&format!("to {to}: Connection refused")), "{error}");
    }
}
