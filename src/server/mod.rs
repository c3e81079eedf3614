//! The server end of a link: the methods of the application, and the contract with the driver.
//!
//! [`Server`] holds twelve components, and only four files besides this one carry decisions between them:
//!
//! - `dispatch` takes the inputs of the driver; `serve` serves the messages that they hold.
//! - `write` queues messages to clients, and writes them; `settle` ends asks, requests, sessions, exchanges and the server itself.
//!
//! The components know neither the server nor each other. They are told what happened, and return what follows:
//!
//! - `binding` is the byte stream or HTTP; nobody else knows which of the two it is.
//! - `session` holds the clients and the offer to them; `requests` the requests that they sent; `asks` what they are asked; `watches` which
//!   changes they watch.
//! - `outgoing` queues the messages to each client, and encodes them.
//! - `clock` holds the time and the deadlines; `lifecycle` decides when the server drains and closes.
//!
//! `origin` names the sender of a message; everybody uses its keys.

mod asks;
mod binding;
mod clock;
mod config;
mod context;
mod dispatch;
mod display;
mod error;
mod event;
mod lifecycle;
mod misuse;
mod origin;
mod outgoing;
mod requests;
mod serve;
mod session;
mod settle;
mod stats;
mod watches;
mod write;

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

pub use binding::http::{
    Allowed, DriverStorage, EventStorage, Http, MemoryStore, Replay, SessionStorage, SsePaths,
    Storage,
};
pub use config::{Cache, Config, Limits, ListenEnd, Offer, UnknownMethods};
pub use error::missing_capability;
pub use event::{
    Caller, Cancelled, EndOfService, Event, RefusalCause, Refused, Request, Supplied, Unanswered,
};
pub use lifecycle::State;
pub use misuse::Misuse;
pub use requests::reply::{InputRequired, Progress, Question};
pub use stats::Stats;

pub use crate::driver::SessionRecord;
pub use crate::protocol::Peer;
pub use crate::util::noise::Noise;

use asks::Asks;
use binding::Binding;
use clock::Timer;
use context::Context;
use lifecycle::Cue;
use origin::SessionKey;
use outgoing::Lifetime;
use requests::Requests;
use requests::reply::Verdict;
use session::Sessions;
use session::offer::OfferState;
use watches::Watches;

use crate::driver::{AskId, Deadline, Input, Instant, Output, RequestId, StreamId, Wake};
use crate::json::Payload;
use crate::protocol::method::names;
use crate::protocol::watch::{Setting, Watch};
use crate::wire::ErrorObject;

/// The server end of a link. It serves one client on a duplex byte stream, or many clients over HTTP.
///
/// It serves both eras at once. A modern request carries its own terms. `initialize` opens a legacy scope, which does not affect modern
/// requests. The server itself answers all requests that need no application: the handshake, pings, subscriptions, and requests that cannot
/// be served. Every other request reaches the application as [`Event::Request`], and the application answers each exactly once.
///
/// A server lives as long as its transport, which exists from the start, so its inputs name no epoch. A driver feeds it, polls it and
/// sleeps as it does with a [`Client`](crate::Client). The last outputs are [`Output::Release`] and [`Event::Closed`].
///
/// No action of a client causes an `Err`: input from clients is data. An `Err` says that the caller made a mistake, or called too late.
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
    cx: Context,
    offer: OfferState,
    sessions: Sessions,
    requests: Requests,
    asks: Asks,
    watches: Watches,
    binding: Binding,
}

/// # The contract with the driver
impl Server {
    /// Creates a server. With [`Config::http`], its sessions and their messages are kept as [`Http::storage`] says.
    #[must_use]
    pub fn new(mut config: Config) -> Server {
        config.limits = config.limits.workable();
        let offer = config.offer.take();
        let binding = Binding::new(&mut config);
        let (offer, sessions) = (OfferState::new(offer, &config), Sessions::new(&config));
        let requests = Requests::new(&config);
        let mut cx = Context::new(config);
        if let Some(queue) = binding.shared_queue() {
            cx.outgoing.add(queue, Lifetime::Lasting);
            cx.outgoing.attach(queue);
        }
        Server {
            cx,
            offer,
            sessions,
            requests,
            asks: Asks::new(),
            watches: Watches::default(),
            binding,
        }
    }

    /// Feeds an input from the transport. An input that a server has no use for is counted in [`Stats::stale_inputs`] and dropped. Poll all
    /// outputs afterwards.
    pub fn handle(&mut self, now: Instant, input: Input<'_>) {
        if self.cx.lifecycle.is_closed() || !self.binding.takes(&input) {
            self.cx.stats.stale_inputs += 1;
            return;
        }
        let stream = input.stream().unwrap_or(StreamId::DUPLEX);
        self.act(now, |server| server.take_input(stream, input));
    }

