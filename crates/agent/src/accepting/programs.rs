//! The connections of other nodes' programs: each is checked by its preamble, and passed to the
//! program that listens here.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use isthmus_carry::Uncounted;
use isthmus_identity::Role;
use isthmus_plan::Encryption;
use isthmus_rpc::connection::Connection;
use isthmus_rpc::rendezvous::Order;
use isthmus_service::counters;
use isthmus_service::exhausted::Exhausted;
use isthmus_service::mac::Secret;
use isthmus_service::unidentified::UnidentifiedEntry;
use isthmus_wire::JobId;
use isthmus_wire::preamble::{Answer, Mac, PREAMBLE_LEN, Preamble, Status};
use isthmus_wire::proto::{self, job_news};
use isthmus_wire::shim::Endpoint;
use tokio::net::TcpStream;
use tracing::{debug, warn};

use super::knock::{Held, Incoming, Knock, until_closed};
use crate::carrying::agent_connection::{AgentConnection, Messages as _};
use crate::carrying::names::Ends;
use crate::carrying::sockets::{cookie, inode};
use crate::jobs::job::Job;
use crate::jobs::node::Node;
use crate::jobs::tree;
use crate::observing::heartbeat::beat;

/// How long the first bytes of a connection may take.
pub(super) const PREAMBLE_DEADLINE: Duration = Duration::from_secs(10);
/// How long the lookup of the plan to an initiator's site may take.
const PLAN: Duration = Duration::from_secs(10);
/// Time until the initiator gets an interim answer. Its deadline for reaching this
/// agent may be shorter than the wait for a listener with a full backlog.
const WAITING: Duration = Duration::from_secs(1);

/// Takes the connections of other nodes' programs.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    pub node: Arc<Node>,
    /// The broker's order by which this agent has dialed the connection; `None` for a connection
    /// that another party has dialed.
    pub ordered: Option<Arc<Order>>,
}

/// A connection that the node that holds a job here has made for heartbeats.
pub(crate) struct ForHeartbeats {
    pub job: Arc<Job>,
    pub stream: TcpStream,
    pub connection: Connection,
}

impl Programs {
    /// Serves a connection of a program: reads its preamble, knocks, answers. Returns a connection
    /// for heartbeats, which the caller serves.
    pub(super) async fn program(
        self,
        mut connection: AgentConnection,
        entry: Option<UnidentifiedEntry>,
    ) -> io::Result<Option<ForHeartbeats>> {
        let bytes = preamble(&mut connection).await?;
        self.take(connection, &bytes, entry).await
    }

    /// Serves a connection of a program whose preamble has been read and not decoded, as
    /// [`program`](Self::program) does.
    pub(crate) async fn take(
        self,
        connection: AgentConnection,
        preamble: &[u8; PREAMBLE_LEN],
        entry: Option<UnidentifiedEntry>,
    ) -> io::Result<Option<ForHeartbeats>> {
        let (preamble, mac) = Preamble::decode(preamble).map_err(io::Error::other)?;
        Connection::from(preamble.nonce).scope(self.introduced(connection, preamble, mac, entry)).await
    }

    /// Serves a connection of a program whose preamble has been decoded: checks the preamble,
    /// knocks, answers.
    async fn introduced(
        self,
        mut connection: AgentConnection,
        preamble: Preamble,
        mac: Mac,
        entry: Option<UnidentifiedEntry>,
    ) -> io::Result<Option<ForHeartbeats>> {
        debug!(job = %preamble.job, ends = connection.ends(), port = preamble.destination_port, "a preamble");
        let Some(job) = self.node.job(preamble.job) else {
            debug!(job = %preamble.job, ends = connection.ends(), "a connection for a job that does not run here");
            counters::refused(refusal_word(Status::UnknownJob));
            connection.send(&Answer { status: Status::UnknownJob }.encode(&[0; 32])).await?;
            return Ok(None);
        };
        let checked = self.check(&job, &preamble, &mac, &connection).await;
        if checked.is_ok() {
            drop(entry);
        }
        let status = match checked {
            Ok(()) if preamble.destination_port == beat::PORT => {
                connection.send(&sealed(&job.token, Status::Connected, &preamble)).await?;
                let AgentConnection::Socket(stream) = connection else { return Ok(None) };
                return Ok(Some(ForHeartbeats { job, stream, connection: preamble.nonce.into() }));
            }
            Ok(()) => match self.knock(&job, &preamble, &mut connection).await? {
                Some(Ok(knock)) => {
                    debug!(job = %job.id, port = preamble.destination_port, "knocked");
                    connect(&self.node, &job, &preamble, connection, knock).await?;
                    return Ok(None);
                }
                Some(Err(status)) => status,
                None => return Ok(None),
            },
            Err(status) => status,
        };
        counters::refused(refusal_word(status));
        debug!(?status, ends = connection.ends(), port = preamble.destination_port, "connection not made");
        connection.send(&sealed(&job.token, status, &preamble)).await?;
        Ok(None)
    }

