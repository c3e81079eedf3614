//! Applies what a binding heard to calls, asks, lists, the watch and the handshake. Nothing here returns an error, because all input is data.

use alloc::format;
use alloc::string::String;

use super::Client;
use super::asks::ServerRequest;
use super::binding::{Body, Heard, Reading, Source};
use super::catalog::lists::{ListError, PageStep};
use super::catalog::{NotificationEffect, Unusable, subscription};
use super::event::{Event, Outcome};
use super::failure::{Cause, FailureKind};
use super::lifecycle::names_a_loss;
use super::lifecycle::table::State;
use super::requests::calls::Call;
use super::requests::invalid;
use super::requests::pending::{Found, Purpose, id_of, wire_of};
use super::requests::progress::cancelled_id;
use super::requests::reply::{Meaning, Reply, as_ref, refusal};
use super::session::handshake::HandshakeStep;
use super::session::result_head::ResultHead;
use crate::driver::CallId;
use crate::json::{Json, Payload};
use crate::protocol::method::names;
use crate::protocol::watch::List;
use crate::protocol::{Era, code};
use crate::wire::{ErrorObject, Id, Inbound, Malformed, MalformedKind, Message, Skimmed};

/// What was heard.
impl Client {
    /// Reads an input to its end. After each message, the binding is asked again, because the message may have ended the transport.
    pub(super) fn read(&mut self, mut reading: Reading<'_>) {
        let epoch = self.lifecycle.epoch();
        loop {
            let facts = facts!(self);
            let Some(heard) = self.binding.hear(&mut self.cx, facts, &mut reading) else {
                break;
            };
            self.heard(heard);
            if self.lifecycle.epoch() != epoch {
                return;
            }
        }
        let facts = facts!(self);
        let heard = self.binding.put_back(&mut self.cx, facts, reading);
        self.heard(heard);
    }

    #[inline]
    pub(super) fn heard(&mut self, heard: Heard<'_>) {
        if let Heard::Text(text, source) = heard {
            self.text(text, source);
        } else if !matches!(heard, Heard::Nothing) {
            self.heard_rarely(heard);
        }
    }

    fn heard_rarely(&mut self, heard: Heard<'_>) {
        match heard {
            Heard::Acknowledged(wire) => {
                if self.requests.is_awaited(wire) {
                    self.binding.await_elsewhere(wire);
                }
            }
            Heard::Body(body) => self.body(body),
            Heard::CredentialsAsked => self.requests.freeze(&mut self.cx, true),
            Heard::Endpoint => self.endpoint(),
            Heard::Faulty(faults, then) => {
                self.lifecycle.note(faults);
                self.heard(*then);
            }
            Heard::Gone => self.finish_if_gone(),
            Heard::InitializedLate => {
                // The server may not have reported changes before this.
                self.catalog.all_changed(&mut self.cx);
            }
            Heard::ListenedAgain => self.catalog.outdate(),
            Heard::Lost { wires, is_suspect } => {
                for wire in wires {
                    self.request_lost(wire, FailureKind::Cut);
                }
                if is_suspect {
                    self.probe_now();
                }
            }
            Heard::MessageRefused { status, text } => {
                let what = format!("a message was refused with status {status}");
                self.noise(&what, &text);
            }
            Heard::NoContact(lost) => self.no_contact(*lost),
            Heard::NoEndpoint(why) => self.handshake_step(HandshakeStep::Refused(why)),
            Heard::Noise(what, bytes) => self.noise(what, bytes),
            Heard::NotUtf8(line) => self.malformed(&Malformed::not_utf8(line), line),
            Heard::Nothing => {}
            Heard::Oversized(skimmed) => self.oversized(&skimmed),
            Heard::Refused(refused) => self.refused(*refused),
            Heard::RetryLater(returned, until) => {
                let wire = returned.wire;
                if wire.is_some_and(|wire| self.requests.is_of_handshake(wire)) {
                    self.lifecycle.rest_until(until);
                    let status = returned.status;
                    return self.take_down(Cause::Unavailable { status });
                }
                self.return_message(*returned, false);
                self.binding.pause(&mut self.cx, until);
            }
            Heard::Returned(load) => self.requests.send_again(&mut self.cx, load),
            Heard::SessionLost(returned) => self.session_lost(*returned),
            Heard::Stuck(wire, why) => self.request_lost(wire, FailureKind::Invalid { why }),
            Heard::TakeDown(cause) => self.take_down(cause),
            Heard::Text(text, source) => self.text(text, source),
            Heard::Unauthorized(unauthorized) => self.unauthorized(*unauthorized),
            Heard::Unanswered(wire, kind) => self.unanswered(wire, *kind),
        }
    }

