//! Holding a job's nodes together: each node but the head is held by another one
//! ([`tree`]) until the job ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use isthmus_rpc::grpc::{self, may_pass};
use isthmus_service::clock::{micros, millis};
use isthmus_service::lock;
use isthmus_wire::proto::{self, job_news};
use isthmus_wire::settings::Host;
use tokio::task::JoinSet;
use tonic::{Status, Streaming};

use crate::jobs::calls::{self, Calls};
use crate::jobs::end::{deadline, loss};
use crate::jobs::job::Job;
use crate::jobs::news::{NewsSender, own_loss};
use crate::jobs::node::{Faults, Node};
use crate::jobs::over;
use crate::jobs::own_site;
use crate::jobs::part;
use crate::jobs::partners;
use crate::jobs::tree;
use crate::jobs::unready::Unready;
use crate::observing::heartbeat;
use crate::starting::preflight;
use crate::trunks::pause::{self, Lost};
use crate::trunks::registry::Standing;

/// How long the head waits for a node to begin a job, with the nodes that it holds.
const HOLD_DEADLINE: Duration = Duration::from_secs(30);
/// A node that this one holds in a job.
#[derive(Debug)]
pub(crate) struct Held {
    host: Host,
    /// The held node's news, after its findings.
    news: Streaming<proto::JobNews>,
    /// The findings of the held node and of those below it.
    ready: proto::Ready,
    /// The trunk that carries the calls to the held node; `None` for a socket of their own.
    trunk: Option<Arc<Standing>>,
}

/// Why another node isn't held.
enum NotHeld {
    /// The node itself can't take part, or wasn't reached.
    Itself(Status),
    /// Nodes below that node can't take part.
    Below(proto::Unready),
}

impl From<Status> for NotHeld {
    fn from(status: Status) -> Self {
        Self::Itself(status)
    }
}

/// Prepares this node for a job, and has the nodes below do so in parallel. Sends the
/// findings. Either all nodes begin the job or none.
///
/// # Errors
/// `ABORTED` if nodes below can't take part, after their names and reasons were sent: a
/// status has no room for those of many nodes. `CANCELLED` if the caller has gone.
pub(crate) async fn prepare(
    node: &Arc<Node>,
    job: &Arc<Job>,
    request: proto::HoldRequest,
    news_tx: &NewsSender,
) -> Result<Vec<Held>, Status> {
    let (began, clock_unix_us) = (Instant::now(), preflight::clock());
    let preparing = async {
        tokio::join!(
            hold_all(node, job, &request, began),
            node.look_for(request.check.clone()),
            preflight::report(node, job, request.check.as_ref(), request.preflight.as_ref())
        )
    };
    let (held, faults, report) = tokio::select! {
        prepared = preparing => prepared,
        () = news_tx.closed() => return Err(Status::cancelled("the caller has gone")),
    };
    let held = match held {
        Ok(held) => held,
        Err(unready) => {
            let _ = news_tx.send(Ok(proto::JobNews { kind: Some(job_news::Kind::Unready(unready)) })).await;
            return Err(Status::aborted("nodes of the job can't take part"));
        }
    };
    let report = report.map(|report| proto::NodeReport { clock_unix_us, ..report });
    let ready = job_news::Kind::Ready(together(job, faults, report, &held));
    // Sending fails if the receiver has gone, which the caller notices by itself.
    let _ = news_tx.send(Ok(proto::JobNews { kind: Some(ready) })).await;
    Ok(held)
}

/// Puts together the findings of this node and of the nodes below it.
fn together(job: &Job, faults: Faults, report: Option<proto::NodeReport>, held: &[Held]) -> proto::Ready {
    let Faults { missing, uncarried } = faults;
    let mut ready = proto::Ready {
        has_topology: job.has_topology,
        joined: job.joined.as_ref().map(|joined| joined.job.to_string()).unwrap_or_default(),
        joined_leader: job.joined.as_ref().map(|joined| joined.leader.clone()).unwrap_or_default(),
        job_directory: job.directory.path().to_string_lossy().into_owned(),
        missing,
        uncarried,
        reports: report.into_iter().collect(),
        held: Vec::new(),
    };
    for held in held {
        ready.missing.extend(held.ready.missing.iter().cloned());
        ready.uncarried.extend(held.ready.uncarried.iter().cloned());
        ready.reports.extend(held.ready.reports.iter().cloned());
        ready.held.extend(held.ready.held.iter().cloned());
    }
    ready
}

