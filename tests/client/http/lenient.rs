//! Servers that break a rule and still work with the SDKs in use must work with a link, too.

use crate::client_http::{self, Begun, Web, config, error, notification, result, seconds};
use everlink::client::{Cause, Delivery, Event, FailureKind, State};
use everlink::http::Verb;
use everlink::protocol::Era;
use everlink::{Config, Dialect, FaultKind};
use serde_json::{Value, json};

/// Statuses of a proxy or of a busy server. They say nothing about the server itself.
const PASSING: [u16; 6] = [408, 425, 429, 502, 503, 504];

fn legacy_config() -> Config {
    let mut config = config();
    config.dialect = Dialect::Legacy;
    config
}

fn is_probe(begun: &Begun) -> bool {
    begun.method() == "server/discover"
}

/// A link that has just begun, and its modern probe.
fn probed() -> (Web, Begun) {
    let mut web = Web::new(config());
    web.connect();
    let probe = web.posted("server/discover");
    (web, probe)
}

/// A way in which a server fails at the probe.
type Failing = Box<dyn Fn(&mut Web, &Begun)>;

fn failures() -> Vec<Failing> {
    let statuses = [403, 418, 500, 501, 505].into_iter().chain(PASSING);
    let mut all: Vec<Failing> = Vec::new();
    for status in statuses {
        all.push(Box::new(move |web, probe| web.status(probe.stream, status)));
        let body = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"what?"}}"#;
        let fields = [("content-type", "application/json")];
        all.push(Box::new(move |web, probe| {
            web.respond(probe.stream, status, &fields, body);
        }));
    }
    for fault in [FaultKind::Reset, FaultKind::Closed, FaultKind::Read] {
        all.push(Box::new(move |web, probe| web.fail(probe.stream, fault)));
        all.push(Box::new(move |web, probe| {
            web.head(probe.stream, 200, &[("content-type", "application/json")]);
            web.bytes(probe.stream, br#"{"jsonrpc":"2.0","#);
            web.fail(probe.stream, fault);
        }));
        all.push(Box::new(move |web, probe| {
            web.stream(probe.stream);
            web.fail(probe.stream, fault);
        }));
    }
    all.push(Box::new(|web, probe| web.stream_end(probe)));
    all.push(Box::new(|web, probe| {
        let fields = [("content-type", "application/json")];
        web.respond(probe.stream, 200, &fields, "{]");
    }));
    all
}

impl Web {
    fn stream_end(&mut self, begun: &Begun) {
        self.stream(begun.stream);
        self.end(begun.stream);
    }
}

#[test]
fn initialize_is_tried_in_the_same_attempt_after_a_probe_that_failed() {
    for fail in failures() {
        let (mut web, probe) = probed();
        fail(&mut web, &probe);
        web.agree_legacy("2025-11-25", Some("s-1"));
        assert_eq!((web.opens, web.client.failures()), (1, 0));
        assert_eq!(web.challenges(), 0);
        let call = web.call("tools/call", json!({"name": "add"}));
        let post = web.posted("tools/call");
        web.serve(&post);
        assert!(web.reply(call).is_ok());
    }
}

/// S-HTTP-43: a gateway error says nothing about the era, so a later epoch probes again.
#[test]
fn legacy_era_is_remembered_only_if_the_server_itself_failed_at_the_probe() {
    let status =
        |status: u16| -> Failing { Box::new(move |web, probe| web.status(probe.stream, status)) };
    let cut: Failing = Box::new(|web, probe| web.fail(probe.stream, FaultKind::Reset));
    let remembered = [403, 500, 501].map(|code| (status(code), true));
    let forgotten = PASSING.map(|code| (status(code), false));
    let all = remembered.into_iter().chain(forgotten);
    for (fail, is_remembered) in all.chain([(cut, false)]) {
        let (mut web, probe) = probed();
        fail(&mut web, &probe);
        web.agree_legacy("2025-11-25", None);
        let era = is_remembered.then_some(Era::Legacy);
        assert_eq!(web.client.era(), era);
        web.client.reconnect(web.now, web.client.epoch(), "to see");
        web.pass(seconds(10));
        assert_eq!(web.find(is_probe).is_none(), is_remembered);
    }
}

