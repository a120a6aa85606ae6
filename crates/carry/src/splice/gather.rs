//! Gathers a stream of small pieces into larger ones.
//!
//! Each read wakes this process, and each write wakes the one that receives. So a stream of 1 KiB at a time
//! cost three times the processor time of two proxies that were too slow to read it piece by piece. Network
//! cards gather interrupts for the same reason.
//!
//! Only the end of a stream waits for that, and not for long. A piece that is answered never waits.

use std::time::{Duration, Instant};

/// Bytes that wake the reader of a stream that gathers. A piece of so many isn't small.
pub(super) const ENOUGH: usize = 16 << 10;
/// The stream is bulk: if so much has come by the time that it is read, its pieces aren't small.
const BULK: usize = 64 << 10;
/// Longest time between two pieces that are close together.
const CLOSE: Duration = Duration::from_micros(100);
/// After so many small pieces close together, and none the other way, a flow gathers.
const PIECES: u8 = 16;
/// Longest time for which a piece waits for others.
const LONGEST: Duration = Duration::from_micros(200);

/// Whether a flow gathers what comes.
#[derive(Debug, Default)]
pub(super) struct Gather {
    /// When something was last read.
    last: Option<Instant>,
    /// How many small pieces have come close together.
    pieces: u8,
    /// Bytes of the last piece before the flow gathered.
    piece: usize,
    /// When to read if not enough has come before; `None` if the flow doesn't gather.
    until: Option<Instant>,
}

impl Gather {
    /// When to read if not enough has come before; `None` if the flow doesn't gather.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Notes how many bytes a read gave; 0 if there were none.
    pub(super) fn read(&mut self, bytes: usize, now: Instant) {
        match self.until {
            Some(until) if bytes >= BULK || (until <= now && bytes < 2 * self.piece) => self.stop(),
            Some(_) if bytes == 0 => {}
            Some(_) => self.until = Some(now + LONGEST),
            None => {
                let is_close = self.last.is_some_and(|last| now.saturating_duration_since(last) <= CLOSE);
                self.pieces = if is_close && (1..ENOUGH).contains(&bytes) { self.pieces + 1 } else { 0 };
                if self.pieces == PIECES {
                    (self.piece, self.until) = (bytes, Some(now + LONGEST));
                }
            }
        }
        self.last = Some(now);
    }

    /// Ends it, as when something went the other way.
    pub(super) fn stop(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads so many bytes at so many µs; tells until when the flow gathers after each.
    fn told(reads: &[(u64, usize)]) -> Vec<Option<u64>> {
        let (mut gather, begin) = (Gather::default(), Instant::now());
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
            ("far apart", pieces(100, 101, 1024), None),
            ("large", pieces(100, 10, ENOUGH), None),
            ("nothing", pieces(100, 10, 0), None),
        ] {
            assert_eq!(told(&reads).pop(), Some(want), "{name}");
        }
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
            ("bulk", (200, BULK), None),
        ] {
            let mut reads = pieces(17, 10, 1024);
            reads.push(then);
            assert_eq!(told(&reads).pop(), Some(want), "{name}");
        }
    }

    #[test]
    fn what_is_answered_never_gathers() {
        let (mut gather, now) = (Gather::default(), Instant::now());
        for _ in 0..100 {
            gather.read(64, now);
            gather.stop();
        }
        assert_eq!(gather.until(), None);
    }
}
