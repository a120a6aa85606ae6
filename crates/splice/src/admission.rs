//! Takes connections and their tickets, and hands pairs to the data plane. A relay
//! accepts connections from every address. A gateway accepts connections inside its
//! site and perhaps at a port outside; connections that it dials are added.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isthmus_rpc::port::Passed;
use isthmus_service::exhausted::{self, Spell};
use isthmus_service::unidentified::{Unidentified, UnidentifiedEntry, within_descriptors};
use isthmus_service::{counters, listen};
use isthmus_wire::ticket::TICKET_LEN;
use isthmus_wire::{hello, reflect, ticket};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::claims::Claims;
use crate::expected::ReachTests;
use crate::gate::{Gate, Gates};
use crate::intake::accept;
use crate::matcher::{Admission, Bounds, Refusal};
use crate::ticket_key::TicketKey;
use isthmus_carry::Share;
use isthmus_carry::plane::Plane;

pub use crate::intake::{Candidate, Encrypted, Intake, Origin, Outside, Pairs, Relaying};

/// How often the counters are updated.
const COUNTING: Duration = Duration::from_secs(5);
/// Pause after a failed accept. Most likely descriptors have run out, and another try at once would
/// fail, too.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Bounds of the connections that unknown peers can open.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Most connections that have not shown their whole ticket yet: an honest client takes a round
    /// trip. See [`Unidentified`].
    pub handshakes: usize,
    /// How long a connection may take to show its ticket.
    pub handshake_deadline: Duration,
    /// Bounds of the connections that have shown a ticket.
    pub matching: Bounds,
    /// Most connections that are spliced at once.
    pub spliced: u64,
}

impl Default for Limits {
    /// Limits for a relay or gateway of a large grid.
    ///
    /// There are 16,384 handshakes of at most 10 s, 2 KiB each: every rank of a large site may
    /// connect at once, from one address. There are half a million spliced connections, which need
    /// more descriptors than most systems give.
    fn default() -> Self {
        Self {
            handshakes: 16 * 1024,
            handshake_deadline: Duration::from_secs(10),
            matching: Bounds::default(),
            spliced: 1 << 19,
        }
    }
}

