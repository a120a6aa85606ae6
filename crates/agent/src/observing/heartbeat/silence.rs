//! Judges how long the other side has been silent. Pure.
//!
//! On a machine whose cores are taken by spinning ranks agents are late, and not
//! dead. So two kinds of lateness don't count: this side's own, and the other side's
//! recent one, which its heartbeats report.

use std::time::Duration;

/// Time between two heartbeats.
pub(crate) const INTERVAL: Duration = Duration::from_millis(500);
/// Silence after which the other side is lost: ten heartbeats. So a job ends within
/// 10 s of a loss.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);
/// Longest extension of the limit by lateness.
const EXTENSION_MAX: Duration = Duration::from_secs(25);
/// The extension by a late heartbeat, as a multiple of its lateness.
const EXTENSION: u32 = 2;
/// Number of heartbeats after which a lateness counts half: about 11 s.
const HALF_LIFE: u32 = 22;

/// The silence of one other side.
#[derive(Debug, Clone, Default)]
pub(crate) struct Silence {
    quiet: Duration,
    worst: Duration,
    age: u32,
}

impl Silence {
    /// Time has passed since the last call. Time beyond one interval is this side's
    /// own lateness.
    pub(crate) fn passed(&mut self, time: Duration) {
        self.quiet += time.min(INTERVAL);
    }

    /// A heartbeat has arrived, with its sender's lateness.
    pub(crate) fn received(&mut self, lateness: Duration) {
        let late = lateness.max(self.quiet.saturating_sub(2 * INTERVAL));
        self.quiet = Duration::ZERO;
        self.age += 1;
        if self.age >= HALF_LIFE {
            self.worst /= 2;
            self.age = 0;
        }
        if late >= self.worst {
            self.worst = late;
            self.age = 0;
        }
    }

    /// The time of silence, if it is too long.
    pub(crate) fn lost(&self) -> Option<Duration> {
        let limit = LIMIT + (self.worst * EXTENSION).min(EXTENSION_MAX);
        (self.quiet >= limit).then_some(self.quiet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Time passes, or a heartbeat arrives with its lateness, in milliseconds.
    #[derive(Clone, Copy)]
    enum Event {
        Passed(u32),
        Received(u32),
    }
    use Event::{Passed, Received};

    /// Time of this side until it judges the other lost, in seconds.
    fn lost_after(events: &[Event]) -> u64 {
        let mut silence = Silence::default();
        for event in events {
            assert_eq!(silence.lost(), None);
            match event {
                Passed(ms) => silence.passed(*ms * MS),
                Received(ms) => silence.received(*ms * MS),
            }
        }
        let mut ticks = 0;
        while silence.lost().is_none() {
            silence.passed(INTERVAL);
            ticks += 1;
        }
        ticks / 2
    }

    #[test]
    fn lateness_of_either_side_is_not_silence() {
        let recovered: Vec<Event> = [Received(4000)].into_iter().chain([Received(0); 100]).collect();
        for (name, events, want) in [
            ("never a heartbeat", &[][..], 5),
            ("heartbeats in time", &[Passed(500), Received(0), Passed(500), Received(0)], 5),
            ("this side slept for an hour", &[Received(0), Passed(3_600_000)], 4),
            ("the other side was late by 2 s", &[Received(2000)], 9),
            (
                "its heartbeat took long",
                &[Passed(500), Passed(500), Passed(500), Passed(500), Received(0)],
                7,
            ),
            ("late beyond reason", &[Received(3_600_000)], 30),
            ("it has recovered", &recovered, 5),
        ] {
            assert_eq!(lost_after(events), want, "{name}");
        }
    }
}
