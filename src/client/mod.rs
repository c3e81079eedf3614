//! The client end of a link: the verbs of the application, the contract with the driver, and what is due when.
//!
//! The machine itself is one `impl Client` by subject: `life` for one life of the transport, `agreement` and `liveness` for how it becomes and stays ready, `inbound` and `outbound` for what is
//! said, `admission` and `settle` for how calls begin and end, `questions` and `changes` for what the server asks and announces; over HTTP,
//! `exchanges`, `responses` and `refusals` for each request and what is said to it, `streams` for those that go on, `standing` for
//! sessions and `credentials` for those. They
//! alone carry decisions between the children, which know neither the machine nor each other: `lifecycle` the transition
//! table, `handshake` the agreement, `retry` the budget, `keepalive` the pulse, `closing` the ladder, `calls`, `clock` and `errand` the
//! requests, `asks` the questions, `watcher` the watch, `catalog` the lists, `http` what is known of a server over HTTP, `stderr` the last words, `frame` the words.

mod admission;
mod agreement;
mod asks;
mod calls;
mod catalog;
mod changes;
mod clock;
mod closing;
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

pub use crate::noise::Noise;

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

use crate::config::{Binding, Config};
use crate::id::{AskId, CallId, Epoch, StreamId};
use crate::io::{Input, Output};
use crate::protocol::{ClientCapabilities, Era, Implementation, Kind, Version, method};
use crate::queue::Outbox;
use crate::stats::Stats;
use crate::time::{Deadline, Instant, TICK, Wake};
use crate::timers::Timers;
use crate::watch::{Change, List, Setting, Watch, WatchUpdate};
use crate::wire::{ErrorObject, Payload};

/// The client end of a link to one server.
///
/// It outlives every transport under it. A driver tells it what happened with [`handle`](Client::handle) and what time it is
/// with [`handle_timeout`](Client::handle_timeout), does what [`poll_output`](Client::poll_output) says, and sleeps until
/// [`poll_timeout`](Client::poll_timeout). The application uses the other verbs, between any two of these, and hears of
/// everything through [`Output::Event`].
///
/// Nothing a server does is an `Err`: that is data. An `Err` says that the caller made a mistake.
pub struct Client {
    config: Config,
    now: Instant,
    state: State,
    /// The number of the newest transport.
    epoch: Epoch,
    /// The transport that exists, from the moment it is asked for until it is let go.
    life: Option<Life>,
    /// What is known of a server over HTTP, where it is reached so.
    web: Option<Box<Web>>,
    /// How the server begins its results.
    preamble: Preamble,
    /// What was agreed on with the server that can still answer.
    session: Option<Arc<Session>>,
    last_end: Option<Arc<Ended>>,
    is_shutting_down: bool,
    /// When the transport is to be gone at the latest, once the link is not wanted any more.
    ends_by: Option<Instant>,
    /// Whoever is behind the application cannot take more.
    holds_back: bool,
    /// What the next server is told that this client can be asked, if that is another thing than now.
    to_declare: Option<Box<ClientCapabilities>>,
    /// Boxed: it is used only when a transport begins or ends, and would be a tenth of the link.
    budget: Box<Budget>,
    handshake: Handshake,
    pulse: Option<Box<Pulse>>,
    /// What the servers of this link were seen to do.
    habits: Habits,
    calls: Calls,
    asks: Asks,
    watcher: Box<Watcher>,
    /// The newest wish was not said to the server, which does not read.
    has_unsaid_wish: bool,
    /// Lists whose change is told in an event that nobody has polled yet.
    announced: [bool; List::ALL.len()],
    catalog: Catalog,
    errands: Errands,
    voice: Voice,
    frames: Frames,
    outbox: Outbox<Event>,
    timers: Timers<Timer>,
    stats: Stats,
}

/// Everything that can be due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// A question waits too long.
    Ask(AskId),
    /// Credentials are waited for for too long.
    Auth,
    /// The pause before the next attempt is over.
    Attempt,
    /// A call may be overdue.
    Call(CallId),
    /// The calls in flight have had their while.
    Drain,
    /// A server over HTTP does not say where messages go, or says nothing at all.
    Endpoint,
    /// An exchange of HTTP is to begin, or has had its while.
    Exchange(StreamId),
    /// The handshake has failed.
    Handshake,
    /// The grace of a rung is over.
    Ladder,
    /// The stream of what a server says by itself was waited for for long enough.
    Listen,
    /// The handshake takes long.
    Notice,
    /// The transport takes too long to open.
    Open,
    /// The pause that a server asked for is over.
    Pause,
    /// The modern probe is not answered.
    Probe,
    /// The pulse is to be felt.
    Pulse,
    /// The life has been good for long enough.
    Stable,
    /// A watch that the server ended is to be set up again.
    WatchRetry,
    /// The set-up of the watch takes too long.
    WatchSetup,
}