/// A known modern server that cannot be reached is not taken for a legacy one.
#[test]
fn known_modern_server_that_fails_at_the_probe_is_probed_again() {
    for status in [403, 500, 502, 503] {
        let mut web = Web::modern();
        web.client.reconnect(web.now, web.client.epoch(), "to see");
        web.pass(seconds(10));
        let probe = web.posted("server/discover");
        web.status(probe.stream, status);
        web.client.authorized(web.now);
        web.pass(seconds(3));
        assert_eq!(web.carrying("initialize").len(), 0, "{status}");
        web.agree_modern();
    }
}

/// The probe breaks some servers until they are restarted: they answer everything with 500. The next attempts skip
/// the probe.
#[test]
fn server_that_the_probe_broke_is_spoken_to_in_legacy_once_it_is_back() {
    let (mut web, probe) = probed();
    web.status(probe.stream, 500);
    let post = web.posted("initialize");
    web.status(post.stream, 500);
    assert_eq!(web.client.failures(), 1);
    for _ in 0..3 {
        web.pass(seconds(20));
        let post = web.posted("initialize");
        web.status(post.stream, 500);
    }
    web.pass(seconds(60));
    web.client.wake(web.now);
    web.pass(seconds(1));
    web.agree_legacy("2025-11-25", Some("s-1"));
    assert_eq!(web.count(is_probe), 1);
}

#[test]
fn server_that_is_gone_right_after_the_probe_is_spoken_to_in_legacy_once_it_is_back() {
    let (mut web, probe) = probed();
    web.fail(probe.stream, FaultKind::Reset);
    let post = web.posted("initialize");
    web.fail(post.stream, FaultKind::Refused);
    web.pass(seconds(3));
    web.agree_legacy("2025-11-25", Some("s-1"));
    assert_eq!(web.count(is_probe), 1);
}

/// A starting server cuts every connection. The link probes it again later.
#[test]
fn server_that_cuts_both_requests_is_probed_again() {
    for fault in [FaultKind::Reset, FaultKind::Closed] {
        let (mut web, probe) = probed();
        web.fail(probe.stream, fault);
        let post = web.posted("initialize");
        web.fail(post.stream, fault);
        assert_eq!(web.client.failures(), 1);
        web.pass(seconds(3));
        web.agree_modern();
    }
}

/// If no connection was made, the link does not try `initialize` in the same attempt.
#[test]
fn server_that_cannot_be_reached_is_asked_once_in_each_attempt() {
    for fault in [
        FaultKind::Refused,
        FaultKind::TimedOut,
        FaultKind::NameNotFound,
        FaultKind::Tls,
        FaultKind::Unreachable,
    ] {
        let (mut web, probe) = probed();
        web.fail(probe.stream, fault);
        web.pass(seconds(2));
        assert!(web.carrying("initialize").is_empty(), "{fault:?}");
    }
}

/// The text names the responses to both requests and a remedy.
#[test]
fn failure_of_a_handshake_says_what_both_requests_were_answered_with() {
    let (mut web, probe) = probed();
    let call = web.call("tools/call", json!({"name": "add"}));
    let refusal = json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32_603, "message": "KeyError: session"}});
    web.json(probe.stream, 500, &refusal);
    let post = web.posted("initialize");
    web.status(post.stream, 502);
    let end = web.last_end();
    for part in [
        "HTTP status 502",
        "server/discover",
        "HTTP status 500",
        "KeyError: session",
        "--era legacy",
    ] {
        assert!(end.contains(part), "{part}: {end}");
    }
    assert!(!web.is_settled(call));
    // The next attempt has its own text.
    web.pass(seconds(3));
    let post = web.posted("initialize");
    web.status(post.stream, 502);
    assert!(!web.last_end().contains("server/discover"));

    let (mut web, probe) = probed();
    web.status(probe.stream, 403);
    let post = web.posted("initialize");
    web.json(post.stream, 200, &error(&post, -32_603));
    let end = web.last_end();
    for part in ["status 403", "-32603"] {
        assert!(end.contains(part), "{part}: {end}");
    }
    assert!(!end.contains("--era"), "it is not broken: {end}");

    let mut web = Web::new(legacy_config());
    web.connect();
    let post = web.posted("initialize");
    web.status(post.stream, 500);
    assert!(!web.last_end().contains("--era"), "{}", web.last_end());
}

