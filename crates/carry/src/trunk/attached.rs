//! A stream with its program's socket. The rules for ends are those of
//! [`program`](crate::program); a failure is a reset of the stream's direction.

use std::io::IoSlice;
use std::sync::Arc;
use std::time::Instant;

use isthmus_trunk::{Direction, Read, StreamError, StreamId, Trunk};

use crate::program::{Program, Said};
use crate::socket::Socket;
use crate::traffic::Traffic;
use crate::turn::Turn;

/// A stream's code of reset: the program at the sender is gone, so what it wrote may be incomplete.
pub(super) const FAILED: u32 = 1;
/// A stream's code of reset: the program at the receiver is gone.
const GONE: u32 = 2;

/// Most bytes that one stream moves in a turn of its trunk.
const TURN_BYTES: usize = 256 << 10;
/// Most pieces that are written to a program at once.
const PIECES: usize = 32;

/// The state of the direction from the program to the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outgoing {
    /// The program may write.
    Open,
    /// The peer takes no more. The program's writes are discarded while it reads what
    /// is left: a program that writes before it reads would block otherwise.
    Discarded,
    /// The program has ended the direction.
    Over,
    /// The program is gone. The direction is reset behind what it wrote.
    Failed,
}

/// The state of the direction from the peer to the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Incoming {
    Open,
    /// The direction has ended in order, or the program here is gone.
    Over,
    /// The direction has failed at the peer's program, or with the trunk.
    Failed,
}

/// A stream that has a program's socket.
#[derive(Debug)]
pub(super) struct Attached {
    program: Program,
    outgoing: Outgoing,
    incoming: Incoming,
    /// What was received before the socket was there, from `start` on.
    first: Vec<u8>,
    start: usize,
    /// The peer's end, if it came before the socket was there.
    early_end: Option<Read>,
    traffic: Arc<dyn Traffic>,
    /// Shows [`Running`](super::Running), as long as it exists, that the stream hasn't ended.
    _alive: Arc<()>,
}

impl Attached {
    /// Begins a stream with its program's socket. `first` and `early_end` are what was read of the
    /// stream before.
    pub(super) fn new(
        socket: Socket,
        first: Vec<u8>,
        early_end: Option<Read>,
        (traffic, alive): (Arc<dyn Traffic>, Arc<()>),
    ) -> Self {
        Self {
            program: Program::new(socket),
            outgoing: Outgoing::Open,
            incoming: Incoming::Open,
            first,
            start: 0,
            early_end,
            traffic,
            _alive: alive,
        }
    }

    /// Whether the direction to the peer is to be reset behind what the program wrote.
    pub(super) fn has_failed(&self) -> bool {
        self.outgoing == Outgoing::Failed
    }

    pub(super) fn socket(&mut self) -> &mut Socket {
        &mut self.program.socket
    }

    /// Gives both directions a turn. [`Turn::Ended`] means that the socket may be closed.
    pub(super) fn turn(
        &mut self,
        core: &mut Trunk,
        id: StreamId,
        buffer: &mut [u8],
        now: Instant,
        moved: &mut u64,
    ) -> Turn {
        let mut unfinished = self.turn_incoming(core, id, now, moved);
        unfinished |= self.turn_outgoing(core, id, buffer, moved);
        if self.incoming != Incoming::Open && self.outgoing != Outgoing::Open {
            if self.incoming == Incoming::Failed {
                self.program.socket.reset();
            }
            return Turn::Ended;
        }
        if unfinished { Turn::Unfinished } else { Turn::Waits }
    }

    /// Moves bytes from the peer to the program; returns whether there is more to do.
    fn turn_incoming(&mut self, core: &mut Trunk, id: StreamId, now: Instant, moved: &mut u64) -> bool {
        let mut left = TURN_BYTES;
        while self.incoming == Incoming::Open {
            if left == 0 {
                return true;
            }
            let Some(taken) = self.pass(core, id, now) else {
                self.end_incoming(core, id, now);
                return false;
            };
            if self.program.is_lost() {
                // Nobody reads it. It fails if the stream is gone.
                let _ = core.reset(id, Direction::FromPeer, GONE);
                self.incoming = Incoming::Over;
                return false;
            }
            if taken == 0 {
                return false;
            }
            self.traffic.received(taken as u64);
            *moved += taken as u64;
            left = left.saturating_sub(taken);
        }
        false
    }

    /// Writes once to the program; `None` if there is nothing to write.
    fn pass(&mut self, core: &mut Trunk, id: StreamId, now: Instant) -> Option<usize> {
        if self.start < self.first.len() {
            let taken = self.program.send(&[IoSlice::new(&self.first[self.start..])]);
            self.start += taken;
            if self.start == self.first.len() {
                (self.first, self.start) = (Vec::new(), 0);
            }
            return Some(taken);
        }
        let mut pieces = [IoSlice::new(&[]); PIECES];
        let mut count = 0;
        for (slot, piece) in pieces.iter_mut().zip(core.peek(id)) {
            *slot = IoSlice::new(piece);
            count += 1;
        }
        if count == 0 {
            return None;
        }
        let taken = self.program.send(&pieces[..count]);
        if taken > 0 {
            // The stream is there: it had something to read.
            let _ = core.consume(id, taken, now);
        }
        Some(taken)
    }

    /// Passes the direction's end on to the program, if there is one.
    fn end_incoming(&mut self, core: &mut Trunk, id: StreamId, now: Instant) {
        match self.early_end.take().map_or_else(|| core.read(id, 0, now), Ok) {
            Ok(Read::Blocked | Read::Data(_)) => {}
            Ok(Read::End) => {
                self.program.finish();
                self.incoming = Incoming::Over;
            }
            Ok(Read::Reset(_)) | Err(_) => {
                self.incoming = Incoming::Failed;
                if self.outgoing == Outgoing::Open {
                    let _ = core.reset(id, Direction::ToPeer, FAILED);
                    self.outgoing = Outgoing::Discarded;
                }
            }
        }
    }

    /// Moves bytes from the program to the peer; returns whether there is more to do.
    fn turn_outgoing(&mut self, core: &mut Trunk, id: StreamId, buffer: &mut [u8], moved: &mut u64) -> bool {
        let mut left = TURN_BYTES;
        while matches!(self.outgoing, Outgoing::Open | Outgoing::Discarded) {
            if left == 0 {
                return true;
            }
            let room = match core.poll_room(id) {
                _ if self.outgoing == Outgoing::Discarded => buffer.len(),
                Ok(0) => return false,
                Ok(room) => room.min(buffer.len()),
                Err(error) => {
                    if error == StreamError::Gone {
                        // The trunk has ended: what was written may not have arrived.
                        self.incoming = Incoming::Failed;
                    }
                    self.outgoing = Outgoing::Discarded;
                    continue;
                }
            };
            match self.program.receive(&mut buffer[..room]) {
                Said::Nothing => return false,
                Said::Bytes(count) => {
                    left = left.saturating_sub(count);
                    if self.outgoing == Outgoing::Open {
                        self.traffic.sent(count as u64);
                        *moved += count as u64;
                        // There is room for all of it.
                        let _ = core.write_copy(id, &buffer[..count]);
                    }
                }
                Said::End => {
                    // It fails if the peer takes no more.
                    let _ = core.finish(id);
                    self.outgoing = Outgoing::Over;
                }
                Said::Failed if self.outgoing == Outgoing::Open => self.outgoing = Outgoing::Failed,
                Said::Failed => self.outgoing = Outgoing::Over,
            }
        }
        false
    }
}
