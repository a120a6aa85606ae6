//! A session on a tokio socket.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustls::CommonState;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::handshake::{Early, invalid};
use super::{Session, scratch};

/// A TLS connection as a stream of bytes. A stream at rest holds no buffer.
#[derive(Debug)]
pub struct Stream {
    tcp: TcpStream,
    session: Session,
    /// The start of a record, which is shorter than [`MAX_RECORD`](super::MAX_RECORD).
    unopened: Vec<u8>,
    /// Plaintext of at most a single read.
    unread: Queue,
    /// Records of at most a single write, and an alert.
    unsent: Queue,
}

/// What a stream holds, for an owner that goes on with the connection by itself.
#[derive(Debug)]
pub struct Parts {
    /// The socket of the connection.
    pub tcp: TcpStream,
    /// The state of TLS.
    pub session: Session,
    /// The start of a record, with which the next buffer for [`Session::open`] begins.
    pub unopened: Vec<u8>,
    /// Plaintext that was received and not read.
    pub unread: Vec<u8>,
    /// Records that must be sent before all others.
    pub unsent: Vec<u8>,
}

impl Stream {
    pub(super) fn new(tcp: TcpStream, session: Session, early: Early) -> Self {
        // The handshake's buffer is larger than what is left of it.
        let unopened = early.unopened.into_boxed_slice().into_vec();
        Self { tcp, session, unopened, unread: early.unread.into(), unsent: Queue::default() }
    }

    /// The socket of the connection, and the state of TLS.
    pub fn get_ref(&self) -> (&TcpStream, &CommonState) {
        (&self.tcp, self.session.state())
    }

    /// The socket, the state of TLS, and the bytes in between.
    pub fn into_parts(self) -> Parts {
        let Self { tcp, session, unopened, unread, unsent } = self;
        Parts { tcp, session, unopened, unread: unread.into_rest(), unsent: unsent.into_rest() }
    }

    /// Reads once from the socket and opens the records.
    fn poll_open(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        scratch::opening(|records| {
            let start = self.unopened.len();
            let mut read = ReadBuf::new(&mut records[start..]);
            ready!(Pin::new(&mut self.tcp).poll_read(cx, &mut read))?;
            let end = start + read.filled().len();
            if end == start {
                let text = "the peer closed the connection without a TLS end (close_notify)";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, text)));
            }
            records[..start].copy_from_slice(&self.unopened);
            let mut out = Vec::new();
            let opened = self.session.open(&mut records[..end], &mut out, |plain| {
                let (now, later) = plain.split_at(plain.len().min(buffer.remaining()));
                buffer.put_slice(now);
                self.unread.extend(later);
            });
            self.unopened =
                opened.as_ref().map_or(Vec::new(), |opened| records[opened.consumed..end].to_vec());
            if !out.is_empty() {
                self.unsent.extend(&out);
                // An alert: the error that it is for counts, and not whether it got away.
                let _ = self.poll_send(cx);
            }
            // Plaintext before the error is read first.
            Poll::Ready(Ok(()))
        })
    }

    /// Writes the records that a former write has sealed.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.rest().is_empty() {
            match ready!(Pin::new(&mut self.tcp).poll_write(cx, self.unsent.rest()))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.unsent.advance(written),
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_seal(&mut self, cx: &mut Context<'_>, plain: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_send(cx))?;
        let plain = &plain[..plain.len().min(scratch::WRITE)];
        scratch::sealing(|records| {
            let length = self.session.seal_into(plain, records).map_err(invalid)?;
            let mut sent = 0;
            while sent < length {
                match Pin::new(&mut self.tcp).poll_write(cx, &records[sent..length]) {
                    Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    Poll::Ready(Ok(written)) => sent += written,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => {
                        self.unsent.extend(&records[sent..length]);
                        break;
                    }
                }
            }
            Poll::Ready(Ok(plain.len()))
        })
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let filled = buffer.filled().len();
        while buffer.remaining() > 0 && buffer.filled().len() == filled {
            let unread = self.unread.rest();
            if !unread.is_empty() {
                let taken = unread.len().min(buffer.remaining());
                buffer.put_slice(&unread[..taken]);
                self.unread.advance(taken);
            } else if let Some(error) = self.session.failure() {
                return Poll::Ready(Err(invalid(error.clone())));
            } else if self.session.ended() {
                break;
            } else {
                ready!(self.poll_open(cx, buffer))?;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_seal(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut end = Vec::new();
        self.session.seal_end(&mut end);
        self.unsent.extend(&end);
        ready!(self.poll_send(cx))?;
        match ready!(Pin::new(&mut self.tcp).poll_shutdown(cx)) {
            // The peer has closed the connection already.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            result => Poll::Ready(result),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match buffers {
            [buffer] => self.poll_seal(cx, buffer),
            buffers => scratch::gathered(buffers, |bytes| self.poll_seal(cx, bytes)),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}

/// Bytes that are taken from the front. The queue frees its memory once it is empty.
#[derive(Debug, Default)]
struct Queue {
    bytes: Vec<u8>,
    taken: usize,
}

impl From<Vec<u8>> for Queue {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes, taken: 0 }
    }
}

impl Queue {
    fn rest(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn advance(&mut self, count: usize) {
        self.taken += count;
        if self.taken == self.bytes.len() {
            *self = Self::default();
        }
    }

    fn into_rest(mut self) -> Vec<u8> {
        self.bytes.drain(..self.taken);
        self.bytes
    }
}
