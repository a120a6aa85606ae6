//! The start-up of a carrier with BBR: the kernel is asked what it knows of the path, and told how fast
//! it may send. [`Launch`] decides.

use std::time::{Duration, Instant};

use isthmus_trunk::{Launch, Observed};

use crate::bbr_info::BbrInfo;
use crate::pacing_rate;
use crate::socket::Socket;
use crate::tcp_info::TcpInfo;

/// A carrier is looked at so many times in a round trip.
const LOOKS: u32 = 16;
/// The bounds of the time between two looks.
const LEAST_INTERVAL: Duration = Duration::from_millis(2);
const MOST_INTERVAL: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct Launching {
    launch: Launch,
    /// Most bytes per second that the carrier sends; `None` if only BBR bounds it.
    bound: Option<u64>,
    /// No look is due before.
    next: Instant,
    /// Whether data waited at the last look. If none does, a look can wait for the next event, or until
    /// the bound is over: an idle carrier costs nothing. The kernel paces what is sent next as before
    /// the next acknowledgement, so a bound must not be left to it.
    waits: bool,
}

impl Launching {
    pub(super) fn new(now: Instant) -> Self {
        Self { launch: Launch::new(now), bound: None, next: now, waits: false }
    }

    /// Most bytes per second that the carrier sends; `None` if only BBR bounds it.
    pub(super) fn bound(&self) -> Option<u64> {
        self.bound
    }

    /// When the carrier is to be looked at without an event.
    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.waits { Some(self.next) } else { Some(self.launch.deadline()?.max(self.next)) }
    }

    /// Looks at the carrier if that is due. Returns whether its start-up is over.
    pub(super) fn look(&mut self, socket: &Socket, now: Instant) -> bool {
        if now < self.next {
            return false;
        }
        let info = TcpInfo::of(socket).unwrap_or_default();
        self.next = now + (info.min_rtt / LOOKS).clamp(LEAST_INTERVAL, MOST_INTERVAL);
        let Some(bbr) = BbrInfo::of(socket) else {
            // It has another congestion control by now, which something else has set.
            self.set(socket, None);
            return self.bound.is_none();
        };
        self.waits = info.unsent_bytes > 0;
        let observed = Observed {
            rtt: info.rtt,
            deviation: info.rtt_deviation,
            min_rtt: info.min_rtt,
            delivered: info.bytes_per_second,
            most: bbr.bytes_per_second,
            has_lost: info.retransmitted_segments > 0,
            waits: self.waits,
            is_starting: bbr.is_starting,
        };
        let bound = self.launch.look(&observed, now);
        self.set(socket, bound);
        // A bound that couldn't be lifted is tried again.
        self.launch.is_over() && self.bound.is_none()
    }

    fn set(&mut self, socket: &Socket, bound: Option<u64>) {
        if bound != self.bound {
            match pacing_rate::set_most(socket, bound) {
                Ok(()) => self.bound = bound,
                Err(error) => tracing::debug!(%error, "a carrier's bound stays as it was"),
            }
        }
    }
}
