//! The trunks of this node that stand, and which node is being dialed.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use isthmus_carry::trunk::{self, Kept, Peers};
use isthmus_identity::Identity;
use isthmus_plan::{Dial, Route};
use isthmus_reach::ReachError;
use isthmus_rpc::enums::{dial_from_wire, route_from_wire};
use isthmus_service::lock;
use isthmus_trunk::{CarrierId, TrunkId};
use isthmus_wire::way::{self, WAY_LEN};
use isthmus_wire::{GridName, proto};

use super::ways::Ways;

/// How a carrier of a trunk was dialed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct CarrierWay {
    pub route: proto::Route,
    pub dial: proto::Dial,
    /// The relay on the way; empty if there is none.
    pub relay: String,
}

/// A trunk that stands.
#[derive(Debug)]
pub(crate) struct Standing {
    pub kept: Arc<Kept>,
    last: Mutex<Last>,
    ways: Mutex<Ways>,
    /// Where this end dials the trunk's carriers; `None` if only the other end does.
    destination: Mutex<Option<Ipv4Addr>>,
}

/// A trunk's last carrier.
#[derive(Debug, Clone)]
pub(crate) struct Last {
    /// How the carrier was dialed; `None` if the other end has dialed it and hasn't told the way
    /// yet.
    pub way: Option<CarrierWay>,
    /// The carrier's addresses, for messages.
    pub ends: Arc<str>,
}

impl CarrierWay {
    /// The route and the dial as a plan has them; `None` if this version doesn't know one of them.
    pub(super) fn planned(&self) -> Option<(Route, Dial)> {
        route_from_wire(self.route).zip(dial_from_wire(self.dial))
    }

    /// The message that tells the other end of this way. `carrier` is the number that the other end
    /// has for the carrier.
    pub(crate) fn encode(&self, carrier: Option<u32>) -> [u8; WAY_LEN] {
        // Route and dial have few values.
        let number = |value: i32| u8::try_from(value).unwrap_or(0);
        let (route, dial) = (number(self.route.into()), number(self.dial.into()));
        way::CarrierWay { route, dial, relay: self.relay.parse().ok(), carrier }.encode()
    }

    /// Reads the other end's message of a way, with this end's number of the carrier.
    ///
    /// # Errors If this version doesn't know the route or the dial.
    pub(crate) fn decode(bytes: &[u8; WAY_LEN]) -> Result<(Self, Option<CarrierId>), String> {
        let told = way::CarrierWay::decode(bytes).map_err(|error| error.to_string())?;
        let unknown = |what: &str, number: u8| format!("there is no {what} {number}");
        let way = Self {
            route: i32::from(told.route).try_into().map_err(|_| unknown("route", told.route))?,
            dial: i32::from(told.dial).try_into().map_err(|_| unknown("dial", told.dial))?,
            relay: told.relay.map(|relay| relay.to_string()).unwrap_or_default(),
        };
        Ok((way, told.carrier.map(CarrierId)))
    }
}

impl Standing {
    /// Makes the record of a trunk. `destination` is where this end dials its carriers; `None` if
    /// only the other end does.
    pub(crate) fn new(kept: Arc<Kept>, last: Last, destination: Option<Ipv4Addr>) -> Self {
        Self { kept, last: Mutex::new(last), ways: Mutex::default(), destination: Mutex::new(destination) }
    }

    /// Where this end dials the trunk's carriers; `None` if only the other end does.
    pub(super) fn destination(&self) -> Option<Ipv4Addr> {
        *lock(&self.destination)
    }

    /// Has this end dial the trunk's carriers, too.
    pub(crate) fn dial_at(&self, destination: Ipv4Addr) {
        lock(&self.destination).get_or_insert(destination);
    }

    pub(crate) fn last(&self) -> Last {
        lock(&self.last).clone()
    }

    /// Notes that a carrier that this end has dialed in this way is about to join.
    pub(crate) fn joins(&self, way: Option<CarrierWay>) {
        lock(&self.ways).joins(way);
    }

    /// Notes that a carrier that this end has dialed has joined.
    pub(crate) fn joined(&self, carrier: CarrierId, last: Last) {
        lock(&self.ways).joined(carrier, last.way.clone());
        *lock(&self.last) = last;
    }

    /// Notes the way of a carrier that the other end has told.
    pub(crate) fn told(&self, carrier: Option<CarrierId>, way: CarrierWay) {
        if lock(&self.ways).told(carrier, &way) {
            lock(&self.last).way = Some(way);
        }
    }

    /// Drops the way of a carrier that has ended. If it was the last to join, the last one that is
    /// left takes its place.
    pub(crate) fn forget(&self, carrier: CarrierId) {
        if let Some(way) = lock(&self.ways).ended(carrier) {
            lock(&self.last).way = Some(way);
        }
    }

    /// How a carrier was dialed; `None` if that isn't known.
    pub(crate) fn way_of(&self, carrier: CarrierId) -> Option<CarrierWay> {
        lock(&self.ways).of(carrier)
    }

    /// How a carrier of which nothing is known yet was probably dialed.
    pub(crate) fn likely_way(&self) -> Option<CarrierWay> {
        let joining = lock(&self.ways).joining();
        joining.or_else(|| self.last().way)
    }
}

impl trunk::Standing for Standing {
    fn kept(&self) -> &Arc<Kept> {
        &self.kept
    }
}

/// All trunks of this node.
#[derive(Debug, Default)]
pub(crate) struct Registry(Peers<Standing, ReachError>);

impl Registry {
    /// The trunks by their peers.
    pub(super) fn peers(&self) -> &Peers<Standing, ReachError> {
        &self.0
    }

    /// The newest trunk to a node that this node has made, by its own plan.
    pub(crate) fn own(&self, peer: &GridName) -> Option<Arc<Standing>> {
        self.0.with(peer).into_iter().rfind(|standing| standing.kept.is_own)
    }

    /// The newest trunk to a node that the other node has made, whose way is known and which isn't
    /// cut.
    pub(crate) fn other(&self, peer: &GridName) -> Option<Arc<Standing>> {
        let usable = |standing: &Arc<Standing>| {
            !standing.kept.is_own && standing.last().way.is_some() && !standing.kept.is_cut()
        };
        self.0.with(peer).into_iter().rfind(usable)
    }

    /// Whether all trunks with a node are cut, whichever end made them; `None` if there is none.
    pub(crate) fn are_cut(&self, peer: &GridName) -> Option<bool> {
        let standing = self.0.with(peer);
        (!standing.is_empty()).then(|| standing.iter().all(|standing| standing.kept.is_cut()))
    }

    /// For how long all trunks with a node have been cut; `None` if one works, or there is none.
    pub(crate) fn cut_for(&self, peer: &GridName) -> Option<Duration> {
        let standing = self.0.with(peer);
        let since: Option<Vec<Instant>> =
            standing.iter().map(|standing| *standing.kept.cut().borrow()).collect();
        since?.into_iter().max().map(|last| last.elapsed())
    }

    /// The trunk of this id whose other end is this identity.
    pub(crate) fn find(&self, peer: &Identity, id: TrunkId) -> Option<Arc<Standing>> {
        self.0.find(&peer.grid_name()?, id).filter(|standing| *standing.kept.peer == *peer)
    }
}
