//! The state by which one node holds a job together: channels to the job's other
//! agents, and the nodes that it holds.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use isthmus_service::lock;
use isthmus_service::silence::Silence;
use isthmus_wire::proto::peer_client::PeerClient;
use isthmus_wire::{GridName, VirtualAddress};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

/// One node's part in holding a job together.
#[derive(Debug, Default)]
pub(crate) struct Holding {
    /// The channels by which this node calls the job's other agents.
    pub channels: PeerChannels,
    /// Cancelled once the job is being ended: nodes that leave are not lost.
    pub ending: CancellationToken,
    /// Whether the head was told that this node is cut off. Locked while the head is told, so that
    /// it reads of that before it reads of lost nodes.
    pub told_cut_off: tokio::sync::Mutex<bool>,
    /// Lost nodes: the end of the job doesn't wait for them.
    pub lost: Mutex<HashSet<GridName>>,
    /// Ends the heartbeat connection from the node that holds this one.
    pub heartbeat: Mutex<Option<CancellationToken>>,
    /// How silent each node is with which this one, as its holder, exchanges heartbeats.
    pub held: Mutex<HashMap<GridName, Arc<Mutex<Silence>>>>,
    /// How silent the node is that holds this one; `None` before the first heartbeat connection.
    pub holder: Mutex<Option<Arc<Mutex<Silence>>>>,
    /// The IP addresses at the other ends of heartbeat connections.
    pub at: Mutex<HashSet<IpAddr>>,
}

impl Holding {
    /// The record of how silent a node is that this one holds. `patience` bounds the silence of a
    /// new record.
    pub(crate) fn silence_of(&self, name: &GridName, patience: Duration) -> Arc<Mutex<Silence>> {
        let mut held = lock(&self.held);
        Arc::clone(held.entry(name.clone()).or_insert_with(|| new_silence(patience)))
    }

    /// Notes the other end of a heartbeat connection.
    pub(crate) fn note(&self, stream: &TcpStream) {
        if let Ok(peer) = stream.peer_addr() {
            lock(&self.at).insert(peer.ip());
        }
    }

    /// The record of how silent the node is that holds this one. `patience` bounds the silence of a
    /// new record.
    pub(crate) fn silence_of_holder(&self, patience: Duration) -> Arc<Mutex<Silence>> {
        Arc::clone(lock(&self.holder).get_or_insert_with(|| new_silence(patience)))
    }
}

fn new_silence(patience: Duration) -> Arc<Mutex<Silence>> {
    Arc::new(Mutex::new(Silence::new(patience)))
}

/// Channels of one job to its other agents.
#[derive(Debug, Default)]
pub(crate) struct PeerChannels(Mutex<HashMap<Ipv4Addr, PeerClient<Channel>>>);

impl PeerChannels {
    /// The channel to this node, if there is one.
    pub(crate) fn get(&self, node: VirtualAddress) -> Option<PeerClient<Channel>> {
        lock(&self.0).get(&node.ip()).cloned()
    }

    pub(crate) fn keep(&self, node: VirtualAddress, client: PeerClient<Channel>) {
        lock(&self.0).insert(node.ip(), client);
    }
}
