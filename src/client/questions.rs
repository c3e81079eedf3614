//! Handles asks: passes them to the application, returns the answers, and stops the clocks of calls meanwhile. The application sees one kind of ask.
//! On the wire there are two: requests of a legacy server, and rounds of a call to a modern one.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use serde::Deserialize;

use super::asks::{self, Origin};
use super::calls::Round;
use super::event::{Ask, Event, Withdrawn};
use super::failure::FailureKind;
use super::frame::Frame;
use super::results::ResultHead;
use super::{Client, Timer};
use crate::driver::{AskId, CallId};
use crate::json::{Json, Payload, object};
use crate::protocol::method::names;
use crate::protocol::{ClientCapabilities, Era, Version, code, method};
use crate::wire::{ErrorObject, Id};

/// The number of answers that may wait for a server that does not read.
const ANSWERS_KEPT: usize = 256;

impl Client {
    pub(super) fn requested(&mut self, id: Id, name: &str, params: Option<Json<'_>>) {
        if !self.speaks_legacy() {
            // S-RPC-23, S-RPC-24: a modern server must not send requests, and the client must not reply.
            return self.noise("a request, which a modern server must not send", b"");
        }
        if name == names::PING {
            return self.reply(id, Ok(None));
        }
        let Some(session) = &self.session else {
            let text = "the handshake is not over";
            return self.reply(id, Err(ErrorObject::new(code::INVALID_REQUEST, text)));
        };
        if self.asks.knows(&id) {
            return self.noise("a request with the id of one that is open", b"");
        }
        // A resumed stream may repeat a request from before it was cut.
        if self.web.as_ref().is_some_and(|web| web.was_answered(&id)) {
            self.stats.late_replies += 1;
            return;
        }
        // Check that the answer has room before the application is asked.
        if !self.server_reads() {
            self.stats.answers_dropped += 1;
            return;
        }
        let admitted = match self.passes() {
            true => Ok(()),
            false => asks::admit(&self.config.capabilities, session.version, name, params),
        };
        let refused = match admitted {
            Ok(()) if self.asks.len() < self.config.limits.asks => None,
            Ok(()) => Some(ErrorObject::new(
                code::INTERNAL_ERROR,
                "too many questions are open; ask again when some are answered",
            )),
            Err(error) => Some(error),
        };
        match refused {
            Some(error) => {
                self.stats.asks_refused += 1;
                self.reply(id, Err(error));
            }
            None => self.ask(Origin::Request(id), name, params),
        }
    }

    /// Handles a result that asks for input before the call continues (S-MRTR-09).
    pub(super) fn input_required(&mut self, id: CallId, head: &ResultHead<'_>) {
        let limits = &self.config.limits;
        let Some(call) = self.calls.call_mut(id) else {
            return;
        };
        let number = call.round.as_ref().map_or(0, |round| round.number) + 1;
        if number > limits.input_rounds {
            let rounds = limits.input_rounds;
            return self.fail(id, FailureKind::TooManyRounds { rounds });
        }
        let Some(questions) = questions(head.input_requests) else {
            return self.invalid(id, "its questions cannot be read");
        };
        let state = head.request_state;
        if state.is_none() && questions.is_empty() {
            return self.invalid(id, "it wants input and does not say which");
        }
        let bytes = state.map_or(0, |state| state.as_str().len());
        if bytes > limits.request_state_bytes {
            let bytes = bytes as u64;
            return self.fail(id, FailureKind::TooLarge { bytes });
        }
        if state.is_some_and(|state| !state.as_str().starts_with('"')) {
            return self.invalid(id, "its state is no text");
        }
        if questions.len() > limits.asks {
            return self.invalid(id, "it asks more at once than may be open");
        }
        let open = self.asks.len();
        if questions.len() > limits.asks.saturating_sub(open) {
            return self.fail(id, FailureKind::TooManyAsks { open });
        }
        call.round = Some(Box::new(Round {
            number,
            state: state.map(Payload::from),
            answers: BTreeMap::new(),
            missing: questions.len(),
        }));
        let version = self
            .session
            .as_ref()
            .map_or(Version::LATEST_MODERN, |s| s.version);
        for question in &questions {
            let declared = self.declared_for(id);
            let admitted = match self.passes_call(id) {
                true => Ok(()),
                false => asks::admit(declared, version, &question.method, question.params),
            };
            if let Err(error) = admitted {
                let why = format!("it asks what it may not: {}", error.message);
                return self.invalid(id, &why);
            }
        }
        self.calls.asked(id, self.now);
        for question in questions {
            let origin = Origin::Round(id, question.key.into());
            self.ask(origin, &question.method, question.params);
        }
        self.go_on_if_answered(id);
    }

    /// The key under which a modern server expects the answer.
    pub(crate) fn key_of(&self, ask: AskId) -> Option<&str> {
        match &self.asks.get(ask)?.origin {
            Origin::Request(_) => None,
            Origin::Round(_, key) => Some(key),
        }
    }

