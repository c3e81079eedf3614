//! `everlink inspect`: who a server is, what it offers, and what was odd on the wire.

use std::process::ExitCode;
use std::sync::Arc;

use everlink::client::{Event, Listing};
use everlink::{List, Payload};
use everlink_tokio::CallError;
use serde_json::{Value, json};

use crate::Failure;
use crate::args::Inspect;
use crate::tape::Role;

/// The lists that a server may have.
const LISTS: [(&str, List); 4] = [
    ("tools", List::Tools),
    ("resources", List::Resources),
    ("resourceTemplates", List::ResourceTemplates),
    ("prompts", List::Prompts),
];

pub(crate) async fn run(args: Inspect) -> Result<ExitCode, Failure> {
    let link = args.target.link(Role::Inspect)?;
    let mut events = link.events();
    let session = match link.ready().await? {
        Ok(session) => session,
        Err(not_ready) => {
            eprintln!("everlink: {not_ready}");
            return Ok(ExitCode::from(4));
        }
    };
    let mut facts = json!({
        "server": session.server.as_ref().map(|server| json!({
            "name": server.name(),
            "version": server.version(),
        })),
        "version": session.version.as_str(),
        "era": session.version.era().to_string(),
        "capabilities": session.capabilities,
        "instructions": session.instructions,
    });
    for (name, list) in LISTS {
        facts[name] = match link.list(list).await {
            Ok(listing) => items(&listing),
            Err(CallError::Failed(failure)) if is_not_offered(&failure.kind) => Value::Null,
            Err(error) => json!({"error": error.to_string()}),
        };
    }
    link.shutdown().await?;
    let mut odd = Vec::new();
    while let Some(event) = events.recv().await {
        if let Event::Noise(_) | Event::ToolDropped { .. } | Event::Slow { .. } = &*event {
            odd.push(event.to_string());
        }
    }
    facts["odd"] = json!(odd);
    if args.json {
        println!("{facts}");
    } else {
        print(&facts);
    }
    Ok(ExitCode::SUCCESS)
}

fn is_not_offered(kind: &everlink::client::FailureKind) -> bool {
    matches!(kind, everlink::client::FailureKind::NotOffered { .. })
}

fn items(listing: &Arc<Listing>) -> Value {
    let items = listing.items.iter().map(Payload::parse::<Value>);
    Value::Array(items.map(Result::unwrap_or_default).collect())
}

fn print(facts: &Value) {
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let server = &facts["server"];
    println!("{} {}", text(&server["name"]), text(&server["version"]));
    println!(
        "speaks {} ({})",
        text(&facts["version"]),
        text(&facts["era"])
    );
    println!("offers {}", facts["capabilities"]);
    if let Some(instructions) = facts["instructions"].as_str() {
        println!("says: {instructions}");
    }
    for (name, _) in LISTS {
        match &facts[name] {
            Value::Array(items) => {
                println!("\n{name} ({})", items.len());
                for item in items {
                    let key = ["name", "uri", "uriTemplate"]
                        .iter()
                        .find_map(|key| item[key].as_str());
                    let about = item["description"].as_str().or(item["title"].as_str());
                    let about = about
                        .and_then(|about| about.lines().next())
                        .unwrap_or_default();
                    println!("  {:32} {about}", key.unwrap_or("?"));
                }
            }
            Value::Null => println!("\n{name}: not offered"),
            error => println!("\n{name}: {}", text(&error["error"])),
        }
    }
    for line in facts["odd"].as_array().into_iter().flatten() {
        println!("\nodd: {}", text(line));
    }
}
