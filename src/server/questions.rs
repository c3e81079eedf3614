//! Sends asks to clients, takes their answers, and ends the asks that get none. For the application all asks are alike. On the wire, an ask
//! is a request to a legacy client, or part of a round of a modern request.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::answers::{check_question, may_ask, may_be_asked};
use super::asks::{self, Found, Open, Place};
use super::event::{Cancelled, Event, State, Unanswered};
use super::frame::Frame;
use super::misuse::Misuse;
use super::origin::{Origin, SessionKey};
use super::reply::Verdict;
use super::requests::{Arrival, Phase};
use super::{Server, Timer, missing_capability, seal};
use crate::driver::{AskId, RequestId};
use crate::json::{Json, Payload, object};
use crate::protocol::{Era, code, question};
use crate::wire::{ErrorObject, Id};

impl Server {
    pub(super) fn ask_for(
        &mut self,
        request: RequestId,
        key: Option<Box<str>>,
        method: Cow<'static, str>,
        params: Option<Payload>,
    ) -> Result<AskId, Misuse> {
        let entry = self.open_request(request)?;
        if !self.passes(entry.arrival.peer.version) {
            check_question(entry, &method, params.as_ref())?;
        }
        // Each ask of a request needs a key of its own, and numbers are the keys of asks that were given none.
        let key =
            key.filter(|key| !asks::is_number(key) && self.asks.by_key(request, key).is_none());
        let era = entry.arrival.peer.version.era();
        let session = entry.arrival.session;
        let lane = self.lane_for_more(&entry.arrival);
        let is_here = !matches!(entry.phase, Phase::Away(_));
        if era == Era::Modern {
            may_ask(entry)?;
            let rounds = self.config.limits.input_rounds;
            if entry.round >= rounds {
                return Err(Misuse::TooManyRounds { rounds });
            }
        }
        self.check_ask(params.as_ref(), era, session)?;
        let place = match era {
            Era::Legacy => Place::Wire(false),
            Era::Modern => Place::Queued,
        };
        let ask = self.open_ask(Open {
            request: Some(request),
            session,
            lane,
            key,
            method,
            params,
            place,
        });
        if let Some(entry) = self.requests.get_mut(request) {
            entry.asks.insert(ask);
        }
        if era == Era::Modern && is_here {
            self.put_questions(request);
        }
        Ok(ask)
    }

    pub(super) fn ask_legacy(
        &mut self,
        session: SessionKey,
        method: Cow<'static, str>,
        params: Option<Payload>,
    ) -> Result<AskId, Misuse> {
        let scope = self.scopes.get(&session).ok_or(Misuse::NoLegacyPeer)?;
        let peer = &scope.peer;
        if params.as_ref().is_some_and(|params| !params.is_object()) {
            return Err(Misuse::NotAnObject { what: "parameters" });
        }
        if !self.passes(peer.version) {
            if let Err(why) = may_be_asked(peer, &method, params.as_ref()) {
                return Err(Misuse::Unaskable { method, why });
            }
        }
        self.check_ask(params.as_ref(), Era::Legacy, Some(session))?;
        Ok(self.open_ask(Open {
            request: None,
            session: Some(session),
            lane: session.lane(),
            key: None,
            method,
            params,
            place: Place::Wire(false),
        }))
    }

    fn check_ask(
        &self,
        params: Option<&Payload>,
        era: Era,
        session: Option<SessionKey>,
    ) -> Result<(), Misuse> {
        if self.has_input_ended || self.state == State::Closed {
            return Err(Misuse::NotServing { state: self.state });
        }
        let limits = &self.config.limits;
        // Over HTTP, one client must not use up the limit for all.
        let (open, most) = match (era, self.http.is_some()) {
            (Era::Legacy, false) => (self.asks.len(), limits.asks),
            (Era::Modern, false) => (self.asks.len().max(self.requests.away()), limits.asks),
            (Era::Legacy, true) => (
                session.map_or(0, |session| self.asks.count_to(session)),
                limits.asks,
            ),
            (Era::Modern, true) => (self.requests.away(), limits.requests),
        };
        if open >= most {
            return Err(Misuse::TooManyAsks { open });
        }
        let bytes = params.map_or(0, |params| params.as_str().len());
        self.check_size(bytes)?;
        // Asks are kept until they are answered, so their bytes have a limit of their own.
        if self.asks.len() > 0 && self.asks.bytes() + bytes > self.config.limits.queued_bytes {
            return Err(Misuse::TooManyAsks { open });
        }
        Ok(())
    }

