//! One direction of a spliced pair: bytes from one socket to the other.
//!
//! Small messages are read and written through the worker's buffer, with two system
//! calls: the copies are cheaper than moving pages. A flow with large messages changes
//! to splice(2), which moves the pages from socket to pipe to socket, until its
//! messages are small again.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Instant;

use isthmus_wire::upgrade;

use super::gather::{ENOUGH, Gather};
use super::pipe::Pipe;
use crate::released::number;
use crate::socket::{Received, Socket};
use crate::tools::Tools;
use crate::turn::{TURN_BYTES, Turn};

/// A read of at least so many bytes makes a flow change to splicing. A splice of fewer bytes counts
/// as small.
const LARGE: usize = 16 << 10;
/// After so many small splices in a row a flow goes back to copying.
const SMALL_IN_A_ROW: u8 = 4;

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

/// One direction of a spliced pair.
#[derive(Debug)]
pub(crate) struct Flow {
    held: Held,
    source_ended: bool,
    ended: bool,
    splices: bool,
    small_in_a_row: u8,
    gather: Gather,
    /// Whether the source wakes the worker only once enough has come.
    is_gathering: bool,
}

impl Flow {
    pub(crate) fn new() -> Self {
        Self {
            held: Held::Nothing,
            source_ended: false,
            ended: false,
            splices: false,
            small_in_a_row: 0,
            gather: Gather::new(),
            is_gathering: false,
        }
    }

    /// Takes over a flow that another program had. It begins by copying.
    pub(crate) fn adopt(flow: upgrade::Flow<OwnedFd>) -> io::Result<Self> {
        let held = match flow.held {
            upgrade::Held::Nothing => Held::Nothing,
            upgrade::Held::Bytes(bytes) => Held::Bytes { bytes, start: 0 },
            upgrade::Held::Piped { read, write, length } => {
                let length = usize::try_from(length).map_err(io::Error::other)?;
                Held::Piped { pipe: Pipe::adopt(read, write)?, length }
            }
        };
        Ok(Self { held, source_ended: flow.source_ended, ended: flow.ended, ..Self::new() })
    }

    /// The flow as the next program gets it.
    pub(crate) fn describe(&self) -> upgrade::Flow {
        let held = match &self.held {
            Held::Nothing => upgrade::Held::Nothing,
            Held::Bytes { bytes, start } => upgrade::Held::Bytes(bytes[*start..].to_vec()),
            Held::Piped { pipe, length } => upgrade::Held::Piped {
                read: number(pipe.read.as_fd()),
                write: number(pipe.write.as_fd()),
                // A pipe has 1 MiB at most.
                length: u32::try_from(*length).unwrap_or(u32::MAX),
            },
        };
        upgrade::Flow { source_ended: self.source_ended, ended: self.ended, held }
    }

