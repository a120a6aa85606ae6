//! One figure: what was asked, what was reached, and what is allowed.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use comfy_table::{Cell, CellAlignment, Table, presets};
use serde::Serialize;

use super::Outcome;
use super::drawing;
use crate::conditions::Conditions;
use crate::files::write_json;
use crate::report::{SCHEMA, figures};
use crate::sources::Sources;
use crate::verdict::Verdict;

/// A line of the results.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Figure {
    /// Name of what was measured.
    pub what: String,
    /// Unit of all values of the figure.
    pub unit: String,
    /// The value that the link was asked for. `None` in a line that only informs.
    pub asked: Option<f64>,
    /// The value that programs at the link's ends saw. Not a number if it wasn't measured.
    pub reached: f64,
    /// Lowest and highest value that is allowed. `None` in a line that only informs.
    pub allowed: Option<(f64, f64)>,
    /// Whether the value is in the allowed range. Undecided if the emulator wasn't faithful. `None`
    /// in a line that only informs.
    pub verdict: Option<Verdict>,
    /// Standard error of the value: by how much chance alone makes it differ, once in three
    /// measurements.
    pub standard_error: Option<f64>,
    /// Whether the emulator was faithful during the measurement.
    pub faithful: bool,
    /// How many earlier measurements were void because the emulator wasn't faithful.
    pub void: usize,
    /// A remark about the measurement, which may be empty.
    pub note: String,
}

impl Figure {
    /// A figure with the range that its value must be in.
    pub(super) fn bar(
        what: impl Into<String>,
        unit: &str,
        asked: f64,
        allowed: (f64, f64),
        reached: &Outcome<f64>,
    ) -> Self {
        let value = reached.value;
        let verdict = match value >= allowed.0 && value <= allowed.1 {
            _ if !reached.faithful => Verdict::Undecided,
            true => Verdict::Yes,
            false => Verdict::No,
        };
        Self {
            asked: Some(asked),
            allowed: Some(allowed),
            verdict: Some(verdict),
            ..Self::fact(what, unit, reached)
        }
    }

    /// A figure without a range, which only informs.
    pub(super) fn fact(what: impl Into<String>, unit: &str, reached: &Outcome<f64>) -> Self {
        Self {
            what: what.into(),
            unit: unit.to_owned(),
            asked: None,
            reached: reached.value,
            allowed: None,
            verdict: None,
            standard_error: None,
            faithful: reached.faithful,
            void: reached.void,
            note: String::new(),
        }
    }

    /// A figure that could not be measured, with the reason.
    pub(super) fn missing(what: &str, reason: String) -> Self {
        Self {
            what: what.to_owned(),
            unit: String::new(),
            asked: None,
            reached: f64::NAN,
            allowed: None,
            verdict: Some(Verdict::NotMeasured),
            standard_error: None,
            faithful: false,
            void: 0,
            note: reason,
        }
    }

    /// Adds the standard error to the figure.
    pub(super) fn error(mut self, standard_error: f64) -> Self {
        self.standard_error = Some(standard_error);
        self
    }

    /// Adds a remark to the figure.
    pub(super) fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }
}

/// All figures of a run, as `lab.json` has them.
#[derive(Debug, Serialize)]
pub(super) struct Results {
    schema: u32,
    name: &'static str,
    /// Whether the run came to its end with everything measured.
    pub complete: bool,
    sources: Option<Sources>,
    rows: Vec<Figure>,
    conditions: Conditions,
}

impl Results {
    /// Results that have no figures so far.
    pub(super) fn new() -> Self {
        Self {
            schema: SCHEMA,
            name: "lab",
            complete: false,
            sources: Sources::here("lab").ok(),
            rows: Vec::new(),
            conditions: Conditions::here(&[]),
        }
    }

    /// Prints a figure and adds it to the results.
    pub(super) fn add(&mut self, figure: Figure) {
        let Figure { what, unit, reached, verdict, note, .. } = &figure;
        match verdict {
            Some(Verdict::NotMeasured) => eprintln!("  {what}: not measured: {note}"),
            Some(verdict) => eprintln!("  {what}: {} {unit}, holds: {verdict}", figures(*reached)),
            None => eprintln!("  {what}: {} {unit}", figures(*reached)),
        }
        self.rows.push(figure);
    }

    /// Whether the results have no figure.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Whether everything was measured and every value is in its range.
    pub(super) fn hold(&self) -> bool {
        self.rows.iter().all(|row| row.verdict.is_none_or(|verdict| verdict == Verdict::Yes))
    }

    /// Writes `lab.json` and `lab.svg` into a directory.
    pub(super) fn write(&mut self, directory: &Path) -> anyhow::Result<()> {
        self.conditions.stamp();
        write_json(&directory.join("lab.json"), 2, self)?;
        let path = directory.join("lab.svg");
        fs::write(&path, drawing::draw(&self.rows)?)
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Prints the conditions and the table of all figures.
    pub(super) fn print(&self) {
        let Conditions { cores, cpu, kernel, date, load_average, .. } = &self.conditions;
        println!("lab: {cores} cores, {cpu}, Linux {kernel}, load {load_average}, {date}\n{}", self.table());
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
        table.set_header([
            "what",
            "unit",
            "asked",
            "reached",
            "± chance",
            "allowed",
            "holds",
            "void",
            "note",
        ]);
        for row in &self.rows {
            let number = |value: Option<f64>| {
                Cell::new(value.map_or_else(String::new, figures)).set_alignment(CellAlignment::Right)
            };
            let allowed = row
                .allowed
                .map_or_else(String::new, |(low, high)| format!("{}–{}", figures(low), figures(high)));
            let verdict = match (row.verdict, row.faithful) {
                (Some(verdict), _) => verdict.to_string(),
                (None, true) => String::new(),
                (None, false) => "not faithful".to_owned(),
            };
            table.add_row([
                Cell::new(&row.what),
                Cell::new(&row.unit),
                number(row.asked),
                number(Some(row.reached)),
                number(row.standard_error),
                Cell::new(allowed),
                Cell::new(verdict),
                Cell::new(if row.void == 0 { String::new() } else { row.void.to_string() }),
                Cell::new(&row.note),
            ]);
        }
        table
    }
}
