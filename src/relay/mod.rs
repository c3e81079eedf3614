//! A relay: a [`Server`] in front of a [`Client`], so that a host's connection outlives any number of epochs of the server.
//!
//! The relay only carries messages. `bridge` turns events of one end into verbs of the other. `asks` finds the host to ask. `notices`
//! passes on notifications. `offer` tells the host what the server offers. `lists` records which lists the host has seen. `words` composes
//! the error texts for the host. `telling` formats events for the operator. The two machines decide about retries, timeouts and refusals.

mod asks;
mod bridge;
mod config;
mod lists;
mod notices;
mod offer;
mod telling;
mod words;

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::fmt;

pub use config::{Config, LostCalls};

use asks::Asks;
use bridge::Errand;
use lists::Lists;
use notices::Notices;
use offer::Offered;

use crate::client::{self, Client, Failure};
use crate::driver::{CallId, Deadline, Epoch, Input, Instant, Output, RequestId, StreamId, Wake};
use crate::protocol::ClientCapabilities;
use crate::server::{self, Server};

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
    /// A request of the host got no reply, and the host was told so.
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
    now: Instant,
    server: Server,
    client: Client,
    /// Until when the host waits for the offer.
    patience: Option<Instant>,
    /// When requests in flight are cut off, once the relay is ending.
    cutoff: Option<Instant>,
    /// Whether the single host has closed its input.
    has_input_ended: bool,
    /// Why there are no credentials for the server, in the text that was passed to `denied`.
    denial: Option<Box<str>>,
    /// The last offer to the host.
    offered: Option<Offered>,
    /// The purpose of each call to the server.
    errands: BTreeMap<CallId, Errand>,
    /// The call that carries each request of a host.
    calls: BTreeMap<RequestId, CallId>,
    asks: Asks,
    lists: Lists,
    notices: Notices,
    /// The URIs that hosts watched before the present epoch and that the present server has not granted yet. Changes between the two epochs
    /// were not seen, so each URI is announced as changed when it is granted.
    unheard: BTreeSet<Box<str>>,
    /// Whether a legacy host was ever in front.
    has_legacy_host: bool,
    /// The union of all capabilities that hosts have declared.
    declared: ClientCapabilities,
}

/// # The contract with the driver
impl Relay {
    /// A relay that connects to its server as soon as a host appears.
    #[must_use]
    pub fn new(config: Config) -> Relay {
        Relay {
            now: Instant::ZERO,
            server: Server::new(config.server()),
            client: Client::new(config.client()),
            patience: None,
            cutoff: None,
            has_input_ended: false,
            denial: None,
            offered: None,
            errands: BTreeMap::new(),
            calls: BTreeMap::new(),
            asks: Asks::default(),
            lists: Lists::default(),
            notices: Notices::default(),
            unheard: BTreeSet::new(),
            has_legacy_host: false,
            declared: ClientCapabilities::default(),
            config,
        }
    }

    /// Feeds an input of the host's transport; see [`Server::handle`].
    pub fn handle_downstream(&mut self, now: Instant, input: Input<'_>) {
        self.now = self.now.max(now);
        self.server.handle(self.now, input);
    }

    /// Feeds an input of the server's transport `epoch`; see [`Client::handle`].
    pub fn handle_upstream(&mut self, now: Instant, epoch: Epoch, input: Input<'_>) {
        self.now = self.now.max(now);
        self.client.handle(self.now, epoch, input);
    }

