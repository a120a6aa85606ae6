//! Ports for measuring a site's filter.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

use super::punch::{self, PunchPort};
use super::{DialError, SocketOptions};

/// A port that answers a SYN neither by a connection nor by a reset. It has a listener whose queue
/// is full. To NATs and firewalls on the path it looks as if the SYN was sent and not answered.
#[derive(Debug)]
pub struct SilentPort {
    port: u16,
    _listener: Socket,
    _filler: Socket,
}

impl SilentPort {
    /// Takes any free port, for IPv4.
    ///
    /// # Errors
    /// As `bind(2)` and `connect(2)`.
    pub fn open() -> io::Result<Self> {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        listener.set_reuse_address(true)?;
        listener.set_reuse_port(true)?;
        listener.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into())?;
        listener.listen(0)?;
        let port = listener.local_addr()?.as_socket_ipv4().map_or(0, |address| address.port());
        let filler = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        filler.connect(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into())?;
        Ok(Self { port, _listener: listener, _filler: filler })
    }

    /// The number of the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Connects from this port, and sends `first`. Tries again while the connection is refused.
    ///
    /// # Errors
    /// [`DialError`], at the latest after `deadline`.
    pub async fn introduced(
        &self,
        to: SocketAddr,
        first: &[u8],
        deadline: Duration,
    ) -> Result<TcpStream, DialError> {
        let local = SocketAddr::from((Ipv4Addr::UNSPECIFIED, self.port));
        let dialing = async {
            let mut stream = punch::connect(local, to, SocketOptions::default()).await?;
            stream.write_all(first).await?;
            Ok(stream)
        };
        tokio::time::timeout(deadline, dialing)
            .await
            .map_err(|_| DialError::TimedOut { to: to.to_string(), waited: deadline })?
            .map_err(|source| DialError::Connect { from: local.to_string(), to, source })
    }
}

impl PunchPort {
    /// Listens at this port.
    ///
    /// # Errors
    /// As `bind(2)`.
    pub fn listen(&self) -> io::Result<TcpListener> {
        punch::socket(self.local())?.listen(punch::BACKLOG)
    }

    /// Sends a SYN from this port and ignores the answer. NATs and firewalls on the path then have
    /// state for the port.
    ///
    /// # Errors
    /// As `connect(2)`.
    pub fn touch(&self, to: SocketAddr) -> io::Result<()> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&self.local().into())?;
        match socket.connect(&to.into()) {
            Err(error) if error.raw_os_error() == Some(nix::errno::Errno::EINPROGRESS as i32) => Ok(()),
            outcome => outcome,
        }
    }

    /// Connects from this port, without listening there.
    ///
    /// # Errors
    /// As `connect(2)`. Without an answer the call never returns.
    pub async fn reach(&self, to: SocketAddr) -> io::Result<TcpStream> {
        punch::connect(self.local(), to, SocketOptions::default()).await
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    const SOON: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_silent_port_answers_nothing_and_dials() {
        let silent = SilentPort::open().unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, silent.port()));
        let tried = tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address)).await;
        assert!(tried.is_err(), "{tried:?}");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = listener.local_addr().unwrap();
        let _stream = silent.introduced(to, b"hello", SOON).await.unwrap();
        let (mut stream, from) = listener.accept().await.unwrap();
        let mut received = [0; 5];
        stream.read_exact(&mut received).await.unwrap();
        assert_eq!((&received, from.port()), (b"hello", silent.port()));
    }
}