/// A 403 with a challenge asks for credentials, and so does any 401.
#[test]
fn challenge_to_the_probe_is_a_demand_for_credentials() {
    for (status, fields) in [
        (401, &[("www-authenticate", "Bearer")][..]),
        (403, &[("www-authenticate", "Bearer")][..]),
        (401, &[][..]),
    ] {
        let (mut web, probe) = probed();
        web.respond(probe.stream, status, fields, "");
        assert_eq!(web.challenges(), 1, "{status}");
        web.client.authorized(web.now);
        web.pump();
        web.agree_modern();
        assert!(web.carrying("initialize").is_empty(), "{status}");
    }
}

/// The server asks for a delay. The link tries nothing else meanwhile.
#[test]
fn busy_server_is_not_asked_in_another_way() {
    let (mut web, probe) = probed();
    web.respond(probe.stream, 503, &[("retry-after", "90")], "");
    web.pass(seconds(89));
    assert_eq!(web.all.len(), 1);
    web.pass(seconds(1));
    web.agree_modern();
}

/// A link that has the result of `initialize`, and its `initialized` message.
fn introduced() -> (Web, Begun) {
    let mut web = Web::new(legacy_config());
    web.connect();
    web.introduce("s-1");
    let told = web.posted("notifications/initialized");
    (web, told)
}

#[test]
fn server_that_fails_at_the_end_of_the_handshake_is_used() {
    for status in [307, 400, 403, 405, 408, 425, 429, 500, 501, 502, 503, 504] {
        let (mut web, told) = introduced();
        web.status(told.stream, status);
        assert_eq!(web.client.state(), State::Ready, "{status}");
        let is_told = |event: &Event| matches!(event, Event::Noise(_));
        assert!(web.was_told(is_told), "{status}");
        web.no_news();
        let call = web.call("tools/call", json!({"name": "add"}));
        let post = web.posted("tools/call");
        assert_eq!(post.field("mcp-session-id"), Some("s-1"));
        web.serve(&post);
        assert!(web.reply(call).is_ok(), "{status}");
        assert_eq!((web.opens, web.challenges()), (1, 0), "{status}");
    }
}

/// A server may send nothing before it gets `initialized`. The link therefore repeats it after the next reply, and reads changed data again.
#[test]
fn server_that_fails_at_the_end_of_the_handshake_is_told_of_it_again() {
    let (mut web, told) = introduced();
    web.status(told.stream, 500);
    web.no_news();
    for status in [500, 202] {
        let call = web.call("tools/call", json!({"name": "add"}));
        let post = web.posted("tools/call");
        web.serve(&post);
        assert!(web.reply(call).is_ok(), "{status}");
        let told = web.posted("notifications/initialized");
        web.status(told.stream, status);
    }
    // The link asks for the listen stream once more, too.
    web.no_news();
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.serve(&post);
    assert!(web.reply(call).is_ok());
    assert_eq!(web.carrying("notifications/initialized").len(), 3);
}

/// The link stops repeating `initialized` if the server never accepts it.
#[test]
fn end_of_the_handshake_is_said_four_times_at_most() {
    let (mut web, told) = introduced();
    web.status(told.stream, 500);
    web.no_news();
    for _ in 0..10 {
        let call = web.call("tools/call", json!({"name": "add"}));
        let post = web.posted("tools/call");
        web.serve(&post);
        assert!(web.reply(call).is_ok());
        let told = web.carrying("notifications/initialized").pop();
        let again = told.expect("it was said").stream;
        if web.is_open(again) {
            web.status(again, 500);
        }
    }
    assert_eq!(web.carrying("notifications/initialized").len(), 4);
}

/// A lost session still counts.
#[test]
fn end_of_the_handshake_can_find_the_session_lost() {
    let (mut web, told) = introduced();
    web.status(told.stream, 404);
    web.pass(seconds(1));
    assert_eq!(
        web.client.last_end().expect("an end").cause,
        Cause::SessionLost
    );
}

/// A link with a listen stream, and this stream.
fn listening(config: Config) -> (Web, Begun) {
    let mut web = Web::new(config);
    web.connect();
    web.agree_with_news("2025-11-25", Some("s-1"));
    let listen = web.begun(Verb::Get);
    web.stream(listen.stream);
    (web, listen)
}

