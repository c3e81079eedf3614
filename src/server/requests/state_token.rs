//! Makes states that a client carries for the server and cannot forge. Knows no request.

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::hash::Hasher;

use crate::driver::RequestId;
use crate::util::digest;

/// The prefix of every state that the server makes.
pub(crate) const PREFIX: &str = "everlink.";

/// The secret key.
#[derive(Clone)]
pub(crate) struct StateTokens {
    key: (u64, u64),
}

impl StateTokens {
    pub(crate) fn new(secret: [u8; 16]) -> StateTokens {
        let both = u128::from_le_bytes(secret);
        StateTokens {
            key: (both as u64, (both >> 64) as u64),
        }
    }

    /// Returns the state for one round of a request about `subject` (S-MRTR-15, S-MRTR-16). It names the request and the round, and proves
    /// that this server made it for them. A client must return it unchanged, so a comparison is enough to verify it.
    pub(crate) fn token(&self, request: RequestId, round: u32, subject: u64) -> String {
        let mut hash = digest::keyed(self.key);
        hash.write(PREFIX.as_bytes());
        hash.write_u64(request.number());
        hash.write_u64(u64::from(round));
        hash.write_u64(subject);
        let proof = hash.finish();
        format!("{PREFIX}{:x}.{round:x}.{proof:016x}", request.number())
    }

    /// Returns the hash of what a request is about: its method, its target, and its user.
    pub(crate) fn subject(&self, method: &str, target: &str, user: Option<&str>) -> u64 {
        let mut hash = digest::keyed(self.key);
        for text in [method, target].into_iter().chain(user) {
            hash.write_u64(text.len() as u64);
            hash.write(text.as_bytes());
        }
        hash.finish()
    }
}

/// The request that a state names. The name alone proves nothing.
pub(crate) fn request_of(state: &str) -> Option<RequestId> {
    let (request, _) = state.strip_prefix(PREFIX)?.split_once('.')?;
    let number = u64::from_str_radix(request, 16).ok()?;
    Some(RequestId::from_number(number))
}

/// Leaves out the key.
impl fmt::Debug for StateTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StateTokens")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_for_one_round_of_one_request_about_one_thing_under_one_key() {
        let tokens = StateTokens::new([7; 16]);
        let add = tokens.subject("tools/call", "add", None);
        let request = RequestId::from_number(7);
        let state = tokens.token(request, 1, add);
        assert_eq!(request_of(&state), Some(request));
        for other in [
            tokens.token(RequestId::from_number(8), 1, add),
            tokens.token(request, 2, add),
            tokens.token(request, 1, tokens.subject("tools/call", "sub", None)),
            tokens.token(request, 1, tokens.subject("tools/calla", "dd", None)),
            tokens.token(request, 1, tokens.subject("tools/call", "add", Some("eve"))),
            StateTokens::new([8; 16]).token(request, 1, add),
        ] {
            assert_ne!(other, state);
            let proof = |state: &str| state.rsplit('.').next().map(String::from);
            assert_ne!(proof(&other), proof(&state));
        }
    }

    #[test]
    fn what_names_no_request() {
        for state in [
            "",
            "abc",
            "everlink.",
            "everlink.1",
            "everlink.x.1.2",
            "Everlink.1.1.1",
        ] {
            assert_eq!(request_of(state), None, "{state}");
        }
    }
}
