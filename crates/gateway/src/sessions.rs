//! The ways to the attached agents.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use isthmus_wire::proto::{self, attach_down};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tracing::warn;

use crate::roster::SessionId;

/// Messages that may wait for one agent: a rendezvous with each of 1,024 nodes
/// at once. When it is full the attachment is ended; attaching again makes the
/// agent forget the contacts it held.
const QUEUE: usize = 1024;

/// What is sent down one attachment.
pub(crate) type Down = Result<proto::AttachDown, Status>;

struct Session {
    down_tx: mpsc::Sender<Down>,
    closed: CancellationToken,
}

/// All attachments.
#[derive(Default)]
pub(crate) struct Sessions {
    open: Mutex<HashMap<SessionId, Session>>,
    ended: AtomicBool,
}

/// The two ends of one attachment that its own task holds.
pub(crate) struct Opened {
    /// gateway → agent.
    pub(crate) down_rx: mpsc::Receiver<Down>,
    /// When the gateway ends it.
    pub(crate) closed: CancellationToken,
}

/// Packs a message.
pub(crate) fn down(kind: attach_down::Kind) -> Down {
    Ok(proto::AttachDown { kind: Some(kind) })
}

impl Sessions {
    pub(crate) fn open(&self, session: SessionId) -> Opened {
        let (down_tx, down_rx) = mpsc::channel(QUEUE);
        let closed = CancellationToken::new();
        self.lock().insert(session, Session { down_tx, closed: closed.clone() });
        Opened { down_rx, closed }
    }

    pub(crate) fn close(&self, session: SessionId, reason: String) {
        self.send(session, attach_down::Kind::Refusal(proto::Refusal { reason, node: String::new() }));
        self.remove(session);
    }

    pub(crate) fn remove(&self, session: SessionId) {
        if let Some(session) = self.lock().remove(&session) {
            session.closed.cancel();
        }
    }

    /// Ends every attachment, because the gateway itself ends: the nodes may be
    /// well.
    pub(crate) fn remove_all(&self) {
        self.ended.store(true, Ordering::Relaxed);
        for (_, session) in self.lock().drain() {
            session.closed.cancel();
        }
    }

    /// Whether the gateway itself ends.
    pub(crate) fn have_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Never waits.
    pub(crate) fn send(&self, to: SessionId, kind: attach_down::Kind) {
        let full = self.lock().get(&to).is_some_and(|session| session.down_tx.try_send(down(kind)).is_err());
        if full {
            warn!(session = ?to, "an agent doesn't read what it is sent; detaching it");
            self.remove(to);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Session>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
