//! What came out: rows against their bars, the conditions, as JSON and as a
//! table.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::Context as _;
use comfy_table::{Cell, CellAlignment, Table, presets};
use serde::{Deserialize, Serialize};

/// What a ratio must be, ours to reference.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bar {
    /// Not above this: times, costs.
    AtMost(f64),
    /// Not below this: rates.
    AtLeast(f64),
}

impl Bar {
    /// Whether a ratio is what it must be.
    pub fn holds(self, ratio: f64) -> bool {
        match self {
            Self::AtMost(most) => ratio <= most,
            Self::AtLeast(least) => ratio >= least,
        }
    }

    /// Whether `a` is nearer to what the bar asks for.
    fn prefers(self, a: f64, b: f64) -> bool {
        match self {
            Self::AtMost(_) => a < b,
            Self::AtLeast(_) => a > b,
        }
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(most) => write!(f, "≤ {most}"),
            Self::AtLeast(least) => write!(f, "≥ {least}"),
        }
    }
}

/// One figure of ours against that of one reference.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// What was measured.
    pub what: String,
    /// Unit of `ours` and `reference`.
    pub unit: String,
    /// Median of ours.
    pub ours: f64,
    /// Median of the reference.
    pub reference: f64,
    /// What the reference is.
    pub against: String,
    /// Median of the rounds' ratios, ours to reference: what slows the machine
    /// for a while slows both of a round.
    pub ratio: f64,
    /// What the ratio must be; none in a row that only informs.
    pub bar: Option<Bar>,
    /// Whether it is.
    pub holds: Option<bool>,
    /// Rounds.
    pub runs: usize,
    /// Lowest and highest ratio of a round.
    pub spread: (f64, f64),
}

impl Row {
    /// Compares the rounds of one figure: `ours[i]` and `reference[i]` were
    /// measured one after the other.
    pub fn compare(
        what: &str,
        unit: &str,
        ours: &[f64],
        (against, reference): (&str, &[f64]),
        bar: Option<Bar>,
    ) -> Self {
        let ratios: Vec<f64> = ours.iter().zip(reference).map(|(ours, reference)| ours / reference).collect();
        let ratio = median(&ratios);
        Self {
            what: what.to_owned(),
            unit: unit.to_owned(),
            ours: median(ours),
            reference: median(reference),
            against: against.to_owned(),
            ratio,
            bar,
            holds: bar.map(|bar| bar.holds(ratio)),
            runs: ratios.len(),
            spread: (
                ratios.iter().copied().fold(f64::INFINITY, f64::min),
                ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            ),
        }
    }

    /// Compares with several references: the best of them, by its median, sets
    /// the bar; the others inform.
    pub fn compare_with_best(
        what: &str,
        unit: &str,
        ours: &[f64],
        references: &[(&str, &[f64])],
        bar: Bar,
    ) -> Vec<Self> {
        let best = references
            .iter()
            .copied()
            .reduce(|best, next| if bar.prefers(median(next.1), median(best.1)) { next } else { best });
        references
            .iter()
            .map(|reference| {
                let is_best = best.is_some_and(|best| best.0 == reference.0);
                Self::compare(what, unit, ours, *reference, is_best.then_some(bar))
            })
            .collect()
    }
}

/// Where and when it was measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Conditions {
    /// Cores of the machine.
    pub cores: usize,
    /// The processor.
    pub cpu: String,
    /// Release of the kernel.
    pub kernel: String,
    /// TCP congestion control that connections use by default.
    pub congestion_control: String,
    /// When, UTC.
    pub date: String,
    /// What the machine had to do when all was measured, over 1, 5 and 15
    /// minutes (proc(5), /proc/loadavg); the benchmark's own work included.
    pub load_average: String,
    /// Versions of what was measured.
    pub versions: BTreeMap<String, String>,
}

