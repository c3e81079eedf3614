//! What clients are asked: how a question is put, how its answer comes back, and what becomes of it otherwise.
//! One thing to the application, two on the wire: requests to a legacy client, and rounds of a modern request.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use serde_json::value::RawValue;

use super::answers::{check_question, may_ask};
use super::asks::{self, Found, Open, Place};
use super::event::{Cancelled, Event, Peer, Unanswered};
use super::frame::{Frame, Verdict};
use super::misuse::Misuse;
use super::requests::{Phase, Telling};
use super::seal::Sealed;
use super::{Server, Timer};
use crate::id::{AskId, RequestId};
use crate::protocol::{Era, code, question};
use crate::wire::{ErrorObject, Id, Payload, object};

impl Server {
    pub(super) fn ask_for(
        &mut self,
        request: RequestId,
        method: Cow<'static, str>,
        params: Option<Payload>,
    ) -> Result<AskId, Misuse> {
        let entry = self.open_request(request)?;
        check_question(entry, &method, params.as_ref())?;
        let era = entry.told.peer.version.era();
        let is_here = !matches!(entry.phase, Phase::Away(_));
        if era == Era::Modern {
            may_ask(entry)?;
            let rounds = self.config.limits.input_rounds;
            if entry.round >= rounds {
                return Err(Misuse::TooManyRounds { rounds });
            }
        }
        self.check_ask(params.as_ref())?;
        let place = match era {
            Era::Legacy => {
                self.initialized_peer()?;
                Place::Wire(false)
            }
            Era::Modern => Place::Queued,
        };
        let ask = self.open_ask(Some(request), method, params, place);
        if let Some(entry) = self.requests.get_mut(request) {
            entry.asks.push(ask);
        }
        if era == Era::Modern && is_here {
            self.put_questions(request);
        }
        Ok(ask)
    }

    pub(super) fn ask_legacy(
        &mut self,
        method: Cow<'static, str>,
        params: Option<Payload>,
    ) -> Result<AskId, Misuse> {
        let peer = self.initialized_peer()?;
        if params.as_ref().is_some_and(|params| !params.is_object()) {
            return Err(Misuse::NotAnObject { what: "parameters" });
        }
        let raw = params.as_ref().map(Payload::raw);
        let checked = question::check(&peer.capabilities, peer.version, &method, raw);
        if let Err(why) = checked {
            return Err(Misuse::Unaskable { method, why });
        }
        self.check_ask(params.as_ref())?;
        Ok(self.open_ask(None, method, params, Place::Wire(false)))
    }

    /// S-LIFE-05: nothing is asked before the handshake is over.
    fn initialized_peer(&self) -> Result<&Peer, Misuse> {
        let scope = self.legacy.as_ref().filter(|scope| scope.is_initialized);
        scope.map(|scope| &*scope.peer).ok_or(Misuse::NoLegacyPeer)
    }

    fn check_ask(&self, params: Option<&Payload>) -> Result<(), Misuse> {
        if self.has_input_ended {
            return Err(Misuse::NotServing { state: self.state });
        }
        let open = self.asks.len().max(self.requests.away());
        if open >= self.config.limits.asks {
            return Err(Misuse::TooManyAsks { open });
        }
        self.check_size(params.map_or(0, |params| params.as_str().len()))
    }

    fn open_ask(
        &mut self,
        request: Option<RequestId>,
        method: Cow<'static, str>,
        params: Option<Payload>,
        place: Place,
    ) -> AskId {
        self.stats.asks += 1;
        let ask = self.asks.open(Open {
            request,
            method,
            params,
            place,
        });
        if place == Place::Wire(false) {
            self.frames.push(Frame::Ask(ask));
            self.arm_in(Timer::Ask(ask), self.config.ask_timeout);
        }
        ask
    }

    /// The questions of a request are to be written in the place of its answer, all that there are by then.
    fn put_questions(&mut self, request: RequestId) {
        if let Some(entry) = self.requests.get_mut(request) {
            if let Phase::Open = entry.phase {
                entry.phase = Phase::Asking;
                self.frames.push(Frame::Questions(request));
            }
        }
    }

    pub(super) fn say_questions(&mut self, buf: &mut Vec<u8>, request: RequestId) {
        let Some(entry) = self.requests.get(request) else {
            return;
        };
        for ask in &entry.asks {
            if let Some(open) = self.asks.get_mut(*ask) {
                open.place = Place::Round;
            }
        }
        let state = self.seal.state(request, entry.round + 1, entry.subject);
        let questions = entry.asks.iter().filter_map(|ask| {
            let open = self.asks.get(*ask)?;
            Some((asks::key(*ask), &*open.method, open.params.as_ref()))
        });
        let id = &entry.told.id;
        self.voice.questions(buf, id, questions, Some(&state));
        self.requests.send_away(request);
        self.arm_in(Timer::Away(request), self.config.ask_timeout);
    }

