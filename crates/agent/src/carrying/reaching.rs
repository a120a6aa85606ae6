//! Connects to the acceptor's agent for a program, by the first way of the plan that works.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isthmus_link::CarrierWay;
use isthmus_net::dial::SocketOptions;
use isthmus_plan::limits::OVER_TRUNK;
use isthmus_plan::{Encryption, Told, Transport};
use isthmus_reach::{Found, Purpose, ReachError, Reached, Security, Unaccepted};
use isthmus_wire::GridName;
use isthmus_wire::preamble::Preamble;
use isthmus_wire::proto;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::carrying::agent_connection::{AgentConnection, Messages as _};
use crate::carrying::introduction::JobIntroduction;
use crate::jobs::job::Job;
use crate::jobs::node::Node;
use crate::jobs::partners::Acceptor;
use crate::trunks;
use crate::trunks::open::Opened;
use crate::trunks::registry::Standing;

/// A connection to the acceptor's agent, which has answered that the acceptor's program has it.
pub(super) struct Introduced {
    pub(super) connection: AgentConnection,
    pub(super) way: CarrierWay,
    pub(super) encryption: Encryption,
    pub(super) setup: Duration,
    /// The ways that were tried before and have failed, each with its reason.
    pub(super) failures: Vec<String>,
    /// The trunk that carries the connection; `None` if it has a socket of its own.
    pub(super) standing: Option<Arc<Standing>>,
}

impl Introduced {
    /// # Errors
    /// [`ReachError::NoWay`] if the connection that was reached is encrypted.
    fn over_socket(reached: Reached) -> Result<Self, ReachError> {
        let way = CarrierWay::of(&reached);
        let encryption = match reached.dial {
            proto::Dial::Trunk => Encryption::Gateways,
            _ => Encryption::None,
        };
        let socket = reached.carrier.unencrypted();
        let connection =
            AgentConnection::Socket(socket.map_err(|error| ReachError::no_way(error.to_string()))?);
        let (setup, failures) = (reached.setup, reached.failures);
        Ok(Self { connection, way, encryption, setup, failures, standing: None })
    }

    fn over_trunk(
        (connection, way, standing): (AgentConnection, CarrierWay, Arc<Standing>),
        setup: Duration,
        failures: Vec<String>,
    ) -> Self {
        Self { connection, way, encryption: Encryption::Agents, setup, failures, standing: Some(standing) }
    }

    /// Notes that this connection was made only after the plan's own ways had failed with `error`.
    pub(super) fn after(mut self, error: ReachError) -> Self {
        if let ReachError::NoWay(reasons) = error {
            self.failures = texts(reasons).collect();
        }
        self
    }
}

/// Connects to the acceptor's agent, and waits for its final answer. `known` is what an earlier try
/// has found of that node. It counts if the node can't be looked up now.
///
/// # Errors [`ReachError`].
pub(super) async fn reach(
    node: &Arc<Node>,
    job: &Job,
    target: &Acceptor,
    preamble: Preamble,
    (options, given_up): (SocketOptions, &CancellationToken),
    known: &mut Option<Found>,
) -> Result<Introduced, ReachError> {
    let (started, acceptor) = (Instant::now(), &target.name);
    let (_, token) = target.job(job);
    let found = tokio::select! {
        found = trunks::open::find(node, acceptor, preamble.destination) => found,
        () = given_up.cancelled() => return Err(ReachError::GivenUp),
    };
    let mut connecting = Connecting {
        node,
        job,
        acceptor,
        destination: preamble.destination,
        introduction: JobIntroduction::new(token, preamble),
        options,
        given_up,
        started,
    };
    let (found, unknown) = match (found, known) {
        (Ok(found), known) => (known.insert(found), None),
        (Err(error), Some(known)) => (known, Some(error)),
        // A trunk goes on without the plan.
        (Err(_), None) if node.trunks().own(acceptor).is_some() => return connecting.by_trunk().await,
        (Err(error), None) => {
            let over_trunk = reach_over_trunk(node, job, target, preamble).await;
            return over_trunk.and_then(Result::ok).ok_or(error);
        }
    };
    match (connecting.by_ways(found).await, unknown) {
        (Err(ReachError::NoWay(mut reasons)), Some(unknown)) => {
            reasons.insert(0, Told { text: unknown.to_string(), remedy: unknown.remedy() });
            Err(ReachError::NoWay(reasons))
        }
        (reached, _) => reached,
    }
}

fn texts(reasons: Vec<Told>) -> impl Iterator<Item = String> {
    reasons.into_iter().map(|told| told.text)
}

/// Why a way has failed, if the next one may work all the same.
///
/// # Errors
/// The error, if no further way helps.
fn passed_over(transport: Transport, error: ReachError) -> Result<Vec<Told>, ReachError> {
    match (transport, error) {
        (Transport::SiteTrunk | Transport::Trunk, ReachError::NoWay(reasons)) => Ok(reasons),
        (Transport::SiteTrunk | Transport::Trunk, ReachError::Unknown(reason)) => Ok(vec![reason]),
        // Nothing has failed: the agents' trunk takes the steps that a socket may not take.
        (Transport::Socket, ReachError::OnlyEncrypted(_)) => Ok(Vec::new()),
        // The agents' trunk would go by the steps by which a socket was tried.
        (_, error) => Err(error),
    }
}

/// A connection to the acceptor's agent that is being made.
struct Connecting<'a> {
    node: &'a Arc<Node>,
    job: &'a Job,
    acceptor: &'a GridName,
    destination: Ipv4Addr,
    introduction: JobIntroduction<'a>,
    options: SocketOptions,
    given_up: &'a CancellationToken,
    started: Instant,
}

