//! Puts the data of one direction in order: frames arrive over several carriers, and
//! again after a cut. Duplicates are dropped by offset.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::{Buf, Bytes};

use crate::chunks::Chunks;

/// The bytes of one direction that have arrived.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    /// Bytes that have arrived in order, and are not read yet.
    pub(crate) ready: Chunks,
    /// The offset behind `ready`.
    next: u64,
    /// Bytes that have arrived behind a hole, by offset. No two entries touch.
    beyond: BTreeMap<u64, Chunks>,
}

impl Reassembly {
    /// The offset of the first byte that has not arrived.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// The offset behind the last byte that has arrived.
    pub(crate) fn highest(&self) -> u64 {
        self.beyond.last_key_value().map_or(self.next, |(start, run)| end(*start, run))
    }

    /// How many holes there are: each is at least one frame that has not arrived.
    pub(crate) fn holes(&self) -> usize {
        self.beyond.len()
    }

    /// How many bytes have arrived and are not read.
    pub(crate) fn unread(&self) -> usize {
        self.ready.len() + self.beyond.values().map(Chunks::len).sum::<usize>()
    }

    /// Drops all bytes, and takes no more.
    pub(crate) fn clear(&mut self) {
        self.ready.clear();
        self.beyond.clear();
    }

    /// Takes data at an offset; returns how many bytes of it are new. The caller has checked that
    /// offset and length together are in range.
    pub(crate) fn insert(&mut self, mut offset: u64, mut data: Bytes) -> u64 {
        let mut new = 0;
        loop {
            // Bytes that are in order already are skipped; each piece may have added to them.
            let known = self.next.saturating_sub(offset).min(data.len() as u64);
            data.advance(known as usize);
            offset += known;
            if data.is_empty() {
                return new;
            }
            if offset == self.next && self.beyond.is_empty() {
                new += data.len() as u64;
                self.next += data.len() as u64;
                self.ready.push_back(data);
                return new;
            }
            // Bytes that a run before has already are skipped.
            let before = self.beyond.range(..=offset).next_back();
            if let Some(known) = before.and_then(|(start, run)| end(*start, run).checked_sub(offset))
                && known > 0
            {
                let known = known.min(data.len() as u64);
                data.advance(known as usize);
                offset += known;
                continue;
            }
            let after = self.beyond.range((Bound::Excluded(offset), Bound::Unbounded)).next();
            let room = after.map_or(u64::MAX, |(start, _)| start - offset).min(data.len() as u64);
            self.fill(offset, data.split_to(room as usize));
            new += room;
            offset += room;
        }
    }

    /// Puts a piece into a hole that is at least as large.
    fn fill(&mut self, offset: u64, piece: Bytes) {
        let behind = offset + piece.len() as u64;
        let follower = self.beyond.remove(&behind);
        if offset == self.next {
            self.ready.push_back(piece);
            self.next = behind;
            if let Some(run) = follower {
                self.next += run.len() as u64;
                self.ready.append(run);
            }
            return;
        }
        let touching =
            self.beyond.range_mut(..offset).next_back().filter(|(start, run)| end(**start, run) == offset);
        let run = match touching {
            Some((_, run)) => run,
            None => self.beyond.entry(offset).or_default(),
        };
        run.push_back(piece);
        if let Some(follower) = follower {
            run.append(follower);
        }
    }
}

fn end(start: u64, run: &Chunks) -> u64 {
    start + run.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn content(range: std::ops::Range<u64>) -> Bytes {
        range.map(|offset| (offset * 7 % 251) as u8).collect()
    }

    #[test]
    fn a_duplicate_changes_nothing() {
        let mut data = Reassembly::default();
        for _ in 0..2 {
            data.insert(0, content(0..10));
            assert_eq!((data.next(), data.ready.len(), data.holes()), (10, 10, 0));
        }
        for _ in 0..2 {
            data.insert(20, content(20..30));
            assert_eq!((data.next(), data.unread(), data.holes()), (10, 20, 1));
        }
    }

    #[test]
    fn a_hole_is_filled_and_runs_that_touch_are_one() {
        let mut data = Reassembly::default();
        for (start, behind, holes) in [(30, 40, 1), (10, 20, 2), (50, 60, 3), (40, 50, 2), (20, 30, 1)] {
            data.insert(start, content(start..behind));
            assert_eq!((data.next(), data.holes()), (0, holes), "after {start}");
        }
        data.insert(0, content(0..10));
        assert_eq!((data.next(), data.holes(), data.highest()), (60, 0, 60));
        let got: Vec<u8> = data.ready.iter().flatten().copied().collect();
        assert_eq!(got, content(0..60));
    }

    proptest! {
        #[test]
        fn pieces_in_any_order_and_overlap_are_the_bytes(
            pieces in prop::collection::vec((0..3000_u64, 1..200_u64), 1..80), total in 1..3200_u64,
        ) {
            let mut data = Reassembly::default();
            let mut arrived = vec![false; 3200];
            for (start, length) in pieces {
                let new = data.insert(start, content(start..start + length));
                let places = start as usize..(start + length) as usize;
                let before = arrived[places.clone()].iter().filter(|there| **there).count();
                prop_assert_eq!(new, length - before as u64);
                arrived[places].fill(true);
                let next = arrived.iter().position(|there| !there).unwrap_or(arrived.len());
                prop_assert_eq!(data.next(), next as u64);
                prop_assert_eq!(data.unread(), arrived.iter().filter(|there| **there).count());
                let starts = |at: usize| at > next && arrived[at] && !arrived[at - 1];
                prop_assert_eq!(data.holes(), (1..arrived.len()).filter(|at| starts(*at)).count());
            }
            data.insert(0, content(0..total));
            let got: Vec<u8> = data.ready.iter().flatten().copied().collect();
            prop_assert_eq!(&got[..], &content(0..data.next())[..]);
        }
    }
}