    /// Tells the relay the time. A call that is early or late is harmless.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.server.handle_timeout(self.now);
        self.client.handle_timeout(self.now);
        if self.patience.is_some_and(|until| until <= self.now) {
            self.offer_in_advance();
        }
        if self.cutoff.is_some_and(|at| at <= self.now) {
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
            if let Some((side, event)) = self.notices.take_untold() {
                return Some((side, Output::Event(event)));
            }
            let (side, output) = if let Some(output) = self.server.poll_outbox() {
                let output = output.and_then_event(|event| self.carry_up(event));
                (Side::Downstream, output)
            } else if let Some(output) = self.client.poll_outbox() {
                let output = output.and_then_event(|event| self.carry_down(event));
                (Side::Upstream, output)
            } else if self.client.is_held() && self.decides_on_introduction() {
                continue;
            } else {
                break;
            };
            if let Some(output) = output {
                return Some((side, output));
            }
        }
        // Writes to the server come first, because the relay may close with the last write to the host.
        self.client.hold_back(self.now, !self.server.has_room());
        let (side, output) = match self.client.write(buf) {
            Some(output) => (Side::Upstream, output.and_then_event(|_| None)),
            None if self.has_end_to_pass_on() => {
                self.pass_end_on();
                return self.poll_output(buf);
            }
            None => {
                let output = self.server.write(buf)?;
                (Side::Downstream, output.and_then_event(|_| None))
            }
        };
        output.map(|output| (side, output))
    }

    /// Returns when to call [`handle_timeout`](Relay::handle_timeout), and why. `None` if there is no deadline: the driver then waits for
    /// input and verbs. It does not mean that the relay is closed; see [`is_closed`](Relay::is_closed).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Deadline> {
        let own = |at: Option<Instant>, wake| at.map(|at| Deadline { at, wake });
        let due = [
            self.server.poll_timeout(),
            self.client.poll_timeout(),
            own(self.has_end_to_pass_on().then_some(self.now), Wake::Output),
            own(self.patience, Wake::Handshake),
            own(self.cutoff, Wake::Close),
        ];
        due.into_iter().flatten().min_by_key(|deadline| deadline.at)
    }

    /// Whether to go on reading from this side. The relay reads no more from the server while the host does not read its messages.
    #[must_use]
    pub fn wants_input(&self, side: Side, stream: StreamId) -> bool {
        match side {
            Side::Downstream => self.server.wants_input(stream) && !self.has_much_to_send(),
            Side::Upstream => self.client.wants_input(stream),
        }
    }
}

impl Relay {
    /// Whether to stop reading from the single host, because the server reads more slowly than the host sends. The host is read while asks
    /// are open, because the server may wait for the answer.
    fn has_much_to_send(&self) -> bool {
        self.config.has_one_host()
            && !self.server.has_open_asks()
            && self.client.unsent_bytes() >= self.config.unsent_bytes()
    }
}

/// # The verbs of the operator
impl Relay {
    /// Connects to the server without waiting for a host.
    pub fn connect(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.client.connect(self.now);
    }

    /// Replaces the transport `seen` to the server; see [`Client::reconnect`].
    pub fn reconnect(&mut self, now: Instant, seen: Epoch, why: &str) {
        self.now = self.now.max(now);
        self.client.reconnect(self.now, seen, why);
    }

    /// Reconnects sooner because the network is back or the computer woke up; see [`Client::wake`].
    pub fn wake(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.client.wake(self.now);
    }

    /// Says that there are new credentials for the server; see [`Client::authorized`].
    pub fn authorized(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.denial = None;
        self.client.authorized(self.now);
    }

    /// Says that there are no credentials for the server; see [`Client::denied`].
    pub fn denied(&mut self, now: Instant, why: &str) {
        self.now = self.now.max(now);
        self.denial = Some(why.into());
        self.client.denied(self.now, why);
    }

    /// Shuts the relay down. Requests in flight have `Config::drain` to finish, then both sides are closed.
    pub fn shutdown(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.server.shutdown(self.now);
    }

    /// Whether both sides are closed for good.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.server.state() == server::State::Closed && self.client.state() == client::State::Closed
    }

    /// The end that serves the client in front, for inspection.
    #[must_use]
    pub const fn downstream(&self) -> &Server {
        &self.server
    }

    /// The link to the server behind, for inspection.
    #[must_use]
    pub const fn upstream(&self) -> &Client {
        &self.client
    }
}

/// Shows the state of both sides, without the messages.
impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay")
            .field("downstream", &self.server)
            .field("upstream", &self.client)
            .finish_non_exhaustive()
    }
}
