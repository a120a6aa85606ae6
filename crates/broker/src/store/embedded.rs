//! The store of a single broker. All records are in memory. Those without a lease
//! are also on disk (redb) when the call that writes them returns.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use isthmus_service::lock;
use redb::backends::FileBackend;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use tonic::async_trait;

use super::table::Table;
use super::{Clock, Lease, Record, Revision, Snapshot, Store, StoreError, Transaction, Watch, Write};

/// The table of the records without a lease, from key to value.
pub(super) const RECORDS: TableDefinition<&str, &[u8]> = TableDefinition::new("records");

/// The open store; the file is locked while it lives.
#[derive(Clone)]
pub(crate) struct Embedded(Arc<Inner>);

/// Opens the store's file.
type OpenFile = Box<dyn Fn() -> Result<Database, redb::DatabaseError> + Send + Sync>;

struct Inner {
    /// The open file. It is locked from a transaction's comparisons until its writes are in
    /// `table`, so that readers need not wait for the disk. `None` after a failed write.
    database: Mutex<Option<Database>>,
    open: OpenFile,
    path: String,
    table: Mutex<Table>,
    clock: Clock,
}

impl std::fmt::Debug for Embedded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Embedded").field("path", &self.0.path).finish_non_exhaustive()
    }
}

impl Embedded {
    /// Opens the store, and makes it if need be.
    ///
    /// # Errors
    /// If another process has the store open, or it can't be read or written.
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_with_clock(path, Arc::new(Instant::now))
    }

    pub(super) fn open_with_clock(path: &Path, clock: Clock) -> Result<Self, StoreError> {
        let file = path.to_owned();
        let open = move || Database::builder().create_with_backend(FileBackend::new(open_private(&file)?)?);
        Self::open_with(path, clock, Box::new(open))
    }

    fn open_with(path: &Path, clock: Clock, open: OpenFile) -> Result<Self, StoreError> {
        let name = path.display().to_string();
        let opened = || -> Result<_, redb::Error> {
            let database = open()?;
            let write = database.begin_write()?;
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
        let (database, table) = (Mutex::new(Some(database)), Mutex::new(table));
        Ok(Self(Arc::new(Inner { database, open, path: name, table, clock })))
    }

    /// Runs work that may wait for the disk on a thread for blocking calls. The work runs to its
    /// end even if the caller stops waiting, so that disk and memory agree.
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

/// Opens a file that its owner alone may read, and makes it if need be.
fn open_private(path: &Path) -> io::Result<File> {
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    // The file has secrets of others, whoever made it.
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

impl Inner {
    fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }

    fn transact(&self, transaction: Transaction) -> Result<Option<Revision>, StoreError> {
        let mut database = lock(&self.database);
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
            self.keep(&mut database, &lasting).map_err(|error| unusable(&self.path, error))?;
        }
        Ok(Some(self.table().apply(transaction.writes)))
    }

    fn keep(&self, database: &mut Option<Database>, writes: &[&Write]) -> Result<(), redb::Error> {
        // After an error, redb refuses all calls until the file is opened again.
        let open = match database.take() {
            Some(open) => open,
            None => self.reopen()?,
        };
        let transaction = open.begin_write()?;
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
        transaction.commit()?;
        *database = Some(open);
        Ok(())
    }

    /// Opens the file after a failed write, and makes it agree with the table. The error doesn't
    /// show whether the failed write is on disk.
    fn reopen(&self) -> Result<Database, redb::Error> {
        let database = (self.open)()?;
        let transaction = database.begin_write()?;
        transaction.delete_table(RECORDS)?;
        {
            let mut records = transaction.open_table(RECORDS)?;
            for (key, record) in self.table().range("").records {
                if record.lease.is_none() {
                    records.insert(&*key, &*record.value)?;
                }
            }
        }
        transaction.commit()?;
        Ok(database)
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
            let _writing = lock(&inner.database);
            inner.table().revoke(lease);
            Ok(())
        })
        .await
    }

    async fn expire(&self) -> Result<(), StoreError> {
        // If a write is under way, leases end at the next call.
        if let Ok(_writing) = self.0.database.try_lock() {
            let now = (self.0.clock)();
            self.0.table().expire(now);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use redb::StorageBackend;

    use super::*;

    /// A file on a disk that may be full.
    #[derive(Debug)]
    struct Disk {
        file: FileBackend,
        full: Arc<AtomicBool>,
    }

    impl Disk {
        fn room(&self) -> io::Result<()> {
            if self.full.load(Ordering::SeqCst) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        }
    }

    impl StorageBackend for Disk {
        fn len(&self) -> io::Result<u64> {
            self.file.len()
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.file.read(offset, out)
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.room()?;
            self.file.set_len(len)
        }

        fn sync_data(&self) -> io::Result<()> {
            self.file.sync_data()
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.room()?;
            self.file.write(offset, data)
        }

        fn close(&self) -> io::Result<()> {
            self.file.close()
        }
    }

    #[tokio::test]
    async fn a_full_disk_stops_writes_only_while_it_is_full() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("registry.redb");
        let full = Arc::new(AtomicBool::new(false));
        let (file, disk_full) = (path.clone(), full.clone());
        let open = move || {
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&file)?;
            let disk = Disk { file: FileBackend::new(file)?, full: disk_full.clone() };
            Database::builder().create_with_backend(disk)
        };
        let store = Embedded::open_with(&path, Arc::new(Instant::now), Box::new(open)).unwrap();
        let put = async |key: &str| {
            let put = Write::Put { key: key.to_owned(), value: b"value".to_vec(), lease: None };
            store.transact(Transaction { compares: Vec::new(), writes: vec![put] }).await
        };
        put("before").await.unwrap();
        full.store(true, Ordering::SeqCst);
        for _ in 0..3 {
            put("meanwhile").await.unwrap_err();
        }
        full.store(false, Ordering::SeqCst);
        put("after").await.unwrap();
        put("later").await.unwrap();
        drop(store);

        let all = Embedded::open(&path).unwrap().range("").await.unwrap().records;
        let keys: Vec<&str> = all.iter().map(|(key, _)| key.as_ref()).collect();
        assert_eq!(keys, ["after", "before", "later"]);
    }

    #[tokio::test]
    async fn its_owner_alone_may_read_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("registry.redb");
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        drop(Embedded::open(&path).unwrap());
        assert_eq!(mode(), 0o600);
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        drop(Embedded::open(&path).unwrap());
        assert_eq!(mode(), 0o600, "it was readable by all");
    }
}
