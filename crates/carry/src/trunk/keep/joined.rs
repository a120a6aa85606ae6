//! A carrier of the trunk, and what is known of it.

use std::time::{Duration, Instant};

use isthmus_trunk::{PING_IDLE, Purpose, SILENCE};

/// A carrier that falls silent sooner than this shows that its rail carries nothing.
const YOUNG: Duration = Duration::from_secs(30);
/// Where carriers have opened and fallen silent, another one shows that the trunk works once
/// it has lasted longer than it takes to find that an idle one is silent.
const LASTS: Duration = Duration::from_secs(8);
const _: () = assert!(LASTS.as_secs() > PING_IDLE.as_secs() + SILENCE.as_secs());

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Joining,
    /// It works, since then.
    Live(Instant),
    Silent,
}

/// A carrier.
#[derive(Debug, Clone)]
pub(super) struct Joined<W> {
    pub(super) state: State,
    pub(super) purpose: Purpose,
    /// The place of its rail among the ways.
    pub(super) rail: usize,
    /// How this end has dialed it, and with which longest segment.
    pub(super) dialed: Option<(W, Option<u16>)>,
    /// Large frames have come over it,
    pub(super) large_came: bool,
    /// and have passed in both directions.
    pub(super) large: bool,
    /// Large packets seem to vanish on its way, and shorter ones are tried.
    pub(super) swallows: bool,
    /// One by a better way works: it leaves when that has the company that it needs.
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

    /// When it will have shown that it brings more than what opens it: now, if a large frame has
    /// come. What this end sends shows by itself whether it arrives.
    pub(super) fn lasts_at(&self) -> Option<Instant> {
        match self.state {
            State::Live(since) if self.large_came => Some(since),
            State::Live(since) => Some(since + LASTS),
            State::Joining | State::Silent => None,
        }
    }

    /// Its longest segment, if this end has dialed it.
    pub(super) fn segment(&self) -> Option<Option<u16>> {
        self.dialed.as_ref().map(|(_, segment)| *segment)
    }

    /// Whether, if it ends now, its rail carries nothing.
    pub(super) fn ends_young(&self) -> bool {
        self.since.elapsed() < YOUNG && !self.swallows
    }
}