    /// Sets the time to `now` and runs the timers that are due. A call that is early or late is harmless. Afterwards
    /// [`poll_timeout`](Server::poll_timeout) lies after `now`, or says that output is queued.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.act(now, |server| {
            while let Some(timer) = server.cx.clock.expire() {
                match timer {
                    Timer::Ask(ask) => server.ask_overdue(ask),
                    Timer::Away(request) => server.not_resumed(request),
                    Timer::Body(stream) => server.binding.body_overdue(&mut server.cx, stream),
                    Timer::Drain => server.drain_overdue(),
                    Timer::Flush => server.close(Cue::FlushOver),
                    Timer::Idle(session) => server.session_idle(session),
                    Timer::Keepalive(stream) => server.send_keepalive(stream),
                    Timer::Lookup(lookup) => server.binding.lookup_overdue(lookup),
                }
            }
        });
    }

    /// Returns the next action for the driver, or `None` if there is none. Bytes to write are appended to `buf`.
    ///
    /// Any method call and any input can produce outputs. Poll until `None` after each of them.
    #[must_use = "an output that is not carried out is lost"]
    pub fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<Output<Event>> {
        let output = self.poll_outbox();
        output.or_else(|| self.write(buf))
    }

    /// Returns when to call [`handle_timeout`](Server::handle_timeout), and why. `None` means that no timer is armed: the driver waits for
    /// input and method calls. It does not mean that the server is closed; only [`State::Closed`] says that.
    ///
    /// While output is queued, the deadline is now. Any method call, input and poll can change the result.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Deadline> {
        if !self.cx.outputs.is_empty() || self.can_write() {
            return Some(Deadline {
                at: self.cx.clock.now(),
                wake: Wake::Output,
            });
        }
        self.cx.clock.next()
    }

    /// Whether the driver should continue to read. `false` while the unpolled events exceed [`Limits::undelivered_bytes`]. On a byte
    /// stream, it is also `false` while the write queue is full. Over HTTP, a client that does not read never stops the reading from other
    /// clients.
    #[must_use]
    pub fn wants_input(&self, _stream: StreamId) -> bool {
        self.cx.outputs.bytes() < self.cx.config.limits.undelivered_bytes
            && self.has_room()
            && !self.holds_requests_back()
    }

    /// Whether a relay on a byte stream has as many open requests as [`Limits::requests`] allows. The client in front is then not read,
    /// unless it has an ask to answer.
    fn holds_requests_back(&self) -> bool {
        let is_piped = self.cx.config.is_relayed && self.binding.shared_queue().is_some();
        is_piped && !self.has_open_asks() && self.open_requests() >= self.cx.config.limits.requests
    }

    /// Returns the next queued output that is not a write. A relay forwards all of these before it writes anything.
    pub(crate) fn poll_outbox(&mut self) -> Option<Output<Event>> {
        self.cx.outputs.pop()
    }
}

/// # State that a relay reads
impl Server {
    /// Whether the client of a request received asks in place of a reply, and has not come back with the answers.
    #[must_use]
    pub fn is_away(&self, request: RequestId) -> bool {
        let entry = self.requests.get(request);
        entry.is_some_and(|entry| entry.is_away())
    }

    /// Whether any ask is open.
    pub(crate) fn has_open_asks(&self) -> bool {
        self.asks.len() > 0
    }

    /// Whether the write queue has room for more. If not, the client does not read: the server wants no input, and drops log messages and
    /// other notifications. A producer of notifications can pause until there is room. Over HTTP this is always true, because a full queue
    /// there affects only its own client.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let queue = self.binding.shared_queue();
        queue.is_none_or(|queue| self.cx.outgoing.has_room(queue))
    }
}

/// # Methods for the application: requests
impl Server {
    /// Answers a request with a result. For a modern client, the server adds the members that a modern result needs: its type, its cache
    /// hints and the server's name. Members that the result already has stay as they are.
    ///
    /// # Errors
    ///
    /// When there is no such request (any more), the result is not an object or too large, or the client does not understand its type.
    pub fn respond(
        &mut self,
        now: Instant,
        request: RequestId,
        result: Payload,
    ) -> Result<(), Misuse> {
        self.act(now, |server| {
            if !result.is_object() {
                return Err(Misuse::NotAnObject { what: "a result" });
            }
            let entry = server.requests.open(request)?;
            let is_passed = server.offer.passes(entry.version());
            let offered = server.offer.current().map(|offer| &offer.capabilities);
            let shape = entry.check_result(&result, is_passed, offered)?;
            if entry.method() == names::TOOLS_LIST {
                // A result that is too large never reaches the client, so nothing is learnt from it.
                server.requests.check_size(result.as_str().len())?;
                let user = entry.arrival().user.as_deref();
                server.binding.learn_tools(user, &result);
            }
            server.conclude(request, Verdict::Result(result, shape))
        })
    }

