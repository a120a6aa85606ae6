//! One case of a benchmark: its rows, its rounds so far, and whether it needs more.

use anyhow::ensure;

use crate::report::{Comparison, Row};
use crate::verdict::{LEAST_ROUNDS, Verdict};

/// How many rounds a row without a bar needs.
const ENOUGH_ROUNDS: usize = 3;
/// Most void rounds of a case, after which it is given up.
pub(super) const MOST_VOID: usize = 10;
/// Most failed rounds of a case, after which it is given up unless more rounds count.
const MOST_FAILED: usize = 3;

/// A measurement with its rows and its rounds so far.
pub(crate) struct Case<C> {
    pub(super) case: C,
    /// Rounds that must count before the case can be decided.
    least: usize,
    pub(super) rows: Vec<(Comparison, Vec<[f64; 2]>)>,
    pub(super) tally: Tally,
    pub(super) reason: Option<String>,
}

impl<C> Case<C> {
    /// A case with these rows, and no rounds so far.
    pub(crate) fn new(case: C, rows: Vec<Comparison>) -> Self {
        let judged = rows.iter().any(|row| row.bar.is_some());
        Self {
            case,
            least: if judged { LEAST_ROUNDS } else { ENOUGH_ROUNDS },
            rows: rows.into_iter().map(|row| (row, Vec::new())).collect(),
            tally: Tally::default(),
            reason: None,
        }
    }

    /// The case, for which `rounds` rounds suffice if no row has a bar.
    pub(crate) fn enough(self, rounds: usize) -> Self {
        let judged = self.rows.iter().any(|(row, _)| row.bar.is_some());
        Self { least: if judged { self.least } else { rounds }, ..self }
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = Row> {
        self.rows.iter().map(|(comparison, rounds)| {
            let row = Row::new(comparison.clone(), rounds);
            let undecided = matches!(row.verdict, Some(Verdict::Undecided | Verdict::NotMeasured));
            let reason = if undecided { self.reason.clone() } else { None };
            let reason = reason.or_else(|| self.tally.last_failure.clone());
            Row { reason, void: self.tally.void, failed: self.tally.failed, ..row }
        })
    }

    /// Counts a round that gave these figures.
    pub(super) fn take(&mut self, figures: Vec<[f64; 2]>) -> anyhow::Result<()> {
        ensure!(figures.len() == self.rows.len(), "{} figures for {} rows", figures.len(), self.rows.len());
        for ([ours, reference], (row, _)) in figures.iter().zip(&self.rows) {
            ensure!((ours / reference).is_finite(), "{}: {ours} to {reference} is no ratio", row.what);
        }
        self.rows.iter_mut().zip(figures).for_each(|((_, rounds), pair)| rounds.push(pair));
        self.tally.counted += 1;
        Ok(())
    }

    /// Counts a round that failed with this error.
    pub(super) fn fail(&mut self, error: &anyhow::Error) {
        self.tally.failed += 1;
        self.tally.last_failure = Some(shortened(&format!("{error:#}")));
    }

    /// Name of what the case's first row measures.
    pub(super) fn what(&self) -> &str {
        self.rows.first().map_or("", |(row, _)| row.what.as_str())
    }

    /// Whether the case needs no further round. `most` limits the rounds that count.
    pub(super) fn is_done(&mut self, most: usize) -> bool {
        let undecided = || self.rows().any(|row| row.verdict == Some(Verdict::Undecided));
        let next = self.tally.next(self.least, most, undecided);
        if let Next::Stop(reason) = &next {
            self.reason.get_or_insert_with(|| reason.clone());
        }
        self.reason.is_some() || next == Next::Decided
    }
}

/// Counts of a case's rounds so far.
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
    pub(super) fn next(&self, least: usize, most: usize, undecided: impl Fn() -> bool) -> Next {
        if self.counted >= least && !undecided() {
            Next::Decided
        } else if self.counted >= most {
            Next::Stop(format!("not decided after {} rounds", self.counted))
        } else if self.void >= MOST_VOID && self.void > self.counted {
            Next::Stop(format!(
                "{} rounds were void: others used the machine, or the emulated link was late",
                self.void
            ))
        } else if self.failed >= MOST_FAILED && self.failed > self.counted {
            Next::Stop(self.last_failure.clone().unwrap_or_default())
        } else {
            Next::Round
        }
    }
}

/// The beginning of a reason, as a failed program may print a lot.
fn shortened(reason: &str) -> String {
    const LONGEST: usize = 600;
    let line = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{} …", &line[..at]),
        None => line,
    }
}
