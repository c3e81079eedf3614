//! The server end of a link: the contract with the driver, the writing of messages, and the end of the server.
//!
//! [`Server`] has the contract with the driver and the functions for the application. [`Event`] is what it tells the application. [`Config`] has the
//! settings.

// Four files implement `Server`. This one has the contract with the driver. `application` has the methods for the application. `dispatch` takes the
// inputs of the driver and the messages that they hold, and `serve` serves these messages.
//
// The components keep their fields private and do not name `Server`. Each takes the `Context`, puts into it what no other component reacts to, and
// returns what another one must do:
//
// - `binding` is the byte stream or HTTP; nobody else knows which of the two it is.
// - `session` holds the clients and the offer to them; `watches` which changes they watch.
// - `requests` holds the requests that clients sent, and what their clients are asked.
//
// The parts of the context are modules too: `outgoing` queues the messages to each client, and encodes them; `clock` holds the time and the deadlines;
// `lifecycle` decides when the server drains and closes; `stats` counts.
//
// `origin` names the sender of a message; everybody uses its keys.

mod application;
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
mod stats;
mod watches;

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

use binding::Binding;
use binding::http::Form;
use clock::Timer;
use context::Context;
use lifecycle::{Cue, Next, Remaining};
use origin::{QueueId, SessionKey, WireId};
use outgoing::Lifetime;
use outgoing::frame::Frame;
use outgoing::writer::MessageWriter;
use requests::Requests;
use requests::admission::unavailable;
use requests::asks;
use requests::places::Holder;
use session::Sessions;
use session::offer::OfferState;
use watches::Watches;

use crate::driver::{Deadline, Epoch, Input, Instant, Output, RequestId, StreamId, Wake};
use crate::protocol::watch::Watch;
use crate::util::Arc;
use crate::wire::{Id, encode};

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
        let requests = Requests::new(&config, binding.node());
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
                    Timer::Ask(ask) => server.requests.ask_overdue(&mut server.cx, ask),
                    Timer::Away(request) => server.requests.not_resumed(&mut server.cx, request),
                    Timer::Body(stream) => server.binding.body_overdue(&mut server.cx, stream),
                    Timer::Drain => server.drain_overdue(),
                    Timer::Flush => server.close(Cue::FlushOver),
                    // From now on, the server wants input.
                    Timer::Full => {}
                    Timer::Idle(session) => server.session_idle(session),
                    Timer::Keepalive(stream) => server.send_keepalive(stream),
                    Timer::Lease => server.lease_over(),
                    Timer::Lookup(lookup) => server.binding.lookup_overdue(lookup),
                    Timer::Peers => server.binding.look_for_peers(&mut server.cx),
                }
            }
        });
    }

    /// Returns the next action for the driver, or `None` if there is none. Bytes to write are appended to `buf`.
    ///
    /// Any method call and any input can produce outputs. Poll until `None` after each of them.
    #[must_use = "an output that is not carried out is lost"]
    pub fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<Output<Event>> {
        self.poll_outbox().or_else(|| self.write(buf))
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

    /// The configuration of this server. Its [`offer`](Config::offer) and its [`http`](Config::http) are `None`, because the server has taken
    /// both.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.cx.config
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

    /// Whether a relay on a byte stream has as many open requests as [`Limits::requests`] allows. The client in front is then not read for
    /// up to 10 s, unless it has an ask to answer. After that it is read, because it may cancel requests or end its input.
    fn holds_requests_back(&self) -> bool {
        // In most cases one of the first two is false.
        self.cx.config.is_relayed
            && self.open_requests() >= self.cx.config.limits.requests
            && self.cx.clock.is_armed(Timer::Full)
            && !self.has_open_asks()
    }

    /// Returns the next queued output that is not a write. A relay forwards all of these before it writes anything.
    pub(crate) fn poll_outbox(&mut self) -> Option<Output<Event>> {
        if !self.binding.serves_others() {
            return self.cx.outputs.pop();
        }
        // These outputs have no bytes.
        let mut none = Vec::new();
        loop {
            let output = self.cx.outputs.pop()?;
            let routed = self.binding.route(&mut self.cx, output, &mut none);
            if routed.is_some() {
                return routed;
            }
        }
    }
}

