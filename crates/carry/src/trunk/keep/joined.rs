//! A carrier of the trunk, and what is known of it.

use std::time::{Duration, Instant};

use isthmus_trunk::{PING_IDLE, Purpose, SILENCE};

/// A carrier that falls silent within this time shows that its rail carries nothing.
const YOUNG: Duration = Duration::from_secs(30);
/// Where carriers have opened and fallen silent, a new carrier that lasts for this time shows that
/// the trunk works. It is longer than it takes to find that an idle carrier is silent.
const LASTS: Duration = Duration::from_secs(8);
const _: () = assert!(LASTS.as_secs() > PING_IDLE.as_secs() + SILENCE.as_secs());

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Joining,
    /// The carrier works, since this time.
    Live(Instant),
    Silent,
}

/// A carrier that has joined its trunk.
#[derive(Debug, Clone)]
pub(super) struct Joined<W> {
    pub(super) state: State,
    pub(super) purpose: Purpose,
    /// The place of the carrier's rail among the ways.
    pub(super) rail: usize,
    /// How this end has dialed the carrier, and with which longest segment; `None` if the other end
    /// has.
    pub(super) dialed: Option<(W, Option<u16>)>,
    /// Whether large frames have come over the carrier.
    pub(super) large_came: bool,
    /// Whether large frames have passed over the carrier in both directions.
    pub(super) large: bool,
    /// Whether large packets seem to vanish on the carrier's way, and shorter ones are tried.
    pub(super) swallows: bool,
    /// Whether a carrier by a better way works. This one leaves when no further carriers are being
    /// dialed in its place.
    pub(super) outdone: bool,
    since: Instant,
}

impl<W> Joined<W> {
    pub(super) fn new(purpose: Purpose, rail: usize, dialed: Option<(W, Option<u16>)>) -> Self {
        Self {
            state: State::Joining,
            purpose,
            rail,
            dialed,
            large_came: false,
            large: false,
            swallows: false,
            outdone: false,
            since: Instant::now(),
        }
    }

    pub(super) fn is_live(&self) -> bool {
        matches!(self.state, State::Live(_))
    }

    /// When the carrier will have shown that it brings more than what opens it. That is at once if
    /// a large frame has come. Whether this end's own data arrives is found by its
    /// acknowledgements.
    pub(super) fn lasts_at(&self) -> Option<Instant> {
        match self.state {
            State::Live(since) if self.large_came => Some(since),
            State::Live(since) => Some(since + LASTS),
            State::Joining | State::Silent => None,
        }
    }

    /// The longest segment with which this end has dialed the carrier; `None` if the other end has
    /// dialed it.
    pub(super) fn segment(&self) -> Option<Option<u16>> {
        self.dialed.as_ref().map(|(_, segment)| *segment)
    }

    /// Whether an end of the carrier now would show that its rail carries nothing.
    pub(super) fn ends_young(&self) -> bool {
        self.since.elapsed() < YOUNG && !self.swallows
    }
}
