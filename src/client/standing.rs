//! Handles sessions over HTTP, the pauses that a server asks for, and the refusal of a handshake.

use alloc::boxed::Box;
use alloc::format;

use super::errand::Errand;
use super::failure::{Cause, FailureKind};
use super::frame::{Frame, Voice};
use super::handshake::Terms;
use super::http::{Exchange, Kept, Load, Purpose};
use super::lifecycle::State;
use super::refusals::{is_about_us, is_passing, is_unread};
use super::{Client, Timer};
use crate::driver::StreamId;
use crate::protocol::code;
use crate::wire::ErrorObject;

/// Sessions.
impl Client {
    pub(super) fn is_session_loss(&self, status: u16, error: Option<&ErrorObject>) -> bool {
        let code = error.map(|error| error.code);
        let http = self.config.http.as_ref();
        http.is_some_and(|http| http.session_loss.iter().any(|loss| loss.is(status, code)))
    }

    /// Handles the loss of a session (S-SESS-06). All requests that notice it share one new handshake. `is_unread`: the request was not run. `said`:
    /// the error text of the server.
    pub(super) fn session_lost(
        &mut self,
        exchange: Exchange,
        is_unread: bool,
        said: Option<Box<str>>,
    ) {
        if self.state == State::Handshaking {
            return self.not_revived(true);
        }
        if let Some(web) = &mut self.web {
            web.session = None;
            web.is_session_over = true;
        }
        if let Load::Call(_) = exchange.load {
            let status = exchange.status.unwrap_or(404);
            self.turn_back(exchange, is_unread, &FailureKind::Status { status, said });
        }
        self.wind_down(Cause::SessionLost, self.config.policy.drain);
    }

    /// Tries to continue the session of an earlier epoch with a ping. Returns false if none is kept.
    ///
    /// `is_same`: the capabilities are the same as in that session. If they differ, the session is ended and a new handshake begins.
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
        self.arm_in(Timer::Probe, self.probe_patience());
        true
    }

    /// Handles the reply to that ping; `refusal` is the code of an error.
    pub(super) fn revived(&mut self, refusal: Option<i64>) {
        // A server without `ping` still knows the session.
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
                introduction: terms.introduction.clone(),
            },
            true,
        );
    }

    /// Gives up the session of an earlier epoch, and begins a new handshake. `is_over`: the server has ended the session.
    pub(super) fn not_revived(&mut self, is_over: bool) {
        while let Some(wire) = self.errands.wire_for(&Errand::Revive) {
            self.errands.close(wire);
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

    /// Ends everything of this epoch. The session is ended too (S-SESS-07), but kept if contact was lost.
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
        self.timers.keep(|timer| !timer.is_of_web());
        for stream in streams {
            self.abort_exchange(stream);
        }
        self.thaw();
        if let Some(id) = retired.filter(|_| !is_out_of_reach) {
            self.begin_now(Exchange::new(Purpose::Farewell(id, version), Load::None));
        }
    }

    /// Handles the response to the `DELETE` of a session.
    pub(super) fn farewell_said(&mut self, stream: StreamId) {
        self.spend_exchange(stream);
        self.bury_if_gone();
    }
}

/// Refusals.
impl Client {
    /// Queues a message again that the server turned away, if it was not read or may be repeated. After too many times it fails. Returns whether it
    /// is queued.
    pub(super) fn turn_back(
        &mut self,
        exchange: Exchange,
        is_unread: bool,
        kind: &FailureKind,
    ) -> bool {
        self.stats.turned_away += 1;
        let most = self.config.policy.resends;
        let ends_handshake = exchange.ends_handshake();
        let is_shut_out = matches!(kind, FailureKind::Unauthorized { .. });
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
            (wire, Load::Frame(..))
                if ends_handshake && is_shut_out
                    || wire.is_some_and(|wire| self.is_of_handshake(wire)) =>
            {
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

    pub(super) fn is_of_handshake(&self, wire: u64) -> bool {
        let errand = self.errands.of_wire(wire);
        matches!(
            errand,
            Some(Errand::Discover | Errand::Initialize | Errand::Revive)
        )
    }

    /// Handles a busy server that says how long to wait.
    pub(super) fn put_off(&mut self, exchange: Exchange, status: u16, said: Option<Box<str>>) {
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
        let kind = FailureKind::Status { status, said };
        self.turn_back(exchange, is_unread(status), &kind);
        if let Some(web) = &mut self.web {
            let until = web.paused_until.map_or(until, |before| before.max(until));
            web.paused_until = Some(until);
            self.arm_at(Timer::Pause, until);
        }
    }

    /// Whether nothing can be sent to the server at present.
    pub(super) fn is_kept_silent(&self) -> bool {
        self.web.as_ref().is_some_and(|web| !web.is_open())
    }

    /// Ends the pause that the server asked for.
    pub(super) fn pause_over(&mut self) {
        if let Some(web) = &mut self.web {
            web.paused_until = None;
        }
        // During the pause the server had nothing to reply to, so its silence does not count.
        self.heard();
    }

    /// Handles the refusal of a handshake, and decides what it says about the server's era (S-HTTP-39, S-HTTP-40, S-HTTP-43).
    pub(super) fn handshake_refused(&mut self, wire: u64, status: u16, error: Option<ErrorObject>) {
        let errand = self.errands.close(wire);
        let is_modern = |error: &ErrorObject| code::is_modern_evidence(error.code);
        let is_proof = errand == Some(Errand::Discover) && error.as_ref().is_some_and(is_modern);
        if !is_about_us(status) && !is_proof {
            let how = match &error {
                Some(error) => format!("HTTP status {status}, {error}"),
                None => format!("HTTP status {status}"),
            };
            let is_probe = errand == Some(Errand::Discover);
            if !is_probe || !self.probe_failed(&how, !is_passing(status)) {
                self.down(Cause::Unavailable { status });
            }
            return;
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
            // S-HTTP-42: older specifications fall back on any such status.
            Some(_) if falls_back && is_streamable && !proves_modern => {
                let why = format!("`initialize` was refused with status {status}: {error}");
                return self.try_old(crate::util::noise::excerpt(&why).into(), false);
            }
            Some(_) => self.handshake.initialized(Err(&error)),
            None => return,
        };
        self.proceed(then);
    }

    /// Handles a server that was replaced by one of another era or version.
    pub(super) fn changed_its_era(&mut self) {
        self.handshake.doubt();
        let why = "it does not speak the version any more that was agreed on".into();
        self.down(Cause::HandshakeRefused { why });
    }
}
