//! What must always hold of a server end, as seen from outside: from the lines that were fed, the verbs that were called, and
//! what came out. Plays nothing. What is said on the wire is judged as a dialogue; in here each request that the application was
//! given and each question has a record of its own.

mod look;
mod outputs;
mod rest;
mod verbs;
mod writes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use std::time::Duration;

use everlink::protocol::{LogLevel, Version, meta};
use everlink::server::{Config, State};
use everlink::wire::Id;
use everlink::{AskId, Change, Fault, Instant, RequestId};
use serde_json::Value;

use super::script::SECRET;
use super::words::PAYLOAD;
use crate::dialogue::{Dialogue, Said};

/// The resolution of the deadlines.
const TICK: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct Rules {
    config: Config,
    state: State,
    has_released: bool,
    dialogue: Dialogue,
    is_unwritable: bool,
    faults: Vec<Fault>,
    /// Something may have been lost: the end came by itself.
    is_lossy: bool,
    is_offered: bool,
    /// Requests that were fed, by their marks; `None` where two have the same.
    fed: BTreeMap<u64, Option<Fed>>,
    /// The least grave level that a legacy client ever chose.
    chosen_level: Option<LogLevel>,
    subscribed: BTreeSet<String>,
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
    /// The terms of whoever was told of last.
    met: Option<Version>,
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
    /// Its client may have taken it back: an answer that was not written yet is dropped then, without a word.
    may_be_taken_back: bool,
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
    /// Something was taken back under its id.
    was_taken_back: bool,
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
    pub(in crate::server) fn new(config: &Config) -> Rules {
        let mut config = config.clone();
        // As the docs of `Limits` say of a zero that would stop everything.
        let limits = &mut config.limits;
        limits.write_window = limits.write_window.max(1);
        Rules {
            is_offered: config.offer.is_some(),
            dialogue: Dialogue::new(&config),
            config,
            state: State::Serving,
            has_released: false,
            is_unwritable: false,
            faults: Vec::new(),
            is_lossy: false,
            fed: BTreeMap::new(),
            chosen_level: None,
            subscribed: BTreeSet::new(),
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
            met: None,
        }
    }

    pub(in crate::server) fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    pub(in crate::server) fn is_mid_line(&self) -> bool {
        self.dialogue.is_mid_line()
    }

    pub(in crate::server) fn under_way(&self) -> usize {
        self.under_way
    }

    /// The requests that the application has still to answer, the oldest first.
    pub(in crate::server) fn open(&self) -> Vec<RequestId> {
        let open = self.served.iter().filter(|(_, served)| served.is_open());
        open.map(|(request, _)| *request).collect()
    }
}

/// What the client says.
impl Rules {
    /// Bytes are about to be fed.
    pub(in crate::server) fn bytes(&mut self, bytes: &[u8]) {
        self.counts.bytes_in += bytes.len() as u64;
        let (said, messages) = self.dialogue.fed(bytes);
        self.said(said, messages);
    }

    /// The end of the input is about to be fed.
    pub(in crate::server) fn input_ends(&mut self, faults: &[Fault]) {
        self.faults.extend_from_slice(faults);
        let (said, messages) = self.dialogue.ended();
        self.said(said, messages);
    }

    fn said(&mut self, said: Vec<Said>, messages: usize) {
        self.burst.messages = self.burst.messages.max(messages);
        for said in said {
            match said {
                Said::Cancel(id) => self.taken_back(&id),
                Said::MaybeCancel(id) => self.may_be_taken_back(&id),
                Said::Request { id, method, params } => self.requested(id, &method, &params),
            }
        }
    }

    pub(in crate::server) fn sent(&mut self, len: usize) {
        self.under_way = self.under_way.saturating_sub(len);
    }

    pub(in crate::server) fn write_fails(&mut self, faults: &[Fault]) {
        self.faults.extend_from_slice(faults);
        self.is_unwritable = true;
        self.is_lossy = true;
    }

    fn taken_back(&mut self, id: &Id) {
        for (request, served) in &mut self.served {
            let is_it = served.fed.as_ref().is_some_and(|fed| fed.id == *id);
            if is_it && served.away_since.is_none() && !served.is_over() {
                served.was_taken_back = true;
                self.news.retain(|_, of| *of != Some(*request));
            }
        }
    }

    fn may_be_taken_back(&mut self, id: &Id) {
        let of_it = |served: &&mut Served| served.fed.as_ref().is_some_and(|fed| fed.id == *id);
        for served in self.served.values_mut().filter(of_it) {
            served.may_be_taken_back = true;
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

/// Neither payloads nor the secret may be shown.
pub(crate) fn assert_nothing_secret(shown: &str) {
    static SECRETS: OnceLock<[String; 2]> = OnceLock::new();
    let secrets = SECRETS.get_or_init(|| {
        let text = String::from_utf8_lossy(&SECRET).into_owned();
        [text, format!("{SECRET:?}")]
    });
    assert!(!shown.contains(PAYLOAD), "(15) a payload is shown: {shown}");
    let is_told = secrets.iter().any(|secret| shown.contains(secret));
    assert!(!is_told, "(15) the secret is shown");
}
