//! One direction of a spliced pair: bytes from one socket to the other.
//!
//! Small messages are read and written through the worker's buffer, with two system
//! calls: the copies are cheaper than moving pages. A flow with large messages changes
//! to splice(2), which moves the pages from socket to pipe to socket, until its
//! messages are small again.
//!
//! Sockets are registered edge-triggered with epoll(7), once. So a flow takes a socket
//! as readable or writable from an event until a call returns `EAGAIN`.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};

use nix::errno::Errno;
use nix::fcntl::{SpliceFFlags, splice};

use crate::pipe::{Pipe, PipePool};

/// Size of the buffer for small messages.
const BUFFER_BYTES: usize = 64 << 10;
/// A read of at least this much makes a flow change to splicing; a splice of
/// less is a small one, …
const LARGE: usize = 16 << 10;
/// … and after so many in a row the flow goes back to copying.
const SMALL_IN_A_ROW: u8 = 4;
/// Bytes that a flow may move in one turn: some 200 µs of work.
const TURN_BYTES: usize = 1 << 20;

/// The buffer and pipes that the flows of one worker share.
#[derive(Debug)]
pub(crate) struct Tools {
    buffer: Box<[u8]>,
    pipes: PipePool,
}

impl Tools {
    pub(crate) fn new() -> Self {
        Self { buffer: vec![0; BUFFER_BYTES].into_boxed_slice(), pipes: PipePool::default() }
    }
}

/// The result of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The sockets allow no more until the next event.
    Waits,
    /// There is more to move, but other flows are due.
    Unfinished,
    /// The source has ended, and the sink was shut down.
    Ended,
}

/// The socket at which a flow broke.
#[derive(Debug)]
pub(crate) enum Broken {
    Source(io::Error),
    Sink(io::Error),
}

/// Bytes taken from the source that the sink didn't take yet.
#[derive(Debug)]
enum Held {
    Nothing,
    Bytes { bytes: Vec<u8>, start: usize },
    Piped { pipe: Pipe, length: usize },
}

/// One direction of a pair.
#[derive(Debug)]
pub(crate) struct Flow {
    held: Held,
    readable: bool,
    writable: bool,
    /// An event reported the end of the source: reads go on until one returns 0, even
    /// after a short one.
    closing: bool,
    source_ended: bool,
    ended: bool,
    splices: bool,
    small_in_a_row: u8,
}

impl Flow {
    pub(crate) fn new() -> Self {
        Self {
            held: Held::Nothing,
            readable: true,
            writable: true,
            closing: false,
            source_ended: false,
            ended: false,
            splices: false,
            small_in_a_row: 0,
        }
    }

    /// The source has something to read, or (`closing`) to report.
    pub(crate) fn source_is_ready(&mut self, closing: bool) {
        self.readable = true;
        self.closing |= closing;
    }

    /// The sink takes bytes again.
    pub(crate) fn sink_is_ready(&mut self) {
        self.writable = true;
    }

    /// Whether the source has ended and the sink was shut down.
    pub(crate) fn ended(&self) -> bool {
        self.ended
    }

    /// Moves bytes, at most one turn's worth. Adds those that reached the sink to
    /// `carried`.
    pub(crate) fn pump(
        &mut self,
        source: &TcpStream,
        sink: &TcpStream,
        tools: &mut Tools,
        carried: &mut u64,
    ) -> Result<Turn, Broken> {
        let mut left = TURN_BYTES;
        loop {
            if self.ended {
                return Ok(Turn::Ended);
            }
            if !self.flush(sink, tools, carried).map_err(Broken::Sink)? {
                return Ok(Turn::Waits);
            }
            if self.source_ended {
                sink.shutdown(Shutdown::Write).map_err(Broken::Sink)?;
                self.ended = true;
                return Ok(Turn::Ended);
            }
            if !self.readable {
                return Ok(Turn::Waits);
            }
            if left == 0 {
                return Ok(Turn::Unfinished);
            }
            let moved = if self.splices {
                self.splice_in(source, tools)?
            } else {
                self.copy(source, sink, tools, carried)?
            };
            left = left.saturating_sub(moved);
        }
    }

