//! Inputs: takes what the driver reports, reads the messages of clients, and decides who answers them. Nothing in here can fail, because all
//! input is data.

use alloc::format;
use core::time::Duration;

use crate::driver::{Fault, Input, StreamId};
use crate::http::RequestHead;
use crate::json::{Json, Payload};
use crate::protocol::method::names;
use crate::protocol::{Era, code};
use crate::server::Server;
use crate::server::binding::http::{
    self, Accepts, Arriving, Halt, Lookup, NO_SESSION_LEFT, NewExchange, Noted, Posted, Refusal,
    SHUTTING_DOWN, Target,
};
use crate::server::binding::{Ended, Received};
use crate::server::clock::Timer;
use crate::server::event::{Cancelled, Event, Unanswered};
use crate::server::lifecycle::Cue;
use crate::server::origin::{Origin, SessionKey};
use crate::server::outgoing::frame::{Answer, Frame, Signal};
use crate::server::requests::params::{CancelledParams, Params};
use crate::server::session::deferred::DeferredMessage;
use crate::wire::{
    self, Batch, ErrorObject, Id, Inbound, Line, LineReader, Malformed, Message, Skimmed,
};

/// # Inputs
impl Server {
    pub(super) fn take_input(&mut self, stream: StreamId, input: Input<'_>) {
        let is_taken = match input {
            Input::Bytes { bytes, .. } => self.on_bytes(stream, &bytes),
            Input::End { faults, .. } => self.on_end(stream, &faults),
            Input::Request { head, .. } => self.on_head(stream, &head),
            Input::Sent { len, .. } => self.on_sent(stream, len),
            Input::Lease { valid_for } => self.on_lease(valid_for),
            Input::Note { note } => self.on_note(&note),
            Input::Stored { lookup, answer } => self.binding.stored(lookup, answer),
            Input::WriteFailed { faults, .. } => self.on_write_failed(stream, &faults),
            Input::Exited { .. }
            | Input::OpenFailed { .. }
            | Input::Opened
            | Input::Response { .. }
            | Input::Stderr { .. }
            | Input::Activity { .. } => false,
        };
        if !is_taken {
            self.cx.stats.stale_inputs += 1;
        }
    }

    /// Handles a note of another server. Returns whether it means anything.
    fn on_note(&mut self, note: &str) -> bool {
        match self.binding.read_note(&mut self.cx, note) {
            Noted::Stale => return false,
            Noted::Done => {}
            Noted::Abort(stream) => self.disconnect(stream),
            Noted::Changed(change) => self.tell_watchers(&change),
            Noted::Gone(stream) => {
                self.client_gone(stream);
            }
            Noted::Queued(stream, bytes) => {
                self.disconnect_slow(stream, bytes);
            }
            Noted::Request(stream, arrived) => self.on_passed(stream, *arrived),
        }
        true
    }

    /// Records how long the others count this server as alive. Returns whether there are others.
    fn on_lease(&mut self, valid_for: Duration) -> bool {
        // The timer of the last lease may not have run yet.
        if !self.binding.has_lease(self.cx.clock.now()) {
            self.lease_over();
        }
        self.binding.renew_lease(&mut self.cx, valid_for)
    }

    fn on_bytes(&mut self, stream: StreamId, bytes: &[u8]) -> bool {
        match self.binding.receive(&mut self.cx, stream, bytes) {
            Received::Stale => return false,
            Received::Lines(lines) => self.read_lines(lines, bytes),
            Received::Body => {}
        }
        self.cx.stats.bytes_in += bytes.len() as u64;
        true
    }

    fn on_end(&mut self, stream: StreamId, faults: &[Fault]) -> bool {
        match self.binding.end(stream, faults, &mut self.cx.clock) {
            Ended::Input => {
                self.cx.lifecycle.note(faults);
                self.input_ended();
            }
            Ended::Body(arrived) => self.on_body(stream, arrived),
            Ended::Exchange => return self.client_gone(stream),
            Ended::Stale => return false,
        }
        true
    }

