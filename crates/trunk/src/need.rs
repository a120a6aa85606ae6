//! How many carriers a trunk needs.

use std::time::{Duration, Instant};

/// How many carriers for bulk a busy trunk needs if the process may set BBR. With several, each
/// paces by the most that it ever had of the link. Together they would send more than the link
/// carries, and fill its queue.
const BBR_CARRIERS: usize = 1;
/// Most carriers for bulk without BBR. With fewer than one per busy stream, a trunk over a path
/// that loses packets is slower than connections of their own.
pub(crate) const MOST_CARRIERS: usize = 16;
/// For how long a need that is over is still met.
pub(crate) const NEED_TIME: Duration = Duration::from_secs(60);
/// Streams that have large frames within this time count as busy at once.
const AT_ONCE: Duration = Duration::from_millis(100);
/// A trunk that has carried fewer bytes is young: it may be over before another carrier
/// is dialed.
pub(crate) const YOUNG: u64 = 256 << 10;

/// How the kernel controls congestion of an end's sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Congestion {
    /// The kernel has BBR for the sockets.
    Bbr,
    /// The kernel has another congestion control, which loss slows down.
    #[default]
    Other,
}

/// The carriers that the dialing end should keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// How many carriers for bulk: 1 to 16.
    pub bulk: usize,
    /// Whether there should be one more carrier, for small frames.
    pub small: bool,
}

impl Wanted {
    /// What an idle trunk needs.
    pub const LEAST: Self = Self { bulk: 1, small: false };

    /// Wants at least one carrier for bulk on each of so many rails, while the trunk is busy.
    pub(crate) fn on_rails(self, rails: usize) -> Self {
        Self { bulk: if self.small { self.bulk.max(rails) } else { self.bulk }, ..self }
    }
}

/// When each number of carriers was last of use: one more than the index.
#[derive(Debug, Default)]
pub(crate) struct Last([Option<Instant>; MOST_CARRIERS]);

impl Last {
    /// Notes that so many carriers are of use.
    pub(crate) fn note(&mut self, carriers: usize, now: Instant) {
        if let Some(index) = carriers.min(MOST_CARRIERS).checked_sub(1) {
            self.0[index] = Some(now);
        }
    }

    /// The most carriers that were of use within [`NEED_TIME`].
    pub(crate) fn most(&self, now: Instant) -> usize {
        let of_late = |last: &Option<Instant>| last.is_some_and(|last| now < last + NEED_TIME);
        self.0.iter().rposition(of_late).map_or(0, |index| index + 1)
    }
}

/// How many streams were busy at once, and when, from which follows what the trunk needs.
#[derive(Debug, Default)]
pub(crate) struct Need {
    /// When so many streams were last busy at once.
    last: Last,
    /// How many streams have had large frames in this interval, in either direction.
    at_once: usize,
    /// When this interval began; `None` before the first.
    since: Option<Instant>,
    /// The number of this interval, from 1.
    interval: u32,
}

impl Need {
    /// Notes that so many streams have more data than fits into a frame.
    pub(crate) fn observe(&mut self, busy: usize, now: Instant) {
        self.last.note(busy, now);
    }

    /// Notes that a large frame of a stream has come, or gone out. `counted` is the interval in
    /// which the stream was last counted, at first 0.
    pub(crate) fn passed(&mut self, counted: &mut u32, now: Instant) {
        if self.since.is_none_or(|since| since + AT_ONCE <= now) {
            (self.at_once, self.since) = (0, Some(now));
            self.interval = self.interval.wrapping_add(1).max(1);
        }
        if *counted != self.interval {
            *counted = self.interval;
            self.at_once += 1;
            self.observe(self.at_once, now);
        }
    }

