//! Handles credentials over HTTP: asks the application for them once, for all requests that wait, and continues or fails those requests.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::calls::Phase;
use super::errand::Errand;
use super::event::{Challenge, Event};
use super::failure::{Cause, FailureKind};
use super::frame::Frame;
use super::http::{Exchange, Listen, Load, Purpose};
use super::lifecycle::State;
use super::{Client, Timer};
use crate::driver::{CallId, StreamId};
use crate::http::{Fields, names};
use crate::protocol::watch::List;

/// The number of bytes of a challenge that are reported.
const CHALLENGE_BYTES: usize = 4 << 10;

impl Client {
    /// Handles a server that wants other credentials (S-AUTH-08). The request was not run, and nothing is sent until there are new credentials.
    pub(super) fn unauthorized(&mut self, stream: StreamId, status: u16, fields: &Fields<'_>) {
        let Some(exchange) = self.spend_exchange(stream) else {
            return;
        };
        let credentials = exchange.credentials;
        let is_calling = self.is_called_for(&exchange);
        let kind = FailureKind::Unauthorized { why: None };
        let waits = match exchange.purpose {
            // No call needs this stream, so the application is not asked. If the stream worked before, it is tried again, because somebody may renew
            // the credentials anyway.
            Purpose::Listen if exchange.thread.was_had => {
                self.stream_failed(exchange);
                false
            }
            Purpose::Listen => {
                self.stop_listening(Listen::Unauthorized);
                false
            }
            Purpose::Farewell(..) => {
                self.bury_if_gone();
                false
            }
            Purpose::Spent => false,
            Purpose::Message | Purpose::Request(_) if !is_calling => {
                self.without_credentials(exchange);
                false
            }
            Purpose::Old | Purpose::Resume(_) => self.stream_refused(exchange),
            // A server that denies access has not read the message.
            Purpose::Message | Purpose::Request(_) => self.turn_back(exchange, true, &kind),
        };
        let Some(web) = self.web.as_mut().filter(|_| self.state.is_in_touch()) else {
            return;
        };
        // Newer credentials have come since this request began, so the application is not asked again.
        if !waits || web.auth.is_pending || credentials < web.auth.given {
            return;
        }
        web.auth.is_pending = true;
        web.auth.is_denied = false;
        for timer in Timer::OF_HANDSHAKE {
            self.timers.disarm(timer);
        }
        if let Some(http) = &self.config.http {
            self.arm_in(Timer::Auth, http.auth_timeout);
        }
        for call in self.calls.freeze(true, self.now) {
            self.arm_call(call);
        }
        self.tell(Event::AuthRequired(Challenge {
            epoch: self.epoch,
            status,
            demands: demands(fields),
        }));
    }

    /// Handles the refusal of a stream that a request needs. Returns whether it is requested again with other credentials.
    fn stream_refused(&mut self, mut exchange: Exchange) -> bool {
        exchange.thread.refusals += 1;
        if exchange.thread.refusals > self.config.policy.resends {
            if let Purpose::Old = exchange.purpose {
                self.down(Cause::Unauthorized);
            } else {
                let why = "it does not take the credentials that there are";
                self.no_stream_for(exchange.purpose, why);
            }
            return false;
        }
        let again = Exchange::following(exchange.purpose, exchange.thread);
        self.begin_in(self.linger(), again);
        true
    }

    /// Whether the application is asked for credentials for this exchange: always, until it has said that there are none. Then only for calls.
    fn is_called_for(&self, exchange: &Exchange) -> bool {
        let is_denied = self.web.as_ref().is_some_and(|web| web.auth.is_denied);
        let is_call = matches!(exchange.load, Load::Call(_));
        !is_denied || is_call || (self.state == State::Handshaking && self.calls.queued() > 0)
    }

    /// Fails a message of the link itself, without asking the application.
    fn without_credentials(&mut self, exchange: Exchange) {
        match exchange.wire() {
            Some(wire) if self.is_of_handshake(wire) => self.down(Cause::Unauthorized),
            Some(wire) => self.no_reply(wire, FailureKind::Unauthorized { why: None }),
            None if exchange.ends_handshake() => self.down(Cause::Unauthorized),
            None => {}
        }
    }

    /// Handles new credentials: everything continues.
    pub(super) fn credentials_given(&mut self) {
        let Some(web) = self.web.as_mut().filter(|web| web.auth.is_pending) else {
            self.forget_denial();
            if let State::Parked | State::Waiting = self.state {
                self.attempt();
            }
            return;
        };
        web.auth.given += 1;
        // S-CACHE-08: a list may differ under other credentials.
        for list in List::ALL {
            self.catalog.changed(list);
        }
        let (listen, is_old) = (web.listen, !web.is_streamable());
        self.thaw();
        if self.state == State::Handshaking {
            let policy = &self.config.policy;
            let (whole, notice) = (policy.handshake_timeout, policy.handshake_notice);
            let probe = self.probe_patience();
            self.arm_in(Timer::Handshake, whole);
            self.arm_in(Timer::Notice, notice);
            let is_probing = |errand: &Errand| self.errands.wire_for(errand).is_some();
            if is_probing(&Errand::Discover) || is_probing(&Errand::Revive) {
                self.arm_in(Timer::Probe, probe);
            } else if let Some(http) = self.config.http.as_ref().filter(|h| h.falls_back) {
                let patience = if is_old {
                    http.endpoint_timeout
                } else {
                    whole / 2
                };
                self.arm_in(Timer::Endpoint, patience);
            }
        }
        if listen == Listen::Unauthorized {
            self.gate_opened();
        }
    }

    /// Fails everything that waits for credentials, because there are none.
    pub(super) fn credentials_denied(&mut self, why: &str) {
        if !self.awaits_credentials() {
            return;
        }
        if let Some(web) = &mut self.web {
            web.auth.is_denied = true;
        }
        self.thaw();
        let kind = FailureKind::Unauthorized {
            why: Some(why.into()),
        };
        let waits = |call: &CallId| match self.calls.call(*call).map(|call| call.phase) {
            Some(Phase::Listing(_) | Phase::Schema | Phase::Waiting) => true,
            Some(Phase::Asking | Phase::Sent(_)) | None => false,
        };
        let waiting: Vec<CallId> = self.calls.ids().filter(waits).collect();
        for call in waiting {
            self.fail(call, kind.clone());
        }
        if self.state == State::Handshaking {
            return self.down(Cause::Unauthorized);
        }
        let turned_away = self.frames.take_turned_away();
        for wire in turned_away.iter().filter_map(Frame::wire) {
            self.no_reply(wire, kind.clone());
        }
        // A server does not serve before it gets `notifications/initialized`.
        let is_end = |frame: &Frame| matches!(frame, Frame::Initialized);
        if turned_away.iter().any(is_end) {
            self.down(Cause::Unauthorized);
        }
    }

    pub(super) fn awaits_credentials(&self) -> bool {
        self.web.as_ref().is_some_and(|web| web.auth.is_pending)
    }

    /// Forgets that there were no credentials, because there may be some now.
    pub(super) fn forget_denial(&mut self) {
        if let Some(web) = &mut self.web {
            web.auth.is_denied = false;
        }
    }

    /// Stops waiting for credentials.
    pub(super) fn thaw(&mut self) {
        if let Some(web) = &mut self.web {
            web.auth.is_pending = false;
        }
        self.timers.disarm(Timer::Auth);
        for call in self.calls.freeze(false, self.now) {
            self.arm_call(call);
        }
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
