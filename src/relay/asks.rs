//! Questions of the server behind: for which request of the client in front each is put, and how its answer comes back.

use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::ToString;

use super::bridge::{Carried, Errand};
use super::{Event, Relay};
use crate::client;
use crate::id::{AskId, RequestId};
use crate::protocol::{Era, code, question};
use crate::server::{self, Caller, Unanswered};
use crate::wire::{ErrorObject, Payload};

/// The questions that are carried, by what each is called on either side.
#[derive(Debug, Default)]
pub(super) struct Asks {
    behind: BTreeMap<AskId, Put>,
    in_front: BTreeMap<AskId, AskId>,
    /// Those that wait for a request for which the client in front can be asked.
    waiting: VecDeque<Waiting>,
    /// Whose messages reached the server behind, in its present life.
    callers: Callers,
}

/// Which clients in front the server behind can have heard of.
///
/// A legacy server does not say for whom it asks. It may ask long after it replied, or for a client that left. So the client is certain only
/// while no other one ever had anything carried to this very server.
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
    method: Cow<'static, str>,
    params: Option<Payload>,
}

impl Asks {
    fn put(&mut self, behind: AskId, ask: AskId, guess: Option<Guess>) {
        self.behind.insert(behind, Put { ask, guess });
        self.in_front.insert(ask, behind);
    }

    /// Something of this client is carried to the server behind.
    pub(super) fn heard_of(&mut self, caller: &Caller) {
        self.callers.add(caller);
    }

    /// The server behind is a new process. It knows of no client but those whose requests are still to be sent to it.
    pub(super) fn begin_life<'a>(&mut self, waiting: impl Iterator<Item = &'a Caller>) {
        self.callers = Callers::Nobody;
        waiting.for_each(|caller| self.callers.add(caller));
    }

    /// The one client that the server behind can mean, if there is only one.
    pub(super) fn only_caller(&self) -> Option<&Caller> {
        match &self.callers {
            Callers::One(caller) => Some(caller),
            Callers::Nobody | Callers::Several => None,
        }
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
    /// Puts a question of the server behind. What whoever runs the relay is to know of it.
    pub(super) fn ask(&mut self, ask: client::Ask) -> Option<Event> {
        let Some(call) = ask.call else {
            return self.put_somewhere(ask.ask, ask.method, ask.params);
        };
        let Some(Errand::Request(carried)) = self.errands.get(&call) else {
            self.answer(ask.ask, Err(unanswered(&Unanswered::RequestOver)));
            return None;
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
        None
    }

    /// A legacy server does not say for which request it asks. A legacy client on a byte stream does not want to know; any other is asked for
    /// one of its requests that can wait for it. With HTTP in front, a question of which it is not certain for whom it is goes to nobody.
    fn put_somewhere(
        &mut self,
        behind: AskId,
        method: Cow<'static, str>,
        params: Option<Payload>,
    ) -> Option<Event> {
        let has_many = self.config.downstream.http.is_some();
        let only = self.asks.only_caller().filter(|_| has_many).cloned();
        if has_many && only.is_none() {
            return Some(self.refuse(behind, method));
        }
        let put = if self.server.legacy_peer().is_some() {
            let asked = self.server.ask_unbidden(self.now, method, params);
            asked.map(|ask| (ask, None))
        } else if let Some(request) = self.likeliest(&method) {
            let guess = Guess {
                method: method.clone(),
                params: params.clone(),
            };
            let asked = self.server.ask(self.now, request, method, params);
            asked.map(|ask| (ask, Some(guess)))
        } else if let Some(only) = only.filter(Caller::is_session) {
            // It has no request that could wait: the server asks after it replied.
            let asked = self.server.ask_session(self.now, &only, method, params);
            asked.map(|ask| (ask, None))
        } else if has_many {
            return Some(self.refuse(behind, method));
        } else {
            // The link to the server behind sees to it that it does not wait for ever.
            let waiting = Waiting {
                behind,
                method,
                params,
            };
            self.asks.waiting.push_back(waiting);
            return None;
        };
        match put {
            Ok((ask, guess)) => self.asks.put(behind, ask, guess),
            Err(misuse) => self.answer(behind, Err(unaskable(&misuse))),
        }
        None
    }

    /// Answers that nobody was asked, because the question could be for more than one client.
    fn refuse(&mut self, behind: AskId, method: Cow<'static, str>) -> Event {
        self.answer(behind, Err(unattributed()));
        Event::Unattributed { method }
    }

    /// There is another request: the questions that wait may be put for it.
    pub(super) fn put_waiting(&mut self) {
        for waiting in core::mem::take(&mut self.asks.waiting) {
            // Only a question on a byte stream waits, and that is never refused for want of certainty.
            let _ = self.put_somewhere(waiting.behind, waiting.method, waiting.params);
        }
    }

    /// The request for which a question was most likely asked: the newest that can wait for it and whose client can be
    /// asked, rather one whose client is here than one whose client is away with other questions.
    fn likeliest(&self, method: &str) -> Option<RequestId> {
        let carried = self.calls.values().rev().filter_map(|call| {
            let Errand::Request(carried) = self.errands.get(call)? else {
                return None;
            };
            let peer = &carried.peer;
            let can = question::check(&peer.capabilities, peer.version, method, None);
            (carried.may_wait && can.is_ok()).then_some(carried)
        });
        let by_presence = |carried: &&Carried| self.server.is_away(carried.request);
        Some(carried.min_by_key(by_presence)?.request)
    }

    /// The request for which a modern server behind logs something without saying so: it logs for requests alone, so this is the newest
    /// that wants to hear of it, if the server never heard of another client in front.
    pub(super) fn logging(&self) -> Option<RequestId> {
        let session = self.client.session()?;
        if session.version.era() == Era::Legacy {
            return None;
        }
        self.asks.only_caller()?;
        let mut newest = self.calls.values().rev();
        newest.find_map(|call| match self.errands.get(call)? {
            Errand::Request(carried) => carried.wants_logs.then_some(carried.request),
            Errand::Compare(_) => None,
        })
    }

    pub(super) fn answered(
        &mut self,
        in_front: AskId,
        outcome: Result<Payload, Unanswered>,
    ) -> Option<Event> {
        let (behind, put) = self.asks.take_in_front(in_front)?;
        let answer = match (outcome, put.guess) {
            (Ok(answer), _) => Ok(answer),
            (Err(Unanswered::Error(error)), _) => Err(error),
            // It was put for one request of several that it may belong to; there may be another.
            (Err(Unanswered::RequestOver), Some(guess)) => {
                return self.put_somewhere(behind, guess.method, guess.params);
            }
            (Err(why), _) => Err(unanswered(&why)),
        };
        self.answer(behind, answer);
        None
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
    let text = "nobody was asked: several clients share this server, and the question does not say for which of their requests it is; \
                ask while the request is not answered yet, in a version or over a transport that names it, or run one server for each client";
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