    fn text(&mut self, text: &str, source: Source) {
        match self.session.parse(text) {
            Ok(Inbound::One(message)) => self.message_from(message, source),
            Ok(Inbound::Batch(batch)) if self.session.allows_batches() => {
                for element in batch {
                    if !self.lifecycle.is_heard() {
                        return;
                    }
                    match element {
                        Ok(message) => self.message(message, source),
                        Err(malformed) => self.malformed(&malformed, text.as_bytes()),
                    }
                }
            }
            Ok(Inbound::Batch(_)) => {
                let what = "a batch, which the agreed version does not have";
                self.noise(what, text.as_bytes());
            }
            Err(malformed) => self.malformed(&malformed, text.as_bytes()),
        }
    }

    /// Handles a message. If it is the reply to `initialize`, its response may open a session.
    fn message_from(&mut self, message: Message<'_>, source: Source) {
        if self.is_reply_to_initialize(&message) {
            let opens = self.binding.opens(source.stream);
            let facts = facts!(self);
            self.binding.open_session(&mut self.cx, facts, opens);
        }
        self.message(message, source);
    }

    fn is_reply_to_initialize(&self, message: &Message<'_>) -> bool {
        let Message::Response { id: Some(id), .. } = message else {
            return false;
        };
        self.lifecycle.state() == State::Handshaking
            && self.requests.purpose_of(id) == Some(&Purpose::Initialize)
    }

    /// Handles the complete body of a response.
    fn body(&mut self, body: &mut Body) {
        let wire = body.wire;
        let text = Body::text_of(&body.text);
        let source = body.source();
        match self.session.parse(text) {
            Ok(Inbound::One(message)) => {
                let is_loss =
                    |error: &&ErrorObject| self.binding.is_session_loss(body.status, Some(*error));
                if let Some(error) = body.session_error(&message).filter(is_loss) {
                    return self.session_lost(body.returned(error));
                }
                if self.is_reply_to_initialize(&message) {
                    let opens = body.opens.take();
                    let facts = facts!(self);
                    self.binding.open_session(&mut self.cx, facts, opens);
                }
                self.message(message, source);
            }
            Ok(Inbound::Batch(batch)) if self.session.allows_batches() => {
                for element in batch {
                    if !self.lifecycle.is_heard() {
                        return;
                    }
                    match element {
                        Ok(message) => self.message(message, source),
                        Err(malformed) => self.malformed(&malformed, text.as_bytes()),
                    }
                }
            }
            Ok(Inbound::Batch(_)) => {
                let why = "the response is a batch, which the agreed version does not have";
                return self.unanswered(wire, invalid(why));
            }
            Err(_) if body.was_cut => return self.request_lost(wire, FailureKind::Cut),
            Err(malformed) => return self.unanswered(wire, invalid(&format!("{malformed}"))),
        }
        let why = "the response is not the reply to this request";
        self.unanswered(wire, invalid(why));
    }

