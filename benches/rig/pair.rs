//! Both ends of a link that is ready, connected by two buffers, for benchmarks of both together. Measures nothing itself.
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "a driver that measures ignores outputs that it does not need"
)]

use core::iter;

use everlink::client::{CallOptions, Event, Outcome, State};
use everlink::protocol::{Era, ServerCapabilities};
use everlink::server::{self, Offer};
use everlink::{Client, Config, Epoch, Input, Instant, Output, Payload, Server};

use super::dialect;
use super::samples::{echo, params};

/// A client and a server with tools, joined in memory.
pub(crate) struct Pair {
    client: Client,
    server: Server,
    now: Instant,
    epoch: Epoch,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
}

impl Pair {
    /// Creates two ends that have agreed on the newest version of this era.
    pub(crate) fn ready(era: Era) -> Pair {
        let mut config = Config::child("measured", "1.0");
        config.dialect = dialect(era);
        let tools = ServerCapabilities::default().with_tools(false);
        let offer = Offer::new("measured", "1.0").with_capabilities(tools);
        let mut pair = Pair {
            client: Client::new(config),
            server: Server::new(server::Config::new(offer, [7; 16])),
            now: Instant::ZERO,
            epoch: Epoch::NONE,
            to_server: Vec::with_capacity(64 << 10),
            to_client: Vec::with_capacity(64 << 10),
        };
        pair.client.connect(pair.now);
        pair.epoch = pair.client.epoch();
        pair.client.handle(pair.now, pair.epoch, Input::Opened);
        pair.settle(iter::empty());
        assert_eq!(pair.client.state(), State::Ready);
        pair
    }

    /// Makes a call from one application to the other. Returns the result.
    pub(crate) fn round_trip(&mut self, params: Payload, result: Payload) -> Payload {
        self.call(params);
        self.settle(iter::once(result)).expect("the call is done")
    }

    /// Puts calls in flight that the server's application does not answer.
    pub(crate) fn put_in_flight(&mut self, calls: usize) {
        for _ in 0..calls {
            self.call(params());
            self.settle(iter::empty());
        }
    }

    /// Makes this many calls at once, and answers them all.
    pub(crate) fn concurrent_round_trips(&mut self, calls: usize) {
        for _ in 0..calls {
            self.call(params());
        }
        self.settle(iter::repeat_n(echo(), calls));
    }

    /// Returns the two machines.
    pub(crate) fn into_parts(self) -> (Client, Server) {
        (self.client, self.server)
    }

    fn call(&mut self, params: Payload) {
        let options = CallOptions::new();
        let call = self
            .client
            .call(self.now, "tools/call", Some(params), options);
        call.expect("there is room for a call");
    }

    /// Moves bytes until both ends are idle. The server's application answers one request with each of these results. Returns the last reply to the
    /// client.
    fn settle(&mut self, mut results: impl Iterator<Item = Payload>) -> Option<Payload> {
        let mut reply = None;
        loop {
            self.poll_client(&mut reply);
            if !self.to_server.is_empty() {
                self.server.handle(self.now, Input::bytes(&*self.to_server));
                self.to_server.clear();
            }
            self.poll_server(&mut results);
            if self.to_client.is_empty() {
                return reply;
            }
            let input = Input::bytes(&*self.to_client);
            self.client.handle(self.now, self.epoch, input);
            self.to_client.clear();
        }
    }

    fn poll_client(&mut self, reply: &mut Option<Payload>) {
        while let Some(output) = self.client.poll_output(&mut self.to_server) {
            match output {
                Output::Event(Event::Done {
                    outcome: Outcome::Reply(result),
                    ..
                }) => *reply = Some(result),
                Output::Write { len, .. } => {
                    self.client.handle(self.now, self.epoch, Input::sent(len));
                }
                _ => {}
            }
        }
    }

    fn poll_server(&mut self, results: &mut impl Iterator<Item = Payload>) {
        while let Some(output) = self.server.poll_output(&mut self.to_client) {
            match output {
                Output::Event(server::Event::Request(request)) => {
                    if let Some(result) = results.next() {
                        let sent = self.server.respond(self.now, request.request, result);
                        sent.expect("the request is open");
                    }
                }
                Output::Write { len, .. } => self.server.handle(self.now, Input::sent(len)),
                _ => {}
            }
        }
    }
}
