//! The initiator's side: opens a connection to another party along the plan. The
//! first step that works ends it.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Instant;

use isthmus_net::counters;
use isthmus_net::dial::SocketOptions;
use isthmus_net::enums::{dial_to_wire, route_to_wire};
use isthmus_net::lock;
use isthmus_plan::failures::Due;
use isthmus_plan::{Dial, Failure, Route, Step};
use tokio_rustls::rustls::ClientConfig;

use crate::attempt::{Attempt, StepError};
use crate::dialer::{Dialer, ReachError, Reached};
use crate::purpose::{Purpose, Security};
use crate::words::{left_out, way};

/// Relays and gateways tried per connection; the broker names others each time.
const ATTEMPTS: usize = 3;

/// Counts a step that was tried.
fn note(step: &Step, failed: Option<&StepError>, started: Instant) {
    let label = format!("{} {}", step.dial, step.route);
    let outcome = match failed {
        None => "ok",
        Some(StepError::Final(_)) => "refused",
        Some(StepError::GivenUp) => "given-up",
        Some(StepError::Next(_)) => "failed",
    };
    counters::attempt(&label, outcome);
    if failed.is_none() {
        counters::set_up(&label, started.elapsed());
    }
}

impl Dialer {
    /// Opens a connection to the agent of the node with this virtual address.
    ///
    /// # Errors
    /// [`ReachError`]; every step has its deadline.
    ///
    /// Once the other party may have been told what the connection is for,
    /// `given_up` ends nothing any more: the connection is to be ended as one
    /// that stands, because a program may have accepted it already.
    pub async fn reach(
        &self,
        destination: Ipv4Addr,
        mut purpose: Purpose<'_>,
    ) -> Result<Reached, ReachError> {
        let started = Instant::now();
        let mut found = self.find(destination).await?;
        tracing::debug!(node = %found.name, steps = found.plan.steps.len(), "looked up");
        found.plan.demote(&lock(&self.failures).towards(found.towards(), started));
        let towards = found.towards();
        let mut reasons: Vec<String> = Vec::new();
        let mut attempt = Attempt::new(self, &found, purpose.options);
        for step in &found.plan.steps {
            // Grid names, with a dot: a gateway that failed by one dial may do by another.
            attempt.named.retain(|name| !name.contains('.'));
            let others = step.dial == Dial::Relay || step.route != Route::EndToEnd;
            let times = if others { ATTEMPTS } else { 1 };
            for time in 0..times {
                let named = attempt.named.len();
                tracing::debug!(
                    node = %found.name, route = %step.route, dial = %step.dial, deadline = ?step.deadline, "a step"
                );
                let tried = attempt.step(step, &mut purpose).await;
                note(step, tried.as_ref().err(), started);
                match tried {
                    Ok((carrier, relay)) => {
                        tracing::debug!(node = %found.name, relay, setup = ?started.elapsed(), "connected");
                        lock(&self.failures).clear(towards, step.route, step.dial);
                        return Ok(Reached {
                            carrier,
                            route: route_to_wire(step.route),
                            dial: dial_to_wire(step.dial),
                            relay,
                            setup: started.elapsed(),
                            failures: reasons,
                            node: found.name,
                        });
                    }
                    Err(StepError::Final(status)) => return Err(ReachError::Answered(status)),
                    Err(StepError::GivenUp) => return Err(ReachError::GivenUp),
                    // The broker knew nobody else.
                    Err(StepError::Next(_)) if time > 0 && attempt.named.len() == named => break,
                    Err(StepError::Next(reason)) => {
                        tracing::debug!(node = %found.name, route = %step.route, dial = %step.dial, reason, "a step failed");
                        let failure = Failure { route: step.route, dial: step.dial, reason: reason.clone() };
                        lock(&self.failures).note(towards, failure, Instant::now());
                        let reason = format!("{}: {reason}", way(step.route, step.dial));
                        if reasons.last() != Some(&reason) {
                            reasons.push(reason);
                        }
                    }
                }
            }
        }
        // The node may have moved since the contact was cached.
        self.control.forget(destination);
        reasons.extend(left_out(&found.plan.left_out));
        Err(ReachError::NoWay(reasons))
    }

    /// Sees whether something that failed works by now.
    pub async fn try_again(&self, due: &Due, tls: &Arc<ClientConfig>) {
        // One that can't be asked for says nothing of the way.
        let Ok(found) = self.find(due.node).await else { return };
        let name = &found.name;
        let towards = found.towards();
        let step = found.plan.steps.iter().find(|step| (step.route, step.dial) == (due.route, due.dial));
        let Some(step) = step else {
            return lock(&self.failures).clear(towards, due.route, due.dial);
        };
        let mut attempt = Attempt::new(self, &found, SocketOptions::default());
        match attempt.open(step, Security::Tls(tls)).await {
            Ok(_) => {
                tracing::info!(node = %name, dial = %due.dial, "works again");
                lock(&self.failures).clear(towards, due.route, due.dial);
            }
            Err(StepError::Next(reason)) => {
                tracing::debug!(node = %name, dial = %due.dial, reason, "still fails");
                let failure = Failure { route: due.route, dial: due.dial, reason };
                lock(&self.failures).note(towards, failure, Instant::now());
            }
            Err(StepError::Final(_) | StepError::GivenUp) => {}
        }
    }
}
