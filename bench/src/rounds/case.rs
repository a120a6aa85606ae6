//! One case of a benchmark: its rows, its rounds so far, and whether it needs more.

use std::sync::Arc;

use anyhow::ensure;
use isthmus_lab::grid::Slow;

use super::known::EarlierRounds;
use super::motion;
use crate::grid::root;
use crate::report::{Comparison, Pair, Row, kept};
use crate::verdict::{LEAST_ROUNDS, Verdict, rounds_needed};

/// How many rounds a row without a bar needs.
const ENOUGH_ROUNDS: usize = 3;
/// Most failed rounds of a case in a run, after which the run gives it up unless more rounds count.
const MOST_FAILED: usize = 3;

/// A measurement with its rows and its rounds so far.
pub(crate) struct Case<C> {
    pub(super) case: Arc<C>,
    /// Rounds that must count before the case can be decided.
    least: usize,
    /// Whether rounds go on though all rows are decided.
    insists: bool,
    /// Whether no other grid measures beside it.
    alone: bool,
    /// The least slow motion in which its rounds weren't void again and again. `None` if they never
    /// were.
    least_slow: Option<Slow>,
    /// Rounds in this run for which the machine was too busy, since the last that counts.
    pub(super) too_busy: usize,
    pub(super) rows: Vec<(Comparison, Vec<Pair>)>,
    /// The rounds of earlier runs.
    earlier: Tally,
    /// The rounds of this run.
    pub(super) tally: Tally,
    /// What gave isthmus's figures, for each row. Empty before the first round.
    how: Vec<Option<String>>,
    pub(super) reason: Option<String>,
    /// How long the last round that counts took, in seconds.
    pub(super) seconds: Option<f64>,
}

impl<C> Case<C> {
    /// A case with these rows, and no rounds so far.
    pub(crate) fn new(case: C, rows: Vec<Comparison>) -> Self {
        let judged = rows.iter().any(|row| row.bar.is_some());
        Self {
            case: Arc::new(case),
            least: if judged { LEAST_ROUNDS } else { ENOUGH_ROUNDS },
            insists: false,
            alone: false,
            least_slow: None,
            too_busy: 0,
            rows: rows.into_iter().map(|row| (row, Vec::new())).collect(),
            earlier: Tally::default(),
            tally: Tally::default(),
            how: Vec::new(),
            reason: None,
            seconds: None,
        }
    }

    /// The case, for which `rounds` rounds suffice if no row has a bar.
    pub(crate) fn enough(self, rounds: usize) -> Self {
        let judged = self.rows.iter().any(|(row, _)| row.bar.is_some());
        Self { least: if judged { self.least } else { rounds }, ..self }
    }

    /// The case, measured in slow motion.
    pub(crate) fn slowed(self, slow: Slow) -> Self {
        let rows = self.rows.into_iter().map(|(row, rounds)| (Comparison { slow, ..row }, rounds));
        Self { rows: rows.collect(), ..self }
    }

    /// The case, measured while no other grid measures: what programs use that poll and can't let
    /// others run isn't told from what works, so several grids would slow each other unseen.
    pub(crate) fn alone(self) -> Self {
        Self { alone: true, ..self }
    }

    /// Whether no other grid measures beside the case.
    pub(super) fn is_alone(&self) -> bool {
        self.alone
    }

    /// Notes that only slow motion from this on will do, as the case was void again and again in its
    /// own. Without rounds it goes on in it. With rounds it ends for this run.
    pub(super) fn slow_down(&mut self, slower: Slow) {
        self.least_slow = Some(slower);
        if self.counted() == 0 {
            self.go_on_in(slower);
        } else {
            let slow = self.slow();
            let why = format!("the machine was too busy {slow} times slower; {slower} would do");
            self.reason = Some(why);
        }
    }

    /// Goes on in this slow motion. The case has no rounds.
    pub(super) fn go_on_in(&mut self, slow: Slow) {
        self.rows.iter_mut().for_each(|(row, _)| row.slow = slow);
        self.too_busy = 0;
    }

    /// The case in the slow motion in which it is measured, given the rounds that it has already in
    /// theirs.
    pub(super) fn in_motion(self, earlier: Option<(Slow, EarlierRounds)>) -> Self {
        let least_slow = earlier.as_ref().and_then(|(_, found)| found.least_slow);
        let earlier = earlier.and_then(|(slow, found)| {
            let counted = found.rounds.first().map_or(0, Vec::len);
            (counted > 0).then_some(motion::Earlier { slow, counted })
        });
        let slow = motion::of(self.slow(), least_slow, self.least, earlier);
        Self { least_slow, ..self.slowed(slow) }
    }

    /// Takes this for the time of a round, in seconds, if none was timed.
    pub(super) fn foresee(&mut self, seconds: Option<f64>) {
        self.seconds = self.seconds.or(seconds);
    }

    /// The slow motion in which the case is measured.
    pub(super) fn slow(&self) -> Slow {
        self.rows.first().map_or(Slow::NONE, |(row, _)| row.slow)
    }

    /// What the case's rows compare.
    pub(super) fn comparisons(&self) -> Vec<Comparison> {
        self.rows.iter().map(|(comparison, _)| comparison.clone()).collect()
    }

