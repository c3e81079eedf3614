//! The client end of a link: the functions for the application, the contract with the driver, and the timers.
//!
//! The submodules fall into two groups. The first group holds `impl Client` blocks, one subject each:
//!
//! - `life` opens and closes the transport of one epoch. `agreement` runs the handshake. `liveness` checks a ready server.
//! - `inbound` and `outbound` read and write messages. `admission` accepts calls and `settle` ends them.
//! - `questions` handles asks. `changes` handles the watch and the lists.
//! - Over HTTP, `exchanges`, `responses` and `refusals` handle single requests and `streams` handles event streams. `standing` handles sessions and
//!   `credentials` handles authorization.
//!
//! The second group holds the parts of the state. These modules do not depend on `Client`, and only the first group carries decisions between them:
//!
//! - `lifecycle` is the transition table, `handshake` negotiates the version, and `retry` is the retry budget. `keepalive` decides when to probe, and
//!   `closing` lists the close steps.
//! - `calls`, `clock` and `errand` track requests, `asks` tracks asks, `watcher` tracks the watch, and `catalog` holds the lists.
//! - `http` is the state of a server over HTTP, `stderr` keeps the end of standard error, and `frame` encodes messages.
//! - `results` reads the head of a modern result. `event`, `failure` and `telling` define and format what the application sees.

mod admission;
mod agreement;
mod asks;
mod calls;
mod catalog;
mod changes;
mod clock;
mod closing;
pub(crate) mod config;
mod credentials;
mod errand;
mod event;
mod exchanges;
mod failure;
mod frame;
mod handshake;
mod http;
mod inbound;
mod keepalive;
mod life;
mod lifecycle;
mod liveness;
mod outbound;
mod questions;
mod refusals;
mod responses;
mod results;
mod retry;
mod settle;
mod standing;
pub(crate) mod stats;
mod stderr;
mod streams;
mod telling;
mod watcher;

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

pub(crate) use calls::Behalf;
pub use calls::CallOptions;
pub use catalog::Listing;
pub use event::{Ask, Challenge, Event, Outcome, Session, Withdrawn};
pub use failure::{Blame, Cause, Delivery, Ended, Failure, FailureKind, Misuse, Sign, TimeLimit};
pub(crate) use frame::Withdrawal;
pub(crate) use handshake::no_discover;
pub use lifecycle::State;

pub use crate::util::noise::Noise;

use admission::{check_kind, split_meta};
use asks::Asks;
use calls::{Call, Calls};
use catalog::Catalog;
use clock::Clock;
use errand::Errands;
use frame::{Frames, Voice};
use handshake::Handshake;
use http::Web;
use keepalive::{Habits, Pulse};
use life::Life;
use lifecycle::Cue;
use results::Preamble;
use retry::Budget;
use watcher::Watcher;

use crate::client::config::{Binding, Config};
use crate::client::stats::Stats;
use crate::driver::{AskId, CallId, Deadline, Epoch, Input, Instant, Output, StreamId, TICK, Wake};
use crate::json::Payload;
use crate::protocol::watch::{Change, List, Setting, Watch, WatchUpdate};
use crate::protocol::{ClientCapabilities, Era, Implementation, Kind, Version, method};
use crate::util::queue::Outbox;
use crate::util::timers::Timers;
use crate::wire::ErrorObject;

