//! The ways to the parties that are attached to this broker.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use isthmus_wire::proto::{self, attach_down};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tracing::warn;

use crate::registry::{Effect, Party, SessionId};

/// Messages that may wait for one gateway or relay. A gateway whose nodes all
/// come up at once gets one each, so this is what a site of 4,000 nodes needs.
/// When it is full the attachment is ended: a party that doesn't read has lost
/// track, and attaching again makes it forget what it held.
const QUEUE: usize = 4096;

/// What is sent down one attachment.
pub(crate) type Down = Result<proto::AttachDown, Status>;

struct Session {
    party: Party,
    down_tx: mpsc::Sender<Down>,
    closed: CancellationToken,
}

/// All attachments.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<Attached>);

#[derive(Default)]
struct Attached {
    sessions: HashMap<SessionId, Session>,
    /// The present attachment of each party. A former one ends when the registry
    /// says so.
    parties: HashMap<Party, SessionId>,
}

/// The two ends of one attachment that its own task holds.
pub(crate) struct Opened {
    /// broker → gateway or relay.
    pub(crate) down_rx: mpsc::Receiver<Down>,
    /// When the broker ends it.
    pub(crate) closed: CancellationToken,
}

impl Sessions {
    pub(crate) fn open(&self, party: Party, session: SessionId) -> Opened {
        let (down_tx, down_rx) = mpsc::channel(QUEUE);
        let closed = CancellationToken::new();
        let mut attached = self.lock();
        attached.parties.insert(party.clone(), session);
        attached.sessions.insert(session, Session { party, down_tx, closed: closed.clone() });
        Opened { down_rx, closed }
    }

    pub(crate) fn remove(&self, session: SessionId) {
        self.lock().remove(session);
    }

    /// Ends every attachment.
    pub(crate) fn remove_all(&self) {
        let mut attached = self.lock();
        attached.parties.clear();
        for (_, session) in attached.sessions.drain() {
            session.closed.cancel();
        }
    }

    /// Does what the registry asks for, as far as it is for parties that are
    /// attached here. Never waits.
    pub(crate) fn carry_out(&self, effects: Vec<Effect>) {
        let mut attached = self.lock();
        for effect in effects {
            match effect {
                Effect::Send { to, message } => {
                    if let Some(session) = attached.parties.get(&to).copied() {
                        attached.send(session, message);
                    }
                }
                Effect::Close { session, reason } => {
                    let refusal = proto::Refusal { reason, node: String::new() };
                    attached.send(session, attach_down::Kind::Refusal(refusal));
                    attached.remove(session);
                }
            }
        }
    }

    /// Sends over one attachment, the present one of its party or not.
    pub(crate) fn send(&self, session: SessionId, message: attach_down::Kind) {
        self.lock().send(session, message);
    }

    fn lock(&self) -> MutexGuard<'_, Attached> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Attached {
    fn send(&mut self, session: SessionId, message: attach_down::Kind) {
        let Some(to) = self.sessions.get(&session) else { return };
        let message = Ok(proto::AttachDown { kind: Some(message) });
        if to.down_tx.try_send(message).is_err() {
            warn!(party = %to.party, "an attached service doesn't read what it is sent; detaching it");
            self.remove(session);
        }
    }

    fn remove(&mut self, session: SessionId) {
        let Some(ended) = self.sessions.remove(&session) else { return };
        ended.closed.cancel();
        if self.parties.get(&ended.party) == Some(&session) {
            self.parties.remove(&ended.party);
            // One that came and was refused has taken no place.
            let others = self.sessions.iter().filter(|(_, other)| other.party == ended.party);
            if let Some(former) = others.map(|(session, _)| *session).max() {
                self.parties.insert(ended.party, former);
            }
        }
    }
}
