//! Which steps of a plan are better than those by which two nodes are connected.

use crate::{Dial, Failure, Plan, Route, Step};

impl Plan {
    /// The plan's steps that come before the last of the steps `than`, in the plan's order. Steps
    /// that have failed of late are left out. A step of `than` that the plan doesn't have counts as
    /// behind all steps. The plan's steps must be in the order in which they were planned.
    pub fn better(&self, than: &[(Route, Dial)], failures: &[Failure]) -> Vec<Step> {
        let fails = |step: &Step| failures.iter().any(|it| (it.route, it.dial) == (step.route, step.dial));
        let last = than.iter().map(|way| self.place(*way)).max().unwrap_or_default();
        self.steps.iter().take(last).filter(|step| !fails(step)).cloned().collect()
    }

    /// The index of a way among the steps; their number if the plan doesn't have the way.
    pub fn place(&self, way: (Route, Dial)) -> usize {
        let found = self.steps.iter().position(|step| (step.route, step.dial) == way);
        found.unwrap_or(self.steps.len())
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
            let than: Vec<_> = than.iter().map(|dial| (Route::EndToEnd, *dial)).collect();
            let failure =
                |dial: &Dial| Failure { route: Route::EndToEnd, dial: *dial, reason: "no answer".to_owned() };
            let failures: Vec<_> = failed.iter().map(failure).collect();
            let better = plan(planned).better(&than, &failures);
            let dials: Vec<_> = better.iter().map(|step| step.dial).collect();
            assert_eq!(dials, want, "{planned:?} {than:?} {failed:?}");
        }
    }
}
