//! What earlier runs of a benchmark found, and how a run adds to it. Pure.
//!
//! A row is known by its name, unit and reference. A run goes on from a row if it measures the same
//! sources in the same slow motion. All other rows stay in the results, with the commit that they
//! were measured at, until they are measured anew. So no run takes anything from the results that
//! it doesn't replace.

use isthmus_lab::grid::Slow;

use crate::conditions::Conditions;
use crate::report::{Comparison, Pair, Report, Row};
use crate::sources::Sources;

/// The rows of earlier runs, in their order.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Known {
    rows: Vec<Row>,
    /// Whether their rounds are of the run's own sources and machine.
    adds_up: bool,
}

/// The rounds of a case that earlier runs measured.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct EarlierRounds {
    /// For each row of the case, the rounds that count. All have as many.
    pub rounds: Vec<Vec<Pair>>,
    pub void: usize,
    pub failed: usize,
    /// How long a round took, in seconds.
    pub seconds: Option<f64>,
    /// The least slow motion in which rounds weren't void again and again.
    pub least_slow: Option<Slow>,
    /// What gave isthmus's figures, for each row.
    pub how: Vec<Option<String>>,
}

impl Known {
    /// What a run of these sources on this machine knows from `earlier`.
    pub(super) fn new(earlier: Report, sources: Option<&Sources>, machine: &Conditions) -> Self {
        let same_sources =
            earlier.sources.as_ref().zip(sources).is_some_and(|(then, now)| then.are_same(now));
        let adds_up = same_sources && earlier.conditions.is_same_machine(machine);
        let commit = earlier.sources.map_or_else(|| "an unknown commit".to_owned(), |sources| sources.commit);
        let mut rows = earlier.rows;
        for row in &mut rows {
            if !adds_up || row.rounds.len() != row.runs {
                row.older.get_or_insert_with(|| commit.clone());
            }
            if row.older.is_some() {
                row.rounds.clear();
                row.least_slow = None;
            }
        }
        rows.retain(|row| row.figures.is_some() || row.older.is_none());
        Self { rows, adds_up }
    }

    /// Whether rounds of earlier runs and of this one add up.
    pub(super) fn adds_up(&self) -> bool {
        self.adds_up
    }

    /// The row of these figures. `None` if no earlier run had it.
    pub(super) fn row(&self, comparison: &Comparison) -> Option<&Row> {
        self.rows.iter().find(|row| row.comparison.is_same(comparison))
    }

    /// The rounds that a case with these rows has already, and their slow motion. It may be another
    /// than was asked for. `None` if it has neither rounds nor void ones.
    pub(super) fn earlier(&self, comparisons: &[Comparison]) -> Option<(Slow, EarlierRounds)> {
        let slow = self.row(comparisons.first()?)?.comparison.slow;
        let slowed: Vec<_> = comparisons.iter().map(|one| Comparison { slow, ..one.clone() }).collect();
        let found = self.rounds(&slowed);
        (found != EarlierRounds::default()).then_some((slow, found))
    }

    /// The rounds that a case with these rows goes on from. None if a row has none, as all rows of a
    /// case are measured together.
    pub(super) fn rounds(&self, comparisons: &[Comparison]) -> EarlierRounds {
        let rows: Option<Vec<&Row>> = comparisons
            .iter()
            .map(|comparison| {
                self.row(comparison)
                    .filter(|row| row.older.is_none() && row.comparison.slow == comparison.slow)
            })
            .collect();
        let rows = rows.unwrap_or_default();
        let fewest = rows.iter().map(|row| row.rounds.len()).min().unwrap_or(0);
        if rows.iter().any(|row| row.rounds.len() != fewest) {
            return EarlierRounds::default();
        }
        EarlierRounds {
            void: rows.first().map_or(0, |row| row.void),
            failed: rows.first().map_or(0, |row| row.failed),
            seconds: rows.first().and_then(|row| row.seconds),
            least_slow: rows.iter().filter_map(|row| row.least_slow).max(),
            how: rows.iter().map(|row| row.how.clone()).collect(),
            rounds: rows.iter().map(|row| row.rounds.clone()).collect(),
        }
    }

    /// How long a round of a case with these rows took in seconds, whatever the sources, by the slow
    /// motion that it would have now. `None` if none was timed.
    pub(super) fn seconds(&self, comparisons: &[Comparison]) -> Option<f64> {
        comparisons.iter().find_map(|one| {
            let row = self.row(one)?;
            let slower = f64::from(one.slow.factor()) / f64::from(row.comparison.slow.factor());
            Some(row.seconds? * slower)
        })
    }

    /// All rows, of which this run has these. A row that this run couldn't measure takes no figures
    /// from the results.
    pub(super) fn with(&self, measured: impl IntoIterator<Item = Row>) -> Vec<Row> {
        let mut rows = self.rows.clone();
        for new in measured {
            match rows.iter_mut().find(|row| row.comparison.is_same(&new.comparison)) {
                Some(old) if new.figures.is_none() && old.figures.is_some() => {
                    old.reason = new.reason.map(|reason| format!("not measured again: {reason}"));
                }
                Some(old) => *old = new,
                None => rows.push(new),
            }
        }
        rows
    }
}

#[cfg(test)]
#[path = "known/tests.rs"]
mod tests;
