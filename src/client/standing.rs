//! How the link stands with a server over HTTP: the session that it is in, the credentials that it needs, the pauses that it
//! was asked for, and what the refusal of a handshake says.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

use super::calls::Phase;
use super::errand::Errand;
use super::event::{Challenge, Event};
use super::failure::{Cause, FailureKind};
use super::frame::{Frame, Voice};
use super::handshake::Terms;
use super::http::{Exchange, Kept, Listen, Load, Purpose};
use super::lifecycle::State;
use super::responses::is_unread;
use super::{Client, Timer};
use crate::http::{Fields, names};
use crate::id::{CallId, StreamId};
use crate::protocol::code;
use crate::watch::List;
use crate::wire::ErrorObject;

/// As many bytes of a challenge are told.
const CHALLENGE_BYTES: usize = 4 << 10;

/// Sessions.
impl Client {
    pub(super) fn is_session_loss(&self, status: u16, error: Option<&ErrorObject>) -> bool {
        let code = error.map(|error| error.code);
        let http = self.config.http.as_ref();
        http.is_some_and(|http| http.session_loss.iter().any(|loss| loss.is(status, code)))
    }

    /// S-SESS-06: the session is over. Whoever sees it next sees the same; one handshake serves them all.
    pub(super) fn session_lost(&mut self, exchange: Exchange) {
        if self.state == State::Handshaking {
            return self.not_revived(true);
        }
        if let Some(web) = &mut self.web {
            web.session = None;
            web.is_session_over = true;
        }
        if let Load::Call(_) = exchange.load {
            let status = exchange.status.unwrap_or(404);
            self.turn_back(exchange, &FailureKind::Status { status });
        }
        self.wind_down(Cause::SessionLost, self.config.policy.drain);
    }

    /// What is kept of a session of a life before is tried first; it is not believed until the server has answered in it. `is_same`: what
    /// was declared in it still holds.
    pub(super) fn revive(&mut self, is_same: bool) -> bool {
        let Some(web) = &mut self.web else {
            return false;
        };
        let Some(kept) = &web.kept else {
            return false;
        };
        web.session = Some(kept.id.clone());
        web.version = Some(kept.terms.version);
        if !is_same {
            self.not_revived(false);
            return true;
        }
        self.voice = Voice::new(&self.config, kept.terms.version, None);
        let wire = self.errands.issue(Errand::Revive);
        self.frames.push(Frame::Ping(wire));
        self.arm_in(Timer::Probe, self.config.policy.probe_timeout);
        true
    }

    /// The server answered in the session of a life before, if with an error then with this one.
    pub(super) fn revived(&mut self, refusal: Option<i64>) {
        // One that knows no ping knows the session all the same.
        if refusal.is_some_and(|code| code != code::METHOD_NOT_FOUND) {
            return self.not_revived(false);
        }
        let Some(Kept { terms, .. }) = self.web.as_mut().and_then(|web| web.kept.take()) else {
            return;
        };
        self.agreed(
            Terms {
                version: terms.version,
                server: terms.server.clone(),
                capabilities: terms.capabilities.clone(),
                instructions: terms.instructions.clone(),
            },
            true,
        );
    }

    /// The session of a life before is over, or of no use.
    pub(super) fn not_revived(&mut self, is_over: bool) {
        for wire in self.errands.close_where(|errand| *errand == Errand::Revive) {
            self.drop_request(wire);
        }
        let Some(web) = &mut self.web else {
            return;
        };
        web.kept = None;
        let version = web.version.take();
        let retired = web.session.take().filter(|_| !is_over);
        if let Some(id) = retired {
            self.begin_now(Exchange::new(Purpose::Farewell(id, version), Load::None));
        }
        let first = self.handshake.begin();
        self.proceed(first);
    }

    /// Nothing of this life goes on. A session that is not needed any more is ended (S-SESS-07); one that contact was lost in is
    /// kept.
    pub(super) fn part_web(&mut self) {
        let cause = self.life.as_ref().and_then(|life| life.cause());
        let is_out_of_reach = cause.is_some_and(Cause::is_out_of_reach);
        let Some(web) = &mut self.web else {
            return;
        };
        let (retired, version) = (web.session.take(), web.version);
        if is_out_of_reach {
            let kept = retired.as_ref().filter(|_| web.is_introduced);
            let kept = kept.cloned().zip(self.session.clone());
            let kept = kept.map(|(id, terms)| Kept { id, terms });
            web.kept = kept.or(web.kept.take());
        } else {
            web.kept = None;
        }
        let streams = web.end();
        self.timers
            .keep(|timer| !matches!(timer, Timer::Exchange(_)));
        for stream in streams {
            self.abort_exchange(stream);
        }
        self.thaw();
        if let Some(id) = retired.filter(|_| !is_out_of_reach) {
            self.begin_now(Exchange::new(Purpose::Farewell(id, version), Load::None));
        }
    }

    /// The server knows that the session is not needed any more, or will never.
    pub(super) fn farewell_said(&mut self, stream: StreamId) {
        self.spend_exchange(stream);
        self.bury_if_gone();
    }
}

