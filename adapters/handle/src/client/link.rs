//! What programs hold of a client link. Each verb is a letter to the one who owns the machine; nothing is decided here.

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

/// A link to one server, which outlives every transport under it. Cheap to clone; when the last clone is dropped, the link is shut down.
///
/// All verbs can be used from any thread or task. What they return can be awaited, or blocked on with `wait`.
#[derive(Clone)]
pub struct Link {
    handle: Arc<Handle>,
    options: CallOptions,
}

/// What all clones have in common.
struct Handle {
    mail: Arc<LinkMail>,
    desk: Arc<Desk>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.mail.send(Upkeep::Shutdown.into());
    }
}

/// Letters to the owner of a link.
pub(crate) type LinkMail = Mail<Client, Errand>;

/// What the owner of a link does for handles. All that changes the machine is in here: it can be recorded.
pub(crate) enum Errand {
    /// Something of which nobody waits to hear.
    Ask(Asked),
    /// Something of which somebody waits to hear whether it could be asked.
    AskAndTell(Asked, Promise<Result<(), Misuse>>),
    /// Something that becomes a call.
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

/// What the owner of a link lays open.
pub(crate) struct Desk {
    pub(crate) standing: Mutex<Standing>,
    pub(crate) listeners: Listeners<Event>,
}

/// Where the link stands. The owner copies it from the machine before anybody hears of what happened.
#[derive(Clone)]
pub(crate) struct Standing {
    pub(crate) state: State,
    pub(crate) epoch: Epoch,
    pub(crate) session: Option<Arc<Session>>,
    pub(crate) last_end: Option<Arc<Ended>>,
}

/// A link is not ready, and will not be soon.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NotReady {
    /// Where it stands.
    pub state: State,
    /// How its last transport ended, if it had one.
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
    /// A link, and what its driver owns of it. For adapters: programs get their links from one of those. Its seed is made its own, so that
    /// many links do not come back in step.
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

    /// The same link, for calls with these options.
    #[must_use]
    pub fn with(&self, options: CallOptions) -> Link {
        Link {
            handle: Arc::clone(&self.handle),
            options,
        }
    }

    /// Calls a tool with these arguments: anything that is written as a JSON object. Anything else is a [`Misuse`], and nothing is sent.
    pub fn call_tool(&self, name: &str, arguments: impl Serialize) -> Call<ToolResult> {
        let params = Named { name, arguments }.written();
        self.post("tools/call".into(), params, Reply::tool_result)
    }

    /// The server's tools, all of them.
    pub fn list_tools(&self) -> Call<Arc<Listing>> {
        self.list(List::Tools)
    }

    /// The server's prompts, all of them.
    pub fn list_prompts(&self) -> Call<Arc<Listing>> {
        self.list(List::Prompts)
    }

    /// The server's resources, all of them.
    pub fn list_resources(&self) -> Call<Arc<Listing>> {
        self.list(List::Resources)
    }

    /// One of the server's lists, all pages of it. What is held of it and still fresh is given out without asking.
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

    /// Fills in a prompt with these arguments: anything that is written as a JSON object of strings. What is
    /// written as no object is a [`Misuse`], and nothing is sent.
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
    /// Where it stands.
    #[must_use]
    pub fn state(&self) -> State {
        self.handle.desk.look().state
    }

    /// The newest transport that was asked for.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.handle.desk.look().epoch
    }

    /// What was agreed on with the server, while the link is ready.
    #[must_use]
    pub fn session(&self) -> Option<Arc<Session>> {
        self.handle.desk.look().session
    }

    /// How the last transport ended, if one did.
    #[must_use]
    pub fn last_end(&self) -> Option<Arc<Ended>> {
        self.handle.desk.look().last_end
    }

    /// What happens from now on: the life of the link, questions and changes of the server. What belongs to a call is told to its caller.
    #[must_use]
    pub fn events(&self) -> Events<Event> {
        self.handle.desk.listeners.add()
    }

    /// Connects if need be, and waits until the link is ready, is parked, or is closed.
    pub fn ready(&self) -> Pending<Result<Arc<Session>, NotReady>> {
        let (promise, pending) = promise();
        self.handle.mail.send(Errand::Ready(promise));
        pending
    }

    /// Replaces the present transport, for this reason. Free of charge; calls in flight are given a while to end.
    pub fn reconnect(&self, why: &str) {
        let (seen, why) = (self.epoch(), why.into());
        self.ask(Upkeep::Reconnect { seen, why });
    }

    /// The network is back, the laptop is awake: try now.
    pub fn wake(&self) {
        self.ask(Upkeep::Wake);
    }

    /// What the program wants to hear of, from now on and from every later server.
    pub fn watch(&self, wish: Watch) {
        self.handle.mail.send(Errand::Ask(Asked::Watch(wish)));
    }

    /// Answers a question of the server, which came as [`Event::Ask`].
    pub fn answer(
        &self,
        ask: AskId,
        answer: Result<Payload, ErrorObject>,
    ) -> Pending<Result<(), Misuse>> {
        self.ask_and_hear(Asked::Answer { ask, answer })
    }

    /// Tells the server something that has no answer.
    pub fn notify(
        &self,
        method: impl Into<Cow<'static, str>>,
        params: Option<Payload>,
    ) -> Pending<Result<(), Misuse>> {
        let method = method.into();
        self.ask_and_hear(Asked::Notify { method, params })
    }

    /// There are other credentials than those that the server refused: what waits for them goes on.
    pub fn authorized(&self) {
        self.ask(Upkeep::Authorized);
    }

    /// There are no credentials that the server would take, for this reason: what waits for them fails.
    pub fn denied(&self, why: &str) {
        let why = why.into();
        self.ask(Upkeep::Denied { why });
    }

    /// What was counted.
    pub fn stats(&self) -> Pending<Stats> {
        self.handle.mail.ask(|client, _| client.stats())
    }

    /// The link is not wanted any more: every call ends, and the transport is taken down. Waits until nothing is left of it. It
    /// goes on without being waited for, and needs no repetition: the other clones see a closed link.
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

/// Parameters that name something and give it arguments.
#[derive(Serialize)]
struct Named<'a, A> {
    name: &'a str,
    arguments: A,
}

impl<A: Serialize> Named<'_, A> {
    fn written(&self) -> Result<Option<Payload>, CallError> {
        let params = written(self)?;
        // The arguments are written last, without a space behind them: the text ends with two braces if they are an object.
        if params.as_str().ends_with("}}") {
            Ok(Some(params))
        } else {
            Err(no_object())
        }
    }
}

/// Parameters whose arguments are an object, if there are any.
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
