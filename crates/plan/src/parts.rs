//! Who dials whom, and what each party sends first, for each way from one node to
//! another.
//!
//! The broker chooses gateways and a relay, seals tickets and fills in addresses.
//! This module decides everything else about a connection.

use crate::judged::{lets_in, may_let_in, some_relay};
use crate::{Dial, EndFacts, PairFacts, Reason, Route, plan};

/// An end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// The node whose program connects.
    Initiator,
    /// The node whose program listens.
    Acceptor,
}

/// A party that acts for one end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Party {
    /// The agent of the end's node.
    Node(End),
    /// The gateway that stands in for the end's node.
    Gateway(End),
}

/// Where a party connects to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// A node's agent, at the address that its site sees.
    Agent(End),
    /// A node's agent, at the address that is let in for it from outside.
    LetIn(End),
    /// The port that a node connects from, as peers outside its site see the port.
    Seen(End),
    /// A gateway: the port inside the site for its own node, the port outside for others.
    Gateway(End),
    /// A relay that both ends reach.
    Relay,
}

/// What a party sends first on a connection that it has opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shown {
    /// Nothing, because the agent that is dialed accepts any initiator.
    Nothing,
    /// The ticket of an end, sealed with the key of the gateway or relay that is dialed.
    Ticket(End),
    /// The id of the rendezvous for which the initiator waits.
    Rendezvous,
}

/// What a party does on a way. A gateway splices the connection that results with the connection
/// that its node opens to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// The party waits for a connection from this other party.
    Waits(Party),
    /// The party connects to a target and sends this first.
    Dials(Target, Shown),
    /// The agent takes in the SYN that the other node's agent carries to it (Traversing TCP).
    TakesIn,
}

/// What each party of a way does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts {
    /// What the initiator's agent does.
    pub initiator: Part,
    /// What the gateway does that stands in for the initiator; `None` if no gateway does.
    pub initiators_gateway: Option<Part>,
    /// What the gateway does that stands in for the acceptor; `None` if no gateway does.
    pub acceptors_gateway: Option<Part>,
    /// What the acceptor's agent does.
    pub acceptor: Part,
}

/// Whether the broker must arrange each connection of this way. It must if a party that doesn't
/// dial has to be told of the connection, or if a party needs a ticket. A standing trunk of two
/// gateways carries connections without the broker.
pub fn needs_broker(way: (Route, Dial)) -> bool {
    match way {
        (Route::EndToEnd | Route::GatewayOut, Dial::Direct | Dial::PortRange)
        | (Route::TwoGateway, Dial::Trunk) => false,
        (Route::EndToEnd | Route::OneGateway | Route::GatewayOut | Route::TwoGateway, _) => true,
    }
}

/// Decides what each party does on a way between two nodes of different sites.
///
/// # Errors
/// The reason why the way can't work. A way over gateways must be in the plan. For a way end to
/// end, only what the broker has to provide is checked.
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

/// The address at which the other site reaches the initiator.
fn let_in_at(initiator: &EndFacts) -> Result<Target, Reason> {
    match lets_in(initiator) {
        Ok(_) => Ok(Target::Agent(End::Initiator)),
        // The declared port, even if measurement has not found it: there is no other.
        Err(_) if initiator.port_let_in => Ok(Target::LetIn(End::Initiator)),
        Err(_) => may_let_in(initiator).map(|_| Target::Agent(End::Initiator)),
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
