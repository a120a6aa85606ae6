//! Decisions over plain data: how one node reaches another. No I/O, no clock.
//!
//! Two independent choices make one step of a plan. A [`Dial`] is *how* one socket
//! between two parties is opened, a [`Route`] is *which* parties dial. [`plan()`]
//! puts the possible steps in order, cheap and fast first; agents take the first
//! that works. Ways that can't work are left out, each with its reason.
//!
//! | module | what |
//! |---|---|
//! | `better` | which steps are better than those in use |
//! | `dial` | the dials and their names |
//! | [`mod@plan`] | the decision |
//! | `judged` | which dials work from one party to another |
//! | [`parts`] | who dials whom on a way, with which ticket |
//! | `gateways` | which ways lead over gateways |
//! | [`egress`] | to which ports a site lets its nodes out |
//! | [`failures`] | recent failures of steps |
//! | [`filtering`] | which SYNs a NAT or firewall lets in |
//! | [`limits`] | time limits that grow with the round trip |
//! | [`mapping`] | which ports a NAT maps to |
//! | [`measuring`] | which pairs of sites are to be measured |
//! | `path` | what was measured between two sites |
//! | [`policy`] | which ways two sites may not use |
//! | `reachability` | whether an agent is reached from outside |
//! | [`remedy`] | which reasons a person can mend |
//! | [`relays`] | which relay is to splice the connections of two nodes |
//! | `round_trips` | which detour is shorter |
//! | `set` | sets of dials or routes |
//! | [`site_trunk`] | whether the gateways of two sites carry their nodes' connections |
//! | [`ways`] | what carries connections: a trunk of gateways, a trunk of agents, sockets |
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests have a clock"))]

mod better;
mod dial;
pub mod egress;
pub mod failures;
pub mod filtering;
mod gateways;
mod judged;
pub mod limits;
pub mod mapping;
pub mod measuring;
pub mod parts;
mod path;
pub mod plan;
pub mod policy;
pub(crate) mod reachability;
mod reason;
pub mod relays;
mod remedy;
mod round_trips;
mod set;
pub mod site_trunk;
#[cfg(test)]
mod tests;
pub mod ways;

use std::fmt;
use std::time::Duration;

pub use dial::{Dial, Vouched};
pub use egress::Answers;
pub use failures::Failures;
pub use filtering::{Filtering, Unsolicited};
pub use mapping::Mapping;
pub use plan::plan;
pub use policy::Forbidden;
pub use reachability::{Reach, Reachability};
pub use reason::Reason;
pub use remedy::{Remedy, Told};
pub use round_trips::RoundTrips;
pub use ways::{Transport, Way};

/// Which parties dial on the way between two nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Route {
    /// The two nodes' agents.
    EndToEnd,
    /// The initiator's agent and the acceptor's gateway, which splices the
    /// connection with that of its node.
    OneGateway,
    /// The initiator's gateway and the acceptor's agent.
    GatewayOut,
    /// Gateway to gateway; each splices the connection with that of its node.
    TwoGateway,
}

impl Inbound {
    /// The name in configuration files.
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

/// The name in plans and accounts.
impl fmt::Display for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "none",
            Self::Agents => "agents",
            Self::Gateways => "gateways",
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

/// What a site lets in, as the gateway's configuration declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Inbound {
    /// Nothing, because of a NAT or firewall or by choice.
    Closed,
    /// Connections to every node's agent, unless measurement has shown otherwise.
    Open,
    /// What measurement has shown, as nothing is declared.
    Auto,
}

/// Whether a node itself reaches anything outside its site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum WayOut {
    /// Whether the node can dial out wasn't tried.
    #[default]
    Unknown,
    /// The node reaches hosts outside its site.
    Yes,
    /// The node reaches nothing outside but by its gateway.
    No,
}

/// The facts about one end: a node and its site, or a gateway that dials another site's gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndFacts {
    /// The site's name, for reasons.
    pub site: String,
    /// What the site lets in.
    pub inbound: Inbound,
    /// Whether the site lets in or forwards a port to this node's agent.
    pub port_let_in: bool,
    /// How the site's NAT maps the node's ports.
    pub mapping: Mapping,
    /// Which peers may connect to a port that the node connects from.
    pub filtering: Filtering,
    /// Whether the agent is reached at the address that its site sees.
    pub own: Reach,
    /// Whether the agent is reached at the address that is let in for it.
    pub outside: Reach,
    /// Whether the site's gateway is attached to the broker, which can then order
    /// its nodes to dial out.
    pub attached: bool,
    /// Whether the node's agent may send raw packets.
    pub can_traverse: bool,
    /// Whether the node itself can dial out.
    pub way_out: WayOut,
    /// Whether the site's gateway has a port for other sites.
    pub gateway_let_in: bool,
    /// Whether the site's gateway is reached at its port for other sites.
    pub gateway: Reach,
    /// How the NAT of the site's gateway maps the gateway's ports.
    pub gateway_mapping: Mapping,
    /// Whether the site's gateways keep trunks with those of other sites.
    pub site_trunk: bool,
    /// Whether a node of the other site has connected to a node of this site before.
    pub met: bool,
    /// Whether the agent's own address is a public one, and there is no relay that could try to reach
    /// it.
    pub may_be_open: bool,
    /// Which ports outside the site have answered the node.
    pub egress: Vec<Answers>,
    /// The ports at which peers reach the node and its gateway.
    pub ports: Ports,
}