/// The client end of a link to one server.
///
/// A client outlives every transport under it. A driver reports what happened with [`handle`](Client::handle) and the time with
/// [`handle_timeout`](Client::handle_timeout). It carries out what [`poll_output`](Client::poll_output) returns and sleeps until
/// [`poll_timeout`](Client::poll_timeout). The application may call the other functions between any two of these calls. It receives all results
/// through [`Output::Event`].
///
/// A fault of the server is data and never an `Err`. An `Err` says that the caller made a mistake.
pub struct Client {
    config: Config,
    now: Instant,
    state: State,
    /// The number of the newest transport, which may be gone already.
    epoch: Epoch,
    /// The present transport, from the moment it is asked for until it is released.
    life: Option<Life>,
    /// The HTTP state, if the server is reached over HTTP.
    web: Option<Box<Web>>,
    /// The members with which the server usually begins its results.
    preamble: Preamble,
    /// The agreed session, as long as the server can still reply.
    session: Option<Arc<Session>>,
    last_end: Option<Arc<Ended>>,
    is_shutting_down: bool,
    /// The deadline by which the transport must be gone when the link shuts down.
    ends_by: Option<Instant>,
    /// Whether the application takes no more input; see [`hold_back`](Client::hold_back).
    holds_back: bool,
    /// The capabilities to declare in the next handshake, if they differ from the present ones.
    to_declare: Option<Box<ClientCapabilities>>,
    /// Boxed, because it is used only when a transport begins or ends, and is a tenth of the size of `Client`.
    budget: Box<Budget>,
    handshake: Handshake,
    pulse: Option<Box<Pulse>>,
    /// How the servers of this link behaved so far.
    habits: Habits,
    calls: Calls,
    asks: Asks,
    watcher: Box<Watcher>,
    /// Whether the newest watch was not sent yet, because the server does not read.
    has_unsaid_wish: bool,
    /// For each list, whether an event that reports its change still waits to be polled.
    announced: [bool; List::ALL.len()],
    catalog: Catalog,
    errands: Errands,
    voice: Voice,
    frames: Frames,
    outbox: Outbox<Event>,
    timers: Timers<Timer>,
    stats: Stats,
}

/// Everything that the client sets a deadline for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// An ask was not answered in time.
    Ask(AskId),
    /// The application gave no credentials in time.
    Auth,
    /// The pause before the next attempt is over.
    Attempt,
    /// A call may have hit a time limit.
    Call(CallId),
    /// The time for calls in flight to end is over.
    Drain,
    /// Over HTTP, the 2024-11-05 transport sent no `endpoint` event in time, or `initialize` has no reply.
    Endpoint,
    /// An HTTP exchange must begin, or has run out of time.
    Exchange(StreamId),
    /// The handshake timed out.
    Handshake,
    /// The grace of the present close step is over.
    Ladder,
    /// The stream for messages from the server was not opened in time.
    Listen,
    /// The handshake is slow, and the application is told.
    Notice,
    /// The transport took too long to open.
    Open,
    /// The pause that the server asked for is over.
    Pause,
    /// The server did not reply to the `server/discover` probe in time.
    Probe,
    /// It is time to check whether the server is responsive.
    Pulse,
    /// The epoch was ready for `Retry::stable_after`.
    Stable,
    /// It is time to set up again a watch that the server ended or refused.
    WatchRetry,
    /// The set-up of the watch took too long.
    WatchSetup,
}

impl Timer {
    /// The timers that run only during a handshake.
    const OF_HANDSHAKE: [Timer; 4] = [
        Timer::Endpoint,
        Timer::Handshake,
        Timer::Notice,
        Timer::Probe,
    ];

    /// Whether the timer belongs to HTTP exchanges. These timers stay armed while the link drains, because calls in flight depend on their exchanges.
    const fn is_of_web(self) -> bool {
        matches!(self, Timer::Exchange(_) | Timer::Listen | Timer::Pause)
    }

    /// Whether the timer only makes sense while the transport is not being closed.
    const fn is_of_life(self) -> bool {
        match self {
            Timer::Auth
            | Timer::Drain
            | Timer::Endpoint
            | Timer::Handshake
            | Timer::Notice
            | Timer::Open
            | Timer::Probe
            | Timer::Pulse
            | Timer::Stable
            | Timer::WatchRetry
            | Timer::WatchSetup => true,
            Timer::Ask(_)
            | Timer::Attempt
            | Timer::Call(_)
            | Timer::Exchange(_)
            | Timer::Ladder
            | Timer::Listen
            | Timer::Pause => false,
        }
    }
}