    fn on_write_failed(&mut self, stream: StreamId, faults: &[Fault]) -> bool {
        if self.binding.shared_queue().is_none() {
            return self.client_gone(stream);
        }
        self.cx.lifecycle.note(faults);
        self.close(Cue::WriteFailed);
        true
    }

    /// Counts bytes that the client read. Any read before the drain deadline restarts the flush time, even of an exchange that is finished.
    fn on_sent(&mut self, stream: StreamId, len: usize) -> bool {
        if !self.binding.sent(&mut self.cx, stream, len) {
            return false;
        }
        let clock = &mut self.cx.clock;
        if len > 0 && clock.is_armed(Timer::Drain) && clock.is_armed(Timer::Flush) {
            clock.arm(Timer::Flush, self.cx.config.flush);
        }
        true
    }
}

/// # Lines
impl Server {
    fn read_lines(&mut self, mut lines: LineReader, mut bytes: &[u8]) {
        if !self.cx.lifecycle.has_input_ended() {
            while let Some(line) = lines.next(&mut bytes) {
                self.on_line(line);
            }
        }
        self.binding.put_back(lines);
    }

    /// Reads the rest of the byte stream at its end. A complete message without its newline is accepted.
    pub(super) fn read_last_line(&mut self) {
        if let Some(mut lines) = self.binding.take_lines() {
            if let Some(line) = lines.finish() {
                self.on_line(line);
            }
        }
    }

    fn on_line(&mut self, line: Line<'_>) {
        match line {
            Line::NotUtf8(bytes) => {
                self.on_malformed(&Origin::DUPLEX, &Malformed::not_utf8(bytes), bytes);
            }
            Line::Oversized(skimmed) => self.on_oversized(&skimmed),
            Line::Text(text) => self.on_text(text),
        }
    }

    fn on_text(&mut self, text: &str) {
        let from = &Origin::DUPLEX;
        let mut noted = Params::default();
        let plan = Params::plan(self.sessions.known_terms());
        match wire::parse_visiting(text, plan, |part| noted.note(part)) {
            Ok(Inbound::One(Message::Request { id, method, params })) => {
                self.cx.stats.messages_in += 1;
                noted.complete(params);
                self.on_request(from, id, &method, &noted);
            }
            Ok(Inbound::One(message)) => self.on_message(from, message),
            Ok(Inbound::Batch(batch)) if self.sessions.allows_batches(SessionKey::DUPLEX) => {
                self.on_batch(from, batch, text);
            }
            Ok(Inbound::Batch(_)) => {
                let what = "a batch, which the agreed version does not have";
                self.binding
                    .heard_noise(&mut self.cx, what, text.as_bytes(), false);
                self.send_error(from, None, code::INVALID_REQUEST, what);
            }
            Err(malformed) => self.on_malformed(from, &malformed, text.as_bytes()),
        }
    }

    /// Refuses a line that is too long to be held. The rest of the session is not affected.
    fn on_oversized(&mut self, skimmed: &Skimmed) {
        let limit = self.cx.config.limits.message_bytes;
        let bytes = skimmed.len;
        let what = format!("a message of {bytes} bytes, where {limit} is the most");
        self.binding.heard_noise(&mut self.cx, &what, b"", true);
        let error = ErrorObject::new(code::INVALID_REQUEST, what);
        let from = &Origin::DUPLEX;
        let is_free = |id: &Id| !self.is_in_flight(&from.wire(id.clone()));
        match &skimmed.id {
            Some(id) if skimmed.is_response => {
                let why = error.message.into();
                self.on_reply(from, id, Err(Unanswered::Invalid { why }));
            }
            Some(id) if is_free(id) => {
                self.binding
                    .refuse(&mut self.cx, from.queue, id.clone(), error)
            }
            // S-RPC-15, as in `on_malformed`.
            None if skimmed.needs_no_answer => {}
            Some(_) | None => self.send_error(from, None, error.code, &error.message),
        }
    }
}

