//! What must always hold of a server end, as seen from outside: from the lines that were fed, the verbs that were called, and
//! what came out. Plays nothing. Each id has a tally of what it may and must be answered; each request that the application
//! was given, each question and each watch has a record of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use everlink::protocol::{Era, LogLevel, Version, meta};
use everlink::server::{Cancelled, Config, Event, ListenEnd, Misuse, Request, State};
use everlink::wire::{self, Id, Inbound, Line, LineReader, Malformed, Message};
use everlink::{
    AskId, Change, Epoch, Fault, Instant, List, Output, RequestId, Server, StreamId, Wake,
};
use serde_json::Value;

use super::script::SECRET;
use super::words::PAYLOAD;
use crate::json::Members;

/// The resolution of the deadlines.
const TICK: Duration = Duration::from_millis(1);

/// The code of an error that names what a client did not declare.
const MISSING_CAPABILITY: i64 = -32021;

/// As many faults are told in the end.
const FAULTS_KEPT: usize = 16;

/// Less than any message weighs while it waits to be written.
const LIGHTEST_FRAME: usize = 48;

#[derive(Debug)]
pub(super) struct Rules {
    config: Config,
    state: State,
    has_released: bool,
    /// What was fed after the last end of a line.
    rest: Vec<u8>,
    has_input_ended: bool,
    is_unwritable: bool,
    faults: Vec<Fault>,
    /// Something may have been lost: the end came by itself.
    is_lossy: bool,
    is_offered: bool,
    tallies: BTreeMap<Id, Tally>,
    /// How many errors without an id may still come.
    nameless: u64,
    /// Requests that were fed, by their marks; `None` where two have the same.
    fed: BTreeMap<u64, Option<Fed>>,
    /// Handshakes that have no answer yet, by id.
    handshakes: BTreeMap<Id, u32>,
    agreed: Option<Version>,
    was_initialized: bool,
    /// The least grave level that a legacy client ever chose.
    chosen_level: Option<LogLevel>,
    subscribed: BTreeSet<String>,
    listens: BTreeMap<Id, Listen>,
    served: BTreeMap<RequestId, Served>,
    /// The states that were given, and for which request.
    states: BTreeMap<String, RequestId>,
    asks: BTreeMap<AskId, Ask>,
    /// The ids that questions had on the wire.
    wires: BTreeMap<Id, AskId>,
    /// What was logged or told and may be sent; it goes out when it was.
    news: BTreeMap<u64, Option<RequestId>>,
    /// Changes of which the legacy client may be told.
    legacy_changes: BTreeSet<Change>,
    under_way: usize,
    counts: Counts,
    burst: Burst,
    draining_since: Option<Instant>,
    flushing_since: Option<Instant>,
}

/// What an id may and must be answered.
#[derive(Debug, Default)]
struct Tally {
    owed: i64,
    optional: i64,
    seen: i64,
}

/// A request as it was fed.
#[derive(Clone, Debug)]
struct Fed {
    id: Id,
    method: String,
    is_modern: bool,
    token: Option<Value>,
    log_level: Option<LogLevel>,
    has_input: bool,
}

/// A request that the application was given.
#[derive(Debug)]
struct Served {
    /// As it came first, if that is known.
    fed: Option<Fed>,
    is_modern: bool,
    /// The ids that it may be answered under, the tokens and the levels that came with them.
    ids: BTreeSet<Id>,
    tokens: Vec<Value>,
    levels: Vec<LogLevel>,
    /// What the application answered.
    given: Option<Given>,
    is_responded: bool,
    is_cancelled: bool,
    /// Its client took it back, for sure and before the answer was written.
    was_taken_back: bool,
    /// Since when its client has questions in the place of an answer.
    away_since: Option<Instant>,
    /// It may be back.
    may_be_back: bool,
    progress: Option<f64>,
}

/// How the application answered.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Given {
    Error,
    Input,
    Result(Value),
}

#[derive(Debug)]
struct Ask {
    mark: u64,
    request: Option<RequestId>,
    is_modern: bool,
    method: String,
    accepted: Instant,
    was_put: bool,
    is_answered: bool,
}

#[derive(Debug, Default)]
struct Listen {
    /// What was asked for and not acknowledged yet.
    wanted: Vec<Value>,
    granted: Option<Value>,
    /// Its end was announced.
    is_ending: bool,
}

#[derive(Debug, Default)]
struct Counts {
    answered: u64,
    cancelled: u64,
    bytes_in: u64,
    bytes_out: u64,
    messages_out: u64,
}

/// What came since nothing waited, and what may have caused it.
#[derive(Debug, Default)]
struct Burst {
    outputs: usize,
    verbs: usize,
    /// The most messages that were fed at once.
    messages: usize,
    before: usize,
}