    /// Knocks at the program's port; `None` if the initiator gave up meanwhile.
    async fn knock(
        &self,
        job: &Job,
        preamble: &Preamble,
        connection: &mut AgentConnection,
    ) -> io::Result<Option<Result<Knock, Status>>> {
        let _under_way = job.account.begin();
        let short = |exhausted| not_taken(&self.node, job, preamble, exhausted);
        let port = (self.node.twin(), preamble.destination_port);
        let knocking = job.sockets.knocks.knock(self.node.loopback(), port, short);
        tokio::pin!(knocking);
        let mut waits = false;
        loop {
            tokio::select! {
                biased;
                // Before the final answer the initiator sends nothing. So what is read here is the
                // end of the connection: the initiator gave up, perhaps while its preamble was
                // checked. Then nobody must accept what is left.
                _ = connection.receive::<1>() => return Ok(None),
                () = job.ended.cancelled() => return Ok(Some(Err(Status::UnknownJob))),
                knock = &mut knocking => return Ok(Some(knock)),
                () = tokio::time::sleep(WAITING), if !waits => {
                    waits = true;
                    connection.send(&sealed(&job.token, Status::Waiting, preamble)).await?;
                }
            }
        }
    }

    /// Checks the preamble, and whether the connection may come unencrypted.
    async fn check(
        &self,
        job: &Job,
        preamble: &Preamble,
        mac: &Mac,
        connection: &AgentConnection,
    ) -> Result<(), Status> {
        let ends = connection.ends();
        if !job.token.verify(&preamble.signed_bytes(), mac) {
            warn!(job = %job.id, ends, "denied: the job's token does not match");
            return Err(Status::Denied);
        }
        if self.node.own_address().map(|own| own.ip()) != Some(preamble.destination) {
            warn!(job = %job.id, ends, destination = %preamble.destination, "denied: meant for another node");
            return Err(Status::WrongNode);
        }
        if !job.sockets.first_use(preamble.nonce) {
            warn!(job = %job.id, ends, "denied: this preamble was seen before");
            return Err(Status::Denied);
        }
        let Some(source) = job.node(preamble.source) else {
            warn!(job = %job.id, ends, source = %preamble.source, "denied: not a node of the job");
            return Err(Status::Denied);
        };
        if preamble.destination_port == beat::PORT {
            // A heartbeat connection carries no data: there is nothing to encrypt.
            let holder = tree::holder(&job.members.nodes, self.node.name()).map(|holder| holder.address.ip());
            return if holder == Some(preamble.source) { Ok(()) } else { Err(Status::Denied) };
        }
        match connection.encryption() {
            Encryption::Agents => match connection.identity() {
                Some(identity)
                    if identity.role() == Role::Agent
                        && identity.grid_name().as_ref() == Some(&source)
                        && identity.owner() == Some(self.node.owner()) =>
                {
                    Ok(())
                }
                other => {
                    warn!(job = %job.id, ends, ?other, %source, "denied: the certificate names another party");
                    Err(Status::Denied)
                }
            },
            // Raw is allowed within a site and between sites that trust each other, and
            // over the own gateway where the two sites' gateways encrypt. This end's own
            // plan decides, not the initiator.
            Encryption::None if source.site == self.node.name().site => Ok(()),
            raw => {
                let found = self.node.dialer().find((preamble.source, Some(&source)), PLAN).await.ok();
                let allowed = found.as_ref().is_some_and(|found| match raw {
                    Encryption::Gateways => found.plan.takes_site_trunk && !job.encrypt_to_nodes,
                    Encryption::None | Encryption::Agents => !found.plan.encrypted,
                });
                let named = match connection {
                    AgentConnection::OverGateways(_, initiator) => *initiator == preamble.source,
                    AgentConnection::Socket(_) | AgentConnection::Stream(_) => true,
                };
                if !(allowed && named) {
                    warn!(job = %job.id, ends, %source, "denied: data with that site must be encrypted");
                    return Err(Status::Denied);
                }
                if let Some(order) = &self.ordered
                    && !found.is_some_and(|found| found.may_come_raw(order, self.node.owner()))
                {
                    warn!(
                        job = %job.id, ends, %source, way = %order.way,
                        "denied: it isn't encrypted, and the agent of that node has not signed that it is there"
                    );
                    return Err(Status::Denied);
                }
                Ok(())
            }
        }
    }
}

