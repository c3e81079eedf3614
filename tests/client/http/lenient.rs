//! Servers that break a rule and still work with the SDKs in use must work with a link, too.

use crate::client_http::{self, Exchange, Harness, config, error, notification, result, seconds};
use everlink::client::{Cause, Delivery, Event, FailureKind, State};
use everlink::http::Verb;
use everlink::protocol::Era;
use everlink::{Config, Dialect, FaultKind};
use serde_json::{Value, json};

/// Statuses of a proxy or of a busy server. They say nothing about the server itself.
const TRANSIENT_STATUSES: [u16; 6] = [408, 425, 429, 502, 503, 504];

fn legacy_config() -> Config {
    let mut config = config();
    config.dialect = Dialect::Legacy;
    config
}

fn is_probe(exchange: &Exchange) -> bool {
    exchange.method() == "server/discover"
}

/// A link that has just begun, and its modern probe.
fn with_probe() -> (Harness, Exchange) {
    let mut harness = Harness::new(config());
    harness.connect();
    let probe = harness.next_post("server/discover");
    (harness, probe)
}

/// A way in which a server fails at the probe.
type ProbeFailure = Box<dyn Fn(&mut Harness, &Exchange)>;

fn probe_failures() -> Vec<ProbeFailure> {
    let statuses = [403, 418, 500, 501, 505]
        .into_iter()
        .chain(TRANSIENT_STATUSES);
    let mut all: Vec<ProbeFailure> = Vec::new();
    for status in statuses {
        all.push(Box::new(move |harness, probe| {
            harness.status(probe.stream, status)
        }));
        let body = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"what?"}}"#;
        let fields = [("content-type", "application/json")];
        all.push(Box::new(move |harness, probe| {
            harness.respond(probe.stream, status, &fields, body);
        }));
    }
    for fault in [FaultKind::Reset, FaultKind::Closed, FaultKind::Read] {
        all.push(Box::new(move |harness, probe| {
            harness.fail(probe.stream, fault)
        }));
        all.push(Box::new(move |harness, probe| {
            harness.head(probe.stream, 200, &[("content-type", "application/json")]);
            harness.bytes(probe.stream, br#"{"jsonrpc":"2.0","#);
            harness.fail(probe.stream, fault);
        }));
        all.push(Box::new(move |harness, probe| {
            harness.begin_stream(probe.stream);
            harness.fail(probe.stream, fault);
        }));
    }
    all.push(Box::new(|harness, probe| {
        harness.respond_empty_stream(probe)
    }));
    all.push(Box::new(|harness, probe| {
        let fields = [("content-type", "application/json")];
        harness.respond(probe.stream, 200, &fields, "{]");
    }));
    all
}

impl Harness {
    fn respond_empty_stream(&mut self, exchange: &Exchange) {
        self.begin_stream(exchange.stream);
        self.end(exchange.stream);
    }
}

#[test]
fn initialize_is_tried_in_the_same_attempt_after_a_failed_probe() {
    for fail in probe_failures() {
        let (mut harness, probe) = with_probe();
        fail(&mut harness, &probe);
        harness.agree_legacy("2025-11-25", Some("s-1"));
        assert_eq!((harness.epochs_opened, harness.client.failures()), (1, 0));
        assert_eq!(harness.challenges(), 0);
        let call = harness.call("tools/call", json!({"name": "add"}));
        let post = harness.next_post("tools/call");
        harness.serve(&post);
        assert!(harness.reply(call).is_ok());
    }
}

/// S-HTTP-43: a gateway error says nothing about the era, so a later epoch probes again.
#[test]
fn legacy_era_is_remembered_after_403_500_or_501_but_not_after_a_gateway_error() {
    let status = |status: u16| -> ProbeFailure {
        Box::new(move |harness, probe| harness.status(probe.stream, status))
    };
    let cut: ProbeFailure = Box::new(|harness, probe| harness.fail(probe.stream, FaultKind::Reset));
    let remembered = [403, 500, 501].map(|code| (status(code), true));
    let forgotten = TRANSIENT_STATUSES.map(|code| (status(code), false));
    let all = remembered.into_iter().chain(forgotten);
    for (fail, is_remembered) in all.chain([(cut, false)]) {
        let (mut harness, probe) = with_probe();
        fail(&mut harness, &probe);
        harness.agree_legacy("2025-11-25", None);
        let era = is_remembered.then_some(Era::Legacy);
        assert_eq!(harness.client.era(), era);
        harness
            .client
            .reconnect(harness.now, harness.client.epoch(), "to see");
        harness.advance(seconds(10));
        assert_eq!(harness.find(is_probe).is_none(), is_remembered);
    }
}

