//! The application's handle of a client link. Each method queues a command for the owner of the machine and makes no decisions.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use everlink::client::{Client, Ended, Event, Listing, Misuse, Session, State};
use everlink::{AskId, Config, Epoch, ErrorObject, List, Payload, Stats, Watch};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::ask::{AskHandler, OpenAsk};
use super::call::{CallBuilder, CallError, CallSlot, CallSubject, Caller, Reply, ToolResult};
use super::owner::LinkOwner;
use crate::command_queue::CommandQueue;
use crate::commands::{ClientCommand, LinkCommand};
use crate::events::{Events, Listeners};
use crate::promise::{Gone, Pending, Promise, promise};
use crate::random_seed;
use crate::sync::{Mutex, lock};

/// A link to one server, which outlives every transport under it. Cheap to clone; dropping the last clone shuts the link down.
///
/// All methods can be called from any thread or task. Their return values can be awaited, or blocked on with `wait`.
///
/// An adapter creates it, for example `everlink_stdio::connect` or `everlink_tokio::http::connect`. It connects at its first call, or with
/// [`ready`](Link::ready).
///
/// ```
/// use everlink_handle::{CallError, Link};
/// use serde_json::json;
///
/// async fn greet(link: &Link) -> Result<(), CallError> {
///     let session = link.ready().await?;
///     println!("{:?} speaks {}", session.server, session.version);
///     let result = link.call_tool("greet", json!({"name": "Ada"})).await?;
///     println!("{}", result.text());
///     Ok(())
/// }
/// ```
///
/// A thread does the same with `wait`: `link.call_tool("greet", json!({"name": "Ada"})).wait()?`.
#[derive(Clone)]
pub struct Link(Arc<Handle>);

/// The state that all clones share.
struct Handle {
    queue: Arc<LinkQueue>,
    published: Arc<Published>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.queue.send(LinkCommand::Shutdown.into());
    }
}

/// The command queue of the owner of a link.
pub(crate) type LinkQueue = CommandQueue<Client, OwnerCommand>;

/// A command for the owner of a link. Every change of the machine is one of these, so that it can be recorded.
pub(crate) enum OwnerCommand {
    /// A command without a reply.
    Run(ClientCommand),
    /// A command whose sender waits to learn whether the machine accepted it.
    RunAndReport(ClientCommand, Promise<(), Misuse>),
    /// A command that starts a call.
    Call(ClientCommand, Caller),
    Cancel {
        call: Arc<CallSlot>,
        reason: Option<Box<str>>,
    },
    OnAsk(AskHandler),
    Ready(Promise<Arc<Session>, NotReady>),
}

impl From<LinkCommand> for OwnerCommand {
    fn from(command: LinkCommand) -> OwnerCommand {
        OwnerCommand::Run(ClientCommand::Link(command))
    }
}

/// The state that the owner of a link publishes to the handles.
pub(crate) struct Published {
    pub(crate) snapshot: Mutex<Snapshot>,
    pub(crate) listeners: Listeners<Event>,
}

/// A snapshot of the link's state. The owner copies it from the machine before it delivers an event or a result.
#[derive(Clone)]
pub(crate) struct Snapshot {
    pub(crate) state: State,
    pub(crate) epoch: Epoch,
    pub(crate) session: Option<Arc<Session>>,
    pub(crate) last_end: Option<Arc<Ended>>,
    /// The id of the server's process, while the two exchange messages.
    pub(crate) pid: Option<u32>,
}

/// The error when a link is parked or closed instead of ready.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NotReady {
    /// The state of the link.
    pub state: State,
    /// The end of its last transport, if it had one.
    pub last_end: Option<Arc<Ended>>,
}

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the link is {}", self.state)?;
        match &self.last_end {
            Some(ended) => write!(f, ". How its last connection ended: {ended}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for NotReady {
    /// Returns how the last transport ended.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.last_end.as_deref().map(|ended| ended as _)
    }
}

/// A link whose driver ended is closed.
impl From<Gone> for Misuse {
    fn from(_: Gone) -> Misuse {
        Misuse::Closed
    }
}

/// A link whose driver ended is closed.
impl From<Gone> for NotReady {
    fn from(_: Gone) -> NotReady {
        NotReady {
            state: State::Closed,
            last_end: None,
        }
    }
}

/// # Calls
impl Link {
    /// Creates a link and the owner that its driver runs. For adapters: applications get their links from an adapter. Mixes random bits into the
    /// seed, so that many links do not reconnect at the same time.
    #[must_use]
    pub fn new(mut config: Config) -> (Link, LinkOwner) {
        config.seed ^= random_seed();
        let client = Client::new(config);
        let (queue, receiver) = CommandQueue::new();
        let published = Arc::new(Published {
            snapshot: Mutex::new(Snapshot::of(&client, None)),
            listeners: Listeners::new(),
        });
        let owner = LinkOwner::new(client, receiver, Arc::clone(&published));
        (Link(Arc::new(Handle { queue, published })), owner)
    }

