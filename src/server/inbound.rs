//! Parses the input of clients, and applies messages to requests, asks and watches. Nothing in here can fail, because all input is data.

use alloc::format;

use serde::Deserialize;

use super::Server;
use super::early::Early;
use super::event::{Cancelled, Event, State, Unanswered};
use super::frame::{Answer, Frame};
use super::origin::{Origin, SessionKey};
use super::params::Params;
use crate::driver::Epoch;
use crate::json::{Json, Payload};
use crate::protocol::method::names;
use crate::protocol::{Version, code};
use crate::util::noise::{self, Noise};
use crate::wire::{
    self, Batch, ErrorObject, Id, Inbound, Line, LineReader, Malformed, Message, Skimmed,
};

impl Server {
    pub(super) fn bytes(&mut self, mut bytes: &[u8]) {
        self.stats.bytes_in += bytes.len() as u64;
        if self.has_input_ended {
            return;
        }
        let mut lines = core::mem::replace(&mut self.lines, LineReader::new(0));
        while let Some(line) = lines.next(&mut bytes) {
            self.line(line);
        }
        self.lines = lines;
    }

    /// Handles the end of the stream. A complete message without its newline is accepted.
    pub(super) fn last_line(&mut self) {
        let mut lines = core::mem::replace(&mut self.lines, LineReader::new(0));
        if let Some(line) = lines.finish() {
            self.line(line);
        }
    }

    fn line(&mut self, line: Line<'_>) {
        match line {
            Line::NotUtf8(bytes) => {
                self.noise("a line that is not UTF-8", bytes);
                self.complain(
                    &Origin::DUPLEX,
                    None,
                    code::PARSE_ERROR,
                    "the line is not UTF-8",
                );
            }
            Line::Oversized(skimmed) => self.oversized(&skimmed),
            Line::Text(text) => self.text(text),
        }
    }

    fn text(&mut self, text: &str) {
        let mut noted = Params::default();
        let plan = Params::plan(self.known_terms());
        match wire::parse_visiting(text, plan, |part| noted.note(part)) {
            Ok(Inbound::One(Message::Request { id, method, params })) => {
                self.made_sense();
                noted.complete(params);
                self.asked(&Origin::DUPLEX, id, &method, &noted);
            }
            Ok(Inbound::One(message)) => self.message(&Origin::DUPLEX, message),
            Ok(Inbound::Batch(batch)) if self.allows_batches(SessionKey::DUPLEX) => {
                self.batch(&Origin::DUPLEX, batch, text);
            }
            Ok(Inbound::Batch(_)) => {
                let what = "a batch, which the agreed version does not have";
                self.noise(what, text.as_bytes());
                self.complain(&Origin::DUPLEX, None, code::INVALID_REQUEST, what);
            }
            Err(malformed) => self.malformed(&Origin::DUPLEX, &malformed, text),
        }
    }

    pub(super) fn batch(&mut self, from: &Origin, batch: Batch<'_>, text: &str) {
        for element in batch {
            match element {
                Ok(message) => self.element(from, message),
                Err(malformed) => self.malformed(from, &malformed, text),
            }
        }
    }

    /// Whether the version that was agreed on has batches (S-BATCH-07).
    pub(super) fn allows_batches(&self, session: SessionKey) -> bool {
        let scope = self.scopes.get(&session);
        scope.is_some_and(|scope| scope.peer.version.allows_batches())
    }

    /// Handles one message of a batch. It is treated like any other, but must not be a handshake (S-LIFE-10).
    fn element(&mut self, from: &Origin, message: Message<'_>) {
        if let Message::Request { id, method, .. } = &message {
            if method == names::INITIALIZE {
                let text = "`initialize` cannot be part of a batch";
                return self.complain(from, Some(id.clone()), code::INVALID_REQUEST, text);
            }
        }
        self.message(from, message);
    }

    /// Refuses a line that is too long to be held. The rest of the session is not affected.
    fn oversized(&mut self, skimmed: &Skimmed) {
        let limit = self.config.limits.message_bytes;
        let bytes = skimmed.len;
        let what = format!("a message of {bytes} bytes, where {limit} is the most");
        self.count_noise(&what, b"", true);
        let error = ErrorObject::new(code::INVALID_REQUEST, what);
        let from = &Origin::DUPLEX;
        let is_free = |id: &Id| !self.is_in_flight(&from.wire(id.clone()));
        match &skimmed.id {
            Some(id) if skimmed.is_response => {
                let why = error.message.into();
                self.replied(from, id, Err(Unanswered::Invalid { why }));
            }
            Some(id) if is_free(id) => self.refuse(from.lane, id.clone(), error),
            Some(_) | None => self.complain(from, None, error.code, &error.message),
        }
    }

