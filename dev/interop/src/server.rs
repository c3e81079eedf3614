//! A server that is met by clients of others: `interop-server stdio`, or `interop-server http PORT` with both transports of HTTP.
//!
//! Its tools are those that the scripts of servers in `tests/interop` have, too: what is met from one side is met from the other. Knows not who calls.

use std::collections::BTreeSet;
use std::env;
use std::error::Error;
use std::process::{self, ExitCode};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use everlink::protocol::{ServerCapabilities, code};
use everlink::server::{Config, Http, Offer, Progress, Request, SsePaths};
use everlink::{Change, ErrorObject, List, Payload};
use everlink_tokio::{Context, Service, http, secret, stdio};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::sleep;

type Failure = Box<dyn Error + Send + Sync>;

/// The resource that can be watched.
const NOTE: &str = "interop://note";

/// How long the slow tool takes: longer than anybody waits.
const LONG: Duration = Duration::from_secs(60);

/// How long a step takes.
const PAUSE: Duration = Duration::from_millis(50);

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    let runtime = tokio::runtime::Runtime::new();
    let outcome = runtime
        .map_err(Failure::from)
        .and_then(|runtime| runtime.block_on(run()));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("interop-server: {error}");
            ExitCode::from(2)
        }
    }
}

async fn run() -> Result<(), Failure> {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let capabilities = ServerCapabilities::default()
        .with_tools(true)
        .with_resources(false, true);
    let offer = Offer::new("interop", "1.0").with_capabilities(capabilities);
    let config = Config::new(offer, secret());
    let desk = Arc::<Desk>::default();
    let at_desk = Arc::clone(&desk);
    let handler = move |request, context| answer(Arc::clone(&at_desk), request, context);
    let service = match words[..] {
        ["stdio"] => stdio::serve(config, handler)?,
        ["http", port] => {
            let listener = TcpListener::bind(("127.0.0.1", port.parse()?)).await?;
            let both = Http::new().with_sse(SsePaths::default());
            http::serve(listener, config.with_http(both), handler)
        }
        _ => return Err("usage: interop-server stdio | http PORT".into()),
    };
    let service = desk.service.get_or_init(|| service);
    service.closed().await?;
    Ok(())
}

/// What all calls have in common.
#[derive(Default)]
struct Desk {
    service: OnceLock<Service>,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    cancelled: u32,
    touched: u32,
    /// The tools that were added.
    grown: BTreeSet<&'static str>,
}

impl Desk {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn publish(&self, change: Change) -> Result<(), ErrorObject> {
        let service = self.service.get().ok_or("it has only just begun");
        let published = service.map_err(internal)?.publish(change).await;
        published.map_err(internal)?.map_err(internal)
    }
}

#[derive(Deserialize)]
struct Params {
    name: String,
    #[serde(default)]
    arguments: Arguments,
}

/// The arguments of all tools.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Arguments {
    message: String,
    /// How to ask.
    by: By,
}

/// The kinds of questions.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum By {
    #[default]
    Elicitation,
    Roots,
    Sampling,
}

async fn answer(
    desk: Arc<Desk>,
    request: Request,
    context: Context,
) -> Result<Payload, ErrorObject> {
    let result = match &*request.method {
        "resources/list" => json!({"resources": [{"uri": NOTE, "name": "note"}]}),
        "resources/read" => {
            let text = format!("touched: {}", desk.told().touched);
            json!({"contents": [{"uri": NOTE, "mimeType": "text/plain", "text": text}]})
        }
        "resources/templates/list" => json!({"resourceTemplates": []}),
        "tools/list" => tools(&desk.told().grown),
        "tools/call" => {
            let params = request.params.ok_or_else(|| invalid("there are none"))?;
            let params: Params = params.parse().map_err(invalid)?;
            let (text, is_error) = match run_tool(&desk, params, &context).await? {
                Ok(text) => (text, false),
                Err(text) => (text, true),
            };
            json!({"content": [{"type": "text", "text": text}], "isError": is_error})
        }
        method => {
            let text = format!("{method} is not served here");
            return Err(ErrorObject::new(code::METHOD_NOT_FOUND, text));
        }
    };
    Payload::of(&result).map_err(internal)
}

