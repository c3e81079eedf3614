//! The asks of the server that hosts have to answer, and the hosts that they can be for. Sends nothing itself.

use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::ToString;

use crate::driver::AskId;
use crate::json::Payload;
use crate::protocol::code;
use crate::server::{self, Caller, Unanswered};
use crate::wire::ErrorObject;

/// The pending asks, by their ids on both sides.
#[derive(Debug, Default)]
pub(super) struct Questions {
    behind: BTreeMap<AskId, Put>,
    in_front: BTreeMap<AskId, AskId>,
    /// Asks that wait for a request for which the host can be asked.
    waiting: VecDeque<Waiting>,
    /// The hosts whose messages reached the server in its present epoch.
    callers: Callers,
}

/// The hosts that the server can know of.
///
/// A legacy server does not say which request an ask belongs to. It may ask long after its reply, or for a host that has left. So the host
/// is certain only while no message of another host was ever carried to this very server.
#[derive(Debug, Default)]
enum Callers {
    #[default]
    Nobody,
    One(Caller),
    Several,
}

impl Callers {
    fn add(&mut self, caller: &Caller) {
        *self = match core::mem::take(self) {
            Callers::Nobody => Callers::One(caller.clone()),
            Callers::One(first) if first == *caller => Callers::One(first),
            Callers::One(_) | Callers::Several => Callers::Several,
        };
    }
}

/// An ask that was not sent to a host yet.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) behind: AskId,
    pub(super) method: Cow<'static, str>,
    pub(super) params: Option<Payload>,
}

impl Waiting {
    fn bytes(&self) -> usize {
        let params = self.params.as_ref();
        self.method.len() + params.map_or(0, |params| params.as_str().len())
    }
}

/// An ask that was sent to a host.
#[derive(Debug)]
struct Put {
    /// Its id on the host's side.
    ask: AskId,
    /// A copy of the ask, if the request that it was sent for is a guess.
    guess: Option<Guess>,
}

/// A copy of an ask whose request is a guess, so that it can be put again for another request.
#[derive(Debug)]
pub(super) struct Guess {
    pub(super) method: Cow<'static, str>,
    pub(super) params: Option<Payload>,
}

impl Questions {
    /// Records that an ask was sent to a host.
    pub(super) fn put(&mut self, behind: AskId, ask: AskId, guess: Option<Guess>) {
        self.behind.insert(behind, Put { ask, guess });
        self.in_front.insert(ask, behind);
    }

    /// Records that a message of this host is carried to the server.
    pub(super) fn add_caller(&mut self, caller: &Caller) {
        self.callers.add(caller);
    }

    /// Starts anew for a new server process. It knows only the hosts whose requests are still to be sent to it.
    pub(super) fn begin_epoch<'a>(&mut self, waiting: impl Iterator<Item = &'a Caller>) {
        self.callers = Callers::Nobody;
        waiting.for_each(|caller| self.callers.add(caller));
    }

    /// The one host that the server can mean, if there is only one.
    pub(super) fn only_caller(&self) -> Option<&Caller> {
        match &self.callers {
            Callers::One(caller) => Some(caller),
            Callers::Nobody | Callers::Several => None,
        }
    }

    /// Keeps an ask until there is a request for which the host can be asked. The upstream link limits the number of these asks, and their wait
    /// with its ask timeout. The error is the answer to an ask that would make them larger than `most` bytes in all. One ask may have any size.
    pub(super) fn wait(&mut self, waiting: Waiting, most: usize) -> Result<(), ErrorObject> {
        let held: usize = self.waiting.iter().map(Waiting::bytes).sum();
        if held > 0 && held + waiting.bytes() > most {
            let text = "too many questions wait for a request of the client; ask again when some have their answers";
            return Err(ErrorObject::new(code::INTERNAL_ERROR, text));
        }
        self.waiting.push_back(waiting);
        Ok(())
    }

    /// Removes and returns the waiting asks.
    pub(super) fn take_waiting(&mut self) -> VecDeque<Waiting> {
        core::mem::take(&mut self.waiting)
    }

    /// Removes an ask that the server withdrew. Returns its id on the host's side, if a host was asked.
    pub(super) fn withdraw(&mut self, behind: AskId) -> Option<AskId> {
        self.waiting.retain(|waiting| waiting.behind != behind);
        let put = self.behind.remove(&behind)?;
        self.in_front.remove(&put.ask);
        Some(put.ask)
    }

    /// Removes an ask that has its outcome. Returns its id on the server's side, and a copy of the ask if the relay guessed to which request it
    /// belongs.
    pub(super) fn answered(&mut self, in_front: AskId) -> Option<(AskId, Option<Guess>)> {
        let behind = self.in_front.remove(&in_front)?;
        let put = self.behind.remove(&behind)?;
        Some((behind, put.guess))
    }
}

