//! What a client link knows of a server that is reached over HTTP: where it is, in which session, which exchanges are
//! under way, and what it waits for. Knows neither calls nor states of the link; `exchange` is one of the exchanges.

mod exchange;

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

pub(super) use exchange::{Body, Exchange, Load, Purpose, Text, Thread};

use super::event::Session;
use crate::config::Http;
use crate::http::mirror::Mirrored;
use crate::http::{Fields, RequestHead, Url, Verb, names, value};
use crate::id::StreamId;
use crate::protocol::{Era, Version};
use crate::time::Instant;

/// Both kinds of body that a response to a message can have (S-HTTP-07).
const BOTH_KINDS: &str = "application/json, text/event-stream";

/// As many redirects are followed in one life.
const REDIRECTS: u32 = 5;

/// The longest id of a session that is kept.
const SESSION_ID_LIMIT: usize = 1_024;

#[derive(Debug)]
pub(super) struct Web {
    /// Where the server is at home.
    home: Url,
    /// Where messages go in this life, unless the transport of 2024-11-05 says otherwise.
    url: Url,
    redirects: u32,
    next: u64,
    exchanges: BTreeMap<StreamId, Exchange>,
    /// Exchanges without a message whose time has come.
    due: VecDeque<StreamId>,
    /// Bytes of responses that have not all arrived.
    buffered: usize,
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
    pub(super) auth: Auth,
    /// Until when the server wants to be left alone.
    pub(super) paused_until: Option<Instant>,
    /// How often each request of the link itself was turned away.
    turned_away: BTreeMap<u64, u32>,
    pub(super) listen: Listen,
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
    /// The transport of 2024-11-05, behind which the server was looked for because of this.
    Old {
        why: Box<str>,
        /// Where messages go, once that is said.
        posts: Option<Url>,
    },
    /// An exchange for each message.
    Streamable,
}

/// Whether the server wants other credentials.
#[derive(Debug, Default)]
pub(super) struct Auth {
    /// The application was asked for them.
    pub(super) is_pending: bool,
    /// How often it gave some.
    pub(super) given: u64,
}

/// Where the stream of what a legacy server says by itself stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listen {
    /// There is one, or will be.
    On,
    /// There is none in this life.
    Off,
    /// There is none, for want of credentials.
    Unauthorized,
}

impl Web {
    pub(super) fn new(http: &Http) -> Web {
        Web {
            home: http.url.clone(),
            url: http.url.clone(),
            redirects: 0,
            next: 1,
            exchanges: BTreeMap::new(),
            due: VecDeque::new(),
            buffered: 0,
            session: None,
            is_session_over: false,
            version: None,
            kept: None,
            carrier: Carrier::Streamable,
            is_known_old: false,
            gate: None,
            is_introduced: false,
            auth: Auth::default(),
            paused_until: None,
            turned_away: BTreeMap::new(),
            listen: Listen::Off,
            mirrored: BTreeMap::new(),
        }
    }

    /// The life is over: nothing of it goes on. The exchanges that were under way.
    pub(super) fn end(&mut self) -> Vec<StreamId> {
        let begun = self.exchanges.iter();
        let begun = begun.filter(|(_, exchange)| exchange.begun.is_some());
        let begun = begun.map(|(stream, _)| *stream).collect();
        *self = Web {
            url: self.home.clone(),
            home: self.home.clone(),
            next: self.next,
            kept: self.kept.take(),
            is_known_old: self.is_known_old,
            auth: Auth {
                is_pending: false,
                given: self.auth.given,
            },
            redirects: 0,
            exchanges: BTreeMap::new(),
            due: VecDeque::new(),
            buffered: 0,
            session: None,
            is_session_over: false,
            version: None,
            carrier: Carrier::Streamable,
            gate: None,
            is_introduced: false,
            paused_until: None,
            turned_away: BTreeMap::new(),
            listen: Listen::Off,
            mirrored: BTreeMap::new(),
        };
        begun
    }

    /// A new exchange. It begins when the driver is told so.
    pub(super) fn add(&mut self, exchange: Exchange) -> StreamId {
        let stream = StreamId::new(self.next);
        self.next += 1;
        self.exchanges.insert(stream, exchange);
        stream
    }

