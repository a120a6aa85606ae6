//! The account of a node's connections to other nodes: by which ways, how many, how
//! many bytes.

mod crossing;
mod over_trunk;

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use isthmus_carry::Traffic;
use isthmus_plan::Encryption;
use isthmus_rpc::enums::{dial_name, encryption_to_wire, route_name};
use isthmus_service::clock::micros;
use isthmus_service::counters::Carried;
use isthmus_service::lock;
use isthmus_wire::GridName;
use isthmus_wire::proto;
use tokio::sync::watch;

use crossing::Crossing;
pub(crate) use over_trunk::OverTrunk;

use crate::trunks::registry::Standing;

/// A kind of connections from this node, which are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Joint {
    /// The node of the acceptor.
    pub acceptor: GridName,
    /// The route: which parties dialed which.
    pub route: proto::Route,
    /// How the socket was opened.
    pub dial: proto::Dial,
    /// The relay on the way; empty if there is none.
    pub relay: String,
    /// Who encrypts the connections.
    pub encryption: Encryption,
}

impl Joint {
    /// Whether these are connections to this node that the gateways of both sites carry.
    fn is_by_gateways_to(&self, acceptor: &GridName) -> bool {
        self.encryption == Encryption::Gateways && self.acceptor == *acceptor
    }
}

/// Bytes that were carried for a program.
#[derive(Debug, Default)]
pub(crate) struct Bytes {
    /// Bytes from the initiator's program.
    pub sent: AtomicU64,
    /// Bytes to the initiator's program.
    pub received: AtomicU64,
    /// Whether the counts come from what has carried the bytes: the gateway or the kernel.
    told: AtomicBool,
    /// How many raw connections go on, whose bytes the kernel has yet to tell.
    open: AtomicU64,
    carried: Option<Carried>,
}

impl Bytes {
    fn by(way: &str) -> Self {
        Self { carried: Carried::by(way), ..Self::default() }
    }

    /// Notes that a raw connection begins.
    pub(crate) fn raw_begins(&self) {
        self.open.fetch_add(1, Relaxed);
    }

    /// Subtracts bytes that were counted as sent, and are to be sent again by another way.
    fn taken_back(&self, bytes: u64) {
        // What agents had said first isn't counted, and may be part of it.
        let less = |sent: u64| Some(sent.saturating_sub(bytes));
        let _ = self.sent.fetch_update(Relaxed, Relaxed, less);
    }

    fn are_some(&self) -> bool {
        self.sent.load(Relaxed) > 0 || self.received.load(Relaxed) > 0
    }

    /// Notes that the kernel tells what raw connections have carried.
    pub(crate) fn tell(&self) {
        self.told.store(true, Relaxed);
    }

    /// Adds what a raw connection has carried that has ended: bytes sent and received.
    pub(crate) fn raw_ended(&self, carried: (u64, u64)) {
        self.raw_so_far(carried);
        self.open.fetch_sub(1, Relaxed);
    }

    /// Adds what a raw connection has carried so far: bytes sent and received. They must not be
    /// added again at its end.
    pub(crate) fn raw_so_far(&self, (sent, received): (u64, u64)) {
        self.sent.fetch_add(sent, Relaxed);
        self.received.fetch_add(received, Relaxed);
    }
}

/// Counts at the initiator's end, so that sent bytes are those of the initiator's program.
impl Traffic for Bytes {
    fn sent(&self, bytes: u64) {
        self.sent.fetch_add(bytes, Relaxed);
        if let Some(carried) = &self.carried {
            carried.sent(bytes);
        }
    }

    fn received(&self, bytes: u64) {
        self.received.fetch_add(bytes, Relaxed);
        if let Some(carried) = &self.carried {
            carried.received(bytes);
        }
    }
}

#[derive(Debug, Default)]
struct Totals {
    connections: u64,
    setup_total: Duration,
    setup_max: Duration,
    bytes: Arc<Bytes>,
}

impl Totals {
    fn new(joint: &Joint) -> Self {
        let way = format!("{} {}", dial_name(joint.dial), route_name(joint.route));
        Self { bytes: Arc::new(Bytes::by(&way)), ..Self::default() }
    }
}

