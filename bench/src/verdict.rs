//! Whether a ratio meets its bar: median, interval, verdict. Pure.
//!
//! Rounds add up over many runs, and one looks after each round whether to go on. An interval for
//! a fixed number of rounds would then be wrong more often than it says. These intervals are
//! right at all times at once: a sequence of confidence intervals for the median (Howard and
//! Ramdas, *Sequential estimation of quantiles*, Bernoulli 28, 2022). The test is one by betting.
//! A round is as likely above the median as below it. Who bets on one of the two keeps 20 times
//! the stake, ever, with a probability of at most 5 % (Ville's inequality).

use std::fmt;

use serde::{Deserialize, Serialize};

/// How many rounds a row with a bar needs at least. Fewer rounds bound nothing: no bet on them wins
/// enough.
pub(crate) const LEAST_ROUNDS: usize = 5;
/// Probability that an end of the interval is ever on the wrong side of the true median. A bar has
/// a single wrong side, so it is also the probability of a wrong verdict.
const WRONG: f64 = 0.05;
/// The bets: on which share of rounds on one side, and how much of the stake. The first wins enough
/// when [`LEAST_ROUNDS`] rounds agree. The others win where some rounds differ.
const BETS: [(f64, f64); 5] = [(1.0, 0.63), (0.92, 0.08), (0.82, 0.11), (0.73, 0.10), (0.64, 0.08)];

/// Limit of a ratio of isthmus's figure to the reference's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bar {
    /// The ratio mustn't be above this, as with times and costs.
    AtMost(f64),
    /// The ratio mustn't be below this, as with rates.
    AtLeast(f64),
    /// The ratio mustn't differ from 1 by more than this, as with two ways to measure the same.
    Near(f64),
}

impl Bar {
    /// Whether a ratio meets the bar.
    pub(crate) fn holds(self, ratio: f64) -> bool {
        match self {
            Self::AtMost(most) => ratio <= most,
            Self::AtLeast(least) => ratio >= least,
            Self::Near(most) => (ratio - 1.0).abs() <= most,
        }
    }

