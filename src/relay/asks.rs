//! Carries the asks of the server: finds the request of a host for each, and passes the answer back.

use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::ToString;

use super::bridge::{Carried, Errand};
use super::{Event, Relay};
use crate::client;
use crate::driver::{AskId, RequestId};
use crate::json::Payload;
use crate::protocol::{Era, code, question};
use crate::server::{self, Caller, Unanswered};
use crate::wire::ErrorObject;

/// The pending asks, by their ids on both sides.
#[derive(Debug, Default)]
pub(super) struct Asks {
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
struct Waiting {
    behind: AskId,
    method: Cow<'static, str>,
    params: Option<Payload>,
}

/// An ask that was sent to a host.
#[derive(Debug)]
struct Put {
    /// Its id on the host's side.
    ask: AskId,
    /// A copy of the ask, if the request that it was sent for is a guess.
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

    /// Records that a message of this host is carried to the server.
    pub(super) fn heard_of(&mut self, caller: &Caller) {
        self.callers.add(caller);
    }

    /// Starts anew for a new server process. It knows only the hosts whose requests are still to be sent to it.
    pub(super) fn begin_life<'a>(&mut self, waiting: impl Iterator<Item = &'a Caller>) {
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
    /// Passes an ask of the server to a host. Returns the event to report, if any.
    pub(super) fn ask(&mut self, ask: client::Ask) -> Option<Event> {
        let Some(call) = ask.call else {
            return self.put_somewhere(ask.ask, ask.method, ask.params);
        };
        let Some(Errand::Request(carried)) = self.errands.get(&call) else {
            self.answer(ask.ask, Err(unanswered(&Unanswered::RequestOver)));
            return None;
        };
        let request = carried.request;
        // On the host's side it has the key that the server gave it.
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

    /// Passes on an ask that names no request: all asks of legacy servers are like that. A legacy host on a byte stream needs no request.
    /// Any other host is asked for one of its requests that can wait for input. With HTTP in front, an ask is refused if the host is not
    /// certain.
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
            // The host has no request that could wait: the server asks after its reply.
            let asked = self.server.ask_session(self.now, &only, method, params);
            asked.map(|ask| (ask, None))
        } else if has_many {
            return Some(self.refuse(behind, method));
        } else {
            // The upstream link limits this wait with its ask timeout.
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

    /// Refuses an ask that could be for more than one host.
    fn refuse(&mut self, behind: AskId, method: Cow<'static, str>) -> Event {
        self.answer(behind, Err(unattributed()));
        Event::Unattributed { method }
    }

    /// Tries the waiting asks again, because there is a new request.
    pub(super) fn put_waiting(&mut self) {
        for waiting in core::mem::take(&mut self.asks.waiting) {
            // Only asks on a byte stream wait, and those are never refused as uncertain.
            let _ = self.put_somewhere(waiting.behind, waiting.method, waiting.params);
        }
    }

    /// The request that an ask most likely belongs to: the newest that can wait and whose host can be asked. A request whose host is
    /// present wins over one whose host is busy with other asks.
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

    /// The request that an unattributed log message of a modern server belongs to. Modern servers log only for requests. So it is the
    /// newest request that wants log messages, if the server never heard of another host.
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
            // The request was a guess among several; another one may do.
            (Err(Unanswered::RequestOver), Some(guess)) => {
                return self.put_somewhere(behind, guess.method, guess.params);
            }
            (Err(why), _) => Err(unanswered(&why)),
        };
        self.answer(behind, answer);
        None
    }

    /// Answers the ask. The server may have cancelled it meanwhile. If the answer is too large, the server gets an error instead.
    fn answer(&mut self, behind: AskId, answer: Result<Payload, ErrorObject>) {
        let answered = self.client.answer(self.now, behind, answer);
        if let Err(misuse @ client::Misuse::TooLarge { .. }) = answered {
            let error = ErrorObject::new(code::INTERNAL_ERROR, misuse.to_string());
            let _ = self.client.answer(self.now, behind, Err(error));
        }
    }

    /// Handles that the server cancelled its ask or is gone.
    pub(super) fn withdrawn(&mut self, behind: AskId) {
        self.asks.waiting.retain(|waiting| waiting.behind != behind);
        if let Some(put) = self.asks.take_behind(behind) {
            let reason = Some("the server took back its question");
            let _ = self.server.withdraw(self.now, put.ask, reason);
        }
    }
}

/// The error for an ask that could be for more than one host.
fn unattributed() -> ErrorObject {
    let text = "nobody was asked: several clients share this server, and the question does not say for which of their requests it is; \
                ask while the request is not answered yet, in a version or over a transport that names it, or run one server for each client";
    ErrorObject::new(code::INVALID_PARAMS, text)
}

fn unanswered(why: &Unanswered) -> ErrorObject {
    ErrorObject::new(code::INTERNAL_ERROR, why.to_string())
}

/// S-S2C-03: the error of a client that cannot be asked.
fn unaskable(misuse: &server::Misuse) -> ErrorObject {
    let text = format!("the client cannot be asked this now: {misuse}");
    ErrorObject::new(code::INVALID_PARAMS, text)
}
