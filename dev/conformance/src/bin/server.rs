//! The server for the conformance suite. It prints its URL and serves until `SIGTERM`, or serves on its standard streams:
//!
//! ```sh
//! conformance-server [ADDRESS [REDIS]]
//! conformance-server --stdio
//! ```

use std::env;
use std::error::Error;

use conformance::server::{serve_http, serve_stdio};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (address, redis) = (env::args().nth(1), env::args().nth(2));
    if address.as_deref() == Some("--stdio") {
        return Ok(serve_stdio()?.closed().await?);
    }
    let mut terminate = signal(SignalKind::terminate())?;
    let address = address.as_deref().unwrap_or("127.0.0.1:0");
    let (service, url) = serve_http(address, redis.as_deref()).await?;
    println!("{url}");
    terminate.recv().await;
    Ok(service.shutdown().await?)
}
