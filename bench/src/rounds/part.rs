//! A part of a run: its cases are measured in one grid, or in several side by side.
//!
//! Each grid has a worker, which takes the case with the fewest rounds that no other measures. A
//! case that fails, or that was measured while the machine was busy, does not end the part. If the
//! machine is too busy for slow motion again and again, cases without rounds go on in slower
//! motion. Those with rounds wait for a quieter moment, until they were void again and again
//! themselves. Rounds of different factors never come together in a row.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use isthmus_lab::grid::Slow;

use super::{Case, Experiment, Run, Void};
use crate::load::Watch;
use crate::report::Pair;

/// After so many void rounds in a row, one in each grid at least, cases without rounds go on in slower
/// motion. After so many of one case in a row, no run begins it in this motion any more.
const TOO_BUSY: usize = 3;

impl Run {
    /// Measures a part of the benchmark in one grid. `parts_left` counts this part as well, which
    /// gets its share of the budget that is left. `make` brings up what measures.
    ///
    /// # Errors
    /// The results can't be written.
    pub(crate) fn part<E: Experiment>(
        &mut self,
        parts_left: u32,
        cases: Vec<Case<E::Case>>,
        make: impl FnMut() -> anyhow::Result<E>,
    ) -> anyhow::Result<()> {
        self.planned.extend(cases.iter().flat_map(Case::comparisons));
        let mut cases = self.wanted(cases);
        if !self.plans(&mut cases) {
            let deadline = self.deadline(parts_left);
            let part = Mutex::new(Part::new(self, cases, deadline, None));
            let standing = work(&part, None, make);
            cases = owned(part).end([standing])?.cases;
        }
        self.measured.extend(cases.iter().flat_map(Case::rows));
        Ok(())
    }

    /// Measures a part whose links are emulated, in as many grids side by side as the options say.
    /// `make` brings one up in slow motion, which may become slower.
    ///
    /// # Errors
    /// The results can't be written.
    pub(crate) fn part_in_slow_motion<E>(
        &mut self,
        parts_left: u32,
        cases: Vec<Case<E::Case>>,
        make: impl Fn(Slow) -> anyhow::Result<E> + Sync,
    ) -> anyhow::Result<()>
    where
        E: Experiment + Send,
        E::Case: Send + Sync,
    {
        self.planned.extend(cases.iter().flat_map(Case::comparisons));
        let cases = cases.into_iter().map(|case| {
            let earlier = self.known.earlier(&case.comparisons());
            case.in_motion(earlier)
        });
        let mut cases = self.wanted(cases.collect());
        if !self.plans(&mut cases) {
            let (end, most) = (self.deadline(parts_left), self.options.rounds);
            loop {
                let open: Vec<Way> = cases.iter_mut().filter_map(|case| open_at(case, most)).collect();
                let Some((way, count)) = most_frequent(&open) else { break };
                // Each case gets its share of the time that is left.
                let left = end.saturating_duration_since(Instant::now());
                let deadline = Instant::now() + left.mul_f64(count as f64 / open.len() as f64);
                cases = self.at(way, cases, deadline, &make)?;
            }
            // Also where nothing was open, or nothing could be brought up.
            self.write(&cases)?;
        }
        self.measured.extend(cases.iter().flat_map(Case::rows));
        Ok(())
    }

    fn deadline(&self, parts_left: u32) -> Instant {
        let left = self.time.saturating_sub(self.started.elapsed());
        Instant::now() + left / parts_left
    }

