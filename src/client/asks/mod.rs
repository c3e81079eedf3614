//! The open asks of a server, of either era, in one epoch. The application sees one kind of ask. On the wire there are two: requests of a legacy
//! server, and rounds of a call to a modern one.

mod questions;

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::client::context::{Context, Timer};
use crate::client::event::{Ask, Event, Withdrawn};
use crate::client::failure::Misuse;
use crate::client::frame::Frame;
use crate::driver::{AskId, CallId};
use crate::json::{Json, Payload};
use crate::protocol::method::names;
use crate::protocol::question::{self, Unaskable};
use crate::protocol::{ClientCapabilities, Version, code, method};
use crate::util::ascending_map::AscendingMap;
use crate::util::noise::excerpt;
use crate::wire::{ErrorObject, Id};
pub(in crate::client) use questions::{Question, questions};

use super::session::SessionState;

/// How many answered asks are remembered: to recognize those that a resumed stream repeats, and for the progress of tasks.
const ANSWERS_KNOWN: usize = 64;

/// The origin of an ask, which is where its answer goes. Requests sort before rounds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Origin {
    /// A request with this id from a legacy server.
    Request(Id),
    /// The result of this call, under this key (S-MRTR-05).
    Round(CallId, Box<str>),
}

#[derive(Debug)]
struct Open {
    origin: Origin,
    method: Box<str>,
    /// `None` if the server did not ask for progress.
    progress: Option<Progress>,
}

/// The token under which the progress of an ask is reported, and the last value.
#[derive(Debug)]
struct Progress {
    token: Id,
    last: Option<f64>,
}

#[derive(Debug)]
pub(super) struct Asks {
    next: u64,
    open: AscendingMap<AskId, Open>,
    by_origin: BTreeMap<Origin, AskId>,
    /// The ids of the last requests that were answered.
    recently_answered: VecDeque<Id>,
    /// The progress of the last asks that were answered with a task. Their tokens stay valid (S-PROG-07).
    tasks: VecDeque<Progress>,
}

/// A request of a legacy server.
pub(super) struct ServerRequest<'a> {
    pub(super) id: Id,
    pub(super) method: &'a str,
    pub(super) params: Option<Json<'a>>,
    /// The call that it belongs to, if that is known.
    pub(super) about: Option<CallId>,
    /// Whether it may repeat a request from before a stream was cut.
    pub(super) may_repeat: bool,
}

/// What follows from an answer.
#[must_use]
pub(super) enum Given {
    /// The server gets it.
    Sent,
    /// It belongs to a round of this call, under this key.
    Round(CallId, Box<str>, Payload),
    /// The call that led to the ask fails: this method was declined, with this error.
    Declined(CallId, Box<str>, ErrorObject),
}

