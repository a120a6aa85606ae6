//! Decisions over plain data: how one node reaches another. No I/O, no clock.
//!
//! Two independent choices make one step of a plan. A [`Dial`] says *how* one
//! socket between two parties is opened, a [`Route`] says *which* parties dial.
//! [`plan`] puts the possible steps in order, cheap and fast first; the first
//! one that works wins. What can't work is left out with the reason, so that a
//! user who wonders why a pair goes over a relay finds the answer.
//!
//! | module | what |
//! |---|---|
//! | `dial` | the dials and their names |
//! | [`mod@plan`] | the decision |
//! | [`parts`] | who dials whom on a way, with which ticket |
//! | [`gateways`] | which ways lead over gateways |
//! | [`egress`] | to which ports a site lets its nodes out |
//! | [`failures`] | what failed not long ago |
//! | [`filtering`] | what one lets in, likewise |
//! | [`mapping`] | what a NAT does with ports, by what was seen of it |
//! | [`measuring`] | which pairs of sites are to be measured |
//! | [`policy`] | what is forbidden two sites |
//! | [`reachability`] | who is reached from outside, and gets out |
//! | [`relays`] | which relay is to join two nodes |
//! | [`round_trips`] | which detour is shorter |
#![forbid(unsafe_code)]

mod dial;
pub mod egress;
pub mod failures;
pub mod filtering;
mod gateways;
pub mod mapping;
pub mod measuring;
pub mod parts;
pub mod plan;
pub mod policy;
pub(crate) mod reachability;
mod reason;
pub mod relays;
mod round_trips;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

pub use dial::Dial;
pub use egress::Answers;
pub use failures::Failures;
pub use filtering::{Filtering, Unsolicited};
pub use mapping::Mapping;
pub use plan::plan;
pub use policy::Forbidden;
pub use reachability::{Reach, Reachability};
pub use reason::Reason;
pub use round_trips::RoundTrips;

/// Which parties dial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Route {
    /// Agent to agent.
    EndToEnd,
    /// The initiator's agent and the acceptor's gateway, which joins the stream
    /// with its node's own connection to it.
    OneGateway,
    /// The mirror image: the initiator's gateway and the acceptor's agent.
    GatewayOut,
    /// Gateway to gateway, each joined with its own node.
    TwoGateway,
}

impl Inbound {
    /// Its name, as configurations have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::Auto => "auto",
        }
    }
}

impl fmt::Display for WayOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Unknown => "unknown",
            Self::Yes => "yes",
            Self::No => "no",
        })
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::EndToEnd => "end-to-end",
            Self::OneGateway => "one-gateway",
            Self::GatewayOut => "gateway-out",
            Self::TwoGateway => "two-gateway",
        })
    }
}

/// What a site lets in, as whoever runs its gateway says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Inbound {
    /// Nothing: a NAT, or a firewall; or it isn't wanted.
    Closed,
    /// Every node's agent port can be reached from anywhere, unless measurement
    /// has shown that it can't.
    Open,
    /// What measurement has shown.
    Auto,
}

/// Whether a node reaches anything outside its site itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum WayOut {
    /// Nobody has tried.
    #[default]
    Unknown,
    /// It does.
    Yes,
    /// It reaches its gateway only.
    No,
}

/// What is known of one end: a node and its site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndFacts {
    /// The site's name, for reasons.
    pub site: String,
    /// What the site lets in.
    pub inbound: Inbound,
    /// Whether the site lets in or forwards a port to this node's agent.
    pub port_let_in: bool,
    /// What becomes of the node's ports on the way out.
    pub mapping: Mapping,
    /// Who may begin a connection to a port that the node connects from.
    pub filtering: Filtering,
    /// Whether its agent is reached at the address that its site sees.
    pub own: Reach,
    /// Whether it is reached at the address that is let in for it.
    pub outside: Reach,
    /// Whether the site's gateway is at the broker, so that its nodes can be
    /// told to dial out.
    pub attached: bool,
    /// Whether the node's agent has the right to raw packets.
    pub can_traverse: bool,
    /// Whether the node itself can dial out.
    pub way_out: WayOut,
    /// Whether the site's gateway has a port for other sites.
    pub gateway_let_in: bool,
    /// Whether the gateway is reached there.
    pub gateway: Reach,
    /// Whether a node of the other site has connected to one of this one.
    pub met: bool,
    /// Which ports outside have answered the node.
    pub egress: Vec<Answers>,
    /// Where it is connected to.
    pub ports: Ports,
}

/// The ports of a node and its gateway, as far as they are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ports {
    /// Of its agent, as its site sees it.
    pub agent: Option<u16>,
    /// That is let in for it from outside.
    pub let_in: Option<u16>,
    /// Of its site's gateway, outside.
    pub gateway: Option<u16>,
}

/// What is known of two sites together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PairFacts {
    /// Whether data between them goes unencrypted.
    pub trusted: bool,
    /// Relays that both can use.
    pub relays: usize,
    /// What the grid's policy doesn't want between them.
    pub forbidden: Forbidden,
    /// How long detours are.
    pub round_trips: RoundTrips,
}

/// One thing to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Which parties dial.
    pub route: Route,
    /// How.
    pub dial: Dial,
    /// How long all of it may take before the next step: arranging a rendezvous,
    /// the dial, TLS, and the acceptor's answer.
    pub deadline: Duration,
    /// Why it may work.
    pub reason: Reason,
}

/// One thing that can't work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Which parties would dial.
    pub route: Route,
    /// How.
    pub dial: Dial,
    /// Why not.
    pub reason: Reason,
}

/// A dial that was tried and failed not long ago.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Which parties dialed.
    pub route: Route,
    /// How.
    pub dial: Dial,
    /// What it met.
    pub reason: String,
}

/// How one node reaches another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// To be tried in this order.
    pub steps: Vec<Step>,
    /// What can't work, and why.
    pub left_out: Vec<LeftOut>,
    /// Whether data is to be encrypted end to end.
    pub encrypted: bool,
}

impl Plan {
    /// Puts steps that failed not long ago behind the others, in their order.
    /// They stay in the plan: where everything has failed, the first is still
    /// the best try.
    pub fn demote(&mut self, failures: &[Failure]) {
        let failure = |step: &Step| failures.iter().find(|f| (f.route, f.dial) == (step.route, step.dial));
        self.steps.sort_by_key(|step| failure(step).is_some());
        for step in &mut self.steps {
            if let Some(failure) = failure(step) {
                step.reason.add(|why| Reason::FailedBefore { why, failure: failure.reason.clone() });
            }
        }
    }
}
