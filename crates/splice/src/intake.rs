//! Where connections arrive, and which of them may be spliced.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use isthmus_carry::Share;
use isthmus_rpc::port::Passed;
use isthmus_service::unidentified::Unidentified;
use isthmus_wire::ticket::TICKET_LEN;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

use crate::expected::ReachTests;
use crate::ticket_key::TicketKey;

/// The side from which a connection arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// From outside the site: from any address.
    Outside,
    /// From within the gateway's site.
    Inside,
}

/// A connection that has shown a ticket, or waits for its other side.
#[derive(Debug)]
pub struct Candidate {
    /// The socket of the candidate's connection.
    pub stream: TcpStream,
    /// The address of the connection's other end.
    pub peer: SocketAddr,
    /// The side from which the connection arrived.
    pub origin: Origin,
}

/// Which two candidates may be spliced, if their tickets match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairs {
    /// Any two candidates, as at a relay.
    Any,
    /// A candidate from inside with one from outside. So a gateway carries nothing between two
    /// outside peers.
    InsideWithOutside,
}

/// Where connections from outside arrive.
#[derive(Debug)]
pub enum Outside {
    /// At a port of the intake's own.
    Own(TcpListener),
    /// At the port of another service of the process, which passes them on.
    Shared(mpsc::Receiver<Passed>),
}

impl From<TcpListener> for Outside {
    fn from(listener: TcpListener) -> Self {
        Self::Own(listener)
    }
}

/// Waits for the next connection from outside. At a port of the intake's own, the connection enters
/// `own`. Otherwise it is among the unidentified connections of the port that passed it
/// on.
pub(crate) async fn accept(outside: Option<&mut Outside>, own: &Arc<Unidentified>) -> io::Result<Passed> {
    let passed = match outside {
        Some(Outside::Own(listener)) => {
            let (stream, peer) = listener.accept().await?;
            return Ok(Passed { stream, peer, entry: own.enter(peer.ip()) });
        }
        Some(Outside::Shared(passed_rx)) => passed_rx.recv().await,
        None => None,
    };
    match passed {
        Some(passed) => Ok(passed),
        None => std::future::pending().await,
    }
}

/// The sources of candidates.
#[derive(Debug)]
pub struct Intake {
    /// Where connections from outside arrive; `None` for a gateway without a port outside.
    pub outside: Option<Outside>,
    /// Candidates that arrive another way, with the tickets that they showed.
    pub arrivals_rx: mpsc::Receiver<([u8; TICKET_LEN], Candidate)>,
    /// Which two candidates may be spliced.
    pub pairs: Pairs,
    /// What is relayed for others at the port outside, besides; `None` for nothing.
    pub relaying: Option<Relaying>,
    /// The reach tests that the port outside expects.
    pub reach_tests: Arc<ReachTests>,
    /// Takes TLS connections to the port outside; `None` if nothing takes them.
    pub encrypted: Option<Encrypted>,
    /// How long the intake waits for the first key of tickets before it takes anything. `None` if
    /// it takes connections at once, and refuses tickets until the key comes.
    pub patience: Option<Duration>,
}

/// Connections that a gateway joins as a relay does, with tickets of their own: any two.
#[derive(Debug, Clone)]
pub struct Relaying {
    /// The keys of these tickets, the latest one.
    pub keys: watch::Receiver<Option<TicketKey>>,
    /// Most connections at once.
    pub most: u64,
    /// What they share, and their counters.
    pub share: Arc<Share>,
}

/// Takes connections that begin with TLS, until their other ends are verified.
#[derive(Clone)]
pub struct Encrypted(pub(crate) Arc<dyn Fn(TcpStream) -> Verifying + Send + Sync>);

pub(crate) type Verifying = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

impl Encrypted {
    /// Makes this of `verify`, which returns when the other end is verified, or why it isn't. Until
    /// then the connection counts as one that has shown no ticket.
    pub fn new<F>(verify: impl Fn(TcpStream) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<()>> + Send + 'static,
    {
        Self(Arc::new(move |tcp| Box::pin(verify(tcp))))
    }
}

impl std::fmt::Debug for Encrypted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Encrypted")
    }
}

impl Intake {
    /// An intake with a port outside, where any two candidates may be spliced. It has no further
    /// rules.
    pub fn open(outside: impl Into<Outside>) -> Self {
        Self {
            outside: Some(outside.into()),
            arrivals_rx: mpsc::channel(1).1,
            pairs: Pairs::Any,
            relaying: None,
            reach_tests: Arc::default(),
            encrypted: None,
            patience: None,
        }
    }
}
