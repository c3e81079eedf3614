//! The server end of a link: the verbs of the application, the contract with the driver, and what is due when.
//!
//! The machine itself is one `impl Server` by subject: `inbound` for what clients say, `terms` and `admission` for what they may ask,
//! `service` for what the server answers itself, `answers` for how requests end, `questions` for what clients are asked, `news` for what they are told, `outbound` for what
//! is written next, `ending` for the end. They alone carry decisions between the children, which know neither the machine
//! nor each other: `origin` who says something, `params` what a request says to the server itself, `early` what waits for the offer, `legacy` the clients with a
//! handshake, `requests` where each request stands, `asks` the questions, `seal` the states, `watchers` who hears of what, `frame` the words, `lanes` who is
//! to hear them. `http` is all that there is over HTTP alone, in the same order: the machine's part, and its children.

mod admission;
mod answers;
mod asks;
mod config;
mod early;
mod ending;
mod event;
mod frame;
mod http;
mod inbound;
mod lanes;
mod legacy;
mod misuse;
mod news;
mod origin;
mod outbound;
mod params;
mod questions;
mod reply;
mod requests;
mod seal;
mod service;
mod stats;
mod telling;
mod terms;
mod waiting;
mod watchers;

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

pub use config::{Cache, Config, Limits, ListenEnd, Offer, UnknownMethods};
pub use event::{
    Caller, Cancelled, EndOfService, Event, RefusalCause, Refused, Request, State, Supplied,
    Unanswered,
};
pub use http::{
    Allowed, EventStore, Http, MemoryEvents, MemorySessions, Replay, SessionRecord, SessionStore,
    SsePaths,
};
pub use misuse::Misuse;
pub use reply::{InputRequired, Progress, Question};
pub use stats::Stats;

pub use crate::noise::Noise;

use asks::Asks;
use early::Deferred;
use frame::Voice;
use http::Endpoint;
use lanes::{Kind, Lanes};
use legacy::{Scope, Visits};
use origin::{Lane, SessionKey};
use reply::Verdict;
use requests::Requests;
use seal::Seal;
use terms::Known;
use watchers::Watchers;

use crate::fault::Fault;
use crate::id::{AskId, RequestId, StreamId};
use crate::io::{Input, Output};
use crate::noise::NoiseMeter;
pub use crate::protocol::Peer;
use crate::protocol::{ClientFeature, LogLevel, code};
use crate::queue::Outbox;
use crate::time::{Deadline, Instant, TICK, Wake};
use crate::timers::Timers;
use crate::watch::{Change, Setting, Watch};
use crate::wire::{ErrorObject, LineReader, Payload};

/// The server end of a link: for one duplex byte stream, or over HTTP for many clients with many exchanges.
///
/// It serves both eras at once: a request that brings its own terms is served by them, and `initialize` opens a legacy
/// scope beside. Of what arrives it answers itself what needs no application: the handshake, pings, subscriptions, and everything
/// that cannot be served. The rest comes as [`Event::Request`], each with exactly one answer to give.
///
/// It lives as long as its transport, which is there from the start: there is no epoch to name. A driver feeds it, polls it and
/// sleeps as it does a [`Client`](crate::Client); it writes, and ends with [`Output::Release`] and [`Event::Closed`].
///
/// Nothing a client does is an `Err`: that is data. An `Err` says that the caller made a mistake, or came too late.
///
/// ```
/// use everlink::protocol::ServerCapabilities;
/// use everlink::server::{Config, Event, Offer, Server};
/// use everlink::{Input, Instant, Output};
///
/// let tools = ServerCapabilities::default().with_tools(false);
/// let offer = Offer::new("docs", "1.0").with_capabilities(tools);
/// let mut server = Server::new(Config::new(offer, [7; 16])); // random bytes, where there is randomness
/// let (now, mut buf) = (Instant::ZERO, Vec::new());
///
/// let line = concat!(
///     r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","_meta":{"#,
///     r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
///     r#""io.modelcontextprotocol/clientCapabilities":{}}}}"#,
///     "\n"
/// );
/// server.handle(now, Input::bytes(line.as_bytes()));
/// while let Some(output) = server.poll_output(&mut buf) {
///     if let Output::Event(Event::Request(request)) = output {
///         assert_eq!(request.method, "tools/call");
///         assert_eq!(request.params.unwrap().as_str(), r#"{"name":"add"}"#);
///         server.respond(now, request.request, r#"{"content":[]}"#.parse()?)?;
///     }
/// }
/// assert!(String::from_utf8(buf)?.contains(r#""resultType":"complete""#));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Server {
    config: Config,
    now: Instant,
    state: State,
    /// What arrived on the byte stream and is not a whole line yet.
    lines: LineReader,
    noise: NoiseMeter,
    /// Nothing more arrives.
    has_input_ended: bool,
    /// Every fault that was reported, up to a bound.
    faults: Vec<Fault>,
    seal: Seal,
    voice: Voice,
    /// The clients that introduced themselves with `initialize`: on a byte stream, one at most.
    scopes: BTreeMap<SessionKey, Scope>,
    /// Those of them that were begun elsewhere and are still to be told what is offered.
    unoffered: BTreeSet<SessionKey>,
    visits: Visits,
    /// The client as the last modern request described it, with the words of that description.
    known: Option<Known>,
    /// The client that the application was last told of.
    met: Option<Arc<Peer>>,
    /// Requests that wait for the offer.
    early: Deferred,
    requests: Requests,
    asks: Asks,
    watchers: Watchers,
    lanes: Lanes,
    outbox: Outbox<Event>,
    timers: Timers<Timer>,
    /// What there is over HTTP alone.
    http: Option<Box<Endpoint>>,
    stats: Stats,
}

