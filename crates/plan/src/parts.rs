//! Who dials whom, and what each party sends first, for each way from one node to
//! another.
//!
//! The broker chooses gateways and a relay, seals tickets and fills in addresses.
//! This module decides everything else about a connection.

use crate::plan::{lets_in, some_relay};
use crate::{Dial, EndFacts, PairFacts, Reason, Route, plan};

/// One of the two ends of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// The node whose program connects.
    Initiator,
    /// The node whose program listens.
    Acceptor,
}

/// A party at one end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Party {
    /// The node's agent.
    Node(End),
    /// The gateway that stands in for the node.
    Gateway(End),
}

/// Where a party connects to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// A node's agent, at the address that its site sees.
    Agent(End),
    /// A node's agent, at the address that is let in for it from outside.
    LetIn(End),
    /// The port that a node connects from, as it is seen from outside.
    Seen(End),
    /// A gateway: its inside port for its own node, its outside port for others.
    Gateway(End),
    /// A relay.
    Relay,
}

/// What a party sends first on a connection that it has opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shown {
    /// Nothing: the agent there accepts any initiator.
    Nothing,
    /// The ticket of an end, sealed with the key of the gateway or relay there.
    Ticket(End),
    /// The id of the rendezvous for which the initiator waits.
    Rendezvous,
}

/// What one party does. A gateway splices the resulting connection with the one
/// that its node opens to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// It waits for a connection from this party.
    Waits(Party),
    /// It connects.
    Dials(Target, Shown),
    /// It takes in the carried SYN of the other node (Traversing TCP).
    TakesIn,
}

/// What each party of a way does; none for a gateway that takes no part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts {
    /// The initiator's agent.
    pub initiator: Part,
    /// The gateway that stands in for the initiator.
    pub initiators_gateway: Option<Part>,
    /// The gateway that stands in for the acceptor.
    pub acceptors_gateway: Option<Part>,
    /// The acceptor's agent.
    pub acceptor: Part,
}

/// Whether the broker must arrange a connection of this way: another party than those that
/// dial has to be told of it, or given a ticket. A trunk of two gateways that stands carries
/// connections without it.
pub fn needs_broker(way: (Route, Dial)) -> bool {
    match way {
        (Route::EndToEnd | Route::GatewayOut, Dial::Direct | Dial::PortRange)
        | (Route::TwoGateway, Dial::Trunk) => false,
        (Route::EndToEnd | Route::OneGateway | Route::GatewayOut | Route::TwoGateway, _) => true,
    }
}

/// Decides what each party does on one way between two nodes of different sites.
///
/// # Errors
/// The reason why the way can't work. A way over gateways must be in the plan. Of
/// a way end to end this checks only what the broker has to provide.
pub fn parts(
    (route, dial): (Route, Dial),
    initiator: &EndFacts,
    acceptor: &EndFacts,
    pair: &PairFacts,
) -> Result<Parts, Reason> {
    let (near, far) = match route {
        Route::EndToEnd => (false, false),
        Route::OneGateway => (false, true),
        Route::GatewayOut => (true, false),
        Route::TwoGateway => (true, true),
    };
    if near || far {
        planned((route, dial), initiator, acceptor, pair)?;
    }
    let across = |end, gateway: bool| if gateway { Party::Gateway(end) } else { Party::Node(end) };
    let waits_for_initiator = Part::Waits(across(End::Initiator, near));
    let waits_for_acceptor = Part::Waits(across(End::Acceptor, far));
    // What the outermost party of either end does between the sites.
    let (from_near, from_far) = match dial {
        Dial::Direct if far => {
            let gateway = Part::Dials(Target::Gateway(End::Acceptor), Shown::Ticket(End::Initiator));
            (gateway, waits_for_initiator)
        }
        Dial::Direct => (Part::Dials(Target::Agent(End::Acceptor), Shown::Nothing), waits_for_initiator),
        Dial::PortRange => (Part::Dials(Target::LetIn(End::Acceptor), Shown::Nothing), waits_for_initiator),
        Dial::Reverse if near => {
            let gateway = Part::Dials(Target::Gateway(End::Initiator), Shown::Ticket(End::Acceptor));
            (waits_for_acceptor, gateway)
        }
        Dial::Reverse => (waits_for_acceptor, Part::Dials(let_in_at(initiator)?, Shown::Rendezvous)),
        Dial::Punch => {
            let dials = |end| Part::Dials(Target::Seen(end), Shown::Nothing);
            (dials(End::Acceptor), dials(End::Initiator))
        }
        Dial::Traverse => (Part::Dials(Target::Agent(End::Acceptor), Shown::Nothing), Part::TakesIn),
        Dial::Relay => {
            some_relay(pair)?;
            let dials = |end| Part::Dials(Target::Relay, Shown::Ticket(end));
            (dials(End::Initiator), dials(End::Acceptor))
        }
        // The gateways arrange it between them.
        Dial::Trunk => return Err(Reason::NoSuchWay),
    };
    let to_gateway = |end| Part::Dials(Target::Gateway(end), Shown::Ticket(end));
    Ok(Parts {
        initiator: if near { to_gateway(End::Initiator) } else { from_near },
        initiators_gateway: near.then_some(from_near),
        acceptors_gateway: far.then_some(from_far),
        acceptor: if far { to_gateway(End::Acceptor) } else { from_far },
    })
}

/// Where the other site reaches the initiator.
fn let_in_at(initiator: &EndFacts) -> Result<Target, Reason> {
    match lets_in(initiator) {
        Ok(_) => Ok(Target::Agent(End::Initiator)),
        // The declared port, even if measurement has not found it: there is no other.
        Err(_) if initiator.port_let_in => Ok(Target::LetIn(End::Initiator)),
        Err(reason) => Err(reason),
    }
}

fn planned(
    way: (Route, Dial),
    initiator: &EndFacts,
    acceptor: &EndFacts,
    pair: &PairFacts,
) -> Result<(), Reason> {
    let plan = plan(initiator, acceptor, pair);
    if plan.steps.iter().any(|step| (step.route, step.dial) == way) {
        return Ok(());
    }
    let left_out = plan.left_out.into_iter().find(|left| (left.route, left.dial) == way);
    Err(left_out.map_or(Reason::NoSuchWay, |left| left.reason))
}
