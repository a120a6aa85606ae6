//! What other threads do with a trunk.

use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use isthmus_identity::tls::Parts;
use isthmus_service::lock;
use isthmus_trunk::{
    Addresses, CarrierId, CarrierStatus, Incarnation, Purpose, Reason, Status, StreamId, Wanted,
};
use tokio::sync::{mpsc, oneshot};

use super::congestion::DecidedBy;
use super::stream::{Note, Stream};
use crate::mailbox::{Address, Mailbox};
use crate::tcp_info::TcpInfo;
use crate::traffic::Traffic;

/// How long a trunk's worker may take to tell how the trunk is.
pub(super) const ANSWER: Duration = Duration::from_secs(2);

/// What is known of sent data that isn't acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waits {
    /// Since when the oldest of the data waits, or has been the oldest.
    pub since: Instant,
    /// Whether it has waited for longer than it takes to find that a carrier is silent.
    pub too_long: bool,
}

/// What happens to a trunk.
#[derive(Debug)]
pub enum Notice {
    /// The peer's first HELLO has come. It tells when the peer was started, and where it is reached
    /// on its further rails, as far as it tells these.
    Established(Option<Incarnation>, Addresses),
    /// The peer has opened a stream.
    Opened(Stream),
    /// Sent data waits to be acknowledged, or none does (`None`). This is told once that takes too
    /// long, before news of a carrier, and whenever what was told has changed.
    Waits(Option<Waits>),
    /// A carrier works: the peer has answered over it, for the first time or after silence.
    Live(CarrierId),
    /// A large frame has come over a carrier. The flag tells whether one has arrived at the peer,
    /// too.
    Large(CarrierId, bool),
    /// Nothing is heard over a carrier. An answer is waited for since this time.
    Silent(CarrierId, Instant),
    /// The end that dials should keep so many carriers from now on.
    Wanted(Wanted),
    /// A carrier has ended, for this reason.
    CarrierEnded(CarrierId, String),
    /// The trunk has ended with all its streams, for this reason. This is the last notice.
    Closed(String),
}

/// The receiver of what a trunk tells its keeper.
pub type Notices = mpsc::UnboundedReceiver<Notice>;

/// Why a stream can't be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The trunk has ended, so no more streams can be opened.
    #[error("the trunk has ended")]
    Ended,
}

/// A trunk and its carriers at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// What the trunk itself knows.
    pub trunk: Status,
    /// The trunk's carriers at this end.
    pub carriers: Vec<CarrierSnapshot>,
}

/// A carrier at one moment.
#[derive(Debug, Clone)]
pub struct CarrierSnapshot {
    /// The carrier's number at this end.
    pub id: CarrierId,
    /// The carrier as the trunk sees it.
    pub status: CarrierStatus,
    /// The carrier's connection as the kernel sees it now, not when it was measured last.
    pub tcp: TcpInfo,
    /// What decides how fast the carrier sends.
    pub control: Control,
    /// The carrier's two addresses, for messages.
    pub ends: String,
}

/// What decides how fast a carrier sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    /// The name of its congestion control; empty if the kernel doesn't tell.
    pub name: String,
    /// Who decided that.
    pub decided_by: DecidedBy,
    /// Most bytes per second that it sends, beside that; `None` for most of its life.
    pub bound: Option<u64>,
}

/// How a carrier joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Joining {
    pub(crate) purpose: Purpose,
    /// Whether the carrier is primed while there is nothing to send.
    pub(crate) primes: bool,
}

/// What other threads ask of a trunk's worker.
#[derive(Debug)]
pub(crate) enum Command {
    Join(Box<Parts>, Joining, oneshot::Sender<Result<CarrierId, String>>),
    EndCarrier(CarrierId),
    Leave(CarrierId),
    Open(oneshot::Sender<Stream>),
    /// Opens a stream if that need not wait; otherwise the sender is dropped.
    OpenNow(oneshot::Sender<Stream>),
    Send(StreamId, Vec<u8>),
    Attach(StreamId, Attach),
    Drop(StreamId),
    /// Ends an attached stream at once, and resets its socket.
    Reset(StreamId),
    Status(oneshot::Sender<Snapshot>),
    Close(Reason),
}

/// A program's socket for a stream.
#[derive(Debug)]
pub(crate) struct Attach {
    pub(crate) socket: TcpStream,
    /// Bytes that the agent has received and not used.
    pub(crate) unread: Vec<u8>,
    /// What comes on the stream until it is attached.
    pub(crate) notes: mpsc::UnboundedReceiver<Note>,
    pub(crate) traffic: Arc<dyn Traffic>,
    /// Dropped by the worker when the stream has ended.
    pub(crate) alive: Arc<()>,
}

