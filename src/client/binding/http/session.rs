//! Sessions over HTTP: the id that the server gave, the session that is kept while the server is out of reach, and the end of a session.

use alloc::boxed::Box;

use super::exchange::{Exchange, ExchangeKind};
use super::old_sse::Transport;
use super::{Facts, HttpBinding, Load, Start};
use crate::client::config::Dialect;
use crate::client::context::{Context, Timer};
use crate::client::event::Session;
use crate::driver::{Instant, StreamId};
use crate::protocol::Version;
use crate::util::Arc;
use crate::wire::ErrorObject;

/// How often `notifications/initialized` is sent again.
const RESENDS: u8 = 3;

#[derive(Debug, Default)]
pub(super) struct HttpSession {
    /// The session id that every request names, once there is one.
    id: Option<Box<str>>,
    /// The version that every request names, once it is agreed on.
    version: Option<Version>,
    /// The session of an earlier epoch that lost contact, and may continue.
    kept: Option<KeptSession>,
    /// Whether the server accepted `notifications/initialized`. Only then is its session worth keeping.
    was_initialized: bool,
    /// How often that notification was sent again after the server had refused it.
    resends: u8,
}

/// A session that lost contact, and its agreement.
#[derive(Clone, Debug)]
struct KeptSession {
    id: Box<str>,
    terms: Arc<Session>,
}

impl HttpSession {
    pub(super) const fn id(&self) -> Option<&str> {
        match &self.id {
            Some(id) => Some(id),
            None => None,
        }
    }

    pub(super) const fn version(&self) -> Option<Version> {
        self.version
    }

    pub(super) fn open(&mut self, id: Option<Box<str>>) {
        self.id = id;
    }

    /// Ends the epoch. Only a kept session survives it.
    pub(super) fn end(&mut self) {
        *self = HttpSession {
            kept: self.kept.take(),
            ..HttpSession::default()
        };
    }

    /// Handles the response to `notifications/initialized`. Returns whether it was sent again.
    pub(super) fn initialized(&mut self, is_accepted: bool) -> bool {
        self.was_initialized |= is_accepted;
        self.was_initialized_resent()
    }

    pub(super) const fn was_initialized_resent(&self) -> bool {
        self.resends > 0
    }

    /// Whether `notifications/initialized` is sent again, because the server refused it. Without it, the server may send nothing by itself.
    pub(super) fn resend_initialized(&mut self) -> bool {
        let is_sent = !self.was_initialized && self.resends < RESENDS;
        self.resends += u8::from(is_sent);
        is_sent
    }
}

impl HttpBinding {
    pub(in crate::client::binding) fn is_session_loss(
        &self,
        status: u16,
        error: Option<&ErrorObject>,
    ) -> bool {
        let code = error.map(|error| error.code);
        let mut losses = self.settings.session_loss.iter();
        losses.any(|loss| loss.is(status, code))
    }

    pub(in crate::client::binding) fn session_lost(&mut self) {
        self.session.id = None;
        self.gate.is_session_over = true;
    }

    /// Begins the handshake: at the old transport if the server was last found there, or with a ping in a session that was kept.
    ///
    /// `is_same`: the capabilities are the same as in that session. If they differ, the session is ended and a new handshake begins.
    pub(in crate::client::binding) fn start(&mut self, cx: &mut Context, is_same: bool) -> Start {
        if self.prefers_old_sse && cx.config.dialect != Dialect::Modern {
            self.try_old_sse(cx, "it was found there before".into(), false);
            return Start::OldSse;
        }
        let Some(kept) = &self.session.kept else {
            return Start::Fresh;
        };
        let version = kept.terms.version;
        self.session.id = Some(kept.id.clone());
        self.session.version = Some(version);
        if is_same {
            Start::Revive(version)
        } else {
            self.stop_reviving(cx, false);
            Start::Fresh
        }
    }

    pub(in crate::client::binding) fn take_kept_session(&mut self) -> Option<Arc<Session>> {
        self.session.kept.take().map(|kept| kept.terms)
    }

    pub(in crate::client::binding) fn stop_reviving(&mut self, cx: &mut Context, is_over: bool) {
        self.session.kept = None;
        let version = self.session.version.take();
        let retired = self.session.id.take().filter(|_| !is_over);
        if let Some(id) = retired {
            let stream = self.delete_session(id, version);
            // No close step ends this exchange.
            cx.arm_in(Timer::Exchange(stream), self.settings.linger);
        }
    }

    fn delete_session(&mut self, id: Box<str>, version: Option<Version>) -> StreamId {
        let kind = ExchangeKind::DeleteSession(id, version);
        self.begin_now(Exchange::new(kind, Load::None))
    }

    pub(in crate::client::binding) fn agreed(&mut self, version: Version) {
        self.session.version = Some(version);
    }

    pub(in crate::client::binding) fn revived(&mut self, cx: &mut Context, facts: Facts<'_>) {
        self.session.was_initialized = true;
        self.open_listen_stream(cx, facts);
    }

    pub(in crate::client::binding) fn opens(&self, stream: StreamId) -> Option<Box<str>> {
        self.exchanges.get(stream)?.opens.clone()
    }

    pub(in crate::client::binding) fn open_session(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        id: Option<Box<str>>,
    ) {
        self.session.id = id;
        if !self.transport.has_endpoint() {
            self.transport = Transport::Streamable;
            self.close_old_stream(cx, facts);
        }
    }

    /// Ends everything of this epoch. The session is ended too (S-SESS-07), but kept if contact was lost.
    pub(in crate::client::binding) fn end(
        &mut self,
        cx: &mut Context,
        session: Option<&Arc<Session>>,
        is_out_of_reach: bool,
    ) {
        let (retired, version) = (self.session.id.take(), self.session.version);
        if is_out_of_reach {
            let kept = retired.as_ref().filter(|_| self.session.was_initialized);
            let kept = kept.cloned().zip(session.cloned());
            let kept = kept.map(|(id, terms)| KeptSession { id, terms });
            self.session.kept = kept.or(self.session.kept.take());
        } else {
            self.session.kept = None;
        }
        let streams = self.exchanges.clear();
        self.reset();
        cx.timers.keep(|timer| !timer.is_of_http());
        for stream in streams {
            self.abort(cx, stream);
        }
        cx.timers.disarm(Timer::Auth);
        if let Some(id) = retired.filter(|_| !is_out_of_reach) {
            self.delete_session(id, version);
        }
    }

    pub(in crate::client::binding) fn pause(&mut self, cx: &mut Context, until: Instant) {
        let until = self.gate.pause(until);
        cx.arm_at(Timer::Pause, until);
    }

    pub(in crate::client::binding) fn pause_over(&mut self) {
        self.gate.pause_over();
    }
}
