//! The functions of a binding that only HTTP needs: sessions that outlast an epoch, credentials, pauses, and the transport of 2024-11-05. Over a pipe,
//! they do nothing.

use alloc::boxed::Box;
use core::time::Duration;

use super::{Binding, Challenged, Facts, Heard};
use crate::client::config::Policy;
use crate::client::context::Context;
use crate::client::event::Session;
use crate::driver::{Instant, StreamId};
use crate::json::{Json, Payload};
use crate::protocol::Version;
use crate::util::Arc;
use crate::wire::ErrorObject;

/// The session of the server.
impl Binding {
    /// Handles the agreement on a version.
    pub(in crate::client) fn agreed(&mut self, version: Version) {
        if let Binding::Http(http) = self {
            http.agreed(version);
        }
    }

    /// Records that the session of an earlier epoch continues.
    pub(in crate::client) fn revived(&mut self, cx: &mut Context, facts: Facts<'_>) {
        if let Binding::Http(http) = self {
            http.revived(cx, facts);
        }
    }

    /// The agreement of the session of an earlier epoch, which continues.
    pub(in crate::client) fn take_kept_session(&mut self) -> Option<Arc<Session>> {
        self.http_mut().and_then(|http| http.take_kept_session())
    }

    /// Gives up the session of an earlier epoch. `is_over`: the server has ended it.
    pub(in crate::client) fn stop_reviving(&mut self, cx: &mut Context, is_over: bool) {
        if let Binding::Http(http) = self {
            http.stop_reviving(cx, is_over);
        }
    }

    /// The id of the session that the response on this stream opens.
    pub(in crate::client) fn opens(&self, stream: StreamId) -> Option<Box<str>> {
        self.http().and_then(|http| http.opens(stream))
    }

    /// Records the session that the reply to `initialize` opens, and the transport that the reply came on.
    pub(in crate::client) fn open_session(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        id: Option<Box<str>>,
    ) {
        if let Binding::Http(http) = self {
            http.open_session(cx, facts, id);
        }
    }

    /// Records that the server has ended the session. Nothing more is sent in it.
    pub(in crate::client) fn session_lost(&mut self) {
        if let Binding::Http(http) = self {
            http.session_lost();
        }
    }

    /// Whether an error with this status says that the server does not know the session any more.
    pub(in crate::client) fn is_session_loss(
        &self,
        status: u16,
        error: Option<&ErrorObject>,
    ) -> bool {
        self.http()
            .is_some_and(|http| http.is_session_loss(status, error))
    }

    /// Sends `notifications/initialized` again, if the server refused it but still replies.
    pub(in crate::client) fn resend_initialized(&mut self, cx: &mut Context, facts: Facts<'_>) {
        if let Binding::Http(http) = self {
            http.resend_initialized(cx, facts);
        }
    }

    /// Stops waiting for the listen stream.
    pub(in crate::client) fn stop_awaiting_listen_stream(&mut self) {
        if let Binding::Http(http) = self {
            http.stop_awaiting_listen_stream();
        }
    }
}

/// Exchanges.
impl Binding {
    /// Ends the exchange of a request that is not wanted any more.
    pub(in crate::client) fn drop_request(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        wire: u64,
    ) {
        if let Binding::Http(http) = self {
            http.drop_request(cx, facts, wire);
        }
    }

    /// Gives the exchange of a request so much time to end.
    pub(in crate::client) fn linger(&mut self, cx: &mut Context, wire: u64, span: Duration) {
        if let Binding::Http(http) = self {
            http.linger(cx, wire, span);
        }
    }

    /// Waits for the reply to an acknowledged request on another stream.
    pub(in crate::client) fn await_elsewhere(&mut self, wire: u64) {
        if let Binding::Http(http) = self {
            http.await_elsewhere(wire);
        }
    }

    /// Sends nothing until this time, because the server asked for that.
    pub(in crate::client) fn pause(&mut self, cx: &mut Context, until: Instant) {
        if let Binding::Http(http) = self {
            http.pause(cx, until);
        }
    }

