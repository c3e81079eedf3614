//! Implements `everlink inspect`: shows a server's identity, its tools, resources and prompts with their parameters, and its protocol errors.

use std::fmt::Write;
use std::process::ExitCode;
use std::sync::Arc;

use everlink::client::{Cause, Ended, Event, FailureKind, Listing, Session};
use everlink::{List, Payload};
use everlink_tokio::{CallError, Events, Link, NotReady};
use serde_json::{Map, Value, json};

use crate::args::Inspect;
use crate::attend::{NO_CREDENTIALS, RETRIES, attend, too_slow};
use crate::schema::{Parameter, parameters, prompt_parameters};
use crate::shown::{in_line, print, warn};
use crate::tape::Role;
use crate::{Endings, Failure};

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
    let mut endings = Endings::listen()?;
    args.target.manner.retries.get_or_insert(RETRIES);
    let link = args.target.link(Role::Inspect)?;
    let attending = tokio::spawn(attend(link.events(), link.clone()));
    let events = link.events();
    let facts = tokio::select! {
        biased;
        ended = too_slow(link.events()) => Err(too_late(&ended)),
        facts = look(&link) => facts,
        () = endings.next() => Err("interrupted before the server had said all of it".into()),
    };
    attending.abort();
    tokio::select! {
        ended = link.shutdown() => ended?,
        // A second signal ends the program at once.
        () = endings.next() => return Ok(ExitCode::from(4)),
    }
    let mut facts = facts?;
    facts["odd"] = odd(events).await;
    if args.json {
        print(&facts)?;
    } else {
        print(&as_text(&facts).trim_end())?;
    }
    let mut is_broken = false;
    for (name, title, _) in LISTS {
        if let Some(error) = facts[name]["error"].as_str() {
            is_broken = true;
            warn(&format_args!(
                "the list of {title} could not be read: {error}"
            ));
        }
    }
    Ok(if is_broken {
        ExitCode::from(4)
    } else {
        ExitCode::SUCCESS
    })
}

fn too_late(ended: &Ended) -> Failure {
    format!("{ended}\n--timeout SECONDS gives it more time").into()
}

/// Asks the server for everything that it says about itself.
async fn look(link: &Link) -> Result<Value, Failure> {
    let session = link.ready().await?.map_err(|error| not_ready(&error))?;
    let mut facts = identity(&session);
    for (name, _, list) in LISTS {
        facts[name] = match link.list(list).await {
            Ok(listing) => items(&listing),
            Err(CallError::Failed(failure)) if is_not_offered(&failure.kind) => Value::Null,
            Err(error) => json!({"error": error.to_string()}),
        };
    }
    Ok(facts)
}

