//! The direction of a stream from the peer to this end.

use std::time::Instant;

use bytes::Bytes;

use crate::credit::Window;
use crate::reassembly::Reassembly;
use crate::{ProtocolError, StreamId};

/// Where and how a direction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DirectionEnd {
    /// The direction's length in bytes.
    pub(crate) offset: u64,
    /// The code of the reset; `None` if the direction ends in order.
    pub(crate) reset: Option<u32>,
}

/// How far the program here has got with the direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// The program still reads the direction.
    Open,
    /// The program has read the end, or the reset.
    Finished,
    /// The program takes no more; the peer is told this code.
    Stopped(u32),
}

/// What has arrived of a direction, and how much more may come.
#[derive(Debug)]
pub(crate) struct Receiving {
    pub(crate) state: State,
    pub(crate) data: Reassembly,
    pub(crate) window: Window,
    pub(crate) end: Option<DirectionEnd>,
    /// Whether the program has found nothing to read, and waits for an event.
    pub(crate) waits: bool,
    /// The interval in which the stream was last counted as busy.
    pub(crate) counted: u32,
}

impl Receiving {
    pub(crate) fn new(initial: u32, now: Option<Instant>) -> Self {
        Self {
            state: State::Open,
            data: Reassembly::default(),
            window: Window::new(initial, now),
            end: None,
            waits: true,
            counted: 0,
        }
    }

    /// How many bytes the program has read.
    pub(crate) fn read(&self) -> u64 {
        self.data.next() - self.data.ready.len() as u64
    }

    /// Takes in a DATA frame; returns how many bytes are new. The caller has checked that the sum
    /// of offset and length is in range.
    pub(crate) fn take(
        &mut self,
        stream: StreamId,
        offset: u64,
        payload: Bytes,
        end: bool,
    ) -> Result<u64, ProtocolError> {
        if self.state != State::Open {
            return Ok(0);
        }
        let behind = offset + payload.len() as u64;
        if behind > self.window.limit() {
            return Err(ProtocolError::OverCredit { stream, end: behind, limit: self.window.limit() });
        }
        if let Some(known) = self.end
            && behind > known.offset
        {
            return Err(ProtocolError::Contradiction { stream, end: known.offset, other: behind });
        }
        if end {
            self.ends(stream, DirectionEnd { offset: behind, reset: None })?;
        }
        Ok(self.data.insert(offset, payload))
    }

    /// Takes in the end of the direction. The same end again changes nothing.
    pub(crate) fn ends(&mut self, stream: StreamId, end: DirectionEnd) -> Result<(), ProtocolError> {
        if self.state != State::Open {
            return Ok(());
        }
        let other = match self.end {
            Some(known) if known.offset == end.offset && known.reset.is_some() == end.reset.is_some() => {
                return Ok(());
            }
            Some(known) => Some(known.offset),
            None => Some(self.data.highest()).filter(|highest| *highest > end.offset),
        };
        if let Some(other) = other {
            return Err(ProtocolError::Contradiction { stream, end: end.offset, other });
        }
        if end.offset > self.window.limit() {
            let limit = self.window.limit();
            return Err(ProtocolError::OverCredit { stream, end: end.offset, limit });
        }
        self.end = Some(end);
        Ok(())
    }

    /// Whether the program can read bytes, the end or a reset.
    pub(crate) fn is_readable(&self) -> bool {
        self.state == State::Open && (!self.data.ready.is_empty() || self.at_end().is_some())
    }

    /// The direction's end, if all bytes before it are read.
    pub(crate) fn at_end(&self) -> Option<DirectionEnd> {
        self.end.filter(|end| self.read() == end.offset)
    }

    /// Whether the program is done with the direction.
    pub(crate) fn is_over(&self) -> bool {
        self.state != State::Open
    }
}
