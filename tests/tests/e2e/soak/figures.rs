//! What a soak of jobs measured, by the rows of docs/design.md's table.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::verdict::Seen;

/// What was seen of a kind of fault.
#[derive(Debug, Default)]
struct Row {
    /// The longest pause of each job that went on.
    pauses: Vec<Duration>,
    /// The time from the fault's beginning to the end of each job that ended.
    ends: Vec<Duration>,
}

/// What was seen of all kinds of faults, by their rows.
#[derive(Debug, Default)]
pub(super) struct Figures(BTreeMap<&'static str, Row>);

impl Figures {
    pub(super) fn add(&mut self, row: &'static str, seen: &Seen) {
        let row = self.0.entry(row).or_default();
        match seen {
            Seen::Lived { pause } => row.pauses.push(*pause),
            Seen::Ended { took, .. } => row.ends.push(*took),
        }
    }

    /// A table as text, with a line per row.
    pub(super) fn text(&self) -> String {
        let width = self.0.keys().map(|name| name.chars().count()).max().unwrap_or_default();
        let mut text = format!(
            "{:width$}  times  pauses: median  longest  ends: number  median  longest\n",
            "what breaks"
        );
        for (name, row) in &self.0 {
            let times = row.pauses.len() + row.ends.len();
            let ([median, longest], ends) = (shown(&row.pauses), row.ends.len());
            let _ = write!(text, "{name:width$}  {times:5}  {median:>14}  {longest:>7}");
            let [median, longest] = shown(&row.ends);
            let _ = writeln!(text, "  {ends:12}  {median:>6}  {longest:>7}");
        }
        text
    }

    /// An object per row, with times in seconds. They are null where there are none.
    pub(super) fn json(&self) -> Value {
        let rows = self.0.iter().map(|(name, row)| {
            let [pause, longest_pause] = seconds(&row.pauses);
            let [end, longest_end] = seconds(&row.ends);
            json!({
                "breaks": name,
                "times": row.pauses.len() + row.ends.len(),
                "pause_median_seconds": pause,
                "pause_longest_seconds": longest_pause,
                "ends": row.ends.len(),
                "end_median_seconds": end,
                "end_longest_seconds": longest_end,
            })
        });
        rows.collect()
    }
}

/// Median and longest of the times, in seconds. `None` if there are none.
fn seconds(times: &[Duration]) -> [Option<f64>; 2] {
    let mut times = times.to_vec();
    times.sort_unstable();
    // Of an even number of times, the median is the shorter of the two in the middle.
    let median = times.get(times.len().saturating_sub(1) / 2);
    [median, times.last()].map(|time| time.map(Duration::as_secs_f64))
}

fn shown(times: &[Duration]) -> [String; 2] {
    seconds(times).map(|time| time.map_or_else(|| "–".to_owned(), |time| format!("{time:.1} s")))
}

#[test]
fn figures_are_summed_up_by_row() {
    let mut figures = Figures::default();
    for seconds in [4, 1, 2] {
        figures.add("broker", &Seen::Lived { pause: Duration::from_secs(seconds) });
    }
    let ended = Seen::Ended { took: Duration::from_millis(1500), status: 1, printed: String::new() };
    figures.add("agent", &ended);
    let want = json!([
        {"breaks": "agent", "times": 1, "pause_median_seconds": null, "pause_longest_seconds": null,
         "ends": 1, "end_median_seconds": 1.5, "end_longest_seconds": 1.5},
        {"breaks": "broker", "times": 3, "pause_median_seconds": 2.0, "pause_longest_seconds": 4.0,
         "ends": 0, "end_median_seconds": null, "end_longest_seconds": null},
    ]);
    assert_eq!(figures.json(), want);
    let text = figures.text();
    let lines: Vec<Vec<_>> = text.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["agent", "1", "–", "–", "1", "1.5", "s", "1.5", "s"]);
    assert_eq!(lines[1], ["broker", "3", "2.0", "s", "4.0", "s", "0", "–", "–"]);
}
