//! What a party needs to dial: the control plane, and what it found out.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use isthmus_identity::secured::{ClientTls, Secured};
use isthmus_identity::signed::contact::{Incarnation, Stated};
use isthmus_identity::{Identity, Owner};
use isthmus_net::callback;
use isthmus_net::dial::{DialError, SocketOptions, direct};
use isthmus_plan::{Dial, Failures, Plan, Remedy, Route, Told, Transport, site_trunk};
use isthmus_rpc::contact::{plan_from_wire, plan_to_wire};
use isthmus_rpc::grpc;
use isthmus_rpc::rendezvous::Peer;
use isthmus_service::Deadline;
use isthmus_service::lock;
use isthmus_wire::preamble::Status;
use isthmus_wire::{GridName, proto};

use crate::carrier::Carrier;
use crate::control_plane::ControlPlane;
use crate::failed::NotDialed;
use crate::far_end::{Expected, Unverified, secure};
use crate::outside::Outside;
use crate::raw::RawHelper;
use crate::rendezvous::PendingRendezvous;
use crate::signatures::Signatures;

/// How long the lookup of a node may take, if the caller gives no limit.
pub(crate) const LOOKUP: Duration = Duration::from_secs(15);
/// How long a connect beside the plan may take, with TLS.
const CONNECT: Duration = Duration::from_secs(4);

/// A connection to another party.
#[derive(Debug)]
pub struct Reached {
    /// The connection itself, raw or encrypted.
    pub carrier: Carrier,
    /// Which parties dialed: the two themselves, or gateways in place of one or both.
    pub route: proto::Route,
    /// How the connection was opened.
    pub dial: proto::Dial,
    /// The name of the relay that splices the connection; empty if there is none.
    pub relay: String,
    /// The other node's grid name.
    pub node: GridName,
    /// The connection's longest segment, in bytes; `None` if each kernel chooses it.
    pub segment: Option<u16>,
    /// Time from when the connection was asked for until it stood.
    pub setup: Duration,
    /// Ways that failed before this one worked, each with its reason.
    pub failures: Vec<String>,
}

/// Why there is no connection.
#[derive(Debug, Clone)]
pub enum ReachError {
    /// The other party was reached, and refused with this status.
    Answered(Status),
    /// The lookup failed: the grid has no such node, or there was no answer.
    Unknown(Told),
    /// No step of the plan worked. The reasons come in the order in which they are worth reading:
    /// what a person can mend first.
    NoWay(Vec<Told>),
    /// No step worked for a connection that isn't encrypted, and an encrypted connection may be
    /// made: the plan demands encryption, or a step leads where the other agent hasn't signed that
    /// it is. The reasons are as of [`ReachError::NoWay`].
    OnlyEncrypted(Vec<Told>),
    /// The initiator gave the connection up before the introduction was sent.
    GivenUp,
    /// The other party belongs to another user; the reason names both.
    OtherOwner(String),
}

impl ReachError {
    /// No way, for a reason that no person can mend, as far as is known.
    pub fn no_way(reason: impl Into<String>) -> Self {
        Self::NoWay(vec![reason.into().into()])
    }

    /// What a person can do, the most telling if there is more.
    pub fn remedy(&self) -> Option<Remedy> {
        match self {
            Self::Unknown(told) => told.remedy,
            Self::NoWay(reasons) | Self::OnlyEncrypted(reasons) => {
                reasons.iter().filter_map(|told| told.remedy).min()
            }
            Self::Answered(_) | Self::GivenUp | Self::OtherOwner(_) => None,
        }
    }
}

impl fmt::Display for ReachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered(status) => status.fmt(f),
            Self::Unknown(told) => told.fmt(f),
            Self::OtherOwner(reason) => f.write_str(reason),
            Self::NoWay(reasons) if reasons.is_empty() => f.write_str("the plan has no step"),
            Self::NoWay(reasons) | Self::OnlyEncrypted(reasons) => {
                let texts: Vec<_> = reasons.iter().map(|told| told.text.as_str()).collect();
                f.write_str(&texts.join("; "))
            }
            Self::GivenUp => f.write_str("it was given up"),
        }
    }
}

impl std::error::Error for ReachError {}

