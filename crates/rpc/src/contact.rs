//! Plans and policies between their wire form and that of `isthmus-plan`.

use std::time::Duration;

use isthmus_plan::policy::Set;
use isthmus_plan::relays::worth_leaving;
use isthmus_plan::ways::{Path, Pin};
use isthmus_plan::{
    Dial, EndFacts, Forbidden, LeftOut, PairFacts, Plan, Ports, Reason, RoundTrips, Route, Step, Told, Way,
    WayOut,
};
use isthmus_wire::proto;

use crate::enums::{
    dial_from_wire, dial_to_wire, filtering_from_wire, inbound_from_wire, mapping_from_wire,
    remedy_from_wire, remedy_to_wire, route_from_wire, route_to_wire, transport_from_wire, transport_to_wire,
    way_out_from_wire,
};
use crate::seen;

/// A plan as it is sent.
pub fn plan_to_wire(plan: &Plan) -> proto::Plan {
    let steps = plan.steps.iter().map(|step| proto::PlanStep {
        route: route_to_wire(step.route).into(),
        dial: dial_to_wire(step.dial).into(),
        deadline_ms: u32::try_from(step.deadline.as_millis()).unwrap_or(u32::MAX),
        reason: step.reason.to_string(),
    });
    let ways = plan.ways.iter().map(|way| proto::PlanWay {
        transport: transport_to_wire(way.transport).into(),
        reason: way.reason.to_string(),
    });
    let left_out = plan.left_out.iter().map(|left| proto::LeftOut {
        route: route_to_wire(left.route).into(),
        dial: dial_to_wire(left.dial).into(),
        reason: left.reason.to_string(),
        remedy: left.reason.remedy().map_or(proto::Remedy::None, remedy_to_wire).into(),
    });
    proto::Plan {
        steps: steps.collect(),
        left_out: left_out.collect(),
        encrypted: plan.encrypted,
        ways: ways.collect(),
        takes_site_trunk: plan.takes_site_trunk,
        far_relays: plan.far_relays.clone(),
    }
}

/// A plan as it was received. Ways and steps that this version doesn't know are left out.
pub fn plan_from_wire(plan: &proto::Plan) -> Plan {
    let steps = plan.steps.iter().filter_map(|step| {
        Some(Step {
            route: route_from_wire(step.route())?,
            dial: dial_from_wire(step.dial())?,
            deadline: Duration::from_millis(step.deadline_ms.into()),
            reason: Reason::Received(step.reason.as_str().into()),
        })
    });
    let left_out = plan.left_out.iter().filter_map(|left| {
        Some(LeftOut {
            route: route_from_wire(left.route())?,
            dial: dial_from_wire(left.dial())?,
            reason: Reason::Received(Told {
                text: left.reason.clone(),
                remedy: remedy_from_wire(left.remedy()),
            }),
        })
    });
    let ways = plan.ways.iter().filter_map(|way| {
        let reason = Reason::Received(way.reason.as_str().into());
        Some(Way { transport: transport_from_wire(way.transport())?, reason })
    });
    Plan {
        ways: ways.collect(),
        steps: steps.collect(),
        left_out: left_out.collect(),
        encrypted: plan.encrypted,
        takes_site_trunk: plan.takes_site_trunk,
        far_relays: plan.far_relays.clone(),
    }
}

