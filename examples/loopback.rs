//! A link and a scripted server in one process, without any I/O: the whole contract on one screen.
//!
//! The server dies in the middle of a call. Watch the link say so and come back.

use std::time::Duration;

use everlink::client::{CallOptions, Client, Event};
use everlink::{Config, Epoch, ExitStatus, Input, Instant, Output, Payload, StreamId};

fn main() {
    let mut link = Client::new(Config::child("loopback", "1.0"));
    let mut now = Instant::ZERO;
    let params = || Some(r#"{"name":"add","arguments":{"a":1,"b":2}}"#.parse::<Payload>().unwrap());

    link.call(now, "tools/call", params(), CallOptions::new())
        .unwrap();
    while let Some(deadline) = link.poll_timeout() {
        now = now.max(deadline.at);
        link.handle_timeout(now);
        let mut buf = Vec::new();
        while let Some(output) = link.poll_output(&mut buf) {
            match output {
                Output::Open { epoch } => link.handle(now, epoch, Input::Opened),
                Output::Write { epoch, stream, len } => {
                    let request = String::from_utf8(buf.split_off(buf.len() - len)).unwrap();
                    println!("[{now:?}] -> {}", request.trim_end());
                    link.handle(now, epoch, Input::Sent { stream, len });
                    serve(&mut link, now, epoch, &request);
                }
                Output::Event(event) => {
                    println!("[{now:?}]    {event:?}");
                    match event {
                        Event::Done { .. } if link.epoch().number() == 1 => {
                            link.call(now, "tools/call", params(), CallOptions::new())
                                .unwrap();
                        }
                        Event::Done { .. } => link.shutdown(now),
                        _ => {}
                    }
                }
                Output::CloseWrite { epoch } => end(&mut link, now, epoch, ExitStatus::Code(0)),
                _ => {}
            }
        }
    }
}

/// The server: old-fashioned, and in its first life it dies of `tools/call`.
fn serve(link: &mut Client, now: Instant, epoch: Epoch, request: &str) {
    let id = link.stats().messages_out;
    let reply = if request.contains(r#""method":"server/discover""#) {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"what?"}}}}"#)
    } else if request.contains(r#""method":"initialize""#) {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"protocolVersion":"2025-11-25","capabilities":{{"tools":{{}}}}}}}}"#
        )
    } else if request.contains(r#""method":"tools/call""#) && epoch.number() == 1 {
        let stderr = b"Traceback: I have never seen these numbers before\n";
        link.handle(now, epoch, Input::Stderr { bytes: stderr });
        return end(
            link,
            now + Duration::from_millis(20),
            epoch,
            ExitStatus::Code(1),
        );
    } else if request.contains(r#""method":"tools/call""#) {
        let id = id - 1; // the notification before it has none
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"3"}}]}}}}"#
        )
    } else {
        return;
    };
    let bytes = (reply + "\n").into_bytes();
    link.handle(
        now,
        epoch,
        Input::Bytes {
            stream: StreamId::DUPLEX,
            bytes: &bytes,
        },
    );
}

/// The server's process ends, and with it its output.
fn end(link: &mut Client, now: Instant, epoch: Epoch, status: ExitStatus) {
    link.handle(now, epoch, Input::Exited { status });
    link.handle(
        now,
        epoch,
        Input::End {
            stream: StreamId::DUPLEX,
            faults: &[],
        },
    );
}
