//! Credentials over HTTP: the application is asked for them once, for all requests that wait.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::exchange::{Exchange, ExchangeKind};
use super::listen_stream::ListenCue;
use super::{Challenged, Facts, Heard, HttpBinding, Load, Returned, Unauthorized};
use crate::client::context::{Context, Timer};
use crate::client::event::{Challenge, Event};
use crate::client::failure::Cause;
use crate::client::lifecycle::table::State;
use crate::driver::StreamId;
use crate::http::{Fields, names};

/// The number of bytes of a challenge that are reported.
const CHALLENGE_BYTES: usize = 4 << 10;

/// Whether the server wants other credentials.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Credentials {
    /// Whether the application was asked for credentials.
    is_pending: bool,
    /// Whether the application said that there are none. Then it is asked again only for calls.
    is_denied: bool,
    /// How often the application gave credentials.
    count: u64,
}

impl Credentials {
    pub(super) const fn is_pending(self) -> bool {
        self.is_pending
    }

    pub(super) const fn count(self) -> u64 {
        self.count
    }

    /// Ends the epoch.
    pub(super) fn end(&mut self) {
        self.is_pending = false;
    }
}

impl HttpBinding {
    /// Handles a server that wants other credentials (S-AUTH-08). The request was not run, and nothing is sent until there are new credentials.
    pub(super) fn unauthorized(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        stream: StreamId,
        status: u16,
        fields: &Fields<'_>,
    ) -> Heard<'static> {
        let Some(exchange) = self.spend_exchange(cx, facts, stream) else {
            return Heard::Nothing;
        };
        let challenge = Challenged {
            status,
            demands: demands(fields),
            credentials: exchange.credentials,
        };
        match exchange.kind {
            // No call needs this stream, so the application is not asked. If the stream worked before, it is tried again, because somebody may renew
            // the credentials anyway.
            ExchangeKind::Listen if exchange.resume.was_open => {
                let heard = self.stream_failed(cx, facts, exchange);
                if !self.is_listening() {
                    // It was given up. New credentials open it again.
                    self.listen.step(ListenCue::Unauthorized);
                }
                heard
            }
            ExchangeKind::Listen => self.stop_listening(cx, facts, ListenCue::Unauthorized),
            ExchangeKind::DeleteSession(..) => Heard::Gone,
            ExchangeKind::Spent => Heard::Nothing,
            ExchangeKind::OldStream | ExchangeKind::Resume(_) => {
                self.stream_unauthorized(cx, facts, exchange, challenge)
            }
            ExchangeKind::Message | ExchangeKind::Request(_) => {
                let is_asked = self.is_asked_for(facts, &exchange);
                Heard::Unauthorized(Box::new(Unauthorized {
                    returned: Returned {
                        wire: exchange.wire(),
                        load: exchange.load,
                        status,
                        // A server that denies access has not read the message.
                        is_unread: true,
                        said: None,
                    },
                    is_asked,
                    challenge,
                }))
            }
        }
    }

    /// Handles the refusal of a stream that a request needs. It is requested again with other credentials, but not for ever.
    fn stream_unauthorized(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        mut exchange: Exchange,
        challenge: Challenged,
    ) -> Heard<'static> {
        exchange.resume.refusals += 1;
        if exchange.resume.refusals > cx.config.policy.resends {
            if let ExchangeKind::OldStream = exchange.kind {
                return Heard::TakeDown(Cause::Unauthorized);
            }
            let why = "it does not take the credentials that there are";
            return self.give_up_stream(cx, facts, &exchange.kind, why);
        }
        let again = Exchange::following(exchange.kind, exchange.resume);
        self.begin_in(cx, self.settings.linger, again);
        if self.ask_credentials(cx, facts, challenge) {
            Heard::CredentialsAsked
        } else {
            Heard::Nothing
        }
    }

    /// Whether the application is asked for credentials for this exchange: always, until it has said that there are none. Then only for calls.
    fn is_asked_for(&self, facts: Facts<'_>, exchange: &Exchange) -> bool {
        let is_call = matches!(exchange.load, Load::Call(_));
        let is_wanted = facts.state == State::Handshaking && facts.requests.queued() > 0;
        !self.credentials.is_denied || is_call || is_wanted
    }

    pub(in crate::client::binding) fn ask_credentials(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        challenge: Challenged,
    ) -> bool {
        // Newer credentials may have come since the request began. Then the application is not asked again.
        let is_old = challenge.credentials < self.credentials.count;
        let Some(epoch) = self.epoch.filter(|_| facts.state.is_in_touch()) else {
            return false;
        };
        if self.credentials.is_pending || is_old {
            return false;
        }
        self.credentials.is_pending = true;
        self.credentials.is_denied = false;
        for timer in Timer::OF_HANDSHAKE {
            cx.timers.disarm(timer);
        }
        cx.arm_in(Timer::Auth, self.settings.auth_timeout);
        cx.tell(Event::AuthRequired(Challenge {
            epoch,
            status: challenge.status,
            demands: challenge.demands,
        }));
        true
    }

    pub(in crate::client::binding) fn authorized(&mut self, cx: &mut Context) -> bool {
        self.credentials.count += 1;
        self.credentials.is_denied = false;
        let was_asked = self.credentials.is_pending;
        if was_asked {
            self.stop_awaiting_credentials(cx);
        }
        was_asked
    }

    pub(in crate::client::binding) fn denied(&mut self, cx: &mut Context) -> bool {
        if !self.credentials.is_pending {
            return false;
        }
        self.credentials.is_denied = true;
        self.stop_awaiting_credentials(cx);
        true
    }

    fn stop_awaiting_credentials(&mut self, cx: &mut Context) {
        self.credentials.is_pending = false;
        cx.timers.disarm(Timer::Auth);
    }

    pub(in crate::client::binding) const fn awaits_credentials(&self) -> bool {
        self.credentials.is_pending
    }

    pub(in crate::client::binding) fn forget_denial(&mut self) {
        self.credentials.is_denied = false;
    }
}

/// The `WWW-Authenticate` fields of a response, up to `CHALLENGE_BYTES`.
fn demands(fields: &Fields<'_>) -> Vec<Box<str>> {
    let mut room = CHALLENGE_BYTES;
    let all = fields.all(names::WWW_AUTHENTICATE);
    let texts = all.filter_map(|value| core::str::from_utf8(value).ok());
    let fitting = texts.take_while(|text| {
        let fits = text.len() <= room;
        room -= if fits { text.len() } else { 0 };
        fits
    });
    fitting.map(Into::into).collect()
}