    /// Calls a tool with these arguments: any value that serializes to a JSON object. Any other value is a [`Misuse`], and nothing is sent.
    pub fn call_tool(&self, name: &str, arguments: impl Serialize) -> CallBuilder<ToolResult> {
        let params = NamedParams { name, arguments }.to_params();
        self.begin_call("tools/call".into(), params, Reply::tool_result)
    }

    /// Lists all tools of the server.
    pub fn list_tools(&self) -> CallBuilder<Arc<Listing>> {
        self.list(List::Tools)
    }

    /// Lists all prompts of the server.
    pub fn list_prompts(&self) -> CallBuilder<Arc<Listing>> {
        self.list(List::Prompts)
    }

    /// Lists all resources of the server.
    pub fn list_resources(&self) -> CallBuilder<Arc<Listing>> {
        self.list(List::Resources)
    }

    /// Reads all pages of one of the server's lists. A cached list that is still fresh is returned without a request.
    pub fn list(&self, list: List) -> CallBuilder<Arc<Listing>> {
        CallBuilder::new(&self.0.queue, Ok(CallSubject::List(list)), Reply::list)
    }

    /// Reads a resource.
    pub fn read_resource(&self, uri: &str) -> CallBuilder<Payload> {
        #[derive(Serialize)]
        struct Params<'a> {
            uri: &'a str,
        }
        self.begin_with_params("resources/read", &Params { uri }, Reply::result)
    }

    /// Gets a prompt with these arguments: any value that serializes to a JSON object of strings. A value that does not serialize to an object is a
    /// [`Misuse`], and nothing is sent.
    pub fn get_prompt(&self, name: &str, arguments: impl Serialize) -> CallBuilder<Payload> {
        let params = NamedParams { name, arguments }.to_params();
        self.begin_call("prompts/get".into(), params, Reply::result)
    }

    /// Calls any method. A method that the link itself uses, such as `initialize`, is a [`Misuse`].
    pub fn call(
        &self,
        method: impl Into<Cow<'static, str>>,
        params: Option<Payload>,
    ) -> CallBuilder<Payload> {
        let method = method.into();
        let has_arguments = matches!(&*method, "tools/call" | "prompts/get");
        let has_bad_arguments = |params: &Payload| {
            has_arguments && params.is_object() && params.parse::<WithArguments>().is_err()
        };
        let params = match params {
            Some(params) if has_bad_arguments(&params) => Err(arguments_not_an_object()),
            params => Ok(params),
        };
        self.begin_call(method, params, Reply::result)
    }

    fn begin_with_params<T>(
        &self,
        method: &'static str,
        params: &impl Serialize,
        convert: fn(Reply) -> T,
    ) -> CallBuilder<T> {
        self.begin_call(method.into(), serialize_params(params).map(Some), convert)
    }

    fn begin_call<T>(
        &self,
        method: Cow<'static, str>,
        params: Result<Option<Payload>, CallError>,
        convert: fn(Reply) -> T,
    ) -> CallBuilder<T> {
        let subject = params.map(|params| CallSubject::Method(method, params));
        CallBuilder::new(&self.0.queue, subject, convert)
    }
}

/// # The link itself
impl Link {
    /// Returns the state of the link.
    #[must_use]
    pub fn state(&self) -> State {
        self.0.published.load().state
    }

