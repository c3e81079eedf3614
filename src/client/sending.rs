//! Accepts what the application wants to send, chooses the next message to write, handles refused and lost requests, and ends calls. Every call ends
//! here, exactly once.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use super::Client;
use super::asks::Given;
use super::binding::{Load, NoContact, Refused, Returned, Unauthorized};
use super::catalog::WatchRequest;
use super::catalog::lists::Listing;
use super::event::{Event, Outcome, Session};
use super::failure::{Cause, Ended, FailureKind, Misuse, TimeLimit};
use super::frame::{Frame, Withdrawal};
use super::lifecycle::Wanted;
use super::lifecycle::table::State;
use super::requests::Resent;
use super::requests::admission::check_notice;
use super::requests::calls::{Call, Phase};
use super::requests::pending::Purpose;
use crate::driver::{AskId, CallId, Instant, Output};
use crate::json::Payload;
use crate::protocol::method::names;
use crate::protocol::watch::List;
use crate::protocol::{Method, code, method};
use crate::util::Arc;
use crate::wire::{ErrorObject, SHORT};

/// What the application wants to send.
impl Client {
    pub(super) fn accept(&mut self, mut call: Call) -> Result<CallId, Misuse> {
        if self.lifecycle.state() == State::Closed || self.lifecycle.is_shutting_down() {
            return Err(Misuse::Closed);
        }
        self.requests.check_room(&self.cx, call.weigh())?;
        let list = call.list();
        let id = self.requests.accept(&mut self.cx, call);
        match self.lifecycle.wanted() {
            Wanted::Ready => {
                self.fail_if_not_offered(id);
                let others = self.requests.len() > 1;
                self.lifecycle.want(&mut self.cx, others);
            }
            Wanted::Attempt => self.attempt(),
            Wanted::NoServer => self.call_without_server(id),
            Wanted::Wait => {}
        }
        if let Some(list) = list.filter(|_| self.requests.call(id).is_some()) {
            match self.fresh(list, self.cx.now) {
                Some(listing) => self.settle(id, Outcome::Listed(listing)),
                None => self.catalog.want(list, id),
            }
        }
        Ok(id)
    }

    /// Queues a notification of the application.
    pub(super) fn announce(
        &mut self,
        method: Cow<'static, str>,
        facts: Option<&'static Method>,
        params: Option<Payload>,
    ) -> Result<(), Misuse> {
        if self.session().is_none() {
            let state = self.lifecycle.state();
            return Err(Misuse::NotReady { state });
        }
        if let Some(facts) = facts {
            self.session.check_notification(&self.cx.config, facts)?;
        }
        if params.as_ref().is_some_and(|params| !params.is_object()) {
            return Err(Misuse::NotAnObject { what: "parameters" });
        }
        let bytes = params.as_ref().map_or(0, |params| params.as_str().len());
        check_notice(&self.cx, bytes)?;
        // A relay's client is responsible for its own progress.
        let is_progress = method == names::NOTIFICATIONS_PROGRESS;
        let is_checked = is_progress && !self.session.passes(&self.cx.config);
        if !is_checked || self.asks.progressed(params.as_ref())? {
            self.cx.frames.push(Frame::Notify(method, params));
        }
        Ok(())
    }

    /// The cached list, if it is fresh at this time.
    pub(super) fn fresh(&self, list: List, now: Instant) -> Option<Arc<Listing>> {
        let hears = self.binding.hears_changes();
        self.catalog.fresh(self.session()?, list, now, hears)
    }

    /// Sends the requests that follow from another wanted watch.
    pub(super) fn change_watch_by(
        &mut self,
        change: impl FnOnce(&mut Client, Option<&Session>) -> Vec<WatchRequest>,
    ) {
        let is_ready = self.lifecycle.state() == State::Ready;
        let session = self.session.agreed().filter(|_| is_ready).cloned();
        let logs = self.catalog.wanted_logs(&self.cx.config);
        let requests = change(self, session.as_deref());
        // The encoding of requests depends on the watch only through the log level.
        let wanted = self.catalog.wanted_logs(&self.cx.config);
        if let Some(session) = session.filter(|_| wanted != logs) {
            self.session.speak(&self.cx.config, session.version, wanted);
        }
        self.send_watch_requests(requests);
    }

