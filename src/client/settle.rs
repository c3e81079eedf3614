//! Ends calls. Every call ends here, exactly once.

use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::calls::{Call, Phase};
use super::errand::Errand;
use super::event::{Event, Outcome, Withdrawn};
use super::failure::{Cause, Ended, FailureKind, TimeLimit};
use super::frame::{Frame, Withdrawal};
use super::lifecycle::State;
use super::{Client, Timer};
use crate::driver::CallId;
use crate::protocol::watch::List;
use crate::protocol::{Era, ServerFeature, Version, method};
use crate::util::ascending_map::AscendingMap;

impl Client {
    /// Ends a call with this outcome.
    pub(super) fn settle(&mut self, id: CallId, outcome: Outcome) {
        let Some(phase) = self.calls.forget(id) else {
            return;
        };
        self.forget(id, phase);
        if let (Outcome::Reply(_) | Outcome::Error(_), Some(life)) = (&outcome, &mut self.life) {
            life.was_useful = true;
        }
        self.tell(Event::Done { call: id, outcome });
    }

    /// Ends a call that has no reply.
    pub(super) fn fail(&mut self, id: CallId, kind: FailureKind) {
        let ended = self.end_that_matters(&kind);
        self.fail_with(id, kind, ended);
    }

    /// Chooses the end of an epoch that explains a failure. While there is no server, that is the end of the last one.
    fn end_that_matters(&self, kind: &FailureKind) -> Option<Arc<Ended>> {
        match (kind, self.state) {
            (FailureKind::NoContact, _) => {
                let life = self.life.as_ref()?;
                return Some(Arc::new(Ended {
                    cause: Cause::Unreachable,
                    ..life.story(self.now, false)
                }));
            }
            (FailureKind::Closed | FailureKind::Down | FailureKind::TimedOut { .. }, _)
            | (FailureKind::Lost, State::Closing) => {}
            (_, _) => return None,
        }
        match self.state {
            State::Ready | State::Draining => None,
            State::Closing => {
                let life = self.life.as_ref()?;
                Some(Arc::new(life.story(self.now, false)))
            }
            State::Idle
            | State::Opening
            | State::Handshaking
            | State::Waiting
            | State::Parked
            | State::Closed => self.last_end.clone(),
        }
    }

    fn fail_with(&mut self, id: CallId, kind: FailureKind, ended: Option<Arc<Ended>>) {
        let Some(call) = self.calls.call(id) else {
            return;
        };
        let mut failure = Box::new(call.failure(id, kind, self.now));
        failure.ended = ended;
        failure.next_attempt = self.next_attempt();
        self.settle(id, Outcome::Failed(failure));
    }

    fn forget(&mut self, id: CallId, phase: Phase) {
        self.stats.settled += 1;
        self.timers.disarm(Timer::Call(id));
        match phase {
            Phase::Asking => {
                for ask in self.asks.close_of(id) {
                    self.withdrawn(ask, Withdrawn::CallSettled);
                }
            }
            Phase::Listing(_) | Phase::Schema => {
                if let Some(list) = self.catalog.unwant(id) {
                    if let Some(wire) = self.errands.wire_for(&Errand::Page(list)) {
                        self.errands.close(wire);
                        if !self.frames.retract(wire) {
                            self.withdraw_request(wire, Withdrawal::default());
                        }
                    }
                }
            }
            Phase::Sent(wire) => {
                self.errands.close(wire);
            }
            Phase::Waiting => {}
        }
    }

    /// Ends a call that may be in flight, for its caller or because it timed out. The server is told.
    pub(super) fn abort(&mut self, id: CallId, kind: FailureKind, words: Withdrawal) {
        let sent = self.calls.call(id).and_then(|call| match call.phase {
            Phase::Sent(wire) if !self.runs_as_task(call) => Some(wire),
            Phase::Asking | Phase::Listing(_) | Phase::Schema | Phase::Sent(_) | Phase::Waiting => {
                None
            }
        });
        let sent_at = self.calls.sent_at(id);
        self.fail(id, kind);
        if let Some(wire) = sent {
            self.withdraw_request(wire, words);
        }
        if let Some(at) = sent_at {
            self.given_up(at);
        }
    }

    /// Whether the call runs as a task, which is cancelled in another way (S-CANC-11). Only 2025-11-25 has such requests, and only with servers that
    /// declare them.
    fn runs_as_task(&self, call: &Call) -> bool {
        let session = self.session.as_ref();
        let has_tasks = session.is_some_and(|session| {
            session.version == Version::V2025_11_25
                && session.capabilities.offers(ServerFeature::TasksToolsCall)
        });
        has_tasks && call.asks_to_be_a_task()
    }

