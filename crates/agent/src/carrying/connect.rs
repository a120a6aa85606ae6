//! Opens a connection for a program.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use isthmus_net::dial::SocketOptions;
use isthmus_net::loopback::Buffers;
use isthmus_net::mac;
use isthmus_reach::carrier::Carrier;
use isthmus_reach::{Purpose, ReachError, Reached, Security};
use isthmus_wire::preamble::{Preamble, Status};
use isthmus_wire::proto::{self, job_news};
use isthmus_wire::shim::{End, Handover, Reply};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::carrying::introduction::JobIntroduction;
use crate::carrying::names::Ends;
use crate::carrying::pump::{End as PumpEnd, pump};
use crate::carrying::sockets::{cookie, inode};
use crate::jobs::job::Job;
use crate::jobs::node::Node;
use crate::observing::account::{Bytes, Joint};
use crate::observing::heartbeat;

/// The reply to a shim, and the socket to hand over. This copy of the socket is dropped
/// with the reply; otherwise the peer would never see the end of the connection.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) reply: Reply,
    pub(crate) socket: Option<OwnedFd>,
}

impl Connected {
    pub(crate) fn failed(errno: i32) -> Self {
        Self { reply: Reply::error(errno), socket: None }
    }
}

/// A program's `connect`.
pub(crate) struct Wanted {
    pub(crate) destination: End,
    /// 0 if the program bound none.
    pub(crate) source_port: u16,
    pub(crate) options: SocketOptions,
}

/// Opens a connection for a program.
pub(crate) async fn connect(
    node: &Arc<Node>,
    job: &Arc<Job>,
    wanted: Wanted,
    given_up: &CancellationToken,
) -> Connected {
    let Some(own) = node.own_address() else {
        warn!("no connection can be made: this agent was never attached");
        return Connected::failed(libc::ENETUNREACH);
    };
    let destination = wanted.destination;
    let Some(acceptor) = job.members.node(destination.address) else {
        debug!(job = %job.id, destination = %destination.address, "not a node of the job");
        return Connected::failed(libc::EHOSTUNREACH);
    };
    // No program can listen at this port; between agents it stands for heartbeats.
    if destination.port == heartbeat::PORT {
        return Connected::failed(libc::ECONNREFUSED);
    }
    let source_port = match wanted.source_port {
        0 => node.next_port(),
        port => port,
    };
    debug!(job = %job.id, %acceptor, port = destination.port, "a program connects");
    let preamble = Preamble {
        job: job.id,
        nonce: mac::new_nonce(),
        source: own.ip(),
        source_port,
        destination: destination.address,
        destination_port: destination.port,
    };
    let _under_way = job.account.begin();
    let reached = match reach(node, job, preamble, wanted.options, given_up).await {
        Ok(reached) => reached,
        Err(error) => {
            let errno = errno(&error);
            if !matches!(errno, libc::ECONNREFUSED | libc::ECANCELED) {
                warn!(job = %job.id, %acceptor, port = destination.port, %error, "connection not made");
                job.news.send(job_news::Kind::ConnectFailed(proto::ConnectFailed {
                    initiator: node.name().to_string(),
                    acceptor: acceptor.to_string(),
                    reason: error.to_string(),
                }));
            }
            return Connected::failed(errno);
        }
    };
    if !reached.failures.is_empty() {
        job.news.send(job_news::Kind::WayFailed(proto::WayFailed {
            initiator: node.name().to_string(),
            acceptor: acceptor.to_string(),
            failures: reached.failures,
            dial: reached.dial.into(),
            relay: reached.relay.clone(),
        }));
    }
    let joint = Joint {
        acceptor: reached.node,
        dial: reached.dial,
        route: reached.route,
        relay: reached.relay,
        encrypted: matches!(reached.carrier, Carrier::Tls(_)),
    };
    let bytes = job.account.connected(joint, reached.setup);
    let ends = Ends { local: End { address: own.ip(), port: source_port }, peer: destination };
    match hand_over(node, job, reached.carrier, wanted.options, ends, bytes).await {
        Ok(connected) => {
            debug!(job = %job.id, "handed over");
            connected
        }
        Err(error) => {
            warn!(job = %job.id, %error, "connection made but not handed over");
            Connected::failed(error.raw_os_error().unwrap_or(libc::EIO))
        }
    }
}

/// Connects to the acceptor's agent, and waits for its final answer.
async fn reach(
    node: &Node,
    job: &Job,
    preamble: Preamble,
    options: SocketOptions,
    given_up: &CancellationToken,
) -> Result<Reached, ReachError> {
    let destination = preamble.destination;
    let mut introduction = JobIntroduction::new(&job.token, preamble);
    let purpose = Purpose {
        security: Security::AsPlanned(&node.tls().stream),
        owner: Some(node.owner()),
        options,
        introduction: Some(&mut introduction),
        given_up: Some(given_up),
    };
    let mut reached = node.dialer().reach(destination, purpose).await?;
    introduction.settle(&mut reached.carrier).await.map_err(ReachError::Answered)?;
    Ok(reached)
}

async fn hand_over(
    node: &Arc<Node>,
    job: &Job,
    carrier: Carrier,
    options: SocketOptions,
    ends: Ends,
    bytes: Arc<Bytes>,
) -> io::Result<Connected> {
    let socket = match carrier {
        Carrier::Raw(stream) => stream.into_std()?,
        Carrier::Tls(tls) => {
            let pair = node
                .pairs()
                .pair(Buffers { send: options.send_buffer, receive: options.receive_buffer })
                .await?;
            pair.agent.set_nodelay(true)?;
            tokio::spawn(pump(pair.agent, *tls, bytes, PumpEnd::Initiator));
            pair.program
        }
    };
    job.sockets.names().insert(cookie(&socket)?, ends);
    job.sockets.handed_over(inode(&socket)?);
    let reply = Reply { errno: 0, handover: Handover::Socket, peer: ends.peer, local: ends.local };
    Ok(Connected { reply, socket: Some(socket.into()) })
}

/// The `errno` for the program's `connect`.
fn errno(error: &ReachError) -> i32 {
    match error {
        ReachError::Answered(Status::Refused) => libc::ECONNREFUSED,
        ReachError::Answered(Status::TimedOut) => libc::ETIMEDOUT,
        ReachError::GivenUp => libc::ECANCELED,
        ReachError::Answered(_)
        | ReachError::Unknown(_)
        | ReachError::NoWay(_)
        | ReachError::OtherOwner(_) => libc::EHOSTUNREACH,
    }
}
