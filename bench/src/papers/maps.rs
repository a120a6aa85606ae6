//! Maps: ratios of many rows side by side, by size.

use std::collections::BTreeSet;

use super::tables::{NOTHING, heading, line, mark};
use crate::report::{Report, Row};
use crate::verdict::Verdict;

/// The parts of a row's name in order: what stands before the size, the size, and the place.
type Name<'a> = (&'a str, &'a str, &'a str);

fn name(what: &str) -> Option<Name<'_>> {
    let (mpi, rest) = what.split_once(", ")?;
    let operation = rest.split(", ").next()?;
    let (before, after) = what.split_at(mpi.len() + 2 + operation.len());
    let after = after.strip_prefix(", ").unwrap_or_default();
    let (first, place) = after.split_once(", ").unwrap_or((after, ""));
    Some(if first.ends_with(" B") { (before, first, place) } else { (before, "", after) })
}

/// A place in words that also say how ranks are placed.
fn in_words(place: &str) -> String {
    match place {
        "" => "in blocks".to_owned(),
        turns if turns.ends_with("sites in turns") => turns.to_owned(),
        platform => format!("{platform}, in blocks"),
    }
}

/// A row's ratio as a table's cell. It is bold if the bar is missed, and has a question mark if
/// that is undecided. It has the row's mark.
fn cell(row: Option<&Row>) -> String {
    let Some((row, found)) = row.and_then(|row| Some((row, row.figures.as_ref()?))) else {
        return "–".to_owned();
    };
    let mark = mark(row);
    match row.verdict {
        Some(Verdict::Yes) => format!("{:.2}{mark}", found.ratio),
        Some(Verdict::No) => format!("**{:.2}**{mark}", found.ratio),
        _ => format!("{:.2}?{mark}", found.ratio),
    }
}

/// The table of `make bench-coll` against a reference: a line for each operation, MPI, platform and
/// layout, and a column for each size.
pub(super) fn collectives(report: Option<&Report>, against: &str) -> String {
    let all = report.into_iter().flat_map(|report| &report.rows);
    let rows: Vec<_> = all
        .filter(|row| row.comparison.against == against)
        .filter_map(|row| Some((name(&row.comparison.what)?, row)))
        .collect();
    if rows.is_empty() {
        return NOTHING.to_owned();
    }
    let mut sizes: Vec<&str> = Vec::new();
    let mut lines: Vec<(&str, &str)> = Vec::new();
    for ((before, size, place), _) in &rows {
        if !size.is_empty() && !sizes.contains(size) {
            sizes.push(size);
        }
        if !lines.contains(&(before, place)) {
            lines.push((before, place));
        }
    }
    let columns: Vec<_> = ["MPI, operation", "ranks"].into_iter().chain(sizes.iter().copied()).collect();
    let mut table = heading(&columns);
    for (before, place) in lines {
        let at = |size: &str| {
            let found = rows.iter().find(|((b, s, p), _)| (*b, *s, *p) == (before, size, place));
            found.map(|(_, row)| *row)
        };
        let mut cells = vec![before.to_owned(), in_words(place)];
        // A barrier has no size.
        let alone = at("");
        cells.extend(sizes.iter().enumerate().map(|(index, size)| match alone {
            Some(row) if index == 0 => cell(Some(row)),
            Some(_) => String::new(),
            None => cell(at(size)),
        }));
        line(&mut table, &cells);
    }
    table
}

/// The comparisons of `make bench-trunk`: the way in the rows' names, the reference, and the words
/// of the table for both.
const GATHERS: [(&str, &str, &str); 5] = [
    ("trunk with BBR", "ideal", "trunk ÷ ideal"),
    ("trunk with BBR", "best own", "trunk ÷ best own"),
    ("trunk with BBR", "best own × 1.02 + 0.2 ms", "trunk ÷ best own × 1.02 + 0.2 ms"),
    ("trunk with BBR", "own CUBIC", "trunk ÷ own CUBIC"),
    ("trunk without BBR", "own CUBIC", "trunk without BBR ÷ own CUBIC"),
];
const GATHER_SIZES: [&str; 5] = ["1 KB", "10 KB", "100 KB", "1 MB", "10 MB"];

/// The link and the size in the name of a gather's row. `None` if the row isn't about the way
/// `way`.
fn gather<'a>(what: &'a str, way: &str) -> Option<(&'a str, &'a str)> {
    let (_, rest) = what.strip_prefix("gather ")?.split_once(" × ")?;
    let (size, rest) = rest.split_once(", ")?;
    Some((rest.strip_suffix(way)?.strip_suffix(", ")?, size))
}

