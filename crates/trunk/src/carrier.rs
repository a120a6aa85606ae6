//! One carrier: an ordered pipe of bytes that may end at any time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::estimate::Estimate;
use crate::frame::{DATA_HEAD, Frame};
use crate::input::Input;
use crate::priming::Priming;
use crate::rails::Path;
use crate::rtt::{ACK_DELAY, Rtt, UNKNOWN};
use crate::sending::Piece;
use crate::{Purpose, StreamId};

/// Within this time the peer's HELLO must come, or the carrier ends.
pub const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between two PINGs while counted frames are under way on the carrier.
pub const PING_BUSY: Duration = Duration::from_secs(1);
/// Time between two PINGs while no counted frame is under way. The PINGs keep NATs' entries.
pub const PING_IDLE: Duration = Duration::from_secs(5);
/// A carrier is silent if a PING is out and nothing has been heard for this time and
/// two round trips.
pub const SILENCE: Duration = Duration::from_secs(1);
/// Longest wait for the answer to a PING while other bytes come. The answer may be stuck behind
/// them. But a pipe may also work in one direction alone.
pub const ONE_WAY: Duration = Duration::from_secs(15);
/// A carrier that leaves waits this long for acknowledgements.
pub const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Counted frames are acknowledged once so many have come.
pub const ACK_FRAMES: u64 = 32;
/// Counted frames are acknowledged once they have so many bytes.
pub const ACK_BYTES: usize = 128 << 10;
/// Length in bytes of a frame that takes several packets of full size on most networks.
pub const LARGE: usize = 8 << 10;

/// A carrier, as the program that embeds the trunk names it. Numbers are never used
/// again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CarrierId(pub u32);

/// The state of a carrier at this end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CarrierState {
    /// The peer's HELLO has not come.
    Joining,
    /// The carrier works, and gets frames.
    Live,
    /// Nothing is heard over the carrier: it gets no counted frames.
    Silent,
    /// The carrier gets no counted frames, and ends once those under way are acknowledged.
    Leaving,
    /// Nothing but a last CLOSE goes out on the carrier, and nothing is taken in.
    Done,
}

/// A counted frame that is under way.
#[derive(Debug)]
pub(crate) enum Sent {
    Open(StreamId),
    Data(StreamId, u64, Piece),
    Credit(StreamId),
    Streams,
    Reset(StreamId, bool),
    /// Data that is to be sent again over another carrier, since this one was silent. An
    /// acknowledgement that comes after all makes that needless.
    Moved(StreamId, u64),
    /// A counted frame without data that is to be sent again over another carrier.
    Forgotten,
}

/// How many bytes a counted frame without payload takes on the wire, about.
const CONTROL: u64 = 24;

impl Sent {
    /// How many bytes of the frame on the wire are still under way.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Data(_, _, piece) => (DATA_HEAD + piece.payload.len()) as u64,
            Self::Open(_) | Self::Credit(_) | Self::Streams | Self::Reset(..) => CONTROL,
            Self::Moved(..) | Self::Forgotten => 0,
        }
    }

    /// How many bytes of a stream the frame has.
    pub(crate) fn payload(&self) -> u64 {
        match self {
            Self::Data(_, _, piece) => piece.payload.len() as u64,
            _ => 0,
        }
    }
}

/// Whether large frames have passed over a carrier in each direction. A way may swallow large
/// packets in one direction alone.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Large {
    pub(crate) there: bool,
    pub(crate) back: bool,
    /// Whether the program was told that a large frame has come, and if so, whether both directions
    /// had passed one by then.
    pub(crate) told: Option<bool>,
}

/// A PING that waits for its answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) since: Instant,
    /// The number that the answer will have, and when the PING went out; `None` before it is in a
    /// frame.
    pub(crate) sent: Option<(u64, Instant)>,
}