/// Why a party isn't reached at an address that it has told, beside its plan.
#[derive(Debug, thiserror::Error)]
pub enum NotThere {
    /// The address may not be dialed.
    #[error(transparent)]
    NotDialed(#[from] NotDialed),
    /// Nothing answers.
    #[error(transparent)]
    Unanswered(#[from] DialError),
    /// Another party answers.
    #[error(transparent)]
    Unverified(#[from] Unverified),
}

/// Opens connections to other parties: an agent to agents, a gateway to gateways of other sites.
#[derive(Debug, Clone)]
pub struct Dialer {
    /// Where contacts and plans come from.
    pub control: Arc<dyn ControlPlane>,
    /// The address at which this party listens, `HOST:PORT`.
    pub address: String,
    /// The connections that this node waits for.
    pub rendezvous: Arc<PendingRendezvous>,
    /// How this node is seen from outside.
    pub outside: Arc<Outside>,
    /// The raw-packet helper; `None` if it doesn't run.
    pub raw: Option<Arc<RawHelper>>,
    /// The ways that failed not long ago.
    pub failures: Arc<Mutex<Failures<Peer>>>,
    /// What other nodes' agents have signed.
    pub signatures: Arc<Signatures>,
}

/// The answer to the lookup of a party.
#[derive(Debug, Clone)]
pub struct Found {
    pub(crate) peer: Peer,
    pub(crate) node: proto::Node,
    pub(crate) name: GridName,
    /// How the party that was looked up is reached.
    pub plan: Plan,
    /// What the node's agent has signed of itself; `None` if nothing valid.
    pub(crate) stated: Option<Arc<Stated>>,
}

impl Found {
    /// The identity that must be at the other end. `owner` is that of a node's agent; `None` for any.
    pub(crate) fn expected(&self, owner: Option<&Owner>) -> Expected {
        match &self.peer {
            Peer::Node(_) => Expected::agent(&self.name, owner),
            Peer::Gateway(name) => Expected::gateway(name),
        }
    }

    /// What [`Failures`] knows this party by: itself and its site.
    pub(crate) fn towards(&self) -> (&Peer, &str) {
        (&self.peer, self.name.site.as_str())
    }
}

impl Dialer {
    /// Connects to an address that another party has told of itself, beside its plan, and verifies
    /// by TLS that the expected party is there.
    ///
    /// # Errors
    /// Why it is not reached there within 4 s.
    pub async fn reach_at(
        &self,
        at: SocketAddr,
        expected: &Expected,
        tls: &ClientTls,
        options: SocketOptions,
    ) -> Result<Secured, NotThere> {
        // The other party may be captured: it names no service of this machine.
        callback::check_service(at).map_err(NotDialed::from)?;
        self.control.check_address(at.ip())?;
        let deadline = Deadline::within(CONNECT);
        let tcp = direct(&at.to_string(), options, deadline).await?;
        Ok(secure(tcp, expected, tls, deadline).await?)
    }

    /// When the agent of the node with this address was started, by what that agent has signed;
    /// `None` if that isn't known.
    pub async fn started(&self, address: Ipv4Addr, agent: &Identity) -> Option<Incarnation> {
        let stated = self.find((address, None), LOOKUP).await.ok()?.stated?;
        (stated.agent == *agent).then_some(stated.incarnation)
    }

    /// Looks a party up, and how it is reached. If the caller knows its name, it must be the same.
    ///
    /// # Errors
    /// [`ReachError::Unknown`] if there is no answer within the limit, or if it names another party.
    pub async fn find(
        &self,
        (peer, node): (impl Into<Peer>, Option<&GridName>),
        limit: Duration,
    ) -> Result<Found, ReachError> {
        let found = self.look_up(peer.into(), limit).await?;
        tracing::debug!(node = %found.name, steps = found.plan.steps.len(), "looked up");
        match node.filter(|node| **node != found.name) {
            None => Ok(found),
            Some(node) => {
                let (peer, other) = (&found.peer, &found.name);
                Err(ReachError::Unknown(format!(
                    "{peer} is the address of {node}, and the gateway names {other} as the node that has it"
                ).into()))
            }
        }
    }

    /// What may carry a connection to a node that was looked up, in the order in which it is tried.
    /// The gateways' trunk is left out if it failed not long ago, until a retry in the background
    /// has worked.
    pub fn ways(&self, found: &Found) -> Vec<Transport> {
        let failures = lock(&self.failures).towards(found.towards(), Instant::now());
        let failed = failures.iter().any(|failure| (failure.route, failure.dial) == site_trunk::WAY);
        let transports = found.plan.ways.iter().map(|way| way.transport);
        transports.filter(|transport| *transport != Transport::SiteTrunk || !failed).collect()
    }

    async fn look_up(&self, peer: Peer, limit: Duration) -> Result<Found, ReachError> {
        let reply = self.control.lookup(&peer, Deadline::within(limit)).await.map_err(|status| {
            let told = grpc::told(&status);
            ReachError::Unknown(told.within(|reason| format!("cannot find {peer} in the grid: {reason}")))
        })?;
        let (Some(node), Some(plan)) = (&reply.node, &reply.plan) else {
            let reason = format!("the answer about {peer} has no contact or no plan");
            return Err(ReachError::Unknown(reason.into()));
        };
        let name: Result<GridName, _> = node.name.parse();
        let name = name.map_err(|error| ReachError::Unknown(format!("bad contact: {error}").into()))?;
        let mut plan = plan_from_wire(plan);
        if name.site.as_str() == self.control.site() {
            // Within a site there is no other way, whatever a gateway says.
            plan.steps.retain(|step| (step.route, step.dial) == (Route::EndToEnd, Dial::Direct));
            plan.ways.retain(|way| way.transport != Transport::SiteTrunk);
        }
        let stated = peer.node().and_then(|address| self.signatures.stated(address, &reply));
        Ok(Found { peer, node: node.clone(), name, plan, stated })
    }

    /// Has the steps to a node that failed meanwhile tried again soon. The way to the node was cut
    /// and works again.
    pub fn hasten(&self, peer: impl Into<Peer>, name: &GridName) {
        lock(&self.failures).hasten((&peer.into(), name.site.as_str()), Instant::now());
    }

    /// Moves the steps that failed not long ago to the end of this node's plan, as
    /// [`Dialer::reach`] does.
    pub fn demote(&self, reply: &mut proto::ExplainReply) {
        let end = reply.facts.as_ref().and_then(|facts| facts.acceptor.as_ref());
        if let (Some(plan), Some(end)) = (&mut reply.plan, end)
            && let Ok(name) = end.node.parse::<GridName>()
        {
            let peer = Peer::Node(end.virtual_address.into());
            let mut demoted = plan_from_wire(plan);
            demoted.demote(&lock(&self.failures).towards((&peer, name.site.as_str()), Instant::now()));
            *plan = plan_to_wire(&demoted);
        }
    }
}
