//! Who dials whom with what in hand, for each way from one node to another.
//!
//! The broker chooses gateways and a relay, seals tickets and fills in addresses;
//! everything else about a connection is decided here.

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

/// A party that takes part at one end.
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
    /// A gateway: at its inside port for its own node, at its outside port for
    /// others.
    Gateway(End),
    /// A relay.
    Relay,
}

/// What a party sends first on a connection that it has opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shown {
    /// Nothing: the agent there expects any initiator.
    Nothing,
    /// The ticket of an end, sealed with the key of the gateway or relay there.
    Ticket(End),
    /// The id of the rendezvous with which the initiator waits.
    Rendezvous,
}

/// What one party does. A gateway joins the connection that its part gives with
/// the one that its node opens to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// It is connected to by this party.
    Waits(Party),
    /// It connects.
    Dials(Target, Shown),
    /// It takes in the carried SYN of the other node (Traversing TCP).
    TakesIn,
}

/// What each party of a way does; gateways that take no part are absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts {
    /// Of the initiator's agent.
    pub initiator: Part,
    /// Of the gateway that stands in for the initiator.
    pub initiators_gateway: Option<Part>,
    /// Of the gateway that stands in for the acceptor.
    pub acceptors_gateway: Option<Part>,
    /// Of the acceptor's agent.
    pub acceptor: Part,
}

/// Who does what on one way between two nodes of different sites.
///
/// # Errors
/// Why that way can't work. A way over gateways must be in the plan, because
/// gateways do nothing that isn't. Of ways end to end only what the broker itself
/// has to provide is looked at.
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
        // One that measurement has not found is the best that there is.
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
