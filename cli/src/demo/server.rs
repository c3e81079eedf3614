//! The server that the demo kills: simple tools over standard streams, a diary of the calls that ran, and a tool that ends the process. Does not know
//! its caller.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::process::{self, ExitCode};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use everlink::protocol::{ServerCapabilities, code};
use everlink::server::{Config, Offer, Progress, Request};
use everlink::{ErrorObject, Payload};
use everlink_tokio::{Context, secret, stdio};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::Failure;
use crate::args::DemoServer;
use crate::system::{duplicate_stdout, kill_this_process, stop_this_process};

/// The number of lines written to standard error before the exit. They fill a pipe many times.
const FLOOD_LINES: u32 = 20_000;

pub(crate) async fn run(args: DemoServer) -> Result<ExitCode, Failure> {
    let diary = match &args.diary {
        Some(path) => Some(OpenOptions::new().append(true).create(true).open(path)?),
        None => None,
    };
    let state = Arc::new(SharedState {
        diary: diary.map(Mutex::new),
        // Duplicated before `serve` takes over the standard streams, so that garbage can be written between the messages.
        stdout: duplicate_stdout()?,
    });
    let tools = ServerCapabilities::default().with_tools(false);
    let offer = Offer::new("everlink-demo", env!("CARGO_PKG_VERSION")).with_capabilities(tools);
    let handler = move |request, context| answer(Arc::clone(&state), request, context);
    let service = stdio::serve(Config::new(offer, secret()), handler)?;
    service.closed().await?;
    Ok(ExitCode::SUCCESS)
}

/// State that all calls share.
struct SharedState {
    diary: Option<Mutex<File>>,
    stdout: File,
}

#[derive(Deserialize)]
struct Params {
    name: String,
    #[serde(default)]
    arguments: Arguments,
}

/// The arguments of all tools, in one type.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Arguments {
    /// The number of the call in the diary.
    number: Option<u64>,
    message: String,
    ms: u64,
    steps: u32,
    how: Option<CrashKind>,
    /// Whether the tool blocks only after its reply was sent.
    later: bool,
}

/// How the server ends or hangs when a caller asks for it.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum CrashKind {
    Exit,
    Flood,
    Garbage,
    HalfLine,
    Hang,
    Kill,
}

async fn answer(
    state: Arc<SharedState>,
    request: Request,
    context: Context,
) -> Result<Payload, ErrorObject> {
    let result = match &*request.method {
        "tools/list" => tools(),
        "tools/call" => {
            let params = request
                .params
                .ok_or_else(|| invalid("`params` is missing"))?;
            let params: Params = params.parse().map_err(invalid)?;
            state
                .write_diary(params.arguments.number)
                .map_err(internal)?;
            let is_error = params.name == "fail";
            let text = run_tool(&state, params, &context).await?;
            json!({"content": [{"type": "text", "text": text}], "isError": is_error})
        }
        method => {
            let text = format!("the demo server has no method {method}");
            return Err(ErrorObject::new(code::METHOD_NOT_FOUND, text));
        }
    };
    Payload::of(&result).map_err(internal)
}

async fn run_tool(
    state: &SharedState,
    params: Params,
    context: &Context,
) -> Result<String, ErrorObject> {
    let arguments = params.arguments;
    match params.name.as_str() {
        "ask" => {
            let question = json!({
                "message": "What is your name?",
                "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
            });
            let question = Payload::of(&question).map_err(internal)?;
            let answer = context.ask("elicitation/create", Some(question)).await;
            let answer = answer.map_err(internal)?;
            Ok(answer.as_str().to_owned())
        }
        "die" => {
            let kind = arguments.how.ok_or_else(|| invalid("`how` is missing"))?;
            state.crash(kind).map_err(internal)?;
            Ok("still here".to_owned())
        }
        "block" | "spin" => {
            let span = Duration::from_millis(arguments.ms);
            let uses_cpu = params.name == "spin";
            if arguments.later {
                tokio::spawn(async move {
                    // Gives the reply time to be sent first.
                    sleep(Duration::from_millis(50)).await;
                    block_thread(span, uses_cpu);
                });
            } else {
                block_thread(span, uses_cpu);
            }
            Ok("done".to_owned())
        }
        "echo" | "fail" => Ok(arguments.message),
        "pid" => Ok(process::id().to_string()),
        "progress" => {
            for step in 1..=arguments.steps {
                sleep(Duration::from_millis(arguments.ms)).await;
                context.progress(Progress::new(step.into()).of(arguments.steps.into()));
            }
            Ok(format!("{} steps", arguments.steps))
        }
        "sleep" => {
            sleep(Duration::from_millis(arguments.ms)).await;
            Ok(format!("slept for {} ms", arguments.ms))
        }
        other => Err(invalid(format!("there is no tool `{other}`"))),
    }
}