/// Everything that can be due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// A question waits too long.
    Ask(AskId),
    /// A client was asked for input and does not come back.
    Away(RequestId),
    /// The body of a request takes too long.
    Body(StreamId),
    /// The requests in flight have had their while.
    Drain,
    /// The last words have had their while.
    Flush,
    /// Nothing happened in a session for long.
    Idle(SessionKey),
    /// A stream was silent for long.
    Pulse(StreamId),
}

/// # The contract with the driver
impl Server {
    /// A server that waits for its client, or over HTTP for its clients.
    #[must_use]
    pub fn new(config: Config) -> Server {
        let http = config.http.as_ref().map(|http| {
            let events = MemoryEvents::new(http.replay);
            Endpoint::new(config.secret, None, Box::new(events))
        });
        Server::with_endpoint(config, http)
    }

    /// A server over HTTP that holds its sessions here, and what is said in them there: several servers at one address that
    /// share them can each go on with the sessions of the others.
    #[must_use]
    pub fn with_stores(
        config: Config,
        sessions: Box<dyn SessionStore>,
        events: Box<dyn EventStore>,
    ) -> Server {
        let http = config.http.is_some();
        let http = http.then(|| Endpoint::new(config.secret, Some(sessions), events));
        Server::with_endpoint(config, http)
    }

    fn with_endpoint(mut config: Config, http: Option<Endpoint>) -> Server {
        config.limits = config.limits.workable();
        let mut lanes = Lanes::new(config.limits.write_window);
        if http.is_none() {
            lanes.add(Lane::DUPLEX, Kind::Lasting);
            lanes.attach(Lane::DUPLEX);
        }
        Server {
            now: Instant::ZERO,
            state: State::Serving,
            lines: LineReader::new(config.limits.message_bytes),
            noise: NoiseMeter::default(),
            has_input_ended: false,
            faults: Vec::new(),
            seal: Seal::new(config.secret),
            voice: Voice::new(config.offer.as_ref(), &config),
            scopes: BTreeMap::new(),
            unoffered: BTreeSet::new(),
            visits: Visits::default(),
            known: None,
            met: None,
            early: Deferred::default(),
            requests: Requests::new(),
            asks: Asks::new(),
            watchers: Watchers::default(),
            lanes,
            outbox: Outbox::new(),
            timers: Timers::new(),
            http: http.map(Box::new),
            stats: Stats::default(),
            config,
        }
    }

    /// Something happened to the transport. What a server end has no use for is counted and dropped. Poll all outputs
    /// afterwards.
    pub fn handle(&mut self, now: Instant, input: Input<'_>) {
        let stream = input.stream().unwrap_or(StreamId::DUPLEX);
        let is_duplex = stream == StreamId::DUPLEX;
        if self.state == State::Closed || is_duplex == self.http.is_some() {
            self.stats.stale_inputs += 1;
            return;
        }
        if self.http.is_some() {
            return self.act(now, |server| server.exchanged(stream, input));
        }
        self.act(now, |server| match input {
            Input::Bytes { bytes, .. } => server.bytes(&bytes),
            Input::End { faults, .. } => {
                server.note(&faults);
                server.input_ended();
            }
            Input::Sent { len, .. } => server.sent(Lane::DUPLEX, len),
            Input::WriteFailed { faults, .. } => {
                server.note(&faults);
                server.close();
            }
            Input::Exited { .. }
            | Input::OpenFailed { .. }
            | Input::Opened
            | Input::Request { .. }
            | Input::Response { .. }
            | Input::Stderr { .. }
            | Input::Activity { .. } => server.stats.stale_inputs += 1,
        });
    }

