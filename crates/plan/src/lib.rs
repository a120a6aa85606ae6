//! Decisions over plain data: how one node reaches another. No I/O, no clock.
//!
//! Two independent choices make one step of a plan. A [`Dial`] says *how* one
//! socket between two parties is opened, a [`Route`] says *which* parties dial.
//! [`plan`] puts the possible steps in order, cheap and fast first; the first
//! one that works wins. What can't work is left out with the reason, so that a
//! user who wonders why a pair goes over a relay finds the answer.
#![forbid(unsafe_code)]

use std::fmt;
use std::time::Duration;

/// Which parties dial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Route {
    /// Agent to agent.
    EndToEnd,
}

/// How one socket between two parties is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dial {
    /// The initiator just connects.
    Direct,
    /// Both sides dial out to a relay, which joins the two connections.
    Relay,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::EndToEnd => "end-to-end",
        })
    }
}

impl fmt::Display for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Direct => "direct",
            Self::Relay => "relay",
        })
    }
}

/// What a site lets in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Inbound {
    /// Nothing: a NAT, or a firewall.
    Closed,
    /// Every node's agent port can be reached from anywhere.
    Open,
}

/// What is known of one site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteFacts {
    /// Its name, for reasons.
    pub name: String,
    /// What it lets in.
    pub inbound: Inbound,
    /// Whether its gateway is at the broker, so that its nodes can be told to
    /// dial out.
    pub attached: bool,
}

/// What is known of two sites together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PairFacts {
    /// Whether data between them goes unencrypted.
    pub trusted: bool,
    /// Relays that both can use.
    pub relays: usize,
}

/// One thing to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Which parties dial.
    pub route: Route,
    /// How.
    pub dial: Dial,
    /// How long to wait for the connection before the next step.
    pub deadline: Duration,
    /// Why it may work.
    pub reason: String,
}

/// One thing that can't work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Which parties would dial.
    pub route: Route,
    /// How.
    pub dial: Dial,
    /// Why not.
    pub reason: String,
}

/// A dial that was tried and failed not long ago.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Which parties dialed.
    pub route: Route,
    /// How.
    pub dial: Dial,
    /// What it met.
    pub reason: String,
}

/// How one node reaches another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// To be tried in this order.
    pub steps: Vec<Step>,
    /// What can't work, and why.
    pub left_out: Vec<LeftOut>,
    /// Whether data is to be encrypted end to end.
    pub encrypted: bool,
}

/// Inside a site there is nothing else to try, so patience costs nothing.
const DIRECT_INSIDE: Duration = Duration::from_secs(10);
/// Between sites: the kernel repeats a lost SYN after 1 and 3 s (RFC 6298), so
/// this survives two losses before the relay is tried.
const DIRECT_BETWEEN: Duration = Duration::from_secs(4);
/// The last resort, and the other side has to be told first.
const RELAY: Duration = Duration::from_secs(10);

/// Plans how a node of `initiator` reaches a node of `acceptor`.
pub fn plan(initiator: &SiteFacts, acceptor: &SiteFacts, pair: &PairFacts) -> Plan {
    let route = Route::EndToEnd;
    if initiator.name == acceptor.name {
        let reason = format!("both nodes are in site {}", acceptor.name);
        let step = Step { route, dial: Dial::Direct, deadline: DIRECT_INSIDE, reason };
        return Plan { steps: vec![step], left_out: Vec::new(), encrypted: false };
    }
    let mut plan = Plan { steps: Vec::new(), left_out: Vec::new(), encrypted: !pair.trusted };
    match acceptor.inbound {
        Inbound::Open => plan.steps.push(Step {
            route,
            dial: Dial::Direct,
            deadline: DIRECT_BETWEEN,
            reason: format!("site {} lets connections in", acceptor.name),
        }),
        Inbound::Closed => plan.left_out.push(LeftOut {
            route,
            dial: Dial::Direct,
            reason: format!("site {} lets nothing in", acceptor.name),
        }),
    }
    let no_relay = if pair.relays == 0 {
        Some("no relay is attached to the broker".to_owned())
    } else if !acceptor.attached {
        Some(format!("the gateway of site {} is not attached to the broker", acceptor.name))
    } else {
        None
    };
    match no_relay {
        None => plan.steps.push(Step {
            route,
            dial: Dial::Relay,
            deadline: RELAY,
            reason: "both sites let connections out".to_owned(),
        }),
        Some(reason) => plan.left_out.push(LeftOut { route, dial: Dial::Relay, reason }),
    }
    plan
}

