//! Validates the head of a request, and checks that its header fields agree with its message. Returns verdicts and sends nothing. Does
//! not depend on sessions.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::http::{Fields, RequestHead, Verb, fields, media, names, url, value};
use crate::protocol::{TraceContext, code};
use crate::server::binding::http::config::{Allowed, Http};
use crate::server::binding::http::cors;
use crate::server::binding::http::exchange::{Accepts, Arriving, Route};
use crate::server::event::RefusalCause;
use crate::util::noise::excerpt;
use crate::wire::{ErrorObject, Id};

pub(crate) const JSON: &str = "application/json";
pub(crate) const EVENTS: &str = "text/event-stream";

/// The `Retry-After` of a server that is busy, in seconds.
const COME_BACK_AFTER: &str = "5";

/// The most bytes of header fields that are kept while a body arrives (S-INH-06). Repeated arguments may be long, but not longer.
const MOST_FIELD_BYTES: usize = 64 << 10;

/// Fields that must have one value. Other fields that must occur once are checked where they are read; see [`FieldValue`].
const SINGLE: [&str; 6] = [
    names::ORIGIN,
    names::AUTHORIZATION,
    names::CONTENT_LENGTH,
    names::CONTENT_TYPE,
    names::LAST_EVENT_ID,
    names::MCP_SESSION_ID,
];

/// The refusal of a request.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) id: Option<Id>,
    pub(crate) error: ErrorObject,
    pub(crate) fields: Fields<'static>,
    pub(crate) cause: RefusalCause,
}

impl Refusal {
    pub(crate) fn new(status: u16, text: impl Into<String>) -> Refusal {
        Refusal::coded(status, code::INVALID_REQUEST, text)
    }

    pub(crate) fn coded(status: u16, code: i64, text: impl Into<String>) -> Refusal {
        Refusal {
            status,
            id: None,
            error: ErrorObject::new(code, text),
            fields: Fields::new(),
            cause: RefusalCause::Other,
        }
    }

    /// Sets a cause that an operator can fix.
    pub(crate) fn because(mut self, cause: RefusalCause) -> Refusal {
        self.cause = cause;
        self
    }

    /// A refusal with 503: the client may retry later.
    pub(crate) fn busy(text: &str) -> Refusal {
        let fields = Fields::new().and(names::RETRY_AFTER, COME_BACK_AFTER);
        Refusal {
            fields,
            ..Refusal::coded(503, code::INTERNAL_ERROR, text)
        }
    }

    /// The refusal of a request that comes while all exchanges are in use.
    pub(crate) fn no_place() -> Refusal {
        Refusal::busy("as many requests are open as may be")
    }

    /// The refusal of a request that names no session, or that of another user.
    pub(crate) fn no_session() -> Refusal {
        let text = "there is no such session, or it is over: send `initialize` for a new one";
        Refusal::new(404, text)
    }

    /// A refusal with 405 that lists the allowed HTTP methods.
    fn verb(allowed: String) -> Refusal {
        let text = format!("this path allows only these HTTP methods: {allowed}");
        let fields = Fields::new().and(names::ALLOW, allowed);
        Refusal {
            fields,
            ..Refusal::new(405, text)
        }
    }

    /// Makes the refusal the reply to the request with this id (S-HTTP-33).
    pub(crate) fn to(mut self, id: Option<&Id>) -> Refusal {
        self.id = id.cloned();
        self
    }
}

/// The response to a CORS preflight, if the page may send requests here.
pub(crate) fn preflight(
    http: &Http,
    is_legacy: bool,
    head: &RequestHead<'_>,
) -> Option<Fields<'static>> {
    let granted = cors::granted(http, &head.fields).filter(|_| head.verb == Verb::Options)?;
    check_repeated(&head.fields).ok()?;
    check_source(http, &head.fields).ok()?;
    route(http, is_legacy, &head.target).map(|_| cors::preflight(granted))
}

