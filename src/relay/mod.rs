//! A relay: a [`Server`] in front of a [`Client`], so that a host's connection outlives any number of epochs of the server.
//!
//! The relay only carries messages. The two machines decide about retries, timeouts and refusals.

// `carry` turns events of one end into verbs of the other, and `carry_asks` does so for asks. `lost` answers the requests that get no reply of the
// server. The other modules know neither the relay nor each other:
//
// - `introduction` holds what hosts and server said of themselves; `carried` the calls that carry requests of hosts.
// - `questions` holds the asks of the server; `notifications` the notifications that wait for it.
// - `lists` records which lists the host has seen; `watch` what hosts watch.
// - `trace` joins requests to the traces of hosts.
// - `failure_text` composes the error texts for the host; `display` formats events for the operator; `clock` holds the deadlines.
// - `departure` tells whether the single host still wants replies after it closed its input.

mod carried;
mod carry;
mod carry_asks;
mod clock;
mod config;
mod departure;
mod display;
mod failure_text;
mod introduction;
mod lists;
mod lost;
mod notifications;
mod questions;
pub(crate) mod trace;
mod watch;

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

pub use config::{Config, LostCalls};
pub use trace::{Trace, Verdict};

use carried::{Carried, Purpose};
use clock::Clock;
use departure::Departure;
use introduction::Introduction;
use lists::Lists;
use notifications::Notifications;
use questions::Questions;
use trace::Tracer;
use watch::WatchState;

use crate::client::{self, CallOptions, Client, Delivery, Failure, RelayLink, Session};
use crate::driver::{Deadline, Epoch, Input, Instant, Output, StreamId, Wake};
use crate::http::Url;
use crate::protocol::watch::Change;
use crate::protocol::{Era, code};
use crate::server::{self, Offer, Peer, Server};

/// One of the two transports of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Side {
    /// The transport to the client in front, the host.
    Downstream,
    /// The transport to the server behind.
    Upstream,
}

/// An event for the operator of the relay: the state of both sides. The messages that the relay carries are not part of it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// An event of the downstream end, which serves the host.
    Downstream(server::Event),
    /// A request of the host got no reply, and the host was told so if it had not left.
    Lost(Box<Failure>),
    /// Notifications could not be passed on. Either the era of the other side has no such notification, or it is not certain which of
    /// several hosts it is for. Reported for the first one, and then whenever their number has doubled.
    NotPassed {
        /// The side that did not get them.
        to: Side,
        /// The method of the last one.
        method: Box<str>,
        /// How many there were so far, in both directions.
        count: u64,
    },
    /// The host had waited long enough for the server: it was answered with the remembered offer, or with an empty one. Its calls wait for the server.
    OfferedInAdvance,
    /// A request of a host was answered. Reported only if [`Config::traces`] is set.
    Traced(Box<Trace>),
    /// The server sent an ask with this method, and it is not certain which of several hosts it is for. No host was asked, and the server
    /// got an error.
    Unattributed {
        /// The method of the ask.
        method: Cow<'static, str>,
    },
    /// An event of the link to the server.
    Upstream(client::Event),
}

/// A server in front of a client. It gives a host a stable connection to a server that may crash, hang or be replaced.
///
/// The relay passes on requests, progress, cancellations, asks, log messages and changes. Each side has its own ids and its own era. When
/// the server dies, the relay answers the calls in flight at once and says what happened. Calls that were never sent wait for the next
/// epoch. The relay then announces the lists that differ, and sets up watches again. The host does only one handshake.
///
/// A driver feeds both transports and carries out what [`poll_output`](Relay::poll_output) returns for each.
pub struct Relay {
    config: Config,
    clock: Clock,
    departure: Departure,
    /// The end that serves the hosts.
    front: Server,
    /// The link to the server.
    back: RelayLink,
    introduction: Introduction,
    carried: Carried,
    questions: Questions,
    lists: Lists,
    notifications: Notifications,
    tracer: Tracer,
    watch: WatchState,
}

/// # The contract with the driver
impl Relay {
    /// A relay that connects to its server as soon as a host appears.
    #[must_use]
    pub fn new(config: Config) -> Relay {
        Relay {
            clock: Clock::new(),
            departure: Departure::new(),
            front: Server::new(config.server()),
            back: RelayLink::new(config.client()),
            introduction: Introduction::default(),
            carried: Carried::default(),
            questions: Questions::default(),
            lists: Lists::default(),
            notifications: Notifications::default(),
            tracer: Tracer::new(config.traces, config.upstream.seed),
            watch: WatchState::default(),
            config,
        }
    }

