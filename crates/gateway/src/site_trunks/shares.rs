//! Places of which nobody may use up all: each holder gets one only while that
//! [leaves room](leaves_room) for others.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use isthmus_service::lock;
use isthmus_wire::bounds::leaves_room;

/// How many places each holder has. Plain data.
#[derive(Debug)]
struct Held<K> {
    capacity: usize,
    /// Most places of a holder.
    each: usize,
    used: usize,
    by_holder: HashMap<K, usize>,
}

impl<K: Eq + Hash + Clone> Held<K> {
    fn take(&mut self, holder: &K) -> bool {
        let has = self.by_holder.get(holder).copied().unwrap_or_default();
        if has >= self.each || !leaves_room(has, self.used, self.capacity) {
            return false;
        }
        self.used += 1;
        self.by_holder.insert(holder.clone(), has + 1);
        true
    }

    fn give_back(&mut self, holder: &K) {
        let Some(has) = self.by_holder.get_mut(holder) else { return };
        self.used -= 1;
        *has -= 1;
        if *has == 0 {
            self.by_holder.remove(holder);
        }
    }
}

/// Places that holders share.
#[derive(Debug)]
pub(super) struct Shares<K: Eq + Hash + Clone>(Mutex<Held<K>>);

impl<K: Eq + Hash + Clone> Shares<K> {
    /// `capacity` places, of which no holder gets more than `each`.
    pub(super) fn new(capacity: usize, each: usize) -> Arc<Self> {
        let held = Held { capacity, each, used: 0, by_holder: HashMap::new() };
        Arc::new(Self(Mutex::new(held)))
    }

    /// Takes a place; `None` if the holder has its share.
    pub(super) fn take(self: &Arc<Self>, holder: &K) -> Option<Share<K>> {
        let taken = lock(&self.0).take(holder);
        taken.then(|| Share { of: self.clone(), holder: holder.clone() })
    }
}

/// A place that its holder has until this is dropped.
#[derive(Debug)]
pub(super) struct Share<K: Eq + Hash + Clone> {
    of: Arc<Shares<K>>,
    holder: K,
}

impl<K: Eq + Hash + Clone> Drop for Share<K> {
    fn drop(&mut self) {
        lock(&self.of.0).give_back(&self.holder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_holder_gets_what_leaves_a_place_for_the_next() {
        // Places, the most for each, holders that take all they get; what each has then.
        for (capacity, each, holders, want) in [
            (100, 100, 1, vec![50]),
            (100, 100, 2, vec![50, 25]),
            (100, 100, 3, vec![50, 25, 13]),
            (100, 8, 3, vec![8, 8, 8]),
            (16, 8, 3, vec![8, 4, 2]),
            (1, 1, 2, vec![1, 0]),
        ] {
            let shares = Shares::new(capacity, each);
            let mut kept = Vec::new();
            let got: Vec<usize> = (0..holders)
                .map(|holder| {
                    let before = kept.len();
                    kept.extend(std::iter::from_fn(|| shares.take(&holder)));
                    kept.len() - before
                })
                .collect();
            assert_eq!(got, want, "{capacity} {each}");
        }
    }

    #[test]
    fn holders_that_take_in_turn_have_the_same() {
        let shares = Shares::new(100, 100);
        let mut kept = Vec::new();
        while let Some(place) = shares.take(&(kept.len() % 3)) {
            kept.push(place);
        }
        let of = |holder| kept.iter().filter(|place| place.holder == holder).count();
        assert_eq!([of(0), of(1), of(2)], [25, 25, 25]);
    }

    #[test]
    fn a_place_is_free_again_when_dropped() {
        let shares = Shares::new(4, 4);
        let (first, second) = (shares.take(&"site"), shares.take(&"site"));
        assert!(first.is_some() && second.is_some() && shares.take(&"site").is_none());
        drop(first);
        assert!(shares.take(&"site").is_some());
        drop(second);
        let held = lock(&shares.0);
        assert!(held.used == 0 && held.by_holder.is_empty(), "{held:?}");
    }
}
