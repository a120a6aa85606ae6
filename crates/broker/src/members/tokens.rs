//! The use of join tokens, and their end.

use std::sync::Arc;
use std::time::Duration;

use isthmus_identity::peers::Certified;
use isthmus_identity::{Identity, Role};
use isthmus_registry::records::{TOKENS, token_key};
use prost::Message as _;

use super::pilots::{self, Minter};
use super::{FORGET_AT_ONCE, MemberRecord, MemberState, member};
use crate::store::{Record, Revision, Store, StoreError, Transaction};

/// The record of a join token that was used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UsedToken {
    pub(crate) expiry_unix_seconds: u64,
    /// SHA-256 of the HMAC of the request with which the token was used. An equal value shows the
    /// same name and the same key.
    pub(crate) request_sha256: [u8; 32],
    /// Whether this is a site's or a pilot's token that admits nobody any more.
    pub(crate) closed: bool,
    /// The name of the member that minted the token of a pilot.
    pub(crate) minted_by: Option<String>,
}

impl UsedToken {
    /// 8 bytes of expiry in network order, then the hash. If the token is closed or a pilot's, a byte
    /// follows which says whether it is closed, and then the name of the member that minted it.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let rest = match &self.minted_by {
            Some(name) => [&[u8::from(self.closed)][..], name.as_bytes()].concat(),
            None if self.closed => vec![1],
            None => Vec::new(),
        };
        [&self.expiry_unix_seconds.to_be_bytes()[..], &self.request_sha256, &rest].concat()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (expiry, rest) = bytes.split_first_chunk()?;
        let (request_sha256, rest) = rest.split_first_chunk()?;
        let expiry_unix_seconds = u64::from_be_bytes(*expiry);
        let (closed, name): (bool, &[u8]) = match rest {
            [] => (false, &[]),
            [0, name @ ..] => (false, name),
            [1, name @ ..] => (true, name),
            _ => return None,
        };
        let name = std::str::from_utf8(name).ok()?;
        let minted_by = (!name.is_empty()).then(|| name.to_owned());
        Some(Self { expiry_unix_seconds, request_sha256: *request_sha256, closed, minted_by })
    }
}

/// A join by a token.
#[derive(Debug, Clone)]
pub(crate) struct Admission<'a> {
    /// Names the token.
    pub(crate) id: [u8; 16],
    pub(crate) used: UsedToken,
    /// How many members of the identity's role a site's or a pilot's token is good for.
    pub(crate) places: Option<u32>,
    /// Who joins.
    pub(crate) identity: &'a Identity,
    /// How many nodes the member may have in its pilots at one time.
    pub(crate) pilot_nodes: u32,
    /// The pilot whose token it is.
    pub(crate) pilot: Option<OfPilot<'a>>,
}

/// A pilot whose token admits its nodes.
#[derive(Debug, Clone)]
pub(crate) struct OfPilot<'a> {
    /// The certificate of the agent that minted the token.
    pub(crate) by: &'a Certified,
    /// How long a node's certificate lasts at most.
    pub(crate) life: Duration,
}

/// What became of the use of a join token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TokenUse {
    /// The certificate is to be issued as of this time. It ends at `until` at the latest, unless that
    /// is zero.
    Accepted { issued: u64, until: u64 },
    /// The token was used before with another request. Or the same request made a member that is
    /// none any more.
    UsedBefore,
    /// The token was closed: when a member was revoked that had joined by it, or as the pilot has
    /// ended.
    Closed,
    /// The member that minted a pilot's token isn't one any more, or has no right to pilots.
    NoPilots,
    /// The member's pilots may have this many nodes at one time, and there are as many.
    TooManyPilots(u32),
    /// The token is good for this many nodes, or gateways, and there are as many.
    UsedUp(u32),
    /// A member of another owner has the name. The token is not used up. The text is
    /// that member's identity URI.
    NameTaken(String),
    /// The identity has joined too often.
    TooOften,
}

