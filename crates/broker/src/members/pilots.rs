//! Pilots: batch jobs whose nodes an agent lets in by a token that it has minted itself. The nodes
//! are members until that agent says that the pilot has ended, or the agent itself is revoked.

use std::sync::Arc;

use isthmus_identity::Identity;
use isthmus_identity::peers::Certified;
use isthmus_registry::records::{MEMBERS, TOKENS, node_key, token_key};
use isthmus_service::clock::unix_seconds;
use isthmus_wire::GridName;
use prost::Message as _;

use super::{How, MemberRecord, MemberState, UsedToken, is_member, member, revoke};
use crate::store::{Record, Revision, Store, StoreError, Transaction};

/// Most tokens of one member that are remembered though nobody has joined by them.
const UNUSED: usize = 1000;
/// For how long an end is remembered at most, in seconds: no token is good for longer.
const REMEMBERED: u64 = 366 * 24 * 3600;

/// The member that has minted a pilot's token.
pub(super) struct Minter {
    pub(super) name: String,
    pub(super) record: MemberRecord,
    key: String,
    revision: Revision,
}

impl Minter {
    /// Has a transaction fail if the member's record has changed, and writes the record again. So two
    /// such transactions exclude each other.
    pub(super) fn unchanged(&self, transaction: Transaction) -> Transaction {
        transaction.when(&self.key, self.revision).put(&self.key, self.record.encode_to_vec(), None)
    }
}

/// The member with this certificate; `None` if it may have no pilots.
pub(super) async fn minter(store: &dyn Store, by: &Certified) -> Result<Option<Minter>, StoreError> {
    let state = MemberState::read(store, &by.identity).await?;
    let may = |record: &MemberRecord| {
        record.admits(&by.identity) && record.pilot_nodes > 0 && unix_seconds(by.issued) > state.revoked
    };
    Ok(state.member.filter(may).map(|record| Minter {
        name: member(&by.identity),
        record,
        key: state.key,
        revision: state.member_revision,
    }))
}

/// How many nodes a member has in its pilots.
pub(super) fn nodes(tokens: &[(Arc<str>, Record)], minter: &str, now: u64) -> usize {
    let of_node = |key: &str| key.strip_prefix(TOKENS).is_some_and(|rest| rest.contains('/'));
    let lasts = |record| minted_by(record, minter).is_some_and(|used| used.expiry_unix_seconds >= now);
    tokens.iter().filter(|(key, record)| of_node(key) && lasts(record)).count()
}

/// The use of a token, if this member has minted it.
fn minted_by(record: &Record, name: &str) -> Option<UsedToken> {
    UsedToken::decode(&record.value).filter(|used| used.minted_by.as_deref() == Some(name))
}

/// What became of a pilot's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    /// So many nodes were members until now. The revision has the last change.
    Done { members: u32, revision: Revision },
    /// The agent isn't a member, or another one minted the token.
    NotMinted,
    /// The agent has ended too many pilots that had no nodes.
    TooMany,
}

/// Ends a pilot as the agent says that minted its token: nobody joins by the token any more, and its
/// nodes are no members. To be called again if it fails. `expires` says, in seconds since 1970,
/// until when the end of a token must be remembered by which nobody has joined.
pub(crate) async fn end_pilot(
    store: &dyn Store,
    id: [u8; 16],
    by: &Identity,
    expires: u64,
    now: u64,
) -> Result<Ended, StoreError> {
    if !is_member(store, by).await? {
        return Ok(Ended::NotMinted);
    }
    let name = member(by);
    let unused = UsedToken {
        expiry_unix_seconds: expires.min(now.saturating_add(REMEMBERED)),
        request_sha256: [0; 32],
        closed: true,
        minted_by: Some(name.clone()),
    };
    loop {
        let key = token_key(id);
        let record = store.get(&key).await?;
        let revision = record.as_ref().map_or(0, |record| record.revision);
        let tokens = store.range(TOKENS).await?.records;
        let closed = match &record {
            Some(record) => match minted_by(record, &name) {
                Some(used) => UsedToken { closed: true, ..used },
                None => return Ok(Ended::NotMinted),
            },
            None if tokens.iter().filter(|(_, record)| minted_by(record, &name).is_some()).count()
                >= UNUSED =>
            {
                return Ok(Ended::TooMany);
            }
            None => unused.clone(),
        };
        let names = tokens
            .iter()
            .filter(|(other, _)| other.strip_prefix(&key).is_some_and(|rest| rest.starts_with('/')));
        let transaction = Transaction::default().when(&key, revision).put(&key, closed.encode(), None);
        let transaction = names.fold(transaction, |transaction, (key, _)| transaction.delete(&**key));
        // A node has joined by it meanwhile: the next round has its name, too.
        if let Some(revision) = store.transact(transaction).await? {
            return end_members(store, id, revision, now).await;
        }
    }
}

/// Ends all pilots of a member that was revoked. Returns how many nodes were members until now.
pub(crate) async fn end_pilots_of(store: &dyn Store, name: &str, now: u64) -> Result<u32, StoreError> {
    let mut ended = 0;
    for (key, record) in store.range(TOKENS).await?.records {
        // The records of its nodes have a longer key.
        let id = key.strip_prefix(TOKENS).and_then(|id| u128::from_str_radix(id, 16).ok());
        let (Some(used), Some(id)) = (minted_by(&record, name), id) else { continue };
        let closed = UsedToken { closed: true, ..used }.encode();
        // Without a comparison: whoever joins by it compares, and finds it closed.
        store.transact(Transaction::default().put(&*key, closed, None)).await?;
        if let Ended::Done { members, .. } = end_members(store, id.to_be_bytes(), 0, now).await? {
            ended += members;
        }
    }
    Ok(ended)
}

/// Revokes and removes the members that have joined by a token.
async fn end_members(
    store: &dyn Store,
    id: [u8; 16],
    mut revision: Revision,
    now: u64,
) -> Result<Ended, StoreError> {
    let how = How { remove: true, keep_token: true };
    let mut members = 0;
    for (key, record) in store.range(MEMBERS).await?.records {
        let joined = MemberRecord::decode(&*record.value).is_ok_and(|member| member.token == id);
        let Some(name) = key.strip_prefix(MEMBERS).filter(|_| joined) else { continue };
        if let Some(revoked) = revoke(store, name, how, now).await? {
            (members, revision) = (members + 1, revoked.revision);
        }
        // A node that comes no more is no node that is down.
        if let Ok(node) = name.parse::<GridName>() {
            store.transact(Transaction::default().delete(node_key(&node))).await?;
        }
    }
    Ok(Ended::Done { members, revision })
}

#[cfg(test)]
mod tests;
