//! The settings of a relay, with the reason for each default.

use alloc::boxed::Box;
use core::time::Duration;

use crate::client::CallOptions;
use crate::client::config::{Config as Upstream, Limit, Relayed};
use crate::protocol::ServerCapabilities;
use crate::protocol::watch::Watch;
use crate::server::{self, Limits, Offer, Peer, UnknownMethods};
use crate::util::Arc;

/// The size of the longest message that passes. 64 MiB: as large as anything that a host and a server send each other without a relay.
const MESSAGE_BYTES: usize = 64 << 20;

/// The settings of a relay.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The link to the server. The relay replaces its capabilities and its watch by those of the host.
    /// The constructor sets it, and raises the longest message and the queue to at least 64 MiB.
    pub upstream: Upstream,
    /// The end that serves the host. The relay replaces its offer by the server's, and its drain time by `drain` below. Default:
    /// [`server::Config::deferred`] with messages of 64 MiB, 100 rounds of asks, and [`UnknownMethods::Delivered`].
    pub downstream: server::Config,
    /// Whether the server sees the relay as its client, under the name in [`upstream`](Config::upstream). Default: no. The server sees the
    /// name of the host, and finds the relay's name in `_meta` under `everlink/via`.
    pub hides_host: bool,
    /// Whether the relay answers `server/discover` for a server that knows only `initialize`. Default: no. The host gets the server's
    /// refusal. A host that speaks both eras then falls back to `initialize`, and nothing has to be translated. Turn it on for a host that
    /// speaks only the modern era and sends `server/discover` first. A host that begins with another request is understood either way.
    pub answers_discover: bool,
    /// The offer that an earlier relay got from this same server, if it is known: see [`Event::offer`](super::Event::offer). A host gets
    /// this offer if the server is not ready after [`short_patience`](Config::short_patience). Default: `None`.
    pub remembered: Option<Offer>,
    /// How long a host waits for a starting server if nothing is remembered of it. Default: 55 s, because most hosts wait 60 s for
    /// `initialize`, and the download of a packaged server may take most of that. Then the host is offered nothing, its requests wait for the
    /// server, and it is notified of the lists that there are.
    pub patience: Duration,
    /// The same if an offer is remembered. Default: 3 s, because the least patient hosts in use wait for 5 s.
    pub short_patience: Duration,
    /// The timeouts of a call. Default: none, because the host has its own timeout and cancels. The relay asks the server for progress if
    /// the host asks for it.
    pub calls: CallOptions,
    /// How a tool call without a reply is answered. Default: [`LostCalls::AsResult`].
    pub lost_calls: LostCalls,
    /// Whether such an answer includes the server's latest standard error. Default: no, because a model or another host may read it, and
    /// its content is unknown. [`Event::Lost`](super::Event::Lost) has it.
    pub tells_stderr: bool,
    /// Whether all hosts get the server's log messages and other notifications that name no request, if there are several hosts (over
    /// HTTP). Default: no, because the hosts may belong to different people.
    pub shares_news: bool,
    /// Whether the relay takes part in the traces of its hosts (W3C Trace Context). Default: no. If set, each request of a host becomes a
    /// [`Event::Traced`](super::Event::Traced), and the server gets the relay's own span as `traceparent` in `_meta`, in place of the host's.
    pub traces: bool,
    /// How long requests in flight may take after the host closed its input or the relay was shut down. Default: `None`, which means 1 s
    /// for a host on a byte stream, because no one waits for the answers once it is gone. 15 s over HTTP, where other hosts wait.
    pub drain: Option<Duration>,
    /// How long the server may take to end after that, if the host is on a byte stream. Default: 3 s. So an idle server gets `SIGTERM` 2 s
    /// after the end of its input, as from hosts in use, and `SIGKILL` 1 s later. That is before such a host kills the relay, 4 s after it
    /// closed the stream. Over HTTP, the graces of [`upstream`](Config::upstream) apply.
    pub close: Duration,
}

