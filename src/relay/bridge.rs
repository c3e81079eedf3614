//! Turns events of one side into actions on the other. Every event of either machine, every request and every reply passes through here.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::{Event, Relay, Side, lists, words};
use crate::client::{self, Behalf, Delivery, FailureKind, Outcome, Withdrawal};
use crate::driver::{CallId, Epoch, RequestId};
use crate::json::{Json, Payload, object};
use crate::protocol::method::names;
use crate::protocol::watch::{Change, List, Setting, WatchUpdate};
use crate::protocol::{Era, code, round};
use crate::server::{self, Caller, EndOfService, Peer, Progress};

/// The purpose of a call to the server.
#[derive(Debug)]
pub(super) enum Errand {
    /// Reads a list to compare it with the one that the host has seen.
    Compare(List),
    /// Carries a request of a host.
    Request(Carried),
}

impl Errand {
    /// The host whose request it is.
    pub(super) const fn caller(&self) -> Option<&Caller> {
        match self {
            Errand::Compare(_) => None,
            Errand::Request(carried) => Some(&carried.caller),
        }
    }
}

/// A request of a host while the relay carries it.
#[derive(Debug)]
pub(super) struct Carried {
    pub(super) request: RequestId,
    /// The host that sent it.
    pub(super) caller: Caller,
    /// The host's version and capabilities for this request.
    pub(super) peer: Arc<Peer>,
    /// Whether the protocol allows the request to wait for input.
    pub(super) may_wait: bool,
    /// Whether the host wants log messages for this request.
    pub(super) wants_logs: bool,
    is_tool_call: bool,
    /// The subscription or log level that the request changes, if it is such a request.
    setting: Option<Setting>,
    /// The epoch of the server in which the request came.
    epoch: Epoch,
    /// The list that it reads, and whether it reads the first page.
    list: Option<(List, bool)>,
}

/// Events of the host's side.
impl Relay {
    /// Carries out an event of the host's side. Returns the event that is left to report.
    pub(super) fn carry_up(&mut self, event: server::Event) -> Option<Event> {
        match event {
            server::Event::Request(request) => self.request(request),
            server::Event::Cancelled { request, why } => self.cancelled(request, why),
            server::Event::Answered { ask, outcome, .. } => return self.answered(ask, outcome),
            server::Event::Watching(update) => self.watch(*update),
            server::Event::Notified {
                method,
                params,
                caller,
            } => {
                self.asks.heard_of(&caller);
                self.notices.push(String::from(method), params);
                self.pass_notices();
            }
            server::Event::Met(ref peer) => {
                self.met(peer);
                return Some(Event::Downstream(event));
            }
            server::Event::Draining { why } => {
                self.has_input_ended = why == EndOfService::EndOfInput;
                self.end_within(self.config.drain());
                return Some(Event::Downstream(event));
            }
            server::Event::Closed { .. } => {
                self.patience = None;
                self.end_within(Duration::ZERO);
                self.cutoff = None;
                self.client.shutdown(self.now);
                return Some(Event::Downstream(event));
            }
            server::Event::Initialized
            | server::Event::Noise(_)
            | server::Event::NotificationsDropped { .. }
            | server::Event::Refused(_) => {
                return Some(Event::Downstream(event));
            }
        }
        None
    }

