//! The server for clients of other SDKs: `interop-server stdio`, or `interop-server http PORT` with both HTTP transports.
//!
//! It has the same tools as the server scripts in `tests/interop`, so that both directions run the same steps. Must not depend on the
//! client.

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

/// The resource that clients can watch.
const NOTE: &str = "interop://note";

/// The duration of the slow tool: longer than any client waits.
const SLOW_TOOL_DURATION: Duration = Duration::from_secs(60);

/// The pause between two progress reports.
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
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let capabilities = ServerCapabilities::default()
        .with_tools(true)
        .with_resources(false, true);
    let offer = Offer::new("interop", "1.0").with_capabilities(capabilities);
    let config = Config::new(offer, secret());
    let shared = Arc::<Shared>::default();
    let handler_shared = Arc::clone(&shared);
    let handler = move |request, context| answer(Arc::clone(&handler_shared), request, context);
    let service = match arguments[..] {
        ["stdio"] => stdio::serve(config, handler)?,
        ["http", port] => {
            let listener = TcpListener::bind(("127.0.0.1", port.parse()?)).await?;
            let http_config = Http::new().with_sse(SsePaths::default());
            http::serve(listener, config.with_http(http_config), handler)
        }
        _ => return Err("usage: interop-server stdio | http PORT".into()),
    };
    let service = shared.service.get_or_init(|| service);
    service.closed().await?;
    Ok(())
}

/// The state that all calls share.
#[derive(Default)]
struct Shared {
    service: OnceLock<Service>,
    counters: Mutex<Counters>,
}

#[derive(Default)]
struct Counters {
    cancelled: u32,
    touched: u32,
    /// The names of the tools added at run time.
    added_tools: BTreeSet<&'static str>,
}

impl Shared {
    fn counters(&self) -> MutexGuard<'_, Counters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn publish(&self, change: Change) -> Result<(), ErrorObject> {
        let service = self.service.get().ok_or("it has only just begun");
        let published = service.map_err(internal)?.publish(change).await;
        published.map_err(internal)
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
    /// The kind of question.
    by: QuestionKind,
}

/// The kinds of questions to the client.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum QuestionKind {
    #[default]
    Elicitation,
    Roots,
    Sampling,
}

async fn answer(
    shared: Arc<Shared>,
    request: Request,
    context: Context,
) -> Result<Payload, ErrorObject> {
    let result = match &*request.method {
        "resources/list" => json!({"resources": [{"uri": NOTE, "name": "note"}]}),
        "resources/read" => {
            let text = format!("touched: {}", shared.counters().touched);
            json!({"contents": [{"uri": NOTE, "mimeType": "text/plain", "text": text}]})
        }
        "resources/templates/list" => json!({"resourceTemplates": []}),
        "tools/list" => tools(&shared.counters().added_tools),
        "tools/call" => {
            let params = request.params.ok_or_else(|| invalid("there are none"))?;
            let params: Params = params.parse().map_err(invalid)?;
            let (text, is_error) = match run_tool(&shared, params, &context).await? {
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

/// Runs a tool. Returns its text, or the text of its failure.
async fn run_tool(
    shared: &Shared,
    params: Params,
    context: &Context,
) -> Result<Result<String, String>, ErrorObject> {
    let arguments = params.arguments;
    let text = match params.name.as_str() {
        "ask" => format!("Hello, {}", ask(context, arguments.by).await?),
        "echo" => format!("Echo: {}", arguments.message),
        "fail" => return Ok(Err("this never works".to_owned())),
        "grow" => {
            shared.counters().added_tools.insert("grown");
            shared.publish(Change::List(List::Tools)).await?;
            "grown".to_owned()
        }
        "noted" => format!("cancelled: {}", shared.counters().cancelled),
        "pid" => process::id().to_string(),
        "progress" => {
            for step in 1..=3 {
                context.progress(Progress::new(step.into()).of(3.0));
                // A report that follows at once would replace this one.
                sleep(PAUSE).await;
            }
            "three steps".to_owned()
        }
        "slow" => {
            context.progress(Progress::new(1.0));
            tokio::select! {
                () = sleep(SLOW_TOOL_DURATION) => {}
                () = context.cancelled() => shared.counters().cancelled += 1,
            }
            "slept".to_owned()
        }
        "touch" => {
            shared.counters().touched += 1;
            shared
                .publish(Change::Resource { uri: NOTE.into() })
                .await?;
            "touched".to_owned()
        }
        other => return Err(invalid(format!("there is no tool `{other}`"))),
    };
    Ok(Ok(text))
}

/// Asks the client for a name.
async fn ask(context: &Context, by: QuestionKind) -> Result<String, ErrorObject> {
    let message = "What is your name?";
    let (method, params, pointer) = match by {
        QuestionKind::Elicitation => {
            let properties = json!({"name": {"type": "string"}});
            let schema = json!({"type": "object", "properties": properties, "required": ["name"]});
            let params = json!({"message": message, "requestedSchema": schema});
            ("elicitation/create", Some(params), "/content/name")
        }
        QuestionKind::Roots => ("roots/list", None, "/roots/0/name"),
        QuestionKind::Sampling => {
            let question = json!({"role": "user", "content": {"type": "text", "text": message}});
            let params = json!({"messages": [question], "maxTokens": 10});
            ("sampling/createMessage", Some(params), "/content/text")
        }
    };
    let params = params.map(|params| Payload::of(&params)).transpose();
    let answer = context.ask(method, params.map_err(internal)?).await;
    let answer = answer.map_err(internal)?;
    let answer: Value = answer.parse().map_err(internal)?;
    let name = answer.pointer(pointer).and_then(Value::as_str);
    Ok(name.unwrap_or("stranger").to_owned())
}

fn tools(added_tools: &BTreeSet<&'static str>) -> Value {
    let tool = |name: &str, about: &str, properties: Value| {
        let schema = json!({"type": "object", "properties": properties});
        json!({"name": name, "description": about, "inputSchema": schema})
    };
    let plain = |name: &str, about: &str| tool(name, about, json!({}));
    let question_kinds = ["elicitation", "roots", "sampling"];
    let mut tools = vec![
        tool(
            "ask",
            "Asks for a name",
            json!({"by": {"type": "string", "enum": question_kinds}}),
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
    tools.extend(added_tools.iter().map(|name| plain(name, "Was added")));
    json!({"tools": tools})
}

fn invalid(reason: impl ToString) -> ErrorObject {
    ErrorObject::new(code::INVALID_PARAMS, reason.to_string())
}

fn internal(reason: impl ToString) -> ErrorObject {
    ErrorObject::new(code::INTERNAL_ERROR, reason.to_string())
}
