//! Calls of an agent to the other agents of a job.

use isthmus_net::grpc;
use isthmus_reach::Purpose;
use isthmus_reach::carrier::Carrier;
use isthmus_wire::VirtualAddress;
use isthmus_wire::proto::peer_client::PeerClient;
use tonic::Status;
use tonic::transport::Channel;

use crate::jobs::job::Job;
use crate::jobs::node::Node;

/// A channel to the agent of another node, dialed like any connection.
///
/// # Errors
/// `UNAVAILABLE` with the error of every step that was tried.
pub(crate) async fn connect(node: &Node, address: VirtualAddress) -> Result<PeerClient<Channel>, Status> {
    let unavailable = |reason: String| Status::unavailable(reason);
    let reached = node
        .dialer()
        .reach(address.ip(), Purpose::tls(&node.tls().grpc, Some(node.owner())))
        .await
        .map_err(|error| unavailable(error.to_string()))?;
    let Carrier::Tls(stream) = reached.carrier else {
        return Err(Status::internal("the connection to another agent is not encrypted"));
    };
    let channel = grpc::channel_over(*stream).await.map_err(|error| unavailable(error.to_string()))?;
    Ok(PeerClient::new(channel))
}

/// The job's channel to another of its nodes.
///
/// # Errors
/// As [`connect`].
pub(crate) async fn channel(
    node: &Node,
    job: &Job,
    address: VirtualAddress,
) -> Result<PeerClient<Channel>, Status> {
    if let Some(client) = job.holding.channels.get(address) {
        return Ok(client);
    }
    let client = connect(node, address).await?;
    job.holding.channels.keep(address, client.clone());
    Ok(client)
}
