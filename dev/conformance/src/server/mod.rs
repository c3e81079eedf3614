//! The server of the scenarios, with one set of tools, resources and prompts for HTTP and for standard streams, in both eras.
//!
//! `tools` answer at once, `rounds` ask the client first, and `tasks` take long. `media` has a picture and a sound.

mod media;
mod prompts;
mod resources;
mod rounds;
mod tasks;
mod tools;

use std::io;

use everlink::server::{Http, SsePaths};
use everlink_tokio::{Service, http, stdio};
use everlink_tools::Tools;
use tokio::net::TcpListener;

/// Serves HTTP at this address: `/mcp` for both eras, and `/sse` for the oldest clients. Returns the URL.
///
/// # Errors
///
/// If the address cannot be bound.
pub async fn serve_http(address: &str) -> io::Result<(Service, String)> {
    let listener = TcpListener::bind(address).await?;
    let url = format!("http://{}/mcp", listener.local_addr()?);
    let http = Http::new().with_sse(SsePaths::default());
    let tools = all();
    let service = http::serve(listener, tools.config().with_http(http), tools.handler());
    // The server compares header fields with arguments. It needs the tools for that, even if no client has listed them.
    tools.attach(&service);
    Ok((service, url))
}

/// Serves the client on the standard streams of this process.
///
/// # Errors
///
/// If the standard streams cannot be used.
pub fn serve_stdio() -> io::Result<Service> {
    let tools = all();
    stdio::serve(tools.config(), tools.handler())
}

fn all() -> Tools {
    let tools = Tools::new("everlink-conformance", env!("CARGO_PKG_VERSION")).with_logging();
    let tools = tools::add_to(rounds::add_to(tasks::add_to(tools)));
    prompts::add_to(resources::add_to(tools))
}
