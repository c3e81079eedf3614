//! HTTP as data: the heads of requests and responses. Does not depend on messages, sockets or framing.
//!
//! A machine over HTTP decides which exchanges to begin and what they contain. A driver, or the HTTP library that it uses, does the rest.

// `bearer` checks tokens, `fields` holds header fields, `media` parses media types, `value` encodes texts as field values, `url` parses URLs, and
// `retry_after` reads `Retry-After`.

mod bearer;
pub(crate) mod fields;
pub(crate) mod media;
pub(crate) mod retry_after;
pub(crate) mod url;
pub(crate) mod value;

use alloc::borrow::Cow;
use core::fmt;
use core::net::IpAddr;

pub use bearer::{BadToken, bearer};
pub use fields::Fields;
pub use url::{BadUrl, Url};

/// The method of an HTTP request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verb {
    /// `DELETE`: ends a session.
    Delete,
    /// `GET`: requests a stream of the messages that the server sends on its own, or the rest of a stream that broke off.
    Get,
    /// `OPTIONS`: a browser asks whether a web page may send a request (CORS). Only a server receives it.
    Options,
    /// Any other method, which the transport does not use. Only a server receives it.
    Other,
    /// `POST`: sends a message.
    Post,
}

impl Verb {
    /// The verb with this name, in capitals as on the wire.
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

/// The head of a request.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestHead<'a> {
    /// The HTTP method.
    pub verb: Verb,
    /// The request target: an absolute URL at the client's end; at the server's end, the path and query as they came.
    pub target: Cow<'a, str>,
    /// The header fields. A driver adds those that belong to its own work: `Host`, `Content-Length`, credentials.
    pub fields: Fields<'a>,
    /// At the server's end: the authenticated user, if the driver checked credentials. A session belongs to the user that opened it.
    pub user: Option<Cow<'a, str>>,
    /// At the server's end: the network address that the request came from, if the driver knows it. It is reported with a refusal.
    /// Without a user and a session, it says whose request gives way when too many are open.
    pub address: Option<IpAddr>,
}

impl<'a> RequestHead<'a> {
    /// A request with this method and target, and no fields yet.
    pub fn new(verb: Verb, target: impl Into<Cow<'a, str>>) -> RequestHead<'a> {
        RequestHead {
            verb,
            target: target.into(),
            fields: Fields::new(),
            user: None,
            address: None,
        }
    }

    /// Sets the network address that the request came from.
    #[must_use]
    pub fn coming_from(mut self, address: IpAddr) -> RequestHead<'a> {
        self.address = Some(address);
        self
    }

    /// Sets the user.
    #[must_use]
    pub fn by(mut self, user: impl Into<Cow<'a, str>>) -> RequestHead<'a> {
        self.user = Some(user.into());
        self
    }

    /// Replaces the fields.
    #[must_use]
    pub fn with_fields(mut self, fields: Fields<'a>) -> RequestHead<'a> {
        self.fields = fields;
        self
    }
}

/// Leaves out the query, because it may hold a secret.
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

/// The head of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResponseHead<'a> {
    /// The status code.
    pub status: u16,
    /// The header fields. A driver adds those that belong to its own work: `Content-Length`, `Date`.
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

    /// Replaces the fields.
    #[must_use]
    pub fn with_fields(mut self, fields: Fields<'a>) -> ResponseHead<'a> {
        self.fields = fields;
        self
    }
}

/// The names of the header fields that the transport reads and writes, in lower case. They are compared without regard to case.
pub mod names {
    /// The media types that a client accepts.
    pub const ACCEPT: &str = "accept";
    /// The methods that a resource supports.
    pub const ALLOW: &str = "allow";
    /// The credentials of the client.
    pub const AUTHORIZATION: &str = "authorization";
    /// Whether a cache may store the response.
    pub const CACHE_CONTROL: &str = "cache-control";
    /// The length of the body.
    pub const CONTENT_LENGTH: &str = "content-length";
    /// The media type of the body.
    pub const CONTENT_TYPE: &str = "content-type";
    /// The time at which a response was created.
    pub const DATE: &str = "date";
    /// The host that a request is meant for.
    pub const HOST: &str = "host";
    /// The event after which a stream is to continue.
    pub const LAST_EVENT_ID: &str = "last-event-id";
    /// The URL of a redirect.
    pub const LOCATION: &str = "location";
    /// The method of the message in the body.
    pub const MCP_METHOD: &str = "mcp-method";
    /// The subject of the message in the body, such as the name of a tool.
    pub const MCP_NAME: &str = "mcp-name";
    /// The prefix of the fields that repeat an argument of a tool.
    pub const MCP_PARAM: &str = "mcp-param-";
    /// The protocol version in use.
    pub const MCP_PROTOCOL_VERSION: &str = "mcp-protocol-version";
    /// The legacy session.
    pub const MCP_SESSION_ID: &str = "mcp-session-id";
    /// The origin of the web page for which a browser sends the request.
    pub const ORIGIN: &str = "origin";
    /// How long to wait.
    pub const RETRY_AFTER: &str = "retry-after";
    /// The span that sends the request (W3C Trace Context).
    pub const TRACEPARENT: &str = "traceparent";
    /// Further data about the trace (W3C Trace Context).
    pub const TRACESTATE: &str = "tracestate";
    /// The authentication that the server requires.
    pub const WWW_AUTHENTICATE: &str = "www-authenticate";
    /// Whether a proxy may buffer a stream.
    pub const X_ACCEL_BUFFERING: &str = "x-accel-buffering";
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    #[test]
    fn verb_names_round_trip() {
        for verb in [Verb::Delete, Verb::Get, Verb::Options, Verb::Post] {
            assert_eq!(Verb::parse(verb.as_str()), verb);
        }
        for name in ["", "get", "PUT"] {
            assert_eq!(Verb::parse(name), Verb::Other, "{name}");
        }
        assert_eq!(format!("{:>5}", Verb::Get), "  GET");
    }

    #[test]
    fn debug_of_a_head_shows_neither_query_nor_field_values() {
        let fields = Fields::new().and("authorization", "hunter2");
        let head = RequestHead::new(Verb::Get, "/mcp?token=hunter2").with_fields(fields);
        let shown = format!("{head:?}");
        assert!(shown.starts_with(r#"RequestHead { verb: Get, target: "/mcp", "#));
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
