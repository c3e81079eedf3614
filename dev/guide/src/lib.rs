//! Compiles and runs the examples of `docs/GUIDE.md`. Has the servers that its clients call.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use everlink_tokio::http::{Access, Protection, serve, serve_protected};
use everlink_tokio::prelude::Service;
use everlink_tools::everlink::server::Progress;
use everlink_tools::schemars::{self, JsonSchema};
use everlink_tools::{Context, Elicited, Result, Tools};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::time::sleep;

/// The token that the protected server accepts.
const TOKEN: &str = "open-sesame";

#[derive(Deserialize, JsonSchema)]
struct Add {
    a: f64,
    b: f64,
}

#[derive(Serialize, JsonSchema)]
struct Sum {
    sum: f64,
}

#[derive(Deserialize, JsonSchema)]
struct Nap {
    millis: u64,
}

#[derive(Deserialize, JsonSchema)]
struct Confirmation {
    sure: bool,
}

#[derive(Deserialize, JsonSchema)]
struct Review {
    code: String,
}

fn tools() -> Tools {
    Tools::new("notes", "1.0")
        .tool("add", "Adds two numbers", async |args: Add, _| {
            Ok(Sum {
                sum: args.a + args.b,
            })
        })
        .tool("nap", "Sleeps, and reports progress", nap)
        .tool("clear", "Deletes all notes, if the user agrees", clear)
        .resource("notes://all", "notes", async |_| Ok("Buy milk"))
        .prompt("review", "Reviews code", async |args: Review, _| {
            Ok(format!("Review this code:\n{}", args.code))
        })
}

async fn nap(args: Nap, context: Context) -> Result<String> {
    for step in 1..=10 {
        sleep(Duration::from_millis(args.millis) / 10).await;
        context.progress(Progress::new(f64::from(step)).of(10.0));
    }
    Ok("rested".to_owned())
}

async fn clear((): (), context: Context) -> Result<String> {
    Ok(match context.elicit("Delete all notes?").await? {
        Elicited::Accepted(Confirmation { sure: true }) => "All notes are deleted.".to_owned(),
        _ => "The notes are still there.".to_owned(),
    })
}

/// Starts a server on a thread of its own, and returns its URL.
#[must_use]
pub fn notes_server() -> String {
    let tools = tools();
    start(move |listener, _| serve(listener, tools.config(), tools.handler()))
}

/// Starts a server that accepts only requests with the token `open-sesame`, and returns its URL.
#[must_use]
pub fn protected_server() -> String {
    let tools = tools();
    start(move |listener, url| {
        let verify = async |token| (token == TOKEN).then(|| Access::new("owner", ["notes"]));
        let protection = Protection::new(url, ["https://login.example.com"], verify);
        let protection = protection.expect("the URL is valid");
        serve_protected(listener, tools.config(), protection, tools.handler())
    })
}

fn start(serve: impl FnOnce(TcpListener, &str) -> Service + Send + 'static) -> String {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().expect("the system has threads");
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await;
            let listener = listener.expect("the system has a port");
            let address = listener.local_addr().expect("the listener is bound");
            let url = format!("http://{address}/mcp");
            let service = serve(listener, &url);
            sender.send(url).expect("the caller waits");
            let _ = service.closed().await;
        });
    });
    receiver.recv().expect("the server starts")
}

/// Runs the examples of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/GUIDE.md")]
struct Guide;
