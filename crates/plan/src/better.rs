//! Which steps of a plan are better than those by which two nodes are connected.

use crate::{Dial, Failure, Plan, Route, Step, Used};

/// How good a way is: less is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// The index of the way's step in the plan; the number of steps if the plan doesn't have it.
    place: usize,
    /// Whether the way goes over a relay that is known to be much farther than another one.
    is_detour: bool,
}

impl Plan {
    /// The plan's steps by which a way can be had that is better than at least one of `than`, in the
    /// plan's order. Steps that have failed of late are left out. A way of `than` that the plan
    /// doesn't have counts as behind all steps. The plan's steps must be in the order in which they
    /// were planned.
    pub fn better(&self, than: &[Used<'_>], failures: &[Failure]) -> Vec<Step> {
        let fails = |step: &Step| failures.iter().any(|it| (it.route, it.dial) == (step.route, step.dial));
        let Some(last) = than.iter().map(|way| self.rank(*way)).max() else { return Vec::new() };
        let is_better = |place: &usize| Rank { place: *place, is_detour: false } < last;
        let better = (0..self.steps.len()).take_while(is_better).filter_map(|place| self.steps.get(place));
        better.filter(|step| !fails(step)).cloned().collect()
    }

    /// How good a way is by this plan.
    pub fn rank(&self, way: Used<'_>) -> Rank {
        let found = self.steps.iter().position(|step| (step.route, step.dial) == (way.route, way.dial));
        // The distances are those of the two nodes.
        let by_relay = (way.route, way.dial) == (Route::EndToEnd, Dial::Relay);
        let is_far = self.far_relays.iter().any(|name| name == way.relay);
        Rank { place: found.unwrap_or(self.steps.len()), is_detour: by_relay && is_far }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Reason;

    #[test]
    fn better_are_earlier_steps_that_have_not_failed() {
        use Dial::{Direct, Punch, Relay, Reverse};
        let step =
            |dial| Step { route: Route::EndToEnd, dial, deadline: Duration::ZERO, reason: Reason::NoSuchWay };
        let plan = |dials: &[Dial]| Plan {
            steps: dials.iter().copied().map(step).collect(),
            left_out: Vec::new(),
            encrypted: true,
            ways: Vec::new(),
            takes_site_trunk: false,
            far_relays: vec!["far".to_owned()],
        };
        // The plan; how they are connected; what has failed; what is better.
        for (planned, than, failed, want) in [
            (&[Punch, Relay][..], &[Relay][..], &[][..], &[Punch][..]),
            (&[Punch, Relay], &[Punch], &[], &[]),
            (&[Punch, Relay], &[Relay], &[Punch], &[]),
            (&[Reverse, Punch, Relay], &[Relay], &[Reverse], &[Punch]),
            (&[Reverse, Punch, Relay], &[Punch], &[], &[Reverse]),
            (&[Reverse, Punch, Relay], &[Punch, Relay], &[], &[Reverse, Punch]),
            // The step isn't in the plan any more.
            (&[Punch, Relay], &[Direct], &[], &[Punch, Relay]),
            (&[Punch, Relay], &[], &[], &[]),
            (&[], &[Relay], &[], &[]),
        ] {
            let than: Vec<_> =
                than.iter().map(|dial| Used { route: Route::EndToEnd, dial: *dial, relay: "near" }).collect();
            let failure =
                |dial: &Dial| Failure { route: Route::EndToEnd, dial: *dial, reason: "no answer".to_owned() };
            let failures: Vec<_> = failed.iter().map(failure).collect();
            let better = plan(planned).better(&than, &failures);
            let dials: Vec<_> = better.iter().map(|step| step.dial).collect();
            assert_eq!(dials, want, "{planned:?} {than:?} {failed:?}");
        }
    }

    #[test]
    fn a_nearer_relay_is_better() {
        let step =
            |route| Step { route, dial: Dial::Relay, deadline: Duration::ZERO, reason: Reason::NoSuchWay };
        let (ends, gateway) = (Route::EndToEnd, Route::OneGateway);
        // Relays that are far; how they are connected; the steps that are better.
        for (far, used, want) in [
            (&["far"][..], &[(ends, "far")][..], &[ends][..]),
            (&["other"], &[(ends, "far")], &[]),
            (&[], &[(ends, "far")], &[]),
            (&["far"], &[(ends, "hub")], &[]),
            (&["far"], &[(ends, "hub"), (ends, "far")], &[ends]),
            (&["far"], &[(gateway, "far")], &[ends]),
            // Which one it is isn't known.
            (&["far"], &[(ends, "")], &[]),
        ] {
            let plan = Plan {
                steps: vec![step(ends), step(gateway)],
                far_relays: far.iter().map(|&name| name.to_owned()).collect(),
                left_out: Vec::new(),
                encrypted: true,
                ways: Vec::new(),
                takes_site_trunk: false,
            };
            let used: Vec<_> =
                used.iter().map(|&(route, relay)| Used { route, dial: Dial::Relay, relay }).collect();
            let better: Vec<_> = plan.better(&used, &[]).iter().map(|step| step.route).collect();
            assert_eq!(better, want, "{far:?} {used:?}");
        }
    }
}