/// # The contract with the driver
impl Client {
    /// Creates a link. It stays idle until [`connect`](Client::connect) or a call needs it.
    #[must_use]
    pub fn new(mut config: Config) -> Client {
        config.limits = config.limits.workable();
        if config.http.is_some() {
            config.binding = Binding::Http;
        }
        Client {
            now: Instant::ZERO,
            state: State::Idle,
            epoch: Epoch::NONE,
            life: None,
            web: config.http.as_ref().map(|http| Box::new(Web::new(http))),
            session: None,
            preamble: Preamble::default(),
            last_end: None,
            is_shutting_down: false,
            ends_by: None,
            holds_back: false,
            to_declare: None,
            budget: Box::new(Budget::new(config.policy.retry, config.seed)),
            handshake: Handshake::new(config.dialect, config.versions, config.remembered_era),
            pulse: None,
            habits: Habits::default(),
            calls: Calls::new(config.has_many_clients()),
            asks: Asks::new(),
            watcher: Box::new(Watcher::new(config.watch.clone())),
            has_unsaid_wish: false,
            announced: [false; List::ALL.len()],
            catalog: Catalog::new(),
            errands: Errands::new(),
            voice: Voice::new(&config, Version::LATEST_LEGACY, None),
            frames: Frames::default(),
            outbox: Outbox::new(),
            timers: Timers::new(),
            stats: Stats::default(),
            config,
        }
    }

    /// Handles an event of the transport `epoch`.
    ///
    /// An input for another transport than the present one is counted and dropped. Poll all outputs afterwards.
    pub fn handle(&mut self, now: Instant, epoch: Epoch, input: Input<'_>) {
        let is_there = self.life.as_ref().is_some_and(|life| life.epoch == epoch);
        let is_duplex = input.stream() == Some(StreamId::DUPLEX);
        let is_ours = input.stream().is_none() || is_duplex != self.web.is_some();
        if !is_there || !is_ours {
            self.stats.stale_inputs += 1;
            return;
        }
        if self.web.is_some() {
            return self.act(now, |link| link.handle_http(input));
        }
        self.act(now, |link| match input {
            Input::Activity { cpu, is_stopped } => link.observed(cpu, is_stopped),
            Input::Bytes { bytes, .. } => link.bytes(&bytes),
            Input::End { faults, .. } => link.ended(&faults),
            Input::Exited { status } => link.exited(status),
            Input::OpenFailed { faults } => link.open_failed(&faults),
            Input::Opened => link.opened(),
            Input::Sent { len, .. } => link.sent(len),
            Input::Stderr { bytes } => link.stderr(&bytes),
            Input::WriteFailed { faults, .. } => link.write_failed(&faults),
            Input::Request { .. } | Input::Response { .. } => link.stats.stale_inputs += 1,
        });
    }

    fn handle_http(&mut self, input: Input<'_>) {
        match input {
            Input::Bytes { stream, bytes } => self.exchange_bytes(stream, &bytes),
            Input::End { stream, faults } => self.exchange_ended(stream, &faults),
            Input::OpenFailed { faults } => self.open_failed(&faults),
            Input::Opened => self.opened(),
            Input::Response { stream, head } => self.response(stream, &head),
            Input::Sent { stream, len } => self.exchange_sent(stream, len),
            // The server may still send a response.
            Input::WriteFailed { .. } => {}
            Input::Activity { .. }
            | Input::Exited { .. }
            | Input::Request { .. }
            | Input::Stderr { .. } => {
                self.stats.stale_inputs += 1;
            }
        }
    }

