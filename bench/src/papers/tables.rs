//! The tables.

use std::fmt::Write as _;

use anyhow::{Context as _, ensure};

use crate::connect::PLAIN_TCP;
use crate::connect::besides::{self, Beside};
use crate::nas::{LOSSES, gateways, ways};
use crate::patterns::{PATTERNS, Traffic};
use crate::report::{Comparison, Figures, Report, Row, figures};
use crate::verdict::{Bar, Verdict};

/// Text instead of a table whose results are missing.
pub(super) const NOTHING: &str = "Not measured so far.\n";
/// The names of the MPIs in the rows.
const MPIS: [&str; 2] = ["Open MPI 4", "MPICH 5"];
/// The names of the ways in the rows, each with the paper's technique that it corresponds to.
/// `None` if the paper has none.
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
/// What the paper measures besides, or what stands for it: a relay at one site, whose far pair pays for
/// the detour, and what people use in place of MPICH-G2. Their rows may be missing.
const BESIDES: [(Beside, &str, f64, f64); 3] = [
    (Beside::RelayAtOneSite, "proxy at Orsay, Bordeaux–Rennes", 0.0287, 0.0080),
    (Beside::Nebula, "MPICH-G2", 0.0104, PAPER_PLAIN_LATENCY_SECONDS),
    (Beside::WireGuard, "MPICH-G2", 0.0104, PAPER_PLAIN_LATENCY_SECONDS),
];
const DIRECT: Technique = Technique { name: "direct", latency_seconds: 0.0103, megabits_per_second: 136.08 };

/// A technique of Coti et al., CCGRID 2008.
#[derive(Debug, Clone, Copy)]
struct Technique {
    name: &'static str,
    /// Latency from table 2 of the paper, Orsay–Rennes.
    latency_seconds: f64,
    /// Bandwidth from table 1 of the paper, Orsay–Bordeaux.
    megabits_per_second: f64,
}

/// Latency of Open MPI without grid support, in seconds, from table 2 of the paper, Orsay–Rennes.
const PAPER_PLAIN_LATENCY_SECONDS: f64 = 0.0103;
/// Latency in µs of ping-pongs of 128 bytes over two proxies (Choi et al., ICCS 2004, figure 2).
/// `PAPER_NAT_AND_PROXY_US` is that of a NAT and a proxy.
const PAPER_PROXIES_US: f64 = 2756.0;
const PAPER_NAT_AND_PROXY_US: f64 = 1923.0;

/// The reference of what is encrypted.
const SEALED_PROXIES: &str = "two HAProxy encrypted";

fn row<'a>(report: &'a Report, what: &str, against: &str) -> anyhow::Result<&'a Row> {
    let found =
        report.rows.iter().find(|row| row.comparison.what == what && row.comparison.against == against);
    found.with_context(|| format!("{}.json has no `{what}` against {against}", report.name))
}

/// A figure with its unit, and its ratio to a reference, as text.
fn with_ratio(value: f64, unit: &str, ratio: f64) -> String {
    format!("{} {unit} ({ratio:.2})", figures(value))
}

/// The mark of a row that was measured at another commit than the rest of its results.
pub(super) fn mark(row: &Row) -> String {
    row.older.as_ref().map_or_else(String::new, |commit| format!(" [at {commit}]"))
}

/// The figure that `value` makes of a row's figures, with its unit and the row's mark. If the row has
/// none, the verdict.
pub(super) fn figure(row: &Row, unit: &str, value: impl Fn(&Figures) -> f64) -> String {
    bare(row, unit, value) + &mark(row)
}

/// The same for a cell with another figure of the row, which has the mark.
pub(super) fn bare(row: &Row, unit: &str, value: impl Fn(&Figures) -> f64) -> String {
    match &row.figures {
        Some(found) => format!("{} {unit}", figures(value(found))),
        None => Verdict::NotMeasured.to_string(),
    }
}

pub(super) fn latency(connect: &Report) -> anyhow::Result<String> {
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
            cells.push(format!("{} · {}", bare(row, "ms", |found| found.ours * 1e-3), judged(row)));
        }
        line(&mut table, &cells);
    }
    for (beside, technique, seconds, plain_seconds) in BESIDES {
        let paper = with_ratio(seconds * 1e3, "ms", seconds / plain_seconds);
        let ours = MPIS.map(|mpi| {
            let found = row(connect, &besides::what(beside, mpi), "plain").ok();
            found.filter(|row| row.figures.is_some()).map_or_else(
                || Verdict::NotMeasured.to_string(),
                |row| format!("{} · {}", bare(row, "ms", |found| found.ours * 1e-3), judged(row)),
            )
        });
        let first = [beside.name().to_owned(), technique.to_owned(), paper];
        line(&mut table, &[&first[..], &ours].concat());
    }
    Ok(table)
}