/// Checks the head of a request. Returns the request if it is worth waiting for its body.
pub(crate) fn check_head(
    http: &Http,
    is_legacy: bool,
    head: &RequestHead<'_>,
) -> Result<Arriving, Refusal> {
    check_repeated(&head.fields)?;
    check_source(http, &head.fields)?;
    let Some(route) = route(http, is_legacy, &head.target) else {
        let refusal = Refusal::new(404, "there is nothing at this path");
        return Err(refusal.because(RefusalCause::Path));
    };
    check_verb(http, is_legacy, &route, head.verb)?;
    let takes_both = media::accepts_both(&head.fields);
    let accepts = Accepts {
        json: takes_both || media::accepts(&head.fields, JSON),
        sse: takes_both || media::accepts(&head.fields, EVENTS),
    };
    let is_taken = match (head.verb, &route) {
        (Verb::Get, _) => accepts.sse,
        (Verb::Post, Route::Endpoint) => accepts.json || accepts.sse,
        (Verb::Delete | Verb::Options | Verb::Other | Verb::Post, _) => true,
    };
    if !is_taken {
        let text =
            "the answer is `application/json` or `text/event-stream`, and neither is accepted";
        return Err(Refusal::new(406, text));
    }
    let has_kind = head.fields.has(names::CONTENT_TYPE);
    let kind = head.fields.get(names::CONTENT_TYPE).unwrap_or_default();
    if head.verb == Verb::Post && has_kind && !media::is(kind, JSON) {
        return Err(Refusal::new(
            415,
            "the `Content-Type` of a message must be `application/json`",
        ));
    }
    let fields = kept(&head.fields);
    if fields.bytes() > MOST_FIELD_BYTES {
        let text = "the header fields are longer than a message needs";
        return Err(Refusal::new(431, text));
    }
    Ok(Arriving {
        verb: head.verb,
        route,
        fields,
        user: head.user.as_deref().map(Into::into),
        trace: trace_context(&head.fields),
        address: head.address,
        accepts,
        body: Vec::new(),
        found: None,
        is_passed: false,
        looks: 0,
    })
}

/// Refuses a request in which a single-valued field has two different values. A proxy may have used the other value.
fn check_repeated(fields: &Fields<'_>) -> Result<(), Refusal> {
    // RFC 9110, section 7.2: two `Host` fields are invalid even if they are equal.
    if fields.all(names::HOST).nth(1).is_some() {
        return Err(Refusal::new(400, "the request has more than one `Host`"));
    }
    for name in SINGLE {
        let mut all = fields.all(name);
        let first = all.next();
        if all.any(|other| Some(other) != first) {
            let text = format!("the request has more than one `{name}`, and they differ");
            return Err(Refusal::new(400, text));
        }
    }
    Ok(())
}

/// Refuses requests that a foreign web page sends through a browser to a server that trusts this machine (S-HTTP-02, S-HTTP-03).
fn check_source(http: &Http, fields: &Fields<'_>) -> Result<(), Refusal> {
    let host = fields.get(names::HOST);
    if !allows_host(&http.hosts, host) {
        let text = match host {
            Some(host) => format!(
                "the `Host` of the request is not served here: `{}`",
                excerpt(host)
            ),
            None => String::from("the request has no `Host`, or one that cannot be read"),
        };
        return Err(Refusal::new(403, text).because(RefusalCause::Host));
    }
    let is_allowed_by = |allowed: &Allowed| match fields.get(names::ORIGIN) {
        Some(origin) => allows_origin(allowed, origin),
        // A field that cannot be read is allowed only by `Allowed::Any`.
        None => !fields.has(names::ORIGIN) || *allowed == Allowed::Any,
    };
    if is_allowed_by(&http.origins) || http.cors.as_ref().is_some_and(is_allowed_by) {
        return Ok(());
    }
    let text = match fields.get(names::ORIGIN) {
        Some(origin) => format!(
            "web pages of this `Origin` may not send requests here: `{}`",
            excerpt(origin)
        ),
        None => String::from("the `Origin` of the request cannot be read"),
    };
    Err(Refusal::new(403, text).because(RefusalCause::Origin))
}

pub(crate) fn allows_host(allowed: &Allowed, host: Option<&str>) -> bool {
    match allowed {
        Allowed::Any => true,
        Allowed::List(hosts) => host.is_some_and(|host| {
            hosts.iter().any(|known| {
                let without_port = host.get(..known.len());
                let port = host.get(known.len()..).unwrap_or_default();
                let is_any_port = port.is_empty() || port.starts_with(':');
                is_any_port && without_port.is_some_and(|name| name.eq_ignore_ascii_case(known))
            })
        }),
        Allowed::Loopback => host.is_some_and(url::is_loopback),
    }
}

pub(crate) fn allows_origin(allowed: &Allowed, origin: &str) -> bool {
    match allowed {
        Allowed::Any => true,
        Allowed::List(origins) => {
            let mut origins = origins.iter();
            origins.any(|known| known.eq_ignore_ascii_case(origin))
        }
        Allowed::Loopback => url::host_of_origin(origin).is_some_and(url::is_loopback),
    }
}

