//! The application's handle of a client link. Each method queues a command for the owner of the machine and makes no decisions.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use everlink::client::{CallOptions, Client, Ended, Event, Listing, Misuse, Session, State};
use everlink::{AskId, Config, Epoch, ErrorObject, List, Payload, Stats, Watch};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::call::{Call, CallError, CallSlot, Caller, Reply, ToolResult};
use super::owner::LinkOwner;
use crate::command_queue::CommandQueue;
use crate::commands::{ClientCommand, LinkCommand};
use crate::events::{Events, Listeners};
use crate::promise::{Pending, Promise, promise};
use crate::random_seed;
use crate::sync::{Mutex, lock};

/// A link to one server, which outlives every transport under it. Cheap to clone; dropping the last clone shuts the link down.
///
/// All methods can be called from any thread or task. Their return values can be awaited, or blocked on with `wait`.
#[derive(Clone)]
pub struct Link {
    handle: Arc<Handle>,
    options: CallOptions,
}

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
    RunAndReport(ClientCommand, Promise<Result<(), Misuse>>),
    /// A command that starts a call.
    Call(ClientCommand, Caller),
    Cancel {
        call: Arc<CallSlot>,
        reason: Option<Box<str>>,
    },
    Ready(Promise<Result<Arc<Session>, NotReady>>),
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

impl std::error::Error for NotReady {}

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
            snapshot: Mutex::new(Snapshot::of(&client)),
            listeners: Listeners::new(),
        });
        let owner = LinkOwner::new(client, receiver, Arc::clone(&published));
        let link = Link {
            handle: Arc::new(Handle { queue, published }),
            options: CallOptions::new(),
        };
        (link, owner)
    }

    /// Returns a handle of the same link whose calls use these options.
    #[must_use]
    pub fn with(&self, options: CallOptions) -> Link {
        Link {
            handle: Arc::clone(&self.handle),
            options,
        }
    }

    /// Calls a tool with these arguments: any value that serializes to a JSON object. Any other value is a [`Misuse`], and nothing is sent.
    pub fn call_tool(&self, name: &str, arguments: impl Serialize) -> Call<ToolResult> {
        let params = NamedParams { name, arguments }.to_params();
        self.begin_call("tools/call".into(), params, Reply::tool_result)
    }

    /// Lists all tools of the server.
    pub fn list_tools(&self) -> Call<Arc<Listing>> {
        self.list(List::Tools)
    }

    /// Lists all prompts of the server.
    pub fn list_prompts(&self) -> Call<Arc<Listing>> {
        self.list(List::Prompts)
    }

    /// Lists all resources of the server.
    pub fn list_resources(&self) -> Call<Arc<Listing>> {
        self.list(List::Resources)
    }

    /// Reads all pages of one of the server's lists. A cached list that is still fresh is returned without a request.
    pub fn list(&self, list: List) -> Call<Arc<Listing>> {
        let options = self.options;
        let command = ClientCommand::List { list, options };
        Call::begin(&self.handle.queue, Reply::list, Ok(command))
    }

    /// Reads a resource.
    pub fn read_resource(&self, uri: &str) -> Call<Payload> {
        #[derive(Serialize)]
        struct Params<'a> {
            uri: &'a str,
        }
        self.begin_with_params("resources/read", &Params { uri }, Reply::result)
    }

    /// Gets a prompt with these arguments: any value that serializes to a JSON object of strings. A value that does not serialize to an object is a
    /// [`Misuse`], and nothing is sent.
    pub fn get_prompt(&self, name: &str, arguments: impl Serialize) -> Call<Payload> {
        let params = NamedParams { name, arguments }.to_params();
        self.begin_call("prompts/get".into(), params, Reply::result)
    }

    /// Calls any method.
    pub fn call(
        &self,
        method: impl Into<Cow<'static, str>>,
        params: Option<Payload>,
    ) -> Call<Payload> {
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
    ) -> Call<T> {
        self.begin_call(method.into(), serialize_params(params).map(Some), convert)
    }

    fn begin_call<T>(
        &self,
        method: Cow<'static, str>,
        params: Result<Option<Payload>, CallError>,
        convert: fn(Reply) -> T,
    ) -> Call<T> {
        let options = self.options;
        let command = params.map(|params| ClientCommand::Call {
            method,
            params,
            options,
        });
        Call::begin(&self.handle.queue, convert, command)
    }
}