    fn request(&mut self, request: server::Request) {
        let method = request.method;
        let carried = Carried {
            request: request.request,
            may_wait: crate::protocol::method::find(&method).is_some_and(|m| m.may_need_input),
            wants_logs: request.log_level.is_some() || request.peer.version.era() == Era::Legacy,
            peer: request.peer,
            caller: request.caller,
            is_tool_call: method == names::TOOLS_CALL,
            setting: Setting::read(&method, request.params.as_ref()),
            epoch: self.client.epoch(),
            list: lists::read_by(&method).map(|list| {
                let params = request.params.as_ref().map_or(Json::EMPTY, Payload::json);
                let cursor = params.member("cursor").ok().flatten();
                let is_first = cursor.is_none_or(Json::is_null);
                (list, is_first)
            }),
        };
        // The server end handles the rounds that it began itself. Other answers and states belong to the server, which knows how to use
        // them.
        let input = request.input;
        let behalf = Behalf {
            peer: carried.peer.clone(),
            state: input
                .as_ref()
                .and_then(|input| Payload::of(input.state.as_ref()?).ok()),
            answers: input.and_then(|input| input.answers),
            log_level: request.log_level,
        };
        if self.answers_unsubscribe(&carried) {
            return;
        }
        let mut options = self.config.calls;
        options.no_progress |= !request.wants_progress;
        options.idempotent |= carried.setting.is_some();
        let behalf = Some(Box::new(behalf));
        let bytes = request
            .params
            .as_ref()
            .map_or(0, |params| params.as_str().len());
        while let Some(longer) = self.client.to_give_up_for(bytes) {
            self.give_up(longer);
        }
        let call = self
            .client
            .call_for(self.now, method, request.params, options, behalf);
        match call {
            Ok(call) => {
                self.asks.heard_of(&carried.caller);
                self.calls.insert(carried.request, call);
                self.errands.insert(call, Errand::Request(carried));
                self.put_waiting();
            }
            Err(misuse) => {
                let mut text = alloc::format!("the request could not be passed on: {misuse}");
                if let Some(ended) = self.client.last_end() {
                    let cause = &ended.cause;
                    text.push_str(&alloc::format!(" (what happened to the server: {cause})"));
                }
                self.lost(&carried, &text, Delivery::NotSent);
            }
        }
    }

    /// Drops an unsent call to make room for others. Its request is answered with an error.
    fn give_up(&mut self, call: CallId) {
        let reason = "too much waits for the server, and this request carries most of it; send it again when others are done";
        let _ = self.client.cancel(self.now, call, Some(reason));
        if let Some(Errand::Request(carried)) = self.errands.remove(&call) {
            self.calls.remove(&carried.request);
            let text = alloc::format!("the request could not be passed on: {reason}");
            self.lost(&carried, &text, Delivery::NotSent);
        }
    }

    /// Answers an unsubscribe request without the server if another host still watches the resource, because the server sees all hosts as
    /// one client. Returns whether it did.
    fn answers_unsubscribe(&mut self, carried: &Carried) -> bool {
        let Some(setting @ Setting::Unsubscribe(uri)) = &carried.setting else {
            return false;
        };
        if self.config.has_one_host() || self.server.watchers_of(uri) < 2 {
            return false;
        }
        self.server
            .settle_setting(self.now, &carried.caller, setting);
        if let Ok(empty) = Payload::from_text("{}".into()) {
            let _ = self.server.respond(self.now, carried.request, empty);
        }
        true
    }

    fn cancelled(&mut self, request: RequestId, why: server::Cancelled) {
        let Some(call) = self.calls.remove(&request) else {
            return;
        };
        self.errands.remove(&call);
        let words = match why {
            server::Cancelled::Anew => Withdrawal::because("the client began anew"),
            server::Cancelled::ByPeer { reason, meta } => Withdrawal { reason, meta },
            server::Cancelled::NotResumed => {
                Withdrawal::because("the client was asked and did not come back")
            }
            server::Cancelled::OutOfTime | server::Cancelled::PeerGone => {
                Withdrawal::because("the client is gone")
            }
        };
        // The call may already have its outcome, in an event that is still queued.
        let _ = self.client.withdraw(self.now, call, words);
    }

    /// Limits the rest of the relay's time: requests in flight have `drain` to finish. With a single host, the server must be gone `close`
    /// later.
    fn end_within(&mut self, drain: Duration) {
        self.cutoff = Some(self.now + drain);
        if self.config.has_one_host() {
            self.client.end_by(self.now + drain + self.config.close);
        }
    }

    /// Whether to close the server's input: the single host has closed its own, and everything that it sent is passed on.
    pub(super) fn has_end_to_pass_on(&self) -> bool {
        // If the relay ends for another reason, the host can still answer asks, so the server's input stays open.
        let is_over = self.has_input_ended && self.cutoff.is_some() && self.config.has_one_host();
        is_over && !self.server.is_deferring() && self.client.can_finish()
    }