    /// Measures the cases that are measured in this way, until all are done or some go on slower.
    fn at<E>(
        &mut self,
        way: Way,
        mut cases: Vec<Case<E::Case>>,
        deadline: Instant,
        make: &(impl Fn(Slow) -> anyhow::Result<E> + Sync),
    ) -> anyhow::Result<Vec<Case<E::Case>>>
    where
        E: Experiment + Send,
        E::Case: Send + Sync,
    {
        let most = self.options.rounds;
        let Way { slow, alone } = way;
        let open = cases.iter_mut().filter_map(|case| open_at(case, most)).filter(|one| *one == way).count();
        // Where no link is slow, processors decide, and grids side by side would share them.
        let labs = if alone || slow.is_none() { 1 } else { self.options.labs };
        let mut standing = Vec::new();
        for _ in 0..labs.min(open) {
            let started = Instant::now();
            match make(slow) {
                Ok(made) => standing.push(made),
                Err(error) if standing.is_empty() => {
                    let reason = format!("cannot bring it up: {error:#}");
                    for case in &mut cases {
                        if open_at(case, most) == Some(way) {
                            case.reason = Some(reason.clone());
                        }
                    }
                    return Ok(cases);
                }
                Err(error) => eprintln!("  not in one more grid: {error:#}"),
            }
            eprintln!("  brought up in {:.1} s, slow motion {slow}", started.elapsed().as_secs_f64());
        }
        let part = Mutex::new(Part::new(self, cases, deadline, Some(way)));
        let standing: Vec<Option<E>> = thread::scope(|scope| {
            let working: Vec<_> = standing
                .into_iter()
                .map(|made| scope.spawn(|| work(&part, Some(made), || make(slow))))
                .collect();
            working.into_iter().map(|one| one.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
        });
        let Part { cases, slower, .. } = owned(part).end(standing)?;
        if let Some(slower) = slower {
            eprintln!("  cases without rounds go on {slower} times slower");
        }
        Ok(cases)
    }
}

/// How a case is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Way {
    /// Slow motion.
    pub slow: Slow,
    /// Whether no other grid measures beside it.
    pub alone: bool,
}

impl Way {
    fn of<C>(case: &Case<C>) -> Self {
        Self { slow: case.slow(), alone: case.is_alone() }
    }
}

/// How a case is measured that isn't done.
fn open_at<C>(case: &mut Case<C>, most: usize) -> Option<Way> {
    (!case.is_done(most)).then(|| Way::of(case))
}

/// The way that is there most often, and how often; of several the fastest.
fn most_frequent(ways: &[Way]) -> Option<(Way, usize)> {
    let mut counts = BTreeMap::new();
    ways.iter().for_each(|way| *counts.entry(*way).or_insert(0) += 1);
    counts.into_iter().rev().max_by_key(|(_, count)| *count)
}

fn owned<T>(shared: Mutex<T>) -> T {
    shared.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// The cases of a part, as they are measured.
pub(super) struct Part<'a, C> {
    run: &'a mut Run,
    cases: Vec<Case<C>>,
    deadline: Instant,
    /// Which cases are measured, by how they are. `None`: all are.
    way: Option<Way>,
    /// Indices of the cases that are being measured.
    under_way: BTreeSet<usize>,
    /// Void rounds since the last that counted.
    too_busy: usize,
    /// The slow motion in which cases without rounds go on. Then this part ends.
    slower: Option<Slow>,
    /// The least number of rounds that was told.
    told: Option<usize>,
    /// Why the results can't be written.
    error: Option<anyhow::Error>,
}

/// What a worker measures next.
pub(super) struct Next<C> {
    pub index: usize,
    case: Arc<C>,
    what: String,
    round: usize,
    slow: Slow,
}

/// What became of a measurement.
pub(super) enum Outcome {
    Figures {
        figures: Vec<Pair>,
        how: Vec<Option<String>>,
        took: Duration,
    },
    /// It doesn't count. The number is the factor at which the machine wouldn't be too busy.
    Void(String, Option<u32>),
    Failed(anyhow::Error),
    NotUp(anyhow::Error),
}

impl<'a, C> Part<'a, C> {
    pub(super) fn new(run: &'a mut Run, cases: Vec<Case<C>>, deadline: Instant, way: Option<Way>) -> Self {
        let under_way = BTreeSet::new();
        let (too_busy, slower, told, error) = (0, None, None, None);
        Self { run, cases, deadline, way, under_way, too_busy, slower, told, error }
    }

