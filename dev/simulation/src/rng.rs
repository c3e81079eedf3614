//! A pseudo-random number generator: the same seed gives the same numbers. Must not depend on their use.

use std::time::Duration;

/// A source of pseudo-random numbers.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator for this seed and this purpose. Draws for one purpose do not change those for another.
    pub fn new(seed: u64, purpose: u64) -> Rng {
        let mut rng = Rng(seed ^ purpose.wrapping_mul(0xd6e8_feb8_6659_fd93));
        rng.next_u64();
        rng
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed ^ (mixed >> 32)
    }

    /// A number below `end`, or zero.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next_u64() % end.max(1)
    }

    /// True with a probability of 1 in `times`.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of these, all equally likely.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let which = self.below(from.len() as u64);
        from[usize::try_from(which).expect("an index")]
    }

    /// One of these, by their weights.
    pub fn choose<T: Copy>(&mut self, from: &[T], weights: &[u64]) -> T {
        let mut left = self.below(weights.iter().sum());
        for (one, weight) in from.iter().zip(weights) {
            match left.checked_sub(*weight) {
                None => return *one,
                Some(rest) => left = rest,
            }
        }
        unreachable!("below the sum of the weights")
    }

    /// These weights, of which about half are zero: each run has only some of the faults, so that those get further.
    pub fn some_of(&mut self, weights: &[u64]) -> Vec<u64> {
        let some = weights.iter().map(|weight| weight * self.below(2));
        some.collect()
    }

    /// A number of milliseconds between these two, with every order of magnitude equally likely.
    pub fn millis(&mut self, least: u64, most: u64) -> u64 {
        let doublings = u64::from((most / least.max(1)).max(1).ilog2()) + 1;
        let base = least.max(1) << self.below(doublings);
        (base + self.below(base)).clamp(least, most)
    }

    /// The same as a duration.
    pub fn span(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.millis(least, most))
    }
}
