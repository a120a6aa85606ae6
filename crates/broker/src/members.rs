//! The members of the grid: who joined, with which certificate, and whose certificates
//! are revoked.
//!
//! A join, a renewal and a revocation are one transaction each over the same two records,
//! the member and the revocation of its name. So whichever comes second sees the first,
//! and no certificate outlasts a revocation that was on its way.
//!
//! The nodes of a [pilot](pilots) are members until it has ended.

mod pilots;
#[cfg(test)]
mod tests;
mod tokens;

use isthmus_identity::authority::validity;
use isthmus_identity::peers::Revoked;
use isthmus_identity::{CLOCK_SKEW, Identity, Role};
use isthmus_registry::records::{MEMBERS, REVOKED, member_key, revoked_key};
use isthmus_wire::proto;
use prost::Message;

use crate::state::State;
use crate::store::{Embedded, Revision, Store, StoreError, Transaction};

pub(crate) use pilots::{Ended, end_pilot, end_pilots_of};
pub(crate) use tokens::{Admission, OfPilot, TokenUse, UsedToken, use_token};

/// Most expired records that a single transaction deletes.
const FORGET_AT_ONCE: usize = 64;

/// A member of the grid. Times are in seconds since 1970.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct MemberRecord {
    /// The URI of the member's identity.
    #[prost(string, tag = "1")]
    pub(crate) identity: String,
    /// When it joined; zero if it became a member without a token.
    #[prost(uint64, tag = "2")]
    pub(crate) joined: u64,
    /// When the member's last certificate was issued. Zero as long as it has the certificate that
    /// it was made with.
    #[prost(uint64, tag = "3")]
    pub(crate) issued: u64,
    /// When the last certificate ends; means nothing if `issued` is zero.
    #[prost(uint64, tag = "4")]
    pub(crate) ends: u64,
    /// The member's certificates issued until this time are revoked, and it has no later
    /// certificate. Zero if none is revoked.
    #[prost(uint64, tag = "5")]
    pub(crate) revoked: u64,
    /// The id of the token by which the member joined last. Empty if there was none.
    #[prost(bytes = "vec", tag = "6")]
    pub(crate) token: Vec<u8>,
    /// How many nodes the member may have in its pilots at one time.
    #[prost(uint32, tag = "7")]
    pub(crate) pilot_nodes: u32,
    /// When the member's last certificate ends at the latest, as its pilot does. Zero if it is in no
    /// pilot.
    #[prost(uint64, tag = "8")]
    pub(crate) until: u64,
}

impl MemberRecord {
    /// A member whose certificate was issued at this time.
    pub(crate) fn new(identity: &Identity, joined: u64, issued: u64) -> Self {
        let ends = issued + validity(identity.role()).as_secs();
        Self {
            identity: identity.uri(),
            joined,
            issued,
            ends,
            revoked: 0,
            token: Vec::new(),
            pilot_nodes: 0,
            until: 0,
        }
    }

    /// The member, whose certificates end at this time at the latest; zero for no such bound.
    fn until(self, until: u64) -> Self {
        let ends = if until == 0 { self.ends } else { self.ends.min(until) };
        Self { ends, until, ..self }
    }

    /// Reads the record with this key, and its revision. Without such a record the revision is 0.
    async fn get(store: &dyn Store, key: &str) -> Result<(Option<Self>, Revision), StoreError> {
        let record = store.get(key).await?;
        let revision = record.as_ref().map_or(0, |record| record.revision);
        Ok((record.and_then(|record| Self::decode(&*record.value).ok()), revision))
    }

    /// Whether exactly this identity joined last under the record's name, and is not revoked.
    fn admits(&self, identity: &Identity) -> bool {
        self.identity == identity.uri() && self.revoked == 0
    }
}

/// What became of a renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// The certificate is to be issued as of this time. It ends at `until` at the latest, unless that
    /// is zero.
    Accepted { issued: u64, until: u64 },
    /// The identity isn't that of a member.
    NotMember,
    /// The certificate to renew is revoked, as are all that were issued until this time.
    Revoked { until: u64 },
}

/// How a member is revoked.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct How {
    /// Whether another owner may join under the name.
    pub(crate) remove: bool,
    /// Whether the site's token, by which the member joined, stays good for others.
    pub(crate) keep_token: bool,
}

/// A member whose certificates are revoked.
#[derive(Debug)]
pub(crate) struct RevokedMember {
    pub(crate) member: proto::Member,
    pub(crate) revision: Revision,
    /// When the site's token ends by which the member joined, in seconds since 1970. `None` if
    /// there is no such token, or it wasn't open.
    pub(crate) token_ends: Option<u64>,
}

