//! Ends requests. Every end of a request leads through here, exactly once.

use alloc::borrow::Cow;
use alloc::collections::BTreeSet;

use super::asks::Place;
use super::event::{Cancelled, Event, Unanswered};
use super::frame::{Answer, Frame};
use super::misuse::Misuse;
use super::origin::Lane;
use super::reply::{InputRequired, Shape, Verdict};
use super::requests::{Entry, Phase};
use super::seal::PREFIX;
use super::{Server, Timer};
use crate::driver::RequestId;
use crate::json::Payload;
use crate::protocol::method::names;
use crate::protocol::question::Unaskable;
use crate::protocol::{
    ClientFeature, Era, Peer, ServerCapabilities, ServerFeature, question, round,
};
use crate::wire::{ErrorObject, Id};

impl Server {
    /// Refuses a request with an error of the server itself.
    pub(super) fn refuse(&mut self, lane: Lane, id: Id, error: ErrorObject) {
        self.stats.refused += 1;
        self.tell_refused_message(lane, &error);
        self.answer(lane, id, Answer::Error(error));
    }

    pub(super) fn answer(&mut self, lane: Lane, id: Id, answer: Answer) {
        self.lanes.push(lane, Frame::Answer(Some(id), answer));
    }

    pub(super) fn result(&mut self, request: RequestId, result: Payload) -> Result<(), Misuse> {
        if !result.is_object() {
            return Err(Misuse::NotAnObject { what: "a result" });
        }
        let entry = self.open_request(request)?;
        // A legacy client reads no result types, so its results are not checked.
        let shape = match entry.arrival.peer.version.era() {
            Era::Legacy => Shape::default(),
            Era::Modern => {
                let is_cacheable = entry.facts.is_some_and(|facts| facts.cacheable);
                let (shape, kind) = Shape::read(&result, is_cacheable);
                self.check_kind(entry, kind)?;
                shape
            }
        };
        if self.http.is_some() && entry.method == names::TOOLS_LIST {
            let user = entry.arrival.user.clone();
            // A result that is too large never reaches the client, so nothing is learnt from it.
            self.check_size(result.as_str().len())?;
            self.learn_tools(user, &result);
        }
        self.conclude(request, Verdict::Result(result, shape))
    }

    pub(super) fn require(
        &mut self,
        request: RequestId,
        input: InputRequired,
    ) -> Result<(), Misuse> {
        let entry = self.open_request(request)?;
        if entry.arrival.peer.version.era() == Era::Legacy {
            let kind = round::INPUT_REQUIRED.into();
            return Err(Misuse::InvalidResultType { kind });
        }
        may_ask(entry)?;
        if input.questions.is_empty() && input.state.is_none() {
            return Err(Misuse::EmptyInput);
        }
        if input.state.as_ref().is_some_and(|s| s.starts_with(PREFIX)) {
            return Err(Misuse::ReservedState { prefix: PREFIX });
        }
        let mut keys = BTreeSet::new();
        for question in &input.questions {
            check_question(entry, &question.method, question.params.as_ref())?;
            if !keys.insert(&question.key) {
                let key = question.key.clone();
                return Err(Misuse::DuplicateKey { key });
            }
        }
        self.conclude(request, Verdict::Input(input))
    }

    /// Ends a request with the verdict of the application. Its client gets the reply now, or when it comes back.
    pub(super) fn conclude(&mut self, request: RequestId, verdict: Verdict) -> Result<(), Misuse> {
        self.open_request(request)?;
        let bytes = verdict.bytes();
        self.check_size(bytes)?;
        self.stats.answered += 1;
        if self.is_away(request) {
            self.settle_queued_asks_of(request);
            self.requests.enter(request, Phase::Away(Some(verdict)));
            return Ok(());
        }
        self.settle_asks_of(request);
        if let Some(entry) = self.requests.enter(request, Phase::Answered(verdict)) {
            let lane = entry.arrival.lane;
            self.lanes.push(lane, Frame::Reply(request, bytes));
            self.weigh_answer(lane);
        }
        Ok(())
    }

    /// Cancels a request, which then gets no reply.
    pub(super) fn cancel(&mut self, request: RequestId, why: Cancelled) {
        let Some(entry) = self.requests.get(request) else {
            return;
        };
        let lane = entry.arrival.lane;
        let was_open = self.open_request(request).is_ok();
        self.settle_asks_of(request);
        self.timers.disarm(Timer::Away(request));
        self.lanes.retract(lane, request);
        if !self.is_away(request) {
            self.lanes.settle(lane);
        }
        self.requests.forget(request);
        if was_open {
            self.stats.cancelled += 1;
            self.tell(Event::Cancelled { request, why });
        } else {
            self.stats.answers_dropped += 1;
        }
    }

