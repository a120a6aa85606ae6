//! The broker's records in the [store](crate::store): their keys and values.
//!
//! | key | value | kept |
//! |---|---|---|
//! | `addresses/NODE.SITE` | virtual address | on disk |
//! | `blocks/NUMBER` | the site that the /24 block belongs to | on disk |
//! | `tokens/ID` | a used join token: [`UsedToken`] | on disk |
//! | `members/NAME` | the party that joined under a name last: [`MemberRecord`] | on disk |
//! | `revoked/URI` | revoked certificates of an identity: `proto::Revocation` | on disk, until those have ended |
//! | `gateways/SITE/NAME` | [`GatewayRecord`] | with the gateway's attachment |
//! | `relays/NAME` | [`RelayRecord`] | with the relay's attachment |
//! | `nodes/SITE/NODE` | [`NodeRecord`] | with the attachment of the gateway that announced it |
//! | `jobs/ID` | a running job: [`JobRecord`] | with the attachment of the gateway that reported it last |

use isthmus_net::authority::validity;
use isthmus_net::peers::Revoked;
use isthmus_net::{Identity, Role};
use isthmus_wire::{GridName, JobId, Label, VirtualAddress, proto};
use prost::Message;

use crate::addresses::Block;
use crate::state::State;
use crate::store::{Embedded, Lease, Revision, Store, StoreError, Transaction};

const ADDRESSES: &str = "addresses/";
const BLOCKS: &str = "blocks/";
const TOKENS: &str = "tokens/";
const MEMBERS: &str = "members/";
const REVOKED: &str = "revoked/";
const GATEWAYS: &str = "gateways/";
const RELAYS: &str = "relays/";
const NODES: &str = "nodes/";
const JOBS: &str = "jobs/";
/// Expired tokens that one use of another token deletes.
const FORGET_AT_ONCE: usize = 64;

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
}

impl MemberRecord {
    /// A member with a certificate issued now.
    pub(crate) fn new(identity: &Identity, joined: u64, now: u64) -> Self {
        let ends = now + validity(identity.role()).as_secs();
        Self { identity: identity.uri(), joined, issued: now, ends, revoked: 0 }
    }
}

/// An attached gateway.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct GatewayRecord {
    #[prost(message, required, tag = "1")]
    pub(crate) up: proto::GatewayUp,
    /// 32 bytes that sign tickets for it.
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) key: Vec<u8>,
    /// Whether its port outside is reached.
    #[prost(message, optional, tag = "3")]
    pub(crate) outside_reach: Option<proto::Reach>,
}

/// An attached relay.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RelayRecord {
    #[prost(message, required, tag = "1")]
    pub(crate) up: proto::RelayUp,
    /// 32 bytes that sign tickets for it.
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) key: Vec<u8>,
}

/// A node as its gateway announced it.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct NodeRecord {
    #[prost(message, required, tag = "1")]
    pub(crate) contact: proto::NodeUp,
    /// Name of the gateway that announced it last.
    #[prost(string, tag = "2")]
    pub(crate) gateway: String,
    /// That gateway reported that the node's agent is gone.
    #[prost(bool, tag = "3")]
    pub(crate) down: bool,
}

/// A running job as the gateway of its head's site reported it.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct JobRecord {
    /// The site of the job's head.
    #[prost(string, tag = "1")]
    pub(crate) site: String,
    #[prost(message, required, tag = "2")]
    pub(crate) report: proto::JobReport,
}

/// A record that the registry folds. `None` for one that was deleted.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "each is taken in as soon as it is read")]
pub(crate) enum Fact {
    Address {
        node: GridName,
        address: VirtualAddress,
    },
    Block {
        block: Block,
        site: Label,
        revision: Revision,
    },
    Gateway {
        site: Label,
        name: Label,
        record: Option<(Lease, GatewayRecord)>,
    },
    Relay {
        name: Label,
        record: Option<(Lease, RelayRecord)>,
    },
    Node {
        node: GridName,
        record: Option<NodeRecord>,
    },
    Job {
        job: JobId,
        record: Option<(Label, proto::JobReport)>,
    },
    /// The URI without owner; the entry.
    Revoked {
        identity: String,
        record: Option<proto::Revocation>,
    },
}