    /// Queues the requests that the watch needs.
    pub(super) fn send_watch_requests(&mut self, requests: Vec<WatchRequest>) {
        for request in requests {
            match self.requests.issue_for_watch(request) {
                Ok(frame) => {
                    if let Frame::Listen(wire, watch) = &frame {
                        self.catalog.listens(*wire, watch);
                    }
                    self.cx.frames.push(frame);
                }
                Err(wire) => self.withdraw_request(wire, Withdrawal::default()),
            }
        }
        if self.lifecycle.state() == State::Ready {
            self.catalog.await_setup(&mut self.cx);
        }
    }

    /// Asks again for the parts of the watch that were refused or ended.
    pub(super) fn retry_watch(&mut self) {
        let session = self.session.agreed().map(|session| &**session);
        let requests = self.catalog.retry_watch(session);
        self.send_watch_requests(requests);
    }

    /// Stops waiting for replies that set up the watch (S-TIME-02).
    pub(super) fn stop_waiting_for_watch(&mut self) {
        for wire in self.requests.close_setup() {
            self.withdraw_request(wire, Withdrawal::default());
        }
        self.catalog
            .stop_waiting(&mut self.cx, self.lifecycle.epoch());
    }

    /// Requests the first page of every list that a call wants.
    pub(super) fn fetch_lists(&mut self) {
        if self.lifecycle.state() != State::Ready {
            return;
        }
        for list in self.catalog.to_fetch() {
            let missing = method::find(list.method()).and_then(|facts| self.session.missing(facts));
            if let Some(what) = missing {
                for call in self.catalog.give_up(list) {
                    self.fail(call, FailureKind::NotOffered { what: what.clone() });
                }
            } else {
                self.catalog.begin(list);
                self.request_page(list, None);
            }
        }
    }

    pub(super) fn request_page(&mut self, list: List, cursor: Option<Payload>) {
        let frame = |wire| Frame::Page(wire, list, cursor);
        self.requests
            .request(&mut self.cx, Purpose::Page(list), frame);
    }

    /// Applies the answer to an ask.
    pub(super) fn given(&mut self, given: Given) {
        match given {
            Given::Sent => self.hold_calls(),
            Given::Round(call, key, answer) => {
                if self.requests.answered(call, key, answer) {
                    self.requests.continue_if_answered(&mut self.cx, call);
                }
            }
            Given::Declined(call, method, error) => {
                let why = error.text().into();
                self.fail(call, FailureKind::Declined { method, why });
            }
        }
    }

    /// Handles an ask that was not answered in time.
    pub(super) fn ask_expired(&mut self, ask: AskId) {
        let may_repeat = self.binding.may_repeat_requests();
        if let Some(given) = self.asks.expire(&mut self.cx, ask, may_repeat) {
            self.given(given);
        }
    }
}

/// What is written next.
impl Client {
    pub(super) fn can_write(&self) -> bool {
        let has_next = || {
            let may_send = |frame: &Frame| self.binding.may_send(frame);
            self.cx.frames.has_next(may_send) || self.next_call().is_some()
        };
        self.binding.has_due() || self.may_write() && has_next()
    }

    pub(crate) fn write(&mut self, buf: &mut Vec<u8>) -> Option<Output<Event>> {
        if let Some(begun) = self.binding.begin_due(&mut self.cx) {
            return Some(begun);
        }
        if !self.may_write() {
            return None;
        }
        let start = buf.len();
        let load = if let Some((frame, times)) = self.next_frame() {
            self.session.writer().frame(buf, &frame, &self.cx.config);
            Load::Frame(frame, times)
        } else {
            let id = self.next_call()?;
            let (wire, call) = self.requests.send(self.cx.now, id)?;
            self.session.writer().call(buf, wire, call);
            if buf.len() - start > SHORT && !self.binding.may_send_again(&self.session) {
                self.requests.drop_params(&self.cx, id);
            }
            Load::Call(id)
        };
        self.cx.stats.messages_out += 1;
        let facts = facts!(self);
        self.binding.send(&mut self.cx, facts, buf, start, load)
    }

    /// Takes the next message that is no call, if it is its turn. The notifications of one client of a relay must not hold back the calls of others
    /// until all are written.
    #[inline]
    fn next_frame(&mut self) -> Option<(Frame, u32)> {
        // Usually, only calls wait.
        if self.cx.frames.len() == 0 || self.next_call().is_some() && self.cx.yields_to_call() {
            return None;
        }
        let binding = &self.binding;
        self.cx.frames.pop(|frame| binding.may_send(frame))
    }

