//! Everything that can be chosen about a relay, with the reason beside each default. Knows nothing of how it is used.

use alloc::boxed::Box;
use core::time::Duration;

use crate::client::CallOptions;
use crate::config::{Config as Upstream, Limit, Relayed};
use crate::protocol::ServerCapabilities;
use crate::server::{self, Limits, Offer, UnknownMethods};
use crate::watch::Watch;

/// The longest message that passes. 64 MiB: whatever a host and a server send each other without a relay.
const MESSAGE_BYTES: usize = 64 << 20;

/// How a relay is set up.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The link to the server behind. What it declares and watches is what the client in front declares and watches.
    pub upstream: Upstream,
    /// The end that serves the client in front. What it offers is what the server behind offers; how long it drains is said below.
    pub downstream: server::Config,
    /// Whether the server behind sees the relay as its client, under the name in [`upstream`](Config::upstream). No: it sees the client in front, and
    /// finds the name of the relay beside it, in `_meta` under `everlink/via`.
    pub hides_host: bool,
    /// Whether `server/discover` is answered for a server that knows only `initialize`. No: the client in front is refused as the server refuses it,
    /// and one that speaks both eras falls back to `initialize`, so that nothing need be translated. A client that speaks only the modern era and asks
    /// `server/discover` first needs it; one that begins with another request is understood either way.
    pub answers_discover: bool,
    /// What an earlier relay was told by this same server, if that is known: see [`Event::offer`](super::Event::offer). It is offered to a client in
    /// front that has waited for [`short_patience`](Config::short_patience).
    pub remembered: Option<Offer>,
    /// How long a client in front waits for a server that is starting when nothing is remembered of it. 55 s: most hosts wait 60 s for
    /// `initialize`, and a packaged server that is downloaded first may take most of that. Then it is offered empty lists, and told when there is more.
    pub patience: Duration,
    /// The same when something is remembered. 3 s: the least patient hosts in use wait for 5 s.
    pub short_patience: Duration,
    /// How long a call may take. There is no limit: the client in front has patience of its own and says when it is over. Progress is asked for where
    /// that client asks for it.
    pub calls: CallOptions,
    /// How a tool call is answered that has no reply.
    pub lost_calls: LostCalls,
    /// Whether an answer in the place of a reply has the last of what the server wrote to standard error. No: a model may read it, or
    /// another client in front, and nobody knows what stands there. [`Event::Lost`](super::Event::Lost) has it.
    pub tells_stderr: bool,
    /// Whether log messages and other notifications of the server behind, of which nobody can tell for whom they were made, go to all clients
    /// in front where these are many, over HTTP. No: they may be of different people.
    pub shares_news: bool,
    /// How long the requests in flight may take when the client in front says no more, or the relay is shut down. `None`: 1 s in front of a byte
    /// stream, since nobody waits for the answers of a host that is gone; 15 s over HTTP, where others do.
    pub drain: Option<Duration>,
    /// How long the server behind may take to end after that, in front of a byte stream. 1 s: hosts in use send `SIGTERM` 2 s after they closed the
    /// stream, and kill after 2 s more. Over HTTP it has the time that [`upstream`](Config::upstream) gives it.
    pub close: Duration,
}

impl Config {
    /// A relay to a server that is reached like this. `secret` is what the states of modern requests are sealed
    /// with: random bytes where there is randomness, of this process alone.
    #[must_use]
    pub fn new(mut upstream: Upstream, secret: [u8; 16]) -> Config {
        let limits = &mut upstream.limits;
        limits.message_bytes = limits.message_bytes.max(MESSAGE_BYTES);
        limits.queued_bytes = limits.queued_bytes.max(MESSAGE_BYTES);
        Config {
            upstream,
            downstream: server::Config {
                unknown_methods: UnknownMethods::Delivered,
                limits: Limits {
                    message_bytes: MESSAGE_BYTES,
                    // Both the client in front and the link to the server behind have a bound of their own.
                    input_rounds: 100,
                    ..Limits::default()
                },
                ..server::Config::deferred(secret)
            },
            hides_host: false,
            answers_discover: false,
            remembered: None,
            patience: Duration::from_secs(55),
            short_patience: Duration::from_secs(3),
            calls: CallOptions::new()
                .with_idle(Limit::Never)
                .with_total(Limit::Never),
            lost_calls: LostCalls::AsResult,
            tells_stderr: false,
            shares_news: false,
            drain: None,
            close: Duration::from_secs(1),
        }
    }

    /// With this as the longest message that passes, in either direction. Limits that a single message could exceed on its own are raised to it.
    #[must_use]
    pub fn with_message_bytes(mut self, bytes: usize) -> Config {
        let upstream = &mut self.upstream.limits;
        upstream.message_bytes = bytes;
        upstream.unfinished_bytes = upstream.unfinished_bytes.max(bytes);
        let downstream = &mut self.downstream.limits;
        downstream.message_bytes = bytes;
        downstream.all_queued_bytes = downstream.all_queued_bytes.max(bytes);
        self
    }

    /// How long the requests in flight may take at the end.
    pub(super) fn drain(&self) -> Duration {
        let default = if self.has_one_host() { 1 } else { 15 };
        self.drain.unwrap_or(Duration::from_secs(default))
    }

    /// Whether there is one client in front, at a byte stream, and all is over with it.
    pub(super) const fn has_one_host(&self) -> bool {
        self.downstream.http.is_none()
    }

    /// How much may wait for the server behind before the one client in front is read no further. An eighth of what may wait at all, 8 MiB: what
    /// was read already has room.
    pub(super) const fn unsent_bytes(&self) -> usize {
        self.upstream.limits.queued_bytes / 8
    }

    /// The end that serves the client in front. It has a bit longer than the relay, which knows better what became of a call.
    pub(super) fn server(&self) -> server::Config {
        server::Config {
            drain: self.drain() + Duration::from_secs(1),
            is_relayed: true,
            ..self.downstream.clone()
        }
    }

    /// The link to the server behind. It hears what a legacy client in front would hear that chose no level.
    pub(super) fn client(&self) -> Upstream {
        let mut upstream = self.upstream.clone();
        upstream.unasked_logs = Some(self.downstream.log_level);
        upstream.watch = Watch::none();
        upstream.relayed = Some(Box::new(Relayed {
            introduction: None,
            via: (!self.hides_host).then(|| upstream.client.clone()),
            has_many_clients: !self.has_one_host(),
            passes_refusals: !self.answers_discover,
        }));
        if self.downstream.http.is_some() {
            // Each client in front has a bound of its own: the questions that one leaves open are no reason not to ask another.
            let limits = &mut upstream.limits;
            limits.asks = limits.asks.max(self.downstream.limits.requests);
        }
        upstream
    }

    /// What is offered while nothing is known of the server behind: lists, so that it can be told later that they changed, and nothing else. What a
    /// client in front asks for all the same waits for the server.
    pub(super) fn empty_offer(&self) -> Offer {
        let lists = ServerCapabilities::default()
            .with_tools(true)
            .with_prompts(true)
            .with_resources(true, false);
        self.nameless_offer().with_capabilities(lists)
    }

    /// An offer of nothing, in the name of the relay.
    pub(super) fn nameless_offer(&self) -> Offer {
        let client = &self.upstream.client;
        Offer::new(client.name(), client.version())
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
