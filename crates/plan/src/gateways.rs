//! Ways over gateways. A gateway stands in for a node of its site that can't dial
//! out or can't be dialed. For other nodes a gateway is a needless hop; it is used
//! only if policy forbids the nodes to dial each other. The node always connects
//! to its own gateway.
//!
//! | route | dial | who dials whom between the sites |
//! |---|---|---|
//! | one-gateway | direct | initiator → acceptor's gateway |
//! | one-gateway | reverse | acceptor's gateway → initiator |
//! | gateway-out | direct, port-range | initiator's gateway → acceptor |
//! | gateway-out | reverse | acceptor → initiator's gateway |
//! | two-gateway | direct | initiator's gateway → acceptor's gateway |
//! | two-gateway | reverse | acceptor's gateway → initiator's gateway |
//! | all three | relay | both to a relay: gateways for those that can't |

use crate::judged::{Candidate, Judged, attached, leaves, lets_in, port_range, some_relay};
use crate::{Dial, EndFacts, PairFacts, Reason, Route, WayOut};

/// The ways over gateways without a relay, in the order of the plan.
pub(crate) fn without_relay(initiator: &EndFacts, acceptor: &EndFacts, pair: &PairFacts) -> [Candidate; 7] {
    let (i, a, round_trips) = (initiator, acceptor, &pair.round_trips);
    let stands_in = |end| stands_in(end, pair);
    // A measured round trip shows that the gateway has answered.
    let to_acceptors = || to_gateway(a, round_trips.to_acceptors_gateway.is_some(), pair);
    let to_initiators = || to_gateway(i, round_trips.to_initiators_gateway.is_some(), pair);
    [
        (Route::OneGateway, Dial::Direct, leaves(i).and_then(|()| to_acceptors())),
        (Route::GatewayOut, Dial::Direct, stands_in(i).and_then(|()| lets_in(a))),
        (Route::GatewayOut, Dial::PortRange, stands_in(i).and_then(|()| port_range(a))),
        (
            Route::OneGateway,
            Dial::Reverse,
            back_to_node(i, a).and_then(|why| dials_back(a, stands_in(a), why)),
        ),
        (Route::GatewayOut, Dial::Reverse, to_initiators().and_then(|why| dials_back(a, leaves(a), why))),
        (Route::TwoGateway, Dial::Direct, stands_in(i).and_then(|()| to_acceptors())),
        (Route::TwoGateway, Dial::Reverse, to_initiators().and_then(|why| dials_back(a, stands_in(a), why))),
    ]
}

pub(crate) fn by_relay(initiator: &EndFacts, acceptor: &EndFacts, pair: &PairFacts) -> [Candidate; 3] {
    let (i, a) = (initiator, acceptor);
    let stands_in = |end| stands_in(end, pair);
    let relay = |route, ends: Result<(), Reason>| {
        let judged = some_relay(pair).and(ends).and_then(|()| attached(a));
        let reason = match nodes_may(pair) {
            true => Reason::GatewayForEnclosed,
            false => Reason::GatewaysInstead,
        };
        (route, Dial::Relay, judged.map(|()| reason))
    };
    [
        relay(Route::OneGateway, leaves(i).and(stands_in(a))),
        relay(Route::GatewayOut, stands_in(i).and(leaves(a))),
        relay(Route::TwoGateway, stands_in(i).and(stands_in(a))),
    ]
}

/// Whether policy lets the nodes dial each other.
fn nodes_may(pair: &PairFacts) -> bool {
    !pair.forbidden.routes.contains(Route::EndToEnd)
}

/// Whether a node's gateway is to dial out for the node.
fn stands_in(end: &EndFacts, pair: &PairFacts) -> Result<(), Reason> {
    match end.way_out {
        WayOut::No | WayOut::Unknown => Ok(()),
        WayOut::Yes if !nodes_may(pair) => Ok(()),
        WayOut::Yes => Err(Reason::HasWayOut { site: end.site.clone() }),
    }
}

/// Whether a site's gateway can be dialed, and must be dialed instead of the node. `answered` says
/// that the other site has reached the gateway before.
fn to_gateway(end: &EndFacts, answered: bool, pair: &PairFacts) -> Judged {
    attached(end)?;
    let site = end.site.clone();
    if !end.gateway_let_in {
        return Err(Reason::NoGatewayPort { site });
    }
    if end.gateway.failed() && !answered {
        return Err(Reason::GatewayNotReached { site, found: end.gateway.clone() });
    }
    match is_let_in(end) && nodes_may(pair) {
        true => Err(Reason::NodeLetIn { site }),
        false => Ok(Reason::GatewayLetIn { site }),
    }
}

/// Whether the acceptor's gateway can dial the initiator itself.
fn back_to_node(initiator: &EndFacts, acceptor: &EndFacts) -> Judged {
    if !is_let_in(initiator) {
        return Err(Reason::LetsNothingIn { site: initiator.site.clone() });
    }
    Ok(Reason::GatewayDials { initiator: initiator.site.clone(), acceptor: acceptor.site.clone() })
}

/// Whether the acceptor's side can do its part of a reverse dial. `who` judges the party that dials
/// out.
fn dials_back(acceptor: &EndFacts, who: Result<(), Reason>, why: Reason) -> Judged {
    attached(acceptor)?;
    who.map(|()| why)
}

/// Whether peers outside can dial the node itself.
fn is_let_in(end: &EndFacts) -> bool {
    lets_in(end).is_ok() || port_range(end).is_ok()
}