    pub(super) fn pass_end_on(&mut self) {
        // 1 s longer than the relay's drain time, because the relay knows better what became of a call.
        let grace = self.config.drain() + Duration::from_secs(1);
        self.client.finish(self.now, grace);
    }

    /// Answers all requests that are still in flight, because the drain time is over.
    pub(super) fn cut_off(&mut self) {
        self.cutoff = None;
        self.decline("the relay is closing, and the server was not ready yet");
        let calls: Vec<CallId> = self.calls.values().copied().collect();
        for call in calls {
            let _ = self
                .client
                .cancel(self.now, call, Some("the relay is closing"));
        }
    }

    /// Passes a change of the watch to the server. If there was a legacy host, the lists are always watched, because it gets their changes
    /// unasked.
    fn watch(&mut self, mut update: WatchUpdate) {
        for uri in &update.removed {
            self.unheard.remove(uri);
        }
        if self.has_legacy_host {
            (update.tools, update.prompts, update.resources) = (true, true, true);
        }
        self.client.change_watch(self.now, &update);
    }
}

/// Events of the server's side.
impl Relay {
    /// Carries out an event of the server's side. Returns the event that is left to report.
    pub(super) fn carry_down(&mut self, event: client::Event) -> Option<Event> {
        match event {
            client::Event::Done { call, outcome } => return self.done(call, outcome),
            client::Event::Progress {
                call,
                progress,
                total,
                message,
            } => {
                let told = Progress {
                    progress,
                    total,
                    message,
                };
                if let Some(request) = self.request_of(Some(call)) {
                    let _ = self.server.progress(self.now, request, told);
                }
            }
            client::Event::Ask(ask) => return self.ask(ask),
            client::Event::AskWithdrawn { ask, .. } => self.withdrawn(ask),
            // One notification covers both lists of resources, for the server and for the host.
            client::Event::Changed(Change::List(List::ResourceTemplates)) => {}
            client::Event::Changed(change) => self.announce(change),
            client::Event::Log {
                call,
                level,
                logger,
                data,
            } => {
                let request = self.request_of(call);
                let (is_for_all, logger) = (self.may_tell_all(), logger.as_deref());
                let guess = call.is_none() && !is_for_all;
                let request = request.or_else(|| guess.then(|| self.logging()).flatten());
                let is_passed = (request.is_some() || is_for_all)
                    && self
                        .server
                        .log(self.now, request, level, logger, data)
                        .is_ok();
                if !is_passed && self.server.state() != server::State::Closed {
                    let method = names::NOTIFICATIONS_MESSAGE;
                    self.notices.not_passed(Side::Downstream, method);
                }
            }
            client::Event::Notified {
                method,
                params,
                call,
            } => self.notified(method, params, call),
            client::Event::Ready(ref session) => {
                self.ready(session);
                return Some(Event::Upstream(event));
            }
            client::Event::Watching { ref granted, .. } => {
                for uri in &granted.added {
                    if let Some(uri) = self.unheard.take(uri) {
                        self.announce(Change::Resource { uri });
                    }
                }
                return Some(Event::Upstream(event));
            }
            client::Event::Parked { .. } => {
                self.decline_as_down();
                return Some(Event::Upstream(event));
            }
            client::Event::Closed => {
                self.decline_as_down();
                self.server.shutdown(self.now);
                return Some(Event::Upstream(event));
            }
            client::Event::AuthRequired(_)
            | client::Event::ToolDropped { .. }
            | client::Event::Opening { .. }
            | client::Event::Handshaking { .. }
            | client::Event::Draining { .. }
            | client::Event::Closing { .. }
            | client::Event::Waiting { .. }
            | client::Event::Ended(_)
            | client::Event::Slow { .. }
            | client::Event::Silent { .. }
            | client::Event::Responsive { .. }
            | client::Event::Noise(_) => return Some(Event::Upstream(event)),
        }
        None
    }

    /// The request of a host that this call carries.
    pub(super) fn request_of(&self, call: Option<CallId>) -> Option<RequestId> {
        match self.errands.get(&call?)? {
            Errand::Request(carried) => Some(carried.request),
            Errand::Compare(_) => None,
        }
    }