impl Rules {
    pub(super) fn new(config: &Config) -> Rules {
        let mut config = config.clone();
        // As the docs of `Limits` say of a zero that would stop everything.
        let limits = &mut config.limits;
        limits.write_window = limits.write_window.max(1);
        Rules {
            is_offered: config.offer.is_some(),
            config,
            state: State::Serving,
            has_released: false,
            rest: Vec::new(),
            has_input_ended: false,
            is_unwritable: false,
            faults: Vec::new(),
            is_lossy: false,
            tallies: BTreeMap::new(),
            nameless: 0,
            fed: BTreeMap::new(),
            handshakes: BTreeMap::new(),
            agreed: None,
            was_initialized: false,
            chosen_level: None,
            subscribed: BTreeSet::new(),
            listens: BTreeMap::new(),
            served: BTreeMap::new(),
            states: BTreeMap::new(),
            asks: BTreeMap::new(),
            wires: BTreeMap::new(),
            news: BTreeMap::new(),
            legacy_changes: BTreeSet::new(),
            under_way: 0,
            counts: Counts::default(),
            burst: Burst::default(),
            draining_since: None,
            flushing_since: None,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    pub(super) fn is_mid_line(&self) -> bool {
        !self.rest.is_empty()
    }

    pub(super) fn under_way(&self) -> usize {
        self.under_way
    }

    /// A legacy client has introduced itself, or tried to.
    fn had_handshake(&self) -> bool {
        self.agreed.is_some() || !self.handshakes.is_empty()
    }

    /// The requests that the application has still to answer, the oldest first.
    pub(super) fn open(&self) -> Vec<RequestId> {
        let open = self.served.iter().filter(|(_, served)| served.is_open());
        open.map(|(request, _)| *request).collect()
    }
}

/// What the client says.
impl Rules {
    /// Bytes are about to be fed.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.counts.bytes_in += bytes.len() as u64;
        if self.has_input_ended {
            return;
        }
        self.rest.extend_from_slice(bytes);
        let mut messages = 0;
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            messages += self.line(&line);
        }
        self.burst.messages = self.burst.messages.max(messages);
    }

    /// The end of the input is about to be fed.
    pub(super) fn input_ends(&mut self, faults: &[Fault]) {
        self.faults.extend_from_slice(faults);
        if !self.has_input_ended {
            let line = std::mem::take(&mut self.rest);
            let messages = self.line(&line);
            self.burst.messages = self.burst.messages.max(messages);
            self.has_input_ended = true;
        }
    }

    pub(super) fn sent(&mut self, len: usize) {
        self.under_way = self.under_way.saturating_sub(len);
    }

    pub(super) fn write_fails(&mut self, faults: &[Fault]) {
        self.faults.extend_from_slice(faults);
        self.is_unwritable = true;
        self.is_lossy = true;
    }

    /// How many messages it has, if that is more than it seems.
    fn line(&mut self, line: &[u8]) -> usize {
        let mut reader = LineReader::new(self.config.limits.message_bytes);
        let mut rest = line;
        let read = match reader.next(&mut rest) {
            Some(read) => read,
            None => match reader.finish() {
                Some(read) => read,
                None => return 0,
            },
        };
        match read {
            Line::NotUtf8(_) => self.nameless += 1,
            Line::Oversized(skimmed) => self.useless(skimmed.id, skimmed.is_response),
            Line::Text(text) => match wire::parse(text) {
                Ok(Inbound::One(message)) => self.message(message, true),
                Ok(Inbound::Batch(batch)) => {
                    let messages = batch.len();
                    self.batch(batch);
                    return messages;
                }
                Err(malformed) => self.malformed(malformed),
                Ok(_) => unreachable!("a kind of text that is not known here"),
            },
            _ => unreachable!("a kind of line that is not known here"),
        }
        1
    }

    fn batch(&mut self, batch: wire::Batch<'_>) {
        // Only while a handshake is under way can it not be told which version it is.
        let is_certain = self.handshakes.is_empty();
        self.nameless += 1;
        if is_certain && !self.agreed.is_some_and(Version::allows_batches) {
            return;
        }
        for element in batch {
            match element {
                Ok(Message::Request { id, method, .. }) if method == "initialize" => {
                    self.tally(&id, is_certain);
                }
                Ok(message) => self.message(message, is_certain),
                Err(malformed) if is_certain => self.malformed(malformed),
                Err(malformed) => {
                    self.nameless += 1;
                    if let Some(id) = malformed.id {
                        self.tally(&id, false);
                    }
                }
            }
        }
    }

    fn malformed(&mut self, malformed: Malformed) {
        self.useless(malformed.id, malformed.is_response);
    }

    /// What is no message, but may say whose answer it spoils.
    fn useless(&mut self, id: Option<Id>, is_response: bool) {
        self.nameless += 1;
        if let Some(id) = id.filter(|_| !is_response) {
            // Under an id that is in use, an answer would be taken for another.
            let is_in_use = self.tallies.get(&id).is_some_and(|t| t.most() > 0);
            self.tally(&id, !is_in_use);
        }
    }

    fn tally(&mut self, id: &Id, is_owed: bool) {
        let tally = self.tallies.entry(id.clone()).or_default();
        if is_owed {
            tally.owed += 1;
        } else {
            tally.optional += 1;
        }
    }

    fn message(&mut self, message: Message<'_>, is_certain: bool) {
        let read = |raw: Option<&serde_json::value::RawValue>| {
            let text = raw.map_or("null", |raw| raw.get());
            serde_json::from_str::<Value>(text).unwrap_or_default()
        };
        match message {
            Message::Notification { method, params } => {
                self.told(&method, &read(params), is_certain);
            }
            Message::Request { id, method, params } => {
                if method == "initialize" && self.had_handshake() {
                    self.began_anew();
                }
                self.tally(&id, is_certain);
                self.requested(id, &method, &read(params));
            }
            Message::Response { .. } => {}
            _ => unreachable!("a kind of message that is not known here"),
        }
    }

    fn told(&mut self, method: &str, params: &Value, is_certain: bool) {
        match method {
            "notifications/cancelled" => {
                if let Some(id) = id(&params["requestId"]) {
                    self.taken_back(&id, is_certain);
                }
            }
            "notifications/initialized" => self.was_initialized = true,
            _ => {}
        }
    }

    fn taken_back(&mut self, id: &Id, is_certain: bool) {
        // A handshake cannot be taken back, and of several with one id it cannot be told here which one is.
        let is_known = is_certain && !self.handshakes.contains_key(id);
        if let Some(tally) = self.tallies.get_mut(id) {
            match tally.most() {
                1 if is_known => tally.owed = tally.seen - tally.optional,
                _ => tally.release(),
            }
        }
        if !is_certain {
            return;
        }
        self.listens.remove(id);
        for (request, served) in &mut self.served {
            let is_it = served.fed.as_ref().is_some_and(|fed| fed.id == *id);
            if is_it && served.away_since.is_none() && !served.is_over() {
                served.was_taken_back = true;
                self.news.retain(|_, of| *of != Some(*request));
            }
        }
    }

