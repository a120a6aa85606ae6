//! A connection between two agents, while they introduce it: a socket, TLS, or a stream
//! of a trunk.

use std::io;
use std::sync::Arc;

use isthmus_carry::trunk;
use isthmus_net::Identity;
use isthmus_reach::carrier::Carrier;

/// A stream of a trunk whose other end is verified.
#[derive(Debug)]
pub(crate) struct TrunkStream {
    pub stream: trunk::Stream,
    /// Who is at the trunk's other end.
    pub peer: Arc<Identity>,
    /// The addresses of a carrier, for messages.
    pub ends: Arc<str>,
}

/// A connection between two agents.
#[derive(Debug)]
pub(crate) enum Link {
    Carrier(Carrier),
    Stream(TrunkStream),
}

impl From<Carrier> for Link {
    fn from(carrier: Carrier) -> Self {
        Self::Carrier(carrier)
    }
}

/// What an introduction is made by.
pub(crate) trait Messages: Send {
    /// Writes all of a small message.
    fn send(&mut self, message: &[u8]) -> impl Future<Output = io::Result<()>> + Send;

    /// Reads a small message whole, and nothing beyond it.
    fn receive<const N: usize>(&mut self) -> impl Future<Output = io::Result<[u8; N]>> + Send;

    /// Both ends' addresses, for messages.
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

impl Messages for Link {
    async fn send(&mut self, message: &[u8]) -> io::Result<()> {
        match self {
            Self::Carrier(carrier) => carrier.send(message).await,
            Self::Stream(stream) => {
                stream.stream.send(message);
                Ok(())
            }
        }
    }

    async fn receive<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        match self {
            Self::Carrier(carrier) => carrier.receive().await,
            Self::Stream(stream) => stream.stream.receive().await,
        }
    }

    fn ends(&self) -> String {
        match self {
            Self::Carrier(carrier) => carrier.ends(),
            Self::Stream(stream) => format!("a trunk from {}", stream.ends),
        }
    }
}

impl Link {
    /// The verified other end; `None` for a socket without TLS.
    pub(crate) fn identity(&self) -> Option<&Identity> {
        match self {
            Self::Carrier(Carrier::Raw(_)) => None,
            Self::Carrier(Carrier::Tls(tls)) => tls.identity(),
            Self::Stream(stream) => Some(&stream.peer),
        }
    }

    /// Whether the agents carry it.
    pub(crate) fn is_encrypted(&self) -> bool {
        !matches!(self, Self::Carrier(Carrier::Raw(_)))
    }
}
