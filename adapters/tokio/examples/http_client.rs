//! Lists the tools of a server over HTTP, and calls one of them:
//!
//! ```sh
//! cargo run --example http_client -- http://127.0.0.1:8080/mcp greet '{"name": "Ada"}'
//! ```
//!
//! If the environment variable `TOKEN` is set, it is sent with every request.

use std::env;
use std::error::Error;

use everlink::Config;
use everlink_tokio::http::Connector;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let url = arguments.next().ok_or("which server?")?;

    let mut connector = Connector::new();
    if let Ok(token) = env::var("TOKEN") {
        connector = connector.with_bearer(&token)?;
    }
    let link = connector.connect(Config::http("example", "1.0", &url)?)?;

    let mut events = link.events();
    tokio::spawn(async move {
        while let Some(event) = events.recv().await {
            eprintln!("{event:?}");
        }
    });

    let session = link.ready().await?;
    println!("{:?}, version {}", session.server, session.version);
    for tool in &link.list_tools().await?.items {
        println!("  {}", tool.as_str());
    }
    if let Some(tool) = arguments.next() {
        let given: serde_json::Value = arguments.next().unwrap_or("{}".into()).parse()?;
        let call = link.call_tool(&tool, given);
        let call = call.on_progress(|report| eprintln!("{report:?}"));
        println!("{}", call.await?.text());
    }
    link.shutdown().await?;
    Ok(())
}
