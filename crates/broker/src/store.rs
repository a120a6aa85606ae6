//! Records by key, some with a lease, that the brokers of a grid share. They can be read, watched
//! and changed in transactions.
//!
//! [`Store`] is etcd's API in miniature, so that an implementation over etcd could be the third.
//! There are two: [`Embedded`] keeps records without a lease on disk, and counts revisions anew each
//! time it is opened. [`Memory`] keeps all in memory, for tests.

mod embedded;
mod table;

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod memory;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tonic::async_trait;

pub(crate) use isthmus_registry::records::{Lease, Revision};

pub(crate) use embedded::Embedded;
#[cfg(test)]
pub(crate) use memory::Memory;

/// The clock by which leases end.
pub(crate) type Clock = Arc<dyn Fn() -> Instant + Send + Sync>;

/// A value and when it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) value: Arc<[u8]>,
    /// The revision that wrote the record last.
    pub(crate) revision: Revision,
    /// The lease whose end deletes the record; `None` if it stays until it is deleted.
    pub(crate) lease: Option<Lease>,
}

/// The records of a prefix as of a revision, in the order of their keys.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) revision: Revision,
    pub(crate) records: Vec<(Arc<str>, Record)>,
}

/// A change of a record, which was written or, without a value, deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) key: Arc<str>,
    pub(crate) value: Option<Arc<[u8]>>,
    pub(crate) revision: Revision,
    pub(crate) lease: Option<Lease>,
}

/// A single write of a transaction.
#[derive(Debug, Clone)]
pub(crate) enum Write {
    /// Writes a record. With a lease, the record is deleted when the lease ends. Without a lease,
    /// the record is on disk when the call returns.
    Put { key: String, value: Vec<u8>, lease: Option<Lease> },
    /// Deletes a record. Has no effect if there is no record of this key.
    Delete { key: String },
}

impl Write {
    fn key(&self) -> &str {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }
}

/// A comparison of a transaction.
#[derive(Debug, Clone)]
pub(crate) enum Compare {
    /// The record was written last by this revision; 0 stands for no record.
    Revision(String, Revision),
    /// The record has this lease.
    Lease(String, Lease),
}

/// Writes that are done together if every comparison holds, and else not at all.
#[derive(Debug, Clone, Default)]
pub(crate) struct Transaction {
    pub(crate) compares: Vec<Compare>,
    /// At most one write of each key.
    pub(crate) writes: Vec<Write>,
}

impl Transaction {
    /// Adds the condition that the record of this key was last written by this revision; 0 stands
    /// for no record.
    pub(crate) fn when(mut self, key: impl Into<String>, revision: Revision) -> Self {
        self.compares.push(Compare::Revision(key.into(), revision));
        self
    }

    /// Adds the condition that the record of this key has this lease.
    pub(crate) fn held(mut self, key: impl Into<String>, lease: Lease) -> Self {
        self.compares.push(Compare::Lease(key.into(), lease));
        self
    }

    pub(crate) fn put(
        mut self,
        key: impl Into<String>,
        value: impl Into<Vec<u8>>,
        lease: Option<Lease>,
    ) -> Self {
        self.writes.push(Write::Put { key: key.into(), value: value.into(), lease });
        self
    }

    pub(crate) fn delete(mut self, key: impl Into<String>) -> Self {
        self.writes.push(Write::Delete { key: key.into() });
        self
    }
}

/// Why a call of the store failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store's file can't be used.
    #[error("the broker's store {path}: {reason}")]
    Unusable { path: String, reason: String },
    /// The lease has ended.
    #[error("lease {0} has ended")]
    NoLease(Lease),
    /// A transaction has two writes of the same key.
    #[error("one transaction writes record {0:?} twice")]
    Twice(String),
    /// A watch is to begin with changes that are no longer kept.
    #[error("the store keeps changes from revision {oldest} on only, not from {from} on")]
    Forgotten { from: Revision, oldest: Revision },
    /// Too many changes waited for a watcher.
    #[error("a watcher of the store took its changes too slowly; it must read the records anew")]
    Slow,
}

/// Records that several brokers may share.
#[async_trait]
pub(crate) trait Store: Send + Sync + fmt::Debug {
    async fn get(&self, key: &str) -> Result<Option<Record>, StoreError>;

    /// All records whose keys begin with `prefix`.
    async fn range(&self, prefix: &str) -> Result<Snapshot, StoreError>;

    /// Does a transaction and returns its revision. `None` if a comparison did not hold; then
    /// nothing was written. A caller that stops waiting does not undo the transaction.
    async fn transact(&self, transaction: Transaction) -> Result<Option<Revision>, StoreError>;

    /// Watches the records whose keys begin with `prefix`. The watch has every change of revision
    /// `from` or a later one, in order and once.
    async fn watch(&self, prefix: &str, from: Revision) -> Result<Watch, StoreError>;

    /// Grants a lease that ends after `duration` unless it is kept alive.
    async fn grant(&self, duration: Duration) -> Result<Lease, StoreError>;

    /// Lets a lease last for its whole duration again.
    async fn keep_alive(&self, lease: Lease) -> Result<(), StoreError>;

    /// Ends a lease and deletes its records in one transaction.
    async fn revoke(&self, lease: Lease) -> Result<(), StoreError>;

    /// Revokes the leases whose time has passed; to be called every second. It has no effect in a
    /// store whose server does that itself.
    async fn expire(&self) -> Result<(), StoreError>;
}

/// The changes of the records of a prefix.
#[derive(Debug)]
pub(crate) struct Watch {
    /// Changes that were there when the watch began.
    earlier: VecDeque<Change>,
    /// Changes that came later, those of a transaction together.
    changes_rx: mpsc::Receiver<Vec<Change>>,
}

impl Watch {
    /// The next changes. Changes of the same transaction arrive together, unless they were made
    /// before the watch began.
    ///
    /// # Errors
    /// [`StoreError::Slow`] after the last change that was still in the queue.
    pub(crate) async fn next(&mut self) -> Result<Vec<Change>, StoreError> {
        if !self.earlier.is_empty() {
            return Ok(std::mem::take(&mut self.earlier).into());
        }
        self.changes_rx.recv().await.ok_or(StoreError::Slow)
    }
}
