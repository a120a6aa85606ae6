//! Opens a connection for a program.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use isthmus_carry::Traffic;
use isthmus_net::dial::SocketOptions;
use isthmus_net::loopback::Buffers;
use isthmus_plan::Encryption;
use isthmus_reach::ReachError;
use isthmus_rpc::connection;
use isthmus_service::exhausted::{self, Exhausted};
use isthmus_wire::GridName;
use isthmus_wire::preamble::{Preamble, Status};
use isthmus_wire::proto::{self, job_news};
use isthmus_wire::shim::{Endpoint, Handover, Reply};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::carrying::agent_connection::AgentConnection;
use crate::carrying::names::Ends;
use crate::carrying::persist;
use crate::carrying::sockets::{cookie, inode};
use crate::jobs::job::Job;
use crate::jobs::node::Node;
use crate::jobs::partners::Acceptor;
use crate::jobs::progress;
use crate::observing::account::Joint;
use crate::observing::heartbeat::beat;

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

/// What a program has asked for by its `connect`.
pub(crate) struct ConnectRequest {
    pub(crate) destination: Endpoint,
    /// The port that the program has bound its socket to; 0 if it has bound none.
    pub(crate) source_port: u16,
    pub(crate) options: SocketOptions,
    pub(crate) is_v6: bool,
}

/// Opens a connection for a program.
pub(crate) async fn connect(
    node: &Arc<Node>,
    job: &Arc<Job>,
    request: ConnectRequest,
    given_up: &CancellationToken,
) -> Connected {
    let Some(own) = node.own_address() else {
        warn!("no connection can be made: this agent was never attached");
        return Connected::failed(libc::ENETUNREACH);
    };
    let destination = request.destination;
    let Some(target) = job.acceptor(destination.address) else {
        debug!(job = %job.id, destination = %destination.address, "not a node of the job");
        return Connected::failed(libc::EHOSTUNREACH);
    };
    let acceptor = &target.name;
    // No program can listen at this port; between agents it stands for heartbeats.
    if destination.port == beat::PORT {
        return Connected::failed(libc::ECONNREFUSED);
    }
    let source_port = if request.source_port == 0 { node.next_port() } else { request.source_port };
    debug!(job = %job.id, %acceptor, port = destination.port, "a program connects");
    let preamble = Preamble {
        job: target.job(job).0,
        nonce: connection::new_nonce(),
        source: own.ip(),
        source_port,
        destination: destination.address,
        destination_port: destination.port,
    };
    let _under_way = job.account.begin();
    let reaching = persist::reach_in_time(node, job, &target, preamble, (request.options, given_up));
    let reached = match reaching.await {
        Ok(reached) => reached,
        Err(error) => {
            return not_made(node, job, &target, destination, &error);
        }
    };
    if !reached.failures.is_empty() {
        job.news.send(job_news::Kind::WayFailed(proto::WayFailed {
            initiator: node.name().to_string(),
            acceptor: acceptor.to_string(),
            failures: reached.failures,
            dial: reached.way.dial.into(),
            relay: reached.way.relay.clone(),
        }));
    }
    if acceptor.site != node.name().site {
        reached.connection.keep_alive();
    }
    let joint = Joint {
        acceptor: acceptor.clone(),
        dial: reached.way.dial,
        route: reached.way.route,
        relay: reached.way.relay,
        encryption: reached.encryption,
    };
    if joint.encryption == Encryption::Gateways
        && let Some(gateway) = node.upstream().gateway()
    {
        job.over_gateways.note(gateway.clone(), &acceptor.site);
        job.account.by_gateway(gateway);
    }
    let bytes = job.account.connected(joint.clone(), reached.setup);
    let traffic: Arc<dyn Traffic> = match reached.standing {
        Some(standing) => {
            progress::watch(node, job, &standing, destination.address);
            Arc::new(job.account.over_trunk(joint, standing))
        }
        None => bytes.clone(),
    };
    if let (Encryption::None, AgentConnection::Socket(socket)) = (reached.encryption, &reached.connection) {
        job.raw.watch(socket, bytes);
    }
    let local = Endpoint { address: own.ip(), port: source_port };
    let ends = Ends { local, peer: destination, is_v6: request.is_v6 };
    match hand_over(node, job, reached.connection, request.options, ends, traffic).await {
        Ok(connected) => {
            debug!(job = %job.id, "handed over");
            connected
        }
        Err(error) => not_handed_over(node, job, acceptor, &error),
    }
}

/// Answers a connect that has failed. Tells the user why, unless the program's error says enough.
fn not_made(
    node: &Node,
    job: &Job,
    target: &Acceptor,
    destination: Endpoint,
    error: &ReachError,
) -> Connected {
    let acceptor = &target.name;
    let errno = errno(error);
    if !matches!(errno, libc::ECONNREFUSED | libc::ECANCELED) {
        warn!(job = %job.id, %acceptor, port = destination.port, %error, "connection not made");
        job.news.send(job_news::Kind::ConnectFailed(proto::ConnectFailed {
            initiator: node.name().to_string(),
            acceptor: acceptor.to_string(),
            reason: error.to_string(),
            // A partner may leave at any time, which ends no other job.
            given_up: !matches!(error, ReachError::Answered(_)) && target.partner.is_none(),
        }));
    }
    Connected::failed(errno)
}

/// Answers a connect whose connection can't be passed to the program, mostly for lack of a
/// resource. Tells the user why.
fn not_handed_over(node: &Node, job: &Job, acceptor: &GridName, error: &io::Error) -> Connected {
    warn!(job = %job.id, error = exhausted::text(error), "connection made but not handed over");
    if let Some(exhausted) = Exhausted::of(error) {
        let initiator = node.name().to_string();
        job.news.send(job_news::Kind::ConnectFailed(proto::ConnectFailed {
            reason: format!("{initiator} {exhausted}"),
            initiator,
            acceptor: acceptor.to_string(),
            given_up: true,
        }));
    }
    Connected::failed(error.raw_os_error().unwrap_or(libc::EIO))
}

async fn hand_over(
    node: &Arc<Node>,
    job: &Job,
    connection: AgentConnection,
    options: SocketOptions,
    ends: Ends,
    traffic: Arc<dyn Traffic>,
) -> io::Result<Connected> {
    let socket = match connection {
        AgentConnection::Socket(stream) | AgentConnection::OverGateways(stream, _) => stream.into_std()?,
        AgentConnection::Stream(stream) => {
            let buffers = Buffers { send: options.send_buffer, receive: options.receive_buffer };
            let pair = node.pairs().pair(buffers).await?;
            let running = stream.stream.attach(pair.agent.into_std()?, traffic)?;
            job.sockets.carried(ends.peer.address, running);
            pair.program
        }
    };
    job.sockets.names().insert(cookie(&socket)?, ends);
    job.sockets.handed_over(inode(&socket)?);
    let (peer, local, is_v6) = (ends.peer, ends.local, ends.is_v6);
    let reply = Reply { errno: 0, handover: Handover::Socket, peer, local, is_v6 };
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
        | ReachError::OnlyEncrypted(_)
        | ReachError::OtherOwner(_) => libc::EHOSTUNREACH,
    }
}
