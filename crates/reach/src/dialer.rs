//! What a party dials with: the control plane, and what it found out.

use std::fmt;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use isthmus_net::Deadline;
use isthmus_net::contact::{plan_from_wire, plan_to_wire};
use isthmus_net::grpc;
use isthmus_net::lock;
use isthmus_plan::{Failures, Plan};
use isthmus_wire::preamble::Status;
use isthmus_wire::{GridName, proto};

use crate::carrier::Carrier;
use crate::control_plane::ControlPlane;
use crate::outside::Outside;
use crate::raw::RawHelper;
use crate::rendezvous::PendingRendezvous;

/// How long it may take to find where a node is.
const LOOKUP: Duration = Duration::from_secs(15);

/// A connection to another party.
#[derive(Debug)]
pub struct Reached {
    /// The connection.
    pub carrier: Carrier,
    /// Who stands between.
    pub route: proto::Route,
    /// How it was opened.
    pub dial: proto::Dial,
    /// Over which relay, empty for none.
    pub relay: String,
    /// The grid name across.
    pub node: GridName,
    /// How long all of it took.
    pub setup: Duration,
    /// Ways that were tried before and failed, each with what it met.
    pub failures: Vec<String>,
}

/// Why there is no connection.
#[derive(Debug)]
pub enum ReachError {
    /// The other party was reached and refused.
    Answered(Status),
    /// The grid doesn't know the node, or it can't be asked.
    Unknown(String),
    /// No step of the plan worked; each with its reason.
    NoWay(Vec<String>),
    /// It was given up before the other party was told what it is for.
    GivenUp,
}

impl fmt::Display for ReachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered(status) => status.fmt(f),
            Self::Unknown(reason) => f.write_str(reason),
            Self::NoWay(reasons) if reasons.is_empty() => f.write_str("the plan has no step"),
            Self::NoWay(reasons) => f.write_str(&reasons.join("; ")),
            Self::GivenUp => f.write_str("it was given up"),
        }
    }
}

/// Opens connections to other agents.
#[derive(Debug, Clone)]
pub struct Dialer {
    /// Contacts and plans.
    pub control: Arc<dyn ControlPlane>,
    /// Where this party listens, `HOST:PORT`.
    pub address: String,
    /// Others who were asked to dial this node.
    pub rendezvous: Arc<PendingRendezvous>,
    /// How this node is seen from outside.
    pub outside: Arc<Outside>,
    /// Raw packets, where this agent has a right to them.
    pub raw: Option<Arc<RawHelper>>,
    /// What failed not long ago.
    pub failures: Arc<Mutex<Failures>>,
}

/// Where a node is and how to get there.
pub(crate) struct Found {
    /// Its virtual address.
    pub(crate) destination: Ipv4Addr,
    pub(crate) node: proto::Node,
    pub(crate) name: GridName,
    pub(crate) plan: Plan,
}

impl Found {
    /// By what failures on the way there are known.
    pub(crate) fn towards(&self) -> (Ipv4Addr, &str) {
        (self.destination, self.name.site.as_str())
    }
}

impl Dialer {
    pub(crate) async fn find(&self, destination: Ipv4Addr) -> Result<Found, ReachError> {
        let reply = self.control.lookup(destination, Deadline::within(LOOKUP)).await.map_err(|status| {
            ReachError::Unknown(format!("cannot find {destination} in the grid: {}", grpc::reason(&status)))
        })?;
        let (Some(node), Some(plan)) = (&reply.node, &reply.plan) else {
            return Err(ReachError::Unknown(format!("the gateway says nothing of {destination}")));
        };
        let name = node.name.parse();
        let name = name.map_err(|error| ReachError::Unknown(format!("bad contact: {error}")))?;
        Ok(Found { destination, node: node.clone(), name, plan: plan_from_wire(plan) })
    }

    /// Puts what failed for this node not long ago behind the rest of a plan of
    /// its own, as it does when it dials.
    pub fn demote(&self, reply: &mut proto::ExplainReply) {
        let end = reply.facts.as_ref().and_then(|facts| facts.acceptor.as_ref());
        if let (Some(plan), Some(end)) = (&mut reply.plan, end)
            && let Ok(name) = end.node.parse::<GridName>()
        {
            let towards = (Ipv4Addr::from(end.virtual_address), name.site.as_str());
            let mut demoted = plan_from_wire(plan);
            demoted.demote(&lock(&self.failures).towards(towards, Instant::now()));
            *plan = plan_to_wire(&demoted);
        }
    }
}
