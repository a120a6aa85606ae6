//! Lines of which so many of each kind are written within a while; the others are counted.
//! Whoever causes them can't fill a disk. Plain data; the caller passes the time.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Counts lines by their kind, so that only a few of each kind are written.
#[derive(Debug)]
pub struct FewLines<K> {
    most: u32,
    window: Duration,
    /// Most kinds that are counted apart.
    capacity: usize,
    kinds: HashMap<K, Window>,
    /// The window of all further kinds together.
    others: Option<Window>,
}

/// When a kind's window began, how many lines came since, and how many of them were not written.
#[derive(Debug, Clone, Copy)]
struct Window {
    since: Instant,
    count: u32,
    left_out: u64,
}

impl<K: Eq + Hash> FewLines<K> {
    /// Lets `most` lines of a kind pass within `window`, and counts at most `capacity` kinds apart.
    pub fn new(most: u32, window: Duration, capacity: usize) -> Self {
        Self { most, window, capacity, kinds: HashMap::new(), others: None }
    }

    /// Whether a line of this kind is to be written, and how many lines were left out since the
    /// last written line. If there are many kinds, further kinds share a count.
    pub fn pass(&mut self, kind: K, now: Instant) -> (bool, u64) {
        let (most, length) = (self.most, self.window);
        let ended = |window: &Window| now.saturating_duration_since(window.since) >= length;
        let new = Window { since: now, count: 0, left_out: 0 };
        if self.kinds.len() >= self.capacity && !self.kinds.contains_key(&kind) {
            // What the ended kinds left out is told with the others'. Otherwise kinds that are
            // never seen again would keep their places for good.
            let mut left_out = 0;
            self.kinds.retain(|_, window| {
                left_out += if ended(window) { window.left_out } else { 0 };
                !ended(window)
            });
            if left_out > 0 {
                self.others.get_or_insert(new).left_out += left_out;
            }
        }
        let known = self.kinds.contains_key(&kind) || self.kinds.len() < self.capacity;
        let window = match known {
            true => self.kinds.entry(kind).or_insert(new),
            false => self.others.get_or_insert(new),
        };
        let mut before = 0;
        if ended(window) {
            before = window.left_out;
            *window = new;
        }
        window.count = window.count.saturating_add(1);
        let passed = window.count <= most;
        window.left_out += u64::from(!passed);
        (passed, before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const CAPACITY: usize = 100;

    #[test]
    fn a_flood_takes_few_lines() {
        let (mut lines, now) = (FewLines::new(20, MINUTE, CAPACITY), Instant::now());
        let written = (0..1000).filter(|_| lines.pass("", now).0).count();
        assert_eq!(written, 20);
        assert!(lines.pass("agent n1.alpha", now).0, "others are written");
        assert_eq!(lines.pass("", now + MINUTE), (true, 980));
        assert_eq!(lines.pass("", now + MINUTE), (true, 0));
    }

    #[test]
    fn many_kinds_do_not_fill_the_memory() {
        let (mut lines, now) = (FewLines::new(20, MINUTE, CAPACITY), Instant::now());
        let written = (0..2 * CAPACITY).filter(|kind| lines.pass(*kind, now).0).count();
        assert_eq!((written, lines.kinds.len()), (CAPACITY + 20, CAPACITY));
        assert_eq!(lines.pass(1000, now + MINUTE), (true, 0), "the others have made room");
        assert_eq!(lines.kinds.len(), 1);
    }

    #[test]
    fn kinds_of_which_lines_were_left_out_keep_no_place_for_good() {
        let (mut lines, now) = (FewLines::new(20, MINUTE, CAPACITY), Instant::now());
        for kind in 0..CAPACITY {
            assert_eq!((0..30).filter(|_| lines.pass(kind, now).0).count(), 20);
        }
        let later = now + MINUTE;
        let written = (CAPACITY..2 * CAPACITY).filter(|kind| lines.pass(*kind, later).0).count();
        assert_eq!(written, CAPACITY, "each has a count of its own");
        // What was left out is told once further kinds share a count.
        let last = later + MINUTE;
        for kind in 2 * CAPACITY..3 * CAPACITY {
            lines.pass(kind, last);
        }
        assert_eq!(lines.pass(1000, last), (true, 10 * CAPACITY as u64));
    }
}
