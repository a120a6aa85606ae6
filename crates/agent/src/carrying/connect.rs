//! Opens a connection for a program.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isthmus_carry::Traffic;
use isthmus_net::dial::SocketOptions;
use isthmus_net::exhausted::{self, Exhausted};
use isthmus_net::loopback::Buffers;
use isthmus_net::mac;
use isthmus_plan::Encryption;
use isthmus_reach::carrier::Carrier;
use isthmus_reach::{Purpose, ReachError, Reached, Security, Unaccepted};
use isthmus_wire::GridName;
use isthmus_wire::preamble::{Preamble, Status};
use isthmus_wire::proto::{self, job_news};
use isthmus_wire::shim::{End, Handover, Reply};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::carrying::introduction::JobIntroduction;
use crate::carrying::link::{Link, Messages as _};
use crate::carrying::names::Ends;
use crate::carrying::persist;
use crate::carrying::sealed;
use crate::carrying::sockets::{cookie, inode};
use crate::jobs::job::Job;
use crate::jobs::node::Node;
use crate::jobs::progress;
use crate::observing::account::Joint;
use crate::observing::heartbeat;
use crate::trunks;
use crate::trunks::open::Opened;
use crate::trunks::registry::{Standing, Way};
use crate::uplink::upstream::Planned;

