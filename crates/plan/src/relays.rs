//! Which of the grid's relays is to splice the connections of two nodes.

use std::time::Duration;

/// Relays count as equal if their round trips differ by less than this share, or by less than
/// [`TIE`]. Equal relays take turns, which spreads the load.
const TIE_SHARE: f64 = 0.1;
/// The error of a measurement on a busy machine.
const TIE: Duration = Duration::from_millis(1);

/// A relay as the two nodes see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Candidate {
    /// The round trip from one node over the relay to the other node, as the sum of both nodes'
    /// round trips to the relay. `None` if either is unknown.
    pub round_trip: Option<Duration>,
    /// Whether one of the nodes could not reach the relay at the node's last attempt.
    pub unreached: bool,
    /// Whether the relay has just failed for these nodes.
    pub failed: bool,
    /// Whether the relay takes no further connection.
    pub full: bool,
}

/// The indexes of the best relays: all that are about as near as the nearest. A
/// relay at an unknown distance is taken only if no distance is known. A relay that
/// a node didn't reach, that has failed, or that is full, is taken only if there is no other.
pub fn nearest(candidates: &[Candidate]) -> Vec<usize> {
    let fit = fit(candidates);
    let distance = |index: &usize| candidates.get(*index).and_then(|candidate| candidate.round_trip);
    match fit.iter().filter_map(distance).min() {
        Some(least) => {
            let near = |index: &usize| distance(index).is_some_and(|trip| !much_longer(trip, least));
            fit.into_iter().filter(near).collect()
        }
        None => fit,
    }
}

/// Whether a round trip is longer than `than` by more than the error of measurement.
pub(crate) fn much_longer(round_trip: Duration, than: Duration) -> bool {
    round_trip > than + TIE.max(than.mul_f64(TIE_SHARE))
}

/// The indexes of the relays that can be expected to work, whatever their round trips.
pub fn fit(candidates: &[Candidate]) -> Vec<usize> {
    let bad = |candidate: &Candidate| (candidate.full, candidate.failed, candidate.unreached);
    let least = candidates.iter().map(bad).min();
    let indexed = candidates.iter().enumerate();
    indexed.filter(|(_, candidate)| Some(bad(candidate)) == least).map(|(index, _)| index).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(word: &str) -> Candidate {
        let mut candidate = Candidate::default();
        for part in word.split('+') {
            match part {
                "?" => {}
                "unreached" => candidate.unreached = true,
                "failed" => candidate.failed = true,
                "full" => candidate.full = true,
                number => candidate.round_trip = Some(Duration::from_micros(number.parse().unwrap())),
            }
        }
        candidate
    }

    #[test]
    fn nearest_and_working_relays() {
        for (candidates, near, working) in [
            ("", vec![], vec![]),
            ("?", vec![0], vec![0]),
            ("? ?", vec![0, 1], vec![0, 1]),
            ("20000 10000 30000", vec![1], vec![0, 1, 2]),
            ("10000 10900 11500", vec![0, 1], vec![0, 1, 2]),
            ("100 1000 5000", vec![0, 1], vec![0, 1, 2]),
            ("? 40000", vec![1], vec![0, 1]),
            ("10000+failed 20000", vec![1], vec![1]),
            ("10000+failed ?", vec![1], vec![1]),
            ("unreached 20000 ?", vec![1], vec![1, 2]),
            ("unreached unreached", vec![0, 1], vec![0, 1]),
            ("10000+failed 20000+failed", vec![0], vec![0, 1]),
            ("unreached 20000+failed", vec![0], vec![0]),
            ("10000+full 20000", vec![1], vec![1]),
            ("10000+full 20000+failed", vec![1], vec![1]),
            ("10000+full 20000+full", vec![0], vec![0, 1]),
        ] {
            let found: Vec<_> = candidates.split_whitespace().map(candidate).collect();
            assert_eq!((nearest(&found), fit(&found)), (near, working), "{candidates}");
        }
    }
}