impl Conditions {
    /// Those of this machine at this moment; `tools` with the argument that
    /// makes each print its version, listed without their directories.
    pub fn here(tools: &[(&str, &str)]) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let cpu = read("/proc/cpuinfo").lines().find_map(|line| {
            line.strip_prefix("model name")?.split_once(": ").map(|(_, name)| name.to_owned())
        });
        let versions = std::iter::once(("isthmus".to_owned(), env!("CARGO_PKG_VERSION").to_owned()))
            .chain(tools.iter().map(|(tool, argument)| {
                let name = tool.rsplit_once('/').map_or(*tool, |(_, name)| name);
                (name.to_owned(), version(tool, argument))
            }))
            .collect();
        Self {
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            cpu: cpu.unwrap_or_default(),
            kernel: read("/proc/sys/kernel/osrelease"),
            congestion_control: read("/proc/sys/net/ipv4/tcp_congestion_control"),
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            load_average: read("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(" "),
            versions,
        }
    }
}

/// The first words with a digit in them of what the tool says of itself.
fn version(tool: &str, argument: &str) -> String {
    let Ok(output) = Command::new(tool).arg(argument).output() else { return "unknown".into() };
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    text.split_whitespace()
        .find(|word| word.starts_with(|first: char| first.is_ascii_digit()) && word.contains('.'))
        .unwrap_or("unknown")
        .to_owned()
}

/// All of one benchmark.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// Its name.
    pub name: String,
    /// Its figures.
    pub rows: Vec<Row>,
    /// Where and when.
    pub conditions: Conditions,
}

impl Report {
    /// Whether no bar is missed.
    pub fn holds(&self) -> bool {
        self.rows.iter().all(|row| row.holds != Some(false))
    }

    /// Writes `NAME.json` into the directory and prints the table.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn publish(&self, directory: &Path) -> anyhow::Result<PathBuf> {
        let path = directory.join(format!("{}.json", self.name));
        fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{self}");
        Ok(path)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Conditions { cores, cpu, kernel, date, .. } = &self.conditions;
        writeln!(f, "{}: {cores} cores, {cpu}, Linux {kernel}, {date}", self.name)?;
        let mut table = Table::new();
        table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
        table.set_header(["what", "unit", "ours", "reference", "against", "ratio", "spread", "bar", "holds"]);
        for row in &self.rows {
            let number = |value: f64| Cell::new(figures(value)).set_alignment(CellAlignment::Right);
            table.add_row([
                Cell::new(&row.what),
                Cell::new(&row.unit),
                number(row.ours),
                number(row.reference),
                Cell::new(&row.against),
                number(row.ratio),
                Cell::new(format!("{}–{}", figures(row.spread.0), figures(row.spread.1))),
                Cell::new(row.bar.map_or_else(String::new, |bar| bar.to_string())),
                Cell::new(match row.holds {
                    Some(true) => "yes",
                    Some(false) => "NO",
                    None => "",
                }),
            ]);
        }
        write!(f, "{table}")
    }
}

/// Three significant figures.
pub fn figures(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// The middle one, or the mean of the two in the middle.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.get(middle) {
        None => f64::NAN,
        Some(upper) if sorted.len() % 2 == 1 => *upper,
        Some(upper) => f64::midpoint(sorted[middle - 1], *upper),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        for (values, want) in [(&[3.0, 1.0, 2.0][..], 2.0), (&[4.0, 1.0][..], 2.5), (&[7.0][..], 7.0)] {
            assert_eq!(median(values), want, "{values:?}");
        }
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn the_best_reference_sets_the_bar() {
        let (slow, fast) = ([1.0, 1.0, 1.0], [3.0, 2.0, 2.0]);
        let references = [("slow", &slow[..]), ("fast", &fast[..])];
        // name, ours, bar, who sets it, whether it holds
        for (name, ours, bar, best, holds) in [
            ("a rate reached", [3.0, 2.0, 1.9], Bar::AtLeast(1.0), "fast", true),
            ("a rate missed", [3.0, 1.9, 1.9], Bar::AtLeast(1.0), "fast", false),
            ("a time kept", [1.0, 1.0, 2.0], Bar::AtMost(1.0), "slow", true),
            ("a time missed", [1.0, 2.0, 2.0], Bar::AtMost(1.0), "slow", false),
        ] {
            let rows = Row::compare_with_best("x", "s", &ours, &references, bar);
            for row in rows {
                assert_eq!(row.holds, (row.against == best).then_some(holds), "{name}, {}", row.against);
            }
        }
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let row = Row::compare("x", "s", &[1.0, 20.0, 3.0], ("r", &[2.0, 10.0, 3.0]), None);
        assert_eq!((row.ratio, row.spread, row.runs), (1.0, (0.5, 2.0), 3));
    }
}