/// Tells the head that this node lacks a resource for a connection. The initiator isn't told which.
fn not_taken(node: &Node, job: &Job, preamble: &Preamble, exhausted: Exhausted) {
    let acceptor = node.name().to_string();
    let initiator = job.node(preamble.source);
    job.news.send(job_news::Kind::ConnectFailed(proto::ConnectFailed {
        initiator: initiator.map_or_else(|| preamble.source.to_string(), |node| node.to_string()),
        reason: format!("{acceptor} {exhausted}"),
        acceptor,
        given_up: true,
    }));
}

/// Reads the first message of a connection.
///
/// # Errors If the message doesn't come in time, or the connection fails.
pub(crate) async fn preamble(connection: &mut AgentConnection) -> io::Result<[u8; PREAMBLE_LEN]> {
    let received = tokio::time::timeout(PREAMBLE_DEADLINE, connection.receive()).await;
    received.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// A status as a label of counters.
fn refusal_word(status: Status) -> &'static str {
    match status {
        Status::Connected => "connected",
        Status::Refused => "no listener",
        Status::TimedOut => "backlog full",
        Status::UnknownJob => "unknown job",
        Status::Denied => "denied",
        Status::WrongNode => "wrong node",
        Status::Failed => "failed",
        Status::Waiting => "waiting",
    }
}

fn sealed(token: &Secret, status: Status, preamble: &Preamble) -> [u8; isthmus_wire::preamble::ANSWER_LEN] {
    token.seal_answer(Answer { status }, &preamble.nonce)
}

/// Answers "connected" and passes the connection to the program.
async fn connect(
    node: &Node,
    job: &Job,
    preamble: &Preamble,
    mut connection: AgentConnection,
    knock: Knock,
) -> io::Result<()> {
    let ends = Ends {
        local: Endpoint { address: preamble.destination, port: preamble.destination_port },
        peer: Endpoint { address: preamble.source, port: preamble.source_port },
        // The process that fetches the connection may say otherwise.
        is_v6: false,
    };
    let source = job.node(preamble.source);
    if source.as_ref().is_some_and(|source| source.site != node.name().site) {
        connection.keep_alive();
    }
    connection.send(&sealed(&job.token, Status::Connected, preamble)).await?;
    if let (AgentConnection::OverGateways(..), Some(source), Some(gateway)) =
        (&connection, source, node.upstream().gateway())
    {
        job.over_gateways.note(gateway, &source.site);
    }
    match connection {
        AgentConnection::Socket(stream) | AgentConnection::OverGateways(stream, _) => {
            job.sockets.names().insert(cookie(&stream)?, ends);
            job.sockets.handed_over(inode(&stream)?);
            let (from, held) = (knock.from, Held::new(stream));
            let incoming = Incoming { peer: ends.peer, local: ends.local, socket: Some(held.clone()) };
            let (stream, past_rx) = knock.admit(incoming);
            debug!(job = %job.id, "handed over");
            let is_carried = tokio::select! {
                biased;
                () = job.sockets.is_kept(preamble.destination_port) => true,
                Ok(()) = past_rx => true,
                () = until_closed(&stream, &held) => false,
                () = job.ended.cancelled() => false,
            };
            if is_carried && let Some(socket) = held.take() {
                job.sockets.knocks.carried(from, (ends.peer, ends.local));
                return node.plane().splice(socket, stream.into_std()?, None);
            }
            job.sockets.knocks.forget(from);
            // A socket that was not fetched is closed by a reset, as the kernel does
            // with connections in a listener's queue.
            if let Some(socket) = held.take() {
                let _ = socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO));
            }
            Ok(())
        }
        AgentConnection::Stream(stream) => {
            let program = admit(&job.id, knock, ends)?;
            job.sockets.carried(preamble.source, stream.stream.attach(program, Arc::new(Uncounted))?);
            Ok(())
        }
    }
}

/// The program's end of a connection whose bytes the agent carries on its knock.
fn admit(job: &JobId, knock: Knock, ends: Ends) -> io::Result<std::net::TcpStream> {
    let (stream, _) = knock.admit(Incoming { peer: ends.peer, local: ends.local, socket: None });
    debug!(%job, "handed over");
    stream.into_std()
}
