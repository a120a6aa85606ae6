//! Rounds of a soak over three sites: what breaks, when and for how long, several things at
//! once, and which jobs begin meanwhile and just after. All follows from the seed.

#[cfg(test)]
mod tests;

use std::time::Duration;

use isthmus_e2e::Mpi;

use super::hits::{BREAKS, Break, ENDERS, Ender, Hit, LEAD, NODES, killed_agent, places, site};
use crate::soak::chance::Chance;
use crate::soak::faults::{LONG_OUTLIVE, What};
use crate::soak::running::Spec;

/// How long a job waits that meets a cut too long for it.
const SHORT_OUTLIVE: Duration = Duration::from_secs(8);
/// Shortest and longest time without faults at a round's beginning.
const QUIET_SECONDS: (f64, f64) = (0.5, 2.0);
/// Seconds within which all faults of a round begin, after its quiet beginning.
const TOGETHER_SECONDS: f64 = 5.0;
/// Most seconds from a fault's beginning or end to the beginning of a short job.
const SOON_SECONDS: f64 = 1.0;
/// Rounds after which all that users have met has happened.
pub(super) const ROUNDS: usize = 8;

/// The longest fault of a soak that lasts so long.
pub(super) fn longest(soak: Duration) -> Duration {
    (soak / 20).clamp(Duration::from_secs(25), Duration::from_secs(300))
}

/// A hit with its times, which count from the beginning of the long job.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Timed {
    pub(super) hit: Hit,
    /// Whether the hit is there before the job begins.
    pub(super) is_before: bool,
    pub(super) begins: Duration,
    pub(super) lasts: Duration,
}

/// A short job that begins while things are broken, or just after.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Start {
    pub(super) at: Duration,
    pub(super) spec: Spec,
}

/// What happens to a long job, and to short jobs beside it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Round {
    pub(super) spec: Spec,
    pub(super) hits: Vec<Timed>,
    pub(super) starts: Vec<Start>,
}

/// An act of a round, with the index of a hit or a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Begin(usize),
    End(usize),
    Start(usize),
}

impl Round {
    /// All acts after the long job has begun, in the order of their times.
    pub(super) fn acts(&self) -> Vec<(Duration, Act)> {
        let mut acts = Vec::new();
        for (at, timed) in self.hits.iter().enumerate() {
            if !timed.is_before {
                acts.push((timed.begins, Act::Begin(at)));
            }
            acts.push((timed.begins + timed.lasts, Act::End(at)));
        }
        acts.extend(self.starts.iter().enumerate().map(|(at, start)| (start.at, Act::Start(at))));
        // What ends at once was begun before.
        acts.sort_by_key(|(at, _)| *at);
        acts
    }
}

/// A deck whose last cards come next: those of the first hand in a random order, and then those of
/// the second.
fn deck<T: Copy>(hands: [&[T]; 2], chance: &mut Chance) -> Vec<T> {
    let [mut first, mut others] = hands.map(<[T]>::to_vec);
    chance.shuffle(&mut first);
    chance.shuffle(&mut others);
    [others, first].concat()
}

/// Random rounds without end.
pub(super) struct Rounds {
    chance: Chance,
    longest: Duration,
    is_first: bool,
    breaks: Vec<Break>,
    enders: Vec<Ender>,
}

impl Rounds {
    pub(super) fn new(seed: u64, longest: Duration) -> Self {
        Self { chance: Chance::new(seed), longest, is_first: true, breaks: Vec::new(), enders: Vec::new() }
    }

    /// The next round. In the first round, a way swallows large packets before any job has run.
    pub(super) fn next(&mut self) -> Round {
        let is_first = std::mem::replace(&mut self.is_first, false);
        let ender = if is_first { Ender::Nothing } else { self.ender() };
        let spec = self.spec(ender);
        let quiet = self.chance.time(QUIET_SECONDS);
        let mut hits: Vec<Timed> = Vec::new();
        if let Some((hit, lasts)) = ender.hit(&spec, &mut self.chance) {
            hits.push(Timed { hit, is_before: false, begins: self.begins(quiet), lasts });
        }
        let count = if is_first || ender.is_cut() { 1 } else { 2 + self.chance.below(2) };
        for _ in 0..count {
            let one = match () {
                () if is_first => Break::Swallows,
                // The job waits for no other fault: it would end by that one.
                () if ender.is_cut() => self.chance.one(&[Break::Relays, Break::Link]),
                () => self.next_break(),
            };
            self.add(one, is_first, quiet, &mut hits);
        }
        let starts = self.starts(&hits);
        Round { spec, hits, starts }
    }