    /// A legacy client begins anew: what it asked before may be answered, or not.
    fn began_anew(&mut self) {
        for tally in self.tallies.values_mut() {
            tally.release();
        }
    }

    fn requested(&mut self, id: Id, method: &str, params: &Value) {
        let about = &params["_meta"];
        let is_modern = about.get(meta::PROTOCOL_VERSION).is_some()
            || about.get(meta::CLIENT_CAPABILITIES).is_some();
        let level = about[meta::LOG_LEVEL].as_str().and_then(LogLevel::parse);
        let fed = Fed {
            id: id.clone(),
            method: method.to_owned(),
            is_modern,
            token: about.get(meta::PROGRESS_TOKEN).cloned(),
            log_level: level.filter(|_| is_modern),
            has_input: params.get("requestState").is_some()
                || params.get("inputResponses").is_some(),
        };
        match method {
            "initialize" => *self.handshakes.entry(id.clone()).or_default() += 1,
            "logging/setLevel" => {
                if let Some(level) = params["level"].as_str().and_then(LogLevel::parse) {
                    let least = self.chosen_level.map_or(level, |chosen| chosen.min(level));
                    self.chosen_level = Some(least);
                }
            }
            "resources/subscribe" => {
                self.subscribed
                    .extend(params["uri"].as_str().map(str::to_owned));
            }
            "subscriptions/listen" => {
                let listen = self.listens.entry(id.clone()).or_default();
                listen.wanted.push(params["notifications"].clone());
            }
            _ => {}
        }
        let of = params["requestState"].as_str();
        let of = of.and_then(|state| self.states.get(state));
        if let Some(served) = of.and_then(|request| self.served.get_mut(request)) {
            served.ids.insert(id);
            served.tokens.extend(fed.token.clone());
            served.levels.extend(fed.log_level);
            served.may_be_back = true;
        }
        if let Some(mark) = params["mark"].as_u64() {
            let place = self.fed.entry(mark).or_insert_with(|| Some(fed.clone()));
            if place.as_ref().is_some_and(|first| first.id != fed.id) {
                *place = None;
            }
        }
    }
}

/// What the application does.
impl Rules {
    /// It answered a request. `is_told` says that it has heard of all that happened.
    pub(super) fn answered(
        &mut self,
        request: RequestId,
        given: Given,
        outcome: &Result<(), Misuse>,
        is_told: bool,
    ) {
        let is_open = self.is_open(request, outcome.as_ref().err(), is_told);
        if outcome.is_ok() {
            assert!(is_open, "{request} is over and was answered");
            self.counts.answered += 1;
            if let Some(served) = self.served.get_mut(&request) {
                served.given = Some(given);
            }
        }
    }

    /// It did something else for a request.
    pub(super) fn did(&mut self, request: RequestId, misuse: Option<&Misuse>, is_told: bool) {
        let is_open = self.is_open(request, misuse, is_told);
        assert!(
            is_open || misuse.is_some(),
            "{request} is over and was used"
        );
    }

    fn is_open(&mut self, request: RequestId, misuse: Option<&Misuse>, is_told: bool) -> bool {
        self.burst.verbs += 1;
        let served = self.served.get(&request);
        let is_open = served.is_some_and(Served::is_open) && !self.is_closed();
        if let Some(misuse) = misuse {
            assert!(!misuse.to_string().is_empty());
            let is_unknown = *misuse == Misuse::UnknownRequest;
            assert!(
                !(is_unknown && is_open && is_told),
                "{request} is not known"
            );
        }
        is_open
    }

    /// It asked something, and the server took it.
    pub(super) fn asked(
        &mut self,
        ask: AskId,
        request: Option<RequestId>,
        (mark, method): (u64, &str),
        now: Instant,
        is_told: bool,
    ) {
        self.burst.verbs += 1;
        assert!(!self.is_closed(), "a closed server asks");
        let is_modern = request.is_some_and(|request| self.served[&request].is_modern);
        let before = self.asks.insert(
            ask,
            Ask {
                mark,
                request,
                is_modern,
                method: method.to_owned(),
                accepted: now,
                was_put: false,
                is_answered: false,
            },
        );
        assert!(before.is_none(), "{ask} was there before");
        let open = self.asks.values().filter(|ask| !ask.is_answered).count();
        assert!(
            open <= self.config.limits.asks || !is_told,
            "(9) {open} questions are open"
        );
    }

    /// It takes back a question: `Ok` if it was open.
    pub(super) fn withdrew(&mut self, ask: AskId, outcome: &Result<(), Misuse>, is_told: bool) {
        self.burst.verbs += 1;
        let is_open = self.asks.get(&ask).is_some_and(|ask| !ask.is_answered);
        assert!(outcome.is_err() || is_open, "{ask} was taken back twice");
        assert!(
            outcome.is_ok() || !is_open || !is_told,
            "{ask} is not known"
        );
    }

    /// It logged something for a request, or for everybody; this mark is in it.
    pub(super) fn logged(&mut self, request: Option<RequestId>, level: LogLevel, mark: u64) {
        self.burst.verbs += 1;
        let least = self.chosen_level.map_or(self.config.log_level, |chosen| {
            chosen.min(self.config.log_level)
        });
        let has_legacy = self.had_handshake();
        let is_legacy = request.is_none_or(|request| !self.served[&request].is_modern);
        let wants =
            |served: &Served| !served.is_over() && served.levels.iter().any(|l| level >= *l);
        let modern = match request {
            Some(request) => wants(&self.served[&request]),
            None => self.served.values().any(wants),
        };
        // Of a request that was not polled yet it cannot be told here what it wants.
        let unknown = request.is_none()
            && self
                .fed
                .values()
                .flatten()
                .any(|fed| fed.log_level.is_some());
        if is_legacy && has_legacy && level >= least || modern || unknown {
            self.news.insert(mark, request);
        }
    }

