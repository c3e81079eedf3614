//! The client end as a relay uses it: with the functions that no other application needs.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use core::ops::{Deref, DerefMut};
use core::time::Duration;

use super::config::Config;
use super::lifecycle::table::State;
use super::requests::admission::check_request;
use super::requests::calls::Call;
use super::requests::deadlines::Clock;
use super::{Behalf, CallOptions, Client, Delivery, Misuse};
use crate::driver::{AskId, CallId, Instant};
use crate::json::Payload;
use crate::protocol::watch::Setting;
use crate::protocol::{Implementation, Version};
use crate::wire::ErrorObject;

/// The link of a relay to its server: a client that speaks for the clients in front of the relay.
pub(crate) struct RelayLink(Client);

impl RelayLink {
    pub(crate) fn new(config: Config) -> RelayLink {
        RelayLink(Client::new(config))
    }

    pub(crate) const fn client(&self) -> &Client {
        &self.0
    }
}

impl Deref for RelayLink {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.0
    }
}

impl DerefMut for RelayLink {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.0
    }
}

/// The life of the link.
impl RelayLink {
    /// Starts an idle link, and a parked one at the pace of calls. Returns whether the link is ready or may become ready.
    pub(crate) fn look(&mut self, now: Instant) -> bool {
        self.0.step(now, |client| {
            match client.lifecycle.state() {
                State::Idle => client.attempt(),
                State::Parked if client.lifecycle.may_attempt_for_call(client.cx.now) => {
                    client.attempt();
                }
                State::Parked => return client.lifecycle.attempts_soon(&client.cx),
                State::Closed => return false,
                State::Opening
                | State::Handshaking
                | State::Ready
                | State::Draining
                | State::Closing
                | State::Waiting => {}
            }
            true
        })
    }

    /// Like [`shutdown`](Client::shutdown), but closes the server's input first and gives calls in flight up to `grace` to be answered. Call it only
    /// if [`can_finish`](RelayLink::can_finish).
    pub(crate) fn finish(&mut self, now: Instant, grace: Duration) {
        self.0.step(now, |client| client.close_input(grace));
    }

    /// Whether every request is written and the server's input is still open.
    pub(crate) fn can_finish(&self) -> bool {
        let is_idle = self.0.cx.frames.len() == 0 && !self.0.requests.has_waiting();
        !self.0.lifecycle.is_shutting_down()
            && self.0.lifecycle.state() == State::Ready
            && self.0.binding.can_close_input()
            && is_idle
            && self.0.asks.len() == 0
    }

    /// Sets the deadline by which the transport must be gone when the link shuts down. Only the first deadline counts.
    pub(crate) fn end_by(&mut self, by: Instant) {
        self.0.lifecycle.end_by(by);
    }
}

/// The clients in front of the relay.
impl RelayLink {
    /// Makes the link speak for this client of a relay: in its version, if the server has it too, and under its name. The version applies from the
    /// next handshake on.
    ///
    /// `introduction` is the client's own `initialize`, which is passed on unchanged.
    pub(crate) fn speak_for(
        &mut self,
        now: Instant,
        name: Option<&Implementation>,
        version: Version,
        introduction: Option<Payload>,
    ) {
        self.0.step(now, |client| {
            client.session.handshake().prefer(version);
            let is_spoken = client.cx.config.versions.contains(version);
            if let Some(relayed) = &mut client.cx.config.relayed {
                relayed.introduction = introduction.filter(|_| is_spoken);
            }
            let other = name.filter(|name| **name != client.cx.config.client);
            if let Some(name) = other {
                client.cx.config.client = name.clone();
                if let Some(version) = client.session.version() {
                    let logs = client.catalog.wanted_logs(&client.cx.config);
                    client.session.speak(&client.cx.config, version, logs);
                }
            }
        });
    }

    /// Whether the link waits for the `initialize` of the relay's client, because the server refused `server/discover`.
    pub(crate) fn is_held(&self) -> bool {
        self.0.session.known().is_held()
    }

    /// Sends the `initialize` that waits for the relay's client.
    pub(crate) fn introduce(&mut self, now: Instant) {
        self.0.step(now, |client| {
            client.send_held_initialize();
        });
    }

    /// The error with which the server refuses `server/discover`, if it is known to refuse it.
    pub(crate) fn refusal(&self) -> Option<&ErrorObject> {
        self.0.session.known().refusal()
    }

    /// The preferred version and the one that the server chose, if both are of the same era.
    pub(crate) fn bargain(&self) -> Option<(Version, Version)> {
        let (asked, chosen) = (
            self.0.session.known().preferred()?,
            self.0.session.version()?,
        );
        (chosen.era() == asked.era()).then_some((asked, chosen))
    }

    /// Records a setting that the server accepted from the relay's client, so that later servers are asked for it too.
    pub(crate) fn settle_setting(&mut self, setting: &Setting) {
        self.0.catalog.settle_setting(setting);
    }
}

/// Calls and asks that the relay passes on.
impl RelayLink {
    /// The bytes that wait to be sent.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.0.requests.unsent_bytes(&self.0.cx)
    }

    /// Whether a client in front of the relay may add a call of `bytes` to its own calls.
    pub(crate) fn has_share(&self, own: impl Iterator<Item = CallId>, bytes: usize) -> bool {
        self.0.requests.has_share(&self.0.cx, own, bytes)
    }

    /// Whether the server may have acted on a call. `None` if the call has its outcome.
    pub(crate) fn delivery_of(&self, call: CallId) -> Option<Delivery> {
        self.0.requests.call(call).map(Call::delivery)
    }

    /// The key under which a modern server expects the answer to an ask.
    pub(crate) fn key_of(&self, ask: AskId) -> Option<&str> {
        self.0.asks.key_of(ask)
    }

    /// Like [`call`](Client::call), but on behalf of a client in front of the relay, which declares its own capabilities. In the legacy era,
    /// capabilities are declared only once, in the handshake.
    pub(crate) fn call_for(
        &mut self,
        now: Instant,
        method: Cow<'static, str>,
        params: Option<Payload>,
        options: CallOptions,
        behalf: Box<Behalf>,
    ) -> Result<CallId, Misuse> {
        let facts = check_request(&method, true)?;
        self.0.step(now, |client| {
            let clock = Clock::new(client.cx.now, &options, &client.cx.config.policy);
            let mut call = Call::with_params(method, facts, params, options, clock)?;
            call.speak_for(behalf);
            client.accept(call)
        })
    }
}