/// # Exchanges
impl Server {
    fn on_head(&mut self, stream: StreamId, head: &RequestHead<'_>) -> bool {
        match self.binding.new_exchange(&mut self.cx, stream, head) {
            NewExchange::Known => return false,
            NewExchange::Preflight => {}
            NewExchange::Full if !self.free_exchange() => {
                self.binding.refuse_head(&mut self.cx, stream, head);
            }
            NewExchange::Full | NewExchange::Readable => {
                self.binding.begin(&mut self.cx, stream, head);
            }
        }
        true
    }

    /// Serves a request that another server passed on, within the limits of this one.
    fn on_passed(&mut self, stream: StreamId, arrived: Arriving) {
        let is_full = self.binding.is_full() && !self.free_exchange();
        match self.binding.check_passed(&arrived, is_full) {
            Ok(()) => self.on_body(stream, arrived),
            Err(halt) => self.binding.halt(&mut self.cx, stream, arrived, halt),
        }
    }

    pub(super) fn on_body(&mut self, stream: StreamId, arrived: Arriving) {
        let done = match arrived.target() {
            Target::Delete => self.on_delete(stream, &arrived),
            Target::Message => self.on_post(stream, &arrived),
            Target::SseMessage(session) => self.on_sse_post(stream, session, &arrived),
            Target::SseStream => self.on_sse_stream(stream, &arrived),
            Target::Stream => self.on_get(stream, &arrived),
        };
        if let Err(halt) = done {
            self.binding.halt(&mut self.cx, stream, arrived, halt);
        }
    }

    fn on_post(&mut self, stream: StreamId, arrived: &Arriving) -> Result<(), Halt> {
        let spoken = self.cx.config.versions;
        let from = match arrived.read(self.sessions.known_terms(), spoken)? {
            Posted::Batch(batch, text) => {
                return self.on_posted_batch(stream, arrived, batch, text);
            }
            Posted::Malformed(malformed, text) => {
                return Err(self.on_malformed_body(arrived, &malformed, text));
            }
            Posted::Request {
                id,
                method,
                params,
                era: Era::Legacy,
            } => return self.on_posted_legacy(stream, arrived, id, &method, &params),
            Posted::Request {
                id,
                method,
                params,
                era: Era::Modern,
            } => {
                let from = arrived.modern_origin(stream);
                let elsewhere =
                    self.requests
                        .made_elsewhere(&method, &params, from.user.as_deref());
                if let Some((node, error)) = elsewhere {
                    let refusal = Refusal::coded(400, error.code, error.message).to(Some(&id));
                    return Err(self.binding.forward_to(node, refusal, arrived));
                }
                self.binding
                    .open_exchange(&mut self.cx, stream, arrived.accepts, None);
                self.cx.stats.messages_in += 1;
                match self.check_fields(arrived, &method, &params) {
                    Ok(()) => self.on_request(&from, id, &method, &params),
                    Err(error) => self.binding.refuse(&mut self.cx, from.queue, id, error),
                }
                return Ok(());
            }
            // S-HTTP-12: the specification does not say which fields a modern notification must have.
            Posted::Notification(message, Era::Modern) => (arrived.modern_origin(stream), message),
            Posted::Notification(message, Era::Legacy) | Posted::Response(message) => {
                let session = self.session_of(arrived)?;
                (arrived.origin_in(stream, session), message)
            }
        };
        self.on_message(&from.0, from.1);
        self.binding.respond_when_saved(&mut self.cx, stream, 202)
    }

