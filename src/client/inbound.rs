//! What the server says: lines to messages, messages to what they mean for calls, asks, lists and the watch.
//! Nothing in here can fail: whatever arrives is data.

use alloc::borrow::Cow;
use alloc::format;
use alloc::vec::Vec;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::asks::{self, Origin};
use super::calls::{ResultHead, Round};
use super::catalog::{Broken, Step, method_of};
use super::closing::Rung;
use super::errand::{Errand, Found, wire_of};
use super::event::{Ask, Event, Noise, Outcome, Withdrawn};
use super::failure::{Cause, FailureKind};
use super::frame::Frame;
use super::lifecycle::State;
use super::stdio;
use super::watcher::Chore;
use super::{Client, Timer};
use crate::id::CallId;
use crate::protocol::method::names;
use crate::protocol::{ClientFeature, Era, LogLevel, Version, code, meta, method};
use crate::watch::{Change, List};
use crate::wire::{
    self, ErrorObject, Id, Inbound, Line, LineReader, Malformed, Message, Payload, Skimmed, object,
};

/// Answers of the link itself that may wait for a server that does not read them.
const ANSWERS_KEPT: usize = 256;

/// A reply: the result, or the error in its place.
type Reply<'a> = Result<&'a RawValue, ErrorObject>;

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
            if !self.is_listening() || self.epoch != epoch {
                return;
            }
        }
        if let Some(life) = &mut self.life {
            life.pipe.lines = lines;
        }
    }

    /// The stream ends in the middle of a line: a whole message without its newline is one.
    pub(super) fn last_line(&mut self) {
        let Some(mut lines) = self.take_lines() else {
            return;
        };
        if let Some(line) = lines.finish() {
            self.line(line);
        }
    }

    /// Any byte is a sign of life.
    pub(super) fn heard(&mut self) {
        if let Some(pulse) = &mut self.pulse {
            pulse.heard(self.now);
        }
    }

    fn take_lines(&mut self) -> Option<LineReader> {
        let listening = self.is_listening();
        let life = self.life.as_mut().filter(|_| listening)?;
        Some(core::mem::replace(&mut life.pipe.lines, LineReader::new(0)))
    }

    /// Whether what the server says still matters.
    fn is_listening(&self) -> bool {
        match self.state {
            State::Handshaking | State::Ready => true,
            State::Closing => self.rung() == Some(Rung::Drain),
            State::Idle | State::Opening | State::Waiting | State::Parked | State::Closed => false,
        }
    }

    fn line(&mut self, line: Line<'_>) {
        match line {
            Line::NotUtf8(bytes) => self.noise("a line that is not UTF-8", bytes),
            Line::Oversized(skimmed) => self.oversized(&skimmed),
            Line::Text(text) => match wire::parse(text) {
                Ok(Inbound::One(message)) => self.message(message),
                Ok(Inbound::Batch(batch)) if self.allows_batches() => {
                    for element in batch {
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

    fn allows_batches(&self) -> bool {
        let session = self.session.as_ref();
        session.is_some_and(|session| session.version.allows_batches())
    }

    /// The rest of the life is not spoilt by one line that nobody can hold.
    fn oversized(&mut self, skimmed: &Skimmed) {
        let bytes = skimmed.len;
        let what = format!("a message of {bytes} bytes, which is too large");
        self.noise(&what, b"");
        if let Some(id) = skimmed.id.as_ref().filter(|_| skimmed.is_response) {
            let error = ErrorObject::new(code::INTERNAL_ERROR, what);
            self.broken_reply(id, FailureKind::TooLarge { bytes }, error);
        }
    }

    fn malformed(&mut self, malformed: &Malformed, text: &str) {
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

    /// A reply that cannot be used. It costs what it answers, and no more.
    fn broken_reply(&mut self, id: &Id, kind: FailureKind, error: ErrorObject) {
        match self.errands.take(id) {
            Found::Open(_, Errand::Call(call)) => self.fail(call, kind),
            Found::Open(wire, errand) => self.replied(wire, errand, Err(error)),
            Found::Late | Found::Unknown => {}
        }
    }

    fn message(&mut self, message: Message<'_>) {
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
            Found::Open(wire, errand) => self.replied(wire, errand, outcome),
            Found::Late => self.stats.late_replies += 1,
            Found::Unknown => self.noise("a reply to nothing that was asked", b""),
        }
    }

    /// Some servers answer a request that they cannot read with an error to nobody. During the
    /// handshake only one request is out.
    fn nameless_error(&mut self, outcome: Reply<'_>) {
        let asked = [Errand::Discover, Errand::Initialize];
        let open = asked.into_iter().find_map(|errand| {
            let wire = self.errands.wire_for(&errand)?;
            Some((wire, errand))
        });
        match open {
            Some((wire, errand)) if self.state == State::Handshaking => {
                self.errands.close(wire);
                self.replied(wire, errand, outcome);
            }
            Some(_) | None => self.noise("an error that names no request", b""),
        }
    }

    fn replied(&mut self, wire: u64, errand: Errand, outcome: Reply<'_>) {
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
            Errand::Listen => self.listen_ended(wire, outcome.err().map(|error| error.code)),
            Errand::Page(list) => self.page(list, outcome),
            // Any answer is a sign of life, an error too (-32601 from one that knows no ping).
            Errand::Probe | Errand::Unsubscribe => {}
            Errand::SetLevel => self.watcher.answered(None, outcome.is_ok()),
            Errand::Subscribe(uri) => self.watcher.answered(Some(&uri), outcome.is_ok()),
        }
    }

    fn call_replied(&mut self, id: CallId, outcome: Reply<'_>) {
        let result = match outcome {
            Ok(result) => result,
            Err(error) => return self.settle(id, Outcome::Error(error.into())),
        };
        let modern = self
            .session
            .as_ref()
            .is_some_and(|s| s.version.era() == Era::Modern);
        if !modern {
            return self.settle(id, Outcome::Reply(Payload::from(result)));
        }
        let Ok(head) = serde_json::from_str::<ResultHead<'_>>(result.get()) else {
            return self.invalid(id, "its result type cannot be read");
        };
        let facts = self.calls.call(id).and_then(|call| call.facts);
        match head.result_type.as_deref() {
            // S-RPC-19: absent means complete.
            None | Some("complete") => {
                self.settle(id, Outcome::Reply(Payload::from(result)));
            }
            Some("input_required") if facts.is_some_and(|facts| facts.may_need_input) => {
                self.input_required(id, &head);
            }
            Some("task") if self.expects_task(facts) => {
                self.settle(id, Outcome::Reply(Payload::from(result)));
            }
            // S-RPC-20, S-MRTR-03
            Some(_) => self.invalid(id, "its result type means nothing for this method"),
        }
    }

    fn expects_task(&self, facts: Option<&method::Method>) -> bool {
        facts.is_some_and(|facts| facts.name == names::TOOLS_CALL)
            && self
                .config
                .capabilities
                .declares(ClientFeature::TasksExtension)
    }

    fn invalid(&mut self, id: CallId, why: &str) {
        self.fail(id, FailureKind::Invalid { why: why.into() });
    }

    /// The server wants something before it goes on (S-MRTR-09).
    fn input_required(&mut self, id: CallId, head: &ResultHead<'_>) {
        let limits = &self.config.limits;
        let Some(call) = self.calls.call_mut(id) else {
            return;
        };
        let number = call.round.number + 1;
        if number > limits.input_rounds {
            let rounds = limits.input_rounds;
            return self.fail(id, FailureKind::TooManyRounds { rounds });
        }
        let Some(questions) = questions(head.input_requests) else {
            return self.invalid(id, "its questions cannot be read");
        };
        let state = head.request_state.filter(|state| state.get() != "null");
        if state.is_none() && questions.is_empty() {
            return self.invalid(id, "it wants input and does not say which");
        }
        if state.is_some_and(|state| !state.get().starts_with('"')) {
            return self.invalid(id, "its state is no text");
        }
        if questions.len() > limits.asks.saturating_sub(self.asks.len()) {
            return self.invalid(id, "it asks more at once than may be open");
        }
        call.round = Round {
            number,
            state: state.map(Payload::from),
            missing: questions.len(),
            ..Round::default()
        };
        let version = self
            .session
            .as_ref()
            .map_or(Version::LATEST_MODERN, |s| s.version);
        for question in &questions {
            let declared = &self.config.capabilities;
            let admitted = asks::admit(declared, version, &question.method, question.params);
            if let Err(error) = admitted {
                let why = format!("it asks what it may not: {}", error.message);
                return self.invalid(id, &why);
            }
        }
        self.calls.asked(id, self.now);
        for question in questions {
            let origin = Origin::Round(id, question.key.into());
            self.ask(origin, &question.method, question.params);
        }
        self.go_on_if_answered(id);
    }

    /// All answers are there, or none was asked for: the call is sent again with them.
    pub(super) fn go_on_if_answered(&mut self, id: CallId) {
        if self
            .calls
            .call(id)
            .is_some_and(|call| call.round.missing == 0)
        {
            self.calls.answered(id, self.now);
        }
        self.arm_call(id);
    }

    fn ask(&mut self, origin: Origin, name: &str, params: Option<&RawValue>) {
        let call = match &origin {
            Origin::Request(_) => None,
            Origin::Round(call, _) => Some(*call),
        };
        let ask = self.asks.open(origin, name);
        let until = self.now + self.config.policy.ask_timeout;
        self.stats.asks += 1;
        self.timers.arm(Timer::Ask(ask), until);
        let method = match method::find(name) {
            Some(facts) => Cow::Borrowed(facts.name),
            None => Cow::Owned(name.into()),
        };
        self.tell(Event::Ask(Ask {
            ask,
            call,
            method,
            params: params.map(Payload::from),
            until,
        }));
        self.hold_calls();
    }

    /// Whether requests of the server are legal, as far as is known.
    fn speaks_legacy(&self) -> bool {
        let session = self.session.as_ref();
        session.is_none_or(|session| session.version.era() == Era::Legacy)
    }

    fn requested(&mut self, id: Id, name: &str, params: Option<&RawValue>) {
        if !self.speaks_legacy() {
            // S-RPC-23, S-RPC-24: it must not ask, and we must not answer.
            return self.noise("a request, which a modern server must not send", b"");
        }
        if name == names::PING {
            return self.reply(id, Ok(None));
        }
        let Some(session) = &self.session else {
            let text = "the handshake is not over";
            return self.reply(id, Err(ErrorObject::new(code::INVALID_REQUEST, text)));
        };
        if self.asks.knows(&id) {
            return self.noise("a request with the id of one that is open", b"");
        }
        let admitted = asks::admit(&self.config.capabilities, session.version, name, params);
        let refused = match admitted {
            Ok(()) if self.asks.len() < self.config.limits.asks => None,
            Ok(()) => Some(ErrorObject::new(
                code::INTERNAL_ERROR,
                "too many questions are open; ask again when some are answered",
            )),
            Err(error) => Some(error),
        };
        match refused {
            Some(error) => {
                self.stats.asks_refused += 1;
                self.reply(id, Err(error));
            }
            None => self.ask(Origin::Request(id), name, params),
        }
    }

    /// The link answers by itself, unless the server has long ceased to read its answers.
    fn reply(&mut self, id: Id, answer: Result<Option<Payload>, ErrorObject>) {
        if self.frames.len() < ANSWERS_KEPT {
            self.frames.push(Frame::Answer(id, answer));
        } else {
            self.stats.answers_dropped += 1;
        }
    }

    fn notified(&mut self, name: &str, params: Option<&RawValue>) {
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
            _ => self.tell(Event::Notified {
                method: name.into(),
                params: params.map(Payload::from),
            }),
        }
    }

    /// S-CANC-08: one that names nothing that is open is ignored.
    fn cancelled(&mut self, params: Option<&RawValue>) {
        let Some(id) =
            read::<Cancelled<'_>>(params).and_then(|p| Id::from_json(p.request_id.get()))
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

    fn logged(&mut self, params: Option<&RawValue>) {
        let Some(log) = read::<Logged<'_>>(params) else {
            return self.noise("a log message that cannot be read", b"");
        };
        let (wished, level) = (self.watcher.wish().logs, LogLevel::parse(&log.level));
        match (wished, level) {
            (Some(least), Some(level)) if level >= least => self.tell(Event::Log {
                level,
                logger: log.logger.map(|logger| logger.into()),
                data: Payload::from(log.data),
            }),
            (_, _) => {}
        }
    }

    /// S-PROG-09: what is unknown, over or not increasing is dropped.
    fn progressed(&mut self, params: Option<&RawValue>) {
        let Some(told) = read::<Progressed<'_>>(params) else {
            return;
        };
        let token = Id::from_json(told.progress_token.get());
        let Some(Errand::Call(id)) = token.and_then(|token| self.errands.get(&token).cloned())
        else {
            return;
        };
        let Some(call) = self.calls.call_mut(id) else {
            return;
        };
        if call.progress.is_some_and(|before| told.progress <= before) {
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

    fn changed(&mut self, params: Option<&RawValue>, lists: &[List]) {
        if !self.is_for_us(params) {
            return self.noise("a change for a watch that is not open", b"");
        }
        for list in lists {
            self.catalog.changed(*list);
            let wish = self.watcher.wish();
            let wished = match list {
                List::Prompts => wish.prompts,
                List::ResourceTemplates | List::Resources => wish.resources,
                List::Tools => wish.tools,
            };
            // Once is enough until it was heard.
            if wished && self.announced.insert(*list) {
                self.tell(Event::Changed(Change::List(*list)));
            }
        }
    }

    fn updated(&mut self, params: Option<&RawValue>) {
        if !self.is_for_us(params) {
            return self.noise("a change for a watch that is not open", b"");
        }
        match read::<Updated<'_>>(params) {
            Some(updated) => {
                let uri = updated.uri.into();
                self.tell(Event::Changed(Change::Resource { uri }));
            }
            None => self.noise("a change that names no resource", b""),
        }
    }

    /// S-SUB-08: what names a subscription must name ours.
    fn is_for_us(&self, params: Option<&RawValue>) -> bool {
        match subscription(params) {
            Some(id) => wire_of(&id).is_some_and(|wire| self.watcher.owns(wire)),
            None => true,
        }
    }

    fn acknowledged(&mut self, params: Option<&RawValue>) {
        let wire = subscription(params).as_ref().and_then(wire_of);
        match (wire, params) {
            (Some(wire), Some(params)) if self.watcher.owns(wire) => {
                let chores = self.watcher.acknowledged(wire, params);
                self.do_chores(chores);
            }
            (_, _) => self.noise("a watch is confirmed that is not open", b""),
        }
    }

    /// The server ended a watch: gracefully, by cancelling it, or with an error.
    fn listen_ended(&mut self, wire: u64, error: Option<i64>) {
        if !self.watcher.listening_ended(wire) || self.state != State::Ready {
            return;
        }
        if error == Some(code::METHOD_NOT_FOUND) {
            return;
        }
        let doublings = self.watcher.endings.saturating_sub(1).min(16);
        let pause = self
            .config
            .policy
            .watch_retry
            .saturating_mul(1 << doublings);
        self.arm_in(Timer::WatchRetry, pause.min(super::WATCH_RETRY_CAP));
    }

    /// Sends what the watch needs.
    pub(super) fn do_chores(&mut self, chores: Vec<Chore>) {
        for chore in chores {
            let frame = match chore {
                Chore::Listen(watch) => {
                    let wire = self.errands.issue(Errand::Listen);
                    self.watcher.listens(wire);
                    Frame::Listen(wire, watch)
                }
                Chore::SetLevel(level) => {
                    Frame::SetLevel(self.errands.issue(Errand::SetLevel), level)
                }
                Chore::Subscribe(uri) => {
                    let wire = self.errands.issue(Errand::Subscribe(uri.clone()));
                    Frame::Subscribe(wire, uri)
                }
                Chore::Unlisten(wire) => {
                    self.errands.close(wire);
                    Frame::Cancel(wire, None)
                }
                Chore::Unsubscribe(uri) => {
                    Frame::Unsubscribe(self.errands.issue(Errand::Unsubscribe), uri)
                }
            };
            self.frames.push(frame);
        }
        if !self.watcher.is_complete() {
            self.arm_in(Timer::WatchSetup, self.config.policy.watch_timeout);
        }
    }

    /// Asks for the first page of every list that is wanted.
    pub(super) fn fetch_lists(&mut self) {
        if self.state != State::Ready {
            return;
        }
        let wanted: Vec<List> = self.catalog.to_fetch().collect();
        for list in wanted {
            let missing = method::find(method_of(list)).and_then(|facts| self.is_missing(facts));
            if let Some(what) = missing {
                for call in self.catalog.give_up(list) {
                    self.fail(call, FailureKind::NotOffered { what: what.clone() });
                }
            } else {
                self.catalog.begin(list);
                let wire = self.errands.issue(Errand::Page(list));
                self.frames.push(Frame::Page(wire, list, None));
            }
        }
    }

    fn page(&mut self, list: List, outcome: Reply<'_>) {
        let limits = &self.config.limits;
        let step = self
            .catalog
            .page(list, outcome, self.epoch, self.now, limits);
        match step {
            Some(Step::Complete(listing, waiting)) => {
                for call in waiting {
                    self.settle(call, Outcome::Listed(listing.clone()));
                }
            }
            Some(Step::Failed(broken, waiting)) => {
                for call in waiting {
                    match broken.clone() {
                        Broken::Error(error) => self.settle(call, Outcome::Error(error)),
                        Broken::Invalid(why) => self.fail(call, FailureKind::Invalid { why }),
                    }
                }
            }
            Some(Step::Next(cursor)) => {
                for call in self.catalog.waiting(list) {
                    self.calls.touch(*call, self.now);
                }
                let wire = self.errands.issue(Errand::Page(list));
                self.frames.push(Frame::Page(wire, list, cursor));
            }
            None => {}
        }
    }

    /// Something of no use. It is counted, and some of it is shown.
    fn noise(&mut self, what: &str, bytes: &[u8]) {
        self.stats.noise += 1;
        let Some(life) = &mut self.life else {
            return;
        };
        let shown = life.pipe.noise.heard();
        let run = life.pipe.noise.run();
        if let Some(count) = shown {
            let sample = stdio::sample(bytes, self.config.limits.noise_sample);
            self.tell(Event::Noise(Noise {
                epoch: self.epoch,
                what: what.into(),
                count,
                sample,
            }));
        }
        if self.config.limits.noise_run.is_some_and(|most| run > most) {
            self.down(Cause::Noise);
        }
    }
}

fn as_ref<'a>(outcome: &'a Reply<'a>) -> Result<&'a RawValue, &'a ErrorObject> {
    match outcome {
        Ok(result) => Ok(result),
        Err(error) => Err(error),
    }
}

