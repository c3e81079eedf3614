//! The set of functions of a server: its tools, its handlers, and its changes at run time. `registration` adds everything but tools.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, Once, PoisonError, RwLock, RwLockReadGuard};

use everlink::protocol::{Implementation, ServerFeature};
use everlink::server::{Config, Offer, Request, State, UnknownMethods};
use everlink::{Change, ErrorObject, List, Payload};
use everlink_handle::{Context as RequestContext, Response, Service, secret};
use everlink_types::Tool;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::context::Context;
use crate::dispatch;
use crate::error::Error;
use crate::function::{Answering, Started};
use crate::output::Output;
use crate::registry::{Registry, ToolEntry};
use crate::tool::TypedTool;

/// The functions of a server: tools, resources, prompts and completions.
///
/// Clones share one set. It can change while it is served: the same methods add to it, and clients learn of the change.
///
/// ```
/// # use everlink_tools::Tools;
/// let tools = Tools::new("clock", "1.0").tool("ping", "Answers", async |(): (), _| Ok("pong"));
/// // Later, while it is served:
/// tools.clone().tool("pong", "Answers, too", async |(): (), _| Ok("ping"));
/// tools.remove_tool("ping");
/// ```
#[derive(Clone)]
pub struct Tools(Arc<Shared>);

struct Shared {
    registry: RwLock<Registry>,
    /// The servers that use the set. Locked before the registry and until a change is announced, so that all servers learn of all changes in one order.
    services: Mutex<Vec<Service>>,
}

/// # The server
impl Tools {
    /// An empty set for a server with this name and version.
    #[must_use]
    pub fn new(name: &str, version: &str) -> Tools {
        Tools::of(Implementation::new(name, version))
    }

    /// An empty set for a server with this description.
    #[must_use]
    pub fn of(server: Implementation) -> Tools {
        Tools(Arc::new(Shared {
            registry: RwLock::new(Registry::new(server)),
            services: Mutex::default(),
        }))
    }

    /// Sets the instructions on how to use the server, for the model.
    #[must_use]
    pub fn with_instructions(self, instructions: impl Into<Box<str>>) -> Tools {
        let instructions = instructions.into();
        self.change(None, |registry| registry.instructions = Some(instructions))
    }

    /// Sets the most items of one page of a list. Default: all, because some clients read only the first page.
    #[must_use]
    pub fn with_page_size(self, items: usize) -> Tools {
        self.change(None, |registry| registry.page_size = items.max(1))
    }

    /// Offers log messages: those of [`Context::log`](RequestContext::log) and [`Service::log`].
    #[must_use]
    pub fn with_logging(self) -> Tools {
        self.with_feature(ServerFeature::Logging)
    }

    /// Offers notifications of changes of single resources: those of [`resource_updated`](Tools::resource_updated).
    #[must_use]
    pub fn with_resource_updates(self) -> Tools {
        self.with_feature(ServerFeature::ResourcesSubscribe)
    }

    /// Offers another feature.
    #[must_use]
    pub fn with_feature(self, feature: ServerFeature) -> Tools {
        self.change(None, |registry| registry.features.push(feature))
    }

    /// Returns the offer to clients: the name of the server, and the capabilities that follow from what is registered.
    #[must_use]
    pub fn offer(&self) -> Offer {
        self.read().offer()
    }

    /// Returns the configuration of a server with this offer, and a new secret.
    #[must_use]
    pub fn config(&self) -> Config {
        let mut config = Config::new(self.offer(), secret());
        if !self.read().methods.is_empty() {
            config.unknown_methods = UnknownMethods::Delivered;
        }
        config
    }

    /// Returns the handler for a server on tokio or another async runtime: `everlink_tokio::http::serve(listener, tools.config(), tools.handler())`.
    ///
    /// Each server needs a handler of its own. Blocking tools run on threads of their own: at most 512 in a process. More calls fail until one of them ends.
    pub fn handler(
        &self,
    ) -> impl Fn(Request, RequestContext) -> Answering + Send + Sync + 'static + use<> {
        let start = self.starter();
        move |request, context| start(request, context).into_answering()
    }

    /// Returns the handler for a server with threads: `everlink_stdio::serve(tools.config(), tools.blocking_handler())`.
    ///
    /// Each server needs a handler of its own. A function that is `async` runs on the thread of its request; it must not need a runtime. It is dropped at a
    /// wait when its call is cancelled.
    pub fn blocking_handler(
        &self,
    ) -> impl Fn(Request, RequestContext) -> Result<Response, ErrorObject> + Send + Sync + 'static + use<>
    {
        let start = self.starter();
        move |request, context| {
            let cancelled = context.cancelled();
            start(request, context).run(cancelled)
        }
    }

    /// Begins requests. The first one tells the set which server it has.
    fn starter(
        &self,
    ) -> impl Fn(Request, RequestContext) -> Started + Send + Sync + 'static + use<> {
        let (tools, attached) = (self.clone(), Once::new());
        move |request, context| {
            attached.call_once(|| tools.attach(context.service()));
            dispatch::start(&tools, request, context)
        }
    }
}

