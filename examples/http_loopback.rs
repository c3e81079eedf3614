//! Both ends of a link over HTTP, without a socket: each end receives what the other one sends.
//!
//! ```sh
//! cargo run --example http_loopback
//! ```
//!
//! The server is replaced while it is in use, and its sessions are lost. The link makes a new handshake and sends again what was turned away.
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "a driver does what it knows and passes over the rest"
)]

use everlink::client::{CallOptions, Client, Event, Outcome, State};
use everlink::protocol::ServerCapabilities;
use everlink::server::{self, Offer, Server};
use everlink::{Config, Dialect, Input, Instant, Output};

type Error = Box<dyn core::error::Error>;

fn main() -> Result<(), Error> {
    let mut config = Config::http("loopback", "1.0", "http://localhost/mcp")?;
    // Only the legacy era has sessions to lose.
    config.dialect = Dialect::Legacy;
    let mut link = Client::new(config);
    let mut site = new_site(1);
    let (mut now, mut buf, mut replies) = (Instant::ZERO, Vec::new(), 0);
    let params = r#"{"name":"greet"}"#;
    link.call(now, "tools/call", Some(params.parse()?), CallOptions::new())?;

    while link.state() != State::Closed {
        // A driver with a clock sleeps here: until the deadline, if there is one, or until something arrives.
        now = link
            .poll_timeout()
            .map_or(now, |deadline| now.max(deadline.at));
        link.handle_timeout(now);
        while let Some(output) = link.poll_output(&mut buf) {
            match output {
                Output::Open { epoch } => link.handle(now, epoch, Input::Opened),
                Output::Request {
                    epoch,
                    stream,
                    mut head,
                    len,
                } => {
                    let body = buf.split_off(buf.len() - len);
                    // An HTTP library adds `Host`, and sends the path instead of the URL.
                    head.fields.push("host", "localhost");
                    head.target = "/mcp".into();
                    println!("> {} {}", head.verb, String::from_utf8_lossy(&body));
                    site.handle(now, Input::Request { stream, head });
                    let bytes = body.into();
                    site.handle(now, Input::Bytes { stream, bytes });
                    let faults = [].as_slice().into();
                    site.handle(now, Input::End { stream, faults });
                    for input in serve(&mut site, now)? {
                        link.handle(now, epoch, input);
                    }
                }
                Output::Event(Event::Done { outcome, .. }) => {
                    let Outcome::Reply(result) = outcome else {
                        return Err(format!("there is no reply: {outcome:?}").into());
                    };
                    println!("{}", result.as_str());
                    replies += 1;
                    if replies == 1 {
                        site = new_site(2);
                        link.call(now, "tools/call", Some(params.parse()?), CallOptions::new())?;
                    } else {
                        link.shutdown(now);
                    }
                }
                Output::Event(Event::Ended(ended)) => println!("{ended}"),
                _ => {}
            }
        }
    }
    Ok(())
}

/// A server with one tool. Each server has its own secret, as each process would have.
fn new_site(number: u8) -> Server {
    let tools = ServerCapabilities::default().with_tools(false);
    let offer = Offer::new("greeter", "1.0").with_capabilities(tools);
    let mut config = server::Config::new(offer, [number; 16]);
    config.http = Some(server::Http::new());
    Server::new(config)
}

/// Polls all outputs of the server, and returns them as inputs of the client.
fn serve(site: &mut Server, now: Instant) -> Result<Vec<Input<'static>>, Error> {
    let (mut buf, mut said) = (Vec::new(), Vec::new());
    while let Some(output) = site.poll_output(&mut buf) {
        let ended = |stream| Input::End {
            stream,
            faults: Vec::new().into(),
        };
        let mut sent = |site: &mut Server, stream, len: usize| {
            let bytes = buf.split_off(buf.len() - len).into();
            site.handle(now, Input::Sent { stream, len });
            Input::Bytes { stream, bytes }
        };
        match output {
            Output::Response {
                stream,
                head,
                len,
                is_whole,
                ..
            } => {
                println!("< {}", head.status);
                said.push(Input::Response { stream, head });
                said.push(sent(site, stream, len));
                if is_whole {
                    said.push(ended(stream));
                }
            }
            Output::Write { stream, len, .. } => said.push(sent(site, stream, len)),
            Output::Finish { stream, .. } => said.push(ended(stream)),
            Output::Event(server::Event::Request(request)) => {
                let result = r#"{"content":[{"type":"text","text":"hello"}]}"#.parse()?;
                site.respond(now, request.request, result)?;
            }
            _ => {}
        }
    }
    Ok(said)
}