    fn open_ask(&mut self, open: Open) -> AskId {
        self.stats.asks += 1;
        let (session, lane, place) = (open.session, open.lane, open.place);
        if let Some(session) = session.filter(|session| self.scopes.contains_key(session)) {
            self.visits
                .asked(session, &open.method, open.params.as_ref());
        }
        let ask = self.asks.open(open);
        self.arm_in(Timer::Ask(ask), self.config.ask_timeout);
        // S-LIFE-05: a client is asked nothing before its handshake is over.
        let scope = session.and_then(|session| self.scopes.get(&session));
        let is_initialized = scope.is_some_and(|scope| scope.is_initialized);
        if place == Place::Wire(false) && is_initialized {
            self.lanes.push(lane, Frame::Ask(ask));
        }
        ask
    }

    /// Handles the end of a legacy client's handshake, and sends the asks that waited for it.
    pub(super) fn initialized(&mut self, session: SessionKey) {
        let scope = self.scopes.get_mut(&session);
        let Some(scope) = scope.filter(|scope| !scope.is_initialized) else {
            return;
        };
        scope.is_initialized = true;
        self.watchers.hears_lists(session, &scope.offered);
        self.tell(Event::Initialized);
        for (ask, lane) in self.asks.unwritten(session) {
            self.lanes.push(lane, Frame::Ask(ask));
        }
        self.save_session(session);
        // From now on, the full idle time of a session applies.
        self.touch(Some(session));
    }

    /// Queues the asks of a request in place of its reply. All asks that are open when they are written are included.
    fn put_questions(&mut self, request: RequestId) {
        let entry = self.requests.get(request);
        if let Some(Phase::Open) = entry.map(|entry| &entry.phase) {
            if let Some(entry) = self.requests.enter(request, Phase::Asking) {
                let lane = entry.arrival.lane;
                self.lanes.push(lane, Frame::Questions(request));
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
            Some((self.asks.key(*ask), &*open.method, open.params.as_ref()))
        });
        let id = &entry.arrival.wire.id;
        self.voice.questions(buf, id, questions, Some(&state));
        self.requests.send_away(request);
        self.arm_in(Timer::Away(request), self.config.ask_timeout);
    }

    /// Resumes a request whose client comes back with a state of this server.
    pub(super) fn resume(
        &mut self,
        state: &str,
        subject: u64,
        answers: Option<Json<'_>>,
        arrival: Arrival,
    ) -> Result<(), ErrorObject> {
        let refusal = |text| ErrorObject::new(code::INVALID_PARAMS, text);
        let request = self.awaited(state, subject).ok_or_else(|| {
            refusal("the state was not given for this request, was used already, or is too old")
        })?;
        let given = self.read_answers(request, answers).ok_or_else(|| {
            refusal("`inputResponses` must be an object with each answer once, as an object")
        })?;
        self.timers.disarm(Timer::Away(request));
        self.lanes.owe(arrival.lane);
        let verdict = self.requests.bring_back(request, arrival);
        for (ask, answer) in given {
            self.settle_ask(ask, Ok(answer));
        }
        match verdict {
            Some(verdict) => {
                self.settle_asks_of(request);
                self.reply_held(request, verdict);
            }
            None => self.ask_again(request),
        }
        Ok(())
    }

    /// The request about `subject` whose client is to come back with this state.
    pub(super) fn awaited(&self, state: &str, subject: u64) -> Option<RequestId> {
        let request = seal::request_of(state)?;
        let entry = self.requests.get(request)?;
        let is_away = matches!(entry.phase, Phase::Away(_));
        (is_away && state == self.seal.state(request, entry.round, subject)).then_some(request)
    }

    /// Returns the answers to the asks of a request, by key. Other keys are ignored (S-MRTR-17). `None` if an answer cannot be read.
    fn read_answers(
        &self,
        request: RequestId,
        answers: Option<Json<'_>>,
    ) -> Option<Vec<(AskId, Payload)>> {
        let mut given: Vec<(AskId, Payload)> = Vec::new();
        let mut earlier = BTreeSet::new();
        let mut is_readable = true;
        object::members(answers.unwrap_or(Json::EMPTY), |key, value| {
            let Some(ask) = self.asks.by_key(request, &key) else {
                return;
            };
            let answer = Payload::from(value);
            is_readable &= answer.is_object() && earlier.insert(ask);
            given.push((ask, answer));
        })
        .ok()?;
        is_readable.then_some(given)
    }

