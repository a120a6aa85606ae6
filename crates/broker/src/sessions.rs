//! The streams to the parties that are attached to this broker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::SystemTime;

use isthmus_registry::{Effect, Party, SessionId};
use isthmus_rpc::grpc::attachments::{Attachments, Opened};
use isthmus_service::clock::unix_seconds;
use isthmus_service::lock;
use isthmus_wire::proto::{self, attach_down};

/// Most messages that may wait for a gateway or relay. If all nodes of a gateway come up at once,
/// the gateway gets a message for each. This is enough for 4,000 nodes.
const QUEUE: usize = 4096;

/// The attachments of all parties to this broker.
pub(crate) struct Sessions {
    attachments: Attachments<SessionId>,
    /// The attachments of each party, of which the last counts. The registry ends a former
    /// attachment by an effect.
    parties: Mutex<BTreeMap<Party, BTreeSet<SessionId>>>,
}

impl Sessions {
    pub(crate) fn new() -> Self {
        Self { attachments: Attachments::new(QUEUE), parties: Mutex::default() }
    }

    pub(crate) fn open(&self, party: Party, session: SessionId) -> Opened {
        lock(&self.parties).entry(party).or_default().insert(session);
        self.attachments.open(session)
    }

    pub(crate) fn remove(&self, session: SessionId) {
        lock(&self.parties).retain(|_, sessions| {
            sessions.remove(&session);
            !sessions.is_empty()
        });
        self.attachments.remove(session);
    }

    /// Ends the attachments of all parties.
    pub(crate) fn remove_all(&self) {
        self.attachments.remove_all();
    }

    /// Carries out the effects that are for parties attached to this broker. Never
    /// waits.
    pub(crate) fn carry_out(&self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send { to, message } => {
                    let session = lock(&self.parties).get(&to).and_then(BTreeSet::last).copied();
                    if let Some(session) = session {
                        self.send(session, dated(message));
                    }
                }
                Effect::Close { session, reason } => self.attachments.close(session, reason),
            }
        }
    }

    /// Sends over an attachment, whether or not it is the present attachment of its party.
    pub(crate) fn send(&self, session: SessionId, message: attach_down::Kind) {
        self.attachments.send(session, message);
    }
}

/// Adds the time to a key of tickets, which expire by this broker's clock.
fn dated(message: attach_down::Kind) -> attach_down::Kind {
    match message {
        attach_down::Kind::RelayKey(key) => {
            let unix_seconds = unix_seconds(SystemTime::now());
            attach_down::Kind::RelayKey(proto::RelayKey { unix_seconds, ..key })
        }
        other => other,
    }
}