    /// Answers a request with an error.
    ///
    /// An error code that the client's version must not use is replaced by that version's equivalent.
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

    /// Answers a request with the input that is needed from its client first, and forgets the request. The client then sends a new request,
    /// which carries the input in [`Request::input`]. This method is for applications that keep no state between requests. Other
    /// applications use [`ask`](Server::ask).
    ///
    /// # Errors
    ///
    /// When there is no such request (any more), its client is a legacy one, or its method cannot wait for input. Also when the client
    /// cannot be asked this, or `input` has neither a question nor a state.
    pub fn require_input(
        &mut self,
        now: Instant,
        request: RequestId,
        input: InputRequired,
    ) -> Result<(), Misuse> {
        self.act(now, |server| {
            server.requests.open(request)?.check_input(&input)?;
            server.conclude(request, Verdict::Input(input))
        })
    }

    /// Ends the HTTP response on which the client of a request waits, without the reply. The client comes back for the reply after
    /// [`Http::retry`] (S-LHTTP-09). This frees a connection while a request takes long.
    ///
    /// Nothing happens where the client could not come back:
    ///
    /// - on a byte stream, and outside sessions;
    /// - in versions before 2025-11-25, and on the transport of 2024-11-05;
    /// - for a client that accepts only JSON, and where [`Replay::events`] is 0.
    ///
    /// # Errors
    ///
    /// When there is no such request (any more).
    pub fn hang_up(&mut self, now: Instant, request: RequestId) -> Result<(), Misuse> {
        self.act(now, |server| {
            let arrival = server.requests.open(request)?.arrival();
            server.binding.hang_up(&mut server.cx, arrival);
            Ok(())
        })
    }
}

/// # Methods for the application: asks
impl Server {
    /// Asks the client for something that a request needs. The outcome arrives as [`Event::Answered`], exactly once.
    ///
    /// A legacy client gets a request of its own. A modern client gets the question in place of the reply, and repeats its request with the
    /// answer. The application need not distinguish the two, because the [`RequestId`] stays the same. If the application replies while the
    /// client is away, the client gets the reply when it comes back. The ask still gets its answer.
    ///
    /// # Errors
    ///
    /// When there is no such request (any more), or it cannot wait for input. Also when its client cannot be asked this, or too many asks
    /// are open.
    pub fn ask(
        &mut self,
        now: Instant,
        request: RequestId,
        method: impl Into<Cow<'static, str>>,
        params: Option<Payload>,
    ) -> Result<AskId, Misuse> {
        self.ask_by(now, request, None, method.into(), params)
    }

    /// Asks like [`ask`](Server::ask), with this key for a modern client. A key that is a number or is taken in this request is ignored.
    pub(crate) fn ask_by(
        &mut self,
        now: Instant,
        request: RequestId,
        key: Option<Box<str>>,
        method: Cow<'static, str>,
        params: Option<Payload>,
    ) -> Result<AskId, Misuse> {
        self.act(now, |server| {
            server.ask_for_request(request, key, method, params)
        })
    }

    /// Asks the legacy client of a byte stream for something that no request needs. Neither a modern client nor a client over HTTP can be
    /// asked this way. Later versions of the legacy era discourage it (S-S2C-04). It exists for the `roots/list` after a change of roots.
    ///
    /// # Errors
    ///
    /// When there is no legacy client, it cannot be asked this, or too many asks are open.
    pub fn ask_unbidden(
        &mut self,
        now: Instant,
        method: impl Into<Cow<'static, str>>,
        params: Option<Payload>,
    ) -> Result<AskId, Misuse> {
        let method = method.into();
        let session = SessionKey::DUPLEX;
        self.act(now, |server| server.ask_client(session, method, params))
    }

    /// Asks a legacy client in an HTTP session for something that no request needs.
    pub(crate) fn ask_session(
        &mut self,
        now: Instant,
        caller: &Caller,
        method: Cow<'static, str>,
        params: Option<Payload>,
    ) -> Result<AskId, Misuse> {
        let session = caller.session_number().map(SessionKey::from_number);
        let session = session.ok_or(Misuse::NoLegacyPeer)?;
        self.act(now, |server| server.ask_client(session, method, params))
    }

    /// Records a log level or subscription of this client that the server behind a relay accepted.
    pub(crate) fn settle_setting(&mut self, now: Instant, caller: &Caller, setting: &Setting) {
        self.act(now, |server| server.record_setting(caller, setting));
    }