    fn ender(&mut self) -> Ender {
        if self.enders.is_empty() {
            self.enders = deck(ENDERS, &mut self.chance);
        }
        self.enders.pop().unwrap_or(Ender::Nothing)
    }

    fn next_break(&mut self) -> Break {
        if self.breaks.is_empty() {
            self.breaks = deck(BREAKS, &mut self.chance);
        }
        self.breaks.pop().unwrap_or(Break::Cut)
    }

    fn begins(&mut self, quiet: Duration) -> Duration {
        quiet + Duration::from_secs_f64(self.chance.share() * TOGETHER_SECONDS)
    }

    /// Adds a break at a place that no other hit takes. If there is no such place, another round
    /// gets the break.
    fn add(&mut self, one: Break, is_before: bool, quiet: Duration, hits: &mut Vec<Timed>) {
        let mut taken = Vec::new();
        for timed in hits.iter() {
            let Hit::Grid(what) = &timed.hit else { continue };
            taken.extend(places(what));
            if let What::Cut(site) = what {
                taken.push((*site, "link"));
            }
        }
        let mut free = one.all();
        free.retain(|what| places(what).iter().all(|place| !taken.contains(place)));
        if free.is_empty() {
            return self.breaks.insert(0, one);
        }
        let what = free.swap_remove(self.chance.below(free.len()));
        let begins = if is_before { Duration::ZERO } else { self.begins(quiet) };
        let lasts = one.lasts(&mut self.chance, self.longest);
        hits.push(Timed { hit: Hit::Grid(what), is_before, begins, lasts });
    }

    /// A job over all sites, of which a single site takes part with two nodes.
    fn spec(&mut self, ender: Ender) -> Spec {
        let may_be = |node: &&str| ender != Ender::Lead || site(node) != site(LEAD);
        let heads: Vec<_> = NODES.into_iter().filter(may_be).collect();
        let head = self.chance.one(&heads);
        let others = ["n1.alpha", "n1.beta", "n2.beta", "n1.gamma"].into_iter();
        let others = others.filter(|node| *node != head && (site(node) != "alpha" || site(head) != "alpha"));
        let nodes: Vec<_> = std::iter::once(head).chain(others).collect();
        let outlive = if ender.is_cut() { SHORT_OUTLIVE } else { LONG_OUTLIVE };
        Spec { mpi: self.mpi(), ranks: nodes.len(), nodes, outlive }
    }

    fn mpi(&mut self) -> Mpi {
        self.chance.one(&[Mpi::OpenMpi, Mpi::OpenMpi, Mpi::OpenMpi, Mpi::Mpich])
    }

    /// Two short jobs: the first begins during a fault, the second just after a fault. If an agent
    /// is killed, the second begins after that, as the agent begins a new life.
    fn starts(&mut self, hits: &[Timed]) -> Vec<Start> {
        let of_grid: Vec<_> = hits.iter().filter(|timed| matches!(timed.hit, Hit::Grid(_))).collect();
        let (Some(first), during) = (of_grid.first(), self.chance.below(of_grid.len())) else {
            return Vec::new();
        };
        let during = of_grid.get(during).unwrap_or(first);
        let after = of_grid.iter().find(|timed| killed_agent(&timed.hit).is_some()).unwrap_or(first);
        let soon = |chance: &mut Chance| Duration::from_secs_f64(chance.share() * SOON_SECONDS);
        let at = during.begins + soon(&mut self.chance).min(during.lasts);
        let later = after.begins + after.lasts + soon(&mut self.chance);
        [at, later].map(|at| Start { at, spec: self.short() }).into()
    }

    /// A short job between two or three sites.
    fn short(&mut self) -> Spec {
        let mut nodes = NODES.to_vec();
        self.chance.shuffle(&mut nodes);
        let mut sites = Vec::new();
        nodes.retain(|node| {
            let is_new = !sites.contains(&site(node));
            sites.push(site(node));
            is_new
        });
        nodes.truncate(2 + self.chance.below(2));
        Spec { mpi: self.mpi(), ranks: nodes.len(), nodes, outlive: LONG_OUTLIVE }
    }
}