/// The commands that wait for a trunk's worker.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) address: Arc<Address>,
    mailbox: Arc<Mailbox>,
    commands: Mutex<Commands>,
}

#[derive(Debug, Default)]
struct Commands {
    waiting: Vec<Command>,
    /// Whether no worker takes commands any more.
    closed: bool,
}

impl Inbox {
    pub(crate) fn new(mailbox: Arc<Mailbox>) -> Self {
        Self { address: Arc::default(), mailbox, commands: Mutex::default() }
    }

    pub(crate) fn send(&self, command: Command) {
        let mut commands = lock(&self.commands);
        if commands.closed {
            return;
        }
        commands.waiting.push(command);
        // One wake-up is enough for all that wait.
        if commands.waiting.len() == 1 {
            self.mailbox.nudge(&self.address);
        }
    }

    /// Takes the commands that wait. For the worker alone.
    pub(crate) fn take(&self) -> Vec<Command> {
        std::mem::take(&mut lock(&self.commands).waiting)
    }

    /// Drops the commands that wait, and all later ones. A caller that waits for an answer learns
    /// that none comes.
    pub(crate) fn close(&self) {
        let mut commands = lock(&self.commands);
        commands.closed = true;
        let dropped = std::mem::take(&mut commands.waiting);
        // A dropped stream sends a command itself.
        drop(commands);
        drop(dropped);
    }
}

/// One end of a trunk. The trunk ends when the last handle is dropped.
#[derive(Debug, Clone)]
pub struct Trunk(Arc<Owner>);

#[derive(Debug)]
struct Owner(Arc<Inbox>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.send(Command::Close(Reason::Done));
    }
}

impl Trunk {
    pub(crate) fn new(inbox: Arc<Inbox>) -> Self {
        Self(Arc::new(Owner(inbox)))
    }

    fn inbox(&self) -> &Arc<Inbox> {
        &self.0.0
    }

    /// Adds a carrier, which the caller has verified to lead to the trunk's other end.
    /// Returns its id.
    ///
    /// # Errors
    /// The reason, if the trunk has ended or has too many carriers.
    pub async fn join(&self, carrier: Parts) -> Result<CarrierId, String> {
        self.join_for(carrier, Purpose::Bulk).await
    }

    /// Adds a carrier that this end has dialed for a purpose, and that leads to the trunk's other
    /// end. Returns its id.
    ///
    /// # Errors
    /// As of [`join`](Self::join).
    pub async fn join_for(&self, carrier: Parts, purpose: Purpose) -> Result<CarrierId, String> {
        self.join_so(carrier, Joining { purpose, primes: true }).await
    }

    pub(super) async fn join_so(&self, carrier: Parts, joining: Joining) -> Result<CarrierId, String> {
        let (joined_tx, joined_rx) = oneshot::channel();
        self.inbox().send(Command::Join(Box::new(carrier), joining, joined_tx));
        joined_rx.await.unwrap_or_else(|_| Err(OpenError::Ended.to_string()))
    }

    /// Has a carrier get no more frames. It ends once those under way are acknowledged, or after
    /// some seconds.
    pub fn let_leave(&self, id: CarrierId) {
        self.inbox().send(Command::Leave(id));
    }

    /// Closes a carrier at once. Frames that were under way on it go over others.
    pub fn end_carrier(&self, id: CarrierId) {
        self.inbox().send(Command::EndCarrier(id));
    }

    /// Opens a stream, as soon as the trunk is established and the peer allows one more.
    ///
    /// # Errors
    /// If the trunk ends before.
    pub async fn open(&self) -> Result<Stream, OpenError> {
        let (opened_tx, opened_rx) = oneshot::channel();
        self.inbox().send(Command::Open(opened_tx));
        opened_rx.await.map_err(|_| OpenError::Ended)
    }

    /// Opens a stream, if that need not wait. Returns `None` if the trunk isn't established or has
    /// ended, or the peer allows no more streams.
    pub async fn open_now(&self) -> Option<Stream> {
        let (opened_tx, opened_rx) = oneshot::channel();
        self.inbox().send(Command::OpenNow(opened_tx));
        opened_rx.await.ok()
    }

    /// What is known of the trunk and its carriers now; `None` once it has ended.
    pub async fn status(&self) -> Option<Snapshot> {
        let (status_tx, status_rx) = oneshot::channel();
        self.inbox().send(Command::Status(status_tx));
        status_rx.await.ok()
    }

    /// Ends the trunk with all its streams.
    pub fn close(&self, reason: Reason) {
        self.inbox().send(Command::Close(reason));
    }
}
