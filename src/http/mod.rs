//! HTTP as data: what a request and a response begin with. Knows no message, no socket and no framing.
//!
//! A machine over HTTP says which exchanges to begin and what goes into them; a driver, or the library that it uses, does the rest.
//! `fields` are the header fields, `media` what they say of bodies, `value` how a text becomes a field value, `url` where a request goes,
//! `mirror` which parts of a message a modern request repeats in its fields, `delay` how long a peer asks to wait.

pub(crate) mod delay;
pub(crate) mod fields;
pub(crate) mod media;
pub(crate) mod mirror;
pub(crate) mod url;
pub(crate) mod value;

use alloc::borrow::Cow;
use core::fmt;
use core::net::IpAddr;

pub use fields::Fields;
pub use url::{BadUrl, Url};

/// What is done to a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verb {
    /// `DELETE`: a session ends.
    Delete,
    /// `GET`: a stream of what the server says by itself, or the rest of one that broke off.
    Get,
    /// `OPTIONS`: a browser asks whether a web page may send a request (CORS). Only a server meets it.
    Options,
    /// Another one, which the binding has no use for. Only a server meets it.
    Other,
    /// `POST`: a message.
    Post,
}

impl Verb {
    /// The verb of this name, in capitals as on the wire.
    #[must_use]
    pub fn parse(name: &str) -> Verb {
        match name {
            "DELETE" => Verb::Delete,
            "GET" => Verb::Get,
            "OPTIONS" => Verb::Options,
            "POST" => Verb::Post,
            _ => Verb::Other,
        }
    }

    /// Its name on the wire. `Other` has none.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Verb::Delete => "DELETE",
            Verb::Get => "GET",
            Verb::Options => "OPTIONS",
            Verb::Other => "",
            Verb::Post => "POST",
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// How a request begins.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestHead<'a> {
    /// What to do.
    pub verb: Verb,
    /// With what: an absolute URL at the client's end; at the server's, the path and query as they came.
    pub target: Cow<'a, str>,
    /// The header fields. A driver adds what belongs to its own work: `Host`, `Content-Length`, credentials.
    pub fields: Fields<'a>,
    /// At the server's end: who asks, as whoever checked the credentials says. A session belongs to whom it was opened for.
    pub user: Option<Cow<'a, str>>,
    /// At the server's end: the network address that the request came from, if the driver knows it. It is told with a refusal and decides nothing.
    pub address: Option<IpAddr>,
}

impl<'a> RequestHead<'a> {
    /// A request to do this with that, and no fields yet.
    pub fn new(verb: Verb, target: impl Into<Cow<'a, str>>) -> RequestHead<'a> {
        RequestHead {
            verb,
            target: target.into(),
            fields: Fields::new(),
            user: None,
            address: None,
        }
    }

    /// From this network address.
    #[must_use]
    pub fn coming_from(mut self, address: IpAddr) -> RequestHead<'a> {
        self.address = Some(address);
        self
    }

    /// On behalf of this user.
    #[must_use]
    pub fn by(mut self, user: impl Into<Cow<'a, str>>) -> RequestHead<'a> {
        self.user = Some(user.into());
        self
    }

    /// With these fields.
    #[must_use]
    pub fn with_fields(mut self, fields: Fields<'a>) -> RequestHead<'a> {
        self.fields = fields;
        self
    }
}

/// A query may hold a secret.
impl fmt::Debug for RequestHead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.target.split('?').next().unwrap_or_default();
        f.debug_struct("RequestHead")
            .field("verb", &self.verb)
            .field("target", &path)
            .field("fields", &self.fields)
            .finish_non_exhaustive()
    }
}

/// How a response begins.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResponseHead<'a> {
    /// The status code.
    pub status: u16,
    /// The header fields. A driver adds what belongs to its own work: `Content-Length`, `Date`.
    pub fields: Fields<'a>,
}

impl<'a> ResponseHead<'a> {
    /// A response with this status, and no fields yet.
    #[must_use]
    pub const fn new(status: u16) -> ResponseHead<'a> {
        ResponseHead {
            status,
            fields: Fields::new(),
        }
    }

    /// With these fields.
    #[must_use]
    pub fn with_fields(mut self, fields: Fields<'a>) -> ResponseHead<'a> {
        self.fields = fields;
        self
    }
}

/// The names of the header fields that the binding reads and writes, in lower case; they are compared without regard to case.
pub mod names {
    /// Which kinds of body a client takes.
    pub const ACCEPT: &str = "accept";
    /// Which verbs there are.
    pub const ALLOW: &str = "allow";
    /// The credentials of whoever asks.
    pub const AUTHORIZATION: &str = "authorization";
    /// Whether what is sent may be held by somebody in between.
    pub const CACHE_CONTROL: &str = "cache-control";
    /// How long the body is.
    pub const CONTENT_LENGTH: &str = "content-length";
    /// What kind of body this is.
    pub const CONTENT_TYPE: &str = "content-type";
    /// When a response was made.
    pub const DATE: &str = "date";
    /// For which host a request is meant.
    pub const HOST: &str = "host";
    /// After which event a stream is to go on.
    pub const LAST_EVENT_ID: &str = "last-event-id";
    /// Where to go instead.
    pub const LOCATION: &str = "location";
    /// The method of the message in the body.
    pub const MCP_METHOD: &str = "mcp-method";
    /// What the message in the body is about.
    pub const MCP_NAME: &str = "mcp-name";
    /// How every field begins that repeats an argument of a tool.
    pub const MCP_PARAM: &str = "mcp-param-";
    /// The version that is spoken.
    pub const MCP_PROTOCOL_VERSION: &str = "mcp-protocol-version";
    /// The legacy session.
    pub const MCP_SESSION_ID: &str = "mcp-session-id";
    /// The web page on whose behalf a browser asks.
    pub const ORIGIN: &str = "origin";
    /// How long to wait.
    pub const RETRY_AFTER: &str = "retry-after";
    /// What it takes to be let in.
    pub const WWW_AUTHENTICATE: &str = "www-authenticate";
    /// Whether a proxy may hold back what is streamed.
    pub const X_ACCEL_BUFFERING: &str = "x-accel-buffering";
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    #[test]
    fn a_verb_has_a_name() {
        for verb in [Verb::Delete, Verb::Get, Verb::Options, Verb::Post] {
            assert_eq!(Verb::parse(verb.as_str()), verb);
        }
        for name in ["", "get", "PUT"] {
            assert_eq!(Verb::parse(name), Verb::Other, "{name}");
        }
        assert_eq!(format!("{:>5}", Verb::Get), "  GET");
    }

    #[test]
    fn neither_a_query_nor_a_value_is_shown() {
        let fields = Fields::new().and("authorization", "hunter2");
        let head = RequestHead::new(Verb::Get, "/mcp?token=hunter2").with_fields(fields);
        let shown = format!("{head:?}");
        assert!(shown.starts_with(r#"RequestHead { verb: Get, target: "/mcp", "#));
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
