//! Gathers a stream of small pieces into larger ones.
//!
//! Each read wakes this process, and each write wakes the one that receives. So a stream of 1 KiB at a time
//! cost three times the processor time of two proxies that were too slow to read it piece by piece. Network
//! cards gather interrupts for the same reason.
//!
//! Only the end of a stream waits for that, and not for long. Where that gains nothing, as with short bursts that are
//! answered each time, the next ones must be longer.

use std::time::{Duration, Instant};

/// Bytes that wake the reader of a stream that gathers. A piece of so many isn't small.
pub(super) const ENOUGH: usize = 16 << 10;
/// Longest time between two pieces that are close together. Where processors are scarce, each piece that wakes this
/// process and the receiver holds the sender up: without gathering its pieces come further apart than they could.
const CLOSE: Duration = Duration::from_micros(400);
/// After so many small pieces close together, and none the other way, a flow gathers: the least and the most.
const PIECES: (u8, u8) = (16, 128);
/// Least number of reads that give several pieces each, for gathering to have been of use.
const OF_USE: u8 = 2;
/// Longest time for which a piece waits for others.
const LONGEST: Duration = Duration::from_micros(200);

/// Whether a flow gathers what comes.
#[derive(Debug)]
pub(super) struct Gather {
    /// When something was last read.
    last: Option<Instant>,
    /// How many small pieces have come close together.
    pieces: u8,
    /// After how many of them the flow gathers.
    needed: u8,
    /// How many reads have given several pieces since the flow gathers.
    of_use: u8,
    /// Bytes of the last piece before the flow gathered.
    piece: usize,
    /// When to read if not enough has come before; `None` if the flow doesn't gather.
    until: Option<Instant>,
}

impl Gather {
    pub(super) fn new() -> Self {
        Self { last: None, pieces: 0, needed: PIECES.0, of_use: 0, piece: 0, until: None }
    }

    /// When to read if not enough has come before; `None` if the flow doesn't gather.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Notes how many bytes a read gave; 0 if there were none.
    pub(super) fn read(&mut self, bytes: usize, now: Instant) {
        match self.until {
            Some(until) if until <= now && bytes < 2 * self.piece => self.stop(),
            Some(_) if bytes == 0 => {}
            Some(_) => {
                self.of_use = self.of_use.saturating_add(1);
                self.until = Some(now + LONGEST);
            }
            None => {
                let is_close = self.last.is_some_and(|last| now.saturating_duration_since(last) <= CLOSE);
                let is_small = (1..ENOUGH).contains(&bytes);
                // Many small pieces are read at once if this process comes late.
                self.pieces = if is_close { self.pieces + u8::from(is_small) } else { 0 };
                if self.pieces == self.needed {
                    (self.piece, self.of_use, self.until) = (bytes, 0, Some(now + LONGEST));
                }
            }
        }
        self.last = Some(now);
    }

    /// Ends it, as when something went the other way.
    pub(super) fn stop(&mut self) {
        if self.until.take().is_some() {
            let more = if self.of_use < OF_USE { self.needed.saturating_mul(2) } else { PIECES.0 };
            self.needed = more.min(PIECES.1);
        }
        self.pieces = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads so many bytes at so many µs; tells until when the flow gathers after each.
    fn told(reads: &[(u64, usize)]) -> Vec<Option<u64>> {
        let (mut gather, begin) = (Gather::new(), Instant::now());
        let told = reads.iter().map(|(at, bytes)| {
            gather.read(*bytes, begin + Duration::from_micros(*at));
            gather.until().map(|until| (until - begin).as_micros() as u64)
        });
        told.collect()
    }

    fn pieces(count: u64, apart: u64, bytes: usize) -> Vec<(u64, usize)> {
        (0..count).map(|at| (at * apart, bytes)).collect()
    }

    #[test]
    fn many_small_pieces_close_together_gather() {
        for (name, reads, want) in [
            ("the first ones", pieces(16, 10, 1024), None),
            ("one more", pieces(17, 10, 1024), Some(360)),
            ("far apart", pieces(100, 401, 1024), None),
            ("large", pieces(100, 10, ENOUGH), None),
            ("nothing", pieces(100, 10, 0), None),
        ] {
            assert_eq!(told(&reads).pop(), Some(want), "{name}");
        }
    }

    #[test]
    fn pieces_that_are_read_late_count_for_nothing() {
        let mut reads = pieces(16, 10, 1024);
        reads.push((160, 1 << 20));
        assert_eq!(told(&reads).pop(), Some(None));
        reads.push((170, 1024));
        assert_eq!(told(&reads).pop(), Some(Some(370)));
    }

    #[test]
    fn it_ends_when_little_comes() {
        for (name, then, want) in [
            ("enough", (200, ENOUGH), Some(400)),
            ("little, before the time is over", (359, 1024), Some(559)),
            ("two pieces in time", (360, 2048), Some(560)),
            ("one piece in time", (360, 2047), None),
            ("nothing in time", (360, 0), None),
            ("nothing yet", (359, 0), Some(360)),
        ] {
            let mut reads = pieces(17, 10, 1024);
            reads.push(then);
            assert_eq!(told(&reads).pop(), Some(want), "{name}");
        }
    }

    /// Reads bursts of so many pieces that are answered. Tells after how many pieces each of them gathered.
    fn bursts(pieces: &[usize]) -> Vec<Option<usize>> {
        let (mut gather, now) = (Gather::new(), Instant::now());
        let gathered = pieces.iter().map(|pieces| {
            let gathers = |_: &usize| {
                gather.read(64, now);
                gather.until().is_some()
            };
            let after = (0..*pieces).find(gathers);
            (after.unwrap_or(*pieces)..*pieces).for_each(|_| gather.read(64, now));
            gather.stop();
            after
        });
        gathered.collect()
    }

    #[test]
    fn bursts_that_are_answered_must_be_longer_each_time() {
        assert_eq!(bursts(&[1; 100]), [None; 100]);
        assert_eq!(bursts(&[17, 17, 32, 33, 64]), [Some(16), None, Some(31), None, Some(63)]);
        assert_eq!(bursts(&[17, 100, 100]), [Some(16), Some(31), Some(15)], "it was of use");
        let most = bursts(&[200, 17, 33, 65, 129, 129].map(|pieces| pieces.min(129)));
        assert!(most.iter().flatten().all(|after| *after <= 127), "{most:?}");
    }
}
