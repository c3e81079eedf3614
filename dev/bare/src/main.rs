//! The proof that the core needs no operating system: a link goes through a handshake and a call in a program that has
//! its own entry point, its own allocator and its own way to panic, and nothing else.
//!
//! It ends with 0 only if the reply arrived. The proof is the build, too: where anything below `everlink` brings `std`
//! in, there are two panic handlers, and the compiler refuses. To see that it does,
//! `cargo build --features std` must fail with ``found duplicate lang item `panic_impl` ``.
#![no_std]
#![no_main]

extern crate alloc;

mod floor;

use alloc::vec::Vec;

use everlink::client::{CallOptions, Client, Event, Outcome};
use everlink::wire::{self, Inbound, Message, encode};
use everlink::{Config, Epoch, Input, Instant, Output};

/// More outputs and deadlines than a handshake and a call have: a link that never gets on must not hang the proof.
const PATIENCE: usize = 100;

/// What the C runtime calls. It is all that is taken of it.
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
    for _ in 0..PATIENCE {
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

/// The server: it reads one line and answers what has an id.
fn serve(link: &mut Client, now: Instant, epoch: Epoch, line: &[u8]) {
    let text = core::str::from_utf8(line).unwrap_or_default();
    let Ok(Inbound::One(Message::Request { id, method, .. })) = wire::parse(text) else {
        return;
    };
    let mut reply = Vec::new();
    match &*method {
        "initialize" => encode::result(&mut reply, &id, |result| {
            result
                .text("protocolVersion", "2025-11-25")
                .raw("capabilities", r#"{"tools":{}}"#);
        }),
        "tools/call" => encode::result(&mut reply, &id, |result| {
            result.raw("content", r#"[{"type":"text","text":"bare"}]"#);
        }),
        _ => encode::error(&mut reply, Some(&id), -32_601, "unknown", None),
    }
    encode::line_end(&mut reply);
    link.handle(now, epoch, Input::bytes(reply));
}

fn is_expected(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Reply(result) => {
            result.as_str() == r#"{"content":[{"type":"text","text":"bare"}]}"#
        }
        _ => false,
    }
}
