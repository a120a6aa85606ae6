//! Judges how long the other side has been silent. Pure.
//!
//! On a machine whose cores are taken by spinning ranks agents are late, and not dead. So two kinds
//! of lateness don't count: this side's own, and the other side's recent lateness, which its
//! heartbeats report.

use std::time::Duration;

/// Time between two heartbeats.
pub const INTERVAL: Duration = Duration::from_millis(500);
/// How much longer than the tolerance the other side may be silent. The last heartbeat before a cut
/// may be one interval old. After the cut, TCP waits before it sends again what was lost, and
/// another connection takes a moment.
const MARGIN: Duration = Duration::from_secs(1);
/// How long a connection is silent before another is tried beside it.
const DOUBT: Duration = Duration::from_millis(1500);
/// Most bytes of heartbeats that the other side's kernel may leave unacknowledged before another
/// connection is tried: those of [`DOUBT`]. After a cut the other side may be heard long before TCP
/// sends again what the other side is to hear.
const UNHEARD_BYTES: usize = 12;
/// Pause between attempts to make another connection. The second value holds once the silence has
/// lasted for [`LONG`].
const REDIAL: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(1)];
const LONG: Duration = Duration::from_secs(10);
/// Longest extension of the limit by the other side's lateness.
const EXTENSION_MAX: Duration = Duration::from_secs(25);
/// The extension by a late heartbeat, as a multiple of its lateness.
const EXTENSION: u32 = 2;
/// Number of heartbeats after which a lateness counts half: about 11 s.
const HALF_LIFE: u32 = 22;

/// How long the other side of a connection has been silent.
#[derive(Debug, Clone)]
pub struct Silence {
    tolerance: Duration,
    quiet: Duration,
    worst: Duration,
    age: u32,
    unheard_bytes: usize,
}

impl Silence {
    /// The silence of a side that is heard just now. A cut that is no longer than the tolerance
    /// doesn't make the side count as lost.
    pub fn new(tolerance: Duration) -> Self {
        Self { tolerance, quiet: Duration::ZERO, worst: Duration::ZERO, age: 0, unheard_bytes: 0 }
    }

    /// Takes in that time has passed since the last call. Time beyond an interval is this side's
    /// own lateness.
    pub fn passed(&mut self, time: Duration) {
        self.quiet += time.min(INTERVAL);
    }

    /// Takes in that a heartbeat has arrived, with its sender's lateness.
    pub fn received(&mut self, lateness: Duration) {
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

    /// Takes in that there is a new connection: the other side has answered.
    pub fn connected(&mut self) {
        self.received(Duration::ZERO);
        self.unheard_bytes = 0;
    }

    /// Takes in how many bytes of heartbeats wait for the other side to acknowledge them.
    pub fn unheard(&mut self, bytes: usize) {
        self.unheard_bytes = bytes;
    }

    /// How long the silence has lasted, if it is too long.
    pub fn lost(&self) -> Option<Duration> {
        let limit = self.tolerance + MARGIN + (self.worst * EXTENSION).min(EXTENSION_MAX);
        (self.quiet >= limit).then_some(self.quiet)
    }

    /// Whether the connection itself may be at fault. TCP sends again what the connection has lost,
    /// after pauses that double.
    pub fn is_doubtful(&self) -> bool {
        self.quiet >= DOUBT
    }

    /// Whether another connection is to be tried.
    pub fn wants_another(&self) -> bool {
        self.is_doubtful() || self.unheard_bytes > UNHEARD_BYTES
    }

    /// Pause between attempts to make another connection.
    pub fn redial(&self) -> Duration {
        let [short, long] = REDIAL;
        if self.quiet < LONG { short } else { long }
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

    /// How long it takes, in seconds of this side, until the other side is judged lost.
    fn lost_after(tolerance_seconds: u64, events: &[Event]) -> u64 {
        let mut silence = Silence::new(Duration::from_secs(tolerance_seconds));
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
            ("never a heartbeat", &[][..], 6),
            ("heartbeats in time", &[Passed(500), Received(0), Passed(500), Received(0)], 6),
            ("this side slept for an hour", &[Received(0), Passed(3_600_000)], 5),
            ("the other side was late by 2 s", &[Received(2000)], 10),
            (
                "its heartbeat took long",
                &[Passed(500), Passed(500), Passed(500), Passed(500), Received(0)],
                8,
            ),
            ("late beyond reason", &[Received(3_600_000)], 31),
            ("it has recovered", &recovered, 6),
        ] {
            assert_eq!(lost_after(5, events), want, "{name}");
            assert_eq!(lost_after(35, events), want + 30, "{name}, with patience");
        }
    }

    #[test]
    fn another_connection_is_tried_long_before_the_end() {
        let mut silence = Silence::new(Duration::from_secs(60));
        let mut seen = Vec::new();
        for ticks in 1_u64..=30 {
            silence.passed(INTERVAL);
            if seen.last().is_none_or(|(_, last)| *last != (silence.is_doubtful(), silence.redial())) {
                seen.push((ticks * 500, (silence.is_doubtful(), silence.redial())));
            }
        }
        let [short, long] = REDIAL;
        assert_eq!(seen, [(500, (false, short)), (1500, (true, short)), (10_000, (true, long))]);
        silence.received(Duration::ZERO);
        assert!(!silence.is_doubtful() && !silence.wants_another());
    }

    #[test]
    fn another_connection_is_tried_if_the_other_side_does_not_hear() {
        let mut silence = Silence::new(Duration::from_secs(5));
        for (bytes, want) in [(12, false), (16, true)] {
            silence.unheard(bytes);
            silence.received(Duration::ZERO);
            assert_eq!((silence.wants_another(), silence.is_doubtful()), (want, false), "{bytes}");
        }
        silence.connected();
        assert!(!silence.wants_another());
    }
}
