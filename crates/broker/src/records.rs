//! The broker's records in the [store](crate::store): their keys and values.
//!
//! | key | value | lasts |
//! |---|---|---|
//! | `addresses/NODE.SITE` | virtual address | on disk |
//! | `blocks/NUMBER` | the site that the /24 block is given to | on disk |
//! | `tokens/ID` | a used join token: [`UsedToken`] | on disk |
//! | `members/NAME` | identity URI of what joined last under a TLS name | on disk |

use isthmus_net::{Identity, Role};
use isthmus_wire::{GridName, Label, VirtualAddress};

use crate::addresses::{AddressBook, Assignment, Block};
use crate::store::{Store, StoreError, Transaction};

const ADDRESSES: &str = "addresses/";
const BLOCKS: &str = "blocks/";
const TOKENS: &str = "tokens/";
/// Expired tokens that one use of another token deletes.
const FORGET_AT_ONCE: usize = 64;

pub(crate) fn address_key(node: &str) -> String {
    format!("{ADDRESSES}{node}")
}

pub(crate) fn block_key(block: u16) -> String {
    format!("{BLOCKS}{block}")
}

pub(crate) fn token_key(id: [u8; 16]) -> String {
    format!("{TOKENS}{:032x}", u128::from_be_bytes(id))
}

pub(crate) fn member_key(name: &str) -> String {
    format!("members/{name}")
}

/// The use of a join token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UsedToken {
    pub(crate) expiry_unix_seconds: u64,
    /// SHA-256 of the signing request that came with it.
    pub(crate) request_sha256: [u8; 32],
}

impl UsedToken {
    /// 8 bytes of expiry in network order, then the hash.
    pub(crate) fn encode(&self) -> Vec<u8> {
        [&self.expiry_unix_seconds.to_be_bytes()[..], &self.request_sha256].concat()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (expiry, request) = bytes.split_first_chunk()?;
        let expiry_unix_seconds = u64::from_be_bytes(*expiry);
        Some(Self { expiry_unix_seconds, request_sha256: request.try_into().ok()? })
    }
}

/// Marks a join token as used and its bearer as a member. False if it was used
/// before with another signing request; the same one may come again when its
/// answer was lost. Deletes some tokens that have expired.
pub(crate) async fn use_token(
    store: &dyn Store,
    (id, used): ([u8; 16], UsedToken),
    identity: &Identity,
    now_unix_seconds: u64,
) -> Result<bool, StoreError> {
    let key = token_key(id);
    let expired = |value: &[u8]| {
        UsedToken::decode(value).is_none_or(|used| used.expiry_unix_seconds < now_unix_seconds)
    };
    loop {
        let former = store.get(&key).await?;
        let revision = former.as_ref().map_or(0, |former| former.revision);
        let former = former.and_then(|former| UsedToken::decode(&former.value));
        if former.is_some_and(|former| former.request_sha256 != used.request_sha256) {
            return Ok(false);
        }
        let tokens = store.range(TOKENS).await?.records;
        let gone = tokens.iter().filter(|(other, token)| **other != *key && expired(&token.value));
        let transaction = Transaction::default().when(&key, revision).put(&key, used.encode(), None).put(
            member_key(&member(identity)),
            identity.uri(),
            None,
        );
        let transaction =
            gone.take(FORGET_AT_ONCE).fold(transaction, |transaction, (key, _)| transaction.delete(&**key));
        // It was used meanwhile: the next round says by whom.
        if store.transact(transaction).await?.is_some() {
            return Ok(true);
        }
    }
}

/// Whether exactly this identity joined last under its name.
pub(crate) async fn is_member(store: &dyn Store, identity: &Identity) -> Result<bool, StoreError> {
    let record = store.get(&member_key(&member(identity))).await?;
    Ok(record.is_some_and(|record| *record.value == *identity.uri().as_bytes()))
}

