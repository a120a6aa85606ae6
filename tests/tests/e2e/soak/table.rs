//! What docs/design.md promises for each fault: the outcomes in the table of "What dies".

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

/// Heading of the section that has the table.
const SECTION: &str = "## What dies";
/// Heading of the column that the soak reads.
const COLUMN: &str = "outcome";

/// What becomes of a running job under a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The job goes on, and ends right.
    Lives,
    /// The job ends everywhere within this time.
    EndsWithin(Duration),
    /// The job goes on if the fault is over before the time of `--outlive`, and ends otherwise.
    WaitsForOutlive,
}

/// The outcomes by the texts of the table's first column, which names the fault.
pub(super) fn outcomes(page: &str) -> Result<BTreeMap<String, Outcome>> {
    let section = page.lines().skip_while(|line| *line != SECTION).skip(1);
    let section = section.take_while(|line| !line.starts_with("## "));
    let mut rows = section.skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let head = cells(rows.next().with_context(|| format!("no table in {SECTION:?}"))?);
    let column = head.iter().position(|cell| *cell == COLUMN);
    let column = column.with_context(|| format!("no column {COLUMN:?} in the table of {SECTION:?}"))?;
    let mut found = BTreeMap::new();
    // The first one is the line below the headings.
    for row in rows.skip(1) {
        let cells = cells(row);
        ensure!(cells.len() == head.len(), "another number of cells than in the heading: {row}");
        let (Some(name), Some(text)) = (cells.first(), cells.get(column)) else { bail!("no cells: {row}") };
        let outcome = outcome(text).with_context(|| format!("row {name:?}"))?;
        ensure!(found.insert((*name).to_owned(), outcome).is_none(), "two rows {name:?}");
    }
    Ok(found)
}

fn cells(row: &str) -> Vec<&str> {
    let inner = row.trim().strip_prefix('|').and_then(|row| row.strip_suffix('|')).unwrap_or(row);
    inner.split('|').map(str::trim).collect()
}

fn outcome(text: &str) -> Result<Outcome> {
    if text == "lives" {
        return Ok(Outcome::Lives);
    }
    if text == "waits up to `--outlive`" {
        return Ok(Outcome::WaitsForOutlive);
    }
    let seconds = text.strip_prefix("ends within ").and_then(|text| text.strip_suffix(" s"));
    let seconds = seconds.and_then(|text| text.parse::<u64>().ok());
    let seconds = seconds.with_context(|| {
        format!("{text:?} is none of \"lives\", \"ends within N s\", \"waits up to `--outlive`\"")
    })?;
    Ok(Outcome::EndsWithin(Duration::from_secs(seconds)))
}

#[test]
fn outcomes_are_read_from_the_table() -> Result<()> {
    let page = "## Before\n| a | outcome |\n|---|---|\n| x | lives |\n\n## What dies\nText.\n\
                | dies | outcome | more |\n|---|---|---|\n| broker | lives | a |\n\
                | agent | ends within 10 s | – |\n| network | waits up to `--outlive` | b |\n\n\
                | other | table | here |\n## After\n";
    let found = outcomes(page)?;
    let want = [
        ("broker", Outcome::Lives),
        ("agent", Outcome::EndsWithin(Duration::from_secs(10))),
        ("network", Outcome::WaitsForOutlive),
    ];
    let want: BTreeMap<_, _> = want.into_iter().map(|(name, outcome)| (name.to_owned(), outcome)).collect();
    ensure!(found == want, "{found:?}");
    for (wrong, reason) in [
        ("", "no table"),
        ("## What dies\n## After\n| a | outcome |\n", "no table"),
        ("## What dies\n| a | b |\n|---|---|\n", "no column"),
        ("## What dies\n| a | outcome |\n|---|---|\n| x | goes on |\n", "row \"x\""),
        ("## What dies\n| a | outcome |\n|---|---|\n| x | ends within a s |\n", "row \"x\""),
        ("## What dies\n| a | outcome |\n|---|---|\n| x |\n", "another number"),
        ("## What dies\n| a | outcome |\n|---|---|\n| x | lives |\n| x | lives |\n", "two rows"),
    ] {
        let error = outcomes(wrong).err().with_context(|| format!("{wrong:?} is read"))?;
        ensure!(format!("{error:#}").contains(reason), "{wrong:?}: {error:#}");
    }
    Ok(())
}