    /// Ends the pause that the server asked for.
    pub(in crate::client) fn pause_over(&mut self) {
        if let Binding::Http(http) = self {
            http.pause_over();
        }
    }

    /// Whether nothing can be sent to the server at present.
    pub(in crate::client) fn is_kept_silent(&self) -> bool {
        self.http().is_some_and(|http| !http.is_open())
    }

    /// Returns to the configured URL, because the response at a redirected one may not be from the server at all.
    pub(in crate::client) fn use_configured_url(&mut self) {
        if let Binding::Http(http) = self {
            http.use_configured_url();
        }
    }

    /// Returns a page of tools without those that cannot be used over this binding; `None` if all can be used (S-XHDR-06).
    pub(in crate::client) fn learn_tools(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        page: Json<'_>,
        is_first: bool,
    ) -> Option<Payload> {
        self.http_mut()
            .and_then(|http| http.learn_tools(cx, facts, page, is_first))
    }
}

/// The transport of 2024-11-05.
impl Binding {
    /// Tries to reach the server over this transport. `is_guess`: a missing reply is the only reason.
    pub(in crate::client) fn try_old_sse(
        &mut self,
        cx: &mut Context,
        why: Box<str>,
        is_guess: bool,
    ) {
        if let Binding::Http(http) = self {
            http.try_old_sse(cx, why, is_guess);
        }
    }

    /// Handles a failure of this transport.
    pub(in crate::client) fn old_sse_failed(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        why: &str,
    ) -> Heard<'static> {
        self.http_mut()
            .map_or(Heard::Nothing, |http| http.old_sse_failed(cx, facts, why))
    }

    /// Handles `Timer::Endpoint`.
    pub(in crate::client) fn endpoint_overdue(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
    ) -> Heard<'static> {
        self.http_mut()
            .map_or(Heard::Nothing, |http| http.endpoint_overdue(cx, facts))
    }

    /// Whether a refused `initialize` leads to the old transport.
    pub(in crate::client) fn falls_back(&self, status: u16) -> bool {
        self.http().is_some_and(|http| http.falls_back(status))
    }

    /// How long `initialize` may take before the old transport is tried too.
    pub(in crate::client) fn initialize_patience(&self, policy: &Policy) -> Option<Duration> {
        self.http()
            .and_then(|http| http.initialize_patience(policy))
    }

    /// How long to wait for the next step of a handshake that was interrupted to fetch credentials.
    pub(in crate::client) fn endpoint_patience(&self, policy: &Policy) -> Option<Duration> {
        self.http().and_then(|http| http.endpoint_patience(policy))
    }
}

/// Credentials.
impl Binding {
    /// Asks the application for credentials. Returns false if it was asked already, or has given newer ones since.
    pub(in crate::client) fn ask_credentials(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        challenge: Challenged,
    ) -> bool {
        self.http_mut()
            .is_some_and(|http| http.ask_credentials(cx, facts, challenge))
    }

    /// Handles new credentials. Returns false if none are awaited.
    pub(in crate::client) fn authorized(&mut self, cx: &mut Context) -> bool {
        self.http_mut().is_some_and(|http| http.authorized(cx))
    }

    /// Opens the listen stream, if it was refused for lack of credentials.
    pub(in crate::client) fn listen_again(&mut self, cx: &mut Context, facts: Facts<'_>) {
        if let Binding::Http(http) = self {
            http.listen_again(cx, facts);
        }
    }

    /// Handles that there are no credentials. Returns false if none are awaited.
    pub(in crate::client) fn denied(&mut self, cx: &mut Context) -> bool {
        self.http_mut().is_some_and(|http| http.denied(cx))
    }

    pub(in crate::client) fn awaits_credentials(&self) -> bool {
        self.http().is_some_and(|http| http.awaits_credentials())
    }

    /// Forgets that there were no credentials, because there may be some now.
    pub(in crate::client) fn forget_denial(&mut self) {
        if let Binding::Http(http) = self {
            http.forget_denial();
        }
    }
}
