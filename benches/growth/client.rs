//! Steps of a client that is connected to its server by a byte stream.
#![allow(dead_code, reason = "each program that measures uses its own part")]
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "a driver that measures ignores outputs that it does not need"
)]

use everlink::client::{CallOptions, Client, State};
use everlink::protocol::Era;
use everlink::server::{self, Server};
use everlink::{CallId, Config, Dialect, Epoch, Input, Output, RequestId, Watch, WatchUpdate};

use crate::http::{NOW, UNUSED, change, offer, result, unlimited, uri};
use crate::meter::{Meter, REPEAT, UNLIMITED};

/// A client and a server, connected in memory.
struct Pair {
    client: Client,
    server: Server,
    epoch: Epoch,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
    request: Option<RequestId>,
}

/// Returns the configuration of a client without limits.
pub(crate) fn config(era: Era) -> Config {
    let mut config = Config::child("measured", "1.0");
    config.dialect = match era {
        Era::Legacy => Dialect::Legacy,
        Era::Modern => Dialect::Modern,
        _ => unreachable!("there are two eras"),
    };
    config.watch = Watch::none();
    config.limits.calls_in_flight = UNLIMITED;
    config.limits.queued_calls = UNLIMITED;
    config.limits.queued_bytes = UNLIMITED;
    config.limits.undelivered_bytes = UNLIMITED;
    config.limits.asks = UNLIMITED;
    config
}

/// Creates a server that offers everything and has no limits.
pub(crate) fn server() -> Server {
    let mut config = server::Config::new(offer(), [7; 16]);
    config.limits = unlimited();
    Server::new(config)
}

impl Pair {
    fn new(era: Era) -> Pair {
        let mut pair = Pair {
            client: Client::new(config(era)),
            server: server(),
            epoch: Epoch::NONE,
            to_server: Vec::new(),
            to_client: Vec::new(),
            request: None,
        };
        pair.client.connect(NOW);
        pair.epoch = pair.client.epoch();
        pair.client.handle(NOW, pair.epoch, Input::Opened);
        pair.settle();
        assert_eq!(pair.client.state(), State::Ready);
        pair
    }

    /// Moves bytes until both ends are idle.
    fn settle(&mut self) {
        loop {
            while let Some(output) = self.client.poll_output(&mut self.to_server) {
                if let Output::Write { len, .. } = output {
                    self.client.handle(NOW, self.epoch, Input::sent(len));
                }
            }
            if !self.to_server.is_empty() {
                self.server.handle(NOW, Input::bytes(&*self.to_server));
                self.to_server.clear();
            }
            while let Some(output) = self.server.poll_output(&mut self.to_client) {
                match output {
                    Output::Event(server::Event::Request(request)) => {
                        self.request = Some(request.request);
                    }
                    Output::Write { len, .. } => self.server.handle(NOW, Input::sent(len)),
                    _ => {}
                }
            }
            if self.to_client.is_empty() {
                return;
            }
            let input = Input::bytes(&*self.to_client);
            self.client.handle(NOW, self.epoch, input);
            self.to_client.clear();
        }
    }

    fn call(&mut self) -> (CallId, RequestId) {
        let params = r#"{"name":"echo"}"#.parse().expect("this is JSON");
        let options = CallOptions::new();
        let call = self.client.call(NOW, "tools/call", Some(params), options);
        self.settle();
        let request = self.request.take().expect("the server received a request");
        (call.expect("there is room for a call"), request)
    }

    fn watch(&mut self, number: usize, is_watched: bool) {
        let mut update = WatchUpdate::default();
        let uri = uri(number).into();
        if is_watched {
            update.added.insert(uri);
        } else {
            update.removed.insert(uri);
        }
        self.client.change_watch(NOW, &update);
        self.settle();
    }

    /// Delivers these bytes from the server.
    fn receive(&mut self, line: &[u8]) {
        self.client.handle(NOW, self.epoch, Input::bytes(line));
        self.settle();
    }
}

/// Measures steps beside n calls in flight.
pub(crate) fn calls(meter: &mut Meter) {
    let mut pair = Pair::new(Era::Legacy);
    for _ in 0..meter.n {
        pair.call();
    }
    let mut calls = Vec::with_capacity(REPEAT);
    meter.round(|meter| {
        meter.step("client.call", |_| calls.push(pair.call()));
        meter.step("client.reply", |_| {
            let (_, request) = calls.pop().expect("one is left");
            let done = pair.server.respond(NOW, request, result());
            done.expect("the request is open");
            pair.settle();
        });
        for _ in 0..REPEAT {
            calls.push(pair.call());
        }
        meter.step("client.cancel", |_| {
            let (call, _) = calls.pop().expect("one is left");
            let done = pair.client.cancel(NOW, call, None);
            done.expect("the call is open");
            pair.settle();
        });
        meter.step("client.error-without-id", |_| {
            pair.receive(b"{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":\"what\"}}\n");
        });
        meter.step("client.idle-timeout", |_| {
            pair.client.handle_timeout(NOW);
            pair.settle();
        });
    });
}

fn watch(meter: &mut Meter, era: Era) {
    let name = |what: &str| match era {
        Era::Legacy => format!("client.legacy.{what}"),
        _ => format!("client.modern.{what}"),
    };
    let mut pair = Pair::new(era);
    let mut all = WatchUpdate::default();
    all.added
        .extend((0..meter.n).map(|number| uri(number).into()));
    pair.client.change_watch(NOW, &all);
    pair.settle();
    let granted = pair.client.granted().uris.len();
    assert_eq!(granted, meter.n, "every watch is granted");
    meter.round(|meter| {
        meter.step(&name("address-is-watched"), |time| {
            pair.watch(UNUSED + time, true);
        });
        meter.step(&name("watched-address-changes"), |time| {
            let sent = pair.server.publish(NOW, change(UNUSED + time));
            sent.expect("the server offers it");
            pair.settle();
        });
        meter.step(&name("address-is-not-watched-any-more"), |time| {
            pair.watch(UNUSED + time, false);
        });
    });
}

/// Measures steps beside n watched URIs at a legacy server.
pub(crate) fn legacy_watch(meter: &mut Meter) {
    watch(meter, Era::Legacy);
}

/// Measures steps beside n watched URIs at a modern server.
pub(crate) fn modern_watch(meter: &mut Meter) {
    watch(meter, Era::Modern);
}