    /// Advances the time to `now` and handles every deadline that has passed. A call that comes early or late is harmless.
    ///
    /// Afterwards [`poll_timeout`](Client::poll_timeout) returns a time after `now`, or says that output waits.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.act(now, |link| {
            while let Some(timer) = link.timers.expire(link.now) {
                match timer {
                    Timer::Ask(ask) => link.ask_unanswered(ask),
                    Timer::Attempt => link.attempt(),
                    Timer::Auth => link.credentials_denied("none came in time"),
                    Timer::Call(call) => link.call_due(call),
                    Timer::Drain => link.drained(),
                    Timer::Endpoint => link.endpoint_overdue(),
                    Timer::Exchange(stream) => link.exchange_due(stream),
                    Timer::Handshake => link.down(Cause::HandshakeTimedOut),
                    Timer::Ladder => link.climb(),
                    Timer::Listen => link.stop_waiting_to_listen(),
                    Timer::Notice => link.notice(),
                    Timer::Open => link.down(Cause::OpenTimedOut),
                    Timer::Pause => link.pause_over(),
                    Timer::Probe => link.probe_unanswered(),
                    Timer::Pulse => link.feel_pulse(),
                    Timer::Stable => link.budget.forgive(),
                    Timer::WatchRetry => link.watch_again(),
                    Timer::WatchSetup => link.stop_waiting_for_watch(),
                }
            }
        });
    }

    /// Returns the next action for the driver, or `None` if there is none. Bytes to write are appended to `buf`.
    ///
    /// Any input and any call of the application can add output. Poll until `None` after each of them.
    #[must_use = "an output that is not carried out is lost"]
    pub fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<Output<Event>> {
        let output = self.poll_outbox();
        output.or_else(|| self.write(buf))
    }

    /// Returns the next queued output, but no writes. A relay uses this to handle all queued output before anything is written.
    pub(crate) fn poll_outbox(&mut self) -> Option<Output<Event>> {
        let output = self.outbox.pop()?;
        if let Output::Event(Event::Changed(Change::List(list))) = &output {
            self.announced[*list as usize] = false;
        }
        Some(output)
    }

    /// Returns when to call [`handle_timeout`](Client::handle_timeout), and why. `None` means that no deadline is set, so the driver waits for input
    /// and for the application. It does not mean that the link is closed: only [`state`](Client::state) says that.
    ///
    /// While output waits, the deadline is now. Any input, poll and call of the application can change the result.
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
            Timer::Ask(_) => Wake::Ask,
            Timer::Attempt if self.state == State::Parked => Wake::Parked,
            Timer::Attempt => Wake::Backoff,
            Timer::Call(_) => Wake::Call,
            Timer::Auth | Timer::Pause => Wake::Auth,
            Timer::Exchange(_) | Timer::Listen => Wake::Exchange,
            Timer::Endpoint | Timer::Handshake | Timer::Notice | Timer::Probe => Wake::Handshake,
            Timer::Drain | Timer::Ladder => Wake::Close,
            Timer::Open => Wake::Open,
            Timer::Pulse => Wake::Keepalive,
            Timer::Stable => Wake::Stable,
            Timer::WatchRetry | Timer::WatchSetup => Wake::Watch,
        };
        Some(Deadline { at, wake })
    }

    /// Whether the driver should go on reading. `false` while the unpolled output reaches the limit `undelivered_bytes`, or while the application
    /// [holds back](Client::hold_back).
    #[must_use]
    pub fn wants_input(&self, _stream: StreamId) -> bool {
        // A handshake is short, and it would time out if its messages were not read.
        let holds_back = self.holds_back && matches!(self.state, State::Ready | State::Draining);
        !holds_back && self.outbox.bytes() < self.config.limits.undelivered_bytes
    }
}

/// # Functions for the application
impl Client {
    /// Starts an attempt to connect, at once or as soon as the retry policy's `floor` allows. Does nothing while a transport exists or after the link
    /// has closed.
    pub fn connect(&mut self, now: Instant) {
        self.act(now, |link| {
            link.forget_denial();
            link.attempt();
        });
    }

    /// Starts an idle link, and a parked one at the pace of calls. Returns whether the link is ready or may become ready.
    pub(crate) fn look(&mut self, now: Instant) -> bool {
        self.act(now, Client::wanted)
    }

