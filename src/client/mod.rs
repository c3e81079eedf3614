//! The client end of a link: the functions for the application, the contract with the driver, and the timers.
//!
//! [`Client`] has the contract with the driver and the functions for the application. [`Event`] is what it tells the application, [`Outcome`] the end
//! of a call, and [`Failure`] the reason for a call without a reply. The settings are [`Config`] and its parts.

// Four files implement `Client`: this one has the contract with the driver and the functions for the application, `dispatch` applies what was
// heard, `sending` accepts and writes what is sent, and `epochs` opens and closes transports. `relay_link` adds what only a relay needs.
//
// The components keep their fields private and do not name `Client`. Each takes the `Context`, puts into it what no other component reacts to, and
// returns what another one must do:
//
// - `lifecycle`: the state of the link, its epochs, the retry budget and the keepalive;
// - `session`: the handshake, the agreed session, and the encoding of messages;
// - `requests`: calls, and the pending requests by wire id;
// - `asks`: what the server asks; `catalog`: the lists of the server, and the watch; `binding`: how the server is reached.

mod asks;
#[macro_use]
mod binding;
mod catalog;
pub(crate) mod config;
mod context;
mod dispatch;
mod display;
mod epochs;
mod event;
mod failure;
mod frame;
mod lifecycle;
mod relay_link;
mod requests;
mod sending;
mod session;
pub(crate) mod stats;

use alloc::borrow::Cow;
use alloc::vec::Vec;

pub use catalog::lists::Listing;
pub use event::{Ask, Challenge, Event, Outcome, Session, Withdrawn};
pub use failure::{Blame, Cause, Delivery, Ended, Failure, FailureKind, Misuse, Sign, TimeLimit};
pub(crate) use frame::Withdrawal;
pub use lifecycle::table::State;
pub(crate) use relay_link::RelayLink;
pub(crate) use requests::behalf::Behalf;
pub use requests::options::CallOptions;
pub(crate) use session::handshake::no_discover;

pub use crate::util::noise::Noise;

use asks::{Asks, check_answer};
use binding::Binding;
use catalog::Catalog;
use config::Config;
use context::{Context, Timer};
use lifecycle::Lifecycle;
use lifecycle::table::Cue;
use requests::Requests;
use requests::admission::{check_notification, check_request};
use requests::calls::Call;
use requests::deadlines::Clock;
use session::SessionState;
use stats::Stats;

use crate::driver::{AskId, CallId, Deadline, Epoch, Input, Instant, Output, StreamId, Wake};
use crate::json::Payload;
use crate::protocol::watch::{Change, List, Watch, WatchUpdate};
use crate::protocol::{ClientCapabilities, Era};
use crate::util::Arc;
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
    cx: Context,
    lifecycle: Lifecycle,
    session: SessionState,
    requests: Requests,
    asks: Asks,
    catalog: Catalog,
    binding: Binding,
    /// Whether the application takes no more input; see [`hold_back`](Client::hold_back).
    is_held_back: bool,
}

/// # The contract with the driver
impl Client {
    /// Creates a client. It stays idle until [`connect`](Client::connect) or a call needs it.
    #[must_use]
    pub fn new(mut config: Config) -> Client {
        config.limits = config.limits.workable();
        Client {
            binding: Binding::new(&config),
            lifecycle: Lifecycle::new(&config),
            session: SessionState::new(&config),
            requests: Requests::new(&config),
            asks: Asks::new(),
            catalog: Catalog::new(&config),
            is_held_back: false,
            cx: Context::new(config),
        }
    }

    /// Handles an event of the transport `epoch`.
    ///
    /// An input for another transport than the present one is counted and dropped. Poll all outputs afterwards.
    pub fn handle(&mut self, now: Instant, epoch: Epoch, input: Input<'_>) {
        if !self.lifecycle.is_current(epoch) || !self.binding.is_for(&input) {
            self.cx.stats.stale_inputs += 1;
            return;
        }
        self.step(now, |client| client.input(input));
    }

