//! What a request must be like to be looked at, as far as its head tells, and whether its fields say what its message says.
//! Judges; answers nothing. Knows no session.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::super::event::RefusalCause;
use super::config::{Allowed, Http};
use super::cors;
use super::exchange::{Asked, Route, Takes};
use crate::http::{Fields, RequestHead, Verb, fields, media, names, url, value};
use crate::noise::excerpt;
use crate::protocol::code;
use crate::wire::{ErrorObject, Id};

pub(super) const JSON: &str = "application/json";
pub(super) const EVENTS: &str = "text/event-stream";

/// How long a client that comes at the wrong time is asked to stay away, in seconds.
const COME_BACK_AFTER: &str = "5";

/// As many bytes of fields are kept while a body arrives (S-INH-06): arguments that are repeated may be long, but not like this.
const MOST_FIELD_BYTES: usize = 64 << 10;

/// Fields that say one thing. What else is said once is judged where it is read; see [`Said`].
const SINGLE: [&str; 6] = [
    names::ORIGIN,
    names::AUTHORIZATION,
    names::CONTENT_LENGTH,
    names::CONTENT_TYPE,
    names::LAST_EVENT_ID,
    names::MCP_SESSION_ID,
];

/// Why a request is turned away.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) id: Option<Id>,
    pub(super) error: ErrorObject,
    pub(super) fields: Fields<'static>,
    pub(super) cause: RefusalCause,
}

impl Refusal {
    pub(super) fn new(status: u16, text: impl Into<String>) -> Refusal {
        Refusal::coded(status, code::INVALID_REQUEST, text)
    }

    pub(super) fn coded(status: u16, code: i64, text: impl Into<String>) -> Refusal {
        Refusal {
            status,
            id: None,
            error: ErrorObject::new(code, text),
            fields: Fields::new(),
            cause: RefusalCause::Other,
        }
    }

    /// For a reason that an operator can do something about.
    pub(super) fn because(mut self, cause: RefusalCause) -> Refusal {
        self.cause = cause;
        self
    }

    /// It comes at the wrong time.
    pub(super) fn busy(text: &str) -> Refusal {
        let fields = Fields::new().and(names::RETRY_AFTER, COME_BACK_AFTER);
        Refusal {
            fields,
            ..Refusal::coded(503, code::INTERNAL_ERROR, text)
        }
    }

    /// There are other verbs for this.
    fn verb(allowed: String) -> Refusal {
        let fields = Fields::new().and(names::ALLOW, allowed);
        let text = "this is not done here";
        Refusal {
            fields,
            ..Refusal::new(405, text)
        }
    }

    /// As the answer to the request with this id (S-HTTP-33).
    pub(super) fn to(mut self, id: Option<&Id>) -> Refusal {
        self.id = id.cloned();
        self
    }
}

/// The answer to a browser that asks whether a page may send a request here, if the page may.
pub(super) fn preflight(
    http: &Http,
    is_legacy: bool,
    head: &RequestHead<'_>,
) -> Option<Fields<'static>> {
    let granted = cors::granted(http, &head.fields).filter(|_| head.verb == Verb::Options)?;
    check_repeated(&head.fields).ok()?;
    check_source(http, &head.fields).ok()?;
    route(http, is_legacy, &head.target).map(|_| cors::preflight(granted))
}

/// Looks at the head of a request. What is worth the wait for its body.
pub(super) fn look(http: &Http, is_legacy: bool, head: &RequestHead<'_>) -> Result<Asked, Refusal> {
    check_repeated(&head.fields)?;
    check_source(http, &head.fields)?;
    let Some(route) = route(http, is_legacy, &head.target) else {
        let refusal = Refusal::new(404, "there is nothing at this path");
        return Err(refusal.because(RefusalCause::Path));
    };
    check_verb(http, is_legacy, &route, head.verb)?;
    let takes_both = media::accepts_both(&head.fields);
    let takes = Takes {
        json: takes_both || media::accepts(&head.fields, JSON),
        sse: takes_both || media::accepts(&head.fields, EVENTS),
    };
    let is_taken = match (head.verb, &route) {
        (Verb::Get, _) => takes.sse,
        (Verb::Post, Route::Endpoint) => takes.json || takes.sse,
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
        return Err(Refusal::new(415, "a message is `application/json`"));
    }
    let fields = kept(&head.fields);
    if fields.bytes() > MOST_FIELD_BYTES {
        let text = "the header fields are longer than a message needs";
        return Err(Refusal::new(431, text));
    }
    Ok(Asked {
        verb: head.verb,
        route,
        fields,
        user: head.user.as_deref().map(Into::into),
        address: head.address,
        takes,
        body: Vec::new(),
    })
}

