//! The initiator's side: opens a connection to another node's agent along the
//! plan, the first step that works wins.

use std::fmt;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use isthmus_net::Deadline;
use isthmus_net::contact::{dial_to_wire, plan_from_wire, plan_to_wire, route_to_wire};
use isthmus_net::dial::SocketOptions;
use isthmus_net::grpc;
use isthmus_net::lock;
use isthmus_plan::failures::Due;
use isthmus_plan::{Dial, Failure, Failures, Plan, Route};
use isthmus_wire::preamble::Status;
use isthmus_wire::{GridName, proto};
use tokio_rustls::rustls::ClientConfig;

use crate::attempt::{Attempt, StepError};
use crate::carrier::Carrier;
use crate::control_plane::ControlPlane;
use crate::outside::Outside;
use crate::purpose::{Purpose, Security};
use crate::raw::RawHelper;
use crate::rendezvous::PendingRendezvous;
use crate::words::{left_out, way};

/// Relays and gateways tried per connection; the broker names others each time.
const ATTEMPTS: usize = 3;
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
    fn towards(&self) -> (Ipv4Addr, &str) {
        (self.destination, self.name.site.as_str())
    }

    fn attempt<'a>(&'a self, dialer: &'a Dialer, options: SocketOptions) -> Attempt<'a> {
        let deadline = Deadline::within(Duration::ZERO);
        Attempt { dialer, found: self, options, named: Vec::new(), deadline }
    }
}

impl Dialer {
    /// Opens a connection to the agent of the node with this virtual address.
    ///
    /// # Errors
    /// [`ReachError`]; every step has its deadline.
    ///
    /// Once the other party may have been told what the connection is for,
    /// `given_up` ends nothing any more: the connection is to be ended as one
    /// that stands, because a program may have accepted it already.
    pub async fn reach(
        &self,
        destination: Ipv4Addr,
        mut purpose: Purpose<'_>,
    ) -> Result<Reached, ReachError> {
        let started = Instant::now();
        let mut found = self.find(destination).await?;
        found.plan.demote(&lock(&self.failures).towards(found.towards(), started));
        let towards = found.towards();
        let mut reasons: Vec<String> = Vec::new();
        let mut attempt = found.attempt(self, purpose.options);
        for step in &found.plan.steps {
            // Grid names, with a dot: a gateway that failed by one dial may do by another.
            attempt.named.retain(|name| !name.contains('.'));
            let others = step.dial == Dial::Relay || step.route != Route::EndToEnd;
            let times = if others { ATTEMPTS } else { 1 };
            for time in 0..times {
                let named = attempt.named.len();
                match attempt.step(step, &mut purpose).await {
                    Ok((carrier, relay)) => {
                        lock(&self.failures).clear(towards, step.route, step.dial);
                        return Ok(Reached {
                            carrier,
                            route: route_to_wire(step.route),
                            dial: dial_to_wire(step.dial),
                            relay,
                            setup: started.elapsed(),
                            failures: reasons,
                            node: found.name,
                        });
                    }
                    Err(StepError::Final(status)) => return Err(ReachError::Answered(status)),
                    Err(StepError::GivenUp) => return Err(ReachError::GivenUp),
                    // The broker knew nobody else.
                    Err(StepError::Next(_)) if time > 0 && attempt.named.len() == named => break,
                    Err(StepError::Next(reason)) => {
                        tracing::debug!(node = %found.name, route = %step.route, dial = %step.dial, reason, "a step failed");
                        let failure = Failure { route: step.route, dial: step.dial, reason: reason.clone() };
                        lock(&self.failures).note(towards, failure, Instant::now());
                        let reason = format!("{}: {reason}", way(step.route, step.dial));
                        if reasons.last() != Some(&reason) {
                            reasons.push(reason);
                        }
                    }
                }
            }
        }
        // The node may have moved since the contact was cached.
        self.control.forget(destination);
        reasons.extend(left_out(&found.plan.left_out));
        Err(ReachError::NoWay(reasons))
    }

    async fn find(&self, destination: Ipv4Addr) -> Result<Found, ReachError> {
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

    /// Sees whether something that failed works by now.
    pub async fn try_again(&self, due: &Due, tls: &Arc<ClientConfig>) {
        // One that can't be asked for says nothing of the way.
        let Ok(found) = self.find(due.node).await else { return };
        let name = &found.name;
        let towards = found.towards();
        let step = found.plan.steps.iter().find(|step| (step.route, step.dial) == (due.route, due.dial));
        let Some(step) = step else {
            return lock(&self.failures).clear(towards, due.route, due.dial);
        };
        let mut attempt = found.attempt(self, SocketOptions::default());
        match attempt.open(step, Security::Tls(tls)).await {
            Ok(_) => {
                tracing::info!(node = %name, dial = %due.dial, "works again");
                lock(&self.failures).clear(towards, due.route, due.dial);
            }
            Err(StepError::Next(reason)) => {
                tracing::debug!(node = %name, dial = %due.dial, reason, "still fails");
                let failure = Failure { route: due.route, dial: due.dial, reason };
                lock(&self.failures).note(towards, failure, Instant::now());
            }
            Err(StepError::Final(_) | StepError::GivenUp) => {}
        }
    }
}