/// # State
impl Server {
    /// Whether the client of a request received asks in place of a reply, and has not come back with the answers.
    #[must_use]
    pub fn is_away(&self, request: RequestId) -> bool {
        let entry = self.requests.get(request);
        entry.is_some_and(|entry| entry.is_away())
    }

    /// Whether any ask is open.
    pub(crate) fn has_open_asks(&self) -> bool {
        self.requests.open_asks() > 0
    }

    /// Whether the write queue has room for more. If not, the client does not read: the server wants no input, and drops log messages and
    /// other notifications. A producer of notifications can pause until there is room. Over HTTP this is always true, because a full queue
    /// there affects only its own client.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let queue = self.binding.shared_queue();
        queue.is_none_or(|queue| self.cx.outgoing.has_room(queue))
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

    /// The id of a request in flight, as its client chose it.
    pub(crate) fn wire_id(&self, request: RequestId) -> Option<&Id> {
        let entry = self.requests.get(request)?;
        Some(&entry.arrival().wire.id)
    }

    /// The client that a request counts for. `None` on a byte stream, and if the request is over.
    pub(crate) fn holder_of(&self, request: RequestId) -> Option<&Holder> {
        self.requests.get(request)?.arrival().holder.as_deref()
    }

    /// Whether any client is to be told of a change of the resource at `uri`.
    #[must_use]
    pub fn is_watched(&self, uri: &str) -> bool {
        self.watches.is_watched(uri)
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

    /// Returns a copy of the counters since the server was created.
    #[must_use]
    pub const fn stats(&self) -> Stats {
        self.cx.stats
    }

    /// Whether any request waits for the offer.
    #[must_use]
    pub fn is_deferring(&self) -> bool {
        !self.offer.deferred().is_empty()
    }
}

/// # Steps
impl Server {
    /// Runs every step of the machine: sets the time, calls `what`, then settles what follows.
    fn act<R>(&mut self, now: Instant, what: impl FnOnce(&mut Server) -> R) -> R {
        self.cx.clock.advance(now);
        let done = what(self);
        self.settle();
        done
    }

    /// Serves the requests that need not wait for the driver's store any longer, stores the messages of loose queues, ends the queues that are
    /// done, reports changes of the watches, and goes on with a drain.
    fn settle(&mut self) {
        if self.binding.has_ready() {
            self.serve_ready();
        }
        while let Some(queue) = self.cx.outgoing.next_loose() {
            self.keep_for_later(queue);
        }
        while let Some(queue) = self.cx.outgoing.next_done() {
            self.binding.end_queue(&mut self.cx, queue);
        }
        if let Some(update) = self.watches.take_update() {
            self.cx.report(Event::Watching(update));
        }
        self.binding.flush_store_requests(&mut self.cx);
        if self.cx.lifecycle.is_draining() {
            self.go_on_draining();
        }
    }

    /// Returns how many requests are in flight or wait for the offer.
    fn open_requests(&self) -> usize {
        self.requests.in_flight() + self.offer.deferred().len()
    }
}

/// # Writing
impl Server {
    fn can_write(&self) -> bool {
        !self.cx.lifecycle.is_closed() && self.cx.outgoing.is_ready()
    }

    /// Writes the next message of the queue whose turn it is.
    pub(crate) fn write(&mut self, buf: &mut Vec<u8>) -> Option<Output<Event>> {
        while self.can_write() {
            let queue = self.cx.outgoing.next()?;
            let output = self.write_next(queue, buf);
            self.binding.flush_store_requests(&mut self.cx);
            let output = match output {
                Some(output) if self.binding.serves_others() => {
                    let routed = self.binding.route(&mut self.cx, output, buf);
                    // A drain may have waited for the client at the other server.
                    self.settle();
                    routed
                }
                unrouted => unrouted,
            };
            if output.is_some() {
                return output;
            }
        }
        None
    }