    /// Handles an array of messages. Only sessions of one version may send it (S-BATCH-07). The response is an event stream of single
    /// replies.
    fn on_posted_batch(
        &mut self,
        stream: StreamId,
        arrived: &Arriving,
        batch: Batch<'_>,
        text: &str,
    ) -> Result<(), Halt> {
        if !arrived.names_session(self.cx.config.versions) {
            return Err(http::no_batches().into());
        }
        let is_taken = self.cx.lifecycle.is_serving() || !http::wants_replies(&batch);
        let session = self
            .session_of(arrived)
            .map_err(|halt| halt.of_new(is_taken))?;
        if !self.sessions.allows_batches(session) {
            return Err(http::no_batches().into());
        }
        let from = arrived.origin_in(stream, session);
        if !http::wants_replies(&batch) {
            self.on_batch(&from, batch, text);
            return self.binding.respond_when_saved(&mut self.cx, stream, 202);
        }
        if !arrived.accepts.sse {
            let text = "the answers to an array are a stream of events, which is not accepted";
            return Err(Refusal::new(406, text).into());
        }
        self.binding
            .open_exchange(&mut self.cx, stream, Accepts::SSE, Some(session));
        let begin = Frame::Signal(Signal::Begin(None));
        self.cx.outgoing.push(from.queue, begin);
        self.on_batch(&from, batch, text);
        Ok(())
    }

    /// Returns the refusal of a body that is not a message. If it was meant as the answer to an ask, and the session is here, the ask ends.
    /// Such a body is not passed on: as a note, it could be six times as long.
    fn on_malformed_body(&mut self, arrived: &Arriving, malformed: &Malformed, text: &str) -> Halt {
        let id = malformed
            .id
            .as_ref()
            .filter(|_| malformed.is_response && arrived.names_session(self.cx.config.versions));
        let session = match id.map(|_| self.session_of(arrived)) {
            Some(Err(halt @ (Halt::Saved(..) | Halt::Wait(_)))) => return halt,
            Some(Ok(session)) => Some(session),
            Some(Err(Halt::Forward(_) | Halt::Refused(_))) | None => None,
        };
        let what = format!("a body that is no message: {malformed}");
        self.binding
            .heard_noise(&mut self.cx, &what, text.as_bytes(), false);
        if let (Some(id), Some(session)) = (id, session) {
            let why = what.into();
            let from = arrived.origin_in(StreamId::DUPLEX, session);
            self.on_reply(&from, id, Err(Unanswered::Invalid { why }));
        }
        Arriving::refuse_malformed(malformed).into()
    }

    /// Checks that the header fields of a modern request agree with its message (S-HTTP-32). The version is checked first, then the terms, then all other
    /// fields.
    fn check_fields(
        &mut self,
        arrived: &Arriving,
        name: &str,
        params: &Params<'_>,
    ) -> Result<(), ErrorObject> {
        if params.is_ambiguous {
            // Ambiguous params are refused later, in `admit`.
            return Ok(());
        }
        let Some(version) = arrived.modern_version(name, self.cx.config.versions)? else {
            // S-VER-12: a legacy client is told which versions are spoken here.
            let wanted = params.text("protocolVersion").unwrap_or_default();
            return Err(self.sessions.unsupported(&wanted));
        };
        self.sessions.modern_terms(params, Some(version))?;
        self.binding.check_fields(arrived, name, params)
    }

    fn on_posted_legacy(
        &mut self,
        stream: StreamId,
        arrived: &Arriving,
        id: Id,
        name: &str,
        params: &Params<'_>,
    ) -> Result<(), Halt> {
        let from = if name == names::INITIALIZE {
            // F-024: a session id in `initialize` names an old session and is ignored.
            let Some(session) = self.binding.next_session() else {
                return Ok(());
            };
            self.binding
                .open_exchange(&mut self.cx, stream, arrived.accepts, None);
            arrived.origin_of_initialize(stream, session)
        } else {
            let named = arrived.check_names_version(self.cx.config.versions);
            let session = named
                .map_err(Halt::Refused)
                .and_then(|()| self.session_of(arrived));
            let is_taken = self.cx.lifecycle.is_serving() || name == names::PING;
            let session = session.map_err(|halt| halt.of_new(is_taken).to(&id))?;
            self.binding.use_session(session);
            self.binding
                .open_exchange(&mut self.cx, stream, arrived.accepts, Some(session));
            arrived.origin_in(stream, session)
        };
        self.cx.stats.messages_in += 1;
        self.on_request(&from, id, name, params);
        Ok(())
    }