    /// The ends of the pipe in which the flow holds bytes; none without a pipe.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let pipe = match &self.held {
            Held::Piped { pipe, .. } => Some([pipe.read.as_fd(), pipe.write.as_fd()]),
            Held::Nothing | Held::Bytes { .. } => None,
        };
        pipe.into_iter().flatten()
    }

    /// Whether the source has ended and the sink was shut down.
    pub(crate) fn ended(&self) -> bool {
        self.ended
    }

    /// When the flow wants a turn without an event.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        // What waits for the sink is read no sooner than it takes more.
        matches!(self.held, Held::Nothing).then(|| self.gather.until()).flatten()
    }

    /// Gathers no more, as when something went the other way, or another program gets the source.
    pub(crate) fn stop_gathering(&mut self, source: &Socket) {
        self.gather.stop();
        self.have_woken(source);
    }

    /// Has the source wake the worker once enough has come, if the flow gathers.
    fn have_woken(&mut self, source: &Socket) {
        let gathers = self.gather.until().is_some() && !self.source_ended;
        if self.is_gathering != gathers {
            match source.wake_from(if gathers { ENOUGH } else { 1 }) {
                Ok(()) => self.is_gathering = gathers,
                Err(error) => {
                    tracing::debug!(%error, "a socket wakes as before");
                    self.gather.stop();
                }
            }
        }
    }

    /// Moves bytes, at most one turn's worth. Adds those that reached the sink to `carried`. Returns
    /// also whether the source had any.
    pub(crate) fn turn(
        &mut self,
        source: &mut Socket,
        sink: &mut Socket,
        tools: &mut Tools,
        carried: &mut u64,
        now: Instant,
    ) -> Result<(Turn, bool), Broken> {
        if self.deadline().is_some_and(|deadline| deadline <= now) {
            source.look_again();
        }
        let mut read = false;
        let turn = self.pass(source, sink, tools, carried, now, &mut read);
        self.have_woken(source);
        Ok((turn?, read))
    }

    fn pass(
        &mut self,
        source: &mut Socket,
        sink: &mut Socket,
        tools: &mut Tools,
        carried: &mut u64,
        now: Instant,
        read: &mut bool,
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
                sink.finish().map_err(Broken::Sink)?;
                self.ended = true;
                return Ok(Turn::Ended);
            }
            if !source.is_readable() {
                return Ok(Turn::Waits);
            }
            if left == 0 {
                return Ok(Turn::Unfinished);
            }
            let received = if self.splices && source.may_be_spliced() {
                self.splice(source, tools)?
            } else {
                self.copy(source, sink, tools, carried)?
            };
            match received {
                Received::Bytes(count) => {
                    left = left.saturating_sub(count);
                    *read = true;
                    self.gather.read(count, now);
                }
                Received::Nothing => self.gather.read(0, now),
                Received::End => {
                    self.source_ended = true;
                    self.gather.stop();
                }
            }
        }
    }

    /// Reads from the source once, and writes the bytes to the sink.
    fn copy(
        &mut self,
        source: &mut Socket,
        sink: &mut Socket,
        tools: &mut Tools,
        carried: &mut u64,
    ) -> Result<Received, Broken> {
        let received = source.receive(&mut tools.buffer).map_err(Broken::Source)?;
        if let Received::Bytes(count) = received {
            self.splices = count >= LARGE;
            let written = sink.send(&tools.buffer[..count]).map_err(Broken::Sink)?;
            *carried += written as u64;
            if written < count {
                self.held = Held::Bytes { bytes: tools.buffer[written..count].to_vec(), start: 0 };
            }
        }
        Ok(received)
    }

    /// Moves the source's bytes into a pipe.
    fn splice(&mut self, source: &mut Socket, tools: &mut Tools) -> Result<Received, Broken> {
        let pipe = match tools.pipes.take() {
            Ok(pipe) => pipe,
            Err(error) => {
                // Most likely descriptors have run out. Copying needs none.
                tracing::debug!(%error, "no pipe to splice through");
                self.splices = false;
                return Ok(Received::Nothing);
            }
        };
        let received = source.splice_into(&pipe);
        let Ok(Received::Bytes(length)) = received else {
            tools.pipes.give_back(pipe);
            return received.map_err(Broken::Source);
        };
        self.held = Held::Piped { pipe, length };
        self.small_in_a_row = if length < LARGE { self.small_in_a_row + 1 } else { 0 };
        if self.small_in_a_row == SMALL_IN_A_ROW {
            self.small_in_a_row = 0;
            self.splices = false;
        }
        Ok(Received::Bytes(length))
    }

    /// Writes the held bytes to the sink; returns whether none is left.
    fn flush(&mut self, sink: &mut Socket, tools: &mut Tools, carried: &mut u64) -> io::Result<bool> {
        let (moved, left) = match &mut self.held {
            Held::Nothing => return Ok(true),
            Held::Bytes { bytes, start } => {
                let moved = sink.send(&bytes[*start..])?;
                *start += moved;
                (moved, bytes.len() - *start)
            }
            Held::Piped { pipe, length } => {
                let moved = sink.splice_from(pipe, *length)?;
                *length -= moved;
                (moved, *length)
            }
        };
        *carried += moved as u64;
        if left > 0 {
            return Ok(false);
        }
        if let Held::Piped { pipe, .. } = std::mem::replace(&mut self.held, Held::Nothing) {
            tools.pipes.give_back(pipe);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::time::Duration;

    use nix::libc;
    use nix::sys::epoll::EpollFlags;

    use super::*;
    use crate::socket_option;

    /// A program's end of a connection, and the other one.
    fn connection() -> (TcpStream, Socket) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let program = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (end, _) = listener.accept().unwrap();
        end.set_nonblocking(true).unwrap();
        (program, Socket::new(end))
    }

    fn wakes_from(socket: &Socket) -> u32 {
        let mut bytes = [0; 4];
        socket_option::get(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, &mut bytes).unwrap();
        u32::from_ne_bytes(bytes)
    }

    #[test]
    fn a_flow_gathers_until_it_is_answered_or_ends() {
        let ((mut near, mut source), (_far, mut sink)) = (connection(), connection());
        let (mut flow, mut tools, mut carried) = (Flow::new(), Tools::new(), 0);
        let mut now = Instant::now();
        let mut turn = |flow: &mut Flow, source: &mut Socket, now| {
            source.on_event(EpollFlags::EPOLLIN);
            flow.turn(source, &mut sink, &mut tools, &mut carried, now).unwrap();
            carried
        };
        let mut sent = 0;
        for is_answered in [true, false] {
            while flow.deadline().is_none() {
                near.write_all(&[0; 100]).unwrap();
                sent += 100;
                now += Duration::from_micros(10);
                while turn(&mut flow, &mut source, now) < sent {}
            }
            assert_eq!(wakes_from(&source), ENOUGH as u32);
            if is_answered {
                flow.stop_gathering(&source);
            } else {
                near.shutdown(Shutdown::Write).unwrap();
                while !flow.ended() {
                    turn(&mut flow, &mut source, now);
                }
            }
            assert_eq!((flow.deadline(), wakes_from(&source)), (None, 1), "{is_answered}");
        }
    }
}
