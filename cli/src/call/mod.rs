//! Implements `everlink call`, `everlink prompt` and `everlink read`: each sends one request. `arguments` parses its arguments, `result` formats the
//! result, and `form` lets a person answer what the server asks meanwhile.

mod arguments;
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
use crate::args::{Call, Prompt, Read, Target};
use crate::attend::{RETRIES, attend};
use crate::shown::{in_line, print, print_bytes, warn};
use crate::tape::Role;
use crate::{Endings, Failure};

/// The width of the progress bar, in characters.
const BAR: usize = 30;

/// Calls a tool.
pub(crate) async fn call(args: Call) -> Result<ExitCode, Failure> {
    let arguments = Arguments::read(&args.arguments)?;
    let name = args.tool;
    once(args.target, args.json, &Wanted::Tool { name, arguments }).await
}

/// Gets a prompt.
pub(crate) async fn prompt(args: Prompt) -> Result<ExitCode, Failure> {
    let arguments = Arguments::read(&args.arguments)?;
    let name = args.name;
    once(args.target, args.json, &Wanted::Prompt { name, arguments }).await
}

/// Reads a resource.
pub(crate) async fn read(args: Read) -> Result<ExitCode, Failure> {
    let uri = args.uri;
    once(args.target, args.json, &Wanted::Resource { uri }).await
}

/// The request that the command sends.
enum Wanted {
    Prompt { name: String, arguments: Arguments },
    Resource { uri: String },
    Tool { name: String, arguments: Arguments },
}

#[derive(Serialize)]
struct Named<'a> {
    name: &'a str,
    arguments: Payload,
}

impl Wanted {
    /// Returns the method and its parameters. Fetches the schema of a tool if only the schema can tell what an argument means.
    async fn request(&self, link: &Link) -> Result<(&'static str, Payload), Failure> {
        let (method, params) = match self {
            Wanted::Prompt { name, arguments } => {
                let arguments = arguments.for_prompt()?;
                ("prompts/get", Payload::of(&Named { name, arguments }))
            }
            Wanted::Resource { uri } => ("resources/read", Payload::of(&json!({"uri": uri}))),
            Wanted::Tool { name, arguments } => {
                let schema = match arguments.are_ambiguous() {
                    true => input_schema(link, name).await?,
                    false => Value::Null,
                };
                let arguments = arguments.for_tool(&schema)?;
                ("tools/call", Payload::of(&Named { name, arguments }))
            }
        };
        Ok((method, params?))
    }

    /// Returns the exit status for a result, and the text to show. The text is `None` if JSON shows the result better.
    fn shown(&self, result: &Payload) -> (u8, Option<Vec<u8>>) {
        let result = result.parse::<Value>().unwrap_or_default();
        match self {
            Wanted::Prompt { .. } => (0, result::prompt(&result)),
            Wanted::Resource { .. } => (0, result::resource(&result)),
            Wanted::Tool { .. } => {
                let is_error = result["isError"] == true;
                (u8::from(is_error), result::tool(&result))
            }
        }
    }
}

/// Returns the schema of a tool's input. Returns null if the server has no list of tools, or the tool is not in it.
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
async fn once(mut target: Target, is_json: bool, wanted: &Wanted) -> Result<ExitCode, Failure> {
    let mut endings = Endings::listen()?;
    let is_person = stdin().is_terminal() && stderr().is_terminal();
    target.manner.retries.get_or_insert(RETRIES);
    let link = target.link(Role::Call { is_person })?;
    let attending = tokio::spawn(attend(link.events(), link.clone()));
    if is_person {
        tokio::spawn(answer(link.events(), link.clone()));
    }
    let request = tokio::select! {
        request = wanted.request(&link) => request,
        () = endings.next() => Err("interrupted before anything was asked of the server".into()),
    };
    let outcome = match request {
        Ok((method, params)) => Ok(ask(&link, method, params, &mut endings).await),
        Err(error) => match error.downcast::<CallError>() {
            Ok(error) => Ok(Err(*error)),
            Err(error) => Err(error),
        },
    };
    attending.abort();
    let told = outcome.map(|outcome| tell(is_json, wanted, &outcome));
    tokio::select! {
        ended = link.shutdown() => ended?,
        // A second signal ends the program without waiting for the server.
        () = endings.next() => {}
    }
    let (code, told) = told?;
    if let Err(error) = told {
        warn(&error);
        // The outcome could not be shown.
        return Ok(ExitCode::from(5));
    }
    Ok(ExitCode::from(code))
}

/// Waits for the reply and shows progress. Cancels the request if the program is interrupted.
async fn ask(
    link: &Link,
    method: &'static str,
    params: Payload,
    endings: &mut Endings,
) -> Result<Payload, CallError> {
    let mut bar = Bar::new();
    let call = link.call(method, Some(params));
    let call = call.on_progress(move |report| bar.show(&report));
    let canceller = call.canceller();
    let mut call = pin!(call);
    tokio::select! {
        outcome = &mut call => outcome,
        () = endings.next() => {
            canceller.cancel("everlink was interrupted");
            call.await
        }
    }
}

/// Prints the outcome and returns the exit status for it.
fn tell(
    is_json: bool,
    wanted: &Wanted,
    outcome: &Result<Payload, CallError>,
) -> (u8, io::Result<()>) {
    match outcome {
        Ok(result) => {
            let (code, shown) = wanted.shown(result);
            let told = match shown.filter(|_| !is_json) {
                Some(shown) => print_bytes(&shown),
                // One line, even if the server sent several. In JSON, a raw line break can only stand between tokens.
                None => print(&result.as_str().replace(['\r', '\n'], " ")),
            };
            (code, told)
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
            let told = if is_json {
                let may_have_run = error.may_have_run();
                print(&json!({"failure": error.to_string(), "mayHaveRun": may_have_run}))
            } else {
                warn(error);
                Ok(())
            };
            (code, told)
        }
    }
}

/// The progress bar, shown if standard error is a terminal. It is one line, which ends when this is dropped.
struct Bar {
    is_seen: bool,
    is_begun: bool,
}

impl Bar {
    fn new() -> Bar {
        Bar {
            is_seen: stderr().is_terminal(),
            is_begun: false,
        }
    }

    fn show(&mut self, report: &Progress) {
        if !self.is_seen {
            return;
        }
        let message = in_line(report.message.as_deref().unwrap_or_default());
        let far = match report.total.filter(|total| *total > 0.0) {
            Some(total) => {
                let part = (report.progress / total).clamp(0.0, 1.0);
                let full = (part * BAR as f64) as usize;
                let (full, empty) = ("█".repeat(full), "░".repeat(BAR - full));
                format!("{full}{empty} {:3.0} %", part * 100.0)
            }
            None => report.progress.to_string(),
        };
        self.is_begun = true;
        // Nothing is shown if standard error is closed.
        let _ = write!(stderr(), "\r\x1b[K{far} {message}");
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if self.is_begun {
            let _ = writeln!(stderr());
        }
    }
}

/// Lets the person at the terminal answer the asks of the server.
async fn answer(mut events: Events<Event>, link: Link) {
    while let Some(event) = events.recv().await {
        if let Event::Ask(_) = &*event {
            let asked = Arc::clone(&event);
            let answer = tokio::task::spawn_blocking(move || match &*asked {
                Event::Ask(ask) => Some((ask.ask, form::put(ask))),
                _ => None,
            });
            if let Ok(Some((ask, answer))) = answer.await {
                // The ask may have ended meanwhile.
                let _ = link.answer(ask, answer).await;
            }
        }
    }
}
