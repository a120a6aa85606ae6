//! Contacts of other sites, and the lookups at the broker that have no answer so far.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use isthmus_service::lock;
use isthmus_wire::{VirtualAddress, proto};
use tokio::sync::OnceCell;
use tonic::Status;

use crate::cache::Cache;

/// The broker's answer to a lookup, for which several agents may wait.
type Pending = Arc<OnceCell<Result<proto::LookupReply, Status>>>;
/// The virtual address and the name in a lookup's request.
type Key = (u32, String);
type PendingLookups = HashMap<Key, Pending>;

/// Contacts of other sites, and lookups at the broker.
#[derive(Default)]
pub(crate) struct Lookups {
    cache: Mutex<Cache>,
    /// Lookups that have no answer so far. When a job starts, its agents look each node up many
    /// times at once.
    pending: Mutex<PendingLookups>,
}

impl Lookups {
    /// Drops a contact that has changed. Returns whether agents may hold it.
    pub(crate) fn changed(&self, address: VirtualAddress) -> bool {
        lock(&self.cache).changed(address)
    }

    /// Drops nothing, as plans alone may have changed. Returns whether agents may hold a contact.
    pub(crate) fn plans_changed(&self) -> bool {
        lock(&self.cache).plans_changed()
    }

    /// What is known of a node of another site without asking the broker.
    pub(crate) fn known(&self, request: &proto::LookupRequest) -> Option<proto::LookupReply> {
        lock(&self.cache).find(request).cloned()
    }

    /// Drops all contacts of other sites. Returns whether agents may hold any of them.
    pub(crate) fn all_changed(&self) -> bool {
        lock(&self.cache).all_changed()
    }

    /// The contacts that are held.
    pub(crate) fn cache(&self) -> MutexGuard<'_, Cache> {
        lock(&self.cache)
    }

    /// Asks the broker once, by `ask`, for all agents that look up the same node meanwhile.
    pub(crate) async fn together(
        &self,
        request: &proto::LookupRequest,
        ask: impl Future<Output = Result<proto::LookupReply, Status>>,
    ) -> Result<proto::LookupReply, Status> {
        let key = (request.virtual_address, request.name.clone());
        let pending = lock(&self.pending).entry(key.clone()).or_default().clone();
        let waiting = Waiting { all: &self.pending, key, pending };
        waiting.pending.get_or_init(|| ask).await.clone()
    }
}

/// A call that waits for a pending lookup. The first of these calls that ends removes the lookup
/// from the map, with an answer or because its agent cancelled the call.
struct Waiting<'a> {
    all: &'a Mutex<PendingLookups>,
    key: Key,
    pending: Pending,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut all = lock(self.all);
        if all.get(&self.key).is_some_and(|current| Arc::ptr_eq(current, &self.pending)) {
            all.remove(&self.key);
        }
    }
}
