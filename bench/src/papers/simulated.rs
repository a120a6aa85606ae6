//! The tables of what was simulated.

use super::curves::{Chart, Curve};
use super::tables::{NOTHING, heading, line};
use crate::report::{Report, Row, figures};
use crate::simulate::{AGAINST, OPERATIONS, SIZES, Selection, farthest, platform_names, sizes, what};

/// The text of a cell without a figure.
const NONE: &str = "–";
/// A ratio above this is slower. Simulated times are printed with a resolution of 0.1 µs.
const SLOWER: f64 = 1.005;

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

/// The rows of the latest sources. What was simulated with older ones was published by an older check.
fn latest(report: &Report) -> impl Iterator<Item = &Row> {
    report.rows.iter().filter(|row| row.older.is_none())
}

/// A table of how far the simulation of the lab's sites is from the lab.
pub(super) fn checked(report: Option<&Report>) -> String {
    let Some(report) = report else { return NOTHING.to_owned() };
    let latest: Vec<Row> = latest(report).cloned().collect();
    let cell = |selection, operation: &'static str, bytes: u64| {
        let [library, own] = farthest(&latest, selection, operation, bytes)
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

/// A selection's time by the MPI's own and by the library, in milliseconds. `None` if the call wasn't
/// simulated or isn't published.
fn times(
    report: &Report,
    platform: &str,
    selection: Selection,
    operation: &str,
    bytes: u64,
) -> Option<[f64; 2]> {
    let what = what(platform, selection, operation, bytes);
    let is_meant = |row: &&Row| row.comparison.what == what && row.comparison.against == AGAINST;
    let found = latest(report).find(is_meant)?.figures.as_ref()?;
    Some([found.reference, found.ours])
}

/// The ratio of the library's time to that of the MPI's own as text, bold where the library is slower.
fn ratio([own, ours]: [f64; 2]) -> String {
    let ratio = ours / own;
    if ratio > SLOWER { format!("**{ratio:.2}**") } else { format!("{ratio:.2}") }
}

/// A map of all platforms: for each call the library's time by that of each MPI's own.
pub(super) fn map(report: Option<&Report>) -> String {
    let Some(report) = report else { return NOTHING.to_owned() };
    let cell = |platform: &str, operation: &str, bytes: u64| {
        if operation == "barrier" && bytes != SIZES[0] {
            return String::new();
        }
        let ratio = |selection| times(report, platform, selection, operation, bytes).map(ratio);
        let [openmpi, mpich] =
            Selection::ALL.map(|selection| ratio(selection).unwrap_or_else(|| NONE.into()));
        format!("{openmpi} · {mpich}")
    };
    let names = platform_names();
    let rows = names.iter().flat_map(|platform| {
        OPERATIONS.into_iter().map(move |operation| {
            let cells = SIZES.map(|bytes| cell(platform, operation, bytes));
            [platform.clone(), operation.to_owned()].into_iter().chain(cells).collect()
        })
    });
    table(&["platform", "operation"], rows)
}

/// How many of the published calls are slower by the library, as a sentence.
pub(super) fn slower(report: Option<&Report>) -> String {
    let all = report.into_iter().flat_map(latest);
    let ratios: Vec<f64> = all
        .filter(|row| row.comparison.against == AGAINST)
        .filter_map(|row| row.figures.as_ref())
        .map(|found| found.ours / found.reference)
        .collect();
    let (count, slower) = (ratios.len(), ratios.iter().filter(|ratio| **ratio > SLOWER).count());
    match ratios.iter().copied().reduce(f64::max) {
        None => NOTHING.to_owned(),
        Some(_) if slower == 0 => format!("Of {count} published calls none is slower than the MPI's own.\n"),
        Some(most) => format!(
            "Of {count} published calls {slower} are slower than the MPI's own (**bold**), by a factor of {most:.2} at most.\n"
        ),
    }
}

/// The paper's figures: what is drawn, on which platform.
const FIGURES: [(&str, &str, &str); 4] = [
    ("2(a)", "bcast", "32 ranks on 2 sites"),
    ("2(b)", "reduce", "32 ranks on 2 sites"),
    ("2(c)", "reduce", "4 nodes of 8 ranks"),
    ("2(d)", "gather", "4 nodes of 8 ranks"),
];

/// The paper's figures 2(a) to (d) as tables of times: the MPI's own, the library, and the ratio.
pub(super) fn figures_2(report: Option<&Report>) -> String {
    let Some(report) = report else { return NOTHING.to_owned() };
    let rows = FIGURES.iter().flat_map(|(name, operation, platform)| {
        Selection::ALL.into_iter().map(move |selection| {
            let cells = SIZES.map(|bytes| {
                times(report, platform, selection, operation, bytes).map_or_else(
                    || NONE.to_owned(),
                    |[own, ours]| format!("{} → {} ({})", figures(own), figures(ours), ratio([own, ours])),
                )
            });
            let first = [format!("{name} {operation}, {platform}"), selection.title().to_owned()];
            first.into_iter().chain(cells).collect()
        })
    });
    table(&["figure, ms", "MPI"], rows)
}

/// The same as charts.
pub(super) fn charts(report: Option<&Report>) -> Vec<Chart> {
    let Some(report) = report else { return Vec::new() };
    let chart = |(name, operation, platform): &(&str, &str, &str)| {
        let curves = Selection::ALL.into_iter().flat_map(|selection| {
            [("own", 0), ("with the library", 1)].map(|(whose, side)| {
                let point =
                    |bytes| Some((bytes as f64, times(report, platform, selection, operation, bytes)?[side]));
                let points = SIZES.into_iter().filter_map(point).collect();
                Curve { name: format!("{}, {whose}", selection.title()), points }
            })
        });
        let title = format!("{name} {operation}, {platform}, simulated");
        Chart { title, axes: ["bytes of a rank", "ms"], curves: curves.collect() }
    };
    FIGURES.iter().map(chart).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Comparison;

    #[test]
    fn what_is_slower_is_bold() {
        let mut report: Report = super::super::results("connect").unwrap();
        let platform = platform_names().remove(0);
        let row = |selection, operation, pair: [f64; 2]| {
            Row::new(Comparison::new(what(&platform, selection, operation, 4), "ms", AGAINST), &[pair])
        };
        report.rows = vec![
            row(Selection::Openmpi, "bcast", [10.0, 20.0]),
            row(Selection::Mpich, "bcast", [22.0, 20.0]),
            row(Selection::Mpich, "barrier", [10.0, 10.0]),
        ];
        let map = map(Some(&report));
        assert!(map.contains(&format!("| {platform} | bcast | 0.50 · **1.10** | – · – |")), "{map}");
        assert!(map.contains(&format!("| {platform} | barrier | – · 1.00 |  |")), "{map}");
        assert!(slower(Some(&report)).starts_with("Of 3 published calls 1 are slower"));
        assert!(figures_2(Some(&report)).contains("| Open MPI | 20.0 → 10.0 (0.50) | – |"));
        let charts = charts(Some(&report));
        assert_eq!(charts[0].curves[1].points, [(4.0, 10.0)]);
        assert_eq!(slower(None), NOTHING);
    }
}
