//! The state of a server that is reached over HTTP: its URL, its session, the exchanges under way, and the reasons to wait. It knows neither calls
//! nor the state of the link. `exchange` is one exchange, `table` holds all of them, and `heads` builds request heads.

mod exchange;
mod heads;
mod table;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

pub(super) use exchange::{Body, Exchange, Load, Purpose, STUCK, Text, Thread};
pub(super) use heads::{Message, is_nameable, session_id};

use super::event::Session;
use crate::client::config::Http;
use crate::driver::{CallId, Instant, StreamId};
use crate::http::Url;
use crate::protocol::Version;
use crate::protocol::param_headers::Mirrored;
use crate::util::ascending_map::AscendingMap;
use crate::wire::Id;
use table::Table;

/// The number of redirects that are followed in a row.
const REDIRECTS: u32 = 5;

/// How many answered asks are remembered, to recognize those that a resumed stream repeats.
const ANSWERS_KNOWN: usize = 64;

#[derive(Debug)]
pub(super) struct Web {
    /// The configured URL.
    home: Url,
    /// The URL for messages in this epoch, unless the 2024-11-05 transport names another one.
    url: Url,
    redirects: u32,
    pub(super) exchanges: Table,
    /// The session id that every request names, once there is one.
    pub(super) session: Option<Box<str>>,
    /// Whether the server said that the session is over.
    pub(super) is_session_over: bool,
    /// The version that every request names, once it is agreed on.
    pub(super) version: Option<Version>,
    /// The session of an earlier epoch that lost contact, and may continue.
    pub(super) kept: Option<Kept>,
    /// The transport for messages.
    pub(super) carrier: Carrier,
    /// Whether the server was last found behind the 2024-11-05 transport.
    pub(super) is_known_old: bool,
    /// The exchange that carries `notifications/initialized`, while all other messages wait for it.
    pub(super) gate: Option<StreamId>,
    /// Whether the server accepted that notification. Only then is its session worth keeping.
    pub(super) is_introduced: bool,
    /// How often that notification was sent again after the server had refused it.
    pub(super) reintroductions: u8,
    /// The listen stream, while all messages wait for it. Otherwise the server's own messages could be missed from the first call on.
    pub(super) ear: Option<StreamId>,
    /// The settings that are being changed, by the exchanges that change them. Another change of the same setting waits.
    pub(super) choosing: AscendingMap<StreamId, Box<str>>,
    pub(super) auth: Auth,
    /// Until when the server asks to wait.
    pub(super) paused_until: Option<Instant>,
    pub(super) listen: Listen,
    /// The call that the message being read belongs to, if that is known.
    pub(super) about: Option<CallId>,
    /// The ids of the last asks that were answered.
    answered: VecDeque<Id>,
    /// The header fields that each tool requires.
    mirrored: BTreeMap<Box<str>, Mirrored>,
}

/// A session that lost contact, and its agreement.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) id: Box<str>,
    pub(super) terms: Arc<Session>,
}

/// The transport for messages.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Carrier {
    /// The 2024-11-05 HTTP+SSE transport: one stream for everything from the server.
    Old {
        /// Why this transport is tried.
        why: Box<str>,
        /// Whether a missing reply is the only reason to try it.
        is_guess: bool,
        /// The URL for messages, once the server has named it.
        posts: Option<Url>,
    },
    /// The Streamable HTTP transport: one exchange for each message.
    Streamable,
}

/// Whether the server wants other credentials.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Auth {
    /// Whether the application was asked for credentials.
    pub(super) is_pending: bool,
    /// Whether the application said that there are none. Then it is asked again only for calls.
    pub(super) is_denied: bool,
    /// How often the application gave credentials.
    pub(super) given: u64,
}

/// The state of the stream for messages that a legacy server sends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listen {
    /// There is none in this epoch, or not yet.
    Off,
    /// It is open, or will be.
    On,
    /// There is none, for lack of credentials.
    Unauthorized,
}

impl Web {
    pub(super) fn new(http: &Http) -> Web {
        Web {
            home: http.url.clone(),
            url: http.url.clone(),
            redirects: 0,
            exchanges: Table::new(),
            session: None,
            is_session_over: false,
            version: None,
            kept: None,
            carrier: Carrier::Streamable,
            is_known_old: false,
            gate: None,
            is_introduced: false,
            reintroductions: 0,
            ear: None,
            choosing: AscendingMap::new(),
            auth: Auth::default(),
            paused_until: None,
            listen: Listen::Off,
            about: None,
            answered: VecDeque::new(),
            mirrored: BTreeMap::new(),
        }
    }

