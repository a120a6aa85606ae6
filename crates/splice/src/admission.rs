//! Takes connections and their tickets, and hands pairs to the data
//! plane. A relay has one, open to everybody; a gateway has one inside its site
//! and perhaps one outside, and what it dials itself comes in, too.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use isthmus_net::clock::unix_seconds;
use isthmus_net::counters;
use isthmus_net::mac::Secret;
use isthmus_wire::ticket::TICKET_LEN;
use isthmus_wire::{hello, reflect};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::MissedTickBehavior;

use crate::matcher::{Admission, Bounds, Matcher, Now, Refusal};
use crate::plane::Plane;
use crate::reach_tests::ReachTests;
use crate::recent_clients::RecentClients;

/// How often queues and what was carried are counted.
const COUNTING: Duration = Duration::from_secs(5);
/// Pause after a failed accept: descriptors have run out, most likely, and
/// asking again at once would only burn the processor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Bounds of what strangers can make it hold.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections that may be in the middle of showing their ticket. One more
    /// drops the oldest of them: an honest one takes a round trip.
    pub handshakes: usize,
    /// How long a connection may take to show its ticket.
    pub handshake_deadline: Duration,
    /// Bounds of those who have shown a ticket.
    pub matching: Bounds,
    /// Connections joined at once.
    pub joined: u64,
}

impl Default for Limits {
    /// 1,024 handshakes of at most 10 s, and half a million connections, which
    /// need more descriptors than most systems give.
    fn default() -> Self {
        Self {
            handshakes: 1024,
            handshake_deadline: Duration::from_secs(10),
            matching: Bounds::default(),
            joined: 1 << 19,
        }
    }
}

/// Where a connection came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Anybody may have come this way.
    Outside,
    /// From within the site.
    Inside,
}

/// A connection that has shown a ticket, or waits for its other side.
#[derive(Debug)]
pub struct Candidate {
    /// The connection.
    pub stream: TcpStream,
    /// Who is at its other end.
    pub peer: SocketAddr,
    /// How it came.
    pub origin: Origin,
}

/// Who may be joined with whom, where their tickets agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairs {
    /// Everybody with everybody.
    Any,
    /// One inside with one outside: no detour for two strangers.
    InsideWithOutside,
}

/// Ways in.
#[derive(Debug)]
pub struct Intake {
    /// Where anybody may come; none where nobody is to come from outside.
    pub outside: Option<TcpListener>,
    /// Candidates that came another way, with the tickets that they showed.
    pub arrivals_rx: mpsc::Receiver<([u8; TICKET_LEN], Candidate)>,
    /// Who may be joined.
    pub pairs: Pairs,
    /// Who is to show that the outside is reached.
    pub reach_tests: Arc<ReachTests>,
}

impl Intake {
    /// One port for everybody.
    pub fn open(listener: TcpListener) -> Self {
        Self {
            outside: Some(listener),
            arrivals_rx: mpsc::channel(1).1,
            pairs: Pairs::Any,
            reach_tests: Arc::default(),
        }
    }
}