/// The counted frames that have come over a carrier, and their acknowledgements.
#[derive(Debug, Default)]
pub(crate) struct Arrived {
    frames: u64,
    acknowledged: u64,
    bytes: usize,
    due: Option<Instant>,
    /// Whether an ACK is due at once.
    pub(crate) now: bool,
}

impl Arrived {
    /// Counts a frame that has arrived.
    pub(crate) fn count(&mut self, bytes: usize, now: Instant) {
        self.frames += 1;
        self.bytes += bytes;
        self.now |= self.frames - self.acknowledged >= ACK_FRAMES || self.bytes >= ACK_BYTES;
        self.due.get_or_insert(now + ACK_DELAY);
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.frames > self.acknowledged
    }

    /// The number of frames for an ACK, which counts as sent.
    pub(crate) fn acknowledge(&mut self) -> u64 {
        self.acknowledged = self.frames;
        self.bytes = 0;
        self.due = None;
        self.now = false;
        self.frames
    }
}

#[derive(Debug)]
pub(crate) struct Carrier {
    pub(crate) purpose: Purpose,
    pub(crate) estimate: Estimate,
    pub(crate) priming: Option<Priming>,
    pub(crate) state: CarrierState,
    pub(crate) input: Input,
    /// The carrier's number at the peer; `None` before the peer's HELLO.
    pub(crate) peers_number: Option<u32>,
    pub(crate) hello_sent: bool,
    /// Counted frames under way, oldest first.
    pub(crate) sent: VecDeque<Sent>,
    /// Bytes of streams in the frames of `sent`.
    pub(crate) payload: u64,
    /// How many counted frames the peer has acknowledged.
    pub(crate) acknowledged: u64,
    pub(crate) arrived: Arrived,
    /// The answer to the peer's last PING that is to be sent.
    pub(crate) answer: Option<u64>,
    pub(crate) asked: Option<Asked>,
    /// When the last PING became due.
    pinged: Option<Instant>,
    /// When bytes last came: the direction from the peer works.
    pub(crate) heard: Instant,
    /// When an answer or an acknowledgement last came: both directions work.
    proved_at: Instant,
    joined: Instant,
    /// Whether an answer has shown that both directions work, and the program was told so.
    pub(crate) proved: bool,
    pub(crate) large: Large,
    pub(crate) rtt: Rtt,
    /// When a carrier that leaves ends at the latest; `None` if it doesn't leave.
    pub(crate) leaves: Option<Instant>,
    /// The last frame, if this end closes the carrier.
    pub(crate) close: Option<Frame>,
}

impl Carrier {
    pub(crate) fn new(purpose: Purpose, now: Instant) -> Self {
        Self {
            purpose,
            estimate: Estimate::default(),
            priming: None,
            state: CarrierState::Joining,
            input: Input::default(),
            peers_number: None,
            hello_sent: false,
            sent: VecDeque::new(),
            payload: 0,
            acknowledged: 0,
            arrived: Arrived::default(),
            answer: None,
            asked: None,
            pinged: None,
            heard: now,
            proved_at: now,
            joined: now,
            proved: false,
            large: Large::default(),
            rtt: Rtt::default(),
            leaves: None,
            close: None,
        }
    }

    /// How many counted frames were sent.
    pub(crate) fn sent_frames(&self) -> u64 {
        self.acknowledged + self.sent.len() as u64
    }

    /// Notes that a counted frame goes out.
    pub(crate) fn put(&mut self, sent: Sent, now: Instant) {
        self.estimate.sent(sent.bytes() as usize, &self.rtt, now);
        self.payload += sent.payload();
        self.sent.push_back(sent);
    }

    /// Notes that the oldest counted frame under way is acknowledged, and returns it.
    pub(crate) fn take_acknowledged(&mut self) -> Option<Sent> {
        let sent = self.sent.pop_front()?;
        self.acknowledged += 1;
        self.payload -= sent.payload();
        self.large.there |= sent.bytes() >= LARGE as u64;
        Some(sent)
    }

