//! A [`Server`] in front of a [`Client`]: a connection that outlives any number of lives of the server behind it.
//!
//! The relay itself only carries: `bridge` turns events of one end into verbs of the other, `asks` finds the client to ask, `notices` passes on
//! notifications, `offer` says what the server offers, `lists` knows which lists the client in front has seen, `words` tells it of a failure, and
//! `telling` tells all of it to whoever runs the relay. What is retried, timed out or refused is decided by the two machines.

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
use crate::id::{CallId, Epoch, RequestId, StreamId};
use crate::io::{Input, Output};
use crate::protocol::ClientCapabilities;
use crate::server::{self, Server};
use crate::time::{Deadline, Instant, Wake};

/// Which of the two transports of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Side {
    /// To the client in front.
    Downstream,
    /// To the server behind.
    Upstream,
}

/// Something that whoever runs the relay may want to know: the lives of both sides. What is carried through stays out.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// Of the client in front.
    Downstream(server::Event),
    /// A request of the client in front has no reply, which was told to it.
    Lost(Box<Failure>),
    /// Notifications could not be passed on: the other end cannot be told such a thing in its era, or it is not certain for which of several clients
    /// it is. Told of the first one, and whenever their number has doubled.
    NotPassed {
        /// To whom.
        to: Side,
        /// The method of the last one.
        method: Box<str>,
        /// How many there were until now, in both directions.
        count: u64,
    },
    /// The server behind asked something with this method, and it is not certain for which of several clients: none was asked, and the
    /// server was answered with an error.
    Unattributed {
        /// What it asked.
        method: Cow<'static, str>,
    },
    /// Of the link to the server behind.
    Upstream(client::Event),
}

/// A server in front of a client: what a host sees of a server that may crash, hang or be replaced.
///
/// Requests, progress, cancels, questions, log messages and changes are carried through, with ids of their own on either side
/// and each side in its own era. When the server behind dies, the calls that it had are answered at once with what
/// happened, calls that were never sent wait for its next life, lists that are different then are announced, and watches
/// are set up again. The client in front shakes hands once.
///
/// A driver feeds both transports and carries out what [`poll_output`](Relay::poll_output) says for each.
pub struct Relay {
    config: Config,
    now: Instant,
    server: Server,
    client: Client,
    /// Until when the client in front waits for the offer.
    patience: Option<Instant>,
    /// When what is still under way is cut off, once the end has come.
    cutoff: Option<Instant>,
    /// The one host in front says no more.
    has_input_ended: bool,
    /// Why there are no credentials for the server behind, in the words of whoever was asked for them.
    denial: Option<Box<str>>,
    /// What the client in front was last offered.
    offered: Option<Offered>,
    /// What each call is for.
    errands: BTreeMap<CallId, Errand>,
    /// The call that each request became.
    calls: BTreeMap<RequestId, CallId>,
    asks: Asks,
    lists: Lists,
    notices: Notices,
    /// What the client in front watched before the present life of the server behind, and not granted by that yet: what changed between the
    /// two was not heard.
    unheard: BTreeSet<Box<str>>,
    /// A legacy client was in front.
    has_legacy_host: bool,
    /// All that the client in front ever declared.
    declared: ClientCapabilities,
}

/// # The contract with the driver
impl Relay {
    /// A relay that reaches for its server as soon as there is a client in front of it.
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

    /// Something happened to the transport of the client in front; see [`Server::handle`].
    pub fn handle_downstream(&mut self, now: Instant, input: Input<'_>) {
        self.now = self.now.max(now);
        self.server.handle(self.now, input);
    }

    /// Something happened to the transport `epoch` of the server behind; see [`Client::handle`].
    pub fn handle_upstream(&mut self, now: Instant, epoch: Epoch, input: Input<'_>) {
        self.now = self.now.max(now);
        self.client.handle(self.now, epoch, input);
    }

    /// It is `now`. Early or late is harmless.
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

    /// What the driver must do next, and on which side; `None` when there is nothing. Bytes to write are appended to `buf`.
    ///
    /// What is carried from one side to the other is carried in here: poll until `None` after every input and verb.
    #[must_use = "an output that is not carried out is lost"]
    pub fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<(Side, Output<Event>)> {
        // All that happened is carried before anything is written: the one may make the other superfluous.
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
        // The server behind is told first: with the last word to the client in front all may be over.
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

    /// When to call [`handle_timeout`](Relay::handle_timeout), and why. `None` when nothing is due by itself: the driver waits
    /// for input and verbs then. Only the state says that the machine is closed.
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

    /// Whether to go on reading from this side. Nothing more of the server behind is wanted while the client in front does
    /// not read what there is for it.
    #[must_use]
    pub fn wants_input(&self, side: Side, stream: StreamId) -> bool {
        match side {
            Side::Downstream => self.server.wants_input(stream) && !self.has_much_to_send(),
            Side::Upstream => self.client.wants_input(stream),
        }
    }
}

impl Relay {
    /// Whether the one client in front is read no further for now, because the server behind takes less than the client sends. A client that has a
    /// question to answer is read all the same: the server may wait for the answer.
    fn has_much_to_send(&self) -> bool {
        self.config.has_one_host()
            && !self.server.has_open_asks()
            && self.client.unsent_bytes() >= self.config.unsent_bytes()
    }
}

/// # The verbs of whoever runs it
impl Relay {
    /// Reaches for the server behind without waiting for a client in front.
    pub fn connect(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.client.connect(self.now);
    }

    /// The transport `seen` to the server behind is to be replaced; see [`Client::reconnect`].
    pub fn reconnect(&mut self, now: Instant, seen: Epoch, why: &str) {
        self.now = self.now.max(now);
        self.client.reconnect(self.now, seen, why);
    }

    /// The network is back, the laptop is awake; see [`Client::wake`].
    pub fn wake(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.client.wake(self.now);
    }

    /// There are other credentials for the server behind; see [`Client::authorized`].
    pub fn authorized(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.denial = None;
        self.client.authorized(self.now);
    }

    /// There are no credentials for the server behind; see [`Client::denied`].
    pub fn denied(&mut self, now: Instant, why: &str) {
        self.now = self.now.max(now);
        self.denial = Some(why.into());
        self.client.denied(self.now, why);
    }

    /// The relay is not wanted any more: the requests in flight have a while, then both sides are closed.
    pub fn shutdown(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.server.shutdown(self.now);
    }

    /// Whether both sides are closed, for good.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.server.state() == server::State::Closed && self.client.state() == client::State::Closed
    }

    /// The end that serves the client in front, to look at.
    #[must_use]
    pub const fn downstream(&self) -> &Server {
        &self.server
    }

    /// The link to the server behind, to look at.
    #[must_use]
    pub const fn upstream(&self) -> &Client {
        &self.client
    }
}

/// Where both sides stand. What is carried stays out.
impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay")
            .field("downstream", &self.server)
            .field("upstream", &self.client)
            .finish_non_exhaustive()
    }
}