impl Asks {
    pub(super) const fn new() -> Asks {
        Asks {
            next: 1,
            open: AscendingMap::new(),
            by_origin: BTreeMap::new(),
            recently_answered: VecDeque::new(),
            tasks: VecDeque::new(),
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether a legacy server waits for an answer. It does not say which call it asks for, so the clocks of all calls in flight stop.
    pub(super) fn holds_calls(&self) -> bool {
        let first = self.by_origin.first_key_value();
        first.is_some_and(|(origin, _)| matches!(origin, Origin::Request(_)))
    }

    /// The call between two rounds that the answer is for. `None` if the ask is a request of its own.
    pub(super) fn call_of(&self, ask: AskId) -> Option<CallId> {
        match self.open.get(ask)?.origin {
            Origin::Request(_) => None,
            Origin::Round(call, _) => Some(call),
        }
    }

    /// The key under which a modern server expects the answer.
    pub(super) fn key_of(&self, ask: AskId) -> Option<&str> {
        match &self.open.get(ask)?.origin {
            Origin::Request(_) => None,
            Origin::Round(_, key) => Some(key),
        }
    }

    /// Handles a request of the server. The error says why it is noise.
    pub(super) fn request(
        &mut self,
        cx: &mut Context,
        session: &SessionState,
        request: ServerRequest<'_>,
    ) -> Result<(), &'static str> {
        if !session.speaks_legacy() {
            // S-RPC-23, S-RPC-24: a modern server must not send requests, and the client must not reply.
            return Err("a request, which a modern server must not send");
        }
        let id = request.id;
        if request.method == names::PING {
            cx.reply(id, Ok(None));
            return Ok(());
        }
        let Some(version) = session.version() else {
            let text = "the handshake is not over";
            cx.reply(id, Err(ErrorObject::new(code::INVALID_REQUEST, text)));
            return Ok(());
        };
        if self.by_origin.contains_key(&Origin::Request(id.clone())) {
            return Err("a request with the id of one that is open");
        }
        if request.may_repeat && self.recently_answered.contains(&id) {
            cx.stats.late_replies += 1;
            return Ok(());
        }
        // Check that the answer has room before the application is asked.
        if !cx.server_reads() {
            cx.stats.answers_dropped += 1;
            return Ok(());
        }
        let admitted = match session.passes(&cx.config) {
            true => Ok(()),
            false => {
                let declared = &cx.config.capabilities;
                admit(declared, version, request.method, request.params)
            }
        };
        let refused = match admitted {
            Ok(()) if self.open.len() < cx.config.limits.asks => None,
            Ok(()) => Some(ErrorObject::new(
                code::INTERNAL_ERROR,
                "too many questions are open; ask again when some are answered",
            )),
            Err(error) => Some(error),
        };
        match refused {
            Some(error) => {
                cx.stats.asks_refused += 1;
                cx.reply(id, Err(error));
            }
            None => {
                let origin = Origin::Request(id);
                self.ask(cx, origin, request.about, request.method, request.params);
            }
        }
        Ok(())
    }

    /// Asks a question of a round.
    pub(super) fn ask_for(&mut self, cx: &mut Context, call: CallId, question: Question<'_>) {
        let origin = Origin::Round(call, question.key.into());
        self.ask(cx, origin, Some(call), &question.method, question.params);
    }

    fn ask(
        &mut self,
        cx: &mut Context,
        origin: Origin,
        call: Option<CallId>,
        name: &str,
        params: Option<Json<'_>>,
    ) {
        let ask = AskId::from_number(self.next);
        self.next += 1;
        self.by_origin.insert(origin.clone(), ask);
        let method = name.into();
        let token = params.and_then(|params| member(member(params, "_meta")?, "progressToken"));
        let token = token.and_then(|token| Id::from_json(token.as_str()));
        let progress = token.map(|token| Progress { token, last: None });
        let open = Open {
            origin,
            method,
            progress,
        };
        self.open.add(ask, open);
        let until = cx.now + cx.config.policy.ask_timeout;
        cx.stats.asks += 1;
        cx.timers.arm(Timer::Ask(ask), until);
        let method = match method::find(name) {
            Some(facts) => Cow::Borrowed(facts.name),
            None => Cow::Owned(name.into()),
        };
        cx.tell(Event::Ask(Ask {
            ask,
            call,
            method,
            params: params.map(Payload::from),
            until,
        }));
    }

    /// Returns the answer to an ask. `None` if the ask is not open. `may_repeat`: the server may repeat the request later.
    pub(super) fn give(
        &mut self,
        cx: &mut Context,
        ask: AskId,
        answer: Result<Payload, ErrorObject>,
        may_repeat: bool,
    ) -> Option<Given> {
        let open = self.close(ask)?;
        cx.timers.disarm(Timer::Ask(ask));
        Some(match (open.origin, answer) {
            (Origin::Request(id), answer) => {
                if may_repeat {
                    remember(&mut self.recently_answered, id.clone());
                }
                let is_task = |result: &Payload| member(result.json(), "task").is_some();
                if let Some(progress) = open.progress.filter(|_| answer.as_ref().is_ok_and(is_task))
                {
                    remember(&mut self.tasks, progress);
                }
                cx.frames.push(Frame::Answer(id, answer.map(Some)));
                Given::Sent
            }
            (Origin::Round(call, key), Ok(result)) => Given::Round(call, key, result),
            (Origin::Round(call, _), Err(error)) => Given::Declined(call, open.method, error),
        })
    }

    /// Records progress that the application wants to report. Returns whether it increases (S-PROG-03).
    ///
    /// # Errors
    ///
    /// When the parameters name no token of an open ask (S-PROG-04).
    pub(super) fn progressed(&mut self, params: Option<&Payload>) -> Result<bool, Misuse> {
        let read = |key| member(params?.json(), key);
        let token = read("progressToken").and_then(|token| Id::from_json(token.as_str()));
        let value: Option<f64> = read("progress").and_then(|value| value.parse().ok());
        let open = self.open.values_mut();
        let open = open.filter_map(|open| open.progress.as_mut());
        let mut all = open.chain(&mut self.tasks);
        let known = all.find(|progress| Some(&progress.token) == token.as_ref());
        let (Some(progress), Some(value)) = (known, value) else {
            return Err(Misuse::UnknownAsk);
        };
        let increases = progress.last.is_none_or(|last| value > last);
        if increases {
            progress.last = Some(value);
        }
        Ok(increases)
    }

    /// Handles an ask without an answer in time: the server gets an error, or the call fails.
    pub(super) fn expire(
        &mut self,
        cx: &mut Context,
        ask: AskId,
        may_repeat: bool,
    ) -> Option<Given> {
        self.open.get(ask)?;
        let why = Withdrawn::TimedOut;
        cx.tell(Event::AskWithdrawn { ask, why });
        let text = "the question was not answered in time";
        let error = ErrorObject::new(code::INTERNAL_ERROR, text);
        self.give(cx, ask, Err(error), may_repeat)
    }

    fn close(&mut self, ask: AskId) -> Option<Open> {
        let open = self.open.remove(ask)?;
        self.by_origin.remove(&open.origin);
        Some(open)
    }

    /// Closes the ask that the server cancelled. Returns false if there is none.
    pub(super) fn withdraw(&mut self, cx: &mut Context, id: &Id) -> bool {
        let Some(ask) = self.by_origin.remove(&Origin::Request(id.clone())) else {
            return false;
        };
        self.open.discard(ask);
        withdrawn(cx, ask, Withdrawn::ByServer);
        true
    }

    /// Closes the asks of a call that has ended.
    pub(super) fn withdraw_of(&mut self, cx: &mut Context, call: CallId) {
        let of_call = self.by_origin.range(Origin::Round(call, "".into())..);
        let of_call =
            of_call.take_while(|(origin, _)| matches!(origin, Origin::Round(of, _) if *of == call));
        let of_call: Vec<AskId> = of_call.map(|(_, ask)| *ask).collect();
        for ask in of_call {
            self.close(ask);
            withdrawn(cx, ask, Withdrawn::CallSettled);
        }
    }

    /// Closes all asks at the end of an epoch.
    pub(super) fn withdraw_all(&mut self, cx: &mut Context) {
        let all: Vec<AskId> = self.open.keys().collect();
        self.by_origin = BTreeMap::new();
        self.open = AscendingMap::new();
        self.recently_answered = VecDeque::new();
        self.tasks = VecDeque::new();
        for ask in all {
            withdrawn(cx, ask, Withdrawn::Ended);
        }
    }
}

fn member<'a>(object: Json<'a>, key: &str) -> Option<Json<'a>> {
    object.member(key).ok().flatten()
}