    /// Feeds an input of the host's transport; see [`Server::handle`].
    pub fn handle_downstream(&mut self, now: Instant, input: Input<'_>) {
        let now = self.clock.advance(now);
        if let Input::Bytes { .. } = input {
            self.departure.heard(now);
        } else if matches!(input, Input::End { .. }) && self.config.has_one_host() {
            self.departure.ended(now);
        }
        self.front.handle(now, input);
    }

    /// Feeds an input of the server's transport `epoch`; see [`Client::handle`].
    pub fn handle_upstream(&mut self, now: Instant, epoch: Epoch, input: Input<'_>) {
        let now = self.clock.advance(now);
        self.back.handle(now, epoch, input);
    }

    /// Tells the relay the time. A call that is early or late is harmless.
    pub fn handle_timeout(&mut self, now: Instant) {
        let now = self.clock.advance(now);
        self.front.handle_timeout(now);
        self.back.handle_timeout(now);
        if self.clock.has_waited_enough() {
            self.offer_in_advance();
        }
        if self.clock.is_cut_off() {
            self.cut_off();
        }
    }

    /// Returns the next output and its side; `None` when there is nothing to do. Bytes to write are appended to `buf`.
    ///
    /// This call also carries messages from one side to the other, so poll until `None` after every input and verb.
    #[must_use = "an output that is not carried out is lost"]
    pub fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<(Side, Output<Event>)> {
        // Carries all events across before anything is written, because an event may make a write superfluous.
        loop {
            if let Some((side, event)) = self.notifications.take_unreported() {
                return Some((side, Output::Event(event)));
            }
            if let Some(trace) = self.tracer.take_finished() {
                return Some((Side::Downstream, Output::Event(Event::Traced(trace))));
            }
            if self.introduction.take_unreported_guess() {
                return Some((Side::Downstream, Output::Event(Event::OfferedInAdvance)));
            }
            let (side, output) = if let Some(output) = self.front.poll_outbox() {
                let output = output.and_then_event(|event| self.carry_up(event));
                (Side::Downstream, output)
            } else if let Some(output) = self.back.poll_outbox() {
                let output = output.and_then_event(|event| self.carry_down(event));
                (Side::Upstream, output)
            } else if self.back.is_held() && self.decides_on_introduction() {
                continue;
            } else {
                break;
            };
            if let Some(output) = output {
                return Some((side, output));
            }
        }
        // Writes to the server come first, because the relay may close with the last write to the host.
        let has_room = self.front.has_room();
        self.back.hold_back(self.clock.now(), !has_room);
        let (side, output) = match self.back.write(buf) {
            Some(output) => (Side::Upstream, output.and_then_event(|_| None)),
            None if self.has_end_to_pass_on() => {
                self.pass_end_on();
                return self.poll_output(buf);
            }
            None => {
                let Some(output) = self.front.write(buf) else {
                    let reads = self.wants_input(Side::Downstream, StreamId::DUPLEX);
                    self.departure.reads(self.clock.now(), reads);
                    return None;
                };
                (Side::Downstream, output.and_then_event(|_| None))
            }
        };
        output.map(|output| (side, output))
    }

    /// Returns when to call [`handle_timeout`](Relay::handle_timeout), and why. `None` if there is no deadline: the driver then waits for
    /// input and verbs. It does not mean that the relay is closed; see [`is_closed`](Relay::is_closed).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Deadline> {
        let passes_end = self.has_end_to_pass_on().then(|| Deadline {
            at: self.clock.now(),
            wake: Wake::Output,
        });
        let [patience, cutoff] = self.clock.deadlines();
        let due = [
            self.front.poll_timeout(),
            self.back.poll_timeout(),
            passes_end,
            patience,
            cutoff,
        ];
        due.into_iter().flatten().min_by_key(|deadline| deadline.at)
    }

    /// Whether to go on reading from this side. The relay reads no more from the server while the host does not read its messages.
    #[must_use]
    pub fn wants_input(&self, side: Side, stream: StreamId) -> bool {
        match side {
            Side::Downstream => self.front.wants_input(stream) && !self.has_much_to_send(),
            Side::Upstream => self.back.wants_input(stream),
        }
    }
}

