//! Heartbeats: the agents of a job notice within seconds that one of them is frozen
//! or cut off, and don't mistake a busy one for a dead one.
//!
//! The agent that holds a node keeps one connection to the node's agent. Both send a
//! heartbeat every [`silence::INTERVAL`]: 4 bytes, the milliseconds by which the
//! sender was late. Both judge the other by [`silence::Silence`]. The connection is
//! introduced like a program's, by a preamble with port [`PORT`]. It carries no data,
//! so it isn't encrypted.
//!
//! Heartbeats have a thread of their own. When a job connects its ranks, the agent's
//! other threads may have seconds of handshakes queued. This one sleeps nearly all
//! the time, so the kernel runs it soon after it wakes.

pub(crate) mod beat;
pub(crate) mod silence;

use std::sync::Arc;
use std::time::Duration;

use beat::Ended;

use isthmus_net::dial::SocketOptions;
use isthmus_net::lock;
use isthmus_net::mac;
use isthmus_reach::carrier::Carrier;
use isthmus_reach::{Purpose, Security};
use isthmus_wire::preamble::Preamble;
use isthmus_wire::settings::Host;
use tokio::net::TcpStream;
use tracing::{debug, warn};

use crate::carrying::introduction::JobIntroduction;
use crate::jobs::job::Job;
use crate::jobs::node::Node;

/// The port in a heartbeat connection's preamble; no program can listen there.
pub(crate) const PORT: u16 = 0;
/// Pause before a heartbeat connection that broke is made again.
const AGAIN: Duration = Duration::from_secs(1);

/// At the agent that holds a node: returns when the node has been silent for too
/// long, with the time; never otherwise.
pub(crate) async fn watch(node: &Arc<Node>, job: &Arc<Job>, host: &Host) -> Duration {
    loop {
        match connect(node, job, host).await {
            Ok(stream) => {
                if let Ended::Silent(quiet) = node.heartbeats().beat(stream, job.ended.clone()).await {
                    return quiet;
                }
            }
            Err(reason) => debug!(node = %host.name, reason, "no heartbeat connection"),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn connect(node: &Node, job: &Job, host: &Host) -> Result<TcpStream, String> {
    let own = node.own_address().ok_or("not attached")?;
    let preamble = Preamble {
        job: job.id,
        nonce: mac::new_nonce(),
        source: own.ip(),
        source_port: PORT,
        destination: host.address.ip(),
        destination_port: PORT,
    };
    let mut introduction = JobIntroduction::new(&job.token, preamble);
    let purpose = Purpose {
        security: Security::Raw,
        owner: None,
        options: SocketOptions::default(),
        introduction: Some(&mut introduction),
        given_up: None,
    };
    let reached = node.dialer().reach(host.address.ip(), purpose).await;
    match reached.map_err(|error| error.to_string())?.carrier {
        Carrier::Raw(stream) => Ok(stream),
        Carrier::Tls(_) => Err("it is encrypted".to_owned()),
    }
}

/// The node that holds this one has been silent for too long.
#[derive(Debug)]
pub(crate) struct Lost;

/// At the node that is held: answers the heartbeats of the node that holds it.
///
/// # Errors
/// [`Lost`]: the job is to be ended here and below.
pub(crate) async fn serve(node: &Node, job: &Job, stream: TcpStream) -> Result<(), Lost> {
    let stop = job.ended.child_token();
    // The other side makes a new connection when the old one broke.
    if let Some(old) = lock(&job.holding.heartbeat).replace(stop.clone()) {
        old.cancel();
    }
    if let Ended::Silent(quiet) = node.heartbeats().beat(stream, stop).await {
        warn!(job = %job.id, ?quiet, "the node that holds the job here is frozen or cut off: the job ends here");
        return Err(Lost);
    }
    Ok(())
}
