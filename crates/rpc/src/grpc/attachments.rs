//! The serving ends of attachments: messages that a broker sends to gateways and
//! relays, and a gateway to agents, during their `Attach` calls.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use isthmus_service::{counters, lock};
use isthmus_wire::proto::{self, attach_down, attach_up};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};
use tracing::warn;

/// How long a caller may take to send its first message.
const HELLO_DEADLINE: Duration = Duration::from_secs(10);

/// A message to the caller of an attachment.
pub type Down = Result<proto::AttachDown, Status>;

/// All attachments at a service, each by an id that is never used twice.
#[derive(Debug)]
pub struct Attachments<Id> {
    open: Mutex<HashMap<Id, Open>>,
    queue: usize,
    ended: AtomicBool,
}

#[derive(Debug)]
struct Open {
    down_tx: mpsc::Sender<Down>,
    closed: CancellationToken,
}

/// The end of an attachment for the task that drives it.
#[derive(Debug)]
pub struct Opened {
    /// Messages from the service to the caller.
    pub down_rx: mpsc::Receiver<Down>,
    /// Cancelled when the service ends the attachment.
    pub closed: CancellationToken,
}

/// The first message of an attachment, which names the caller.
///
/// # Errors
/// `DEADLINE_EXCEEDED` if the message doesn't come within 10 s; the stream's errors.
pub async fn first_message(
    inbound: &mut Streaming<proto::AttachUp>,
) -> Result<Option<attach_up::Kind>, Status> {
    let first = timeout(HELLO_DEADLINE, inbound.message()).await;
    let late = |_| Status::deadline_exceeded(format!("no first message within {HELLO_DEADLINE:?}"));
    Ok(first.map_err(late)??.and_then(|message| message.kind))
}

/// The answer to an attachment that is refused: the reason, and then the end of the stream.
pub fn refusal(reason: String) -> ReceiverStream<Down> {
    let (down_tx, down_rx) = mpsc::channel(1);
    // The queue is empty, and its other end is here.
    let _ = down_tx.try_send(pack(refused(reason)));
    ReceiverStream::new(down_rx)
}

fn refused(reason: String) -> attach_down::Kind {
    attach_down::Kind::Refusal(proto::Refusal { reason, node: String::new() })
}

fn pack(kind: attach_down::Kind) -> Down {
    Ok(proto::AttachDown { kind: Some(kind) })
}

impl<Id: Eq + Hash + Copy + fmt::Debug> Attachments<Id> {
    /// No attachments yet. At most `queue` messages wait for a caller. A caller for which more
    /// would wait is detached: it has missed messages, and attaching again resets its state.
    pub fn new(queue: usize) -> Self {
        Self { open: Mutex::default(), queue, ended: AtomicBool::new(false) }
    }

    /// Opens an attachment with this id.
    pub fn open(&self, id: Id) -> Opened {
        let (down_tx, down_rx) = mpsc::channel(self.queue);
        let closed = CancellationToken::new();
        let mut open = lock(&self.open);
        open.insert(id, Open { down_tx, closed: closed.clone() });
        counters::attached(open.len());
        drop(open);
        if self.have_ended() {
            closed.cancel();
        }
        Opened { down_rx, closed }
    }

    /// Sends a message over the attachment with this id, if there is one; never waits.
    pub fn send(&self, to: Id, kind: attach_down::Kind) {
        let full = lock(&self.open).get(&to).is_some_and(|open| open.down_tx.try_send(pack(kind)).is_err());
        if full {
            warn!(attachment = ?to, "a caller does not read its messages; detaching it");
            self.remove(to);
        }
    }

    /// Ends an attachment, and sends the reason before.
    pub fn close(&self, id: Id, reason: String) {
        self.send(id, refused(reason));
        self.remove(id);
    }

    /// Ends an attachment without a reason.
    pub fn remove(&self, id: Id) {
        let mut open = lock(&self.open);
        if let Some(ended) = open.remove(&id) {
            ended.closed.cancel();
            counters::attached(open.len());
        }
    }

    /// Ends all attachments, because the service ends.
    pub fn remove_all(&self) {
        self.ended.store(true, Ordering::SeqCst);
        for (_, open) in lock(&self.open).drain() {
            open.closed.cancel();
        }
    }

    /// Whether all attachments have ended because the service ends.
    pub fn have_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }
}