    /// The case with the fewest rounds. `None` if there is nothing to measure any more.
    pub(super) fn next(&mut self) -> Option<Next<C>> {
        if self.slower.is_some() || self.error.is_some() {
            return None;
        }
        let (most, way) = (self.run.options.rounds, self.way);
        let mut open = Vec::new();
        for (index, case) in self.cases.iter_mut().enumerate() {
            let is_meant = way.is_none_or(|way| Way::of(case) == way);
            if is_meant && !self.under_way.contains(&index) && !case.is_done(most) {
                open.push(index);
            }
        }
        if Instant::now() > self.deadline {
            for index in open {
                let case = &mut self.cases[index];
                case.reason = Some(format!("the budget ended after {} rounds", case.counted()));
            }
            return None;
        }
        // Where the budget ended last time, some cases have fewer rounds than others.
        open.sort_by_key(|index| self.cases[*index].counted_or_tried());
        let index = *open.first()?;
        let case = &self.cases[index];
        let fewest = case.counted_or_tried();
        if self.told.is_none_or(|told| told < fewest) {
            self.told = Some(fewest);
            eprintln!("round {}: {} of {} measurements go on", fewest + 1, open.len(), self.cases.len());
        }
        self.under_way.insert(index);
        let (what, round) = (case.what().to_owned(), case.next_round());
        Some(Next { index, case: Arc::clone(&case.case), what, round, slow: case.slow() })
    }

    pub(super) fn took(&mut self, index: usize, outcome: Outcome) {
        self.under_way.remove(&index);
        let case = &mut self.cases[index];
        match outcome {
            Outcome::Figures { figures, how, took } => {
                self.too_busy = 0;
                case.too_busy = 0;
                match case.take(figures, how) {
                    Ok(()) => case.seconds = Some(took.as_secs_f64()),
                    Err(error) => case.fail(&error),
                }
            }
            Outcome::Void(_, enough) => {
                case.tally.void += 1;
                if let Some(enough) = enough {
                    case.too_busy += 1;
                    self.too_busy += 1;
                    self.slow_down(index, enough);
                }
            }
            Outcome::Failed(error) => case.fail(&error),
            Outcome::NotUp(error) => case.reason = Some(format!("cannot bring it up: {error:#}")),
        }
        let written = self.run.write(&self.cases);
        self.error = self.error.take().or(written.err());
    }

    /// The slow motion in which cases without rounds go on.
    #[cfg(test)]
    pub(super) fn slower(&self) -> Option<Slow> {
        self.slower
    }

    /// The cases, as they stand.
    #[cfg(test)]
    pub(super) fn cases(&self) -> &[Case<C>] {
        &self.cases
    }

    /// Looks whether a void round of the case `index`, for which the factor `enough` would do, makes
    /// slow motion slower. A busy minute is void for all cases that come up in it. So it takes no
    /// rounds from any, and what it shows of the others is for this run only.
    fn slow_down(&mut self, index: usize, enough: u32) {
        let Some(way) = self.way.filter(|way| !way.slow.is_none()) else { return };
        // Cases that were still being measured follow the others, so that they go on side by side.
        let Some(slower) = self.slower.or_else(|| slower(way.slow, enough, self.run.options.slowest()))
        else {
            return;
        };
        let case = &mut self.cases[index];
        if case.too_busy >= TOO_BUSY {
            case.slow_down(slower);
        }
        let grids = if way.alone { 1 } else { self.run.options.labs };
        if self.slower.is_none() && self.too_busy < TOO_BUSY.max(grids) {
            return;
        }
        let most = self.run.options.rounds;
        for (index, case) in self.cases.iter_mut().enumerate() {
            // What is being measured is so in this motion.
            let is_free = !self.under_way.contains(&index) && case.counted() == 0;
            if is_free && open_at(case, most) == Some(way) {
                case.go_on_in(slower);
                self.slower = Some(slower);
            }
        }
    }

