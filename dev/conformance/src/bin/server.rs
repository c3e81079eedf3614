//! The server for the conformance suite. It prints its URL and serves until `SIGTERM`, or serves on its standard streams:
//!
//! ```sh
//! conformance-server [ADDRESS]
//! conformance-server --stdio
//! ```

use std::env;
use std::error::Error;

use conformance::server::{serve_http, serve_stdio};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let argument = env::args().nth(1);
    if argument.as_deref() == Some("--stdio") {
        return Ok(serve_stdio()?.closed().await?);
    }
    let mut terminate = signal(SignalKind::terminate())?;
    let (service, url) = serve_http(argument.as_deref().unwrap_or("127.0.0.1:0")).await?;
    println!("{url}");
    terminate.recv().await;
    Ok(service.shutdown().await?)
}