    /// Reports a message over the size limit. If it is a reply, only its request fails; the epoch goes on.
    fn oversized(&mut self, skimmed: &Skimmed) {
        let (bytes, limit) = (skimmed.len, self.cx.config.limits.message_bytes);
        let what = format!("a message of {bytes} bytes, which is too large: {limit} is the most");
        self.count_noise(&what, b"", true);
        if let Some(id) = skimmed.id.as_ref().filter(|_| skimmed.is_response) {
            let error = ErrorObject::new(code::INTERNAL_ERROR, what);
            self.broken_reply(id, FailureKind::TooLarge { bytes }, error);
        }
    }

    fn malformed(&mut self, malformed: &Malformed, text: &[u8]) {
        let what = format!("a line that is no message: {malformed}");
        let epoch = self.lifecycle.epoch();
        self.noise(&what, text);
        if self.lifecycle.epoch() != epoch || !self.lifecycle.is_heard() {
            // The server was given up. An answer would go to the next one.
            return;
        }
        let Some(id) = &malformed.id else {
            return;
        };
        // An object with the id of an open request, and nothing else, is taken for its reply.
        let is_empty_reply = malformed.kind == MalformedKind::NoMessage
            && id
                .counted()
                .is_some_and(|wire| self.requests.is_awaited(wire));
        if malformed.is_response || is_empty_reply {
            let kind = invalid(&format!("{malformed}"));
            let error = ErrorObject::new(code::INTERNAL_ERROR, what);
            self.broken_reply(id, kind, error);
        } else if self.session.speaks_legacy() {
            let error = ErrorObject::new(code::INVALID_REQUEST, format!("{malformed}"));
            self.cx.reply(id.clone(), Err(error));
        }
    }

    /// Counts unusable input, and reports a sample of it.
    fn noise(&mut self, what: &str, bytes: &[u8]) {
        self.count_noise(what, bytes, false);
    }

    fn count_noise(&mut self, what: &str, bytes: &[u8], is_too_large: bool) {
        if self
            .lifecycle
            .noise(&mut self.cx, what, bytes, is_too_large)
        {
            self.take_down(Cause::Noise);
        }
    }
}

/// Messages.
impl Client {
    fn message(&mut self, message: Message<'_>, source: Source) {
        self.cx.stats.messages_in += 1;
        match message {
            Message::Notification { method, params } => {
                self.lifecycle.made_sense();
                self.notified(&method, params, source);
            }
            // A server that has ended cannot be answered.
            Message::Request { .. } if self.lifecycle.awaits_last_words() => {}
            Message::Request { id, method, params } => {
                self.lifecycle.made_sense();
                let request = ServerRequest {
                    id,
                    method: &method,
                    params,
                    about: self.call_about(source),
                    may_repeat: self.binding.may_repeat_requests(),
                };
                match self.asks.request(&mut self.cx, &self.session, request) {
                    Ok(()) => self.hold_calls(),
                    Err(what) => self.noise(what, b""),
                }
            }
            Message::Response { id, outcome } => self.responded(id, outcome, source),
        }
    }

    /// Stops the clocks of sent calls while a legacy server waits for an answer or the application holds back.
    pub(super) fn hold_calls(&mut self) {
        let is_held = self.asks.holds_calls() || self.is_held_back;
        self.requests.hold(&mut self.cx, is_held);
    }

    /// The call that a message belongs to, if that is known.
    fn call_about(&self, source: Source) -> Option<CallId> {
        self.requests.call_of(source.wire?)
    }

    fn responded(&mut self, id: Option<Id>, outcome: Reply<'_>, source: Source) {
        let id = match (id, source.wire) {
            (Some(id), _) => id,
            // A reply without an id can only belong to the request of this exchange.
            (None, Some(wire)) => {
                if let Found::Open(wire, purpose) = self.requests.take(&id_of(wire)) {
                    self.replied(wire, purpose, outcome);
                }
                return;
            }
            (None, None) => {
                self.lifecycle.made_sense();
                return self.nameless_error(outcome);
            }
        };
        self.lifecycle.made_sense();
        match self.requests.take(&id) {
            Found::Open(wire, purpose) => self.replied(wire, purpose, outcome),
            Found::Late => self.cx.stats.late_replies += 1,
            Found::Unknown => self.noise("a reply to nothing that was asked", b""),
        }
    }

