//! One figure: what was asked, what was reached, and what is allowed.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use comfy_table::{Cell, CellAlignment, Table, presets};
use serde::Serialize;

use super::Outcome;
use super::drawing;
use crate::report::{Conditions, figures};

/// One line of the results.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    /// What was measured.
    pub what: String,
    /// Unit of all values.
    pub unit: String,
    /// What the link was asked for; none in a line that only informs.
    pub asked: Option<f64>,
    /// What programs at its ends saw.
    pub reached: f64,
    /// Lowest and highest value allowed.
    pub allowed: Option<(f64, f64)>,
    /// Whether it is, and the emulator was faithful.
    pub holds: Option<bool>,
    /// What chance alone makes it differ by, once in three measurements.
    pub standard_error: Option<f64>,
    /// Whether the emulator was faithful meanwhile.
    pub faithful: bool,
    /// Measurements before this one that were void, because it wasn't.
    pub void: usize,
    /// What else there is to say.
    pub note: String,
}

impl Figure {
    /// A figure with what is allowed.
    pub fn bar(
        what: impl Into<String>,
        unit: &str,
        asked: f64,
        allowed: (f64, f64),
        reached: &Outcome<f64>,
    ) -> Self {
        let value = reached.value;
        let within = value >= allowed.0 && value <= allowed.1;
        Self {
            asked: Some(asked),
            allowed: Some(allowed),
            holds: Some(within && reached.faithful),
            ..Self::fact(what, unit, reached)
        }
    }

    /// A figure that only informs.
    pub fn fact(what: impl Into<String>, unit: &str, reached: &Outcome<f64>) -> Self {
        Self {
            what: what.into(),
            unit: unit.to_owned(),
            asked: None,
            reached: reached.value,
            allowed: None,
            holds: None,
            standard_error: None,
            faithful: reached.faithful,
            void: reached.void,
            note: String::new(),
        }
    }

    /// With the standard error.
    pub fn error(mut self, standard_error: f64) -> Self {
        self.standard_error = Some(standard_error);
        self
    }

    /// With a remark.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }
}

/// All of them.
#[derive(Debug)]
pub struct Results {
    rows: Vec<Figure>,
}

/// What `lab.json` has.
#[derive(Serialize)]
struct File<'a> {
    name: &'a str,
    rows: &'a [Figure],
    conditions: &'a Conditions,
}

impl Results {
    /// None yet.
    pub fn new() -> Self {
        Self { rows: Vec::new() }
    }

    /// One more.
    pub fn add(&mut self, figure: Figure) {
        let Figure { what, unit, reached, holds, .. } = &figure;
        let verdict = match holds {
            Some(true) => "held",
            Some(false) => "MISSED",
            None => "",
        };
        eprintln!("  {what}: {} {unit} {verdict}", figures(*reached));
        self.rows.push(figure);
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Whether no bar is missed.
    pub fn hold(&self) -> bool {
        self.rows.iter().all(|row| row.holds != Some(false))
    }

    /// Writes `lab.json` and `lab.svg`, and prints the table.
    pub fn publish(&self, directory: &Path) -> anyhow::Result<()> {
        let conditions = Conditions::here(&[]);
        fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        let json =
            serde_json::to_string_pretty(&File { name: "lab", rows: &self.rows, conditions: &conditions })?
                + "\n";
        for (name, text) in [("lab.json", json), ("lab.svg", drawing::draw(&self.rows)?)] {
            let path = directory.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        let Conditions { cores, cpu, kernel, date, load_average, .. } = conditions;
        println!("lab: {cores} cores, {cpu}, Linux {kernel}, load {load_average}, {date}\n{}", self.table());
        Ok(())
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
        table.set_header(["what", "unit", "asked", "reached", "± chance", "allowed", "bar", "void", "note"]);
        for row in &self.rows {
            let number = |value: Option<f64>| {
                Cell::new(value.map_or_else(String::new, figures)).set_alignment(CellAlignment::Right)
            };
            let allowed = row
                .allowed
                .map_or_else(String::new, |(low, high)| format!("{}–{}", figures(low), figures(high)));
            let verdict = match (row.holds, row.faithful) {
                (Some(true), _) => "held",
                (Some(false), true) => "MISSED",
                (Some(false), false) => "VOID",
                (None, true) => "",
                (None, false) => "not faithful",
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
