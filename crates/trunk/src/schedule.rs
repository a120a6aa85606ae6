//! Which stream sends next: sparse ones first, then deficit round robin (FQ-CoDel,
//! RFC 8290 section 4.2, without CoDel: credit bounds the queues).
//!
//! One difference: a stream that has used less than its quantum may come back to the
//! sparse ones within the same round, with what is left of it. RFC 8290 makes it wait
//! for the round to end, which takes 100 ms with 1,000 busy streams on a link of
//! 1 Gb/s. No stream sends more than a quantum per round, so the shares are the same.

use std::collections::VecDeque;

use crate::StreamId;
use crate::frame::{MAX_FRAME, MAX_PAYLOAD};
use crate::rails::Lane;

/// What a stream may send per round, in bytes of frames: one longest frame.
pub(crate) const QUANTUM: i32 = MAX_FRAME as i32;

/// A stream that has sent more bytes than this within [`LOAD_TIME_MS`] has no small frames: 10
/// Mb/s. Otherwise a stream that is drained as fast as it is filled would seem sparse.
const MOST_LOAD: u32 = 128 << 10;
/// The time, in ms, over which a stream's load counts.
const LOAD_TIME_MS: u32 = 100;

/// The list in which a stream waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum List {
    /// Sparse streams with no more data than one frame.
    Small,
    /// Other sparse streams: they send the first frames of bulk.
    New,
    /// All other streams, which send by turns.
    Old,
}

/// The place of one stream in the schedule.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Scheduled {
    /// In which list of the sparse ones the stream waits; `None` if in neither.
    sparse: Option<Lane>,
    /// Whether the stream has an entry among the others. An entry without data marks the end of the
    /// stream's round.
    old: bool,
    /// Whether the stream had no data when its turn came, and has had none since.
    idle: bool,
    /// How many bytes the stream may still send in this round.
    deficit: i32,
    /// Bytes that the stream has sent of late, as of `load_at`.
    load: u32,
    /// The time of `load`, in ms.
    load_at: u32,
    /// The slice of time in which the stream was counted as busy.
    counted: u32,
}

impl Scheduled {
    /// Bytes that the stream has sent of late: they drain like a leaky bucket.
    fn load(&self, clock_ms: u32) -> u32 {
        let passed = clock_ms.saturating_sub(self.load_at);
        self.load.saturating_sub(passed.saturating_mul(MOST_LOAD / LOAD_TIME_MS))
    }

    /// The lane for a stream's data, of which so many bytes wait.
    pub(crate) fn lane(&self, waiting: usize, clock_ms: u32) -> Lane {
        let small = waiting <= MAX_PAYLOAD && self.load(clock_ms) < MOST_LOAD;
        if small { Lane::Small } else { Lane::Bulk }
    }
}

/// The streams with data, in order.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    small: VecDeque<StreamId>,
    new: VecDeque<StreamId>,
    old: VecDeque<StreamId>,
    /// The last slice of [`LOAD_TIME_MS`], counted from 1, and how many streams have sent bulk in
    /// it.
    busy: (u32, usize),
}

impl Schedule {
    /// Puts a stream that has data for a lane into the schedule. To be called each time that this
    /// may have become so.
    pub(crate) fn add(&mut self, stream: StreamId, scheduled: &mut Scheduled, lane: Lane) {
        match (scheduled.sparse, lane) {
            (Some(Lane::Small), Lane::Bulk) => {
                // The stream's entry among the small ones is void.
                scheduled.sparse = Some(Lane::Bulk);
                self.new.push_back(stream);
                return;
            }
            (Some(_), _) => return,
            (None, _) => {}
        }
        if !scheduled.old {
            scheduled.deficit = QUANTUM;
        } else if scheduled.deficit <= 0 || !scheduled.idle {
            scheduled.idle = false;
            return;
        }
        scheduled.idle = false;
        scheduled.sparse = Some(lane);
        match lane {
            Lane::Small => self.small.push_back(stream),
            Lane::Bulk => self.new.push_back(stream),
        }
    }

