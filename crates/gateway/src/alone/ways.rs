//! Plans while the broker can't be reached.

use isthmus_plan::parts::needs_broker;
use isthmus_rpc::enums::{dial_from_wire, route_from_wire};
use isthmus_wire::proto;

/// Why the broker arranges nothing.
pub(super) const AWAY: &str = "it can't be reached";

/// The plan without the steps that the broker must arrange. They are left out, with the reason why it
/// arranges nothing.
pub(crate) fn without_broker(plan: proto::Plan, why: &str) -> proto::Plan {
    let needs = |step: &proto::PlanStep| {
        let way = route_from_wire(step.route()).zip(dial_from_wire(step.dial()));
        way.is_none_or(needs_broker)
    };
    let (needing, steps): (Vec<_>, Vec<_>) = plan.steps.into_iter().partition(needs);
    let left_out = needing.into_iter().map(|step| proto::LeftOut {
        route: step.route,
        dial: step.dial,
        reason: format!("the broker must arrange it, and {why}"),
        remedy: proto::Remedy::None.into(),
    });
    proto::Plan { steps, left_out: left_out.chain(plan.left_out).collect(), ..plan }
}

#[cfg(test)]
mod tests {
    use isthmus_rpc::contact::plan_from_facts;

    use super::*;

    #[test]
    fn steps_that_the_broker_must_arrange_are_left_out() {
        let end = |node: &str, inbound: proto::Inbound, way_out: proto::WayOut| proto::End {
            node: node.to_owned(),
            inbound: inbound.into(),
            seen: Some(proto::Seen { way_out: way_out.into(), ..proto::Seen::default() }),
            attached: true,
            ..proto::End::default()
        };
        let (closed, open) = (proto::Inbound::Closed, proto::Inbound::Open);
        let (yes, no) = (proto::WayOut::Yes, proto::WayOut::No);
        for (initiator, acceptor, want) in [
            (end("n1.alpha", closed, yes), end("n1.beta", open, yes), &[proto::Dial::Direct][..]),
            (end("n1.alpha", closed, no), end("n1.beta", open, yes), &[proto::Dial::Direct]),
            (end("n1.alpha", open, yes), end("n1.beta", closed, yes), &[]),
        ] {
            let facts = proto::Facts { acceptor: Some(acceptor), relays: 1, ..proto::Facts::default() };
            let before = plan_from_facts(&initiator, &facts);
            let count = before.steps.len() + before.left_out.len();
            let plan = without_broker(before, AWAY);
            let dials: Vec<_> = plan.steps.iter().map(proto::PlanStep::dial).collect();
            assert_eq!(dials, want, "{plan:?}");
            assert_eq!(plan.steps.len() + plan.left_out.len(), count);
        }
    }
}