/// Serves the intake until `shutdown`, verifying tickets with the latest key of
/// `keys`, and noting who asks how they are seen.
pub async fn serve(
    mut intake: Intake,
    limits: Limits,
    mut keys: watch::Receiver<Option<Secret>>,
    plane: Arc<Plane>,
    recent_clients: Arc<RecentClients>,
    shutdown: impl Future<Output = ()>,
) {
    let mut shutdown = pin!(shutdown);
    let mut matcher = Matcher::new(limits.matching);
    let mut handshakes = JoinSet::new();
    let mut oldest_first: VecDeque<AbortHandle> = VecDeque::new();
    let mut key_may_come = true;
    let mut counting = tokio::time::interval(COUNTING);
    counting.set_missed_tick_behavior(MissedTickBehavior::Delay);
    if let Some(key) = keys.borrow_and_update().clone() {
        matcher.set_key(key, now());
    }
    loop {
        let deadline = matcher.next_deadline();
        tokio::select! {
            () = &mut shutdown => return,
            accepted = accept(intake.outside.as_ref()) => match accepted {
                Ok((stream, peer)) => {
                    make_room(&mut oldest_first, &handshakes, limits.handshakes);
                    let candidate = Candidate { stream, peer, origin: Origin::Outside };
                    let known = (recent_clients.clone(), intake.reach_tests.clone());
                    oldest_first.push_back(handshakes.spawn(handshake(candidate, limits.handshake_deadline, known)));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(shown) = handshakes.join_next(), if !handshakes.is_empty() => {
                // The outer error: dropped to make room.
                if let Ok(Some((ticket, candidate))) = shown {
                    admit(&mut matcher, &ticket, candidate, &plane, (intake.pairs, limits.joined));
                }
            }
            Some((ticket, candidate)) = intake.arrivals_rx.recv() => {
                admit(&mut matcher, &ticket, candidate, &plane, (intake.pairs, limits.joined));
            }
            _ = counting.tick() => {
                let totals = plane.totals();
                counters::spliced(totals.connections, totals.running, totals.bytes);
                counters::waiting("ticket", handshakes.len());
                counters::waiting("other side", matcher.waiting());
            }
            changed = keys.changed(), if key_may_come => {
                key_may_come = changed.is_ok();
                if let Some(key) = keys.borrow_and_update().clone() {
                    matcher.set_key(key, now());
                }
            }
            () = sleep_until(deadline), if deadline.is_some() => {
                for (connection, side, candidate) in matcher.expire(now()) {
                    counters::refused("other side never came");
                    tracing::info!(%connection, ?side, "the other side never came");
                    tracing::debug!(%connection, peer = %candidate.peer, "closed");
                }
            }
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

/// Drops the oldest unfinished handshake if there are too many.
fn make_room<T: 'static>(oldest_first: &mut VecDeque<AbortHandle>, handshakes: &JoinSet<T>, limit: usize) {
    let full = handshakes.len() >= limit;
    while let Some(oldest) = oldest_first.front() {
        let finished = oldest.is_finished();
        if !finished && !full {
            return;
        }
        if !finished {
            tracing::debug!(limit, "too many connections without a ticket: the oldest was dropped");
            oldest.abort();
        }
        oldest_first.pop_front();
        if !finished {
            return;
        }
    }
}

/// Reads the ticket and not a byte more: what follows is the program's. Who
/// asks how they are seen instead is told, and that is all; who comes to show
/// that they get here isn't even told.
async fn handshake(
    mut candidate: Candidate,
    deadline: Duration,
    (recent_clients, reach_tests): (Arc<RecentClients>, Arc<ReachTests>),
) -> Option<([u8; TICKET_LEN], Candidate)> {
    let mut ticket = [0; TICKET_LEN];
    let outcome = tokio::time::timeout(deadline, candidate.stream.read_exact(&mut ticket)).await;
    match outcome {
        Ok(Ok(_)) if reflect::is_question(&ticket) => {
            recent_clients.note(candidate.peer.ip(), Instant::now());
            let answer = reflect::encode_answer(candidate.peer);
            let answered = tokio::time::timeout(deadline, candidate.stream.write_all(&answer)).await;
            tracing::debug!(peer = %candidate.peer, ok = matches!(answered, Ok(Ok(()))), "asked how it is seen");
            None
        }
        Ok(Ok(_)) => match hello::REACH_TEST.decode(&ticket) {
            Ok(number) => {
                let expected = reach_tests.come(number);
                tracing::debug!(peer = %candidate.peer, expected, "a reach test");
                None
            }
            Err(_) => Some((ticket, candidate)),
        },
        Ok(Err(error)) => {
            tracing::debug!(peer = %candidate.peer, %error, "ended before its ticket");
            None
        }
        Err(_) => {
            tracing::debug!(peer = %candidate.peer, ?deadline, "showed no ticket in time");
            None
        }
    }
}

fn admit(
    matcher: &mut Matcher<Candidate>,
    ticket: &[u8; TICKET_LEN],
    candidate: Candidate,
    plane: &Plane,
    (pairs, most): (Pairs, u64),
) {
    match matcher.admit(ticket, candidate, now()) {
        Admission::Waits => {}
        Admission::Paired { connection, initiator, acceptor } => {
            if pairs == Pairs::InsideWithOutside && initiator.origin == acceptor.origin {
                counters::refused("same origin");
                tracing::warn!(
                    %connection, initiator = %initiator.peer, acceptor = %acceptor.peer, origin = ?initiator.origin,
                    "both sides came by the same origin: not joined"
                );
                return;
            }
            if plane.totals().running >= most {
                counters::refused("too many");
                tracing::warn!(%connection, most, "too many connections are joined already: not joined");
                return;
            }
            tracing::debug!(%connection, initiator = %initiator.peer, acceptor = %acceptor.peer, "joined");
            if let Err(error) = join(plane, initiator, acceptor) {
                tracing::warn!(%connection, %error, "cannot join a pair");
            }
        }
        Admission::Refused { reason, candidate } => {
            counters::refused(reason.word());
            match reason {
                // Whoever runs the service must know of these; the ticket is genuine.
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

fn join(plane: &Plane, initiator: Candidate, acceptor: Candidate) -> io::Result<()> {
    plane.join(initiator.stream.into_std()?, acceptor.stream.into_std()?)
}

async fn sleep_until(deadline: Option<Instant>) {
    if let Some(deadline) = deadline {
        tokio::time::sleep_until(deadline.into()).await;
    }
}

/// Both clocks. The monotonic one is tokio's, so that tests can move it.
fn now() -> Now {
    Now { instant: tokio::time::Instant::now().into_std(), unix_seconds: unix_seconds(SystemTime::now()) }
}
