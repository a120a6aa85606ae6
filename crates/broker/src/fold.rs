//! Feeds the registry with the records in the store, and writes the records of the
//! parties that are attached to this broker.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use isthmus_registry::records::{self, Fact, Unreadable};
use isthmus_registry::{Effect, Refused, Registry, SessionId};
use isthmus_wire::{GridName, VirtualAddress, proto};
use tokio::time::{sleep, timeout};
use tonic::Status;
use tracing::{info, warn};

use crate::broker::{Broker, store_status};
use crate::store::{Change, Record, Revision, StoreError, Transaction, Watch};

/// How long a newly attached gateway may take to announce its nodes. Its agents may have to attach
/// to the gateway again first, and try at least every 5 s.
const SETTLE: Duration = Duration::from_secs(15);
/// Pause before the next try after the store has failed.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the registry may take to fold a record that was written.
const FOLDING: Duration = Duration::from_secs(5);
/// How often a transaction is tried whose comparisons fail.
const ATTEMPTS: usize = 16;

/// Keeps the registry in step with the store.
pub(crate) struct Fold {
    /// The revision of each record that the registry has folded.
    seen: BTreeMap<Arc<str>, Revision>,
    watch: Watch,
}

impl Fold {
    /// Folds all records of the store.
    ///
    /// # Errors
    /// If the store fails, or a record can't be read.
    pub(crate) async fn begin(broker: &Arc<Broker>) -> Result<Self, FoldError> {
        let watch = broker.store.watch("", broker.store.range("").await?.revision + 1).await?;
        let mut fold = Self { seen: BTreeMap::new(), watch };
        fold.catch_up(broker).await?;
        Ok(fold)
    }

