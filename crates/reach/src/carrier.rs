//! An opened connection between two agents, raw or encrypted.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

/// Protocol name (ALPN, RFC 7301) of one program's connection inside TLS.
pub const STREAM_PROTOCOL: &[u8] = b"isthmus-stream/1";
/// Protocol name of gRPC.
pub const GRPC_PROTOCOL: &[u8] = b"h2";

/// Protocol name of a measurement.
pub const MEASURE_PROTOCOL: &[u8] = b"isthmus-measure/1";

/// How often an idle connection shows a sign of life: routers forget
/// connections that have been silent for too long, many within 5 min though RFC
/// 5382 (REQ-5) wants 2 h.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);
/// How many of them may stay unanswered. Not few: the connection is to outlive
/// a cut as long as one with something under way does (25 min).
const UNANSWERED: u32 = 100;

/// Keeps the agents' own connection in the memory of the routers on its way.
/// Not for a socket that a program will have, which makes that choice itself.
pub fn keep_alive(stream: &TcpStream) {
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(SIGN_OF_LIFE)
        .with_interval(SIGN_OF_LIFE)
        .with_retries(UNANSWERED);
    // Without it, it is as good as any other connection.
    let _ = socket2::SockRef::from(stream).set_tcp_keepalive(&keepalive);
}

/// A connection between two agents.
#[derive(Debug)]
pub enum Carrier {
    /// The socket itself, to be handed to the program.
    Raw(TcpStream),
    /// TLS between the agents, which carry the program's bytes.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Carrier {
    /// Writes all of a small message.
    ///
    /// # Errors
    /// As the socket's.
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
    /// As the socket's; `UnexpectedEof` if it ended before.
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
        let stream = match self {
            Self::Raw(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
        };
        let text = |address: io::Result<std::net::SocketAddr>| {
            address.map_or_else(|_| "?".to_owned(), |address| address.to_string())
        };
        format!("{} to {}", text(stream.local_addr()), text(stream.peer_addr()))
    }
}
