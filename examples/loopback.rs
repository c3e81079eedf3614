//! A link and a scripted server in one process, without any I/O: the whole contract on one screen.
//!
//! The first server exits during the call. The link reports that, and starts the next one.

#![allow(clippy::std_instead_of_core, reason = "a program with std")]
#![allow(clippy::wildcard_enum_match_arm, reason = "the rest is only printed")]

use std::time::Duration;

use everlink::client::{CallOptions, Client, Event, Outcome, State};
use everlink::{Config, Epoch, ExitStatus, Input, Instant, Output, Payload};

fn main() {
    let mut link = Client::new(Config::child("loopback", "1.0"));
    let mut now = Instant::ZERO;
    add(&mut link, now);

    // The driver: carry out every output, sleep until the deadline, feed what arrived, pass the time.
    let mut buf = Vec::new();
    while link.state() != State::Closed {
        now = link
            .poll_timeout()
            .map_or(now, |deadline| now.max(deadline.at));
        link.handle_timeout(now);
        while let Some(output) = link.poll_output(&mut buf) {
            match output {
                Output::Open { epoch } => link.handle(now, epoch, Input::Opened),
                Output::Write { epoch, len, .. } => {
                    link.handle(now, epoch, Input::sent(len));
                    let line = buf.split_off(buf.len() - len);
                    serve(&mut link, now, epoch, std::str::from_utf8(&line).unwrap());
                }
                Output::CloseWrite { epoch } => end(&mut link, now, epoch, ExitStatus::Code(0)),
                Output::Event(event) => heard(&mut link, now, event),
                other => println!("{now:?} {other:?}"),
            }
        }
    }
}

/// The application: calls the tool again if the first call failed.
fn heard(link: &mut Client, now: Instant, event: Event) {
    match event {
        Event::Done { outcome, .. } => match outcome {
            Outcome::Reply(result) => {
                println!("{now:?} the result is {}", result.as_str());
                link.shutdown(now);
            }
            Outcome::Failed(failure) => {
                println!("{now:?} {failure}");
                add(link, now);
            }
            other => println!("{now:?} {other:?}"),
        },
        event => println!("{now:?} {event:?}"),
    }
}

fn add(link: &mut Client, now: Instant) {
    let params = r#"{"name":"add","arguments":{"a":1,"b":2}}"#.parse::<Payload>();
    let params = params.expect("this is JSON");
    let options = CallOptions::new();
    link.call(now, "tools/call", Some(params), options)
        .expect("the queue has room");
}

/// The server. It speaks only the legacy era, and the first one exits during the call.
fn serve(link: &mut Client, now: Instant, epoch: Epoch, line: &str) {
    let message: serde_json::Value = serde_json::from_str(line).expect("a message is JSON");
    let body = match message["method"].as_str() {
        Some("initialize") => {
            r#""result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}"#
        }
        Some("tools/call") if epoch.number() == 1 => {
            let words = b"Traceback: the server does not know these numbers\n";
            link.handle(now, epoch, Input::stderr(words));
            let later = now + Duration::from_millis(20);
            return end(link, later, epoch, ExitStatus::Code(1));
        }
        Some("tools/call") => r#""result":{"content":[{"type":"text","text":"3"}]}"#,
        Some("server/discover") => r#""error":{"code":-32601,"message":"no such method"}"#,
        _ => return,
    };
    let reply = format!("{{\"jsonrpc\":\"2.0\",\"id\":{},{body}}}\n", message["id"]);
    link.handle(now, epoch, Input::bytes(reply.into_bytes()));
}

/// The process of the server exits, and its output ends.
fn end(link: &mut Client, now: Instant, epoch: Epoch, status: ExitStatus) {
    link.handle(now, epoch, Input::exited(status));
    link.handle(now, epoch, Input::end(&[]));
}