async fn hold_all(
    node: &Arc<Node>,
    job: &Arc<Job>,
    request: &proto::HoldRequest,
    began: Instant,
) -> Result<Vec<Held>, proto::Unready> {
    let limit = deadline(job, node, HOLD_DEADLINE);
    let mut holding = JoinSet::new();
    for host in tree::children(&job.members.nodes, node.name()).into_iter().cloned() {
        let (node, job, request) = (node.clone(), job.clone(), request.clone());
        holding.spawn(async move {
            let name = host.name.clone();
            let held = tokio::time::timeout(limit, hold(&node, &job, host, request, began)).await;
            let late = || Status::deadline_exceeded(format!("no answer within {} s", limit.as_secs()));
            (name, held.unwrap_or_else(|_| Err(late().into())))
        });
    }
    let mut held = Vec::new();
    let mut unready = Unready::default();
    for (name, result) in holding.join_all().await {
        match result {
            Ok(node) => held.push(node),
            Err(NotHeld::Itself(status)) => {
                unready.add(name.to_string(), &grpc::reason(&status), may_pass(&status));
            }
            Err(NotHeld::Below(below)) => unready.merge(below),
        }
    }
    if unready.is_empty() { Ok(held) } else { Err(unready.message()) }
}

async fn hold(
    node: &Arc<Node>,
    job: &Job,
    host: Host,
    request: proto::HoldRequest,
    began: Instant,
) -> Result<Held, NotHeld> {
    let since_began = || micros(began.elapsed());
    let asked_us = since_began();
    let Calls { mut client, trunk } = calls::connect(node, job, &host).await?;
    let reached_us = since_began();
    let (asked, asked_at) = (Instant::now(), preflight::clock());
    let response = client.hold(request).await?;
    grpc::check_server(&node.name().to_string(), &host.name.to_string(), &response)?;
    let mut news = response.into_inner();
    let round_trip = asked.elapsed();
    match news.message().await?.and_then(|news| news.kind) {
        Some(job_news::Kind::Ready(mut ready)) => {
            job.holding.channels.keep(host.address, client);
            let name = host.name.to_string();
            preflight::set_skews(&mut ready.reports, &name, asked_at, round_trip);
            // The node's times count from when it received the call: half a round trip later.
            let half_us = micros(round_trip / 2);
            for below in &mut ready.held {
                for time_us in [&mut below.asked_us, &mut below.reached_us, &mut below.ready_us] {
                    *time_us = time_us.saturating_add(reached_us).saturating_add(half_us);
                }
            }
            let (ready_us, has_topology) = (since_began(), ready.has_topology);
            ready.held.push(proto::HeldNode { node: name, asked_us, reached_us, ready_us, has_topology });
            Ok(Held { host, news, ready, trunk })
        }
        Some(job_news::Kind::Unready(below)) => Err(NotHeld::Below(below)),
        _ => Err(Status::internal("the node did not report that it is ready").into()),
    }
}

/// Passes on the news of the nodes that this one holds, in a task for each.
pub(crate) fn follow_all(node: &Arc<Node>, job: &Arc<Job>, held: Vec<Held>, news_tx: &NewsSender) {
    for held in held {
        let telling = partners::keep_told(node.clone(), job.clone(), held.host.clone());
        part::spawn(node, job, "telling a node of partners", telling);
        part::spawn(node, job, "holding a node", follow(node.clone(), job.clone(), held, news_tx.clone()));
    }
}

