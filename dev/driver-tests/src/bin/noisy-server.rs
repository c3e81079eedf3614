//! A server on one adapter whose tool misuses the standard streams: `noisy-server ADAPTER`
//!
//! The tool prints to standard output and runs programs that read standard input and print. The server itself makes its streams
//! non-blocking, as a parent process may have done.

use std::env::args;
use std::error::Error;
use std::process::Command;

use driver_tests::Adapter;
use everlink::protocol::{ServerCapabilities, code};
use everlink::server::{Config, Offer, Request};
use everlink::{ErrorObject, Payload};
use everlink_handle::Context;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::stdio::{stdin, stdout};
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn Error>> {
    let adapter = args().nth(1).and_then(|name| Adapter::by_name(&name));
    let adapter = adapter.ok_or("usage: noisy-server ADAPTER")?;
    for stream in [stdin(), stdout()] {
        fcntl_setfl(stream, fcntl_getfl(stream)? | OFlags::NONBLOCK)?;
    }
    let tools = ServerCapabilities::default().with_tools(false);
    let offer = Offer::new("noisy-server", "1.0").with_capabilities(tools);
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
    let succeeded = program.status().is_ok_and(|status| status.success());
    let params = request
        .params
        .as_ref()
        .and_then(|params| params.parse::<Value>().ok());
    let text = params.unwrap_or_default()["arguments"]["text"].clone();
    let result = json!({"content": [{"type": "text", "text": text}], "isError": !succeeded});
    Ok(Payload::of(&result).expect("the result is JSON"))
}
