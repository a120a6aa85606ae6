//! A node whose holder is lost tells the job's head itself, before it ends its part. The head
//! hears of that site by the holder alone: it would read of consequences first.

use std::sync::Arc;
use std::time::Duration;

use isthmus_identity::Identity;
use isthmus_rpc::grpc;
use isthmus_service::clock::millis;
use isthmus_wire::proto::{NodeLost, TellRequest, job_news};
use tokio::time::timeout;
use tonic::Status;
use tracing::debug;

use crate::jobs::calls;
use crate::jobs::job::Job;
use crate::jobs::node::Node;
use crate::jobs::tree;

/// How long the head may take to answer. The part of the job that is to end waits for the answer.
const ANSWER: Duration = Duration::from_secs(1);
/// Most characters of a reason that the head takes.
const REASON_CHARS_MAX: usize = 200;

/// At a node that is held, once its holder is lost: tells the head of the loss, if this node is a
/// witness. `silent` is for how long nothing was heard of the holder.
pub(crate) async fn head(node: &Arc<Node>, job: &Job, reason: String, silent: Duration) {
    let nodes = &job.members.nodes;
    let (Some(head), Some(holder)) = (nodes.first(), tree::holder(nodes, node.name())) else { return };
    if !tree::is_witness(nodes, node.name()) {
        return;
    }
    let lost = NodeLost { node: holder.name.to_string(), reason, ago_ms: millis(silent) };
    let request = TellRequest { job: job.id.to_string(), lost: Some(lost) };
    let telling = async { calls::channel(node, job, head).await?.tell(request).await };
    match timeout(ANSWER, telling).await {
        Ok(Ok(_)) => {}
        Ok(Err(status)) => debug!(job = %job.id, reason = grpc::reason(&status), "the head isn't told"),
        Err(_) => debug!(job = %job.id, "the head isn't told within {ANSWER:?}"),
    }
}

/// At the head: takes the word of another node that its holder is lost.
///
/// # Errors `PERMISSION_DENIED` unless the lost node held the caller at another site;
/// `FAILED_PRECONDITION` if the head still hears of the lost node.
pub(crate) fn take(node: &Node, job: &Job, caller: &Identity, lost: Option<NodeLost>) -> Result<(), Status> {
    let (nodes, lost) = (&job.members.nodes, lost.unwrap_or_default());
    let holder = caller.grid_name().and_then(|caller| tree::holder(nodes, &caller));
    let Some(holder) = holder.filter(|holder| holder.name.to_string() == lost.node) else {
        return Err(Status::permission_denied(format!("{:?} doesn't hold {caller} in this job", lost.node)));
    };
    if !tree::is_head(nodes, node.name()) || holder.name.site == node.name().site {
        return Err(Status::permission_denied("only the head is told, and of other sites"));
    }
    // Silence takes so long that this end has noticed it, too.
    if lost.ago_ms > 0 && node.trunks().are_cut(&holder.name) == Some(false) {
        return Err(Status::failed_precondition(format!("{} is heard here", holder.name)));
    }
    let reason = lost.reason.chars().take(REASON_CHARS_MAX).collect();
    job.news.send(job_news::Kind::NodeLost(NodeLost { reason, ..lost }));
    Ok(())
}