/// The ports of a node and its gateway, as far as they are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ports {
    /// The agent's port inside the site.
    pub agent: Option<u16>,
    /// The port that the site lets in from outside for the agent.
    pub let_in: Option<u16>,
    /// The outside port of the site's gateway.
    pub gateway: Option<u16>,
}

/// The facts about two sites together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PairFacts {
    /// Whether data between the two sites goes unencrypted.
    pub trusted: bool,
    /// How many relays tell nodes of both sites how they are seen from outside.
    pub relays: usize,
    /// Whether gateways relay, and no relay may join nodes of the two sites.
    pub gateways_join_none: bool,
    /// Ways that the grid's policy forbids between the two sites.
    pub forbidden: Forbidden,
    /// Measured round trips over relays and gateways.
    pub round_trips: RoundTrips,
    /// Whether the grid's configuration says that connections share trunks, or that they don't;
    /// `None` if it says neither.
    pub pin: Option<ways::Pin>,
    /// What was measured between the two sites.
    pub path: ways::Path,
}

/// A way that is tried to reach a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Which parties dial in the step.
    pub route: Route,
    /// How the connection is opened.
    pub dial: Dial,
    /// The time limit for the whole step: the rendezvous, the dial, TLS, and the acceptor's answer.
    /// After it the next step is tried.
    pub deadline: Duration,
    /// Why the step may work.
    pub reason: Reason,
}

/// A way that can't work, which a plan leaves out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Which parties would dial.
    pub route: Route,
    /// How the connection would be opened.
    pub dial: Dial,
    /// Why the way can't work.
    pub reason: Reason,
}

/// A step that failed recently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Which parties dialed in the step.
    pub route: Route,
    /// How the connection was to be opened.
    pub dial: Dial,
    /// The error of the last attempt.
    pub reason: String,
}

/// How one node reaches another: what is tried, and what is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// What carries the connections of the nodes' programs, in the order in which it is tried.
    pub ways: Vec<Way>,
    /// How a socket to the node's agent is opened, for a connection or for a carrier of the agents'
    /// trunk: steps in the order in which they are tried.
    pub steps: Vec<Step>,
    /// Ways that can't work, each with its reason.
    pub left_out: Vec<LeftOut>,
    /// Whether data between the two sites is to be encrypted.
    pub encrypted: bool,
    /// Whether this end takes connections of the other end over the trunk of the two sites'
    /// gateways. That may be so although this end's plan has no way over the trunk.
    pub takes_site_trunk: bool,
    /// The relays that are known to be much farther than the nearest one.
    pub far_relays: Vec<String>,
}

/// How two nodes are connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Used<'a> {
    /// Which parties dialed.
    pub route: Route,
    /// How the connection was opened.
    pub dial: Dial,
    /// The relay on the way; empty if there is none.
    pub relay: &'a str,
}

/// Who encrypts the data of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Encryption {
    /// Nobody encrypts: the sites trust each other.
    None,
    /// The two nodes' agents.
    Agents,
    /// The two sites' gateways, which see the plaintext.
    Gateways,
}

impl Plan {
    /// Whether connections may go over the trunk of the two sites' gateways.
    pub fn has_site_trunk(&self) -> bool {
        self.ways.iter().any(|way| way.transport == Transport::SiteTrunk)
    }

    /// Puts ways and steps that failed recently behind the others, each group in its former order.
    /// They stay in the plan: if every one has failed, the first is still the best try.
    pub fn demote(&mut self, failures: &[Failure]) {
        let failure = |way| failures.iter().find(|failure| (failure.route, failure.dial) == way);
        let of_step = |step: &Step| failure((step.route, step.dial));
        let of_way = |way: &Way| match way.transport {
            Transport::SiteTrunk => failure(site_trunk::WAY),
            Transport::Trunk | Transport::Socket => None,
        };
        let add = |reason: &mut Reason, failure: &Failure| {
            reason.add(|why| Reason::FailedBefore { why, failure: failure.reason.clone() });
        };
        self.ways.sort_by_key(|way| of_way(way).is_some());
        self.steps.sort_by_key(|step| of_step(step).is_some());
        for way in &mut self.ways {
            if let Some(failure) = of_way(way) {
                add(&mut way.reason, failure);
            }
        }
        for step in &mut self.steps {
            if let Some(failure) = of_step(step) {
                add(&mut step.reason, failure);
            }
        }
    }
}
