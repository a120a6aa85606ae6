//! A trunk that stands, with what its service knows of it.

use std::sync::{Arc, Mutex};

use isthmus_carry::trunk::Kept;
use isthmus_carry::trunk::seen::Shown;
use isthmus_rpc::rendezvous::Peer;
use isthmus_service::lock;
use isthmus_trunk::CarrierId;
use isthmus_wire::GridName;

use crate::way::{CarrierWay, DialedWay};
use crate::ways::Ways;

/// What services of one kind alone know of a trunk.
pub trait Own: Default + Send + Sync + 'static {
    /// Whether the trunk may end to make room for another with the same party.
    fn makes_room(&self, kept: &Kept) -> bool {
        kept.is_cut()
    }
}

impl Own for () {}

/// A trunk that stands.
#[derive(Debug)]
pub struct Standing<O> {
    /// The other end.
    pub name: GridName,
    /// The trunk that is kept.
    pub kept: Arc<Kept>,
    /// What this kind of service alone knows of it.
    pub own: O,
    last: Mutex<Last>,
    ways: Mutex<Ways>,
    peer: Mutex<Option<Peer>>,
}

/// A trunk's last carrier.
#[derive(Debug, Clone)]
pub struct Last {
    /// How the carrier was dialed; `None` if the other end has dialed it and hasn't told the way
    /// yet.
    pub way: Option<CarrierWay>,
    /// The carrier's addresses, for messages.
    pub ends: Arc<str>,
}

impl<O: Own> Standing<O> {
    /// Makes the record of a trunk. `peer` is whom this end dials for its carriers; `None` if only
    /// the other end dials.
    pub fn new(name: GridName, kept: Arc<Kept>, last: Last, peer: Option<Peer>) -> Self {
        let (last, peer) = (Mutex::new(last), Mutex::new(peer));
        Self { name, kept, own: O::default(), last, ways: Mutex::default(), peer }
    }

    /// Whom this end dials for the trunk's carriers; `None` if only the other end dials.
    pub fn peer(&self) -> Option<Peer> {
        lock(&self.peer).clone()
    }

    /// Has this end dial the trunk's carriers, too.
    pub fn dial_at(&self, peer: impl Into<Peer>) {
        lock(&self.peer).get_or_insert(peer.into());
    }

    /// The trunk's last carrier.
    pub fn last(&self) -> Last {
        lock(&self.last).clone()
    }

    /// Notes that a carrier that this end has dialed in this way is about to join.
    pub fn joins(&self, way: &DialedWay) {
        lock(&self.ways).joins(way.how.clone());
    }

    /// Notes that a carrier that this end has dialed has joined.
    pub fn joined(&self, carrier: CarrierId, DialedWay { how, ends }: &DialedWay) {
        lock(&self.ways).joined(carrier, Some(how.clone()));
        *lock(&self.last) = Last { way: Some(how.clone()), ends: ends.clone() };
    }

    /// Notes the way of a carrier that the other end has told.
    pub fn told(&self, carrier: Option<CarrierId>, way: CarrierWay) {
        if lock(&self.ways).told(carrier, &way) {
            lock(&self.last).way = Some(way);
        }
    }

    /// Drops the way of a carrier that has ended. If it was the last to join, the last one that is
    /// left takes its place.
    pub fn forget(&self, carrier: CarrierId) {
        if let Some(way) = lock(&self.ways).ended(carrier) {
            lock(&self.last).way = Some(way);
        }
    }

    /// How a carrier was dialed; `None` if that isn't known.
    pub fn way_of(&self, carrier: CarrierId) -> Option<CarrierWay> {
        lock(&self.ways).of(carrier)
    }

    /// How a carrier of which nothing is known yet was probably dialed.
    pub fn likely_way(&self) -> Option<CarrierWay> {
        let joining = lock(&self.ways).joining();
        joining.or_else(|| self.last().way)
    }

    /// What users see of the trunk.
    pub fn shown(&self) -> Shown {
        let last = self.last().way.map(|CarrierWay { route, dial, relay }| (route, dial, relay));
        let (route, dial, relay) = last.unwrap_or_default();
        Shown { peer: self.name.to_string(), kept: self.kept.clone(), route, dial, relay }
    }
}