impl Connecting<'_> {
    /// Connects by the first way that works.
    ///
    /// # Errors [`ReachError`].
    async fn by_ways(&mut self, found: &Found) -> Result<Introduced, ReachError> {
        let mut failures = Vec::new();
        for transport in self.node.dialer().ways(found) {
            let tried = match transport {
                Transport::SiteTrunk if self.job.encrypt_to_nodes => continue,
                Transport::SiteTrunk => self.by_socket(found, Security::ByGateways(Some(self.job.id))).await,
                Transport::Socket => self.by_socket(found, Security::Raw).await,
                Transport::Trunk => self.by_trunk().await,
            };
            match tried {
                Ok(mut introduced) => {
                    introduced.failures.splice(..0, texts(failures));
                    return Ok(introduced);
                }
                Err(error) => failures.extend(passed_over(transport, error)?),
            }
        }
        Err(ReachError::NoWay(failures))
    }

    /// Connects by a socket to the acceptor's agent, or to the own gateway, whose trunk leads
    /// there.
    ///
    /// # Errors [`ReachError`].
    async fn by_socket(&mut self, found: &Found, security: Security<'_>) -> Result<Introduced, ReachError> {
        let purpose = Purpose {
            security,
            node: Some(self.acceptor),
            owner: Some(self.node.owner()),
            options: self.options,
            introduction: Some(&mut self.introduction),
            given_up: Some(self.given_up),
        };
        let reached = self.node.dialer().reach_found((found, self.started), purpose).await?;
        let mut introduced = Introduced::over_socket(reached)?;
        self.introduction.settle(&mut introduced.connection).await.map_err(unaccepted)?;
        Ok(introduced)
    }

    /// Connects over the trunk of the two agents, which is made if there is none. A trunk that ends
    /// meanwhile is replaced once: the other agent has begun anew.
    ///
    /// # Errors [`ReachError`].
    async fn by_trunk(&mut self) -> Result<Introduced, ReachError> {
        for again in [true, false] {
            let opening =
                trunks::open::stream(self.node, self.acceptor, self.destination, trunks::open::Cut::Waits);
            let opened = tokio::select! {
                opened = opening => opened?,
                () = self.given_up.cancelled() => return Err(ReachError::GivenUp),
            };
            let ended = opened.standing.kept.ended.clone();
            match introduced_over(opened, &mut self.introduction, self.started).await {
                Err(ReachError::NoWay(_)) if again && ended.is_cancelled() => {}
                introduced => return introduced,
            }
        }
        Err(ReachError::no_way(format!("the trunk to {} has ended twice", self.acceptor)))
    }
}

/// Connects to the acceptor's agent over a trunk that stands, though the plan gives connections
/// sockets of their own. Returns `None` if no trunk stands.
pub(super) async fn reach_over_trunk(
    node: &Node,
    job: &Job,
    target: &Acceptor,
    preamble: Preamble,
) -> Option<Result<Introduced, ReachError>> {
    let started = Instant::now();
    let opened = trunks::open::over_any(node, &target.name).await?;
    let (_, token) = target.job(job);
    let mut introduction = JobIntroduction::new(token, preamble);
    Some(introduced_over(opened, &mut introduction, started).await)
}

/// Introduces the program's connection over a stream, and waits for the final answer.
///
/// # Errors [`ReachError`].
async fn introduced_over(
    Opened { stream, standing, way, failures }: Opened,
    introduction: &mut JobIntroduction<'_>,
    started: Instant,
) -> Result<Introduced, ReachError> {
    let mut connection = AgentConnection::Stream(stream);
    let introducing = timeout(OVER_TRUNK, introduction.introduce_over(&mut connection)).await;
    let late = |_| ReachError::no_way(format!("{}: no answer within {OVER_TRUNK:?}", connection.ends()));
    introducing.map_err(late)?.map_err(unaccepted)?;
    let setup = started.elapsed();
    introduction.settle(&mut connection).await.map_err(unaccepted)?;
    Ok(Introduced::over_trunk((connection, way, standing), setup, failures))
}

fn unaccepted(error: Unaccepted) -> ReachError {
    match error {
        Unaccepted::Final(status) => ReachError::Answered(status),
        Unaccepted::Next(reason) => ReachError::no_way(reason),
    }
}

#[cfg(test)]
mod tests {
    use isthmus_wire::preamble::Status;

    use super::*;

    #[test]
    fn the_next_way_is_tried_where_it_may_work() {
        use Transport::{SiteTrunk, Socket, Trunk};
        let reasons = || vec!["a reason".into()];
        let no_way = || ReachError::NoWay(reasons());
        let only_encrypted = || ReachError::OnlyEncrypted(reasons());
        let unknown = || ReachError::Unknown("a reason".into());
        let refused = || ReachError::Answered(Status::Refused);
        let other_owner = || ReachError::OtherOwner("a reason".to_owned());
        for (transport, error, want) in [
            (SiteTrunk, no_way(), Some(1)),
            (SiteTrunk, unknown(), Some(1)),
            (SiteTrunk, refused(), None),
            (SiteTrunk, ReachError::GivenUp, None),
            (Socket, no_way(), None),
            (Socket, only_encrypted(), Some(0)),
            (Socket, refused(), None),
            (Trunk, no_way(), Some(1)),
            (Trunk, unknown(), Some(1)),
            (Trunk, other_owner(), None),
        ] {
            let what = format!("{transport}: {error}");
            let found = passed_over(transport, error).ok().map(|reasons| reasons.len());
            assert_eq!(found, want, "{what}");
        }
    }
}
