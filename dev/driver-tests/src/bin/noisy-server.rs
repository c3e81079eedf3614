//! A server of an adapter, written as people write servers: its tool prints to standard output, and starts programs that read from
//! standard input and print, too. `careless ADAPTER`
//!
//! Whoever started it may have made its streams non-blocking; this one does so itself.

use std::env::args;
use std::error::Error;
use std::process::Command;

use everlink::protocol::{ServerCapabilities, code};
use everlink::server::{Config, Offer, Request};
use everlink::{ErrorObject, Payload};
use everlink_handle::Context;
use ordeal::Adapter;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::stdio::{stdin, stdout};
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn Error>> {
    let adapter = args().nth(1).and_then(|name| Adapter::named(&name));
    let adapter = adapter.ok_or("usage: careless ADAPTER")?;
    for stream in [stdin(), stdout()] {
        fcntl_setfl(stream, fcntl_getfl(stream)? | OFlags::NONBLOCK)?;
    }
    let tools = ServerCapabilities::default().with_tools(false);
    let offer = Offer::new("careless", "1.0").with_capabilities(tools);
    adapter.serve(Config::new(offer, everlink_stdio::secret()), answer)?;
    Ok(())
}

fn answer(request: Request, _: Context) -> Result<Payload, ErrorObject> {
    if &*request.method != "tools/call" {
        return Err(ErrorObject::new(
            code::METHOD_NOT_FOUND,
            "there are only tools",
        ));
    }
    println!("this is not for the client");
    print!("nor is this, which has no end of a line");
    let mut program = Command::new("sh");
    program.args([
        "-c",
        r#"echo '{"jsonrpc":"2.0","id":1,"result":{}}'; cat; echo stolen"#,
    ]);
    let is_well = program.status().is_ok_and(|status| status.success());
    let params = request
        .params
        .as_ref()
        .and_then(|params| params.parse::<Value>().ok());
    let text = params.unwrap_or_default()["arguments"]["text"].clone();
    let result = json!({"content": [{"type": "text", "text": text}], "isError": !is_well});
    Ok(Payload::of(&result).expect("this is JSON"))
}
