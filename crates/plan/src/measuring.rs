//! Which pairs of sites are to be measured now: round trips often, transfers
//! rarely. Plain data; the caller passes the time.
//!
//! A site takes part in one measurement at a time, with a pause between two. So a
//! site's load doesn't grow with the number of sites; the pairs of many sites take
//! turns over a longer time.

use std::time::Duration;

/// Least time between two measurements of a pair's round trip.
pub(crate) const ROUND_TRIP: Duration = Duration::from_secs(300);
/// Most that is added to [`ROUND_TRIP`], so that pairs that began together drift
/// apart.
pub(crate) const SPREAD: Duration = Duration::from_secs(300);
/// Least time between two measurements of a pair's bandwidth.
pub const TRANSFER: Duration = Duration::from_secs(24 * 3600);
/// Pause between two measurements in which the same site takes part.
pub(crate) const SITE_PAUSE: Duration = Duration::from_secs(10);
/// Pause before a pair is measured again whose measurement is incomplete.
pub const AGAIN: Duration = Duration::from_secs(60);
/// Time limit for one measurement: every step of a plan, and the transfers.
pub const LIMIT: Duration = Duration::from_secs(60);
/// Most transfers that begin at once. Transfers over the same relay would slow each other.
pub(crate) const TRANSFERS_AT_ONCE: usize = 2;

/// A site that takes part in measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Party {
    /// Whether a job runs on one of the site's nodes. Nothing is transferred then.
    pub busy: bool,
    /// Time since the site's last measurement began; `None` if the site was never measured.
    pub last: Option<Duration>,
    /// Whether the site's last measurement is still under way.
    pub measuring: bool,
}

/// Two sites between which is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pair {
    /// The indexes of the two sites among the parties.
    pub parties: [usize; 2],
    /// Time since the pair's last measurement began; `None` if the pair was never measured.
    pub asked: Option<Duration>,
    /// Time since the pair's bandwidth was measured over the way in use; `None` if it wasn't.
    pub transferred: Option<Duration>,
    /// Whether the pair's last measurement found no connection, or had no result.
    pub failed: bool,
    /// Whether one site may reach the other directly, though a relay couldn't reach it. The pair is
    /// to be measured soon.
    pub doubt: bool,
    /// The share of `SPREAD` that is added to pauses, in 1/256. It differs between pairs and from
    /// time to time.
    pub chance: u8,
}

/// A measurement of a pair that is to begin now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task {
    /// The pair's index among the pairs.
    pub pair: usize,
    /// Whether the pair's bandwidth is to be measured, too.
    pub transfer: bool,
}

/// The measurements to begin now: first pairs that were never measured, then those
/// that have waited longest.
pub fn due(parties: &[Party], pairs: &[Pair]) -> Vec<Task> {
    let idle = |party: &Party| !party.measuring && party.last.is_none_or(|last| last >= SITE_PAUSE);
    let mut free: Vec<bool> = parties.iter().map(idle).collect();
    let mut due: Vec<(usize, DueMeasurements, Option<Duration>)> = Vec::new();
    for (index, pair) in pairs.iter().enumerate() {
        let both = pair.parties.map(|party| parties.get(party));
        let [Some(a), Some(b)] = both else { continue };
        let found = due_of(pair, a.busy || b.busy);
        if found.round_trip || found.transfer {
            due.push((index, found, pair.asked));
        }
    }
    due.sort_by_key(|(_, _, asked)| std::cmp::Reverse(asked.unwrap_or(Duration::MAX)));
    let mut transfers = 0;
    let mut tasks = Vec::new();
    for (pair, measurements, _) in due {
        let transfer = measurements.transfer && transfers < TRANSFERS_AT_ONCE;
        let Some(Pair { parties: both, .. }) = pairs.get(pair) else { continue };
        let both_free = both.iter().all(|party| free.get(*party) == Some(&true));
        if !both_free || !(measurements.round_trip || transfer) {
            continue;
        }
        for party in both {
            if let Some(free) = free.get_mut(*party) {
                *free = false;
            }
        }
        transfers += usize::from(transfer);
        tasks.push(Task { pair, transfer });
    }
    tasks
}

/// Which measurements of a pair are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DueMeasurements {
    round_trip: bool,
    transfer: bool,
}