    /// The time of an exchange without a message has come.
    pub(super) fn begin_soon(&mut self, stream: StreamId) {
        self.due.push_back(stream);
    }

    pub(super) fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    pub(super) fn next_due(&mut self) -> Option<StreamId> {
        self.due.pop_front()
    }

    pub(super) fn len(&self) -> usize {
        self.exchanges.len()
    }

    pub(super) fn get_mut(&mut self, stream: StreamId) -> Option<&mut Exchange> {
        self.exchanges.get_mut(&stream)
    }

    pub(super) fn get(&self, stream: StreamId) -> Option<&Exchange> {
        self.exchanges.get(&stream)
    }

    pub(super) fn take(&mut self, stream: StreamId) -> Option<Exchange> {
        let taken = self.exchanges.remove(&stream)?;
        self.due.retain(|due| *due != stream);
        self.buffered -= taken.body.buffered();
        Some(taken)
    }

    /// The exchange that brings the reply to the request with this wire id.
    pub(super) fn find(&self, wire: u64) -> Option<StreamId> {
        let mut all = self.exchanges.iter();
        let found = all.find(|(_, exchange)| exchange.wire() == Some(wire));
        found.map(|(stream, _)| *stream)
    }

    /// Whether a session is being ended.
    pub(super) fn has_farewell(&self) -> bool {
        let mut all = self.exchanges.values();
        all.any(|exchange| matches!(exchange.purpose, Purpose::Farewell(_)))
    }

    /// Bytes of responses that have not all arrived.
    pub(super) const fn buffered(&self) -> usize {
        self.buffered
    }

    /// Takes out what has arrived of a response, to go on with it.
    pub(super) fn take_body(&mut self, stream: StreamId) -> Option<Body> {
        let exchange = self.exchanges.get_mut(&stream)?;
        let body = core::mem::replace(&mut exchange.body, Body::Ignored);
        self.buffered -= body.buffered();
        Some(body)
    }

    /// Puts it back, if the exchange is still about it.
    pub(super) fn put_body(&mut self, stream: StreamId, body: Body) {
        if let Some(exchange) = self.exchanges.get_mut(&stream) {
            if !matches!(exchange.purpose, Purpose::Spent) {
                self.buffered += body.buffered();
                exchange.body = body;
            }
        }
    }

    /// Nothing more is expected of an exchange.
    pub(super) fn spend(&mut self, stream: StreamId) -> Option<Exchange> {
        let exchange = self.exchanges.get_mut(&stream)?;
        let spent = exchange.spend();
        self.buffered -= spent.body.buffered();
        Some(spent)
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
            && self.paused_until.is_none()
    }

    pub(super) const fn is_streamable(&self) -> bool {
        matches!(self.carrier, Carrier::Streamable)
    }

    /// The request of the link itself with this wire id was turned away once more: how often by now.
    pub(super) fn turn_away(&mut self, wire: u64) -> u32 {
        let times = self.turned_away.entry(wire).or_default();
        *times += 1;
        *times
    }

    /// The server says that it is elsewhere. Whether that can be followed.
    pub(super) fn follow(&mut self, location: Option<&str>, is_for_good: bool) -> bool {
        let moved = location.and_then(|location| self.url.resolve(location).ok());
        let moved = moved.filter(|to| to.is_same_origin(&self.url) && self.redirects < REDIRECTS);
        let Some(moved) = moved.filter(|_| self.is_streamable()) else {
            return false;
        };
        self.redirects += 1;
        if is_for_good {
            self.home = moved.clone();
        }
        self.url = moved;
        true
    }

    /// The transport of 2024-11-05 says where messages go (S-SSE-05). Whether that is a place of this server.
    pub(super) fn place(&mut self, reference: &str) -> bool {
        let place = self.url.resolve(reference).ok();
        let place = place.filter(|place| place.is_same_origin(&self.url));
        match &mut self.carrier {
            Carrier::Old { posts, .. } if posts.is_none() => {
                *posts = place;
                posts.is_some()
            }
            Carrier::Old { .. } | Carrier::Streamable => false,
        }
    }

    /// What the tools of a page want to see in the fields.
    pub(super) fn mirror(&mut self, tools: Vec<(Box<str>, Mirrored)>) {
        self.mirrored.extend(tools);
    }

