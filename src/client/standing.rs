//! How the link stands with a server over HTTP: the session that it is in, the credentials that it needs, the pauses that it
//! was asked for, and what the refusal of a handshake says.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

use super::errand::Errand;
use super::event::{Challenge, Event};
use super::failure::{Cause, FailureKind};
use super::frame::{Frame, Voice};
use super::handshake::Terms;
use super::http::{Exchange, Kept, Listen, Load, Purpose};
use super::lifecycle::State;
use super::{Client, Timer};
use crate::http::{Fields, names};
use crate::id::{CallId, StreamId};
use crate::protocol::code;
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

    /// What is kept of a session of a life before is tried first; it is not believed until the server has answered in it.
    pub(super) fn revive(&mut self) -> bool {
        let Some(web) = &mut self.web else {
            return false;
        };
        let Some(kept) = &web.kept else {
            return false;
        };
        web.session = Some(kept.id.clone());
        web.version = Some(kept.terms.version);
        self.voice = Voice::new(&self.config, kept.terms.version, None);
        let wire = self.errands.issue(Errand::Revive);
        self.frames.push(Frame::Ping(wire));
        true
    }

    /// The server answered in the session of a life before, if with an error then with this one.
    pub(super) fn revived(&mut self, refusal: Option<i64>) {
        // One that knows no ping knows the session all the same.
        if refusal.is_some_and(|code| code != code::METHOD_NOT_FOUND) {
            return self.not_revived(false);
        }
        if let Some(web) = &mut self.web {
            web.is_introduced = true;
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
        self.errands.keep(|errand| *errand != Errand::Revive);
        let Some(web) = &mut self.web else {
            return;
        };
        web.kept = None;
        web.version = None;
        let retired = web.session.take().filter(|_| !is_over);
        if let Some(id) = retired {
            self.begin_now(Exchange::new(Purpose::Farewell(id), Load::None));
        }
        let first = self.handshake.begin();
        self.proceed(first);
    }

    /// Nothing of this life goes on. A session that is not needed any more is ended (S-SESS-07); one that contact was lost in is
    /// kept.
    pub(super) fn part_web(&mut self) {
        let cause = self.life.as_ref().and_then(|life| life.cause());
        let is_out_of_reach = cause == Some(&Cause::Unreachable);
        let Some(web) = &mut self.web else {
            return;
        };
        let retired = web.session.take();
        let version = web.version;
        if is_out_of_reach {
            let terms = self.session.clone();
            let kept = retired.clone().filter(|_| web.is_introduced).zip(terms);
            let kept = kept.map(|(id, terms)| Kept { id, terms });
            web.kept = kept.or(web.kept.take());
        }
        let streams = web.end();
        self.timers
            .keep(|timer| !matches!(timer, Timer::Exchange(_)));
        for stream in streams {
            self.abort_exchange(stream);
        }
        self.thaw();
        if let Some(id) = retired.filter(|_| !is_out_of_reach) {
            if let Some(web) = &mut self.web {
                web.version = version;
            }
            self.begin_now(Exchange::new(Purpose::Farewell(id), Load::None));
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
    /// What was turned away unread is to be said again; if that was so too often, it has failed.
    pub(super) fn turn_back(&mut self, exchange: Exchange, kind: &FailureKind) {
        self.stats.turned_away += 1;
        let most = self.config.policy.resends;
        match (exchange.wire(), exchange.load) {
            (Some(wire), Load::Call(call)) => {
                self.errands.close(wire);
                if self.calls.turned_away(call, self.now, most) {
                    self.arm_call(call);
                } else {
                    self.fail(call, kind.clone());
                }
            }
            (Some(wire), Load::Frame(frame)) => {
                let times = self.web.as_mut().map_or(0, |web| web.turn_away(wire));
                if times <= most {
                    self.frames.push_again(frame);
                } else if self.is_of_handshake(wire) {
                    let is_shut_out = matches!(kind, FailureKind::Unauthorized { .. });
                    let status = exchange.status.unwrap_or(0);
                    self.down(if is_shut_out {
                        Cause::Unauthorized
                    } else {
                        Cause::Unavailable { status }
                    });
                } else {
                    self.no_reply(wire, kind.clone());
                }
            }
            (_, Load::Frame(frame)) => self.frames.push_again(frame),
            (_, _) => {}
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
            web.paused_until = web.paused_until.max(Some(until));
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
        let is_about_us = (400..500).contains(&status) && !matches!(status, 408 | 425 | 429);
        if errand == Some(Errand::Revive) {
            return self.not_revived(false);
        }
        if !is_about_us {
            return self.down(Cause::Unavailable { status });
        }
        let proves_modern = error.as_ref().is_some_and(|error| {
            code::is_modern_evidence(error.code)
                || error.code == code::METHOD_NOT_FOUND && status == 404
        });
        let said = format!("it answered with status {status}");
        let error = error.unwrap_or_else(|| ErrorObject::new(code::INTERNAL_ERROR, said));
        let falls_back = self
            .config
            .http
            .as_ref()
            .is_some_and(|http| http.falls_back);
        let is_streamable = self.web.as_ref().is_some_and(|web| web.is_streamable());
        let then = match errand {
            Some(Errand::Discover) => self.handshake.discovered(Err(&error)),
            // S-HTTP-42: older texts say so of any such status.
            Some(_) if falls_back && is_streamable && !proves_modern => {
                let why = format!("`initialize` was refused with status {status}: {error}");
                return self.try_old(crate::noise::excerpt(&why).into());
            }
            Some(_) => self.handshake.initialized(Err(&error)),
            None => return,
        };
        self.proceed(then);
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
        match exchange.purpose {
            // What nobody asked for is no reason to ask anybody.
            Purpose::Listen => return self.set_listen(Listen::Unauthorized),
            Purpose::Farewell(_) => return self.bury_if_gone(),
            Purpose::Spent => return,
            Purpose::Old | Purpose::Resume(_) => {
                let pause = self.linger();
                let again = Exchange::following(exchange.purpose, exchange.thread);
                self.begin_in(pause, again);
            }
            Purpose::Message | Purpose::Request(_) => {
                self.turn_back(exchange, &FailureKind::Unauthorized { why: None });
            }
        }
        let Some(web) = self.web.as_mut().filter(|_| self.state.is_in_touch()) else {
            return;
        };
        // Whoever asked under older credentials has his answer already.
        if web.auth.is_pending || credentials < web.auth.given {
            return;
        }
        web.auth.is_pending = true;
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

    /// There are other credentials: everything goes on.
    pub(super) fn credentials_given(&mut self) {
        let Some(web) = self.web.as_mut().filter(|web| web.auth.is_pending) else {
            return;
        };
        web.auth.given += 1;
        let listen = web.listen;
        self.thaw();
        if self.state == State::Handshaking {
            self.arm_in(Timer::Handshake, self.config.policy.handshake_timeout);
            self.arm_in(Timer::Notice, self.config.policy.handshake_notice);
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
        self.thaw();
        let kind = FailureKind::Unauthorized {
            why: Some(why.into()),
        };
        let waiting: Vec<CallId> = self.calls.waiting_ids();
        for call in waiting {
            self.fail(call, kind.clone());
        }
        if self.state == State::Handshaking {
            self.down(Cause::Unauthorized);
        }
    }

    pub(super) fn awaits_credentials(&self) -> bool {
        self.web.as_ref().is_some_and(|web| web.auth.is_pending)
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
