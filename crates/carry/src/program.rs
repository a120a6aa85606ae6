//! The socket to a program, and the rules for its end.
//!
//! A program sees what one TCP connection to the other program would show it: an end
//! arrives as an end, after all data; a failure arrives as a reset, after the data
//! under way.

use std::io::{self, ErrorKind, IoSlice};

use crate::socket::{Received, Socket};

/// The result of reading from a program's socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Said {
    /// The program wrote so many bytes, at least one.
    Bytes(usize),
    /// There is nothing to read until the next event.
    Nothing,
    /// The program has ended its direction.
    End,
    /// The program is gone, and what it wrote may be incomplete.
    Failed,
}

/// The agent's socket to a program.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) socket: Socket,
    /// The error by which nothing more can be written to the program. Data that the socket had
    /// received before can still be read.
    lost: Option<ErrorKind>,
}

impl Program {
    pub(crate) fn new(socket: Socket) -> Self {
        Self { socket, lost: None }
    }

    /// Whether the program takes no more data.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.is_some()
    }

    fn lose(&mut self, error: &io::Error) {
        tracing::debug!(%error, "a program's connection broke");
        self.lost.get_or_insert(error.kind());
    }

    /// Reads from the program once.
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> Said {
        match self.socket.receive(buffer) {
            Ok(Received::Bytes(count)) => Said::Bytes(count),
            Ok(Received::Nothing) => Said::Nothing,
            // If a write has failed by a reset, this is no end in order: after an end in
            // order it would have failed by a broken pipe.
            Ok(Received::End) if self.lost == Some(ErrorKind::ConnectionReset) => Said::Failed,
            Ok(Received::End) => Said::End,
            Err(error) => {
                self.lose(&error);
                Said::Failed
            }
        }
    }

    /// Writes to the program once; returns how many bytes it took. Data for a program that is gone
    /// counts as taken.
    pub(crate) fn send(&mut self, pieces: &[IoSlice<'_>]) -> usize {
        if !self.is_lost() {
            match self.socket.send_vectored(pieces) {
                Ok(taken) => return taken,
                Err(error) => self.lose(&error),
            }
        }
        pieces.iter().map(|piece| piece.len()).sum()
    }

    /// Passes the other program's end on to this one.
    pub(crate) fn finish(&self) {
        // The call fails if the program is gone.
        let _ = self.socket.finish();
    }
}