pub(super) fn bandwidth(connect: &Report) -> anyhow::Result<String> {
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
            cells.push(format!(
                "{} · {}",
                bare(row, "Mb/s", |found| BITS / found.ours),
                judged(&of_rates(row))
            ));
        }
        line(&mut table, &cells);
    }
    Ok(table)
}

pub(super) fn set_up(connect: &Report) -> anyhow::Result<String> {
    let mut table = heading(&["way", "first, near", "next, near", "first, 10 ms apart", "next, 10 ms apart"]);
    for (way, _) in WAYS {
        let mut cells = vec![way.to_owned()];
        for place in ["no delay between sites", "sites 10 ms apart"] {
            for which in ["first", "next"] {
                let row = row(connect, &format!("{way}, {which} connection, {place}"), PLAIN_TCP)?;
                cells.push(figure(row, "ms", |found| found.ours));
            }
        }
        line(&mut table, &cells);
    }
    Ok(table)
}

/// A cell of a row that no run has measured since the benchmark got it: the reference that encrypts.
fn newer(row: anyhow::Result<&Row>, cell: impl Fn(&Row) -> String) -> String {
    row.map_or_else(|_| Verdict::NotMeasured.to_string(), cell)
}

pub(super) fn relays(patterns: &Report) -> anyhow::Result<String> {
    let mut table = heading(&["", "paper, 128 B", "ours, 128 B", "ours, 1 B"]);
    let half =
        |way: &str, size: u32| row(patterns, &format!("half round trip, {way}, {size} B"), "plain routing");
    let plain = |size| half("two HAProxy", size).map(|row| figure(row, "µs", |found| found.reference));
    line(&mut table, &["plain routing".into(), "not given".into(), plain(128)?, plain(1)?]);
    for (what, way, paper) in [
        ("two user-level relays", "two HAProxy", Some(PAPER_PROXIES_US)),
        ("NAT and one relay", "one-gateway", Some(PAPER_NAT_AND_PROXY_US)),
        ("the same, encrypted", "one-gateway encrypted", None),
    ] {
        let paper = paper.map_or_else(|| "–".to_owned(), |value| format!("{} µs", figures(value)));
        let mut cells = vec![format!("{what} ({way})"), paper];
        for size in [128, 1] {
            cells.push(figure(half(way, size)?, "µs", |found| found.ours));
        }
        line(&mut table, &cells);
    }
    let sealed = |size| newer(half(SEALED_PROXIES, size), |row| figure(row, "µs", |found| found.ours));
    let name = format!("two user-level relays, encrypted ({SEALED_PROXIES})");
    line(&mut table, &[name, "–".into(), sealed(128), sealed(1)]);
    let cost = [128, 1].map(|size| {
        let what = format!("message of {size} B, one-gateway, processor time");
        newer(row(patterns, &what, "two HAProxy"), judged)
    });
    let name = "processor time of a message: one-gateway ÷ two HAProxy".to_owned();
    line(&mut table, &[&[name, "–".to_owned()][..], &cost].concat());
    for way in ["one-gateway", "one-gateway encrypted"] {
        let mut cells = vec![format!("added to plain routing: {way} ÷ two HAProxy"), "–".to_owned()];
        for size in [128, 1] {
            let what = format!("added to plain routing, {way}, {size} B");
            cells.push(judged(row(patterns, &what, "two HAProxy")?));
        }
        line(&mut table, &cells);
    }
    let added = [128, 1].map(|size| {
        let what = format!("added to plain routing, one-gateway encrypted, {size} B");
        newer(row(patterns, &what, SEALED_PROXIES), judged)
    });
    let name = format!("added to plain routing: one-gateway encrypted ÷ {SEALED_PROXIES}");
    line(&mut table, &[&[name, "–".to_owned()][..], &added].concat());
    Ok(table)
}