/// The facts of an end as they were received.
pub(crate) fn end_from_wire(end: &proto::End) -> EndFacts {
    let seen = end.seen.clone().unwrap_or_default();
    EndFacts {
        site: end.node.split_once('.').map_or(end.node.as_str(), |(_, site)| site).to_owned(),
        inbound: inbound_from_wire(end.inbound()),
        port_let_in: !end.outside_address.is_empty(),
        mapping: mapping_from_wire(seen.mapping()),
        filtering: filtering_from_wire(seen.filtering()),
        own: seen::reach_from_wire(seen.own.as_ref()),
        outside: seen::reach_from_wire(seen.outside.as_ref()),
        attached: end.attached,
        can_traverse: end.can_traverse,
        way_out: end.seen.as_ref().map_or(WayOut::Unknown, |seen| way_out_from_wire(seen.way_out())),
        gateway_let_in: !end.gateway_outside.is_empty(),
        gateway: seen::reach_from_wire(end.gateway_reach.as_ref()),
        gateway_mapping: mapping_from_wire(end.gateway_mapping()),
        site_trunk: end.site_trunk,
        met: false,
        may_be_open: false,
        egress: seen::answers_from_wire(&seen.egress),
        ports: Ports {
            agent: seen.own.as_ref().and_then(|own| port(&own.address)),
            let_in: port(&end.outside_address),
            gateway: port(&end.gateway_outside),
        },
    }
}

/// The port of `HOST:PORT`; of several addresses, that of the first.
fn port(address: &str) -> Option<u16> {
    address.split(", ").next()?.rsplit_once(':')?.1.parse().ok()
}

/// The plan that follows from the facts about both ends.
pub fn plan_from_facts(initiator: &proto::End, facts: &proto::Facts) -> proto::Plan {
    let (from, to, pair) = known(initiator, facts);
    let acceptor = facts.acceptor.as_ref();
    let over = acceptor.map(|acceptor| over_relays(initiator, acceptor)).unwrap_or_default();
    let far_relays = worth_leaving(&over, &facts.joining);
    plan_to_wire(&Plan { far_relays, ..isthmus_plan::plan(&from, &to, &pair) })
}

/// The round trips between two nodes over each relay that both have reached.
fn over_relays(initiator: &proto::End, acceptor: &proto::End) -> Vec<(String, Duration)> {
    let relays = |end: &proto::End| end.seen.iter().flat_map(|seen| seen.relays.clone()).collect::<Vec<_>>();
    let far = relays(acceptor);
    let over = relays(initiator).into_iter().filter_map(|near| {
        let far = far.iter().find(|far| far.relay == near.relay)?;
        let round_trip = seen::round_trip(&near)? + seen::round_trip(far)?;
        Some((near.relay, round_trip))
    });
    over.collect()
}

/// The plan by which a gateway reaches another site's gateway, from the facts about both.
pub fn carriers_from_facts(facts: &proto::Facts) -> proto::Plan {
    let initiator = facts.initiator.clone().unwrap_or_default();
    let (from, to, pair) = known(&initiator, facts);
    plan_to_wire(&isthmus_plan::site_trunk::carriers(&from, &to, &pair))
}

/// The facts that decisions use: those of the initiator, of the acceptor, and of both together.
pub fn known(initiator: &proto::End, facts: &proto::Facts) -> (EndFacts, EndFacts, PairFacts) {
    let acceptor = facts.acceptor.clone().unwrap_or_default();
    let dials: Vec<Dial> = facts.forbidden().filter_map(dial_from_wire).collect();
    let routes: Vec<Route> = facts.forbidden_routes().filter_map(route_from_wire).collect();
    let pair = PairFacts {
        trusted: facts.trusted,
        relays: facts.relays as usize,
        gateways_join_none: facts.gateways_join_none,
        forbidden: Forbidden { dials: Set::of(&dials), routes: Set::of(&routes) },
        round_trips: round_trips(initiator, &acceptor),
        pin: match facts.trunk_pin() {
            proto::TrunkPin::None => None,
            proto::TrunkPin::Always => Some(Pin::Always),
            proto::TrunkPin::Never => Some(Pin::Never),
        },
        path: path(facts.round_trip_us, facts.loss_ppm),
    };
    let may_be_open = |end: &proto::End| end.public && facts.relays == 0;
    let from = EndFacts {
        met: facts.initiator_met,
        may_be_open: may_be_open(initiator),
        ..end_from_wire(initiator)
    };
    let to =
        EndFacts { met: facts.acceptor_met, may_be_open: may_be_open(&acceptor), ..end_from_wire(&acceptor) };
    (from, to, pair)
}