/// S-LHTTP-16 forbids it, but servers do it: they answer the POST with 202 and send the reply on the listen stream.
#[test]
fn reply_is_taken_from_the_listening_stream_after_202() {
    for body in ["", "Accepted", "ok\n"] {
        for kind in [None, Some("text/plain"), Some("application/json")] {
            let (mut web, listen) = listening(legacy_config());
            let call = web.call("tools/call", json!({"name": "add"}));
            let post = web.posted("tools/call");
            let fields: Vec<_> = kind
                .into_iter()
                .map(|kind| ("content-type", kind))
                .collect();
            web.respond(post.stream, 202, &fields, body);
            web.pass(seconds(5));
            assert!(!web.is_settled(call), "{body:?} {kind:?}");
            web.event(listen.stream, None, &result(&post, json!({"content": []})));
            assert!(web.reply(call).is_ok());
            assert_eq!((web.opens, web.open()), (1, 1));
        }
    }
}

/// The head alone is enough, because some servers never end such a response.
#[test]
fn reply_is_taken_from_the_listening_stream_while_202_goes_on() {
    let (mut web, listen) = listening(legacy_config());
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.head(post.stream, 202, &[]);
    web.pass(seconds(3));
    assert_eq!(web.aborted, [post.stream]);
    web.event(listen.stream, None, &result(&post, json!({"content": []})));
    assert!(web.reply(call).is_ok());
}

#[test]
fn reply_that_never_comes_after_202_is_bounded_by_the_time_of_the_call() {
    let (mut web, _) = listening(legacy_config());
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.status(post.stream, 202);
    web.pass(seconds(59));
    assert!(!web.is_settled(call));
    web.pass_served(seconds(2));
    let failure = web.failure(call);
    assert!(
        matches!(failure.kind, FailureKind::TimedOut { .. }),
        "{failure}"
    );
    assert_eq!(web.client.state(), State::Ready);
}

#[test]
fn call_after_202_can_be_cancelled() {
    let (mut web, listen) = listening(legacy_config());
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.status(post.stream, 202);
    web.cancel(call);
    web.posted("notifications/cancelled");
    let late = web.client.stats().late_replies;
    web.event(listen.stream, None, &result(&post, json!({"content": []})));
    assert_eq!(web.client.stats().late_replies, late + 1);
}

/// The listen stream may break and return, and the reply still arrives. When the stream is gone for good, the call
/// fails.
#[test]
fn call_after_202_is_lost_with_the_listening_stream() {
    let (mut web, listen) = listening(legacy_config());
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.status(post.stream, 202);
    web.end(listen.stream);
    assert!(!web.is_settled(call), "it is asked for again");
    web.pass(seconds(2));
    let again = web.begun(Verb::Get);
    web.stream(again.stream);
    web.event(again.stream, None, &result(&post, json!({"content": []})));
    assert!(web.reply(call).is_ok());

    let mut config = legacy_config();
    if let Some(http) = &mut config.http {
        http.resumes = 1;
    }
    let (mut web, listen) = listening(config);
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.status(post.stream, 202);
    web.end(listen.stream);
    web.pass(seconds(2));
    let again = web.begun(Verb::Get);
    web.stream(again.stream);
    web.end(again.stream);
    let failure = web.failure(call);
    assert_eq!(failure.kind, FailureKind::Cut);
    assert_eq!(failure.delivery, Delivery::Unknown);
}

/// Without a listen stream no reply can come, so the call fails at once.
#[test]
fn call_after_202_fails_at_once_if_nothing_is_listened_to() {
    for mut web in [Web::legacy(), Web::modern()] {
        let call = web.call("tools/call", json!({"name": "add"}));
        let post = web.posted("tools/call");
        web.status(post.stream, 202);
        let failure = web.failure(call);
        assert!(
            matches!(failure.kind, FailureKind::Invalid { .. }),
            "{failure}"
        );
    }
}