pub(super) fn rates(patterns: &Report, traffic: Traffic) -> anyhow::Result<String> {
    let mut table = heading(&[
        "pattern, message",
        "plain routing",
        "two HAProxy",
        "one-gateway",
        "÷ two HAProxy",
        "one-gateway encrypted",
        "÷ two HAProxy",
        "÷ two HAProxy encrypted",
        "processor time of a byte, one-gateway ÷ two HAProxy",
    ]);
    let mut any = false;
    for (senders, receivers) in PATTERNS {
        let pattern = format!("{}, {senders}:{receivers}, ", traffic.name());
        let end = ", one-gateway";
        for ours in patterns.rows.iter().filter(|row| row.comparison.against == "two HAProxy") {
            let Some(what) = ours.comparison.what.strip_suffix(end).filter(|what| what.starts_with(&pattern))
            else {
                continue;
            };
            any = true;
            let sealed = row(patterns, &format!("{what}, one-gateway encrypted"), "two HAProxy")?;
            let plain = row(patterns, &format!("{what}{end}"), "plain routing")?;
            let beside = row(patterns, &format!("{what}, one-gateway encrypted"), SEALED_PROXIES);
            let cost = row(patterns, &format!("{what}{end}, processor time"), "two HAProxy");
            line(
                &mut table,
                &[
                    what.replace("messages of ", "").replace(&format!("{}, ", traffic.name()), ""),
                    figure(plain, "MB/s", |found| found.reference),
                    figure(ours, "MB/s", |found| found.reference),
                    figure(ours, "MB/s", |found| found.ours),
                    judged(ours),
                    figure(sealed, "MB/s", |found| found.ours),
                    judged(sealed),
                    newer(beside, judged),
                    newer(cost, judged),
                ],
            );
        }
    }
    ensure!(any, "patterns.json has no rates of {traffic:?}");
    Ok(table)
}

/// A row that compares rates, made of a row that compares times.
fn of_rates(row: &Row) -> Row {
    let mut row = row.clone();
    if let Some(found) = &mut row.figures {
        found.ratio = 1.0 / found.ratio;
        found.interval = found.interval.map(|(low, high)| (1.0 / high, 1.0 / low));
    }
    if let Some(Bar::AtMost(most)) = row.comparison.bar {
        row.comparison.bar = Some(Bar::AtLeast((100.0 / most).round() / 100.0));
    }
    row
}

/// A row's ratio with its interval, and the verdict if the row has a bar, with the row's mark.
pub(super) fn judged(row: &Row) -> String {
    let verdict = match (row.verdict, row.comparison.bar) {
        // A result of schema 1, which has no verdict.
        (None, Some(bar)) if row.figures.as_ref().is_some_and(|found| !bar.holds(found.ratio)) => {
            format!(", **misses {bar}**")
        }
        (Some(Verdict::No), Some(bar)) => format!(", **misses {bar}**"),
        (Some(Verdict::Undecided), Some(bar)) => format!(", undecided whether {bar}"),
        (Some(Verdict::Yes), Some(bar)) => format!(", {bar}"),
        _ => String::new(),
    };
    row.ratio() + &verdict + &mark(row)
}

/// The table of applications' steps: isthmus, what it is compared with, and the ratio.
pub(super) fn applications(nas: &Report) -> String {
    let elsewhere = [ways::AGAINST, gateways::AGAINST];
    compared(nas.rows.iter().filter(|row| !elsewhere.contains(&row.comparison.against.as_str())))
}

/// Programs over an ocean, over a trunk and over connections of their own.
pub(super) fn programs(programs: Option<&Report>) -> String {
    programs.map_or_else(|| NOTHING.to_owned(), |programs| compared(programs.rows.iter()))
}

fn compared<'a>(rows: impl Iterator<Item = &'a Row>) -> String {
    let mut table = heading(&["", "isthmus", "against", "", "ratio"]);
    for row in rows {
        let Comparison { what, unit, against, .. } = &row.comparison;
        let ours = figure(row, unit, |found| found.ours);
        let reference = figure(row, unit, |found| found.reference);
        line(&mut table, &[what.clone(), ours, against.clone(), reference, judged(row)]);
    }
    table
}

/// Steps of programs over the gateways' trunks, beside the paper's with MPI5000 by those without it.
pub(super) fn over_gateways(nas: &Report) -> String {
    let mut table = heading(&["", "loss", "paper", "isthmus", "plain Open MPI", "ratio"]);
    for (program, paper) in gateways::PROGRAMS {
        for loss in LOSSES {
            let first = [program.to_uppercase(), loss.to_owned(), format!("{paper:.2}")];
            let found = row(nas, &gateways::what(program, loss), gateways::AGAINST).ok();
            line(&mut table, &[first, step(found)].concat());
        }
    }
    table
}