/// The error for an ask that could be for more than one host.
pub(super) fn unattributed() -> ErrorObject {
    let text = "nobody was asked: several clients share this server, and the question does not say for which of their requests it is; \
                ask while the request is not answered yet, in a version or over a transport that names it, or run one server for each client";
    ErrorObject::new(code::INVALID_PARAMS, text)
}

/// The error for an ask that got no answer.
pub(super) fn unanswered(why: &Unanswered) -> ErrorObject {
    ErrorObject::new(code::INTERNAL_ERROR, why.to_string())
}

/// S-S2C-03: the error of a client that cannot be asked.
pub(super) fn unaskable(misuse: &server::Misuse) -> ErrorObject {
    let text = format!("the client cannot be asked this now: {misuse}");
    ErrorObject::new(code::INVALID_PARAMS, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_certain_while_no_other_reached_the_server_in_this_epoch() {
        let [ann, eve] = [1, 2].map(Caller::session);
        let mut questions = Questions::default();
        assert_eq!(questions.only_caller(), None);
        for (caller, only) in [
            (&ann, Some(&ann)),
            (&ann, Some(&ann)),
            (&eve, None),
            (&ann, None),
        ] {
            questions.add_caller(caller);
            assert_eq!(questions.only_caller(), only);
        }
        questions.begin_epoch([&eve, &eve].into_iter());
        assert_eq!(questions.only_caller(), Some(&eve));
        questions.begin_epoch([].into_iter());
        assert_eq!(questions.only_caller(), None);
    }

    fn ask(behind: AskId, params: &str) -> Waiting {
        Waiting {
            behind,
            method: "roots/list".into(),
            params: params.parse().ok(),
        }
    }

    #[test]
    fn asks_wait_up_to_a_limit_in_bytes_and_a_lone_one_waits_whatever_its_size() {
        let [first, second, third] = [1, 2, 3].map(AskId::from_number);
        let mut questions = Questions::default();
        let long = alloc::format!(r#"{{"a":"{}"}}"#, "x".repeat(100));
        assert!(questions.wait(ask(first, &long), 50).is_ok());
        assert!(questions.wait(ask(second, "{}"), 50).is_err());
        assert_eq!(questions.take_waiting().len(), 1);
        let size = "roots/list{}".len();
        assert!(questions.wait(ask(second, "{}"), 2 * size).is_ok());
        assert!(questions.wait(ask(third, "{}"), 2 * size).is_ok());
        assert!(questions.wait(ask(first, "{}"), 2 * size).is_err());
    }

    #[test]
    fn ask_that_is_withdrawn_or_answered_leaves_nothing() {
        let [behind, in_front, waiting] = [1, 2, 3].map(AskId::from_number);
        let mut questions = Questions::default();
        for is_withdrawn in [true, false] {
            questions.put(behind, in_front, None);
            if is_withdrawn {
                assert_eq!(questions.withdraw(behind), Some(in_front));
                assert!(questions.answered(in_front).is_none());
            } else {
                assert!(questions.answered(in_front).is_some());
                assert_eq!(questions.withdraw(behind), None);
            }
            assert!(questions.behind.is_empty() && questions.in_front.is_empty());
        }
        for behind in [waiting, behind] {
            assert!(questions.wait(ask(behind, "{}"), 100).is_ok());
        }
        assert_eq!(questions.withdraw(waiting), None, "no host was asked");
        let left = questions.take_waiting();
        assert_eq!(
            left.iter()
                .map(|it| it.behind)
                .collect::<alloc::vec::Vec<_>>(),
            [behind]
        );
        assert!(questions.take_waiting().is_empty());
    }
}
