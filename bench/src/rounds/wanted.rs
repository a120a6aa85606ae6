//! Which rows a run measures. Pure.

use std::convert::Infallible;
use std::str::FromStr;

use crate::report::Row;
use crate::verdict::Verdict;

/// A condition for the rows that a run measures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Rows without a decision: those that are undecided, were never measured, or were measured with
    /// other sources.
    Undecided,
    /// Rows whose bar doesn't hold. More rounds may decide otherwise.
    Missed,
    /// Rows with this in their name.
    Named(String),
}

impl FromStr for Wanted {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "undecided" => Self::Undecided,
            "missed" => Self::Missed,
            name => Self::Named(name.to_owned()),
        })
    }
}

impl Wanted {
    /// Whether a row is wanted, as it is before the run. The row of a first run has no rounds.
    pub(super) fn wants(&self, row: &Row) -> bool {
        match self {
            Self::Undecided => {
                row.older.is_some() || matches!(row.verdict, Some(Verdict::Undecided | Verdict::NotMeasured))
            }
            Self::Missed => row.verdict == Some(Verdict::No),
            Self::Named(name) => row.comparison.what.contains(name.as_str()),
        }
    }
}

/// Whether a case is measured: if one of its rows is all that is wanted.
pub(super) fn is_wanted(wanted: &[Wanted], rows: &[Row]) -> bool {
    rows.iter().any(|row| wanted.iter().all(|one| one.wants(row)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Comparison;
    use crate::verdict::Bar;

    #[test]
    fn rows_by_name_and_by_verdict() {
        let row = |what: &str, ours: f64, rounds: usize| {
            let bar = Bar::AtMost(1.0);
            Row::new(Comparison::new(what, "s", "one").bar(bar), &vec![[ours, 1.0]; rounds])
        };
        let older = Row { older: Some("c0ffee".into()), ..row("barrier", 0.5, 5) };
        for (wanted, row, want) in [
            (&[][..], row("bcast", 0.5, 5), true),
            (&["undecided"], row("bcast", 0.5, 5), false),
            (&["undecided"], row("bcast", 0.5, 4), true),
            (&["undecided"], row("bcast", 0.5, 0), true),
            (&["undecided"], older, true),
            (&["missed"], row("bcast", 1.5, 5), true),
            (&["missed"], row("bcast", 0.5, 5), false),
            (&["missed"], row("bcast", 1.5, 0), false),
            (&["cast"], row("bcast", 0.5, 5), true),
            (&["barrier"], row("bcast", 0.5, 5), false),
            (&["cast", "missed"], row("bcast", 0.5, 5), false),
            (&["cast", "missed"], row("bcast", 1.5, 5), true),
        ] {
            let conditions: Vec<Wanted> = wanted.iter().map(|text| text.parse().unwrap()).collect();
            assert_eq!(is_wanted(&conditions, &[row]), want, "{wanted:?}");
        }
    }
}