    /// The carriers that a trunk needs which has carried so many bytes. While it is busy, it needs
    /// at least `of_use` for bulk.
    pub(crate) fn wanted(&self, carried: u64, congestion: Congestion, of_use: usize, now: Instant) -> Wanted {
        let busy = if carried < YOUNG { 0 } else { self.last.most(now) };
        let bulk = match (busy, congestion) {
            (0, _) => 1,
            (_, Congestion::Bbr) => BBR_CARRIERS.max(of_use),
            (busy, Congestion::Other) => busy.max(of_use),
        };
        Wanted { bulk, small: busy > 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_with_large_frames_count_as_busy() {
        let (begun, mut need, mut streams) = (Instant::now(), Need::default(), [0; 3]);
        // Milliseconds; the stream; how many are busy at once.
        for (ms, stream, busy) in [(0, 0, 1), (1, 0, 1), (2, 1, 2), (99, 2, 3), (100, 0, 3), (101, 1, 3)] {
            let now = begun + Duration::from_millis(ms);
            need.passed(&mut streams[stream], now);
            assert_eq!(need.last.most(now), busy, "{ms}");
        }
        assert_eq!(need.at_once, 2);
    }

    #[test]
    fn a_busy_trunk_wants_a_carrier_on_each_rail() {
        for (bulk, small, rails, want) in
            [(1, false, 3, 1), (1, true, 3, 3), (4, true, 3, 4), (4, true, 1, 4), (1, true, 1, 1)]
        {
            let wanted = Wanted { bulk, small };
            assert_eq!(wanted.on_rails(rails), Wanted { bulk: want, small }, "{wanted:?} {rails}");
        }
    }

    #[test]
    fn how_many_carriers_are_wanted() {
        use Congestion::{Bbr, Other};
        let day = 86_400;
        // Seconds and busy streams; the time; bytes carried; how many carriers would be of use;
        // carriers for bulk, one for small frames.
        for (name, observed, second, carried, congestion, of_use, bulk, small) in [
            ("idle", vec![], 0, 1 << 30, Other, 0, 1, false),
            ("none is busy", vec![(0, 0)], 0, 1 << 30, Bbr, 0, 1, false),
            ("young", vec![(0, 9)], 0, YOUNG - 1, Other, 0, 1, false),
            ("at once", vec![(0, 9)], 0, YOUNG, Other, 0, 9, true),
            ("one busy", vec![(5, 1)], 5, YOUNG, Other, 0, 1, true),
            ("one busy, BBR", vec![(5, 1)], 5, YOUNG, Bbr, 0, 1, true),
            ("a hundred busy", vec![(5, 100)], 5, YOUNG, Other, 0, 16, true),
            ("a hundred busy, BBR", vec![(5, 100)], 5, YOUNG, Bbr, 0, 1, true),
            ("less since", vec![(0, 9), (30, 2)], 59, YOUNG, Other, 0, 9, true),
            ("less for a minute", vec![(0, 9), (30, 2)], 60, YOUNG, Other, 0, 2, true),
            ("nothing for a minute", vec![(0, 9), (30, 2)], 90, YOUNG, Other, 0, 1, false),
            ("more again", vec![(0, 9), (70, 2), (80, 5)], 81, YOUNG, Other, 0, 5, true),
            ("one busy, slower than its path", vec![(5, 1)], 5, YOUNG, Other, 6, 6, true),
            ("one busy, BBR, slower than its path", vec![(5, 1)], 5, YOUNG, Bbr, 2, 2, true),
            ("more busy than that", vec![(5, 9)], 5, YOUNG, Other, 6, 9, true),
            ("none is busy, slower than its path", vec![(0, 0)], 0, 1 << 30, Other, 6, 1, false),
            ("the next day", vec![(0, 9)], day, YOUNG, Bbr, 0, 1, false),
        ] {
            let (begun, mut need) = (Instant::now(), Need::default());
            for (second, busy) in observed {
                need.observe(busy, begun + Duration::from_secs(second));
            }
            let wanted = need.wanted(carried, congestion, of_use, begun + Duration::from_secs(second));
            assert_eq!(wanted, Wanted { bulk, small }, "{name}");
        }
    }
}
