//! The store of a single broker. All records are in memory. Those without a lease
//! are also on disk (redb) when the call that writes them returns.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use isthmus_net::lock;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use tonic::async_trait;

use super::table::Table;
use super::{Clock, Lease, Record, Revision, Snapshot, Store, StoreError, Transaction, Watch, Write, former};

/// Key → value of the records without a lease.
pub(super) const RECORDS: TableDefinition<&str, &[u8]> = TableDefinition::new("records");

/// The open store; the file is locked while it lives.
#[derive(Clone)]
pub(crate) struct Embedded(Arc<Inner>);

struct Inner {
    database: Database,
    path: String,
    table: Mutex<Table>,
    /// Held from a transaction's comparisons until its writes are in `table`, so
    /// that readers need not wait for the disk.
    writing: Mutex<()>,
    clock: Clock,
}

impl std::fmt::Debug for Embedded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Embedded").field("path", &self.0.path).finish_non_exhaustive()
    }
}

impl Embedded {
    /// Opens the store, which it makes if need be. A file of an earlier version is
    /// brought into the present form.
    ///
    /// # Errors
    /// If another process has it open, or it can't be read or written.
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_with_clock(path, Arc::new(Instant::now))
    }

    pub(super) fn open_with_clock(path: &Path, clock: Clock) -> Result<Self, StoreError> {
        let name = path.display().to_string();
        let opened = || -> Result<_, redb::Error> {
            let database = Database::create(path)?;
            let write = database.begin_write()?;
            former::convert(&write)?;
            write.open_table(RECORDS)?;
            write.commit()?;
            let mut records = Vec::new();
            for row in database.begin_read()?.open_table(RECORDS)?.iter()? {
                let (key, value) = row?;
                records.push((key.value().to_owned(), value.value().to_owned()));
            }
            Ok((database, Table::restore(records)))
        };
        let (database, table) = opened().map_err(|error| unusable(&name, error))?;
        let inner =
            Inner { database, path: name, table: Mutex::new(table), writing: Mutex::default(), clock };
        Ok(Self(Arc::new(inner)))
    }

    /// Runs work that may wait for the disk on a thread for blocking calls. It runs to
    /// its end even if the caller stops waiting, so that disk and memory agree.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let inner = self.0.clone();
        let ended = tokio::task::spawn_blocking(move || work(&inner)).await;
        ended.unwrap_or_else(|error| {
            Err(StoreError::Unusable { path: self.0.path.clone(), reason: error.to_string() })
        })
    }
}

impl Inner {
    fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }

    fn writing(&self) -> MutexGuard<'_, ()> {
        lock(&self.writing)
    }

    fn transact(&self, transaction: Transaction) -> Result<Option<Revision>, StoreError> {
        let _writing = self.writing();
        if !self.table().check(&transaction)? {
            return Ok(None);
        }
        let lasts = |write: &&Write| match write {
            Write::Put { lease: None, .. } => true,
            // The record may be on disk, and must be deleted there.
            Write::Put { key, .. } | Write::Delete { key } => {
                self.table().get(key).is_some_and(|former| former.lease.is_none())
            }
        };
        let lasting: Vec<&Write> = transaction.writes.iter().filter(lasts).collect();
        if !lasting.is_empty() {
            self.keep(&lasting).map_err(|error| unusable(&self.path, error))?;
        }
        Ok(Some(self.table().apply(transaction.writes)))
    }

    fn keep(&self, writes: &[&Write]) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        {
            let mut records = transaction.open_table(RECORDS)?;
            for write in writes {
                match write {
                    Write::Put { key, value, lease: None } => {
                        records.insert(key.as_str(), value.as_slice())?;
                    }
                    Write::Put { key, .. } | Write::Delete { key } => {
                        records.remove(key.as_str())?;
                    }
                }
            }
        }
        Ok(transaction.commit()?)
    }
}

fn unusable(path: &str, error: redb::Error) -> StoreError {
    let reason = match error {
        redb::Error::DatabaseAlreadyOpen => "another broker uses it".to_owned(),
        other => other.to_string(),
    };
    StoreError::Unusable { path: path.to_owned(), reason }
}

#[async_trait]
impl Store for Embedded {
    async fn get(&self, key: &str) -> Result<Option<Record>, StoreError> {
        Ok(self.0.table().get(key))
    }

    async fn range(&self, prefix: &str) -> Result<Snapshot, StoreError> {
        Ok(self.0.table().range(prefix))
    }

    async fn transact(&self, transaction: Transaction) -> Result<Option<Revision>, StoreError> {
        self.blocking(|inner| inner.transact(transaction)).await
    }

    async fn watch(&self, prefix: &str, from: Revision) -> Result<Watch, StoreError> {
        self.0.table().watch(prefix, from)
    }

    async fn grant(&self, duration: Duration) -> Result<Lease, StoreError> {
        Ok(self.0.table().grant(duration, (self.0.clock)()))
    }

    async fn keep_alive(&self, lease: Lease) -> Result<(), StoreError> {
        self.0.table().keep_alive(lease, (self.0.clock)())
    }

    async fn revoke(&self, lease: Lease) -> Result<(), StoreError> {
        self.blocking(move |inner| {
            let _writing = inner.writing();
            inner.table().revoke(lease);
            Ok(())
        })
        .await
    }

    async fn expire(&self) -> Result<(), StoreError> {
        // If a write is under way, leases end at the next call.
        if let Ok(_writing) = self.0.writing.try_lock() {
            let now = (self.0.clock)();
            self.0.table().expire(now);
        }
        Ok(())
    }
}