    fn input(&mut self, input: Input<'_>) {
        if !self.binding.accepts(&input) {
            self.cx.stats.stale_inputs += 1;
            return;
        }
        match input {
            Input::Activity { cpu, is_stopped } => {
                if self.lifecycle.observed(self.cx.now, cpu, is_stopped) {
                    self.check_liveness();
                }
            }
            Input::Bytes { stream, bytes } => {
                let (reading, is_alive) = self.binding.bytes(&mut self.cx, stream, &bytes);
                if is_alive {
                    self.heard_something();
                }
                self.read(reading);
            }
            Input::End { stream, faults } => {
                let reading = self.binding.ended(&mut self.cx, stream, &faults);
                self.read(reading);
                if self.binding.ends_with_output() {
                    self.output_ended(&faults);
                }
            }
            Input::Exited { status } => self.exited(status),
            Input::OpenFailed { faults } => self.open_failed(&faults),
            Input::Opened => self.opened(),
            Input::Response { stream, head } => {
                let (reading, is_alive) = self.binding.response(&mut self.cx, stream, &head);
                if is_alive {
                    self.heard_something();
                }
                self.read(reading);
            }
            Input::Sent { stream, len } => self.binding.sent(stream, len),
            Input::Stderr { bytes } => {
                self.lifecycle.stderr(&bytes);
                self.heard_something();
            }
            Input::WriteFailed { faults, .. } => self.write_failed(&faults),
            Input::Lease { .. }
            | Input::Note { .. }
            | Input::Request { .. }
            | Input::Stored { .. } => {}
        }
    }

    /// Advances the time to `now` and handles every deadline that has passed. A call that comes early or late is harmless.
    ///
    /// Afterwards [`poll_timeout`](Client::poll_timeout) returns a time after `now`, or says that output waits.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.step(now, |client| {
            while let Some(timer) = client.cx.timers.expire(client.cx.now) {
                client.due(timer);
            }
        });
    }

    fn due(&mut self, timer: Timer) {
        match timer {
            Timer::Ask(ask) => self.ask_expired(ask),
            Timer::Attempt => self.attempt(),
            Timer::Auth => self.credentials_denied("none came in time"),
            Timer::Call(call) => self.call_due(call),
            Timer::Drain => self.drained(),
            Timer::Endpoint => {
                let facts = facts!(self);
                let heard = self.binding.endpoint_overdue(&mut self.cx, facts);
                self.heard(heard);
            }
            Timer::Exchange(stream) => {
                let facts = facts!(self);
                let reading = self.binding.due(&mut self.cx, facts, stream);
                self.read(reading);
            }
            Timer::Handshake => self.take_down(Cause::HandshakeTimedOut),
            Timer::CloseStep => self.next_close_step(),
            Timer::Listen => self.binding.stop_awaiting_listen_stream(),
            Timer::Notice => self.lifecycle.tell_slow_handshake(&mut self.cx),
            Timer::Open => self.take_down(Cause::OpenTimedOut),
            Timer::Pause => {
                self.binding.pause_over();
                // During the pause the server had nothing to reply to, so its silence does not count.
                self.heard_something();
            }
            Timer::Probe => self.probe_unanswered(),
            Timer::Keepalive => self.check_liveness(),
            Timer::Stable => self.lifecycle.reset_failures(),
            Timer::WatchRetry => self.retry_watch(),
            Timer::WatchSetup => self.stop_waiting_for_watch(),
        }
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
        let output = self.cx.outbox.pop()?;
        if let Output::Event(Event::Changed(Change::List(list))) = &output {
            self.catalog.polled(*list);
        }
        Some(output)
    }

    /// Returns when to call [`handle_timeout`](Client::handle_timeout), and why. `None` means that no deadline is set, so the driver waits for input
    /// and for the application. It does not mean that the link is closed: only [`state`](Client::state) says that.
    ///
    /// While output waits, the deadline is now. Any input, poll and call of the application can change the result.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Deadline> {
        if !self.cx.outbox.is_empty() || self.can_write() {
            return Some(Deadline {
                at: self.cx.now,
                wake: Wake::Output,
            });
        }
        let (at, timer) = self.cx.timers.next()?;
        let wake = timer.wake(self.lifecycle.state());
        Some(Deadline { at, wake })
    }

    /// Whether the driver should go on reading. `false` while the unpolled output reaches the limit `undelivered_bytes`, or while the application
    /// [holds back](Client::hold_back).
    #[must_use]
    pub fn wants_input(&self, _stream: StreamId) -> bool {
        facts!(self).wants_input(&self.cx)
    }
}

/// # Functions for the application
impl Client {
    /// Starts an attempt to connect, at once or as soon as the retry policy's `floor` allows. Does nothing while a transport exists or after the link
    /// has closed.
    pub fn connect(&mut self, now: Instant) {
        self.step(now, |client| {
            client.binding.forget_denial();
            client.attempt();
        });
    }

