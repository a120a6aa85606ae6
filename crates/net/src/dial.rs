//! The dials: how one socket between two parties is opened.

mod probe;
mod punch;
mod traverse;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::AsFd;
use std::time::Duration;

use isthmus_service::{Deadline, Late, exhausted};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{RcvBuf, SndBuf, TcpMaxSeg};
use socket2::{SockAddr, SockRef};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream, lookup_host};

pub use probe::SilentPort;
pub use punch::PunchPort;
pub use traverse::TraverseSocket;

/// How a socket is set up before it connects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SocketOptions {
    /// `SO_SNDBUF` in bytes; 0 is the kernel's default.
    pub send_buffer: u32,
    /// `SO_RCVBUF` in bytes; 0 is the kernel's default.
    pub receive_buffer: u32,
    /// The address of this machine that a connect leaves from; `None` lets the routing table
    /// choose. Dials that need ports of their own don't heed it.
    pub source: Option<Ipv4Addr>,
    /// The longest segment in both directions, in bytes (`TCP_MAXSEG`); `None` lets the kernel
    /// choose.
    pub segment: Option<u16>,
}

impl SocketOptions {
    /// Sets the buffer sizes on a connected socket. At that point they no longer widen its TCP
    /// window.
    pub fn apply_late(self, stream: &TcpStream) {
        // The connection is worth more than the size of its buffers.
        if self.send_buffer > 0 {
            let _ = setsockopt(stream, SndBuf, &(self.send_buffer as usize));
        }
        if self.receive_buffer > 0 {
            let _ = setsockopt(stream, RcvBuf, &(self.receive_buffer as usize));
        }
    }

    fn apply(self, socket: &TcpSocket) -> io::Result<()> {
        if self.send_buffer > 0 {
            socket.set_send_buffer_size(self.send_buffer)?;
        }
        if self.receive_buffer > 0 {
            socket.set_recv_buffer_size(self.receive_buffer)?;
        }
        if let Some(segment) = self.segment {
            setsockopt(socket, TcpMaxSeg, &segment.into())?;
        }
        Ok(())
    }
}

/// Why a dial failed.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The name has no address.
    #[error("cannot resolve {address}: {source}")]
    Resolve {
        /// The name that has no address, with its port.
        address: String,
        /// The error of the resolver.
        source: io::Error,
    },
    /// The connection was refused or failed.
    #[error("cannot connect from {from} to {to}: {}", exhausted::text(.source))]
    Connect {
        /// The source address that the kernel would choose.
        from: String,
        /// The address that was dialed.
        to: SocketAddr,
        /// The error of the kernel.
        source: io::Error,
    },
    /// No socket could be made.
    #[error("cannot make a socket: {}", exhausted::text(.source))]
    Socket {
        /// The error of the kernel.
        source: io::Error,
    },
    /// The answer is not that of a relay.
    #[error("{from} does not report how this node is seen: {reason}")]
    Reflection {
        /// The address of the supposed relay.
        from: String,
        /// What is wrong with the answer.
        reason: String,
    },
    /// Nothing came back in time.
    #[error("no answer from {to} within {waited:?}; is a firewall dropping it?")]
    TimedOut {
        /// The address that was dialed.
        to: String,
        /// How long the dial has waited.
        waited: Duration,
    },
}

/// `direct`: connects, and sets `TCP_NODELAY`, because preambles and handshakes are small messages.
/// The program makes its own choice afterwards.
///
/// # Errors
/// [`DialError`], at the latest after `deadline`.
pub async fn direct(
    address: &str,
    options: SocketOptions,
    deadline: impl Into<Deadline>,
) -> Result<TcpStream, DialError> {
    let deadline = deadline.into();
    let connecting = async {
        let to = resolve(address).await?;
        let from = || options.source.map_or_else(|| source_towards(to), |source| source.to_string());
        connect(to, options).await.map_err(|source| DialError::Connect { from: from(), to, source })
    };
    let late = |Late(waited)| DialError::TimedOut { to: address.to_owned(), waited };
    deadline.bound(connecting).await.map_err(late)?
}

