//! An opened connection between two agents, raw or encrypted, and the pump
//! that carries an encrypted one for a program.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

use crate::account::Bytes;

/// Protocol name (ALPN, RFC 7301) of one program's connection inside TLS.
pub const STREAM_PROTOCOL: &[u8] = b"isthmus-stream/1";
/// Protocol name of gRPC.
pub const GRPC_PROTOCOL: &[u8] = b"h2";

/// Buffer of the pump in each direction: four TLS records.
const PUMP_BUFFER: usize = 64 * 1024;

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

/// Carries an encrypted connection for a program until both directions have
/// ended or one fails. A failure reaches the program as a reset, never as an
/// orderly end.
pub async fn pump(program: TcpStream, mut tls: TlsStream<TcpStream>, bytes: Arc<Bytes>, initiator: bool) {
    let (from_program, to_program) =
        if initiator { (&bytes.sent, &bytes.received) } else { (&bytes.received, &bytes.sent) };
    let mut program = Counted { stream: program, read: from_program, written: to_program };
    let result =
        tokio::io::copy_bidirectional_with_sizes(&mut program, &mut tls, PUMP_BUFFER, PUMP_BUFFER).await;
    if let Err(error) = result {
        tracing::debug!(%error, "an encrypted connection broke");
        // Closing with a zero linger time sends a reset (tcp(7)).
        let _ = socket2::SockRef::from(&program.stream).set_linger(Some(Duration::ZERO));
        let _ = socket2::SockRef::from(tls.get_ref().0).set_linger(Some(Duration::ZERO));
    }
}

struct Counted<'a> {
    stream: TcpStream,
    read: &'a AtomicU64,
    written: &'a AtomicU64,
}

impl AsyncRead for Counted<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        self.read.fetch_add((buffer.filled().len() - before) as u64, Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Counted<'_> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.stream).poll_write(context, buffer))?;
        self.written.fetch_add(count as u64, Relaxed);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
