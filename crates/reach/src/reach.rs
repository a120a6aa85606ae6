//! The initiator's side: opens a connection to another party by the first step of
//! the plan that works.

use std::time::Instant;

use isthmus_plan::{Dial, Failure, Route, Step, Used};
use isthmus_rpc::enums::{dial_from_wire, dial_to_wire, route_from_wire, route_to_wire};
use isthmus_rpc::rendezvous::Peer;
use isthmus_service::counters;
use isthmus_service::lock;

use crate::attempt::{Attempt, StepError};
use crate::dialer::{Dialer, Found, LOOKUP, ReachError, Reached};
use crate::purpose::{Purpose, Security};
use crate::words::{Tried, reasons, way};

/// How many relays or gateways are tried per step; the broker names others each time.
const ATTEMPTS: usize = 3;

/// Updates the counters for a step that was tried.
fn count(step: &Step, failed: Option<&StepError>, started: Instant) {
    let label = format!("{} {}", step.dial, step.route);
    let outcome = match failed {
        None => "ok",
        Some(StepError::Final(_) | StepError::OtherOwner(_)) => "refused",
        Some(StepError::GivenUp) => "given-up",
        Some(StepError::Next(_) | StepError::Unsigned(_)) => "failed",
    };
    counters::attempt(&label, outcome);
    if failed.is_none() {
        counters::set_up(&label, started.elapsed());
    }
}

/// How many times a step is tried, each time over other relays or gateways.
fn attempts(step: &Step) -> usize {
    match (step.route, step.dial) {
        // Each site's gateways are given.
        (_, Dial::Trunk) => 1,
        (Route::EndToEnd, dial) if dial != Dial::Relay => 1,
        _ => ATTEMPTS,
    }
}

/// Whether the step's connection leaves from the source address that the caller has asked for, and
/// goes to another site. By other steps the other end connects, or a port of its own matters.
fn heeds_source(step: &Step) -> bool {
    matches!(step.route, Route::EndToEnd | Route::OneGateway)
        && matches!(step.dial, Dial::Direct | Dial::PortRange | Dial::Relay)
}

/// What has come of taking some steps.
enum Taken {
    Reached(Box<Reached>),
    /// The other party has answered, or the initiator has given up. No further step helps.
    Ended(ReachError),
    /// None of the steps has worked. Some may only have lacked the signature of the other agent.
    Failed {
        tried: Vec<Tried>,
        unsigned: bool,
    },
}

impl Dialer {
    /// Opens a connection to a party: the agent of the node with a virtual address, or another
    /// site's gateway.
    ///
    /// `given_up` has no effect once the introduction may have been sent: a program may have
    /// accepted the connection already, so the caller closes it.
    ///
    /// # Errors
    /// [`ReachError`] says why there is no connection. It comes in time, as every step has its
    /// deadline.
    pub async fn reach(&self, peer: impl Into<Peer>, purpose: Purpose<'_>) -> Result<Reached, ReachError> {
        let started = Instant::now();
        let found = self.find((peer, purpose.node), LOOKUP).await?;
        self.reach_found((&found, started), purpose).await
    }

    /// Opens a connection to a party that was looked up, as [`reach`](Self::reach) does.
    /// `started` is when the connection was asked for.
    ///
    /// # Errors
    /// As of [`reach`](Self::reach).
    pub async fn reach_found(
        &self,
        (found, started): (&Found, Instant),
        mut purpose: Purpose<'_>,
    ) -> Result<Reached, ReachError> {
        // What works from one source address says nothing of the others.
        let from_source = purpose.options.source.is_some();
        let mut plan = found.plan.clone();
        if !from_source {
            plan.demote(&lock(&self.failures).towards(found.towards(), Instant::now()));
        }
        if found.plan.encrypted && matches!(purpose.security, Security::Raw) {
            let reason = format!("data with {} must be encrypted", found.name);
            return Err(ReachError::OnlyEncrypted(vec![reason.into()]));
        }
        let steps = purpose.security.steps(plan.steps);
        let (failed, unsigned) = match self.take(found, &steps, &mut purpose, started).await {
            Taken::Reached(reached) => return Ok(*reached),
            Taken::Ended(error) => return Err(error),
            Taken::Failed { tried, unsigned } => (tried, unsigned),
        };
        if unsigned {
            return Err(ReachError::OnlyEncrypted(reasons(&failed, &[])));
        }
        if from_source || matches!(purpose.security, Security::ByGateways(_)) {
            return Err(ReachError::NoWay(reasons(&failed, &[])));
        }
        // The node may have moved since the contact was cached.
        self.control.forget(&found.peer);
        Err(ReachError::NoWay(reasons(&failed, &plan.left_out)))
    }