/// Serves the intake until `shutdown`. Verifies tickets with the latest key of `keys`,
/// and notes the reach tests that clients name.
pub async fn serve(
    mut intake: Intake,
    limits: Limits,
    mut keys: watch::Receiver<Option<TicketKey>>,
    plane: Arc<Plane>,
    claims: Arc<Claims>,
    shutdown: impl Future<Output = ()>,
) {
    let mut shutdown = pin!(shutdown);
    if let Some(patience) = intake.patience {
        tokio::select! {
            () = &mut shutdown => return,
            // From the deadline on, the intake takes tickets without a key, and refuses them.
            _ = tokio::time::timeout(patience, keys.wait_for(Option::is_some)) => {}
        }
    }
    // The gates share the descriptors that may wait.
    let gates = 1 + usize::from(intake.relaying.is_some());
    let waiting = within_descriptors(limits.matching.waiting) / gates;
    let bounds = Bounds { waiting, ..limits.matching };
    let mut gates = Gates {
        own: Gate::new(keys, bounds, (intake.pairs, limits.spliced)),
        relaying: intake.relaying.take().map(|relaying| Gate::relaying(relaying, bounds)),
    };
    let mut handshakes = JoinSet::new();
    let unidentified = Unidentified::new("connections without a ticket", limits.handshakes);
    let mut counting = tokio::time::interval(COUNTING);
    counting.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut spell = Spell::default();
    loop {
        let deadline = gates.iter().filter_map(|gate| gate.matcher.next_deadline()).min();
        tokio::select! {
            () = &mut shutdown => return,
            accepted = accept(intake.outside.as_mut(), &unidentified) => match accepted {
                Ok(Passed { stream, peer, entry }) => {
                    let candidate = Candidate { stream, peer, origin: Origin::Outside };
                    let known = (claims.clone(), intake.reach_tests.clone(), intake.encrypted.clone());
                    let handshake = handshake(candidate, limits.handshake_deadline, known);
                    handshakes.spawn(unless_evicted(entry, handshake));
                }
                Err(error) => {
                    if spell.failed(Instant::now()).is_zero() {
                        tracing::warn!(error = exhausted::text(&error), "cannot accept a connection");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(shown) = handshakes.join_next(), if !handshakes.is_empty() => {
                if let Ok(Some((ticket, candidate))) = shown {
                    admit(gates.of(&ticket), &ticket, candidate, &plane);
                }
            }
            Some((ticket, candidate)) = intake.arrivals_rx.recv() => {
                admit(gates.of(&ticket), &ticket, candidate, &plane);
            }
            _ = counting.tick() => {
                let totals = plane.totals();
                counters::spliced(totals.connections, totals.running, totals.bytes);
                counters::waiting("ticket", handshakes.len());
                counters::waiting("other side", gates.iter().map(|gate| gate.matcher.waiting()).sum());
            }
            () = gates.take_key() => {}
            () = sleep_until(deadline), if deadline.is_some() => gates.expire(),
        }
    }
}

/// Does a handshake, unless its connection is evicted meanwhile.
async fn unless_evicted<T>(
    entry: UnidentifiedEntry,
    handshake: impl Future<Output = Option<T>>,
) -> Option<T> {
    entry.evicted().run_until_cancelled(handshake).await.flatten()
}

/// Reads a connection's ticket and not a byte more: the following bytes are the program's. `None`
/// if the connection is no candidate.
///
/// A client that asks for its outside address receives the address and is closed. A reach test is
/// closed without an answer.
async fn handshake(
    mut candidate: Candidate,
    deadline: Duration,
    (claims, reach_tests, encrypted): (Arc<Claims>, Arc<ReachTests>, Option<Encrypted>),
) -> Option<([u8; TICKET_LEN], Candidate)> {
    let mut ticket = [0; TICKET_LEN];
    let peer = candidate.peer;
    if let Some(Encrypted(verify)) = encrypted
        && listen::first_byte(&candidate.stream, deadline).await.ok()? != ticket::FIRST_BYTE
    {
        if let Err(error) = verify(candidate.stream).await {
            tracing::debug!(%peer, %error, "not verified");
        }
        return None;
    }
    match tokio::time::timeout(deadline, candidate.stream.read_exact(&mut ticket)).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => {
            tracing::debug!(%peer, %error, "ended before its ticket");
            return None;
        }
        Err(_) => {
            tracing::debug!(%peer, ?deadline, "showed no ticket in time");
            return None;
        }
    }
    if let Ok(test) = reflect::decode_question(&ticket) {
        if let Some(test) = test {
            claims.note(test, peer.ip(), Instant::now());
        }
        let answer = reflect::encode_answer(peer);
        let answered = tokio::time::timeout(deadline, candidate.stream.write_all(&answer)).await;
        tracing::debug!(%peer, ok = matches!(answered, Ok(Ok(()))), "asked for its outside address");
        return None;
    }
    if let Ok(number) = hello::REACH_TEST.decode(&ticket) {
        let expected = reach_tests.come(number);
        tracing::debug!(%peer, expected, "a reach test");
        return None;
    }
    Some((ticket, candidate))
}

fn admit(gate: &mut Gate, ticket: &[u8; TICKET_LEN], candidate: Candidate, plane: &Plane) {
    let now = gate.now();
    match gate.matcher.admit(ticket, candidate.peer.ip().into(), candidate, now) {
        Admission::Waits { evicted } => {
            if let Some((connection, side, candidate)) = evicted {
                counters::refused("too many wait");
                tracing::warn!(%connection, ?side, peer = %candidate.peer, "dropped: too many connections wait for their other side");
            }
        }
        Admission::Paired { connection, initiator, acceptor } => {
            if gate.pairs == Pairs::InsideWithOutside && initiator.origin == acceptor.origin {
                counters::refused("same origin");
                tracing::warn!(
                    %connection, initiator = %initiator.peer, acceptor = %acceptor.peer, origin = ?initiator.origin,
                    "both sides arrived from the same side: not spliced"
                );
                return;
            }
            let most = gate.most;
            if gate.running(plane) >= most {
                counters::refused("too many");
                if gate.is_newly_full() {
                    tracing::warn!(%connection, most, "too many connections are spliced already: not spliced, nor those that follow");
                }
                return;
            }
            tracing::debug!(%connection, initiator = %initiator.peer, acceptor = %acceptor.peer, "spliced");
            if let Err(error) = splice(plane, initiator, acceptor, gate.share.as_ref()) {
                tracing::warn!(%connection, %error, "cannot splice a pair");
            }
        }
        Admission::Refused { reason, candidate } => {
            counters::refused(reason.word());
            match reason {
                // The operator must see these: the ticket is genuine.
                Refusal::Expired { .. } | Refusal::Full { .. } => {
                    tracing::warn!(%reason, "connection refused");
                }
                Refusal::Malformed(_) | Refusal::NoKey | Refusal::WrongKey | Refusal::Used => {
                    tracing::debug!(peer = %candidate.peer, %reason, "connection refused");
                }
            }
        }
    }
}

fn splice(
    plane: &Plane,
    initiator: Candidate,
    acceptor: Candidate,
    share: Option<&Arc<Share>>,
) -> io::Result<()> {
    plane.splice(initiator.stream.into_std()?, acceptor.stream.into_std()?, share)
}

async fn sleep_until(deadline: Option<Instant>) {
    if let Some(deadline) = deadline {
        tokio::time::sleep_until(deadline.into()).await;
    }
}
