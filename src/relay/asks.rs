//! Questions of the server behind: for which request of the client in front each is put, and how its answer comes back.

use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::ToString;
use core::time::Duration;

use super::Relay;
use super::bridge::{Carried, Errand};
use crate::client;
use crate::id::{AskId, RequestId};
use crate::protocol::{Era, code, question};
use crate::server::{self, Caller, Unanswered};
use crate::time::Instant;
use crate::wire::{ErrorObject, Payload};

/// The questions that are carried, by what each is called on either side.
#[derive(Debug, Default)]
pub(super) struct Asks {
    behind: BTreeMap<AskId, Put>,
    in_front: BTreeMap<AskId, AskId>,
    /// Those that wait for a request for which the client in front can be asked.
    waiting: VecDeque<Waiting>,
    /// Whose calls ended without a reply in this life of the server behind, and until when a question may still be for one of these.
    left: BTreeMap<Caller, Instant>,
}

/// So long, a server may still ask something for a call that it was told to be over, or that took too long. Ten minutes: as long as a person may
/// take to answer, and nobody else is to be asked what was meant for another.
const LINGERING: Duration = Duration::from_secs(600);

/// A question that is not put yet.
#[derive(Debug)]
struct Waiting {
    behind: AskId,
    method: Cow<'static, str>,
    params: Option<Payload>,
}

/// How a question was put in front.
#[derive(Debug)]
struct Put {
    /// What it is called there.
    ask: AskId,
    /// Where it was put for a request that may be another than the one that it was asked for: the question again.
    guess: Option<Guess>,
}

#[derive(Debug)]
struct Guess {
    /// Whose request it was put for: nobody else is asked.
    caller: Caller,
    method: Cow<'static, str>,
    params: Option<Payload>,
}

impl Asks {
    fn put(&mut self, behind: AskId, ask: AskId, guess: Option<Guess>) {
        self.behind.insert(behind, Put { ask, guess });
        self.in_front.insert(ask, behind);
    }

    /// A call of this client ended without a reply.
    pub(super) fn left(&mut self, now: Instant, caller: Caller) {
        self.left.insert(caller, now + LINGERING);
        // Whether there are several is all that matters: the last two say that.
        if self.left.len() > 2 {
            let first = self.left.iter().min_by_key(|(_, until)| **until);
            let first = first.map(|(caller, _)| caller.clone());
            first.map(|caller| self.left.remove(&caller));
        }
    }

    /// The server behind is another one, that asks nothing for calls that it does not know.
    pub(super) fn begin_life(&mut self) {
        self.left.clear();
    }

    fn take_behind(&mut self, behind: AskId) -> Option<Put> {
        let put = self.behind.remove(&behind)?;
        self.in_front.remove(&put.ask);
        Some(put)
    }

    fn take_in_front(&mut self, ask: AskId) -> Option<(AskId, Put)> {
        let behind = self.in_front.remove(&ask)?;
        Some((behind, self.behind.remove(&behind)?))
    }
}

impl Relay {
    pub(super) fn ask(&mut self, ask: client::Ask) {
        let Some(call) = ask.call else {
            return self.put_somewhere(ask.ask, ask.method, ask.params, None);
        };
        let Some(Errand::Request(carried)) = self.errands.get(&call) else {
            return self.answer(ask.ask, Err(unanswered(&Unanswered::RequestOver)));
        };
        let request = carried.request;
        // In front it has the name that the server behind gave it.
        let key = self.client.key_of(ask.ask).map(Into::into);
        let asked = self
            .server
            .ask_by(self.now, request, key, ask.method, ask.params);
        match asked {
            Ok(in_front) => self.asks.put(ask.ask, in_front, None),
            Err(misuse) => self.answer(ask.ask, Err(unaskable(&misuse))),
        }
    }

    /// A legacy server does not say for which request it asks. A legacy client in front does not want to know; a modern one
    /// is asked for one of its requests that can wait for it. Where there are many clients in front, only if it can be meant for no other
    /// than this one, or nobody is asked.
    fn put_somewhere(
        &mut self,
        behind: AskId,
        method: Cow<'static, str>,
        params: Option<Payload>,
        only: Option<&Caller>,
    ) {
        let has_many = self.config.downstream.http.is_some();
        if has_many && !self.is_meant_for_one(only, self.now) {
            return self.answer(behind, Err(unattributed()));
        }
        let put = if self.server.legacy_peer().is_some() {
            let asked = self.server.ask_unbidden(self.now, method, params);
            asked.map(|ask| (ask, None))
        } else if let Some((request, caller)) = self.likeliest(&method) {
            let guess = Guess {
                caller,
                method: method.clone(),
                params: params.clone(),
            };
            let asked = self.server.ask(self.now, request, method, params);
            asked.map(|ask| (ask, Some(guess)))
        } else if has_many {
            return self.answer(behind, Err(unattributed()));
        } else {
            // The link to the server behind sees to it that it does not wait for ever.
            let waiting = Waiting {
                behind,
                method,
                params,
            };
            return self.asks.waiting.push_back(waiting);
        };
        match put {
            Ok((ask, guess)) => self.asks.put(behind, ask, guess),
            Err(misuse) => self.answer(behind, Err(unaskable(&misuse))),
        }
    }

