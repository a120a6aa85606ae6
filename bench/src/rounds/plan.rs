//! How long a benchmark takes until its rows are decided, by what earlier rounds show. Pure.

use std::fmt;
use std::time::Duration;

use super::Case;
use crate::verdict::median;

/// What a benchmark has to do.
#[derive(Debug, Default)]
pub(super) struct Plan {
    labs: usize,
    rows: usize,
    /// Rows with a bar, and how many of them are decided.
    judged: usize,
    decided: usize,
    /// Cases that are too near to their bar.
    endless: usize,
    open: Vec<Open>,
}

/// A case that isn't done.
#[derive(Debug, Clone, Copy)]
struct Open {
    rounds: usize,
    /// How long a round takes, if one was measured.
    seconds: Option<f64>,
}

impl Plan {
    /// The plan for so many grids side by side.
    pub(super) fn new(labs: usize) -> Self {
        Self { labs, ..Self::default() }
    }

    /// Adds cases, which have at most so many further rounds.
    pub(super) fn add<C>(&mut self, cases: &mut [Case<C>], most: usize) {
        for case in cases {
            let rows: Vec<_> = case.rows().collect();
            self.rows += rows.len();
            self.judged += rows.iter().filter(|row| row.comparison.bar.is_some()).count();
            self.decided += rows.iter().filter(|row| row.is_decided()).count();
            if case.is_done(most) {
                continue;
            }
            let rounds = case.rounds_left().filter(|rounds| *rounds <= most);
            self.endless += usize::from(rounds.is_none());
            self.open.push(Open { rounds: rounds.unwrap_or(most), seconds: case.seconds });
        }
    }

    /// Seconds of a round: of those cases that were measured, the middle one. `None` if none was.
    fn round_seconds(&self) -> Option<f64> {
        let known: Vec<f64> = self.open.iter().filter_map(|open| open.seconds).collect();
        (!known.is_empty()).then(|| median(&known))
    }

    /// How long it takes until all cases are done. A case that was never measured takes as long as
    /// the middle one of the others. `None` if no case was measured.
    fn time(&self) -> Option<Duration> {
        let middle = self.round_seconds()?;
        let seconds =
            self.open.iter().map(|open| open.rounds as f64 * open.seconds.unwrap_or(middle)).sum::<f64>();
        Duration::try_from_secs_f64(seconds / self.labs.max(1) as f64).ok()
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rounds: usize = self.open.iter().map(|open| open.rounds).sum();
        write!(f, "{} rows, {} with a bar, {} of them decided; ", self.rows, self.judged, self.decided)?;
        write!(f, "{} cases open, {rounds} rounds of them", self.open.len())?;
        if let (Some(seconds), Some(time)) = (self.round_seconds(), self.time()) {
            let unknown = self.open.iter().filter(|open| open.seconds.is_none()).count();
            write!(f, ", {seconds:.1} s each: {:.1} h", time.as_secs_f64() / 3600.0)?;
            if unknown > 0 {
                write!(f, " ({unknown} cases were never timed)")?;
            }
        } else if !self.open.is_empty() {
            write!(f, ", never timed")?;
        }
        if self.endless > 0 {
            write!(f, "; {} cases too near to their bar", self.endless)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_add_up() {
        let open = |rounds, seconds| Open { rounds, seconds };
        let plan = |labs, open: &[Open]| Plan { labs, open: open.to_vec(), ..Plan::default() };
        let cases = [open(5, Some(10.0)), open(3, None), open(2, Some(10.0))];
        for (name, plan, want) in [
            ("none was timed", plan(1, &cases[1..2]), None),
            ("all were", plan(1, &[cases[0], cases[2]]), Some(70)),
            ("one was not", plan(1, &cases), Some(100)),
            ("side by side", plan(2, &cases), Some(50)),
        ] {
            assert_eq!(plan.time(), want.map(Duration::from_secs), "{name}");
        }
        assert!(
            plan(1, &cases)
                .to_string()
                .contains("3 cases open, 10 rounds of them, 10.0 s each: 0.0 h (1 cases")
        );
    }
}
