//! `everlink call`: one tool, once. `form` is how a person answers what the server asks meanwhile.

mod form;

use std::io::{IsTerminal, Write, stderr, stdin};
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;

use everlink::Payload;
use everlink::client::Event;
use everlink_tokio::{CallError, Events, Link, Progress, ToolResult};
use serde_json::{Map, Value, json};

use crate::args::Call;
use crate::attend::{RETRIES, attend};
use crate::shown::{in_line, print, warn};
use crate::tape::Role;
use crate::{Endings, Failure, usage};

/// How wide the bar of progress is.
const BAR: usize = 30;

pub(crate) async fn run(mut args: Call) -> Result<ExitCode, Failure> {
    let arguments = object(&args.arguments)?;
    let mut endings = Endings::listen()?;
    let is_person = stdin().is_terminal() && stderr().is_terminal();
    args.target.manner.retries.get_or_insert(RETRIES);
    let link = args.target.link(Role::Call { is_person })?;
    tokio::spawn(attend(link.events(), link.clone()));
    if is_person {
        tokio::spawn(answer(link.events(), link.clone()));
    }
    let mut bar = Bar::new();
    let call = link.call_tool(&args.tool, arguments);
    let call = call.on_progress(move |report| bar.show(&report));
    let canceller = call.canceller();
    let mut call = pin!(call);
    let outcome = tokio::select! {
        outcome = &mut call => outcome,
        () = endings.next() => {
            canceller.cancel("everlink was interrupted");
            call.await
        }
    };
    let (code, told) = tell(args.json, &outcome);
    tokio::select! {
        ended = link.shutdown() => ended?,
        // Whoever asks twice does not want to wait.
        () = endings.next() => {}
    }
    if let Err(error) = told {
        warn(&error);
        // What came of it was not heard.
        return Ok(ExitCode::from(5));
    }
    Ok(ExitCode::from(code))
}

/// The arguments of a tool, as they were written.
fn object(text: &str) -> Result<Payload, Failure> {
    let bad = |why: &dyn std::fmt::Display| {
        let hint = r#"the arguments of a tool look like '{"name":"value"}'"#;
        usage(format!("`{text}` is no JSON object: {why}; {hint}"))
    };
    serde_json::from_str::<Map<String, Value>>(text).map_err(|error| bad(&error))?;
    text.parse().map_err(|error| bad(&error))
}

/// Says what came of it, and returns the exit status for that.
fn tell(is_json: bool, outcome: &Result<ToolResult, CallError>) -> (u8, std::io::Result<()>) {
    match outcome {
        Ok(result) => {
            let mut shown = result.text();
            if is_json || shown.is_empty() {
                // In one line, however the server has laid it out: only between its tokens can JSON be broken.
                shown = result.payload().as_str().replace(['\r', '\n'], " ");
            }
            (u8::from(result.is_error()), print(&shown))
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

/// How far the tool is, for a person who looks: one line, which ends when it is dropped.
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
        // Where nobody looks any more, nothing is shown.
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

/// Lets the person at the terminal answer what the server asks.
async fn answer(mut events: Events<Event>, link: Link) {
    while let Some(event) = events.recv().await {
        if let Event::Ask(_) = &*event {
            let asked = Arc::clone(&event);
            let answer = tokio::task::spawn_blocking(move || match &*asked {
                Event::Ask(ask) => Some((ask.ask, form::put(ask))),
                _ => None,
            });
            if let Ok(Some((ask, answer))) = answer.await {
                // It may be too late for it.
                let _ = link.answer(ask, answer).await;
            }
        }
    }
}
