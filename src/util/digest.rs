//! Hashes texts: a keyed hash as a proof of origin, and an unkeyed one for comparison.

#[allow(
    deprecated,
    reason = "the one keyed hash that core has; it was deprecated as a default for hash maps, not as a function"
)]
use core::hash::{Hasher, SipHasher};

/// SipHash-2-4 with this key. The result cannot be predicted without the key.
#[allow(deprecated, reason = "as above")]
pub(crate) fn keyed(key: (u64, u64)) -> SipHasher {
    SipHasher::new_with_keys(key.0, key.1)
}

/// Returns the hash of a text under a fixed key. Two texts do not collide by accident, but a collision can be constructed.
pub(crate) fn of(text: &str) -> u64 {
    let mut hash = keyed((0, 0));
    hash.write(text.as_bytes());
    hash.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vector of the SipHash paper.
    #[test]
    fn the_hash_is_siphash_2_4() {
        let mut hash = keyed((0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908));
        hash.write(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]);
        assert_eq!(hash.finish(), 0xa129_ca61_49be_45e5);
    }
}
