//! Where the time of our starts goes, as `isthmus run --timing` has it.

use std::path::{Path, PathBuf};

use comfy_table::{Cell, CellAlignment, Table, presets};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::files::{read_json, write_json};
use crate::report::figures;
use crate::verdict::median;

/// Names of the phases in a job's report that belong to its start. Those of the program and of the
/// end don't.
const PHASES: [&str; 5] = ["look", "nodes", "launcher", "commands", "connections"];

/// What was seen of an MPI with a number of ranks.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Case {
    what: String,
    /// Seconds to the last return from `MPI_Init`, with isthmus and over ssh.
    pub seconds: [Vec<f64>; 2],
    /// How many runs didn't end by themselves, with isthmus and over ssh.
    pub hung: [usize; 2],
    /// Seconds of each of [`PHASES`], for each run.
    phases: [Vec<f64>; PHASES.len()],
}

impl Case {
    fn new(what: &str) -> Self {
        Self { what: what.to_owned(), seconds: Default::default(), hung: [0; 2], phases: Default::default() }
    }

    /// Adds the phases of a job's report to the case.
    pub(super) fn add_phases(&mut self, phases: &Value) {
        for (name, values) in PHASES.iter().zip(&mut self.phases) {
            let phase = phases.as_array().and_then(|all| all.iter().find(|phase| phase["name"] == *name));
            let time = |which: &str| phase.and_then(|phase| phase[which].as_f64());
            if let (Some(from), Some(to)) = (time("from_seconds"), time("to_seconds")) {
                values.push(to - from);
            }
        }
    }
}

/// What was seen of all cases.
pub(super) struct Phases {
    path: PathBuf,
    cases: Vec<Case>,
}

impl Phases {
    /// The record in `start-phases.json` of the directory. With `goes_on` it begins with what earlier
    /// runs saw.
    pub(super) fn new(directory: &Path, goes_on: bool) -> Self {
        let path = directory.join("start-phases.json");
        let cases = if goes_on { read_json(&path).ok() } else { None };
        Self { path, cases: cases.unwrap_or_default() }
    }

    /// The case of this name, which is added if it is missing.
    pub(super) fn of(&mut self, what: &str) -> &mut Case {
        let at = self.cases.iter().position(|case| case.what == what).unwrap_or_else(|| {
            self.cases.push(Case::new(what));
            self.cases.len() - 1
        });
        &mut self.cases[at]
    }

    /// Writes all cases to the file.
    pub(super) fn write(&self) -> anyhow::Result<()> {
        write_json(&self.path, 1, &self.cases)
    }

    /// Prints the medians of all cases as a table.
    pub(super) fn print(&self) {
        let mut table = Table::new();
        table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
        let mut header = vec!["our phases, s"];
        header.extend(PHASES);
        header.extend(["hung", "hung over ssh"]);
        table.set_header(header);
        for case in &self.cases {
            let number = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
            let mut row = vec![Cell::new(&case.what)];
            row.extend(case.phases.iter().map(|values| match values.as_slice() {
                [] => Cell::new(""),
                values => number(figures(median(values))),
            }));
            row.extend(case.hung.map(|count| number(count.to_string())));
            table.add_row(row);
        }
        println!("{table}");
    }
}
