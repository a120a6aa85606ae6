//! Results: rows against their bars, the conditions, as JSON and as a table.

use std::collections::BTreeMap;
use std::fmt;

use comfy_table::{Cell, CellAlignment, Table, presets};
use isthmus_lab::grid::Slow;
use serde::{Deserialize, Serialize};

use crate::conditions::Conditions;
use crate::sources::Sources;
use crate::verdict::{Bar, Verdict, interval, judge, median};

/// Version of the results' format. Results of version 2 lack the rounds, so a run can't go on from
/// them. Results of version 1 also lack intervals and verdicts.
pub(crate) const SCHEMA: u32 = 3;

/// Figures of a round, isthmus's and the reference's, measured closely after each other.
pub(crate) type Pair = [f64; 2];

/// What a row compares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Comparison {
    /// Name of what was measured.
    pub what: String,
    /// Unit of the figures `ours` and `reference`.
    pub unit: String,
    /// Name of the reference.
    pub against: String,
    /// Limit of the ratio. `None` in a row that only informs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bar: Option<Bar>,
    /// How many times slower than described the network was. The figures are those of the network
    /// as described.
    #[serde(default, skip_serializing_if = "Slow::is_none")]
    pub slow: Slow,
}

impl Comparison {
    /// A comparison without a bar.
    pub(crate) fn new(what: impl Into<String>, unit: &str, against: &str) -> Self {
        let (what, unit, against) = (what.into(), unit.to_owned(), against.to_owned());
        Self { what, unit, against, bar: None, slow: Slow::NONE }
    }

    /// The comparison with this bar.
    pub(crate) fn bar(self, bar: impl Into<Option<Bar>>) -> Self {
        Self { bar: bar.into(), ..self }
    }

    /// Whether two comparisons are of the same figures, whatever the bar and the slow motion.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let key = |one: &Self| (one.what.clone(), one.unit.clone(), one.against.clone());
        key(self) == key(other)
    }
}

/// The figures of a row that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// Median of isthmus's figures.
    pub ours: f64,
    /// Median of the reference's figures.
    pub reference: f64,
    /// Median of the rounds' ratios, ours to reference. A slow phase of the machine slows both
    /// figures of a round.
    pub ratio: f64,
    /// The interval of `ratio`: each end is right with a probability of 95 %, however often one
    /// looks. `None` if there are too few rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<(f64, f64)>,
}

/// A comparison with the result of its rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// What the row compares.
    #[serde(flatten)]
    pub comparison: Comparison,
    /// The row's figures. `None` if no round gave any.
    #[serde(flatten)]
    pub figures: Option<Figures>,
    /// Whether the row's bar holds. `None` in a row without a bar that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// What gave isthmus's figures, such as the algorithm of a collective. It is the same in all rounds.
    /// `None` where nothing chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub how: Option<String>,
    /// Why there is no decision, or why rounds failed. `None` if there is nothing to explain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How many rounds count.
    pub runs: usize,
    /// How many rounds were void because the machine was busy.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub void: usize,
    /// How many rounds could not be measured.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed: usize,
    /// How long the last round of the row's case took, in seconds. All rows of a case share it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// The least slow motion in which the machine isn't too busy for the row. `None` if it never was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_slow: Option<Slow>,
    /// The commit that the row was measured at, if other sources were measured then than the
    /// report's. No run goes on from such a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older: Option<String>,
    /// The rounds that count, with five significant digits: with them a later run goes on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rounds: Vec<Pair>,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl Row {
    /// Judges the rounds of a comparison.
    pub(crate) fn new(comparison: Comparison, rounds: &[Pair]) -> Self {
        let ratios: Vec<f64> = rounds.iter().map(|[ours, reference]| ours / reference).collect();
        let of = |side: usize| median(&rounds.iter().map(|round| round[side]).collect::<Vec<_>>());
        let figures = (!rounds.is_empty()).then(|| Figures {
            ours: kept(of(0)),
            reference: kept(of(1)),
            ratio: kept(median(&ratios)),
            interval: interval(&ratios).map(|(low, high)| (kept(low), kept(high))),
        });
        let verdict = judge(comparison.bar, &ratios);
        let (runs, rounds) = (rounds.len(), rounds.to_vec());
        let (how, reason, void, failed, seconds, least_slow, older) = (None, None, 0, 0, None, None, None);
        Self {
            comparison,
            figures,
            verdict,
            how,
            reason,
            runs,
            void,
            failed,
            seconds,
            least_slow,
            older,
            rounds,
        }
    }

    /// Whether the row was measured, and its bar holds if it has one.
    pub(crate) fn holds(&self) -> bool {
        self.verdict.is_none_or(|verdict| verdict == Verdict::Yes)
    }

    /// Whether the row's bar is known to hold, or not to.
    pub(crate) fn is_decided(&self) -> bool {
        matches!(self.verdict, Some(Verdict::Yes | Verdict::No))
    }

    /// The ratio and its interval as text.
    pub(crate) fn ratio(&self) -> String {
        match &self.figures {
            None => Verdict::NotMeasured.to_string(),
            Some(Figures { ratio, interval: None, .. }) => format!("{ratio:.2}"),
            Some(Figures { ratio, interval: Some((low, high)), .. }) => {
                format!("{ratio:.2} ({low:.2}–{high:.2})")
            }
        }
    }

    /// The number of rounds as text, with those that don't count.
    fn rounds(&self) -> String {
        let mut text = self.runs.to_string();
        for (count, why) in [(self.void, "void"), (self.failed, "failed")] {
            if count > 0 {
                text += &format!(", {count} {why}");
            }
        }
        if let Some(commit) = &self.older {
            text += &format!(", at {commit}");
        }
        text
    }
}