/// A known modern server that cannot be reached is not taken for a legacy one.
#[test]
fn known_modern_server_that_fails_the_probe_is_probed_again() {
    for status in [403, 500, 502, 503] {
        let mut harness = Harness::modern();
        harness
            .client
            .reconnect(harness.now, harness.client.epoch(), "to see");
        harness.advance(seconds(10));
        let probe = harness.next_post("server/discover");
        harness.status(probe.stream, status);
        harness.client.authorized(harness.now);
        harness.advance(seconds(3));
        assert_eq!(harness.exchanges_of("initialize").len(), 0, "{status}");
        harness.agree_modern();
    }
}

/// The probe breaks some servers until they are restarted: they answer everything with 500. The next attempts skip
/// the probe.
#[test]
fn server_broken_by_the_probe_is_initialized_without_a_probe_once_it_is_back() {
    let (mut harness, probe) = with_probe();
    harness.status(probe.stream, 500);
    let post = harness.next_post("initialize");
    harness.status(post.stream, 500);
    assert_eq!(harness.client.failures(), 1);
    for _ in 0..3 {
        harness.advance(seconds(20));
        let post = harness.next_post("initialize");
        harness.status(post.stream, 500);
    }
    harness.advance(seconds(60));
    harness.client.wake(harness.now);
    harness.advance(seconds(1));
    harness.agree_legacy("2025-11-25", Some("s-1"));
    assert_eq!(harness.count(is_probe), 1);
}

#[test]
fn server_that_is_gone_right_after_the_probe_is_initialized_without_a_probe_later() {
    let (mut harness, probe) = with_probe();
    harness.fail(probe.stream, FaultKind::Reset);
    let post = harness.next_post("initialize");
    harness.fail(post.stream, FaultKind::Refused);
    harness.advance(seconds(3));
    harness.agree_legacy("2025-11-25", Some("s-1"));
    assert_eq!(harness.count(is_probe), 1);
}

/// A starting server cuts every connection. The link probes it again later.
#[test]
fn server_that_cuts_both_requests_is_probed_again() {
    for fault in [FaultKind::Reset, FaultKind::Closed] {
        let (mut harness, probe) = with_probe();
        harness.fail(probe.stream, fault);
        let post = harness.next_post("initialize");
        harness.fail(post.stream, fault);
        assert_eq!(harness.client.failures(), 1);
        harness.advance(seconds(3));
        harness.agree_modern();
    }
}

/// If no connection was made, the link does not try `initialize` in the same attempt.
#[test]
fn unreachable_server_gets_no_initialize_after_the_probe() {
    for fault in [
        FaultKind::Refused,
        FaultKind::TimedOut,
        FaultKind::NameNotFound,
        FaultKind::Tls,
        FaultKind::Unreachable,
    ] {
        let (mut harness, probe) = with_probe();
        harness.fail(probe.stream, fault);
        harness.advance(seconds(2));
        assert!(harness.exchanges_of("initialize").is_empty(), "{fault:?}");
    }
}

/// The text names the responses to both requests and a remedy.
#[test]
fn handshake_failure_text_names_the_responses_to_both_requests() {
    let (mut harness, probe) = with_probe();
    let call = harness.call("tools/call", json!({"name": "add"}));
    let refusal = json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32_603, "message": "KeyError: session"}});
    harness.json(probe.stream, 500, &refusal);
    let post = harness.next_post("initialize");
    harness.status(post.stream, 502);
    let end = harness.last_end();
    for part in [
        "HTTP status 502",
        "server/discover",
        "HTTP status 500",
        "KeyError: session",
        "--era legacy",
    ] {
        assert!(end.contains(part), "{part}: {end}");
    }
    assert!(!harness.is_settled(call));
    // The next attempt has its own text.
    harness.advance(seconds(3));
    let post = harness.next_post("initialize");
    harness.status(post.stream, 502);
    assert!(!harness.last_end().contains("server/discover"));

    let (mut harness, probe) = with_probe();
    harness.status(probe.stream, 403);
    let post = harness.next_post("initialize");
    harness.json(post.stream, 200, &error(&post, -32_603));
    let end = harness.last_end();
    for part in ["status 403", "-32603"] {
        assert!(end.contains(part), "{part}: {end}");
    }
    assert!(!end.contains("--era"), "the server is not broken: {end}");

    let mut harness = Harness::new(legacy_config());
    harness.connect();
    let post = harness.next_post("initialize");
    harness.status(post.stream, 500);
    assert!(
        !harness.last_end().contains("--era"),
        "{}",
        harness.last_end()
    );
}

