//! Asks another node's agent, which submits pilots.

use std::sync::Arc;

use isthmus_rpc::grpc;
use isthmus_wire::patience;
use isthmus_wire::proto::peer_client::PeerClient;
use isthmus_wire::proto::{self, pilot_up};
use isthmus_wire::settings::Host;
use tokio_stream::StreamExt as _;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use crate::jobs::calls::{self, Calls};
use crate::jobs::node::Node;
use crate::jobs::peers::Answers;

/// A client of another node's agent.
///
/// # Errors
/// `INVALID_ARGUMENT` if the name or the address isn't a node's; otherwise as [`calls::reach`].
async fn client(node: &Arc<Node>, name: &str, virtual_address: u32) -> Result<PeerClient<Channel>, Status> {
    let host = Host::read(name, virtual_address)
        .map_err(|reason| Status::invalid_argument(format!("node {name:?}: {reason}")))?;
    // A pilot outlives cuts of the network between the sites, as a job does.
    let Calls { client, .. } = calls::reach(node, &host, true, patience::LONGEST).await?;
    Ok(client)
}

/// Orders a pilot.
///
/// # Errors
/// As the other agent refuses, or if it can't be reached.
pub(crate) async fn pilot(
    node: &Arc<Node>,
    order: proto::PilotOrder,
    up: Streaming<proto::PilotUp>,
) -> Result<Answers<proto::PilotDown>, Status> {
    let mut client = client(node, &order.node, order.virtual_address).await?;
    let first = proto::PilotUp { kind: Some(pilot_up::Kind::Order(order)) };
    let down = client.pilot(tokio_stream::once(first).chain(up.map_while(Result::ok))).await?;
    Ok(Box::pin(down.into_inner()))
}

/// Asks for what a scheduler has, or when it could start nodes.
///
/// # Errors
/// As [`pilot`].
pub(crate) async fn scheduler(
    node: &Arc<Node>,
    request: proto::SchedulerRequest,
) -> Result<proto::SchedulerReply, Status> {
    let mut client = client(node, &request.node, request.virtual_address).await?;
    Ok(client.scheduler(request).await?.into_inner())
}

/// Tells the agent that has submitted a pilot that this node is one of it.
///
/// # Errors
/// As [`pilot`]. It is `UNAVAILABLE` also if that agent ends meanwhile: it may be starting again.
pub(crate) async fn arrive(node: &Arc<Node>, request: proto::ArriveRequest) -> Result<(), Status> {
    let mut client = client(node, &request.node, request.virtual_address).await?;
    client.arrive(request).await.map(drop).map_err(|status| {
        if grpc::connection_broke(&status) { Status::unavailable(grpc::reason(&status)) } else { status }
    })
}
