//! The application's handle of a client link. Each method queues a command for the owner of the machine and makes no decisions.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use everlink::client::{CallOptions, Client, Ended, Event, Listing, Misuse, Session, State};
use everlink::{AskId, Config, Epoch, ErrorObject, List, Payload, Stats, Watch};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::call::{Call, CallError, Caller, Reply, Shared, ToolResult};
use super::owner::LinkOwner;
use crate::asked::{Asked, Upkeep};
use crate::chance;
use crate::events::{Events, Listeners};
use crate::mailbox::Mail;
use crate::promise::{Pending, Promise, lock, promise};

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
    mail: Arc<LinkMail>,
    desk: Arc<Desk>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.mail.send(Upkeep::Shutdown.into());
    }
}

/// The command queue of the owner of a link.
pub(crate) type LinkMail = Mail<Client, Errand>;

/// A command for the owner of a link. Every change of the machine is one of these, so that it can be recorded.
pub(crate) enum Errand {
    /// A command without a reply.
    Ask(Asked),
    /// A command whose sender waits to learn whether the machine accepted it.
    AskAndTell(Asked, Promise<Result<(), Misuse>>),
    /// A command that starts a call.
    Call(Asked, Caller),
    Cancel {
        call: Arc<Shared>,
        reason: Option<Box<str>>,
    },
    Ready(Promise<Result<Arc<Session>, NotReady>>),
}

impl From<Upkeep> for Errand {
    fn from(upkeep: Upkeep) -> Errand {
        Errand::Ask(Asked::Upkeep(upkeep))
    }
}

/// The state that the owner of a link publishes to the handles.
pub(crate) struct Desk {
    pub(crate) standing: Mutex<Standing>,
    pub(crate) listeners: Listeners<Event>,
}

/// A snapshot of the link's state. The owner copies it from the machine before it delivers an event or a result.
#[derive(Clone)]
pub(crate) struct Standing {
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
            Some(ended) => write!(f, ". What happened to the server: {ended}"),
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
        config.seed ^= chance();
        let client = Client::new(config);
        let (mail, inbox) = Mail::new();
        let desk = Arc::new(Desk {
            standing: Mutex::new(Standing::of(&client)),
            listeners: Listeners::new(),
        });
        let owner = LinkOwner::new(client, inbox, Arc::clone(&desk));
        let link = Link {
            handle: Arc::new(Handle { mail, desk }),
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
        let params = Named { name, arguments }.written();
        self.post("tools/call".into(), params, Reply::tool_result)
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
        let asked = Asked::List { list, options };
        Call::begin(&self.handle.mail, Reply::list, Ok(asked))
    }

    /// Reads a resource.
    pub fn read_resource(&self, uri: &str) -> Call<Payload> {
        #[derive(Serialize)]
        struct Params<'a> {
            uri: &'a str,
        }
        self.begin("resources/read", &Params { uri }, Reply::result)
    }

    /// Gets a prompt with these arguments: any value that serializes to a JSON object of strings. A value that does not serialize to an object is a
    /// [`Misuse`], and nothing is sent.
    pub fn get_prompt(&self, name: &str, arguments: impl Serialize) -> Call<Payload> {
        let params = Named { name, arguments }.written();
        self.post("prompts/get".into(), params, Reply::result)
    }

    /// Calls any method.
    pub fn call(
        &self,
        method: impl Into<Cow<'static, str>>,
        params: Option<Payload>,
    ) -> Call<Payload> {
        let method = method.into();
        let has_arguments = matches!(&*method, "tools/call" | "prompts/get");
        let is_bad = |params: &Payload| {
            has_arguments && params.is_object() && params.parse::<WithArguments>().is_err()
        };
        let params = match params {
            Some(params) if is_bad(&params) => Err(no_object()),
            params => Ok(params),
        };
        self.post(method, params, Reply::result)
    }

    fn begin<T>(
        &self,
        method: &'static str,
        params: &impl Serialize,
        read: fn(Reply) -> T,
    ) -> Call<T> {
        self.post(method.into(), written(params).map(Some), read)
    }

    fn post<T>(
        &self,
        method: Cow<'static, str>,
        params: Result<Option<Payload>, CallError>,
        read: fn(Reply) -> T,
    ) -> Call<T> {
        let options = self.options;
        let asked = params.map(|params| Asked::Call {
            method,
            params,
            options,
        });
        Call::begin(&self.handle.mail, read, asked)
    }
}

/// # The link itself
impl Link {
    /// Returns the state of the link.
    #[must_use]
    pub fn state(&self) -> State {
        self.handle.desk.look().state
    }

