//! How many tasks a member asks for ahead, so that it never waits for its parent.

use std::time::Duration;

/// Most tasks that wait at a member for itself.
const MOST_AHEAD: f64 = 4096.0;
/// How much more than a round trip's work is asked for: round trips vary.
const MARGIN: f64 = 1.5;
/// Below this share of a task, waiting for the next one costs nothing that counts. A task that waits at
/// one worker while another is idle may cost much.
const NEGLIGIBLE: f64 = 0.02;
/// Weight of the last measurement in an average.
const WEIGHT: f64 = 0.25;

/// An average in which later measurements count more.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Average(Option<f64>);

impl Average {
    pub(crate) fn note(&mut self, duration: Duration) {
        let now = duration.as_secs_f64();
        self.0 = Some(self.0.map_or(now, |average| average + WEIGHT * (now - average)));
    }

    /// In seconds. `None` before the first measurement.
    pub(crate) fn seconds(self) -> Option<f64> {
        self.0
    }
}

/// Tasks per second of a worker that runs `slots` tasks at once.
pub(crate) fn rate(slots: u32, task: Average) -> f64 {
    // Tasks that take no time at all would make it infinite.
    task.seconds().map_or(0.0, |seconds| f64::from(slots) / seconds.max(1e-6))
}

/// How many tasks wait at a member, so that as many are there as it and all below it get done, with
/// `rate`, until further ones have come. `slots` are the tasks that it and all below it run at once. They
/// may all end at the same moment.
pub(crate) fn ahead(rate: f64, round_trip: Average, slots: u64) -> u64 {
    let needed = rate * round_trip.seconds().unwrap_or_default();
    if needed < NEGLIGIBLE * slots as f64 {
        return 0;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and MOST_AHEAD")]
    let tasks = (needed * MARGIN + slots as f64).ceil().min(MOST_AHEAD) as u64;
    tasks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_ahead() {
        for (rate, round_trip_ms, slots, want) in [
            (0.0, 20, 4, 0),
            // Tasks of a minute aren't asked for ahead.
            (1.0 / 60.0, 20, 1, 0),
            // Four slots with tasks of 10 ms, and a round trip of 20 ms.
            (400.0, 20, 4, 16),
            // Tasks of 100 ms within a site.
            (10.0, 1, 1, 0),
            (10.0, 10, 1, 2),
            (1e9, 100, 500, 4096),
        ] {
            let mut round_trip = Average::default();
            round_trip.note(Duration::from_millis(round_trip_ms));
            assert_eq!(ahead(rate, round_trip, slots), want, "{rate} {round_trip_ms} {slots}");
        }
        assert_eq!(ahead(100.0, Average::default(), 1), 0, "no round trip is known");
    }

    #[test]
    fn averages_follow() {
        let mut average = Average::default();
        assert_eq!(rate(2, average), 0.0);
        average.note(Duration::from_secs(1));
        assert_eq!(rate(2, average), 2.0);
        (0..20).for_each(|_| average.note(Duration::from_millis(100)));
        assert!((rate(2, average) - 20.0).abs() < 1.0);
    }
}