/// # The link itself
impl Link {
    /// Returns the state of the link.
    #[must_use]
    pub fn state(&self) -> State {
        self.handle.published.load().state
    }

    /// Returns the epoch of the newest transport that was requested.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.handle.published.load().epoch
    }

    /// Returns the result of the handshake, while the link is ready.
    #[must_use]
    pub fn session(&self) -> Option<Arc<Session>> {
        self.handle.published.load().session
    }

    /// Returns how the last transport ended, if one did.
    #[must_use]
    pub fn last_end(&self) -> Option<Arc<Ended>> {
        self.handle.published.load().last_end
    }

    /// Subscribes to the events from now on: changes of the link's state, asks of the server and changes that it reports. Progress and results of a
    /// call go to its caller only.
    #[must_use]
    pub fn events(&self) -> Events<Event> {
        self.handle.published.listeners.subscribe()
    }

    /// Connects if necessary, and waits until the link is ready, parked or closed.
    pub fn ready(&self) -> Pending<Result<Arc<Session>, NotReady>> {
        let (promise, pending) = promise();
        self.handle.queue.send(OwnerCommand::Ready(promise));
        pending
    }

    /// Replaces the present transport, for this reason. Costs no attempt of the retry budget. Calls in flight get up to `policy.drain` to end.
    pub fn reconnect(&self, why: &str) {
        let (seen, why) = (self.epoch(), why.into());
        self.send_command(LinkCommand::Reconnect { seen, why });
    }

    /// Makes the link act now, for example because the network is back or the computer woke up. A link that waits or is parked connects; a ready one
    /// probes its server.
    pub fn wake(&self) {
        self.send_command(LinkCommand::Wake);
    }

    /// Sets the changes that the application wants to be notified of, by this server and every later one.
    pub fn watch(&self, watch: Watch) {
        self.handle
            .queue
            .send(OwnerCommand::Run(ClientCommand::Watch(watch)));
    }

    /// Answers an ask of the server, which came as [`Event::Ask`].
    pub fn answer(
        &self,
        ask: AskId,
        answer: Result<Payload, ErrorObject>,
    ) -> Pending<Result<(), Misuse>> {
        self.send_and_confirm(ClientCommand::Answer { ask, answer })
    }

    /// Sends a notification to the server.
    pub fn notify(
        &self,
        method: impl Into<Cow<'static, str>>,
        params: Option<Payload>,
    ) -> Pending<Result<(), Misuse>> {
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
        self.handle.queue.query_machine(|client, _| client.stats())
    }

    /// Shuts the link down: every call ends, and the transport is closed. The returned value waits until everything is freed; the shutdown goes on
    /// even if nobody waits. One call is enough: all other clones see a closed link.
    pub fn shutdown(&self) -> Pending<()> {
        self.send_command(LinkCommand::Shutdown);
        self.handle.queue.closed()
    }

    fn send_command(&self, command: LinkCommand) {
        self.handle.queue.send(command.into());
    }

    fn send_and_confirm(&self, command: ClientCommand) -> Pending<Result<(), Misuse>> {
        let (promise, pending) = promise();
        self.handle
            .queue
            .send(OwnerCommand::RunAndReport(command, promise));
        pending
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let snapshot = self.handle.published.load();
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
    pub(crate) fn of(client: &Client) -> Snapshot {
        Snapshot {
            state: client.state(),
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
