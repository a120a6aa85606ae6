//! A connection between two agents, while they introduce it: a socket, or a stream of a trunk.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use isthmus_carry::trunk;
use isthmus_identity::Identity;
use isthmus_net::dial::ends;
use isthmus_plan::Encryption;
use isthmus_reach::carrier::{Carrier, keep_alive};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A stream of a trunk whose other end is verified.
#[derive(Debug)]
pub(crate) struct TrunkStream {
    pub stream: trunk::Stream,
    /// The verified agent at the trunk's other end.
    pub peer: Arc<Identity>,
    /// The addresses of one of the trunk's carriers, for messages.
    pub ends: Arc<str>,
}

/// A connection between two agents.
#[derive(Debug)]
pub(crate) enum AgentConnection {
    /// A socket of its own, which the program gets.
    Socket(TcpStream),
    Stream(TrunkStream),
    /// A socket to the own gateway, which carries it over the trunk with the initiator's
    /// site. The gateway names the initiator's node.
    OverGateways(TcpStream, Ipv4Addr),
}

impl AgentConnection {
    /// Has the kernel show life on a socket that the program gets as it is, while it is
    /// idle. The shim hides that from the program. Sockets of the other kinds do so already.
    pub(crate) fn keep_alive(&self) {
        if let Self::Socket(stream) = self {
            keep_alive(stream);
        }
    }
}

/// A connection over which two agents exchange the messages of an introduction.
pub(crate) trait Messages: Send {
    /// Writes all of a small message.
    fn send(&mut self, message: &[u8]) -> impl Future<Output = io::Result<()>> + Send;

    /// Reads a small message whole, and nothing beyond it.
    fn receive<const N: usize>(&mut self) -> impl Future<Output = io::Result<[u8; N]>> + Send;

    /// The addresses of both ends, for messages.
    fn ends(&self) -> String;
}

impl Messages for Carrier {
    async fn send(&mut self, message: &[u8]) -> io::Result<()> {
        Self::send(self, message).await
    }

    async fn receive<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        Self::receive(self).await
    }

    fn ends(&self) -> String {
        Self::ends(self)
    }
}

impl Messages for AgentConnection {
    async fn send(&mut self, message: &[u8]) -> io::Result<()> {
        match self {
            Self::Socket(stream) | Self::OverGateways(stream, _) => stream.write_all(message).await,
            Self::Stream(stream) => {
                stream.stream.send(message);
                Ok(())
            }
        }
    }

    async fn receive<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        match self {
            Self::Socket(stream) | Self::OverGateways(stream, _) => {
                let mut message = [0; N];
                stream.read_exact(&mut message).await?;
                Ok(message)
            }
            Self::Stream(stream) => stream.stream.receive().await,
        }
    }

    fn ends(&self) -> String {
        match self {
            Self::Socket(stream) => ends(stream),
            Self::OverGateways(stream, initiator) => {
                format!("{}, over the gateways from {initiator}", ends(stream))
            }
            Self::Stream(stream) => format!("a trunk from {}", stream.ends),
        }
    }
}

impl AgentConnection {
    /// The verified other end; `None` for a socket without TLS.
    pub(crate) fn identity(&self) -> Option<&Identity> {
        match self {
            Self::Socket(_) | Self::OverGateways(..) => None,
            Self::Stream(stream) => Some(&stream.peer),
        }
    }

    /// Who encrypts the connection between the sites, as the acceptor's end knows.
    pub(crate) fn encryption(&self) -> Encryption {
        match self {
            Self::Socket(_) => Encryption::None,
            Self::Stream(_) => Encryption::Agents,
            Self::OverGateways(..) => Encryption::Gateways,
        }
    }
}
