//! Recent failures of steps: they are tried last, and again in the background
//! until they work. Plain data; the caller passes the time.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use crate::{Dial, Failure, Route};

/// First and longest pause before a failed step is tried again in the background.
pub const RETRY: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(240));
/// Pause before a step is tried again whose failure may have had a cause that is over.
const SOON: Duration = Duration::from_secs(3);
/// How long a failure counts that has not occurred again: longer than the longest
/// pause plus any step's deadline.
pub const REMEMBERED: Duration = Duration::from_secs(300);
/// How long a step is tried again in the background after a connection last
/// needed it.
pub(crate) const WANTED: Duration = Duration::from_secs(3600);
/// Most failures that are kept. One failure more clears them all.
const MAX: usize = 4096;

/// The party that a failure counts for: an acceptor, or its whole site.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Towards<P> {
    Peer(P),
    Site(String),
}

/// The recent failures of one party's steps. `P` names the parties that it dials.
#[derive(Debug)]
pub struct Failures<P>(HashMap<(Towards<P>, Route, Dial), Record<P>>);

/// A failure of one step, which may have occurred several times.
#[derive(Debug)]
struct Record<P> {
    reason: String,
    /// The party of the last attempt.
    peer: P,
    last: Instant,
    /// Time from `last` to the next attempt.
    pause: Duration,
    /// When a connection last needed this step.
    wanted: Instant,
}

/// A failed step that is to be tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due<P> {
    /// The party to be reached.
    pub peer: P,
    /// Which parties are to dial.
    pub route: Route,
    /// How the connection is to be opened.
    pub dial: Dial,
}

impl<P> Default for Failures<P> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<P: Clone + Eq + Hash> Failures<P> {
    /// Records that a step towards a party of a site failed.
    pub fn note(&mut self, (peer, site): (&P, &str), failure: Failure, now: Instant) {
        if self.0.len() >= MAX {
            self.0.clear();
        }
        let key = (towards(peer, site, failure.route, failure.dial), failure.route, failure.dial);
        let before = self.0.get(&key);
        let wanted = before.map_or(now, |record| record.wanted);
        // Connections that fail together count as one failure.
        let pause = match before {
            Some(record) if now.saturating_duration_since(record.last) < record.pause => record.pause,
            Some(record) => (record.pause * 2).clamp(RETRY.0, RETRY.1),
            None => RETRY.0,
        };
        self.0.insert(key, Record { reason: failure.reason, peer: peer.clone(), last: now, pause, wanted });
    }

    /// Forgets the failure of a step, because the step has worked.
    pub fn clear(&mut self, (peer, site): (&P, &str), route: Route, dial: Dial) {
        self.0.remove(&(towards(peer, site, route, dial), route, dial));
    }

    /// Has the failed steps towards a node tried again soon. The network between was cut and works
    /// again, so former failures say nothing of what works now.
    pub fn hasten(&mut self, (peer, site): (&P, &str), now: Instant) {
        for ((towards, ..), record) in &mut self.0 {
            if towards.is((peer, site)) {
                (record.last, record.pause) = (now, SOON);
            }
        }
    }

    /// The failures that count for a connection to a node. Notes that a connection has needed their
    /// steps.
    pub fn towards(&mut self, (peer, site): (&P, &str), now: Instant) -> Vec<Failure> {
        let found = self
            .0
            .iter_mut()
            .filter(|((towards, ..), record)| record.counts(now) && towards.is((peer, site)));
        found
            .map(|((_, route, dial), record)| {
                record.wanted = now;
                Failure { route: *route, dial: *dial, reason: record.reason.clone() }
            })
            .collect()
    }

    /// The steps that are to be tried again by now. Drops failures that are too old, and those
    /// whose steps no connection has needed for long.
    pub fn due(&mut self, now: Instant) -> Vec<Due<P>> {
        let since = |then| now.saturating_duration_since(then);
        self.0.retain(|_, record| record.counts(now) && since(record.wanted) < WANTED);
        let due = self.0.iter().filter(|(_, record)| since(record.last) >= record.pause);
        due.map(|((_, route, dial), record)| Due { peer: record.peer.clone(), route: *route, dial: *dial })
            .collect()
    }
}

impl<P: Eq> Towards<P> {
    /// Whether the failure counts for this party of this site.
    fn is(&self, (peer, site): (&P, &str)) -> bool {
        match self {
            Self::Peer(failed) => failed == peer,
            Self::Site(failed) => failed == site,
        }
    }
}

impl<P> Record<P> {
    fn counts(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) < REMEMBERED
    }
}

/// A failure of a dial to a node's own address counts for that node. Other dials
/// depend on the two sites' NATs and firewalls, and their failures count for both.
fn towards<P: Clone>(peer: &P, site: &str, route: Route, dial: Dial) -> Towards<P> {
    // Over the acceptor's gateway the dial depends on the gateway, which serves
    // the whole site.
    let to_node = matches!(route, Route::EndToEnd | Route::GatewayOut);
    if to_node && dial.depends_on_acceptor() {
        Towards::Peer(peer.clone())
    } else {
        Towards::Site(site.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: (&u8, &str) = (&1, "beta");
    const OTHER: (&u8, &str) = (&2, "beta");
    const ELSEWHERE: (&u8, &str) = (&3, "gamma");

    fn failure(dial: Dial) -> Failure {
        Failure { route: Route::EndToEnd, dial, reason: "no answer".to_owned() }
    }

    #[test]
    fn a_failure_counts_for_its_node_or_its_site_until_it_expires() {
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
    fn pauses_between_retries_grow_and_the_failure_counts_meanwhile() {
        let mut failures = Failures::default();
        let (mut now, mut pauses) = (Instant::now(), Vec::new());
        let due = Due { peer: *ONE.0, route: Route::EndToEnd, dial: Dial::Punch };
        failures.note(ONE, failure(Dial::Punch), now);
        // A second connection fails at the same time.
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
    fn after_a_cut_all_is_tried_again_soon_and_then_as_before() {
        let mut failures = Failures::default();
        let (mut now, mut pauses) = (Instant::now(), Vec::new());
        for _ in 0..4 {
            failures.note(ONE, failure(Dial::Punch), now);
            failures.note(ELSEWHERE, failure(Dial::Punch), now);
            now += RETRY.1;
        }
        failures.note(ONE, failure(Dial::Punch), now);
        failures.hasten(OTHER, now);
        for _ in 0..4 {
            let last = now;
            let is_due = |due: &Due<u8>| due.peer == *ONE.0;
            while !failures.due(now).iter().any(is_due) {
                assert!(!failures.towards(ONE, now).is_empty(), "it counts meanwhile");
                now += Duration::from_secs(1);
            }
            pauses.push((now - last).as_secs());
            failures.note(ONE, failure(Dial::Punch), now);
        }
        assert_eq!(pauses, [3, 15, 30, 60]);
    }

    #[test]
    fn retries_end_when_no_connection_needs_the_step() {
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
