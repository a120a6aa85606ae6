//! The ways to those who are attached.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use isthmus_wire::proto::{self, attach_down};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tracing::warn;

use crate::registry::{Effect, SessionId};

/// Messages that may wait for one gateway or relay. A gateway whose nodes all
/// come up at once gets one each, so this is what a site of 4,000 nodes needs.
/// When it is full the attachment is ended: whoever doesn't read has lost
/// track, and attaching again makes it forget what it held.
const QUEUE: usize = 4096;

/// What is sent down one attachment.
pub(crate) type Down = Result<proto::AttachDown, Status>;

struct Session {
    down_tx: mpsc::Sender<Down>,
    closed: CancellationToken,
}

/// All attachments.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<HashMap<SessionId, Session>>);

/// The two ends of one attachment that its own task holds.
pub(crate) struct Opened {
    /// broker → gateway or relay.
    pub(crate) down_rx: mpsc::Receiver<Down>,
    /// When the broker ends it.
    pub(crate) closed: CancellationToken,
}

impl Sessions {
    pub(crate) fn open(&self, session: SessionId) -> Opened {
        let (down_tx, down_rx) = mpsc::channel(QUEUE);
        let closed = CancellationToken::new();
        self.lock().insert(session, Session { down_tx, closed: closed.clone() });
        Opened { down_rx, closed }
    }

    pub(crate) fn remove(&self, session: SessionId) {
        if let Some(session) = self.lock().remove(&session) {
            session.closed.cancel();
        }
    }

    /// Ends every attachment.
    pub(crate) fn remove_all(&self) {
        for (_, session) in self.lock().drain() {
            session.closed.cancel();
        }
    }

    /// Does what the registry asks for. Never waits.
    pub(crate) fn carry_out(&self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send { to, message } => self.send(to, message),
                Effect::Close { session, reason } => {
                    let refusal = proto::Refusal { reason, node: String::new() };
                    self.send(session, attach_down::Kind::Refusal(refusal));
                    self.remove(session);
                }
            }
        }
    }

    pub(crate) fn send(&self, to: SessionId, message: attach_down::Kind) {
        let message = Ok(proto::AttachDown { kind: Some(message) });
        let full = match self.lock().get(&to) {
            Some(session) => session.down_tx.try_send(message).is_err(),
            None => false,
        };
        if full {
            warn!(session = ?to, "an attached service doesn't read what it is sent; detaching it");
            self.remove(to);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Session>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