/// The route for this path, if there is one.
fn route(http: &Http, is_legacy: bool, target: &str) -> Option<Route> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    match http.sse.as_ref().filter(|_| is_legacy) {
        Some(paths) if path == &*paths.stream => Some(Route::SseStream),
        Some(paths) if path == &*paths.messages => {
            let session = query
                .split('&')
                .find_map(|pair| pair.strip_prefix("session="));
            Some(Route::SseMessages(session.unwrap_or_default().into()))
        }
        Some(_) | None => {
            let is_here = http.path.as_ref().is_none_or(|known| path == &**known);
            is_here.then_some(Route::Endpoint)
        }
    }
}

/// Checks that the route has this HTTP method. A server that speaks only modern versions has no `GET` and no `DELETE` (S-HTTP-36).
fn check_verb(http: &Http, is_legacy: bool, route: &Route, verb: Verb) -> Result<(), Refusal> {
    let allowed: &[Verb] = match route {
        Route::SseMessages(_) => &[Verb::Post],
        Route::SseStream => &[Verb::Get],
        Route::Endpoint if is_legacy && http.may_delete => &[Verb::Post, Verb::Get, Verb::Delete],
        Route::Endpoint if is_legacy => &[Verb::Post, Verb::Get],
        Route::Endpoint => &[Verb::Post],
    };
    if allowed.contains(&verb) {
        return Ok(());
    }
    let names: Vec<&str> = allowed.iter().map(|verb| verb.as_str()).collect();
    Err(Refusal::verb(names.join(", ")))
}

/// The trace context in the header.
fn trace_context(fields: &Fields<'_>) -> Option<Box<TraceContext>> {
    let parent = fields.get(names::TRACEPARENT)?;
    TraceContext::parse(parent, fields.get(names::TRACESTATE)).map(Box::new)
}

/// The fields that concern the message or the session.
fn kept(fields: &Fields<'_>) -> Fields<'static> {
    let is_of_mcp = |name: &str| {
        let prefix = name.get(..4);
        prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case("mcp-"))
            || name.eq_ignore_ascii_case(names::LAST_EVENT_ID)
    };
    let kept = fields.iter().filter(|(name, _)| is_of_mcp(name));
    kept.map(|(name, value)| (owned(name), value.to_vec()))
        .collect()
}

/// A field name, borrowed if most messages have it, so that it need not be copied.
fn owned(name: &str) -> Cow<'static, str> {
    let often = [
        names::MCP_PROTOCOL_VERSION,
        names::MCP_SESSION_ID,
        names::MCP_METHOD,
        names::MCP_NAME,
    ];
    let known = often.into_iter().find(|known| *known == name);
    known.map_or_else(|| Cow::Owned(name.into()), Cow::Borrowed)
}

/// The value of a field that must occur exactly once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldValue<'a> {
    /// The field is absent.
    Absent,
    /// The value cannot be read, or the field occurs more than once.
    Unreadable,
    This(&'a str),
}

impl<'a> FieldValue<'a> {
    pub(crate) fn of(fields: &'a Fields<'_>, name: &str) -> FieldValue<'a> {
        let mut all = fields.all(name);
        match (all.next(), all.next()) {
            (None, _) => FieldValue::Absent,
            (Some(value), None) => {
                fields::text(value).map_or(FieldValue::Unreadable, FieldValue::This)
            }
            (Some(_), Some(_)) => FieldValue::Unreadable,
        }
    }
}

/// Checks that the fields name the method and the subject of the request like its message (S-HDR-01, S-HDR-02, S-HDR-09).
pub(crate) fn check_names(
    fields: &Fields<'_>,
    method: &str,
    subject: Option<&str>,
) -> Result<(), ErrorObject> {
    if FieldValue::of(fields, names::MCP_METHOD) != FieldValue::This(method) {
        return Err(mismatch("`Mcp-Method` must name the method of the message"));
    }
    let Some(subject) = subject else {
        return Ok(());
    };
    let mut named = fields.all(names::MCP_NAME);
    let is_alike = match (named.next(), named.next()) {
        (Some(named), None) => value::decode(named) == Some(Cow::Borrowed(subject)),
        (_, _) => false,
    };
    if is_alike {
        return Ok(());
    }
    Err(mismatch("`Mcp-Name` must name what the message names"))
}

pub(crate) fn mismatch(text: impl Into<String>) -> ErrorObject {
    ErrorObject::new(code::HEADER_MISMATCH, text)
}

/// The part that produced an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blame {
    /// The application.
    Application,
    /// The server itself, in a session.
    Session,
    /// The server itself, outside a session.
    Sessionless,
}

