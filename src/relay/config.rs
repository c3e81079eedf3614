//! Everything that can be chosen about a relay, with the reason beside each default. Knows nothing of how it is used.

use core::time::Duration;

use crate::client::CallOptions;
use crate::config::{Config as Upstream, Limit};
use crate::protocol::ServerCapabilities;
use crate::server::{self, Limits, Offer, UnknownMethods};

/// How a relay is set up.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The link to the server behind. What it declares and watches is what the client in front declares and watches.
    pub upstream: Upstream,
    /// The end that serves the client in front. What it offers is what the server behind offers; how long it drains is said below.
    pub downstream: server::Config,
    /// What is offered to a client in front that has waited for so long for the server behind to be ready: everything,
    /// since nothing is known. What the server turns out not to have is refused then.
    pub fallback: Offer,
    /// How long a client in front waits to hear what is offered. 10 s: less than clients wait for a handshake.
    pub patience: Duration,
    /// How long a call may take: 5 min without a sign of progress, one hour in all. The client in front has patience of its own and says when
    /// it is over; this is for one that never does. Progress is asked for always, since it is a sign of life.
    pub calls: CallOptions,
    /// How a tool call is answered that has no reply.
    pub lost_calls: LostCalls,
    /// Whether an answer in the place of a reply has the last of what the server wrote to standard error. No: a model may read it, or
    /// another client in front, and nobody knows what stands there. [`Event::Lost`](super::Event::Lost) has it.
    pub tells_stderr: bool,
    /// Whether log messages and other notifications of the server behind, of which nobody can tell for whom they were made, go to all clients
    /// in front where these are many, over HTTP. No: they may be of different people.
    pub shares_news: bool,
    /// How long the requests in flight may take when the client in front says no more, or the relay is shut down. 15 s: enough
    /// for a server that is just starting.
    pub drain: Duration,
}

impl Config {
    /// A relay to a server that is reached like this. `secret` is what the states of modern requests are sealed
    /// with: random bytes where there is randomness, of this process alone.
    #[must_use]
    pub fn new(upstream: Upstream, secret: [u8; 16]) -> Config {
        let everything = ServerCapabilities::default()
            .with_tools(true)
            .with_prompts(true)
            .with_resources(true, true)
            .with_completions()
            .with_logging();
        let (name, version) = (upstream.client.name(), upstream.client.version());
        Config {
            fallback: Offer::new(name, version).with_capabilities(everything),
            upstream,
            downstream: server::Config {
                unknown_methods: UnknownMethods::Delivered,
                limits: Limits {
                    // Both the client in front and the link to the server behind have a bound of their own.
                    input_rounds: 100,
                    ..Limits::default()
                },
                ..server::Config::deferred(secret)
            },
            patience: Duration::from_secs(10),
            calls: CallOptions::new()
                .with_idle(Limit::After(Duration::from_secs(300)))
                .with_total(Limit::After(Duration::from_secs(3_600))),
            lost_calls: LostCalls::AsResult,
            tells_stderr: false,
            shares_news: false,
            drain: Duration::from_secs(15),
        }
    }

    /// The end that serves the client in front. It has a bit longer than the relay, which knows better what became of a call.
    pub(super) fn server(&self) -> server::Config {
        server::Config {
            drain: self.drain + Duration::from_secs(1),
            ..self.downstream.clone()
        }
    }

    /// The link to the server behind. It hears what a legacy client in front would hear that chose no level.
    pub(super) fn client(&self) -> Upstream {
        let mut upstream = self.upstream.clone();
        upstream.unasked_logs = Some(self.downstream.log_level);
        if self.downstream.http.is_some() {
            // Each client in front has a bound of its own: the questions that one leaves open are no reason not to ask another.
            let limits = &mut upstream.limits;
            limits.asks = limits.asks.max(self.downstream.limits.requests);
        }
        upstream
    }

    pub(super) fn answers_with_result(&self, is_tool_call: bool) -> bool {
        is_tool_call && self.lost_calls == LostCalls::AsResult
    }
}

/// How a tool call is answered that has no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LostCalls {
    /// With an error of JSON-RPC. Some clients take it for the end of the connection.
    AsError,
    /// With a result that says to be an error: the model reads what happened, and whether the tool may have run.
    AsResult,
}