    /// Opens a connection by a step of the plan that is better than at least one of `than`, and
    /// isn't known to fail now. Returns it with the indexes of those in `than` that it is better
    /// than. `None` if there is no such step.
    ///
    /// # Errors
    /// As of [`reach`](Self::reach). Also if the connection is no better in the end: the broker chose
    /// another relay than the plan expects.
    pub async fn reach_better(
        &self,
        peer: impl Into<Peer>,
        than: &[Used<'_>],
        mut purpose: Purpose<'_>,
    ) -> Result<Option<(Reached, Vec<usize>)>, ReachError> {
        let started = Instant::now();
        let found = self.find((peer, purpose.node), LOOKUP).await?;
        let failures = lock(&self.failures).towards(found.towards(), started);
        let better = found.plan.better(than, &failures);
        if better.is_empty() {
            return Ok(None);
        }
        match self.take(&found, &better, &mut purpose, started).await {
            Taken::Reached(reached) => {
                let way = route_from_wire(reached.route).zip(dial_from_wire(reached.dial));
                let rank = way.map(|(route, dial)| Used { route, dial, relay: &reached.relay });
                let rank = rank.map(|used| found.plan.rank(used));
                let outdone = than.iter().enumerate();
                let outdone =
                    outdone.filter(|(_, other)| rank.is_some_and(|rank| found.plan.rank(**other) > rank));
                let outdone: Vec<_> = outdone.map(|(at, _)| at).collect();
                if outdone.is_empty() {
                    // The facts are old.
                    self.control.forget(&found.peer);
                    let by = if reached.relay.is_empty() { "the way" } else { &reached.relay };
                    return Err(ReachError::no_way(format!("{by} is no better than what is in use")));
                }
                Ok(Some((*reached, outdone)))
            }
            Taken::Ended(error) => Err(error),
            Taken::Failed { tried, .. } => Err(ReachError::NoWay(reasons(&tried, &[]))),
        }
    }

    /// Takes steps one after another, until one works.
    async fn take(
        &self,
        found: &Found,
        steps: &[Step],
        purpose: &mut Purpose<'_>,
        started: Instant,
    ) -> Taken {
        let from_source = purpose.options.source.is_some();
        let towards = found.towards();
        let (mut failed, mut unsigned) = (Vec::<Tried>::new(), false);
        let mut attempt = Attempt::new(self, found, purpose.options);
        for step in steps {
            if from_source && !heeds_source(step) {
                continue;
            }
            // A gateway, whose name has a dot, may work by another dial.
            attempt.named.retain(|name| !name.contains('.'));
            let times = attempts(step);
            for time in 0..times {
                let named = attempt.named.len();
                tracing::debug!(
                    node = %found.name, route = %step.route, dial = %step.dial, deadline = ?step.deadline, "a step"
                );
                let tried = attempt.step(step, purpose).await;
                count(step, tried.as_ref().err(), started);
                match tried {
                    Ok((carrier, relay)) => {
                        tracing::debug!(node = %found.name, relay, setup = ?started.elapsed(), "connected");
                        if !from_source {
                            lock(&self.failures).clear(towards, step.route, step.dial);
                        }
                        return Taken::Reached(Box::new(Reached {
                            carrier,
                            route: route_to_wire(step.route),
                            dial: dial_to_wire(step.dial),
                            relay,
                            segment: attempt.segment,
                            setup: started.elapsed(),
                            failures: reasons(&failed, &[]).into_iter().map(|told| told.text).collect(),
                            node: found.name.clone(),
                        }));
                    }
                    Err(StepError::Final(status)) => return Taken::Ended(ReachError::Answered(status)),
                    Err(StepError::GivenUp) => return Taken::Ended(ReachError::GivenUp),
                    Err(StepError::OtherOwner(reason)) => {
                        return Taken::Ended(ReachError::OtherOwner(reason));
                    }
                    // The way itself may be good.
                    Err(StepError::Unsigned(reason)) => {
                        unsigned = true;
                        failed.push(Tried { way: way(step.route, step.dial), reason: reason.into() });
                        break;
                    }
                    // The broker named no other relay or gateway.
                    Err(StepError::Next(_)) if time > 0 && attempt.named.len() == named => break,
                    Err(StepError::Next(reason)) => {
                        tracing::debug!(node = %found.name, route = %step.route, dial = %step.dial, %reason, "a step failed");
                        if !from_source {
                            let failure =
                                Failure { route: step.route, dial: step.dial, reason: reason.text.clone() };
                            lock(&self.failures).note(towards, failure, Instant::now());
                        }
                        failed.push(Tried { way: way(step.route, step.dial), reason });
                    }
                }
            }
        }
        Taken::Failed { tried: failed, unsigned }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use isthmus_plan::Reason;

    use super::*;

    #[test]
    fn a_source_address_is_for_steps_that_connect_from_it() {
        for (route, dial, heeds) in [
            (Route::EndToEnd, Dial::Direct, true),
            (Route::EndToEnd, Dial::PortRange, true),
            (Route::EndToEnd, Dial::Relay, true),
            (Route::OneGateway, Dial::Direct, true),
            (Route::EndToEnd, Dial::Reverse, false),
            (Route::EndToEnd, Dial::Punch, false),
            (Route::EndToEnd, Dial::Traverse, false),
            (Route::GatewayOut, Dial::Direct, false),
            (Route::TwoGateway, Dial::Relay, false),
            (Route::TwoGateway, Dial::Trunk, false),
        ] {
            let step = Step { route, dial, deadline: Duration::ZERO, reason: Reason::NoSuchWay };
            assert_eq!(heeds_source(&step), heeds, "{route} {dial}");
        }
    }
}
