//! The state by which one node holds a job together: channels to the job's other
//! agents, and the nodes that it holds.

use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use isthmus_net::lock;
use isthmus_wire::proto::peer_client::PeerClient;
use isthmus_wire::{GridName, VirtualAddress};
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

/// One node's part in holding a job together.
#[derive(Debug, Default)]
pub(crate) struct Holding {
    /// Channels to the job's other agents.
    pub channels: PeerChannels,
    /// The head has begun to end the job: nodes that leave are not lost.
    pub ending: AtomicBool,
    /// Lost nodes: the end of the job doesn't wait for them.
    pub lost: Mutex<HashSet<GridName>>,
    /// Ends the heartbeat connection from the node that holds this one.
    pub heartbeat: Mutex<Option<CancellationToken>>,
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
