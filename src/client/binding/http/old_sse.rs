//! The HTTP+SSE transport of 2024-11-05: one stream for everything from the server, and a URL for messages that the stream names (S-HTTP-41).

use alloc::boxed::Box;
use alloc::format;
use core::time::Duration;

use super::exchange::{Exchange, ExchangeKind};
use super::{Facts, Heard, HttpBinding, Load};
use crate::client::config::Policy;
use crate::client::context::{Context, Timer};
use crate::client::failure::Cause;
use crate::driver::Fault;
use crate::http::Url;

/// The transport for messages.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Transport {
    /// The 2024-11-05 HTTP+SSE transport: one stream for everything from the server.
    OldSse {
        /// Why this transport is tried.
        why: Box<str>,
        /// Whether a missing reply is the only reason to try it.
        is_guess: bool,
        /// The URL for messages, once the server has named it.
        posts: Option<Url>,
    },
    /// The Streamable HTTP transport: one exchange for each message.
    Streamable,
}

impl Transport {
    pub(super) const fn is_streamable(&self) -> bool {
        matches!(self, Transport::Streamable)
    }

    /// Whether everything from the server comes on the stream of the 2024-11-05 transport.
    pub(super) const fn is_old_sse(&self) -> bool {
        matches!(self, Transport::OldSse { posts: Some(_), .. })
    }

    /// Whether the URL for messages is known.
    pub(super) const fn has_endpoint(&self) -> bool {
        !matches!(self, Transport::OldSse { posts: None, .. })
    }
}

impl HttpBinding {
    pub(in crate::client::binding) fn try_old_sse(
        &mut self,
        cx: &mut Context,
        why: Box<str>,
        is_guess: bool,
    ) {
        self.transport = Transport::OldSse {
            why,
            is_guess,
            posts: None,
        };
        cx.arm_in(Timer::Endpoint, self.settings.endpoint_timeout);
        self.begin_now(Exchange::new(ExchangeKind::OldStream, Load::None));
    }

    /// Handles the URL for messages from the server (S-SSE-05).
    pub(super) fn endpoint(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        reference: &str,
    ) -> Heard<'static> {
        if self.transport.is_old_sse() {
            return Heard::Nothing;
        }
        let url = self.url.resolve(reference.trim()).ok();
        let url = url.filter(|url| url.is_same_origin(&self.url));
        let is_set = url.is_some();
        if let Transport::OldSse { posts, .. } = &mut self.transport {
            *posts = url;
        }
        if !is_set || self.transport.is_streamable() {
            let why = "the place for messages is not one of the same server";
            return self.old_sse_failed(cx, facts, why);
        }
        self.prefers_old_sse = true;
        cx.timers.disarm(Timer::Endpoint);
        Heard::Endpoint
    }

    /// Handles a failure of this transport. Both reasons are reported. If a missing reply was the only reason to try it, that reply may still come.
    pub(in crate::client::binding) fn old_sse_failed(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        why: &str,
    ) -> Heard<'static> {
        self.prefers_old_sse = false;
        let (said, is_guess) = match &self.transport {
            Transport::OldSse { why, is_guess, .. } => (why, *is_guess),
            Transport::Streamable => return Heard::Nothing,
        };
        let both = format!("{said}; nor is it behind the transport of 2024-11-05: {why}");
        self.close_old_stream(cx, facts);
        if is_guess {
            cx.timers.disarm(Timer::Endpoint);
            self.transport = Transport::Streamable;
            Heard::Nothing
        } else {
            Heard::NoEndpoint(both.into())
        }
    }

    /// Closes the stream of this transport, if it is open.
    pub(super) fn close_old_stream(&mut self, cx: &mut Context, facts: Facts<'_>) {
        let is_old = |exchange: &Exchange| matches!(exchange.kind, ExchangeKind::OldStream);
        if let Some(stream) = self.exchanges.any(is_old) {
            self.abort(cx, stream);
            self.take_exchange(cx, facts, stream);
        }
    }

    /// Handles a missing `endpoint` event, or a missing reply to `initialize`.
    pub(in crate::client::binding) fn endpoint_overdue(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
    ) -> Heard<'static> {
        match &self.transport {
            Transport::OldSse { posts: None, .. } => {
                self.old_sse_failed(cx, facts, "it did not say in time where messages go")
            }
            Transport::Streamable => {
                self.try_old_sse(cx, "`initialize` was not answered".into(), true);
                Heard::Nothing
            }
            Transport::OldSse { .. } => Heard::Nothing,
        }
    }

    /// Handles the end of the only stream, which ends the connection (S-SSE-06).
    pub(super) fn old_stream_ended<'r>(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        faults: &'r [Fault],
    ) -> Heard<'r> {
        let heard = if self.transport.is_old_sse() {
            Heard::TakeDown(Cause::Died)
        } else {
            let why = "the stream ended before it said where messages go";
            self.old_sse_failed(cx, facts, why)
        };
        Heard::Faulty(faults, Box::new(heard))
    }

    pub(in crate::client::binding) const fn falls_back(&self, status: u16) -> bool {
        self.settings.falls_back && status >= 400 && self.transport.is_streamable()
    }

    pub(in crate::client::binding) fn initialize_patience(
        &self,
        policy: &Policy,
    ) -> Option<Duration> {
        let patience = policy.handshake_timeout / 2;
        self.settings.falls_back.then_some(patience)
    }

    pub(in crate::client::binding) fn endpoint_patience(
        &self,
        policy: &Policy,
    ) -> Option<Duration> {
        let patience = if self.transport.is_streamable() {
            policy.handshake_timeout / 2
        } else {
            self.settings.endpoint_timeout
        };
        self.settings.falls_back.then_some(patience)
    }
}
