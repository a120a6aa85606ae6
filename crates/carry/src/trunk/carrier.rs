//! A TLS connection that carries a trunk's frames.

use std::io;
use std::time::{Duration, Instant};

use bytes::Bytes;
use isthmus_identity::tls::Parts;
use isthmus_trunk::{CarrierId, Measured, Purpose, Trunk};
use socket2::SockRef;

use super::congestion::{self, DecidedBy};
use super::handle::Control;
use super::launching::Launching;
use crate::socket::{Received, Socket};
use crate::tcp_info::TcpInfo;
use crate::tls::{RECORD, Tls};
use crate::tools::Tools;
use crate::turn::Turn;

/// Most bytes that one carrier moves each way in a turn of its trunk.
const TURN_BYTES: usize = 512 << 10;

/// How long the last frames of a carrier that is closed may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Shortest time between two measurements of a busy carrier. It is measured once a round trip.
const LEAST_INTERVAL: Duration = Duration::from_millis(5);
/// Longest time between two measurements of a busy carrier.
const MOST_INTERVAL: Duration = Duration::from_millis(50);

/// What bounds a carrier's rate is looked at each time that it was busy for so long.
const BUSY: Duration = Duration::from_millis(200);

/// A carrier at this end of its trunk.
#[derive(Debug)]
pub(super) struct Carrier {
    pub(super) id: CarrierId,
    tls: Tls,
    /// When the carrier is to be measured again.
    measure: Instant,
    /// Most bytes that the carrier's socket may queue unsent.
    unsent_bytes: u32,
    /// For how long the carrier was busy, and short of buffers, when that was last looked at.
    buffers: (Duration, Duration),
    /// Whether the carrier was short of buffers most of the time of late.
    is_short: bool,
    /// When the carrier is closed at the latest; `None` until the core gives it up. It is closed
    /// before that once the rest is sent, and the peer has closed it, too.
    closing: Option<Instant>,
    /// Whether the end of TLS is sealed, so that nothing more is sent.
    is_sealed: bool,
    decided_by: DecidedBy,
    has_bbr: bool,
    /// The start-up of a carrier to which BBR was given; `None` once that is over.
    launching: Option<Launching>,
}

impl Carrier {
    /// Takes over a connection and what has been read from it.
    ///
    /// # Errors
    /// If what has been read breaks a rule of TLS, or is its end.
    pub(super) fn new(parts: Parts, id: CarrierId, core: &mut Trunk, now: Instant) -> io::Result<Self> {
        let (mut tls, plain) = Tls::new(parts)?;
        core.receive(id, Bytes::from(plain), now);
        if let Received::End = tls.open_rest(|plain| core.receive(id, Bytes::copy_from_slice(plain), now))? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // The end that accepts it has read the peer's HELLO, which tells the purpose.
        let decided_by = congestion::set(SockRef::from(&tls.socket), purpose(core, id), core.congestion());
        let has_bbr = congestion::name(&tls.socket) == "bbr";
        Ok(Self {
            id,
            tls,
            measure: now,
            unsent_bytes: 0,
            buffers: Default::default(),
            is_short: false,
            closing: None,
            is_sealed: false,
            launching: (has_bbr && decided_by == DecidedBy::Isthmus).then(|| Launching::new(now)),
            decided_by,
            has_bbr,
        })
    }

    pub(super) fn socket(&mut self) -> &mut Socket {
        &mut self.tls.socket
    }

    /// The carrier's figures as the kernel has them.
    pub(super) fn tcp_info(&self) -> TcpInfo {
        // The socket is one.
        TcpInfo::of(&self.tls.socket).unwrap_or_default()
    }

    /// What decides how fast the carrier sends.
    pub(super) fn control(&self) -> Control {
        Control {
            name: congestion::name(&self.tls.socket),
            decided_by: self.decided_by,
            bound: self.launching.as_ref().and_then(Launching::bound),
        }
    }

    /// Bounds how fast a new carrier sends, if that is due.
    pub(super) fn pace(&mut self, now: Instant) {
        let socket = &self.tls.socket;
        if self.launching.as_mut().is_some_and(|launching| launching.look(socket, now)) {
            self.launching = None;
        }
    }

