//! Whether the gateways of two sites carry the connections of their nodes, over a trunk
//! that they keep; and how its carriers are dialed.

use std::time::Duration;

use crate::judged::{Judged, add, attached, end_to_end};
use crate::set::Set;
use crate::{
    Dial, EndFacts, Filtering, Forbidden, Inbound, LeftOut, PairFacts, Plan, Ports, Reach, Reason, Route,
    Step, WayOut,
};

/// The dials by which a gateway gets a carrier to another site's gateway. It dials the other
/// gateway's port outside, has the other dial its own, both dial each other, or both dial a relay.
const CARRIERS: [Dial; 4] = [Dial::Direct, Dial::Reverse, Dial::Punch, Dial::Relay];

/// Route and dial by which policies, failures and accounts name the trunk.
pub const WAY: (Route, Dial) = (Route::TwoGateway, Dial::Trunk);

/// The step of a connection over the trunk: its node dials its own gateway. Such a step is in no
/// plan, which has the trunk among its ways.
pub fn step(deadline: Duration) -> Step {
    let (route, dial) = WAY;
    Step { route, dial, deadline, reason: Reason::GatewaysTrunk }
}

/// How a gateway reaches another site's gateway, for carriers of the trunk that they keep. Both ends
/// are gateways. The plan says by [`Plan::takes_site_trunk`] whether they may keep one at all.
pub fn carriers(initiator: &EndFacts, acceptor: &EndFacts, pair: &PairFacts) -> Plan {
    let (steps, left_out) = (Vec::new(), Vec::new());
    let mut plan = Plan {
        ways: Vec::new(),
        steps,
        left_out,
        encrypted: true,
        takes_site_trunk: false,
        far_relays: Vec::new(),
    };
    let (route, dial) = WAY;
    if let Err(reason) = kept(initiator, acceptor, pair).and_then(|()| allowed(initiator, acceptor, pair)) {
        plan.left_out.push(LeftOut { route, dial, reason });
        return plan;
    }
    plan.takes_site_trunk = true;
    // A policy that forbids all of these dials is about the nodes. The trunk itself is allowed or
    // forbidden by its name.
    let dials = pair.forbidden.dials;
    let about_nodes = CARRIERS.iter().all(|dial| dials.contains(*dial));
    let forbidden = Forbidden { dials: if about_nodes { Set::NONE } else { dials }, routes: Set::NONE };
    let pair = PairFacts { forbidden, ..*pair };
    let dials =
        end_to_end(initiator, acceptor, &pair).into_iter().filter(|(_, dial, _)| CARRIERS.contains(dial));
    let named = |reason| match reason {
        Reason::LetsIn { site } => Reason::GatewayLetIn { site },
        Reason::LetsNothingIn { site } => Reason::NoGatewayPort { site },
        Reason::DeclaredOpen { site, found } => Reason::GatewayNotReached { site, found },
        other => other,
    };
    let dials = dials.map(|(route, dial, judged)| (route, dial, judged.map(named).map_err(named)));
    add(&mut plan, dials, (initiator, acceptor, &pair));
    plan
}

/// Whether an end takes connections of the other end over the trunk. It does if the plan of either
/// end to the other has the trunk. Policy may let only one of the two gateways dial the trunk. Once
/// the trunk stands, connections go over it both ways.
pub(crate) fn is_taken(end: &EndFacts, other: &EndFacts, pair: &PairFacts) -> bool {
    judge(end, other, pair).is_ok() || judge(other, end, pair).is_ok()
}

/// Whether connections of nodes go over the trunk of their gateways, and why.
pub(crate) fn judge(initiator: &EndFacts, acceptor: &EndFacts, pair: &PairFacts) -> Judged {
    kept(initiator, acceptor, pair)?;
    attached(initiator)?;
    attached(acceptor)?;
    allowed(initiator, acceptor, pair)?;
    if carriers(&gateway_of(initiator), &gateway_of(acceptor), pair).steps.is_empty() {
        let (initiator, acceptor) = (initiator.site.clone(), acceptor.site.clone());
        return Err(Reason::NoCarrier { initiator, acceptor });
    }
    Ok(Reason::GatewaysTrunk)
}

/// Whether both sites keep trunks, and a trunk between the two is of use.
fn kept(initiator: &EndFacts, acceptor: &EndFacts, pair: &PairFacts) -> Result<(), Reason> {
    for end in [initiator, acceptor] {
        if !end.site_trunk {
            return Err(Reason::NoSiteTrunk { site: end.site.clone() });
        }
    }
    if pair.trusted {
        let (initiator, acceptor) = (initiator.site.clone(), acceptor.site.clone());
        return Err(Reason::RawAnyway { initiator, acceptor });
    }
    Ok(())
}

/// Whether policy lets the two sites have a trunk.
fn allowed(initiator: &EndFacts, acceptor: &EndFacts, pair: &PairFacts) -> Result<(), Reason> {
    let (route, dial) = WAY;
    if pair.forbidden.contains(route, dial) {
        let (initiator, acceptor) = (initiator.site.clone(), acceptor.site.clone());
        return Err(Reason::Forbidden { initiator, acceptor });
    }
    Ok(())
}

/// The facts about a node's gateway, as a party that dials other gateways.
fn gateway_of(node: &EndFacts) -> EndFacts {
    EndFacts {
        site: node.site.clone(),
        inbound: if node.gateway_let_in { Inbound::Open } else { Inbound::Closed },
        port_let_in: false,
        mapping: node.gateway_mapping,
        filtering: Filtering::Unknown,
        own: node.gateway.clone(),
        outside: Reach::default(),
        attached: node.attached,
        can_traverse: false,
        way_out: WayOut::Yes,
        gateway_let_in: false,
        gateway: Reach::default(),
        gateway_mapping: node.gateway_mapping,
        site_trunk: node.site_trunk,
        met: false,
        may_be_open: false,
        egress: Vec::new(),
        ports: Ports { agent: node.ports.gateway, ..Ports::default() },
    }
}
