//! A TLS connection as a worker has it: it opens records in the worker's buffer, and
//! holds bytes of its own only while a record is incomplete or the socket is full.

use std::io::{self, ErrorKind};

use isthmus_identity::tls::{Parts, Session, sealed_len};

use crate::socket::{Received, Socket};

/// Plaintext bytes in one record (RFC 8446 section 5.1).
pub(crate) const RECORD: usize = 16 << 10;
/// Ciphertext is written once there are so many bytes of it.
const WRITE: usize = 4 * RECORD;

/// A socket, and the state of its TLS.
#[derive(Debug)]
pub(crate) struct Tls {
    pub(crate) socket: Socket,
    session: Session,
    /// The beginning of a record that has not come whole yet.
    partial: Vec<u8>,
    /// Ciphertext that the socket didn't take: the bytes from `start` to `end`. The rest is room
    /// for more.
    pending: Vec<u8>,
    start: usize,
    end: usize,
}

impl Tls {
    /// Takes a connection over. Returns also the plaintext that was read from it before.
    ///
    /// # Errors
    /// If the socket can't be set up.
    pub(crate) fn new(parts: Parts) -> io::Result<(Self, Vec<u8>)> {
        let Parts { tcp, session, unopened, unread, unsent } = parts;
        tcp.set_nodelay(true)?;
        // tokio's sockets are non-blocking.
        let socket = Socket::new(tcp.into_std()?);
        let end = unsent.len();
        Ok((Self { socket, session, partial: unopened, pending: unsent, start: 0, end }, unread))
    }

    /// Opens the ciphertext that was read before the connection came to this worker.
    pub(crate) fn open_rest(&mut self, each: impl FnMut(&[u8])) -> io::Result<Received> {
        let mut read = std::mem::take(&mut self.partial);
        self.open(&mut read, each)
    }

    /// Reads once and gives the plaintext of all whole records. `Bytes` is the count of
    /// ciphertext, `End` the peer's `close_notify`.
    ///
    /// # Errors
    /// As the socket's; `UnexpectedEof` if it ended without `close_notify`; `Other` if
    /// TLS refuses what came.
    pub(crate) fn receive(&mut self, buffer: &mut [u8], each: impl FnMut(&[u8])) -> io::Result<Received> {
        let kept = self.partial.len();
        let Some((head, room)) = buffer.split_at_mut_checked(kept).filter(|(_, room)| !room.is_empty())
        else {
            return Err(ErrorKind::InvalidData.into());
        };
        match self.socket.receive(room)? {
            Received::Nothing => Ok(Received::Nothing),
            Received::End => Err(ErrorKind::UnexpectedEof.into()),
            Received::Bytes(count) => {
                head.copy_from_slice(&self.partial);
                self.partial = Vec::new();
                self.open(&mut buffer[..kept + count], each)
            }
        }
    }

    fn open(&mut self, bytes: &mut [u8], each: impl FnMut(&[u8])) -> io::Result<Received> {
        let mut answer = Vec::new();
        let opened = self.session.open(bytes, &mut answer, each);
        self.append(&answer);
        let opened = opened.map_err(io::Error::other)?;
        if opened.ended {
            return Ok(Received::End);
        }
        self.partial.extend_from_slice(&bytes[opened.consumed..]);
        Ok(Received::Bytes(bytes.len()))
    }

    /// Adds ciphertext that TLS itself has to send.
    fn append(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.pending.truncate(self.end);
            self.pending.extend_from_slice(bytes);
            self.end = self.pending.len();
        }
    }

    /// Whether more may be sealed: the socket hasn't refused any so far.
    pub(crate) fn has_room(&self) -> bool {
        self.socket.is_writable()
    }

    /// Seals bytes. [`flush`](Self::flush) sends them; they are sent before if many have gathered.
    pub(crate) fn seal(&mut self, plain: &[u8]) -> io::Result<()> {
        let room = self.end + sealed_len(plain.len());
        if self.pending.len() < room {
            self.pending.resize(room, 0);
        }
        let sealed = self.session.seal_into(plain, &mut self.pending[self.end..]);
        self.end += sealed.map_err(io::Error::other)?;
        if self.end - self.start >= WRITE {
            self.flush()?;
        }
        Ok(())
    }

    /// Seals the end of the direction to the peer (`close_notify`).
    pub(crate) fn seal_end(&mut self) {
        let mut alert = Vec::new();
        self.session.seal_end(&mut alert);
        self.append(&alert);
    }

    /// Sends what is sealed; returns whether none of it is left.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        self.start += self.socket.send(&self.pending[self.start..self.end])?;
        if self.start < self.end {
            return Ok(false);
        }
        (self.start, self.end) = (0, 0);
        Ok(true)
    }

    /// Takes the worker's buffer for ciphertext, at the beginning of a turn.
    pub(crate) fn borrow(&mut self, spare: &mut Vec<u8>) {
        if self.end == 0 {
            self.pending = std::mem::take(spare);
        }
    }

    /// Gives the worker's buffer back at the end of the turn, if no ciphertext is left: a
    /// connection at rest holds no buffer. The worker keeps one.
    pub(crate) fn give_back(&mut self, spare: &mut Vec<u8>) {
        if self.end == 0 {
            let pending = std::mem::take(&mut self.pending);
            if spare.capacity() < pending.capacity() {
                *spare = pending;
            }
        }
    }
}
