//! What must last, in an embedded store (redb): who was let in, which token
//! was used, which node has which virtual address. Every write is on disk when
//! the call returns; callers are asynchronous and use a blocking thread.

use std::path::Path;

use isthmus_net::{Identity, Role};
use isthmus_wire::{GridName, Label, VirtualAddress};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use crate::addresses::{AddressBook, Assignment, Block};

/// Block number → site.
const BLOCKS: TableDefinition<u16, &str> = TableDefinition::new("address-blocks");
/// Grid name → virtual address.
const NODES: TableDefinition<&str, u32> = TableDefinition::new("nodes");
/// Id of a used join token → when it expires, seconds since 1970-01-01 UTC, and
/// SHA-256 of the signing request that it was used with.
const TOKENS: TableDefinition<[u8; 16], (u64, [u8; 32])> = TableDefinition::new("used-tokens");
/// TLS name → identity URI, of everybody who ever joined.
const MEMBERS: TableDefinition<&str, &str> = TableDefinition::new("members");

/// The store can't be used.
#[derive(Debug, thiserror::Error)]
#[error("the broker's store {path}: {reason}")]
pub struct StoreError {
    path: String,
    reason: String,
}

/// One use of a join token.
#[derive(Debug, Clone)]
pub struct TokenUse {
    /// The token's id.
    pub id: [u8; 16],
    /// When it expires, seconds since 1970-01-01 UTC.
    pub expiry_unix_seconds: u64,
    /// SHA-256 of the signing request that came with it.
    pub request_sha256: [u8; 32],
    /// Who it made of its bearer.
    pub identity: Identity,
}

/// The open store; the file is locked while it lives.
pub struct Store {
    database: Database,
    path: String,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the store, which it makes if need be.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let name = path.display().to_string();
        let failed = |reason: redb::Error| StoreError { path: name.clone(), reason: explain(reason) };
        let database = Database::create(path).map_err(|error| failed(error.into()))?;
        let create = || -> Result<(), redb::Error> {
            let write = database.begin_write()?;
            write.open_table(BLOCKS)?;
            write.open_table(NODES)?;
            write.open_table(TOKENS)?;
            write.open_table(MEMBERS)?;
            Ok(write.commit()?)
        };
        create().map_err(failed)?;
        Ok(Self { database, path: name })
    }

    /// All virtual addresses given so far.
    pub fn addresses(&self) -> Result<AddressBook, StoreError> {
        let read = || -> Result<_, redb::Error> {
            let read = self.database.begin_read()?;
            let mut blocks: Vec<(Block, Option<Label>)> = Vec::new();
            for row in read.open_table(BLOCKS)?.iter()? {
                let (block, site) = row?;
                blocks.push((Block(block.value()), site.value().parse().ok()));
            }
            let mut nodes: Vec<(Option<GridName>, Option<VirtualAddress>)> = Vec::new();
            for row in read.open_table(NODES)?.iter()? {
                let (node, address) = row?;
                nodes.push((node.value().parse().ok(), VirtualAddress::new(address.value().into())));
            }
            Ok((blocks, nodes))
        };
        let (blocks, nodes) = read().map_err(|error| self.failed(error))?;
        let foreign =
            || StoreError { path: self.path.clone(), reason: "it holds something unreadable".to_owned() };
        let blocks: Option<Vec<_>> = blocks.into_iter().map(|(block, site)| Some((block, site?))).collect();
        let nodes: Option<Vec<_>> =
            nodes.into_iter().map(|(node, address)| Some((node?, address?))).collect();
        Ok(AddressBook::restore(blocks.ok_or_else(foreign)?, nodes.ok_or_else(foreign)?))
    }

    /// Writes an address down.
    pub fn keep_assignment(&self, assignment: &Assignment) -> Result<(), StoreError> {
        self.write(|write| {
            let node = assignment.node.to_string();
            write.open_table(NODES)?.insert(node.as_str(), u32::from(assignment.address.ip()))?;
            if let Some(block) = assignment.new_block {
                write.open_table(BLOCKS)?.insert(block.0, assignment.node.site.as_str())?;
            }
            Ok(())
        })
    }

    /// Marks a join token as used. False if it was before with another signing
    /// request; the same one may come again when its answer was lost.
    /// Forgets tokens that have expired, which nobody can use any more.
    pub fn use_token(&self, used: &TokenUse, now_unix_seconds: u64) -> Result<bool, StoreError> {
        let mut good = false;
        self.write(|write| {
            let mut tokens = write.open_table(TOKENS)?;
            tokens.retain(|_, (expiry, _)| expiry >= now_unix_seconds)?;
            let former = tokens.get(used.id)?.map(|former| former.value().1);
            good = former.is_none_or(|request| request == used.request_sha256);
            if good {
                tokens.insert(used.id, (used.expiry_unix_seconds, used.request_sha256))?;
                let (name, uri) = (member(&used.identity), used.identity.uri());
                write.open_table(MEMBERS)?.insert(name.as_str(), uri.as_str())?;
            }
            Ok(())
        })?;
        Ok(good)
    }

    /// Whether exactly this identity joined last under its name.
    pub fn is_member(&self, identity: &Identity) -> Result<bool, StoreError> {
        let read = || -> Result<_, redb::Error> {
            let members = self.database.begin_read()?.open_table(MEMBERS)?;
            let uri = members.get(member(identity).as_str())?;
            Ok(uri.is_some_and(|uri| uri.value() == identity.uri()))
        };
        read().map_err(|error| self.failed(error))
    }

    fn write(
        &self,
        change: impl FnOnce(&redb::WriteTransaction) -> Result<(), redb::Error>,
    ) -> Result<(), StoreError> {
        let write = || -> Result<(), redb::Error> {
            let write = self.database.begin_write()?;
            change(&write)?;
            Ok(write.commit()?)
        };
        write().map_err(|error| self.failed(error))
    }

    fn failed(&self, error: redb::Error) -> StoreError {
        StoreError { path: self.path.clone(), reason: explain(error) }
    }
}

