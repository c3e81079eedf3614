//! Proves that the core needs no operating system: a program without std runs a handshake and a call.
//!
//! The program has its own entry point, allocator and panic handler. It exits with 0 only if the reply arrived. The build is part of the
//! proof: if a dependency of `everlink` used `std`, there would be two panic handlers, and the compiler would refuse. So `cargo build
//! --features std` must fail with ``found duplicate lang item `panic_impl` ``.
#![no_std]
#![no_main]

extern crate alloc;

mod runtime;

use alloc::format;
use alloc::vec::Vec;

use everlink::client::{CallOptions, Client, Event, Outcome};
use everlink::{Config, Epoch, Input, Instant, Output};

/// More outputs and deadlines than a handshake and a call have. A link that makes no progress must not hang the program.
const MAX_STEPS: usize = 100;

/// The entry point for the C runtime.
// SAFETY: no other function of this program has the name.
#[unsafe(no_mangle)]
extern "C" fn main() -> i32 {
    i32::from(!reply_arrives())
}

/// Makes one call to a server that speaks only the legacy era, and drives the link until there is an outcome.
fn reply_arrives() -> bool {
    let mut link = Client::new(Config::socket("bare", "0.1"));
    let mut now = Instant::ZERO;
    let params = r#"{"name":"echo","arguments":{"text":"anyone?"}}"#.parse().ok();
    if link
        .call(now, "tools/call", params, CallOptions::new())
        .is_err()
    {
        return false;
    }
    let mut buf = Vec::new();
    for _ in 0..MAX_STEPS {
        match link.poll_output(&mut buf) {
            Some(Output::Open { epoch }) => link.handle(now, epoch, Input::Opened),
            Some(Output::Write { epoch, len, .. }) => {
                let request = buf.split_off(buf.len() - len);
                link.handle(now, epoch, Input::sent(len));
                serve(&mut link, now, epoch, &request);
            }
            Some(Output::Event(Event::Done { outcome, .. })) => return is_expected(&outcome),
            Some(_) => {}
            None => match link.poll_timeout() {
                Some(deadline) => {
                    now = now.max(deadline.at);
                    link.handle_timeout(now);
                }
                None => return false,
            },
        }
    }
    false
}

/// A request, as far as the server reads it. Notifications have no id and are not read.
#[derive(serde::Deserialize)]
struct Request<'a> {
    id: u64,
    method: &'a str,
}

/// A server that reads one line and answers a request.
fn serve(link: &mut Client, now: Instant, epoch: Epoch, line: &[u8]) {
    let text = core::str::from_utf8(line).unwrap_or_default();
    let Ok(request) = serde_json::from_str::<Request<'_>>(text) else {
        return;
    };
    let body = match request.method {
        "initialize" => {
            r#""result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}"#
        }
        "tools/call" => r#""result":{"content":[{"type":"text","text":"bare"}]}"#,
        _ => r#""error":{"code":-32601,"message":"unknown"}"#,
    };
    let reply = format!("{{\"jsonrpc\":\"2.0\",\"id\":{},{body}}}\n", request.id);
    link.handle(now, epoch, Input::bytes(reply.into_bytes()));
}

fn is_expected(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Reply(result) => {
            result.as_str() == r#"{"content":[{"type":"text","text":"bare"}]}"#
        }
        _ => false,
    }
}
