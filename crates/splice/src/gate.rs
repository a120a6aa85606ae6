//! What connections with tickets are matched by: the service's own tickets, and those of connections
//! that it relays for others.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use isthmus_carry::Share;
use isthmus_carry::plane::Plane;
use isthmus_service::clock::unix_seconds;
use isthmus_service::counters;
use isthmus_service::exhausted::Spell;
use isthmus_wire::ticket::TICKET_LEN;
use tokio::sync::watch;

use crate::intake::{Candidate, Pairs, Relaying};
use crate::matcher::{Bounds, Matcher, Now};
use crate::ticket_key::TicketKey;

/// Tickets of one kind, and what they admit to.
pub(crate) struct Gate {
    pub(crate) matcher: Matcher<Candidate>,
    keys: watch::Receiver<Option<TicketKey>>,
    /// By how many seconds this machine's clock is ahead of the broker's.
    ahead_seconds: u64,
    pub(crate) pairs: Pairs,
    /// Most connections that are spliced at once: of the plane, or of the share.
    pub(crate) most: u64,
    pub(crate) share: Option<Arc<Share>>,
    /// Pairs that came while there were too many.
    full: Spell,
}

impl Gate {
    pub(crate) fn new(
        keys: watch::Receiver<Option<TicketKey>>,
        bounds: Bounds,
        (pairs, most): (Pairs, u64),
    ) -> Self {
        let (matcher, full) = (Matcher::new(bounds), Spell::default());
        let mut gate = Self { matcher, keys, ahead_seconds: 0, pairs, most, share: None, full };
        gate.set_key();
        gate
    }

    pub(crate) fn relaying(relaying: Relaying, bounds: Bounds) -> Self {
        let Relaying { keys, most, share } = relaying;
        Self { share: Some(share), ..Self::new(keys, bounds, (Pairs::Any, most)) }
    }

    /// Notes that a pair isn't joined, as there are too many. Returns whether that is new.
    pub(crate) fn is_newly_full(&mut self) -> bool {
        self.full.failed(Instant::now()).is_zero()
    }

    /// Takes the next key; never returns if none comes any more.
    async fn take_key(&mut self) {
        if self.keys.changed().await.is_err() {
            return std::future::pending().await;
        }
        self.set_key();
    }

    fn set_key(&mut self) {
        let key = self.keys.borrow_and_update().clone();
        if let Some(TicketKey { secret, ahead_seconds }) = key {
            self.ahead_seconds = ahead_seconds;
            let now = self.now();
            self.matcher.set_key(secret, now);
        }
    }

    /// The time by both clocks. The monotonic one is tokio's, so that tests can move it. The date is the
    /// broker's, unless this machine's is earlier.
    pub(crate) fn now(&self) -> Now {
        let unix_seconds = unix_seconds(SystemTime::now()).saturating_sub(self.ahead_seconds);
        Now { instant: tokio::time::Instant::now().into_std(), unix_seconds }
    }

    pub(crate) fn running(&self, plane: &Plane) -> u64 {
        self.share.as_ref().map_or_else(|| plane.totals(), |share| share.totals()).running
    }

    /// Closes the sides whose other side didn't arrive in time.
    fn expire(&mut self) {
        for (connection, side, candidate) in self.matcher.expire(self.now()) {
            counters::refused("other side never came");
            tracing::info!(%connection, ?side, "the other side did not arrive");
            tracing::debug!(%connection, peer = %candidate.peer, "closed");
        }
    }
}

/// The gates of an intake.
pub(crate) struct Gates {
    /// What the service splices as such.
    pub(crate) own: Gate,
    /// What it relays for others besides.
    pub(crate) relaying: Option<Gate>,
}

impl Gates {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Gate> {
        std::iter::once(&self.own).chain(&self.relaying)
    }

    /// The gate for a ticket. Of a ticket that none knows, the service's own says why it is refused.
    pub(crate) fn of(&mut self, ticket: &[u8; TICKET_LEN]) -> &mut Gate {
        match &mut self.relaying {
            Some(relaying) if relaying.matcher.is_signed(ticket, relaying.now()) => relaying,
            _ => &mut self.own,
        }
    }

    /// Takes the next key of either gate.
    pub(crate) async fn take_key(&mut self) {
        match &mut self.relaying {
            Some(relaying) => tokio::select! {
                () = self.own.take_key() => {}
                () = relaying.take_key() => {}
            },
            None => self.own.take_key().await,
        }
    }

    pub(crate) fn expire(&mut self) {
        self.own.expire();
        self.relaying.iter_mut().for_each(Gate::expire);
    }
}
