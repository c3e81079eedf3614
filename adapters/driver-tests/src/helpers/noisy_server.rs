//! A server on the driver under test whose tool misuses the standard streams.
//!
//! The tool prints to standard output and runs programs that read standard input and print. The server itself makes its streams
//! non-blocking, as a parent process may have done.

use std::process::Command;

use everlink::protocol::{ServerCapabilities, code};
use everlink::server::{Config, Offer, Request};
use everlink::{ErrorObject, Payload};
use everlink_handle::{Context, secret};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::stdio::{stdin, stdout};
use serde_json::{Value, json};

use crate::driver::Driver;

pub(crate) fn run(driver: &dyn Driver) {
    for stream in [stdin(), stdout()] {
        let flags = fcntl_getfl(stream).expect("the stream is open");
        fcntl_setfl(stream, flags | OFlags::NONBLOCK).expect("the stream is open");
    }
    let tools = ServerCapabilities::default().with_tools(false);
    let offer = Offer::new("noisy-server", "1.0").with_capabilities(tools);
    let serve = driver.serve().expect("the driver has a server");
    serve(Config::new(offer, secret()), answer).expect("the server runs");
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