fn due_of(pair: &Pair, busy: bool) -> DueMeasurements {
    let spread = SPREAD * u32::from(pair.chance) / 256;
    let pause = if pair.doubt { AGAIN } else { ROUND_TRIP + spread };
    let round_trip = pair.asked.is_none_or(|asked| asked >= pause);
    let due = !busy && pair.transferred.is_none_or(|then| then >= TRANSFER + spread);
    // A pair without a connection isn't tried more often.
    let soon = !pair.failed && pair.asked.is_none_or(|asked| asked >= AGAIN);
    DueMeasurements { round_trip, transfer: due && (round_trip || soon) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 3600;

    fn seconds(text: &str) -> Option<Duration> {
        (text != "-").then(|| Duration::from_secs(text.parse().unwrap()))
    }

    /// A pair from "ASKED TRANSFERRED [failed] [late]", in seconds ago.
    fn pair(parties: [usize; 2], words: &str) -> Pair {
        let mut words = words.split(' ');
        let (asked, transferred) = (seconds(words.next().unwrap()), seconds(words.next().unwrap()));
        let mut pair = Pair { parties, asked, transferred, ..Pair::default() };
        for word in words {
            match word {
                "failed" => pair.failed = true,
                "doubt" => pair.doubt = true,
                "late" => pair.chance = 128,
                other => panic!("{other}"),
            }
        }
        pair
    }

    #[test]
    fn round_trips_are_frequent_and_transfers_rare_and_none_run_beside_a_job() {
        let day = DAY.to_string();
        for (words, busy, want) in [
            ("- -", false, "round trip, transfer"),
            ("- -", true, "round trip"),
            ("30 30", false, ""),
            ("300 300", false, "round trip"),
            ("300 300 late", false, ""),
            ("450 450 late", false, "round trip"),
            (&format!("30 {day}"), false, ""),
            (&format!("60 {day}"), false, "transfer"),
            (&format!("60 {day}"), true, ""),
            // A transfer was not possible when the round trip was measured.
            ("59 -", false, ""),
            ("60 -", false, "transfer"),
            ("60 -", true, ""),
            ("300 -", true, "round trip"),
            ("59 59 doubt", false, ""),
            ("60 60 doubt", false, "round trip"),
            ("60 - doubt failed", true, "round trip"),
            ("60 - failed", false, ""),
            ("300 - failed", false, "round trip, transfer"),
        ] {
            let DueMeasurements { round_trip, transfer } = due_of(&pair([0, 1], words), busy);
            let found = [(round_trip, "round trip"), (transfer, "transfer")];
            let found: Vec<_> = found.iter().filter(|(is_due, _)| *is_due).map(|(_, what)| *what).collect();
            assert_eq!(found.join(", "), want, "{words}, busy: {busy}");
        }
    }

    #[test]
    fn a_site_takes_part_in_one_at_a_time_and_has_a_pause() {
        let ago = |seconds| Party { last: Some(Duration::from_secs(seconds)), ..Party::default() };
        let [idle, pause] = [ago(10), ago(9)];
        let measuring = Party { measuring: true, ..ago(30) };
        let busy = Party { busy: true, ..ago(10) };
        let never = |a, b| pair([a, b], "- -");
        let task = |pair, transfer| Task { pair, transfer };
        for (name, parties, pairs, want) in [
            ("no parties", vec![], vec![], vec![]),
            ("two", vec![Party::default(); 2], vec![never(0, 1)], vec![task(0, true)]),
            ("pauses", vec![idle, pause], vec![never(0, 1)], vec![]),
            ("measures", vec![idle, measuring], vec![never(0, 1)], vec![]),
            ("runs a job", vec![idle, busy], vec![never(0, 1)], vec![task(0, false)]),
            ("three", vec![idle; 3], vec![never(0, 1), never(0, 2), never(1, 2)], vec![task(0, true)]),
            (
                "four",
                vec![idle; 4],
                vec![never(0, 1), never(0, 2), never(2, 3)],
                vec![task(0, true), task(2, true)],
            ),
            (
                "never measured first, then the oldest",
                vec![idle; 6],
                vec![pair([0, 1], "400 400"), pair([0, 2], "500 500"), pair([3, 4], "900 900"), never(3, 5)],
                vec![task(3, true), task(1, false)],
            ),
            (
                "few transfers at once",
                vec![idle; 6],
                vec![never(0, 1), never(2, 3), never(4, 5)],
                vec![task(0, true), task(1, true), task(2, false)],
            ),
            ("a party that isn't there", vec![idle], vec![never(0, 1)], vec![]),
        ] {
            assert_eq!(due(&parties, &pairs), want, "{name}");
        }
    }

    /// Simulates an hour in which each due measurement is made.
    #[test]
    fn every_pair_of_many_sites_is_measured() {
        const SITES: usize = 12;
        let mut parties = vec![Party::default(); SITES];
        let mut pairs: Vec<Pair> = (0..SITES)
            .flat_map(|a| (a + 1..SITES).map(move |b| Pair { parties: [a, b], ..Pair::default() }))
            .collect();
        let step = Duration::from_secs(5);
        let mut done = vec![0; pairs.len()];
        for _ in 0..(3600 / 5) {
            let tasks = due(&parties, &pairs);
            let mut taking_part = vec![0; SITES];
            for task in tasks {
                done[task.pair] += 1;
                let pair = &mut pairs[task.pair];
                pair.asked = Some(Duration::ZERO);
                if task.transfer {
                    pair.transferred = Some(Duration::ZERO);
                }
                for party in pair.parties {
                    taking_part[party] += 1;
                    parties[party].last = Some(Duration::ZERO);
                }
            }
            assert!(taking_part.iter().all(|times| *times <= 1), "{taking_part:?}");
            let later = |age: &mut Option<Duration>| *age = age.map(|age| age + step);
            parties.iter_mut().for_each(|party| later(&mut party.last));
            for pair in &mut pairs {
                later(&mut pair.asked);
                later(&mut pair.transferred);
            }
        }
        assert!(pairs.iter().all(|pair| pair.transferred.is_some()));
        // Once in five minutes, and some once more for the transfer.
        assert!(done.iter().all(|times| (10..=14).contains(times)), "{done:?}");
    }
}