/// Marks a join token as used and its bearer as a member. A name stays with its owner: the same
/// identity may join again. A repeated request, whose answer was lost, is accepted as long as the
/// member is still the one of the first request. Deletes some tokens that have expired.
///
/// A site's token is good for `places` members of the identity's role. It has a record of itself,
/// by which its uses exclude each other, and a record of each name that it was used for. A member
/// by this token may join again under its name, unless the token is closed.
///
/// A pilot's token is used likewise. The member that minted it is written again in the same
/// transaction, so that the joins of all its pilots exclude each other and its revocation.
///
/// `may` counts a use. It isn't asked for a use that is refused in any case. Otherwise whoever has
/// a token could have any number of names counted.
pub(crate) async fn use_token(
    store: &dyn Store,
    admission: &Admission<'_>,
    now: u64,
    may: impl Fn() -> bool,
) -> Result<TokenUse, StoreError> {
    let Admission { id, ref used, places, identity, pilot_nodes, ref pilot } = *admission;
    let mut is_counted = false;
    let token_key = token_key(id);
    let key = match places {
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
        let (whole, token_revision) = revision_of(&token_key).await?;
        if whole.is_some_and(|token| token.closed) {
            return Ok(TokenUse::Closed);
        }
        let minter = match pilot {
            Some(OfPilot { by, .. }) => match pilots::minter(store, by).await? {
                Some(minter) => Some(minter),
                None => return Ok(TokenUse::NoPilots),
            },
            None => None,
        };
        let state = MemberState::read(store, identity).await?;
        let member = state.member.as_ref();
        let made = |former: &UsedToken| {
            (places.is_some() || former.request_sha256 == used.request_sha256)
                && member.is_some_and(|member| member.token == id && member.revoked == 0)
        };
        if former.as_ref().is_some_and(|former| !made(former)) {
            return Ok(TokenUse::UsedBefore);
        }
        // A pilot's node must not take the place of one that stays.
        let keeps = |holder: &&MemberRecord| {
            holder.identity != identity.uri() || pilot.is_some() && holder.until == 0 && holder.revoked == 0
        };
        if let Some(holder) = member.filter(keeps) {
            return Ok(TokenUse::NameTaken(holder.identity.clone()));
        }
        let tokens = store.range(TOKENS).await?.records;
        if former.is_none()
            && let Some(full) = full(&tokens, (&token_key, places), identity, (minter.as_ref(), now))
        {
            return Ok(full);
        }
        is_counted = is_counted || may();
        if !is_counted {
            return Ok(TokenUse::TooOften);
        }
        let issued = now.max(state.revoked + 1);
        let until = pilot.as_ref().map_or(0, |pilot| issued + pilot.life.as_secs());
        let joined = MemberRecord::new(identity, now, issued).until(until);
        let joined = MemberRecord { token: id.to_vec(), pilot_nodes, ..joined };
        let gone = tokens
            .iter()
            .filter(|(other, token)| **other != *key && **other != *token_key && expired(&token.value));
        let transaction = state.unchanged().when(&key, revision).put(&key, used.encode(), None).put(
            &state.key,
            joined.encode_to_vec(),
            None,
        );
        let transaction = match places {
            Some(_) => transaction.when(&token_key, token_revision).put(&token_key, used.encode(), None),
            None => transaction,
        };
        let transaction = match &minter {
            Some(minter) => minter.unchanged(transaction),
            None => transaction,
        };
        let transaction =
            gone.take(FORGET_AT_ONCE).fold(transaction, |transaction, (key, _)| transaction.delete(&**key));
        // The token was used or the name taken meanwhile: the next round compares.
        if store.transact(transaction).await?.is_some() {
            return Ok(TokenUse::Accepted { issued, until });
        }
    }
}

/// Whether there is no room for one more member by a token with this key; `None` if there is.
fn full(
    tokens: &[(Arc<str>, Record)],
    (token_key, places): (&str, Option<u32>),
    identity: &Identity,
    (minter, now): (Option<&Minter>, u64),
) -> Option<TokenUse> {
    if let Some(most) = places {
        let uses = tokens.iter().filter_map(|(key, _)| key.strip_prefix(token_key)?.strip_prefix('/'));
        // n1.alpha is a node, gateway.alpha and login1.gateway.alpha are gateways.
        let is_gateway = |name: &str| name.rsplit('.').nth(1) == Some(Role::Gateway.as_str());
        let alike = uses.filter(|name| is_gateway(name) == (identity.role() == Role::Gateway));
        if alike.count() >= most as usize {
            return Some(TokenUse::UsedUp(most));
        }
    }
    let most = minter?.record.pilot_nodes;
    (pilots::nodes(tokens, &minter?.name, now) >= most as usize).then_some(TokenUse::TooManyPilots(most))
}

/// A site's token that still admits members.
#[derive(Debug)]
pub(super) struct Open {
    key: String,
    revision: Revision,
    used: UsedToken,
}

impl Open {
    /// When the token ends by itself, in seconds since 1970.
    pub(super) fn ends(&self) -> u64 {
        self.used.expiry_unix_seconds
    }

    /// Closes the token with a transaction, which fails if the token is used meanwhile.
    pub(super) fn close(self, transaction: Transaction) -> Transaction {
        let closed = UsedToken { closed: true, ..self.used };
        transaction.when(&self.key, self.revision).put(&self.key, closed.encode(), None)
    }
}

/// The token with this id; `None` if it isn't a site's, or isn't open.
pub(super) async fn open(store: &dyn Store, id: &[u8], now: u64) -> Result<Option<Open>, StoreError> {
    let Ok(id) = id.try_into() else { return Ok(None) };
    let key = token_key(id);
    let Some(record) = store.get(&key).await? else { return Ok(None) };
    let used = UsedToken::decode(&record.value);
    let Some(used) = used.filter(|used| !used.closed && used.expiry_unix_seconds >= now) else {
        return Ok(None);
    };
    // Only a site's token has records of names.
    let names = store.range(&format!("{key}/")).await?.records;
    Ok((!names.is_empty()).then_some(Open { key, revision: record.revision, used }))
}