fn not_ready(error: &NotReady) -> Failure {
    match &error.last_end {
        Some(ended) if ended.cause == Cause::Unauthorized => {
            format!("{ended}; {NO_CREDENTIALS}").into()
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

/// Collects what went wrong on the wire. Quotes the beginning of noise, because a person who inspects a server may see it.
async fn odd(mut events: Events<Event>) -> Value {
    let mut odd = Vec::new();
    while let Some(event) = events.recv().await {
        match &*event {
            Event::Noise(noise) => odd.push(format!("{event}: `{}`", noise.sample)),
            Event::Ended(ended) if ended.counted => odd.push(event.to_string()),
            Event::Silent { .. } | Event::Slow { .. } | Event::ToolDropped { .. } => {
                odd.push(event.to_string())
            }
            _ => {}
        }
    }
    json!(odd)
}

fn as_text(facts: &Value) -> String {
    let mut page = String::new();
    // Writing to a `String` does not fail.
    let _ = write_page(&mut page, facts);
    page
}

fn write_page(page: &mut String, facts: &Value) -> std::fmt::Result {
    let text = |value: &Value| in_line(value.as_str().unwrap_or("?"));
    match &facts["server"] {
        Value::Null => writeln!(page, "a server without a name")?,
        server => writeln!(
            page,
            "{} {}",
            text(&server["name"]),
            text(&server["version"])
        )?,
    }
    let (version, era) = (text(&facts["version"]), text(&facts["era"]));
    writeln!(page, "speaks {version} ({era})")?;
    writeln!(page, "offers {}", capabilities(&facts["capabilities"]))?;
    if let Some(instructions) = facts["instructions"].as_str() {
        let lines: Vec<_> = instructions.lines().map(in_line).collect();
        writeln!(page, "says: {}", lines.join("\n      "))?;
    }
    for (name, title, _) in LISTS {
        match &facts[name] {
            Value::Array(items) => {
                writeln!(page, "\n{title} ({})", items.len())?;
                for item in items {
                    writeln!(page, "{}", line(item).trim_end())?;
                    let parameters = match item.get("inputSchema") {
                        Some(schema) => parameters(schema),
                        None => prompt_parameters(&item["arguments"]),
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
    if facts["tools"]
        .as_array()
        .is_some_and(|tools| !tools.is_empty())
    {
        writeln!(
            page,
            "\nto call a tool: everlink call TOOL name=value ... -- COMMAND"
        )?;
    }
    for line in facts["odd"].as_array().into_iter().flatten() {
        writeln!(page, "\nodd: {}", text(line))?;
    }
    Ok(())
}

/// Formats capabilities in words: `tools (listChanged), logging`.
fn capabilities(capabilities: &Value) -> String {
    let is_offered = |value: &Value| value.is_object() || value == &json!(true);
    let words = |offered: &Map<String, Value>| {
        let offered = offered.iter().filter(|(_, value)| is_offered(value));
        let words = offered.map(|(name, value)| (in_line(name), value.as_object().cloned()));
        words.collect::<Vec<_>>()
    };
    let parts = |(name, within): (String, Option<Map<String, Value>>)| {
        let within = words(&within.unwrap_or_default()).into_iter();
        let within: Vec<_> = within.map(|(name, _)| name).collect();
        if within.is_empty() {
            name
        } else {
            format!("{name} ({})", within.join(", "))
        }
    };
    let offered = capabilities.as_object().map(words).unwrap_or_default();
    let offered: Vec<_> = offered.into_iter().map(parts).collect();
    if offered.is_empty() {
        "nothing".to_owned()
    } else {
        offered.join(", ")
    }
}

/// Formats a tool, a resource or a prompt: its name or URI, and its description.
fn line(item: &Value) -> String {
    let key = ["uri", "uriTemplate", "name"]
        .iter()
        .find_map(|key| item[key].as_str());
    let about = item["description"].as_str().or(item["title"].as_str());
    let (key, about) = (
        in_line(key.unwrap_or("?")),
        first_line(about.unwrap_or_default()),
    );
    format!("  {key:32} {}", in_line(about))
}

/// Formats a parameter of a tool or a prompt: `count  integer, optional  How often (default: 3)`.
fn parameter_line(parameter: &Parameter<'_>) -> String {
    let need = if parameter.is_required {
        "required"
    } else {
        "optional"
    };
    let about = first_line(parameter.about.unwrap_or_default());
    let default = parameter.default.map(|it| format!(" (default: {it})"));
    let kind = in_line(&format!("{}, {need}", parameter.kind));
    let about = in_line(&format!("{about}{}", default.unwrap_or_default()));
    format!(
        "      {:16} {kind:28} {}",
        in_line(parameter.name),
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
    fn capabilities_are_told_in_words() {
        let all = json!({
            "tools": {"listChanged": true}, "logging": {}, "prompts": null,
            "resources": {"listChanged": false, "subscribe": true},
        });
        let words = "logging, resources (subscribe), tools (listChanged)";
        assert_eq!(capabilities(&all), words);
        assert_eq!(capabilities(&json!({})), "nothing");
    }

    #[test]
    fn a_server_writes_only_in_its_line() {
        let tool = json!({"name": "a\x1b[2Jb", "description": "\n  Does it\nwell"});
        let line = line(&tool);
        assert!(line.starts_with("  a [2Jb "), "{line}");
        assert!(line.ends_with(" Does it"), "{line}");
    }
}
