//! Which dials work from one party to another, and which of them a plan takes.

use crate::limits::{BETWEEN_SITES, grown};
use crate::{
    Dial, EndFacts, Filtering, Inbound, LeftOut, Mapping, PairFacts, Plan, Reachability, Reason, Route, Step,
    WayOut, egress,
};

/// Why a way may work, or why it can't.
pub(crate) type Judged = Result<Reason, Reason>;
/// A step that may be planned, and whether it works.
pub(crate) type Candidate = (Route, Dial, Judged);

/// The dials from one party to another, each with whether it works, in the order of the plan.
pub(crate) fn end_to_end(initiator: &EndFacts, acceptor: &EndFacts, pair: &PairFacts) -> [Candidate; 6] {
    let dials = [
        (Dial::Direct, leaves(initiator).and_then(|()| may_let_in(acceptor))),
        (Dial::PortRange, leaves(initiator).and_then(|()| port_range(acceptor))),
        (Dial::Reverse, reverse(initiator, acceptor)),
        (Dial::Punch, punch(initiator, acceptor, pair)),
        (Dial::Traverse, traverse(initiator, acceptor, pair)),
        (Dial::Relay, leaves(initiator).and_then(|()| relay(acceptor, pair))),
    ];
    dials.map(|(dial, judged)| (Route::EndToEnd, dial, judged))
}

/// Adds candidates to a plan, in their order: what works and is allowed as steps, the others as left
/// out. Measurements then change the order of the steps.
pub(crate) fn add(
    plan: &mut Plan,
    candidates: impl IntoIterator<Item = Candidate>,
    (initiator, acceptor, pair): (&EndFacts, &EndFacts, &PairFacts),
) {
    for (route, dial, judged) in candidates {
        let judged = judged.and_then(|reason| {
            if pair.forbidden.contains(route, dial) {
                let (initiator, acceptor) = (initiator.site.clone(), acceptor.site.clone());
                return Err(Reason::Forbidden { initiator, acceptor });
            }
            Ok(reason)
        });
        match judged {
            Ok(reason) => {
                let deadline = grown(BETWEEN_SITES, pair.path.rtt);
                plan.steps.push(Step { route, dial, deadline, reason });
            }
            Err(reason) => plan.left_out.push(LeftOut { route, dial, reason }),
        }
    }
    pair.round_trips.order(&mut plan.steps);
    let dropped = |step: &Step| dropped(step, initiator, acceptor);
    let is_guess = |step: &Step| matches!(step.reason, Reason::MayLetIn { .. });
    plan.steps.sort_by_key(|step| (dropped(step).is_some(), is_guess(step)));
    for step in &mut plan.steps {
        if let Some((site, port)) = dropped(step) {
            step.reason.add(|why| Reason::NotLetOut { why, site, port });
        }
    }
}

/// The site that seems not to let a step out, and the port that it drops; no port if it drops all
/// that aren't tried. Such a step is only put last, because the port was measured at another host.
/// Gateways' dials to agents are not judged.
fn dropped(step: &Step, initiator: &EndFacts, acceptor: &EndFacts) -> Option<(String, Option<u16>)> {
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
        Some((from.site.clone(), Some(port).filter(|port| *port != egress::OTHERS)))
    })
}

/// Whether peers outside can connect to a node's agent, by its site's declaration
/// and by measurement.
///
/// # Errors
/// The reason why they can't.
pub(crate) fn lets_in(end: &EndFacts) -> Result<Reason, Reason> {
    let own = &end.own;
    let (site, found) = (end.site.clone(), own.clone());
    match (end.inbound, own.result) {
        (Inbound::Closed, _) => Err(Reason::LetsNothingIn { site }),
        // An earlier connection between the two sites counts for more than a
        // relay's attempt.
        (Inbound::Open | Inbound::Auto, _) if own.failed() && end.met => {
            Ok(Reason::LetsInMet { site, found })
        }
        (Inbound::Open, _) if own.failed() => Err(Reason::DeclaredOpen { site, found }),
        (Inbound::Open, _) => Ok(Reason::LetsIn { site }),
        (Inbound::Auto, Reachability::Reachable) => Ok(Reason::LetsInMeasured { site, found }),
        (Inbound::Auto, Reachability::Unknown) if end.may_be_open && end.met => {
            Ok(Reason::LetsInMet { site, found })
        }
        (Inbound::Auto, Reachability::Unknown) => Err(Reason::NotMeasured { site, found }),
        (Inbound::Auto, _) => Err(Reason::NotReached { site, found }),
    }
}

/// As [`lets_in`], but a node with a public address may be let in where nobody could measure it, unless
/// nothing leaves it.
pub(crate) fn may_let_in(end: &EndFacts) -> Judged {
    lets_in(end).or_else(|reason| match reason {
        Reason::NotMeasured { site, .. } if end.may_be_open && leaves(end).is_ok() => {
            Ok(Reason::MayLetIn { site })
        }
        reason => Err(reason),
    })
}

