//! Carriers beyond the first: a busy trunk wants several, on each of its rails.

use std::sync::Arc;
use std::time::{Duration, Instant};

use isthmus_net::rails::RailWay;
use isthmus_net::secured::Secured;
use isthmus_trunk::{Purpose, Wanted};
use tokio::task::JoinSet;

use super::keep::{Embedding, Undialed};

/// Dials at once.
const DIALS: usize = 4;
/// The first pause after a dial that failed; it doubles with each further one,
const PAUSE: Duration = Duration::from_secs(10);
/// up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(320);

/// The carriers of a rail, those that are being dialed included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct There {
    bulk: usize,
    small: usize,
    /// Whether one can be dialed on it now.
    usable: bool,
}

impl There {
    fn add(&mut self, purpose: Purpose) {
        match purpose {
            Purpose::Bulk => self.bulk += 1,
            Purpose::Small => self.small += 1,
        }
    }
}

/// The next carrier to dial, and the rail for it, if there are fewer than are wanted. The one
/// for small frames comes first: it helps whatever else is there. Those for bulk are spread
/// over the rails, and a busy trunk has one on each.
///
/// `rails`: what each has.
fn missing(wanted: Wanted, rails: &[There]) -> Option<(Purpose, usize)> {
    let usable = || rails.iter().enumerate().filter(|(_, there)| there.usable);
    if wanted.small && rails.iter().all(|there| there.small == 0) {
        return usable().next().map(|(rail, _)| (Purpose::Small, rail));
    }
    let (rail, fewest) = usable().min_by_key(|(_, there)| there.bulk)?;
    let bulk: usize = rails.iter().map(|there| there.bulk).sum();
    let lacks = bulk < wanted.bulk || (wanted.small && fewest.bulk == 0);
    lacks.then_some((Purpose::Bulk, rail))
}

type Dialed<W> = ((Purpose, usize), Result<(Secured, W), Undialed>);

/// Dials carriers while the trunk works.
pub(super) struct Further<E: Embedding> {
    wanted: Wanted,
    dials: JoinSet<Dialed<E::Way>>,
    /// Purposes and rails.
    dialing: Vec<(Purpose, usize)>,
    /// Of each rail.
    pauses: Vec<Pauses>,
}

/// Pauses after dials that failed.
#[derive(Debug, Clone, Default)]
struct Pauses {
    failures: u32,
    /// No dial before this.
    until: Option<Instant>,
}

impl Pauses {
    fn lasts(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// A dial has failed. Several at once fail for one cause: they make one pause.
    fn failed(&mut self, now: Instant) {
        if !self.lasts(now) {
            self.until = Some(now + pause(self.failures));
            self.failures = self.failures.saturating_add(1);
        }
    }
}

impl<E: Embedding> Further<E> {
    pub(super) fn new() -> Self {
        Self { wanted: Wanted::LEAST, dials: JoinSet::new(), dialing: Vec::new(), pauses: Vec::new() }
    }

    pub(super) fn want(&mut self, wanted: Wanted) {
        self.wanted = wanted;
    }

    /// Dials what is missing beside the carriers, with their purposes and rails, that are
    /// there.
    pub(super) fn dial(
        &mut self,
        embedding: &Arc<E>,
        ways: &[RailWay],
        carriers: impl Iterator<Item = (Purpose, usize)>,
    ) {
        self.pauses.resize(ways.len(), Pauses::default());
        let now = Instant::now();
        let empty = |pauses: &Pauses| There { bulk: 0, small: 0, usable: !pauses.lasts(now) };
        let mut there: Vec<_> = self.pauses.iter().map(empty).collect();
        for (purpose, rail) in carriers.chain(self.dialing.iter().copied()) {
            if let Some(there) = there.get_mut(rail) {
                there.add(purpose);
            }
        }
        while self.dialing.len() < DIALS
            && let Some((purpose, rail)) = missing(self.wanted, &there)
        {
            let (embedding, way) = (embedding.clone(), ways[rail]);
            self.dials.spawn(async move { ((purpose, rail), embedding.dial(way).await) });
            self.dialing.push((purpose, rail));
            there[rail].add(purpose);
        }
    }

    /// What has failed while the trunk was cut says nothing of what works now.
    pub(super) fn healed(&mut self) {
        self.pauses.fill(Pauses::default());
    }

    /// A carrier has ended. If it fell silent while it was `young`, its rail has failed.
    pub(super) fn ended(&mut self, rail: usize, young: bool, worked: bool) {
        if young && !worked {
            self.failed(rail, "its carrier fell silent");
        } else if !young && let Some(pauses) = self.pauses.get_mut(rail) {
            *pauses = Pauses::default();
        }
    }