/// What a report says of the way between two sites.
pub fn path_of(report: &proto::PathReport) -> Path {
    path(report.round_trip_us, report.loss_ppm)
}

fn path(round_trip_us: u64, loss_ppm: Option<u32>) -> Path {
    Path { rtt: Some(Duration::from_micros(round_trip_us)).filter(|rtt| !rtt.is_zero()), loss_ppm }
}

/// Round trips over detours, as both nodes have measured relays and each other's gateway.
fn round_trips(initiator: &proto::End, acceptor: &proto::End) -> RoundTrips {
    let gateways =
        |end: &proto::End| end.seen.iter().flat_map(|seen| seen.gateways.clone()).collect::<Vec<_>>();
    let to_gateway = |from: &proto::End, to: &proto::End| {
        let sights = gateways(from);
        // A site's gateways share one list.
        let is_one = |address: &str| to.gateway_outside.split(", ").any(|one| one == address);
        sights.iter().filter(|sight| is_one(&sight.address)).filter_map(seen::round_trip).max()
    };
    RoundTrips {
        relay: over_relays(initiator, acceptor).into_iter().map(|(_, round_trip)| round_trip).min(),
        to_acceptors_gateway: to_gateway(initiator, acceptor),
        to_initiators_gateway: to_gateway(acceptor, initiator),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(node: &str, inbound: proto::Inbound, mapping: proto::Mapping) -> proto::End {
        proto::End {
            node: node.to_owned(),
            inbound: inbound.into(),
            seen: Some(proto::Seen {
                mapping: mapping.into(),
                way_out: proto::WayOut::Yes.into(),
                ..proto::Seen::default()
            }),
            attached: true,
            ..proto::End::default()
        }
    }

    #[test]
    fn plans_survive_the_wire_and_unknown_steps_do_not() {
        let nat = proto::Mapping::EndpointIndependent;
        let initiator = end("n1.alpha", proto::Inbound::Open, nat);
        for acceptor in
            [end("n1.beta", proto::Inbound::Open, nat), end("n1.beta", proto::Inbound::Closed, nat)]
        {
            let facts = proto::Facts { acceptor: Some(acceptor), relays: 1, ..proto::Facts::default() };
            let mut wire = plan_from_facts(&initiator, &facts);
            let plan = plan_from_wire(&wire);
            let known = (plan.steps.len() + plan.left_out.len(), plan.ways.len(), plan.encrypted);
            assert_eq!(known, (17, 1, true));
            assert_eq!(plan_to_wire(&plan), wire);
            wire.steps.push(proto::PlanStep { route: 99, dial: 99, ..proto::PlanStep::default() });
            wire.ways.push(proto::PlanWay { transport: 99, ..proto::PlanWay::default() });
            assert_eq!(plan_from_wire(&wire), plan);
        }
    }

    #[test]
    fn round_trips_follow_from_both_nodes_measurements() {
        let sight = |relay: &str, address: &str, round_trip_us, failure: &str| proto::RelaySight {
            relay: relay.to_owned(),
            address: address.to_owned(),
            round_trip_us,
            failure: failure.to_owned(),
        };
        let end = |relays: &[(&str, u64)], gateways: &[(&str, u64)], own: &str| proto::End {
            gateway_outside: own.to_owned(),
            seen: Some(proto::Seen {
                relays: relays.iter().map(|(name, us)| sight(name, "", *us, "")).collect(),
                gateways: gateways.iter().map(|(address, us)| sight("", address, *us, "")).collect(),
                ..proto::Seen::default()
            }),
            ..proto::End::default()
        };
        let near = end(&[("far", 90), ("hub", 10), ("near", 1)], &[("b:1", 30), ("c:1", 1)], "a:1");
        let other = end(&[("hub", 20), ("far", 5), ("near", 0)], &[("a:1", 40)], "b:1");
        let micros = |us| Some(Duration::from_micros(us));
        let want = RoundTrips {
            relay: micros(30),
            to_acceptors_gateway: micros(30),
            to_initiators_gateway: micros(40),
        };
        assert_eq!(round_trips(&near, &other), want);
        assert_eq!(round_trips(&proto::End::default(), &other), RoundTrips::default());
        let mut failed = near;
        failed.seen =
            Some(proto::Seen { gateways: vec![sight("", "b:1", 30, "gone")], ..Default::default() });
        assert_eq!(round_trips(&failed, &other).to_acceptors_gateway, None);
    }

    #[test]
    fn far_relays_are_those_that_both_ends_have_measured_and_that_may_join_them() {
        let end = |relays: &[(&str, u64)]| {
            let sights = relays.iter().map(|(name, milliseconds)| proto::RelaySight {
                relay: (*name).to_owned(),
                round_trip_us: milliseconds * 1000,
                ..proto::RelaySight::default()
            });
            proto::End {
                seen: Some(proto::Seen { relays: sights.collect(), ..proto::Seen::default() }),
                ..end("n1.beta", proto::Inbound::Closed, proto::Mapping::PortDependent)
            }
        };
        let initiator = end(&[("hub", 40), ("near", 2), ("mine", 1)]);
        let acceptor = end(&[("hub", 40), ("near", 3), ("its", 1)]);
        for (joining, want) in [
            (&["hub", "near"][..], &["hub"][..]),
            (&["hub"], &[]),
            // The far one is full.
            (&["near", "mine", "its"], &["hub"]),
            // An older broker, or relays that take turns.
            (&[], &[]),
        ] {
            let facts = proto::Facts {
                acceptor: Some(acceptor.clone()),
                relays: 2,
                joining: joining.iter().map(|&name| name.to_owned()).collect(),
                ..proto::Facts::default()
            };
            let plan = plan_from_facts(&initiator, &facts);
            assert_eq!(plan.far_relays, want, "{joining:?}");
            assert_eq!(plan_from_wire(&plan).far_relays, want, "{joining:?}");
        }
    }

    #[test]
    fn earlier_connections_between_sites_cross_the_wire() {
        let filtered = proto::Reach { result: proto::Reachability::Filtered.into(), ..Default::default() };
        let mut acceptor = end("n1.beta", proto::Inbound::Open, proto::Mapping::Untranslated);
        if let Some(seen) = &mut acceptor.seen {
            seen.own = Some(filtered.clone());
        }
        acceptor.gateway_outside = "192.0.2.1:7740".to_owned();
        acceptor.gateway_reach = Some(filtered);
        let initiator = end("n1.alpha", proto::Inbound::Closed, proto::Mapping::PortDependent);
        let facts = proto::Facts { acceptor: Some(acceptor.clone()), relays: 1, ..proto::Facts::default() };
        for (acceptor_met, initiator_met, want) in [
            (false, false, vec![proto::Dial::Relay]),
            (true, false, vec![proto::Dial::Direct, proto::Dial::Relay]),
            (false, true, vec![proto::Dial::Relay]),
        ] {
            let facts = proto::Facts { acceptor_met, initiator_met, ..facts.clone() };
            let plan = plan_from_facts(&initiator, &facts);
            let dials: Vec<_> = plan.steps.iter().map(proto::PlanStep::dial).collect();
            assert_eq!(dials, want, "{acceptor_met} {initiator_met}");
        }
    }

    #[test]
    fn forbidden_ways_cross_the_wire() {
        let nat = proto::Mapping::EndpointIndependent;
        let facts = proto::Facts {
            acceptor: Some(end("n1.beta", proto::Inbound::Open, nat)),
            relays: 1,
            forbidden: vec![proto::Dial::Direct.into(), 99],
            forbidden_routes: vec![proto::Route::OneGateway.into(), 99],
            ..proto::Facts::default()
        };
        let plan = plan_from_facts(&end("n1.alpha", proto::Inbound::Closed, nat), &facts);
        let dials: Vec<_> = plan.steps.iter().map(proto::PlanStep::dial).collect();
        assert_eq!(dials, [proto::Dial::Punch, proto::Dial::Relay]);
    }
}
