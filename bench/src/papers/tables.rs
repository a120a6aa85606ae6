//! The tables.

use std::fmt::Write as _;

use anyhow::{Context as _, ensure};

use crate::connect::PLAIN_TCP;
use crate::patterns::{PATTERNS, Traffic};
use crate::report::{Conditions, Report, Row, figures};

/// The MPIs as the rows call them.
const MPIS: [&str; 2] = ["Open MPI 4", "MPICH 5"];
/// The ways as the rows call them, with the paper's technique that is the same.
const WAYS: [(&str, Option<Technique>); 8] = [
    ("direct", Some(DIRECT)),
    ("port-range", None),
    ("reverse", None),
    ("punch", None),
    (
        "traverse",
        Some(Technique { name: "traversing", latency_seconds: 0.0103, megabits_per_second: 138.18 }),
    ),
    ("relay", Some(Technique { name: "proxy", latency_seconds: 0.0106, megabits_per_second: 76.40 })),
    ("one-gateway direct", None),
    ("two-gateway direct", None),
];
const DIRECT: Technique = Technique { name: "direct", latency_seconds: 0.0103, megabits_per_second: 136.08 };

/// A technique of Coti et al., CCGRID 2008.
#[derive(Debug, Clone, Copy)]
struct Technique {
    name: &'static str,
    /// Table 2, Orsay–Rennes.
    latency_seconds: f64,
    /// Table 1, Orsay–Bordeaux.
    megabits_per_second: f64,
}

/// Table 2, Open MPI without grid support, Orsay–Rennes, seconds.
const PAPER_PLAIN_LATENCY_SECONDS: f64 = 0.0103;
/// Choi et al., ICCS 2004, figure 2: latency in µs of ping-pongs of 128 bytes.
const PAPER_PROXIES_US: f64 = 2756.0;
const PAPER_NAT_AND_PROXY_US: f64 = 1923.0;

fn row<'a>(report: &'a Report, what: &str, against: &str) -> anyhow::Result<&'a Row> {
    let found = report.rows.iter().find(|row| row.what == what && row.against == against);
    found.with_context(|| format!("{}.json has no `{what}` against {against}", report.name))
}

/// A figure and its ratio to a reference.
fn with_ratio(value: f64, unit: &str, ratio: f64) -> String {
    format!("{} {unit} ({ratio:.2})", figures(value))
}

pub fn latency(connect: &Report) -> anyhow::Result<String> {
    let mut table = heading(&["way", "paper's technique", "paper", MPIS[0], MPIS[1]]);
    for (way, paper) in WAYS {
        let mut cells = vec![way.to_owned()];
        cells.push(paper.map_or_else(String::new, |paper| paper.name.to_owned()));
        cells.push(paper.map_or_else(String::new, |paper| {
            let seconds = paper.latency_seconds;
            with_ratio(seconds * 1e3, "ms", seconds / PAPER_PLAIN_LATENCY_SECONDS)
        }));
        for mpi in MPIS {
            let row = row(connect, &format!("{way}, {mpi}, ping-pong 1 B, sites 10 ms apart"), "plain")?;
            cells.push(with_ratio(row.ours * 1e-3, "ms", row.ratio));
        }
        line(&mut table, &cells);
    }
    Ok(table)
}

pub fn bandwidth(connect: &Report) -> anyhow::Result<String> {
    const BITS: f64 = 8.0 * 10_000_000.0;
    let mut table = heading(&["way", "paper's technique", "paper", MPIS[0], MPIS[1]]);
    for (way, paper) in WAYS {
        let mut cells = vec![way.to_owned()];
        cells.push(paper.map_or_else(String::new, |paper| paper.name.to_owned()));
        cells.push(paper.map_or_else(String::new, |paper| {
            let rate = paper.megabits_per_second;
            with_ratio(rate, "Mb/s", rate / DIRECT.megabits_per_second)
        }));
        for mpi in MPIS {
            let row =
                row(connect, &format!("{way}, {mpi}, ping-pong 10000000 B, sites 10 ms apart"), "plain")?;
            cells.push(with_ratio(BITS / row.ours, "Mb/s", 1.0 / row.ratio));
        }
        line(&mut table, &cells);
    }
    Ok(table)
}

pub fn set_up(connect: &Report) -> anyhow::Result<String> {
    let mut table = heading(&["way", "first, near", "next, near", "first, 10 ms apart", "next, 10 ms apart"]);
    for (way, _) in WAYS {
        let mut cells = vec![way.to_owned()];
        for place in ["no delay between sites", "sites 10 ms apart"] {
            for which in ["first", "next"] {
                let row = row(connect, &format!("{way}, {which} connection, {place}"), PLAIN_TCP)?;
                cells.push(format!("{} ms", figures(row.ours)));
            }
        }
        line(&mut table, &cells);
    }
    Ok(table)
}