/// Passes on one node's news, and reports when the node is lost.
async fn follow(node: Arc<Node>, job: Arc<Job>, held: Held, news_tx: NewsSender) {
    let Held { host, mut news, trunk, .. } = held;
    let lost = lost(&node, &job, &host, trunk, news_tx.clone());
    tokio::pin!(lost);
    let (reason, silent) = loop {
        let message = tokio::select! {
            message = news.message() => message,
            lost = &mut lost => break lost,
            () = job.ended.cancelled() => return,
        };
        match message {
            Ok(Some(message)) => {
                if let Some(lost) = own_loss(&message, &host.name) {
                    break (lost.reason.clone(), Duration::from_millis(lost.ago_ms));
                }
                if news_tx.send(Ok(message)).await.is_err() {
                    return;
                }
            }
            Ok(None) => break ("its agent left the job".to_owned(), Duration::ZERO),
            Err(status) => {
                tracing::warn!(node = %host.name, reason = grpc::reason(&status), "a node that is held is lost");
                break (loss(&status), Duration::ZERO);
            }
        }
    };
    let reason = node.revocation_of(&host.name).unwrap_or(reason);
    let is_ending = {
        let mut lost = lock(&job.holding.lost);
        lost.insert(host.name.clone());
        job.holding.ending.is_cancelled()
    };
    // While the job is ending, that end finds that the node is lost.
    if !is_ending {
        let lost = proto::NodeLost { node: host.name.to_string(), reason, ago_ms: millis(silent) };
        let _ = news_tx.send(Ok(proto::JobNews { kind: Some(job_news::Kind::NodeLost(lost)) })).await;
    }
}

/// Returns once a held node is lost: with the reason, and for how long nothing was heard of the
/// node. A node of another site may be silent for as long as the job outlives cuts.
async fn lost(
    node: &Arc<Node>,
    job: &Arc<Job>,
    host: &Host,
    trunk: Option<Arc<Standing>>,
    news_tx: NewsSender,
) -> (String, Duration) {
    let Some(trunk) = trunk else {
        let quiet = heartbeat::watch(node, job, host).await;
        let from = heartbeat::cut::from_held(node, job).await;
        // The others that are silent are told as well.
        let mut told = job.holding.told_cut_off.lock().await;
        if !from.is_empty() && !std::mem::replace(&mut *told, true) {
            let own = node.name().to_string();
            tracing::warn!(job = %job.id, from = from.join(" "), ?quiet, "this node is cut off");
            let silent_ms = millis(quiet);
            let cut_off = proto::NodeCutOff { node: own, from, silent_ms, whole_site: false };
            let _ = news_tx.send(Ok(proto::JobNews { kind: Some(job_news::Kind::CutOff(cut_off)) })).await;
        }
        drop(told);
        let seconds = quiet.as_secs_f64();
        let reason = format!("no sign of life for {seconds:.1} s: it is frozen, or its network is cut");
        return (reason, quiet);
    };
    let tell = |kind| {
        // Only news that the user reads at once: if the queue is full, some are left out.
        let _ = news_tx.try_send(Ok(proto::JobNews { kind: Some(kind) }));
    };
    let lost = pause::lost(node, (&trunk, host), job.outlive, tell).await;
    let silent = node.trunks().cut_for(&host.name).unwrap_or_default();
    if matches!(lost, Lost::Silent(..) | Lost::Swallowed(_)) {
        own_site::tell_if_cut_off(node, job, silent, &news_tx).await;
    }
    (lost.to_string(), silent)
}

/// At a node that is held over a trunk: returns once its holder is lost, or the job is over at its
/// head. The caller then ends the job here and below.
///
/// If silence is the reason, this tells the holder why: what this end sends may still arrive there.
/// Never returns without a trunk: there the end of the call tells.
pub(crate) async fn holder_lost(
    node: &Arc<Node>,
    job: &Job,
    trunk: Option<Arc<Standing>>,
    news_tx: &NewsSender,
) {
    let holder = tree::holder(&job.members.nodes, node.name());
    let (Some(trunk), Some(holder)) = (trunk, holder) else {
        // The end of the call tells.
        return std::future::pending().await;
    };
    // This end dials, too: the other one may have lost its state.
    trunk.dial_at(holder.address.ip());
    let lost = tokio::select! {
        lost = pause::lost(node, (&trunk, holder), job.outlive, |_| ()) => lost,
        () = over::at_head(node, job, &trunk.kept) => {
            tracing::info!(job = %job.id, "the head has ended the job while this node was cut off: it ends here");
            return;
        }
    };
    tracing::warn!(job = %job.id, holder = %holder.name, reason = %lost, "the node that holds the job here is lost: the job ends here");
    node.given_up().note(job.id, lost.to_string());
    if let Lost::Silent(..) | Lost::Swallowed(_) = lost {
        let ago_ms = millis(node.trunks().cut_for(&holder.name).unwrap_or_default());
        let lost = proto::NodeLost { node: node.name().to_string(), reason: lost.to_string(), ago_ms };
        let _ = news_tx.try_send(Ok(proto::JobNews { kind: Some(job_news::Kind::NodeLost(lost)) }));
    }
}
