//! A store in memory alone.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use isthmus_service::lock;
use tonic::async_trait;

use super::table::Table;
use super::{Clock, Lease, Record, Revision, Snapshot, Store, StoreError, Transaction, Watch};

pub(crate) struct Memory {
    table: Mutex<Table>,
    clock: Clock,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Memory")
    }
}

impl Memory {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { table: Mutex::new(Table::restore([])), clock }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }
}

#[async_trait]
impl Store for Memory {
    async fn get(&self, key: &str) -> Result<Option<Record>, StoreError> {
        Ok(self.table().get(key))
    }

    async fn range(&self, prefix: &str) -> Result<Snapshot, StoreError> {
        Ok(self.table().range(prefix))
    }

    async fn transact(&self, transaction: Transaction) -> Result<Option<Revision>, StoreError> {
        let mut table = self.table();
        Ok(table.check(&transaction)?.then(|| table.apply(transaction.writes)))
    }

    async fn watch(&self, prefix: &str, from: Revision) -> Result<Watch, StoreError> {
        self.table().watch(prefix, from)
    }

    async fn grant(&self, duration: Duration) -> Result<Lease, StoreError> {
        Ok(self.table().grant(duration, (self.clock)()))
    }

    async fn keep_alive(&self, lease: Lease) -> Result<(), StoreError> {
        self.table().keep_alive(lease, (self.clock)())
    }

    async fn revoke(&self, lease: Lease) -> Result<(), StoreError> {
        self.table().revoke(lease);
        Ok(())
    }

    async fn expire(&self) -> Result<(), StoreError> {
        self.table().expire((self.clock)());
        Ok(())
    }
}