    fn on_delete(&mut self, stream: StreamId, arrived: &Arriving) -> Result<(), Halt> {
        let key = self.session_of(arrived)?;
        self.end_session(key, true);
        self.binding.respond_when_saved(&mut self.cx, stream, 204)
    }

    /// Opens the standalone stream of a session, or resumes a stream that broke off.
    fn on_get(&mut self, stream: StreamId, arrived: &Arriving) -> Result<(), Halt> {
        let key = self.session_of(arrived)?;
        self.binding.resume(&mut self.cx, key, stream, arrived)
    }

    /// Opens the stream of a new session of the transport of 2024-11-05. The first event tells the client where to post (S-SSE-02).
    fn on_sse_stream(&mut self, stream: StreamId, arrived: &Arriving) -> Result<(), Halt> {
        if !self.cx.lifecycle.is_serving() {
            return Err(Refusal::busy(SHUTTING_DOWN).into());
        }
        if !self.make_room_for_session() {
            return Err(Refusal::busy(NO_SESSION_LEFT).into());
        }
        self.binding.open_sse_stream(&mut self.cx, stream, arrived);
        Ok(())
    }

    /// Handles a message that was posted on the transport of 2024-11-05.
    fn on_sse_post(&mut self, stream: StreamId, id: &str, arrived: &Arriving) -> Result<(), Halt> {
        let from = self.binding.sse_origin(id, arrived)?;
        if !self.cx.outgoing.has_room(from.queue) {
            return Err(Refusal::busy("what was said before is not read yet").into());
        }
        let text = arrived.text()?;
        let has_batches = || {
            from.session
                .is_some_and(|s| self.sessions.allows_batches(s))
        };
        match wire::parse(text) {
            Ok(Inbound::One(message)) => self.on_message(&from, message),
            Ok(Inbound::Batch(batch)) if has_batches() => self.on_batch(&from, batch, text),
            Ok(Inbound::Batch(_)) => return Err(http::no_batches().into()),
            Err(malformed) => {
                self.on_malformed(&from, &malformed, text.as_bytes());
                let text = format!("{malformed}");
                return Err(Refusal::coded(400, malformed.kind.code(), text).into());
            }
        }
        self.binding.respond_empty(&mut self.cx, stream, 202);
        Ok(())
    }

    /// Returns the session that a request names, if its user may use it.
    fn session_of(&mut self, arrived: &Arriving) -> Result<SessionKey, Halt> {
        let key = match self.binding.find_session(&self.cx.clock, arrived)? {
            Lookup::Known(key) => key,
            Lookup::Missing => return Err(Refusal::no_session().into()),
            Lookup::Moved(key, halt) => {
                self.session_moved(key);
                return Err(halt);
            }
            Lookup::Over(key) => {
                self.end_session(key, false);
                return Err(Refusal::no_session().into());
            }
            Lookup::Stored(record) => self.revive_session(*record)?,
        };
        self.binding.enter_session(&mut self.cx, key, arrived)?;
        Ok(key)
    }
}

/// # Messages
impl Server {
    fn on_batch(&mut self, from: &Origin, batch: Batch<'_>, text: &str) {
        for element in batch {
            match element {
                // S-LIFE-10: a handshake cannot be part of a batch.
                Ok(Message::Request { id, method, .. }) if method == names::INITIALIZE => {
                    let text = "`initialize` cannot be part of a batch";
                    self.send_error(from, Some(id), code::INVALID_REQUEST, text);
                }
                Ok(message) => self.on_message(from, message),
                Err(malformed) => self.on_malformed(from, &malformed, text.as_bytes()),
            }
        }
    }

