//! The tables of what was simulated.

use std::fmt::Write as _;

use super::tables::{NOTHING, heading, line};
use crate::report::{Report, figures};
use crate::simulate::{AGAINST, OPERATIONS, SIZES, Selection, farthest, platform_names, sizes, what};

/// The text of a cell without a figure.
const NONE: &str = "–";

fn size_names() -> Vec<String> {
    let name = |bytes: u64| match bytes {
        bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        bytes if bytes >= 1 << 10 => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} B"),
    };
    SIZES.map(name).to_vec()
}

fn table(first: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let names = size_names();
    let columns: Vec<&str> = first.iter().copied().chain(names.iter().map(String::as_str)).collect();
    let mut table = heading(&columns);
    rows.for_each(|cells| line(&mut table, &cells));
    table
}

/// A table of how far the simulation of the lab's sites is from the lab.
pub(super) fn checked(report: Option<&Report>) -> String {
    let Some(report) = report else { return NOTHING.to_owned() };
    let cell = |selection, operation: &'static str, bytes: u64| {
        let [library, own] = farthest(&report.rows, selection, operation, bytes)
            .map(|ratio| ratio.map_or_else(|| NONE.to_owned(), |ratio| format!("{ratio:.2}")));
        format!("{library} · {own}")
    };
    let rows = Selection::ALL.into_iter().flat_map(|selection| {
        OPERATIONS.into_iter().map(move |operation| {
            let cells = SIZES.map(|bytes| {
                let measured = sizes(operation).contains(&bytes);
                if measured { cell(selection, operation, bytes) } else { String::new() }
            });
            [selection.title().to_owned(), operation.to_owned()].into_iter().chain(cells).collect()
        })
    });
    table(&["selection", "operation"], rows)
}

/// A table of the simulated calls for each platform.
pub(super) fn platforms(report: Option<&Report>) -> String {
    let Some(report) = report else { return NOTHING.to_owned() };
    let mut text = String::new();
    for platform in platform_names() {
        let rows = OPERATIONS.iter().map(|operation| {
            let cells = SIZES.map(|bytes| cell(report, &platform, operation, bytes));
            std::iter::once((*operation).to_owned()).chain(cells).collect()
        });
        let _ = write!(text, "\n{}:\n\n{}", platform, table(&["ms"], rows));
    }
    text + "\n"
}

/// A call's cell: the times of the MPI's own and of the library on top of it. Each is the better
/// one of both selections.
fn cell(report: &Report, platform: &str, operation: &str, bytes: u64) -> String {
    if operation == "barrier" && bytes != SIZES[0] {
        return String::new();
    }
    let found: Vec<_> = Selection::ALL
        .iter()
        .filter_map(|selection| {
            let what = what(platform, *selection, operation, bytes);
            let row =
                |row: &&crate::report::Row| row.comparison.what == what && row.comparison.against == AGAINST;
            report.rows.iter().find(row)?.figures.as_ref()
        })
        .collect();
    let least = |of: fn(&crate::report::Figures) -> f64| found.iter().map(|found| of(found)).reduce(f64::min);
    match (least(|found| found.reference), least(|found| found.ours)) {
        (Some(own), Some(ours)) => format!("{} → {} ({:.2})", figures(own), figures(ours), ours / own),
        _ => NONE.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Comparison, Row};

    #[test]
    fn the_better_selection_counts() {
        let mut report: Report = super::super::results("connect").unwrap();
        let row = |selection, pair: [f64; 2]| {
            Row::new(Comparison::new(what("x", selection, "bcast", 4), "ms", AGAINST), &[pair])
        };
        report.rows = vec![row(Selection::Openmpi, [10.0, 30.0]), row(Selection::Mpich, [11.0, 20.0])];
        assert_eq!(cell(&report, "x", "bcast", 4), "20.0 → 10.0 (0.50)");
        assert_eq!(cell(&report, "x", "bcast", 1024), NONE);
        assert_eq!(cell(&report, "x", "barrier", 1024), "");
    }
}
