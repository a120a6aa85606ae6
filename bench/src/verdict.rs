//! Whether a ratio meets its bar: median, bootstrap interval, verdict. Pure.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How many rounds a row with a bar needs at least. The interval of fewer rounds is little more
/// than their lowest and highest ratio.
pub(crate) const LEAST_ROUNDS: usize = 5;
/// How many samples the bootstrap draws.
const RESAMPLES: usize = 4000;
/// Share of the bootstrap's medians that the interval covers.
const CONFIDENCE: f64 = 0.95;
/// Seed of the bootstrap, so that the same rounds give the same interval.
const SEED: u64 = 0x6973_7468_6d75_7321;

/// Limit of a ratio of isthmus's figure to the reference's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bar {
    /// The ratio mustn't be above this, as with times and costs.
    AtMost(f64),
    /// The ratio mustn't be below this, as with rates.
    AtLeast(f64),
}

impl Bar {
    /// Whether a ratio meets the bar.
    pub(crate) fn holds(self, ratio: f64) -> bool {
        match self {
            Self::AtMost(most) => ratio <= most,
            Self::AtLeast(least) => ratio >= least,
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

/// Whether a bar holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// The whole interval meets the bar.
    Yes,
    /// The whole interval misses the bar.
    No,
    /// The interval straddles the bar, or fewer than [`LEAST_ROUNDS`] rounds count.
    Undecided,
    /// No round gave a figure.
    NotMeasured,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Yes => "yes",
            Self::No => "NO",
            Self::Undecided => "undecided",
            Self::NotMeasured => "not measured",
        })
    }
}

/// Judges the rounds' ratios. `None` for a row without a bar that was measured.
pub(crate) fn judge(bar: Option<Bar>, ratios: &[f64]) -> Option<Verdict> {
    if ratios.is_empty() {
        return Some(Verdict::NotMeasured);
    }
    let bar = bar?;
    let (low, high) = interval(ratios);
    Some(match (bar.holds(low), bar.holds(high)) {
        _ if ratios.len() < LEAST_ROUNDS => Verdict::Undecided,
        (true, true) => Verdict::Yes,
        (false, false) => Verdict::No,
        _ => Verdict::Undecided,
    })
}

/// The 95 % interval of the median by the percentile bootstrap (Efron and
/// Tibshirani, *An Introduction to the Bootstrap*, chapter 13).
pub(crate) fn interval(values: &[f64]) -> (f64, f64) {
    if values.is_empty() {
        return (f64::NAN, f64::NAN);
    }
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let sample: Vec<f64> = values.iter().map(|_| values[random.usize(..values.len())]).collect();
            median(&sample)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    let cut = (RESAMPLES as f64 * (1.0 - CONFIDENCE) / 2.0) as usize;
    (medians[cut], medians[RESAMPLES - 1 - cut])
}

/// The middle value, or the mean of the two values in the middle. Not a number if there are none.
pub(crate) fn median(values: &[f64]) -> f64 {
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
    fn intervals() {
        let wide: Vec<f64> = (0..40).map(f64::from).collect();
        for (name, values, low, high) in [
            ("equal values", &[2.0; 5][..], (2.0, 2.0), (2.0, 2.0)),
            ("few values: their range", &[1.0, 2.0, 3.0], (1.0, 1.0), (3.0, 3.0)),
            // The normal approximation gives ranks 14 and 27 of 40.
            ("many values", &wide, (11.0, 16.0), (23.0, 28.0)),
            ("an outlier has no weight", &[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 90.0], (1.0, 1.0), (1.0, 1.0)),
        ] {
            let found = interval(values);
            assert!(found.0 >= low.0 && found.0 <= low.1, "{name}: {found:?}");
            assert!(found.1 >= high.0 && found.1 <= high.1, "{name}: {found:?}");
            assert_eq!(found, interval(values), "{name}: not reproducible");
        }
    }

    #[test]
    fn verdicts() {
        let most = Some(Bar::AtMost(1.0));
        let least = Some(Bar::AtLeast(1.2));
        for (name, bar, ratios, want) in [
            ("nothing measured", most, &[][..], Some(Verdict::NotMeasured)),
            ("nothing measured, no bar", None, &[], Some(Verdict::NotMeasured)),
            ("no bar", None, &[1.0; 5], None),
            ("a time within", most, &[0.8, 0.9, 0.8, 0.9, 0.8], Some(Verdict::Yes)),
            ("a time at the bar", most, &[1.0; 5], Some(Verdict::Yes)),
            ("a time above", most, &[1.1, 1.2, 1.1, 1.1, 1.1], Some(Verdict::No)),
            ("a time around", most, &[0.8, 1.2, 0.9, 1.1, 1.0], Some(Verdict::Undecided)),
            ("too few rounds", most, &[0.1; LEAST_ROUNDS - 1], Some(Verdict::Undecided)),
            ("a rate reached", least, &[1.3; 5], Some(Verdict::Yes)),
            ("a rate missed", least, &[1.1; 5], Some(Verdict::No)),
            ("a rate around", least, &[1.1, 1.3, 1.1, 1.3, 1.2], Some(Verdict::Undecided)),
        ] {
            assert_eq!(judge(bar, ratios), want, "{name}");
        }
    }
}