/// Appends to a list that keeps only the last `ANSWERS_KNOWN` entries.
fn remember<T>(list: &mut VecDeque<T>, entry: T) {
    if list.len() >= ANSWERS_KNOWN {
        list.pop_front();
    }
    list.push_back(entry);
}

/// Withdraws an ask from the application.
fn withdrawn(cx: &mut Context, ask: AskId, why: Withdrawn) {
    cx.timers.disarm(Timer::Ask(ask));
    cx.tell(Event::AskWithdrawn { ask, why });
}

/// Checks the answer of the application to an ask.
pub(super) fn check_answer(
    answer: &Result<Payload, ErrorObject>,
    most: usize,
) -> Result<(), Misuse> {
    if answer.as_ref().is_ok_and(|result| !result.is_object()) {
        return Err(Misuse::NotAnObject { what: "an answer" });
    }
    let bytes = match answer {
        Ok(result) => result.as_str().len(),
        Err(error) => {
            let data = error.data.as_ref().map_or(0, |data| data.as_str().len());
            error.message.len() + data
        }
    };
    if bytes > most {
        return Err(Misuse::TooLarge { bytes });
    }
    Ok(())
}

/// Checks whether the server may ask this. The error is the reply for a server that may not.
pub(super) fn admit(
    declared: &ClientCapabilities,
    version: Version,
    name: &str,
    params: Option<Json<'_>>,
) -> Result<(), ErrorObject> {
    question::check(declared, version, name, params).map_err(|why| match why {
        Unaskable::Unknown | Unaskable::Undeclared(_) => {
            let name = excerpt(name);
            let text = alloc::format!("`{name}` is not something this client can be asked");
            ErrorObject::new(code::METHOD_NOT_FOUND, text)
        }
        Unaskable::UnknownManner | Unaskable::UndeclaredManner(_) => {
            ErrorObject::new(code::INVALID_PARAMS, alloc::format!("{why}"))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_answers_are_remembered() {
        let mut list = VecDeque::new();
        for entry in 0..=ANSWERS_KNOWN {
            remember(&mut list, entry);
        }
        assert!(list.into_iter().eq(1..=ANSWERS_KNOWN));
    }
}
