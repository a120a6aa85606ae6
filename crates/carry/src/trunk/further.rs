//! Carriers beyond the first: a busy trunk wants several.

use std::sync::Arc;
use std::time::{Duration, Instant};

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

/// How many carriers there are, or are being dialed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Count {
    pub(super) bulk: usize,
    pub(super) small: usize,
}

impl Count {
    pub(super) fn add(&mut self, purpose: Purpose) {
        match purpose {
            Purpose::Bulk => self.bulk += 1,
            Purpose::Small => self.small += 1,
        }
    }
}

/// The purpose of the next carrier to dial, if there are fewer than are wanted. The one
/// for small frames comes first: it helps whatever else is there.
fn missing(wanted: Wanted, there: Count) -> Option<Purpose> {
    if wanted.small && there.small == 0 {
        Some(Purpose::Small)
    } else if there.bulk < wanted.bulk {
        Some(Purpose::Bulk)
    } else {
        None
    }
}

type Dialed<W> = (Purpose, Result<(Secured, W), Undialed>);

/// Dials carriers while the trunk works.
pub(super) struct Further<E: Embedding> {
    wanted: Wanted,
    dials: JoinSet<Dialed<E::Way>>,
    dialing: Vec<Purpose>,
    pauses: Pauses,
}

/// Pauses after dials that failed.
#[derive(Debug, Default)]
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
        Self { wanted: Wanted::LEAST, dials: JoinSet::new(), dialing: Vec::new(), pauses: Pauses::default() }
    }

    pub(super) fn want(&mut self, wanted: Wanted) {
        self.wanted = wanted;
    }

    /// Dials what is missing beside the carriers that are there.
    pub(super) fn dial(&mut self, embedding: &Arc<E>, mut there: Count) {
        if self.pauses.lasts(Instant::now()) {
            return;
        }
        self.dialing.iter().for_each(|purpose| there.add(*purpose));
        while self.dialing.len() < DIALS
            && let Some(purpose) = missing(self.wanted, there)
        {
            let embedding = embedding.clone();
            self.dials.spawn(async move { (purpose, embedding.dial().await) });
            self.dialing.push(purpose);
            there.add(purpose);
        }
    }

    /// What has failed while the trunk was cut says nothing of what works now.
    pub(super) fn healed(&mut self) {
        self.pauses = Pauses::default();
    }

    /// The next that is dialed, with its purpose; waits for ever if none is being dialed.
    /// May be cancelled.
    pub(super) async fn dialed(&mut self) -> (Purpose, Secured, E::Way) {
        loop {
            let Some(done) = self.dials.join_next().await else { std::future::pending().await };
            let failed = match done {
                Ok((purpose, result)) => {
                    if let Some(place) = self.dialing.iter().position(|one| *one == purpose) {
                        self.dialing.swap_remove(place);
                    }
                    match result {
                        Ok((tls, way)) => {
                            self.healed();
                            return (purpose, tls, way);
                        }
                        Err(Undialed::Failed(error) | Undialed::Never(error)) => error,
                    }
                }
                Err(error) => {
                    self.dialing.pop();
                    error.to_string()
                }
            };
            tracing::debug!(error = failed, "a further carrier was not dialed");
            self.pauses.failed(Instant::now());
        }
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
        let small = Some(Purpose::Small);
        let bulk = Some(Purpose::Bulk);
        for (wanted, there, want) in [
            ((1, false), (1, 0), None),
            ((1, true), (1, 0), small),
            ((4, true), (1, 0), small),
            ((4, true), (1, 1), bulk),
            ((4, true), (4, 1), None),
            ((4, false), (3, 0), bulk),
            ((1, false), (4, 1), None),
        ] {
            let wanted = Wanted { bulk: wanted.0, small: wanted.1 };
            let there = Count { bulk: there.0, small: there.1 };
            assert_eq!(missing(wanted, there), want, "{wanted:?} {there:?}");
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