    /// Reads once and writes the bytes.
    fn copy(
        &mut self,
        source: &TcpStream,
        mut sink: &TcpStream,
        tools: &mut Tools,
        carried: &mut u64,
    ) -> Result<usize, Broken> {
        let read = match retry(|| (&mut { source }).read(&mut tools.buffer)) {
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                return Ok(0);
            }
            Err(error) => return Err(Broken::Source(error)),
        };
        self.source_ended = read == 0;
        // After a short read of a stream there is no more; later bytes cause another
        // event (epoll(7), question 9).
        if read < tools.buffer.len() && !self.closing {
            self.readable = false;
        }
        self.splices = read >= LARGE;
        let mut written = 0;
        while self.writable && written < read {
            match retry(|| sink.write(&tools.buffer[written..read])) {
                Ok(more) => written += more,
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(error) => return Err(Broken::Sink(error)),
            }
        }
        *carried += written as u64;
        if written < read {
            self.held = Held::Bytes { bytes: tools.buffer[written..read].to_vec(), start: 0 };
        }
        Ok(read)
    }

    /// Moves the source's bytes into a pipe.
    fn splice_in(&mut self, source: &TcpStream, tools: &mut Tools) -> Result<usize, Broken> {
        let pipe = match tools.pipes.take() {
            Ok(pipe) => pipe,
            Err(error) => {
                // Out of descriptors, most likely. Copying needs none.
                tracing::debug!(%error, "no pipe to splice through");
                self.splices = false;
                return Ok(0);
            }
        };
        let flags = SpliceFFlags::SPLICE_F_MOVE | SpliceFFlags::SPLICE_F_NONBLOCK;
        match retry(|| Ok(splice(source, None, &pipe.write, None, pipe.capacity, flags)?)) {
            Ok(0) => {
                self.source_ended = true;
                tools.pipes.give_back(pipe);
                Ok(0)
            }
            Ok(length) => {
                self.held = Held::Piped { pipe, length };
                self.small_in_a_row = if length < LARGE { self.small_in_a_row + 1 } else { 0 };
                if self.small_in_a_row == SMALL_IN_A_ROW {
                    self.small_in_a_row = 0;
                    self.splices = false;
                }
                Ok(length)
            }
            Err(error) => {
                tools.pipes.give_back(pipe);
                if error.kind() == ErrorKind::WouldBlock {
                    self.readable = false;
                    return Ok(0);
                }
                Err(Broken::Source(error))
            }
        }
    }

    /// Writes the bytes that are held; returns whether none is left.
    fn flush(&mut self, mut sink: &TcpStream, tools: &mut Tools, carried: &mut u64) -> io::Result<bool> {
        loop {
            if matches!(self.held, Held::Nothing) {
                return Ok(true);
            }
            if !self.writable {
                return Ok(false);
            }
            let moved = match &mut self.held {
                Held::Nothing => return Ok(true),
                Held::Bytes { bytes, start } => {
                    let moved = retry(|| sink.write(&bytes[*start..]));
                    *start += *moved.as_ref().unwrap_or(&0);
                    moved
                }
                Held::Piped { pipe, length } => {
                    let flags = SpliceFFlags::SPLICE_F_MOVE | SpliceFFlags::SPLICE_F_NONBLOCK;
                    let moved = retry(|| Ok(splice(&pipe.read, None, sink, None, *length, flags)?));
                    *length -= *moved.as_ref().unwrap_or(&0);
                    moved
                }
            };
            match moved {
                Ok(moved) => *carried += moved as u64,
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(error) => return Err(error),
            }
            let empty = match &self.held {
                Held::Nothing => true,
                Held::Bytes { bytes, start } => *start == bytes.len(),
                Held::Piped { length, .. } => *length == 0,
            };
            if empty && let Held::Piped { pipe, .. } = std::mem::replace(&mut self.held, Held::Nothing) {
                tools.pipes.give_back(pipe);
            }
        }
    }
}

/// Repeats a call that a signal interrupted.
fn retry(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.raw_os_error() == Some(Errno::EINTR as i32) => {}
            done => return done,
        }
    }
}