/// Whether the site lets in a port for the acceptor's node.
pub(crate) fn port_range(acceptor: &EndFacts) -> Judged {
    let site = acceptor.site.clone();
    match lets_in(acceptor) {
        // That was perhaps another node of the site, and nobody can measure this one.
        Ok(Reason::LetsInMet { .. }) if acceptor.may_be_open => {}
        Ok(_) => return Err(Reason::EveryPortLetIn { site }),
        Err(_) => {}
    }
    if !acceptor.port_let_in {
        return Err(Reason::NoPortLetIn { site });
    }
    if acceptor.outside.failed() {
        return Err(Reason::PortNotReached { found: acceptor.outside.clone() });
    }
    Ok(Reason::PortLetIn { site })
}

fn reverse(initiator: &EndFacts, acceptor: &EndFacts) -> Judged {
    let site = initiator.site.clone();
    let reason = match (lets_in(initiator), port_range(initiator)) {
        (Ok(_), _) | (_, Ok(_)) => Reason::LetsIn { site },
        (Err(_), Err(reason)) if initiator.port_let_in => return Err(reason),
        (Err(reason), Err(_)) => may_let_in(initiator).map_err(|_| reason)?,
    };
    attached(acceptor)?;
    leaves(acceptor)?;
    Ok(reason)
}

fn punch(initiator: &EndFacts, acceptor: &EndFacts, pair: &PairFacts) -> Judged {
    attached(acceptor)?;
    if pair.relays == 0 {
        let reason = if pair.gateways_join_none { Reason::GatewaysJoinNone } else { Reason::NoRelayForBoth };
        return Err(reason);
    }
    for end in [initiator, acceptor] {
        leaves(end)?;
        let site = end.site.clone();
        match end.mapping {
            Mapping::Unknown => return Err(Reason::MappingUnknown { site }),
            Mapping::PortDependent => return Err(Reason::PortPerDestination { site }),
            Mapping::Untranslated | Mapping::EndpointIndependent => {}
        }
    }
    if [initiator, acceptor].iter().all(|end| end.filtering == Filtering::Stateless) {
        let (initiator, acceptor) = (initiator.site.clone(), acceptor.site.clone());
        return Err(Reason::BothStateless { initiator, acceptor });
    }
    Ok(Reason::PortsKnown)
}

fn traverse(initiator: &EndFacts, acceptor: &EndFacts, pair: &PairFacts) -> Judged {
    if lets_in(acceptor).is_ok() {
        return Err(Reason::EverythingLetIn { site: acceptor.site.clone() });
    }
    attached(acceptor)?;
    for end in [initiator, acceptor] {
        let site = end.site.clone();
        if end.mapping == Mapping::Unknown {
            return Err(Reason::MappingUnknown { site });
        }
        if !end.can_traverse {
            return Err(Reason::NoRawPackets { site });
        }
    }
    let (near, far) = (initiator.site.clone(), acceptor.site.clone());
    if matches!(acceptor.filtering, Filtering::AddressDependent | Filtering::PortDependent) {
        return Err(Reason::KeepsState { site: far });
    }
    if initiator.mapping == Mapping::PortDependent {
        return Err(Reason::PortPerDestination { site: near });
    }
    if acceptor.mapping != Mapping::Untranslated {
        return Err(Reason::NoOwnAddress { site: far });
    }
    if initiator.mapping != Mapping::Untranslated && pair.relays == 0 {
        return Err(Reason::NoRelayForInitiator);
    }
    Ok(Reason::MayAnswer { site: far })
}

fn relay(acceptor: &EndFacts, pair: &PairFacts) -> Judged {
    some_relay(pair)?;
    attached(acceptor)?;
    leaves(acceptor)?;
    Ok(Reason::BothLetOut)
}

pub(crate) fn some_relay(pair: &PairFacts) -> Result<(), Reason> {
    match pair {
        PairFacts { gateways_join_none: true, .. } => Err(Reason::GatewaysJoinNone),
        PairFacts { relays: 0, .. } => Err(Reason::NoRelay),
        _ => Ok(()),
    }
}

/// Whether the broker can order the acceptor or its gateway to dial out.
pub(crate) fn attached(acceptor: &EndFacts) -> Result<(), Reason> {
    if acceptor.attached { Ok(()) } else { Err(Reason::Detached { site: acceptor.site.clone() }) }
}

/// Whether a node may dial out itself; an error is the reason why not.
pub(crate) fn leaves(end: &EndFacts) -> Result<(), Reason> {
    match end.way_out {
        WayOut::Yes | WayOut::Unknown => Ok(()),
        WayOut::No => Err(Reason::NoWayOut { site: end.site.clone() }),
    }
}