    /// The call to send next.
    #[inline]
    fn next_call(&self) -> Option<CallId> {
        match self.lifecycle.state() {
            State::Ready => {
                let next = self.requests.next_to_send(&self.cx, false);
                let next = next.filter(|_| !self.lifecycle.holds_calls_back(self.cx.now));
                if next.is_some() && self.binding.is_changing_settings() {
                    let may_change = |key: &str| self.binding.may_change(key);
                    return self.requests.next_to_send_if(may_change);
                }
                next
            }
            State::Draining => self.requests.next_to_send(&self.cx, true),
            State::Idle
            | State::Opening
            | State::Handshaking
            | State::Closing
            | State::Waiting
            | State::Parked
            | State::Closed => None,
        }
    }
}

/// The end of calls.
impl Client {
    /// Ends a call with this outcome.
    pub(super) fn settle(&mut self, id: CallId, outcome: Outcome) {
        let Some(phase) = self.requests.end(&mut self.cx, id) else {
            return;
        };
        match phase {
            Phase::Asking => self.asks.withdraw_of(&mut self.cx, id),
            Phase::Listing(_) | Phase::Schema => {
                let unwanted = self.catalog.unwant(id);
                let page = unwanted.and_then(|list| self.requests.wire_for(&Purpose::Page(list)));
                if let Some(wire) = page {
                    self.requests.close(wire);
                    self.withdraw_request(wire, Withdrawal::default());
                }
            }
            Phase::Sent(_) | Phase::Waiting => {}
        }
        self.lifecycle.settled(&outcome);
        self.cx.tell(Event::Done { call: id, outcome });
    }

    /// Ends a call that has no reply.
    pub(super) fn fail(&mut self, id: CallId, kind: FailureKind) {
        let ended = self.lifecycle.story_for(self.cx.now, &kind);
        self.fail_with(id, kind, ended);
    }

    pub(super) fn fail_with(&mut self, id: CallId, kind: FailureKind, ended: Option<Arc<Ended>>) {
        let now = self.cx.now;
        if let Some(mut failure) = self.requests.failure(now, id, kind) {
            failure.ended = ended;
            failure.next_attempt = self.lifecycle.next_attempt(now);
            self.settle(id, Outcome::Failed(failure));
        }
    }

    /// Ends every call with this failure.
    pub(super) fn fail_all(&mut self, kind: &FailureKind) {
        let ended = self.lifecycle.story_for(self.cx.now, kind);
        for id in self.requests.ids() {
            self.fail_with(id, kind.clone(), ended.clone());
        }
    }

    /// Fails a call that needs something that this server does not offer, or that a relay's client of the other era may not make.
    pub(super) fn fail_if_not_offered(&mut self, id: CallId) {
        let Some(call) = self.requests.call(id) else {
            return;
        };
        let facts = call.facts;
        if let Some(what) = facts.and_then(|facts| self.session.missing_for(call.era(), facts)) {
            self.fail(id, FailureKind::NotOffered { what });
        }
    }

    /// Handles a lost page of this list. A call fails if the list was lost more often than `Policy::resends` allows.
    pub(super) fn page_lost(&mut self, list: List, kind: &FailureKind) {
        for id in self.catalog.waiting(list).to_vec() {
            if !self.requests.page_lost(&self.cx, id) {
                self.fail(id, kind.clone());
            }
        }
    }

    /// Ends a call that may be in flight, for its caller or because it timed out. The server is told.
    pub(super) fn abort(&mut self, id: CallId, kind: FailureKind, words: Withdrawal) {
        let call = self.requests.call(id);
        let wire = call.and_then(Call::wire);
        let runs_as_task = call.is_some_and(|call| self.session.runs_as_task(call));
        let sent_at = self.requests.sent_at(id);
        self.fail(id, kind);
        match wire {
            // A task is not cancelled with the request that began it, but the reply is not awaited any more.
            Some(wire) if runs_as_task => self.drop_request(wire),
            Some(wire) => self.withdraw_request(wire, words),
            None => {}
        }
        if let Some(at) = sent_at {
            self.call_abandoned(at);
        }
    }

    /// Tells the server that a request is not wanted any more.
    pub(super) fn withdraw_request(&mut self, wire: u64, words: Withdrawal) {
        if self.session.agreed().is_none() {
            return;
        }
        let facts = facts!(self);
        if self.binding.cancel(&mut self.cx, facts, wire) {
            self.cx.frames.push(Frame::Cancel(wire, words));
        }
    }