/// A 403 with a challenge asks for credentials, and so does any 401.
#[test]
fn challenge_to_the_probe_asks_the_application_for_credentials() {
    for (status, fields) in [
        (401, &[("www-authenticate", "Bearer")][..]),
        (403, &[("www-authenticate", "Bearer")][..]),
        (401, &[][..]),
    ] {
        let (mut harness, probe) = with_probe();
        harness.respond(probe.stream, status, fields, "");
        assert_eq!(harness.challenges(), 1, "{status}");
        harness.client.authorized(harness.now);
        harness.pump();
        harness.agree_modern();
        assert!(harness.exchanges_of("initialize").is_empty(), "{status}");
    }
}

/// The server asks for a delay. The link tries nothing else meanwhile.
#[test]
fn probe_refused_with_retry_after_is_not_followed_by_initialize() {
    let (mut harness, probe) = with_probe();
    harness.respond(probe.stream, 503, &[("retry-after", "90")], "");
    harness.advance(seconds(89));
    assert_eq!(harness.exchanges.len(), 1);
    harness.advance(seconds(1));
    harness.agree_modern();
}

/// A link that has the result of `initialize`, and its `initialized` message.
fn after_initialize() -> (Harness, Exchange) {
    let mut harness = Harness::new(legacy_config());
    harness.connect();
    harness.answer_initialize("s-1");
    let initialized = harness.next_post("notifications/initialized");
    (harness, initialized)
}

#[test]
fn server_that_refuses_initialized_is_used() {
    for status in [307, 400, 403, 405, 408, 425, 429, 500, 501, 502, 503, 504] {
        let (mut harness, initialized) = after_initialize();
        harness.status(initialized.stream, status);
        assert_eq!(harness.client.state(), State::Ready, "{status}");
        let is_noise = |event: &Event| matches!(event, Event::Noise(_));
        assert!(harness.has_event(is_noise), "{status}");
        harness.refuse_listen();
        let call = harness.call("tools/call", json!({"name": "add"}));
        let post = harness.next_post("tools/call");
        assert_eq!(post.field("mcp-session-id"), Some("s-1"));
        harness.serve(&post);
        assert!(harness.reply(call).is_ok(), "{status}");
        assert_eq!(
            (harness.epochs_opened, harness.challenges()),
            (1, 0),
            "{status}"
        );
    }
}

/// A server may send nothing before it gets `initialized`. The link therefore repeats it after the next reply, and reads changed data again.
#[test]
fn refused_initialized_is_sent_again_after_the_next_reply() {
    let (mut harness, initialized) = after_initialize();
    harness.status(initialized.stream, 500);
    harness.refuse_listen();
    for status in [500, 202] {
        let call = harness.call("tools/call", json!({"name": "add"}));
        let post = harness.next_post("tools/call");
        harness.serve(&post);
        assert!(harness.reply(call).is_ok(), "{status}");
        let initialized = harness.next_post("notifications/initialized");
        harness.status(initialized.stream, status);
    }
    // The link asks for the listen stream once more, too.
    harness.refuse_listen();
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.serve(&post);
    assert!(harness.reply(call).is_ok());
    assert_eq!(harness.exchanges_of("notifications/initialized").len(), 3);
}

/// The link stops repeating `initialized` if the server never accepts it.
#[test]
fn refused_initialized_is_sent_four_times_at_most() {
    let (mut harness, initialized) = after_initialize();
    harness.status(initialized.stream, 500);
    harness.refuse_listen();
    for _ in 0..10 {
        let call = harness.call("tools/call", json!({"name": "add"}));
        let post = harness.next_post("tools/call");
        harness.serve(&post);
        assert!(harness.reply(call).is_ok());
        let initialized = harness.exchanges_of("notifications/initialized").pop();
        let again = initialized.expect("initialized was sent").stream;
        if harness.is_open(again) {
            harness.status(again, 500);
        }
    }
    assert_eq!(harness.exchanges_of("notifications/initialized").len(), 4);
}

