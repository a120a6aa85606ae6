//! Heartbeats: the agents of a job notice within seconds that one of them is frozen
//! or cut off, and don't mistake a busy one for a dead one.
//!
//! The agent that holds a node keeps one connection to the node's agent. Both send a
//! heartbeat every [`INTERVAL`](isthmus_service::silence::INTERVAL): 4 bytes, the milliseconds by which the
//! sender was late. Both judge the other by [`Silence`]. The connection is
//! introduced like a program's, by a preamble with port [`PORT`]. It carries no data,
//! so it isn't encrypted. It goes only to where the node's agent has signed that it is: another
//! party could keep a dead node alive.
//!
//! A silent connection may only wait for TCP to send again what a cut has swallowed, after
//! a pause as long as the cut. So after 1.5 s others are tried beside it, and the first
//! that is made takes its place. The same holds if what this side sends stays unacknowledged:
//! after a cut the two directions need not come back at once.
//!
//! Heartbeats have a thread of their own. When a job connects its ranks, the agent's
//! other threads may have seconds of handshakes queued. This one sleeps nearly all
//! the time, so the kernel runs it soon after it wakes.

pub(crate) mod beat;
pub(crate) mod cut;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use beat::{Ended, PORT};
use isthmus_rpc::connection;
use isthmus_service::silence::Silence;

use isthmus_net::dial::SocketOptions;
use isthmus_reach::{Purpose, Security};
use isthmus_service::clock::millis;
use isthmus_service::lock;
use isthmus_wire::preamble::Preamble;
use isthmus_wire::proto::{NodeLost, job_news};
use isthmus_wire::settings::Host;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{debug, warn};

use crate::carrying::introduction::JobIntroduction;
use crate::jobs::job::Job;
use crate::jobs::node::Node;
use crate::jobs::{told, tree};

/// Pause before a heartbeat connection that broke is made again.
const AGAIN: Duration = Duration::from_secs(1);
/// How long an attempt to make another connection beside a silent one may take. After a cut, a new
/// attempt succeeds sooner than one that began within the cut.
const ATTEMPT: Duration = Duration::from_secs(4);
/// Most attempts to make another connection that go on at once.
const ATTEMPTS: usize = 16;

/// At the agent that holds a node: returns once the node has been silent for too long, with the
/// time of its silence.
pub(crate) async fn watch(node: &Arc<Node>, job: &Arc<Job>, host: &Host) -> Duration {
    let silence = job.holding.silence_of(&host.name, job.patience);
    let mut made = None;
    loop {
        let stream = match made.take() {
            Some(stream) => stream,
            None => match connect(node, job, host).await {
                Ok(stream) => stream,
                Err(reason) => {
                    debug!(node = %host.name, reason, "no heartbeat connection");
                    tokio::time::sleep(AGAIN).await;
                    continue;
                }
            },
        };
        job.holding.note(&stream);
        lock(&silence).connected();
        let stop = job.ended.child_token();
        let _stopped = stop.clone().drop_guard();
        tokio::select! {
            ended = node.heartbeats().beat(stream, Arc::clone(&silence), stop) => match ended {
                Ended::Silent(quiet) => return quiet,
                Ended::Broken => tokio::time::sleep(AGAIN).await,
            },
            stream = another(node, job, host, &silence) => made = Some(stream),
        }
    }
}

/// While a node is silent, or hears nothing, tries to make another connection to it: TCP may only
/// wait to send again what was lost in a cut. Returns the first connection that is made.
async fn another(node: &Arc<Node>, job: &Arc<Job>, host: &Host, silence: &Mutex<Silence>) -> TcpStream {
    let mut attempts = JoinSet::new();
    loop {
        let (is_wanted, pause) = {
            let silence = lock(silence);
            (silence.wants_another(), silence.redial())
        };
        if !is_wanted {
            attempts.abort_all();
        } else if attempts.len() < ATTEMPTS {
            let (node, job, host) = (node.clone(), job.clone(), host.clone());
            attempts.spawn(async move { timeout(ATTEMPT, connect(&node, &job, &host)).await });
        }
        let next = tokio::time::Instant::now() + pause;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(next) => break,
                Some(attempt) = attempts.join_next() => {
                    if let Ok(Ok(Ok(stream))) = attempt {
                        return stream;
                    }
                }
            }
        }
    }
}

async fn connect(node: &Node, job: &Job, host: &Host) -> Result<TcpStream, String> {
    let own = node.own_address().ok_or("not attached")?;
    let preamble = Preamble {
        job: job.id,
        nonce: connection::new_nonce(),
        source: own.ip(),
        source_port: PORT,
        destination: host.address.ip(),
        destination_port: PORT,
    };
    let mut introduction = JobIntroduction::new(&job.token, preamble);
    let purpose = Purpose {
        security: Security::WithoutData,
        node: Some(&host.name),
        owner: Some(node.owner()),
        options: SocketOptions::default(),
        introduction: Some(&mut introduction),
        given_up: None,
    };
    let reached = node.dialer().reach(host.address.ip(), purpose).await;
    let carrier = reached.map_err(|error| error.to_string())?.carrier;
    carrier.unencrypted().map_err(|error| error.to_string())
}

/// The node that holds this one has been silent for too long.
#[derive(Debug)]
pub(crate) struct Lost;

/// At the node that is held: answers the heartbeats of the node that holds it.
///
/// # Errors
/// [`Lost`]: the job is to be ended here and below.
pub(crate) async fn serve(node: &Arc<Node>, job: &Job, stream: TcpStream) -> Result<(), Lost> {
    let stop = job.ended.child_token();
    job.holding.note(&stream);
    let silence = job.holding.silence_of_holder(job.patience);
    lock(&silence).connected();
    // The other side makes a new connection when the old one broke, or is silent.
    if let Some(old) = lock(&job.holding.heartbeat).replace(stop.clone()) {
        old.cancel();
    }
    if let Ended::Silent(quiet) = node.heartbeats().beat(stream, silence, stop).await {
        if cut::from_holder(node, job).await {
            warn!(
                job = %job.id,
                ?quiet,
                "this node is cut off: it hears neither of the node that holds the job here nor of its \
                 gateway; the job ends here"
            );
        } else {
            warn!(job = %job.id, ?quiet, "the node that holds the job here is frozen or cut off: the job ends here");
            tell_holder(node, job, quiet);
            let seconds = quiet.as_secs_f64();
            let reason = format!("no sign of life for {seconds:.1} s: it is frozen, or its network is cut");
            told::head(node, job, reason, quiet).await;
        }
        return Err(Lost);
    }
    Ok(())
}

/// Tells the node that holds this one why the job has ended here: if it was frozen, it reads
/// that once it goes on.
fn tell_holder(node: &Node, job: &Job, quiet: Duration) {
    if let Some(holder) = tree::holder(&job.members.nodes, node.name()) {
        let (own, seconds) = (node.name(), quiet.as_secs_f64());
        let reason = format!(
            "{own} had no sign of life of it for {seconds:.1} s: it was frozen, or its network is cut"
        );
        let lost = NodeLost { node: holder.name.to_string(), reason, ago_ms: millis(quiet) };
        job.news.send(job_news::Kind::NodeLost(lost));
    }
}
