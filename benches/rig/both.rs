//! Both ends of a link that is ready, for whatever measures them together. Measures nothing itself.

use everlink::client::{CallOptions, Event, Outcome, State};
use everlink::protocol::{Era, ServerCapabilities};
use everlink::server::{self, Offer};
use everlink::{Config, Dialect, Payload};
use exercise::Pair;

use super::params;

/// A client and a server with tools, joined in memory.
pub(crate) struct Both {
    pair: Pair,
}

impl Both {
    /// Two ends that agreed on the newest version of this era.
    pub(crate) fn ready(era: Era) -> Both {
        let mut client = Config::child("measured", "1.0");
        client.dialect = match era {
            Era::Legacy => Dialect::Legacy,
            Era::Modern => Dialect::Modern,
            _ => unreachable!("there are two eras"),
        };
        let tools = ServerCapabilities::default().with_tools(false);
        let offer = Offer::new("measured", "1.0").with_capabilities(tools);
        let mut pair = Pair::new(client, server::Config::new(offer, [7; 16]));
        let (client, now) = pair.client();
        client.connect(now);
        pair.play(|_, _, _| {}, |_, _, _| {});
        assert_eq!(pair.client().0.state(), State::Ready);
        Both { pair }
    }

    /// A call from one application to the other and back.
    pub(crate) fn round_trip(&mut self, params: Payload, result: Payload) -> Payload {
        self.call(params);
        let (mut result, mut reply) = (Some(result), None);
        self.pair.play(
            |_, _, event| {
                if let Event::Done {
                    outcome: Outcome::Reply(result),
                    ..
                } = event
                {
                    reply = Some(result);
                }
            },
            |server, now, event| {
                if let server::Event::Request(request) = event {
                    let result = result.take().expect("there is one request");
                    let given = server.respond(now, request.request, result);
                    given.expect("the request is open");
                }
            },
        );
        reply.expect("the call is done")
    }

    /// Puts calls in flight that the server's application is at work on.
    pub(crate) fn fly(&mut self, calls: usize) {
        for _ in 0..calls {
            self.call(params());
            self.pair.serve(|_, _, _| {});
        }
    }

    fn call(&mut self, params: Payload) {
        let (client, now) = self.pair.client();
        let options = CallOptions::new();
        let call = client.call(now, "tools/call", Some(params), options);
        call.expect("there is room for a call");
    }
}
