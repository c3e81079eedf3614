//! What programs hold of a relay. Each verb is a letter to the one who owns the machine; nothing is decided here.

use std::fmt;
use std::sync::Arc;

use everlink::relay::{Config, Event};
use everlink::{Instant, Relay};

use super::owner::GuardOwner;
use crate::events::{Events, Listeners};
use crate::mailbox::Mailbox;
use crate::promise::{Pending, Promise, promise};

/// A relay that is driven. Cheap to clone; the relay goes on without it, until the client in front goes or it is shut down.
#[derive(Clone)]
pub struct Guard {
    mail: Arc<Mail>,
    listeners: Arc<Listeners<Event>>,
}

/// Letters to the owner of a relay.
pub(super) type Mail = Mailbox<Command>;

/// Something that is asked of the owner of a relay.
pub(super) enum Command {
    Closed(Promise<()>),
    Verb(Verb),
}

type Verb = Box<dyn FnOnce(&mut Relay, Instant) + Send>;

impl Guard {
    /// A relay, and what its driver owns of it. For adapters: programs get theirs from one of those.
    #[must_use]
    pub fn new(config: Config) -> (Guard, GuardOwner) {
        let mail = Arc::new(Mailbox::new());
        let listeners = Arc::new(Listeners::new());
        let relay = Relay::new(config);
        let owner = GuardOwner::new(relay, Arc::clone(&mail), Arc::clone(&listeners));
        (Guard { mail, listeners }, owner)
    }

    /// What happens from now on to both sides. What is carried through stays out.
    #[must_use]
    pub fn events(&self) -> Events<Event> {
        self.listeners.add()
    }

    /// Looks at the relay as it is: where its sides stand, what they counted.
    pub fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Relay) -> T + Send + 'static,
    ) -> Pending<T> {
        self.ask(|relay, _| look(relay))
    }

    /// Reaches for the server behind without waiting for a client in front.
    pub fn connect(&self) {
        drop(self.ask(Relay::connect));
    }

    /// Replaces the present transport to the server behind, for this reason. Free of charge.
    pub fn reconnect(&self, why: &str) {
        let why = Box::<str>::from(why);
        drop(self.ask(move |relay, now| {
            let seen = relay.upstream().epoch();
            relay.reconnect(now, seen, &why);
        }));
    }

    /// The network is back, the laptop is awake: try now.
    pub fn wake(&self) {
        drop(self.ask(Relay::wake));
    }

    /// There are other credentials for the server behind than those that it refused.
    pub fn authorized(&self) {
        drop(self.ask(Relay::authorized));
    }

    /// There are no credentials that the server behind would take, for this reason.
    pub fn denied(&self, why: &str) {
        let why = Box::<str>::from(why);
        drop(self.ask(move |relay, now| relay.denied(now, &why)));
    }

    /// The relay is not wanted any more: the requests in flight have a while, then both sides are closed. Waits until nothing is left of it;
    /// it goes on without being waited for.
    pub fn shutdown(&self) -> Pending<()> {
        drop(self.ask(Relay::shutdown));
        self.closed()
    }

    /// Waits until nothing is left of the relay: the client in front went, or it was shut down.
    pub fn closed(&self) -> Pending<()> {
        let (promise, pending) = promise();
        if let Err(given_back) = self.mail.post(Command::Closed(promise)) {
            given_back.over();
        }
        pending
    }

    fn ask<T: Send + 'static>(
        &self,
        verb: impl FnOnce(&mut Relay, Instant) -> T + Send + 'static,
    ) -> Pending<T> {
        let (promise, pending) = promise();
        let verb = move |relay: &mut Relay, now| promise.keep(verb(relay, now));
        let _ = self.mail.post(Command::Verb(Box::new(verb)));
        pending
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guard")
    }
}

impl Command {
    /// The relay is closed, and nobody carries anything out any more: for who waited for that, it is done.
    pub(super) fn over(self) {
        if let Command::Closed(promise) = self {
            promise.keep(());
        }
    }
}