    /// It told something that has this mark.
    pub(super) fn notified(&mut self, mark: u64, outcome: &Result<(), Misuse>) {
        self.burst.verbs += 1;
        if outcome.is_ok() {
            self.news.insert(mark, None);
        }
    }

    pub(super) fn published(&mut self, change: &Change, outcome: &Result<(), Misuse>) {
        // Every watch may hear of it.
        self.burst.verbs += 1 + self.listens.len();
        if outcome.is_ok() {
            let change = match change {
                Change::List(List::ResourceTemplates) => Change::List(List::Resources),
                change => change.clone(),
            };
            let above = match &change {
                // Where much waits to be written, the address that is watched stands for all below it.
                Change::Resource { uri } => {
                    let above = self.subscribed.iter().filter(|above| covers(above, uri));
                    above.map(|above| above.as_str().into()).collect()
                }
                _ => Vec::new(),
            };
            if !above.is_empty() || matches!(change, Change::List(_)) {
                self.legacy_changes.insert(change);
            }
            let above = above.into_iter().map(|uri| Change::Resource { uri });
            self.legacy_changes.extend(above);
        }
    }

    pub(super) fn offered(&mut self) {
        self.is_offered = true;
    }
}

/// What comes out.
impl Rules {
    /// One output, with the bytes that came with it.
    pub(super) fn output(&mut self, output: &Output<Event>, bytes: &[u8], now: Instant) {
        assert!(!self.is_closed(), "{output:?} after the end");
        self.burst.outputs += 1;
        let shown = format!("{output:?}");
        assert_nothing_secret(&shown);
        match output {
            Output::Event(event) => {
                assert!(bytes.is_empty());
                self.event(event, now);
            }
            Output::Release { epoch } => {
                assert_eq!(*epoch, Epoch::FIRST);
                assert!(!self.has_released, "released twice");
                self.has_released = true;
            }
            Output::Write { epoch, stream, len } => {
                assert_eq!((*epoch, *stream), (Epoch::FIRST, StreamId::DUPLEX));
                assert_eq!(bytes.len(), *len);
                assert!(
                    !self.has_released && !self.is_unwritable,
                    "written to nobody"
                );
                let window = self.config.limits.write_window;
                let under_way = self.under_way;
                assert!(
                    under_way < window,
                    "(9) written although {under_way} are under way"
                );
                self.under_way += len;
                self.counts.messages_out += 1;
                self.counts.bytes_out += *len as u64;
                self.written(bytes, now);
            }
            other => panic!("{other:?} means nothing for a server end"),
        }
    }

    fn event(&mut self, event: &Event, now: Instant) {
        assert!(
            !self.has_released || matches!(event, Event::Closed { .. }),
            "{event:?} after the release"
        );
        match event {
            Event::Answered {
                ask,
                request,
                outcome,
            } => {
                let open = self.asks.get_mut(ask).expect("a question that was asked");
                assert!(!open.is_answered, "(1) {ask} has a second outcome");
                open.is_answered = true;
                assert_eq!(*request, open.request, "{ask}");
                if let Ok(answer) = outcome {
                    assert!(open.was_put, "{ask} was answered before it was put");
                    let answer: Value = answer.parse().unwrap_or_default();
                    if let Some(of) = answer["of"].as_u64() {
                        assert_eq!(of, open.mark, "{ask} has the answer to another");
                    }
                }
            }
            Event::Cancelled { request, why } => self.cancelled(*request, why),
            Event::Closed { faults } => {
                assert!(self.has_released, "closed without a release");
                let kept = self.faults.len().min(FAULTS_KEPT);
                assert_eq!(*faults, self.faults[..kept], "other faults");
                self.state = State::Closed;
                self.closed();
            }
            Event::Draining { .. } => {
                assert_eq!(self.state, State::Serving, "it drains twice");
                self.state = State::Draining;
                self.draining_since = Some(now);
            }
            Event::Request(request) => self.delivered(request),
            Event::Initialized => {
                let is_due = self.was_initialized && self.had_handshake();
                assert!(is_due, "nobody is here");
            }
            Event::Met(_) | Event::Noise(_) | Event::Notified { .. } | Event::Watching(_) => {}
            other => panic!("{other:?} is not known here"),
        }
    }