    /// The stream at the head of a lane and the list in which it waits; `None` if the lane is
    /// empty. Call [`Self::sent`] or [`Self::had_none`] before the next call.
    pub(crate) fn head(&self, lane: Lane) -> Option<(List, StreamId)> {
        match lane {
            Lane::Small => self.small.front().map(|stream| (List::Small, *stream)),
            Lane::Bulk => {
                let new = self.new.front().map(|stream| (List::New, *stream));
                new.or(self.old.front().map(|stream| (List::Old, *stream)))
            }
        }
    }

    /// How many streams have sent more than small frames of late.
    pub(crate) fn busy(&self) -> usize {
        self.busy.1
    }

    fn pop(&mut self, list: List) -> Option<StreamId> {
        match list {
            List::Small => self.small.pop_front(),
            List::New => self.new.pop_front(),
            List::Old => self.old.pop_front(),
        }
    }

    /// Drops the entry at the head of a list if it is void, or if the stream has used up its round.
    /// Returns whether it is another stream's turn.
    pub(crate) fn turn(&mut self, list: List, scheduled: &mut Scheduled) -> bool {
        if list == List::Small && scheduled.sparse != Some(Lane::Small) {
            self.pop(list);
            return true;
        }
        if scheduled.deficit > 0 {
            return false;
        }
        if list == List::Old {
            scheduled.deficit += QUANTUM;
            self.old.rotate_left(1);
        } else if let Some(stream) = self.pop(list) {
            scheduled.sparse = None;
            if !scheduled.old {
                scheduled.old = true;
                scheduled.deficit += QUANTUM;
                self.old.push_back(stream);
            }
        }
        true
    }

    /// Notes that the stream at the head of a list has sent a frame.
    pub(crate) fn sent(&mut self, list: List, scheduled: &mut Scheduled, bytes: usize, clock_ms: u32) {
        let slice = clock_ms / LOAD_TIME_MS + 1;
        if self.busy.0 != slice {
            self.busy = (slice, 0);
        }
        if list != List::Small && scheduled.counted != slice {
            scheduled.counted = slice;
            self.busy.1 += 1;
        }
        scheduled.deficit -= bytes as i32;
        // Bounded: after a long message the stream soon has small frames again.
        scheduled.load = scheduled.load(clock_ms).saturating_add(bytes as u32).min(2 * MOST_LOAD);
        scheduled.load_at = clock_ms;
    }