/// A member's record and the revocation of its name, with their revisions.
struct MemberState {
    key: String,
    member: Option<MemberRecord>,
    member_revision: Revision,
    revoked_key: String,
    /// Certificates of the name that were issued until this time are refused; 0 if none are.
    revoked: u64,
    revoked_revision: Revision,
}

impl MemberState {
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

/// Makes the first administrator a member. The first administrator is made with the grid, and does
/// not join. If it was removed, it stays removed.
pub(crate) async fn enrol_first_administrator(store: &dyn Store) -> Result<(), StoreError> {
    let Ok(first) = Identity::new(Role::Admin, None, None, None) else { return Ok(()) };
    let state = MemberState::read(store, &first).await?;
    if state.member.is_none() && state.revoked == 0 {
        let record = MemberRecord::new(&first, 0, 0).encode_to_vec();
        store.transact(state.unchanged().put(&state.key, record, None)).await?;
    }
    Ok(())
}

/// Whether exactly this identity joined last under its name, and is not revoked.
pub(crate) async fn is_member(store: &dyn Store, identity: &Identity) -> Result<bool, StoreError> {
    let (record, _) = MemberRecord::get(store, &member_key(&member(identity))).await?;
    Ok(record.is_some_and(|record| record.admits(identity)))
}

/// Notes a member's new certificate in place of the certificate that was issued at `former`.
pub(crate) async fn renew(
    store: &dyn Store,
    identity: &Identity,
    former: u64,
    now: u64,
) -> Result<Renewal, StoreError> {
    loop {
        let state = MemberState::read(store, identity).await?;
        if former <= state.revoked {
            return Ok(Renewal::Revoked { until: state.revoked });
        }
        let member = state.member.as_ref().filter(|member| member.admits(identity));
        let Some(member) = member else { return Ok(Renewal::NotMember) };
        // The date is not before that of the certificate that it replaces. Otherwise a revocation
        // before that certificate would refuse the new one.
        let issued = now.max(former);
        let MemberRecord { token, pilot_nodes, until, .. } = member.clone();
        let renewed = MemberRecord::new(identity, member.joined, issued).until(until);
        let renewed = MemberRecord { token, pilot_nodes, ..renewed };
        let transaction = state.unchanged().put(&state.key, renewed.encode_to_vec(), None);
        // Revoked or joined anew meanwhile: the next round compares.
        if store.transact(transaction).await?.is_some() {
            return Ok(Renewal::Accepted { issued, until });
        }
    }
}

/// The members whose names come after this name, in the order of their names.
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
    let MemberRecord { identity, joined, issued, ends, revoked, .. } = record;
    // Zero, for not known, if it isn't known when the certificate was issued.
    let ends = if issued == 0 { 0 } else { ends };
    proto::Member { name: name.to_owned(), identity, joined, issued, ends, revoked }
}

/// Revokes the certificates that a member has. Closes the site's token by which it joined: the
/// token would admit the same party under another name. Returns `None` if there is no such member.
/// Deletes revocations that are no longer needed.
pub(crate) async fn revoke(
    store: &dyn Store,
    name: &str,
    how: How,
    now: u64,
) -> Result<Option<RevokedMember>, StoreError> {
    let key = member_key(name);
    loop {
        let (record, revision) = MemberRecord::get(store, &key).await?;
        let Some(record) = record else { return Ok(None) };
        let Ok(identity) = Identity::from_uri(&record.identity) else { return Ok(None) };
        let token = tokens::open(store, &record.token, now).await?;
        // A certificate may be dated later than now, if it followed a revocation in the same
        // second.
        let issued_until = now.max(record.issued);
        let ends = MemberRecord::new(&identity, 0, issued_until).until(record.until).ends;
        // Services whose clocks are late take a certificate after its end.
        let ends = ends + CLOCK_SKEW.as_secs();
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
        let transaction = if how.remove {
            transaction.delete(&key)
        } else {
            transaction.put(&key, record.encode_to_vec(), None)
        };
        let token_ends = token.as_ref().map(tokens::Open::ends);
        let transaction = match token {
            Some(token) if !how.keep_token => token.close(transaction),
            _ => transaction,
        };
        // The member joined or renewed meanwhile, or another one joined by the token: the next
        // round revokes that, too.
        if let Some(revision) = store.transact(transaction).await? {
            let member = member_to_wire(name, record);
            return Ok(Some(RevokedMember { member, revision, token_ends }));
        }
    }
}

/// The name of a member, which is unique. The TLS name is not: all gateways of a site share theirs.
pub(crate) fn member(identity: &Identity) -> String {
    match (identity.role(), identity.name().as_str()) {
        (Role::Gateway, name) if name != Role::Gateway.as_str() => {
            format!("{name}.{}", identity.server_name())
        }
        _ => identity.server_name(),
    }
}