    /// Returns the epoch of the newest transport that was requested.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.handle.desk.look().epoch
    }

    /// Returns the result of the handshake, while the link is ready.
    #[must_use]
    pub fn session(&self) -> Option<Arc<Session>> {
        self.handle.desk.look().session
    }

    /// Returns how the last transport ended, if one did.
    #[must_use]
    pub fn last_end(&self) -> Option<Arc<Ended>> {
        self.handle.desk.look().last_end
    }

    /// Subscribes to the events from now on: changes of the link's state, asks of the server and changes that it reports. Progress and results of a
    /// call go to its caller only.
    #[must_use]
    pub fn events(&self) -> Events<Event> {
        self.handle.desk.listeners.add()
    }

    /// Connects if necessary, and waits until the link is ready, parked or closed.
    pub fn ready(&self) -> Pending<Result<Arc<Session>, NotReady>> {
        let (promise, pending) = promise();
        self.handle.mail.send(Errand::Ready(promise));
        pending
    }

    /// Replaces the present transport, for this reason. Costs no attempt of the retry budget. Calls in flight get up to `policy.drain` to end.
    pub fn reconnect(&self, why: &str) {
        let (seen, why) = (self.epoch(), why.into());
        self.ask(Upkeep::Reconnect { seen, why });
    }

    /// Tries now, for example because the network is back or the computer woke up. A link that waits or is parked connects; a ready one is probed.
    pub fn wake(&self) {
        self.ask(Upkeep::Wake);
    }

    /// Sets the changes that the application wants to be notified of, by this server and every later one.
    pub fn watch(&self, wish: Watch) {
        self.handle.mail.send(Errand::Ask(Asked::Watch(wish)));
    }

    /// Answers an ask of the server, which came as [`Event::Ask`].
    pub fn answer(
        &self,
        ask: AskId,
        answer: Result<Payload, ErrorObject>,
    ) -> Pending<Result<(), Misuse>> {
        self.ask_and_hear(Asked::Answer { ask, answer })
    }

    /// Sends a notification to the server.
    pub fn notify(
        &self,
        method: impl Into<Cow<'static, str>>,
        params: Option<Payload>,
    ) -> Pending<Result<(), Misuse>> {
        let method = method.into();
        self.ask_and_hear(Asked::Notify { method, params })
    }

    /// Reports that there are new credentials after the server refused the old ones. Calls that wait for them go on.
    pub fn authorized(&self) {
        self.ask(Upkeep::Authorized);
    }

    /// Reports that there are no credentials that the server would accept, for this reason. Calls that wait for them fail.
    pub fn denied(&self, why: &str) {
        let why = why.into();
        self.ask(Upkeep::Denied { why });
    }

    /// Returns the counters of the link.
    pub fn stats(&self) -> Pending<Stats> {
        self.handle.mail.ask(|client, _| client.stats())
    }

    /// Shuts the link down: every call ends, and the transport is closed. The returned value waits until everything is freed; the shutdown goes on
    /// even if nobody waits. One call is enough: all other clones see a closed link.
    pub fn shutdown(&self) -> Pending<()> {
        self.ask(Upkeep::Shutdown);
        self.handle.mail.closed()
    }

    fn ask(&self, upkeep: Upkeep) {
        self.handle.mail.send(upkeep.into());
    }

    fn ask_and_hear(&self, asked: Asked) -> Pending<Result<(), Misuse>> {
        let (promise, pending) = promise();
        self.handle.mail.send(Errand::AskAndTell(asked, promise));
        pending
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let standing = self.handle.desk.look();
        f.debug_struct("Link")
            .field("state", &standing.state)
            .field("epoch", &standing.epoch)
            .finish_non_exhaustive()
    }
}

impl Desk {
    fn look(&self) -> Standing {
        lock(&self.standing).clone()
    }
}

impl Standing {
    pub(crate) fn of(client: &Client) -> Standing {
        Standing {
            state: client.state(),
            epoch: client.epoch(),
            session: client.session().cloned(),
            last_end: client.last_end().cloned(),
        }
    }
}

/// Parameters with a name and arguments.
#[derive(Serialize)]
struct Named<'a, A> {
    name: &'a str,
    arguments: A,
}

impl<A: Serialize> Named<'_, A> {
    fn written(&self) -> Result<Option<Payload>, CallError> {
        let params = written(self)?;
        // `arguments` is serialized last and without trailing whitespace, so the text ends with `}}` exactly if they are an object.
        if params.as_str().ends_with("}}") {
            Ok(Some(params))
        } else {
            Err(no_object())
        }
    }
}

/// Parameters whose `arguments`, if present, are an object.
#[derive(Deserialize)]
struct WithArguments {
    #[serde(default, rename = "arguments")]
    _arguments: BTreeMap<String, IgnoredAny>,
}

const fn no_object() -> CallError {
    CallError::Misuse(Misuse::NotAnObject {
        what: "the arguments of a tool or a prompt",
    })
}

fn written(params: &impl Serialize) -> Result<Payload, CallError> {
    Payload::of(params).map_err(|error| CallError::Arguments(error.to_string().into()))
}