    fn reply_held(&mut self, request: RequestId, mut verdict: Verdict) {
        // S-META-08: capabilities that were declared with an earlier round no longer count.
        let entry = self.requests.get(request);
        if let Some(feature) = entry.and_then(|entry| entry.lacks(&verdict)) {
            verdict = Verdict::Error(missing_capability(feature));
        }
        let bytes = verdict.bytes();
        if let Some(entry) = self.requests.enter(request, Phase::Answered(verdict)) {
            let lane = entry.arrival.lane;
            self.lanes.push(lane, Frame::Reply(request, bytes));
        }
    }

    /// Sends the asks that are unanswered or new in another round (S-MRTR-17).
    fn ask_again(&mut self, request: RequestId) {
        let Some(entry) = self.requests.get(request) else {
            return;
        };
        let rounds = self.config.limits.input_rounds;
        let is_last = entry.round >= rounds;
        let peer = entry.arrival.peer.clone();
        for ask in entry.asks.clone() {
            let Some(open) = self.asks.get(ask) else {
                continue;
            };
            // S-META-08: capabilities that were declared with an earlier round no longer count.
            let checked = may_be_asked(&peer, &open.method, open.params.as_ref());
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

    /// Cancels a request whose client was asked for input and did not come back.
    pub(super) fn not_resumed(&mut self, request: RequestId) {
        let asks = self.requests.get(request).map(|entry| entry.asks.clone());
        for ask in asks.unwrap_or_default() {
            self.settle_ask(ask, Err(Unanswered::TimedOut));
        }
        self.cancel(request, Cancelled::NotResumed);
    }

    /// Handles a reply of a legacy client.
    pub(super) fn replied(&mut self, from: &Origin, id: &Id, outcome: Result<Payload, Unanswered>) {
        match self.asks.find(from.session, id) {
            Found::Open(ask) => self.settle_ask(ask, outcome),
            Found::Late => self.stats.late_replies += 1,
            Found::Unknown => self.noise("a reply to nothing that was asked", b""),
        }
    }

    pub(super) fn ask_unanswered(&mut self, ask: AskId) {
        self.take_back(
            ask,
            Unanswered::TimedOut,
            Some("it was not answered in time"),
        );
    }

    /// Withdraws an ask. The client is told, if it received the ask and can be told.
    pub(super) fn take_back(&mut self, ask: AskId, why: Unanswered, reason: Option<&str>) {
        // S-CANC-11: an ask that runs as a task is cancelled differently, by the code that knows the task.
        let known = self.asks.get(ask).filter(|open| {
            let params = open.params.as_ref().map(Payload::json);
            let is_task = question::task_feature(&open.method, params).is_some();
            open.place == Place::Wire(true) && !is_task
        });
        if let Some(open) = known.filter(|_| !self.has_input_ended) {
            let frame = Frame::AskCancelled(ask, reason.map(Into::into));
            self.lanes.push(open.lane, frame);
        }
        self.settle_ask(ask, Err(why));
    }

    /// Removes an ask from its request. A request with no asks left keeps its client.
    fn unasked(&mut self, request: RequestId, ask: AskId) {
        let Some(entry) = self.requests.get_mut(request) else {
            return;
        };
        entry.asks.remove(&ask);
        if entry.asks.is_empty() && matches!(entry.phase, Phase::Asking) {
            if let Some(entry) = self.requests.enter(request, Phase::Open) {
                let lane = entry.arrival.lane;
                self.lanes.retract_questions(lane, request);
            }
        }
    }

    /// Ends an ask with its outcome, and reports it.
    pub(super) fn settle_ask(&mut self, ask: AskId, outcome: Result<Payload, Unanswered>) {
        let Some(open) = self.asks.close(ask) else {
            return;
        };
        self.timers.disarm(Timer::Ask(ask));
        if open.place == Place::Wire(false) {
            self.lanes.retract_ask(open.lane, ask);
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
