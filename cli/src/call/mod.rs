//! Implements `everlink call`, `everlink complete`, `everlink prompt` and `everlink read`: each sends one request. `arguments` parses its arguments, `complete` reads those of a completion, `result` formats the
//! result, and `form` lets a person answer what the server asks meanwhile.

mod arguments;
mod complete;
mod form;
mod result;

use std::io::{self, IsTerminal, Write, stderr, stdin};
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;

use everlink::Payload;
use everlink::client::{Event, FailureKind};
use everlink_tokio::{CallError, Events, Link, Progress};
use serde::Serialize;
use serde_json::{Value, json};

use self::arguments::Arguments;
use self::complete::CompletionRequest;
use crate::args::{Call, Prompt, Read, Target};
use crate::monitor::{RETRIES, monitor_link, without_next_attempt};
use crate::output::{print, print_result, single_line, warn};
use crate::recording::Role;
use crate::{Failure, ShutdownSignals};

pub(crate) use self::complete::Complete;

/// The width of the progress bar, in characters.
const BAR_WIDTH: usize = 30;

/// Calls a tool.
pub(crate) async fn call(args: Call) -> Result<ExitCode, Failure> {
    let arguments = Arguments::read(&args.arguments)?;
    let name = args.tool;
    run_operation(args.target, args.json, &Operation::Tool { name, arguments }).await
}

/// Completes an argument of a prompt, or a variable of a template.
pub(crate) async fn complete(args: Complete) -> Result<ExitCode, Failure> {
    let request = CompletionRequest::read(&args)?;
    run_operation(args.target, args.json, &Operation::Completion(request)).await
}

/// Gets a prompt.
pub(crate) async fn prompt(args: Prompt) -> Result<ExitCode, Failure> {
    let arguments = Arguments::read(&args.arguments)?;
    let name = args.name;
    run_operation(
        args.target,
        args.json,
        &Operation::Prompt { name, arguments },
    )
    .await
}

/// Reads a resource.
pub(crate) async fn read(args: Read) -> Result<ExitCode, Failure> {
    let uri = args.uri;
    run_operation(args.target, args.json, &Operation::Resource { uri }).await
}

/// The request that the command sends.
enum Operation {
    Completion(CompletionRequest),
    Prompt { name: String, arguments: Arguments },
    Resource { uri: String },
    Tool { name: String, arguments: Arguments },
}

#[derive(Serialize)]
struct NamedParams<'a> {
    name: &'a str,
    arguments: Payload,
}

impl Operation {
    /// Returns the method and its parameters. Fetches the schema of a tool if only the schema can tell the type of an argument.
    async fn request(&self, link: &Link) -> Result<(&'static str, Payload), Failure> {
        let (method, params) = match self {
            Operation::Completion(request) => {
                ("completion/complete", Payload::of(&request.params()))
            }
            Operation::Prompt { name, arguments } => {
                let arguments = arguments.for_prompt()?;
                ("prompts/get", Payload::of(&NamedParams { name, arguments }))
            }
            Operation::Resource { uri } => ("resources/read", Payload::of(&json!({"uri": uri}))),
            Operation::Tool { name, arguments } => {
                let schema = match arguments.are_ambiguous() {
                    true => input_schema(link, name).await?,
                    false => Value::Null,
                };
                let arguments = arguments.for_tool(&schema)?;
                ("tools/call", Payload::of(&NamedParams { name, arguments }))
            }
        };
        Ok((method, params?))
    }

    /// Returns the exit status for a result, and the text to show. The text is `None` if JSON shows the result better.
    fn format_result(&self, result: &Payload) -> (u8, Option<Vec<u8>>) {
        let result = result.parse::<Value>().unwrap_or_default();
        match self {
            Operation::Completion(_) => (0, result::completion(&result)),
            Operation::Prompt { .. } => (0, result::prompt(&result)),
            Operation::Resource { .. } => (0, result::resource(&result)),
            Operation::Tool { .. } => {
                let is_error = result["isError"] == true;
                (u8::from(is_error), result::tool(&result))
            }
        }
    }
}

/// Returns the schema of a tool's input. Returns null if the server offers no tools, answers `tools/list` with an error, or does not list this tool.
async fn input_schema(link: &Link, tool: &str) -> Result<Value, CallError> {
    let listing = match link.list_tools().await {
        Ok(listing) => listing,
        Err(CallError::Failed(failure))
            if !matches!(failure.kind, FailureKind::NotOffered { .. }) =>
        {
            return Err(CallError::Failed(failure));
        }
        Err(_) => return Ok(Value::Null),
    };
    let tools = listing.items.iter().map(Payload::parse::<Value>);
    let mut tools = tools.map(Result::unwrap_or_default);
    let schema = tools.find(|it| it["name"] == tool);
    Ok(schema
        .map(|mut tool| tool["inputSchema"].take())
        .unwrap_or_default())
}