/// A record whose key or value can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the broker's store holds a record {0:?} that can't be read; it was not written by isthmus")]
pub struct Unreadable(String);

/// Reads a record. `None` for a kind that the registry doesn't fold.
pub(crate) fn read(
    key: &str,
    value: Option<&[u8]>,
    lease: Option<Lease>,
    revision: Revision,
) -> Result<Option<Fact>, Unreadable> {
    let Some((kind, _)) = key.split_once('/') else { return Ok(None) };
    let fact = match (format!("{kind}/").as_str(), value) {
        (ADDRESSES, Some(value)) => read_address(key, value),
        (BLOCKS, Some(value)) => read_block(key, value, revision),
        (GATEWAYS, value) => read_gateway(key, value, lease),
        (RELAYS, value) => read_relay(key, value, lease),
        (NODES, value) => read_node(key, value),
        (JOBS, value) => read_job(key, value),
        (REVOKED, value) => read_revoked(key, value),
        _ => return Ok(None),
    };
    fact.map(Some).ok_or_else(|| Unreadable(key.to_owned()))
}

fn read_address(key: &str, value: &[u8]) -> Option<Fact> {
    let node = key.strip_prefix(ADDRESSES)?.parse().ok()?;
    let address = VirtualAddress::new(std::str::from_utf8(value).ok()?.parse().ok()?)?;
    Some(Fact::Address { node, address })
}

fn read_block(key: &str, value: &[u8], revision: Revision) -> Option<Fact> {
    let block = Block(key.strip_prefix(BLOCKS)?.parse().ok()?);
    Some(Fact::Block { block, site: std::str::from_utf8(value).ok()?.parse().ok()?, revision })
}

fn read_gateway(key: &str, value: Option<&[u8]>, lease: Option<Lease>) -> Option<Fact> {
    let (site, name) = key.strip_prefix(GATEWAYS)?.split_once('/')?;
    let record = match value {
        Some(value) => Some((lease?, GatewayRecord::decode(value).ok()?)),
        None => None,
    };
    Some(Fact::Gateway { site: site.parse().ok()?, name: name.parse().ok()?, record })
}

fn read_relay(key: &str, value: Option<&[u8]>, lease: Option<Lease>) -> Option<Fact> {
    let record = match value {
        Some(value) => Some((lease?, RelayRecord::decode(value).ok()?)),
        None => None,
    };
    Some(Fact::Relay { name: key.strip_prefix(RELAYS)?.parse().ok()?, record })
}

fn read_node(key: &str, value: Option<&[u8]>) -> Option<Fact> {
    let (site, node) = key.strip_prefix(NODES)?.split_once('/')?;
    let node = GridName { node: node.parse().ok()?, site: site.parse().ok()? };
    let record = match value {
        Some(value) => Some(NodeRecord::decode(value).ok()?),
        None => None,
    };
    Some(Fact::Node { node, record })
}

fn read_revoked(key: &str, value: Option<&[u8]>) -> Option<Fact> {
    let record = match value {
        Some(value) => Some(proto::Revocation::decode(value).ok()?),
        None => None,
    };
    Some(Fact::Revoked { identity: key.strip_prefix(REVOKED)?.to_owned(), record })
}

fn read_job(key: &str, value: Option<&[u8]>) -> Option<Fact> {
    let job = key.strip_prefix(JOBS)?.parse().ok()?;
    let record = match value {
        Some(value) => {
            let JobRecord { site, report } = JobRecord::decode(value).ok()?;
            Some((site.parse().ok()?, report))
        }
        None => None,
    };
    Some(Fact::Job { job, record })
}

pub(crate) fn gateway_key(site: &Label, name: &Label) -> String {
    format!("{GATEWAYS}{site}/{name}")
}

pub(crate) fn relay_key(name: &Label) -> String {
    format!("{RELAYS}{name}")
}

