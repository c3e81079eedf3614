//! Tables whose keys are numbers that a machine counts up. Knows not what they name.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A table by such a number: nobody outside chooses them, so that they need no secret to be spread well.
pub type ByNumber<K, V> = HashMap<K, V, BuildHasherDefault<Spread>>;

/// How such numbers are spread over a table.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    fn write_u64(&mut self, number: u64) {
        // The golden ratio: neighbours end up far from each other, in the upper bits and in the lower ones.
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