    /// It is `now`. Early or late is harmless. Afterwards [`poll_timeout`](Server::poll_timeout) lies after `now`, or says
    /// that output waits.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.act(now, |server| {
            while let Some(timer) = server.timers.expire(server.now) {
                match timer {
                    Timer::Ask(ask) => server.ask_unanswered(ask),
                    Timer::Away(request) => server.not_resumed(request),
                    Timer::Body(stream) => server.body_overdue(stream),
                    Timer::Drain => server.out_of_time(),
                    Timer::Flush => server.close(),
                    Timer::Idle(session) => server.session_idle(session),
                    Timer::Pulse(stream) => server.pulse(stream),
                }
            }
        });
    }

    /// What the driver must do next; `None` when there is nothing. Bytes to write are appended to `buf`.
    ///
    /// Any verb and any input can change the answer. Poll until `None` after each of them.
    #[must_use = "an output that is not carried out is lost"]
    pub fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<Output<Event>> {
        let output = self.poll_outbox();
        output.or_else(|| self.write(buf))
    }

    /// When to call [`handle_timeout`](Server::handle_timeout), and why. `None` when nothing is due by itself: the driver waits
    /// for input and verbs then. Only the state says that the machine is closed.
    ///
    /// While output waits it is due now. Any verb, input and poll can change the answer.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Deadline> {
        if !self.outbox.is_empty() || self.can_write() {
            return Some(Deadline {
                at: self.now,
                wake: Wake::Output,
            });
        }
        let (at, timer) = self.timers.next()?;
        let wake = match timer {
            Timer::Ask(_) | Timer::Away(_) => Wake::Ask,
            Timer::Body(_) | Timer::Drain | Timer::Flush | Timer::Idle(_) => Wake::Close,
            Timer::Pulse(_) => Wake::Keepalive,
        };
        Some(Deadline { at, wake })
    }

    /// Whether to go on reading: `false` while much of what was read waits to be polled, or on a byte stream much waits to be written. Over
    /// HTTP, a client that does not read keeps nobody else from being read.
    #[must_use]
    pub fn wants_input(&self, _stream: StreamId) -> bool {
        self.outbox.bytes() < self.config.limits.undelivered_bytes
            && self.has_room()
            && !self.holds_requests_back()
    }

    /// Whether more requests wait for the server behind a relay than it should have: the one client in front is read no further, unless it is to answer
    /// something.
    fn holds_requests_back(&self) -> bool {
        let is_piped = self.config.is_relayed && self.http.is_none();
        is_piped && !self.has_open_asks() && self.open_requests() >= self.config.limits.requests
    }

    /// What waits but writes, so that a relay can carry all of it before anything is written.
    pub(crate) fn poll_outbox(&mut self) -> Option<Output<Event>> {
        self.outbox.pop()
    }
}

/// # What a relay must know
impl Server {
    /// Whether the client of a request has questions to it, and is to come back with the answers.
    #[must_use]
    pub fn is_away(&self, request: RequestId) -> bool {
        self.requests.is_away(request)
    }

    /// Whether the client is to answer something.
    pub(crate) fn has_open_asks(&self) -> bool {
        self.asks.len() > 0
    }

    /// Whether what waits to be written leaves room for more. Where it does not, the client does not read: no input is wanted, and log
    /// messages and other notifications are dropped. Whoever produces them for others can hold back. Over HTTP there always is: what one
    /// client does not read is dropped for that one.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.http.is_some() || self.has_room_on(Lane::DUPLEX)
    }
}

/// # The verbs of the application: requests
impl Server {
    /// Answers a request. A modern client is also told what every modern result says: its type, how long it is
    /// fresh, who the server is; what of this stands in the result already is left as it is.
    ///
    /// # Errors
    ///
    /// When there is no such request (any more), the result is no object or too large, or it is of a type that the
    /// client cannot take.
    pub fn respond(
        &mut self,
        now: Instant,
        request: RequestId,
        result: Payload,
    ) -> Result<(), Misuse> {
        self.act(now, |server| server.result(request, result))
    }