pub(crate) fn node_key(node: &GridName) -> String {
    format!("{NODES}{}/{}", node.site, node.node)
}

pub(crate) fn job_key(job: &JobId) -> String {
    format!("{JOBS}{job}")
}

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
    format!("{MEMBERS}{name}")
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
    Accepted,
    /// It was used before, with another request.
    UsedBefore,
    /// A member of another owner has the name. The token is not used up. The text is
    /// that member's identity URI.
    NameTaken(String),
}

/// Marks a join token as used and its bearer as a member. A name stays with its owner:
/// the same identity may join again. A repeated request, whose answer was lost, is
/// accepted. Deletes some tokens that have expired.
pub(crate) async fn use_token(
    store: &dyn Store,
    (id, used): ([u8; 16], UsedToken),
    identity: &Identity,
    now_unix_seconds: u64,
) -> Result<TokenUse, StoreError> {
    let (key, member) = (token_key(id), member_key(&member(identity)));
    let expired = |value: &[u8]| {
        UsedToken::decode(value).is_none_or(|used| used.expiry_unix_seconds < now_unix_seconds)
    };
    loop {
        let former = store.get(&key).await?;
        let revision = former.as_ref().map_or(0, |former| former.revision);
        let former = former.and_then(|former| UsedToken::decode(&former.value));
        if former.is_some_and(|former| former.request_sha256 != used.request_sha256) {
            return Ok(TokenUse::UsedBefore);
        }
        let holder = store.get(&member).await?;
        let member_revision = holder.as_ref().map_or(0, |holder| holder.revision);
        let holder = holder.and_then(|holder| MemberRecord::decode(&*holder.value).ok());
        if let Some(holder) = holder.filter(|holder| holder.identity != identity.uri()) {
            return Ok(TokenUse::NameTaken(holder.identity));
        }
        let joined = MemberRecord::new(identity, now_unix_seconds, now_unix_seconds);
        let tokens = store.range(TOKENS).await?.records;
        let gone = tokens.iter().filter(|(other, token)| **other != *key && expired(&token.value));
        let transaction = Transaction::default()
            .when(&key, revision)
            .when(&member, member_revision)
            .put(&key, used.encode(), None)
            .put(&member, joined.encode_to_vec(), None);
        let transaction =
            gone.take(FORGET_AT_ONCE).fold(transaction, |transaction, (key, _)| transaction.delete(&**key));
        // The token was used or the name taken meanwhile: the next round compares.
        if store.transact(transaction).await?.is_some() {
            return Ok(TokenUse::Accepted);
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

/// Whether exactly this identity joined last under its name, and is not revoked.
pub(crate) async fn is_member(store: &dyn Store, identity: &Identity) -> Result<bool, StoreError> {
    let record = store.get(&member_key(&member(identity))).await?;
    let record = record.and_then(|record| MemberRecord::decode(&*record.value).ok());
    Ok(record.is_some_and(|record| record.identity == identity.uri() && record.revoked == 0))
}

/// Notes a member's new certificate.
pub(crate) async fn renewed(store: &dyn Store, identity: &Identity, now: u64) -> Result<(), StoreError> {
    let key = member_key(&member(identity));
    let Some(record) = store.get(&key).await? else { return Ok(()) };
    let Ok(former) = MemberRecord::decode(&*record.value) else { return Ok(()) };
    let renewed = MemberRecord::new(identity, former.joined, now);
    let renewed = Transaction::default().when(&key, record.revision).put(&key, renewed.encode_to_vec(), None);
    // A member that was revoked meanwhile stays so.
    store.transact(renewed).await.map(drop)
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
    let MemberRecord { identity, joined, issued, ends, revoked } = record;
    proto::Member { name: name.to_owned(), identity, joined, issued, ends, revoked }
}

/// Revokes the certificates of a member that were issued until now. Returns the member
/// and the revision; `None` if there is no such member. Deletes revocations that are no
/// longer needed.
pub(crate) async fn revoke(
    store: &dyn Store,
    name: &str,
    remove: bool,
    now: u64,
) -> Result<Option<(proto::Member, Revision)>, StoreError> {
    let key = member_key(name);
    loop {
        let former = store.get(&key).await?;
        let revision = former.as_ref().map_or(0, |former| former.revision);
        let record = former.and_then(|former| MemberRecord::decode(&*former.value).ok());
        let first =
            Identity::new(Role::Admin, None, None, None).ok().filter(|_| name == Role::Admin.as_str());
        // The first administrator is made with the grid, and did not join.
        let record = record.or_else(|| first.map(|admin| MemberRecord::new(&admin, 0, now)));
        let Some(record) = record else { return Ok(None) };
        let Ok(identity) = Identity::from_uri(&record.identity) else { return Ok(None) };
        let revoked = Revoked {
            identity: Revoked::key(&identity),
            issued_until: now,
            ends: now + validity(identity.role()).as_secs(),
        };
        let record = MemberRecord { revoked: now, ..record };
        let entry = format!("{REVOKED}{}", revoked.identity);
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
            ("first", 1, 7, 50, TokenUse::Accepted),
            ("used before", 1, 8, 50, TokenUse::UsedBefore),
            ("the same request again", 1, 7, 50, TokenUse::Accepted),
            ("another token", 2, 8, 50, TokenUse::Accepted),
            ("forgotten once it has expired", 3, 8, 101, TokenUse::Accepted),
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
    async fn a_name_belongs_to_its_owner() {
        let store = Memory::new(Arc::new(Instant::now));
        let identity = |uri: &str| Identity::from_uri(uri).unwrap();
        let anna = "isthmus:///agent/alpha/n1/anna";
        let taken = || TokenUse::NameTaken(anna.to_owned());
        for (case, id, uri, want) in [
            ("new", 1, anna, TokenUse::Accepted),
            ("the same owner again", 2, anna, TokenUse::Accepted),
            ("another owner", 3, "isthmus:///agent/alpha/n1/berta", taken()),
            (
                "the refused join did not use up the token",
                3,
                "isthmus:///agent/alpha/n2/berta",
                TokenUse::Accepted,
            ),
            ("the same name at another site", 4, "isthmus:///agent/beta/n1/berta", TokenUse::Accepted),
        ] {
            let used = UsedToken { expiry_unix_seconds: 100, request_sha256: [id; 32] };
            let result = use_token(&store, ([id; 16], used), &identity(uri), 50).await;
            assert_eq!(result, Ok(want), "{case}");
        }
        assert!(is_member(&store, &identity(anna)).await.unwrap());
    }

    #[test]
    fn records_are_read_or_refused() {
        let job = JobRecord { site: "alpha".to_owned(), ..JobRecord::default() }.encode_to_vec();
        let node = NodeRecord { gateway: "a".to_owned(), ..NodeRecord::default() }.encode_to_vec();
        for (key, value, want) in [
            ("addresses/n1.alpha", &b"240.64.1.1"[..], Ok(true)),
            ("blocks/7", b"alpha", Ok(true)),
            ("nodes/alpha/n1", &node, Ok(true)),
            ("jobs/0123456789abcdef0123456789abcdef", &job, Ok(true)),
            ("tokens/07", b"x", Ok(false)),
            ("of a later version", b"x", Ok(false)),
            ("addresses/n1", b"240.64.1.1", Err(())),
            ("addresses/n1.alpha", b"10.0.0.1", Err(())),
            ("blocks/x", b"alpha", Err(())),
            ("nodes/alpha/n1", b"\xff", Err(())),
            ("relays/r1", b"", Err(())),
            ("jobs/07", &job, Err(())),
            ("jobs/0123456789abcdef0123456789abcdef", b"", Err(())),
        ] {
            let read = read(key, Some(value), None, 1).map(|fact| fact.is_some()).map_err(drop);
            assert_eq!(read, want, "{key}");
        }
        let gone = read("nodes/alpha/n1", None, None, 1);
        assert!(matches!(gone, Ok(Some(Fact::Node { record: None, .. }))), "{gone:?}");
    }
}
