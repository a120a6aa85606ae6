//! The two sockets of a pump.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead as _, ReadBuf};
use tokio::net::TcpStream;

/// One of the two sockets.
pub(super) struct Side {
    pub(super) socket: TcpStream,
    /// Why nothing more can be written to it. Data that it had received before can
    /// still be read.
    pub(super) lost: Option<io::ErrorKind>,
}

impl Side {
    pub(super) fn lose(&mut self, error: &io::Error, side: &str) {
        tracing::debug!(%error, side, "an encrypted connection broke");
        self.lost.get_or_insert(error.kind());
    }

    pub(super) fn reset(&self) {
        // It fails if the socket is gone already.
        let _ = SockRef::from(&self.socket).set_linger(Some(Duration::ZERO));
    }
}

/// Reads through tokio's stream, not by `try_read`. After a read that didn't fill the
/// buffer, the stream waits without another system call.
pub(super) fn poll_read(
    socket: &mut TcpStream,
    context: &mut Context<'_>,
    buffer: &mut [u8],
) -> Poll<io::Result<usize>> {
    let mut buffer = ReadBuf::new(buffer);
    ready!(Pin::new(socket).poll_read(context, &mut buffer))?;
    Poll::Ready(Ok(buffer.filled().len()))
}

/// `None` if the socket wasn't ready after all.
pub(super) fn unless_blocked(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
