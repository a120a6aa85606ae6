//! Results: rows against their bars, the conditions, as JSON and as a table.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use comfy_table::{Cell, CellAlignment, Table, presets};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::conditions::Conditions;
use crate::sources::Sources;
use crate::verdict::{Bar, Verdict, interval, judge, median};

/// Version of the results' format. Results of earlier versions have neither intervals nor verdicts.
pub(crate) const SCHEMA: u32 = 2;

/// What a row compares.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Comparison {
    /// Name of what was measured.
    pub what: String,
    /// Unit of the figures `ours` and `reference`.
    pub unit: String,
    /// Name of the reference.
    pub against: String,
    /// Limit of the ratio. `None` in a row that only informs.
    pub bar: Option<Bar>,
}

impl Comparison {
    /// A comparison without a bar.
    pub(crate) fn new(what: impl Into<String>, unit: &str, against: &str) -> Self {
        Self { what: what.into(), unit: unit.to_owned(), against: against.to_owned(), bar: None }
    }

    /// The comparison with this bar.
    pub(crate) fn bar(self, bar: impl Into<Option<Bar>>) -> Self {
        Self { bar: bar.into(), ..self }
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
    /// The 95 % interval of `ratio`. `None` in results of schema 1.
    pub interval: Option<(f64, f64)>,
    /// Lowest and highest ratio of all rounds.
    pub spread: (f64, f64),
}

/// A comparison with the result of its rounds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Row {
    /// What the row compares.
    #[serde(flatten)]
    pub comparison: Comparison,
    /// The row's figures. `None` if no round gave any.
    #[serde(flatten)]
    pub figures: Option<Figures>,
    /// Whether the row's bar holds. `None` in a row without a bar that was measured.
    #[serde(default)]
    pub verdict: Option<Verdict>,
    /// Why there is no decision, or why rounds failed. `None` if there is nothing to explain.
    #[serde(default)]
    pub reason: Option<String>,
    /// How many rounds count.
    pub runs: usize,
    /// How many rounds were void because other processes used the machine.
    #[serde(default)]
    pub void: usize,
    /// How many rounds could not be measured.
    #[serde(default)]
    pub failed: usize,
}

impl Row {
    /// Judges the rounds of a comparison. Each is `[ours, reference]`, measured closely after each
    /// other.
    pub(crate) fn new(comparison: Comparison, rounds: &[[f64; 2]]) -> Self {
        let ratios: Vec<f64> = rounds.iter().map(|[ours, reference]| ours / reference).collect();
        let of = |side: usize| median(&rounds.iter().map(|round| round[side]).collect::<Vec<_>>());
        let figures = (!rounds.is_empty()).then(|| Figures {
            ours: of(0),
            reference: of(1),
            ratio: median(&ratios),
            interval: Some(interval(&ratios)),
            spread: (
                ratios.iter().copied().fold(f64::INFINITY, f64::min),
                ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            ),
        });
        let verdict = judge(comparison.bar, &ratios);
        Self { comparison, figures, verdict, reason: None, runs: rounds.len(), void: 0, failed: 0 }
    }

    /// Whether the row was measured, and its bar holds if it has one.
    pub(crate) fn holds(&self) -> bool {
        self.verdict.is_none_or(|verdict| verdict == Verdict::Yes)
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
        text
    }
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
        table.set_header(["what", "unit", "ours", "reference", "against", "ratio", "rounds", "bar", "holds"]);
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

/// Writes a result as a whole. A reader sees the old result or the new one.
///
/// # Errors
/// The file can't be written.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> anyhow::Result<()> {
    let unfinished = path.with_extension("json.new");
    let write = || -> anyhow::Result<()> {
        fs::create_dir_all(path.parent().unwrap_or(path))?;
        fs::write(&unfinished, serde_json::to_string_pretty(value)? + "\n")?;
        Ok(fs::rename(&unfinished, path)?)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// Reads a result from a file.
///
/// # Errors
/// The file isn't there or has another format.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("cannot read {}", path.display()))
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
        assert_eq!((found.ratio, found.spread, row.runs), (1.0, (0.5, 2.0), 3));
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
    fn rows_of_schema_1_are_read() {
        let text = r#"{"what": "x", "unit": "s", "ours": 1.0, "reference": 2.0, "against": "r", "ratio": 0.5,
            "bar": {"at_most": 1.2}, "holds": true, "runs": 3, "spread": [0.4, 0.6]}"#;
        let row: Row = serde_json::from_str(text).unwrap();
        assert_eq!((row.ratio().as_str(), row.verdict, row.rounds().as_str()), ("0.50", None, "3"));
        let both = Row { void: 2, failed: 1, ..row };
        assert_eq!(both.rounds(), "3, 2 void, 1 failed");
    }
}