/// The HTTP status for an error with this code, if nothing else decides it (S-HTTP-27, S-HTTP-28, S-HTTP-29, S-HTTP-34).
pub(crate) fn status(code: i64, blame: Blame) -> u16 {
    match (code, blame) {
        (_, Blame::Session) => 200,
        (code::METHOD_NOT_FOUND, _) => 404,
        (code::UNSUPPORTED_PROTOCOL_VERSION..=code::HEADER_MISMATCH, _) => 400,
        (_, Blame::Application) => 200,
        // The server itself uses this code only when it is overloaded or shuts down.
        (code::INTERNAL_ERROR, Blame::Sessionless) => 503,
        (_, Blame::Sessionless) => 400,
    }
}

/// The error for a request whose version field is missing or cannot be read.
pub(crate) fn unnamed_version(said: FieldValue<'_>) -> ErrorObject {
    let what = match said {
        FieldValue::Absent => "is missing",
        FieldValue::Unreadable | FieldValue::This(_) => "cannot be read",
    };
    mismatch(format!("the header `MCP-Protocol-Version` {what}"))
}

/// The header fields of an event stream.
pub(crate) fn head_of_events() -> Fields<'static> {
    // S-HTTP-18: proxies must not buffer the stream.
    Fields::new()
        .and(names::CONTENT_TYPE, EVENTS)
        .and(names::CACHE_CONTROL, "no-cache")
        .and(names::X_ACCEL_BUFFERING, "no")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(http: &Http, head: RequestHead<'_>) -> Result<Arriving, u16> {
        check_head(http, true, &head).map_err(|refusal| refusal.status)
    }

    fn post<'a>(fields: Fields<'a>) -> RequestHead<'a> {
        RequestHead::new(Verb::Post, "/mcp").with_fields(fields)
    }

    #[test]
    fn hosts_and_origins_are_those_that_are_allowed() {
        let listed = Http::new()
            .with_hosts(Allowed::list(["example.com", "api.example.com:81"]))
            .with_origins(Allowed::list(["https://example.com"]));
        let any = Http::new()
            .with_hosts(Allowed::Any)
            .with_origins(Allowed::Any);
        for (http, host, origin, is_allowed) in [
            (&Http::new(), "localhost:1", None, true),
            (&Http::new(), "127.0.0.1", Some("http://localhost:3"), true),
            (&Http::new(), "[::1]:80", Some("https://[::1]"), true),
            (&Http::new(), "localhost.evil.com", None, false),
            (&Http::new(), "localhost", Some("https://evil.com"), false),
            (&Http::new(), "localhost", Some("null"), false),
            (&Http::new(), "localhost", Some("\u{e9}"), false),
            (&listed, "Example.com:8080", None, true),
            (&listed, "example.com", Some("HTTPS://example.com"), true),
            (&listed, "api.example.com:81", None, true),
            (&listed, "api.example.com:82", None, false),
            (&listed, "example.comx", None, false),
            (&listed, "example.com", Some("http://example.com"), false),
            (&listed, "localhost", None, false),
            (&any, "evil.com", Some("null"), true),
            (&any, "evil.com", Some("\u{e9}"), true),
        ] {
            let mut fields = Fields::new().and("host", host);
            if let Some(origin) = origin {
                fields.push("origin", origin);
            }
            let asked = asked(http, post(fields));
            assert_eq!(asked.is_ok(), is_allowed, "{host} {origin:?}");
            let allows = http.hosts.allows_host(Some(host))
                && origin.is_none_or(|origin| http.origins.allows_origin(origin));
            assert_eq!(allows, is_allowed, "{host} {origin:?}");
            assert!(is_allowed || matches!(asked, Err(403)));
        }
        assert!(matches!(asked(&Http::new(), post(Fields::new())), Err(403)));
    }

    #[test]
    fn what_is_posted_is_json_and_what_is_answered_is_accepted() {
        let host = || Fields::new().and("host", "localhost");
        for (field, value, status) in [
            ("content-type", "application/json; charset=utf-8", None),
            ("content-type", "text/plain", Some(415)),
            ("content-type", "", Some(415)),
            ("accept", "text/html", Some(406)),
            ("accept", "text/event-stream", None),
            ("accept", "*/*", None),
        ] {
            let asked = asked(&Http::new(), post(host().and(field, value)));
            assert_eq!(asked.err(), status, "{field}: {value}");
        }
        let get = RequestHead::new(Verb::Get, "/mcp");
        let get = get.with_fields(host().and("accept", "application/json"));
        assert_eq!(asked(&Http::new(), get).err(), Some(406));
    }

    #[test]
    fn fields_that_are_kept_have_a_bound() {
        for (more, status) in [(0, None), (1, Some(431)), (9, Some(431))] {
            let name = "mcp-param-a";
            let value = "x".repeat(MOST_FIELD_BYTES - name.len() + more);
            let long = "x".repeat(MOST_FIELD_BYTES);
            let fields = Fields::new()
                .and("host", "localhost")
                .and("cookie", long)
                .and(name, value);
            assert_eq!(asked(&Http::new(), post(fields)).err(), status, "{more}");
        }
    }

    #[test]
    fn each_place_has_its_verbs() {
        let http = Http::new().with_sse(crate::server::SsePaths::default());
        for (verb, target, is_legacy, allowed) in [
            (Verb::Get, "/mcp", true, None),
            (Verb::Delete, "/mcp", true, None),
            (Verb::Other, "/mcp", true, Some("POST, GET, DELETE")),
            (Verb::Get, "/mcp", false, Some("POST")),
            (Verb::Delete, "/mcp", false, Some("POST")),
            (Verb::Get, "/sse?x", true, None),
            (Verb::Post, "/sse", true, Some("GET")),
            (Verb::Get, "/sse", false, Some("POST")),
            (Verb::Get, "/messages", true, Some("POST")),
        ] {
            let head = RequestHead::new(verb, target);
            let head = head.with_fields(Fields::new().and("host", "localhost"));
            let refused = check_head(&http, is_legacy, &head).err();
            let said = refused.as_ref().and_then(|r| r.fields.get(names::ALLOW));
            assert_eq!(said, allowed, "{verb} {target}");
            assert!(refused.is_none_or(|refusal| refusal.status == 405));
        }
        let endless = Http {
            may_delete: false,
            ..Http::new()
        };
        for (verb, allowed) in [(Verb::Get, None), (Verb::Delete, Some("POST, GET"))] {
            let refused = check_verb(&endless, true, &Route::Endpoint, verb).err();
            let said = refused.as_ref().and_then(|r| r.fields.get(names::ALLOW));
            assert_eq!(said, allowed, "{verb}");
        }
        let to = |target| route(&http, true, target);
        let messages = |session: &str| Some(Route::SseMessages(session.into()));
        assert_eq!(to("/messages?a=b&session=c"), messages("c"));
        assert_eq!(to("/messages"), messages(""));
        assert_eq!(to("/mcp?session=c"), Some(Route::Endpoint));
    }

    #[test]
    fn nothing_is_beside_the_one_path() {
        let http = Http::new().with_sse(crate::server::SsePaths::default());
        let http = http.with_path("/mcp");
        for (target, status) in [
            ("/mcp", None),
            ("/mcp?a=b", None),
            ("/sse", None),
            ("/", Some(404)),
            ("/mcp/", Some(404)),
            ("/mcpx", Some(404)),
            ("/other?/mcp", Some(404)),
        ] {
            let head = RequestHead::new(Verb::Get, target);
            let head = head.with_fields(Fields::new().and("host", "localhost"));
            let refused = check_head(&http, true, &head).err();
            assert_eq!(refused.map(|refusal| refusal.status), status, "{target}");
        }
    }

    #[test]
    fn fields_name_what_the_message_names() {
        let fields = Fields::new()
            .and("mcp-method", " tools/call ")
            .and("Mcp-Name", "=?base64?w6k=?=");
        assert_eq!(check_names(&fields, "tools/call", Some("é")), Ok(()));
        assert_eq!(check_names(&fields, "tools/call", None), Ok(()));
        assert!(check_names(&fields, "Tools/call", Some("é")).is_err());
        assert!(check_names(&fields, "tools/call", Some("e")).is_err());
        let twice = fields.clone().and("mcp-name", "=?base64?w6k=?=");
        assert!(check_names(&twice, "tools/call", Some("é")).is_err());
        let without = Fields::new().and("mcp-method", "tools/call");
        assert!(check_names(&without, "tools/call", Some("é")).is_err());
    }

    #[test]
    fn the_status_says_who_is_to_blame() {
        for (code, application, server) in [
            (code::METHOD_NOT_FOUND, 404, 404),
            (code::HEADER_MISMATCH, 400, 400),
            (code::UNSUPPORTED_PROTOCOL_VERSION, 400, 400),
            (code::INVALID_PARAMS, 200, 400),
            (code::INTERNAL_ERROR, 200, 503),
            (7, 200, 400),
        ] {
            assert_eq!(status(code, Blame::Application), application, "{code}");
            assert_eq!(status(code, Blame::Sessionless), server, "{code}");
            assert_eq!(status(code, Blame::Session), 200, "{code}");
        }
    }
}