/// How long an introduction over an open connection may take. Its trunk may be cut: this is as long
/// as a kernel tries to connect (tcp(7), `tcp_syn_retries`).
const INTRODUCTION: Duration = Duration::from_secs(127);

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
pub(crate) struct Wanted {
    pub(crate) destination: End,
    /// The port that the program has bound its socket to; 0 if it has bound none.
    pub(crate) source_port: u16,
    pub(crate) options: SocketOptions,
    pub(crate) is_v6: bool,
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
    let reaching = persist::reach_in_time(node, job, acceptor, preamble, (wanted.options, given_up));
    let reached = match reaching.await {
        Ok(reached) => reached,
        Err(error) => {
            return not_made(node, job, acceptor, destination, &error);
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
        reached.link.keep_alive();
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
    if let (Encryption::None, Link::Carrier(Carrier::Raw(socket))) = (reached.encryption, &reached.link) {
        job.raw.watch(socket, bytes);
    }
    let local = End { address: own.ip(), port: source_port };
    let ends = Ends { local, peer: destination, is_v6: wanted.is_v6 };
    match hand_over(node, job, reached.link, wanted.options, ends, traffic).await {
        Ok(connected) => {
            debug!(job = %job.id, "handed over");
            connected
        }
        Err(error) => not_handed_over(node, job, acceptor, &error),
    }
}

/// Answers a connect that has failed. Tells the user why, unless the program's error says enough.
fn not_made(node: &Node, job: &Job, acceptor: &GridName, destination: End, error: &ReachError) -> Connected {
    let errno = errno(error);
    if !matches!(errno, libc::ECONNREFUSED | libc::ECANCELED) {
        warn!(job = %job.id, %acceptor, port = destination.port, %error, "connection not made");
        job.news.send(job_news::Kind::ConnectFailed(proto::ConnectFailed {
            initiator: node.name().to_string(),
            acceptor: acceptor.to_string(),
            reason: error.to_string(),
            given_up: !matches!(error, ReachError::Answered(_)),
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

/// A connection to the acceptor's agent, which has answered that the acceptor's program has it.
pub(super) struct Introduced {
    link: Link,
    way: Way,
    encryption: Encryption,
    setup: Duration,
    /// The ways that were tried before and have failed, each with its reason.
    failures: Vec<String>,
    /// The trunk that carries the connection; `None` if it has a socket of its own.
    standing: Option<Arc<Standing>>,
}

impl Introduced {
    fn new(reached: Reached) -> Self {
        let way = trunks::open::way(&reached);
        let encryption = match (&reached.carrier, reached.dial) {
            (_, proto::Dial::Trunk) => Encryption::Gateways,
            (Carrier::Raw(_), _) => Encryption::None,
            (Carrier::Tls(_), _) => Encryption::Agents,
        };
        let link = reached.carrier.into();
        let (setup, failures) = (reached.setup, reached.failures);
        Self { link, way, encryption, setup, failures, standing: None }
    }

    fn over(
        (link, way, standing): (Link, Way, Arc<Standing>),
        setup: Duration,
        failures: Vec<String>,
    ) -> Self {
        Self { link, way, encryption: Encryption::Agents, setup, failures, standing: Some(standing) }
    }

    /// Notes that this connection was made only after the plan's own ways had failed with `error`.
    pub(super) fn after(mut self, error: ReachError) -> Self {
        if let ReachError::NoWay(reasons) = error {
            self.failures = reasons;
        }
        self
    }
}

/// Connects to the acceptor's agent, and waits for its final answer. `known` is how data with that
/// node is encrypted, as an earlier try has found it. It counts if that can't be looked up now.
///
/// # Errors [`ReachError`].
pub(super) async fn reach(
    node: &Arc<Node>,
    job: &Job,
    acceptor: &GridName,
    preamble: Preamble,
    (options, given_up): (SocketOptions, &CancellationToken),
    known: &mut Option<Planned>,
) -> Result<Introduced, ReachError> {
    let planned = tokio::select! {
        planned = trunks::open::planned(node, acceptor, preamble.destination) => planned.or(*known),
        () = given_up.cancelled() => return Err(ReachError::GivenUp),
    };
    *known = planned;
    for again in [true, false] {
        let reaching = try_to_reach(node, job, acceptor, preamble, (options, given_up), (planned, again));
        if let Some(introduced) = reaching.await? {
            return Ok(introduced);
        }
    }
    Err(ReachError::NoWay(vec![format!("the trunk to {acceptor} has ended twice")]))
}

/// Makes one attempt of [`reach`]. Returns `None` if the trunk has ended during the introduction,
/// and `again` says that another attempt follows.
async fn try_to_reach(
    node: &Arc<Node>,
    job: &Job,
    acceptor: &GridName,
    preamble: Preamble,
    (options, given_up): (SocketOptions, &CancellationToken),
    (planned, again): (Option<Planned>, bool),
) -> Result<Option<Introduced>, ReachError> {
    let destination = preamble.destination;
    let started = Instant::now();
    let mut introduction = JobIntroduction::new(&job.token, preamble);
    let mut over_gateways = Vec::new();
    if !job.encrypt_to_nodes && planned.is_some_and(|planned| planned.by_gateways) {
        let purpose = Purpose {
            security: Security::ByGateways(Some(job.id)),
            node: Some(acceptor),
            owner: Some(node.owner()),
            options,
            introduction: Some(&mut introduction),
            given_up: Some(given_up),
        };
        match node.dialer().reach(destination, purpose).await {
            Ok(reached) => {
                let mut introduced = Introduced::new(reached);
                introduction.settle(&mut introduced.link).await.map_err(unaccepted)?;
                return Ok(Some(introduced));
            }
            Err(ReachError::NoWay(failures)) => over_gateways = failures,
            Err(error) => return Err(error),
        }
    }
    let opening = trunks::open::for_program(node, acceptor, destination, planned);
    let opened = tokio::select! {
        opened = opening => opened?,
        () = given_up.cancelled() => return Err(ReachError::GivenUp),
    };
    let mut introduced = match opened {
        Opened::NoTrunk => {
            let purpose = Purpose {
                security: Security::AsPlanned(&node.tls().stream),
                node: Some(acceptor),
                owner: Some(node.owner()),
                options,
                introduction: Some(&mut introduction),
                given_up: Some(given_up),
            };
            Introduced::new(node.dialer().reach(destination, purpose).await?)
        }
        Opened::Connection(reached) => {
            let mut introduced = Introduced::new(*reached);
            introduce(&mut introduction, &mut introduced.link).await?;
            introduced
        }
        Opened::Stream { stream, standing, way, failures } => {
            let mut link = Link::Stream(stream);
            match introduce(&mut introduction, &mut link).await {
                // The other agent has lost the trunk: it has begun anew.
                Err(ReachError::NoWay(_)) if again && standing.kept.ended.is_cancelled() => return Ok(None),
                introduced => introduced?,
            }
            Introduced::over((link, way, standing), started.elapsed(), failures)
        }
    };
    introduced.failures.splice(..0, over_gateways);
    introduction.settle(&mut introduced.link).await.map_err(unaccepted)?;
    Ok(Some(introduced))
}

/// Connects to the acceptor's agent over a trunk that stands, though the plan gives connections
/// sockets of their own. Returns `None` if no trunk stands.
pub(super) async fn reach_over_trunk(
    node: &Node,
    job: &Job,
    acceptor: &GridName,
    preamble: Preamble,
) -> Option<Result<Introduced, ReachError>> {
    let started = Instant::now();
    let Opened::Stream { stream, standing, way, .. } = trunks::open::over_any(node, acceptor).await? else {
        return None;
    };
    let mut introduction = JobIntroduction::new(&job.token, preamble);
    let mut link = Link::Stream(stream);
    let introducing = async {
        introduce(&mut introduction, &mut link).await?;
        introduction.settle(&mut link).await.map_err(unaccepted)
    };
    let introduced = introducing.await;
    Some(introduced.map(|()| Introduced::over((link, way, standing), started.elapsed(), Vec::new())))
}

/// Introduces the program's connection over an open link.
async fn introduce(introduction: &mut JobIntroduction<'_>, link: &mut Link) -> Result<(), ReachError> {
    let introducing = timeout(INTRODUCTION, introduction.introduce_over(link)).await;
    match introducing {
        Ok(introduced) => introduced.map_err(unaccepted),
        Err(_) => Err(ReachError::NoWay(vec![format!("{}: no answer within {INTRODUCTION:?}", link.ends())])),
    }
}

fn unaccepted(error: Unaccepted) -> ReachError {
    match error {
        Unaccepted::Final(status) => ReachError::Answered(status),
        Unaccepted::Next(reason) => ReachError::NoWay(vec![reason]),
    }
}

async fn hand_over(
    node: &Arc<Node>,
    job: &Job,
    link: Link,
    options: SocketOptions,
    ends: Ends,
    traffic: Arc<dyn Traffic>,
) -> io::Result<Connected> {
    let pair = || node.pairs().pair(Buffers { send: options.send_buffer, receive: options.receive_buffer });
    let socket = match link {
        Link::Carrier(Carrier::Raw(stream)) | Link::OverGateways(stream, _) => stream.into_std()?,
        Link::Carrier(Carrier::Tls(tls)) => {
            let pair = pair().await?;
            let (node, agent, ended) = (node.clone(), pair.agent.into_std()?, job.ended.clone());
            tokio::spawn(async move {
                if let Err(error) = sealed::carry(node.plane(), agent, *tls, traffic, &ended).await {
                    warn!(%error, "a connection can't be carried");
                }
            });
            pair.program
        }
        Link::Stream(stream) => {
            let pair = pair().await?;
            job.sockets.carried(stream.stream.attach(pair.agent.into_std()?, traffic)?);
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
        | ReachError::OtherOwner(_) => libc::EHOSTUNREACH,
    }
}
