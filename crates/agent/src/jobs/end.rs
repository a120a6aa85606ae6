//! The end of a job here and on the nodes below, which this one holds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use isthmus_rpc::grpc;
use isthmus_service::clock::millis;
use isthmus_service::lock;
use isthmus_wire::proto;
use isthmus_wire::settings::Host;
use tokio::task::JoinSet;
use tonic::Status;

use crate::jobs::calls;
use crate::jobs::job::Job;
use crate::jobs::node::Node;
use crate::jobs::tree;
use crate::observing::collectives::Collectives;
use crate::trunks::pause::{self, Lost};

/// How long the head waits for a node to end a job with the nodes that it holds.
const END_DEADLINE: Duration = Duration::from_secs(10);
/// How long the head waits for a node behind a cut to end a job. Such a node ends the job by itself
/// once it learns that the job is over.
const END_CUT_DEADLINE: Duration = Duration::from_secs(3);
/// How long the gateway may take to tell what it has carried for a job.
const CARRIED: Duration = Duration::from_millis(400);
/// Most news of all nodes together that the answer to a job's end repeats: a message has room for
/// as many.
const REPEATED_MAX: usize = 1024;
/// By how much the deadlines of the other nodes are shorter than the head's, so that they can
/// report which node was late.
const BELOW: Duration = Duration::from_secs(2);

/// The reason that the head gets for a lost node whose connection has broken.
pub(crate) const ENDED: &str = "its agent has ended, or its machine";

/// This node's deadline for a step for which the head waits `head`.
pub(super) fn deadline(job: &Job, node: &Node, head: Duration) -> Duration {
    if tree::is_head(&job.members.nodes, node.name()) { head } else { head - BELOW }
}

/// The reason for the loss of a node with which a call has failed with this status.
pub(super) fn loss(status: &Status) -> String {
    if grpc::connection_broke(status) { ENDED.to_owned() } else { grpc::reason(status) }
}

/// Asks the gateway what it has carried for a job that ends. If several gateways have carried
/// connections, none is asked.
async fn ask_gateway(node: &Node, job: &Job) {
    let Some(gateway) = job.account.only_gateway() else { return };
    match node.upstream().carried(job.id, &gateway, CARRIED).await {
        Ok(carried) => {
            for proto::Carried { acceptor, bytes_sent, bytes_received } in carried {
                if let Some(acceptor) = job.node(acceptor.into()) {
                    job.account.told(&acceptor, (bytes_sent, bytes_received));
                }
            }
        }
        Err(status) => {
            let reason = grpc::reason(&status);
            tracing::debug!(job = %job.id, reason, "the gateway doesn't tell what it has carried");
        }
    }
}

/// Ends a job at a node that this one holds. That node may be behind a cut, or gone.
async fn end_there(node: &Arc<Node>, job: &Job, host: &Host, limit: Duration) -> proto::EndReply {
    let request = proto::EndRequest { job: job.id.to_string() };
    let ending = async { calls::channel(node, job, host).await?.end(request).await };
    let gone_behind_cut = async {
        cut_for(node, host, Duration::ZERO).await;
        pause::gone(node, host).await;
    };
    let ended = tokio::select! {
        ended = ending => Some(ended),
        () = gone_behind_cut => Some(Err(Status::unavailable(Lost::Gone.to_string()))),
        () = cut_for(node, host, END_CUT_DEADLINE) => None,
        () = tokio::time::sleep(limit) => None,
    };
    match ended {
        Some(Ok(reply)) => reply.into_inner(),
        Some(Err(status)) => {
            // The node ends the job by itself when it loses this agent.
            tracing::warn!(node = %host.name, reason = grpc::reason(&status), "cannot end the job there");
            let ago_ms = millis(node.trunks().cut_for(&host.name).unwrap_or_default());
            let lost = proto::NodeLost { node: host.name.to_string(), reason: loss(&status), ago_ms };
            proto::EndReply { nodes_lost: vec![lost], ..proto::EndReply::default() }
        }
        None => {
            tracing::warn!(node = %host.name, "the job did not end there in time");
            proto::EndReply::default()
        }
    }
}

/// Returns once the node has been behind a cut for `time`, counted from this call.
async fn cut_for(node: &Node, host: &Host, time: Duration) {
    /// Pause between two looks at the trunks.
    const LOOK: Duration = Duration::from_millis(100);
    let begun = Instant::now();
    while node.trunks().cut_for(&host.name).is_none_or(|cut| cut.min(begun.elapsed()) < time) {
        tokio::time::sleep(LOOK).await;
    }
}

/// Ends a job here and on the nodes below, in parallel. Returns the account of all of them.
pub(crate) async fn end_all(node: &Arc<Node>, job: &Arc<Job>) -> proto::EndReply {
    let lost = {
        // Under one lock: a node that is lost meanwhile is told by one or the other.
        let lost = lock(&job.holding.lost);
        job.holding.ending.cancel();
        lost.clone()
    };
    let limit = deadline(job, node, END_DEADLINE);
    let mut ending = JoinSet::new();
    let below = tree::children(&job.members.nodes, node.name()).into_iter();
    for host in below.filter(|host| !lost.contains(&host.name)) {
        let (node, job, host) = (node.clone(), job.clone(), host.clone());
        ending.spawn(async move { end_there(&node, &job, &host, limit).await });
    }
    let processes_killed = job.end_processes(&node.name().to_string()).await;
    tokio::join!(ask_gateway(node, job), job.raw.settle());
    let mut collectives = job.has_topology.then(|| Collectives::of(job.directory.path()));
    let mut total = proto::EndReply {
        collectives: None,
        joined: job.account.joined(),
        processes_killed,
        uncarried: job.news.all_uncarried(),
        nodes_lost: Vec::new(),
        ranks: vec![job.ranks.message(node.name())],
        news: job.news.repeated(),
    };
    for reply in ending.join_all().await {
        total.joined.extend(reply.joined);
        total.uncarried.extend(reply.uncarried);
        total.processes_killed += reply.processes_killed;
        total.nodes_lost.extend(reply.nodes_lost);
        total.ranks.extend(reply.ranks);
        total.news.extend(reply.news);
        total.news.truncate(REPEATED_MAX);
        if let (Some(collectives), Some(told)) = (&mut collectives, &reply.collectives) {
            collectives.add(told);
        }
    }
    total.collectives = collectives.map(Collectives::message);
    node.end(job).await;
    total
}