    /// Ends the epoch and resets its state. Returns the exchanges that were under way.
    pub(super) fn end(&mut self) -> Vec<StreamId> {
        let begun = self.exchanges.clear();
        self.url = self.home.clone();
        self.redirects = 0;
        self.session = None;
        self.is_session_over = false;
        self.version = None;
        self.carrier = Carrier::Streamable;
        self.gate = None;
        self.is_introduced = false;
        self.reintroductions = 0;
        self.ear = None;
        self.choosing = AscendingMap::new();
        self.auth.is_pending = false;
        self.paused_until = None;
        self.listen = Listen::Off;
        self.about = None;
        self.answered.clear();
        self.mirrored.clear();
        begun
    }

    /// Whether a `DELETE` of a session is under way.
    pub(super) fn has_farewell(&self) -> bool {
        let is_farewell = |exchange: &Exchange| matches!(exchange.purpose, Purpose::Farewell(..));
        self.exchanges.any(is_farewell).is_some()
    }

    /// Whether messages can be sent now.
    pub(super) fn is_open(&self) -> bool {
        let has_place = match &self.carrier {
            Carrier::Old { posts, .. } => posts.is_some(),
            Carrier::Streamable => true,
        };
        has_place
            && !self.auth.is_pending
            && !self.is_session_over
            && self.gate.is_none()
            && self.ear.is_none()
            && self.paused_until.is_none()
    }

    /// Whether a message under way changes this setting. Another one must not overtake it.
    pub(super) fn is_chosen(&self, choice: &str) -> bool {
        self.choosing.values().any(|chosen| **chosen == *choice)
    }

    pub(super) const fn is_streamable(&self) -> bool {
        matches!(self.carrier, Carrier::Streamable)
    }

    /// Whether everything from the server comes on the stream of the 2024-11-05 transport.
    pub(super) const fn is_old(&self) -> bool {
        matches!(self.carrier, Carrier::Old { posts: Some(_), .. })
    }

    /// Handles a redirect of a request that went to `target`. Returns whether it can be followed: within the same origin, and at most `REDIRECTS`
    /// times in a row.
    pub(super) fn follow(&mut self, target: &str, location: Option<&str>) -> bool {
        let moved = location.and_then(|location| self.url.resolve(location).ok());
        let moved = moved.filter(|to| to.is_same_origin(&self.url) && !self.is_old());
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

    /// Records that the present URL is that of the server.
    pub(super) fn arrived(&mut self) {
        self.redirects = 0;
    }

    /// Returns to the configured URL, because another server was found at the redirected one.
    pub(super) fn go_home(&mut self) {
        self.url = self.home.clone();
    }

    /// Sets the URL for messages that the 2024-11-05 transport names (S-SSE-05). Returns false if it is not of the same origin.
    pub(super) fn place(&mut self, reference: &str) -> bool {
        let place = self.url.resolve(reference).ok();
        let place = place.filter(|place| place.is_same_origin(&self.url));
        match &mut self.carrier {
            Carrier::Old { posts, .. } => {
                *posts = place;
                posts.is_some()
            }
            Carrier::Streamable => false,
        }
    }

    /// Remembers that the ask with this id was answered.
    pub(super) fn answered(&mut self, id: &Id) {
        if self.answered.len() >= ANSWERS_KNOWN {
            self.answered.pop_front();
        }
        self.answered.push_back(id.clone());
    }

    /// Whether the ask with this id is among the last that were answered.
    pub(super) fn was_answered(&self, id: &Id) -> bool {
        self.answered.contains(id)
    }

    /// Records the header fields that the tools of a page require. The first page replaces all earlier ones.
    pub(super) fn mirror(&mut self, tools: Vec<(Box<str>, Mirrored)>, is_first: bool) {
        if is_first {
            self.mirrored.clear();
        }
        self.mirrored.extend(tools);
    }

    pub(super) fn mirrored(&self, tool: &str) -> Option<&Mirrored> {
        self.mirrored.get(tool)
    }
}
