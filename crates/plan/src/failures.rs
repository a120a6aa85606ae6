//! What failed not long ago, so that it isn't tried first again. Plain data;
//! the caller has the clock.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use crate::{Dial, Failure, Route};

/// How long a failure counts: then what may be better is tried again.
pub const REMEMBERED: Duration = Duration::from_secs(300);
/// Failures remembered at most; beyond it all are forgotten.
const MAX: usize = 4096;

/// What something failed towards.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Towards {
    Node(Ipv4Addr),
    Site(String),
}

/// Failures as one node has met them.
#[derive(Debug, Default)]
pub struct Failures(HashMap<(Towards, Route, Dial), (String, Instant)>);

impl Failures {
    /// A step towards a node of a site failed.
    pub fn note(&mut self, (node, site): (Ipv4Addr, &str), failure: Failure, now: Instant) {
        if self.0.len() >= MAX {
            self.0.clear();
        }
        let key = (towards(node, site, failure.dial), failure.route, failure.dial);
        self.0.insert(key, (failure.reason, now));
    }

    /// It worked.
    pub fn clear(&mut self, (node, site): (Ipv4Addr, &str), route: Route, dial: Dial) {
        self.0.remove(&(towards(node, site, dial), route, dial));
    }

    /// What failed towards a node, and still counts.
    pub fn towards(&self, (node, site): (Ipv4Addr, &str), now: Instant) -> Vec<Failure> {
        let counts = |at: &Instant| now.saturating_duration_since(*at) < REMEMBERED;
        let found = self.0.iter().filter(|((towards, ..), (_, at))| {
            counts(at)
                && match towards {
                    Towards::Node(failed) => *failed == node,
                    Towards::Site(failed) => failed == site,
                }
        });
        found
            .map(|((_, route, dial), (reason, _))| Failure {
                route: *route,
                dial: *dial,
                reason: reason.clone(),
            })
            .collect()
    }
}

/// What depends on a node's own address says nothing of its neighbours; what
/// depends on the two sites' NATs and firewalls does.
fn towards(node: Ipv4Addr, site: &str, dial: Dial) -> Towards {
    match dial {
        Dial::Direct | Dial::PortRange => Towards::Node(node),
        Dial::Reverse | Dial::Punch | Dial::Relay => Towards::Site(site.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: (Ipv4Addr, &str) = (Ipv4Addr::new(240, 64, 2, 1), "beta");
    const OTHER: (Ipv4Addr, &str) = (Ipv4Addr::new(240, 64, 2, 2), "beta");
    const ELSEWHERE: (Ipv4Addr, &str) = (Ipv4Addr::new(240, 64, 3, 1), "gamma");

    fn failure(dial: Dial) -> Failure {
        Failure { route: Route::EndToEnd, dial, reason: "no answer".to_owned() }
    }

    #[test]
    fn a_failure_counts_for_whom_it_concerns_and_for_a_while() {
        let start = Instant::now();
        for (dial, same_site) in [(Dial::Direct, false), (Dial::PortRange, false), (Dial::Punch, true)] {
            let mut failures = Failures::default();
            failures.note(ONE, failure(dial), start);
            assert_eq!(failures.towards(ONE, start), [failure(dial)]);
            assert_eq!(!failures.towards(OTHER, start).is_empty(), same_site, "{dial}");
            assert!(failures.towards(ELSEWHERE, start).is_empty());
            assert!(failures.towards(ONE, start + REMEMBERED).is_empty());
            failures.clear(ONE, Route::EndToEnd, dial);
            assert!(failures.towards(ONE, start).is_empty());
        }
    }
}