    /// The next that is dialed, with its purpose and rail; waits for ever if none is being dialed.
    /// May be cancelled.
    pub(super) async fn dialed(&mut self) -> ((Purpose, usize), Secured, E::Way) {
        loop {
            let Some(done) = self.dials.join_next().await else { std::future::pending().await };
            let (at, failed) = match done {
                Ok((at, Ok((tls, way)))) => {
                    self.is_done(at);
                    return (at, tls, way);
                }
                Ok((at, Err(Undialed::Failed(error) | Undialed::Never(error)))) => (Some(at), error),
                // Which one it was isn't known.
                Err(error) => (self.dialing.last().copied(), error.to_string()),
            };
            tracing::debug!(error = failed, carrier = ?at, "a further carrier was not dialed");
            if let Some(at) = at {
                self.is_done(at);
                self.failed(at.1, &failed);
            }
        }
    }
}

impl<E: Embedding> Further<E> {
    fn is_done(&mut self, at: (Purpose, usize)) {
        if let Some(place) = self.dialing.iter().position(|one| *one == at) {
            self.dialing.swap_remove(place);
        }
    }

    /// A rail has failed.
    fn failed(&mut self, rail: usize, why: &str) {
        let Some(pauses) = self.pauses.get_mut(rail) else { return };
        if rail > 0 && pauses.failures == 0 {
            tracing::info!(rail, why, "a further rail carries nothing; it is tried again");
        }
        pauses.failed(Instant::now());
    }
}

fn pause(failures: u32) -> Duration {
    PAUSE.saturating_mul(1 << failures.min(5)).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing() {
        let small = |rail| Some((Purpose::Small, rail));
        let bulk = |rail| Some((Purpose::Bulk, rail));
        // Carriers wanted for bulk, whether one is for small frames; what each rail has, for
        // bulk and for small frames, and whether it can be dialed.
        for (wanted, rails, want) in [
            ((1, false), vec![(1, 0, true)], None),
            ((1, true), vec![(1, 0, true)], small(0)),
            ((4, true), vec![(1, 0, true)], small(0)),
            ((4, true), vec![(1, 1, true)], bulk(0)),
            ((4, true), vec![(4, 1, true)], None),
            ((4, false), vec![(3, 0, true)], bulk(0)),
            ((1, false), vec![(4, 1, true)], None),
            ((4, true), vec![(1, 0, false)], None),
            // Two rails.
            ((4, true), vec![(1, 0, true), (0, 0, true)], small(0)),
            ((4, true), vec![(1, 0, false), (0, 0, true)], small(1)),
            ((4, true), vec![(1, 1, true), (0, 0, true)], bulk(1)),
            ((4, true), vec![(1, 1, true), (1, 0, true)], bulk(0)),
            ((4, true), vec![(2, 1, true), (1, 0, true)], bulk(1)),
            ((4, true), vec![(2, 1, true), (2, 0, true)], None),
            ((4, true), vec![(2, 1, true), (0, 0, false)], bulk(0)),
            ((4, true), vec![(2, 1, true), (2, 0, false)], None),
            ((4, true), vec![(4, 1, true), (0, 0, true)], bulk(1)),
            ((1, true), vec![(1, 1, true), (0, 0, true)], bulk(1)),
            ((1, false), vec![(1, 0, true), (0, 0, true)], None),
        ] {
            let wanted = Wanted { bulk: wanted.0, small: wanted.1 };
            let there = |(bulk, small, usable)| There { bulk, small, usable };
            let rails: Vec<_> = rails.into_iter().map(there).collect();
            assert_eq!(missing(wanted, &rails), want, "{wanted:?} {rails:?}");
        }
    }

    #[test]
    fn pauses_double_up_to_a_bound() {
        let pauses = [0, 1, 4, 5, 6, u32::MAX].map(|failures| pause(failures).as_secs());
        assert_eq!(pauses, [10, 20, 160, 320, 320, 320]);
    }

    #[test]
    fn dials_that_fail_at_once_make_one_pause() {
        let (begun, mut pauses) = (Instant::now(), Pauses::default());
        // Seconds at which a dial fails; when the pause ends.
        for (second, until) in [(0, 10), (0, 10), (9, 10), (10, 30), (12, 30), (31, 71)] {
            pauses.failed(begun + Duration::from_secs(second));
            assert_eq!(pauses.until, Some(begun + Duration::from_secs(until)), "at {second} s");
        }
        assert!(pauses.lasts(begun + Duration::from_secs(70)) && !Pauses::default().lasts(begun));
    }
}
