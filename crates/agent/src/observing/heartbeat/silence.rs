//! How long the other side has been silent: a pure judgement.
//!
//! A machine whose cores are taken by spinning ranks makes agents late, and a
//! late agent is not a dead one. So two kinds of lateness don't count: this
//! side's own (time in which nobody here could have listened), and the other
//! side's recent one, which it tells with every heartbeat.

use std::time::Duration;

/// Time between two heartbeats.
pub const INTERVAL: Duration = Duration::from_millis(500);
/// Silence after which the other side is lost: ten heartbeats. With the time that
/// ending takes it leaves a job gone within 10 s.
pub const LIMIT: Duration = Duration::from_secs(5);
/// Longest time by which lateness extends that.
const EXTENSION_MAX: Duration = Duration::from_secs(25);
/// What a late heartbeat adds to the limit, as a multiple of its lateness.
const EXTENSION: u32 = 2;
/// Heartbeats after which a lateness counts half: about 11 s.
const HALF_LIFE: u32 = 22;

/// The silence of one other side.
#[derive(Debug, Clone, Default)]
pub struct Silence {
    quiet: Duration,
    worst: Duration,
    age: u32,
}

impl Silence {
    /// This much time has passed since the last call. What is more than one
    /// interval is this side's own lateness.
    pub fn passed(&mut self, time: Duration) {
        self.quiet += time.min(INTERVAL);
    }

    /// A heartbeat came; its sender says by how much it was late.
    pub fn heard(&mut self, lateness: Duration) {
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

    /// How long it has been silent, if that is too long.
    pub fn lost(&self) -> Option<Duration> {
        let limit = LIMIT + (self.worst * EXTENSION).min(EXTENSION_MAX);
        (self.quiet >= limit).then_some(self.quiet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// What happens: time passes, or a heartbeat comes that is late by so much.
    #[derive(Clone, Copy)]
    enum Event {
        Passed(u32),
        Heard(u32),
    }
    use Event::{Heard, Passed};

    /// Time of this side until it judges the other lost, in seconds.
    fn lost_after(events: &[Event]) -> u64 {
        let mut silence = Silence::default();
        for event in events {
            assert_eq!(silence.lost(), None);
            match event {
                Passed(ms) => silence.passed(*ms * MS),
                Heard(ms) => silence.heard(*ms * MS),
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
    fn silence_is_judged_by_what_both_sides_could_do() {
        let recovered: Vec<Event> = [Heard(4000)].into_iter().chain([Heard(0); 100]).collect();
        for (name, events, want) in [
            ("never a heartbeat", &[][..], 5),
            ("heartbeats in time", &[Passed(500), Heard(0), Passed(500), Heard(0)], 5),
            ("this side slept for an hour", &[Heard(0), Passed(3_600_000)], 4),
            ("the other side was late by 2 s", &[Heard(2000)], 9),
            ("its heartbeat took long", &[Passed(500), Passed(500), Passed(500), Passed(500), Heard(0)], 7),
            ("late beyond reason", &[Heard(3_600_000)], 30),
            ("it has recovered", &recovered, 5),
        ] {
            assert_eq!(lost_after(events), want, "{name}");
        }
    }
}