fn explain(error: redb::Error) -> String {
    match error {
        redb::Error::DatabaseAlreadyOpen => "another broker uses it".to_owned(),
        other => other.to_string(),
    }
}

/// What a member is called: no two that may be there at once have the same, as
/// gateways of a site have the same TLS name.
fn member(identity: &Identity) -> String {
    match (identity.role(), identity.name().as_str()) {
        (Role::Gateway, name) if name != Role::Gateway.as_str() => {
            format!("{name}.{}", identity.server_name())
        }
        _ => identity.server_name(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_there_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("registry.redb");
        let identity = Identity::from_uri("isthmus:///agent/alpha/n1/anna").unwrap();
        let used = |id, request| TokenUse {
            id: [id; 16],
            expiry_unix_seconds: 100,
            request_sha256: [request; 32],
            identity: identity.clone(),
        };
        let other_owner = Identity::from_uri("isthmus:///agent/alpha/n1/berta").unwrap();
        {
            let store = Store::open(&path).unwrap();
            assert!(Store::open(&path).unwrap_err().to_string().ends_with("another broker uses it"));
            let mut book = store.addresses().unwrap();
            for name in ["n1.alpha", "n1.beta"] {
                let assignment = book.assign(&name.parse().unwrap()).unwrap().1.unwrap();
                store.keep_assignment(&assignment).unwrap();
            }
            assert!(store.use_token(&used(1, 7), 50).unwrap());
        }
        let store = Store::open(&path).unwrap();
        let mut book = store.addresses().unwrap();
        assert_eq!(book.address(&"n1.beta".parse().unwrap()).unwrap().to_string(), "240.64.2.1");
        assert_eq!(book.assign(&"n2.alpha".parse().unwrap()).unwrap().0.to_string(), "240.64.1.2");
        assert!(!store.use_token(&used(1, 8), 50).unwrap(), "used before");
        assert!(store.use_token(&used(1, 7), 50).unwrap(), "the same request again");
        assert!(store.use_token(&used(2, 8), 50).unwrap(), "another token");
        assert!(store.is_member(&identity).unwrap());
        assert!(!store.is_member(&other_owner).unwrap());
    }
}