impl Relay {
    /// Whether to stop reading from the single host, because the server reads more slowly than the host sends. The host is read while asks
    /// are open, because the server may wait for the answer.
    fn has_much_to_send(&self) -> bool {
        self.config.has_one_host()
            && !self.front.has_open_asks()
            && self.back.unsent_bytes() >= self.config.unsent_bytes()
    }
}

/// # The verbs of the operator
impl Relay {
    /// Connects to the server without waiting for a host.
    pub fn connect(&mut self, now: Instant) {
        let now = self.clock.advance(now);
        self.back.connect(now);
    }

    /// Replaces the transport `seen` to the server; see [`Client::reconnect`].
    pub fn reconnect(&mut self, now: Instant, seen: Epoch, why: &str) {
        let now = self.clock.advance(now);
        self.back.reconnect(now, seen, why);
    }

    /// Reconnects sooner because the network is back or the computer woke up; see [`Client::wake`].
    pub fn wake(&mut self, now: Instant) {
        let now = self.clock.advance(now);
        self.back.wake(now);
    }

    /// Says that there are new credentials for the server; see [`Client::authorized`].
    pub fn authorized(&mut self, now: Instant) {
        let now = self.clock.advance(now);
        for visit in self.introduction.authorized() {
            self.end_visit(&visit);
        }
        self.back.authorized(now);
    }

    /// Says that there are no credentials for the server; see [`Client::denied`].
    pub fn denied(&mut self, now: Instant, why: &str) {
        let now = self.clock.advance(now);
        self.introduction.deny(why, None);
        self.back.denied(now, why);
    }

    /// Says that there are no credentials for the server until somebody signs in at this page. A host of 2025-11-25 that can show pages is asked to show
    /// this one, and is told when credentials came. Others get the text, which should name the page.
    pub fn denied_until_sign_in(&mut self, now: Instant, page: &Url, why: &str) {
        let now = self.clock.advance(now);
        self.introduction.deny(why, Some(page.clone()));
        self.back.denied(now, why);
    }

    /// Shuts the relay down. Requests in flight have `Config::drain` to finish, then both sides are closed.
    pub fn shutdown(&mut self, now: Instant) {
        let now = self.clock.advance(now);
        self.front.shutdown(now);
    }

    /// Whether both sides are closed for good.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.front.state() == server::State::Closed && self.back.state() == client::State::Closed
    }

    /// The end that serves the client in front, for inspection.
    #[must_use]
    pub const fn downstream(&self) -> &Server {
        &self.front
    }

    /// The link to the server behind, for inspection.
    #[must_use]
    pub const fn upstream(&self) -> &Client {
        self.back.client()
    }
}

/// # Introductions
impl Relay {
    /// Connects to the server for a host that has appeared.
    fn met(&mut self, peer: &Peer) {
        let now = self.clock.now();
        let declared = self.introduction.add_host(peer, &self.config);
        self.back.declare(now, declared);
        let client = peer.client.as_ref().filter(|_| !self.config.hides_host);
        let introduction = self.introduction.introduction_of(peer, &self.config);
        self.back.speak_for(now, client, peer.version, introduction);
        let is_legacy = peer.version.era() == Era::Legacy;
        if is_legacy && self.watch.add_legacy_host() {
            self.watch_for_all_hosts();
        }
        let may_come = self.back.look(now);
        if self.introduction.is_offered() {
            return;
        }
        if !may_come {
            return self.decline_as_down();
        }
        let patience = match &self.config.remembered {
            // If the remembered server is legacy, a modern host waits longer, so that its `server/discover` is not answered from memory.
            Some(offer) if offer.era != Some(Era::Legacy) || is_legacy => {
                self.config.short_patience
            }
            Some(_) | None => self.config.patience,
        };
        self.clock.wait_for_offer(patience);
    }

    /// Makes the link watch what all hosts watch, and all lists, for the legacy hosts.
    fn watch_for_all_hosts(&mut self) {
        let watched = WatchState::with_lists(self.front.watched());
        self.back.watch(self.clock.now(), watched);
    }