    /// Ends what measured, and writes the results.
    fn end<E: Experiment>(mut self, standing: impl IntoIterator<Item = Option<E>>) -> anyhow::Result<Self> {
        for error in standing.into_iter().flatten().filter_map(|one| one.finish().err()) {
            let way = self.way;
            let measured = self.cases.iter_mut().filter(|case| way.is_none_or(|way| Way::of(case) == way));
            measured.for_each(|case| case.spoil(&format!("{error:#}")));
        }
        self.run.write(&self.cases)?;
        self.error.take().map_or(Ok(self), Err)
    }
}

/// The slow motion that comes after `slow`, where `enough` would do. `None` if it is the slowest.
fn slower(slow: Slow, enough: u32, slowest: Slow) -> Option<Slow> {
    let next = enough.max(slow.factor() + slow.factor().div_ceil(4)).min(slowest.factor());
    Slow::try_from(next).ok().filter(|next| *next > slow)
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Measures cases as long as there are any. Returns what measures, as it stands.
fn work<E: Experiment>(
    part: &Mutex<Part<'_, E::Case>>,
    mut standing: Option<E>,
    mut make: impl FnMut() -> anyhow::Result<E>,
) -> Option<E> {
    let watch = lock(part).run.watch.clone();
    loop {
        let Some(next) = lock(part).next() else { return standing };
        let outcome = attempt(&watch, &mut standing, &mut make, &next).unwrap_or_else(Outcome::Failed);
        match &outcome {
            Outcome::Figures { .. } | Outcome::NotUp(_) => {}
            Outcome::Void(why, _) => eprintln!("  void: {why}: {}", next.what),
            Outcome::Failed(error) => eprintln!("  failed: {}: {error:#}", next.what),
        }
        lock(part).took(next.index, outcome);
    }
}

/// Measures a case once.
fn attempt<E: Experiment>(
    watch: &Watch,
    standing: &mut Option<E>,
    make: &mut impl FnMut() -> anyhow::Result<E>,
    next: &Next<E::Case>,
) -> anyhow::Result<Outcome> {
    if standing.is_none() {
        match make() {
            Ok(made) => *standing = Some(made),
            Err(error) => return Ok(Outcome::NotUp(error)),
        }
    }
    let experiment = standing.as_mut().context("nothing to measure with")?;
    let (needs_quiet, polling) = (experiment.needs_quiet(), experiment.polling());
    if let Some(objection) = if needs_quiet { watch.quiet(next.slow, polling)? } else { None } {
        return Ok(Outcome::Void(objection.why, None));
    }
    let started = Instant::now();
    let (found, objection) =
        watch.during(next.slow, polling, || experiment.measure(&next.case, next.round))?;
    let took = started.elapsed();
    match (found, objection.filter(|_| needs_quiet)) {
        (Ok(_), Some(objection)) => Ok(Outcome::Void(objection.why, objection.enough)),
        (Ok(figures), None) => Ok(Outcome::Figures { figures, how: experiment.how(), took }),
        (Err(error), _) => match error.downcast_ref::<Void>() {
            Some(Void(why)) => Ok(Outcome::Void(why.clone(), None)),
            None => {
                if !experiment.survives_failure() {
                    *standing = None;
                }
                Ok(Outcome::Failed(error))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_cases_come_first() {
        let way = |factor, alone| Way { slow: Slow::try_from(factor).unwrap(), alone };
        let (fast, slow, polling) = (way(7, false), way(16, false), way(7, true));
        for (ways, want) in [
            (vec![], None),
            (vec![fast, slow, slow], Some((slow, 2))),
            (vec![slow, polling, fast], Some((fast, 1))),
        ] {
            assert_eq!(most_frequent(&ways), want);
        }
    }

    #[test]
    fn what_is_slower() {
        let factor = |factor| Slow::try_from(factor).unwrap();
        for (slow, enough, slowest, want) in [
            (10, 16, 40, Some(16)),
            // A step that is worth it.
            (10, 11, 40, Some(13)),
            (10, 90, 40, Some(40)),
            (40, 90, 40, None),
            (2, 1, 6, Some(3)),
        ] {
            let found = slower(factor(slow), enough, factor(slowest));
            assert_eq!(found.map(Slow::factor), want, "{slow} {enough} {slowest}");
        }
    }
}
