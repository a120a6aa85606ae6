//! A non-blocking socket and its readiness.
//!
//! Sockets are registered edge-triggered with epoll(7), once. So a socket counts as
//! readable or writable from an event until a call shows that it no longer is.

use std::io::{self, ErrorKind, IoSlice, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{SpliceFFlags, splice};
use nix::libc;
use nix::sys::epoll::EpollFlags;
use socket2::SockRef;

use crate::socket_option;
use crate::splice::Pipe;

/// The events that a socket is registered for.
pub(crate) const EVENTS: EpollFlags = EpollFlags::EPOLLIN
    .union(EpollFlags::EPOLLPRI)
    .union(EpollFlags::EPOLLOUT)
    .union(EpollFlags::EPOLLRDHUP)
    .union(EpollFlags::EPOLLET);

const CLOSING: EpollFlags = EpollFlags::EPOLLRDHUP.union(EpollFlags::EPOLLHUP).union(EpollFlags::EPOLLERR);

/// The result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Received {
    /// So many bytes were read, at least one.
    Bytes(usize),
    /// There is nothing to read until the next event.
    Nothing,
    /// The other side has ended its direction.
    End,
}

/// A socket and its readiness.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: TcpStream,
    readable: bool,
    writable: bool,
    /// Whether a short read doesn't show that nothing is left. The socket's end may have been
    /// reported already. Or urgent data has come: a read stops at that (tcp(7)), and no event tells
    /// of what follows.
    thorough: bool,
    /// Whether urgent data has come, which splice(2) doesn't get past.
    urgent: bool,
    failed: bool,
}

impl Socket {
    /// Takes over a stream, which must be non-blocking.
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, readable: true, writable: true, thorough: false, urgent: false, failed: false }
    }

    /// Takes over a socket that another program had, with its [`marks`](Self::marks) there.
    pub(crate) fn adopt(stream: TcpStream, urgent: bool, failed: bool) -> Self {
        let socket = Self { urgent, failed, thorough: urgent, ..Self::new(stream) };
        // That program may have left something else behind. It fails on sockets that don't need it.
        let _ = socket.wake_from(1);
        socket
    }

    /// Whether urgent data has come, and whether the socket has failed. Its readiness need not be
    /// known: epoll(7) reports it anew to whoever registers the socket.
    pub(crate) fn marks(&self) -> (bool, bool) {
        (self.urgent, self.failed)
    }

    /// Notes an event of the socket.
    pub(crate) fn on_event(&mut self, events: EpollFlags) {
        self.urgent |= events.contains(EpollFlags::EPOLLPRI);
        self.thorough |= events.intersects(CLOSING | EpollFlags::EPOLLPRI);
        self.readable |= events.intersects(CLOSING | EpollFlags::EPOLLPRI | EpollFlags::EPOLLIN);
        self.writable |=
            events.intersects(EpollFlags::EPOLLOUT | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR);
        self.failed |= events.contains(EpollFlags::EPOLLERR);
    }

    pub(crate) fn is_readable(&self) -> bool {
        self.readable
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.writable
    }

    /// Whether splice(2) may read from the socket.
    pub(crate) fn may_be_spliced(&self) -> bool {
        !self.urgent
    }

    /// Whether an error was reported. A socket that has ended in order is no longer
    /// read, so only this shows that it was reset afterwards.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    /// Reads once, and only if the socket may have something.
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        if !self.readable {
            return Ok(Received::Nothing);
        }
        match retry(|| (&self.stream).read(buffer)) {
            Ok(0) => Ok(Received::End),
            Ok(count) => {
                // After a short read of a stream there is no more; later bytes cause
                // another event (epoll(7), question 9).
                self.readable = count == buffer.len() || self.thorough;
                Ok(Received::Bytes(count))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                Ok(Received::Nothing)
            }
            Err(error) => Err(error),
        }
    }

    /// Has an event tell that the socket can be read only once so many bytes have come (`SO_RCVLOWAT`,
    /// socket(7)), or it has ended.
    ///
    /// # Errors If its kind lacks the option.
    pub(crate) fn wake_from(&self, bytes: usize) -> io::Result<()> {
        let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
        socket_option::set(&self.stream, libc::SOL_SOCKET, libc::SO_RCVLOWAT, &bytes.to_ne_bytes())
    }

    /// Has the next read ask the kernel, though no event has told of anything to read.
    pub(crate) fn look_again(&mut self) {
        self.readable = true;
    }

    /// Writes as much as the socket takes at once; returns the number of bytes.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_with(bytes.len(), |stream, written| (&mut &*stream).write(&bytes[written..]))
    }

    /// Writes once, out of several buffers; returns the number of bytes that the socket took.
    pub(crate) fn send_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        match buffers {
            // That takes the kernel less time.
            [one] => self.write_once(|stream| (&mut &*stream).write(one)),
            _ => self.write_once(|stream| (&mut &*stream).write_vectored(buffers)),
        }
    }

    /// Moves bytes from the socket into an empty pipe.
    pub(crate) fn splice_into(&mut self, pipe: &Pipe) -> io::Result<Received> {
        match retry(|| Ok(splice(&self.stream, None, &pipe.write, None, pipe.capacity, FLAGS)?)) {
            Ok(0) => Ok(Received::End),
            Ok(count) => Ok(Received::Bytes(count)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                Ok(Received::Nothing)
            }
            Err(error) => Err(error),
        }
    }

    /// Moves bytes from a pipe to the socket; returns their number.
    pub(crate) fn splice_from(&mut self, pipe: &Pipe, length: usize) -> io::Result<usize> {
        self.write_with(length, |stream, written| {
            Ok(splice(&pipe.read, None, stream, None, length - written, FLAGS)?)
        })
    }

    fn write_with(
        &mut self,
        length: usize,
        mut write: impl FnMut(&TcpStream, usize) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut written = 0;
        while written < length {
            match self.write_once(|stream| write(stream, written))? {
                0 if self.writable => return Err(ErrorKind::WriteZero.into()),
                0 => break,
                more => written += more,
            }
        }
        Ok(written)
    }

    fn write_once(&mut self, mut write: impl FnMut(&TcpStream) -> io::Result<usize>) -> io::Result<usize> {
        if !self.writable {
            return Ok(0);
        }
        match retry(|| write(&self.stream)) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.writable = false;
                Ok(0)
            }
            done => done,
        }
    }

    /// Ends the direction to the other side.
    pub(crate) fn finish(&self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }

    /// Decides whether the socket is closed by a reset or in order.
    pub(crate) fn end_by_reset(&self, by_reset: bool) {
        if by_reset { self.reset() } else { self.close_in_order() }
    }

    /// Has the socket be closed in order after all, in spite of an earlier [`reset`](Self::reset).
    pub(crate) fn close_in_order(&self) {
        let _ = SockRef::from(&self.stream).set_linger(None);
    }

    /// Has the socket be reset when it is closed, so that the other side sees no orderly end.
    pub(crate) fn reset(&self) {
        // The call fails if the socket is gone already.
        let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

const FLAGS: SpliceFFlags = SpliceFFlags::SPLICE_F_MOVE.union(SpliceFFlags::SPLICE_F_NONBLOCK);

/// Repeats a call as long as a signal interrupts it.
fn retry(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.raw_os_error() == Some(Errno::EINTR as i32) => {}
            done => return done,
        }
    }
}