    /// The carrier's two addresses, for messages.
    pub(super) fn ends(&self) -> String {
        isthmus_net::dial::ends(&self.tls.socket)
    }

    /// Reports what the kernel has measured to the core, if that is due.
    pub(super) fn measure(&mut self, core: &mut Trunk, now: Instant) {
        if now < self.measure {
            return;
        }
        let info = self.tcp_info();
        self.measure = now + info.rtt.clamp(LEAST_INTERVAL, MOST_INTERVAL);
        let known = |time: Duration| Some(time).filter(|time| !time.is_zero());
        let measured = Measured {
            rtt: known(info.rtt),
            min_rtt: known(info.min_rtt),
            bytes_per_second: Some(info.bytes_per_second).filter(|rate| *rate > 0),
            app_limited: info.app_limited,
            unsent: Some(info.unsent_bytes),
            held_back: congestion::is_held_back(&info, self.has_bbr) || self.is_short_of_buffers(&info),
        };
        core.carrier_measured(self.id, measured, now);
        let unsent_bytes = congestion::unsent_bytes(purpose(core, self.id), &info);
        if unsent_bytes.abs_diff(self.unsent_bytes) > self.unsent_bytes / 4 {
            self.unsent_bytes = unsent_bytes;
            if let Err(error) = SockRef::from(&self.tls.socket).set_tcp_notsent_lowat(unsent_bytes) {
                tracing::debug!(%error, "a carrier's options");
            }
        }
    }

    /// Whether buffers rather than the path bounded the carrier's rate for most of the last
    /// [`BUSY`], and longer if it wasn't busy.
    fn is_short_of_buffers(&mut self, info: &TcpInfo) -> bool {
        let (busy, short) = self.buffers;
        let busy = info.busy.saturating_sub(busy);
        if busy >= BUSY {
            self.is_short = info.short_of_buffers.saturating_sub(short) > busy / 2;
            self.buffers = (info.busy, info.short_of_buffers);
        }
        self.is_short
    }

    /// Has the carrier be closed once the rest is sent, and the peer has closed it.
    pub(super) fn close(&mut self, now: Instant) {
        self.closing.get_or_insert(now + CLOSE_TIMEOUT);
    }

    /// When the carrier wants a turn without an event.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let launching = self.launching.as_ref().and_then(Launching::deadline);
        self.closing.into_iter().chain(launching).min()
    }

    /// Takes frames in. [`Turn::Ended`] means that the carrier was to be closed, and the peer has
    /// closed it.
    ///
    /// # Errors
    /// If the connection has ended or is broken.
    pub(super) fn receive(&mut self, core: &mut Trunk, tools: &mut Tools, now: Instant) -> io::Result<Turn> {
        let mut left = TURN_BYTES;
        while left > 0 {
            let id = self.id;
            let each = |plain: &[u8]| core.receive(id, Bytes::copy_from_slice(plain), now);
            match self.tls.receive(&mut tools.buffer, each) {
                Ok(Received::Bytes(count)) => left = left.saturating_sub(count),
                Ok(Received::Nothing) => return Ok(Turn::Waits),
                Ok(Received::End) | Err(_) if self.is_sealed => return Ok(Turn::Ended),
                Ok(Received::End) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) => return Err(error),
            }
        }
        Ok(Turn::Unfinished)
    }

    /// Sends frames as long as the socket takes them. [`Turn::Ended`] means that the carrier was to
    /// be closed by now.
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
                if !self.is_sealed {
                    self.tls.seal_end();
                    self.is_sealed = true;
                }
                // What the peer still sends is read until it closes. If this end closed with
                // something unread, the kernel would reset the connection, and the peer might
                // never read the frame that ends the trunk.
                if self.tls.flush()? {
                    let _ = SockRef::from(&self.tls.socket).shutdown(std::net::Shutdown::Write);
                }
                return Ok(Turn::Waits);
            }
            self.tls.seal(record)?;
            left = left.saturating_sub(filled);
        }
        Ok(Turn::Unfinished)
    }
}

fn purpose(core: &Trunk, id: CarrierId) -> Purpose {
    core.carrier(id).map_or(Purpose::Bulk, |status| status.purpose)
}
