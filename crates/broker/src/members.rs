//! The members of the grid: who joined, with which certificate, and whose certificates
//! are revoked.
//!
//! A join, a renewal and a revocation are one transaction each over the same two records,
//! the member and the revocation of its name. So whichever comes second sees the first,
//! and no certificate outlasts a revocation that was on its way.

#[cfg(test)]
mod tests;

use isthmus_net::authority::validity;
use isthmus_net::peers::Revoked;
use isthmus_net::{Identity, Role};
use isthmus_wire::proto;
use prost::Message;

use crate::records::{MEMBERS, REVOKED, TOKENS, member_key, revoked_key, token_key};
use crate::state::State;
use crate::store::{Embedded, Revision, Store, StoreError, Transaction};

/// Expired tokens that one use of another token deletes.
const FORGET_AT_ONCE: usize = 64;
/// Gateways that a site's token makes.
const MOST_GATEWAYS: usize = 16;

/// A member of the grid. Times are in seconds since 1970.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct MemberRecord {
    /// The URI of its identity.
    #[prost(string, tag = "1")]
    pub(crate) identity: String,
    /// Zero if it became a member without a token.
    #[prost(uint64, tag = "2")]
    pub(crate) joined: u64,
    /// Its last certificate.
    #[prost(uint64, tag = "3")]
    pub(crate) issued: u64,
    /// That certificate's end.
    #[prost(uint64, tag = "4")]
    pub(crate) ends: u64,
    /// Its certificates issued until then are revoked, and it has no later one. Zero
    /// otherwise.
    #[prost(uint64, tag = "5")]
    pub(crate) revoked: u64,
    /// The id of the token by which it joined last. Empty if there was none.
    #[prost(bytes = "vec", tag = "6")]
    pub(crate) token: Vec<u8>,
}

impl MemberRecord {
    /// A member with a certificate of this time.
    pub(crate) fn new(identity: &Identity, joined: u64, issued: u64) -> Self {
        let ends = issued + validity(identity.role()).as_secs();
        Self { identity: identity.uri(), joined, issued, ends, revoked: 0, token: Vec::new() }
    }

    /// Reads the record with this key, and its revision: 0 if there is none.
    async fn get(store: &dyn Store, key: &str) -> Result<(Option<Self>, Revision), StoreError> {
        let record = store.get(key).await?;
        let revision = record.as_ref().map_or(0, |record| record.revision);
        Ok((record.and_then(|record| Self::decode(&*record.value).ok()), revision))
    }

    /// Whether exactly this identity joined last under its name, and is not revoked.
    fn admits(&self, identity: &Identity) -> bool {
        self.identity == identity.uri() && self.revoked == 0
    }
}

/// The use of a join token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UsedToken {
    pub(crate) expiry_unix_seconds: u64,
    /// SHA-256 of the HMAC of the request with which it was used: the same name and the
    /// same key.
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

/// What became of the use of a join token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TokenUse {
    /// The certificate is to be issued as of this time.
    Accepted { issued: u64 },
    /// It was used before with another request, or what the same request has made a
    /// member is none any more.
    UsedBefore,
    /// It is good for so many nodes, or gateways, and there are as many.
    UsedUp(usize),
    /// A member of another owner has the name. The token is not used up. The text is
    /// that member's identity URI.
    NameTaken(String),
}

/// What became of a renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// The certificate is to be issued as of this time.
    Accepted { issued: u64 },
    /// It isn't a member.
    NotMember,
    /// The certificate to renew is revoked: all issued until this time are.
    Revoked { until: u64 },
}

/// A member's record and the revocation of its name, with their revisions.
struct Standing {
    key: String,
    member: Option<MemberRecord>,
    member_revision: Revision,
    revoked_key: String,
    /// Certificates of the name issued until then are refused; 0 if none are.
    revoked: u64,
    revoked_revision: Revision,
}

impl Standing {
    async fn read(store: &dyn Store, identity: &Identity) -> Result<Self, StoreError> {
        let (key, revoked_key) = (member_key(&member(identity)), revoked_key(&Revoked::key(identity)));
        let (member, member_revision) = MemberRecord::get(store, &key).await?;
        let entry = store.get(&revoked_key).await?;
        let revoked_revision = entry.as_ref().map_or(0, |entry| entry.revision);
        let entry = entry.and_then(|entry| proto::Revocation::decode(&*entry.value).ok());
        let revoked = entry.map_or(0, |entry| entry.issued_until);
        Ok(Self { key, member, member_revision, revoked_key, revoked, revoked_revision })
    }

