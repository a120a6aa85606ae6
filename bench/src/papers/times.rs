//! Times by size or number of ranks, which are curves in the papers: starts of jobs, gathers, and steps of
//! programs by the way between sites.

use super::curves::{Chart, Curve};
use super::tables::{NOTHING, bare, figure, heading, judged, line};
use crate::report::{Report, Row};

const NONE: &str = "not measured";

/// The number of ranks, the MPI and the place of a start's row, such as "Open MPI 4, 16 ranks, one site".
fn start(what: &str) -> Option<(u32, &str, &str)> {
    let (mpi, rest) = what.split_once(", ")?;
    let (ranks, place) = rest.split_once(" ranks, ")?;
    Some((ranks.parse().ok()?, mpi, place))
}

/// The rows of starts, by place and MPI and then by the number of ranks.
fn starts(report: &Report) -> Vec<((&str, &str, u32), &Row)> {
    let rows = report.rows.iter().filter_map(|row| {
        let (ranks, mpi, place) = start(&row.comparison.what)?;
        Some(((place, mpi, ranks), row))
    });
    let mut rows: Vec<_> = rows.collect();
    rows.sort_by_key(|(key, _)| *key);
    rows
}

/// The numbers of ranks of figure 3 of Coti et al., CCGRID 2008, that are shown.
const RANKS: [u32; 4] = [4, 16, 64, 128];
/// The paper's place.
const ONE_SITE: &str = "one site";

/// The table of starts: a line for each place and MPI, and a column for each number of ranks.
pub(super) fn starting(report: Option<&Report>) -> String {
    let Some(report) = report else { return NOTHING.to_owned() };
    let columns = RANKS.map(|ranks| format!("{ranks} ranks"));
    let columns: Vec<&str> = ["", "MPI"].into_iter().chain(columns.iter().map(String::as_str)).collect();
    let mut table = heading(&columns);
    let rows = starts(report);
    let mut lines: Vec<_> = rows.iter().map(|((place, mpi, _), _)| (*place, *mpi)).collect();
    lines.dedup();
    for (place, mpi) in lines {
        let cell = |ranks| match rows.iter().find(|(key, _)| *key == (place, mpi, ranks)) {
            Some((_, row)) if row.figures.is_some() => {
                let reference = bare(row, "s", |found| found.reference);
                format!("{}, over ssh {reference}: {}", bare(row, "s", |found| found.ours), judged(row))
            }
            _ => NONE.to_owned(),
        };
        line(&mut table, &[&[place.to_owned(), mpi.to_owned()][..], &RANKS.map(cell)].concat());
    }
    table
}

/// Starts within a site as a chart.
pub(super) fn starting_chart(report: Option<&Report>) -> Chart {
    let rows = report.map(starts).unwrap_or_default();
    let mut mpis: Vec<&str> =
        rows.iter().filter(|((place, ..), _)| *place == ONE_SITE).map(|((_, mpi, _), _)| *mpi).collect();
    mpis.dedup();
    let curves = mpis.into_iter().flat_map(|mpi| {
        [("isthmus", 0), ("over ssh", 1)].map(|(whose, side)| {
            let points = rows.iter().filter(|((place, found, _), _)| (*place, *found) == (ONE_SITE, mpi));
            let point = |((_, _, ranks), row): &((&str, &str, u32), &Row)| {
                let found = row.figures.as_ref()?;
                Some((f64::from(*ranks), [found.ours, found.reference][side]))
            };
            Curve { name: format!("{mpi}, {whose}"), points: points.filter_map(point).collect() }
        })
    });
    Chart { title: "3: start of a job within a site".into(), axes: ["ranks", "s"], curves: curves.collect() }
}

/// Sizes of a gather's messages.
const SIZES: [(&str, f64); 5] =
    [("1 KB", 1e3), ("10 KB", 1e4), ("100 KB", 1e5), ("1 MB", 1e6), ("10 MB", 1e7)];
const SENDERS: [u32; 3] = [2, 10, 19];
const LINK: &str = "queue BDP, loss 0 %";

/// The milliseconds of a gather over a trunk and over connections of its own, and the row.
fn gather<'a>(report: &'a Report, senders: u32, size: &str) -> Option<(&'a Row, [f64; 2])> {
    let what = format!("gather {senders} × {size}, {LINK}, trunk with BBR");
    let is_meant = |row: &&Row| row.comparison.what == what && row.comparison.against == "own CUBIC";
    let row = report.rows.iter().find(is_meant)?;
    let found = row.figures.as_ref()?;
    Some((row, [found.ours, found.reference]))
}

/// Times of gathers by senders and size (figures 9 and 10 of Alter and Glück, RR-6986).
pub(super) fn gathers(report: &Report) -> String {
    let columns: Vec<_> = std::iter::once("senders").chain(SIZES.map(|(size, _)| size)).collect();
    let mut table = heading(&columns);
    for senders in SENDERS {
        let cell = |(size, _)| match gather(report, senders, size) {
            None => NONE.to_owned(),
            Some((row, _)) => {
                let reference = bare(row, "ms", |found| found.reference);
                format!("{} → {}", reference, figure(row, "ms", |found| found.ours))
            }
        };
        line(&mut table, &[&[senders.to_string()][..], &SIZES.map(cell)].concat());
    }
    table
}

/// The same as a chart.
pub(super) fn gathers_chart(report: &Report) -> Chart {
    let curves = SENDERS.iter().flat_map(|senders| {
        [("trunk", 0), ("own connections", 1)].map(|(whose, side)| {
            let point = |(size, bytes): (&str, f64)| Some((bytes, gather(report, *senders, size)?.1[side]));
            let points = SIZES.into_iter().filter_map(point).collect();
            Curve { name: format!("{senders} senders, {whose}"), points }
        })
    });
    let curves = curves.collect();
    Chart {
        title: "9 and 10: a gather, 10.6 ms and 1 Gb/s".into(),
        axes: ["bytes of a sender", "ms"],
        curves,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Comparison;

    #[test]
    fn starts_by_place_mpi_and_ranks() {
        assert_eq!(start("Open MPI 4, 16 ranks, one site"), Some((16, "Open MPI 4", "one site")));
        assert_eq!(start("Open MPI 4"), None);
        let mut report = super::super::results("connect").unwrap();
        let row = |ranks: u32, ours: f64| {
            let what = format!("MPICH 5, {ranks} ranks, one site");
            Row::new(Comparison::new(what, "s", "over ssh"), &[[ours, 2.0]])
        };
        report.rows = vec![row(128, 4.0), row(16, 1.0)];
        let table = starting(Some(&report));
        assert!(
            table.contains("| one site | MPICH 5 | not measured | 1.00 s, over ssh 2.00 s: 0.50"),
            "{table}"
        );
        let chart = starting_chart(Some(&report));
        assert_eq!(chart.curves[0].points, [(16.0, 1.0), (128.0, 4.0)]);
        assert!(starting_chart(None).curves.is_empty());
    }

    #[test]
    fn gathers_by_senders_and_size() {
        let mut report = super::super::results("trunk").unwrap();
        let what = "gather 10 × 1 MB, queue BDP, loss 0 %, trunk with BBR";
        report.rows = vec![Row::new(Comparison::new(what, "ms", "own CUBIC"), &[[90.0, 180.0]])];
        let table = gathers(&report);
        let want = "| 10 | not measured | not measured | not measured | 180 ms → 90.0 ms | not measured |";
        assert!(table.contains(want), "{table}");
        assert_eq!(gathers_chart(&report).curves[2].points, [(1e6, 90.0)]);
    }
}
