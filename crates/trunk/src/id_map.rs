//! Maps by numbers that are given out one after the other, such as streams' ids.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by such numbers. Each message of a program takes some ten look-ups.
///
/// Its hash needs no secret. A peer opens streams in order, so to have thousands whose numbers fall
/// together it must open and close some 10^8 others first. Then it slows down its own trunk alone.
pub type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// 2^64 divided by the golden ratio: multiples of it are far from each other (Knuth, "The Art of
/// Computer Programming", volume 3, section 6.4).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The hash of one number: a product, whose upper bits are the good ones. The map uses the lower
/// bits as well.
#[derive(Debug, Default, Clone, Copy)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, number: u64) {
        let product = (self.0 ^ number).wrapping_mul(GOLDEN);
        self.0 = product ^ (product >> 32);
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::BuildHasher as _;

    use super::*;
    use crate::{Role, StreamId};

    /// The map's places are the lower bits, and seven upper bits tell entries of a place apart.
    #[test]
    fn neighbours_fall_into_different_places() {
        let hash = |id: StreamId| BuildHasherDefault::<IdHasher>::default().hash_one(id);
        for first in [0, 1 << 14, 1 << 40] {
            let ids = (first..first + 1024).map(|index| hash(StreamId::new(Role::Acceptor, index)));
            let ids: Vec<u64> = ids.collect();
            let places: HashSet<u64> = ids.iter().map(|hash| hash % 1024).collect();
            let tags: HashSet<u64> = ids.iter().map(|hash| hash >> 57).collect();
            // As many as of numbers by chance: 1 - 1/e of the places.
            assert!(places.len() > 600, "{first}: {} places", places.len());
            assert_eq!(tags.len(), 128, "{first}");
        }
    }
}