    /// The capabilities of the client that makes the call: this one, or the one in front of a relay.
    pub(super) fn declared_for(&self, call: CallId) -> &ClientCapabilities {
        let call = self.calls.call(call);
        let behalf = call.and_then(|call| call.behalf.as_deref());
        behalf.map_or(&self.config.capabilities, |behalf| {
            &behalf.peer.capabilities
        })
    }

    fn ask(&mut self, origin: Origin, name: &str, params: Option<Json<'_>>) {
        let call = match &origin {
            Origin::Request(_) => self.web.as_ref().and_then(|web| web.about),
            Origin::Round(call, _) => Some(*call),
        };
        let ask = self.asks.open(origin, name);
        let until = self.now + self.config.policy.ask_timeout;
        self.stats.asks += 1;
        self.timers.arm(Timer::Ask(ask), until);
        let method = match method::find(name) {
            Some(facts) => Cow::Borrowed(facts.name),
            None => Cow::Owned(name.into()),
        };
        self.tell(Event::Ask(Ask {
            ask,
            call,
            method,
            params: params.map(Payload::from),
            until,
        }));
        self.hold_calls();
    }

    /// Whether the queue has room for another answer. It has none if the server does not read.
    fn server_reads(&self) -> bool {
        self.frames.answers() < ANSWERS_KEPT
            && self.frames.bytes() < self.config.limits.queued_bytes
    }

    /// Sends a reply of the link itself. It is dropped if the queue is full because the server does not read.
    pub(super) fn reply(&mut self, id: Id, answer: Result<Option<Payload>, ErrorObject>) {
        if self.server_reads() {
            self.frames.push(Frame::Answer(id, answer));
        } else {
            self.stats.answers_dropped += 1;
        }
    }

    /// Whether the server may send requests, as far as is known.
    pub(super) fn speaks_legacy(&self) -> bool {
        let session = self.session.as_ref();
        session.is_none_or(|session| session.version.era() == Era::Legacy)
    }

    /// Sends the answer to where the ask came from.
    pub(super) fn give(&mut self, open: asks::Open, answer: Result<Payload, ErrorObject>) {
        match open.origin {
            Origin::Request(id) => {
                if let Some(web) = &mut self.web {
                    web.answered(&id);
                }
                self.frames.push(Frame::Answer(id, answer.map(Some)));
                self.hold_calls();
            }
            Origin::Round(call, key) => match (self.calls.call_mut(call), answer) {
                (Some(asking), Ok(result)) => {
                    if let Some(round) = &mut asking.round {
                        round.answers.insert(key, result);
                        round.missing -= 1;
                    }
                    self.go_on_if_answered(call);
                }
                (Some(_), Err(error)) => self.fail(
                    call,
                    FailureKind::Declined {
                        method: open.method,
                        why: error.text().into(),
                    },
                ),
                (None, _) => {}
            },
        }
    }

    /// Sends the call again if no answers are missing.
    pub(super) fn go_on_if_answered(&mut self, id: CallId) {
        let round = self.calls.call(id).and_then(|call| call.round.as_ref());
        if round.is_some_and(|round| round.missing == 0) {
            self.calls.answered(id, self.now);
        }
        self.arm_call(id);
    }

    /// Handles an ask without an answer in time: the server gets an error, or the call fails.
    pub(super) fn ask_unanswered(&mut self, ask: AskId) {
        let Some(open) = self.asks.close(ask) else {
            return;
        };
        self.tell(Event::AskWithdrawn {
            ask,
            why: Withdrawn::TimedOut,
        });
        let text = "the question was not answered in time";
        self.give(open, Err(ErrorObject::new(code::INTERNAL_ERROR, text)));
    }

    /// Withdraws an ask from the application.
    pub(super) fn withdrawn(&mut self, ask: AskId, why: Withdrawn) {
        self.timers.disarm(Timer::Ask(ask));
        self.tell(Event::AskWithdrawn { ask, why });
        self.hold_calls();
    }

    pub(super) fn withdraw_all_asks(&mut self) {
        for ask in self.asks.close_all() {
            self.withdrawn(ask, Withdrawn::Ended);
        }
    }

    /// Stops the clocks of sent calls while a legacy server waits for an answer or the application holds back.
    pub(super) fn hold_calls(&mut self) {
        let is_held = self.asks.holds_calls() || self.holds_back;
        for id in self.calls.hold(is_held, self.now) {
            self.arm_call(id);
        }
    }
}

/// Reads the asks in a result. `None` if they cannot be read.
fn questions(requests: Option<Json<'_>>) -> Option<Vec<Question<'_>>> {
    let Some(requests) = requests else {
        return Some(Vec::new());
    };
    let mut all = Vec::new();
    let mut readable = true;
    let read = object::members(requests, |key, value| match value.parse::<Asked<'_>>() {
        Ok(asked) => all.push(Question {
            key,
            method: asked.method,
            params: asked.params,
        }),
        Err(_) => readable = false,
    });
    (read.is_ok() && readable).then_some(all)
}

struct Question<'a> {
    key: Cow<'a, str>,
    method: Cow<'a, str>,
    params: Option<Json<'a>>,
}

#[derive(Deserialize)]
struct Asked<'a> {
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow)]
    params: Option<Json<'a>>,
}