    /// Handles an error without an id. Some servers send one for a request that they cannot read. During the handshake, it belongs to the oldest open
    /// request.
    fn nameless_error(&mut self, outcome: Reply<'_>) {
        // After the handshake it could belong to any request. Its text may help a person.
        if self.lifecycle.state() != State::Handshaking {
            let said = outcome.err().map_or(String::new(), |error| error.message);
            return self.noise("an error that names no request", said.as_bytes());
        }
        match self.requests.take_of_handshake() {
            Some((wire, purpose)) => self.apply_reply(wire, purpose, outcome),
            None => self.noise("an error that names no request", b""),
        }
    }

    fn notified(&mut self, name: &str, params: Option<Json<'_>>, source: Source) {
        let call = self.call_about(source);
        if self.session.passes(&self.cx.config) && self.is_passed(name, params, call) {
            return;
        }
        match name {
            names::NOTIFICATIONS_CANCELLED => return self.cancelled(params),
            names::NOTIFICATIONS_PROGRESS => {
                return self.requests.progressed(&mut self.cx, params);
            }
            _ => {}
        }
        match self.catalog.notified(&mut self.cx, name, params, call) {
            Ok(NotificationEffect::Told) => {}
            Ok(NotificationEffect::Unknown) => self.pass_on(name, params, call),
            Ok(NotificationEffect::Watch(requests)) => self.send_watch_requests(requests),
            Err(unusable) => self.unusable(&unusable, params),
        }
    }

    fn unusable(&mut self, unusable: &Unusable, params: Option<Json<'_>>) {
        match unusable {
            Unusable::Noise(what) => self.noise(what, b""),
            Unusable::UnknownWatch(what) => {
                if subscription(params).is_some_and(|id| self.requests.was_issued(&id)) {
                    self.cx.stats.late_replies += 1;
                } else {
                    self.noise(what, b"");
                }
            }
        }
    }

    /// Passes a notification on unchanged.
    fn pass_on(&mut self, name: &str, params: Option<Json<'_>>, call: Option<CallId>) {
        self.cx.tell(Event::Notified {
            method: name.into(),
            params: params.map(Payload::from),
            call,
        });
    }

    /// Passes a notification on to the relay's client, if it is meant for it. Returns whether it was. Progress and log messages of a call go only to
    /// a client of the server's era: the other era has other rules for them.
    fn is_passed(&mut self, name: &str, params: Option<Json<'_>>, call: Option<CallId>) -> bool {
        let is_progress = name == names::NOTIFICATIONS_PROGRESS;
        let call = match is_progress {
            true => self.requests.call_of_progress(params),
            false => call,
        };
        let era = call.map(|call| self.requests.call(call).and_then(Call::era));
        let is_foreign = era.is_some_and(|era| !self.session.passes_call(era));
        if is_foreign && (is_progress || name == names::NOTIFICATIONS_MESSAGE) {
            return false;
        }
        match call {
            Some(call) if is_progress => self.requests.touch(self.cx.now, call),
            // Progress of a call that is not open is dropped (S-PROG-09).
            None if is_progress => return true,
            _ if !self.catalog.passes(name, self.session.speaks_legacy()) => return false,
            _ => {}
        }
        self.pass_on(name, params, call);
        true
    }

    /// Handles a cancellation. One that names nothing open is ignored (S-CANC-08).
    fn cancelled(&mut self, params: Option<Json<'_>>) {
        let Some(id) = cancelled_id(params) else {
            return;
        };
        if self.asks.withdraw(&mut self.cx, &id) {
            return self.hold_calls();
        }
        if let Some(wire) = wire_of(&id).filter(|wire| self.catalog.owns(*wire)) {
            self.requests.close(wire);
            self.listen_ended(wire, None);
        }
    }

