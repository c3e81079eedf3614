//! Lists the tools of a server, and calls one: `call URL [TOOL [JSON]]`.
//!
//! If the environment variable `MCP_TOKEN` is set, it is sent as the token.

use std::env;
use std::error::Error;

use everlink::Config;
use everlink_http::Connector;
use serde_json::Value;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let url = args.next().ok_or("usage: call URL [TOOL [JSON]]")?;
    let config = Config::http("call", env!("CARGO_PKG_VERSION"), &url)?;
    let mut connector = Connector::new();
    if let Ok(token) = env::var("MCP_TOKEN") {
        connector = connector.with_bearer(&token)?;
    }
    let link = connector.connect(config)?;

    for tool in link.list_tools().wait()?.items.iter() {
        let tool: Value = tool.parse()?;
        println!("{}", tool["name"].as_str().unwrap_or("?"));
    }

    if let Some(tool) = args.next() {
        let arguments: Value = serde_json::from_str(&args.next().unwrap_or("{}".into()))?;
        let call = link.call_tool(&tool, arguments);
        let result = call
            .on_progress(|report| println!("... {report:?}"))
            .wait()?;
        println!("{}", result.text());
        if result.is_error() {
            return Err("the tool says that it failed".into());
        }
    }
    link.shutdown().wait()?;
    Ok(())
}