/// Each resumed stream repeats its first events and is cut at the same place. The link gives up after five attempts.
#[test]
fn stream_that_is_cut_again_and_again_at_the_same_event_is_given_up() {
    let mut web = Web::legacy();
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    let log = notification(
        "notifications/message",
        &json!({"level": "info", "data": 1}),
    );
    let begun = web.now;
    let mut next = Some(post);
    while !web.is_settled(call) {
        if let Some(stream) = next.map(|begun| begun.stream) {
            web.stream(stream);
            web.bytes(stream, b"retry: 10\nid: e-1\ndata:\n\n");
            web.event(stream, Some("e-2"), &log);
            web.bytes(stream, b"id: e-3\ndata: {\"jsonrpc\"");
            web.fail(stream, FaultKind::Reset);
        }
        web.pass(core::time::Duration::from_millis(250));
        next = web.find(|begun| begun.verb == Verb::Get);
    }
    let failure = web.failure(call);
    assert!(
        failure.to_string().contains("at the same event"),
        "{failure}"
    );
    assert_eq!(failure.delivery, Delivery::Unknown);
    let gets = web.count(|begun| begun.verb == Verb::Get);
    assert_eq!(gets, 6, "the stream of news, and five times this one");
    assert!(web.now.since(begun) <= seconds(45));
    assert_eq!((web.client.state(), web.opens), (State::Ready, 1));
}

/// A resumed stream that brings new events is resumed again, ten times as often as one without new events.
#[test]
fn stream_that_brings_something_new_each_time_is_resumed_as_often_as_it_takes() {
    let mut config = config();
    config.policy.call_idle = everlink::Limit::Never;
    config.policy.call_total = everlink::Limit::Never;
    let mut web = Web::legacy_with(config, "2025-11-25");
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.stream(post.stream);
    web.bytes(post.stream, b"retry: 10\nid: e-0\ndata:\n\n");
    web.end(post.stream);
    for event in 1..=50 {
        // Every second attempt brings nothing new, which is tolerated.
        for is_new in [false, true] {
            web.pass_served(seconds(3));
            let get = web.begun(Verb::Get);
            web.stream(get.stream);
            if is_new {
                web.bytes(get.stream, format!("id: e-{event}\ndata:\n\n").as_bytes());
            }
            web.end(get.stream);
        }
    }
    web.pass_served(seconds(3));
    let get = web.begun(Verb::Get);
    web.stream(get.stream);
    web.event(get.stream, None, &result(&post, json!({"content": []})));
    assert!(web.reply(call).is_ok());
}

/// The failure contains the server's message, although the error has no id.
#[test]
fn failure_shows_what_an_error_without_an_id_says() {
    let said = |id: Value, status: u16, code: i64| {
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
            let mut web = Web::new(config);
            web.connect();
            web.agree_legacy("2025-11-25", Some("s-1"));
            let call = web.call("tools/call", json!({"name": "add"}));
            let post = web.posted("tools/call");
            let body = said(id, status, code).to_string();
            web.respond(post.stream, status, fields, &body);
            let failure = web.failure(call).to_string();
            assert!(failure.contains("is what you get"), "{failure}");
            assert!(failure.contains(&status.to_string()), "{failure}");
        }
    }
}

/// S-RPC-07 requires the same type. The SDKs also accept the number as a string.
#[test]
fn reply_whose_id_is_the_text_of_the_number_is_taken() {
    for version in client_http::VERSIONS {
        for is_stream in [false, true] {
            let mut web = Web::speaking(version);
            let call = web.call("tools/call", json!({"name": "add"}));
            let post = web.posted("tools/call");
            let mut reply = client_http::complete(&post, json!({"content": []}));
            reply["id"] = json!(post.body["id"].to_string());
            if is_stream {
                web.stream(post.stream);
                web.event(post.stream, None, &reply);
                web.end(post.stream);
            } else {
                web.json(post.stream, 200, &reply);
            }
            assert!(web.reply(call).is_ok(), "{version}");
        }
    }
}

/// The same holds for `initialize`: the link uses the session of such a reply.
#[test]
fn handshake_whose_id_is_the_text_of_the_number_is_taken() {
    let mut web = Web::new(legacy_config());
    web.connect();
    let post = web.posted("initialize");
    let fields = [
        ("content-type", "application/json"),
        ("mcp-session-id", "s-7"),
    ];
    let mut reply = result(&post, client_http::introduction("2025-11-25"));
    reply["id"] = json!(post.body["id"].to_string());
    web.respond(post.stream, 200, &fields, &reply.to_string());
    let told = web.posted("notifications/initialized");
    assert_eq!(told.field("mcp-session-id"), Some("s-7"));
}