impl Plan {
    /// Puts steps that failed not long ago behind the others, in their order.
    /// They stay in the plan: where everything has failed, the first is still
    /// the best try.
    pub fn demote(&mut self, failures: &[Failure]) {
        let failure = |step: &Step| failures.iter().find(|f| (f.route, f.dial) == (step.route, step.dial));
        self.steps.sort_by_key(|step| failure(step).is_some());
        for step in &mut self.steps {
            if let Some(failure) = failure(step) {
                step.reason = format!("{}, but it failed before: {}", step.reason, failure.reason);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(name: &str, inbound: Inbound) -> SiteFacts {
        SiteFacts { name: name.to_owned(), inbound, attached: true }
    }

    /// A plan on one line: steps, then what is left out.
    fn text(plan: &Plan) -> String {
        let steps: Vec<_> = plan
            .steps
            .iter()
            .map(|step| {
                format!("{} {} {}s ({})", step.route, step.dial, step.deadline.as_secs(), step.reason)
            })
            .collect();
        let left_out: Vec<_> = plan
            .left_out
            .iter()
            .map(|left| format!("{} {} ({})", left.route, left.dial, left.reason))
            .collect();
        let encrypted = if plan.encrypted { "encrypted" } else { "raw" };
        format!("{encrypted}: {} / {}", steps.join(", "), left_out.join(", "))
    }

    #[test]
    fn plans() {
        use Inbound::{Closed, Open};
        let alpha = || site("alpha", Closed);
        let away = SiteFacts { attached: false, ..site("beta", Closed) };
        let open_away = SiteFacts { attached: false, ..site("beta", Open) };
        let pair = |trusted, relays| PairFacts { trusted, relays };
        for (name, initiator, acceptor, pair, want) in [
            (
                "within a site the pair's policy doesn't matter",
                alpha(),
                alpha(),
                pair(false, 0),
                "raw: end-to-end direct 10s (both nodes are in site alpha) / ",
            ),
            (
                "towards an open site: direct, then relay",
                alpha(),
                site("beta", Open),
                pair(false, 2),
                "encrypted: end-to-end direct 4s (site beta lets connections in), \
                 end-to-end relay 10s (both sites let connections out) / ",
            ),
            (
                "towards a closed site: relay",
                site("alpha", Open),
                site("beta", Closed),
                pair(false, 1),
                "encrypted: end-to-end relay 10s (both sites let connections out) / \
                 end-to-end direct (site beta lets nothing in)",
            ),
            (
                "a trusted pair isn't encrypted",
                alpha(),
                site("beta", Open),
                pair(true, 0),
                "raw: end-to-end direct 4s (site beta lets connections in) / \
                 end-to-end relay (no relay is attached to the broker)",
            ),
            (
                "no relay towards a closed site: no way",
                alpha(),
                site("beta", Closed),
                pair(false, 0),
                "encrypted:  / end-to-end direct (site beta lets nothing in), \
                 end-to-end relay (no relay is attached to the broker)",
            ),
            (
                "a site that is cut off can't be told to dial",
                alpha(),
                away,
                pair(false, 1),
                "encrypted:  / end-to-end direct (site beta lets nothing in), \
                 end-to-end relay (the gateway of site beta is not attached to the broker)",
            ),
            (
                "an open site that is cut off is still reached",
                alpha(),
                open_away,
                pair(false, 1),
                "encrypted: end-to-end direct 4s (site beta lets connections in) / \
                 end-to-end relay (the gateway of site beta is not attached to the broker)",
            ),
        ] {
            assert_eq!(text(&plan(&initiator, &acceptor, &pair)), want, "{name}");
        }
    }

    #[test]
    fn failed_steps_go_last() {
        let alpha = site("alpha", Inbound::Closed);
        let beta = site("beta", Inbound::Open);
        let failure =
            |dial, reason: &str| Failure { route: Route::EndToEnd, dial, reason: reason.to_owned() };
        for (name, failures, want) in [
            ("nothing failed", vec![], vec!["direct", "relay"]),
            ("direct failed", vec![failure(Dial::Direct, "no answer")], vec!["relay", "direct"]),
            ("relay failed", vec![failure(Dial::Relay, "refused")], vec!["direct", "relay"]),
            (
                "everything failed",
                vec![failure(Dial::Relay, "refused"), failure(Dial::Direct, "no answer")],
                vec!["direct", "relay"],
            ),
        ] {
            let mut plan = plan(&alpha, &beta, &PairFacts { trusted: false, relays: 1 });
            plan.demote(&failures);
            let dials: Vec<_> = plan.steps.iter().map(|step| step.dial.to_string()).collect();
            assert_eq!(dials, want, "{name}");
            let told = plan.steps.iter().filter(|step| step.reason.contains("failed before")).count();
            assert_eq!(told, failures.len(), "{name}");
        }
    }
}
