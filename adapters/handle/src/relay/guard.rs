//! What programs hold of a relay. Each verb is a letter to the one who owns the machine; nothing is decided here.

use std::fmt;
use std::sync::Arc;

use everlink::client::{self, Ended, Session};
use everlink::relay::{Config, Event};
use everlink::{Epoch, Relay, Stats, server};

use super::owner::GuardOwner;
use crate::asked::Upkeep;
use crate::chance;
use crate::events::{Events, Listeners};
use crate::mailbox::Mail;
use crate::promise::Pending;

/// A relay that is driven. Cheap to clone; the relay goes on without it, until the client in front goes or it is shut down.
#[derive(Clone)]
pub struct Guard {
    mail: Arc<GuardMail>,
    listeners: Arc<Listeners<Event>>,
}

/// Letters to the owner of a relay. All that changes the machine is an errand: it can be recorded.
pub(super) type GuardMail = Mail<Relay, Upkeep>;

impl Guard {
    /// A relay, and what its driver owns of it. For adapters: programs get theirs from one of those.
    #[must_use]
    pub fn new(mut config: Config) -> (Guard, GuardOwner) {
        config.upstream.seed ^= chance();
        let (mail, inbox) = Mail::new();
        let listeners = Arc::new(Listeners::new());
        let owner = GuardOwner::new(Relay::new(config), inbox, Arc::clone(&listeners));
        (Guard { mail, listeners }, owner)
    }

    /// What happens from now on to both sides. What is carried through stays out.
    #[must_use]
    pub fn events(&self) -> Events<Event> {
        self.listeners.add()
    }

    /// Where both sides stand, and what they counted.
    pub fn status(&self) -> Pending<Status> {
        self.mail.ask(|relay, _| Status::of(relay))
    }

    /// Reaches for the server behind without waiting for a client in front.
    pub fn connect(&self) {
        self.mail.send(Upkeep::Connect);
    }

    /// Replaces the transport `seen` to the server behind, for this reason, if it is still the present one. Free of charge.
    pub fn reconnect(&self, seen: Epoch, why: &str) {
        let why = why.into();
        self.mail.send(Upkeep::Reconnect { seen, why });
    }

    /// The network is back, the laptop is awake: try now.
    pub fn wake(&self) {
        self.mail.send(Upkeep::Wake);
    }

    /// There are other credentials for the server behind than those that it refused.
    pub fn authorized(&self) {
        self.mail.send(Upkeep::Authorized);
    }

    /// There are no credentials that the server behind would take, for this reason.
    pub fn denied(&self, why: &str) {
        let why = why.into();
        self.mail.send(Upkeep::Denied { why });
    }

    /// The relay is not wanted any more: the requests in flight have a while, then both sides are closed. Waits until nothing is left of it;
    /// it goes on without being waited for.
    pub fn shutdown(&self) -> Pending<()> {
        self.mail.send(Upkeep::Shutdown);
        self.mail.closed()
    }

    /// Waits until nothing is left of the relay: the client in front went, or it was shut down.
    pub fn closed(&self) -> Pending<()> {
        self.mail.closed()
    }
}

/// Where a relay stands at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// Where the link to the server behind stands.
    pub upstream: client::State,
    /// Its newest transport.
    pub epoch: Epoch,
    /// What was agreed on with the server behind, while the link is ready.
    pub session: Option<Arc<Session>>,
    /// How its last transport ended, if one did.
    pub last_end: Option<Arc<Ended>>,
    /// How many attempts in a row have failed.
    pub failures: u32,
    /// What the link to the server behind counted.
    pub upstream_stats: Stats,
    /// Where the end that serves the client in front stands.
    pub downstream: server::State,
    /// How many requests of clients in front are not answered yet.
    pub requests: usize,
    /// How many legacy clients are in front, over HTTP.
    pub sessions: usize,
    /// What the end that serves the client in front counted.
    pub downstream_stats: server::Stats,
}

impl Status {
    fn of(relay: &Relay) -> Status {
        let (upstream, downstream) = (relay.upstream(), relay.downstream());
        Status {
            upstream: upstream.state(),
            epoch: upstream.epoch(),
            session: upstream.session().cloned(),
            last_end: upstream.last_end().cloned(),
            failures: upstream.failures(),
            upstream_stats: upstream.stats(),
            downstream: downstream.state(),
            requests: downstream.requests(),
            sessions: downstream.sessions(),
            downstream_stats: downstream.stats(),
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guard")
    }
}
