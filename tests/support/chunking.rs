//! Cuts the bytes that a peer writes into the reads of the driver. Depends on no message format.

/// A way to cut the bytes that a peer writes into the reads of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chunking {
    /// One read per write.
    Whole,
    /// One byte at a time.
    Bytes,
    /// All bytes that are written at the same time in one read.
    Joined,
    /// Cut at random places. The same seed gives the same cuts.
    Random(u64),
}

impl Chunking {
    /// Every way that a script must pass with.
    pub(crate) const ALL: [Chunking; 6] = [
        Chunking::Whole,
        Chunking::Bytes,
        Chunking::Joined,
        Chunking::Random(1),
        Chunking::Random(2),
        Chunking::Random(3),
    ];

    /// Returns the cut for scripts that name none: `Whole`, or the value of `EVERLINK_CHUNKING`. `cargo xtask test`
    /// sets this variable to run every script with other cuts.
    pub(crate) fn usual() -> Chunking {
        match std::env::var("EVERLINK_CHUNKING").as_deref() {
            Err(_) | Ok("whole") => Chunking::Whole,
            Ok("bytes") => Chunking::Bytes,
            Ok("joined") => Chunking::Joined,
            Ok("random") => Chunking::Random(4),
            Ok(other) => panic!("EVERLINK_CHUNKING={other}: use whole, bytes, joined or random"),
        }
    }

    /// Cuts `bytes` without losing any; no piece is empty. `drawn` counts the random numbers used so far.
    pub(crate) fn cut<'a>(self, bytes: &'a [u8], drawn: &mut u64) -> Vec<&'a [u8]> {
        match self {
            Chunking::Whole | Chunking::Joined => vec![bytes],
            Chunking::Bytes => bytes.chunks(1).collect(),
            Chunking::Random(seed) => {
                let mut pieces = Vec::new();
                let mut rest = bytes;
                while !rest.is_empty() {
                    *drawn += 1;
                    let longest = if hash(seed ^ *drawn) % 2 == 0 { 4 } else { 40 };
                    let random_len = hash(seed.wrapping_add(*drawn << 8)) % longest;
                    let len = usize::try_from(random_len + 1).unwrap_or(1).min(rest.len());
                    let (piece, tail) = rest.split_at(len);
                    pieces.push(piece);
                    rest = tail;
                }
                pieces
            }
        }
    }
}

fn hash(number: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 7
}