    /// Decides when to send `initialize` to a server that knows nothing else. The host's own `initialize` is waited for. A host that sent
    /// `server/discover` gets the refusal, and its next message decides. If a host waits for anything else, `initialize` is sent at once.
    /// Returns whether anything was done.
    pub(super) fn decides_on_introduction(&mut self) -> bool {
        let now = self.clock.now();
        if !self.introduction.is_offered() {
            if let Some(refusal) = self.back.refusal() {
                if self.front.refuse_discovery(now, refusal) {
                    return true;
                }
            }
            if !self.front.is_deferring() {
                self.clock.stop_waiting();
                return false;
            }
        }
        self.back.introduce(now);
        true
    }

    fn ready(&mut self, session: &Session) {
        self.carried.ready(self.clock.now(), session.epoch);
        // Over HTTP it may be the same server, in the same session.
        if self.back.config().binding.http().is_none() {
            self.questions.begin_epoch(self.carried.callers());
        }
        let was_guess = self.introduction.is_guess();
        let offer = introduction::offer_of(session, &self.back, &self.config);
        self.offer(offer, false);
        self.pass_notifications();
        if session.epoch > Epoch::FIRST {
            self.watch.begin_epoch(self.front.watched());
        }
        if was_guess {
            // The lists that the host knows did not come from this server.
            for list in introduction::lists_of(session) {
                self.announce(Change::List(list));
            }
        }
        for list in self.lists.begin_comparing() {
            let options = CallOptions::new();
            match self.back.list(self.clock.now(), list, options) {
                Ok(call) => self.carried.add(call, Purpose::Compare(list)),
                Err(_) => {
                    self.lists.compared(list);
                    self.announce(Change::List(list));
                }
            }
        }
    }

    /// Makes an offer before the server is ready, because the host has waited long enough.
    pub(super) fn offer_in_advance(&mut self) {
        if !self.introduction.is_offered() {
            let offer = introduction::offer_in_advance(&self.config);
            self.offer(offer, true);
        }
    }

    fn offer(&mut self, offer: Offer, is_guess: bool) {
        self.clock.stop_waiting();
        let offer = self.introduction.offer(offer, is_guess);
        self.front.offer(self.clock.now(), offer);
    }

    /// Refuses the waiting requests because there is no server and no attempt is under way. The relay makes no offer without a server; the
    /// error says why there is none.
    fn decline_as_down(&mut self) {
        if !self.introduction.is_offered() {
            let text = self.introduction.no_server(&self.back, &self.config);
            self.decline(&text);
        }
    }

    /// Answers the requests that wait for the offer with this error.
    fn decline(&mut self, why: &str) {
        self.clock.stop_waiting();
        if self.departure.has_left() {
            self.front.abandon_deferred(self.clock.now());
        } else if self.front.is_deferring() {
            let text = self.shorten(why);
            let error = failure_text::error(code::INTERNAL_ERROR, text, Delivery::NotSent);
            self.front.decline(self.clock.now(), &error);
        }
    }

    /// Notifies the host of a change. An error is ignored: it means that the list is not offered, and then no host waits for its changes.
    fn announce(&mut self, change: Change) {
        let _ = self.front.publish(self.clock.now(), change);
    }
}

/// Shows the state of both sides, without the messages.
impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay")
            .field("downstream", &self.front)
            .field("upstream", self.back.client())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll_all(relay: &mut Relay) {
        let mut buf = Vec::new();
        while relay.poll_output(&mut buf).is_some() {}
    }

    #[test]
    fn single_host_is_not_read_once_an_eighth_of_the_queue_waits_for_the_server() {
        let config = Config::new(crate::Config::child("guard", "1"), [7; 16]);
        let offer_at = Instant::ZERO + config.patience;
        let mut relay = Relay::new(config);
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
        let call = alloc::format!("{call}\n").into_bytes();
        relay.handle_downstream(Instant::ZERO, Input::bytes(call));
        poll_all(&mut relay);
        // With the offer in advance, the call goes to the link and waits there.
        relay.handle_timeout(offer_at);
        poll_all(&mut relay);
        let waiting = relay.back.unsent_bytes();
        assert!(waiting > 0);
        for (eighth, is_read) in [(waiting, false), (waiting + 1, true)] {
            relay.config.upstream.limits.queued_bytes = 8 * eighth;
            let wants = relay.wants_input(Side::Downstream, StreamId::DUPLEX);
            assert_eq!(wants, is_read, "{eighth} bytes");
        }
    }
}