impl Timer {
    /// Those of a handshake that is not over.
    const OF_HANDSHAKE: [Timer; 4] = [
        Timer::Endpoint,
        Timer::Handshake,
        Timer::Notice,
        Timer::Probe,
    ];

    /// Whether it is about exchanges of HTTP, which also calls wait for that are given a while to end.
    const fn is_of_web(self) -> bool {
        matches!(self, Timer::Exchange(_) | Timer::Listen | Timer::Pause)
    }

    /// Whether it is about a transport that is not being taken down.
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
    /// A link that does nothing until it is wanted: by [`connect`](Client::connect), or by a call.
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

    /// Something happened to the transport `epoch`.
    ///
    /// What concerns another transport than the present one is counted and dropped. Poll all outputs afterwards.
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
            // A response may come all the same.
            Input::WriteFailed { .. } => {}
            Input::Activity { .. }
            | Input::Exited { .. }
            | Input::Request { .. }
            | Input::Stderr { .. } => {
                self.stats.stale_inputs += 1;
            }
        }
    }

    /// It is `now`. Early or late is harmless. Afterwards [`poll_timeout`](Client::poll_timeout) lies after `now`, or says
    /// that output waits.
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

    /// What the driver must do next; `None` when there is nothing. Bytes to write are appended to `buf`.
    ///
    /// Any verb and any input can change the answer. Poll until `None` after each of them.
    #[must_use = "an output that is not carried out is lost"]
    pub fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<Output<Event>> {
        let output = self.poll_outbox();
        output.or_else(|| self.write(buf))
    }

    /// What waits but writes, so that a relay can carry all of it before anything is written.
    pub(crate) fn poll_outbox(&mut self) -> Option<Output<Event>> {
        let output = self.outbox.pop()?;
        if let Output::Event(Event::Changed(Change::List(list))) = &output {
            self.announced[*list as usize] = false;
        }
        Some(output)
    }

    /// When to call [`handle_timeout`](Client::handle_timeout), and why. `None` when nothing is due by itself: the driver waits
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

    /// Whether to go on reading: `false` while much of what was read waits to be polled, or the application
    /// [holds back](Client::hold_back).
    #[must_use]
    pub fn wants_input(&self, _stream: StreamId) -> bool {
        // What is said in a handshake is little, and not to hear it would end it.
        let holds_back = self.holds_back && matches!(self.state, State::Ready | State::Draining);
        !holds_back && self.outbox.bytes() < self.config.limits.undelivered_bytes
    }
}

/// # The verbs of the application
impl Client {
    /// The link is wanted. Begins at once, or as soon as the floor between two attempts allows; does nothing
    /// where an attempt is under way, the link is ready, or it is closed.
    pub fn connect(&mut self, now: Instant) {
        self.act(now, |link| {
            link.forget_denial();
            link.attempt();
        });
    }

    /// The same, but a parked link looks no more often than calls make it. Whether the link is ready, or may come to be.
    pub(crate) fn look(&mut self, now: Instant) -> bool {
        self.act(now, Client::wanted)
    }

    /// The transport `seen` is to be replaced, for the reason given. Free of charge.
    ///
    /// Calls in flight are given a while to end. `seen` is the one that the caller means: when it is not the present
    /// one any more, somebody else has seen to it, and nothing happens. So any number of callers who saw the same trouble
    /// cause one reconnect.
    pub fn reconnect(&mut self, now: Instant, seen: Epoch, why: &str) {
        self.act(now, |link| {
            if link.life.as_ref().is_some_and(|life| life.epoch == seen) {
                let grace = link.config.policy.drain;
                link.wind_down(Cause::AskedTo { why: why.into() }, grace);
            }
        });
    }

    /// The link is not wanted any more. Every call ends at once; the transport is taken down by the ladder; then
    /// comes [`Event::Closed`], the last one.
    pub fn shutdown(&mut self, now: Instant) {
        self.act(now, |link| {
            link.is_shutting_down = true;
            link.settle_all(&FailureKind::Closed);
            link.down(Cause::Shutdown);
            link.close(Cue::Shutdown);
        });
    }

    /// The same, once all that was asked of the server is written: its input is closed, and the calls in flight have this long to be answered.
    pub(crate) fn finish(&mut self, now: Instant, grace: Duration) {
        self.act(now, |link| link.close_input(grace));
    }

    /// Whether all that was asked of the server is written, and its input is open.
    pub(crate) fn can_finish(&self) -> bool {
        !self.is_shutting_down && self.is_all_written()
    }