/// Sends one request, shows the outcome, and ends the server.
async fn run_operation(
    mut target: Target,
    is_json: bool,
    operation: &Operation,
) -> Result<ExitCode, Failure> {
    let mut signals = ShutdownSignals::listen()?;
    let is_person = stdin().is_terminal() && stderr().is_terminal();
    target.link_options.retries.get_or_insert(RETRIES);
    let (link, sign_in, server_stderr) = target.start_link(Role::Call { is_person })?;
    let monitoring = tokio::spawn(monitor_link(link.events(), link.clone(), sign_in));
    if is_person {
        tokio::spawn(answer_asks(link.events(), link.clone()));
    }
    let request = tokio::select! {
        request = operation.request(&link) => request,
        () = signals.next() => Err("interrupted before the request was sent".into()),
    };
    let outcome = match request {
        Ok((method, params)) => Ok(send_request(&link, method, params, &mut signals).await),
        Err(error) => match error.downcast::<CallError>() {
            Ok(error) => Ok(Err(*error)),
            Err(error) => Err(error),
        },
    };
    monitoring.abort();
    let printed = outcome.map(|outcome| {
        let outcome = outcome.map_err(without_next_attempt);
        print_outcome(is_json, operation, &outcome)
    });
    tokio::select! {
        ended = link.shutdown() => ended?,
        // A second signal ends the program without waiting for the server.
        () = signals.next() => {}
    }
    if let Some(server_stderr) = server_stderr {
        server_stderr.end().await;
    }
    let (code, printed) = printed?;
    if let Err(error) = printed {
        warn(&error);
        // The outcome could not be shown.
        return Ok(ExitCode::from(5));
    }
    Ok(ExitCode::from(code))
}

/// Waits for the reply and shows progress. Cancels the request if the program is interrupted.
async fn send_request(
    link: &Link,
    method: &'static str,
    params: Payload,
    signals: &mut ShutdownSignals,
) -> Result<Payload, CallError> {
    let mut bar = ProgressBar::new();
    let call = link.call(method, Some(params));
    let call = call.on_progress(move |report| bar.show(&report)).start();
    let canceller = call.canceller();
    let mut call = pin!(call);
    tokio::select! {
        outcome = &mut call => outcome,
        () = signals.next() => {
            canceller.cancel("everlink was interrupted");
            call.await
        }
    }
}

/// Prints the outcome and returns the exit status for it.
fn print_outcome(
    is_json: bool,
    operation: &Operation,
    outcome: &Result<Payload, CallError>,
) -> (u8, io::Result<()>) {
    match outcome {
        Ok(result) => {
            let (code, text) = operation.format_result(result);
            let text = text.filter(|_| !is_json).unwrap_or_else(|| {
                // Prints one line, even if the server sent several. In JSON, a raw line break can only stand between tokens.
                let line = result.as_str().replace(['\r', '\n'], " ");
                (line + "\n").into_bytes()
            });
            (code, print_result(&text))
        }
        Err(CallError::Error(error)) if is_json => {
            let data = error.data.as_ref();
            let data = data.and_then(|data| data.parse::<Value>().ok());
            let error = json!({"code": error.code, "message": error.message, "data": data});
            (3, print(&json!({"error": error})))
        }
        Err(error) => {
            let code = match error {
                CallError::Error(_) => 3,
                error if error.may_have_run() => 5,
                _ => 4,
            };
            let printed = if is_json {
                let may_have_run = error.may_have_run();
                print(&json!({"failure": error.to_string(), "mayHaveRun": may_have_run}))
            } else {
                warn(error);
                Ok(())
            };
            (code, printed)
        }
    }
}

/// The progress bar, shown if standard error is a terminal. It is one line, which ends when this is dropped.
struct ProgressBar {
    is_visible: bool,
    has_started: bool,
}

impl ProgressBar {
    fn new() -> ProgressBar {
        ProgressBar {
            is_visible: stderr().is_terminal(),
            has_started: false,
        }
    }

    fn show(&mut self, report: &Progress) {
        if !self.is_visible {
            return;
        }
        let message = single_line(report.message.as_deref().unwrap_or_default());
        let position = match report.total.filter(|total| *total > 0.0) {
            Some(total) => {
                let part = (report.progress / total).clamp(0.0, 1.0);
                let full = (part * BAR_WIDTH as f64) as usize;
                let (full, empty) = ("█".repeat(full), "░".repeat(BAR_WIDTH - full));
                format!("{full}{empty} {:3.0} %", part * 100.0)
            }
            None => report.progress.to_string(),
        };
        self.has_started = true;
        // Nothing is shown if standard error is closed.
        let _ = write!(stderr(), "\r\x1b[K{position} {message}");
    }
}

impl Drop for ProgressBar {
    fn drop(&mut self) {
        if self.has_started {
            let _ = writeln!(stderr());
        }
    }
}

/// Lets the person at the terminal answer the asks of the server.
async fn answer_asks(mut events: Events<Event>, link: Link) {
    while let Some(event) = events.recv().await {
        if let Event::Ask(_) = &*event {
            let event = Arc::clone(&event);
            let answer = tokio::task::spawn_blocking(move || match &*event {
                Event::Ask(ask) => Some((ask.ask, form::ask_person(ask))),
                _ => None,
            });
            if let Ok(Some((ask, answer))) = answer.await {
                // The ask may have ended meanwhile.
                let _ = link.answer(ask, answer).await;
            }
        }
    }
}
