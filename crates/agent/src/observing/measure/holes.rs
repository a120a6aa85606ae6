//! PMTU black holes between this agent and others: on the way to its gateway and the broker,
//! and along the plan to another node.

use std::future::pending;
use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use isthmus_net::dial::SocketOptions;
use isthmus_reach::Purpose;
use isthmus_rpc::packets::{self, Progress, SEGMENTS, SOON};
use isthmus_wire::proto::PacketsReply;
use tonic::Status;

use crate::jobs::node::Node;

/// How long the search between agent, gateway and broker may take: a user waits.
const UPWARDS: Duration = Duration::from_secs(9);
/// Most holes that the gateway may name.
const MOST: usize = 8;

/// Searches black holes between this agent, its gateway and the broker.
///
/// # Errors If the gateway doesn't answer, for example as the agent isn't attached, unless a black
/// hole on the way to it was found.
pub(crate) async fn upwards(node: &Node) -> Result<PacketsReply, Status> {
    let upstream = node.upstream();
    let to_gateway = async {
        let gateway = upstream.gateway()?;
        let (own, site) = (node.name().to_string(), &node.name().site);
        let ends = (&*own, &*format!("gateway.{site}"));
        let looking = packets::hole_towards(ends, &gateway, &node.tls().packets);
        tokio::time::timeout(UPWARDS, looking).await.ok().flatten()
    };
    let (hole, beyond) = tokio::join!(to_gateway, upstream.packets(UPWARDS));
    let mut reply = match beyond {
        Ok(reply) => reply,
        // The gateway can't answer because of the very hole that was found.
        Err(_) if hole.is_some() => PacketsReply::default(),
        Err(status) => return Err(status),
    };
    // The gateway has made the list, so its length is bounded here.
    reply.holes.truncate(MOST);
    reply.holes.extend(hole);
    Ok(reply)
}

/// Finds a black hole on the way to another node. Never returns without one.
pub(super) async fn find(node: &Node, destination: Ipv4Addr) -> packets::Hole {
    let exchange = |segment| {
        let (dialer, tls) = (node.dialer().clone(), node.tls().packets.clone());
        async move {
            let options = SocketOptions { segment, ..SocketOptions::default() };
            let purpose = Purpose { options, ..Purpose::tls(&tls, None) };
            let reached = dialer.reach(destination, purpose).await;
            let reached = reached.map_err(|error| io::Error::other(error.to_string()))?;
            if segment.is_none() && reached.segment.is_some() {
                // The connection's handshake hung until segments were shortened.
                return pending().await;
            }
            packets::exchange(&mut reached.carrier.encrypted()?, &Progress::default()).await
        }
    };
    let looking = packets::look(SOON, SEGMENTS, exchange(None), |segment| exchange(Some(segment))).await;
    match looking {
        Err(hole) => hole,
        Ok(_) => pending().await,
    }
}