    /// Replaces the transport `seen`, for the reason `why`. This does not count against the retry budget.
    ///
    /// Calls in flight get the time `Policy::drain` to end. Nothing happens if `seen` is not the present transport, because it was replaced already.
    /// So any number of callers that saw the same problem cause only one reconnect.
    pub fn reconnect(&mut self, now: Instant, seen: Epoch, why: &str) {
        self.act(now, |link| {
            if link.life.as_ref().is_some_and(|life| life.epoch == seen) {
                let grace = link.config.policy.drain;
                link.wind_down(Cause::AskedTo { why: why.into() }, grace);
            }
        });
    }

    /// Shuts the link down. Every call ends at once, and the transport is closed step by step. [`Event::Closed`] is the last event.
    pub fn shutdown(&mut self, now: Instant) {
        self.act(now, |link| {
            link.is_shutting_down = true;
            link.settle_all(&FailureKind::Closed);
            link.down(Cause::Shutdown);
            link.close(Cue::Shutdown);
        });
    }

    /// Like [`shutdown`](Client::shutdown), but closes the server's input first and gives calls in flight up to `grace` to be answered. Call it only
    /// if [`can_finish`](Client::can_finish).
    pub(crate) fn finish(&mut self, now: Instant, grace: Duration) {
        self.act(now, |link| link.close_input(grace));
    }

    /// Whether every request is written and the server's input is still open.
    pub(crate) fn can_finish(&self) -> bool {
        !self.is_shutting_down && self.is_all_written()
    }