    pub(super) fn withdraw_request(&mut self, wire: u64, words: Withdrawal) {
        if self.session.is_none() {
            return;
        }
        if self.web.is_some() {
            if self.frames.retract(wire) {
                return;
            }
            self.drop_request(wire);
            // S-HTTP-25: in the modern era, closing the exchange is the only way to cancel over HTTP.
            if self.voice.version().era() == Era::Modern {
                return;
            }
        }
        self.frames.push(Frame::Cancel(wire, words));
    }

    /// Handles the deadline of a call.
    pub(super) fn call_due(&mut self, id: CallId) {
        let is_absent = matches!(self.state, State::Waiting | State::Parked);
        if self.calls.is_tired(id, self.now) && is_absent {
            return self.fail(id, FailureKind::Down);
        }
        match self.calls.overdue(id, self.now) {
            Some(limit) => {
                let state = self.state;
                let reason = match limit {
                    TimeLimit::Idle => "no reply and no progress in time",
                    TimeLimit::Total => "it took too long in all",
                };
                let kind = FailureKind::TimedOut { limit, state };
                self.abort(id, kind, Withdrawal::because(reason));
            }
            None => self.arm_call(id),
        }
    }

    pub(super) fn arm_call(&mut self, id: CallId) {
        if let Some(at) = self.calls.due(id) {
            self.arm_at(Timer::Call(id), at);
        }
    }

    /// Settles the requests that were in flight when their epoch ended.
    pub(super) fn settle_lost(&mut self, sent: AscendingMap<u64, Errand>) {
        let mut calls = Vec::new();
        for errand in sent.into_values() {
            match errand {
                Errand::Call(call) => calls.push(call),
                Errand::Page(list) => self.settle_lost_page(list, &FailureKind::Lost),
                Errand::Discover
                | Errand::Initialize
                | Errand::LateDiscover
                | Errand::Listen
                | Errand::Probe
                | Errand::Revive
                | Errand::SetLevel
                | Errand::Subscribe(_)
                | Errand::Unsubscribe => {}
            }
        }
        let mid_round = self.calls.mid_round();
        let lost: Vec<CallId> = calls.into_iter().chain(mid_round).collect();
        if lost.is_empty() {
            return;
        }
        let ended = self.end_that_matters(&FailureKind::Lost);
        for id in lost {
            if self.calls.requeue(id, self.now, self.config.policy.resends) {
                self.stats.requeued += 1;
                self.arm_call(id);
            } else {
                self.fail_with(id, FailureKind::Lost, ended.clone());
            }
        }
    }

    /// Handles a lost page of this list. A call fails if the list was lost more often than `Policy::resends` allows.
    pub(super) fn settle_lost_page(&mut self, list: List, kind: &FailureKind) {
        let resends = self.config.policy.resends;
        for id in self.catalog.waiting(list).to_vec() {
            if !self.calls.page_lost(id, resends) {
                self.fail(id, kind.clone());
            }
        }
    }

    /// Updates failures that were not polled yet with what is now known about the end of the epoch.
    pub(super) fn retell(&mut self) {
        let Some(story) = self.life.as_ref().map(|life| life.story(self.now, false)) else {
            return;
        };
        let story = Arc::new(story);
        for event in self.outbox.events_mut() {
            if let Event::Done {
                outcome: Outcome::Failed(failure),
                ..
            } = event
            {
                match &mut failure.ended {
                    Some(ended) if ended.epoch == story.epoch => *ended = story.clone(),
                    Some(_) | None => {}
                }
            }
        }
    }

    /// Ends every call with this failure.
    pub(super) fn settle_all(&mut self, kind: &FailureKind) {
        let all: Vec<CallId> = self.calls.ids().collect();
        let ended = self.end_that_matters(kind);
        for id in all {
            self.fail_with(id, kind.clone(), ended.clone());
        }
    }

    /// Fails the queued calls that need something that this server does not offer.
    pub(super) fn settle_what_is_not_offered(&mut self) {
        for id in self.calls.waiting_ids() {
            self.settle_if_not_offered(id);
        }
    }

    pub(super) fn settle_if_not_offered(&mut self, id: CallId) {
        let facts = self.calls.call(id).and_then(|call| call.facts);
        let facts = facts.filter(|_| !self.passes_call(id));
        if let Some(what) = facts.and_then(|facts| self.is_missing(facts)) {
            self.fail(id, FailureKind::NotOffered { what });
        }
    }

    /// Returns the feature or version that the server lacks for this method, if any.
    pub(super) fn is_missing(&self, facts: &method::Method) -> Option<Box<str>> {
        let session = self.session.as_ref()?;
        if !facts.to_server.contains(session.version) {
            let what = format!("`{}`, which {} does not have", facts.name, session.version);
            return Some(what.into());
        }
        let gate: ServerFeature = facts.gate(session.version)?;
        let offered = session.capabilities.offers(gate);
        (!offered).then(|| format!("`{gate}`, which `{}` needs", facts.name).into())
    }
}