    /// Returns all counted frames under way, to be sent over other carriers.
    pub(crate) fn give_up(&mut self) -> VecDeque<Sent> {
        self.estimate.given_up();
        self.payload = 0;
        std::mem::take(&mut self.sent)
    }

    pub(crate) fn path(&self, now: Instant) -> Path {
        self.estimate.path(self.purpose, &self.rtt, now)
    }

    /// When the next PING is due.
    fn ping_at(&self) -> Instant {
        let pause = if self.sent.is_empty() { PING_IDLE } else { PING_BUSY };
        self.pinged.map_or(self.joined, |last| last + pause)
    }

    /// When the carrier counts as silent, if nothing comes until then. `rtt` is the trunk's round
    /// trip, for a carrier that has none of its own.
    pub(crate) fn silent_at(&self, rtt: Option<Duration>) -> Option<Instant> {
        let may = matches!(self.state, CarrierState::Joining | CarrierState::Live | CarrierState::Leaving);
        let asked = self.asked.filter(|_| may)?;
        let rtt = self.rtt.measured().or(rtt).unwrap_or(UNKNOWN);
        let begun = asked.since.max(self.proved_at);
        Some((begun.max(self.heard) + SILENCE + 2 * rtt).min(begun + ONE_WAY))
    }

    /// When something is to be done for the carrier by time.
    pub(crate) fn deadline(&self, rtt: Option<Duration>) -> Option<Instant> {
        if self.state == CarrierState::Done {
            return None;
        }
        let ack = self.arrived.due.filter(|_| !self.arrived.now);
        let ping = Some(self.ping_at()).filter(|_| self.asked.is_none());
        let hello = Some(self.joined + HELLO_TIMEOUT).filter(|_| self.peers_number.is_none());
        [ack, ping, hello, self.silent_at(rtt), self.leaves].into_iter().flatten().min()
    }

    /// Marks as due what is due by now: ACK and PING.
    pub(crate) fn mark_due(&mut self, now: Instant) {
        self.arrived.now |= self.arrived.due.is_some_and(|due| due <= now);
        if self.asked.is_none() && self.ping_at() <= now {
            self.asked = Some(Asked { since: now, sent: None });
            self.pinged = Some(now);
        }
    }

    /// Whether the peer's HELLO is overdue.
    pub(crate) fn hello_is_overdue(&self, now: Instant) -> bool {
        self.peers_number.is_none() && self.state != CarrierState::Done && self.joined + HELLO_TIMEOUT <= now
    }

    /// Whether the carrier is to end by now, or counts as silent.
    pub(crate) fn is_overdue(&self, rtt: Option<Duration>, now: Instant) -> bool {
        let at = [self.leaves, self.silent_at(rtt)];
        self.hello_is_overdue(now) || at.into_iter().flatten().any(|at| at <= now)
    }

    /// Notes a sign that both directions work. Returns whether that is news: the carrier was
    /// silent, or this is its first such sign.
    pub(crate) fn prove(&mut self, now: Instant) -> bool {
        self.proved_at = now;
        let silent = self.state == CarrierState::Silent;
        if silent {
            self.state = CarrierState::Live;
        }
        let first = self.state == CarrierState::Live && !std::mem::replace(&mut self.proved, true);
        silent || first
    }

    /// Takes in the answer to a PING, which stands for all PINGs before it. Returns whether an
    /// answer was waited for.
    pub(crate) fn answered(&mut self, nonce: u64, now: Instant) -> bool {
        let (estimate, rtt) = (&self.estimate, &self.rtt);
        if let Some(priming) = &mut self.priming
            && let Some((bytes, took)) =
                priming.answered(nonce, now, |took| estimate.shows_queue(took, rtt, now))
        {
            self.large.there = true;
            self.estimate.primed(bytes, took);
        }
        if let Some(Asked { sent: Some((expected, sent)), .. }) = self.asked
            && expected <= nonce
        {
            if expected == nonce {
                self.rtt.add(now.saturating_duration_since(sent), now);
            }
            self.asked = None;
            return true;
        }
        false
    }
}