    pub(super) fn listen_ended(&mut self, wire: u64, refusal: Option<i64>) {
        let requests = self.catalog.listen_ended(self.cx.now, wire, refusal);
        self.send_watch_requests(requests);
    }
}

/// Replies.
impl Client {
    fn replied(&mut self, wire: u64, purpose: Purpose, outcome: Reply<'_>) {
        let facts = facts!(self);
        self.binding.replied(&mut self.cx, facts, wire);
        self.apply_reply(wire, purpose, outcome);
    }

    pub(super) fn apply_reply(&mut self, wire: u64, purpose: Purpose, outcome: Reply<'_>) {
        match purpose {
            Purpose::Call(call) => self.call_replied(call, outcome),
            Purpose::Discover => {
                let step = self.session.handshake().discovered(as_ref(&outcome));
                self.handshake_step(step);
            }
            Purpose::Initialize => {
                let step = self.session.handshake().initialized(as_ref(&outcome));
                self.handshake_step(step);
            }
            Purpose::LateDiscover => {
                self.cx.stats.late_replies += 1;
                self.session.handshake().discovered_late(as_ref(&outcome));
            }
            Purpose::Listen => self.listen_ended(wire, refusal(&outcome)),
            Purpose::Page(list) => {
                self.lifecycle.answered_call();
                self.page(list, outcome);
            }
            Purpose::Probe if self.is_of_another_era(refusal(&outcome)) => {
                self.changed_its_era();
            }
            // An error also shows that the server is alive (-32601 if it has no `ping`), unless it reports a lost session.
            Purpose::Probe => self.probe_answered(outcome.as_ref().err()),
            Purpose::Unsubscribe => {}
            Purpose::Revive => self.revived(refusal(&outcome)),
            Purpose::SetLevel(level) => self.catalog.level_set(level, refusal(&outcome)),
            Purpose::Subscribe(uri) => self.catalog.subscribed(&uri, refusal(&outcome)),
        }
    }

    /// Whether this error reply to a probe proves that the server is of another era.
    fn is_of_another_era(&self, refusal: Option<i64>) -> bool {
        let may_change = self.binding.may_change_server();
        self.session.proves_another_era(refusal, may_change)
    }

    fn call_replied(&mut self, id: CallId, outcome: Reply<'_>) {
        self.lifecycle.answered_call();
        let result = match outcome {
            Ok(result) => result,
            Err(error) => return self.call_refused(id, error),
        };
        self.server_is_well();
        if self.session.speaks_legacy() {
            return self.settle(id, Outcome::Reply(Payload::from(result)));
        }
        let Some(head) = self.session.read_head(result) else {
            return self.fail(id, invalid("its result type cannot be read"));
        };
        let (session, config) = (&self.session, &self.cx.config);
        let usable = match self.requests.meaning(session, config, id, head) {
            Meaning::Complete => None,
            Meaning::Tools { is_first } => self.learn_tools(result, is_first),
            Meaning::InputRequired(head) => return self.input_required(id, &head),
            Meaning::Invalid(why) => return self.fail(id, invalid(why)),
        };
        let reply = usable.unwrap_or_else(|| Payload::from(result));
        self.settle(id, Outcome::Reply(reply));
    }

    /// Handles an error reply to a call. The caller gets the error. If it may apply to the whole server, a probe finds out.
    fn call_refused(&mut self, id: CallId, error: ErrorObject) {
        if names_a_loss(&error) {
            self.probe_now();
        }
        if self.binding.repeats_params() && self.requests.lacks_fields(id, &error) {
            // The header fields are then built from the new list (S-XHDR-12).
            self.catalog.outdated(List::Tools);
            self.requests.await_schema(&mut self.cx, id);
            return self.catalog.want(List::Tools, id);
        }
        let is_of_version = error.code == code::UNSUPPORTED_PROTOCOL_VERSION;
        self.settle(id, Outcome::Error(error.into()));
        if is_of_version {
            self.probe_now();
        }
    }