    /// Withdraws an ask. A client that received the ask is told the reason. The outcome is [`Unanswered::Withdrawn`].
    ///
    /// # Errors
    ///
    /// When the ask already has its outcome.
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
            server.withdraw_ask(ask, Unanswered::Withdrawn, reason);
            Ok(())
        })
    }
}

/// # Methods for the application: the server itself
impl Server {
    /// Sets the offer. The requests that waited for it are served now.
    pub fn offer(&mut self, now: Instant, offer: Offer) {
        self.act(now, |server| server.set_offer(offer));
    }

    /// Says that there is no offer for now. Every request that waits for the offer is refused with this error. A client that asks again
    /// waits again, and is reported with [`Event::Met`] again.
    pub fn decline(&mut self, now: Instant, error: &ErrorObject) {
        self.act(now, |server| {
            for queue in server.offer.deferred().queues() {
                server.binding.answer_with_200(queue);
            }
            server.refuse_deferred(error);
            server.sessions.forget_reported();
        });
    }

    /// Refuses the `server/discover` requests that wait for the offer, because the server behind the relay has no such method. All other
    /// requests continue to wait. Returns whether any request was refused.
    pub(crate) fn refuse_discovery(&mut self, now: Instant, error: &ErrorObject) -> bool {
        self.act(now, |server| {
            let waiting = server.offer.deferred_mut().take_discoveries();
            let is_anybody = !waiting.is_empty();
            for (from, id) in waiting {
                server.cx.outgoing.reply_done(from.queue);
                server
                    .binding
                    .refuse(&mut server.cx, from.queue, id, error.clone());
                // The client is reported again, because its next message shows whether it speaks the legacy era.
                server.sessions.forget_reported();
            }
            is_anybody
        })
    }

    /// Whether any request waits for the offer.
    #[must_use]
    pub fn is_deferring(&self) -> bool {
        !self.offer.deferred().is_empty()
    }

    /// Sets the complete list of tools, as in a result of `tools/list`. Over HTTP, the header fields of a modern call that repeat arguments
    /// are checked against it (S-XHDR-13, S-XHDR-14). The server also learns from the results of `tools/list` that the application gives.
    /// This method is for calls that arrive before any client asked for the list.
    pub fn tools(&mut self, now: Instant, list: &Payload) {
        self.act(now, |server| server.binding.set_tools(list));
    }

    /// Starts the shutdown. The server takes no new requests and ends all watches. The requests in flight have [`Config::drain`] to finish.
    /// The last event is [`Event::Closed`].
    pub fn shutdown(&mut self, now: Instant) {
        self.act(now, |server| server.drain(EndOfService::Shutdown));
    }

    /// The state of the server.
    #[must_use]
    pub const fn state(&self) -> State {
        self.cx.lifecycle.state()
    }

    /// The client of a byte stream that sent `initialize`, if any.
    #[must_use]
    pub fn legacy_peer(&self) -> Option<&Arc<Peer>> {
        let session = self.sessions.get(SessionKey::DUPLEX);
        session.map(|session| &session.peer)
    }

    /// The number of requests without a reply, including those that wait for the offer or for input from their clients.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.open_requests() + self.requests.away()
    }

    /// Whether any client is to be told of a change of the resource at `uri`.
    #[must_use]
    pub fn is_watched(&self, uri: &str) -> bool {
        self.watches.is_watched(uri)
    }

    /// The number of watchers of exactly this URI.
    pub(crate) fn watchers_of(&self, uri: &str) -> usize {
        self.watches.count_of(uri)
    }

    /// The union of what all clients watch, with a copy of each URI. [`Event::Watching`] reports its changes.
    #[must_use]
    pub fn watched(&self) -> Watch {
        self.watches.all()
    }

    /// The number of open sessions of legacy clients over HTTP.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.binding.session_count()
    }

    /// The counters of the server.
    #[must_use]
    pub const fn stats(&self) -> Stats {
        self.cx.stats
    }
}

impl Server {
    /// Runs every step of the machine: sets the time, calls `what`, then settles what follows.
    fn act<R>(&mut self, now: Instant, what: impl FnOnce(&mut Server) -> R) -> R {
        self.cx.clock.advance(now);
        let done = what(self);
        self.settle();
        done
    }

    /// The number of requests that clients wait for.
    fn open_requests(&self) -> usize {
        self.requests.in_flight() + self.offer.deferred().len()
    }
}

/// Shows the state and counts. Payloads are left out.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("state", &self.state())
            .field("requests", &self.requests())
            .field("asks_open", &self.asks.len())
            .field("watches", &self.watches.listens())
            .field("next_deadline", &self.poll_timeout())
            .finish_non_exhaustive()
    }
}