    /// Notes that the stream at the head of a list has no data. `scheduled` is `None` if the stream
    /// is gone.
    pub(crate) fn had_none(&mut self, list: List, scheduled: Option<&mut Scheduled>) {
        let (Some(stream), Some(scheduled)) = (self.pop(list), scheduled) else { return };
        if list == List::Old {
            scheduled.old = false;
            return;
        }
        scheduled.sparse = None;
        scheduled.idle = true;
        if !scheduled.old && !self.old.is_empty() {
            scheduled.old = true;
            self.old.push_back(stream);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Streams that have so many bytes to send each, by their schedule.
    struct Streams {
        schedule: Schedule,
        left: BTreeMap<StreamId, (Scheduled, usize)>,
    }

    impl Streams {
        fn new() -> Self {
            Self { schedule: Schedule::default(), left: BTreeMap::new() }
        }

        fn give(&mut self, stream: u64, bytes: usize) {
            let (scheduled, left) = self.left.entry(StreamId(stream)).or_default();
            *left += bytes;
            let lane = scheduled.lane(*left, 0);
            self.schedule.add(StreamId(stream), scheduled, lane);
        }

        fn next(&mut self) -> Option<(u64, usize)> {
            self.next_of(Lane::Small).or_else(|| self.next_of(Lane::Bulk))
        }

        fn next_of(&mut self, lane: Lane) -> Option<(u64, usize)> {
            loop {
                let (list, stream) = self.schedule.head(lane)?;
                let (scheduled, left) = self.left.get_mut(&stream)?;
                if self.schedule.turn(list, scheduled) {
                    continue;
                }
                if *left == 0 {
                    self.schedule.had_none(list, Some(scheduled));
                    continue;
                }
                let bytes = (*left).min(MAX_FRAME);
                *left -= bytes;
                self.schedule.sent(list, scheduled, bytes, 0);
                return Some((stream.0, bytes));
            }
        }
    }

    #[test]
    fn small_frames_and_bulk_are_two_lanes() {
        let mut streams = Streams::new();
        streams.give(0, 2 * MAX_FRAME);
        streams.give(1, 64);
        streams.give(2, 64);
        // It has become bulk before its turn.
        streams.give(2, MAX_FRAME);
        assert_eq!(streams.next_of(Lane::Bulk), Some((0, MAX_FRAME)));
        assert_eq!(streams.next_of(Lane::Small), Some((1, 64)));
        assert_eq!(streams.next_of(Lane::Small), None);
        assert_eq!(streams.next_of(Lane::Bulk), Some((2, MAX_FRAME)));
        // Small again, with a void entry before.
        streams.give(3, 64);
        assert_eq!(streams.next_of(Lane::Small), Some((3, 64)));
        assert_eq!(streams.next_of(Lane::Bulk).map(|(stream, _)| stream), Some(0));
        assert_eq!(streams.schedule.busy(), 2);
    }

    #[test]
    fn a_stream_that_is_drained_as_fast_as_it_is_filled_is_bulk() {
        let mut scheduled = Scheduled::default();
        let mut schedule = Schedule::default();
        assert_eq!(scheduled.lane(MAX_PAYLOAD, 0), Lane::Small);
        assert_eq!(scheduled.lane(MAX_PAYLOAD + 1, 0), Lane::Bulk);
        // The last frame at 90 ms: the first 9 have drained to less.
        for (each_ms, lane) in [(10, Lane::Small), (9, Lane::Small), (1, Lane::Bulk)] {
            scheduled = Scheduled::default();
            for frame in 0..12 {
                schedule.sent(List::Small, &mut scheduled, MAX_FRAME, frame * each_ms);
            }
            assert_eq!(scheduled.lane(64, 11 * each_ms), lane, "a frame each {each_ms} ms");
            assert_eq!(scheduled.lane(64, 11 * each_ms + 2 * LOAD_TIME_MS), Lane::Small);
        }
        assert_eq!(schedule.busy(), 0);
        // A long message is forgotten as soon as a short one.
        for _ in 0..600 {
            schedule.sent(List::Small, &mut scheduled, MAX_FRAME, 1000);
        }
        assert_eq!(scheduled.lane(64, 1000 + LOAD_TIME_MS), Lane::Bulk);
        assert_eq!(scheduled.lane(64, 1000 + LOAD_TIME_MS + 10), Lane::Small);
    }

    #[test]
    fn bulk_streams_take_turns() {
        let mut streams = Streams::new();
        for stream in 0..3 {
            streams.give(stream, 3 * MAX_FRAME);
        }
        let order: Vec<u64> = std::iter::from_fn(|| streams.next()).map(|(stream, _)| stream).collect();
        assert_eq!(order, [0, 1, 2, 0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn a_sparse_stream_overtakes_bulk_again_and_again_within_its_quantum() {
        let mut streams = Streams::new();
        for stream in 0..100 {
            streams.give(stream, 50 * MAX_FRAME);
        }
        for _ in 0..200 {
            streams.next();
        }
        for _ in 0..20 {
            streams.give(1000, 64);
            assert_eq!(streams.next(), Some((1000, 64)));
            assert!(streams.next().is_some_and(|(stream, _)| stream < 100));
        }
    }

    #[test]
    fn a_stream_that_pretends_to_be_sparse_gets_no_more_than_its_share() {
        let mut streams = Streams::new();
        for stream in 0..4 {
            streams.give(stream, 1000 * MAX_FRAME);
        }
        let (mut own, mut all) = (0, 0);
        for _ in 0..2000 {
            // As much as it may, in small pieces.
            streams.give(9, MAX_FRAME / 4);
            let Some((stream, bytes)) = streams.next() else { break };
            all += bytes;
            own += if stream == 9 { bytes } else { 0 };
        }
        let share = own as f64 / all as f64;
        assert!((0.19..0.21).contains(&share), "{share}");
    }

    #[test]
    fn bulk_streams_that_get_more_data_stay_behind_sparse_ones() {
        let mut streams = Streams::new();
        for stream in 0..50 {
            streams.give(stream, 4 * MAX_FRAME);
        }
        for _ in 0..100 {
            streams.next();
        }
        for round in 0..50 {
            for stream in 0..50 {
                streams.give(stream, MAX_FRAME);
            }
            streams.give(100 + round, 64);
            assert_eq!(streams.next(), Some((100 + round, 64)));
            streams.next();
        }
    }
}