/// Refusals.
impl Client {
    /// What was turned away is to be said again, if it was not read or is harmless; if that was so too often, it has failed. Whether it
    /// waits.
    fn turn_back(&mut self, exchange: Exchange, kind: &FailureKind) -> bool {
        self.stats.turned_away += 1;
        let most = self.config.policy.resends;
        let is_unread = exchange.status.is_some_and(is_unread);
        match (exchange.wire(), exchange.load) {
            (Some(wire), Load::Call(call)) => {
                self.errands.close(wire);
                let may_repeat = self.calls.call(call).is_some_and(|call| call.may_repeat());
                let waits =
                    (is_unread || may_repeat) && self.calls.turned_away(call, self.now, most);
                if waits {
                    self.arm_call(call);
                } else {
                    self.fail(call, kind.clone());
                }
                waits
            }
            (Some(wire), Load::Frame(..)) if !self.is_wanted(wire) => false,
            (_, Load::Frame(frame, times)) if times < most => {
                self.frames.push_again(frame, times + 1);
                true
            }
            (Some(wire), Load::Frame(..)) if self.is_of_handshake(wire) => {
                let is_shut_out = matches!(kind, FailureKind::Unauthorized { .. });
                let status = exchange.status.unwrap_or(0);
                self.down(if is_shut_out {
                    Cause::Unauthorized
                } else {
                    Cause::Unavailable { status }
                });
                false
            }
            (Some(wire), Load::Frame(..)) => {
                self.no_reply(wire, kind.clone());
                false
            }
            (_, _) => false,
        }
    }

    fn is_of_handshake(&self, wire: u64) -> bool {
        let errand = self.errands.of_wire(wire);
        matches!(
            errand,
            Some(Errand::Discover | Errand::Initialize | Errand::Revive)
        )
    }

    /// The server is busy and says for how long.
    pub(super) fn put_off(&mut self, exchange: Exchange, status: u16) {
        let (Some(http), Some(pause)) = (&self.config.http, exchange.retry_after) else {
            return;
        };
        let pause = pause.min(http.retry_after_most).max(http.resume_least);
        let until = self.now + pause;
        if exchange
            .wire()
            .is_some_and(|wire| self.is_of_handshake(wire))
        {
            self.budget.rest_until(until);
            return self.down(Cause::Unavailable { status });
        }
        self.turn_back(exchange, &FailureKind::Status { status });
        if let Some(web) = &mut self.web {
            let until = web.paused_until.map_or(until, |before| before.max(until));
            web.paused_until = Some(until);
            self.arm_at(Timer::Pause, until);
        }
    }

    /// Whether nothing can be said to the server for now.
    pub(super) fn is_kept_silent(&self) -> bool {
        self.web.as_ref().is_some_and(|web| !web.is_open())
    }

    /// The pause is over.
    pub(super) fn pause_over(&mut self) {
        if let Some(web) = &mut self.web {
            web.paused_until = None;
        }
    }

    /// What it says of the era of a server that a handshake is refused (S-HTTP-39, S-HTTP-40, S-HTTP-43).
    pub(super) fn handshake_refused(&mut self, wire: u64, status: u16, error: Option<ErrorObject>) {
        let errand = self.errands.close(wire);
        let is_about_us = (300..500).contains(&status) && !matches!(status, 408 | 425 | 429);
        if !is_about_us {
            return self.down(Cause::Unavailable { status });
        }
        if errand == Some(Errand::Revive) {
            return self.not_revived(false);
        }
        let proves_modern = error.as_ref().is_some_and(|error| {
            code::is_modern_evidence(error.code)
                || error.code == code::METHOD_NOT_FOUND && status == 404
        });
        let said = format!("it answered with status {status}");
        let error = error.unwrap_or_else(|| ErrorObject::new(code::INTERNAL_ERROR, said));
        let falls_back = self.config.http.as_ref();
        let falls_back = falls_back.is_some_and(|http| http.falls_back && status >= 400);
        let is_streamable = self.web.as_ref().is_some_and(|web| web.is_streamable());
        let then = match errand {
            Some(Errand::Discover) => self.handshake.discovered(Err(&error)),
            // S-HTTP-42: older texts say so of any such status.
            Some(_) if falls_back && is_streamable && !proves_modern => {
                let why = format!("`initialize` was refused with status {status}: {error}");
                return self.try_old(crate::noise::excerpt(&why).into(), false);
            }
            Some(_) => self.handshake.initialized(Err(&error)),
            None => return,
        };
        self.proceed(then);
    }

    /// A modern server was replaced by one that is none, or not of this version.
    pub(super) fn changed_its_era(&mut self) {
        self.handshake.doubt();
        let why = "it does not speak the version any more that was agreed on".into();
        self.down(Cause::HandshakeRefused { why });
    }
}

/// Credentials.
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
            // What nobody asked for is no reason to ask anybody.
            Purpose::Listen => {
                self.set_listen(Listen::Unauthorized);
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
            Purpose::Message | Purpose::Request(_) => self.turn_back(exchange, &kind),
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
        for timer in [
            Timer::Endpoint,
            Timer::Handshake,
            Timer::Notice,
            Timer::Probe,
        ] {
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
        for frame in self.frames.take_turned_away() {
            if let Some(wire) = frame.wire() {
                self.no_reply(wire, kind.clone());
            }
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
    fn thaw(&mut self) {
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
