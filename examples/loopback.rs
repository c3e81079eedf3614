//! A link and a scripted server in one process, without any I/O: the whole contract on one screen.
//!
//! In its first life the server dies of the call. Watch the link say so and come back.

#![allow(clippy::std_instead_of_core, reason = "a program with std")]
#![allow(clippy::wildcard_enum_match_arm, reason = "the rest is only printed")]

use std::time::Duration;

use everlink::client::{CallOptions, Client, Event, Outcome, State};
use everlink::wire::{self, Inbound, Message, encode};
use everlink::{Config, Epoch, ExitStatus, Input, Instant, Output, Payload};

fn main() {
    let mut link = Client::new(Config::child("loopback", "1.0"));
    let mut now = Instant::ZERO;
    add(&mut link, now);

    // The driver: do every output, sleep until the deadline, feed what arrived, say the time.
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

/// The application: it adds once more if the first attempt failed.
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

/// The server: old-fashioned, and in its first life it dies of the call.
fn serve(link: &mut Client, now: Instant, epoch: Epoch, line: &str) {
    let Ok(Inbound::One(Message::Request { id, method, .. })) = wire::parse(line.trim_end()) else {
        return;
    };
    let mut reply = Vec::new();
    match &*method {
        "initialize" => encode::result(&mut reply, &id, |result| {
            result.text("protocolVersion", "2025-11-25");
            result.object("capabilities", |all| {
                all.object("tools", |_| {});
            });
        }),
        "tools/call" if epoch.number() == 1 => {
            let words = b"Traceback: I have never seen these numbers before\n";
            link.handle(now, epoch, Input::stderr(words));
            let later = now + Duration::from_millis(20);
            return end(link, later, epoch, ExitStatus::Code(1));
        }
        "tools/call" => encode::result(&mut reply, &id, |result| {
            result.raw("content", r#"[{"type":"text","text":"3"}]"#);
        }),
        unknown => {
            let text = format!("what is {unknown}?");
            encode::error(&mut reply, Some(&id), -32601, &text, None);
        }
    }
    encode::line_end(&mut reply);
    link.handle(now, epoch, Input::bytes(reply));
}

/// The server's process ends, and with it its output.
fn end(link: &mut Client, now: Instant, epoch: Epoch, status: ExitStatus) {
    link.handle(now, epoch, Input::exited(status));
    link.handle(now, epoch, Input::end(&[]));
}