    /// A client comes back with a state of ours.
    pub(super) fn resume(
        &mut self,
        sealed: Sealed,
        subject: u64,
        answers: Option<&RawValue>,
        told: Telling,
    ) {
        let id = told.id.clone();
        let request = sealed.request;
        let is_ours = self.seal.holds(sealed, subject)
            && self.requests.get(request).is_some_and(|entry| {
                matches!(entry.phase, Phase::Away(_)) && entry.round == sealed.round
            });
        if !is_ours {
            let text = "the state was not given for this request, was used already, or is too old";
            return self.refuse(id, ErrorObject::new(code::INVALID_PARAMS, text));
        }
        let Some(given) = self.read_answers(request, answers) else {
            let text = "an answer is not an object";
            return self.refuse(id, ErrorObject::new(code::INVALID_PARAMS, text));
        };
        self.timers.disarm(Timer::Away(request));
        let verdict = self.requests.bring_back(request, told);
        for (ask, answer) in given {
            self.settle_ask(ask, Ok(answer));
        }
        match verdict {
            Some(verdict) => self.reply_held(request, verdict),
            None => self.ask_again(request),
        }
    }

    /// The answers to the questions of a request, by key; other keys are ignored (S-MRTR-17). `None` if one cannot be read.
    fn read_answers(
        &self,
        request: RequestId,
        answers: Option<&RawValue>,
    ) -> Option<Vec<(AskId, Payload)>> {
        let answers = answers.map_or("{}", RawValue::get);
        let mut given = Vec::new();
        for ask in &self.requests.get(request)?.asks {
            if let Some(at) = object::member(answers, &asks::key(*ask)).ok()? {
                let answer: Payload = answers[at].parse().ok()?;
                if !answer.is_object() {
                    return None;
                }
                given.push((*ask, answer));
            }
        }
        Some(given)
    }

    fn reply_held(&mut self, request: RequestId, verdict: Verdict) {
        let bytes = verdict.bytes();
        if let Some(entry) = self.requests.get_mut(request) {
            entry.phase = Phase::Answered(verdict);
            self.frames.push(Frame::Reply(request, bytes));
        }
    }

    /// What was not answered, or was asked in the meantime, is asked in another round (S-MRTR-17).
    fn ask_again(&mut self, request: RequestId) {
        let Some(entry) = self.requests.get(request) else {
            return;
        };
        let rounds = self.config.limits.input_rounds;
        if entry.round >= rounds {
            for ask in entry.asks.clone() {
                self.settle_ask(ask, Err(Unanswered::TooManyRounds { rounds }));
            }
        } else if !entry.asks.is_empty() {
            self.put_questions(request);
        }
    }

    /// The client was asked for input and did not come back.
    pub(super) fn not_resumed(&mut self, request: RequestId) {
        let asks = self.requests.get(request).map(|entry| entry.asks.clone());
        for ask in asks.unwrap_or_default() {
            self.settle_ask(ask, Err(Unanswered::TimedOut));
        }
        self.cancel(request, Cancelled::NotResumed);
    }

    /// The legacy client replied to something.
    pub(super) fn replied(&mut self, id: &Id, outcome: Result<Payload, ErrorObject>) {
        match self.asks.find(id) {
            Found::Open(ask) => self.settle_ask(ask, outcome.map_err(Unanswered::Error)),
            Found::Late => self.stats.late_replies += 1,
            Found::Unknown => self.noise("a reply to nothing that was asked", b""),
        }
    }

    pub(super) fn ask_unanswered(&mut self, ask: AskId) {
        self.take_back(ask, Unanswered::TimedOut);
    }

    /// A question is not to be answered any more: the client is told, where it knows of it and can be told.
    pub(super) fn take_back(&mut self, ask: AskId, why: Unanswered) {
        let place = self.asks.get(ask).map(|open| open.place);
        if place == Some(Place::Wire(true)) && !self.has_input_ended {
            self.frames.push(Frame::Cancel(asks::id(ask)));
        }
        self.settle_ask(ask, Err(why));
    }

    /// The question has its outcome.
    pub(super) fn settle_ask(&mut self, ask: AskId, outcome: Result<Payload, Unanswered>) {
        let Some(open) = self.asks.close(ask) else {
            return;
        };
        self.timers.disarm(Timer::Ask(ask));
        if open.place == Place::Wire(false) {
            self.frames.retract_ask(ask);
        }
        let request = open.request;
        if let Some(entry) = request.and_then(|request| self.requests.get_mut(request)) {
            entry.asks.retain(|of| *of != ask);
        }
        self.tell(Event::Answered {
            ask,
            request,
            outcome,
        });
    }
}
