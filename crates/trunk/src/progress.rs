//! Whether what this end sends arrives: since when the oldest DATA frame waits. That a
//! carrier opens and says HELLO shows nothing of the frames that vanish on it.

use std::collections::BTreeSet;
use std::time::Instant;

/// The DATA frames that were sent and aren't acknowledged. Each has a number, which it keeps when
/// it is sent again.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    next: u64,
    waiting: BTreeSet<u64>,
    /// Since when the oldest of them waits: since it was sent, or became the oldest.
    since: Option<Instant>,
}

impl Progress {
    /// Notes that a frame is sent for the first time; returns its number.
    pub(crate) fn sent(&mut self, now: Option<Instant>) -> u64 {
        let number = self.next;
        self.next += 1;
        if self.waiting.is_empty() {
            self.since = now;
        }
        self.waiting.insert(number);
        number
    }

    /// Notes that a frame has arrived, or is of no use any more.
    pub(crate) fn settled(&mut self, number: u64, now: Option<Instant>) {
        let was_oldest = self.waiting.first() == Some(&number);
        if self.waiting.remove(&number) && was_oldest {
            self.since = now.filter(|_| !self.waiting.is_empty());
        }
    }

    /// Since when the oldest frame waits; `None` if there is none.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.since
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_oldest_frame_counts_and_later_ones_do_not_hide_it() {
        let begun = Instant::now();
        let at = |second: u64| Some(begun + Duration::from_secs(second));
        let mut progress = Progress::default();
        // The second, a frame that is sent (or, by its number, settled); since when the
        // oldest waits.
        for (second, settled, since) in [
            (1, None, at(1)),
            (2, None, at(1)),
            (3, Some(1), at(1)),
            (4, None, at(1)),
            (5, Some(0), at(5)),
            (6, Some(0), at(5)),
            (7, Some(2), None),
            (8, Some(9), None),
            (9, None, at(9)),
        ] {
            match settled {
                None => drop(progress.sent(at(second))),
                Some(number) => progress.settled(number, at(second)),
            }
            assert_eq!(progress.since(), since, "at {second} s");
        }
    }
}
