//! The connections that gRPC is served on.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use isthmus_identity::Identity;
use isthmus_identity::secured::Secured;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A connection that gRPC is served on.
#[derive(Debug)]
pub enum Served {
    /// A TLS connection of its own.
    Tls(Box<Secured>),
    /// A connection that a trunk carries, which may pause for minutes.
    Carried(Carried),
}

/// A connection that a trunk carries.
#[derive(Debug)]
pub struct Carried {
    /// The socket to the trunk.
    pub stream: TcpStream,
    /// The identity of the party at the trunk's other end.
    pub identity: Arc<Identity>,
    /// The address of that party, if it is known.
    pub address: Option<SocketAddr>,
    /// The id of the trunk.
    pub trunk: [u8; 16],
}

impl From<Secured> for Served {
    fn from(stream: Secured) -> Self {
        Self::Tls(Box::new(stream))
    }
}

impl Served {
    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Tls(stream) => stream.get_ref().0,
            Self::Carried(carried) => &carried.stream,
        }
    }

    /// The address of the other end, and that of this end.
    pub(super) fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        let (peer, local) = (self.tcp().peer_addr().ok()?, self.tcp().local_addr().ok()?);
        let carried = match self {
            Self::Tls(_) => None,
            Self::Carried(carried) => carried.address,
        };
        Some((carried.unwrap_or(peer), local))
    }

    /// The id of the trunk that carries the connection; `None` for TLS.
    pub(super) fn trunk(&self) -> Option<[u8; 16]> {
        match self {
            Self::Tls(_) => None,
            Self::Carried(carried) => Some(carried.trunk),
        }
    }

    /// The identity of the other end; `None` if it has shown no certificate.
    pub(super) fn identity(&self) -> Option<Arc<Identity>> {
        match self {
            Self::Tls(stream) => stream.identity().cloned().map(Arc::new),
            Self::Carried(carried) => Some(Arc::clone(&carried.identity)),
        }
    }

    /// Whether the connection may pause, so that pings would end it.
    pub(super) fn may_pause(&self) -> bool {
        matches!(self, Self::Carried(_))
    }
}

/// Calls a method of the stream in either case.
macro_rules! either {
    ($served:expr, $stream:ident => $call:expr) => {
        match $served.get_mut() {
            Served::Tls($stream) => $call,
            Served::Carried(Carried { stream: $stream, .. }) => $call,
        }
    };
}

impl AsyncRead for Served {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        either!(self, stream => Pin::new(stream).poll_read(cx, buffer))
    }
}

impl AsyncWrite for Served {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        either!(self, stream => Pin::new(stream).poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self, stream => Pin::new(stream).poll_write_vectored(cx, buffers))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tls(stream) => stream.is_write_vectored(),
            Self::Carried(carried) => carried.stream.is_write_vectored(),
        }
    }
}