    fn delivered(&mut self, request: &Request) {
        let name = request.request;
        let is_modern = request.peer.version.era() == Era::Modern;
        let params = request
            .params
            .as_ref()
            .map(|params| params.parse::<Value>());
        let params = params.and_then(Result::ok).unwrap_or_default();
        let mark = params["mark"].as_u64();
        let fed = mark.and_then(|mark| self.fed.get(&mark)).cloned().flatten();
        for key in ["inputResponses", "requestState"] {
            let is_told = request.input.is_none() || params.get(key).is_none();
            assert!(is_told, "{key} is told twice");
        }
        for key in meta::OF_THE_LINK {
            assert_eq!(params["_meta"].get(key), None, "{key} is between the ends");
        }
        if let Some(fed) = &fed {
            assert_eq!(request.method, fed.method);
            let is_understood =
                fed.is_modern && self.config.versions.newest_of(Era::Modern).is_some();
            assert_eq!(is_modern, is_understood, "{name} is served by other terms");
            let token = fed.token.as_ref().and_then(id);
            assert_eq!(request.wants_progress, token.is_some());
            assert_eq!(request.log_level, fed.log_level.filter(|_| is_modern));
            assert!(
                request.input.is_none() || fed.has_input,
                "{name} has input of nobody"
            );
            for (other, served) in &self.served {
                let other_id = served.fed.as_ref().map(|fed| &fed.id);
                let is_waited_for = !served.is_over() && !served.was_taken_back;
                // What a legacy client was to be told is dropped when it begins anew.
                let is_held = served.is_open() || served.is_modern;
                let is_waited_for = is_waited_for && is_held && served.away_since.is_none();
                let is_twice = is_waited_for && other_id == Some(&fed.id);
                assert!(!is_twice, "{name} and {other} have the id {}", fed.id);
            }
        }
        let before = self.served.insert(
            name,
            Served {
                is_modern,
                ids: fed.iter().map(|fed| fed.id.clone()).collect(),
                tokens: fed.iter().filter_map(|fed| fed.token.clone()).collect(),
                levels: request.log_level.into_iter().collect(),
                fed,
                given: None,
                is_responded: false,
                is_cancelled: false,
                was_taken_back: false,
                away_since: None,
                may_be_back: false,
                progress: None,
            },
        );
        assert!(before.is_none(), "{name} was there before");
    }

    fn cancelled(&mut self, request: RequestId, why: &Cancelled) {
        let served = self.served.get_mut(&request).expect("a request");
        assert!(!served.is_cancelled, "{request} is cancelled twice");
        assert!(
            !served.is_responded,
            "{request} is cancelled after its answer"
        );
        assert_eq!(
            served.given, None,
            "{request} is cancelled after it was answered"
        );
        served.is_cancelled = true;
        self.counts.cancelled += 1;
        match why {
            Cancelled::Anew => assert!(!served.is_modern, "{request} needs no handshake"),
            Cancelled::ByPeer { .. } => {}
            Cancelled::NotResumed => {
                assert!(served.away_since.is_some(), "{request} did not leave");
            }
            Cancelled::OutOfTime => assert_eq!(self.state, State::Draining),
            Cancelled::PeerGone => {
                let is_gone =
                    self.has_input_ended || self.is_unwritable || self.state == State::Draining;
                assert!(is_gone, "nobody is gone");
            }
            other => panic!("{other:?} is not known here"),
        }
    }

    fn closed(&self) {
        for (request, served) in &self.served {
            assert!(!served.is_open(), "(1) closed with {request} open");
        }
        for (ask, open) in &self.asks {
            assert!(open.is_answered, "(1) closed with {ask} open");
        }
    }

    fn written(&mut self, bytes: &[u8], now: Instant) {
        let line = bytes.strip_suffix(b"\n").expect("a line");
        let broken = line.iter().any(|byte| matches!(byte, b'\n' | b'\r'));
        assert!(!broken, "two lines in one");
        let text = std::str::from_utf8(line).expect("UTF-8");
        let message: Value = serde_json::from_str(text).expect("JSON");
        assert_no_twins(text);
        assert_eq!(message["jsonrpc"], "2.0", "{text}");
        let (has_id, method) = (message.get("id"), message["method"].as_str());
        match (has_id, method) {
            (Some(id), Some(method)) => self.put(id, method, &message["params"]),
            (None, Some(method)) => self.notification(method, &message["params"]),
            (_, None) => self.response(&message, now),
        }
    }

    /// A question goes out as a request.
    fn put(&mut self, wire: &Value, method: &str, params: &Value) {
        assert!(
            self.agreed.is_some() && self.was_initialized,
            "nobody can be asked {method}"
        );
        let wire = id(wire).expect("an id");
        let mark = params["ask"].as_u64().expect("a question of ours");
        let (ask, open) = self.ask(mark);
        assert!(!open.is_modern, "{ask} is put to a modern client");
        assert_eq!(open.method, method);
        assert!(!open.was_put, "{ask} is put twice");
        open.was_put = true;
        let before = self.wires.insert(wire, ask);
        assert!(before.is_none(), "{ask} has the id of {before:?}");
    }

    /// A question that goes out and has no outcome yet.
    fn ask(&mut self, mark: u64) -> (AskId, &mut Ask) {
        let found = self.asks.iter_mut().find(|(_, ask)| ask.mark == mark);
        let (ask, open) = found.expect("a question that was asked");
        assert!(!open.is_answered, "{ask} is put after its outcome");
        (*ask, open)
    }

    fn notification(&mut self, method: &str, params: &Value) {
        let tag = params["_meta"].get(meta::SUBSCRIPTION_ID);
        if let Some(tag) = tag {
            let tag = id(tag).expect("the id of a watch");
            return self.heard_on(&tag, method, params);
        }
        match method {
            "notifications/cancelled" => {
                let of = id(&params["requestId"]).expect("an id");
                let asked = self.wires.get(&of);
                let is_ask = asked.is_some_and(|ask| self.asks[ask].is_answered);
                let announces = self.config.listen_end == ListenEnd::CancelledThenResult;
                let listen = self.listens.get_mut(&of).filter(|_| announces);
                match listen.filter(|listen| listen.granted.is_some() && !listen.is_ending) {
                    Some(listen) if self.state != State::Serving => listen.is_ending = true,
                    _ => assert!(is_ask, "{of} is taken back"),
                }
            }
            "notifications/message" => self.news(&params["data"]["mark"]),
            "notifications/progress" => self.progressed(params),
            "notifications/prompts/list_changed" => self.changed(&Change::List(List::Prompts)),
            "notifications/resources/list_changed" => self.changed(&Change::List(List::Resources)),
            "notifications/tools/list_changed" => self.changed(&Change::List(List::Tools)),
            "notifications/resources/updated" => {
                let uri = params["uri"].as_str().expect("an address");
                self.changed(&Change::Resource { uri: uri.into() });
            }
            _ => self.news(&params["mark"]),
        }
    }

