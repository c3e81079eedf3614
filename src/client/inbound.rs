//! Reads what the server sends: splits it into messages and applies them to calls, asks, lists and the watch. Nothing here returns an error, because
//! all input is data.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;

use serde::Deserialize;

use super::Client;
use super::errand::{Errand, Found, wire_of};
use super::event::{Event, Outcome, Withdrawn};
use super::failure::{Cause, FailureKind};
use super::handshake::Move;
use super::lifecycle::State;
use super::liveness::names_a_loss;
use crate::driver::CallId;
use crate::json::{Json, Payload};
use crate::protocol::method::names;
use crate::protocol::watch::List;
use crate::protocol::{ClientFeature, Era, LogLevel, code, method, round};
use crate::util::noise::{self, Noise};
use crate::wire::{self, ErrorObject, Id, Inbound, Line, LineReader, Malformed, Message, Skimmed};

/// A reply: the result, or the error instead of it.
pub(super) type Reply<'a> = Result<Json<'a>, ErrorObject>;

impl Client {
    pub(super) fn bytes(&mut self, mut bytes: &[u8]) {
        self.stats.bytes_in += bytes.len() as u64;
        self.heard();
        let Some(mut lines) = self.take_lines() else {
            return;
        };
        let epoch = self.epoch;
        while let Some(line) = lines.next(&mut bytes) {
            self.line(line);
            if !self.state.is_in_touch() || self.epoch != epoch {
                return;
            }
        }
        if let Some(life) = &mut self.life {
            life.pipe.lines = lines;
        }
    }

    /// Handles the rest of the input at its end. A complete message counts even without its newline.
    pub(super) fn last_line(&mut self) {
        let Some(mut lines) = self.take_lines() else {
            return;
        };
        if let Some(line) = lines.finish() {
            self.line(line);
        }
    }

    fn take_lines(&mut self) -> Option<LineReader> {
        let is_in_touch = self.state.is_in_touch();
        let life = self.life.as_mut().filter(|_| is_in_touch)?;
        Some(core::mem::replace(&mut life.pipe.lines, LineReader::new(0)))
    }

    fn line(&mut self, line: Line<'_>) {
        match line {
            Line::NotUtf8(bytes) => self.noise("a line that is not UTF-8", bytes),
            Line::Oversized(skimmed) => self.oversized(&skimmed),
            Line::Text(text) => match self.parse(text) {
                Ok(Inbound::One(message)) => self.message(message),
                Ok(Inbound::Batch(batch)) if self.allows_batches() => {
                    for element in batch {
                        if !self.state.is_in_touch() {
                            return;
                        }
                        match element {
                            Ok(message) => self.message(message),
                            Err(malformed) => self.malformed(&malformed, text),
                        }
                    }
                }
                Ok(Inbound::Batch(_)) => {
                    self.noise(
                        "a batch, which the agreed version does not have",
                        text.as_bytes(),
                    );
                }
                Err(malformed) => self.malformed(&malformed, text),
            },
        }
    }