    fn on_malformed(&mut self, from: &Origin, malformed: &Malformed, text: &[u8]) {
        let what = format!("a line that is no message: {malformed}");
        self.binding.heard_noise(&mut self.cx, &what, text, false);
        match &malformed.id {
            Some(id) if malformed.is_response => {
                let why = what.into();
                self.on_reply(from, id, Err(Unanswered::Invalid { why }));
            }
            // S-RPC-15: a notification is never answered. A response without an id answers nothing that is known.
            None if malformed.is_response || malformed.is_notification => {}
            id => {
                let id = id.clone();
                let id = id.filter(|id| !self.is_in_flight(&from.wire(id.clone())));
                self.send_error(from, id, malformed.kind.code(), &format!("{malformed}"));
            }
        }
    }

    /// Replies to something that is not a request. An error without an id is sent only if the version allows it.
    fn send_error(&mut self, from: &Origin, id: Option<Id>, code: i64, text: &str) {
        if id.is_some() || self.sessions.allows_errors_without_id(from) {
            self.cx.stats.refused += 1;
            let error = ErrorObject::new(code, text);
            let frame = Frame::Answer(id, Answer::Error(error));
            self.cx.outgoing.push(from.queue, frame);
        }
    }

    fn on_message(&mut self, from: &Origin, message: Message<'_>) {
        self.cx.stats.messages_in += 1;
        match message {
            Message::Notification { method, params } => {
                self.on_notification(from, &method, params);
            }
            Message::Request { id, method, params } => {
                let params = Params::read(params, self.sessions.known_terms());
                self.on_request(from, id, &method, &params);
            }
            Message::Response {
                id: Some(id),
                outcome,
            } => {
                let outcome = outcome.map(Payload::from);
                self.on_reply(from, &id, outcome.map_err(Unanswered::Error));
            }
            Message::Response { id: None, .. } => {
                self.binding.heard_noise(
                    &mut self.cx,
                    "an error that names no request",
                    b"",
                    false,
                );
            }
        }
    }

    /// Handles a reply of a legacy client to an ask.
    fn on_reply(&mut self, from: &Origin, id: &Id, outcome: Result<Payload, Unanswered>) {
        let session = from.session;
        if !self.requests.answered(&mut self.cx, session, id, outcome) {
            let what = "a reply to nothing that was asked";
            self.binding.heard_noise(&mut self.cx, what, b"", false);
        }
    }

    fn on_notification(&mut self, from: &Origin, name: &str, params: Option<Json<'_>>) {
        match (name, from.session) {
            (names::NOTIFICATIONS_CANCELLED, _) => self.on_cancelled(from, params),
            (names::NOTIFICATIONS_INITIALIZED, Some(session)) => {
                if !self.awaits_agreement(from) {
                    self.finish_handshake(session);
                } else if !self.offer.deferred().has_initialized(session) {
                    let message = DeferredMessage::Initialized(session);
                    self.offer.deferred_mut().push(message);
                }
            }
            (names::NOTIFICATIONS_INITIALIZED, None) => {}
            // S-RPC-15: a notification is never answered.
            (_, _) => self.cx.report(Event::Notified {
                method: name.into(),
                params: params.map(Payload::from),
                caller: from.caller(),
            }),
        }
    }

    /// Handles a cancellation. If it names nothing in flight, it is ignored (S-CANC-05, S-CANC-08).
    fn on_cancelled(&mut self, from: &Origin, params: Option<Json<'_>>) {
        let Some(CancelledParams { id, reason, meta }) = CancelledParams::read(params) else {
            return;
        };
        let wire = from.wire(id);
        if self.watches.is_listening(&wire) {
            self.watches.unlisten(&wire);
            self.cx.outgoing.retract_listen(from.queue, &wire.id);
            self.cx.outgoing.reply_done(from.queue);
        } else if let Some(request) = self.requests.find(&wire) {
            let why = Cancelled::ByPeer { reason, meta };
            self.requests.cancel(&mut self.cx, request, why);
        } else {
            // S-CANC-10: a handshake is not cancelled.
            let deferred = self.offer.deferred_mut().cancel(&wire);
            if let Some(queue) = deferred.and_then(|message| message.queue()) {
                self.cx.outgoing.reply_done(queue);
            }
            self.cx.outgoing.retract_id(from.queue, &wire.id);
        }
    }
}
