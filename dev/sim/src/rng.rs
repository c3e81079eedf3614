//! Numbers drawn from a seed. The same seed draws the same numbers; knows nothing of what they are for.

use std::time::Duration;

/// A source of numbers that look random and are not.
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    /// One for this seed and this purpose, so that what is drawn for one thing does not move what is drawn for another.
    pub(crate) fn new(seed: u64, purpose: u64) -> Chance {
        let mut chance = Chance(seed ^ purpose.wrapping_mul(0xd6e8_feb8_6659_fd93));
        chance.draw();
        chance
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed ^ (mixed >> 32)
    }

    /// A number below this one, or zero.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.draw() % end.max(1)
    }

    /// Whether something happens that happens once in so many times.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let which = self.below(from.len() as u64);
        from[usize::try_from(which).expect("an index")]
    }

    /// Between these two numbers of milliseconds, the small ones as likely as the large ones: by their order of magnitude.
    pub(crate) fn millis(&mut self, least: u64, most: u64) -> u64 {
        let doublings = u64::from((most / least.max(1)).max(1).ilog2()) + 1;
        let base = least.max(1) << self.below(doublings);
        (base + self.below(base)).clamp(least, most)
    }

    /// As long as that.
    pub(crate) fn span(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.millis(least, most))
    }
}
