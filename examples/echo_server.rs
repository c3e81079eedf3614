//! A server with one tool on its standard streams, with std alone, for `drive_child` and `guard_child`:
//! `cargo run --example drive_child -- target/debug/examples/echo_server`
//!
//! The tool returns its argument and the process id. Kill that process to see the link start another one.

#![allow(clippy::std_instead_of_core, reason = "a program with std")]
#![allow(clippy::wildcard_enum_match_arm, reason = "the rest needs no answer")]

use std::sync::mpsc::channel;

use everlink::protocol::{ServerCapabilities, code};
use everlink::server::{Config, Event, Misuse, Offer, Request, Server};
use everlink::{Arc, ErrorObject, Instant, Output, Payload, StreamId};

mod pipes;

fn main() {
    eprintln!("echo_server is listening");
    let start = std::time::Instant::now();
    let clock = || Instant::from_origin(start.elapsed());
    let tools = ServerCapabilities::default().with_tools(false);
    let offer = Offer::new("echo_server", "1.0").with_capabilities(tools);
    let mut server = Server::new(Config::new(offer, pipes::secret()));
    let (sender, news) = channel();
    let gate = Arc::<pipes::Gate>::default();
    pipes::listen(&gate, move |input| drop(sender.send(input)));

    let mut buf = Vec::new();
    loop {
        while let Some(output) = server.poll_output(&mut buf) {
            match output {
                Output::Event(Event::Request(request)) => {
                    // A request that was cancelled in the meantime needs no answer.
                    let _ = answer(&mut server, clock(), &request);
                }
                Output::Write { .. } => {
                    server.handle(clock(), pipes::say(&buf));
                    buf.clear();
                }
                Output::Release { .. } => return,
                _ => {}
            }
        }
        gate.set(server.wants_input(StreamId::DUPLEX));
        let input = match server.poll_timeout() {
            Some(deadline) => news.recv_timeout(deadline.at.since(clock())).ok(),
            None => news.recv().ok(),
        };
        match input {
            Some(input) => server.handle(clock(), input),
            None => server.handle_timeout(clock()),
        }
    }
}

fn answer(server: &mut Server, now: Instant, request: &Request) -> Result<(), Misuse> {
    let result = match &*request.method {
        "tools/list" => {
            let schema = r#"{"type":"object","required":["text"]}"#;
            format!(r#"{{"tools":[{{"name":"echo","inputSchema":{schema}}}]}}"#)
        }
        "tools/call" => {
            let heard = request.params.as_ref().map_or("{}", Payload::as_str);
            let pid = std::process::id();
            let said = format!(r#"{{"heard":{heard},"pid":{pid}}}"#);
            format!(r#"{{"content":[],"structuredContent":{said}}}"#)
        }
        unknown => {
            let text = format!("{unknown} is not served here");
            let error = ErrorObject::new(code::METHOD_NOT_FOUND, text);
            return server.fail(now, request.request, error);
        }
    };
    let result = result.parse().expect("the server writes JSON");
    server.respond(now, request.request, result)
}
