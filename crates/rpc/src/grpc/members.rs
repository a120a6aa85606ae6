//! What the members that are connected to a service have open.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use isthmus_identity::Identity;
use isthmus_service::lock;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::share::{Share, share};
use crate::calls::At;

/// Most bytes of messages that have not arrived completely, on all calls of a member. A message may
/// have up to 4 MiB.
pub(super) const UNFINISHED: usize = 64 << 20;

/// The members that are connected to a service, by their identities.
#[derive(Debug)]
pub(super) struct Members {
    at: At,
    all: Mutex<HashMap<String, Taken>>,
}

/// What a member has open at the service.
#[derive(Debug, Default)]
struct Taken {
    /// The member's connections, the oldest first.
    connections: Vec<Connection>,
    number: u64,
    total: Arc<Total>,
}

#[derive(Debug)]
struct Connection {
    number: u64,
    calls: Arc<AtomicUsize>,
    evicted: CancellationToken,
}

/// The counts over all connections of a member.
#[derive(Debug, Default)]
struct Total {
    calls: AtomicUsize,
    /// Bytes of messages that have not arrived completely.
    unfinished: AtomicUsize,
}

/// The calls of a connection. By default nobody counts them.
#[derive(Debug, Clone, Default)]
pub(super) struct Calls {
    /// The member's name in messages, and the most calls that it may have open.
    bound: Option<(Arc<str>, usize)>,
    own: Arc<AtomicUsize>,
    total: Arc<Total>,
}

/// An open call, which counts until this is dropped.
#[derive(Debug)]
pub(super) struct Call(Calls);

/// A connection of a member, which counts until this is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    members: Arc<Members>,
    identity: String,
    number: u64,
    pub(super) share: Share,
    pub(super) calls: Calls,
    /// Cancelled when the connection must end to make room.
    pub(super) evicted: CancellationToken,
}

impl Members {
    /// The members at this service, none of which is connected yet.
    pub(super) fn at(at: At) -> Arc<Self> {
        Arc::new(Self { at, all: Mutex::default() })
    }

    /// Counts a connection. If the member has too many, its oldest connection without a call ends;
    /// `None` if each has calls. So a member whose former connections are dead gets a new one.
    /// Commands with a gateway's identity don't end the gateway's attachment either.
    pub(super) fn connect(self: &Arc<Self>, identity: &Identity) -> Option<Slot> {
        let (uri, share) = (identity.uri(), share(self.at, identity.role()));
        let mut all = lock(&self.all);
        let taken = all.entry(uri.clone()).or_default();
        if taken.connections.len() >= share.connections {
            let idle = taken.connections.iter().position(|one| one.calls.load(Relaxed) == 0)?;
            taken.connections.remove(idle).evicted.cancel();
        }
        taken.number += 1;
        let (number, evicted) = (taken.number, CancellationToken::new());
        let calls = Calls {
            bound: Some((identity.to_string().into(), share.calls)),
            own: Arc::default(),
            total: taken.total.clone(),
        };
        let connection = Connection { number, calls: calls.own.clone(), evicted: evicted.clone() };
        taken.connections.push(connection);
        Some(Slot { members: self.clone(), identity: uri, number, share, calls, evicted })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut all = lock(&self.members.all);
        if let Some(taken) = all.get_mut(&self.identity) {
            taken.connections.retain(|one| one.number != self.number);
            if taken.connections.is_empty() {
                all.remove(&self.identity);
            }
        }
    }
}

impl Calls {
    /// Counts a call.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if the member has too many calls open.
    pub(super) fn begin(&self) -> Result<Call, Status> {
        let call = Call::count(self);
        let open = self.total.calls.load(Relaxed);
        match &self.bound {
            Some((identity, most)) if open > *most => Err(Status::resource_exhausted(format!(
                "{identity} has {most} calls open at this service, on all its connections together, and may have \
                 no more; end some, or wait until they are answered"
            ))),
            _ => Ok(call),
        }
    }

    /// Counts `now` instead of `before` bytes of a message that has not arrived completely.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if the member has too many such bytes.
    pub(super) fn unfinished(&self, before: usize, now: usize) -> Result<(), Status> {
        let total = &self.total.unfinished;
        if now > before {
            total.fetch_add(now - before, Relaxed);
        } else {
            total.fetch_sub(before - now, Relaxed);
        }
        if now > 0 && total.load(Relaxed) > UNFINISHED {
            return Err(Status::resource_exhausted(format!(
                "this identity has more than {UNFINISHED} bytes of messages under way"
            )));
        }
        Ok(())
    }
}

impl Call {
    fn count(calls: &Calls) -> Self {
        calls.own.fetch_add(1, Relaxed);
        calls.total.calls.fetch_add(1, Relaxed);
        Self(calls.clone())
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.0.own.fetch_sub(1, Relaxed);
        self.0.total.calls.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(name: &str) -> Identity {
        Identity::from_uri(&format!("isthmus:///agent/alpha/{name}/anna")).unwrap()
    }

    #[test]
    fn a_members_calls_are_bounded_over_all_its_connections() {
        let members = Members::at(At::Gateway);
        let most = share(At::Gateway, isthmus_identity::Role::Agent).calls;
        let slots: Vec<_> = (0..3).map(|_| members.connect(&agent("n1")).unwrap()).collect();
        let other = members.connect(&agent("n2")).unwrap();
        let mut open: Vec<_> = (0..most).map(|n| slots[n % 3].calls.begin().unwrap()).collect();
        for slot in &slots {
            let refused = slot.calls.begin().unwrap_err();
            assert!(refused.message().starts_with("agent n1.alpha has 256 calls open"), "{refused}");
        }
        assert!(other.calls.begin().is_ok());
        open.pop();
        assert!(slots[0].calls.begin().is_ok());
        drop(open);
        assert_eq!(slots[0].calls.total.calls.load(Relaxed), 0);
        assert!(Calls::default().begin().is_ok());
    }

    #[test]
    fn a_connection_without_calls_makes_room_and_one_with_calls_stays() {
        let members = Members::at(At::Gateway);
        let most = share(At::Gateway, isthmus_identity::Role::Agent).connections;
        let mut slots: Vec<_> = (0..most).map(|_| members.connect(&agent("n1")).unwrap()).collect();
        let attached = slots[0].calls.begin().unwrap();
        let another = members.connect(&agent("n1")).unwrap();
        let evicted: Vec<_> = slots.iter().map(|slot| slot.evicted.is_cancelled()).collect();
        assert_eq!(evicted.iter().position(|evicted| *evicted), Some(1));
        assert_eq!(evicted.iter().filter(|evicted| **evicted).count(), 1);
        // The evicted connection has not been dropped yet, and doesn't count.
        let busy: Vec<_> = slots[2..].iter().chain([&another]).map(|slot| slot.calls.begin()).collect();
        assert!(members.connect(&agent("n1")).is_none() && members.connect(&agent("n2")).is_some());
        slots.pop();
        assert!(members.connect(&agent("n1")).is_some());
        drop((attached, busy, slots, another));
        assert!(lock(&members.all).is_empty());
    }

    #[test]
    fn incomplete_messages_of_one_member_are_bounded() {
        let calls = Calls::default();
        let mebibyte = 1 << 20;
        for _ in 0..UNFINISHED / mebibyte {
            calls.unfinished(0, mebibyte).unwrap();
        }
        assert!(calls.unfinished(0, 1).is_err());
        calls.unfinished(1, 0).unwrap();
        // A complete message is no longer counted.
        calls.unfinished(mebibyte, 0).unwrap();
        assert!(calls.unfinished(0, mebibyte).is_ok());
    }
}
