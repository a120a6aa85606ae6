//! What benchmarks implement to be measured in rounds.

use std::fmt;

use crate::report::Pair;

/// The error of a measurement that doesn't count although it didn't fail. The place where it was
/// made wasn't what it should be.
#[derive(Debug)]
pub(crate) struct Void(pub String);

impl fmt::Display for Void {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Void {}

/// What measures the cases of a benchmark's part.
pub(crate) trait Experiment {
    /// The description of a measurement.
    type Case;

    /// Measures a case. Returns isthmus's figure and the reference's for each of its rows.
    ///
    /// # Errors
    /// The case can't be measured, and the row gets the reason. [`Void`] if the measurement doesn't
    /// count.
    fn measure(&mut self, case: &Self::Case, round: usize) -> anyhow::Result<Vec<Pair>>;

    /// What gave isthmus's figures in the last measurement that didn't fail, for each row. A round in
    /// which it is something else than in earlier ones doesn't count.
    fn how(&self) -> Vec<Option<String>> {
        Vec::new()
    }

    /// Whether other programs that use the machine make a measurement void. A simulation gives the
    /// same figures all the same.
    fn needs_quiet(&self) -> bool {
        true
    }

    /// Names of programs that poll while they wait, as MPIs' ranks do. In slow motion, what these use
    /// isn't counted. They let others run.
    fn polling(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether the experiment can go on after a failed measurement. If not, it is made anew.
    fn survives_failure(&self) -> bool {
        true
    }

    /// Ends the experiment, and checks that it did what was to be measured.
    ///
    /// # Errors
    /// It didn't. Then no round counts.
    fn finish(self) -> anyhow::Result<()>
    where
        Self: Sized,
    {
        Ok(())
    }
}

/// Measures both sides, and in every second round the reference (1) before isthmus (0).
///
/// # Errors
/// A side can't be measured.
pub(crate) fn in_turns<T>(
    round: usize,
    mut one: impl FnMut(usize) -> anyhow::Result<T>,
) -> anyhow::Result<[T; 2]> {
    let first = round % 2;
    let (found, other) = (one(first)?, one(1 - first)?);
    Ok(if first == 0 { [found, other] } else { [other, found] })
}

/// Pairs the figures of isthmus with those of the reference.
pub(crate) fn pair_up(ours: &[f64], reference: &[f64]) -> Vec<[f64; 2]> {
    ours.iter().zip(reference).map(|(ours, reference)| [*ours, *reference]).collect()
}
