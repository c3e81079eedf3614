//! A server with three typed tools, a resource and a prompt. On standard streams with threads, or over HTTP on tokio for clients with a token:
//!
//! ```sh
//! cargo run -p everlink-tools --example typed_server
//! TOKEN=open-sesame cargo run -p everlink-tools --example typed_server -- 127.0.0.1:8080
//! ```

use std::env;
use std::error::Error;

use everlink_tokio::http::{Access, Protection, serve_protected};
use everlink_tools::types::{Resource, Tool, ToolAnnotations};
use everlink_tools::{Context, Elicited, JsonSchema, Result, Tools};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

#[derive(Deserialize, JsonSchema)]
struct Add {
    /// The first number
    a: f64,
    /// The second number
    b: f64,
}

#[derive(Serialize, JsonSchema)]
struct Sum {
    sum: f64,
}

#[derive(Deserialize, JsonSchema)]
struct Search {
    /// The text to look for
    query: String,
    /// The most results
    #[serde(default = "ten")]
    #[schemars(range(min = 1, max = 100))]
    limit: usize,
}

#[derive(Serialize, JsonSchema)]
struct Found {
    titles: Vec<&'static str>,
}

/// A form for the user.
#[derive(Deserialize, JsonSchema)]
struct Confirmation {
    /// Whether to delete all notes
    sure: bool,
}

#[derive(Deserialize, JsonSchema)]
struct Review {
    /// The code to review
    code: String,
    /// Its language
    language: Option<String>,
}

const NOTES: [&str; 3] = ["Buy milk", "Call Ada", "Buy bread"];

fn ten() -> usize {
    10
}

fn tools() -> Tools {
    let search = Tool::new("search").with_description("Searches the notes");
    let search = search.with_annotations(ToolAnnotations::read_only());
    let notes = Resource::new("notes://all", "notes").with_mime_type("text/plain");
    Tools::new("notes", "1.0")
        .tool("add", "Adds two numbers", async |args: Add, _| {
            Ok(Sum {
                sum: args.a + args.b,
            })
        })
        .blocking_tool_as(search, |args: Search, _| {
            let titles = NOTES.into_iter().filter(|note| note.contains(&args.query));
            Ok(Found {
                titles: titles.take(args.limit).collect(),
            })
        })
        .tool("clear", "Deletes all notes, if the user agrees", clear)
        .resource_as(notes, async |_| Ok(NOTES.join("\n")))
        .prompt("review", "Reviews code", async |args: Review, _| {
            let language = args.language.as_deref().unwrap_or("some language");
            Ok(format!("Review this code in {language}:\n{}", args.code))
        })
        .complete_prompt("review", "language", async |typed, _| {
            Ok(typed.matching(["go", "python", "rust"]))
        })
}

async fn clear((): (), context: Context) -> Result<String> {
    let answer = context.elicit("Delete all notes?").await?;
    Ok(match answer {
        Elicited::Accepted(Confirmation { sure: true }) => "All notes are deleted.".to_owned(),
        _ => "The notes are still there.".to_owned(),
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let tools = tools();
    match env::args().nth(1) {
        None => everlink_stdio::serve(tools.config(), tools.blocking_handler())?
            .closed()
            .wait()?,
        Some(address) => serve_http(&tools, &address)?,
    }
    Ok(())
}

#[tokio::main]
async fn serve_http(tools: &Tools, address: &str) -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind(address).await?;
    let url = format!("http://{}/mcp", listener.local_addr()?);
    let token = env::var("TOKEN")?;
    let verify = move |given| {
        let access = (given == token).then(|| Access::new("owner", ["notes"]));
        async move { access }
    };
    let protection = Protection::new(&url, ["https://login.example.com"], verify)?;
    let service = serve_protected(listener, tools.config(), protection, tools.handler());
    println!("{url}");
    Ok(service.closed().await?)
}