    /// How much waits to be sent.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.calls.waiting_bytes() + self.frames.bytes()
    }

    /// The call to give up so that another of this size has room: of those that were never sent, the newest of the longest. `None` if there is room for
    /// both, or if it is not far longer than the other.
    pub(crate) fn to_give_up_for(&self, bytes: usize) -> Option<CallId> {
        let longer = self.calls.far_longer(bytes)?;
        self.check_room(bytes).is_err().then_some(longer)
    }

    /// When the link is shut down, nothing is to be left of the transport by then.
    pub(crate) fn end_by(&mut self, by: Instant) {
        self.ends_by.get_or_insert(by);
    }

    /// The network is back, the laptop is awake: try now. A link that waits or is parked begins an attempt; a ready one is
    /// probed, if the policy watches over it at all.
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

    /// Asks something of the server. The outcome comes as [`Event::Done`], exactly once, whatever happens below.
    ///
    /// A call that cannot be sent yet waits. It makes an idle link connect, and a parked one look for its server.
    ///
    /// # Errors
    ///
    /// When the link is closed, the queue is full, the parameters are no object or have what the link itself writes, or
    /// the method is the link's own business. Other members of the parameters are not looked at: the server judges them.
    pub fn call(
        &mut self,
        now: Instant,
        method: impl Into<Cow<'static, str>>,
        params: Option<Payload>,
        options: CallOptions,
    ) -> Result<CallId, Misuse> {
        self.call_for(now, method.into(), params, options, None)
    }

    /// The same on behalf of somebody else, who declares what it can be asked itself. In the legacy era all is declared once, in the
    /// handshake.
    pub(crate) fn call_for(
        &mut self,
        now: Instant,
        method: Cow<'static, str>,
        params: Option<Payload>,
        options: CallOptions,
        behalf: Option<Box<Behalf>>,
    ) -> Result<CallId, Misuse> {
        let facts = match check_kind(&method, Kind::Request) {
            // What an application must not ask for itself, a client in front of a relay may.
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

    /// Reads one of the server's lists, all pages of it. The outcome is [`Outcome::Listed`].
    ///
    /// What is held and still fresh is given out at once; callers that want the same list at the same time share one
    /// reading of it. It may be repeated to the next server, whatever the options say, and reports no progress.
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

    /// A call is not wanted any more. It ends at once, and its server is told.
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

    /// The same in the words of somebody else.
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

    /// Answers a question of the server: with a result, or with the reason why there is none.
    ///
    /// In the modern era a refusal cannot be told to the server; the call that it asked for ends instead.
    ///
    /// # Errors
    ///
    /// When the question is not open any more, or the result is no object or too large.
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

    /// What the application wants to hear of, from now on and from every later server.
    pub fn watch(&mut self, now: Instant, wish: Watch) {
        self.act(now, |link| link.wish(&wish));
    }

    /// The same as a difference: to say it costs no more than there is to say.
    pub fn change_watch(&mut self, now: Instant, update: &WatchUpdate) {
        self.act(now, |link| link.change_wish(update));
    }

    /// What of the watch the server grants, as far as it has answered.
    #[must_use]
    pub fn granted(&self) -> &Watch {
        self.watcher.granted()
    }

    /// Tells the server something that has no answer, such as `notifications/roots/list_changed`.
    ///
    /// It goes out before calls that wait, and not at all if the transport ends before it was polled.
    ///
    /// # Errors
    ///
    /// When the link is not ready, the agreed version does not have it, the capabilities do not declare what it is about,
    /// the parameters are no object, the queue is full, or it is the link's own business.
    pub fn notify(
        &mut self,
        now: Instant,
        method: impl Into<Cow<'static, str>>,
        params: Option<Payload>,
    ) -> Result<(), Misuse> {
        let method = method.into();
        let facts = match check_kind(&method, Kind::Notification) {
            // What an application must not say itself, a client in front of a relay may.
            Err(_) if self.passes() => None,
            facts => facts?,
        };
        self.act(now, |link| link.announce(method, facts, params))
    }

    /// Whoever is behind the application cannot take more just now, or can again. Nothing is read from a ready server meanwhile,
    /// the clocks of its calls stand still, and the silence of a server that is not listened to is not held against it.
    pub fn hold_back(&mut self, now: Instant, holds_back: bool) {
        if holds_back != self.holds_back {
            self.act(now, |link| {
                link.holds_back = holds_back;
                link.heard();
                link.hold_calls();
            });
        }
    }

    /// The link speaks for this client from the next handshake on, in its version if the server speaks that, too, and under its name.
    ///
    /// What it sent as its `initialize` is passed on as it is, where it is given.
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

    /// Whether `initialize` waits for the client in front of the relay to send its own, now that the server has refused `server/discover`.
    pub(crate) fn is_held(&self) -> bool {
        self.handshake.is_held()
    }

    /// Sends the `initialize` that waits for the client in front of the relay.
    pub(crate) fn introduce(&mut self, now: Instant) {
        self.act(now, |link| {
            link.introduce_now();
        });
    }

    /// The error with which the server refuses `server/discover`, if it is known to.
    pub(crate) fn refusal(&self) -> Option<&ErrorObject> {
        self.handshake.refusal()
    }

    /// The server agreed to this for the client in front of the relay: it is asked of later servers, too.
    pub(crate) fn settle_setting(&mut self, setting: &Setting) {
        self.watcher.settle(setting);
    }

    /// Whether the server of this session speaks the era of the client in front of the relay that this link is an end of: then neither is judged
    /// here.
    pub(crate) fn passes(&self) -> bool {
        let session = self.session.as_ref().map(|session| session.version.era());
        let preferred = self.handshake.preferred().map(Version::era);
        self.config.relayed.is_some() && session.is_some() && session == preferred
    }

    /// The same for a call: whether the server speaks the era of the client that makes it.
    pub(super) fn passes_call(&self, call: CallId) -> bool {
        let behalf = self
            .calls
            .call(call)
            .and_then(|call| call.behalf.as_deref());
        let era = behalf.map(|behalf| behalf.peer.version.era());
        let session = self.session.as_ref().map(|session| session.version.era());
        era.is_some() && era == session
    }

    /// The version that was asked for in the last handshake with a legacy server, and the one that it chose.
    pub(crate) fn bargain(&self) -> Option<(Version, Version)> {
        let (asked, chosen) = (self.handshake.preferred()?, self.session.as_ref()?.version);
        (chosen.era() == asked.era()).then_some((asked, chosen))
    }

    /// What this client can be asked. A modern server is told with the next request, a legacy one with the next handshake.
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

    /// There are other credentials than those that the server refused, and the driver has them: what waits for them goes on, and a link
    /// that waits or is parked begins an attempt.
    pub fn authorized(&mut self, now: Instant) {
        self.act(now, Client::credentials_given);
    }

    /// There are no credentials that the server would take, for this reason: what waits for them fails. Does nothing where none are
    /// waited for.
    pub fn denied(&mut self, now: Instant, why: &str) {
        self.act(now, |link| link.credentials_denied(why));
    }

    /// Whether nothing is sent because the server wants credentials; see [`Event::AuthRequired`].
    #[must_use]
    pub fn awaits_authorization(&self) -> bool {
        self.awaits_credentials()
    }

    /// How it is set up.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Where the link stands.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// The newest transport that was asked for.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// What was agreed on with the server, while the link is ready.
    #[must_use]
    pub fn session(&self) -> Option<&Arc<Session>> {
        let session = self.session.as_ref();
        session.filter(|_| self.state == State::Ready)
    }

    /// The era that the server is believed to speak, to be remembered for the next process.
    #[must_use]
    pub fn era(&self) -> Option<Era> {
        self.handshake.era()
    }

    /// What is held of a list, fresh or not. See [`is_fresh`](Client::is_fresh).
    #[must_use]
    pub fn held(&self, list: List) -> Option<&Listing> {
        self.catalog.listing(list).map(|listing| &**listing)
    }

    /// Whether [`list`](Client::list) would answer at this time from what is held.
    #[must_use]
    pub fn is_fresh(&self, now: Instant, list: List) -> bool {
        self.fresh(list, self.now.max(now)).is_some()
    }

    /// How the last transport ended, if one did.
    #[must_use]
    pub fn last_end(&self) -> Option<&Arc<Ended>> {
        self.last_end.as_ref()
    }

    /// How many attempts in a row have failed.
    #[must_use]
    pub const fn failures(&self) -> u32 {
        self.budget.failures()
    }

    /// What was counted.
    #[must_use]
    pub const fn stats(&self) -> Stats {
        self.stats
    }
}

impl Client {
    /// Whatever happens to the machine happens in here: time moves on, it is done, and what follows from it follows.
    ///
    /// Time never goes back. A driver whose clock does is no reason to forget what was due.
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

    /// Nothing is in flight any more, or it has had its while. Why the life ends was said when the draining began.
    fn drained(&mut self) {
        self.down(Cause::Died);
    }

    fn is_drained(&self) -> bool {
        self.calls.in_flight() == 0 && self.calls.first_going_on().is_none()
    }
}

/// Where the link stands, in numbers. What it carries stays out.
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