    fn news(&mut self, mark: &Value) {
        let mark = mark.as_u64().expect("news of ours");
        assert!(
            self.news.remove(&mark).is_some(),
            "nobody wants to hear this, or it was said"
        );
    }

    /// The legacy client hears of a change.
    fn changed(&mut self, change: &Change) {
        assert!(
            self.agreed.is_some() && self.was_initialized,
            "nobody hears {change:?}"
        );
        let may = self.legacy_changes.remove(change);
        assert!(may, "{change:?} is no news, or nobody asked");
    }

    fn progressed(&mut self, params: &Value) {
        let number = params["total"].as_u64().expect("the number of a request");
        let found = self
            .served
            .iter_mut()
            .find(|(name, _)| name.number() == number);
        let (request, served) = found.expect("a request");
        let is_waited_for = served.away_since.is_none() || served.may_be_back;
        let is_live = !served.is_over() && !served.was_taken_back && is_waited_for;
        assert!(is_live, "{request} gets on after its end");
        if served.fed.is_some() {
            assert!(
                served.tokens.contains(&params["progressToken"]),
                "{request} has another token"
            );
        }
        let progress = params["progress"].as_f64().expect("a number");
        assert!(
            served.progress.is_none_or(|before| progress > before),
            "{request} falls back"
        );
        served.progress = Some(progress);
    }

    fn heard_on(&mut self, tag: &Id, method: &str, params: &Value) {
        let listen = self.listens.get_mut(tag);
        let listen = listen.unwrap_or_else(|| panic!("{method} on {tag}, which is over"));
        if method == "notifications/subscriptions/acknowledged" {
            assert_eq!(listen.granted, None, "{tag} is acknowledged twice");
            let granted = &params["notifications"];
            let fits = listen
                .wanted
                .iter()
                .any(|wanted| is_within(granted, wanted));
            assert!(
                fits,
                "{tag}: {granted} is granted, {:?} was wanted",
                listen.wanted
            );
            listen.granted = Some(granted.clone());
            listen.wanted.clear();
            return;
        }
        let granted = listen.granted.as_ref();
        let granted = granted.unwrap_or_else(|| panic!("{method} on {tag} before it begins"));
        assert!(
            !listen.is_ending,
            "{method} on {tag} after its end was announced"
        );
        let may = match method {
            "notifications/prompts/list_changed" => granted["promptsListChanged"] == true,
            "notifications/resources/list_changed" => granted["resourcesListChanged"] == true,
            "notifications/tools/list_changed" => granted["toolsListChanged"] == true,
            "notifications/resources/updated" => {
                let uri = params["uri"].as_str().expect("an address");
                let mut above = granted["resourceSubscriptions"]
                    .as_array()
                    .into_iter()
                    .flatten();
                above.any(|above| above.as_str().is_some_and(|above| covers(above, uri)))
            }
            _ => false,
        };
        assert!(may, "{method} on {tag}, which has {granted}");
    }

    fn response(&mut self, message: &Value, now: Instant) {
        let (result, error) = (message.get("result"), message.get("error"));
        assert!(
            result.is_some() != error.is_some(),
            "no response: {message}"
        );
        let Some(of) = message.get("id") else {
            assert!(error.is_some() && self.nameless > 0, "an error for nothing");
            self.nameless -= 1;
            return;
        };
        let of = id(of).expect("an id");
        let tally = self.tallies.entry(of.clone()).or_default();
        tally.seen += 1;
        assert!(
            tally.most() >= 0,
            "(1) {of} is answered more often than it was asked"
        );
        let is_settled = tally.most() == 0;
        if let Some(result) = result {
            assert!(result.is_object(), "a result that is no object");
            self.result(&of, result, now);
        }
        if let Some(error) = error {
            assert!(
                error["code"].is_i64() && error["message"].is_string(),
                "{error}"
            );
            if let Some(number) = error["data"]["echo"].as_u64() {
                self.responded(number, &of, &Given::Error);
            } else if error["code"] == MISSING_CAPABILITY {
                self.could_not_be_asked(&of);
            }
        }
        if is_settled {
            self.handshakes.remove(&of);
        }
    }

    fn result(&mut self, of: &Id, result: &Value, now: Instant) {
        if let Some(tag) = result["_meta"].get(meta::SUBSCRIPTION_ID) {
            assert_eq!(id(tag).as_ref(), Some(of), "another watch ends");
            let listen = self.listens.remove(of);
            let listen = listen.unwrap_or_else(|| panic!("{of} ends after it was over"));
            assert!(listen.granted.is_some(), "{of} ends before it began");
            let announces = self.config.listen_end == ListenEnd::CancelledThenResult;
            assert_eq!(listen.is_ending, announces);
        } else if let Some(version) = result["protocolVersion"].as_str() {
            let version = Version::parse(version).expect("a version");
            assert!(version.era() == Era::Legacy && self.config.versions.contains(version));
            let handshake = self.handshakes.get_mut(of).expect("a handshake");
            *handshake -= 1;
            if *handshake == 0 {
                self.handshakes.remove(of);
            }
            self.agreed = Some(version);
        } else if result["resultType"] == "input_required" {
            self.wants_input(of, result, now);
        } else if let Some(number) = result["echo"].as_u64() {
            self.responded(number, of, &Given::Result(result.clone()));
        }
    }