/// Other refusals of `initialized` are tolerated. A 404 is not: it ends the epoch with `SessionLost`.
#[test]
fn initialized_refused_with_404_means_a_lost_session() {
    let (mut harness, initialized) = after_initialize();
    harness.status(initialized.stream, 404);
    harness.advance(seconds(1));
    assert_eq!(
        harness.client.last_end().expect("an end").cause,
        Cause::SessionLost
    );
}

/// Returns a link with an open listen stream, and the exchange of that stream.
fn with_listen_stream(config: Config) -> (Harness, Exchange) {
    let mut harness = Harness::new(config);
    harness.connect();
    harness.agree_legacy_awaiting_listen("2025-11-25", Some("s-1"));
    let listen = harness.next_exchange(Verb::Get);
    harness.begin_stream(listen.stream);
    (harness, listen)
}

/// Some servers answer a POST with 202 and send the reply on the listen stream, although S-LHTTP-16 forbids that.
#[test]
fn reply_on_the_listen_stream_is_accepted_after_202() {
    for body in ["", "Accepted", "ok\n"] {
        for kind in [None, Some("text/plain"), Some("application/json")] {
            let (mut harness, listen) = with_listen_stream(legacy_config());
            let call = harness.call("tools/call", json!({"name": "add"}));
            let post = harness.next_post("tools/call");
            let fields: Vec<_> = kind
                .into_iter()
                .map(|kind| ("content-type", kind))
                .collect();
            harness.respond(post.stream, 202, &fields, body);
            harness.advance(seconds(5));
            assert!(!harness.is_settled(call), "{body:?} {kind:?}");
            harness.event(listen.stream, None, &result(&post, json!({"content": []})));
            assert!(harness.reply(call).is_ok());
            assert_eq!((harness.epochs_opened, harness.open_exchanges()), (1, 1));
        }
    }
}

/// The link does not wait for the end of a 202 response, because some servers never end it.
#[test]
fn reply_on_the_listen_stream_is_accepted_after_an_unfinished_202() {
    let (mut harness, listen) = with_listen_stream(legacy_config());
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.head(post.stream, 202, &[]);
    harness.advance(seconds(3));
    assert_eq!(harness.aborted, [post.stream]);
    harness.event(listen.stream, None, &result(&post, json!({"content": []})));
    assert!(harness.reply(call).is_ok());
}

#[test]
fn call_after_202_times_out_if_no_reply_comes() {
    let (mut harness, _) = with_listen_stream(legacy_config());
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.status(post.stream, 202);
    harness.advance(seconds(59));
    assert!(!harness.is_settled(call));
    harness.advance_serving(seconds(2));
    let failure = harness.failure(call);
    assert!(
        matches!(failure.kind, FailureKind::TimedOut { .. }),
        "{failure}"
    );
    assert_eq!(harness.client.state(), State::Ready);
}

#[test]
fn call_after_202_can_be_cancelled() {
    let (mut harness, listen) = with_listen_stream(legacy_config());
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.status(post.stream, 202);
    harness.cancel(call);
    harness.next_post("notifications/cancelled");
    let late = harness.client.stats().late_replies;
    harness.event(listen.stream, None, &result(&post, json!({"content": []})));
    assert_eq!(harness.client.stats().late_replies, late + 1);
}

/// The listen stream may break and return, and the reply still arrives. When the stream is gone for good, the call
/// fails.
#[test]
fn call_after_202_fails_when_the_listen_stream_is_given_up() {
    let (mut harness, listen) = with_listen_stream(legacy_config());
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.status(post.stream, 202);
    harness.end(listen.stream);
    assert!(!harness.is_settled(call), "the stream is requested again");
    harness.advance(seconds(2));
    let again = harness.next_exchange(Verb::Get);
    harness.begin_stream(again.stream);
    harness.event(again.stream, None, &result(&post, json!({"content": []})));
    assert!(harness.reply(call).is_ok());

    let mut config = legacy_config();
    if let Some(http) = config.binding.http_mut() {
        http.resumes = 1;
    }
    let (mut harness, listen) = with_listen_stream(config);
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.status(post.stream, 202);
    harness.end(listen.stream);
    harness.advance(seconds(2));
    let again = harness.next_exchange(Verb::Get);
    harness.begin_stream(again.stream);
    harness.end(again.stream);
    let failure = harness.failure(call);
    assert_eq!(failure.kind, FailureKind::Cut);
    assert_eq!(failure.delivery, Delivery::Unknown);
}

