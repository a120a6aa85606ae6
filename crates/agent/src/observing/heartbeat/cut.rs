//! Whether it is this node that is cut off, and not the others.

use std::net::SocketAddr;
use std::time::Duration;

use isthmus_service::lock;

use crate::jobs::job::Job;
use crate::jobs::node::Node;

/// How long the gateway may take to answer. A job that is to end waits for the answer.
const ANSWER: Duration = Duration::from_millis(500);

/// What this node hears of its gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gateway {
    Answers,
    /// The gateway doesn't answer, or this agent isn't attached to one.
    Silent,
    /// The gateway is on this node or at the address of a node that this one exchanges heartbeats
    /// with. So neither its answer nor its silence means anything.
    NotApart,
}

/// Whether this node is cut off: `heard` and `silent` are how many other nodes it hears and doesn't
/// hear. If it doesn't hear one node, and nobody else can be asked, either end may be at fault.
fn is_cut_off(heard: usize, silent: usize, gateway: Gateway) -> bool {
    heard == 0
        && match gateway {
            Gateway::Answers => false,
            Gateway::Silent => silent > 0,
            Gateway::NotApart => silent > 1,
        }
}

/// At a node that holds others of a job, when one of them is silent. Returns the names of all
/// silent ones if this node itself is cut off, else none.
pub(crate) async fn from_held(node: &Node, job: &Job) -> Vec<String> {
    let (mut silent, mut heard) = (Vec::new(), 0_usize);
    for (name, silence) in &*lock(&job.holding.held) {
        if lock(silence).is_doubtful() {
            silent.push(name.to_string());
        } else {
            heard += 1;
        }
    }
    let holder = lock(&job.holding.holder).clone();
    if holder.is_some_and(|holder| !lock(&holder).is_doubtful()) {
        heard += 1;
    }
    // The gateway is asked only if its answer can matter.
    if heard > 0 || !is_cut_off(heard, silent.len(), gateway(node, job).await) {
        return Vec::new();
    }
    silent.sort();
    silent
}

/// At a node that is held, when its holder is silent: whether this node is cut off.
pub(crate) async fn from_holder(node: &Node, job: &Job) -> bool {
    is_cut_off(0, 1, gateway(node, job).await)
}

async fn gateway(node: &Node, job: &Job) -> Gateway {
    let address = node.upstream().gateway().and_then(|address| address.parse::<SocketAddr>().ok());
    let is_peers = |address: SocketAddr| lock(&job.holding.at).contains(&address.ip());
    if address.is_some_and(|address| is_of_this_node(address) || is_peers(address)) {
        return Gateway::NotApart;
    }
    let asking = tokio::time::timeout(ANSWER, node.upstream().site_trunks(ANSWER));
    match asking.await {
        Ok(Ok(_)) => Gateway::Answers,
        Ok(Err(_)) | Err(_) => Gateway::Silent,
    }
}

/// Whether an address is of this machine: no other address can be bound.
fn is_of_this_node(address: SocketAddr) -> bool {
    std::net::UdpSocket::bind((address.ip(), 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_hears_of_nobody_is_cut_off() {
        for (heard, silent, gateway, want) in [
            (0, 1, Gateway::Answers, false),
            (0, 3, Gateway::Answers, false),
            (0, 1, Gateway::Silent, true),
            (0, 3, Gateway::Silent, true),
            (1, 1, Gateway::Silent, false),
            (0, 1, Gateway::NotApart, false),
            (0, 2, Gateway::NotApart, true),
            (1, 2, Gateway::NotApart, false),
            (0, 0, Gateway::Silent, false),
        ] {
            assert_eq!(is_cut_off(heard, silent, gateway), want, "{heard} {silent} {gateway:?}");
        }
    }

    #[test]
    fn addresses_of_this_machine() {
        assert!(is_of_this_node("127.0.0.1:7710".parse().unwrap()));
        assert!(!is_of_this_node("192.0.2.1:7710".parse().unwrap()));
    }
}