/// The range of the ratios for all numbers of senders, as a table's cell.
fn range(rows: &[&Row]) -> String {
    let ratios = || rows.iter().filter_map(|row| Some(row.figures.as_ref()?.ratio));
    let (Some(least), Some(most)) = (ratios().reduce(f64::min), ratios().reduce(f64::max)) else {
        return "–".to_owned();
    };
    let text = format!("{least:.2}–{most:.2}");
    let marks: BTreeSet<_> = rows.iter().filter(|row| row.figures.is_some()).map(|row| mark(row)).collect();
    let marks: String = marks.into_iter().collect();
    match rows.iter().filter_map(|row| row.comparison.bar.and(row.verdict)).max_by_key(
        |verdict| match verdict {
            Verdict::No => 2,
            Verdict::Undecided => 1,
            _ => 0,
        },
    ) {
        Some(Verdict::No) => format!("**{text}**{marks}"),
        Some(Verdict::Undecided) => format!("{text}?{marks}"),
        _ => text + &marks,
    }
}

/// The table of `make bench-trunk`: a line for each link and comparison, and a column for each
/// size.
pub(super) fn gathers(report: &Report) -> String {
    let columns: Vec<_> = ["", "link"].into_iter().chain(GATHER_SIZES).collect();
    let mut table = heading(&columns);
    for (way, against, words) in GATHERS {
        let rows: Vec<_> = report
            .rows
            .iter()
            .filter(|row| row.comparison.against == against)
            .filter_map(|row| Some((gather(&row.comparison.what, way)?, row)))
            .collect();
        let mut links: Vec<&str> = rows.iter().map(|((link, _), _)| *link).collect();
        links.sort_unstable();
        links.dedup();
        for link in links {
            let of_size = |size: &str| {
                let found = rows.iter().filter(|((l, s), _)| (*l, *s) == (link, size));
                found.map(|(_, row)| *row).collect::<Vec<_>>()
            };
            let cells = GATHER_SIZES.map(|size| match &of_size(size)[..] {
                [] => String::new(),
                rows => range(rows),
            });
            line(&mut table, &[vec![words.to_owned(), link.to_owned()], cells.to_vec()].concat());
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_rows() {
        for (what, want) in [
            ("Open MPI 4, bcast, 8 B", ("Open MPI 4, bcast", "8 B", "")),
            ("MPICH 5, gather, 1024 B, sites in turns", ("MPICH 5, gather", "1024 B", "sites in turns")),
            ("MPICH 5, barrier", ("MPICH 5, barrier", "", "")),
            ("MPICH 5, barrier, sites in turns", ("MPICH 5, barrier", "", "sites in turns")),
            ("MPICH 5, bcast, 8 B, two sites", ("MPICH 5, bcast", "8 B", "two sites")),
            (
                "MPICH 5, bcast, 8 B, two sites, sites in turns",
                ("MPICH 5, bcast", "8 B", "two sites, sites in turns"),
            ),
            (
                "MPICH 5, barrier, two sites, sites in turns",
                ("MPICH 5, barrier", "", "two sites, sites in turns"),
            ),
        ] {
            assert_eq!(name(what), Some(want), "{what}");
        }
        assert_eq!(name("nothing"), None);
    }

    #[test]
    fn figures_of_older_sources_are_marked() {
        let bar = crate::verdict::Bar::AtMost(1.05);
        let row = |ours: f64| {
            Row::new(crate::report::Comparison::new("x", "ms", "own").bar(bar), &[[ours, 1.0]; 5])
        };
        let older = Row { older: Some("c0ffee".into()), ..row(1.5) };
        assert_eq!(cell(Some(&older)), "**1.50** [at c0ffee]");
        assert_eq!(range(&[&row(0.5), &older, &older]), "**0.50–1.50** [at c0ffee]");
        assert_eq!(range(&[&row(0.5), &row(0.75)]), "0.50–0.75");
    }

    #[test]
    fn one_table_for_each_reference() {
        let mut report = crate::papers::results("connect").unwrap();
        let row = |what: &str, against: &str, ours: f64| {
            let bar = crate::verdict::Bar::AtMost(1.05);
            Row::new(crate::report::Comparison::new(what, "ms", against).bar(bar), &[[ours, 1.0]; 5])
        };
        report.rows = vec![
            row("Open MPI 4, barrier", "own", 0.5),
            row("Open MPI 4, bcast, 8 B, two sites", "own", 1.5),
        ];
        let want = "| MPI, operation | ranks | 8 B |\n|---|---|---|\n\
            | Open MPI 4, barrier | in blocks | 0.50 |\n\
            | Open MPI 4, bcast | two sites, in blocks | **1.50** |\n";
        assert_eq!(collectives(Some(&report), "own"), want);
        // Results from before there were such rows.
        assert_eq!(collectives(Some(&report), "bound"), NOTHING);
        assert_eq!(collectives(None, "own"), NOTHING);
    }

    #[test]
    fn links_and_sizes_of_gathers() {
        let what = "gather 19 × 1 MB, queue BDP, loss 0.1 %, trunk with BBR";
        assert_eq!(gather(what, "trunk with BBR"), Some(("queue BDP, loss 0.1 %", "1 MB")));
        assert_eq!(gather(what, "own BBR"), None);
        assert_eq!(gather(&format!("ping of 64 B beside {what}"), "trunk with BBR"), None);
    }
}