/// A request that says two things where it may say one is not taken at its first word: whoever stands in between may have read the other.
fn check_repeated(fields: &Fields<'_>) -> Result<(), Refusal> {
    // RFC 9110, section 7.2: not even two that are equal.
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

/// S-HTTP-02, S-HTTP-03: no web page of a stranger gets through a browser to a server that trusts this machine.
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
        // What is there and cannot be read is not allowed, but by those who allow everything.
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

pub(super) fn allows_host(allowed: &Allowed, host: Option<&str>) -> bool {
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

pub(super) fn allows_origin(allowed: &Allowed, origin: &str) -> bool {
    match allowed {
        Allowed::Any => true,
        Allowed::List(origins) => {
            let mut origins = origins.iter();
            origins.any(|known| known.eq_ignore_ascii_case(origin))
        }
        Allowed::Loopback => url::host_of_origin(origin).is_some_and(url::is_loopback),
    }
}

/// What is at this path, if anything is.
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

/// S-HTTP-36: a server that is modern alone has nothing to get and nothing to delete.
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

/// The fields that say something of the message, or of the session.
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

/// A name of a field, which need not be copied where most messages have it.
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

/// What a field says that must be there once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said<'a> {
    /// Nothing.
    Absent,
    /// Something that cannot be read, or more than one thing.
    Garbled,
    This(&'a str),
}

impl<'a> Said<'a> {
    pub(super) fn of(fields: &'a Fields<'_>, name: &str) -> Said<'a> {
        let mut all = fields.all(name);
        match (all.next(), all.next()) {
            (None, _) => Said::Absent,
            (Some(value), None) => fields::text(value).map_or(Said::Garbled, Said::This),
            (Some(_), Some(_)) => Said::Garbled,
        }
    }
}

/// Whether the fields name the method, and what the request is about, as its message does (S-HDR-01, S-HDR-02, S-HDR-09).
pub(super) fn check_names(
    fields: &Fields<'_>,
    method: &str,
    subject: Option<&str>,
) -> Result<(), ErrorObject> {
    if Said::of(fields, names::MCP_METHOD) != Said::This(method) {
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

pub(in crate::server) fn mismatch(text: impl Into<String>) -> ErrorObject {
    ErrorObject::new(code::HEADER_MISMATCH, text)
}

/// Who gives an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blame {
    /// The application gives it.
    Application,
    /// The server gives it itself, in a session.
    Session,
    /// The server gives it itself.
    Server,
}

/// The status for an error with this code, where that is not decided otherwise (S-HTTP-27, S-HTTP-28, S-HTTP-29, S-HTTP-34).
pub(super) fn status(code: i64, blame: Blame) -> u16 {
    match (code, blame) {
        (_, Blame::Session) => 200,
        (code::METHOD_NOT_FOUND, _) => 404,
        (code::UNSUPPORTED_PROTOCOL_VERSION..=code::HEADER_MISMATCH, _) => 400,
        (_, Blame::Application) => 200,
        // What the server gives itself with this code is that there is too much, or that it ends.
        (code::INTERNAL_ERROR, Blame::Server) => 503,
        (_, Blame::Server) => 400,
    }
}

/// The error for a request whose version its field does not name.
pub(super) fn unnamed_version(said: Said<'_>) -> ErrorObject {
    let what = match said {
        Said::Absent => "is missing",
        Said::Garbled | Said::This(_) => "cannot be read",
    };
    mismatch(format!("the header `MCP-Protocol-Version` {what}"))
}

/// How a stream of events begins.
pub(super) fn head_of_events() -> Fields<'static> {
    // S-HTTP-18: nobody in between is to hold back what is streamed.
    Fields::new()
        .and(names::CONTENT_TYPE, EVENTS)
        .and(names::CACHE_CONTROL, "no-cache")
        .and(names::X_ACCEL_BUFFERING, "no")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(http: &Http, head: RequestHead<'_>) -> Result<Asked, u16> {
        look(http, true, &head).map_err(|refusal| refusal.status)
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
        let http = Http::new().with_sse(super::super::SsePaths::default());
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
            let refused = look(&http, is_legacy, &head).err();
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
        let http = Http::new().with_sse(super::super::SsePaths::default());
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
            let refused = look(&http, true, &head).err();
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
            assert_eq!(status(code, Blame::Server), server, "{code}");
            assert_eq!(status(code, Blame::Session), 200, "{code}");
        }
    }
}