/// Opens a connection, without a deadline.
///
/// # Errors
/// The kernel's error.
pub async fn connect(to: SocketAddr, options: SocketOptions) -> io::Result<TcpStream> {
    let socket = match to {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    options.apply(&socket)?;
    if let Some(source) = options.source {
        socket.bind(SocketAddrV4::new(source, 0).into())?;
    }
    let stream = socket.connect(to).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Connects and sends `first`: a ticket to a relay (`relay`), or the id of a rendezvous to the
/// initiator (`reverse`). The relay adds no bytes of its own to the stream.
///
/// # Errors
/// As [`direct`].
pub async fn introduced(
    address: &str,
    first: &[u8],
    options: SocketOptions,
    deadline: impl Into<Deadline>,
) -> Result<TcpStream, DialError> {
    let deadline = deadline.into();
    let mut stream = direct(address, options, deadline).await?;
    let to = stream.peer_addr().unwrap_or_else(|_| SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0).into());
    let late = |Late(waited)| DialError::TimedOut { to: address.to_owned(), waited };
    let sent = deadline.bound(stream.write_all(first)).await.map_err(late)?;
    sent.map_err(|source| DialError::Connect { from: source_towards(to), to, source })?;
    Ok(stream)
}

/// Resolves `host:port`.
///
/// # Errors
/// [`DialError::Resolve`] if it has no address.
pub async fn resolve(address: &str) -> Result<SocketAddr, DialError> {
    let failed = |source| DialError::Resolve { address: address.to_owned(), source };
    let mut addresses = lookup_host(address).await.map_err(failed)?;
    addresses.next().ok_or_else(|| failed(io::Error::other("it has no address")))
}

/// The addresses of both ends of a connection, for messages.
pub fn ends(socket: &impl AsFd) -> String {
    let socket = SockRef::from(socket);
    let text = |address: io::Result<SockAddr>| {
        let address = address.ok().and_then(|address| address.as_socket());
        address.map_or_else(|| "?".to_owned(), |address| address.to_string())
    };
    format!("{} to {}", text(socket.local_addr()), text(socket.peer_addr()))
}

/// The source address that the kernel would choose for a connection; for messages.
fn source_towards(to: SocketAddr) -> String {
    // Connecting a datagram socket sends nothing.
    let source = std::net::UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect(to)?;
        socket.local_addr()
    });
    source.map_or_else(|_| "this node".to_owned(), |address| address.ip().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_error_names_both_ends() {
        let refused = direct("127.128.0.3:9", SocketOptions::default(), Duration::from_secs(5)).await;
        let text = refused.unwrap_err().to_string();
        assert!(
            text.starts_with("cannot connect from 127.0.0.1 to 127.128.0.3:9: Connection refused"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn a_connection_leaves_from_the_source_that_is_asked_for() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let from =
            |source: [u8; 4]| SocketOptions { source: Some(source.into()), ..SocketOptions::default() };
        let stream = direct(&address, from([127, 0, 0, 9]), Duration::from_secs(5)).await.unwrap();
        assert_eq!(stream.local_addr().unwrap().ip(), Ipv4Addr::new(127, 0, 0, 9));
        let text =
            direct(&address, from([192, 0, 2, 1]), Duration::from_secs(5)).await.unwrap_err().to_string();
        assert!(text.starts_with(&format!("cannot connect from 192.0.2.1 to {address}: ")), "{text}");
    }

    #[tokio::test]
    async fn an_error_names_the_address_that_cannot_be_resolved() {
        let text = direct("nowhere", SocketOptions::default(), Duration::from_secs(5)).await;
        assert!(text.unwrap_err().to_string().starts_with("cannot resolve nowhere"));
    }

    #[tokio::test]
    async fn a_relay_sees_the_ticket_first() {
        use tokio::io::AsyncReadExt as _;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let _stream =
            introduced(&address, b"ticket", SocketOptions::default(), Duration::from_secs(5)).await.unwrap();
        let mut seen = [0; 6];
        listener.accept().await.unwrap().0.read_exact(&mut seen).await.unwrap();
        assert_eq!(&seen, b"ticket");
    }
}
