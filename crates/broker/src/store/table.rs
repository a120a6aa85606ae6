//! The records, their leases and their watchers in memory, which both
//! implementations share. Plain data; the caller has the clock and the disk.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::{Change, Compare, Lease, Record, Revision, Snapshot, StoreError, Transaction, Watch, Write};

/// Most changes that are kept for watches from an earlier revision; [`HISTORY_BYTES`] bounds their
/// bytes.
const HISTORY: usize = 16 * 1024;
const HISTORY_BYTES: usize = 64 << 20;
/// Most transactions that may wait for a watcher.
const WAITING: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Table {
    records: BTreeMap<Arc<str>, Record>,
    leases: BTreeMap<Lease, LeaseEntry>,
    revision: Revision,
    /// The latest changes, oldest first.
    history: VecDeque<Change>,
    /// Bytes of the values in `history`.
    history_bytes: usize,
    /// The last revision of which `history` lacks a change.
    forgotten: Revision,
    watchers: Vec<Watcher>,
    last_lease: u64,
}

#[derive(Debug)]
struct LeaseEntry {
    duration: Duration,
    ends: Instant,
    keys: BTreeSet<Arc<str>>,
}

#[derive(Debug)]
struct Watcher {
    prefix: String,
    changes_tx: mpsc::Sender<Vec<Change>>,
}

impl Table {
    /// A table with records from disk, all of revision 1.
    pub(super) fn restore(records: impl IntoIterator<Item = (String, Vec<u8>)>) -> Self {
        let record = |(key, value): (String, Vec<u8>)| {
            (key.into(), Record { value: value.into(), revision: 1, lease: None })
        };
        let records = records.into_iter().map(record).collect();
        Self { records, revision: 1, forgotten: 1, ..Self::default() }
    }

    pub(super) fn get(&self, key: &str) -> Option<Record> {
        self.records.get(key).cloned()
    }

    pub(super) fn range(&self, prefix: &str) -> Snapshot {
        let from = self.records.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        let records = from.take_while(|(key, _)| key.starts_with(prefix));
        let records = records.map(|(key, record)| (key.clone(), record.clone())).collect();
        Snapshot { revision: self.revision, records }
    }

    /// Whether every comparison of a transaction holds.
    ///
    /// # Errors
    /// If the transaction writes a record twice, or with a lease that has ended.
    pub(super) fn check(&self, transaction: &Transaction) -> Result<bool, StoreError> {
        let mut keys = BTreeSet::new();
        for write in &transaction.writes {
            if !keys.insert(write.key()) {
                return Err(StoreError::Twice(write.key().to_owned()));
            }
            if let Write::Put { lease: Some(lease), .. } = write {
                self.leases.get(lease).ok_or(StoreError::NoLease(*lease))?;
            }
        }
        let holds = |compare: &Compare| match compare {
            Compare::Revision(key, wanted) => {
                self.records.get(key.as_str()).map_or(0, |record| record.revision) == *wanted
            }
            Compare::Lease(key, wanted) => {
                self.records.get(key.as_str()).is_some_and(|record| record.lease == Some(*wanted))
            }
        };
        Ok(transaction.compares.iter().all(holds))
    }

    /// Does the writes of a transaction that was checked.
    pub(super) fn apply(&mut self, writes: Vec<Write>) -> Revision {
        let revision = self.revision + 1;
        let mut changes = Vec::new();
        for write in writes {
            let key: Arc<str> = write.key().into();
            let (lease, value) = match write {
                Write::Put { value, lease, .. } => (lease, Some(Arc::<[u8]>::from(value))),
                Write::Delete { .. } => (None, None),
            };
            let former = match &value {
                Some(value) => {
                    let record = Record { value: value.clone(), revision, lease };
                    self.records.insert(key.clone(), record)
                }
                None => match self.records.remove(&key) {
                    Some(former) => Some(former),
                    None => continue,
                },
            };
            if let Some(former) = former.and_then(|former| self.leases.get_mut(&former.lease?)) {
                former.keys.remove(&key);
            }
            if let Some(entry) = lease.and_then(|lease| self.leases.get_mut(&lease)) {
                entry.keys.insert(key.clone());
            }
            changes.push(Change { key, value, revision, lease });
        }
        if !changes.is_empty() {
            self.revision = revision;
            self.publish(changes);
        }
        self.revision
    }

    fn publish(&mut self, changes: Vec<Change>) {
        self.watchers.retain(|watcher| {
            let own: Vec<_> =
                changes.iter().filter(|change| change.key.starts_with(&watcher.prefix)).cloned().collect();
            // A full queue ends the watch: its sender is dropped.
            own.is_empty() || watcher.changes_tx.try_send(own).is_ok()
        });
        self.history_bytes += changes.iter().map(value_bytes).sum::<usize>();
        self.history.extend(changes);
        while self.history.len() > HISTORY || self.history_bytes > HISTORY_BYTES {
            let Some(oldest) = self.history.pop_front() else { return };
            self.history_bytes -= value_bytes(&oldest);
            self.forgotten = oldest.revision;
        }
    }

    /// The changes of a prefix from revision `from` on; see [`super::Store::watch`].
    pub(super) fn watch(&mut self, prefix: &str, from: Revision) -> Result<Watch, StoreError> {
        if from <= self.forgotten {
            return Err(StoreError::Forgotten { from, oldest: self.forgotten + 1 });
        }
        let own = |change: &&Change| change.revision >= from && change.key.starts_with(prefix);
        let earlier = self.history.iter().filter(own).cloned().collect();
        let (changes_tx, changes_rx) = mpsc::channel(WAITING);
        self.watchers.retain(|watcher| !watcher.changes_tx.is_closed());
        self.watchers.push(Watcher { prefix: prefix.to_owned(), changes_tx });
        Ok(Watch { earlier, changes_rx })
    }

    pub(super) fn grant(&mut self, duration: Duration, now: Instant) -> Lease {
        self.last_lease += 1;
        let lease = Lease(self.last_lease);
        self.leases.insert(lease, LeaseEntry { duration, ends: now + duration, keys: BTreeSet::new() });
        lease
    }

    pub(super) fn keep_alive(&mut self, lease: Lease, now: Instant) -> Result<(), StoreError> {
        let entry = self.leases.get_mut(&lease).ok_or(StoreError::NoLease(lease))?;
        entry.ends = now + entry.duration;
        Ok(())
    }

    /// Ends a lease and deletes its records, as a single change.
    pub(super) fn revoke(&mut self, lease: Lease) {
        let keys = self.leases.remove(&lease).map(|entry| entry.keys).unwrap_or_default();
        let delete = |key: Arc<str>| Write::Delete { key: key.to_string() };
        self.apply(keys.into_iter().map(delete).collect());
    }

    /// Revokes the leases that have ended by `now`.
    pub(super) fn expire(&mut self, now: Instant) {
        let ended = |(lease, entry): (&Lease, &LeaseEntry)| (entry.ends <= now).then_some(*lease);
        let ended: Vec<_> = self.leases.iter().filter_map(ended).collect();
        for lease in ended {
            self.revoke(lease);
        }
    }
}

fn value_bytes(change: &Change) -> usize {
    change.value.as_ref().map_or(0, |value| value.len())
}