    /// A transaction that holds only as long as both records are as they were read.
    fn unchanged(&self) -> Transaction {
        let transaction = Transaction::default().when(&self.key, self.member_revision);
        transaction.when(&self.revoked_key, self.revoked_revision)
    }
}

/// Marks a join token as used and its bearer as a member. A name stays with its owner:
/// the same identity may join again. A repeated request, whose answer was lost, is
/// accepted as long as the member is the one that the first made. Deletes some tokens
/// that have expired.
///
/// A token that is good for several `nodes` has a record of itself, by which its uses exclude
/// each other, and one of each name that it was used for. Who is a member by it may join
/// again under that name.
pub(crate) async fn use_token(
    store: &dyn Store,
    (id, used): ([u8; 16], UsedToken),
    nodes: Option<u32>,
    identity: &Identity,
    now: u64,
) -> Result<TokenUse, StoreError> {
    let token_key = token_key(id);
    let key = match nodes {
        None => token_key.clone(),
        Some(_) => format!("{token_key}/{}", member(identity)),
    };
    let expired = |value: &[u8]| UsedToken::decode(value).is_none_or(|used| used.expiry_unix_seconds < now);
    loop {
        let revision_of = async |key: &str| -> Result<_, StoreError> {
            let record = store.get(key).await?;
            let revision = record.as_ref().map_or(0, |record| record.revision);
            Ok((record.and_then(|record| UsedToken::decode(&record.value)), revision))
        };
        let (former, revision) = revision_of(&key).await?;
        let (_, token_revision) = revision_of(&token_key).await?;
        let standing = Standing::read(store, identity).await?;
        let member = standing.member.as_ref();
        let made = |former: &UsedToken| {
            (nodes.is_some() || former.request_sha256 == used.request_sha256)
                && member.is_some_and(|member| member.token == id && member.revoked == 0)
        };
        if former.as_ref().is_some_and(|former| !made(former)) {
            return Ok(TokenUse::UsedBefore);
        }
        if let Some(holder) = member.filter(|holder| holder.identity != identity.uri()) {
            return Ok(TokenUse::NameTaken(holder.identity.clone()));
        }
        let tokens = store.range(TOKENS).await?.records;
        if let Some(nodes) = nodes.filter(|_| former.is_none()) {
            let most = if identity.role() == Role::Gateway { MOST_GATEWAYS } else { nodes as usize };
            let uses = tokens.iter().filter_map(|(key, _)| key.strip_prefix(&token_key)?.strip_prefix('/'));
            // n1.alpha is a node, gateway.alpha and login1.gateway.alpha are gateways.
            let is_gateway = |name: &str| name.rsplit('.').nth(1) == Some(Role::Gateway.as_str());
            if uses.filter(|name| is_gateway(name) == (identity.role() == Role::Gateway)).count() >= most {
                return Ok(TokenUse::UsedUp(most));
            }
        }
        let issued = now.max(standing.revoked + 1);
        let joined = MemberRecord { token: id.to_vec(), ..MemberRecord::new(identity, now, issued) };
        let gone = tokens
            .iter()
            .filter(|(other, token)| **other != *key && **other != *token_key && expired(&token.value));
        let transaction = standing.unchanged().when(&key, revision).put(&key, used.encode(), None).put(
            &standing.key,
            joined.encode_to_vec(),
            None,
        );
        let transaction = match nodes {
            Some(_) => transaction.when(&token_key, token_revision).put(&token_key, used.encode(), None),
            None => transaction,
        };
        let transaction =
            gone.take(FORGET_AT_ONCE).fold(transaction, |transaction, (key, _)| transaction.delete(&**key));
        // The token was used or the name taken meanwhile: the next round compares.
        if store.transact(transaction).await?.is_some() {
            return Ok(TokenUse::Accepted { issued });
        }
    }
}

/// Makes identities members of the grid of a state directory, whose broker does not
/// run. For tests with many nodes.
///
/// # Errors
/// If the store can't be written.
pub async fn enrol_without_tokens(state: &State, identities: &[Identity]) -> Result<(), StoreError> {
    let store = Embedded::open(&state.store_path())?;
    let put = |transaction: Transaction, identity: &Identity| {
        transaction.put(
            member_key(&member(identity)),
            MemberRecord::new(identity, 0, 0).encode_to_vec(),
            None,
        )
    };
    for some in identities.chunks(256) {
        store.transact(some.iter().fold(Transaction::default(), put)).await?;
    }
    Ok(())
}

/// Makes the first administrator a member: it is made with the grid, and does not join.
/// One that was removed stays so.
pub(crate) async fn enrol_first_administrator(store: &dyn Store) -> Result<(), StoreError> {
    let Ok(first) = Identity::new(Role::Admin, None, None, None) else { return Ok(()) };
    let standing = Standing::read(store, &first).await?;
    if standing.member.is_none() && standing.revoked == 0 {
        let record = MemberRecord::new(&first, 0, 0).encode_to_vec();
        store.transact(standing.unchanged().put(&standing.key, record, None)).await?;
    }
    Ok(())
}