/// The account of one job at one node: connections that began here.
#[derive(Debug)]
pub(crate) struct Account {
    initiator: GridName,
    totals: Arc<Mutex<HashMap<Joint, Totals>>>,
    /// For how long data is under way to each node and back, over trunks of the nodes.
    crossing_to: Mutex<HashMap<GridName, Arc<Crossing>>>,
    /// Addresses of this node's gateways that carry and encrypt connections.
    gateways: Mutex<BTreeSet<Arc<str>>>,
    changed: watch::Sender<u64>,
    under_way: watch::Sender<usize>,
}

/// A connection that is being set up, from or to here, until this is dropped.
#[derive(Debug)]
pub(crate) struct UnderWay<'a>(&'a watch::Sender<usize>);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

impl Account {
    /// An empty account of the node with this name.
    pub(crate) fn new(initiator: GridName) -> Self {
        Self {
            initiator,
            totals: Arc::default(),
            crossing_to: Mutex::default(),
            gateways: Mutex::default(),
            changed: watch::Sender::new(0),
            under_way: watch::Sender::new(0),
        }
    }

    /// Counts a connection that is being set up.
    pub(crate) fn begin(&self) -> UnderWay<'_> {
        self.under_way.send_modify(|count| *count += 1);
        UnderWay(&self.under_way)
    }

    /// Waits until no connection has been set up for this long.
    pub(crate) async fn calm(&self, quiet: Duration) {
        let mut under_way = self.under_way.subscribe();
        while under_way.wait_for(|count| *count == 0).await.is_ok() {
            if tokio::time::timeout(quiet, under_way.changed()).await.is_err() {
                return;
            }
        }
    }

    /// Counts a connection. Its bytes are added to the returned counters.
    pub(crate) fn connected(&self, joint: Joint, setup: Duration) -> Arc<Bytes> {
        self.crossing_to(&joint.acceptor).set_up(setup);
        let bytes = {
            let mut totals = lock(&self.totals);
            let totals = totals.entry(joint).or_insert_with_key(Totals::new);
            totals.connections += 1;
            totals.setup_total += setup;
            totals.setup_max = totals.setup_max.max(setup);
            totals.bytes.clone()
        };
        self.changed.send_modify(|count| *count += 1);
        bytes
    }

    /// Makes a counter of the bytes that a trunk carries for a connection that was counted under
    /// `joint`.
    pub(crate) fn over_trunk(&self, joint: Joint, standing: Arc<Standing>) -> OverTrunk {
        let crossing = self.crossing_to(&joint.acceptor);
        OverTrunk::new(self.totals.clone(), joint, standing, crossing)
    }

    fn crossing_to(&self, acceptor: &GridName) -> Arc<Crossing> {
        let mut all = lock(&self.crossing_to);
        match all.get(acceptor) {
            Some(known) => known.clone(),
            None => all.entry(acceptor.clone()).or_default().clone(),
        }
    }

    /// Whether the gateways of both sites have carried a connection to this node.
    pub(crate) fn has_reached_by_gateways(&self, acceptor: &GridName) -> bool {
        lock(&self.totals).keys().any(|joint| joint.is_by_gateways_to(acceptor))
    }

    /// Notes that this node's gateway at this address carries and encrypts some of the connections.
    pub(crate) fn by_gateway(&self, address: Arc<str>) {
        lock(&self.gateways).insert(address);
    }

    /// The address of the gateway that has carried and encrypted connections; `None` if there are
    /// several or none.
    pub(crate) fn only_gateway(&self) -> Option<Arc<str>> {
        let gateways = lock(&self.gateways);
        gateways.first().filter(|_| gateways.len() == 1).cloned()
    }

    /// Sets what this node's gateway has told that it carried to a node: bytes sent and received.
    pub(crate) fn told(&self, acceptor: &GridName, (sent, received): (u64, u64)) {
        let totals = lock(&self.totals);
        for (_, totals) in totals.iter().filter(|(joint, _)| joint.is_by_gateways_to(acceptor)) {
            totals.bytes.sent.store(sent, Relaxed);
            totals.bytes.received.store(received, Relaxed);
            totals.bytes.told.store(true, Relaxed);
        }
    }

    /// A counter that changes whenever a connection is counted.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The account so far: an entry for each kind of connections.
    pub(crate) fn joined(&self) -> Vec<proto::Joined> {
        let totals = lock(&self.totals);
        let mut joined: Vec<_> = totals
            .iter()
            // A carrier over which nothing has come has no entry: all that was given to it was
            // taken back.
            .filter(|(_, totals)| totals.connections > 0 || totals.bytes.are_some())
            .map(|(joint, totals)| proto::Joined {
                initiator: self.initiator.to_string(),
                acceptor: joint.acceptor.to_string(),
                route: joint.route.into(),
                dial: joint.dial.into(),
                relay: joint.relay.clone(),
                encryption: encryption_to_wire(joint.encryption).into(),
                connections: totals.connections,
                bytes_sent: totals.bytes.sent.load(Relaxed),
                bytes_received: totals.bytes.received.load(Relaxed),
                bytes_known: match joint.encryption {
                    Encryption::Agents => true,
                    Encryption::Gateways | Encryption::None => totals.bytes.told.load(Relaxed),
                },
                bytes_least: totals.bytes.open.load(Relaxed) > 0,
                setup_total_us: micros(totals.setup_total),
                setup_max_us: micros(totals.setup_max),
                under_way_us: match joint.encryption {
                    Encryption::Agents => micros(self.crossing_to(&joint.acceptor).total()),
                    Encryption::Gateways | Encryption::None => 0,
                },
            })
            .collect();
        joined.sort_by(|a, b| (&a.acceptor, a.route, a.dial).cmp(&(&b.acceptor, b.route, b.dial)));
        joined
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_one_kind_are_added_up() {
        let account = Account::new("n1.alpha".parse().unwrap());
        let joint = |dial| Joint {
            acceptor: "n1.beta".parse().unwrap(),
            route: proto::Route::EndToEnd,
            dial,
            relay: String::new(),
            encryption: Encryption::Agents,
        };
        account.connected(joint(proto::Dial::Relay), Duration::from_millis(3)).sent.fetch_add(7, Relaxed);
        account.connected(joint(proto::Dial::Relay), Duration::from_millis(1)).sent.fetch_add(1, Relaxed);
        account.connected(joint(proto::Dial::Direct), Duration::from_millis(2));
        let joined = account.joined();
        assert_eq!(joined.len(), 2);
        let relayed = joined.iter().find(|joined| joined.dial() == proto::Dial::Relay).unwrap();
        assert_eq!((relayed.connections, relayed.bytes_sent), (2, 8));
        assert_eq!((relayed.setup_total_us, relayed.setup_max_us), (4000, 3000));
        assert_eq!(*account.changes().borrow(), 3);
    }

    #[test]
    fn bytes_over_gateways_are_known_once_the_gateway_tells() {
        let account = Account::new("n1.alpha".parse().unwrap());
        let joint = |acceptor: &str, encryption| Joint {
            acceptor: acceptor.parse().unwrap(),
            route: proto::Route::TwoGateway,
            dial: proto::Dial::Trunk,
            relay: String::new(),
            encryption,
        };
        account.connected(joint("n1.beta", Encryption::None), Duration::ZERO);
        account.connected(joint("n1.beta", Encryption::Gateways), Duration::ZERO);
        account.connected(joint("n2.beta", Encryption::Gateways), Duration::ZERO);
        let acceptor = "n1.beta".parse().unwrap();
        account.told(&acceptor, (7, 200));
        let known = account.joined().into_iter().filter(|joined| joined.bytes_known);
        let known: Vec<_> =
            known.map(|joined| (joined.acceptor, joined.bytes_sent, joined.bytes_received)).collect();
        assert_eq!(known, [("n1.beta".to_owned(), 7, 200)]);

        assert_eq!(account.only_gateway(), None);
        for address in ["10.0.0.1:7710", "10.0.0.1:7710"] {
            account.by_gateway(address.into());
        }
        assert_eq!(account.only_gateway().as_deref(), Some("10.0.0.1:7710"));
        account.by_gateway("10.0.0.2:7710".into());
        assert_eq!(account.only_gateway(), None, "each knows a part");
    }
}
