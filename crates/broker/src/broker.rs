//! The state that the broker's services share.

use std::sync::{Arc, Mutex, MutexGuard};

use isthmus_identity::credentials::CredentialsError;
use isthmus_identity::peers::Peers;
use isthmus_identity::signed::Verifier;
use isthmus_registry::Registry;
use isthmus_service::lock;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;
use tonic::Status;
use tracing::warn;

use crate::probes::Probes;
use crate::rendezvous::PendingRendezvous;
use crate::sessions::Sessions;
use crate::state::State;
use crate::store::{Revision, Store, StoreError};

/// The state that the broker's services share.
pub(crate) struct Broker {
    pub(crate) state: State,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) sessions: Sessions,
    pub(crate) rendezvous: PendingRendezvous,
    pub(crate) probes: Probes,
    /// The tasks that drive the attachments.
    pub(crate) tasks: TaskTracker,
    /// Sent whenever a node's record has changed.
    pub(crate) node_changed: watch::Sender<()>,
    /// The last revision of the store that the registry has folded.
    pub(crate) applied: watch::Sender<Revision>,
    /// Locked while a node gets an address.
    pub(crate) assigning: tokio::sync::Mutex<()>,
    /// The revocations, by which callers are refused.
    pub(crate) peers: Peers,
    /// Verifies what agents have signed.
    pub(crate) verifier: Verifier,
    registry: Mutex<Registry>,
}

impl Broker {
    /// A broker without attachments, over a registry that has the store's records.
    ///
    /// # Errors
    /// If the authority's certificate can't be used.
    pub(crate) fn new(
        state: State,
        store: Arc<dyn Store>,
        registry: Registry,
        peers: Peers,
    ) -> Result<Self, CredentialsError> {
        Ok(Self {
            verifier: Verifier::new(state.authority.certificate(), peers.clone())?,
            state,
            store,
            sessions: Sessions::new(),
            rendezvous: PendingRendezvous::default(),
            probes: Probes::default(),
            tasks: TaskTracker::new(),
            node_changed: watch::Sender::new(()),
            applied: watch::Sender::new(0),
            assigning: tokio::sync::Mutex::default(),
            peers,
            registry: Mutex::new(registry),
        })
    }

    pub(crate) fn registry(&self) -> MutexGuard<'_, Registry> {
        lock(&self.registry)
    }
}

/// The status that a caller gets if the store has failed; logs the error.
pub(crate) fn store_status(error: StoreError) -> Status {
    warn!(%error, "cannot use the store");
    Status::internal("the broker cannot use its store; see its log")
}
