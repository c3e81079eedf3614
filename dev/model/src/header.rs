//! Header fields: what a server and an authorizer make of them, beside crates that are made for it.
//!
//! These differences are meant:
//! - `Accept` and `Content-Type`: ours reads on where a part is invalid, and ignores only that part. `headers-accept` and `mediatype` refuse the whole
//!   value, so only values that they take are compared.
//! - A suffix: `mediatype` takes `*/*+a` for `*/*` with a suffix, and ours for another type.
//! - A weight: ours takes any number of digits, RFC 9110 at most three after the point. Of several weights, ours takes the first and `mediatype` the last.
//! - `Retry-After`: `httpdate` also takes the two obsolete formats of dates, but no date before 1970, no leap second and no wrong weekday.

use std::str::FromStr as _;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use everlink::http::{Fields, RequestHead, Verb};
use everlink::server::{Allowed, Config, Http, Offer};
use everlink::{Input, Instant, Output, Server, StreamId};
use headers_accept::Accept;
use mediatype::{MediaType, ReadParams as _, names};
use serde_json::json;

use crate::auth;

/// The first byte chooses the field. The rest is its value; for `Retry-After`, the second line is the `Date`, and for a name in a field, the second line is
/// the name in the body.
///
/// # Panics
///
/// When the field is read in another way than by the crate for it.
pub fn header(data: &[u8]) {
    let [which, value @ ..] = data else {
        return;
    };
    let Ok(text) = std::str::from_utf8(value) else {
        return;
    };
    let (first, second) = text.split_once('\n').unwrap_or((text, ""));
    // A driver passes no other bytes on, and the crates trim some of them.
    if !is_visible(first) {
        return;
    }
    match which % 4 {
        0 => accept(first),
        1 => content_type(first),
        2 => retry_after(first, second),
        _ => name(first, second),
    }
}

const BOTH: &str = "application/json, text/event-stream";

/// The status with which a server answers a request.
fn status(verb: Verb, fields: Fields<'_>, body: &str) -> u16 {
    let http = Http::new().with_hosts(Allowed::Any);
    let config = Config::new(Offer::new("header", "1"), [7; 16]).with_http(http);
    let (mut server, stream) = (Server::new(config), StreamId::new(1));
    let head = RequestHead::new(verb, "/mcp").with_fields(fields);
    let head = Box::new(head);
    let now = Instant::ZERO;
    server.handle(now, Input::Request { stream, head });
    let bytes = body.as_bytes().into();
    server.handle(now, Input::Bytes { stream, bytes });
    let faults = Vec::new().into();
    server.handle(now, Input::End { stream, faults });
    let mut buf = Vec::new();
    while let Some(output) = server.poll_output(&mut buf) {
        match output {
            Output::Response { head, .. } => return head.status,
            // The application has the request.
            Output::Event(everlink::server::Event::Request(_)) => return 200,
            _ => {}
        }
    }
    panic!("no answer");
}

fn is_visible(value: &str) -> bool {
    value
        .bytes()
        .all(|byte| matches!(byte, b'\t' | b' '..=b'~'))
}

fn accept(value: &str) {
    let Ok(peer) = Accept::from_str(value) else {
        return;
    };
    if peer.media_types().any(|range| range.suffix().is_some()) {
        return;
    }
    let ranges = peer.media_types().map(|range| {
        let (kind, of) = (range.ty(), range.subty());
        let specificity = match (kind.as_str(), of.as_str()) {
            ("*", "*") => Some(0),
            (kind, "*") if kind.eq_ignore_ascii_case("text") => Some(1),
            _ if kind == names::TEXT && of.as_str().eq_ignore_ascii_case("event-stream") => Some(2),
            _ => None,
        };
        let weights = range.params().filter(|(name, _)| *name == names::Q);
        let weights: Vec<String> = weights.map(|(_, q)| q.as_str().to_owned()).collect();
        (specificity, weights)
    });
    let ranges: Vec<_> = ranges.collect();
    let is_weight = |weight: &str| {
        let is_number = |byte: u8| byte.is_ascii_digit() || byte == b'.';
        weight.parse::<f64>().is_ok() && weight.bytes().all(is_number)
    };
    let is_compared = |weights: &[String]| match weights {
        [] => true,
        [one] => is_weight(one),
        _ => false,
    };
    if !ranges.iter().all(|(_, weights)| is_compared(weights)) {
        return;
    }
    let wanted = ranges.iter().filter_map(|(specificity, weights)| {
        let weight: f64 = weights.first().map_or(1.0, |q| q.parse().unwrap_or(0.0));
        Some(((*specificity)?, weight > 0.0))
    });
    let expected = wanted.max().is_some_and(|(_, is_wanted)| is_wanted);
    let fields = Fields::new().and("accept", value);
    let is_accepted = status(Verb::Get, fields, "") != 406;
    assert_eq!(is_accepted, expected, "Accept: {value}");
}

fn content_type(value: &str) {
    let Ok(peer) = MediaType::parse(value) else {
        return;
    };
    let expected = MediaType::parse("application/json").expect("a type");
    let is_json = peer.essence() == expected;
    let fields = Fields::new().and("accept", BOTH);
    let fields = fields.and("content-type", value);
    let is_taken = status(Verb::Post, fields, "{}") != 415;
    assert_eq!(is_taken, is_json, "Content-Type: {value}");
}

fn retry_after(value: &str, date: &str) {
    let fields = Fields::new().and("Retry-After", value).and("Date", date);
    let pause = auth::pause_after(fields);
    let value = value.trim_matches([' ', '\t']);
    let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let expected = if is_number {
        Duration::from_secs(value.parse().unwrap_or(u64::MAX))
    } else {
        let read = |text: &str| -> Option<SystemTime> {
            let date = httpdate::parse_http_date(text).ok()?;
            (httpdate::fmt_http_date(date) == text).then_some(date)
        };
        let (Some(at), Some(date)) = (read(value), read(date.trim_matches([' ', '\t']))) else {
            return;
        };
        at.duration_since(date).unwrap_or_default()
    };
    let (least, most) = (Duration::from_secs(1), Duration::from_secs(30));
    assert_eq!(pause, expected.clamp(least, most), "{value} at {date}");
}

/// A name in a field must be the name in the body, plain or in Base64.
fn name(value: &str, name: &str) {
    let value = value.trim_matches([' ', '\t']);
    let marked = value.strip_prefix("=?base64?");
    let marked = marked.and_then(|rest| rest.strip_suffix("?="));
    let read = match marked {
        Some(base64) => BASE64_STANDARD.decode(base64).ok(),
        None => Some(value.into()),
    };
    let expected = read.as_deref() == Some(name.as_bytes());
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "a", "version": "1"},
    });
    let params = json!({"name": name, "_meta": meta});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "prompts/get", "params": params});
    let fields = Fields::new()
        .and("accept", BOTH)
        .and("content-type", "application/json")
        .and("mcp-protocol-version", "2026-07-28")
        .and("mcp-method", "prompts/get")
        .and("mcp-name", value);
    let status = status(Verb::Post, fields, &body.to_string());
    assert_eq!(status != 400, expected, "{value:?} for {name:?}: {status}");
}