    fn write_next(&mut self, queue: QueueId, buf: &mut Vec<u8>) -> Option<Output<Event>> {
        let frame = self.cx.outgoing.pop(queue)?;
        let requests = &self.requests;
        let is_draining = self.cx.lifecycle.is_draining();
        let error = || requests.get(frame.reply_to()?)?.error_code();
        let form = self.binding.form(queue, &frame, is_draining, error)?;
        let start = buf.len();
        match form {
            Form::Line => {
                self.encode(buf, queue, frame);
                encode::line_end(buf);
            }
            Form::Json(..) => self.encode(buf, queue, frame),
            Form::Event { .. } => self.encode_event(buf, queue, frame),
        }
        let len = buf.len() - start;
        self.cx.stats.messages_out += 1;
        self.cx.stats.bytes_out += len as u64;
        self.cx.outgoing.wrote(queue, len);
        let output = self.binding.written(&mut self.cx, queue, form, len);
        if let Some(stream) = form.stream() {
            if self.disconnect_slow(stream, len) {
                self.settle();
            }
        }
        Some(output)
    }

    /// Appends a message or a signal to an event stream.
    fn encode_event(&mut self, buf: &mut Vec<u8>, queue: QueueId, frame: Frame) {
        if let Frame::Signal(signal) = frame {
            return self.binding.write_signal(buf, queue, signal);
        }
        let mut message = self.binding.take_scratch();
        self.encode(&mut message, queue, frame);
        self.binding.write_event(buf, queue, &message);
        self.binding.give_scratch(message);
    }

    /// Appends a message. A signal is none: it appends nothing.
    fn encode(&mut self, buf: &mut Vec<u8>, queue: QueueId, frame: Frame) {
        match frame {
            Frame::Acknowledged(id, granted) => MessageWriter::acknowledged(buf, &id, &granted),
            Frame::Answer(id, answer) => MessageWriter::answer(buf, id.as_ref(), &answer),
            Frame::Ask(ask) => self.requests.write_ask(buf, ask),
            Frame::AskCancelled(ask, reason) => {
                MessageWriter::cancel(buf, &asks::id(ask), reason.as_deref());
            }
            Frame::Changed(to, change) => MessageWriter::changed(buf, to.as_ref(), &change),
            Frame::ListenCancelled(id) => MessageWriter::cancel(buf, &id, None),
            Frame::ListenEnd(id) => {
                self.offer.writer().listen_end(buf, &id);
                self.cx.outgoing.reply_done(queue);
            }
            Frame::Log(_, level, logger, data) => {
                MessageWriter::log(buf, level, logger.as_deref(), &data);
            }
            Frame::Notify(method, params) => MessageWriter::notify(buf, &method, params.as_ref()),
            Frame::Progress(request) => self.requests.write_progress(buf, request),
            Frame::Questions(request) => {
                let writer = self.offer.writer();
                self.requests
                    .write_questions(&mut self.cx, writer, buf, request);
                self.cx.outgoing.reply_done(queue);
            }
            Frame::Reply(request, _) => {
                let writer = self.offer.writer();
                self.requests.write_reply(writer, buf, request);
                self.cx.outgoing.reply_done(queue);
            }
            Frame::Signal(_) => {}
        }
    }

