//! Carriers beyond the first: a busy trunk wants several, on each of its rails.

use std::sync::Arc;
use std::time::Instant;

use isthmus_trunk::{Purpose, Wanted};
use tokio::task::JoinSet;

use super::backoff::Backoff;
use super::embedding::{By, Dialed, Embedding, Undialed};

/// Most dials that go on at once.
const DIALS: usize = 4;

/// How many carriers a rail has, those that are being dialed included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct There {
    bulk: usize,
    small: usize,
    /// Whether a carrier can be dialed on the rail now.
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

/// The next carrier to dial, and the rail for it, if there are fewer than are wanted.
///
/// The carrier for small frames comes first: it helps whatever else is there. Carriers for bulk are
/// spread over the rails, and a busy trunk has one on each. `rails` tells what each rail has.
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

type Done<W> = ((Purpose, usize), Result<Dialed<W>, Undialed>);

/// Dials further carriers while the trunk works.
pub(super) struct Further<E: Embedding> {
    wanted: Wanted,
    dials: JoinSet<Done<E::CarrierWay>>,
    /// The carriers that are being dialed: their purposes and rails.
    dialing: Vec<(Purpose, usize)>,
    /// The pause of each rail after failed dials.
    pauses: Vec<Backoff>,
}

impl<E: Embedding> Further<E> {
    pub(super) fn new() -> Self {
        Self { wanted: Wanted::LEAST, dials: JoinSet::new(), dialing: Vec::new(), pauses: Vec::new() }
    }

    pub(super) fn want(&mut self, wanted: Wanted) {
        self.wanted = wanted;
    }

    /// Dials what is missing beside the carriers that are there, given by their purposes and rails.
    pub(super) fn dial(
        &mut self,
        embedding: &Arc<E>,
        ways: &[By],
        carriers: impl Iterator<Item = (Purpose, usize)>,
    ) {
        self.pauses.resize(ways.len(), Backoff::default());
        let now = Instant::now();
        let empty = |pauses: &Backoff| There { bulk: 0, small: 0, usable: !pauses.lasts(now) };
        let mut there: Vec<_> = self.pauses.iter().map(empty).collect();
        for (purpose, rail) in carriers.chain(self.dialing.iter().copied()) {
            if let Some(there) = there.get_mut(rail) {
                there.add(purpose);
            }
        }
        while self.dialing.len() < DIALS
            && let Some((purpose, rail)) = missing(self.wanted, &there)
        {
            let (embedding, by) = (embedding.clone(), ways[rail]);
            self.dials.spawn(async move { ((purpose, rail), embedding.dial(by).await) });
            self.dialing.push((purpose, rail));
            there[rail].add(purpose);
        }
    }

    /// Whether a further carrier is being dialed.
    pub(super) fn is_dialing(&self) -> bool {
        !self.dialing.is_empty()
    }

    /// Forgets what has failed while the trunk was cut: it says nothing of what works now.
    pub(super) fn healed(&mut self) {
        self.pauses.fill(Backoff::default());
    }

    /// Notes that a carrier has ended. If it was `young` and hadn't worked, its rail has failed.
    pub(super) fn ended(&mut self, rail: usize, young: bool, worked: bool) {
        if young && !worked {
            self.failed(rail, "its carrier fell silent");
        } else if !young && let Some(pauses) = self.pauses.get_mut(rail) {
            *pauses = Backoff::default();
        }
    }

    /// Waits for the next carrier that is dialed; returns it with its purpose and rail. Waits for
    /// ever if none is being dialed. May be cancelled.
    pub(super) async fn dialed(&mut self) -> ((Purpose, usize), Dialed<E::CarrierWay>) {
        loop {
            let Some(done) = self.dials.join_next().await else { std::future::pending().await };
            let (at, failed) = match done {
                Ok((at, Ok(dialed))) => {
                    self.is_done(at);
                    return (at, dialed);
                }
                Ok((at, Err(Undialed::Failed(error) | Undialed::Never(error)))) => (Some(at), error),
                // Which dial it was isn't known.
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

    /// Notes that a rail has failed, which then has a pause.
    fn failed(&mut self, rail: usize, why: &str) {
        let Some(pauses) = self.pauses.get_mut(rail) else { return };
        if rail > 0 && pauses.is_new() {
            tracing::info!(rail, why, "a further rail carries nothing; it is tried again");
        }
        pauses.failed(Instant::now());
    }
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
}
