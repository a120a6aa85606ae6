//! Whether a node is reached directly though a relay did not reach it: a firewall may
//! let in other sites and not the relays.
//!
//! The node's address comes from its own site. So that no other site can make this
//! agent scan its own network, the agent dials no private address. It reports only
//! whether it reached that node.

use std::net::Ipv4Addr;
use std::time::Duration;

use isthmus_net::callback;
use isthmus_net::dial::{self, SocketOptions};
use isthmus_plan::{Reach, Reachability};
use isthmus_reach::{Expected, secure};
use isthmus_rpc::seen::reach_to_wire;
use isthmus_service::Deadline;
use isthmus_wire::{GridName, proto};

use crate::jobs::node::Node;

/// How long the whole attempt may take, as for the dial `direct` of a plan.
const DEADLINE: Duration = Duration::from_secs(10);
/// How long the TCP connect may take, as for the dial `direct` of a plan.
const CONNECT: Duration = Duration::from_secs(4);

/// Tries to reach a node directly. Whoever answers must prove to be that node.
pub(super) async fn try_directly(node: &Node, destination: Ipv4Addr) -> proto::Reach {
    let own = node;
    let node = match own.upstream().contact(destination, DEADLINE.into()).await {
        Ok(found) => found.node.clone().unwrap_or_default(),
        Err(_) => proto::Node::default(),
    };
    let result = match attempt(own, &node).await {
        Some(true) => Reachability::Reachable,
        Some(false) => Reachability::Filtered,
        None => Reachability::Unknown,
    };
    reach_to_wire(&Reach { result, address: node.address, ..Reach::default() })
}

/// Whether the node was reached; `None` if its address is unknown or must not be dialed.
async fn attempt(own: &Node, node: &proto::Node) -> Option<bool> {
    let name: GridName = node.name.parse().ok()?;
    let address = dial::resolve(&node.address).await.ok()?;
    callback::check(address).ok()?;
    if callback::is_private(address.ip()) {
        return None;
    }
    let reached = async {
        let deadline = Deadline::within(DEADLINE);
        let stream = dial::direct(&address.to_string(), SocketOptions::default(), deadline.part(CONNECT))
            .await
            .ok()?;
        secure(stream, &Expected::agent(&name, None), &own.tls().measure, deadline).await.ok()
    };
    let reached = reached.await.is_some();
    tracing::debug!(node = %name, %address, reached, "tried directly, because a relay did not get there");
    Some(reached)
}