    /// Questions in the place of an answer: of the machine, or of the application.
    fn wants_input(&mut self, of: &Id, result: &Value, now: Instant) {
        let state = result["requestState"].as_str();
        let questions = result["inputRequests"].as_object();
        let own = state.and_then(|state| state.strip_prefix("everlink."));
        let Some(own) = own else {
            let keys = questions.into_iter().flatten().map(|(key, _)| &**key);
            let number = keys
                .chain(state)
                .find_map(|text| text.split('-').nth(1)?.parse().ok());
            let number = number.expect("input that was wanted");
            return self.responded(number, of, &Given::Input);
        };
        let number = own
            .split('.')
            .next()
            .and_then(|hex| u64::from_str_radix(hex, 16).ok());
        let number = number.expect("the number of a request");
        let found = self
            .served
            .iter_mut()
            .find(|(name, _)| name.number() == number);
        let (request, served) = found.expect("a request");
        assert!(served.is_modern, "{request} is a legacy one");
        assert!(
            !served.is_over() && !served.was_taken_back,
            "{request} is over"
        );
        assert_eq!(served.given, None, "{request} is answered already");
        let has_left = served.away_since.is_some() && !served.may_be_back;
        assert!(!has_left, "{request} is asked twice in one round");
        assert!(
            served.fed.is_none() || served.ids.contains(of),
            "{request} under {of}"
        );
        served.away_since = Some(now);
        served.may_be_back = false;
        served.progress = None;
        let request = *request;
        self.states
            .extend(state.map(|state| (state.to_owned(), request)));
        for question in questions.into_iter().flat_map(|all| all.values()) {
            let mark = question["params"]["ask"]
                .as_u64()
                .expect("a question of ours");
            let (ask, open) = self.ask(mark);
            assert!(open.is_modern, "{ask} is for a legacy client");
            assert_eq!(
                (open.request, &*open.method),
                (
                    Some(request),
                    question["method"].as_str().unwrap_or_default()
                )
            );
            open.was_put = true;
        }
    }

    /// A client came back for what was wanted of it, and does not say any more that it can be asked.
    fn could_not_be_asked(&mut self, of: &Id) {
        let is_it = |served: &&mut Served| {
            let was_back = served.may_be_back && served.ids.contains(of);
            was_back && served.given == Some(Given::Input) && !served.is_over()
        };
        if let Some(served) = self.served.values_mut().find(is_it) {
            served.is_responded = true;
        }
    }

    /// What the application answered is written.
    fn responded(&mut self, number: u64, of: &Id, seen: &Given) {
        let found = self
            .served
            .iter_mut()
            .find(|(name, _)| name.number() == number);
        let (request, served) = found.expect("a request");
        assert!(!served.is_responded, "(1) {request} is answered twice");
        assert!(
            !served.is_cancelled && !served.was_taken_back,
            "{request} was taken back"
        );
        assert!(
            served.fed.is_none() || served.ids.contains(of),
            "{request} under {of}"
        );
        let has_left = served.away_since.is_some() && !served.may_be_back;
        assert!(
            !has_left,
            "{request} is answered although its client is away"
        );
        served.is_responded = true;
        match (seen, &served.given) {
            (Given::Result(seen), Some(Given::Result(given))) if served.is_modern => {
                let kind = given.get("resultType").and_then(Value::as_str);
                assert_eq!(
                    seen["resultType"].as_str(),
                    Some(kind.unwrap_or("complete"))
                );
                for (key, value) in given.as_object().into_iter().flatten() {
                    assert!(
                        &seen[key] == value || key == "_meta",
                        "{key} of {request} is another"
                    );
                }
            }
            (seen, given) => assert_eq!(Some(seen), given.as_ref(), "the answer of {request}"),
        }
    }
}

/// What holds when nothing happens.
impl Rules {
    /// Something was fed, called or timed.
    pub(super) fn stepped(&self, server: &Server) {
        assert_nothing_secret(&format!("{server:?}"));
        if self.is_closed() {
            assert_eq!(server.state(), State::Closed, "a closed server stirs");
        }
    }

    /// Nothing is left to poll. `is_prompt` says that nothing was left before the last step, either.
    pub(super) fn drained(&mut self, server: &Server, is_prompt: bool) {
        assert_eq!(
            server.state(),
            self.state,
            "(2) the events tell another story"
        );
        let next = server.poll_timeout();
        let waits = next.is_some_and(|next| next.wake == Wake::Output);
        assert!(!waits, "(10) output waits and cannot be polled");
        if let Some(due) = self.next_due().filter(|_| is_prompt) {
            let at = next.map(|next| next.at);
            assert!(
                at.is_some_and(|at| at <= due),
                "(10) due at {due:?}, but {next:?}"
            );
        }
        let stats = server.stats();
        let counts = &self.counts;
        assert_eq!(stats.requests, self.served.len() as u64);
        assert_eq!(stats.answered, counts.answered);
        assert_eq!(stats.cancelled, counts.cancelled);
        assert_eq!(stats.asks, self.asks.len() as u64);
        assert_eq!(stats.messages_out, counts.messages_out);
        assert_eq!(stats.bytes_out, counts.bytes_out);
        assert_eq!(stats.bytes_in, counts.bytes_in);
        let over = self.served.values().filter(|served| served.is_over());
        let dropped = usize::try_from(stats.answers_dropped).expect("few");
        let unfinished = self.served.len() - over.count() - dropped;
        if self.is_offered && self.under_way < self.config.limits.write_window {
            assert_eq!(server.requests(), unfinished, "(2) other requests are held");
        }
        for (request, served) in &self.served {
            let is_ignored = served.was_taken_back && served.is_open();
            assert!(!is_ignored, "{request} was taken back in vain");
        }
        self.judge_burst(unfinished);
    }