    pub(super) fn malformed(&mut self, from: &Origin, malformed: &Malformed, text: &str) {
        let what = format!("a line that is no message: {malformed}");
        self.noise(&what, text.as_bytes());
        match &malformed.id {
            Some(id) if malformed.is_response => {
                let why = what.into();
                self.replied(from, id, Err(Unanswered::Invalid { why }));
            }
            // S-RPC-15: a notification is never answered. A response without an id answers nothing that is known.
            None if malformed.is_response || malformed.is_notification => {}
            id => {
                let id = id.clone();
                let id = id.filter(|id| !self.is_in_flight(&from.wire(id.clone())));
                self.complain(from, id, malformed.kind.code(), &format!("{malformed}"));
            }
        }
    }

    /// Replies to something that is not a request. An error without an id is sent only if the version allows it (S-RPC-10, S-RPC-11).
    fn complain(&mut self, from: &Origin, id: Option<Id>, code: i64, text: &str) {
        let scope = from.session.and_then(|session| self.scopes.get(&session));
        let legacy = scope.map(|scope| scope.peer.version);
        let may_lack_id = legacy.is_none_or(|version| version >= Version::V2025_11_25);
        if id.is_some() || may_lack_id {
            self.stats.refused += 1;
            let error = ErrorObject::new(code, text);
            let frame = Frame::Answer(id, Answer::Error(error));
            self.lanes.push(from.lane, frame);
        }
    }

    pub(super) fn message(&mut self, from: &Origin, message: Message<'_>) {
        self.made_sense();
        match message {
            Message::Notification { method, params } => self.notice(from, &method, params),
            Message::Request { id, method, params } => {
                let params = Params::read(params, self.known_terms());
                self.asked(from, id, &method, &params);
            }
            Message::Response {
                id: Some(id),
                outcome,
            } => {
                let outcome = outcome.map(Payload::from);
                self.replied(from, &id, outcome.map_err(Unanswered::Error));
            }
            Message::Response { id: None, .. } => {
                self.noise("an error that names no request", b"");
            }
        }
    }

    fn made_sense(&mut self) {
        self.stats.messages_in += 1;
        self.noise.made_sense();
    }

    fn notice(&mut self, from: &Origin, name: &str, params: Option<Json<'_>>) {
        match name {
            names::NOTIFICATIONS_CANCELLED => self.cancelled(from, params),
            names::NOTIFICATIONS_INITIALIZED => {
                if let Some(session) = from.session {
                    self.handshake_done(from, session);
                }
            }
            // S-RPC-15: a notification is never answered.
            _ => self.tell(Event::Notified {
                method: name.into(),
                params: params.map(Payload::from),
                caller: from.caller(),
            }),
        }
    }

    fn handshake_done(&mut self, from: &Origin, session: SessionKey) {
        if !self.awaits_agreement(from) {
            self.initialized(session);
        } else if !self.early.ends_handshake(session) {
            self.early.push(Early::Initialized(session));
        }
    }

    /// Handles a cancellation. If it names nothing in flight, it is ignored (S-CANC-05, S-CANC-08).
    fn cancelled(&mut self, from: &Origin, params: Option<Json<'_>>) {
        let params = params.map_or("{}", Json::as_str);
        let Ok(notice) = serde_json::from_str::<CancelledParams<'_>>(params) else {
            return;
        };
        let Some(id) = notice.request_id.and_then(|id| Id::from_json(id.as_str())) else {
            return;
        };
        let wire = from.wire(id);
        if self.watchers.is_listening(&wire) {
            self.watchers.unlisten(&wire);
            self.lanes.retract_listen(from.lane, &wire.id);
            self.lanes.settle(from.lane);
        } else if let Some(request) = self.requests.find(&wire) {
            // A malformed reason does not stop the cancellation.
            let reason = notice
                .reason
                .map(|reason| serde_json::from_str(reason.as_str()));
            let reason = reason.and_then(Result::ok);
            let meta = notice.meta.map(Payload::from);
            self.cancel(request, Cancelled::ByPeer { reason, meta });
        } else {
            // S-CANC-10: a handshake is not cancelled.
            if let Some(lane) = self.early.cancel(&wire).and_then(|early| early.lane()) {
                self.lanes.settle(lane);
            }
            self.lanes.retract_answer(from.lane, &wire.id);
            self.lanes.retract_listen(from.lane, &wire.id);
        }
    }

    /// Counts unusable input, and reports samples of it.
    pub(super) fn noise(&mut self, what: &str, bytes: &[u8]) {
        self.count_noise(what, bytes, false);
    }

    fn count_noise(&mut self, what: &str, bytes: &[u8], is_too_large: bool) {
        self.stats.noise += 1;
        if self.state == State::Closed {
            return;
        }
        if let Some(count) = self.noise.heard() {
            let sample = noise::sample(bytes, self.config.limits.noise_sample);
            self.tell(Event::Noise(Noise {
                epoch: Epoch::FIRST,
                what: what.into(),
                count,
                sample,
                is_too_large,
            }));
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CancelledParams<'a> {
    #[serde(borrow)]
    request_id: Option<Json<'a>>,
    #[serde(borrow)]
    reason: Option<Json<'a>>,
    #[serde(borrow, rename = "_meta")]
    meta: Option<Json<'a>>,
}