    /// Answers a request with an error.
    ///
    /// Where the version that the client speaks must not use a code, the one that stands for it there is used.
    ///
    /// # Errors
    ///
    /// When there is no such request (any more), or the error is too large.
    pub fn fail(
        &mut self,
        now: Instant,
        request: RequestId,
        error: ErrorObject,
    ) -> Result<(), Misuse> {
        self.act(now, |server| {
            server.conclude(request, Verdict::Error(error))
        })
    }

    /// Answers a request with what is needed of its client first, and forgets it: the client asks again, in a request that
    /// has all of it in [`Request::input`]. For applications that keep nothing; see [`ask`](Server::ask) for the others.
    ///
    /// # Errors
    ///
    /// When there is no such request (any more), its client is a legacy one, its method cannot wait for input, the client
    /// cannot be asked this, or there is nothing in it.
    pub fn require_input(
        &mut self,
        now: Instant,
        request: RequestId,
        input: InputRequired,
    ) -> Result<(), Misuse> {
        self.act(now, |server| server.require(request, input))
    }

    /// Tells the client how far its request is. Nothing is sent where it did not ask to be told, where that does not
    /// grow (S-PROG-03), or while it is asked something; what was not written yet is replaced.
    ///
    /// # Errors
    ///
    /// When there is no such request (any more).
    pub fn progress(
        &mut self,
        now: Instant,
        request: RequestId,
        progress: Progress,
    ) -> Result<(), Misuse> {
        self.act(now, |server| server.progressed(request, progress))
    }

    /// Ends the exchange on which the client of a request waits, without the answer: the client comes back for that, after as long as
    /// [`Http::retry`] says (S-LHTTP-09). It spares a connection where something takes long. Where the client could not come back it stays:
    /// on a byte stream, outside of sessions, in versions before 2025-11-25, on the transport of 2024-11-05, and where nothing is held to be
    /// said again.
    ///
    /// # Errors
    ///
    /// When there is no such request (any more).
    pub fn hang_up(&mut self, now: Instant, request: RequestId) -> Result<(), Misuse> {
        self.act(now, |server| server.hang_up_on(request))
    }
}

/// # The verbs of the application: questions
impl Server {
    /// Asks the client something that is needed for a request. The outcome comes as [`Event::Answered`], exactly once.
    ///
    /// A legacy client is sent a request; a modern one is given the question in the place of the answer, and comes back with
    /// the answer to it. The application need not know: the request stays the same. One that is answered while its client is away is
    /// answered to it when it comes back, and the question then still has its answer.
    ///
    /// # Errors
    ///
    /// When there is no such request (any more), its client cannot be asked this, it cannot wait for input, or too
    /// much is asked already.
    pub fn ask(
        &mut self,
        now: Instant,
        request: RequestId,
        method: impl Into<Cow<'static, str>>,
        params: Option<Payload>,
    ) -> Result<AskId, Misuse> {
        self.ask_by(now, request, None, method.into(), params)
    }

    /// The same, by this key where a modern client is asked and no other question of the request has it.
    pub(crate) fn ask_by(
        &mut self,
        now: Instant,
        request: RequestId,
        key: Option<Box<str>>,
        method: Cow<'static, str>,
        params: Option<Payload>,
    ) -> Result<AskId, Misuse> {
        self.act(now, |server| server.ask_for(request, key, method, params))
    }

    /// Asks the legacy client of a byte stream something that no request needs. A modern client cannot be asked so, nor one of many over
    /// HTTP, and later versions of the legacy era frown upon it (S-S2C-04): it is here for what follows a change of roots.
    ///
    /// # Errors
    ///
    /// When there is no legacy client, it cannot be asked this, or too much is asked already.
    pub fn ask_unbidden(
        &mut self,
        now: Instant,
        method: impl Into<Cow<'static, str>>,
        params: Option<Payload>,
    ) -> Result<AskId, Misuse> {
        let method = method.into();
        let session = SessionKey::DUPLEX;
        self.act(now, |server| server.ask_legacy(session, method, params))
    }

    /// The same to a legacy client in a session over HTTP.
    pub(crate) fn ask_session(
        &mut self,
        now: Instant,
        caller: &Caller,
        method: Cow<'static, str>,
        params: Option<Payload>,
    ) -> Result<AskId, Misuse> {
        let session = caller.session_number().map(SessionKey::from_number);
        let session = session.ok_or(Misuse::NoLegacyPeer)?;
        self.act(now, |server| server.ask_legacy(session, method, params))
    }

