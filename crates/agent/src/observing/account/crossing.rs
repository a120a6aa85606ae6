//! For how long data is under way between two nodes. It is an estimate: what is sent is taken to arrive
//! half a round trip later, and what comes to have been sent half a round trip before. Large pieces that
//! follow one another are taken for one flow, which a slow link stretches.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use isthmus_service::lock;

/// Least bytes of a large piece.
const LARGE: u64 = 8 << 10;
/// Longest time between two pieces of a flow: 64 KiB at 2 Mb/s.
const WITHIN: Duration = Duration::from_millis(250);

/// The time in which data of one job was under way to another node or back.
#[derive(Debug, Default)]
pub(super) struct Crossing(Mutex<Counted>);

#[derive(Debug, Default)]
struct Counted {
    /// The shortest set-up of a connection so far: a round trip, and more for the first connection.
    round_trip: Option<Duration>,
    /// Until when all is counted.
    until: Option<Instant>,
    /// When the last piece was sent, and when the last one came, if these were large.
    flows: [Option<Instant>; 2],
    total: Duration,
}

impl Crossing {
    /// Notes how long it took to set a connection up.
    pub(super) fn set_up(&self, took: Duration) {
        let mut counted = lock(&self.0);
        counted.round_trip = Some(counted.round_trip.map_or(took, |least| least.min(took)));
    }

    pub(super) fn sent(&self, bytes: u64, now: Instant) {
        let mut counted = lock(&self.0);
        let (from, to) = (counted.flow(0, bytes, now).unwrap_or(now), now + counted.one_way());
        counted.add(from, to);
    }

    pub(super) fn received(&self, bytes: u64, now: Instant) {
        let mut counted = lock(&self.0);
        let begun = now.checked_sub(counted.one_way()).unwrap_or(now);
        let from = counted.flow(1, bytes, now).map_or(begun, |before| before.min(begun));
        counted.add(from, now);
    }

    pub(super) fn total(&self) -> Duration {
        lock(&self.0).total
    }
}

impl Counted {
    fn one_way(&self) -> Duration {
        self.round_trip.unwrap_or_default() / 2
    }

    /// When the piece before this one of the same flow was sent or came; `None` if this begins one.
    fn flow(&mut self, direction: usize, bytes: u64, now: Instant) -> Option<Instant> {
        let last = &mut self.flows[direction];
        let before = std::mem::replace(last, (bytes >= LARGE).then_some(now));
        before.filter(|before| bytes >= LARGE && now.saturating_duration_since(*before) <= WITHIN)
    }

    /// Adds what of a time isn't counted yet.
    fn add(&mut self, from: Instant, to: Instant) {
        let from = self.until.map_or(from, |until| until.max(from));
        if to > from {
            self.total += to - from;
            self.until = Some(to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_overlap_count_once() {
        // `s` sends and `r` receives a byte, `S` and `R` 64 KiB, so many ms after the begin; a round trip
        // takes 10 ms.
        for (name, events, want_ms) in [
            ("nothing", "", 0),
            ("one message", "s0", 5),
            ("one that comes", "r100", 5),
            ("a question and its answer", "s0 r10", 10),
            ("two apart", "s0 s100", 10),
            ("a stream", "s0 s3 s6 s9", 14),
            ("both ways at once", "s0 r4 s5 r6", 10),
            ("answers to what was sent long before", "s0 r10 r11 r12", 12),
            ("a flow over a slow link", "R0 R50 R100", 105),
            ("a flow there", "S0 S50 S100", 105),
            ("large pieces that don't follow one another", "R0 R500", 10),
            ("a large piece long before a small one", "R0 r100", 10),
        ] {
            let (crossing, begin) = (Crossing::default(), Instant::now() + Duration::from_secs(1));
            for setup in [40, 10, 12] {
                crossing.set_up(Duration::from_millis(setup));
            }
            for event in events.split_whitespace() {
                let (what, ms) = event.split_at(1);
                let at = begin + Duration::from_millis(ms.parse().unwrap());
                let bytes = if matches!(what, "S" | "R") { 64 << 10 } else { 1 };
                if matches!(what, "s" | "S") {
                    crossing.sent(bytes, at)
                } else {
                    crossing.received(bytes, at)
                }
            }
            assert_eq!(crossing.total(), Duration::from_millis(want_ms), "{name}");
        }
    }
}