    /// Whether a message of the server may go to all hosts, although it may be meant for one of them.
    fn may_tell_all(&self) -> bool {
        self.config.downstream.http.is_none() || self.config.shares_news
    }

    fn done(&mut self, call: CallId, outcome: Outcome) -> Option<Event> {
        match self.errands.remove(&call)? {
            Errand::Compare(list) => {
                self.compared(list, &outcome);
                None
            }
            Errand::Request(carried) => {
                self.calls.remove(&carried.request);
                self.reply(&carried, outcome)
            }
        }
    }

    fn reply(&mut self, carried: &Carried, outcome: Outcome) -> Option<Event> {
        let request = carried.request;
        // The host may have cancelled its request meanwhile.
        match outcome {
            Outcome::Reply(result) => {
                if let Some((list, is_first)) = carried.list {
                    self.lists.saw(&carried.caller, list, is_first, &result);
                }
                if let Some(setting) = &carried.setting {
                    self.client.settle_setting(setting);
                    self.server
                        .settle_setting(self.now, &carried.caller, setting);
                    if let Setting::Subscribe(uri) = setting {
                        // Changes while the server was replaced were not seen.
                        if carried.epoch < self.client.epoch() {
                            self.announce(Change::Resource { uri: uri.clone() });
                        }
                    }
                }
                let is_legacy = carried.peer.version.era() == Era::Legacy;
                let result = if is_legacy && !self.is_behind_of(Era::Legacy) {
                    without_type(result)
                } else {
                    result
                };
                if let Err(misuse) = self.server.respond(self.now, request, result) {
                    let text = alloc::format!("the reply could not be passed on: {misuse}");
                    self.lost(carried, &text, Delivery::Unknown);
                }
                None
            }
            Outcome::Error(error) => {
                let error = Arc::unwrap_or_clone(error);
                if let Err(misuse) = self.server.fail(self.now, request, error) {
                    let text = alloc::format!("the error could not be passed on: {misuse}");
                    self.lost(carried, &text, Delivery::Unknown);
                }
                None
            }
            Outcome::Failed(failure) => {
                let text = words::story(&failure, self.config.tells_stderr);
                if let FailureKind::NotOffered { .. } = failure.kind {
                    let text = self.cut(&text);
                    let error = words::error(code::METHOD_NOT_FOUND, text, failure.delivery);
                    let _ = self.server.fail(self.now, request, error);
                } else {
                    self.lost(carried, &text, failure.delivery);
                }
                Some(Event::Lost(failure))
            }
            Outcome::Listed(_) => {
                self.lost(
                    carried,
                    "a list came in the place of a page",
                    Delivery::Harmless,
                );
                None
            }
        }
    }

    /// Whether the server speaks this era.
    fn is_behind_of(&self, era: Era) -> bool {
        let session = self.client.session();
        session.is_some_and(|session| session.version.era() == era)
    }

    pub(super) fn cut(&self, text: &str) -> String {
        words::cut(text, self.config.downstream.limits.message_bytes)
    }

    /// Answers a request that has no reply: a tool call as the configuration says, any other request with an error.
    fn lost(&mut self, carried: &Carried, text: &str, delivery: Delivery) {
        let text = self.cut(text);
        let result = self.config.answers_with_result(carried.is_tool_call);
        let result = result
            .then(|| words::result(&text, delivery, carried.peer.version.era()))
            .flatten();
        let _ = match result {
            Some(result) => self.server.respond(self.now, carried.request, result),
            None => {
                let error = words::error(code::INTERNAL_ERROR, text, delivery);
                self.server.fail(self.now, carried.request, error)
            }
        };
    }
}

/// Removes the result type, because legacy clients do not know it.
fn without_type(result: Payload) -> Payload {
    match result.json().member(round::RESULT_TYPE) {
        Ok(None) => result,
        Ok(Some(_)) | Err(_) => {
            let is_type = |key: &str| key == round::RESULT_TYPE;
            object::without(result.json(), is_type).unwrap_or(result)
        }
    }
}