    /// Ends the exchange of a request that is not wanted any more.
    pub(super) fn drop_request(&mut self, wire: u64) {
        let facts = facts!(self);
        self.binding.drop_request(&mut self.cx, facts, wire);
    }

    /// Handles the deadline of a call.
    pub(super) fn call_due(&mut self, id: CallId) {
        let state = self.lifecycle.state();
        let is_absent = matches!(state, State::Waiting | State::Parked);
        if self.requests.has_waited_enough(self.cx.now, id) && is_absent {
            return self.fail(id, FailureKind::Down);
        }
        if let Some(limit) = self.requests.due(&mut self.cx, id) {
            let reason = match limit {
                TimeLimit::Idle => "no reply and no progress in time",
                TimeLimit::Total => "it took too long in all",
            };
            let kind = FailureKind::TimedOut { limit, state };
            self.abort(id, kind, Withdrawal::because(reason));
        }
    }
}

/// Credentials.
impl Client {
    /// Handles a message that was turned away for lack of credentials.
    pub(super) fn unauthorized(&mut self, unauthorized: Unauthorized) {
        let Unauthorized {
            returned,
            is_asked,
            challenge,
        } = unauthorized;
        if is_asked {
            if self.return_message(returned, true) {
                let facts = facts!(self);
                if self.binding.ask_credentials(&mut self.cx, facts, challenge) {
                    self.requests.freeze(&mut self.cx, true);
                }
            }
            return;
        }
        match returned.wire {
            Some(wire) if self.requests.is_of_handshake(wire) => {
                self.take_down(Cause::Unauthorized);
            }
            Some(wire) => self.unanswered(wire, FailureKind::Unauthorized { why: None }),
            None if returned.load.ends_handshake() => self.take_down(Cause::Unauthorized),
            None => {}
        }
    }

    /// Handles new credentials: everything continues. The application may also give them without being asked, such as after it denied them.
    pub(super) fn credentials_given(&mut self) {
        // S-CACHE-08: a list may differ under other credentials.
        self.catalog.outdate();
        if self.binding.authorized(&mut self.cx) {
            self.requests.freeze(&mut self.cx, false);
            if self.lifecycle.state() == State::Handshaking {
                self.resume_handshake();
            }
        } else if self.lifecycle.state().is_between_attempts() {
            self.attempt();
        }
        let facts = facts!(self);
        self.binding.listen_again(&mut self.cx, facts);
    }

    /// Fails everything that waits for credentials, because there are none.
    pub(super) fn credentials_denied(&mut self, why: &str) {
        if !self.binding.denied(&mut self.cx) {
            return;
        }
        self.requests.freeze(&mut self.cx, false);
        let kind = FailureKind::Unauthorized {
            why: Some(why.into()),
        };
        for call in self.requests.unsent(&self.cx) {
            self.fail(call, kind.clone());
        }
        if self.lifecycle.state() == State::Handshaking {
            return self.take_down(Cause::Unauthorized);
        }
        let turned_away = self.cx.frames.take_turned_away();
        for wire in turned_away.iter().filter_map(Frame::wire) {
            self.unanswered(wire, kind.clone());
        }
        // A server does not serve before it gets `notifications/initialized`.
        let is_end = |frame: &Frame| matches!(frame, Frame::Initialized);
        if turned_away.iter().any(is_end) {
            self.take_down(Cause::Unauthorized);
        }
    }
}

/// Requests that were refused, turned away or lost.
impl Client {
    pub(super) fn refused(&mut self, refused: Refused) {
        let wire = refused.wire;
        let Some(purpose) = self.requests.purpose(wire).cloned() else {
            return;
        };
        if self.requests.is_of_handshake(wire) {
            self.requests.close(wire);
            return self.handshake_refused(&purpose, refused);
        }
        let is_probe = purpose == Purpose::Probe;
        let status = refused.status;
        if is_probe && status >= 500 {
            // The status only says that something is wrong, so the probe counts as unanswered.
            self.requests.close(wire);
            return;
        }
        let is_strange = self.session.writes_modern() && refused.is_unlike_modern(is_probe);
        let is_unread = refused.is_unread();
        match refused.error {
            // A modern server replies to an unknown method like this (S-HTTP-29), so its era is unchanged.
            Some(error) if is_probe && status == 404 && error.code == code::METHOD_NOT_FOUND => {
                self.requests.close(wire);
            }
            Some(error) => {
                self.requests.close(wire);
                self.apply_reply(wire, purpose, Err(error));
            }
            None => {
                if let (Purpose::Call(call), true) = (&purpose, is_unread) {
                    self.requests.was_not_run(self.cx.now, *call);
                }
                self.unanswered(wire, FailureKind::Status { status, said: None });
            }
        }
        // A modern server does not respond like this. Check whether it still is one.
        match (is_strange, is_probe) {
            (true, true) => self.changed_its_era(),
            (true, false) => self.probe_now(),
            (false, _) => {}
        }
    }