    /// What waited to be polled was bounded: by the limits, by what was fed at once, and by what the application did.
    fn judge_burst(&mut self, unfinished: usize) {
        let limits = &self.config.limits;
        let open = self.asks.values().filter(|ask| !ask.is_answered).count();
        let now = unfinished + open + self.listens.len();
        let burst = std::mem::take(&mut self.burst);
        let queued =
            limits.queued_bytes / LIGHTEST_FRAME + limits.undelivered_bytes / size_of::<Event>();
        let causes = queued + burst.verbs + burst.messages + burst.before.max(now);
        if self.is_offered {
            assert!(
                burst.outputs <= 16 + 4 * causes,
                "(9) {} waited: {burst:?}",
                burst.outputs
            );
        }
        self.burst.before = now;
    }

    /// The earliest time at which something must happen by itself.
    fn next_due(&self) -> Option<Instant> {
        if self.is_closed() {
            return None;
        }
        let wait = self.config.ask_timeout.max(TICK);
        let asks = self.asks.values().filter(|ask| !ask.is_answered);
        let asks = asks.map(|ask| ask.accepted + wait);
        let away = self.served.values().filter(|served| served.is_away());
        let away = away
            .filter_map(|served| served.away_since)
            .map(|since| since + wait);
        let drain = self
            .draining_since
            .filter(|_| self.flushing_since.is_none());
        let drain = drain.map(|since| since + self.config.drain.max(TICK));
        let flush = self
            .flushing_since
            .map(|since| since + self.config.flush.max(TICK));
        let due = asks.chain(away).chain(drain).chain(flush).min();
        due.filter(|due| *due < Instant::MAX)
    }

    /// The server was told that it is `now`.
    pub(super) fn told_time(&mut self, now: Instant) {
        let drain = self.config.drain.max(TICK);
        let drained = self
            .draining_since
            .is_some_and(|since| since + drain <= now);
        if drained && self.flushing_since.is_none() {
            self.flushing_since = Some(now);
        }
    }

    /// The server was told that it is `now`, and polled: what was due then has happened.
    pub(super) fn timed(&mut self, now: Instant) {
        if self.is_closed() {
            return;
        }
        let is_cut_short = self.flushing_since.is_none() || self.open().is_empty();
        assert!(is_cut_short, "(13) a request outlives the drain");
        if let Some(due) = self.next_due() {
            assert!(due > now, "(10) {due:?} has passed, it is {now:?}");
        }
    }

    /// The time brought the end: what could not be written until then is lost.
    pub(super) fn ended_by_time(&mut self) {
        self.is_lossy = true;
    }

    /// All that the client said was read, all that it asked was answered, and all that there was to say was written.
    pub(super) fn quiet(&self, server: &Server) {
        if self.is_closed() {
            let responded = self.served.values().filter(|served| served.is_responded);
            let stats = server.stats();
            let answers = responded.count() as u64 + stats.answers_dropped;
            assert_eq!(stats.answered, answers, "an answer went astray");
        } else {
            let wants = server.wants_input(StreamId::DUPLEX);
            assert!(wants, "(9) nothing waits, and no input is wanted");
        }
        for (of, tally) in self.tallies.iter().filter(|_| !self.is_lossy) {
            let listens = self
                .listens
                .get(of)
                .map_or(0, |listen| i64::from(listen.granted.is_some()));
            let missing = tally.owed - tally.seen;
            assert!(missing <= listens, "(1) {of} is not answered: {tally:?}");
        }
    }
}

impl Tally {
    /// What must still come may come, or not.
    fn release(&mut self) {
        let open = (self.owed - self.seen).max(0);
        self.owed -= open;
        self.optional += open;
    }

    /// How many answers may still come.
    fn most(&self) -> i64 {
        self.owed + self.optional - self.seen
    }
}

impl Served {
    fn is_over(&self) -> bool {
        self.is_responded || self.is_cancelled
    }

    /// The application has still to answer it.
    fn is_open(&self) -> bool {
        self.given.is_none() && !self.is_over()
    }

    /// Its client has questions in the place of an answer, and did not come back.
    fn is_away(&self) -> bool {
        self.away_since.is_some() && !self.may_be_back && self.is_open()
    }
}

fn id(value: &Value) -> Option<Id> {
    Id::from_json(&value.to_string())
}

/// Whether `below` is `above`, or lies below it.
fn covers(above: &str, below: &str) -> bool {
    let rest = below.strip_prefix(above);
    rest.is_some_and(|rest| rest.is_empty() || above.ends_with('/') || rest.starts_with('/'))
}

/// Whether all that is granted was wanted.
fn is_within(granted: &Value, wanted: &Value) -> bool {
    let mut granted = granted.as_object().into_iter().flatten();
    granted.all(|(key, value)| match value {
        Value::Array(uris) => {
            let wanted = wanted[key].as_array();
            uris.iter()
                .all(|uri| wanted.is_some_and(|wanted| wanted.contains(uri)))
        }
        value => wanted[key] == *value,
    })
}

/// Neither a message nor what it carries has a member twice.
fn assert_no_twins(text: &str) {
    let members = Members::read(text).expect("an object");
    for name in ["result", "params", "error"] {
        let inner = members.member(name).and_then(Members::read);
        for (key, _) in inner.iter().flat_map(|inner| &inner.0) {
            let key = String::from_utf8_lossy(key);
            let inner = inner.as_ref().expect("it is there");
            assert_eq!(inner.count(&key), 1, "{key} is there twice: {text}");
        }
    }
    for (key, _) in &members.0 {
        assert_eq!(members.count(&String::from_utf8_lossy(key)), 1, "{text}");
    }
}

fn assert_nothing_secret(shown: &str) {
    assert!(!shown.contains(PAYLOAD), "(15) a payload is shown: {shown}");
    let secret = String::from_utf8_lossy(&SECRET);
    assert!(!shown.contains(&*secret), "(15) the secret is shown");
    let numbers = format!("{SECRET:?}");
    assert!(!shown.contains(&numbers), "(15) the secret is shown");
}