    /// The list is read anew: what an earlier one said is not believed.
    pub(super) fn forget_mirrored(&mut self) {
        self.mirrored.clear();
    }

    pub(super) fn mirrored(&self, tool: &str) -> Option<&Mirrored> {
        self.mirrored.get(tool)
    }
}

/// # How requests begin
impl Web {
    /// A message.
    pub(super) fn post(&self, message: &Message) -> RequestHead<'static> {
        let place = match &self.carrier {
            Carrier::Old { posts, .. } => posts.as_ref().unwrap_or(&self.url),
            Carrier::Streamable => &self.url,
        };
        let mut fields = Fields::new()
            .and(names::CONTENT_TYPE, "application/json")
            .and(names::ACCEPT, BOTH_KINDS);
        match message.version.era() {
            Era::Modern => {
                fields.push(names::MCP_PROTOCOL_VERSION, message.version.as_str());
                if let Some(method) = &message.method {
                    fields.push(names::MCP_METHOD, value::encode(method).into_owned());
                }
                if let Some(name) = &message.name {
                    fields.push(names::MCP_NAME, value::encode(name).into_owned());
                }
                for (name, value) in &message.params {
                    fields.push(name.clone(), value.clone());
                }
            }
            // S-SESS-06, S-LHTTP-20: neither belongs to the beginning of a handshake.
            Era::Legacy if message.is_introduction => {}
            Era::Legacy => self.identify(&mut fields),
        }
        RequestHead::new(Verb::Post, String::from(place.as_str())).with_fields(fields)
    }

    /// An exchange without a message.
    pub(super) fn head(&self, exchange: &Exchange) -> RequestHead<'static> {
        let mut fields = Fields::new();
        let verb = match &exchange.purpose {
            Purpose::Farewell(session) => {
                fields.push(names::MCP_SESSION_ID, String::from(&**session));
                self.name_version(&mut fields);
                Verb::Delete
            }
            Purpose::Old => {
                fields.push(names::ACCEPT, "text/event-stream");
                Verb::Get
            }
            Purpose::Listen
            | Purpose::Message
            | Purpose::Request(_)
            | Purpose::Resume(_)
            | Purpose::Spent => {
                fields.push(names::ACCEPT, "text/event-stream");
                self.identify(&mut fields);
                if let Some(cursor) = &exchange.thread.cursor {
                    fields.push(names::LAST_EVENT_ID, String::from(&**cursor));
                }
                Verb::Get
            }
        };
        RequestHead::new(verb, String::from(self.url.as_str())).with_fields(fields)
    }

    /// S-SESS-03, S-LHTTP-20
    fn identify(&self, fields: &mut Fields<'static>) {
        if let Some(session) = &self.session {
            fields.push(names::MCP_SESSION_ID, String::from(&**session));
        }
        self.name_version(fields);
    }

    fn name_version(&self, fields: &mut Fields<'static>) {
        // S-LHTTP-23: the first version that has sessions does not know the field.
        let named = self.version.filter(|v| *v >= Version::V2025_06_18);
        if let Some(version) = named.filter(|_| self.is_streamable()) {
            fields.push(names::MCP_PROTOCOL_VERSION, version.as_str());
        }
    }
}

/// What the fields of a request say of the message in its body.
#[derive(Debug)]
pub(super) struct Message {
    /// The version that it is written in.
    pub(super) version: Version,
    pub(super) method: Option<Cow<'static, str>>,
    pub(super) name: Option<String>,
    /// The fields that its tool wants to see.
    pub(super) params: Vec<(String, String)>,
    /// Whether it begins a legacy handshake.
    pub(super) is_introduction: bool,
}

/// The id of a session as the server gave it, if it is one (S-SESS-02).
pub(super) fn session_id(fields: &Fields<'_>) -> Option<Box<str>> {
    let id = fields.get(names::MCP_SESSION_ID)?;
    let is_one = !id.is_empty()
        && id.len() <= SESSION_ID_LIMIT
        && id.bytes().all(|byte| matches!(byte, 0x21..=0x7e));
    is_one.then(|| id.into())
}

/// Whether an event can be named in a field.
pub(super) fn is_nameable(event: &str) -> bool {
    !event.is_empty() && !event.bytes().any(|byte| byte < 0x20 || byte == 0x7f)
}
