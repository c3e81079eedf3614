//! The application's handle of a server. Each method queues a command for the owner of the machine and makes no decisions.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use everlink::protocol::LogLevel;
use everlink::server::{Event, InputRequired, Misuse, Offer, State, Stats};
use everlink::{Change, ErrorObject, Instant, Payload, RequestId, Server};

use super::owner::ServiceOwner;
use super::task::ServiceError;
use crate::command_queue::CommandQueue;
use crate::events::{Events, Listeners};
use crate::promise::{Pending, Promise};
use crate::sync::{Mutex, lock};

/// A handle of a running server. Cheap to clone. Without handles the server runs on, until its input ends or it is shut down.
///
/// An adapter creates it, for example `everlink_stdio::serve` or `everlink_tokio::http::serve`.
///
/// ```
/// use everlink::{Change, List};
/// use everlink_handle::{Service, ServiceError};
///
/// async fn reload(service: &Service) -> Result<(), ServiceError> {
///     service.publish(Change::List(List::Tools)).await?; // clients read the list again
///     service.closed().await?;
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct Service {
    queue: Arc<ServiceQueue>,
    published: Arc<Published>,
}

/// The command queue of the owner of a server.
pub(crate) type ServiceQueue = CommandQueue<Server, OwnerCommand>;

/// The state that the owner of a server publishes to the handles.
pub(super) struct Published {
    pub(super) state: Mutex<State>,
    pub(super) listeners: Listeners<Event>,
}

/// A command for the owner of a server.
pub(crate) enum OwnerCommand {
    Ask {
        request: RequestId,
        method: Cow<'static, str>,
        params: Option<Payload>,
        promise: Promise<Payload, ServiceError>,
    },
    Conclude(RequestId, Conclusion),
}

/// The end of a request.
pub(crate) enum Conclusion {
    Fail(ErrorObject),
    Require(InputRequired),
    Respond(Payload),
}

impl Conclusion {
    pub(super) const fn as_outcome(&self) -> Result<Option<&Payload>, &ErrorObject> {
        match self {
            Conclusion::Fail(error) => Err(error),
            Conclusion::Require(_) => Ok(None),
            Conclusion::Respond(result) => Ok(Some(result)),
        }
    }
}

impl Service {
    /// Creates a handle and the owner that its driver runs. For adapters: applications get their service from an adapter.
    #[must_use]
    pub fn new(server: Server) -> (Service, ServiceOwner) {
        let (queue, receiver) = CommandQueue::new();
        let published = Arc::new(Published {
            state: Mutex::new(server.state()),
            listeners: Listeners::new(),
        });
        let owner = ServiceOwner::new(server, receiver, Arc::clone(&published));
        (Service { queue, published }, owner)
    }

    /// Creates a handle of an existing server from the parts of another one.
    pub(super) const fn of(queue: Arc<ServiceQueue>, published: Arc<Published>) -> Service {
        Service { queue, published }
    }

    pub(super) const fn queue(&self) -> &Arc<ServiceQueue> {
        &self.queue
    }

    /// Returns the state of the server.
    #[must_use]
    pub fn state(&self) -> State {
        *lock(&self.published.state)
    }

    /// Subscribes to the events from now on, except for requests and events that belong to a request.
    #[must_use]
    pub fn events(&self) -> Events<Event> {
        self.published.listeners.subscribe()
    }

    /// Notifies the clients that watch this change.
    pub fn publish(&self, change: Change) -> Pending<(), ServiceError> {
        self.run(|server, now| server.publish(now, change))
    }

    /// Sends a log message to the clients that listen to logs.
    pub fn log(
        &self,
        level: LogLevel,
        logger: Option<&str>,
        data: Payload,
    ) -> Pending<(), ServiceError> {
        let logger = logger.map(Box::<str>::from);
        self.run(move |server, now| server.log(now, None, level, logger.as_deref(), data))
    }

    /// Sends any other notification to the clients.
    pub fn notify(
        &self,
        method: impl Into<Cow<'static, str>>,
        params: Option<Payload>,
    ) -> Pending<(), ServiceError> {
        let method = method.into();
        self.run(move |server, now| server.notify(now, method, params))
    }

    fn run(
        &self,
        function: impl FnOnce(&mut Server, Instant) -> Result<(), Misuse> + Send + 'static,
    ) -> Pending<(), ServiceError> {
        self.queue
            .try_on_machine(|server, now| Ok(function(server, now)?))
    }

    /// Replaces what the server offers.
    pub fn offer(&self, offer: Offer) -> Pending<()> {
        self.queue
            .query_machine(|server, now| server.offer(now, offer))
    }

    /// Sets the tools, in the form of a result of `tools/list`; see [`Server::tools`].
    pub fn tools(&self, list: Payload) -> Pending<()> {
        self.queue
            .query_machine(move |server, now| server.tools(now, &list))
    }

    /// Returns the counters of the server.
    pub fn stats(&self) -> Pending<Stats> {
        self.queue.query_machine(|server, _| server.stats())
    }

    /// Shuts the server down: new requests are refused, and requests in flight get up to [`Config::drain`](everlink::server::Config::drain) to end, 5 s by
    /// default. The returned value waits until everything is freed; the shutdown goes on even if nobody waits.
    pub fn shutdown(&self) -> Pending<()> {
        self.queue.run_on_machine(Server::shutdown);
        self.queue.closed()
    }

    /// Waits until the server has ended: its client disconnected, or it was shut down.
    pub fn closed(&self) -> Pending<()> {
        self.queue.closed()
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