fn read<'a, T: Deserialize<'a>>(params: Option<&'a RawValue>) -> Option<T> {
    serde_json::from_str(params?.get()).ok()
}

/// The subscription that a notification says it belongs to.
fn subscription(params: Option<&RawValue>) -> Option<Id> {
    let meta = read::<Tagged<'_>>(params)?.meta?;
    let at = object::member(meta.get(), meta::SUBSCRIPTION_ID).ok()??;
    Id::from_json(&meta.get()[at])
}

/// What the server wants to know before it goes on: `None` if that cannot be read.
fn questions(requests: Option<&RawValue>) -> Option<Vec<Question<'_>>> {
    let Some(requests) = requests.filter(|requests| requests.get() != "null") else {
        return Some(Vec::new());
    };
    let mut all = Vec::new();
    let mut readable = true;
    let read = object::members(requests.get(), |key, value| {
        match serde_json::from_str::<Asked<'_>>(value.get()) {
            Ok(asked) => all.push(Question {
                key,
                method: asked.method,
                params: asked.params,
            }),
            Err(_) => readable = false,
        }
    });
    (read.is_ok() && readable).then_some(all)
}

struct Question<'a> {
    key: Cow<'a, str>,
    method: Cow<'a, str>,
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Asked<'a> {
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cancelled<'a> {
    #[serde(borrow)]
    request_id: &'a RawValue,
}

#[derive(Deserialize)]
struct Logged<'a> {
    #[serde(borrow)]
    level: Cow<'a, str>,
    #[serde(borrow)]
    logger: Option<Cow<'a, str>>,
    #[serde(borrow)]
    data: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Progressed<'a> {
    #[serde(borrow)]
    progress_token: &'a RawValue,
    progress: f64,
    total: Option<f64>,
    #[serde(borrow)]
    message: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Tagged<'a> {
    #[serde(borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Updated<'a> {
    #[serde(borrow)]
    uri: Cow<'a, str>,
}
