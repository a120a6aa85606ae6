//! Plans and policies between their wire form and the one that decisions are
//! made in.

use std::time::Duration;

use isthmus_plan::{Dial, Inbound, LeftOut, Plan, Route, Step};
use isthmus_wire::proto;

/// A plan as it is sent.
pub fn plan_to_wire(plan: &Plan) -> proto::Plan {
    let steps = plan.steps.iter().map(|step| proto::PlanStep {
        route: route_to_wire(step.route).into(),
        dial: dial_to_wire(step.dial).into(),
        deadline_ms: u32::try_from(step.deadline.as_millis()).unwrap_or(u32::MAX),
        reason: step.reason.clone(),
    });
    let left_out = plan.left_out.iter().map(|left| proto::LeftOut {
        route: route_to_wire(left.route).into(),
        dial: dial_to_wire(left.dial).into(),
        reason: left.reason.clone(),
    });
    proto::Plan { steps: steps.collect(), left_out: left_out.collect(), encrypted: plan.encrypted }
}

/// A plan as it was received. Steps of a newer version that this one doesn't
/// know are passed over.
pub fn plan_from_wire(plan: &proto::Plan) -> Plan {
    let steps = plan.steps.iter().filter_map(|step| {
        Some(Step {
            route: route_from_wire(step.route())?,
            dial: dial_from_wire(step.dial())?,
            deadline: Duration::from_millis(step.deadline_ms.into()),
            reason: step.reason.clone(),
        })
    });
    let left_out = plan.left_out.iter().filter_map(|left| {
        Some(LeftOut {
            route: route_from_wire(left.route())?,
            dial: dial_from_wire(left.dial())?,
            reason: left.reason.clone(),
        })
    });
    Plan { steps: steps.collect(), left_out: left_out.collect(), encrypted: plan.encrypted }
}

/// What a site lets in, as it is sent.
pub fn inbound_to_wire(inbound: Inbound) -> proto::Inbound {
    match inbound {
        Inbound::Closed => proto::Inbound::Closed,
        Inbound::Open => proto::Inbound::Open,
    }
}

/// What a site lets in, as it was received.
pub fn inbound_from_wire(inbound: proto::Inbound) -> Inbound {
    match inbound {
        proto::Inbound::Closed => Inbound::Closed,
        proto::Inbound::Open => Inbound::Open,
    }
}

fn route_to_wire(route: Route) -> proto::Route {
    match route {
        Route::EndToEnd => proto::Route::EndToEnd,
    }
}

fn route_from_wire(route: proto::Route) -> Option<Route> {
    match route {
        proto::Route::Unknown => None,
        proto::Route::EndToEnd => Some(Route::EndToEnd),
    }
}

fn dial_to_wire(dial: Dial) -> proto::Dial {
    match dial {
        Dial::Direct => proto::Dial::Direct,
        Dial::Relay => proto::Dial::Relay,
    }
}

fn dial_from_wire(dial: proto::Dial) -> Option<Dial> {
    match dial {
        proto::Dial::Unknown => None,
        proto::Dial::Direct => Some(Dial::Direct),
        proto::Dial::Relay => Some(Dial::Relay),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isthmus_plan::{PairFacts, SiteFacts, plan};

    #[test]
    fn plans_survive_the_wire_and_unknown_steps_do_not() {
        let site = |name: &str, inbound| SiteFacts { name: name.to_owned(), inbound, attached: true };
        let acceptors = [site("beta", Inbound::Open), site("beta", Inbound::Closed)];
        for acceptor in acceptors {
            let facts = PairFacts { trusted: false, relays: 1 };
            let plan = plan(&site("alpha", Inbound::Closed), &acceptor, &facts);
            let mut wire = plan_to_wire(&plan);
            assert_eq!(plan_from_wire(&wire), plan);
            wire.steps.push(proto::PlanStep { route: 99, dial: 99, ..proto::PlanStep::default() });
            assert_eq!(plan_from_wire(&wire), plan);
        }
    }
}
