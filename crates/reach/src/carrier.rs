//! An opened connection between two agents, raw or encrypted.

use std::io;
use std::time::Duration;

use isthmus_identity::secured::Secured;
use isthmus_net::keepalive;
use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Protocol name (ALPN, RFC 7301) of gRPC.
pub const GRPC_PROTOCOL: &[u8] = b"h2";

/// Protocol name (ALPN) of a measurement.
pub const MEASURE_PROTOCOL: &[u8] = b"isthmus-measure/1";

/// Has the kernel send signs of life on a connection while it is idle, so that NATs keep
/// it in their tables.
pub fn keep_alive(stream: &TcpStream) {
    // The connection works without them, too.
    let _ = keepalive::set(stream);
}

/// Sets whether a connection is reset when it is dropped. It must be until it has proved to work.
/// An orderly end tells a gateway or relay only that nothing more comes from this side. If the
/// other way is dead, the gateway or relay keeps both connections until TCP gives up.
pub fn reset_if_dropped(stream: &TcpStream, is: bool) {
    // This fails if the socket is gone already.
    let _ = SockRef::from(stream).set_linger(is.then_some(Duration::ZERO));
}

/// A connection between two agents.
#[derive(Debug)]
pub enum Carrier {
    /// The socket itself, which is passed to the program.
    Raw(TcpStream),
    /// TLS between the agents.
    Tls(Box<Secured>),
}

impl Carrier {
    /// The socket of an unencrypted connection.
    ///
    /// # Errors
    /// If the connection is encrypted.
    pub fn unencrypted(self) -> io::Result<TcpStream> {
        match self {
            Self::Raw(stream) => Ok(stream),
            Self::Tls(_) => Err(io::Error::other("the connection is encrypted")),
        }
    }

    /// The TLS of an encrypted connection.
    ///
    /// # Errors
    /// If the connection is not encrypted.
    pub fn encrypted(self) -> io::Result<Secured> {
        match self {
            Self::Tls(stream) => Ok(*stream),
            Self::Raw(_) => Err(io::Error::other("the connection is not encrypted")),
        }
    }

    /// Writes all of a small message.
    ///
    /// # Errors
    /// If the socket's write fails.
    pub async fn send(&mut self, message: &[u8]) -> io::Result<()> {
        match self {
            Self::Raw(stream) => stream.write_all(message).await,
            Self::Tls(stream) => {
                stream.write_all(message).await?;
                stream.flush().await
            }
        }
    }

    /// Reads a small message whole, and nothing beyond it.
    ///
    /// # Errors
    /// If the socket's read fails; `UnexpectedEof` if the connection ended before the message did.
    pub async fn receive<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut message = [0; N];
        match self {
            Self::Raw(stream) => stream.read_exact(&mut message).await?,
            Self::Tls(stream) => stream.read_exact(&mut message).await?,
        };
        Ok(message)
    }

    /// Both ends' addresses, for messages.
    pub fn ends(&self) -> String {
        isthmus_net::dial::ends(self.socket())
    }

    /// The socket that the carrier uses.
    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Self::Raw(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
        }
    }
}
