//! What clients are asked: how a question is put, how its answer comes back, and what becomes of it otherwise.
//! One thing to the application, two on the wire: requests to a legacy client, and rounds of a modern request.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use serde_json::value::RawValue;

use super::answers::{check_question, may_ask};
use super::asks::{self, Found, Open, Place};
use super::event::{Cancelled, Event, State, Unanswered};
use super::frame::{Frame, Verdict};
use super::misuse::Misuse;
use super::requests::{Phase, Telling};
use super::seal::Sealed;
use super::{Server, Timer, missing_capability};
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
            Era::Legacy => Place::Wire(false),
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
        let scope = self.legacy.as_ref().ok_or(Misuse::NoLegacyPeer)?;
        let peer = &scope.peer;
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

    fn check_ask(&self, params: Option<&Payload>) -> Result<(), Misuse> {
        if self.has_input_ended || self.state == State::Closed {
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
        self.arm_in(Timer::Ask(ask), self.config.ask_timeout);
        // S-LIFE-05: nothing is asked before the handshake is over.
        let is_initialized = self.legacy.as_ref().is_some_and(|s| s.is_initialized);
        if place == Place::Wire(false) && is_initialized {
            self.frames.push(Frame::Ask(ask));
        }
        ask
    }

    /// The legacy client has finished its handshake: what waited for that is asked.
    pub(super) fn initialized(&mut self) {
        let Some(scope) = self.legacy.as_mut().filter(|s| !s.is_initialized) else {
            return;
        };
        scope.is_initialized = true;
        self.tell(Event::Initialized);
        for ask in self.asks.unwritten() {
            self.frames.push(Frame::Ask(ask));
        }
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
    ) -> Result<(), ErrorObject> {
        let refusal = |text| ErrorObject::new(code::INVALID_PARAMS, text);
        if !self.is_awaited(sealed, subject) {
            return Err(refusal(
                "the state was not given for this request, was used already, or is too old",
            ));
        }
        let request = sealed.request;
        let given = self.read_answers(request, answers).ok_or_else(|| {
            refusal("`inputResponses` must be an object with each answer once, as an object")
        })?;
        self.timers.disarm(Timer::Away(request));
        let verdict = self.requests.bring_back(request, told);
        for (ask, answer) in given {
            self.settle_ask(ask, Ok(answer));
        }
        match verdict {
            Some(verdict) => self.reply_held(request, verdict),
            None => self.ask_again(request),
        }
        Ok(())
    }

    /// Whether a state is ours, for a request about `subject` whose client is to come back with it.
    pub(super) fn is_awaited(&self, sealed: Sealed, subject: u64) -> bool {
        let entry = self.requests.get(sealed.request);
        let is_away = entry.is_some_and(|entry| {
            matches!(entry.phase, Phase::Away(_)) && entry.round == sealed.round
        });
        is_away && self.seal.holds(sealed, subject)
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

    fn reply_held(&mut self, request: RequestId, mut verdict: Verdict) {
        if let Some(entry) = self.requests.get_mut(request) {
            // S-META-08: what was declared with an earlier round counts no more.
            if let Some(feature) = entry.lacks(&verdict) {
                verdict = Verdict::Error(missing_capability(feature));
            }
            let bytes = verdict.bytes();
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
        let is_last = entry.round >= rounds;
        let peer = entry.told.peer.clone();
        for ask in entry.asks.clone() {
            let Some(open) = self.asks.get(ask) else {
                continue;
            };
            let params = open.params.as_ref().map(Payload::raw);
            // S-META-08: what was declared with an earlier round counts no more.
            let checked = question::check(&peer.capabilities, peer.version, &open.method, params);
            if is_last {
                self.settle_ask(ask, Err(Unanswered::TooManyRounds { rounds }));
            } else if let Err(why) = checked {
                self.settle_ask(ask, Err(Unanswered::Unaskable(why)));
            }
        }
        let asks = self.requests.get(request).map_or(0, |e| e.asks.len());
        if asks > 0 {
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
    pub(super) fn replied(&mut self, id: &Id, outcome: Result<Payload, Unanswered>) {
        match self.asks.find(id) {
            Found::Open(ask) => self.settle_ask(ask, outcome),
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
            self.frames.push(Frame::AskCancelled(ask));
        }
        self.settle_ask(ask, Err(why));
    }

    /// One question less; with nothing left to ask, a request need not be sent away.
    fn unasked(&mut self, request: RequestId, ask: AskId) {
        let Some(entry) = self.requests.get_mut(request) else {
            return;
        };
        entry.asks.retain(|of| *of != ask);
        if entry.asks.is_empty() && matches!(entry.phase, Phase::Asking) {
            entry.phase = Phase::Open;
            self.frames.retract_questions(request);
        }
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
        if let Some(request) = request {
            self.unasked(request, ask);
        }
        self.tell(Event::Answered {
            ask,
            request,
            outcome,
        });
    }
}