impl Config {
    /// A relay to the server that `upstream` describes. `secret` seals the states of modern requests. Use random bytes if available, and
    /// share them with no other process.
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
                    // The host and the upstream link each have their own limit.
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
            traces: false,
            drain: None,
            close: Duration::from_secs(3),
        }
    }

    /// Sets the size of the longest message that passes, in either direction. Raises the limits that a single message could exceed on its
    /// own.
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

    /// How long requests in flight may take when the relay ends.
    pub(super) fn drain(&self) -> Duration {
        let default = if self.has_one_host() { 1 } else { 15 };
        self.drain.unwrap_or(Duration::from_secs(default))
    }

    /// Whether there is a single host, on a byte stream. The relay ends with it.
    pub(super) const fn has_one_host(&self) -> bool {
        self.downstream.http.is_none()
    }

    /// Whether a message of the server may go to all hosts, although it may be meant for one of them.
    pub(super) const fn may_tell_all(&self) -> bool {
        self.has_one_host() || self.shares_news
    }

    /// How many bytes may wait for the server before the relay stops reading from the single host. An eighth of the queue's limit, 8 MiB by
    /// default, so that input that was already read still fits.
    pub(super) const fn unsent_bytes(&self) -> usize {
        self.upstream.limits.queued_bytes / 8
    }

    /// The settings of the end that serves the host. Its drain time is 1 s longer than the relay's, because the relay knows better what
    /// became of a call.
    pub(super) fn server(&self) -> server::Config {
        server::Config {
            drain: self.drain() + Duration::from_secs(1),
            is_relayed: true,
            ..self.downstream.clone()
        }
    }

    /// The settings of the link to the server. Its log level is the one that a legacy host gets if it sets none.
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
            // Each host has its own limit. The open asks of one host must not prevent an ask to another.
            let limits = &mut upstream.limits;
            limits.asks = limits.asks.max(self.downstream.limits.requests);
        }
        upstream
    }

    /// The offer while nothing is known of the server: only lists, so that the host can be notified of changes later. Requests that the
    /// host sends anyway wait for the server.
    pub(super) fn empty_offer(&self) -> Offer {
        let lists = ServerCapabilities::default()
            .with_tools(true)
            .with_prompts(true)
            .with_resources(true, false);
        self.nameless_offer().with_capabilities(lists)
    }

    /// An offer of nothing, under the name of the relay.
    pub(super) fn nameless_offer(&self) -> Offer {
        let client = &self.upstream.client;
        Offer::new(client.name(), client.version())
    }

    /// The host as the server sees it.
    pub(super) fn shown(&self, peer: Arc<Peer>) -> Arc<Peer> {
        if !self.hides_host {
            return peer;
        }
        let mut shown = Peer::clone(&peer);
        shown.client = Some(self.upstream.client.clone());
        Arc::new(shown)
    }

    pub(super) fn answers_with_result(&self, is_tool_call: bool) -> bool {
        is_tool_call && self.lost_calls == LostCalls::AsResult
    }
}

/// How a tool call without a reply is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LostCalls {
    /// With a JSON-RPC error. Some clients take it for the end of the connection.
    AsError,
    /// With a tool result that is marked as an error. The model reads what happened, and whether the tool may have run.
    AsResult,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config::new(Upstream::child("relay", "1"), [7; 16])
    }

    /// Both ends of a relay know less than the host and the server, so they must not be stricter.
    #[test]
    fn host_may_send_what_the_relay_does_not_know() {
        let config = config();
        let server = config.server();
        assert_eq!(server.unknown_methods, UnknownMethods::Delivered);
        assert_eq!(server.limits.message_bytes, MESSAGE_BYTES);
        assert!(config.upstream.limits.message_bytes >= MESSAGE_BYTES);
        assert!(server.limits.input_rounds > config.upstream.limits.input_rounds);
        assert_eq!(server.drain, config.drain() + Duration::from_secs(1));
    }

    #[test]
    fn only_a_single_host_gets_all_that_the_server_says_unless_it_is_shared() {
        let one = config();
        assert!(one.may_tell_all());
        let mut several = config();
        several.downstream.http = Some(server::Http::new());
        assert!(!several.may_tell_all());
        several.shares_news = true;
        assert!(several.may_tell_all());
    }

    #[test]
    fn lost_call_is_answered_with_a_result_only_if_it_is_of_a_tool_and_so_configured() {
        let mut config = config();
        assert!(config.answers_with_result(true));
        assert!(!config.answers_with_result(false));
        config.lost_calls = LostCalls::AsError;
        assert!(!config.answers_with_result(true));
    }
}