/// A figure with five significant digits, as results keep it.
pub(crate) fn kept(figure: f64) -> f64 {
    format!("{figure:.4e}").parse().unwrap_or(figure)
}

/// The results of a benchmark.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Version of the results' format.
    #[serde(default)]
    pub schema: u32,
    /// Name of the benchmark.
    pub name: String,
    /// Whether the run came to its end, and measured all rows.
    #[serde(default)]
    pub complete: bool,
    /// The sources that were measured. `None` outside of a git repository.
    pub sources: Option<Sources>,
    /// All rows of the results.
    pub rows: Vec<Row>,
    /// The machine and the time of the measurement.
    pub conditions: Conditions,
}

impl Report {
    /// Whether every row was measured and every bar holds.
    pub(crate) fn holds(&self) -> bool {
        self.rows.iter().all(Row::holds)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Conditions { cores, cpu, kernel, date, .. } = &self.conditions;
        writeln!(f, "{}: {cores} cores, {cpu}, Linux {kernel}, {date}", self.name)?;
        let mut table = Table::new();
        table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
        table.set_header([
            "what",
            "unit",
            "ours",
            "reference",
            "against",
            "ratio",
            "slow",
            "rounds",
            "bar",
            "holds",
        ]);
        for row in &self.rows {
            let number = |value: Option<f64>| {
                Cell::new(value.map_or_else(String::new, figures)).set_alignment(CellAlignment::Right)
            };
            table.add_row([
                Cell::new(&row.comparison.what),
                Cell::new(&row.comparison.unit),
                number(row.figures.as_ref().map(|found| found.ours)),
                number(row.figures.as_ref().map(|found| found.reference)),
                Cell::new(&row.comparison.against),
                Cell::new(row.ratio()),
                Cell::new(row.comparison.slow),
                Cell::new(row.rounds()),
                Cell::new(row.comparison.bar.map_or_else(String::new, |bar| bar.to_string())),
                Cell::new(row.verdict.map_or_else(String::new, |verdict| verdict.to_string())),
            ]);
        }
        write!(f, "{table}")?;
        let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for row in &self.rows {
            let rows = row.reason.as_deref().map(|reason| reasons.entry(reason).or_default());
            rows.into_iter().for_each(|rows| rows.push(&row.comparison.what));
        }
        for (reason, rows) in reasons {
            let first = rows.first().copied().unwrap_or_default();
            match rows.len() {
                1 => write!(f, "\n{first}: {reason}")?,
                count => write!(f, "\n{first} and {} more: {reason}", count - 1)?,
            }
        }
        Ok(())
    }
}

/// A value as text with three significant figures.
pub(crate) fn figures(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_round_by_round() {
        let row = Row::new(Comparison::new("x", "s", "r"), &[[1.0, 2.0], [20.0, 10.0], [3.0, 3.0]]);
        let found = row.figures.clone().unwrap();
        assert_eq!((found.ratio, found.interval, row.runs), (1.0, None, 3));
        assert!(row.holds());
    }

    #[test]
    fn a_row_that_was_not_measured_does_not_hold() {
        for bar in [None, Some(Bar::AtMost(1.0))] {
            let row = Row::new(Comparison::new("x", "s", "r").bar(bar), &[]);
            assert_eq!((row.verdict, row.holds()), (Some(Verdict::NotMeasured), false));
            let text = serde_json::to_string(&row).unwrap();
            let again: Row = serde_json::from_str(&text).unwrap();
            assert_eq!((again.figures, again.verdict), (None, row.verdict), "{text}");
        }
    }

    #[test]
    fn figures_are_kept_with_five_digits() {
        for (figure, want) in
            [(0.123_456_7, 0.12346), (1234.567, 1234.6), (0.0, 0.0), (98.765_432e9, 98.765e9), (-2.0, -2.0)]
        {
            assert!((kept(figure) - want).abs() <= want.abs() * 1e-12, "{figure}: {}", kept(figure));
            assert_eq!(kept(kept(figure)), kept(figure), "{figure}");
        }
    }

    #[test]
    fn rows_of_schema_1_are_read() {
        let text = r#"{"what": "x", "unit": "s", "ours": 1.0, "reference": 2.0, "against": "r", "ratio": 0.5,
            "bar": {"at_most": 1.2}, "holds": true, "runs": 3, "spread": [0.4, 0.6]}"#;
        let row: Row = serde_json::from_str(text).unwrap();
        assert_eq!((row.ratio().as_str(), row.verdict, row.rounds().as_str()), ("0.50", None, "3"));
        let both = Row { void: 2, failed: 1, ..row };
        assert_eq!(both.rounds(), "3, 2 void, 1 failed");
    }
}
