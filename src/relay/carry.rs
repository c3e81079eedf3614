//! Turns events of one side into actions on the other. Every event of either machine, every request and every reply passes through here.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use core::time::Duration;

use super::carried::{CarriedRequest, Purpose};
use super::notifications::Waiting;
use super::trace::{Trace, Verdict};
use super::{Event, Relay, Side, notifications};
use crate::client::{self, Behalf, Delivery, FailureKind, Outcome, Withdrawal};
use crate::driver::{CallId, RequestId};
use crate::json::{Payload, object};
use crate::protocol::method::names;
use crate::protocol::watch::{Change, List, Setting};
use crate::protocol::{Era, LogLevel, round};
use crate::server::{self, Caller, EndOfService, Progress};
use crate::util::Arc;

/// Events of the host's side.
impl Relay {
    /// Carries out an event of the host's side. Returns the event that is left to report.
    pub(super) fn carry_up(&mut self, event: server::Event) -> Option<Event> {
        match event {
            server::Event::Request(request) => self.request(request),
            server::Event::Cancelled { request, why } => self.cancelled(request, why),
            server::Event::Answered { ask, outcome, .. } => return self.answered(ask, outcome),
            server::Event::Watching(update) => {
                let update = self.watch.change(*update);
                self.back.change_watch(self.clock.now(), &update);
            }
            server::Event::Notified {
                method,
                params,
                caller,
            } => {
                let notification = Waiting {
                    method: String::from(method),
                    params,
                    caller,
                };
                let most = self.config.upstream.limits.queued_bytes;
                self.notifications.push(notification, most);
                self.pass_notifications();
            }
            server::Event::Met(ref peer) => {
                self.met(peer);
                return Some(Event::Downstream(event));
            }
            server::Event::Draining { why } => {
                let has_ended = why == EndOfService::EndOfInput;
                self.clock.set_input_ended(has_ended);
                self.end_within(self.config.drain());
                return Some(Event::Downstream(event));
            }
            server::Event::Closed { .. } => {
                self.clock.stop_waiting();
                self.clock.forget_cutoff();
                self.end_server_after(Duration::ZERO);
                self.back.shutdown(self.clock.now());
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

    fn request(&mut self, mut request: server::Request) {
        let trace = self.begin_trace(&mut request);
        let mut carried = CarriedRequest::new(&request, self.back.epoch());
        // The server end handles the rounds that it began itself. Other answers and states belong to the server, which knows how to use
        // them.
        let input = request.input;
        let behalf = Behalf {
            peer: self.config.shown(request.peer),
            state: input
                .as_ref()
                .and_then(|input| Payload::of(input.state.as_ref()?).ok()),
            answers: input.and_then(|input| input.answers),
            log_level: request.log_level,
            trace: trace.as_ref().map(|trace| Box::new(trace.context())),
        };
        carried.trace = trace;
        if self.answers_unsubscribe(&carried) {
            self.end_trace(&mut carried, Verdict::Reply, Delivery::NotSent);
            return;
        }
        let mut options = self.config.calls;
        options.no_progress |= !request.wants_progress;
        let params = request.params;
        let bytes = params.as_ref().map_or(0, |params| params.as_str().len());
        let bytes = request.method.len() + bytes + behalf.bytes();
        if !self.has_share(request.request, bytes) {
            let why = "the long requests of this host take its share of the memory for them; try again when some are done";
            return self.not_passed_on(carried, why);
        }
        let (now, behalf) = (self.clock.now(), Box::new(behalf));
        let call = self
            .back
            .call_for(now, request.method, params, options, behalf);
        match call {
            Ok(call) => {
                self.questions.add_caller(&carried.caller);
                self.carried.add(call, Purpose::Request(carried));
                for waiting in self.questions.take_waiting() {
                    // Only asks on a byte stream wait, and those are never refused as uncertain.
                    let _ =
                        self.ask_without_request(waiting.behind, waiting.method, waiting.params);
                }
            }
            Err(misuse) => self.not_passed_on(carried, misuse),
        }
    }

    /// Whether the host of this request may add a call of `bytes` to those that it has.
    fn has_share(&self, request: RequestId, bytes: usize) -> bool {
        let holder = |of| self.front.holder_of(of);
        let own = self.carried.calls_for(|of| holder(of) == holder(request));
        self.back.has_share(own, bytes)
    }

    /// Begins the trace of a request, if requests are traced.
    fn begin_trace(&mut self, request: &mut server::Request) -> Option<Box<Trace>> {
        if !self.config.traces {
            return None;
        }
        let id = self.front.wire_id(request.request).cloned();
        let is_ready = self.back.state() == client::State::Ready;
        let connection = is_ready.then(|| self.back.epoch());
        self.tracer.begin(self.clock.now(), request, id, connection)
    }

    /// Ends the trace of a request, if it has one. A call that was not sent went over no connection.
    pub(super) fn end_trace(
        &mut self,
        carried: &mut CarriedRequest,
        verdict: Verdict,
        delivery: Delivery,
    ) {
        if let Some(mut trace) = carried.trace.take() {
            if delivery == Delivery::NotSent {
                trace.forget_connections();
            }
            let version = self.back.session().map(|session| session.version);
            self.tracer.end(trace, self.clock.now(), version, verdict);
        }
    }

    /// Answers an unsubscribe request without the server if another host still watches the resource, because the server sees all hosts as
    /// one client. Returns whether it did.
    fn answers_unsubscribe(&mut self, carried: &CarriedRequest) -> bool {
        let Some(setting @ Setting::Unsubscribe(uri)) = &carried.setting else {
            return false;
        };
        // The modern era has no such request, so the server refuses it.
        let is_legacy = carried.peer.version.era() == Era::Legacy;
        let is_shared = is_legacy && !self.config.has_one_host();
        if !is_shared || !self.front.is_watched_without(&carried.caller, uri) {
            return false;
        }
        self.front
            .settle_setting(self.clock.now(), &carried.caller, setting);
        if let Ok(empty) = Payload::from_text("{}".into()) {
            let _ = self.front.respond(self.clock.now(), carried.request, empty);
        }
        true
    }

    fn cancelled(&mut self, request: RequestId, why: server::Cancelled) {
        let Some((call, mut carried)) = self.carried.take_call_of(request) else {
            return;
        };
        // The call may already have its outcome, in an event that is still queued.
        let delivery = self.back.delivery_of(call).unwrap_or(Delivery::Unknown);
        self.end_trace(&mut carried, Verdict::Cancelled, delivery);
        let words = match why {
            server::Cancelled::Anew => Withdrawal::because("the client began anew"),
            server::Cancelled::ByPeer { reason, meta } => Withdrawal::of_client(reason, meta),
            server::Cancelled::NotResumed => {
                Withdrawal::because("the client was asked and did not come back")
            }
            server::Cancelled::OutOfTime | server::Cancelled::PeerGone => {
                Withdrawal::because("the client is gone")
            }
        };
        let _ = self.back.withdraw(self.clock.now(), call, words);
    }

    /// Limits the rest of the relay's time: requests in flight have `drain` to finish. With a single host, the server must be gone `close`
    /// later.
    fn end_within(&mut self, drain: Duration) {
        self.clock.cut_off_after(drain);
        self.end_server_after(drain);
    }

    /// With a single host, gives the server `close` to end after the requests in flight had `drain` to finish.
    fn end_server_after(&mut self, drain: Duration) {
        if self.config.has_one_host() {
            let end = self.clock.now() + drain + self.config.close;
            self.back.end_by(end);
        }
    }

    /// Whether to close the server's input: the single host has closed its own, and everything that it sent is passed on.
    pub(super) fn has_end_to_pass_on(&self) -> bool {
        // If the relay ends for another reason, the host can still answer asks, so the server's input stays open.
        self.clock.has_input_ended() && !self.front.is_deferring() && self.back.can_finish()
    }

    pub(super) fn pass_end_on(&mut self) {
        // 1 s longer than the relay's drain time, because the relay knows better what became of a call.
        let grace = self.config.drain() + Duration::from_secs(1);
        self.back.finish(self.clock.now(), grace);
    }

    /// Answers all requests that are still in flight, because the drain time is over.
    pub(super) fn cut_off(&mut self) {
        self.clock.forget_cutoff();
        self.decline("this connection is being closed, and the server was not ready yet");
        for call in self.carried.calls() {
            let reason = Some("this connection is being closed");
            let _ = self.back.cancel(self.clock.now(), call, reason);
        }
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
                if let Some(request) = self.carried.request_of(call) {
                    let _ = self.front.progress(self.clock.now(), request, told);
                }
            }
            client::Event::Ask(ask) => return self.ask(ask),
            client::Event::AskWithdrawn { ask, .. } => {
                if let Some(in_front) = self.questions.withdraw(ask) {
                    let reason = Some("the server took back its question");
                    let _ = self.front.withdraw(self.clock.now(), in_front, reason);
                }
            }
            // One notification covers both lists of resources, for the server and for the host.
            client::Event::Changed(Change::List(List::ResourceTemplates)) => {}
            client::Event::Changed(change) => self.announce(change),
            client::Event::Log {
                call,
                level,
                logger,
                data,
            } => self.logged(call, level, logger.as_deref(), data),
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
                for change in self.watch.granted(granted) {
                    self.announce(change);
                }
                return Some(Event::Upstream(event));
            }
            client::Event::Parked { .. } => {
                self.decline_as_down();
                return Some(Event::Upstream(event));
            }
            client::Event::Closed => {
                self.decline_as_down();
                self.front.shutdown(self.clock.now());
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

    fn done(&mut self, call: CallId, outcome: Outcome) -> Option<Event> {
        match self.carried.take(call)? {
            Purpose::Compare(list) => {
                if self.lists.compare(list, &outcome) {
                    self.announce(Change::List(list));
                }
                None
            }
            Purpose::Request(mut carried) => {
                let outcome = self.keep_setting(carried.setting.as_ref(), outcome);
                if carried.trace.is_some() {
                    let verdict = Verdict::of(&outcome, carried.is_tool_call);
                    let delivery = match &outcome {
                        Outcome::Failed(failure) => failure.delivery,
                        Outcome::Error(_) | Outcome::Listed(_) | Outcome::Reply(_) => {
                            Delivery::Unknown
                        }
                    };
                    self.end_trace(&mut carried, verdict, delivery);
                }
                self.reply(&carried, outcome)
            }
        }
    }

    /// Accepts a setting in place of the server, if the setting waited for a legacy server and a modern one came, which has no such request.
    /// The watch tells that server what it needs to know.
    fn keep_setting(&self, setting: Option<&Setting>, outcome: Outcome) -> Outcome {
        let Outcome::Failed(failure) = &outcome else {
            return outcome;
        };
        let is_refused = matches!(failure.kind, FailureKind::NotOffered { .. });
        let session = self.back.session();
        let session = session.filter(|session| session.version.era() == Era::Modern);
        let accepts = |setting: &Setting| {
            session.is_some_and(|session| {
                let needed = setting.needs_of_server();
                needed.is_none_or(|feature| session.capabilities.offers(feature))
            })
        };
        if is_refused && setting.is_some_and(accepts) {
            return Payload::from_text("{}".into()).map_or(outcome, Outcome::Reply);
        }
        outcome
    }

    fn reply(&mut self, carried: &CarriedRequest, outcome: Outcome) -> Option<Event> {
        let request = carried.request;
        // The host may have cancelled its request meanwhile.
        match outcome {
            Outcome::Reply(result) => {
                if let Some((list, is_first)) = carried.list {
                    self.lists
                        .record_page(&carried.caller, list, is_first, &result);
                }
                if let Some(setting) = &carried.setting {
                    if self.is_behind_of(Era::Legacy) {
                        self.back.settle_setting(setting);
                    }
                    self.front
                        .settle_setting(self.clock.now(), &carried.caller, setting);
                    match setting {
                        // Changes while the server was replaced were not seen.
                        Setting::Subscribe(uri) if carried.epoch < self.back.epoch() => {
                            self.announce(Change::Resource { uri: uri.clone() });
                        }
                        // Another host subscribed meanwhile, and the server sees both as one.
                        Setting::Unsubscribe(uri) if self.front.is_watched_exactly(uri) => {
                            self.watch_for_all_hosts();
                        }
                        Setting::Level(_) | Setting::Subscribe(_) | Setting::Unsubscribe(_) => {}
                    }
                }
                let is_legacy = carried.peer.version.era() == Era::Legacy;
                let result = if is_legacy && !self.is_behind_of(Era::Legacy) {
                    without_type(result)
                } else {
                    result
                };
                if let Err(misuse) = self.front.respond(self.clock.now(), request, result) {
                    let text = format!("the reply could not be passed on: {misuse}");
                    self.answer_lost(carried, &text, Delivery::Unknown);
                }
                None
            }
            Outcome::Error(error) => {
                let error = Arc::unwrap_or_clone(error);
                if let Err(misuse) = self.front.fail(self.clock.now(), request, error) {
                    let text = format!("the error could not be passed on: {misuse}");
                    self.answer_lost(carried, &text, Delivery::Unknown);
                }
                None
            }
            Outcome::Failed(failure) => {
                self.answer_failed(carried, &failure);
                Some(Event::Lost(failure))
            }
            Outcome::Listed(_) => {
                self.answer_lost(
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
        let session = self.back.session();
        session.is_some_and(|session| session.version.era() == era)
    }
}

/// # Notifications
impl Relay {
    /// Tells the hosts that were asked for a visit that it is over.
    pub(super) fn end_visit(&mut self, visit: &str) {
        let params = format!(r#"{{"elicitationId":"{visit}"}}"#).parse().ok();
        let method = names::NOTIFICATIONS_ELICITATION_COMPLETE;
        // Fails only when the relay is closed.
        let _ = self.front.notify(self.clock.now(), method, params);
    }

    /// Sends the waiting notifications of hosts, if the server is ready.
    pub(super) fn pass_notifications(&mut self) {
        while let Some(waiting) = self.notifications.pop() {
            let (method, params) = (waiting.method.clone(), waiting.params.clone());
            match self.back.notify(self.clock.now(), method, params) {
                Ok(()) => self.questions.add_caller(&waiting.caller),
                Err(client::Misuse::NotReady { .. }) => {
                    return self.notifications.put_back(waiting);
                }
                Err(client::Misuse::Closed) => {}
                // The server's era has no such notification.
                Err(_) => {
                    let method = &waiting.method;
                    self.notifications.not_passed(Side::Upstream, method);
                }
            }
        }
    }

    /// Passes on a log message of the server.
    fn logged(
        &mut self,
        call: Option<CallId>,
        level: LogLevel,
        logger: Option<&str>,
        data: Payload,
    ) {
        let request = call.and_then(|call| self.carried.request_of(call));
        let is_for_all = self.config.may_tell_all();
        let guess = call.is_none() && !is_for_all;
        let request = request.or_else(|| guess.then(|| self.request_to_log_for()).flatten());
        let now = self.clock.now();
        let is_passed = (request.is_some() || is_for_all)
            && self.front.log(now, request, level, logger, data).is_ok();
        if !is_passed && self.front.state() != server::State::Closed {
            let method = names::NOTIFICATIONS_MESSAGE;
            self.notifications.not_passed(Side::Downstream, method);
        }
    }

    /// The request that an unattributed log message of a modern server belongs to. Modern servers log only for requests. So it is the
    /// newest request that wants log messages, if the server never heard of another host.
    fn request_to_log_for(&self) -> Option<RequestId> {
        let session = self.back.session()?;
        if session.version.era() == Era::Legacy {
            return None;
        }
        self.questions.only_caller()?;
        self.carried.newest_that_logs()
    }

    /// Passes on a notification of the server.
    fn notified(&mut self, method: Box<str>, params: Option<Payload>, call: Option<CallId>) {
        let request = call.and_then(|call| self.carried.request_of(call));
        if &*method == names::NOTIFICATIONS_PROGRESS {
            if let (Some(request), Some(params)) = (request, params) {
                let _ = self.front.pass_progress(self.clock.now(), request, &params);
            }
            return;
        }
        if let Some(change) = notifications::change(&method, params.as_ref()) {
            let is_watched = match &change {
                Change::List(_) => true,
                Change::Resource { uri } => self.front.is_watched(uri),
            };
            if is_watched && !self.config.has_one_host() {
                // Each host gets the changes that it watches.
                return self.announce(change);
            }
        }
        let is_log = &*method == names::NOTIFICATIONS_MESSAGE && !self.config.has_one_host();
        let request = request.or_else(|| is_log.then(|| self.request_to_log_for()).flatten());
        let to = if self.config.has_one_host() {
            Some(Caller::LINK)
        } else if self.config.shares_news {
            None
        } else {
            let only = self.questions.only_caller();
            only.filter(|caller| caller.is_session()).cloned()
        };
        // The front knows which hosts were asked for the visit.
        let is_end_of_visit = &*method == names::NOTIFICATIONS_ELICITATION_COMPLETE;
        let name = String::from(&*method).into();
        let is_passed = if request.is_some() || to.is_some() {
            let passed = self
                .front
                .pass(self.clock.now(), request, to.as_ref(), name, params);
            passed.is_ok()
        } else if self.config.shares_news || is_end_of_visit {
            let passed = match params
                .as_ref()
                .and_then(|params| notifications::log(&method, params))
            {
                Some((level, logger, data)) => {
                    let logger = logger.as_deref();
                    self.front.log(self.clock.now(), None, level, logger, data)
                }
                None => self.front.notify(self.clock.now(), name, params),
            };
            passed.is_ok()
        } else {
            false
        };
        if !is_passed && self.front.state() != server::State::Closed {
            self.notifications.not_passed(Side::Downstream, &method);
        }
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
