//! Numbers that a seed gives.

use std::time::Duration;

/// Random numbers that follow from a seed: xorshift64* (Vigna, 2016).
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        // Seeds that differ little give numbers that differ much.
        let mut chance = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        chance.next();
        chance
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A random number from 0 to 1.
    pub(super) fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(super) fn below(&mut self, count: usize) -> usize {
        (self.share() * count as f64) as usize
    }

    pub(super) fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// A random time between both. Short times are as likely as long ones, as the logarithm is
    /// even.
    pub(super) fn time(&mut self, (least, most): (f64, f64)) -> Duration {
        Duration::from_secs_f64(least * (most / least).powf(self.share()))
    }

    /// Puts the items in a random order (Fisher and Yates).
    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}