    /// Stores the messages of a loose queue until a client asks for them, or drops them if replay is disabled (F-105).
    fn keep_for_later(&mut self, queue: QueueId) {
        let mut message = self.binding.take_scratch();
        while let Some(frame) = self.cx.outgoing.pop(queue) {
            message.clear();
            self.encode(&mut message, queue, frame);
            if !self.binding.store(queue, &message) {
                self.cx.stats.answers_dropped += 1;
            }
        }
        self.binding.give_scratch(message);
    }
}

/// # The end of the server
impl Server {
    /// Starts the drain because the client's input has ended. The client may still read.
    fn input_ended(&mut self) {
        if self.cx.lifecycle.has_input_ended() {
            return;
        }
        self.read_last_line();
        self.cx.lifecycle.end_input();
        self.drain(EndOfService::EndOfInput);
        self.requests.input_ended(&mut self.cx);
    }

    /// Starts the drain: nothing new is taken from now on.
    fn drain(&mut self, why: EndOfService) {
        let cue = match why {
            EndOfService::EndOfInput => Cue::EndOfInput,
            EndOfService::Shutdown => Cue::Shutdown,
        };
        if !self.cx.lifecycle.step(cue) {
            return;
        }
        self.cx.report(Event::Draining { why });
        self.cx.clock.arm(Timer::Drain, self.cx.config.drain);
        if why == EndOfService::Shutdown {
            self.refuse_deferred(Some(&unavailable()));
        }
        while let Some((wire, queue)) = self.watches.unlisten_first() {
            self.end_listen(wire, queue);
        }
        self.binding.drain(&mut self.cx);
    }

    fn end_listen(&mut self, wire: WireId, queue: QueueId) {
        if self.cx.config.listen_end == ListenEnd::CancelledThenResult {
            let frame = Frame::ListenCancelled(wire.id.clone());
            self.cx.outgoing.push(queue, frame);
        }
        self.cx.outgoing.push(queue, Frame::ListenEnd(wire.id));
    }

    /// Cancels the requests in flight at the drain deadline. Their clients get an error.
    fn drain_overdue(&mut self) {
        self.serve_ready();
        if !self.cx.lifecycle.step(Cue::DrainOver) {
            return;
        }
        self.refuse_deferred(Some(&unavailable()));
        for stream in self.binding.drain_over(&mut self.cx) {
            self.disconnect(stream);
        }
        self.requests.cut_short(&mut self.cx);
    }

    fn go_on_draining(&mut self) {
        let is_answered = self.requests.are_answered() && self.offer.deferred().is_empty();
        let has_time = self.cx.clock.is_armed(Timer::Drain);
        if !is_answered || self.binding.has_waiting(has_time) {
            return;
        }
        let shared = self.binding.shared_queue();
        let is_flushed = self.requests.in_flight() == 0
            && self.cx.outgoing.is_flushed(shared)
            && self.binding.are_exchanges_over();
        let remaining = Remaining {
            is_flushed,
            has_time,
            is_flushing: self.cx.clock.is_armed(Timer::Flush),
        };
        match self.cx.lifecycle.after_replies(remaining) {
            Next::Close => self.close(Cue::Drained),
            Next::Flush => self.cx.clock.arm(Timer::Flush, self.cx.config.flush),
            Next::Wait => {}
        }
    }

    /// Closes the server. No client gets anything more.
    fn close(&mut self, cue: Cue) {
        if !self.cx.lifecycle.applies(cue) {
            return;
        }
        self.offer.deferred_mut().clear();
        while self.watches.unlisten_first().is_some() {}
        self.requests.clear(&mut self.cx);
        self.cx.outgoing.clear();
        self.cx.clock.clear();
        self.binding.abort(&mut self.cx);
        let epoch = Epoch::FIRST;
        self.cx.outputs.push(Output::Release { epoch });
        let faults = self.cx.lifecycle.take_faults();
        self.cx.report(Event::Closed { faults });
        self.cx.lifecycle.step(cue);
    }
}

/// Shows the state and counts. Payloads are left out.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("state", &self.state())
            .field("requests", &self.requests())
            .field("asks_open", &self.requests.open_asks())
            .field("watches", &self.watches.listens())
            .field("next_deadline", &self.poll_timeout())
            .finish_non_exhaustive()
    }
}
