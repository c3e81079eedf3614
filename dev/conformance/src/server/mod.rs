//! The tools, resources and prompts that the scenarios for servers name: one fixture for HTTP and for standard streams, in both eras.
//!
//! `tools` are those that answer, `rounds` those that want something of their client first, `tasks` those that take their time; `resources` and
//! `prompts` are what else there is, `media` a picture and a sound.

mod media;
mod prompts;
mod resources;
mod rounds;
mod tasks;
mod tools;

use std::io;
use std::sync::Arc;

use everlink::protocol::{ServerCapabilities, ServerFeature, code};
use everlink::server::{Config, Http, Offer, Peer, Request, SsePaths};
use everlink::{ErrorObject, Payload};
use everlink_tokio::{Context, Handler, Response, Service, http, secret, stdio};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use tasks::Tasks;

/// What is said to a request.
type Said = Result<Response, ErrorObject>;

/// Serves HTTP at this address: clients of both eras at `/mcp`, the oldest at `/sse`. Says where that is.
///
/// # Errors
///
/// When nothing can listen there.
pub async fn serve_http(address: &str) -> io::Result<(Service, String)> {
    let listener = TcpListener::bind(address).await?;
    let url = format!("http://{}/mcp", listener.local_addr()?);
    let http = Http::new().with_sse(SsePaths::default());
    let service = http::serve(listener, config().with_http(http), Fixture::default());
    // Fields that repeat arguments are compared with the tools, also where nobody has asked for the list yet.
    let tools = Payload::of(&tools::list()).map_err(io::Error::other)?;
    service.tools(tools).await.map_err(io::Error::other)?;
    Ok((service, url))
}

/// Serves the client at the standard streams of this process.
///
/// # Errors
///
/// When there are none.
pub fn serve_stdio() -> io::Result<Service> {
    stdio::serve(config(), Fixture::default())
}

fn config() -> Config {
    let capabilities = ServerCapabilities::default()
        .with_completions()
        .with_logging()
        .with_prompts(true)
        .with_resources(true, true)
        .with_tools(true)
        .with(ServerFeature::TasksExtension);
    let offer = Offer::new("everlink-conformance", env!("CARGO_PKG_VERSION"));
    Config::new(offer.with_capabilities(capabilities), secret())
}

/// All that is served.
#[derive(Default)]
struct Fixture {
    tasks: Arc<Tasks>,
}

impl Handler for Fixture {
    async fn answer(&self, request: Request, context: Context) -> Said {
        let params = request.params.as_ref();
        let params: Value = params.and_then(|it| it.parse().ok()).unwrap_or_default();
        match &*request.method {
            "completion/complete" => result(json!({"completion": complete(&params)})),
            "prompts/get" => prompts::get(Order::new(params, request, context)),
            "prompts/list" => result(prompts::list()),
            "resources/list" => result(resources::list()),
            "resources/read" => resources::read(params["uri"].as_str().unwrap_or_default()),
            "resources/templates/list" => result(resources::templates()),
            "tasks/cancel" => self.tasks.cancel(&params),
            "tasks/get" => self.tasks.look(&params),
            "tasks/update" => self.tasks.update(&params),
            "tools/call" => tools::call(Order::new(params, request, context), &self.tasks).await,
            "tools/list" => result(tools::list()),
            other => Err(ErrorObject::new(code::METHOD_NOT_FOUND, other)),
        }
    }
}

/// A tool to call, or a prompt to get.
struct Order {
    name: String,
    arguments: Value,
    /// What the client was asked by an earlier order like this, by name.
    answers: Value,
    peer: Arc<Peer>,
    context: Context,
}

impl Order {
    fn new(params: Value, request: Request, context: Context) -> Order {
        let answers = request.input.and_then(|input| input.answers);
        Order {
            name: params["name"].as_str().unwrap_or_default().to_owned(),
            arguments: params["arguments"].clone(),
            answers: answers.and_then(|it| it.parse().ok()).unwrap_or_default(),
            peer: request.peer,
            context,
        }
    }

    /// What it is to be done with, as a text.
    fn argument(&self, name: &str) -> &str {
        self.arguments[name].as_str().unwrap_or_default()
    }

    /// Asks the client something. Whoever cannot be asked is told so.
    async fn ask(&self, method: &'static str, params: Value) -> Result<Value, ErrorObject> {
        let answer = self.context.ask(method, Some(payload(&params)?)).await??;
        answer.parse().map_err(internal)
    }

    fn unknown(&self) -> Said {
        let text = format!("there is no `{}`", self.name);
        Err(ErrorObject::new(code::INVALID_PARAMS, text))
    }
}

/// A few words that begin as what is there already.
fn complete(params: &Value) -> Value {
    let begun = params["argument"]["value"].as_str().unwrap_or_default();
    let words = ["paris", "park", "party", "testament"];
    let values: Vec<_> = words
        .iter()
        .filter(|word| word.starts_with(begun))
        .collect();
    json!({"values": values, "total": values.len(), "hasMore": false})
}

fn result(value: Value) -> Said {
    Ok(payload(&value)?.into())
}

/// The result of a tool that has this to say.
fn text(text: impl Into<String>) -> Said {
    result(said(text))
}

fn said(text: impl Into<String>) -> Value {
    json!({"content": [{"type": "text", "text": text.into()}]})
}

fn payload(value: &Value) -> Result<Payload, ErrorObject> {
    Payload::of(value).map_err(internal)
}

fn internal(error: impl ToString) -> ErrorObject {
    ErrorObject::new(code::INTERNAL_ERROR, error.to_string())
}