    fn learn_tools(&mut self, page: Json<'_>, is_first: bool) -> Option<Payload> {
        let facts = facts!(self);
        self.binding
            .learn_tools(&mut self.cx, facts, page, is_first)
    }

    /// Handles a result that asks for input before the call continues (S-MRTR-09).
    fn input_required(&mut self, id: CallId, head: &ResultHead<'_>) {
        let (session, open) = (&self.session, self.asks.len());
        let questions = self
            .requests
            .input_required(&self.cx, session, id, head, open);
        match questions {
            // The call is lost with its server.
            Ok(_) if self.lifecycle.awaits_last_words() => {}
            Ok(questions) => {
                for question in questions {
                    self.asks.ask_for(&mut self.cx, id, question);
                }
                self.requests.continue_if_answered(&mut self.cx, id);
            }
            Err(kind) => self.fail(id, kind),
        }
    }

    fn page(&mut self, list: List, outcome: Reply<'_>) {
        let usable = match &outcome {
            Ok(result) if list == List::Tools => {
                let is_first = self.catalog.is_at_start(list);
                self.learn_tools(*result, is_first)
            }
            Ok(_) | Err(_) => None,
        };
        let outcome = outcome.map(|result| usable.as_ref().map_or(result, Payload::json));
        let era = self.session.era().unwrap_or(Era::Legacy);
        let epoch = (self.lifecycle.epoch(), era);
        let limits = &self.cx.config.limits;
        match self.catalog.page(list, outcome, epoch, self.cx.now, limits) {
            Some(PageStep::Ended(end, waiting)) => {
                for call in waiting {
                    if self.requests.has_its_schema(&mut self.cx, call) {
                        continue;
                    }
                    match end.clone() {
                        Ok(listing) => self.settle(call, Outcome::Listed(listing)),
                        Err(ListError::Error(error)) => self.settle(call, Outcome::Error(error)),
                        Err(ListError::Invalid(why)) => {
                            self.fail(call, FailureKind::Invalid { why });
                        }
                    }
                }
            }
            Some(PageStep::Next(cursor)) => {
                for call in self.catalog.waiting(list) {
                    self.requests.touch(self.cx.now, *call);
                }
                self.request_page(list, cursor);
            }
            None => {}
        }
    }

    /// Handles a reply that cannot be used. Only its own request fails.
    fn broken_reply(&mut self, id: &Id, kind: FailureKind, error: ErrorObject) {
        if let Some(wire) = id.counted() {
            let facts = facts!(self);
            self.binding.replied(&mut self.cx, facts, wire);
        }
        match self.requests.take(id) {
            Found::Open(_, Purpose::Call(call)) => self.fail(call, kind),
            Found::Open(_, Purpose::Initialize) => {
                let why = format!("its answer to initialize: {kind}");
                self.handshake_step(HandshakeStep::Refused(why.into()));
            }
            Found::Open(_, Purpose::Discover) if matches!(kind, FailureKind::TooLarge { .. }) => {
                let why = format!("its answer to server/discover: {kind}");
                self.handshake_step(HandshakeStep::Refused(why.into()));
            }
            Found::Open(_, Purpose::Page(list)) => {
                for call in self.catalog.give_up(list) {
                    self.fail(call, kind.clone());
                }
            }
            Found::Open(wire, purpose) => self.apply_reply(wire, purpose, Err(error)),
            Found::Late | Found::Unknown => {}
        }
    }

    /// Fails a request whose response holds no usable reply.
    pub(super) fn unanswered(&mut self, wire: u64, kind: FailureKind) {
        if !self.requests.is_awaited(wire) {
            return;
        }
        if matches!(kind, FailureKind::Invalid { .. }) {
            self.binding.use_configured_url();
        }
        let error = ErrorObject::new(code::INTERNAL_ERROR, format!("{kind}"));
        self.broken_reply(&id_of(wire), kind, error);
    }
}
