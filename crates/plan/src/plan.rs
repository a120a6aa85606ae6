//! The decision: which ways lead from one node to another, in which order.

use std::time::Duration;

use crate::gateways::{self, leaves};
use crate::{
    Dial, EndFacts, Filtering, Inbound, LeftOut, Mapping, PairFacts, Plan, Reachability, Route, Step, egress,
};

/// Inside a site there is nothing else to try, so patience costs nothing.
const DIRECT_INSIDE: Duration = Duration::from_secs(10);
/// Between sites: the kernel repeats a lost SYN after 1 and 3 s (RFC 6298), so
/// this survives two losses before the next way is tried.
const DIRECT_BETWEEN: Duration = Duration::from_secs(4);
/// The other side has to be told first.
const REVERSE: Duration = Duration::from_secs(6);
/// Likewise, and both have to find out how they are seen from outside.
const PUNCH: Duration = Duration::from_secs(6);
/// The broker and the acceptor's agent have to be told; then the connection
/// stands after one round trip, or nothing lets the answer through.
const TRAVERSE: Duration = Duration::from_secs(4);
/// The last resort.
const RELAY: Duration = Duration::from_secs(10);

/// Plans how a node reaches another one.
pub fn plan(initiator: &EndFacts, acceptor: &EndFacts, pair: &PairFacts) -> Plan {
    if initiator.site == acceptor.site {
        let route = Route::EndToEnd;
        let reason = format!("both nodes are in site {}", acceptor.site);
        let step = Step { route, dial: Dial::Direct, deadline: DIRECT_INSIDE, reason };
        return Plan { steps: vec![step], left_out: Vec::new(), encrypted: false };
    }
    let mut plan = Plan { steps: Vec::new(), left_out: Vec::new(), encrypted: !pair.trusted };
    let end_to_end = [
        (Dial::Direct, DIRECT_BETWEEN, leaves(initiator).and_then(|()| lets_in(acceptor))),
        (Dial::PortRange, DIRECT_BETWEEN, leaves(initiator).and_then(|()| port_range(acceptor))),
        (Dial::Reverse, REVERSE, reverse(initiator, acceptor)),
        (Dial::Punch, PUNCH, punch(initiator, acceptor, pair)),
        (Dial::Traverse, TRAVERSE, traverse(initiator, acceptor, pair)),
        (Dial::Relay, RELAY, leaves(initiator).and_then(|()| relay(acceptor, pair))),
    ];
    let [direct, port_range, reverse, punch, traverse, relay] =
        end_to_end.map(|(dial, deadline, judged)| (Route::EndToEnd, dial, deadline, judged));
    // A gateway at either site is on the way anyhow, a relay may be a detour
    // and is shared by all.
    let ways = [direct, port_range, reverse, punch, traverse]
        .into_iter()
        .chain(gateways::without_relay(initiator, acceptor, pair))
        .chain([relay])
        .chain(gateways::by_relay(initiator, acceptor, pair));
    for (route, dial, deadline, judged) in ways {
        let judged = judged.and_then(|reason| {
            if pair.forbidden.contains(route, dial) {
                return Err(format!(
                    "forbidden between sites {} and {} by the broker's configuration",
                    initiator.site, acceptor.site
                ));
            }
            Ok(reason)
        });
        match judged {
            Ok(reason) => plan.steps.push(Step { route, dial, deadline, reason }),
            Err(reason) => plan.left_out.push(LeftOut { route, dial, reason }),
        }
    }
    pair.round_trips.order(&mut plan.steps);
    let dropped = |step: &Step| dropped(step, initiator, acceptor);
    plan.steps.sort_by_key(|step| dropped(step).is_some());
    for step in &mut plan.steps {
        if let Some(reason) = dropped(step) {
            step.reason = format!("{}, but {reason}", step.reason);
        }
    }
    plan
}

/// Why a step will hardly get out, though it may: what was measured is another
/// host's port. What gateways are let out to is not known.
fn dropped(step: &Step, initiator: &EndFacts, acceptor: &EndFacts) -> Option<String> {
    let (i, a) = (initiator, acceptor);
    let own_port = |end: &EndFacts| if lets_in(end).is_ok() { end.ports.agent } else { end.ports.let_in };
    let dials = match (step.route, step.dial) {
        (Route::EndToEnd, Dial::Direct | Dial::Traverse) => vec![(i, a, a.ports.agent)],
        (Route::EndToEnd, Dial::PortRange) => vec![(i, a, a.ports.let_in)],
        (Route::EndToEnd, Dial::Reverse) => vec![(a, i, own_port(i))],
        (Route::EndToEnd, Dial::Punch) => vec![(i, a, Some(egress::OTHERS)), (a, i, Some(egress::OTHERS))],
        (Route::OneGateway, Dial::Direct) => vec![(i, a, a.ports.gateway)],
        (Route::GatewayOut, Dial::Reverse) => vec![(a, i, i.ports.gateway)],
        _ => Vec::new(),
    };
    dials.into_iter().find_map(|(from, to, port)| {
        let port = port.filter(|port| egress::drops(&from.egress, &to.egress, *port))?;
        let port = if port == egress::OTHERS { "such ports".to_owned() } else { format!("port {port}") };
        Some(format!("site {} seems to let nothing out to {port}", from.site))
    })
}

/// Why something may work, or why it can't.
pub(crate) type Judged = Result<String, String>;
/// One way, how long it may take, and whether it works.
pub(crate) type Way = (Route, Dial, Duration, Judged);