    /// Returns the epoch of the newest transport that was requested.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.0.published.load().epoch
    }

    /// Returns the result of the handshake, while the link is ready.
    #[must_use]
    pub fn session(&self) -> Option<Arc<Session>> {
        self.0.published.load().session
    }

    /// Returns how the last transport ended, if one did.
    #[must_use]
    pub fn last_end(&self) -> Option<Arc<Ended>> {
        self.0.published.load().last_end
    }

    /// Returns the id of the server's process, while the link exchanges messages with it. `None` over HTTP.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.0.published.load().pid
    }

    /// Subscribes to the events from now on: changes of the link's state, asks of the server and changes that it reports. Progress and results of a
    /// call go to its caller only.
    #[must_use]
    pub fn events(&self) -> Events<Event> {
        self.0.published.listeners.subscribe()
    }

    /// Connects if necessary, and waits until the link is ready, parked or closed.
    pub fn ready(&self) -> Pending<Arc<Session>, NotReady> {
        let (promise, pending) = promise();
        self.0.queue.send(OwnerCommand::Ready(promise));
        pending
    }

    /// Replaces the present transport, for this reason. Costs no attempt of the retry budget. Calls in flight get up to
    /// [`Policy::drain`](everlink::Policy::drain) to end, 5 s by default.
    pub fn reconnect(&self, why: &str) {
        let (seen, why) = (self.epoch(), why.into());
        self.send_command(LinkCommand::Reconnect { seen, why });
    }

    /// Makes the link act now, for example because the network is back or the computer woke up. A link that waits or is parked connects; a ready one
    /// probes its server.
    pub fn wake(&self) {
        self.send_command(LinkCommand::Wake);
    }

    /// Sets the changes that the application wants to be notified of, by this server and every later one. Default: [`Config::watch`], which is the lists
    /// of tools, prompts and resources.
    pub fn watch(&self, watch: Watch) {
        self.0
            .queue
            .send(OwnerCommand::Run(ClientCommand::Watch(watch)));
    }

    /// Sets the function that answers the asks of the server. Asks that came before and are still open are passed to it, too. Until there is one,
    /// asks wait. Declare the kinds of asks that it answers with [`Config::with_capabilities`]: a server sends no others.
    ///
    /// The function runs on the driver's task or thread, so it must not block. For an answer that takes time, it moves the [`OpenAsk`] to a task or a
    /// thread. Default: no function.
    pub fn on_ask(&self, handler: impl FnMut(OpenAsk) + Send + 'static) {
        self.0.queue.send(OwnerCommand::OnAsk(Box::new(handler)));
    }

    /// Answers an ask of the server, which came as [`Event::Ask`]. [`on_ask`](Link::on_ask) needs no events.
    pub fn answer(&self, ask: AskId, answer: Result<Payload, ErrorObject>) -> Pending<(), Misuse> {
        self.send_and_confirm(ClientCommand::Answer { ask, answer })
    }

    /// Sends a notification to the server.
    pub fn notify(
        &self,
        method: impl Into<Cow<'static, str>>,
        params: Option<Payload>,
    ) -> Pending<(), Misuse> {
        let method = method.into();
        self.send_and_confirm(ClientCommand::Notify { method, params })
    }

    /// Reports that there are new credentials after the server refused the old ones. Calls that wait for them go on.
    pub fn authorized(&self) {
        self.send_command(LinkCommand::Authorized);
    }

    /// Reports that there are no credentials that the server would accept, for this reason. Calls that wait for them fail.
    pub fn denied(&self, why: &str) {
        let why = why.into();
        self.send_command(LinkCommand::Denied { why, page: None });
    }

    /// Returns the counters of the link.
    pub fn stats(&self) -> Pending<Stats> {
        self.0.queue.query_machine(|client, _| client.stats())
    }

    /// Shuts the link down: every call ends, and the transport is closed. The returned value waits until everything is freed; the shutdown goes on
    /// even if nobody waits. One call is enough: all other clones see a closed link.
    pub fn shutdown(&self) -> Pending<()> {
        self.send_command(LinkCommand::Shutdown);
        self.0.queue.closed()
    }

    fn send_command(&self, command: LinkCommand) {
        self.0.queue.send(command.into());
    }

    fn send_and_confirm(&self, command: ClientCommand) -> Pending<(), Misuse> {
        let (promise, pending) = promise();
        self.0
            .queue
            .send(OwnerCommand::RunAndReport(command, promise));
        pending
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let snapshot = self.0.published.load();
        f.debug_struct("Link")
            .field("state", &snapshot.state)
            .field("epoch", &snapshot.epoch)
            .finish_non_exhaustive()
    }
}

impl Published {
    fn load(&self) -> Snapshot {
        lock(&self.snapshot).clone()
    }
}

impl Snapshot {
    /// Takes a snapshot of the machine. `pid` is the id of the last process that was started.
    pub(crate) fn of(client: &Client, pid: Option<u32>) -> Snapshot {
        let state = client.state();
        let is_in_touch = matches!(state, State::Handshaking | State::Ready | State::Draining);
        Snapshot {
            state,
            pid: pid.filter(|_| is_in_touch),
            epoch: client.epoch(),
            session: client.session().cloned(),
            last_end: client.last_end().cloned(),
        }
    }
}

/// Parameters with a name and arguments.
#[derive(Serialize)]
struct NamedParams<'a, A> {
    name: &'a str,
    arguments: A,
}

impl<A: Serialize> NamedParams<'_, A> {
    fn to_params(&self) -> Result<Option<Payload>, CallError> {
        let params = serialize_params(self)?;
        // `arguments` is serialized last and without trailing whitespace, so the text ends with `}}` exactly if they are an object.
        if params.as_str().ends_with("}}") {
            Ok(Some(params))
        } else {
            Err(arguments_not_an_object())
        }
    }
}

/// Parameters whose `arguments`, if present, are an object.
#[derive(Deserialize)]
struct WithArguments {
    #[serde(default, rename = "arguments")]
    _arguments: BTreeMap<String, IgnoredAny>,
}

const fn arguments_not_an_object() -> CallError {
    CallError::Misuse(Misuse::NotAnObject {
        what: "the arguments of a tool or a prompt",
    })
}

fn serialize_params(params: &impl Serialize) -> Result<Payload, CallError> {
    Payload::of(params).map_err(|error| CallError::Arguments(error.to_string().into()))
}
