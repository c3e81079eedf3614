//! The server of the scenarios, with one set of tools, resources and prompts for HTTP and for standard streams, in both eras.
//!
//! `tools` answer at once, `rounds` ask the client first, and `tasks` take long. `media` has a picture and a sound.

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

/// The answer to a request.
type Answer = Result<Response, ErrorObject>;

/// Serves HTTP at this address: `/mcp` for both eras, and `/sse` for the oldest clients. Returns the URL.
///
/// # Errors
///
/// If the address cannot be bound.
pub async fn serve_http(address: &str) -> io::Result<(Service, String)> {
    let listener = TcpListener::bind(address).await?;
    let url = format!("http://{}/mcp", listener.local_addr()?);
    let http = Http::new().with_sse(SsePaths::default());
    let service = http::serve(listener, config().with_http(http), Fixture::default());
    // The server compares header fields with arguments. It needs the tools for that, even if no client has listed them.
    let tools = Payload::of(&tools::list()).map_err(io::Error::other)?;
    service.tools(tools).await.map_err(io::Error::other)?;
    Ok((service, url))
}

/// Serves the client on the standard streams of this process.
///
/// # Errors
///
/// If the standard streams cannot be used.
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

/// The handler of all requests.
#[derive(Default)]
struct Fixture {
    tasks: Arc<Tasks>,
}

impl Handler for Fixture {
    async fn answer(&self, request: Request, context: Context) -> Answer {
        let params = request.params.as_ref();
        let params: Value = params.and_then(|it| it.parse().ok()).unwrap_or_default();
        match &*request.method {
            "completion/complete" => result(json!({"completion": complete(&params)})),
            "prompts/get" => prompts::get(Invocation::new(params, request, context)),
            "prompts/list" => result(prompts::list()),
            "resources/list" => result(resources::list()),
            "resources/read" => resources::read(params["uri"].as_str().unwrap_or_default()),
            "resources/templates/list" => result(resources::templates()),
            "tasks/cancel" => self.tasks.cancel(&params),
            "tasks/get" => self.tasks.get(&params),
            "tasks/update" => self.tasks.update(&params),
            "tools/call" => {
                tools::call(Invocation::new(params, request, context), &self.tasks).await
            }
            "tools/list" => result(tools::list()),
            other => Err(ErrorObject::new(code::METHOD_NOT_FOUND, other)),
        }
    }
}

/// A call of a tool, or a request for a prompt.
struct Invocation {
    name: String,
    arguments: Value,
    /// The client's answers to questions of an earlier round, by key.
    answers: Value,
    peer: Arc<Peer>,
    context: Context,
}

impl Invocation {
    fn new(params: Value, request: Request, context: Context) -> Invocation {
        let answers = request.input.and_then(|input| input.answers);
        Invocation {
            name: params["name"].as_str().unwrap_or_default().to_owned(),
            arguments: params["arguments"].clone(),
            answers: answers.and_then(|it| it.parse().ok()).unwrap_or_default(),
            peer: request.peer,
            context,
        }
    }

    /// An argument that is a text.
    fn argument(&self, name: &str) -> &str {
        self.arguments[name].as_str().unwrap_or_default()
    }

    /// Asks the client. Fails if the client did not declare the capability.
    async fn ask(&self, method: &'static str, params: Value) -> Result<Value, ErrorObject> {
        let answer = self.context.ask(method, Some(payload(&params)?)).await?;
        answer.parse().map_err(internal)
    }

    fn unknown(&self) -> Answer {
        let text = format!("there is no `{}`", self.name);
        Err(ErrorObject::new(code::INVALID_PARAMS, text))
    }
}

/// Words that start with the given prefix.
fn complete(params: &Value) -> Value {
    let prefix = params["argument"]["value"].as_str().unwrap_or_default();
    let words = ["paris", "park", "party", "testament"];
    let values: Vec<_> = words
        .iter()
        .filter(|word| word.starts_with(prefix))
        .collect();
    json!({"values": values, "total": values.len(), "hasMore": false})
}

fn result(value: Value) -> Answer {
    Ok(payload(&value)?.into())
}

/// The result of a tool with this text.
fn text(text: impl Into<String>) -> Answer {
    result(text_result(text))
}

fn text_result(text: impl Into<String>) -> Value {
    json!({"content": [{"type": "text", "text": text.into()}]})
}

fn payload(value: &Value) -> Result<Payload, ErrorObject> {
    Payload::of(value).map_err(internal)
}

fn internal(error: impl ToString) -> ErrorObject {
    ErrorObject::new(code::INTERNAL_ERROR, error.to_string())
}