    /// The bytes that wait to be sent.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.calls.waiting_bytes() + self.frames.bytes()
    }

    /// Returns the call to drop so that a new one of `bytes` fits into the queue: the newest of the largest unsent calls. `None` if the new one fits
    /// anyway, or if no queued call is of a larger size class (a power of two).
    pub(crate) fn to_give_up_for(&self, bytes: usize) -> Option<CallId> {
        let longer = self.calls.far_longer(bytes)?;
        self.check_room(bytes).is_err().then_some(longer)
    }

    /// Sets the deadline by which the transport must be gone when the link shuts down. Only the first deadline counts.
    pub(crate) fn end_by(&mut self, by: Instant) {
        self.ends_by.get_or_insert(by);
    }

    /// Tries again now, for example because the network is back or the machine has woken up. A waiting or parked link starts an attempt. A ready link
    /// probes its server, if the policy has a keepalive.
    pub fn wake(&mut self, now: Instant) {
        self.act(now, |link| {
            link.forget_denial();
            match link.state {
                State::Waiting | State::Parked => link.attempt(),
                State::Ready => link.probe_now(),
                State::Idle
                | State::Opening
                | State::Handshaking
                | State::Draining
                | State::Closing
                | State::Closed => {}
            }
        });
    }

    /// Sends a request to the server. Its outcome comes as [`Event::Done`], exactly once, whatever happens to the transport.
    ///
    /// A call that cannot be sent yet is queued. It makes an idle link connect and a parked link try to reach its server.
    ///
    /// # Errors
    ///
    /// - The link is closed, or the queue is full.
    /// - The parameters are not an object, or contain members that the link itself writes. Other members are not checked: that is up to the server.
    /// - The link itself sends this method.
    pub fn call(
        &mut self,
        now: Instant,
        method: impl Into<Cow<'static, str>>,
        params: Option<Payload>,
        options: CallOptions,
    ) -> Result<CallId, Misuse> {
        self.call_for(now, method.into(), params, options, None)
    }

    /// Like [`call`](Client::call), but on behalf of a client in front of a relay, which declares its own capabilities. In the legacy era,
    /// capabilities are declared only once, in the handshake.
    pub(crate) fn call_for(
        &mut self,
        now: Instant,
        method: Cow<'static, str>,
        params: Option<Payload>,
        options: CallOptions,
        behalf: Option<Box<Behalf>>,
    ) -> Result<CallId, Misuse> {
        let facts = match check_kind(&method, Kind::Request) {
            // A client in front of a relay may send methods that the application must not.
            Err(_) if behalf.is_some() => method::find(&method),
            facts => facts?,
        };
        self.act(now, |link| {
            let has_rounds = facts.is_some_and(|facts| facts.may_need_input);
            let split = params.map(|params| split_meta(params, has_rounds));
            let split = split.transpose()?.unwrap_or_default();
            let clock = Clock::new(link.now, &options, &link.config.policy);
            let mut call = Call::new(method, facts, split, options, clock);
            call.behalf = behalf;
            link.accept(call)
        })
    }

    /// Reads all pages of one of the server's lists. The outcome is [`Outcome::Listed`].
    ///
    /// A cached list that is still fresh is returned at once. Calls that want the same list at the same time share one fetch. If the server ends, the
    /// list may be fetched from the next one, whatever the options say. A list call reports no progress.
    ///
    /// # Errors
    ///
    /// When the link is closed or the queue is full.
    pub fn list(
        &mut self,
        now: Instant,
        list: List,
        options: CallOptions,
    ) -> Result<CallId, Misuse> {
        self.act(now, |link| {
            let clock = Clock::new(link.now, &options, &link.config.policy);
            link.accept(Call::listing(list, options, clock))
        })
    }

    /// Cancels a call. It ends at once, and the server is told.
    ///
    /// # Errors
    ///
    /// When there is no such call under way.
    pub fn cancel(
        &mut self,
        now: Instant,
        call: CallId,
        reason: Option<&str>,
    ) -> Result<(), Misuse> {
        let reason = reason.map(Into::into);
        self.withdraw(now, call, Withdrawal { reason, meta: None })
    }

    /// Like [`cancel`](Client::cancel), with the reason and `_meta` of a client in front of a relay.
    pub(crate) fn withdraw(
        &mut self,
        now: Instant,
        call: CallId,
        words: Withdrawal,
    ) -> Result<(), Misuse> {
        self.act(now, |link| {
            if link.calls.call(call).is_none() {
                return Err(Misuse::UnknownCall);
            }
            let kind = FailureKind::Cancelled {
                reason: words.reason.clone(),
            };
            link.abort(call, kind, words);
            Ok(())
        })
    }

    /// Answers an ask of the server, with a result or with an error.
    ///
    /// A modern server cannot be sent an error. The call that led to the ask fails instead.
    ///
    /// # Errors
    ///
    /// When the ask is not open any more, or the answer is too large or not an object.
    pub fn answer(
        &mut self,
        now: Instant,
        ask: AskId,
        answer: Result<Payload, ErrorObject>,
    ) -> Result<(), Misuse> {
        if answer.as_ref().is_ok_and(|result| !result.is_object()) {
            return Err(Misuse::NotAnObject { what: "an answer" });
        }
        let bytes = match &answer {
            Ok(result) => result.as_str().len(),
            Err(error) => {
                let data = error.data.as_ref().map_or(0, |data| data.as_str().len());
                error.message.len() + data
            }
        };
        if bytes > self.config.limits.message_bytes {
            return Err(Misuse::TooLarge { bytes });
        }
        self.act(now, |link| {
            let open = link.asks.close(ask).ok_or(Misuse::UnknownAsk)?;
            link.timers.disarm(Timer::Ask(ask));
            link.give(open, answer);
            Ok(())
        })
    }

    /// Sets what the application wants to hear of, from this server and every later one.
    pub fn watch(&mut self, now: Instant, wish: Watch) {
        self.act(now, |link| link.wish(&wish));
    }

    /// Like [`watch`](Client::watch), but takes only the difference, so that the cost depends on the size of the change.
    pub fn change_watch(&mut self, now: Instant, update: &WatchUpdate) {
        self.act(now, |link| link.change_wish(update));
    }

    /// The part of the watch that the server has granted so far.
    #[must_use]
    pub fn granted(&self) -> &Watch {
        self.watcher.granted()
    }

    /// Sends a notification to the server, such as `notifications/roots/list_changed`.
    ///
    /// It is sent before queued calls. It is lost if the transport ends before the driver polls it.
    ///
    /// # Errors
    ///
    /// - The link is not ready, or the queue is full.
    /// - The agreed version does not have the method, or the capabilities do not declare its subject.
    /// - The parameters are not an object.
    /// - The link itself sends this method.
    pub fn notify(
        &mut self,
        now: Instant,
        method: impl Into<Cow<'static, str>>,
        params: Option<Payload>,
    ) -> Result<(), Misuse> {
        let method = method.into();
        let facts = match check_kind(&method, Kind::Notification) {
            // A client in front of a relay may send notifications that the application must not.
            Err(_) if self.passes() => None,
            facts => facts?,
        };
        self.act(now, |link| link.announce(method, facts, params))
    }

    /// Says whether the application can take more input. While it holds back, nothing is read from a ready server and the clocks of its calls stop.
    /// The silence of a server that is not read from does not count against it.
    pub fn hold_back(&mut self, now: Instant, holds_back: bool) {
        if holds_back != self.holds_back {
            self.act(now, |link| {
                link.holds_back = holds_back;
                link.heard();
                link.hold_calls();
            });
        }
    }

    /// Makes the link speak for this client of a relay: in its version, if the server has it too, and under its name. The version applies from the
    /// next handshake on.
    ///
    /// `introduction` is the client's own `initialize`, which is passed on unchanged.
    pub(crate) fn speak_for(
        &mut self,
        now: Instant,
        client: Option<&Implementation>,
        version: Version,
        introduction: Option<Payload>,
    ) {
        self.act(now, |link| {
            link.handshake.prefer(version);
            let is_spoken = link.config.versions.contains(version);
            if let Some(relayed) = &mut link.config.relayed {
                relayed.introduction = introduction.filter(|_| is_spoken);
            }
            if let Some(client) = client.filter(|client| **client != link.config.client) {
                link.config.client = client.clone();
                let session = link.session.as_ref().map(|session| session.version);
                if let Some(version) = session {
                    link.speak(version);
                }
            }
            if version.era() == Era::Legacy {
                link.introduce_now();
            }
        });
    }

    /// Whether the link waits for the `initialize` of the client in front of the relay, because the server refused `server/discover`.
    pub(crate) fn is_held(&self) -> bool {
        self.handshake.is_held()
    }

    /// Sends the `initialize` that waits for the client in front of the relay.
    pub(crate) fn introduce(&mut self, now: Instant) {
        self.act(now, |link| {
            link.introduce_now();
        });
    }

    /// The error with which the server refuses `server/discover`, if it is known to refuse it.
    pub(crate) fn refusal(&self) -> Option<&ErrorObject> {
        self.handshake.refusal()
    }

    /// Records a setting that the server accepted from the client in front of the relay, so that later servers are asked for it too.
    pub(crate) fn settle_setting(&mut self, setting: &Setting) {
        self.watcher.settle(setting);
    }

    /// Whether the server and the client in front of the relay speak the same era. If so, the link passes their messages on without checking them.
    pub(crate) fn passes(&self) -> bool {
        let session = self.session.as_ref().map(|session| session.version.era());
        let preferred = self.handshake.preferred().map(Version::era);
        self.config.relayed.is_some() && session.is_some() && session == preferred
    }

    /// Like [`passes`](Client::passes), for one call: whether the server speaks the era of the client that makes the call.
    pub(super) fn passes_call(&self, call: CallId) -> bool {
        let behalf = self
            .calls
            .call(call)
            .and_then(|call| call.behalf.as_deref());
        let era = behalf.map(|behalf| behalf.peer.version.era());
        let session = self.session.as_ref().map(|session| session.version.era());
        era.is_some() && era == session
    }

    /// The preferred version and the one that the server chose, if both are of the same era.
    pub(crate) fn bargain(&self) -> Option<(Version, Version)> {
        let (asked, chosen) = (self.handshake.preferred()?, self.session.as_ref()?.version);
        (chosen.era() == asked.era()).then_some((asked, chosen))
    }

    /// Declares the capabilities of this client. A modern server is told with the next request, a legacy server with the next handshake.
    pub fn declare(&mut self, now: Instant, capabilities: ClientCapabilities) {
        self.act(now, |link| {
            let session = link.session.as_ref().map(|session| session.version);
            match session {
                Some(version) if version.era() == Era::Modern => {
                    link.config.capabilities = capabilities;
                    link.speak(version);
                }
                Some(_) | None => {
                    let is_new = link.config.capabilities != capabilities;
                    link.to_declare = is_new.then(|| Box::new(capabilities));
                }
            }
        });
    }

    /// Says that the driver has new credentials, after the server refused the old ones. Everything that waits for them continues. A waiting or parked
    /// link starts an attempt.
    pub fn authorized(&mut self, now: Instant) {
        self.act(now, Client::credentials_given);
    }

    /// Says that there are no credentials that the server would accept, and why. Everything that waits for them fails. Does nothing if the link does
    /// not wait for credentials.
    pub fn denied(&mut self, now: Instant, why: &str) {
        self.act(now, |link| link.credentials_denied(why));
    }

    /// Whether the link sends nothing because the server wants credentials; see [`Event::AuthRequired`].
    #[must_use]
    pub fn awaits_authorization(&self) -> bool {
        self.awaits_credentials()
    }

    /// The configuration of this link.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The state of the link.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// The newest transport that was asked for.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The agreed session, while the link is ready.
    #[must_use]
    pub fn session(&self) -> Option<&Arc<Session>> {
        let session = self.session.as_ref();
        session.filter(|_| self.state == State::Ready)
    }

    /// The era that the server is believed to speak. The application can store it for the next process.
    #[must_use]
    pub fn era(&self) -> Option<Era> {
        self.handshake.era()
    }

    /// The cached list, fresh or not; see [`is_fresh`](Client::is_fresh).
    #[must_use]
    pub fn held(&self, list: List) -> Option<&Listing> {
        self.catalog.listing(list).map(|listing| &**listing)
    }

    /// Whether [`list`](Client::list) would use the cached list at this time.
    #[must_use]
    pub fn is_fresh(&self, now: Instant, list: List) -> bool {
        self.fresh(list, self.now.max(now)).is_some()
    }

    /// How the last transport ended, if one did.
    #[must_use]
    pub fn last_end(&self) -> Option<&Arc<Ended>> {
        self.last_end.as_ref()
    }

    /// The number of attempts that failed in a row.
    #[must_use]
    pub const fn failures(&self) -> u32 {
        self.budget.failures()
    }

    /// The counters of this link.
    #[must_use]
    pub const fn stats(&self) -> Stats {
        self.stats
    }
}

