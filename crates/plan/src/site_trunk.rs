//! Whether the gateways of two sites carry the connections of their nodes, over a trunk
//! that they keep; and how its carriers are dialed.

use std::time::Duration;

use crate::plan::{Judged, attached};
use crate::{Dial, EndFacts, Forbidden, PairFacts, Reason, Route, Step};

/// The dials by which a gateway gets a carrier to another site's gateway, in the order in which it
/// tries them. It dials the other gateway's port outside, has the other dial its own, or meets the
/// other at a relay.
pub const CARRIERS: [Dial; 3] = [Dial::Direct, Dial::Reverse, Dial::Relay];

/// Route and dial by which policies, failures and accounts name the trunk.
pub const WAY: (Route, Dial) = (Route::TwoGateway, Dial::Trunk);

/// The step of a connection over the trunk: its node dials its own gateway. Such a step is in no
/// plan, which has the trunk among its ways.
pub fn step(deadline: Duration) -> Step {
    let (route, dial) = WAY;
    Step { route, dial, deadline, reason: Reason::GatewaysTrunk }
}

/// Whether policy lets carriers between two sites be opened by this dial. A policy that forbids all
/// of [`CARRIERS`] is about the nodes: the trunk itself is allowed or forbidden by its name.
pub fn carrier_allowed(dial: Dial, forbidden: Forbidden) -> bool {
    CARRIERS.iter().all(|dial| forbidden.dials.contains(*dial)) || !forbidden.dials.contains(dial)
}

/// Whether an end takes connections of the other end over the trunk. It does if the plan of either
/// end to the other has the trunk. Policy may let only one of the two gateways dial the trunk. Once
/// the trunk stands, connections go over it both ways.
pub(crate) fn is_taken(end: &EndFacts, other: &EndFacts, pair: &PairFacts) -> bool {
    judge(end, other, pair).is_ok() || judge(other, end, pair).is_ok()
}

/// Whether connections go over the trunk, and why.
pub(crate) fn judge(initiator: &EndFacts, acceptor: &EndFacts, pair: &PairFacts) -> Judged {
    for end in [initiator, acceptor] {
        if !end.site_trunk {
            return Err(Reason::NoSiteTrunk { site: end.site.clone() });
        }
    }
    if pair.trusted {
        let (initiator, acceptor) = (initiator.site.clone(), acceptor.site.clone());
        return Err(Reason::RawAnyway { initiator, acceptor });
    }
    attached(initiator)?;
    attached(acceptor)?;
    let is_let_in = |end: &EndFacts| end.gateway_let_in && !end.gateway.failed();
    let works = |dial| match dial {
        Dial::Direct => is_let_in(acceptor),
        Dial::Reverse => is_let_in(initiator),
        _ => pair.relays > 0,
    };
    let (from, to) = (initiator.site.clone(), acceptor.site.clone());
    if !CARRIERS.into_iter().any(|dial| works(dial) && carrier_allowed(dial, pair.forbidden)) {
        return Err(Reason::NoCarrier { initiator: from, acceptor: to });
    }
    let (route, dial) = WAY;
    if pair.forbidden.contains(route, dial) {
        return Err(Reason::Forbidden { initiator: from, acceptor: to });
    }
    Ok(Reason::GatewaysTrunk)
}
