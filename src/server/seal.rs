//! States that a client carries for the server and cannot make up. Knows no request.

use alloc::format;
use alloc::string::String;
use core::hash::Hasher;

use crate::digest;
use crate::id::RequestId;

/// How every state of the machine begins.
pub(super) const PREFIX: &str = "everlink.";

/// A key that nobody else has.
#[derive(Clone)]
pub(super) struct Seal {
    key: (u64, u64),
}

/// A state as a client gave it back: what it claims, and the proof that is still to be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sealed {
    pub(super) request: RequestId,
    pub(super) round: u32,
    proof: u64,
}

impl Seal {
    pub(super) fn new(secret: [u8; 16]) -> Seal {
        let [low, high] = [&secret[..8], &secret[8..]].map(|half| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(half);
            u64::from_le_bytes(bytes)
        });
        Seal { key: (low, high) }
    }

    /// The state for one round of a request about `subject`.
    pub(super) fn state(&self, request: RequestId, round: u32, subject: u64) -> String {
        let proof = self.proof(request, round, subject);
        format!("{PREFIX}{:x}.{round:x}.{proof:016x}", request.number())
    }

    /// Whether this machine made the state, for a request about `subject` (S-MRTR-15, S-MRTR-16).
    pub(super) fn holds(&self, sealed: Sealed, subject: u64) -> bool {
        sealed.proof == self.proof(sealed.request, sealed.round, subject)
    }

    /// What a request is about, as a number: its method and what it names.
    pub(super) fn subject(&self, method: &str, target: &str) -> u64 {
        let mut hash = digest::keyed(self.key);
        for text in [method, target] {
            hash.write_u64(text.len() as u64);
            hash.write(text.as_bytes());
        }
        hash.finish()
    }

    fn proof(&self, request: RequestId, round: u32, subject: u64) -> u64 {
        let mut hash = digest::keyed(self.key);
        hash.write(PREFIX.as_bytes());
        hash.write_u64(request.number());
        hash.write_u64(u64::from(round));
        hash.write_u64(subject);
        hash.finish()
    }
}

impl Sealed {
    /// Reads a state that begins as ours do.
    pub(super) fn read(state: &str) -> Option<Sealed> {
        let mut parts = state.strip_prefix(PREFIX)?.split('.');
        let mut part = || u64::from_str_radix(parts.next()?, 16).ok();
        let sealed = Sealed {
            request: RequestId::from_number(part()?),
            round: u32::try_from(part()?).ok()?,
            proof: part()?,
        };
        parts.next().is_none().then_some(sealed)
    }
}

/// The key stays out.
impl core::fmt::Debug for Seal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Seal")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

    #[test]
    fn a_state_holds_for_what_it_was_made_for_and_nothing_else() {
        let seal = Seal::new(SECRET);
        let subject = seal.subject("tools/call", "add");
        let request = RequestId::from_number(7);
        let sealed = Sealed::read(&seal.state(request, 1, subject)).unwrap();
        assert_eq!((sealed.request, sealed.round), (request, 1));
        assert!(seal.holds(sealed, subject));
        assert!(!seal.holds(sealed, seal.subject("tools/call", "sub")));
        assert!(!seal.holds(sealed, seal.subject("tools/calla", "dd")));
        assert!(!Seal::new([7; 16]).holds(sealed, subject));
        for forged in [
            Sealed { round: 2, ..sealed },
            Sealed {
                request: RequestId::from_number(8),
                ..sealed
            },
            Sealed {
                proof: sealed.proof ^ 1,
                ..sealed
            },
        ] {
            assert!(!seal.holds(forged, subject), "{forged:?}");
        }
    }

    #[test]
    fn what_is_no_state_of_ours() {
        for state in [
            "",
            "abc",
            "everlink.",
            "everlink.1.2",
            "everlink.1.2.3.4",
            "everlink.x.1.2",
        ] {
            assert_eq!(Sealed::read(state), None, "{state}");
        }
    }
}
