//! Which stream sends next: sparse ones first, then deficit round robin (FQ-CoDel,
//! RFC 8290 section 4.2, without CoDel: credit bounds the queues).
//!
//! One difference: a stream that has used less than its quantum may come back to the
//! sparse ones within the same round, with what is left of it. RFC 8290 makes it wait
//! for the round to end, which takes 100 ms with 1,000 busy streams on a link of
//! 1 Gb/s. No stream sends more than a quantum per round, so the shares are the same.

use std::collections::VecDeque;

use crate::StreamId;
use crate::frame::MAX_FRAME;

/// What a stream may send per round, in bytes of frames: one longest frame.
pub(crate) const QUANTUM: i64 = MAX_FRAME as i64;

/// The place of one stream in the schedule.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Place {
    /// It is among the sparse ones.
    sparse: bool,
    /// It is among the others; an entry without data marks the end of its round.
    bulk: bool,
    /// It had no data when its turn came, and none since.
    idle: bool,
    /// Bytes that it may still send in this round.
    deficit: i64,
}

/// The streams with data, in order.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    sparse: VecDeque<StreamId>,
    bulk: VecDeque<StreamId>,
}

impl Schedule {
    /// A stream has data. Call it each time that it may have become so.
    pub(crate) fn add(&mut self, stream: StreamId, place: &mut Place) {
        if place.sparse {
            return;
        }
        if !place.bulk {
            place.deficit = QUANTUM;
        } else if place.deficit <= 0 || !place.idle {
            place.idle = false;
            return;
        }
        place.idle = false;
        place.sparse = true;
        self.sparse.push_back(stream);
    }

    /// The stream whose turn it is, if it has data. Call [`Self::sent`], or else
    /// [`Self::had_none`], before the next.
    pub(crate) fn head(&self) -> Option<StreamId> {
        self.sparse.front().or(self.bulk.front()).copied()
    }

    /// The stream at the head has used up its round. `true` if another's turn comes.
    pub(crate) fn turn(&mut self, place: &mut Place) -> bool {
        if place.deficit > 0 {
            return false;
        }
        match self.sparse.pop_front() {
            Some(stream) => {
                place.sparse = false;
                if !place.bulk {
                    place.bulk = true;
                    place.deficit += QUANTUM;
                    self.bulk.push_back(stream);
                }
            }
            None => {
                place.deficit += QUANTUM;
                self.bulk.rotate_left(1);
            }
        }
        true
    }

    /// The stream at the head has sent a frame.
    pub(crate) fn sent(&mut self, place: &mut Place, bytes: usize) {
        place.deficit -= bytes as i64;
    }

    /// The stream at the head has no data. `None` as its place: it is gone.
    pub(crate) fn had_none(&mut self, place: Option<&mut Place>) {
        let from_sparse = self.sparse.pop_front();
        let popped = from_sparse.or_else(|| self.bulk.pop_front());
        let (Some(stream), Some(place)) = (popped, place) else { return };
        if from_sparse.is_none() {
            place.bulk = false;
            return;
        }
        place.sparse = false;
        place.idle = true;
        if !place.bulk && !self.bulk.is_empty() {
            place.bulk = true;
            self.bulk.push_back(stream);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Streams with this many bytes to send each.
    struct Streams {
        schedule: Schedule,
        left: BTreeMap<StreamId, (Place, usize)>,
    }

    impl Streams {
        fn new() -> Self {
            Self { schedule: Schedule::default(), left: BTreeMap::new() }
        }

        fn give(&mut self, stream: u64, bytes: usize) {
            let (place, left) = self.left.entry(StreamId(stream)).or_default();
            *left += bytes;
            self.schedule.add(StreamId(stream), place);
        }

        fn next(&mut self) -> Option<(u64, usize)> {
            loop {
                let stream = self.schedule.head()?;
                let (place, left) = self.left.get_mut(&stream)?;
                if self.schedule.turn(place) {
                    continue;
                }
                if *left == 0 {
                    self.schedule.had_none(Some(place));
                    continue;
                }
                let bytes = (*left).min(MAX_FRAME);
                *left -= bytes;
                self.schedule.sent(place, bytes);
                return Some((stream.0, bytes));
            }
        }
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