    /// Whether all ratios from `low` to `high` miss the bar.
    fn is_missed(self, low: f64, high: f64) -> bool {
        match self {
            Self::AtMost(most) => low > most,
            Self::AtLeast(least) => high < least,
            Self::Near(most) => low > 1.0 + most || high < 1.0 - most,
        }
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |limit: f64| (limit * 1e3).round() / 1e3;
        match self {
            Self::AtMost(most) => write!(f, "≤ {}", short(*most)),
            Self::AtLeast(least) => write!(f, "≥ {}", short(*least)),
            Self::Near(most) => write!(f, "1 ± {}", short(*most)),
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
    Some(match interval(ratios) {
        Some((low, high)) if bar.holds(low) && bar.holds(high) => Verdict::Yes,
        Some((low, high)) if bar.is_missed(low, high) => Verdict::No,
        _ => Verdict::Undecided,
    })
}

/// The interval of the median: from a lower to an upper bound, each of which is right at all times
/// with a probability of 95 %. `None` with fewer than [`LEAST_ROUNDS`] values.
pub(crate) fn interval(values: &[f64]) -> Option<(f64, f64)> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    // The bound leaves as many values on its one side as are needed to refute what is beyond it.
    let needed = (0..=count).find(|agreeing| winnings(count, *agreeing) >= 1.0 / WRONG)?;
    Some((*sorted.get(count - needed)?, *sorted.get(needed.checked_sub(1)?)?))
}

/// Most rounds that are foreseen. A row that needs more is too near to its bar.
const MOST_FORESEEN: usize = 100;

/// How many rounds a row needs in all until it is decided, if further rounds meet the bar as often
/// as those so far. `None` if they are too many.
pub(crate) fn rounds_needed(bar: Bar, ratios: &[f64]) -> Option<usize> {
    let count = ratios.len();
    if !matches!(judge(Some(bar), ratios), Some(Verdict::Undecided | Verdict::NotMeasured)) {
        return Some(count);
    }
    let holding = ratios.iter().filter(|ratio| bar.holds(**ratio)).count();
    let agreeing = holding.max(count - holding);
    // Before there are many rounds, one that differs may be a chance.
    let share = (agreeing as f64 + 1.0) / (count as f64 + 1.0);
    (LEAST_ROUNDS.max(count + 1)..=MOST_FORESEEN)
        .find(|all| winnings(*all, agreeing + ((all - count) as f64 * share).round() as usize) >= 1.0 / WRONG)
}

/// What the bets bring, as a multiple of the stake, when `agreeing` of `count` rounds are on the
/// side that was bet on.
fn winnings(count: usize, agreeing: usize) -> f64 {
    let [agreeing, differing] =
        [agreeing, count - agreeing].map(|rounds| i32::try_from(rounds).unwrap_or(i32::MAX));
    let of = |(share, stake): &(f64, f64)| {
        stake * (2.0 * share).powi(agreeing) * (2.0 - 2.0 * share).powi(differing)
    };
    BETS.iter().map(of).sum()
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
    use proptest::prelude::*;

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
        let many = |count: u32| (1..=count).map(f64::from).collect::<Vec<_>>();
        for (name, values, want) in [
            ("none", vec![], None),
            ("too few", vec![1.0; LEAST_ROUNDS - 1], None),
            ("equal values", vec![2.0; LEAST_ROUNDS], Some((2.0, 2.0))),
            ("few values: their range", many(11), Some((1.0, 11.0))),
            ("one may differ", many(12), Some((2.0, 11.0))),
            // An interval for exactly 30 or 60 values, of the same ends: 11 to 20, 24 to 37.
            ("more values", many(30), Some((7.0, 24.0))),
            ("many values", many(60), Some((19.0, 42.0))),
            ("their order has no weight", vec![3.0, 1.0, 2.0, 5.0, 4.0], Some((1.0, 5.0))),
        ] {
            assert_eq!(interval(&values), want, "{name}");
        }
        assert!((BETS.iter().map(|(_, stake)| stake).sum::<f64>() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn who_looks_after_each_round_is_seldom_wrong() {
        // Rounds whose true median is 1, with a bar there: a verdict is wrong for one of two bars.
        const RUNS: u32 = 4000;
        let mut random = fastrand::Rng::with_seed(7);
        let mut wrong = 0;
        for _ in 0..RUNS {
            let (mut above, mut is_wrong) = (0, false);
            for count in 1..=200 {
                above += usize::from(random.bool());
                is_wrong |= winnings(count, above) >= 1.0 / WRONG;
            }
            wrong += u32::from(is_wrong);
        }
        let share = f64::from(wrong) / f64::from(RUNS);
        assert!((0.02..=WRONG).contains(&share), "{share}");
    }

    proptest! {
        #[test]
        fn the_interval_holds_the_median_and_is_of_the_values(values in prop::collection::vec(0.01f64..100.0, 0..80)) {
            match interval(&values) {
                None => prop_assert!(values.len() < LEAST_ROUNDS),
                Some((low, high)) => {
                    prop_assert!(values.contains(&low) && values.contains(&high));
                    prop_assert!(low <= median(&values) && median(&values) <= high);
                }
            }
        }

        #[test]
        fn a_verdict_is_the_same_for_the_inverse(values in prop::collection::vec(0.5f64..2.0, 1..40)) {
            let inverse: Vec<f64> = values.iter().map(|value| 1.0 / value).collect();
            prop_assert_eq!(judge(Some(Bar::AtMost(1.0)), &values), judge(Some(Bar::AtLeast(1.0)), &inverse));
        }
    }

    #[test]
    fn rounds_that_are_foreseen() {
        let bar = Bar::AtMost(1.0);
        let of = |holding: usize, missing: usize| [vec![0.9; holding], vec![1.1; missing]].concat();
        for (name, ratios, want) in [
            ("none yet", vec![], Some(5)),
            ("some that agree", of(2, 0), Some(5)),
            ("decided", of(5, 0), Some(5)),
            ("decided with more", of(9, 0), Some(9)),
            ("decided against", of(0, 6), Some(6)),
            ("too near the bar", of(30, 30), None),
        ] {
            assert_eq!(rounds_needed(bar, &ratios), want, "{name}");
        }
        let one_differs = rounds_needed(bar, &of(4, 1)).unwrap();
        assert!((10..=30).contains(&one_differs), "{one_differs}");
    }

    #[test]
    fn verdicts() {
        let most = Some(Bar::AtMost(1.0));
        let least = Some(Bar::AtLeast(1.2));
        let near = Some(Bar::Near(0.05));
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
            ("near", near, &[0.98, 1.02, 1.01, 1.0, 0.99], Some(Verdict::Yes)),
            ("too far above", near, &[1.06, 1.07, 1.06, 1.08, 1.06], Some(Verdict::No)),
            ("too far below", near, &[0.9; 5], Some(Verdict::No)),
            ("near or not", near, &[0.9, 1.1, 1.0, 1.0, 1.0], Some(Verdict::Undecided)),
            ("a rate around", least, &[1.1, 1.3, 1.1, 1.3, 1.2], Some(Verdict::Undecided)),
        ] {
            assert_eq!(judge(bar, ratios), want, "{name}");
        }
    }
}