    /// There is another request: the questions that wait may be put for it.
    pub(super) fn put_waiting(&mut self) {
        for waiting in core::mem::take(&mut self.asks.waiting) {
            self.put_somewhere(waiting.behind, waiting.method, waiting.params, None);
        }
    }

    /// The request for which a question was most likely asked: the newest that can wait for it and whose client can be
    /// asked, rather one whose client is here than one whose client is away with other questions.
    fn likeliest(&self, method: &str) -> Option<(RequestId, Caller)> {
        let carried = self.calls.values().rev().filter_map(|call| {
            let Errand::Request(carried) = self.errands.get(call)? else {
                return None;
            };
            let peer = &carried.peer;
            let can = question::check(&peer.capabilities, peer.version, method, None);
            (carried.may_wait && can.is_ok()).then_some(carried)
        });
        let by_presence = |carried: &&Carried| self.server.is_away(carried.request);
        let likeliest = carried.min_by_key(by_presence)?;
        Some((likeliest.request, likeliest.caller.clone()))
    }

    /// The request for which a modern server behind logs something without saying so: it logs for requests alone, so this is the newest
    /// that wants to hear of it, if all that is carried is of one client in front. It may log at any time for a call that was taken back, so
    /// nobody who left is forgotten here.
    pub(super) fn logging(&self) -> Option<RequestId> {
        let session = self.client.session()?;
        if session.version.era() == Era::Legacy || !self.is_meant_for_one(None, Instant::ZERO) {
            return None;
        }
        let mut newest = self.calls.values().rev();
        newest.find_map(|call| match self.errands.get(call)? {
            Errand::Request(carried) => carried.wants_logs.then_some(carried.request),
            Errand::Compare(_) => None,
        })
    }

    /// Whether all that is carried is of one client in front: of this one, if one is named. Who left counts, unless forgotten by this time.
    fn is_meant_for_one(&self, only: Option<&Caller>, by: Instant) -> bool {
        let mut callers = self.errands.values().filter_map(|errand| match errand {
            Errand::Request(carried) => Some(&carried.caller),
            Errand::Compare(_) => None,
        });
        let Some(first) = callers.next() else {
            return false;
        };
        let left = self.asks.left.iter();
        let mut left = left.filter(|(_, until)| **until > by);
        only.is_none_or(|only| only == first)
            && callers.all(|caller| caller == first)
            && left.all(|(caller, _)| caller == first)
    }

    pub(super) fn answered(&mut self, in_front: AskId, outcome: Result<Payload, Unanswered>) {
        let Some((behind, put)) = self.asks.take_in_front(in_front) else {
            return;
        };
        let answer = match (outcome, put.guess) {
            (Ok(answer), _) => Ok(answer),
            (Err(Unanswered::Error(error)), _) => Err(error),
            // It was put for one request of several that it may belong to; there may be another.
            (Err(Unanswered::RequestOver), Some(guess)) => {
                let only = Some(&guess.caller);
                return self.put_somewhere(behind, guess.method, guess.params, only);
            }
            (Err(why), _) => Err(unanswered(&why)),
        };
        self.answer(behind, answer);
    }

    /// The server behind may have taken back its question, on the way to here; and what it cannot be told it is told so.
    fn answer(&mut self, behind: AskId, answer: Result<Payload, ErrorObject>) {
        let answered = self.client.answer(self.now, behind, answer);
        if let Err(misuse @ client::Misuse::TooLarge { .. }) = answered {
            let error = ErrorObject::new(code::INTERNAL_ERROR, misuse.to_string());
            let _ = self.client.answer(self.now, behind, Err(error));
        }
    }

    /// The server behind took back its question, or is gone.
    pub(super) fn withdrawn(&mut self, behind: AskId) {
        self.asks.waiting.retain(|waiting| waiting.behind != behind);
        if let Some(put) = self.asks.take_behind(behind) {
            let reason = Some("the server took back its question");
            let _ = self.server.withdraw(self.now, put.ask, reason);
        }
    }
}

/// What is said to a question that could be for more than one.
fn unattributed() -> ErrorObject {
    let text =
        "the client cannot be asked this: nobody can tell for which of several clients it is";
    ErrorObject::new(code::INVALID_PARAMS, text)
}

fn unanswered(why: &Unanswered) -> ErrorObject {
    ErrorObject::new(code::INTERNAL_ERROR, why.to_string())
}

/// S-S2C-03: what a client that cannot be asked says.
fn unaskable(misuse: &server::Misuse) -> ErrorObject {
    let text = format!("the client cannot be asked this now: {misuse}");
    ErrorObject::new(code::INVALID_PARAMS, text)
}
