//! The application's handle of a relay. Each method queues a command for the owner of the machine and makes no decisions.

use std::fmt;
use std::sync::Arc;

use everlink::client::{self, Ended, Session};
use everlink::http::Url;
use everlink::relay::{Config, Event};
use everlink::{Epoch, Relay, Stats, server};

use super::owner::GuardOwner;
use crate::command_queue::CommandQueue;
use crate::commands::LinkCommand;
use crate::events::{Events, Listeners};
use crate::promise::Pending;
use crate::random_seed;

/// A handle of a running relay. Cheap to clone. Without handles the relay runs on, until the downstream client disconnects or it is shut down.
#[derive(Clone)]
pub struct Guard {
    queue: Arc<GuardQueue>,
    listeners: Arc<Listeners<Event>>,
}

/// The command queue of the owner of a relay. Every change of the machine is a `LinkCommand`, so that it can be recorded.
pub(super) type GuardQueue = CommandQueue<Relay, LinkCommand>;

impl Guard {
    /// Creates a relay and the owner that its driver runs. For adapters: applications get their relay from an adapter.
    #[must_use]
    pub fn new(mut config: Config) -> (Guard, GuardOwner) {
        config.upstream.seed ^= random_seed();
        let (queue, receiver) = CommandQueue::new();
        let listeners = Arc::new(Listeners::new());
        let owner = GuardOwner::new(Relay::new(config), receiver, Arc::clone(&listeners));
        (Guard { queue, listeners }, owner)
    }

    /// Subscribes to the events of both sides from now on. Relayed messages are not among them.
    #[must_use]
    pub fn events(&self) -> Events<Event> {
        self.listeners.subscribe()
    }

    /// Returns the states and the counters of both sides.
    pub fn status(&self) -> Pending<Status> {
        self.queue.query_machine(|relay, _| Status::of(relay))
    }

    /// Connects to the upstream server without waiting for a downstream client.
    pub fn connect(&self) {
        self.queue.send(LinkCommand::Connect);
    }

    /// Replaces the upstream transport `seen`, for this reason, if it is still the present one. Costs no attempt of the retry budget.
    pub fn reconnect(&self, seen: Epoch, why: &str) {
        let why = why.into();
        self.queue.send(LinkCommand::Reconnect { seen, why });
    }

    /// Makes the link to the upstream server act now, for example because the network is back or the computer woke up.
    pub fn wake(&self) {
        self.queue.send(LinkCommand::Wake);
    }

    /// Reports that there are new credentials after the upstream server refused the old ones.
    pub fn authorized(&self) {
        self.queue.send(LinkCommand::Authorized);
    }

    /// Reports that there are no credentials that the upstream server would accept, for this reason.
    pub fn denied(&self, why: &str) {
        let why = why.into();
        self.queue.send(LinkCommand::Denied { why, page: None });
    }

    /// Reports that there are no credentials until somebody signs in at this page; see [`Relay::denied_until_sign_in`].
    pub fn denied_until_sign_in(&self, page: &Url, why: &str) {
        let (why, page) = (why.into(), Some(page.clone()));
        self.queue.send(LinkCommand::Denied { why, page });
    }

    /// Shuts the relay down: requests in flight get until the drain timeout, then both sides are closed. The returned value waits until everything is
    /// freed; the shutdown goes on even if nobody waits.
    pub fn shutdown(&self) -> Pending<()> {
        self.queue.send(LinkCommand::Shutdown);
        self.queue.closed()
    }

    /// Waits until the relay has ended: the downstream client disconnected, or the relay was shut down.
    pub fn closed(&self) -> Pending<()> {
        self.queue.closed()
    }
}

/// A snapshot of a relay's state.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// The state of the link to the upstream server.
    pub upstream: client::State,
    /// The epoch of the newest upstream transport.
    pub epoch: Epoch,
    /// The result of the handshake with the upstream server, while the link is ready.
    pub session: Option<Arc<Session>>,
    /// The end of the last upstream transport, if one ended.
    pub last_end: Option<Arc<Ended>>,
    /// The number of consecutive failed attempts to reach the upstream server.
    pub failures: u32,
    /// The counters of the link to the upstream server.
    pub upstream_stats: Stats,
    /// The state of the server end, which serves the downstream client.
    pub downstream: server::State,
    /// The number of unanswered requests of downstream clients.
    pub requests: usize,
    /// The number of sessions of legacy downstream clients, over HTTP.
    pub sessions: usize,
    /// The counters of the server end.
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