/// The text of the result, or of the failure of the tool.
async fn run_tool(
    desk: &Desk,
    params: Params,
    context: &Context,
) -> Result<Result<String, String>, ErrorObject> {
    let arguments = params.arguments;
    let text = match params.name.as_str() {
        "ask" => format!("Hello, {}", ask(context, arguments.by).await?),
        "echo" => format!("Echo: {}", arguments.message),
        "fail" => return Ok(Err("this never works".to_owned())),
        "grow" => {
            desk.told().grown.insert("grown");
            desk.publish(Change::List(List::Tools)).await?;
            "grown".to_owned()
        }
        "noted" => format!("cancelled: {}", desk.told().cancelled),
        "pid" => process::id().to_string(),
        "progress" => {
            for step in 1..=3 {
                context.progress(Progress::new(step.into()).of(3.0));
                // What follows at once would take its place.
                sleep(PAUSE).await;
            }
            "three steps".to_owned()
        }
        "slow" => {
            context.progress(Progress::new(1.0));
            tokio::select! {
                () = sleep(LONG) => {}
                () = context.cancelled() => desk.told().cancelled += 1,
            }
            "slept".to_owned()
        }
        "touch" => {
            desk.told().touched += 1;
            desk.publish(Change::Resource { uri: NOTE.into() }).await?;
            "touched".to_owned()
        }
        other => return Err(invalid(format!("there is no tool `{other}`"))),
    };
    Ok(Ok(text))
}

/// The name that the client gives.
async fn ask(context: &Context, by: By) -> Result<String, ErrorObject> {
    let message = "What is your name?";
    let (method, params, pointer) = match by {
        By::Elicitation => {
            let properties = json!({"name": {"type": "string"}});
            let schema = json!({"type": "object", "properties": properties, "required": ["name"]});
            let params = json!({"message": message, "requestedSchema": schema});
            ("elicitation/create", Some(params), "/content/name")
        }
        By::Roots => ("roots/list", None, "/roots/0/name"),
        By::Sampling => {
            let question = json!({"role": "user", "content": {"type": "text", "text": message}});
            let params = json!({"messages": [question], "maxTokens": 10});
            ("sampling/createMessage", Some(params), "/content/text")
        }
    };
    let params = params.map(|params| Payload::of(&params)).transpose();
    let answer = context.ask(method, params.map_err(internal)?).await;
    let answer = answer.map_err(internal)?.map_err(internal)?;
    let answer: Value = answer.parse().map_err(internal)?;
    let name = answer.pointer(pointer).and_then(Value::as_str);
    Ok(name.unwrap_or("stranger").to_owned())
}

fn tools(grown: &BTreeSet<&'static str>) -> Value {
    let tool = |name: &str, about: &str, properties: Value| {
        let schema = json!({"type": "object", "properties": properties});
        json!({"name": name, "description": about, "inputSchema": schema})
    };
    let plain = |name: &str, about: &str| tool(name, about, json!({}));
    let kinds = ["elicitation", "roots", "sampling"];
    let mut tools = vec![
        tool(
            "ask",
            "Asks for a name",
            json!({"by": {"type": "string", "enum": kinds}}),
        ),
        tool(
            "echo",
            "Says the same",
            json!({"message": {"type": "string"}}),
        ),
        plain("fail", "Never works"),
        plain("grow", "Adds a tool"),
        plain("noted", "Says how many calls of `slow` were cancelled"),
        plain("pid", "Says which process this is"),
        plain("progress", "Reports three steps"),
        plain("slow", "Reports that it has begun, and takes a minute"),
        plain("touch", "Changes the note"),
    ];
    tools.extend(grown.iter().map(|name| plain(name, "Was added")));
    json!({"tools": tools})
}

fn invalid(why: impl ToString) -> ErrorObject {
    ErrorObject::new(code::INVALID_PARAMS, why.to_string())
}

fn internal(why: impl ToString) -> ErrorObject {
    ErrorObject::new(code::INTERNAL_ERROR, why.to_string())
}
