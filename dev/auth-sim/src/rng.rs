//! A pseudo-random number generator: the same seed gives the same numbers. Must not depend on their use.

/// A source of pseudo-random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// A generator for this seed and this purpose. Draws for one purpose do not change those for another.
    pub(crate) fn new(seed: u64, purpose: u64) -> Rng {
        let mut rng = Rng(seed ^ purpose.wrapping_mul(0xd6e8_feb8_6659_fd93));
        rng.next_u64();
        rng
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed ^ (mixed >> 32)
    }

    /// A number below `end`, or zero.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next_u64() % end.max(1)
    }

    /// True with a probability of 1 in `times`.
    pub(crate) fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// A number of milliseconds between these two, with every order of magnitude equally likely.
    pub(crate) fn millis(&mut self, least: u64, most: u64) -> u64 {
        let doublings = u64::from((most / least.max(1)).max(1).ilog2()) + 1;
        let base = least.max(1) << self.below(doublings);
        (base + self.below(base)).clamp(least, most)
    }
}
