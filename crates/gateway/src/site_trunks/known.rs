//! What the gateway has found out to dial other sites' gateways, and to be dialed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use isthmus_identity::Credentials;
use isthmus_identity::credentials::CredentialsError;
use isthmus_plan::Failures;
use isthmus_reach::{Outside, PendingRendezvous, Signatures};
use isthmus_rpc::rendezvous::Peer;
use isthmus_service::lock;
use isthmus_wire::{GridName, proto};

/// Most gateways of other sites of which the last lookup is kept.
const KNOWN: usize = 4096;

/// What the gateway needs to dial, and to be dialed.
pub(super) struct Dialing {
    /// The connections for which this gateway waits.
    pub(super) rendezvous: Arc<PendingRendezvous>,
    pub(super) outside: Arc<Outside>,
    pub(super) failures: Arc<Mutex<Failures<Peer>>>,
    pub(super) signatures: Arc<Signatures>,
    known: Mutex<HashMap<GridName, Known>>,
    /// How this gateway is seen from outside, as the broker was told last.
    seen: Mutex<Option<proto::Seen>>,
}

/// The last lookup of a gateway, which also serves while the broker is away.
#[derive(Clone)]
pub(super) struct Known {
    pub(super) reply: Arc<proto::LookupReply>,
    pub(super) asked: Instant,
    /// Whether a dial by it has failed since, or plans have changed: the broker is to be asked again.
    pub(super) doubted: bool,
}

impl Dialing {
    pub(super) fn new(credentials: &Credentials) -> Result<Self, CredentialsError> {
        Ok(Self {
            rendezvous: Arc::default(),
            outside: Arc::default(),
            failures: Arc::default(),
            signatures: Arc::new(Signatures::new(credentials)?),
            known: Mutex::default(),
            seen: Mutex::default(),
        })
    }

    /// Takes in that plans to other sites' gateways may have changed.
    pub(super) fn plans_changed(&self) {
        lock(&self.known).values_mut().for_each(|known| known.doubted = true);
    }

    /// How this gateway is seen from outside; `None` as long as that isn't known.
    pub(super) fn seen(&self) -> Option<proto::Seen> {
        lock(&self.seen).clone()
    }

    /// The last lookup of a gateway.
    pub(super) fn known(&self, name: &GridName) -> Option<Known> {
        lock(&self.known).get(name).cloned()
    }

    /// Keeps the answer to a lookup.
    pub(super) fn keep(&self, name: &GridName, reply: Arc<proto::LookupReply>) {
        let mut known = lock(&self.known);
        if known.len() >= KNOWN && !known.contains_key(name) {
            known.clear();
        }
        known.insert(name.clone(), Known { reply, asked: Instant::now(), doubted: false });
    }

    /// Has the broker asked of a gateway again at the next lookup.
    pub(super) fn doubt(&self, name: &GridName) {
        if let Some(known) = lock(&self.known).get_mut(name) {
            known.doubted = true;
        }
    }

    /// Notes how this gateway is seen from outside. Returns whether that is new.
    pub(super) fn sees(&self, seen: &proto::Seen) -> bool {
        lock(&self.seen).replace(seen.clone()).as_ref() != Some(seen)
    }
}