    /// Handles the loss of a session (S-SESS-06). All requests that notice it share one new handshake.
    pub(super) fn session_lost(&mut self, returned: Returned) {
        if self.lifecycle.state() == State::Handshaking {
            return self.stop_reviving(true);
        }
        self.binding.session_lost();
        if let Load::Call(_) = returned.load {
            self.return_message(returned, false);
        }
        self.drain(Cause::SessionLost, self.cx.config.policy.drain);
    }

    /// Handles a message without a response: the server could not be reached, or the connection was cut.
    pub(super) fn no_contact(&mut self, lost: NoContact<'_>) {
        if let Some(wire) = lost.wire {
            if !self.requests.is_wanted(wire) {
                return self.probe_now();
            }
            if lost.is_cut() && self.is_probe_cut(wire) {
                return;
            }
        }
        self.lifecycle.note(lost.faults);
        let is_unsent = lost.is_unsent();
        let is_handshake = self.lifecycle.state() == State::Handshaking;
        if is_unsent && is_handshake {
            self.session.handshake().server_vanished();
        }
        match (lost.wire, lost.load) {
            (Some(wire), Load::Call(call)) => {
                self.requests.close(wire);
                if is_unsent {
                    // The server has not received the request.
                    self.requests.send_later(&mut self.cx, call);
                } else {
                    self.call_lost(call, FailureKind::NoContact);
                }
            }
            (Some(wire), _) if !is_handshake => self.request_lost(wire, FailureKind::Cut),
            (_, _) => {}
        }
        self.drain(Cause::Unreachable, self.cx.config.policy.close_grace);
    }

    /// Queues a message again that the server turned away, or fails it. Returns whether it is queued. `is_shut_out`: it was turned away for lack of
    /// credentials.
    pub(super) fn return_message(&mut self, returned: Returned, is_shut_out: bool) -> bool {
        let (requests, cx) = (&mut self.requests, &mut self.cx);
        match requests.return_message(cx, returned, is_shut_out) {
            Resent::Queued => return true,
            Resent::Dropped => {}
            Resent::Failed(call, kind) => self.fail(call, kind),
            Resent::Unanswered(wire, kind) => self.unanswered(wire, kind),
            Resent::TakeDown(cause) => self.take_down(cause),
        }
        false
    }

    /// Falls back to `initialize` if this request is the `server/discover` probe and its connection was cut. Returns whether it did.
    pub(super) fn is_probe_cut(&mut self, wire: u64) -> bool {
        let is_probe = self.requests.purpose(wire) == Some(&Purpose::Discover);
        if is_probe && self.probe_failed("the connection was cut", false) {
            self.requests.close(wire);
            return true;
        }
        false
    }

    /// Handles a request whose reply is lost. `kind` is the failure to report if it is a call that cannot be repeated.
    pub(super) fn request_lost(&mut self, wire: u64, kind: FailureKind) {
        if self.is_probe_cut(wire) {
            return;
        }
        let Some(purpose) = self.requests.close(wire) else {
            return;
        };
        match purpose {
            Purpose::Call(call) => self.call_lost(call, kind),
            Purpose::Page(list) => {
                self.page_lost(list, &kind);
                self.catalog.begin_again(list);
            }
            Purpose::Listen => self.listen_ended(wire, None),
            Purpose::Discover | Purpose::Initialize | Purpose::Revive => {
                self.take_down(Cause::Unreachable);
            }
            Purpose::LateDiscover | Purpose::Probe => {}
            Purpose::SetLevel(_) | Purpose::Subscribe(_) | Purpose::Unsubscribe => {
                let error = ErrorObject::new(code::INTERNAL_ERROR, "the reply was lost");
                self.apply_reply(wire, purpose, Err(error));
            }
        }
    }

    /// Handles a call whose reply is lost. It may or may not have run.
    pub(super) fn call_lost(&mut self, call: CallId, kind: FailureKind) {
        if !self.requests.requeue(&mut self.cx, call) {
            self.fail(call, kind);
        }
    }
}
