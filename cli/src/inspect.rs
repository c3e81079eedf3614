//! Implements `everlink inspect`: shows a server's identity, its tools, resources and prompts with their parameters, and its protocol errors.

use std::fmt::Write;
use std::process::ExitCode;
use std::sync::Arc;

use everlink::client::{Cause, Ended, Event, FailureKind, Listing, Session};
use everlink::{List, Payload};
use everlink_tokio::{CallError, Events, Link, NotReady};
use serde_json::{Map, Value, json};

use crate::args::Inspect;
use crate::authorization::SignIn;
use crate::monitor::{RETRIES, connect_timed_out, monitor_link, without_next_attempt};
use crate::output::{print, single_line, warn};
use crate::recording::Role;
use crate::schema::{Parameter, parameters, prompt_parameters, template_parameters};
use crate::{Failure, ShutdownSignals};

/// The lists that a server may have: the name in JSON, the name for people, and the list.
const LISTS: [(&str, &str, List); 4] = [
    ("tools", "tools", List::Tools),
    ("resources", "resources", List::Resources),
    (
        "resourceTemplates",
        "resource templates",
        List::ResourceTemplates,
    ),
    ("prompts", "prompts", List::Prompts),
];

pub(crate) async fn run(mut args: Inspect) -> Result<ExitCode, Failure> {
    let mut signals = ShutdownSignals::listen()?;
    args.target.link_options.retries.get_or_insert(RETRIES);
    let (link, sign_in, server_stderr) = args.target.start_link(Role::Inspect)?;
    let monitoring = monitor_link(link.events(), link.clone(), sign_in.clone());
    let monitoring = tokio::spawn(monitoring);
    let events = link.events();
    let report = tokio::select! {
        biased;
        ended = connect_timed_out(link.events()) => Err(timeout_error(&ended)),
        report = query_server(&link, &sign_in) => report,
        () = signals.next() => Err("interrupted before the server had answered every request".into()),
    };
    monitoring.abort();
    tokio::select! {
        ended = link.shutdown() => ended?,
        // A second signal ends the program at once.
        () = signals.next() => return Ok(ExitCode::from(4)),
    }
    if let Some(server_stderr) = server_stderr {
        server_stderr.end().await;
    }
    let mut report = report?;
    report["odd"] = collect_problems(events).await;
    if args.json {
        print(&report)?;
    } else {
        print(&as_text(&report).trim_end())?;
    }
    let mut has_unread_list = false;
    for (name, title, _) in LISTS {
        if let Some(error) = report[name]["error"].as_str() {
            has_unread_list = true;
            warn(&format_args!(
                "the list of {title} could not be read: {error}"
            ));
        }
    }
    Ok(if has_unread_list {
        ExitCode::from(4)
    } else {
        ExitCode::SUCCESS
    })
}

fn timeout_error(ended: &Ended) -> Failure {
    format!("{ended}\nuse --timeout SECONDS to wait longer").into()
}

/// Fetches the server's identity and all of its lists.
async fn query_server(link: &Link, sign_in: &SignIn) -> Result<Value, Failure> {
    let ready = link.ready().await;
    let session = ready.map_err(|error| not_ready(&error, sign_in))?;
    let mut report = identity(&session);
    for (name, _, list) in LISTS {
        report[name] = match link.list(list).await {
            Ok(listing) => items(&listing),
            Err(CallError::Failed(failure)) if is_not_offered(&failure.kind) => Value::Null,
            Err(error) => json!({"error": without_next_attempt(error).to_string()}),
        };
    }
    Ok(report)
}

fn not_ready(error: &NotReady, sign_in: &SignIn) -> Failure {
    match &error.last_end {
        Some(ended) if ended.cause == Cause::Unauthorized => {
            format!("{ended}; {}", sign_in.advice()).into()
        }
        Some(ended) => ended.to_string().into(),
        None => error.to_string().into(),
    }
}

fn identity(session: &Session) -> Value {
    json!({
        "server": session.server.as_ref().map(|server| json!({
            "name": server.name(),
            "version": server.version(),
        })),
        "version": session.version.as_str(),
        "era": session.version.era().to_string(),
        "capabilities": session.capabilities,
        "instructions": session.instructions,
    })
}

fn is_not_offered(kind: &FailureKind) -> bool {
    matches!(kind, FailureKind::NotOffered { .. })
}

fn items(listing: &Arc<Listing>) -> Value {
    let items = listing.items.iter().map(Payload::parse::<Value>);
    Value::Array(items.map(Result::unwrap_or_default).collect())
}

/// Collects the server's protocol errors. Quotes the beginning of noise, because the output of `inspect` may show text from the server.
async fn collect_problems(mut events: Events<Event>) -> Value {
    let mut problems = Vec::new();
    while let Some(event) = events.recv().await {
        match &*event {
            Event::Noise(noise) => problems.push(format!("{event}: `{}`", noise.sample)),
            Event::Ended(ended) if ended.counted => problems.push(event.to_string()),
            Event::Silent { .. } | Event::Slow { .. } | Event::ToolDropped { .. } => {
                problems.push(event.to_string())
            }
            _ => {}
        }
    }
    json!(problems)
}

fn as_text(report: &Value) -> String {
    let mut page = String::new();
    // Writing to a `String` does not fail.
    let _ = write_page(&mut page, report);
    page
}

