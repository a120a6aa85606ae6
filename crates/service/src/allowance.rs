//! How often each party may do something. Plain data; the caller passes the time.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// How often each party may do something in a window of time.
#[derive(Debug)]
pub struct Allowance<K> {
    most: u32,
    window: Duration,
    /// Most parties that are kept. At this number, parties of former windows are dropped. If that
    /// frees no place, new parties are refused.
    capacity: usize,
    /// When each party's window began, and how many times the party has done it since.
    parties: HashMap<K, (Instant, u32)>,
}

impl<K: Eq + Hash> Allowance<K> {
    /// Allows `most` times within `window`, for at most `capacity` parties.
    pub fn new(most: u32, window: Duration, capacity: usize) -> Self {
        Self { most, window, capacity, parties: HashMap::new() }
    }

    /// Whether a party may do it once more now. Counts it if so.
    pub fn allow<Q>(&mut self, party: &Q, now: Instant) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
    {
        let window = self.window;
        let over = |since: &Instant| now.saturating_duration_since(*since) >= window;
        if !self.parties.contains_key(party) && self.parties.len() >= self.capacity {
            self.parties.retain(|_, (since, _)| !over(since));
            if self.parties.len() >= self.capacity {
                return false;
            }
        }
        let (since, count) = self.parties.entry(party.to_owned()).or_insert((now, 0));
        if over(since) {
            (*since, *count) = (now, 0);
        }
        let allowed = *count < self.most;
        *count += u32::from(allowed);
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn each_party_has_so_many_in_a_window() {
        let (mut allowance, start) = (Allowance::<String>::new(12, MINUTE, 10), Instant::now());
        let allowed = (0..100).filter(|_| allowance.allow("n1.alpha", start)).count();
        assert_eq!(allowed, 12);
        assert!(allowance.allow("n2.alpha", start), "another one");
        assert!(!allowance.allow("n1.alpha", start + MINUTE - Duration::from_secs(1)));
        assert!(allowance.allow("n1.alpha", start + MINUTE));
    }

    #[test]
    fn many_parties_do_not_fill_the_memory() {
        let (mut allowance, start) = (Allowance::<String>::new(12, MINUTE, 1000), Instant::now());
        let allowed = (0..1010).filter(|n| allowance.allow(&*n.to_string(), start)).count();
        assert_eq!(allowed, 1000);
        assert!(allowance.allow("1", start), "one that is known");
        assert!(allowance.allow("n1.alpha", start + MINUTE));
        assert_eq!(allowance.parties.len(), 1);
    }
}