/// Blocks the only thread of this server for this time, so that it answers nothing. Either uses CPU time or sleeps.
fn block_thread(span: Duration, uses_cpu: bool) {
    if !uses_cpu {
        return thread::sleep(span);
    }
    let start = Instant::now();
    while start.elapsed() < span {
        std::hint::spin_loop();
    }
}

impl SharedState {
    /// Writes the number of a call to the diary before the call does anything.
    fn write_diary(&self, number: Option<u64>) -> io::Result<()> {
        match (&self.diary, number) {
            (Some(diary), Some(number)) => {
                let mut diary = diary.lock().unwrap_or_else(PoisonError::into_inner);
                // A single write, because the next call may kill the server.
                diary.write_all(format!("{number}\n").as_bytes())
            }
            _ => Ok(()),
        }
    }

    /// Ends this process. Returns only for [`CrashKind::Hang`], after the process was stopped and continued.
    fn crash(&self, kind: CrashKind) -> io::Result<()> {
        match kind {
            CrashKind::Exit => process::exit(70),
            CrashKind::Flood => {
                let mut stderr = io::stderr().lock();
                for line in 1..=FLOOD_LINES {
                    writeln!(stderr, "{line}: something is very wrong in here")?;
                }
                process::exit(71)
            }
            CrashKind::Garbage => {
                let garbage = b"Segmentation fault, or so\n{\"jsonrpc\":\n\x00\xff\xfe\n[]\n\n";
                (&self.stdout).write_all(garbage)?;
                process::exit(72)
            }
            CrashKind::HalfLine => {
                (&self.stdout).write_all(br#"{"jsonrpc":"2.0","id":1,"resu"#)?;
                process::exit(73)
            }
            CrashKind::Hang => stop_this_process(),
            CrashKind::Kill => kill_this_process(),
        }
    }
}

fn tools() -> Value {
    let tool = |name: &str, about: &str, arguments: Value, required: &[&str]| {
        json!({
            "name": name,
            "description": about,
            "inputSchema": {"type": "object", "properties": arguments, "required": required},
        })
    };
    let ms = json!({"type": "integer", "minimum": 0, "description": "How many milliseconds", "default": 0});
    let steps =
        json!({"type": "integer", "minimum": 0, "description": "How many steps", "default": 0});
    let later = json!({"type": "boolean", "description": "After the reply", "default": false});
    let message = json!({"type": "string", "description": "What to say"});
    let kinds = ["exit", "flood", "garbage", "half-line", "hang", "kill"];
    json!({"tools": [
        tool("ask", "Asks for a name", json!({}), &[]),
        tool("block", "Blocks the server without using CPU time", json!({"ms": ms, "later": later}), &[]),
        tool("die", "Ends the server", json!({"how": {"enum": kinds, "description": "In which way"}}), &["how"]),
        tool("echo", "Repeats the message", json!({"message": message}), &["message"]),
        tool("fail", "Repeats the message as an error", json!({"message": message}), &["message"]),
        tool("pid", "Returns the process id of the server", json!({}), &[]),
        tool("progress", "Reports progress, with a pause before each step", json!({"steps": steps, "ms": ms}), &[]),
        tool("sleep", "Waits", json!({"ms": ms}), &[]),
        tool("spin", "Blocks the server and uses CPU time", json!({"ms": ms, "later": later}), &[]),
    ]})
}

fn invalid(message: impl ToString) -> ErrorObject {
    ErrorObject::new(code::INVALID_PARAMS, message.to_string())
}

fn internal(message: impl ToString) -> ErrorObject {
    ErrorObject::new(code::INTERNAL_ERROR, message.to_string())
}
