//! Matches connections by their tickets. The matcher does no I/O and reads no clock.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use isthmus_service::mac::Secret;
use isthmus_service::unidentified::{BySource, Evicted, Key, Source};
use isthmus_wire::ticket::{Side, TICKET_LEN, Ticket};
use isthmus_wire::{ConnectionId, DecodeError};

/// How long tickets of the former key are still taken after the broker sent a new key. This is
/// twice the minute for which a ticket is good.
const KEY_OVERLAP: Duration = Duration::from_secs(120);

/// A moment on both clocks. Deadlines are measured on the clock that never jumps. A ticket's expiry
/// is a date.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// The moment on the monotonic clock.
    pub instant: Instant,
    /// Seconds since 1970-01-01 UTC.
    pub unix_seconds: u64,
}

/// Bounds of a [`Matcher`].
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Most sides that may wait at once for their other side. Beyond that, the oldest side of the
    /// source with the most sides is dropped.
    pub waiting: usize,
    /// How long a side waits for the other side.
    pub patience: Duration,
    /// Most connection ids that are remembered at once, those of waiting sides included. An id that
    /// was used is remembered until its tickets have expired, which takes a minute. So this is the
    /// number of connections that can be opened per minute.
    pub remembered: usize,
}

impl Default for Bounds {
    /// Bounds for a large job.
    ///
    /// 16,384 sides may wait for 20 s each: a job of 128 nodes with every pair joined at once. A
    /// million ids take some 100 MB.
    fn default() -> Self {
        Self { waiting: 16 * 1024, patience: Duration::from_secs(20), remembered: 1 << 20 }
    }
}

/// Why a ticket opens nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The bytes are no ticket at all.
    #[error(transparent)]
    Malformed(#[from] DecodeError),
    /// The broker has sent no key yet: this service was never attached to it.
    #[error("the broker has sent no ticket key yet")]
    NoKey,
    /// The ticket is forged, or for another relay or gateway.
    #[error("the ticket is not signed with this service's key")]
    WrongKey,
    /// The ticket was shown too late, or the clocks of the broker and this machine differ.
    #[error("the ticket expired {seconds_ago} s ago by this machine's clock")]
    Expired {
        /// Seconds since the ticket expired, by this machine's clock.
        seconds_ago: u64,
    },
    /// The ticket of this side was shown before, or the other side's wait has ended.
    #[error("the ticket was used before")]
    Used,
    /// There is no room for another connection id.
    #[error("{remembered} connections were opened within a minute already")]
    Full {
        /// The number of connection ids that are remembered.
        remembered: usize,
    },
}

impl Refusal {
    /// The reason in a word or two, for counters.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed",
            Self::NoKey => "no key",
            Self::WrongKey => "wrong key",
            Self::Expired { .. } => "expired",
            Self::Used => "used",
            Self::Full { .. } => "full",
        }
    }
}

/// What comes of showing a ticket.
#[derive(Debug, PartialEq, Eq)]
pub enum Admission<T> {
    /// The candidate is kept until the other side arrives.
    Waits {
        /// The side that was dropped to make room; `None` if there was room.
        evicted: Option<(ConnectionId, Side, T)>,
    },
    /// Both sides of a connection have arrived.
    Paired {
        /// The id of the connection that both tickets are for.
        connection: ConnectionId,
        /// The candidate with the initiator's ticket.
        initiator: T,
        /// The candidate with the acceptor's ticket.
        acceptor: T,
    },
    /// The ticket was refused.
    Refused {
        /// Why the ticket was refused.
        reason: Refusal,
        /// The candidate that showed the ticket.
        candidate: T,
    },
}

/// Matches candidates (connections, in practice) by the tickets that they show.
///
/// [`set_key`](Self::set_key) and [`admit`](Self::admit) are inputs;
/// [`expire`](Self::expire) must be called when
/// [`next_deadline`](Self::next_deadline) has passed. It returns the candidates whose
/// other side did not arrive.
#[derive(Debug)]
pub struct Matcher<T> {
    bounds: Bounds,
    key: Option<Secret>,
    former_key: Option<(Secret, Instant)>,
    connections: HashMap<ConnectionId, State<T>>,
    waiting: BySource<ConnectionId>,
    /// Deadlines of the waiting sides in the order of their arrival, which is also that of the
    /// deadlines. The list may have entries of sides that don't wait any more.
    deadlines: VecDeque<(Instant, ConnectionId)>,
    /// Connections whose ids were used, by the second in which their tickets expire.
    used: BTreeSet<(u64, ConnectionId)>,
}

#[derive(Debug)]
enum State<T> {
    Waiting { side: Side, deadline: Instant, expiry: u64, key: Key, candidate: T },
    Used,
}

impl<T> State<T> {
    fn waits_until(&self, at: Instant) -> bool {
        matches!(self, Self::Waiting { deadline, .. } if *deadline == at)
    }
}

