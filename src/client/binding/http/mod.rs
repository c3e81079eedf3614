//! A server over HTTP: one exchange for each message, and streams for what the server sends by itself. It knows neither calls nor the handshake.
//!
//! `table` holds the exchanges and `exchange` is one of them. `heads` builds request heads, `send` begins and ends exchanges, `response` reads responses
//! and `error` maps those that refuse something. `stream` handles event streams, `old_sse` the transport of 2024-11-05, `session` sessions and
//! `credentials` authorization. `send_gate` says whether messages may be sent.

mod credentials;
mod error;
mod exchange;
mod heads;
mod listen_stream;
mod old_sse;
mod phase;
mod response;
mod send;
mod send_gate;
mod session;
mod stream;
mod table;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use core::time::Duration;

use super::{Body, Challenged, Events, Facts, Heard, Load, Reading, Returned, Source, Start};
use super::{NoContact, Refused, Unauthorized};
use crate::client::config::Http;
use crate::client::context::Context;
use crate::client::event::Event;
use crate::driver::{Epoch, StreamId};
use crate::http::Url;
use crate::json::{Json, Payload};
use crate::protocol::Era;
use crate::protocol::param_headers::{self, Mirrored};
use crate::util::ascending_map::AscendingMap;
use credentials::Credentials;
pub(super) use error::{is_about_us, is_passing, is_unlike_modern, is_unread, says_cut};
use listen_stream::{ListenCue, ListenStream};
use old_sse::Transport;
use send_gate::SendGate;
use session::HttpSession;
use table::Table;

/// The number of redirects that are followed in a row.
const REDIRECTS: u32 = 5;

#[derive(Debug)]
pub(in crate::client) struct HttpBinding {
    settings: Http,
    /// The present transport.
    epoch: Option<Epoch>,
    /// The URL for messages in this epoch, unless the 2024-11-05 transport names another one.
    url: Url,
    redirects: u32,
    exchanges: Table,
    session: HttpSession,
    /// The transport for messages.
    transport: Transport,
    /// Whether the server was last found behind the 2024-11-05 transport.
    prefers_old_sse: bool,
    gate: SendGate,
    /// The settings that are being changed, by the exchanges that change them. Another change of the same setting waits.
    ordered_keys: AscendingMap<StreamId, Box<str>>,
    credentials: Credentials,
    listen: ListenStream,
    /// The header fields that each tool requires.
    param_headers: BTreeMap<Box<str>, Mirrored>,
}

impl HttpBinding {
    pub(super) fn new(settings: &Http) -> HttpBinding {
        HttpBinding {
            epoch: None,
            url: settings.url.clone(),
            redirects: 0,
            exchanges: Table::new(),
            session: HttpSession::default(),
            transport: Transport::Streamable,
            prefers_old_sse: false,
            gate: SendGate::default(),
            ordered_keys: AscendingMap::new(),
            credentials: Credentials::default(),
            listen: ListenStream::Off,
            param_headers: BTreeMap::new(),
            settings: settings.clone(),
        }
    }

    pub(super) fn open(&mut self, epoch: Epoch) {
        self.epoch = Some(epoch);
    }

    /// Resets the state of the epoch.
    fn reset(&mut self) {
        self.url = self.settings.url.clone();
        self.redirects = 0;
        self.session.end();
        self.transport = Transport::Streamable;
        self.gate = SendGate::default();
        self.ordered_keys = AscendingMap::new();
        self.credentials.end();
        self.listen.step(ListenCue::EpochEnded);
        self.param_headers.clear();
    }

    /// Releases the transport.
    pub(super) fn finish(&mut self, cx: &mut Context) {
        self.exchanges.clear();
        cx.timers.keep(|timer| !timer.is_of_http());
        self.epoch = None;
    }

    /// Whether nothing is left of the transport: no `DELETE` of a session is under way.
    pub(super) fn is_gone(&self) -> bool {
        !self.exchanges.has_farewell()
    }

    pub(super) const fn probe_timeout(&self) -> Duration {
        self.settings.probe_timeout
    }

    /// Whether messages can be sent now.
    pub(super) fn is_open(&self) -> bool {
        self.gate.is_open() && self.transport.has_endpoint() && !self.credentials.is_pending()
    }
}

/// URLs.
impl HttpBinding {
    /// Handles a redirect of a request that went to `target`. Returns whether it can be followed: within the same origin, and at most `REDIRECTS`
    /// times in a row.
    fn follow(&mut self, target: &str, location: Option<&str>) -> bool {
        let moved = location.and_then(|location| self.url.resolve(location).ok());
        let is_old = self.transport.is_old_sse();
        let moved = moved.filter(|to| to.is_same_origin(&self.url) && !is_old);
        let Some(moved) = moved else {
            return false;
        };
        // A request from before the redirect was known is redirected to the same URL. That does not count again.
        let is_known = moved == self.url && target != self.url.as_str();
        if !is_known {
            if self.redirects >= REDIRECTS {
                return false;
            }
            self.redirects += 1;
            self.url = moved;
        }
        true
    }

    pub(super) fn use_configured_url(&mut self) {
        self.url = self.settings.url.clone();
    }
}

/// The header fields that tools require.
impl HttpBinding {
    pub(super) fn learn_tools(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        page: Json<'_>,
        is_first: bool,
    ) -> Option<Payload> {
        if facts.era() != Era::Modern {
            return None;
        }
        let survey = param_headers::survey(page);
        if is_first {
            self.param_headers.clear();
        }
        self.param_headers.extend(survey.tools);
        for (tool, unfit) in survey.dropped {
            let why = unfit.to_string().into();
            cx.tell(Event::ToolDropped { tool, why });
        }
        survey.rest
    }
}