/// # Tools
impl Tools {
    /// Adds a tool: its name, what it does, and an `async` function of its arguments and the request.
    ///
    /// An `async` closure cannot own what it captures and be called again, so a function with a value of its own is a closure that returns a future: `move |args,
    /// context| { let pool = pool.clone(); async move { .. } }`.
    ///
    /// A tool of the same name is replaced. The schemas of arguments and result follow from their types, and doc comments describe the arguments. A tool
    /// without arguments takes `()`, and one that reads any arguments takes a [`serde_json::Value`].
    ///
    /// # Panics
    ///
    /// When the arguments are not an object.
    pub fn tool<A, R, F, Fut>(
        self,
        name: impl Into<String>,
        description: impl Into<String>,
        function: F,
    ) -> Tools
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        R: Output,
        F: Fn(A, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Error>> + Send + 'static,
    {
        self.tool_as(Tool::new(name).with_description(description), function)
    }

    /// Adds a tool like [`tool`](Tools::tool), with a description that may have a title, annotations and icons. A schema in it takes the place of the one
    /// that follows from the type.
    ///
    /// # Panics
    ///
    /// When the arguments are not an object.
    pub fn tool_as<A, R, F, Fut>(self, tool: Tool, function: F) -> Tools
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        R: Output,
        F: Fn(A, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Error>> + Send + 'static,
    {
        let tool = TypedTool::<A, R>::new(tool);
        self.insert_tool(tool, |tool| tool.asynchronous(function))
    }

    /// Adds a tool like [`tool`](Tools::tool), with a function that may block.
    ///
    /// With threads, it runs on the thread of its request. On an async runtime, it gets a thread of its own.
    ///
    /// # Panics
    ///
    /// When the arguments are not an object.
    pub fn blocking_tool<A, R, F>(
        self,
        name: impl Into<String>,
        description: impl Into<String>,
        function: F,
    ) -> Tools
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        R: Output,
        F: Fn(A, Context) -> Result<R, Error> + Send + Sync + 'static,
    {
        self.blocking_tool_as(Tool::new(name).with_description(description), function)
    }

    /// Adds a tool like [`tool_as`](Tools::tool_as), with a function that may block.
    ///
    /// # Panics
    ///
    /// When the arguments are not an object.
    pub fn blocking_tool_as<A, R, F>(self, tool: Tool, function: F) -> Tools
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        R: Output,
        F: Fn(A, Context) -> Result<R, Error> + Send + Sync + 'static,
    {
        let tool = TypedTool::<A, R>::new(tool);
        self.insert_tool(tool, |tool| tool.blocking(function))
    }

    fn insert_tool<A, R>(
        self,
        tool: TypedTool<A, R>,
        entry: impl FnOnce(TypedTool<A, R>) -> ToolEntry,
    ) -> Tools {
        let name = tool.name().to_owned();
        let entry = entry(tool);
        self.change(Some(List::Tools), |registry| {
            registry.tools.insert(name, entry)
        })
    }

    /// Removes a tool. Returns whether there was one.
    pub fn remove_tool(&self, name: &str) -> bool {
        self.remove(List::Tools, |registry| registry.tools.remove(name))
    }
}

/// # Changes at run time
impl Tools {
    /// Tells the set that this server uses it, so that its clients learn of changes.
    ///
    /// The first request does the same, so most servers do not need it. A server over HTTP whose tools have arguments in header fields (`x-mcp-header`)
    /// needs it before that, to compare them from the first request on. It does no harm to attach a server twice: a server does not queue a change that is
    /// queued already.
    pub fn attach(&self, service: &Service) {
        let mut services = lock(&self.0.services);
        services.push(service.clone());
        drop(service.tools(self.tool_list()));
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Registry> {
        self.0
            .registry
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the set, and tells the clients which list changed.
    pub(crate) fn change<T>(
        self,
        list: Option<List>,
        change: impl FnOnce(&mut Registry) -> T,
    ) -> Tools {
        drop(self.apply(list, change, |_| true));
        self
    }

    /// Removes an item, and tells the clients if there was one.
    pub(crate) fn remove<T>(
        &self,
        list: List,
        remove: impl FnOnce(&mut Registry) -> Option<T>,
    ) -> bool {
        let removed = self.apply(Some(list), remove, Option::is_some);
        removed.is_some()
    }

    /// Changes the set. If that has an effect, tells the clients. Returns what was replaced or removed: the destructor of a function may use the set, so it
    /// must run without the locks.
    fn apply<T>(
        &self,
        list: Option<List>,
        change: impl FnOnce(&mut Registry) -> T,
        has_effect: impl FnOnce(&T) -> bool,
    ) -> T {
        let mut services = lock(&self.0.services);
        let (changed, before, after) = {
            let registry = self.0.registry.write();
            let mut registry = registry.unwrap_or_else(PoisonError::into_inner);
            let before = registry.offer();
            let changed = change(&mut registry);
            (changed, before, registry.offer())
        };
        if has_effect(&changed) {
            for service in open(&mut services) {
                if before != after {
                    drop(service.offer(after.clone()));
                }
                if list == Some(List::Tools) {
                    drop(service.tools(self.tool_list()));
                }
                if let Some(list) = list {
                    drop(service.publish(Change::List(list)));
                }
            }
        }
        changed
    }

    /// Tells the clients of all servers of a change.
    pub(crate) fn publish(&self, change: &Change) {
        for service in open(&mut lock(&self.0.services)) {
            drop(service.publish(change.clone()));
        }
    }

    /// All tools, in the form of a result of `tools/list`.
    fn tool_list(&self) -> Payload {
        let list = self
            .read()
            .tools
            .page("tools", None, usize::MAX, |tool| &tool.listed);
        list.expect("the first page exists")
    }
}

/// Removes the servers that are closed.
fn open(services: &mut Vec<Service>) -> &[Service] {
    services.retain(|service| service.state() != State::Closed);
    services
}

impl fmt::Debug for Tools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tools").field(&self.read().server).finish()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