/// Without a listen stream no reply can come, so the call fails at once.
#[test]
fn call_after_202_fails_at_once_without_a_listen_stream() {
    for mut harness in [Harness::legacy(), Harness::modern()] {
        let call = harness.call("tools/call", json!({"name": "add"}));
        let post = harness.next_post("tools/call");
        harness.status(post.stream, 202);
        let failure = harness.failure(call);
        assert!(
            matches!(failure.kind, FailureKind::Invalid { .. }),
            "{failure}"
        );
    }
}

/// Each resumed stream repeats its first events and is cut at the same place. The link gives up after five attempts.
#[test]
fn stream_cut_five_times_at_the_same_event_is_given_up() {
    let mut harness = Harness::legacy();
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    let log = notification(
        "notifications/message",
        &json!({"level": "info", "data": 1}),
    );
    let started = harness.now;
    let mut next = Some(post);
    while !harness.is_settled(call) {
        if let Some(stream) = next.map(|exchange| exchange.stream) {
            harness.begin_stream(stream);
            harness.bytes(stream, b"retry: 10\nid: e-1\ndata:\n\n");
            harness.event(stream, Some("e-2"), &log);
            harness.bytes(stream, b"id: e-3\ndata: {\"jsonrpc\"");
            harness.fail(stream, FaultKind::Reset);
        }
        harness.advance(core::time::Duration::from_millis(250));
        next = harness.find(|exchange| exchange.verb == Verb::Get);
    }
    let failure = harness.failure(call);
    assert!(
        failure.to_string().contains("at the same event"),
        "{failure}"
    );
    assert_eq!(failure.delivery, Delivery::Unknown);
    let gets = harness.count(|exchange| exchange.verb == Verb::Get);
    assert_eq!(gets, 6, "the listen stream once, and five resumes");
    assert!(harness.now.since(started) <= seconds(45));
    assert_eq!(
        (harness.client.state(), harness.epochs_opened),
        (State::Ready, 1)
    );
}

/// The link gives up a stream that ends five times in a row at the same event. A new event resets that count. Here 50 new events come in 100 resumes.
#[test]
fn stream_that_brings_new_events_is_resumed_a_hundred_times() {
    let mut config = config();
    config.policy.call_idle = everlink::Limit::Never;
    config.policy.call_total = everlink::Limit::Never;
    let mut harness = Harness::legacy_with(config, "2025-11-25");
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.begin_stream(post.stream);
    harness.bytes(post.stream, b"retry: 10\nid: e-0\ndata:\n\n");
    harness.end(post.stream);
    for event in 1..=50 {
        // The first of two resumes brings no new event, and the second brings one.
        for is_new in [false, true] {
            harness.advance_serving(seconds(3));
            let get = harness.next_exchange(Verb::Get);
            harness.begin_stream(get.stream);
            if is_new {
                harness.bytes(get.stream, format!("id: e-{event}\ndata:\n\n").as_bytes());
            }
            harness.end(get.stream);
        }
    }
    harness.advance_serving(seconds(3));
    let get = harness.next_exchange(Verb::Get);
    harness.begin_stream(get.stream);
    harness.event(get.stream, None, &result(&post, json!({"content": []})));
    assert!(harness.reply(call).is_ok());
}

/// The failure contains the server's message, although the error has no id.
#[test]
fn failure_text_contains_the_message_of_an_error_without_an_id() {
    let error_body = |id: Value, status: u16, code: i64| {
        json!({"jsonrpc": "2.0", "id": id,
        "error": {"code": code, "message": format!("Bad Request: {status} is what you get")}})
    };
    for (status, code, fields) in [
        (400, -32_000, &[("content-type", "application/json")][..]),
        (404, -32_001, &[("content-type", "application/json")][..]),
        (
            429,
            -32_000,
            &[("content-type", "application/json"), ("retry-after", "1")][..],
        ),
        (
            503,
            -32_000,
            &[("content-type", "application/json"), ("retry-after", "1")][..],
        ),
    ] {
        for id in [json!(null), json!("server-error")] {
            let mut config = legacy_config();
            config.policy.resends = 0;
            let mut harness = Harness::new(config);
            harness.connect();
            harness.agree_legacy("2025-11-25", Some("s-1"));
            let call = harness.call("tools/call", json!({"name": "add"}));
            let post = harness.next_post("tools/call");
            let body = error_body(id, status, code).to_string();
            harness.respond(post.stream, status, fields, &body);
            let failure = harness.failure(call).to_string();
            assert!(failure.contains("is what you get"), "{failure}");
            assert!(failure.contains(&status.to_string()), "{failure}");
        }
    }
}

