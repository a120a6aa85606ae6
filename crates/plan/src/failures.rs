//! What failed not long ago, so that it isn't tried first again, and when to
//! see whether it works by now. Plain data; the caller has the clock.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use crate::{Dial, Failure, Route};

/// First and longest pause until what failed is tried again in the background.
pub const RETRY: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(240));
/// How long a failure counts that nobody has met again: longer than the longest
/// pause and any step's deadline.
pub const REMEMBERED: Duration = Duration::from_secs(300);
/// How long it is tried again in the background without anybody having asked
/// for the way.
pub(crate) const WANTED: Duration = Duration::from_secs(3600);
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
pub struct Failures(HashMap<(Towards, Route, Dial), Met>);

/// A failure that was met, perhaps more than once.
#[derive(Debug)]
struct Met {
    reason: String,
    /// Towards which node, the last time.
    node: Ipv4Addr,
    last: Instant,
    /// How long after that it is to be tried again.
    pause: Duration,
    /// When somebody last asked for the way.
    wanted: Instant,
}

/// Something to be tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// The node that it failed towards.
    pub node: Ipv4Addr,
    /// Which parties dialed.
    pub route: Route,
    /// How.
    pub dial: Dial,
}

impl Failures {
    /// A step towards a node of a site failed.
    pub fn note(&mut self, (node, site): (Ipv4Addr, &str), failure: Failure, now: Instant) {
        if self.0.len() >= MAX {
            self.0.clear();
        }
        let key = (towards(node, site, failure.route, failure.dial), failure.route, failure.dial);
        let before = self.0.get(&key);
        let wanted = before.map_or(now, |met| met.wanted);
        // Connections that fail together are one failure.
        let pause = match before {
            Some(met) if now.saturating_duration_since(met.last) < met.pause => met.pause,
            Some(met) => (met.pause * 2).min(RETRY.1),
            None => RETRY.0,
        };
        self.0.insert(key, Met { reason: failure.reason, node, last: now, pause, wanted });
    }

    /// It worked.
    pub fn clear(&mut self, (node, site): (Ipv4Addr, &str), route: Route, dial: Dial) {
        self.0.remove(&(towards(node, site, route, dial), route, dial));
    }

    /// What failed towards a node, and still counts. Somebody wants to get
    /// there.
    pub fn towards(&mut self, (node, site): (Ipv4Addr, &str), now: Instant) -> Vec<Failure> {
        let found = self.0.iter_mut().filter(|((towards, ..), met)| {
            met.counts(now)
                && match towards {
                    Towards::Node(failed) => *failed == node,
                    Towards::Site(failed) => failed == site,
                }
        });
        found
            .map(|((_, route, dial), met)| {
                met.wanted = now;
                Failure { route: *route, dial: *dial, reason: met.reason.clone() }
            })
            .collect()
    }

    /// What is to be tried again by now; what nobody wants is forgotten.
    pub fn due(&mut self, now: Instant) -> Vec<Due> {
        self.0.retain(|_, met| met.counts(now) && now.saturating_duration_since(met.wanted) < WANTED);
        let due = self.0.iter().filter(|(_, met)| now.saturating_duration_since(met.last) >= met.pause);
        due.map(|((_, route, dial), met)| Due { node: met.node, route: *route, dial: *dial }).collect()
    }
}

impl Met {
    fn counts(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) < REMEMBERED
    }
}

/// What depends on a node's own address says nothing of its neighbours; what
/// depends on the two sites' NATs and firewalls does.
fn towards(node: Ipv4Addr, site: &str, route: Route, dial: Dial) -> Towards {
    // Over the acceptor's gateway the dial depends on that one, as its whole site does.
    let to_node = matches!(route, Route::EndToEnd | Route::GatewayOut);
    if to_node && dial.depends_on_acceptor() { Towards::Node(node) } else { Towards::Site(site.to_owned()) }
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

    #[test]
    fn what_fails_is_tried_again_ever_less_often_and_counts_all_the_while() {
        let mut failures = Failures::default();
        let (mut now, mut pauses) = (Instant::now(), Vec::new());
        let due = Due { node: ONE.0, route: Route::EndToEnd, dial: Dial::Punch };
        failures.note(ONE, failure(Dial::Punch), now);
        // A second connection met the same.
        failures.note(ONE, failure(Dial::Punch), now);
        for _ in 0..7 {
            let last = now;
            while failures.due(now).is_empty() {
                assert!(!failures.towards(ONE, now).is_empty(), "forgotten after {:?}", now - last);
                now += Duration::from_secs(1);
            }
            assert_eq!(failures.due(now), std::slice::from_ref(&due));
            pauses.push((now - last).as_secs());
            failures.note(ONE, failure(Dial::Punch), now);
        }
        assert_eq!(pauses, [15, 30, 60, 120, 240, 240, 240]);
    }

    #[test]
    fn what_nobody_wants_any_more_is_not_tried_for_ever() {
        let mut failures = Failures::default();
        let (start, mut retries) = (Instant::now(), 0);
        failures.note(ONE, failure(Dial::Punch), start);
        for second in 0..2 * WANTED.as_secs() {
            let now = start + Duration::from_secs(second);
            for _ in failures.due(now) {
                failures.note(ONE, failure(Dial::Punch), now);
                retries += 1;
            }
        }
        assert_eq!(retries, 18);
        assert!(failures.towards(ONE, start + 2 * WANTED).is_empty());
    }
}