    /// Replaces the transport `seen`, for the reason `why`. This does not count against the retry budget.
    ///
    /// Calls in flight get the time `Policy::drain` to end. Nothing happens if `seen` is not the present transport, because it was replaced already.
    /// So any number of callers that saw the same problem cause only one reconnect.
    pub fn reconnect(&mut self, now: Instant, seen: Epoch, why: &str) {
        self.step(now, |client| {
            if client.lifecycle.is_current(seen) {
                let grace = client.cx.config.policy.drain;
                client.drain(Cause::AskedTo { why: why.into() }, grace);
            }
        });
    }

    /// Shuts the link down. Every call ends at once, and the transport is closed step by step. [`Event::Closed`] is the last event.
    pub fn shutdown(&mut self, now: Instant) {
        self.step(now, |client| {
            client.lifecycle.shut_down();
            client.fail_all(&FailureKind::Closed);
            client.take_down(Cause::Shutdown);
            client.close(Cue::Shutdown);
        });
    }

    /// Tries again now, for example because the network is back or the machine has woken up. A waiting or parked link starts an attempt. A ready link
    /// probes its server, if the policy has a keepalive and the link does not wait for credentials or for a time that the server named.
    pub fn wake(&mut self, now: Instant) {
        self.step(now, |client| {
            client.binding.forget_denial();
            let state = client.lifecycle.state();
            if state.is_between_attempts() {
                client.attempt();
            } else if state == State::Ready {
                client.probe_now();
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
        let method = method.into();
        let facts = check_request(&method, false)?;
        self.step(now, |client| {
            let clock = Clock::new(client.cx.now, &options, &client.cx.config.policy);
            client.accept(Call::with_params(method, facts, params, options, clock)?)
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
        self.step(now, |client| {
            let clock = Clock::new(client.cx.now, &options, &client.cx.config.policy);
            client.accept(Call::listing(list, options, clock))
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

    /// Like [`cancel`](Client::cancel), with the reason and `_meta` of a relay's client.
    pub(crate) fn withdraw(
        &mut self,
        now: Instant,
        call: CallId,
        words: Withdrawal,
    ) -> Result<(), Misuse> {
        self.step(now, |client| {
            if client.requests.call(call).is_none() {
                return Err(Misuse::UnknownCall);
            }
            let kind = FailureKind::Cancelled {
                reason: words.reason.clone(),
            };
            client.abort(call, kind, words);
            Ok(())
        })
    }

    /// Answers an ask of the server, with a result or with an error.
    ///
    /// A modern server cannot be sent an error. The call that led to the ask fails instead.
    ///
    /// # Errors
    ///
    /// When the ask is not open any more, or the answer is too large or not an object. Also when the calls of a relay's clients are too large in all.
    pub fn answer(
        &mut self,
        now: Instant,
        ask: AskId,
        answer: Result<Payload, ErrorObject>,
    ) -> Result<(), Misuse> {
        check_answer(&answer, self.cx.config.limits.message_bytes)?;
        if let (Ok(answer), Some(call)) = (&answer, self.asks.call_of(ask)) {
            // The call keeps it until the last answer of its round is there.
            let bytes = answer.as_str().len();
            self.requests.check_growth(&self.cx, call, bytes)?;
        }
        self.step(now, |client| {
            let may_repeat = client.binding.may_repeat_requests();
            let given = client.asks.give(&mut client.cx, ask, answer, may_repeat);
            client.given(given.ok_or(Misuse::UnknownAsk)?);
            Ok(())
        })
    }

    /// Sets what the application wants to hear of, from this server and every later one.
    pub fn watch(&mut self, now: Instant, wish: Watch) {
        self.step(now, |client| {
            client
                .change_watch_by(|client, session| client.catalog.wish(&client.cx, session, &wish));
        });
    }

    /// Like [`watch`](Client::watch), but takes only the difference, so that the cost depends on the size of the change.
    pub fn change_watch(&mut self, now: Instant, update: &WatchUpdate) {
        self.step(now, |client| {
            client.change_watch_by(|client, session| {
                client.catalog.change_wish(&client.cx, session, update)
            });
        });
    }

    /// The part of the watch that the server has granted so far.
    #[must_use]
    pub fn granted(&self) -> &Watch {
        self.catalog.granted()
    }

    /// Sends a notification to the server, such as `notifications/roots/list_changed`.
    ///
    /// It is sent before queued calls. It is lost if the transport ends before the driver polls it. Progress of an ask that does not increase is not
    /// sent.
    ///
    /// # Errors
    ///
    /// - The link is not ready, or the queue is full.
    /// - The agreed version does not have the method, or the capabilities do not declare its subject.
    /// - The parameters are not an object.
    /// - The method is `notifications/progress`, and no open ask has the token.
    /// - The link itself sends this method.
    pub fn notify(
        &mut self,
        now: Instant,
        method: impl Into<Cow<'static, str>>,
        params: Option<Payload>,
    ) -> Result<(), Misuse> {
        let method = method.into();
        let facts = check_notification(&method, self.session.passes(&self.cx.config))?;
        self.step(now, |client| client.announce(method, facts, params))
    }

    /// Says whether the application can take more input. While it holds back, nothing is read from a ready server and the clocks of its calls stop.
    /// The silence of a server that is not read from does not count against it.
    pub fn hold_back(&mut self, now: Instant, is_held_back: bool) {
        if is_held_back != self.is_held_back {
            self.step(now, |client| {
                client.is_held_back = is_held_back;
                client.heard_something();
                client.hold_calls();
            });
        }
    }

    /// Declares the capabilities of this client. A modern server is told with the next request, a legacy server with the next handshake.
    pub fn declare(&mut self, now: Instant, capabilities: ClientCapabilities) {
        self.step(now, |client| {
            let logs = client.catalog.wanted_logs(&client.cx.config);
            client.session.declare(&mut client.cx, capabilities, logs);
        });
    }

    /// Says that the driver has new credentials, after the server refused the old ones. Everything that waits for them continues. A waiting or parked
    /// link starts an attempt.
    pub fn authorized(&mut self, now: Instant) {
        self.step(now, |client| {
            if client.binding.awaits_credentials() {
                // Like at the end of a pause: the server had nothing to reply to.
                client.heard_something();
            }
            client.credentials_given();
        });
    }

    /// Says that there are no credentials that the server would accept, and why. Everything that waits for them fails. Does nothing if the link does
    /// not wait for credentials.
    pub fn denied(&mut self, now: Instant, why: &str) {
        self.step(now, |client| client.credentials_denied(why));
    }

    /// Whether the link sends nothing because the server wants credentials; see [`Event::AuthRequired`].
    #[must_use]
    pub fn awaits_authorization(&self) -> bool {
        self.binding.awaits_credentials()
    }

    /// The configuration of this client.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.cx.config
    }

    /// The state of the client.
    #[must_use]
    pub const fn state(&self) -> State {
        self.lifecycle.state()
    }

    /// Returns the newest epoch for which the client asked the driver to open a transport.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.lifecycle.epoch()
    }

    /// The agreed session, while the link is ready.
    #[must_use]
    pub fn session(&self) -> Option<&Arc<Session>> {
        let session = self.session.agreed();
        session.filter(|_| self.lifecycle.state() == State::Ready)
    }

    /// The era that the server is believed to speak. The application can store it for the next process.
    #[must_use]
    pub fn era(&self) -> Option<Era> {
        self.session.known().era()
    }

    /// The cached list, fresh or not; see [`is_fresh`](Client::is_fresh).
    #[must_use]
    pub fn held(&self, list: List) -> Option<&Listing> {
        self.catalog.listing(list)
    }

    /// Whether [`list`](Client::list) would use the cached list at this time.
    #[must_use]
    pub fn is_fresh(&self, now: Instant, list: List) -> bool {
        self.fresh(list, self.cx.now.max(now)).is_some()
    }

    /// How the last transport ended, if one did.
    #[must_use]
    pub fn last_end(&self) -> Option<&Arc<Ended>> {
        self.lifecycle.last_end()
    }

    /// Returns how many attempts have failed in a row.
    #[must_use]
    pub const fn failures(&self) -> u32 {
        self.lifecycle.failures()
    }

    /// Returns a copy of the counters since the client was created.
    #[must_use]
    pub const fn stats(&self) -> Stats {
        self.cx.stats
    }
}

impl Client {
    /// Runs one change of the machine: advances the time, calls `what`, and then does the work that may follow from it.
    ///
    /// Time never goes back. If the driver's clock does, deadlines still hold.
    fn step<R>(&mut self, now: Instant, what: impl FnOnce(&mut Client) -> R) -> R {
        self.cx.now = self.cx.now.max(now);
        let done = what(self);
        self.end_step();
        done
    }

    /// Does what the changes of this step made possible. It is not part of `step`, because each use of that generic function would get a copy of it.
    fn end_step(&mut self) {
        if self.lifecycle.state() == State::Draining && !self.requests.is_busy() {
            self.drained();
        }
        self.fetch_lists();
        if self.catalog.can_send_wish(&self.cx) {
            self.change_watch_by(|client, session| client.catalog.send_wish(session));
        }
        if self.lifecycle.state() == State::Ready {
            self.catalog
                .tend_watch(&mut self.cx, self.lifecycle.epoch());
        }
    }
}