/// S-RPC-07 requires the same type. The SDKs also accept the number as a string.
#[test]
fn reply_whose_id_is_the_number_as_a_string_is_accepted() {
    for version in client_http::VERSIONS {
        for is_stream in [false, true] {
            let mut harness = Harness::ready(version);
            let call = harness.call("tools/call", json!({"name": "add"}));
            let post = harness.next_post("tools/call");
            let mut reply = client_http::complete(&post, json!({"content": []}));
            reply["id"] = json!(post.body["id"].to_string());
            if is_stream {
                harness.begin_stream(post.stream);
                harness.event(post.stream, None, &reply);
                harness.end(post.stream);
            } else {
                harness.json(post.stream, 200, &reply);
            }
            assert!(harness.reply(call).is_ok(), "{version}");
        }
    }
}

/// The link accepts a reply to `initialize` whose id is the number as a string, and uses its session.
#[test]
fn initialize_reply_whose_id_is_the_number_as_a_string_is_accepted() {
    let mut harness = Harness::new(legacy_config());
    harness.connect();
    let post = harness.next_post("initialize");
    let fields = [
        ("content-type", "application/json"),
        ("mcp-session-id", "s-7"),
    ];
    let mut reply = result(&post, client_http::initialize_result("2025-11-25"));
    reply["id"] = json!(post.body["id"].to_string());
    harness.respond(post.stream, 200, &fields, &reply.to_string());
    let initialized = harness.next_post("notifications/initialized");
    assert_eq!(initialized.field("mcp-session-id"), Some("s-7"));
}

/// The server may skip notifications until it accepts `initialized`. The link therefore reports all lists as changed at that moment, once.
#[test]
fn changes_are_reported_once_when_initialized_is_accepted_late() {
    let (mut harness, initialized) = after_initialize();
    harness.status(initialized.stream, 500);
    harness.refuse_listen();
    harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.serve(&post);
    let initialized = harness.next_post("notifications/initialized");
    harness.notify("notifications/example", &json!({}));
    assert!(harness.changes().is_empty());
    harness.status(initialized.stream, 202);
    let changes = harness.changes();
    assert!(!changes.is_empty());
    harness.refuse_listen();
    let post = harness.next_post("notifications/example");
    harness.status(post.stream, 202);
    assert_eq!(harness.changes(), changes);
}

/// A 202 with a reply in it is a reply, and a 200 without one is no acknowledgement.
#[test]
fn only_a_202_without_a_message_is_an_acknowledgement() {
    let fields = [("content-type", "application/json")];
    let (mut harness, _) = with_listen_stream(legacy_config());
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.json(post.stream, 202, &result(&post, json!({"content": []})));
    assert!(harness.reply(call).is_ok());
    for status in [200, 204] {
        let call = harness.call("tools/call", json!({"name": "add"}));
        let post = harness.next_post("tools/call");
        harness.respond(post.stream, status, &fields, "");
        let why = format!("the response has no reply in it (status {status})").into();
        assert_eq!(harness.failure(call).kind, FailureKind::Invalid { why });
    }
}

/// A server error only says that something is wrong, so it is no reply to the ping.
#[test]
fn initialized_is_sent_again_after_a_refused_ping_but_not_after_a_server_error() {
    for (status, count) in [(499, 2), (500, 1), (503, 1)] {
        let (mut harness, initialized) = after_initialize();
        harness.status(initialized.stream, 400);
        harness.refuse_listen();
        harness.client.wake(harness.now);
        harness.pump();
        let ping = harness.next_post("ping");
        harness.status(ping.stream, status);
        let sent = harness.exchanges_of("notifications/initialized");
        assert_eq!(sent.len(), count, "{status}");
    }
}

/// The probe did not fail: it reached nobody.
#[test]
fn end_of_an_unreachable_server_names_no_earlier_request() {
    let (mut harness, probe) = with_probe();
    harness.fail(probe.stream, FaultKind::Refused);
    let ended = harness.client.last_end().expect("the epoch ended");
    assert_eq!(
        (&ended.cause, &ended.first_try),
        (&Cause::Unreachable, &None)
    );
}

/// A call that the server refuses for its version may be the first sign of a server of another version.
#[test]
fn call_refused_for_its_version_makes_the_link_probe_at_once() {
    let mut harness = Harness::modern();
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.json(post.stream, 200, &error(&post, -32_022));
    assert_eq!(harness.reply(call), Err(-32_022));
    harness.next_post("server/discover");
}