    /// The case, which goes on from these rounds. With `insists` it does so though all rows are
    /// decided.
    pub(super) fn going_on(mut self, from: EarlierRounds, insists: bool) -> Self {
        let counted = from.rounds.first().map_or(0, Vec::len);
        self.earlier = Tally { counted, void: from.void, failed: from.failed, last_failure: None };
        self.seconds = from.seconds;
        self.least_slow = self.least_slow.max(from.least_slow);
        if counted > 0 {
            self.how = from.how;
        }
        for ((_, rounds), earlier) in self.rows.iter_mut().zip(from.rounds) {
            *rounds = earlier;
        }
        Self { insists, ..self }
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = Row> {
        self.rows.iter().enumerate().map(|(index, (comparison, rounds))| {
            let how = self.how.get(index).cloned().flatten();
            let row = Row::new(comparison.clone(), rounds);
            let undecided = matches!(row.verdict, Some(Verdict::Undecided | Verdict::NotMeasured));
            let reason = if undecided { self.reason.clone() } else { None };
            let reason = reason.or_else(|| self.tally.last_failure.clone());
            let void = self.earlier.void + self.tally.void;
            let seconds = self.seconds.map(kept);
            let failed = self.earlier.failed + self.tally.failed;
            Row { how, reason, void, failed, seconds, least_slow: self.least_slow, ..row }
        })
    }

    /// How many rounds count, those of earlier runs included.
    pub(super) fn counted(&self) -> usize {
        self.earlier.counted + self.tally.counted
    }

    /// How many rounds count, and how many this run tried in vain: so no case that is void again and
    /// again keeps others waiting.
    pub(super) fn counted_or_tried(&self) -> usize {
        self.counted() + self.tally.void + self.tally.failed
    }

    /// Rounds that the case needs until it is decided, by what they show so far. `None` if that can't
    /// be told.
    pub(super) fn rounds_left(&self) -> Option<usize> {
        let needed = self.rows.iter().map(|(row, rounds)| {
            let ratios: Vec<f64> = rounds.iter().map(|[ours, reference]| ours / reference).collect();
            row.bar.map_or(Some(0), |bar| rounds_needed(bar, &ratios))
        });
        let most = needed.collect::<Option<Vec<_>>>()?.into_iter().max().unwrap_or(0);
        Some(most.max(self.least).saturating_sub(self.counted()))
    }

    /// The number of the next round. No side goes first in every run.
    pub(super) fn next_round(&self) -> usize {
        self.counted() + self.tally.void + self.tally.failed
    }

    /// Counts a round that gave these figures, in this way.
    pub(super) fn take(&mut self, figures: Vec<Pair>, mut how: Vec<Option<String>>) -> anyhow::Result<()> {
        how.resize(self.rows.len(), None);
        ensure!(figures.len() == self.rows.len(), "{} figures for {} rows", figures.len(), self.rows.len());
        let is_same = self.counted() == 0 || self.how == how;
        ensure!(is_same, "the figures are of {how:?}, those of earlier rounds of {:?}", self.how);
        let figures: Vec<Pair> = figures.into_iter().map(|pair| pair.map(kept)).collect();
        for ([ours, reference], (row, _)) in figures.iter().zip(&self.rows) {
            ensure!((ours / reference).is_finite(), "{}: {ours} to {reference} is no ratio", row.what);
        }
        self.rows.iter_mut().zip(figures).for_each(|((_, rounds), pair)| rounds.push(pair));
        self.how = how;
        self.tally.counted += 1;
        // The machine was quiet enough after all.
        let slow = self.slow();
        self.least_slow = self.least_slow.filter(|least| *least <= slow);
        Ok(())
    }

    /// Counts a round that failed with this error.
    pub(super) fn fail(&mut self, error: &anyhow::Error) {
        self.tally.failed += 1;
        self.tally.last_failure = Some(shortened(&format!("{error:#}")));
    }

    /// Takes back the rounds of this run, which measured something else than was to be measured.
    pub(super) fn spoil(&mut self, why: &str) {
        self.rows.iter_mut().for_each(|(_, rounds)| rounds.truncate(self.earlier.counted));
        self.tally.counted = 0;
        self.reason = Some(why.to_owned());
    }

    /// Name of what the case's first row measures.
    pub(super) fn what(&self) -> &str {
        self.rows.first().map_or("", |(row, _)| row.what.as_str())
    }

    /// Whether the case needs no further round. `most` limits the rounds of this run that count.
    pub(super) fn is_done(&mut self, most: usize) -> bool {
        let undecided = || self.insists || self.rows().any(|row| row.verdict == Some(Verdict::Undecided));
        let next = self.tally.next(self.earlier.counted, self.least, most, undecided);
        if let Next::Stop(reason) = &next {
            self.reason.get_or_insert_with(|| reason.clone());
        }
        self.reason.is_some() || next == Next::Decided
    }
}

/// Counts of a case's rounds.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    pub(super) counted: usize,
    pub(super) void: usize,
    pub(super) failed: usize,
    pub(super) last_failure: Option<String>,
}

/// What becomes of a case after its rounds so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Round,
    Decided,
    Stop(String),
}

impl Tally {
    /// What follows after these rounds of a run and `earlier` rounds of earlier runs that count. The
    /// case needs `least` rounds, and this run measures `most` at most.
    pub(super) fn next(
        &self,
        earlier: usize,
        least: usize,
        most: usize,
        undecided: impl Fn() -> bool,
    ) -> Next {
        let counted = earlier + self.counted;
        if counted >= least && !undecided() {
            Next::Decided
        } else if self.counted >= most {
            Next::Stop(format!("not decided after {counted} rounds"))
        } else if self.failed >= MOST_FAILED && self.failed > self.counted {
            Next::Stop(self.last_failure.clone().unwrap_or_default())
        } else {
            Next::Round
        }
    }
}

/// The beginning of a reason, as a failed program may print a lot. Where the sources lie on this
/// machine is nobody's concern.
fn shortened(reason: &str) -> String {
    const LONGEST: usize = 600;
    let line = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = line.replace(&format!("{}/", root().display()), "");
    match line.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{} …", &line[..at]),
        None => line,
    }
}
