//! Steps of a relay between many clients over HTTP and a server.
#![allow(dead_code, reason = "each program that measures uses its own part")]
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "a driver that measures ignores outputs that it does not need"
)]

use everlink::protocol::Era;
use everlink::relay::{self, Relay, Side};
use everlink::server::{self, Http, Limits, Server};
use everlink::{Epoch, Input, Output, RequestId};

use crate::client;
use crate::http::{HttpClients, HttpEndpoint, NOW, UNUSED, change, result, unlimited};
use crate::meter::{Meter, REPEAT};

/// A relay and its server, connected in memory.
pub(crate) struct Chain {
    pub(crate) relay: Relay,
    server: Server,
    epoch: Epoch,
    to_server: Vec<u8>,
    to_relay: Vec<u8>,
    /// The last request that the server received.
    request: Option<RequestId>,
}

impl Chain {
    /// Creates a relay with these limits, and its clients.
    pub(crate) fn with_clients(era: Era, limits: Limits) -> HttpClients<Chain> {
        let mut config = relay::Config::new(client::config(era), [7; 16]);
        config.downstream = config.downstream.with_http(Http::new());
        config.downstream.limits = limits;
        let mut relay = Relay::new(config);
        relay.connect(NOW);
        let epoch = relay.upstream().epoch();
        relay.handle_upstream(NOW, epoch, Input::Opened);
        let chain = Chain {
            relay,
            server: client::server(),
            epoch,
            to_server: Vec::new(),
            to_relay: Vec::new(),
            request: None,
        };
        let mut clients = HttpClients::new(chain);
        clients.drain_outputs();
        clients
    }

    /// Moves bytes between the server and the relay. Returns whether the relay got any.
    fn exchange_with_server(&mut self) -> bool {
        if !self.to_server.is_empty() {
            self.server.handle(NOW, Input::bytes(&*self.to_server));
            self.to_server.clear();
        }
        while let Some(output) = self.server.poll_output(&mut self.to_relay) {
            match output {
                Output::Event(server::Event::Request(request)) => {
                    self.request = Some(request.request);
                }
                Output::Write { len, .. } => self.server.handle(NOW, Input::sent(len)),
                _ => {}
            }
        }
        if self.to_relay.is_empty() {
            return false;
        }
        let input = Input::bytes(&*self.to_relay);
        self.relay.handle_upstream(NOW, self.epoch, input);
        self.to_relay.clear();
        true
    }
}

impl HttpEndpoint for Chain {
    fn feed(&mut self, input: Input<'_>) {
        self.relay.handle_downstream(NOW, input);
    }

    fn poll(&mut self, buf: &mut Vec<u8>) -> Option<(Output<()>, Option<RequestId>)> {
        loop {
            let start = buf.len();
            match self.relay.poll_output(buf) {
                Some((Side::Downstream, output)) => {
                    if let Some(output) = output.and_then_event(|_| None) {
                        return Some((output, None));
                    }
                }
                Some((Side::Upstream, Output::Write { len, .. })) => {
                    self.to_server.extend(buf.drain(start..));
                    let sent = Input::sent(len);
                    self.relay.handle_upstream(NOW, self.epoch, sent);
                }
                Some(_) => {}
                None if self.exchange_with_server() => {}
                None => return None,
            }
        }
    }
}

fn listens(meter: &mut Meter, era: Era) {
    let name = |what: &str| match era {
        Era::Legacy => format!("relay.before-legacy.{what}"),
        _ => format!("relay.before-modern.{what}"),
    };
    let mut clients = Chain::with_clients(era, unlimited());
    // For each added URI, the relay sends a modern server a few other URIs again. One client with all URIs avoids that.
    if era == Era::Modern {
        clients.listen_to(0..=meter.n - 1);
    } else {
        for number in 0..meter.n {
            clients.listen(number);
        }
    }
    let granted = clients.endpoint.relay.upstream().granted().uris.len();
    assert_eq!(granted, meter.n, "every watch is granted");
    let mut streams = Vec::with_capacity(REPEAT);
    meter.round(|meter| {
        meter.step(&name("listen-begins"), |time| {
            streams.push(clients.listen(UNUSED + time));
        });
        meter.step(&name("publish-to-one-listen"), |time| {
            let sent = clients.endpoint.server.publish(NOW, change(UNUSED + time));
            sent.expect("the server offers it");
            clients.drain_outputs();
        });
        meter.step(&name("listen-ends"), |_| {
            let stream = streams.pop().expect("one is left");
            clients.disconnect(stream);
        });
    });
}

/// Measures steps beside n modern listens of one resource each, with a legacy server.
pub(crate) fn listens_with_legacy_server(meter: &mut Meter) {
    listens(meter, Era::Legacy);
}

/// Measures steps beside n modern listens, with a modern server.
pub(crate) fn listens_with_modern_server(meter: &mut Meter) {
    listens(meter, Era::Modern);
}

/// Measures steps beside n sessions of legacy clients.
pub(crate) fn sessions(meter: &mut Meter) {
    let mut clients = Chain::with_clients(Era::Legacy, unlimited());
    for _ in 0..meter.n {
        clients.initialize();
    }
    let mut sessions = Vec::with_capacity(REPEAT);
    meter.round(|meter| {
        meter.step("relay.session-begins", |_| {
            let id = clients.handshake();
            sessions.push(clients.open_stream(id));
        });
        meter.step("relay.subscribe", |time| {
            clients.subscribe(&sessions[time].id, "subscribe", UNUSED + time);
        });
        meter.step("relay.publish-to-one-session", |time| {
            let sent = clients.endpoint.server.publish(NOW, change(UNUSED + time));
            sent.expect("the server offers it");
            clients.drain_outputs();
        });
        meter.step("relay.session-ends", |_| {
            let session = sessions.pop().expect("one is left");
            clients.end_session(&session);
        });
    });
}

/// Measures steps beside n modern calls that the server has not answered.
pub(crate) fn calls(meter: &mut Meter) {
    let mut clients = Chain::with_clients(Era::Modern, unlimited());
    for _ in 0..meter.n {
        clients.call();
    }
    let mut calls = Vec::with_capacity(REPEAT);
    meter.round(|meter| {
        meter.step("relay.call", |_| {
            let stream = clients.call();
            calls.push((
                stream,
                clients
                    .endpoint
                    .request
                    .take()
                    .expect("the server received a request"),
            ));
        });
        meter.step("relay.reply", |_| {
            let (_, request) = calls.pop().expect("one is left");
            let done = clients.endpoint.server.respond(NOW, request, result());
            done.expect("the request is open");
            clients.drain_outputs();
        });
        for _ in 0..REPEAT {
            let stream = clients.call();
            calls.push((
                stream,
                clients
                    .endpoint
                    .request
                    .take()
                    .expect("the server received a request"),
            ));
        }
        meter.step("relay.client-of-a-call-leaves", |_| {
            let (stream, _) = calls.pop().expect("one is left");
            clients.disconnect(stream);
        });
    });
}
