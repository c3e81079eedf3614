//! How the bytes of a server are cut into reads. Knows no message.

/// One way to cut what a server writes into what a driver reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chunking {
    /// Each piece as it was written.
    Whole,
    /// One byte at a time.
    Bytes,
    /// All that is written at one moment in one read.
    Joined,
    /// Cut at random places, the same for the same seed.
    Random(u64),
}

impl Chunking {
    /// All that a script should survive.
    pub(crate) const ALL: [Chunking; 6] = [
        Chunking::Whole,
        Chunking::Bytes,
        Chunking::Joined,
        Chunking::Random(1),
        Chunking::Random(2),
        Chunking::Random(3),
    ];

    /// How the bytes are cut where a script does not say: whole, or as the environment wants it, so that every script
    /// can be played again in another way (`cargo xtask test` does).
    pub(crate) fn usual() -> Chunking {
        match std::env::var("EVERLINK_CHUNKING").as_deref() {
            Err(_) | Ok("whole") => Chunking::Whole,
            Ok("bytes") => Chunking::Bytes,
            Ok("joined") => Chunking::Joined,
            Ok("random") => Chunking::Random(4),
            Ok(other) => panic!("EVERLINK_CHUNKING={other}: say whole, bytes, joined or random"),
        }
    }

    /// Cuts `bytes`; nothing is lost and no piece is empty. `drawn` is how far the random numbers have come.
    pub(crate) fn cut<'a>(self, bytes: &'a [u8], drawn: &mut u64) -> Vec<&'a [u8]> {
        match self {
            Chunking::Whole | Chunking::Joined => vec![bytes],
            Chunking::Bytes => bytes.chunks(1).collect(),
            Chunking::Random(seed) => {
                let mut pieces = Vec::new();
                let mut rest = bytes;
                while !rest.is_empty() {
                    *drawn += 1;
                    let longest = if well_spread(seed ^ *drawn) % 2 == 0 {
                        4
                    } else {
                        40
                    };
                    let drawn_len = well_spread(seed.wrapping_add(*drawn << 8)) % longest;
                    let len = usize::try_from(drawn_len + 1).unwrap_or(1).min(rest.len());
                    let (piece, later) = rest.split_at(len);
                    pieces.push(piece);
                    rest = later;
                }
                pieces
            }
        }
    }
}

fn well_spread(number: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 7
}
