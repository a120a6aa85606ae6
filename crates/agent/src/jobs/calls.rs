//! Calls of an agent to the other agents of a job.

use std::sync::Arc;
use std::time::Duration;

use isthmus_plan::Remedy;
use isthmus_reach::{Purpose, ReachError};
use isthmus_rpc::grpc;
use isthmus_wire::proto::peer_client::PeerClient;
use isthmus_wire::settings::Host;
use tonic::Status;
use tonic::transport::Channel;

use crate::jobs::job::Job;
use crate::jobs::node::Node;
use crate::trunks;
use crate::trunks::registry::Standing;

/// A way to call the agent of another node.
pub(crate) struct Calls {
    pub client: PeerClient<Channel>,
    /// The trunk that carries the calls; `None` for a socket of their own.
    pub trunk: Option<Arc<Standing>>,
}

/// How long a ping to another agent may stay unanswered, where `patience` is how long that agent
/// may be silent. After a cut, TCP waits for as long again as the cut lasted.
pub(crate) fn ping_timeout(patience: Duration) -> Duration {
    grpc::PING_TIMEOUT.max(2 * patience + Duration::from_secs(10))
}

/// Makes a channel to the agent of another node of a job.
///
/// # Errors
/// As [`reach`].
pub(crate) async fn connect(node: &Arc<Node>, job: &Job, host: &Host) -> Result<Calls, Status> {
    reach(node, host, !job.outlive.is_zero(), job.patience).await
}

/// Makes a channel to the agent of another node. It goes over a trunk if the node is at another
/// site and the calls outlive cuts. Otherwise it goes over a connection that is dialed like any
/// other, and the agent may be silent for as long as `patience`.
///
/// # Errors `UNAVAILABLE` with the error of every step that was tried; another status if a retry
/// can't help.
pub(crate) async fn reach(
    node: &Arc<Node>,
    host: &Host,
    outlives_cuts: bool,
    patience: Duration,
) -> Result<Calls, Status> {
    let unavailable = |reason: String| Status::unavailable(reason);
    let unreached = |error: ReachError| match error {
        ReachError::OtherOwner(_) => Status::permission_denied(error.to_string()),
        ReachError::NoWay(_) if error.remedy() == Some(Remedy::AllowWay) => {
            Status::failed_precondition(error.to_string())
        }
        _ => unavailable(error.to_string()),
    };
    let other_site = host.name.site != node.name().site;
    if other_site && outlives_cuts {
        let connecting = trunks::calls::connect(node, &host.name, host.address.ip());
        let (socket, trunk) = connecting.await.map_err(unreached)?;
        let channel = grpc::channel_within(socket).await;
        let channel = channel.map_err(|error| unavailable(error.to_string()))?;
        return Ok(Calls { client: PeerClient::new(channel), trunk: Some(trunk) });
    }
    let reached = node
        .dialer()
        .reach(host.address.ip(), Purpose::tls(&node.tls().grpc, Some(node.owner())))
        .await
        .map_err(unreached)?;
    let stream = reached.carrier.encrypted().map_err(|error| Status::internal(error.to_string()))?;
    let channel = grpc::channel_over_for(stream, ping_timeout(patience))
        .await
        .map_err(|error| unavailable(error.to_string()))?;
    Ok(Calls { client: PeerClient::new(channel), trunk: None })
}

/// The job's channel to another of its nodes.
///
/// # Errors
/// As [`connect`].
pub(crate) async fn channel(node: &Arc<Node>, job: &Job, host: &Host) -> Result<PeerClient<Channel>, Status> {
    if let Some(client) = job.holding.channels.get(host.address) {
        return Ok(client);
    }
    let Calls { client, .. } = connect(node, job, host).await?;
    job.holding.channels.keep(host.address, client.clone());
    Ok(client)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ping_outlasts_the_heartbeats() {
        for (patience, want) in [(5, 20), (10, 30), (60, 130)] {
            assert_eq!(ping_timeout(Duration::from_secs(patience)), Duration::from_secs(want), "{patience}");
        }
    }
}