    /// Passes on what the server behind a relay says, as it came: about this request, or to this client.
    pub(crate) fn pass(
        &mut self,
        now: Instant,
        request: Option<RequestId>,
        to: Option<&Caller>,
        method: Cow<'static, str>,
        params: Option<Payload>,
    ) -> Result<(), Misuse> {
        self.act(now, |server| server.passed(request, to, method, params))
    }

    /// The server behind a relay agreed to what this client wants to hear of.
    pub(crate) fn settle_setting(&mut self, now: Instant, caller: &Caller, setting: &Setting) {
        self.act(now, |server| server.settled(caller, setting));
    }

    /// The same of a report of progress, under the token that the client chose.
    pub(crate) fn pass_progress(
        &mut self,
        now: Instant,
        request: RequestId,
        params: &Payload,
    ) -> Result<(), Misuse> {
        self.act(now, |server| server.passed_progress(request, params))
    }

    /// Takes back a question, and tells a client that knows of it why. Its outcome is that it was taken back.
    ///
    /// # Errors
    ///
    /// When it has its outcome already.
    pub fn withdraw(
        &mut self,
        now: Instant,
        ask: AskId,
        reason: Option<&str>,
    ) -> Result<(), Misuse> {
        self.act(now, |server| {
            if server.asks.get(ask).is_none() {
                return Err(Misuse::UnknownAsk);
            }
            server.take_back(ask, Unanswered::Withdrawn, reason);
            Ok(())
        })
    }
}

/// # The verbs of the application: news
impl Server {
    /// Something changed. Told exactly to those who asked: the legacy client if it subscribed (lists it hears of unasked),
    /// and every modern watch for it.
    ///
    /// # Errors
    ///
    /// When the capabilities do not offer word of such changes.
    pub fn publish(&mut self, now: Instant, change: Change) -> Result<(), Misuse> {
        self.act(now, |server| server.published(change))
    }

    /// Logs something: for a request, or for whoever listens. Nothing is sent that is below the level that was asked for; to
    /// a modern client nothing at all unless a request of it asked (S-CAP-05).
    ///
    /// # Errors
    ///
    /// When the capabilities do not offer logging, there is no such request (any more), or it is too large.
    pub fn log(
        &mut self,
        now: Instant,
        request: Option<RequestId>,
        level: LogLevel,
        logger: Option<&str>,
        data: Payload,
    ) -> Result<(), Misuse> {
        self.act(now, |server| server.logged(request, level, logger, data))
    }

    /// Tells the client something else that has no answer, such as `notifications/elicitation/complete`. Not sent where the
    /// version that is spoken does not have it.
    ///
    /// # Errors
    ///
    /// When it is a request, is the server's own business, is about something that is not offered, has parameters that are no
    /// object, or is too large.
    pub fn notify(
        &mut self,
        now: Instant,
        method: impl Into<Cow<'static, str>>,
        params: Option<Payload>,
    ) -> Result<(), Misuse> {
        let method = method.into();
        self.act(now, |server| server.notified(method, params, None))
    }

    /// The same to one client alone, where there are many: one that is on a byte stream, or in a session. Others have nothing to
    /// hear it on.
    ///
    /// # Errors
    ///
    /// As [`notify`](Server::notify), and when there is no such client (any more).
    pub fn notify_to(
        &mut self,
        now: Instant,
        caller: &Caller,
        method: impl Into<Cow<'static, str>>,
        params: Option<Payload>,
    ) -> Result<(), Misuse> {
        let method = method.into();
        self.act(now, |server| server.notified(method, params, Some(caller)))
    }
}

/// # The verbs of the application: the server itself
impl Server {
    /// This is offered, from now on. Who waited to know is told.
    pub fn offer(&mut self, now: Instant, offer: Offer) {
        self.act(now, |server| server.offers(offer));
    }

    /// There is nothing to offer for now. All who wait to know are told this error; a client that asks again waits again, and is told of with
    /// [`Event::Met`] once more.
    pub fn decline(&mut self, now: Instant, error: &ErrorObject) {
        self.act(now, |server| server.declined(error));
    }