impl<T> Matcher<T> {
    /// A matcher that refuses every ticket until it has a key.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            key: None,
            former_key: None,
            connections: HashMap::new(),
            waiting: BySource::new(bounds.waiting),
            deadlines: VecDeque::new(),
            used: BTreeSet::new(),
        }
    }

    /// Takes the key with which the broker signs tickets. Tickets of the former key stay good for
    /// two minutes, because some are under way.
    pub fn set_key(&mut self, key: Secret, now: Now) {
        if self.key.as_ref().is_some_and(|current| current.expose() == key.expose()) {
            return;
        }
        self.former_key = self.key.take().map(|former| (former, now.instant + KEY_OVERLAP));
        self.key = Some(key);
    }

    /// Whether a ticket is signed by a key that this matcher takes.
    pub(crate) fn is_signed(&self, ticket: &[u8; TICKET_LEN], now: Now) -> bool {
        Ticket::decode(ticket)
            .is_ok_and(|(ticket, mac)| self.keys(now).any(|key| key.verify(&ticket.signed_bytes(), &mac)))
    }

    /// The keys whose tickets are good.
    fn keys(&self, now: Now) -> impl Iterator<Item = &Secret> {
        let former = self.former_key.as_ref().filter(move |(_, until)| now.instant < *until);
        self.key.iter().chain(former.map(|(key, _)| key))
    }

    /// Takes in a candidate, the source that it came from, and the ticket that it showed.
    pub fn admit(
        &mut self,
        ticket: &[u8; TICKET_LEN],
        source: Source,
        candidate: T,
        now: Now,
    ) -> Admission<T> {
        self.forget_expired(now);
        let ticket = match self.verify(ticket, now) {
            Ok(ticket) => ticket,
            Err(reason) => return Admission::Refused { reason, candidate },
        };
        let remembered = self.connections.len();
        match self.connections.entry(ticket.connection) {
            Entry::Vacant(_) if remembered >= self.bounds.remembered => {
                Admission::Refused { reason: Refusal::Full { remembered }, candidate }
            }
            Entry::Vacant(vacant) => {
                let deadline = now.instant + self.bounds.patience;
                let (key, evicted) = self.waiting.enter(source, ticket.connection);
                vacant.insert(State::Waiting {
                    side: ticket.side,
                    deadline,
                    expiry: ticket.expiry_unix_seconds,
                    key,
                    candidate,
                });
                self.deadlines.push_back((deadline, ticket.connection));
                Admission::Waits { evicted: evicted.and_then(|Evicted { value, .. }| self.give_up(value)) }
            }
            Entry::Occupied(mut occupied) => match occupied.get() {
                State::Waiting { side, .. } if *side == ticket.side.other() => {
                    let State::Waiting { expiry, candidate: first, key, .. } = occupied.insert(State::Used)
                    else {
                        return Admission::Refused { reason: Refusal::Used, candidate };
                    };
                    self.waiting.leave(key);
                    self.used.insert((expiry.max(ticket.expiry_unix_seconds), ticket.connection));
                    let (initiator, acceptor) = match ticket.side {
                        Side::Initiator => (candidate, first),
                        Side::Acceptor => (first, candidate),
                    };
                    Admission::Paired { connection: ticket.connection, initiator, acceptor }
                }
                State::Waiting { .. } | State::Used => {
                    Admission::Refused { reason: Refusal::Used, candidate }
                }
            },
        }
    }

    /// Returns the candidates whose wait has ended. Their tickets are used up: the
    /// other side is refused at once if it arrives later.
    pub fn expire(&mut self, now: Now) -> Vec<(ConnectionId, Side, T)> {
        let mut gone = Vec::new();
        while let Some((deadline, connection)) = self.deadlines.front().copied() {
            let state = self.connections.get(&connection);
            // The side doesn't wait any more, or a later side waits under the same id.
            if !state.is_some_and(|state| state.waits_until(deadline)) {
                self.deadlines.pop_front();
                continue;
            }
            if deadline > now.instant {
                break;
            }
            self.deadlines.pop_front();
            gone.extend(self.give_up(connection));
        }
        self.forget_expired(now);
        gone
    }

    /// Ends the wait of a connection's side, and uses up the connection's tickets. Returns the
    /// side; `None` if none waits.
    fn give_up(&mut self, connection: ConnectionId) -> Option<(ConnectionId, Side, T)> {
        let state = std::mem::replace(self.connections.get_mut(&connection)?, State::Used);
        let State::Waiting { side, expiry, key, candidate, .. } = state else { return None };
        self.waiting.leave(key);
        self.used.insert((expiry, connection));
        Some((connection, side, candidate))
    }

    /// When to call [`expire`](Self::expire) next; `None` if it isn't needed. It may return no
    /// candidate then, if a side doesn't wait any more.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.front().map(|(deadline, _)| *deadline)
    }

    /// The number of sides that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn verify(&self, bytes: &[u8; TICKET_LEN], now: Now) -> Result<Ticket, Refusal> {
        let (ticket, mac) = Ticket::decode(bytes)?;
        if self.key.is_none() {
            return Err(Refusal::NoKey);
        }
        let signed = ticket.signed_bytes();
        if !self.keys(now).any(|key| key.verify(&signed, &mac)) {
            return Err(Refusal::WrongKey);
        }
        if ticket.expiry_unix_seconds <= now.unix_seconds {
            return Err(Refusal::Expired { seconds_ago: now.unix_seconds - ticket.expiry_unix_seconds });
        }
        Ok(ticket)
    }

    /// Drops used connections whose tickets have expired.
    fn forget_expired(&mut self, now: Now) {
        while let Some((expiry, connection)) = self.used.first().copied() {
            if expiry > now.unix_seconds {
                break;
            }
            self.used.pop_first();
            self.connections.remove(&connection);
        }
    }
}

#[cfg(test)]
#[path = "matcher_tests.rs"]
mod tests;