impl Client {
    /// Runs one change of the machine: advances the time, calls `what`, and then does the work that may follow from it.
    ///
    /// Time never goes back. If the driver's clock does, deadlines still hold.
    fn act<R>(&mut self, now: Instant, what: impl FnOnce(&mut Client) -> R) -> R {
        self.now = self.now.max(now);
        let done = what(self);
        if self.state == State::Draining && self.is_drained() {
            self.drained();
        }
        self.fetch_lists();
        self.say_wish();
        self.tend_watch();
        done
    }

    fn tell(&mut self, event: Event) {
        self.outbox.push(Output::Event(event));
    }

    fn arm_in(&mut self, timer: Timer, span: Duration) {
        self.arm_at(timer, self.now + span);
    }

    fn arm_at(&mut self, timer: Timer, at: Instant) {
        self.timers.arm(timer, at.max(self.now + TICK));
    }

    /// Ends draining, because nothing is in flight any more or the time is over. The real cause was recorded when draining began.
    fn drained(&mut self) {
        self.down(Cause::Died);
    }

    fn is_drained(&self) -> bool {
        self.calls.in_flight() == 0 && self.calls.first_going_on().is_none()
    }
}

/// Shows state and counters, but no payloads.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("state", &self.state)
            .field("epoch", &self.epoch)
            .field("failures", &self.budget.failures())
            .field("calls_waiting", &self.calls.queued())
            .field("calls_in_flight", &self.calls.in_flight())
            .field("asks_open", &self.asks.len())
            .field("next_deadline", &self.poll_timeout())
            .finish_non_exhaustive()
    }
}
