//! Which of the grid's relays is to splice the connections of two nodes.

use std::time::Duration;

/// Relays count as equal if their round trips differ by less than this share, or by less than
/// [`TIE`]. Equal relays take turns, which spreads the load.
const TIE_SHARE: f64 = 0.1;
/// The error of a measurement on a busy machine.
const TIE: Duration = Duration::from_millis(1);
/// A relay in use is left for a nearer one if its round trip is longer by more than this share, and
/// by more than [`WORTH_LEAVING`]. Relays that take turns differ by less, so that no trunk goes to and
/// fro.
const WORTH_LEAVING_SHARE: f64 = 0.25;
const WORTH_LEAVING: Duration = Duration::from_millis(3);

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

/// Of relays with the round trips over them, those that are worth leaving for the nearest one of those
/// that take further connections.
pub fn worth_leaving(round_trips: &[(String, Duration)], taking: &[String]) -> Vec<String> {
    let near = round_trips.iter().filter(|(name, _)| taking.contains(name));
    let Some(least) = near.map(|(_, round_trip)| *round_trip).min() else { return Vec::new() };
    let longest = least + WORTH_LEAVING.max(least.mul_f64(WORTH_LEAVING_SHARE));
    let far = round_trips.iter().filter(|(_, round_trip)| *round_trip > longest);
    far.map(|(name, _)| name.clone()).collect()
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
    fn a_relay_is_left_for_one_that_is_much_nearer() {
        for (round_trips, want) in [
            (&[][..], &[][..]),
            (&[("a", 40)], &[]),
            (&[("a", 40), ("b", 10)], &["a"]),
            (&[("a", 40), ("b", 32)], &[]),
            (&[("a", 41), ("b", 32)], &["a"]),
            (&[("a", 4), ("b", 1), ("c", 5)], &["c"]),
        ] {
            let named = |(name, ms): &(&str, u64)| ((*name).to_owned(), Duration::from_millis(*ms));
            let round_trips: Vec<_> = round_trips.iter().map(named).collect();
            let all: Vec<String> = round_trips.iter().map(|(name, _)| name.clone()).collect();
            assert_eq!(worth_leaving(&round_trips, &all), want, "{round_trips:?}");
            assert!(worth_leaving(&round_trips, &[]).is_empty(), "{round_trips:?}");
        }
    }

    #[test]
    fn a_full_relay_is_left_and_not_moved_to() {
        let round_trips = [("far", 40), ("full", 5), ("near", 10)]
            .map(|(name, ms)| (name.to_owned(), Duration::from_millis(ms)));
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(worth_leaving(&round_trips, &names(&["near"])), ["far"]);
        assert_eq!(worth_leaving(&round_trips, &names(&["far"])), names(&[]));
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