/// What a member is called: no two that may exist at once have the same name, as
/// gateways of a site have the same TLS name.
fn member(identity: &Identity) -> String {
    match (identity.role(), identity.name().as_str()) {
        (Role::Gateway, name) if name != Role::Gateway.as_str() => {
            format!("{name}.{}", identity.server_name())
        }
        _ => identity.server_name(),
    }
}

/// All virtual addresses given so far; none if a record can't be read.
pub(crate) async fn addresses(store: &dyn Store) -> Result<Option<AddressBook>, StoreError> {
    let (blocks, nodes) = (store.range(BLOCKS).await?.records, store.range(ADDRESSES).await?.records);
    let text = |value: &[u8]| String::from_utf8(value.to_vec()).ok();
    let blocks = blocks.iter().map(|(key, record)| {
        let block = Block(key.strip_prefix(BLOCKS)?.parse().ok()?);
        Some((block, text(&record.value)?.parse::<Label>().ok()?))
    });
    let nodes = nodes.iter().map(|(key, record)| {
        let node = key.strip_prefix(ADDRESSES)?.parse::<GridName>().ok()?;
        Some((node, VirtualAddress::new(text(&record.value)?.parse().ok()?)?))
    });
    let (blocks, nodes): (Option<Vec<_>>, Option<Vec<_>>) = (blocks.collect(), nodes.collect());
    Ok(blocks.zip(nodes).map(|(blocks, nodes)| AddressBook::restore(blocks, nodes)))
}

/// Writes an address down.
pub(crate) async fn keep_assignment(store: &dyn Store, assignment: &Assignment) -> Result<(), StoreError> {
    let node = &assignment.node;
    let address = assignment.address.to_string();
    let mut transaction = Transaction::default().put(address_key(&node.to_string()), address, None);
    if let Some(block) = assignment.new_block {
        transaction = transaction.put(block_key(block.0), node.site.to_string(), None);
    }
    store.transact(transaction).await.map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use super::*;
    use crate::store::Memory;

    #[tokio::test]
    async fn a_token_is_good_once_and_its_bearer_is_a_member() {
        let store = Memory::new(Arc::new(Instant::now));
        let identity = Identity::from_uri("isthmus:///agent/alpha/n1/anna").unwrap();
        for (name, id, request, now, good) in [
            ("first", 1, 7, 50, true),
            ("used before", 1, 8, 50, false),
            ("the same request again", 1, 7, 50, true),
            ("another token", 2, 8, 50, true),
            ("forgotten once it has expired", 3, 8, 101, true),
        ] {
            let used = UsedToken { expiry_unix_seconds: 100, request_sha256: [request; 32] };
            assert_eq!(use_token(&store, ([id; 16], used), &identity, now).await, Ok(good), "{name}");
        }
        let tokens = store.range(TOKENS).await.unwrap().records;
        assert_eq!(tokens.iter().map(|(key, _)| key.to_string()).collect::<Vec<_>>(), [token_key([3; 16])]);
        assert!(is_member(&store, &identity).await.unwrap());
        let other_owner = Identity::from_uri("isthmus:///agent/alpha/n1/berta").unwrap();
        assert!(!is_member(&store, &other_owner).await.unwrap());
    }

    #[tokio::test]
    async fn addresses_are_read_as_they_were_written() {
        let store = Memory::new(Arc::new(Instant::now));
        let mut book = AddressBook::default();
        for name in ["n1.alpha", "n1.beta"] {
            let assignment = book.assign(&name.parse().unwrap()).unwrap().1.unwrap();
            keep_assignment(&store, &assignment).await.unwrap();
        }
        let mut book = addresses(&store).await.unwrap().unwrap();
        assert_eq!(book.address(&"n1.beta".parse().unwrap()).unwrap().to_string(), "240.64.2.1");
        assert_eq!(book.assign(&"n2.alpha".parse().unwrap()).unwrap().0.to_string(), "240.64.1.2");
        store.transact(Transaction::default().put("blocks/x", "alpha", None)).await.unwrap();
        assert!(addresses(&store).await.unwrap().is_none());
    }
}
