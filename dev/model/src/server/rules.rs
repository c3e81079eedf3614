//! The rules for a server over a byte stream, seen from outside: from the lines that were fed, the verbs that were called, and the
//! outputs. Performs nothing. The messages are judged as a conversation; in here each request that the application was
//! given and each question has a record.

mod outputs;
mod writes;

pub(crate) use outputs::params_of;

use std::collections::{BTreeMap, BTreeSet};

use everlink::Id;
use everlink::protocol::{LogLevel, Version, meta};
use everlink::server::{Config, Event, Misuse, State};
use everlink::{AskId, Change, Fault, Instant, List, RequestId, Server, StreamId};
use serde_json::Value;

use crate::conversation::{Conversation, Said, covers};
use crate::explore::StateView;
use crate::ledger::Ledger;
use crate::world::TICK;

/// Less than any message takes while it waits to be written.
const SMALLEST_FRAME: usize = 48;

#[derive(Debug)]
pub(super) struct Rules {
    config: Config,
    state: State,
    has_released: bool,
    conversation: Conversation,
    is_unwritable: bool,
    faults: Vec<Fault>,
    /// Something may have been lost: the end came by itself.
    is_lossy: bool,
    is_offered: bool,
    /// Requests that were fed, by their marks; `None` where two have the same.
    fed: BTreeMap<u64, Option<Fed>>,
    /// The lowest level that a legacy client ever chose.
    chosen_level: Option<LogLevel>,
    subscribed: BTreeSet<String>,
    served: BTreeMap<RequestId, Served>,
    /// The states that were given out, and for which request.
    states: BTreeMap<String, RequestId>,
    asks: Ledger<AskId, Ask>,
    /// The ids that questions had on the wire.
    ask_ids: BTreeMap<Id, AskId>,
    /// Marks of logs and notifications that may still be sent, and for which request.
    notes: BTreeMap<u64, Option<RequestId>>,
    /// Changes of which the legacy client may be told.
    legacy_changes: BTreeSet<Change>,
    under_way: usize,
    counts: Counts,
    burst: Burst,
    draining_since: Option<Instant>,
    flushing_since: Option<Instant>,
    /// The version of the client that was announced last.
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
    /// The ids that it may be answered under, and the tokens and the levels that came with them.
    ids: BTreeSet<Id>,
    tokens: Vec<Value>,
    levels: Vec<LogLevel>,
    /// What the application answered.
    given: Option<Given>,
    is_responded: bool,
    is_cancelled: bool,
    /// Its client cancelled it, for certain and before the answer was written.
    was_cancelled: bool,
    /// Its client may have cancelled it: an answer that was not written yet is dropped then.
    may_be_cancelled: bool,
    /// Since when its client has questions in the place of an answer.
    away_since: Option<Instant>,
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
    /// A cancellation was sent under its id.
    was_cancelled: bool,
}

#[derive(Debug, Default)]
struct Counts {
    answered: u64,
    cancelled: u64,
    bytes_in: u64,
    bytes_out: u64,
    messages_out: u64,
}

/// What was output since nothing was left to poll, and what may have caused it.
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
        config.limits.write_window = config.limits.write_window.max(1);
        Rules {
            is_offered: config.offer.is_some(),
            conversation: Conversation::new(&config),
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
            asks: Ledger::new(),
            ask_ids: BTreeMap::new(),
            notes: BTreeMap::new(),
            legacy_changes: BTreeSet::new(),
            under_way: 0,
            counts: Counts::default(),
            burst: Burst::default(),
            draining_since: None,
            flushing_since: None,
            met: None,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    pub(super) fn is_mid_line(&self) -> bool {
        self.conversation.is_mid_line()
    }

    pub(super) fn under_way(&self) -> usize {
        self.under_way
    }

    /// The requests that the application has still to answer, the oldest first.
    pub(super) fn open(&self) -> Vec<RequestId> {
        let open = self.served.iter().filter(|(_, served)| served.is_open());
        open.map(|(request, _)| *request).collect()
    }
}

