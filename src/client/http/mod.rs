//! What a client link knows of a server that is reached over HTTP: where it is, in which session, which exchanges are
//! under way, and what it waits for. Knows neither calls nor states of the link. `exchange` is one exchange, `table` all of them,
//! `heads` how requests begin.

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
use crate::config::Http;
use crate::http::Url;
use crate::http::mirror::Mirrored;
use crate::id::{CallId, StreamId};
use crate::protocol::Version;
use crate::register::Register;
use crate::time::Instant;
use crate::wire::Id;
use table::Table;

/// As many redirects are followed in one life.
const REDIRECTS: u32 = 5;

/// As many requests are remembered that were answered: a stream that is resumed brings no more again than that.
const ANSWERS_KNOWN: usize = 64;

#[derive(Debug)]
pub(super) struct Web {
    /// Where the server is at home.
    home: Url,
    /// Where messages go in this life, unless the transport of 2024-11-05 says otherwise.
    url: Url,
    redirects: u32,
    pub(super) exchanges: Table,
    /// The session that every request names, once there is one.
    pub(super) session: Option<Box<str>>,
    /// The server said that the session is over.
    pub(super) is_session_over: bool,
    /// The version that every request names, once it is agreed on.
    pub(super) version: Option<Version>,
    /// A session that contact was lost in: it may go on.
    pub(super) kept: Option<Kept>,
    /// What messages are carried by.
    pub(super) carrier: Carrier,
    /// The server was last found behind the transport of 2024-11-05.
    pub(super) is_known_old: bool,
    /// The message that all others wait for: the end of the handshake.
    pub(super) gate: Option<StreamId>,
    /// The server took that message, so that its session is good for more than a handshake.
    pub(super) is_introduced: bool,
    /// How often that message was sent again after the server had refused it.
    pub(super) reintroductions: u8,
    /// The stream that all messages wait for then: what the server says by itself is to be heard from the first call on.
    pub(super) ear: Option<StreamId>,
    /// What is being chosen, by the exchanges that carry the choices: another choice of the same waits.
    pub(super) choosing: Register<StreamId, Box<str>>,
    pub(super) auth: Auth,
    /// Until when the server wants to be left alone.
    pub(super) paused_until: Option<Instant>,
    pub(super) listen: Listen,
    /// The call that what is being read was said for, where that can be told.
    pub(super) about: Option<CallId>,
    /// The last requests of the server that were answered.
    answered: VecDeque<Id>,
    /// What the tools of the server want to see in the fields of a request.
    mirrored: BTreeMap<Box<str>, Mirrored>,
}

/// A session that contact was lost in, and what was agreed on in it.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) id: Box<str>,
    pub(super) terms: Arc<Session>,
}

/// What messages are carried by.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Carrier {
    /// The transport of 2024-11-05.
    Old {
        /// Why the server was looked for behind it.
        why: Box<str>,
        /// Nothing speaks against the present transport but silence.
        is_guess: bool,
        /// Where messages go, once that is said.
        posts: Option<Url>,
    },
    /// An exchange for each message.
    Streamable,
}

/// Whether the server wants other credentials.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Auth {
    /// The application was asked for them.
    pub(super) is_pending: bool,
    /// It said that there are none: it is not asked again for what nobody called for.
    pub(super) is_denied: bool,
    /// How often it gave some.
    pub(super) given: u64,
}

/// Where the stream of what a legacy server says by itself stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listen {
    /// There is none in this life, or not yet.
    Off,
    /// There is one, or will be.
    On,
    /// There is none, for want of credentials.
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
            choosing: Register::new(),
            auth: Auth::default(),
            paused_until: None,
            listen: Listen::Off,
            about: None,
            answered: VecDeque::new(),
            mirrored: BTreeMap::new(),
        }
    }

    /// The life is over: nothing of it goes on. The exchanges that were under way.
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
        self.choosing = Register::new();
        self.auth.is_pending = false;
        self.paused_until = None;
        self.listen = Listen::Off;
        self.about = None;
        self.answered.clear();
        self.mirrored.clear();
        begun
    }

    /// Whether a session is being ended.
    pub(super) fn has_farewell(&self) -> bool {
        let is_farewell = |exchange: &Exchange| matches!(exchange.purpose, Purpose::Farewell(..));
        self.exchanges.any(is_farewell).is_some()
    }

    /// Whether anything can be sent at all now.
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

    /// Whether this is being chosen by a message under way, which must not be overtaken.
    pub(super) fn is_chosen(&self, choice: &str) -> bool {
        self.choosing.values().any(|chosen| **chosen == *choice)
    }

    pub(super) const fn is_streamable(&self) -> bool {
        matches!(self.carrier, Carrier::Streamable)
    }

    /// Whether all that the server says comes on the stream of the transport of 2024-11-05.
    pub(super) const fn is_old(&self) -> bool {
        matches!(self.carrier, Carrier::Old { posts: Some(_), .. })
    }

    /// The server says that it is elsewhere, to a request that went to `target`. Whether that can be followed: to the same origin,
    /// and not for ever.
    pub(super) fn follow(&mut self, target: &str, location: Option<&str>) -> bool {
        let moved = location.and_then(|location| self.url.resolve(location).ok());
        let moved = moved.filter(|to| to.is_same_origin(&self.url) && !self.is_old());
        let Some(moved) = moved else {
            return false;
        };
        // Whoever was sent before the move was known is sent the same way.
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

    /// The server is where it said to be.
    pub(super) fn arrived(&mut self) {
        self.redirects = 0;
    }

    /// What was found elsewhere is not the server: the next request goes to where it is at home.
    pub(super) fn go_home(&mut self) {
        self.url = self.home.clone();
    }

    /// The transport of 2024-11-05 says where messages go (S-SSE-05). Whether that is a place of this server.
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

    /// The request of the server with this id has its answer.
    pub(super) fn answered(&mut self, id: &Id) {
        if self.answered.len() >= ANSWERS_KNOWN {
            self.answered.pop_front();
        }
        self.answered.push_back(id.clone());
    }

    /// Whether the request of the server with this id was answered not long ago.
    pub(super) fn was_answered(&self, id: &Id) -> bool {
        self.answered.contains(id)
    }

    /// What the tools of a page want to see in the fields; of the first page, that nothing else is wanted.
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
