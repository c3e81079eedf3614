//! Makes states that a client carries for the server and cannot forge. Does not depend on requests.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::hash::Hasher;

use crate::driver::RequestId;
use crate::util::digest;

/// The prefix of every state that the server makes.
pub(crate) const PREFIX: &str = "everlink.";

/// The secret keys, and the number of this server among those that share a store.
#[derive(Clone)]
pub(crate) struct StateTokens {
    key: (u64, u64),
    /// The keys with which other servers may make states.
    others: Vec<(u64, u64)>,
    node: Option<u32>,
}

/// The halves of a key.
fn halves(secret: [u8; 16]) -> (u64, u64) {
    let both = u128::from_le_bytes(secret);
    (both as u64, (both >> 64) as u64)
}

impl StateTokens {
    pub(crate) fn new(secret: [u8; 16], others: &[[u8; 16]], node: Option<u32>) -> StateTokens {
        StateTokens {
            key: halves(secret),
            others: others.iter().copied().map(halves).collect(),
            node,
        }
    }

    /// The same, with another key.
    const fn with_key(&self, key: (u64, u64), node: Option<u32>) -> StateTokens {
        StateTokens {
            key,
            others: Vec::new(),
            node,
        }
    }

    /// The server that made this state for a request about this subject, if it was another one. `Err` if no server with one of the keys made it.
    pub(crate) fn maker(
        &self,
        state: &str,
        (method, target, user): (&str, &str, Option<&str>),
    ) -> Option<Result<u32, ()>> {
        let own = self.node?;
        let (node, request, round) = parts(state)?;
        let node = node.filter(|node| *node != own)?;
        let mut keys = core::iter::once(&self.key).chain(&self.others);
        let is_genuine = keys.any(|key| {
            let tokens = self.with_key(*key, Some(node));
            let subject = tokens.subject(method, target, user);
            tokens.token(request, round, subject) == state
        });
        Some(if is_genuine { Ok(node) } else { Err(()) })
    }

    /// Returns the state for one round of a request about `subject` (S-MRTR-15, S-MRTR-16). It names the request and the round, and proves
    /// that this server made it for them. A client must return it unchanged, so a comparison is enough to verify it.
    pub(crate) fn token(&self, request: RequestId, round: u32, subject: u64) -> String {
        let mut hash = digest::keyed(self.key);
        hash.write(PREFIX.as_bytes());
        hash.write_u64(request.number());
        hash.write_u64(u64::from(round));
        hash.write_u64(subject);
        let node = self.node.map_or_else(String::new, |node| {
            hash.write_u64(u64::from(node));
            format!("{node:x}-")
        });
        let proof = hash.finish();
        format!(
            "{PREFIX}{node}{:x}.{round:x}.{proof:016x}",
            request.number()
        )
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
    Some(parts(state)?.1)
}

/// The server, the request and the round that a state names.
fn parts(state: &str) -> Option<(Option<u32>, RequestId, u32)> {
    let (name, rest) = state.strip_prefix(PREFIX)?.split_once('.')?;
    let (node, request) = match name.split_once('-') {
        Some((node, request)) => (Some(u32::from_str_radix(node, 16).ok()?), request),
        None => (None, name),
    };
    let number = u64::from_str_radix(request, 16).ok()?;
    let round = rest.split('.').next()?;
    let round = u32::from_str_radix(round, 16).ok()?;
    Some((node, RequestId::from_number(number), round))
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
        let tokens = StateTokens::new([7; 16], &[], None);
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
            StateTokens::new([8; 16], &[], None).token(request, 1, add),
            StateTokens::new([7; 16], &[], Some(1)).token(request, 1, add),
        ] {
            assert_ne!(other, state);
            let proof = |state: &str| state.rsplit('.').next().map(String::from);
            assert_ne!(proof(&other), proof(&state));
        }
    }

    #[test]
    fn state_of_another_server_is_known_under_each_key_that_is_accepted() {
        let subject = ("tools/call", "add", Some("eve"));
        let made = |key: u8| {
            let other = StateTokens::new([key; 16], &[], Some(9));
            let hash = other.subject(subject.0, subject.1, subject.2);
            other.token(RequestId::from_number(5), 2, hash)
        };
        let here = StateTokens::new([7; 16], &[[6; 16]], Some(1));
        assert_eq!(here.maker(&made(7), subject), Some(Ok(9)));
        assert_eq!(here.maker(&made(6), subject), Some(Ok(9)), "the old key");
        assert_eq!(here.maker(&made(5), subject), Some(Err(())));
        let other = ("tools/call", "sub", Some("eve"));
        assert_eq!(here.maker(&made(7), other), Some(Err(())));
        let forged = made(7).replace("9-5", "8-5");
        assert_eq!(here.maker(&forged, subject), Some(Err(())));
        let itself = StateTokens::new([7; 16], &[], Some(9));
        assert_eq!(itself.maker(&made(7), subject), None);
        let alone = StateTokens::new([7; 16], &[], None);
        assert_eq!(alone.maker(&made(7), subject), None);
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

    #[test]
    fn both_halves_of_a_key_count() {
        let token = |key| {
            let tokens = StateTokens::new(key, &[], None);
            tokens.token(RequestId::from_number(7), 1, 0)
        };
        let (mut first, mut last) = ([7; 16], [7; 16]);
        (first[0], last[15]) = (8, 8);
        assert_ne!(token([7; 16]), token(first));
        assert_ne!(token([7; 16]), token(last));
    }
}