/// The cells of a step's row: our time, that of plain Open MPI, and the ratio.
fn step(row: Option<&Row>) -> [String; 3] {
    match row.filter(|row| row.figures.is_some()) {
        None => [Verdict::NotMeasured.to_string(), String::new(), String::new()],
        Some(row) => {
            [figure(row, "ms", |found| found.ours), figure(row, "ms", |found| found.reference), judged(row)]
        }
    }
}

/// Steps of programs by the way between sites (figures 4 and 5 of Coti et al.).
pub(super) fn by_way(nas: &Report) -> String {
    let mut table = heading(&["", "way", "paper's technique", "isthmus", "plain Open MPI", "ratio"]);
    for (program, figure_of_paper) in ways::PROGRAMS {
        for (way, _, technique) in ways::WAYS {
            let what = ways::what(program, way);
            let first = [
                format!("{figure_of_paper}: {}", program.to_uppercase()),
                way.to_owned(),
                technique.to_owned(),
            ];
            let found = row(nas, &what, ways::AGAINST).ok();
            line(&mut table, &[first, step(found)].concat());
        }
    }
    table
}

pub(super) fn conditions<'a>(reports: impl Iterator<Item = &'a Report>) -> String {
    let mut text = String::new();
    for report in reports {
        let found = &report.conditions;
        let versions: Vec<_> =
            found.versions.iter().map(|(tool, version)| format!("{tool} {version}")).collect();
        let runs = || report.rows.iter().map(|row| row.runs);
        let (fewest, most) = (runs().min().unwrap_or(0), runs().max().unwrap_or(0));
        let rounds = if fewest == most { most.to_string() } else { format!("{fewest} to {most}") };
        let commit = match &report.sources {
            Some(sources) if sources.dirty => format!("at {} with uncommitted changes", sources.commit),
            Some(sources) => format!("at {}", sources.commit),
            None => "**before results had intervals and verdicts**".into(),
        };
        let older = match report.rows.iter().filter(|row| row.older.is_some()).count() {
            0 => String::new(),
            rows => format!(", {rows} rows with older sources"),
        };
        let _ = writeln!(
            text,
            "- `make bench-{}`, {}, {commit}{older}: {rounds} rounds on {} cores ({}), Linux {}, connections with {}; {}.",
            report.name,
            found.date,
            found.cores,
            found.cpu,
            found.kernel,
            found.congestion_control,
            versions.join(", ")
        );
    }
    text
}

pub(super) fn heading(columns: &[&str]) -> String {
    format!("| {} |\n|{}\n", columns.join(" | "), "---|".repeat(columns.len()))
}

pub(super) fn line(table: &mut String, cells: &[String]) {
    let _ = writeln!(table, "| {} |", cells.join(" | "));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_in_words() {
        let row = |bar: Option<Bar>, ours: &[f64]| {
            let rounds: Vec<_> = ours.iter().map(|ours| [*ours, 100.0]).collect();
            Row::new(Comparison::new("x", "MB/s", "two HAProxy").bar(bar), &rounds)
        };
        let bar = Some(Bar::AtLeast(1.2));
        for (bar, ours, want) in [
            (bar, &[125.0; 5][..], "1.25 (1.25–1.25), ≥ 1.2"),
            (bar, &[110.0; 5], "1.10 (1.10–1.10), **misses ≥ 1.2**"),
            (bar, &[110.0, 130.0, 140.0, 110.0, 140.0], "1.30 (1.10–1.40), undecided whether ≥ 1.2"),
            (bar, &[], "not measured"),
            (None, &[125.0], "1.25"),
        ] {
            assert_eq!(judged(&row(bar, ours)), want);
        }
        let older = Row { older: Some("c0ffee".into()), ..row(bar, &[125.0; 5]) };
        assert_eq!(judged(&older), "1.25 (1.25–1.25), ≥ 1.2 [at c0ffee]");
        assert_eq!(figure(&older, "MB/s", |found| found.ours), "125 MB/s [at c0ffee]");
        let times = row(Some(Bar::AtMost(1.02)), &[50.0, 100.0, 50.0, 50.0, 40.0]);
        assert_eq!(judged(&of_rates(&times)), "2.00 (1.00–2.50), ≥ 0.98");
    }
}