    /// The server behind the relay has no `server/discover`: who waits for its answer is told this, and everybody else waits on. Whether anybody was told.
    pub(crate) fn refuse_discovery(&mut self, now: Instant, error: &ErrorObject) -> bool {
        self.act(now, |server| server.discovery_refused(error))
    }

    /// Whether a client waits to know what is offered.
    #[must_use]
    pub fn is_deferring(&self) -> bool {
        !self.early.is_empty()
    }

    /// These are the tools, as in a result of `tools/list`, and no others. Over HTTP the fields of a modern call that repeat arguments are
    /// compared with them (S-XHDR-13, S-XHDR-14). What the application answers to `tools/list` is learnt from, too: this is for calls
    /// that come before anybody asked for the list.
    pub fn tools(&mut self, now: Instant, list: &Payload) {
        self.act(now, |server| server.know_tools(list));
    }

    /// The service ends. Nothing new is taken, watches end, and the requests in flight have a while; then
    /// comes [`Event::Closed`], the last one.
    pub fn shutdown(&mut self, now: Instant) {
        self.act(now, |server| server.drain(EndOfService::Shutdown));
    }

    /// Where the server stands.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// The client of a byte stream that introduced itself with `initialize`, if one did.
    #[must_use]
    pub fn legacy_peer(&self) -> Option<&Arc<Peer>> {
        let scope = self.scopes.get(&SessionKey::DUPLEX);
        scope.map(|scope| &scope.peer)
    }

    /// How many requests are not answered yet, those included that wait for input of their clients.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.requests.in_flight() + self.requests.away() + self.early.len()
    }

    /// Whether anybody is to hear of a change of the resource at `uri`.
    #[must_use]
    pub fn is_watched(&self, uri: &str) -> bool {
        self.watchers.is_watched(uri)
    }

    /// How many clients watch this very address.
    pub(crate) fn watchers_of(&self, uri: &str) -> usize {
        self.watchers.count_of(uri)
    }

    /// What all clients watch together, with a copy of each address; see [`Event::Watching`] for what changes of it.
    #[must_use]
    pub fn watched(&self) -> Watch {
        self.watchers.all()
    }

    /// How many legacy clients are here over HTTP.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.session_count()
    }

    /// What was counted.
    #[must_use]
    pub const fn stats(&self) -> Stats {
        self.stats
    }
}

/// The error for a request that needs something of its client that the client did not declare (S-META-09).
#[must_use]
pub fn missing_capability(feature: ClientFeature) -> ErrorObject {
    let text = alloc::format!("the request needs a client that declares {feature}");
    let needed = crate::protocol::ClientCapabilities::default().with(feature);
    let needed = needed.write_for(crate::protocol::Version::LATEST_MODERN);
    let data = alloc::format!(r#"{{"requiredCapabilities":{needed}}}"#);
    ErrorObject {
        data: data.parse().ok(),
        ..ErrorObject::new(code::MISSING_REQUIRED_CLIENT_CAPABILITY, text)
    }
}

impl Server {
    /// Whatever happens to the machine happens in here: time moves on, it is done, and what follows from it follows.
    ///
    /// Time never goes back. A driver whose clock does is no reason to forget what was due.
    fn act<R>(&mut self, now: Instant, what: impl FnOnce(&mut Server) -> R) -> R {
        self.now = self.now.max(now);
        let done = what(self);
        self.settle_lanes();
        if let Some(update) = self.watchers.news() {
            self.tell(Event::Watching(update));
        }
        self.close_if_drained();
        done
    }

    fn tell(&mut self, event: Event) {
        if self.state != State::Closed {
            self.outbox.push(Output::Event(event));
        }
    }

    fn arm_in(&mut self, timer: Timer, span: Duration) {
        self.timers.arm(timer, self.now + span.max(TICK));
    }

    fn check_size(&self, bytes: usize) -> Result<(), Misuse> {
        if bytes > self.config.limits.message_bytes {
            return Err(Misuse::TooLarge { bytes });
        }
        Ok(())
    }
}

/// Where the server stands, in numbers. What it carries stays out.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("state", &self.state)
            .field("requests", &self.requests())
            .field("asks_open", &self.asks.len())
            .field("watches", &self.watchers.listens())
            .field("next_deadline", &self.poll_timeout())
            .finish_non_exhaustive()
    }
}

/// A text of ours that repeats words of a peer.
fn quoting(before: &str, words: &str, after: &str) -> Box<str> {
    let words = crate::noise::excerpt(words);
    alloc::format!("{before}`{words}`{after}").into()
}