pub fn relays(patterns: &Report) -> anyhow::Result<String> {
    let mut table = heading(&["", "paper, 128 B", "ours, 128 B", "ours, 1 B"]);
    let half =
        |way: &str, size: u32| row(patterns, &format!("half round trip, {way}, {size} B"), "plain routing");
    let plain = |size| half("two HAProxy", size).map(|row| format!("{} µs", figures(row.reference)));
    line(&mut table, &["plain routing".into(), "not told".into(), plain(128)?, plain(1)?]);
    for (what, way, paper) in [
        ("two user-level relays", "two HAProxy", Some(PAPER_PROXIES_US)),
        ("NAT and one relay", "one-gateway", Some(PAPER_NAT_AND_PROXY_US)),
        ("the same, encrypted", "one-gateway encrypted", None),
    ] {
        let paper = paper.map_or_else(|| "–".to_owned(), |value| format!("{} µs", figures(value)));
        let mut cells = vec![format!("{what} ({way})"), paper];
        for size in [128, 1] {
            cells.push(format!("{} µs", figures(half(way, size)?.ours)));
        }
        line(&mut table, &cells);
    }
    for way in ["one-gateway", "one-gateway encrypted"] {
        let mut cells = vec![format!("added to plain routing: {way} ÷ two HAProxy"), "–".to_owned()];
        for size in [128, 1] {
            let what = format!("added to plain routing, {way}, {size} B");
            cells.push(judged(row(patterns, &what, "two HAProxy")?));
        }
        line(&mut table, &cells);
    }
    Ok(table)
}

pub fn rates(patterns: &Report, traffic: Traffic) -> anyhow::Result<String> {
    let mut table = heading(&[
        "pattern, message",
        "plain routing",
        "two HAProxy",
        "one-gateway",
        "÷ two HAProxy",
        "one-gateway encrypted",
        "÷ two HAProxy",
    ]);
    let mut any = false;
    for (senders, receivers) in PATTERNS {
        let pattern = format!("{}, {senders}:{receivers}, ", traffic.name());
        let end = ", one-gateway";
        for ours in patterns.rows.iter().filter(|row| row.against == "two HAProxy") {
            let Some(what) = ours.what.strip_suffix(end).filter(|what| what.starts_with(&pattern)) else {
                continue;
            };
            any = true;
            let sealed = row(patterns, &format!("{what}, one-gateway encrypted"), "two HAProxy")?;
            let plain = row(patterns, &format!("{what}{end}"), "plain routing")?;
            line(
                &mut table,
                &[
                    what.replace("messages of ", "").replace(&format!("{}, ", traffic.name()), ""),
                    format!("{} MB/s", figures(plain.reference)),
                    format!("{} MB/s", figures(ours.reference)),
                    format!("{} MB/s", figures(ours.ours)),
                    judged(ours),
                    format!("{} MB/s", figures(sealed.ours)),
                    judged(sealed),
                ],
            );
        }
    }
    ensure!(any, "patterns.json has no rates of {traffic:?}");
    Ok(table)
}

/// A ratio with its spread, and whether it is what it must be, in the median and
/// in every round.
fn judged(row: &Row) -> String {
    let said = match (row.holds, row.bar) {
        (Some(false), Some(bar)) => format!(", **misses {bar}**"),
        (Some(true), Some(bar)) if ![row.spread.0, row.spread.1].iter().all(|ratio| bar.holds(*ratio)) => {
            ", not in all rounds".to_owned()
        }
        _ => String::new(),
    };
    format!("{:.2} ({:.2}–{:.2}){said}", row.ratio, row.spread.0, row.spread.1)
}

pub fn conditions(connect: &Report, patterns: &Report) -> String {
    let mut text = String::new();
    for report in [connect, patterns] {
        let found = &report.conditions;
        let versions: Vec<_> =
            found.versions.iter().map(|(tool, version)| format!("{tool} {version}")).collect();
        let rounds = report.rows.iter().map(|row| row.runs).max().unwrap_or(0);
        let _ = writeln!(
            text,
            "- `make bench-{}`, {}: {rounds} rounds on {} cores ({}), Linux {}, load {} over 1, 5 and 15 minutes{}; {}.",
            report.name,
            found.date,
            found.cores,
            found.cpu,
            found.kernel,
            found.load_average,
            if is_busy(found) { ", **most of it something else's, which blurs the figures**" } else { "" },
            versions.join(", ")
        );
    }
    text
}

/// Whether the machine had much more to do than a benchmark has for it, which is
/// about one and a half processes per core.
fn is_busy(conditions: &Conditions) -> bool {
    let load = conditions.load_average.split(' ').filter_map(|load| load.parse::<f64>().ok());
    load.fold(0.0, f64::max) > 3.0 * conditions.cores as f64
}

fn heading(columns: &[&str]) -> String {
    format!("| {} |\n|{}\n", columns.join(" | "), "---|".repeat(columns.len()))
}

fn line(table: &mut String, cells: &[String]) {
    let _ = writeln!(table, "| {} |", cells.join(" | "));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Bar;

    #[test]
    fn a_missed_bar_is_said() {
        let row = |ours: &[f64]| {
            let hundred = vec![100.0; ours.len()];
            Row::compare("x", "MB/s", ours, ("two HAProxy", &hundred), Some(Bar::AtLeast(1.2)))
        };
        for (ours, want) in [
            (&[125.0][..], "1.25 (1.25–1.25)"),
            (&[110.0][..], "1.10 (1.10–1.10), **misses ≥ 1.2**"),
            (&[110.0, 130.0, 140.0][..], "1.30 (1.10–1.40), not in all rounds"),
        ] {
            assert_eq!(judged(&row(ours)), want);
        }
    }

    #[test]
    fn a_busy_machine_is_said() {
        let mut conditions = Conditions::here(&[]);
        conditions.cores = 2;
        for (load, busy) in [("1.20 0.80 0.30", false), ("2.50 3.00 5.90", false), ("2.00 3.00 6.10", true)] {
            conditions.load_average = load.to_owned();
            assert_eq!(is_busy(&conditions), busy, "{load}");
        }
    }
}
