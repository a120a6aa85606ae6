//! A TLS connection that carries a trunk's frames.

use std::io;
use std::time::{Duration, Instant};

use bytes::Bytes;
use isthmus_net::tls::Parts;
use isthmus_trunk::{CarrierId, Trunk};

use crate::socket::{Received, Socket};
use crate::tls::{RECORD, Tls};
use crate::tools::Tools;
use crate::turn::Turn;

/// Bytes that one carrier may move each way in a turn of its trunk.
const TURN_BYTES: usize = 512 << 10;

/// How long the last frames of a carrier that is closed may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// A carrier of this end.
#[derive(Debug)]
pub(super) struct Carrier {
    pub(super) id: CarrierId,
    tls: Tls,
    /// The core has given it up: it is closed when the rest has been sent, or then.
    closing: Option<Instant>,
}

impl Carrier {
    /// Takes over a connection and what has been read from it.
    ///
    /// # Errors
    /// If what has been read breaks a rule of TLS, or is its end.
    pub(super) fn new(parts: Parts, id: CarrierId, core: &mut Trunk, now: Instant) -> io::Result<Self> {
        let (mut tls, plain) = Tls::new(parts)?;
        core.receive(id, Bytes::from(plain), now);
        match tls.open_rest(|plain| core.receive(id, Bytes::copy_from_slice(plain), now))? {
            Received::End => Err(io::ErrorKind::UnexpectedEof.into()),
            Received::Bytes(_) | Received::Nothing => Ok(Self { id, tls, closing: None }),
        }
    }

    pub(super) fn socket(&mut self) -> &mut Socket {
        &mut self.tls.socket
    }

    /// Has it be closed when the rest is sent.
    pub(super) fn close(&mut self, now: Instant) {
        self.closing.get_or_insert(now + CLOSE_TIMEOUT);
    }

    /// When it wants a turn without an event.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.closing
    }

    /// Takes frames in.
    ///
    /// # Errors
    /// If the connection has ended or is broken.
    pub(super) fn receive(&mut self, core: &mut Trunk, tools: &mut Tools, now: Instant) -> io::Result<Turn> {
        let mut left = TURN_BYTES;
        while left > 0 {
            let id = self.id;
            let each = |plain: &[u8]| core.receive(id, Bytes::copy_from_slice(plain), now);
            match self.tls.receive(&mut tools.buffer, each)? {
                Received::Bytes(count) => left = left.saturating_sub(count),
                Received::Nothing => return Ok(Turn::Waits),
                Received::End => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        Ok(Turn::Unfinished)
    }

    /// Sends frames as long as the socket takes them. [`Turn::Ended`]: it was to be
    /// closed, and all is sent.
    ///
    /// # Errors
    /// If the connection is broken.
    pub(super) fn transmit(&mut self, core: &mut Trunk, tools: &mut Tools, now: Instant) -> io::Result<Turn> {
        self.tls.borrow(&mut tools.sealed);
        let done = self.transmit_sealed(core, &mut tools.opened, now);
        self.tls.give_back(&mut tools.sealed);
        if self.closing.is_some_and(|deadline| deadline <= now) { Ok(Turn::Ended) } else { done }
    }

    fn transmit_sealed(&mut self, core: &mut Trunk, record: &mut Vec<u8>, now: Instant) -> io::Result<Turn> {
        let mut left = TURN_BYTES;
        while left > 0 {
            if !self.tls.has_room() && !self.tls.flush()? {
                return Ok(Turn::Waits);
            }
            record.clear();
            let filled = core.fill(self.id, record, RECORD, now);
            if filled == 0 {
                if !self.tls.flush()? {
                    return Ok(Turn::Waits);
                }
                if self.closing.is_none() {
                    return Ok(Turn::Waits);
                }
                self.tls.seal_end();
                self.tls.flush()?;
                return Ok(Turn::Ended);
            }
            self.tls.seal(record)?;
            left = left.saturating_sub(filled);
        }
        Ok(Turn::Unfinished)
    }
}
