//! Credentials over HTTP: how the application is asked for them, once for all who wait, and what follows when there are some or none.

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
use crate::http::{Fields, names};
use crate::id::{CallId, StreamId};
use crate::watch::List;

/// As many bytes of a challenge are told.
const CHALLENGE_BYTES: usize = 4 << 10;

impl Client {
    /// S-AUTH-08: the server wants other credentials. Nothing was run, and nothing is sent until there are some.
    pub(super) fn unauthorized(&mut self, stream: StreamId, status: u16, fields: &Fields<'_>) {
        let Some(exchange) = self.spend_exchange(stream) else {
            return;
        };
        let credentials = exchange.credentials;
        let is_calling = self.is_called_for(&exchange);
        let kind = FailureKind::Unauthorized { why: None };
        let waits = match exchange.purpose {
            // What nobody asked for is no reason to ask anybody. Credentials that were good before may be renewed all the same.
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
            // Whoever is not let in is not heard.
            Purpose::Message | Purpose::Request(_) => self.turn_back(exchange, true, &kind),
        };
        let Some(web) = self.web.as_mut().filter(|_| self.state.is_in_touch()) else {
            return;
        };
        // Whoever asked under older credentials has his answer already.
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

    /// A stream that others wait for is refused. Whether it is asked for again, with other credentials.
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

    /// Whether somebody is to be asked for credentials for this: always, until he has said that there are none; then only for calls.
    fn is_called_for(&self, exchange: &Exchange) -> bool {
        let is_denied = self.web.as_ref().is_some_and(|web| web.auth.is_denied);
        let is_call = matches!(exchange.load, Load::Call(_));
        !is_denied || is_call || (self.state == State::Handshaking && self.calls.queued() > 0)
    }

    /// A message of the link itself is refused, and nobody is asked again.
    fn without_credentials(&mut self, exchange: Exchange) {
        match exchange.wire() {
            Some(wire) if self.is_of_handshake(wire) => self.down(Cause::Unauthorized),
            Some(wire) => self.no_reply(wire, FailureKind::Unauthorized { why: None }),
            None if exchange.ends_handshake() => self.down(Cause::Unauthorized),
            None => {}
        }
    }

    /// There are other credentials: everything goes on.
    pub(super) fn credentials_given(&mut self) {
        let Some(web) = self.web.as_mut().filter(|web| web.auth.is_pending) else {
            self.forget_denial();
            if let State::Parked | State::Waiting = self.state {
                self.attempt();
            }
            return;
        };
        web.auth.given += 1;
        // S-CACHE-08: what was read under other credentials may be another list.
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

    /// There are none: what waits for them has failed.
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
        // A server that was not told that the handshake is over does not serve.
        let is_end = |frame: &Frame| matches!(frame, Frame::Initialized);
        if turned_away.iter().any(is_end) {
            self.down(Cause::Unauthorized);
        }
    }

    pub(super) fn awaits_credentials(&self) -> bool {
        self.web.as_ref().is_some_and(|web| web.auth.is_pending)
    }

    /// Whoever wants the link now may have credentials that there were none of before.
    pub(super) fn forget_denial(&mut self) {
        if let Some(web) = &mut self.web {
            web.auth.is_denied = false;
        }
    }

    /// Credentials are not waited for any more.
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

/// What the server says it takes to be let in, as it came, up to a bound.
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