    /// Ends the asks of a request that the client has not received. The client answers the others when it comes back, and the application
    /// may still want these answers.
    fn settle_queued_asks_of(&mut self, request: RequestId) {
        let asks = self.requests.get(request).map(|entry| entry.asks.clone());
        for ask in asks.unwrap_or_default() {
            if self
                .asks
                .get(ask)
                .is_some_and(|open| open.place == Place::Queued)
            {
                self.settle_ask(ask, Err(Unanswered::RequestOver));
            }
        }
    }

    pub(super) fn settle_asks_of(&mut self, request: RequestId) {
        let entry = self.requests.get_mut(request);
        let Some(entry) = entry.filter(|entry| !entry.asks.is_empty()) else {
            return;
        };
        for ask in core::mem::take(&mut entry.asks) {
            self.take_back(ask, Unanswered::RequestOver, Some("the request is over"));
        }
    }

    /// Returns a request that the application has still to answer.
    pub(super) fn open_request(&self, request: RequestId) -> Result<&Entry, Misuse> {
        let entry = self
            .requests
            .get(request)
            .filter(|entry| match entry.phase {
                Phase::Answered(_) | Phase::Away(Some(_)) => false,
                Phase::Asking | Phase::Away(None) | Phase::Open => true,
            });
        entry.ok_or(Misuse::UnknownRequest)
    }

    /// Checks whether a result of this type may answer the request (S-RPC-21, S-TASKX-02).
    fn check_kind(&self, entry: &Entry, kind: Option<Cow<'_, str>>) -> Result<(), Misuse> {
        let passes = self.passes(entry.arrival.peer.version);
        let Some(kind) = kind.filter(|kind| !passes || **kind == *round::INPUT_REQUIRED) else {
            return Ok(());
        };
        let declared = &entry.arrival.peer.capabilities;
        let offered = self.config.offer.as_ref().map(|offer| &offer.capabilities);
        // S-VER-15: both ends must declare an extension.
        let is_allowed = match &*kind {
            round::COMPLETE => true,
            round::INPUT_REQUIRED => {
                let (method, instead) = (round::INPUT_REQUIRED, "require_input");
                return Err(Misuse::OwnedByLink { method, instead });
            }
            round::TASK => {
                entry.method == names::TOOLS_CALL
                    && declared.declares(ClientFeature::TasksExtension)
                    && offered.is_some_and(|o| o.offers(ServerFeature::TasksExtension))
            }
            // S-RPC-22: an extension may have result types of its own, which only the two applications know.
            _ => {
                declared.has_strange_extension()
                    && offered.is_some_and(ServerCapabilities::has_strange_extension)
            }
        };
        if is_allowed {
            return Ok(());
        }
        let kind = kind.into_owned().into();
        Err(Misuse::InvalidResultType { kind })
    }
}

impl Entry {
    /// The feature that a verdict needs and that the client does not declare now, if any.
    pub(super) fn lacks(&self, verdict: &Verdict) -> Option<ClientFeature> {
        let Verdict::Input(input) = verdict else {
            return None;
        };
        let peer = &self.arrival.peer;
        input.questions.iter().find_map(|asked| {
            may_be_asked(peer, &asked.method, asked.params.as_ref())
                .err()?
                .missing()
        })
    }
}

/// Checks that a modern request can wait for input, which only some methods can (S-MRTR-01, S-MRTR-02).
pub(super) fn may_ask(entry: &Entry) -> Result<(), Misuse> {
    if entry.facts.is_some_and(|facts| facts.may_need_input) {
        return Ok(());
    }
    Err(Misuse::CannotAsk {
        method: entry.method.clone(),
    })
}

/// Checks that the client declared, with this very request, that it can be asked this (S-MRTR-06, S-META-08).
pub(super) fn check_question(
    entry: &Entry,
    method: &str,
    params: Option<&Payload>,
) -> Result<(), Misuse> {
    if params.is_some_and(|params| !params.is_object()) {
        return Err(Misuse::NotAnObject { what: "parameters" });
    }
    may_be_asked(&entry.arrival.peer, method, params).map_err(|why| Misuse::Unaskable {
        method: Cow::Owned(method.into()),
        why,
    })
}

/// Checks whether this client can be asked this, in this form, and as a task if it is asked as one.
pub(super) fn may_be_asked(
    peer: &Peer,
    method: &str,
    params: Option<&Payload>,
) -> Result<(), Unaskable> {
    let params = params.map(Payload::json);
    question::check(&peer.capabilities, peer.version, method, params)?;
    match question::task_feature(method, params) {
        Some(feature)
            if feature.versions().contains(peer.version)
                && !peer.capabilities.declares(feature) =>
        {
            Err(Unaskable::UndeclaredManner(feature))
        }
        Some(_) | None => Ok(()),
    }
}
