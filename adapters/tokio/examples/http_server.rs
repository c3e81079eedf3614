//! A server with one tool, over HTTP, until it is interrupted or terminated:
//!
//! ```sh
//! cargo run --example http_server -- 127.0.0.1:8080
//! ```

use std::error::Error;
use std::{env, io};

use everlink::protocol::{ServerCapabilities, code};
use everlink::server::{Config, Http, Offer, Progress, Request, SsePaths};
use everlink::{ErrorObject, Payload};
use everlink_tokio::{Context, http, secret};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::signal;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = env::args().nth(1).unwrap_or("127.0.0.1:8080".into());
    let listener = TcpListener::bind(address).await?;
    eprintln!("http://{}/mcp", listener.local_addr()?);

    let tools = ServerCapabilities::default().with_tools(false);
    let offer = Offer::new("greeter", "1.0").with_capabilities(tools);
    let config = Config::new(offer, secret());
    let config = config.with_http(Http::new().with_sse(SsePaths::default()));
    let service = http::serve(listener, config, answer);

    stop().await?;
    service.shutdown().await?;
    Ok(())
}

async fn answer(request: Request, context: Context) -> Result<Payload, ErrorObject> {
    let params = request.params.and_then(|params| params.parse().ok());
    let params: Value = params.unwrap_or_default();
    let result = match &*request.method {
        "tools/list" => json!({"tools": [{"name": "greet", "inputSchema": {"type": "object"}}]}),
        "tools/call" => {
            context.progress(Progress::new(1.0).of(2.0));
            let name = params["arguments"]["name"].as_str().unwrap_or("stranger");
            json!({"content": [{"type": "text", "text": format!("Hello, {name}!")}]})
        }
        other => return Err(ErrorObject::new(code::METHOD_NOT_FOUND, other)),
    };
    Ok(Payload::of(&result).expect("JSON"))
}

/// Waits until the process is interrupted or terminated.
async fn stop() -> io::Result<()> {
    #[cfg(unix)]
    {
        let mut terminate = signal::unix::signal(signal::unix::SignalKind::terminate())?;
        tokio::select! { _ = terminate.recv() => Ok(()), stop = signal::ctrl_c() => stop }
    }
    #[cfg(not(unix))]
    signal::ctrl_c().await
}