/// Whether exactly this identity joined last under its name, and is not revoked.
pub(crate) async fn is_member(store: &dyn Store, identity: &Identity) -> Result<bool, StoreError> {
    let (record, _) = MemberRecord::get(store, &member_key(&member(identity))).await?;
    Ok(record.is_some_and(|record| record.admits(identity)))
}

/// Notes a member's new certificate in place of the one issued at `former`.
pub(crate) async fn renew(
    store: &dyn Store,
    identity: &Identity,
    former: u64,
    now: u64,
) -> Result<Renewal, StoreError> {
    loop {
        let standing = Standing::read(store, identity).await?;
        if former <= standing.revoked {
            return Ok(Renewal::Revoked { until: standing.revoked });
        }
        let member = standing.member.as_ref().filter(|member| member.admits(identity));
        let Some(member) = member else { return Ok(Renewal::NotMember) };
        // Not before the certificate that it replaces, or a revocation before that one
        // would refuse it.
        let issued = now.max(former);
        let token = member.token.clone();
        let renewed = MemberRecord { token, ..MemberRecord::new(identity, member.joined, issued) };
        let transaction = standing.unchanged().put(&standing.key, renewed.encode_to_vec(), None);
        // Revoked or joined anew meanwhile: the next round compares.
        if store.transact(transaction).await?.is_some() {
            return Ok(Renewal::Accepted { issued });
        }
    }
}

/// The members from after this name on, in the order of their names.
pub(crate) async fn members(
    store: &dyn Store,
    after: &str,
) -> Result<impl Iterator<Item = proto::Member>, StoreError> {
    let records = store.range(MEMBERS).await?.records;
    let from = member_key(after);
    let later = records.into_iter().filter(move |(key, _)| **key > *from);
    Ok(later.filter_map(|(key, record)| {
        let record = MemberRecord::decode(&*record.value).ok()?;
        Some(member_to_wire(key.strip_prefix(MEMBERS)?, record))
    }))
}

fn member_to_wire(name: &str, record: MemberRecord) -> proto::Member {
    let MemberRecord { identity, joined, issued, ends, revoked, token: _ } = record;
    proto::Member { name: name.to_owned(), identity, joined, issued, ends, revoked }
}

/// Revokes the certificates that a member has. Returns the member and the revision;
/// `None` if there is no such member. Deletes revocations that are no longer needed.
pub(crate) async fn revoke(
    store: &dyn Store,
    name: &str,
    remove: bool,
    now: u64,
) -> Result<Option<(proto::Member, Revision)>, StoreError> {
    let key = member_key(name);
    loop {
        let (record, revision) = MemberRecord::get(store, &key).await?;
        let Some(record) = record else { return Ok(None) };
        let Ok(identity) = Identity::from_uri(&record.identity) else { return Ok(None) };
        // A certificate may be dated later than now: one that followed a revocation in the
        // same second.
        let issued_until = now.max(record.issued);
        let ends = issued_until + validity(identity.role()).as_secs();
        let revoked = Revoked { identity: Revoked::key(&identity), issued_until, ends };
        let record = MemberRecord { revoked: issued_until, ..record };
        let entry = revoked_key(&revoked.identity);
        let ended = store.range(REVOKED).await?.records.into_iter().filter(|(other, record)| {
            **other != *entry && proto::Revocation::decode(&*record.value).is_ok_and(|entry| entry.ends < now)
        });
        let value = proto::Revocation::from(revoked).encode_to_vec();
        let transaction = Transaction::default().when(&key, revision).put(&entry, value, None);
        let transaction =
            ended.take(FORGET_AT_ONCE).fold(transaction, |transaction, (key, _)| transaction.delete(&*key));
        let transaction = if remove {
            transaction.delete(&key)
        } else {
            transaction.put(&key, record.encode_to_vec(), None)
        };
        // The member joined or renewed meanwhile: the next round revokes that, too.
        if let Some(revision) = store.transact(transaction).await? {
            return Ok(Some((member_to_wire(name, record), revision)));
        }
    }
}

/// The name of a member. It is unique, unlike the TLS name, which all gateways of a
/// site share.
pub(crate) fn member(identity: &Identity) -> String {
    match (identity.role(), identity.name().as_str()) {
        (Role::Gateway, name) if name != Role::Gateway.as_str() => {
            format!("{name}.{}", identity.server_name())
        }
        _ => identity.server_name(),
    }
}