/// Whether a node's agent can just be connected to, by what its site declares
/// and what measurement has shown; with the reason either way.
///
/// # Errors
/// If it can't.
pub fn lets_in(end: &EndFacts) -> Result<String, String> {
    let EndFacts { site, own, .. } = end;
    match (end.inbound, own.result) {
        (Inbound::Closed, _) => Err(format!("site {site} lets nothing in")),
        // The pair's own experience counts for more than a relay's.
        (Inbound::Open | Inbound::Auto, _) if own.failed() && end.met => Ok(format!(
            "site {site} lets connections from the other site in, as one has shown, though {}",
            own.told()
        )),
        (Inbound::Open, _) if own.failed() => {
            Err(format!("site {site} is declared open, but {}", own.told()))
        }
        (Inbound::Open, _) => Ok(format!("site {site} lets connections in")),
        (Inbound::Auto, Reachability::Reachable) => {
            Ok(format!("site {site} lets connections in: {}", own.told()))
        }
        (Inbound::Auto, Reachability::Unknown) => {
            Err(format!("whether site {site} lets connections in is not known: {}", own.told()))
        }
        (Inbound::Auto, _) => Err(format!("site {site} lets nothing in: {}", own.told())),
    }
}

/// Whether a port is let in for the node.
pub(crate) fn port_range(acceptor: &EndFacts) -> Judged {
    let EndFacts { site, outside, .. } = acceptor;
    if lets_in(acceptor).is_ok() {
        return Err(format!("site {site} lets every port in"));
    }
    if !acceptor.port_let_in {
        return Err(format!("no port of the node is let in by site {site}"));
    }
    if outside.failed() {
        return Err(format!("a port is said to be let in for the node, but {}", outside.told()));
    }
    Ok(format!("site {site} lets a port in for the node"))
}

fn reverse(initiator: &EndFacts, acceptor: &EndFacts) -> Judged {
    if let Err(reason) = lets_in(initiator) {
        port_range(initiator).map_err(|other| if initiator.port_let_in { other } else { reason })?;
    }
    told(acceptor)?;
    leaves(acceptor)?;
    Ok(format!("site {} lets connections in", initiator.site))
}

fn punch(initiator: &EndFacts, acceptor: &EndFacts, pair: &PairFacts) -> Judged {
    told(acceptor)?;
    if pair.relays == 0 {
        return Err(
            "no relay is attached to the broker, to say how the nodes are seen from outside".to_owned()
        );
    }
    for end in [initiator, acceptor] {
        leaves(end)?;
        match end.mapping {
            Mapping::Unknown => {
                return Err(format!("how nodes of site {} are seen from outside is not known", end.site));
            }
            Mapping::PortDependent => {
                return Err(format!("the NAT of site {} takes another port for each destination", end.site));
            }
            Mapping::Untranslated | Mapping::EndpointIndependent => {}
        }
    }
    if [initiator, acceptor].iter().all(|end| end.filtering == Filtering::Stateless) {
        return Err(format!(
            "sites {} and {} both drop whatever begins a connection: their firewalls keep no state",
            initiator.site, acceptor.site
        ));
    }
    Ok("both sites let connections out from ports that are known outside".to_owned())
}

fn traverse(initiator: &EndFacts, acceptor: &EndFacts, pair: &PairFacts) -> Judged {
    if lets_in(acceptor).is_ok() {
        return Err(format!("site {} lets every connection in", acceptor.site));
    }
    told(acceptor)?;
    for end in [initiator, acceptor] {
        if end.mapping == Mapping::Unknown {
            return Err(format!("how nodes of site {} are seen from outside is not known", end.site));
        }
        if !end.can_traverse {
            return Err(format!(
                "the agent of the node of site {} has no right to raw packets; where isthmus-raw is installed \
                 there, `setcap cap_net_raw=ep` on it as root gives it that",
                end.site
            ));
        }
    }
    if matches!(acceptor.filtering, Filtering::AddressDependent | Filtering::PortDependent) {
        return Err(format!(
            "the firewall of site {} keeps state, and lets no answer out to what it dropped",
            acceptor.site
        ));
    }
    if initiator.mapping == Mapping::PortDependent {
        return Err(format!("the NAT of site {} takes another port for each destination", initiator.site));
    }
    if acceptor.mapping != Mapping::Untranslated {
        return Err(format!("nodes of site {} have no address outside of their own", acceptor.site));
    }
    if initiator.mapping != Mapping::Untranslated && pair.relays == 0 {
        return Err(
            "no relay is attached to the broker, to say how the initiator is seen from outside".to_owned()
        );
    }
    Ok(format!("the firewall of site {} may let answers out that it has seen no question for", acceptor.site))
}

fn relay(acceptor: &EndFacts, pair: &PairFacts) -> Judged {
    some_relay(pair)?;
    told(acceptor)?;
    leaves(acceptor)?;
    Ok("both sites let connections out".to_owned())
}

/// Whether there is a relay.
pub(crate) fn some_relay(pair: &PairFacts) -> Result<(), String> {
    if pair.relays == 0 { Err("no relay is attached to the broker".to_owned()) } else { Ok(()) }
}

/// Whether the acceptor, or its gateway, can be told to dial out.
pub(crate) fn told(acceptor: &EndFacts) -> Result<(), String> {
    if acceptor.attached {
        Ok(())
    } else {
        Err(format!("the gateway of site {} is not attached to the broker", acceptor.site))
    }
}