/// What the client sends.
impl Rules {
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.counts.bytes_in += bytes.len() as u64;
        let (said, messages) = self.conversation.fed(bytes);
        self.said(said, messages);
    }

    pub(super) fn input_ends(&mut self, faults: &[Fault]) {
        self.faults.extend_from_slice(faults);
        let (said, messages) = self.conversation.ended();
        self.said(said, messages);
    }

    fn said(&mut self, said: Vec<Said>, messages: usize) {
        self.burst.messages = self.burst.messages.max(messages);
        for said in said {
            match said {
                Said::Cancel(id) => self.cancel(&id, true),
                Said::MaybeCancel(id) => self.cancel(&id, false),
                Said::Request { id, method, params } => self.requested(id, &method, &params),
            }
        }
    }

    pub(super) fn sent(&mut self, len: usize) {
        self.under_way = self.under_way.saturating_sub(len);
    }

    pub(super) fn write_fails(&mut self, faults: &[Fault]) {
        self.faults.extend_from_slice(faults);
        (self.is_unwritable, self.is_lossy) = (true, true);
    }

    fn cancel(&mut self, id: &Id, is_certain: bool) {
        for (request, served) in &mut self.served {
            if served.fed.as_ref().is_none_or(|fed| fed.id != *id) {
                continue;
            }
            served.may_be_cancelled |= !is_certain;
            if is_certain && served.away_since.is_none() && !served.is_over() {
                served.was_cancelled = true;
                self.notes.retain(|_, of| *of != Some(*request));
            }
        }
    }

    fn requested(&mut self, id: Id, method: &str, params: &Value) {
        let about = &params["_meta"];
        let has = |key: &str| about.get(key).is_some();
        let is_modern = has(meta::PROTOCOL_VERSION) || has(meta::CLIENT_CAPABILITIES);
        let level = about[meta::LOG_LEVEL].as_str().and_then(LogLevel::parse);
        let inputs = ["requestState", "inputResponses"];
        let fed = Fed {
            id: id.clone(),
            method: method.to_owned(),
            is_modern,
            token: about.get(meta::PROGRESS_TOKEN).cloned(),
            log_level: level.filter(|_| is_modern),
            has_input: inputs.iter().any(|key| params.get(key).is_some()),
        };
        match method {
            "logging/setLevel" => {
                let level = params["level"].as_str().and_then(LogLevel::parse);
                let levels = [level, self.chosen_level];
                self.chosen_level = levels.into_iter().flatten().min();
            }
            "resources/subscribe" => {
                let uri = params["uri"].as_str();
                self.subscribed.extend(uri.map(str::to_owned));
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

/// What the application does. `is_told` says that it has heard of everything that happened.
impl Rules {
    pub(super) fn verb(&mut self) {
        self.burst.verbs += 1;
    }

    /// A verb for a request succeeds only while that is open, and then it is known.
    pub(super) fn did(&mut self, request: RequestId, misuse: Option<&Misuse>, is_told: bool) {
        let served = self.served.get(&request);
        let is_open = served.is_some_and(Served::is_open) && !self.is_closed();
        assert!(
            is_open || misuse.is_some(),
            "{request} is over and was used"
        );
        if let Some(misuse) = misuse {
            assert!(!misuse.to_string().is_empty());
            let is_unknown = *misuse == Misuse::UnknownRequest;
            assert!(
                !(is_unknown && is_open && is_told),
                "{request} is not known"
            );
        }
    }

    pub(super) fn answered(&mut self, request: RequestId, given: Given) {
        self.counts.answered += 1;
        if let Some(served) = self.served.get_mut(&request) {
            served.given = Some(given);
        }
    }

    pub(super) fn asked(
        &mut self,
        ask: AskId,
        (request, mark, method): (Option<RequestId>, u64, &str),
        now: Instant,
        is_told: bool,
    ) {
        self.burst.verbs += 1;
        assert!(!self.is_closed(), "a closed server asks");
        let record = Ask {
            mark,
            request,
            is_modern: request.is_some_and(|request| self.served[&request].is_modern),
            method: method.to_owned(),
            accepted: now,
            was_put: false,
            was_cancelled: false,
        };
        self.asks.begin(ask, record);
        let open = self.asks.open().count();
        let fits = open <= self.config.limits.asks;
        assert!(fits || !is_told, "(9) {open} questions are open");
    }

    /// The application withdraws a question, which works if it is open.
    pub(super) fn withdrew(&mut self, ask: AskId, is_done: bool, is_told: bool) {
        let is_open = self.asks.is_open(ask);
        assert!(is_open || !is_done, "{ask} was withdrawn twice");
        assert!(is_done || !is_open || !is_told, "{ask} is not known");
    }

    /// It logged something with this mark, for a request or for everybody.
    pub(super) fn logged(&mut self, request: Option<RequestId>, level: LogLevel, mark: u64) {
        let least = self.chosen_level.into_iter().chain([self.config.log_level]);
        let is_grave = least.min().is_some_and(|least| level >= least);
        let is_legacy = request.is_none_or(|request| !self.served[&request].is_modern);
        let to_legacy = is_legacy && is_grave && self.conversation.had_handshake();
        let wants = |served: &Served| {
            !served.is_over() && served.levels.iter().any(|least| level >= *least)
        };
        let to_modern = match request {
            Some(request) => wants(&self.served[&request]),
            None => self.served.values().any(wants),
        };
        // A request that was not polled yet may want it.
        let mut fed = self.fed.values().flatten();
        let may_be = request.is_none() && fed.any(|fed| fed.log_level.is_some());
        if to_legacy || to_modern || may_be {
            self.notes.insert(mark, request);
        }
    }

    pub(super) fn notified(&mut self, mark: u64) {
        self.notes.insert(mark, None);
    }

    pub(super) fn published(&mut self, change: &Change, is_done: bool) {
        // Every watch may be told.
        self.burst.verbs += self.conversation.listens();
        match change {
            _ if !is_done => {}
            Change::List(List::ResourceTemplates) => {
                self.legacy_changes.insert(Change::List(List::Resources));
            }
            // Where much waits to be written, the address that is watched stands for all below it.
            Change::Resource { uri } => {
                let above = self.subscribed.iter().filter(|above| covers(above, uri));
                let above: Vec<&String> = above.collect();
                if !above.is_empty() {
                    self.legacy_changes.insert(change.clone());
                }
                let above = above.into_iter().map(|uri| uri.as_str().into());
                self.legacy_changes
                    .extend(above.map(|uri| Change::Resource { uri }));
            }
            change => drop(self.legacy_changes.insert(change.clone())),
        }
    }

    pub(super) fn offered(&mut self) {
        self.is_offered = true;
    }
}

/// What holds between two steps: deadlines, counts, bounds, and that nothing is owed in the end.
impl Rules {
    pub(super) fn stepped(&self, server: &Server) {
        let is_closed = server.state() == State::Closed;
        assert!(
            is_closed || !self.is_closed(),
            "a closed server serves again"
        );
    }

    /// Nothing is left to poll. `is_prompt` says that nothing was left before the last step, either.
    pub(super) fn drained(&mut self, server: &Server, is_prompt: bool) {
        assert_eq!(server.state(), self.state, "(2) the events say otherwise");
        let next = server.poll_timeout();
        if let Some(due) = self.next_due().filter(|_| is_prompt) {
            let is_armed = next.is_some_and(|next| next.at <= due);
            assert!(is_armed, "(10) due at {due:?}, but {next:?}");
        }
        let (stats, counts) = (server.stats(), &self.counts);
        assert_eq!(stats.requests, self.served.len() as u64);
        assert_eq!(stats.answered, counts.answered);
        assert_eq!(stats.cancelled, counts.cancelled);
        assert_eq!(stats.asks, self.asks.len() as u64);
        assert_eq!(stats.messages_out, counts.messages_out);
        assert_eq!(stats.bytes_out, counts.bytes_out);
        assert_eq!(stats.bytes_in, counts.bytes_in);
        let over = self.served.values().filter(|served| served.is_over());
        let dropped = usize::try_from(stats.answers_dropped).expect("few");
        let (all, finished) = (self.served.len(), over.count() + dropped);
        if self.is_offered && self.under_way < self.config.limits.write_window {
            let held = server.requests() + finished;
            assert_eq!(held, all, "(2) other requests are held");
        }
        for (request, served) in &self.served {
            let is_ignored = served.was_cancelled && served.is_open();
            assert!(!is_ignored, "{request} was cancelled without effect");
        }
        // Else an answer may be counted twice: as given to a client that could not be asked, and as dropped.
        self.judge_burst(all.saturating_sub(finished));
    }

    /// What waited to be polled was bounded: by the limits, by what was fed at once, and by what the application did.
    fn judge_burst(&mut self, unfinished: usize) {
        let burst = std::mem::take(&mut self.burst);
        if !self.is_offered {
            // What comes before the offer is answered when it comes.
            self.burst.before = burst.before + burst.messages;
            return;
        }
        let limits = &self.config.limits;
        let now = unfinished + self.asks.open().count() + self.conversation.listens();
        let frames = limits.queued_bytes / SMALLEST_FRAME;
        let queued = frames + limits.undelivered_bytes / size_of::<Event>();
        let causes = queued + burst.verbs + burst.messages + burst.before.max(now);
        let is_bounded = burst.outputs <= 16 + 4 * causes;
        assert!(is_bounded, "(9) {burst:?}");
        self.burst.before = now;
    }

    /// The earliest time at which something must happen by itself.
    fn next_due(&self) -> Option<Instant> {
        if self.is_closed() {
            return None;
        }
        let wait = self.config.ask_timeout.max(TICK);
        let asks = self.asks.open().map(|(_, ask)| ask.accepted + wait);
        let away = self.served.values().filter(|served| served.is_away());
        let away = away.filter_map(|served| served.away_since);
        let away = away.map(|since| since + wait);
        let end = match (self.draining_since, self.flushing_since) {
            (_, Some(since)) => Some(since + self.config.flush.max(TICK)),
            (Some(since), None) => Some(since + self.config.drain.max(TICK)),
            (None, None) => None,
        };
        let due = asks.chain(away).chain(end).min();
        due.filter(|due| *due < Instant::MAX)
    }

    /// The server was told the time. If that closed it, what could not be written until then is lost.
    pub(super) fn told_time(&mut self, now: Instant, is_closed: bool) {
        self.is_lossy |= is_closed;
        let drain = self.config.drain.max(TICK);
        let is_over = |since: Instant| since + drain <= now;
        if self.draining_since.is_some_and(is_over) {
            self.flushing_since.get_or_insert(now);
        }
    }

    /// The server was told the time, and polled: what was due has happened.
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

    /// The client sent whole lines and read everything, the application answered everything.
    pub(super) fn quiet(&self, server: &Server) {
        if self.is_closed() {
            let responded = self.served.values().filter(|served| served.is_responded);
            let stats = server.stats();
            let answers = responded.count() as u64 + stats.answers_dropped;
            assert_eq!(stats.answered, answers, "an answer is missing");
        } else {
            let wants = server.wants_input(StreamId::DUPLEX);
            assert!(wants, "(9) nothing waits, and no input is wanted");
        }
        if !self.is_lossy {
            self.conversation.assert_quiet();
        }
    }

    /// What bears on what may still happen: what is over is not looked at.
    pub(super) fn look(&self, now: Instant, view: &mut StateView) {
        view.plain((
            self.has_released,
            self.is_unwritable,
            self.is_lossy,
            self.met,
        ));
        view.plain((self.is_offered, self.under_way, self.chosen_level));
        view.plain((&self.subscribed, &self.legacy_changes, self.faults.len()));
        let wait = self.config.ask_timeout;
        for (request, served) in self.served.iter().filter(|(_, served)| !served.is_over()) {
            view.request(*request);
            view.plain((served.is_modern, served.may_be_back, served.was_cancelled));
            view.plain((served.given.is_some(), served.progress.map(f64::to_bits)));
            view.plain(served.tokens.len());
            view.due(now, served.away_since.map(|since| since + wait));
            for id in &served.ids {
                view.text(format!("\"id\":{id}").as_bytes());
            }
        }
        for (ask, open) in self.asks.open() {
            view.ask(ask);
            open.request.into_iter().for_each(|of| view.request(of));
            view.plain((open.is_modern, &open.method, open.was_put));
            view.due(now, Some(open.accepted + wait));
        }
        view.since(now, self.draining_since, self.config.drain);
        view.since(now, self.flushing_since, self.config.flush);
        self.conversation.look(view);
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
        self.has_left() && self.is_open()
    }

    fn has_left(&self) -> bool {
        self.away_since.is_some() && !self.may_be_back
    }
}
