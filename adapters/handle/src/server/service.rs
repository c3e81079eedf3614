//! What programs hold of a server. Each verb is a letter to the one who owns the machine; nothing is decided here.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex};

use everlink::protocol::LogLevel;
use everlink::server::{Event, InputRequired, Misuse, Offer, State, Stats};
use everlink::{Change, ErrorObject, Payload, RequestId, Server};

use super::owner::ServiceOwner;
use super::task::AskError;
use crate::events::{Events, Listeners};
use crate::mailbox::Mail;
use crate::promise::{Pending, Promise, lock};

/// A server that is driven. Cheap to clone; the server goes on without it, until its input ends or it is shut down.
#[derive(Clone)]
pub struct Service {
    mail: Arc<ServiceMail>,
    desk: Arc<Desk>,
}

/// Letters to the owner of a server.
pub(crate) type ServiceMail = Mail<Server, Errand>;

/// What the owner of a server lays open.
pub(super) struct Desk {
    pub(super) state: Mutex<State>,
    pub(super) listeners: Listeners<Event>,
}

/// What the owner of a server does for handles.
pub(crate) enum Errand {
    Ask {
        request: RequestId,
        method: Cow<'static, str>,
        params: Option<Payload>,
        promise: Promise<Result<Payload, AskError>>,
    },
    Conclude(RequestId, Conclusion),
}

/// How a request ends.
pub(crate) enum Conclusion {
    Fail(ErrorObject),
    Require(InputRequired),
    Respond(Payload),
}

impl Service {
    /// A server, and what its driver owns of it. For adapters: programs get theirs from one of those.
    #[must_use]
    pub fn new(server: Server) -> (Service, ServiceOwner) {
        let (mail, inbox) = Mail::new();
        let desk = Arc::new(Desk {
            state: Mutex::new(server.state()),
            listeners: Listeners::new(),
        });
        let owner = ServiceOwner::new(server, inbox, Arc::clone(&desk));
        (Service { mail, desk }, owner)
    }

    /// The same server, for who has the parts of a handle to it.
    pub(super) const fn of(mail: Arc<ServiceMail>, desk: Arc<Desk>) -> Service {
        Service { mail, desk }
    }

    pub(super) const fn mail(&self) -> &Arc<ServiceMail> {
        &self.mail
    }

    /// Where the server stands.
    #[must_use]
    pub fn state(&self) -> State {
        *lock(&self.desk.state)
    }

    /// What happens from now on, but for requests and what belongs to them.
    #[must_use]
    pub fn events(&self) -> Events<Event> {
        self.desk.listeners.add()
    }

    /// Something changed: whoever asked to hear of it is told.
    pub fn publish(&self, change: Change) -> Pending<Result<(), Misuse>> {
        self.mail.ask(|server, now| server.publish(now, change))
    }

    /// Logs something for whoever listens.
    pub fn log(
        &self,
        level: LogLevel,
        logger: Option<&str>,
        data: Payload,
    ) -> Pending<Result<(), Misuse>> {
        let logger = logger.map(Box::<str>::from);
        self.mail
            .ask(move |server, now| server.log(now, None, level, logger.as_deref(), data))
    }

    /// Tells the clients something else that has no answer.
    pub fn notify(
        &self,
        method: impl Into<Cow<'static, str>>,
        params: Option<Payload>,
    ) -> Pending<Result<(), Misuse>> {
        let method = method.into();
        self.mail
            .ask(move |server, now| server.notify(now, method, params))
    }

    /// This is offered, from now on.
    pub fn offer(&self, offer: Offer) -> Pending<()> {
        self.mail.ask(|server, now| server.offer(now, offer))
    }

    /// These are the tools, as in a result of `tools/list`; see [`Server::tools`].
    pub fn tools(&self, list: Payload) -> Pending<()> {
        self.mail.ask(move |server, now| server.tools(now, &list))
    }

    /// What was counted.
    pub fn stats(&self) -> Pending<Stats> {
        self.mail.ask(|server, _| server.stats())
    }

    /// The service ends: nothing new is taken, and the requests in flight have a while. Waits until nothing is left of it; it goes on
    /// without being waited for.
    pub fn shutdown(&self) -> Pending<()> {
        self.mail.verb(Server::shutdown);
        self.mail.closed()
    }

    /// Waits until nothing is left of the server: its client went, or it was shut down.
    pub fn closed(&self) -> Pending<()> {
        self.mail.closed()
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
