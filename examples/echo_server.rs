//! A server of one tool and few words on its standard streams, for `drive_child` to drive:
//! `cargo run --example drive_child -- target/debug/examples/echo_server`

#![allow(clippy::std_instead_of_core, reason = "a program with std")]

use std::io::{BufRead, Write, stdin, stdout};

use everlink::wire::encode::{self, Object};
use everlink::wire::{self, Inbound, Message};

fn main() -> std::io::Result<()> {
    eprintln!("echo_server is listening");
    for line in stdin().lock().lines() {
        let reply = answer(&line?);
        stdout().write_all(&reply)?;
        stdout().flush()?;
    }
    Ok(())
}

/// The line to say to this one, or nothing.
fn answer(line: &str) -> Vec<u8> {
    let mut reply = Vec::new();
    let Ok(Inbound::One(Message::Request { id, method, params })) = wire::parse(line) else {
        return reply;
    };
    match &*method {
        "initialize" => encode::result(&mut reply, &id, |result| {
            result.text("protocolVersion", "2025-11-25");
            result.raw("capabilities", r#"{"tools":{}}"#);
            result.raw("serverInfo", r#"{"name":"echo_server","version":"1.0"}"#);
        }),
        "tools/list" => encode::result(&mut reply, &id, |result| {
            let schema = r#"{"type":"object","required":["text"]}"#;
            let tool = format!(r#"[{{"name":"echo","inputSchema":{schema}}}]"#);
            result.raw("tools", &tool);
        }),
        "tools/call" => encode::result(&mut reply, &id, |result: &mut Object<'_>| {
            let heard = params.map_or("{}", |params| params.get());
            result.raw("structuredContent", heard);
            result.raw("content", "[]");
        }),
        "ping" => encode::result(&mut reply, &id, |_| {}),
        unknown => {
            let text = format!("there is no {unknown} here");
            encode::error(&mut reply, Some(&id), -32601, &text, None);
        }
    }
    encode::line_end(&mut reply);
    reply
}
