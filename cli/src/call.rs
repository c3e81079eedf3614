//! `everlink call`: one tool, once.

use std::io::{BufRead, IsTerminal, Write, stderr, stdin};
use std::process::ExitCode;
use std::sync::Arc;

use everlink::client::{Ask, Event};
use everlink::{ErrorObject, Payload};
use everlink_tokio::{CallError, Link, Progress, ToolResult};
use serde_json::{Value, json};

use crate::args::Call;
use crate::tape::Role;
use crate::{Failure, usage};

pub(crate) async fn run(args: Call) -> Result<ExitCode, Failure> {
    let arguments: Payload = args
        .arguments
        .parse()
        .map_err(|error| usage(format!("the arguments are no JSON: {error}")))?;
    let is_person = stdin().is_terminal() && stderr().is_terminal();
    let link = args.target.link(Role::Call { is_person })?;
    if is_person {
        tokio::spawn(answer(link.events(), link.clone()));
    }
    let call = link.call_tool(&args.tool, arguments);
    let outcome = call.on_progress(show).await;
    let code = tell(&args, outcome);
    link.shutdown().await?;
    Ok(ExitCode::from(code))
}

/// Says what came of it, and returns the exit status for that.
fn tell(args: &Call, outcome: Result<ToolResult, CallError>) -> u8 {
    let (code, fact) = match &outcome {
        Ok(result) if result.is_error() => (1, result.payload().parse::<Value>().ok()),
        Ok(result) => (0, result.payload().parse::<Value>().ok()),
        Err(CallError::Error(error)) => {
            let data = error
                .data
                .as_ref()
                .and_then(|data| data.parse::<Value>().ok());
            let error = json!({"code": error.code, "message": error.message, "data": data});
            (3, Some(json!({"error": error})))
        }
        Err(error) => {
            let code = if error.may_have_run() { 5 } else { 4 };
            let may_have_run = error.may_have_run();
            let fact = json!({"failure": error.to_string(), "mayHaveRun": may_have_run});
            (code, Some(fact))
        }
    };
    match (&outcome, fact) {
        (_, Some(fact)) if args.json => println!("{fact}"),
        (Ok(result), _) => {
            let text = result.text();
            println!(
                "{}",
                if text.is_empty() {
                    result.payload().as_str()
                } else {
                    &text
                }
            );
        }
        (Err(error), _) => eprintln!("everlink: {error}"),
    }
    code
}

fn show(report: Progress) {
    if !stderr().is_terminal() {
        return;
    }
    let message = report.message.as_deref().unwrap_or_default();
    match report.total.filter(|total| *total > 0.0) {
        Some(total) => {
            let part = (report.progress / total).clamp(0.0, 1.0);
            let full = (part * 30.0) as usize;
            let (full, empty) = ("█".repeat(full), "░".repeat(30 - full));
            eprint!("\r\x1b[K{full}{empty} {:3.0} % {message}", part * 100.0);
            if part >= 1.0 {
                eprintln!();
            }
        }
        None => eprint!("\r\x1b[K{} {message}", report.progress),
    }
}

/// Lets the person at the terminal answer what the server asks.
async fn answer(mut events: everlink_tokio::Events<Event>, link: Link) {
    while let Some(event) = events.recv().await {
        if let Event::Ask(_) = &*event {
            let asked = Arc::clone(&event);
            let answer = tokio::task::spawn_blocking(move || match &*asked {
                Event::Ask(ask) => Some((ask.ask, put(ask))),
                _ => None,
            });
            if let Ok(Some((ask, answer))) = answer.await {
                // It may be too late for it.
                let _ = link.answer(ask, answer).await;
            }
        }
    }
}

/// Asks the person for each field of a form.
fn put(ask: &Ask) -> Result<Payload, ErrorObject> {
    let params = ask
        .params
        .as_ref()
        .and_then(|params| params.parse::<Value>().ok());
    let params = params.unwrap_or_default();
    eprintln!(
        "\nthe server asks: {}",
        params["message"].as_str().unwrap_or("something")
    );
    let mut content = serde_json::Map::new();
    let fields = params["requestedSchema"]["properties"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    for (name, schema) in fields {
        let about = schema["description"]
            .as_str()
            .or(schema["title"].as_str())
            .unwrap_or_default();
        eprint!(
            "  {name} ({}) {about}: ",
            schema["type"].as_str().unwrap_or("text")
        );
        let _ = stderr().flush();
        let mut line = String::new();
        let is_over = stdin()
            .lock()
            .read_line(&mut line)
            .map_or(true, |len| len == 0);
        if is_over {
            return reply(&json!({"action": "cancel"}));
        }
        let line = line.trim_end_matches(['\r', '\n']);
        let value = match schema["type"].as_str() {
            Some("boolean" | "integer" | "number") => {
                serde_json::from_str(line).unwrap_or_else(|_| Value::from(line))
            }
            _ => Value::from(line),
        };
        content.insert(name, value);
    }
    reply(&json!({"action": "accept", "content": content}))
}

fn reply(answer: &Value) -> Result<Payload, ErrorObject> {
    Payload::of(answer).map_err(|error| ErrorObject::new(-32603, error.to_string()))
}