fn write_page(page: &mut String, report: &Value) -> std::fmt::Result {
    let text = |value: &Value| single_line(value.as_str().unwrap_or("?"));
    match &report["server"] {
        Value::Null => writeln!(page, "the server gives no name")?,
        server => writeln!(
            page,
            "{} {}",
            text(&server["name"]),
            text(&server["version"])
        )?,
    }
    let (version, era) = (text(&report["version"]), text(&report["era"]));
    writeln!(page, "speaks {version} ({era})")?;
    writeln!(page, "offers {}", capabilities(&report["capabilities"]))?;
    if let Some(instructions) = report["instructions"].as_str() {
        let lines: Vec<_> = instructions.lines().map(single_line).collect();
        writeln!(page, "instructions: {}", lines.join("\n              "))?;
    }
    for (name, title, _) in LISTS {
        match &report[name] {
            Value::Array(items) => {
                writeln!(page, "\n{title} ({})", items.len())?;
                for item in items {
                    writeln!(page, "{}", item_line(item).trim_end())?;
                    let parameters = match (item.get("inputSchema"), item["uriTemplate"].as_str()) {
                        (Some(schema), _) => parameters(schema),
                        (None, Some(template)) => template_parameters(template),
                        (None, None) => prompt_parameters(&item["arguments"]),
                    };
                    for parameter in parameters {
                        writeln!(page, "{}", parameter_line(&parameter).trim_end())?;
                    }
                }
            }
            Value::Null => writeln!(page, "\n{title}: not offered")?,
            error => writeln!(
                page,
                "\n{title}: could not be read: {}",
                text(&error["error"])
            )?,
        }
    }
    if report["tools"]
        .as_array()
        .is_some_and(|tools| !tools.is_empty())
    {
        writeln!(
            page,
            "\nto call a tool: everlink call TOOL name=value ... -- COMMAND"
        )?;
    }
    for problem in report["odd"].as_array().into_iter().flatten() {
        writeln!(page, "\nproblem: {}", text(problem))?;
    }
    Ok(())
}

/// Formats capabilities for a person: `tools (listChanged), logging`.
fn capabilities(capabilities: &Value) -> String {
    let is_offered = |value: &Value| value.is_object() || value == &json!(true);
    let offered_in = |members: &Map<String, Value>| {
        let offered = members.iter().filter(|(_, value)| is_offered(value));
        let named = offered.map(|(name, value)| (single_line(name), value.as_object().cloned()));
        named.collect::<Vec<_>>()
    };
    let with_options = |(name, options): (String, Option<Map<String, Value>>)| {
        let options = offered_in(&options.unwrap_or_default()).into_iter();
        let options: Vec<_> = options.map(|(name, _)| name).collect();
        if options.is_empty() {
            name
        } else {
            format!("{name} ({})", options.join(", "))
        }
    };
    let offered = capabilities.as_object().map(offered_in).unwrap_or_default();
    let offered: Vec<_> = offered.into_iter().map(with_options).collect();
    if offered.is_empty() {
        "nothing".to_owned()
    } else {
        offered.join(", ")
    }
}

/// Formats a tool, a resource, a template or a prompt: its URI or name, and its description, title or name.
fn item_line(item: &Value) -> String {
    let first = |keys: &[&str]| keys.iter().find_map(|key| item[*key].as_str());
    let uri = first(&["uri", "uriTemplate"]);
    let key = uri.or(item["name"].as_str());
    let name = item["name"].as_str().filter(|_| uri.is_some());
    let about = first(&["description", "title"]).or(name);
    let (key, about) = (
        single_line(key.unwrap_or("?")),
        first_line(about.unwrap_or_default()),
    );
    format!("  {key:32} {}", single_line(about))
}

/// Formats a parameter of a tool or a prompt: `count  integer, optional  How often (default: 3)`.
fn parameter_line(parameter: &Parameter<'_>) -> String {
    let requirement = if parameter.is_required {
        "required"
    } else {
        "optional"
    };
    let about = first_line(parameter.about.unwrap_or_default());
    let default = parameter.default.map(|it| format!(" (default: {it})"));
    let kind = single_line(&format!("{}, {requirement}", parameter.kind));
    let about = single_line(&format!("{about}{}", default.unwrap_or_default()));
    format!(
        "      {:16} {kind:28} {}",
        single_line(parameter.name),
        about.trim()
    )
}

fn first_line(text: &str) -> &str {
    let mut lines = text.lines().map(str::trim);
    lines.find(|line| !line.is_empty()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_listed_with_their_offered_options() {
        let all = json!({
            "tools": {"listChanged": true}, "logging": {}, "prompts": null,
            "resources": {"listChanged": false, "subscribe": true},
        });
        let expected = "logging, resources (subscribe), tools (listChanged)";
        assert_eq!(capabilities(&all), expected);
        assert_eq!(capabilities(&json!({})), "nothing");
    }

    #[test]
    fn item_with_a_uri_and_no_description_shows_its_name() {
        let words = |item: Value| {
            item_line(&item)
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(
            words(json!({"uriTemplate": "x:{id}", "name": "note"})),
            "x:{id} note"
        );
        let both = json!({"uri": "x:1", "name": "note", "description": "One note"});
        assert_eq!(words(both), "x:1 One note");
        assert_eq!(words(json!({"name": "add"})), "add");
    }

    #[test]
    fn item_line_has_no_control_characters_and_only_the_first_line_of_the_description() {
        let tool = json!({"name": "a\x1b[2Jb", "description": "\n  Does it\nwell"});
        let line = item_line(&tool);
        assert!(line.starts_with("  a [2Jb "), "{line}");
        assert!(line.ends_with(" Does it"), "{line}");
    }
}