    /// Folds every change; never returns.
    pub(crate) async fn keep(mut self, broker: &Arc<Broker>) {
        loop {
            let taken = match self.watch.next().await {
                Ok(changes) => self.take(broker, changes).map_err(FoldError::from),
                Err(error) => {
                    warn!(%error, "reading all records anew");
                    self.catch_up(broker).await
                }
            };
            match taken {
                Ok(()) => {}
                Err(FoldError::Unreadable(error)) => warn!(%error, "passed over"),
                Err(FoldError::Store(error)) => {
                    warn!(%error, retry_in = ?PAUSE, "cannot watch the store");
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Folds the differences between the store and the records that were folded last.
    async fn catch_up(&mut self, broker: &Arc<Broker>) -> Result<(), FoldError> {
        let snapshot = broker.store.range("").await?;
        self.watch = broker.store.watch("", snapshot.revision + 1).await?;
        let records: BTreeMap<_, _> = snapshot.records.into_iter().collect();
        let gone = self.seen.keys().filter(|key| !records.contains_key(*key)).cloned();
        let gone = gone.map(|key| Change { key, value: None, revision: snapshot.revision, lease: None });
        let written = records.iter().filter(|(key, record)| self.seen.get(*key) != Some(&record.revision));
        let written = written.map(|(key, record)| {
            let Record { value, revision, lease } = record.clone();
            Change { key: key.clone(), value: Some(value), revision, lease }
        });
        let changes: Vec<_> = gone.chain(written).collect();
        self.take(broker, changes)?;
        broker.applied.send_replace(snapshot.revision);
        Ok(())
    }

    fn take(&mut self, broker: &Arc<Broker>, changes: Vec<Change>) -> Result<(), Unreadable> {
        let mut result = Ok(());
        let mut last = None;
        for Change { key, value, revision, lease } in changes {
            match records::read(&key, value.as_deref(), lease, revision) {
                Ok(fact) => fact.map(|fact| apply(broker, fact)).unwrap_or_default(),
                Err(error) => result = Err(error),
            }
            match value {
                Some(_) => self.seen.insert(key, revision),
                None => self.seen.remove(&key),
            };
            last = Some(revision);
        }
        if let Some(revision) = last {
            broker.applied.send_replace(revision);
        }
        result
    }
}

/// Why the registry can't follow the store.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FoldError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

fn apply(broker: &Arc<Broker>, fact: Fact) {
    let node = matches!(&fact, Fact::Node { .. });
    // A gateway that attaches has some time to announce its nodes. The nodes of a gateway that
    // detaches have some time to attach elsewhere.
    let (attached, detached) = match &fact {
        Fact::Gateway { record: Some((session, _)), .. } => (Some(*session), None),
        Fact::Gateway { site, name, record: None } => (None, Some((site.clone(), name.clone()))),
        Fact::Address { .. }
        | Fact::Block { .. }
        | Fact::Relay { .. }
        | Fact::Node { .. }
        | Fact::Revoked { .. }
        | Fact::Job { .. } => (None, None),
    };
    if let Fact::Revoked { record: Some(entry), .. } = &fact {
        broker.peers.receive(proto::Revocations { revoked: vec![entry.clone()] });
    }
    let mut registry = broker.registry();
    let attached = attached.filter(|session| registry.gateway_of(*session).is_none());
    let effects = registry.fold(fact);
    drop(registry);
    broker.sessions.carry_out(effects);
    if node {
        broker.node_changed.send_replace(());
    }
    if let Some(session) = attached {
        after_settling(broker, move |registry| registry.settle(session));
    }
    if let Some((site, name)) = detached {
        after_settling(broker, move |registry| registry.settle_without(&site, &name));
    }
}

fn after_settling(broker: &Arc<Broker>, settle: impl FnOnce(&mut Registry) -> Vec<Effect> + Send + 'static) {
    // Weak, so that this task doesn't keep a broker that ends.
    let broker = Arc::downgrade(broker);
    tokio::spawn(async move {
        sleep(SETTLE).await;
        if let Some(broker) = broker.upgrade() {
            let effects = settle(&mut broker.registry());
            broker.sessions.carry_out(effects);
        }
    });
}

/// How a record of an attachment changes.
#[derive(Debug)]
pub(crate) enum RecordChange {
    None,
    Put(Vec<u8>),
    Delete,
}

/// Why a record isn't written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotWritten {
    #[error("{0}")]
    Refused(Refused),
    #[error("{}", .0.message())]
    Failed(Status),
}

impl From<Refused> for NotWritten {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

impl From<StoreError> for NotWritten {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NoLease(_) => Self::Refused(Refused("this attachment has ended".to_owned())),
            other => Self::Failed(store_status(other)),
        }
    }
}

impl Broker {
    /// Waits until the registry has folded this revision.
    pub(crate) async fn reached(&self, revision: Revision) -> Result<(), NotWritten> {
        let mut applied = self.applied.subscribe();
        let reached = timeout(FOLDING, applied.wait_for(|applied| *applied >= revision)).await;
        match reached {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => {
                let text = format!("the broker did not see its own write within {FOLDING:?}");
                Err(NotWritten::Failed(Status::unavailable(text)))
            }
        }
    }

    /// Writes or deletes a record of an attachment. `make` gets the registry and the present
    /// record. `guard` adds further conditions. Returns once the registry has folded the change.
    pub(crate) async fn write(
        &self,
        (key, session): (&str, SessionId),
        guard: impl Fn(Transaction) -> Transaction,
        make: impl Fn(&Registry, Option<&Record>) -> Result<RecordChange, Refused>,
    ) -> Result<(), NotWritten> {
        for _ in 0..ATTEMPTS {
            let former = self.store.get(key).await?;
            let revision = former.as_ref().map_or(0, |former| former.revision);
            self.reached(revision).await?;
            let change = make(&self.registry(), former.as_ref())?;
            let transaction = Transaction::default().when(key, revision);
            let transaction = match change {
                RecordChange::None => return Ok(()),
                RecordChange::Put(value) => transaction.put(key, value, Some(session)),
                RecordChange::Delete => transaction.delete(key),
            };
            if let Some(revision) = self.store.transact(guard(transaction)).await? {
                return self.reached(revision).await;
            }
        }
        let reason = format!("this attachment has ended, or others wrote the same record {ATTEMPTS} times");
        Err(Refused(reason).into())
    }

    /// The address of a node. A node without an address gets one.
    pub(crate) async fn address_for(&self, node: &GridName) -> Result<VirtualAddress, NotWritten> {
        let proposed = || self.registry().address_of(node).map_err(|error| Refused(error.to_string()));
        if let Ok(address) = proposed()? {
            return Ok(address);
        }
        // Nodes get addresses one after the other. Otherwise the first nodes of many new sites
        // would all propose the same block, and all but one of them in vain.
        let waiting = timeout(FOLDING, self.assigning.lock()).await;
        let _assigning = waiting.map_err(|_| {
            let text = format!("others got addresses for {FOLDING:?}, and it was not this node's turn");
            NotWritten::Failed(Status::unavailable(text))
        })?;
        for _ in 0..ATTEMPTS {
            let assignment = match proposed()? {
                Ok(address) => return Ok(address),
                Err(assignment) => assignment,
            };
            let (key, block) =
                (records::address_key(&node.to_string()), records::block_key(assignment.block.0));
            let transaction = Transaction::default()
                .when(&key, 0)
                .when(&block, assignment.block_revision)
                .put(key, assignment.address.to_string(), None)
                .put(&block, node.site.to_string(), None);
            let revision = match self.store.transact(transaction).await? {
                Some(revision) => {
                    info!(%node, virtual_address = %assignment.address, "new node");
                    revision
                }
                None => self.store.range(&block).await?.revision,
            };
            self.reached(revision).await?;
        }
        Err(Refused(format!("no address could be written down for {node}")).into())
    }
}