    pub(super) fn parse<'a>(&self, text: &'a str) -> Result<Inbound<'a>, Malformed> {
        wire::parse_after_run(text, self.preamble.text())
    }

    pub(super) fn allows_batches(&self) -> bool {
        let session = self.session.as_ref();
        session.is_some_and(|session| session.version.allows_batches())
    }

    /// Reports a message over the size limit. If it is a reply, only its request fails; the epoch goes on.
    pub(super) fn oversized(&mut self, skimmed: &Skimmed) {
        let (bytes, limit) = (skimmed.len, self.config.limits.message_bytes);
        let what = format!("a message of {bytes} bytes, which is too large: {limit} is the most");
        self.count_noise(&what, b"", true);
        if let Some(id) = skimmed.id.as_ref().filter(|_| skimmed.is_response) {
            let error = ErrorObject::new(code::INTERNAL_ERROR, what);
            self.broken_reply(id, FailureKind::TooLarge { bytes }, error);
        }
    }

    pub(super) fn malformed(&mut self, malformed: &Malformed, text: &str) {
        let what = format!("a line that is no message: {malformed}");
        self.noise(&what, text.as_bytes());
        let Some(id) = &malformed.id else {
            return;
        };
        if malformed.is_response {
            let kind = FailureKind::Invalid {
                why: format!("{malformed}").into(),
            };
            let error = ErrorObject::new(code::INTERNAL_ERROR, what);
            self.broken_reply(id, kind, error);
        } else if self.speaks_legacy() {
            let error = ErrorObject::new(code::INVALID_REQUEST, format!("{malformed}"));
            self.reply(id.clone(), Err(error));
        }
    }

    /// Handles a reply that cannot be used. Only its own request fails.
    pub(super) fn broken_reply(&mut self, id: &Id, kind: FailureKind, error: ErrorObject) {
        if let Some(wire) = id.counted() {
            self.served(wire);
        }
        match self.errands.take(id) {
            Found::Open(_, Errand::Call(call)) => self.fail(call, kind),
            Found::Open(_, Errand::Initialize) => {
                self.proceed(Move::Refused(
                    format!("its answer to initialize: {kind}").into(),
                ));
            }
            Found::Open(_, Errand::Discover) if matches!(kind, FailureKind::TooLarge { .. }) => {
                let why = format!("its answer to server/discover: {kind}");
                self.proceed(Move::Refused(why.into()));
            }
            Found::Open(_, Errand::Page(list)) => {
                for call in self.catalog.give_up(list) {
                    self.fail(call, kind.clone());
                }
            }
            Found::Open(wire, errand) => self.replied(wire, errand, Err(error)),
            Found::Late | Found::Unknown => {}
        }
    }

    pub(super) fn message(&mut self, message: Message<'_>) {
        self.stats.messages_in += 1;
        if let Some(life) = &mut self.life {
            life.pipe.noise.made_sense();
        }
        match message {
            Message::Notification { method, params } => self.notified(&method, params),
            Message::Request { id, method, params } => self.requested(id, &method, params),
            Message::Response { id, outcome } => self.responded(id, outcome),
        }
    }

    fn responded(&mut self, id: Option<Id>, outcome: Reply<'_>) {
        let Some(id) = id else {
            return self.nameless_error(outcome);
        };
        match self.errands.take(&id) {
            Found::Open(wire, errand) => {
                self.served(wire);
                self.replied(wire, errand, outcome);
            }
            Found::Late => self.stats.late_replies += 1,
            Found::Unknown => self.noise("a reply to nothing that was asked", b""),
        }
    }

    /// Handles an error without an id. Some servers send one for a request that they cannot read. During the handshake, it belongs to the oldest open
    /// request.
    fn nameless_error(&mut self, outcome: Reply<'_>) {
        // After the handshake it could belong to any request. Its text may help a person.
        if self.state != State::Handshaking {
            let said = outcome.err().map_or(String::new(), |error| error.message);
            return self.noise("an error that names no request", said.as_bytes());
        }
        let asked = [Errand::LateDiscover, Errand::Discover, Errand::Initialize];
        let open = asked.into_iter().find_map(|errand| {
            let wire = self.errands.wire_for(&errand)?;
            Some((wire, errand))
        });
        match open {
            Some((wire, errand)) => {
                self.errands.close(wire);
                self.replied(wire, errand, outcome);
            }
            None => self.noise("an error that names no request", b""),
        }
    }

    pub(super) fn replied(&mut self, wire: u64, errand: Errand, outcome: Reply<'_>) {
        match errand {
            Errand::Call(call) => self.call_replied(call, outcome),
            Errand::Discover => {
                let then = self.handshake.discovered(as_ref(&outcome));
                self.proceed(then);
            }
            Errand::Initialize => {
                let then = self.handshake.initialized(as_ref(&outcome));
                self.proceed(then);
            }
            Errand::LateDiscover => {
                self.stats.late_replies += 1;
                self.handshake.discovered_late(as_ref(&outcome));
            }
            Errand::Listen => self.listen_ended(wire, refusal(&outcome)),
            Errand::Page(list) => {
                self.habits.answers_calls = true;
                self.page(list, outcome);
            }
            Errand::Probe if self.is_proof_of_another_era(refusal(&outcome)) => {
                self.changed_its_era();
            }
            // An error also shows that the server is alive (-32601 if it has no `ping`), unless it reports a lost session.
            Errand::Probe => self.probe_answered(outcome.as_ref().err()),
            Errand::Unsubscribe => {}
            Errand::Revive => self.revived(refusal(&outcome)),
            Errand::SetLevel => self.watcher.level_set(refusal(&outcome)),
            Errand::Subscribe(uri) => self.watcher.subscribed(&uri, refusal(&outcome)),
        }
    }

    /// Whether this error proves that the server does not speak the agreed era. Over HTTP, another server may have taken its place. It refuses the
    /// probe like any unknown method.
    fn is_proof_of_another_era(&self, refusal: Option<i64>) -> bool {
        let is_modern = self.voice.version().era() == Era::Modern;
        match refusal {
            Some(code::UNSUPPORTED_PROTOCOL_VERSION) => true,
            Some(code::METHOD_NOT_FOUND) => self.web.is_some() && is_modern,
            Some(_) | None => false,
        }
    }

    fn call_replied(&mut self, id: CallId, outcome: Reply<'_>) {
        self.habits.answers_calls = true;
        match &outcome {
            Ok(_) => self.is_well(),
            // The caller gets the error. A probe finds out whether it applies to the whole server.
            Err(error) if names_a_loss(error) => self.probe_now(),
            Err(_) => {}
        }
        let result = match outcome {
            Ok(result) => result,
            Err(error) if self.lacks_fields(id, &error) => return self.await_schema(id),
            Err(error) if error.code == code::UNSUPPORTED_PROTOCOL_VERSION => {
                self.settle(id, Outcome::Error(error.into()));
                return self.probe_now();
            }
            Err(error) => return self.settle(id, Outcome::Error(error.into())),
        };
        let modern = self
            .session
            .as_ref()
            .is_some_and(|s| s.version.era() == Era::Modern);
        if !modern {
            return self.settle(id, Outcome::Reply(Payload::from(result)));
        }
        let Some(head) = self.preamble.read(result) else {
            return self.invalid(id, "its result type cannot be read");
        };
        let facts = self.calls.call(id).and_then(|call| call.facts);
        match head.result_type.as_deref() {
            // S-RPC-19: a missing type means complete.
            None | Some(round::COMPLETE) => {
                let fit = facts
                    .filter(|facts| facts.name == names::TOOLS_LIST)
                    .and_then(|_| self.fit_tools(result, self.asks_for_first_page(id)));
                let reply = fit.unwrap_or_else(|| Payload::from(result));
                self.settle(id, Outcome::Reply(reply));
            }
            Some(round::INPUT_REQUIRED) if facts.is_some_and(|facts| facts.may_need_input) => {
                self.input_required(id, &head);
            }
            Some(round::TASK) if self.expects_task(id, facts) => {
                self.settle(id, Outcome::Reply(Payload::from(result)));
            }
            // S-RPC-22: an extension that both ends declare may define its own types.
            Some(kind)
                if kind != round::INPUT_REQUIRED
                    && (self.passes_call(id) || self.shares_an_extension(id)) =>
            {
                self.settle(id, Outcome::Reply(Payload::from(result)));
            }
            // S-RPC-20, S-MRTR-03
            Some(_) => self.invalid(id, "its result type means nothing for this method"),
        }
    }

    /// Whether a call reads the first page of a list.
    fn asks_for_first_page(&self, id: CallId) -> bool {
        let params = self.calls.call(id).and_then(|call| call.params.as_ref());
        let cursor = params.map(|params| params.json().member("cursor"));
        !matches!(cursor, Some(Ok(Some(_))))
    }

    /// Whether a tool call was refused because of its header fields, for the first time (S-XHDR-12).
    fn lacks_fields(&self, id: CallId, error: &ErrorObject) -> bool {
        let call = self.calls.call(id);
        self.web.is_some()
            && error.code == code::HEADER_MISMATCH
            && call.is_some_and(|c| c.method == names::TOOLS_CALL && !c.has_new_schema)
    }

    fn expects_task(&self, id: CallId, facts: Option<&method::Method>) -> bool {
        let declared = self.declared_for(id);
        facts.is_some_and(|facts| facts.name == names::TOOLS_CALL)
            && declared.declares(ClientFeature::TasksExtension)
    }

    /// Whether both ends declare extensions that this library does not know.
    fn shares_an_extension(&self, id: CallId) -> bool {
        let ours = self.declared_for(id).has_strange_extension();
        let session = self.session.as_ref();
        ours && session.is_some_and(|session| session.capabilities.has_strange_extension())
    }

    pub(super) fn invalid(&mut self, id: CallId, why: &str) {
        self.fail(id, FailureKind::Invalid { why: why.into() });
    }

    fn notified(&mut self, name: &str, params: Option<Json<'_>>) {
        if self.is_passed(name, params) {
            return;
        }
        match name {
            names::NOTIFICATIONS_CANCELLED => self.cancelled(params),
            names::NOTIFICATIONS_MESSAGE => self.logged(params),
            names::NOTIFICATIONS_PROGRESS => self.progressed(params),
            names::NOTIFICATIONS_PROMPTS_LIST_CHANGED => self.changed(params, &[List::Prompts]),
            names::NOTIFICATIONS_RESOURCES_LIST_CHANGED => {
                self.changed(params, &[List::Resources, List::ResourceTemplates]);
            }
            names::NOTIFICATIONS_RESOURCES_UPDATED => self.updated(params),
            names::NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED => self.acknowledged(params),
            names::NOTIFICATIONS_TOOLS_LIST_CHANGED => self.changed(params, &[List::Tools]),
            _ => self.hand_on(name, params, None),
        }
    }

    /// Passes a notification on unchanged.
    fn hand_on(&mut self, name: &str, params: Option<Json<'_>>, about: Option<CallId>) {
        let call = about.or_else(|| self.web.as_ref().and_then(|web| web.about));
        self.tell(Event::Notified {
            method: name.into(),
            params: params.map(Payload::from),
            call,
        });
    }

    /// Passes a notification on to the client in front of the relay, if it is meant for it. Returns whether it was.
    fn is_passed(&mut self, name: &str, params: Option<Json<'_>>) -> bool {
        if !self.passes() {
            return false;
        }
        let lists: &[List] = match name {
            names::NOTIFICATIONS_MESSAGE => &[],
            names::NOTIFICATIONS_PROGRESS => {
                // Progress of a call that is not open is dropped (S-PROG-09).
                if let Some(call) = self.call_of_progress(params) {
                    self.calls.touch(call, self.now);
                    self.hand_on(name, params, Some(call));
                }
                return true;
            }
            // A modern server reports changes for the watch of this link, not for that client.
            _ if !self.speaks_legacy() => return false,
            names::NOTIFICATIONS_PROMPTS_LIST_CHANGED => &[List::Prompts],
            names::NOTIFICATIONS_RESOURCES_LIST_CHANGED => {
                &[List::Resources, List::ResourceTemplates]
            }
            names::NOTIFICATIONS_RESOURCES_UPDATED => &[],
            names::NOTIFICATIONS_TOOLS_LIST_CHANGED => &[List::Tools],
            _ => return false,
        };
        for list in lists {
            self.catalog.changed(*list);
        }
        self.hand_on(name, params, None);
        true
    }

    /// The open call that this progress belongs to.
    fn call_of_progress(&self, params: Option<Json<'_>>) -> Option<CallId> {
        let token = params?.member("progressToken").ok()??;
        let errand = self.errands.get(&Id::from_json(token.as_str())?)?;
        match *errand {
            Errand::Call(call) => Some(call),
            Errand::Discover
            | Errand::Initialize
            | Errand::LateDiscover
            | Errand::Listen
            | Errand::Page(_)
            | Errand::Probe
            | Errand::Revive
            | Errand::SetLevel
            | Errand::Subscribe(_)
            | Errand::Unsubscribe => None,
        }
    }

    /// Handles a cancellation. One that names nothing open is ignored (S-CANC-08).
    fn cancelled(&mut self, params: Option<Json<'_>>) {
        let Some(id) =
            read::<Cancelled<'_>>(params).and_then(|p| Id::from_json(p.request_id.as_str()))
        else {
            return;
        };
        if let Some(ask) = self.asks.withdraw(&id) {
            return self.withdrawn(ask, Withdrawn::ByServer);
        }
        if let Some(wire) = wire_of(&id).filter(|wire| self.watcher.owns(*wire)) {
            self.errands.close(wire);
            self.listen_ended(wire, None);
        }
    }

    fn logged(&mut self, params: Option<Json<'_>>) {
        let Some(log) = read::<Logged<'_>>(params) else {
            return self.noise("a log message that cannot be read", b"");
        };
        let wished = self.wanted_logs();
        let level = LogLevel::parse(&log.level);
        match (wished, level) {
            (Some(least), Some(level)) if level >= least => self.tell(Event::Log {
                call: self.web.as_ref().and_then(|web| web.about),
                level,
                logger: log.logger.map(|logger| logger.into()),
                data: Payload::from(log.data),
            }),
            (_, _) => {}
        }
    }

    /// Handles progress. It is dropped if its call is unknown or over, or if it does not increase (S-PROG-09).
    fn progressed(&mut self, params: Option<Json<'_>>) {
        let Some(told) = read::<Progressed<'_>>(params) else {
            return;
        };
        let token = Id::from_json(told.progress_token.as_str());
        let token = token.filter(|token| matches!(token, Id::Number(_)));
        let Some(Errand::Call(id)) = token.and_then(|token| self.errands.get(&token).cloned())
        else {
            return;
        };
        let Some(call) = self.calls.call_mut(id) else {
            return;
        };
        let is_old = call.progress.is_some_and(|before| told.progress <= before);
        if is_old || !call.wants_progress {
            return;
        }
        call.progress = Some(told.progress);
        self.calls.touch(id, self.now);
        self.tell(Event::Progress {
            call: id,
            progress: told.progress,
            total: told.total,
            message: told.message.map(|message| message.into()),
        });
    }

    /// Counts unusable input, and reports a sample of it.
    pub(super) fn noise(&mut self, what: &str, bytes: &[u8]) {
        self.count_noise(what, bytes, false);
    }

    fn count_noise(&mut self, what: &str, bytes: &[u8], is_too_large: bool) {
        self.stats.noise += 1;
        let Some(life) = &mut self.life else {
            return;
        };
        let shown = life.pipe.noise.heard();
        let run = life.pipe.noise.run();
        if let Some(count) = shown {
            let sample = noise::sample(bytes, self.config.limits.noise_sample);
            self.tell(Event::Noise(Noise {
                epoch: self.epoch,
                what: what.into(),
                count,
                sample,
                is_too_large,
            }));
        }
        if self.config.limits.noise_run.is_some_and(|most| run > most) {
            self.down(Cause::Noise);
        }
    }
}

/// The code of an error reply.
fn refusal(outcome: &Reply<'_>) -> Option<i64> {
    outcome.as_ref().err().map(|error| error.code)
}

fn as_ref<'a>(outcome: &'a Reply<'a>) -> Result<Json<'a>, &'a ErrorObject> {
    match outcome {
        Ok(result) => Ok(*result),
        Err(error) => Err(error),
    }
}

pub(super) fn read<'a, T: Deserialize<'a>>(params: Option<Json<'a>>) -> Option<T> {
    serde_json::from_str(params?.as_str()).ok()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cancelled<'a> {
    #[serde(borrow)]
    request_id: Json<'a>,
}

#[derive(Deserialize)]
struct Logged<'a> {
    #[serde(borrow)]
    level: Cow<'a, str>,
    #[serde(borrow)]
    logger: Option<Cow<'a, str>>,
    #[serde(borrow)]
    data: Json<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Progressed<'a> {
    #[serde(borrow)]
    progress_token: Json<'a>,
    progress: f64,
    total: Option<f64>,
    #[serde(borrow)]
    message: Option<Cow<'a, str>>,
}
