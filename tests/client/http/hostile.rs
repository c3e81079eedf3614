//! A client link over HTTP against hostile or broken servers: no request is repeated needlessly, nothing hangs, and no secret is
//! shown.

use core::time::Duration;

use crate::client_http::{self, Exchange, Harness, config, error, result, seconds};
use everlink::client::{CallOptions, Cause, Client, Delivery, Event, FailureKind, State};
use everlink::http::Verb;
use everlink::protocol::{ClientCapabilities, Era};
use everlink::{Config, Dialect, FaultKind, Input, Instant, Limit, List, Output, Watch};
use serde_json::{Value, json};

fn legacy_config() -> Config {
    let mut config = config();
    config.dialect = Dialect::Legacy;
    config
}

fn is_get(exchange: &Exchange) -> bool {
    exchange.verb == Verb::Get
}

fn is_initialize(exchange: &Exchange) -> bool {
    exchange.method() == "initialize"
}

/// A link that lost contact in its session, and has begun its next epoch.
fn after_lost_contact() -> Harness {
    let mut harness = Harness::legacy();
    harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.fail(post.stream, FaultKind::Refused);
    harness.advance(seconds(1));
    harness
}

#[test]
fn listen_stream_is_requested_once_even_if_initialized_is_repeated() {
    for fields in [
        (401, ("www-authenticate", "Bearer")),
        (307, ("location", "/v2")),
        (429, ("retry-after", "1")),
    ] {
        let (status, field) = fields;
        let mut harness = Harness::new(legacy_config());
        harness.connect();
        harness.answer_initialize("s-1");
        let post = harness.next_post("notifications/initialized");
        harness.respond(post.stream, status, &[field], "");
        assert_eq!(
            harness.count(is_get),
            0,
            "the handshake is not over: {status}"
        );
        harness.client.authorized(harness.now);
        harness.advance(seconds(2));
        let post = harness.next_post("notifications/initialized");
        harness.status(post.stream, 202);
        assert_eq!(harness.count(is_get), 1, "status {status}");
    }
}

#[test]
fn initialized_refused_with_retry_after_is_sent_again() {
    let mut harness = Harness::new(legacy_config());
    harness.connect();
    harness.answer_initialize("s-1");
    let post = harness.next_post("notifications/initialized");
    harness.respond(post.stream, 503, &[("retry-after", "2")], "");
    harness.advance(seconds(2));
    let post = harness.next_post("notifications/initialized");
    assert_eq!(post.at, Instant::ZERO + seconds(2));
    assert_eq!(harness.client.state(), State::Ready);
}

#[test]
fn longer_of_two_retry_after_delays_applies() {
    let mut harness = Harness::modern();
    for _ in 0..2 {
        harness.call("tools/call", json!({"name": "add"}));
    }
    let posts = [
        harness.next_post("tools/call"),
        harness.next_post("tools/call"),
    ];
    harness.respond(posts[0].stream, 429, &[("retry-after", "40")], "");
    harness.respond(posts[1].stream, 429, &[("retry-after", "1")], "");
    harness.advance(seconds(39));
    assert_eq!(harness.unseen_count(), 0);
    harness.advance(seconds(1));
    assert_eq!(harness.unseen_count(), 2);
}

#[test]
fn session_with_an_unfinished_handshake_is_not_resumed() {
    let mut harness = Harness::new(legacy_config());
    harness.connect();
    harness.answer_initialize("s-1");
    let post = harness.next_post("notifications/initialized");
    harness.fail(post.stream, FaultKind::Reset);
    harness.advance(seconds(1));
    harness.agree_legacy("2025-11-25", Some("s-2"));
    assert_eq!(harness.count(|exchange| exchange.method() == "ping"), 0);
}

#[test]
fn changed_capabilities_start_a_new_session_after_lost_contact() {
    let mut harness = Harness::legacy();
    let capable: ClientCapabilities = serde_json::from_str(r#"{"roots": {}}"#).expect("JSON");
    harness.client.declare(harness.now, capable);
    harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.fail(post.stream, FaultKind::Refused);
    harness.advance(seconds(1));
    let post = harness.next_post("initialize");
    assert!(post.body["params"]["capabilities"]["roots"].is_object());
    let delete = harness.next_exchange(Verb::Delete);
    assert_eq!(delete.field("mcp-session-id"), Some("s-1"));
}

#[test]
fn unchanged_capabilities_keep_the_session_after_lost_contact() {
    let mut harness = Harness::legacy();
    let same = harness.client.config().capabilities.clone();
    harness.client.declare(harness.now, same);
    harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.fail(post.stream, FaultKind::Refused);
    harness.advance(seconds(1));
    harness.next_post("ping");
    assert_eq!(
        harness.count(|exchange| exchange.method() == "initialize"),
        1
    );
}

#[test]
fn session_is_kept_if_the_ping_after_lost_contact_gets_503() {
    let mut harness = after_lost_contact();
    let ping = harness.next_post("ping");
    harness.status(ping.stream, 503);
    harness.advance(seconds(2));
    assert_eq!(harness.count(|exchange| exchange.verb == Verb::Delete), 0);
    let ping = harness.next_post("ping");
    harness.json(ping.stream, 200, &result(&ping, json!({})));
    assert_eq!(harness.client.state(), State::Ready);
}

#[test]
fn fault_of_an_abandoned_probe_keeps_the_link_ready() {
    let mut harness = Harness::new(config());
    harness.connect();
    let probe = harness.next_post("server/discover");
    harness.advance(seconds(4));
    harness.agree_legacy("2025-11-25", Some("s-1"));
    harness.fail(probe.stream, FaultKind::Reset);
    assert_eq!(harness.client.state(), State::Ready);
}

#[test]
fn abandoned_probe_is_not_sent_again() {
    for (status, field) in [(429, ("retry-after", "1")), (307, ("location", "/v2"))] {
        let mut harness = Harness::new(config());
        harness.connect();
        let probe = harness.next_post("server/discover");
        harness.advance(seconds(4));
        harness.respond(probe.stream, status, &[field], "");
        harness.advance(seconds(5));
        let probes = harness.count(|exchange| exchange.method() == "server/discover");
        assert_eq!(probes, 1, "status {status}");
    }
}

#[test]
fn refused_probe_counts_once_if_the_retry_pause_is_zero() {
    let mut config = config();
    config.policy.retry.first = Duration::ZERO;
    let mut harness = Harness::new(config);
    harness.connect();
    let probe = harness.next_post("server/discover");
    harness.advance(seconds(1));
    harness.fail(probe.stream, FaultKind::Refused);
    assert_eq!(harness.client.failures(), 1);
    harness.agree_modern();
}

#[test]
fn url_query_is_absent_from_debug_output() {
    let url = "https://mcp.example/mcp?token=hunter2";
    let mut link = Client::new(Config::http("test", "1", url).expect("a URL"));
    link.connect(Instant::ZERO);
    let mut buf = Vec::new();
    let mut shown = String::new();
    while let Some(output) = link.poll_output(&mut buf) {
        shown += &format!("{output:?}{link:?}");
        if let Output::Open { epoch } = output {
            link.handle(Instant::ZERO, epoch, Input::Opened);
        }
    }
    assert!(shown.contains("Request"), "{shown}");
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn messages_and_header_values_are_absent_from_debug_output() {
    let mut link = Client::new(legacy_config());
    let secret: everlink::Payload = json!({"name": "add", "arguments": {"key": "hunter2"}})
        .to_string()
        .parse()
        .expect("JSON");
    let options = CallOptions::new();
    let call = link.call(Instant::ZERO, "tools/call", Some(secret), options);
    call.expect("accepted");
    let mut buf = Vec::new();
    let mut shown = String::new();
    while let Some(output) = link.poll_output(&mut buf) {
        shown += &format!("{output:?}{link:?}");
        match output {
            Output::Open { epoch } => link.handle(Instant::ZERO, epoch, Input::Opened),
            Output::Request {
                epoch, stream, len, ..
            } => {
                let body = buf.split_off(buf.len() - len);
                let body: Value = serde_json::from_slice(&body).unwrap_or_default();
                let opened = everlink::http::Fields::new()
                    .and("content-type", "application/json")
                    .and("mcp-session-id", "hunter2")
                    .and("www-authenticate", "Bearer hunter2");
                let is_first = body["method"] == "initialize";
                let status = if is_first { 200 } else { 401 };
                let head = everlink::http::ResponseHead::new(status).with_fields(opened);
                let head = Box::new(head);
                let reply = json!({"jsonrpc": "2.0", "id": body["id"], "result": client_http::initialize_result("2025-11-25")});
                for input in [
                    Input::Response { stream, head },
                    Input::Bytes {
                        stream,
                        bytes: reply.to_string().into_bytes().into(),
                    },
                    Input::End {
                        stream,
                        faults: Vec::new().into(),
                    },
                ] {
                    shown += &format!("{input:?}");
                    link.handle(Instant::ZERO, epoch, input);
                }
            }
            _ => {}
        }
    }
    assert!(link.awaits_authorization());
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn modern_server_that_became_legacy_gets_initialize_within_five_minutes() {
    let mut harness = Harness::modern();
    for _ in 0..300 {
        harness.advance(seconds(1));
        while let Some(post) = harness.find(|exchange| exchange.verb == Verb::Post) {
            if is_initialize(&post) {
                return;
            }
            harness.json(post.stream, 400, &error(&post, -32_000));
        }
    }
    panic!("{:?} after five minutes", harness.client.state());
}

/// Errors that a modern server may send for a probe do not change its era.
#[test]
fn modern_error_to_a_keepalive_probe_keeps_the_epoch() {
    for (status, code) in [
        (400, -32_600),
        (400, -32_602),
        (400, -32_700),
        (404, -32_601),
        (400, -32_020),
    ] {
        let mut harness = Harness::modern();
        for _ in 0..300 {
            harness.advance(seconds(1));
            while let Some(post) = harness.find(|exchange| exchange.verb == Verb::Post) {
                harness.json(post.stream, status, &error(&post, code));
            }
        }
        let actual = (harness.epochs_opened, harness.client.state());
        assert_eq!(actual, (1, State::Ready), "{code}");
    }
}

#[test]
fn sse2024_stream_request_follows_a_redirect() {
    let mut harness = Harness::new(legacy_config());
    harness.connect();
    let post = harness.next_post("initialize");
    harness.status(post.stream, 405);
    let get = harness.next_exchange(Verb::Get);
    harness.respond(get.stream, 307, &[("location", "/mcp/")], "");
    let get = harness.next_exchange(Verb::Get);
    assert_eq!(get.target, "https://mcp.example/mcp/");
}

#[test]
fn error_without_an_id_ends_the_sse2024_handshake() {
    let mut harness = Harness::new(legacy_config());
    harness.connect();
    let post = harness.next_post("initialize");
    harness.status(post.stream, 405);
    let get = harness.next_exchange(Verb::Get);
    harness.begin_stream(get.stream);
    harness.bytes(get.stream, b"event: endpoint\ndata: /messages\n\n");
    let post = harness.next_post("initialize");
    harness.status(post.stream, 202);
    let error_without_id =
        json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32_700, "message": "no"}});
    harness.event(get.stream, None, &error_without_id);
    assert_ne!(harness.client.state(), State::Handshaking);
}

#[test]
fn oversized_reply_closes_its_exchange() {
    let mut config = config();
    config.limits.message_bytes = 4_000;
    let mut harness = Harness::modern_with(config);
    let open = harness.open_exchanges();
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.begin_stream(post.stream);
    harness.event(post.stream, None, &result(&post, json!("x".repeat(5_000))));
    assert!(harness.is_settled(call));
    harness.advance(seconds(5));
    assert_eq!(harness.open_exchanges(), open);
}

#[test]
fn draining_link_does_not_resend_a_list_request() {
    let mut harness = Harness::modern();
    harness.call("tools/call", json!({"name": "add"}));
    harness.next_post("tools/call");
    let (list, options) = (List::Prompts, CallOptions::new());
    harness
        .client
        .list(harness.now, list, options)
        .expect("accepted");
    harness.pump();
    let post = harness.next_post("prompts/list");
    harness
        .client
        .reconnect(harness.now, harness.client.epoch(), "asked to");
    harness.pump();
    harness.respond(post.stream, 429, &[("retry-after", "0")], "");
    harness.advance(seconds(1));
    assert_eq!(harness.client.state(), State::Draining);
    assert_eq!(harness.unseen_count(), 0);
}

#[test]
fn stream_of_a_lost_session_is_not_resumed() {
    let mut harness = Harness::legacy();
    for _ in 0..2 {
        harness.call("tools/call", json!({"name": "add"}));
    }
    let (first, second) = (
        harness.next_post("tools/call"),
        harness.next_post("tools/call"),
    );
    harness.begin_stream(first.stream);
    harness.bytes(first.stream, b"id: e-1\ndata:\n\n");
    harness.status(second.stream, 404);
    let gets = harness.count(is_get);
    harness.end(first.stream);
    harness.advance(seconds(2));
    assert_eq!(harness.count(is_get), gets);
}

#[test]
fn initialize_reply_on_a_resumed_stream_is_accepted() {
    let mut harness = Harness::new(legacy_config());
    harness.connect();
    let post = harness.next_post("initialize");
    let fields = [
        ("content-type", "text/event-stream"),
        ("mcp-session-id", "s-1"),
    ];
    harness.head(post.stream, 200, &fields);
    harness.bytes(post.stream, b"id: e-1\nretry: 500\ndata:\n\n");
    harness.end(post.stream);
    harness.advance(seconds(1));
    let resumed = harness.next_exchange(Verb::Get);
    assert_eq!(resumed.field("mcp-session-id"), Some("s-1"));
    assert_eq!(resumed.field("last-event-id"), Some("e-1"));
    harness.begin_stream(resumed.stream);
    let reply = result(&post, client_http::initialize_result("2025-11-25"));
    harness.event(resumed.stream, Some("e-2"), &reply);
    assert_eq!(harness.client.state(), State::Ready);
}

#[test]
fn listen_request_refused_with_404_is_checked_with_a_ping() {
    let mut harness = Harness::legacy_awaiting_listen();
    let get = harness.next_exchange(Verb::Get);
    harness.begin_stream(get.stream);
    harness.fail(get.stream, FaultKind::Reset);
    harness.advance(seconds(2));
    let get = harness.next_exchange(Verb::Get);
    harness.status(get.stream, 404);
    let ping = harness.next_post("ping");
    harness.status(ping.stream, 404);
    let lost = |event: &Event| {
        let Event::Closing { cause, .. } = event else {
            return false;
        };
        *cause == Cause::SessionLost
    };
    assert!(harness.has_event(lost));
}

#[test]
fn events_are_the_same_for_two_messages_in_one_read_or_in_two() {
    let event_count = |is_cut: bool| {
        let mut harness = Harness::modern();
        let call = harness.call("tools/call", json!({"name": "add"}));
        let post = harness.next_post("tools/call");
        harness.begin_stream(post.stream);
        let done = json!({"resultType": "complete", "content": []});
        let reply = format!("data: {}\n\n", result(&post, done));
        let after = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/strange\"}\n\n";
        if is_cut {
            harness.bytes(post.stream, reply.as_bytes());
            harness.bytes(post.stream, after.as_bytes());
        } else {
            harness.bytes(post.stream, format!("{reply}{after}").as_bytes());
        }
        assert!(harness.reply(call).is_ok());
        harness.events.len()
    };
    assert_eq!(event_count(true), event_count(false));
}

#[test]
fn oversized_event_on_the_sse2024_stream_ends_the_epoch() {
    let mut config = config();
    config.limits.unfinished_bytes = 1_000;
    let (mut harness, stream) = Harness::sse2024_with(config);
    harness.bytes(stream, format!("data: {}", "x".repeat(3_000)).as_bytes());
    assert_ne!(
        harness.client.state(),
        State::Ready,
        "the epoch has no other stream"
    );
}

#[test]
fn redirected_call_that_gets_500_fails_with_500_each_time() {
    let mut harness = Harness::modern();
    for _ in 0..20 {
        let call = harness.call("tools/call", json!({"name": "add"}));
        let post = harness.next_post("tools/call");
        let post = if post.target == client_http::URL {
            harness.respond(post.stream, 307, &[("location", "/mcp/")], "");
            harness.next_post("tools/call")
        } else {
            post
        };
        harness.status(post.stream, 500);
        let failure = harness.failure(call);
        assert_eq!(
            failure.kind,
            FailureKind::Status {
                status: 500,
                said: None
            }
        );
    }
}

#[test]
fn busy_status_to_a_keepalive_probe_keeps_the_era() {
    for status in [408, 425, 429] {
        let mut harness = Harness::modern();
        harness.advance(seconds(31));
        let probe = harness.next_post("server/discover");
        harness.status(probe.stream, status);
        assert_eq!(harness.client.state(), State::Ready, "status {status}");
        assert_eq!(harness.client.era(), Some(Era::Modern));
    }
}

#[test]
fn calls_refused_with_429_cause_no_extra_requests() {
    let mut harness = Harness::modern();
    let exchanges_before = harness.exchanges.len();
    for _ in 0..20 {
        harness.call("tools/call", json!({"name": "add"}));
        let post = harness.next_post("tools/call");
        harness.status(post.stream, 429);
    }
    assert_eq!(harness.exchanges.len(), exchanges_before + 20);
}

#[test]
fn call_waits_for_a_silent_server_however_its_last_event_was_split() {
    for pieces in [1, 2, 5, 50] {
        let mut harness = Harness::modern();
        let patient = CallOptions::new()
            .with_idle(Limit::Never)
            .with_total(Limit::Never);
        let call = harness.call_with("tools/call", json!({"name": "slow"}), patient);
        let post = harness.next_post("tools/call");
        harness.begin_stream(post.stream);
        let token = &post.body["params"]["_meta"]["progressToken"];
        let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress",
            "params": {"progressToken": token, "progress": 1}});
        let bytes = format!("data: {progress}\n\n").into_bytes();
        for piece in bytes.chunks(bytes.len().div_ceil(pieces)) {
            harness.bytes(post.stream, piece);
        }
        harness.advance_serving(seconds(600));
        assert!(!harness.is_settled(call), "in {pieces} pieces");
        let done = json!({"resultType": "complete", "content": []});
        harness.event(post.stream, None, &result(&post, done));
        assert!(harness.reply(call).is_ok());
    }
}

#[test]
fn listen_stream_is_not_aborted_for_silence_while_input_is_held_back() {
    let mut harness = Harness::legacy_awaiting_listen();
    let listen = harness.next_exchange(Verb::Get);
    harness.begin_stream(listen.stream);
    for _ in 0..4 {
        harness.bytes(listen.stream, b": here\n\n");
        harness.advance_serving(seconds(10));
    }
    harness.client.hold_back(harness.now, true);
    harness.advance(seconds(600));
    assert!(harness.aborted.is_empty());
    // When reading continues and the stream stays silent, the link aborts it.
    harness.client.hold_back(harness.now, false);
    harness.advance_serving(seconds(300));
    assert_eq!(harness.aborted, [listen.stream]);
}

#[test]
fn unanswered_unsubscribe_delays_the_next_subscribe_for_20_s_at_most() {
    let mut harness = Harness::legacy();
    let mut watch = Watch::lists();
    watch.uris.insert("file:///a".into());
    harness.client.watch(harness.now, watch.clone());
    harness.pump();
    let post = harness.next_post("resources/subscribe");
    harness.serve(&post);
    harness.client.watch(harness.now, Watch::lists());
    harness.pump();
    harness.next_post("resources/unsubscribe");
    harness.client.watch(harness.now, watch);
    harness.pump();
    assert_eq!(harness.unseen_count(), 0, "the subscribe request must wait");
    harness.advance(seconds(20));
    harness.next_post("resources/subscribe");
    assert_eq!(harness.open_exchanges(), 1, "only the new request is open");
}

#[test]
fn link_with_falls_back_false_never_tries_sse2024() {
    let mut config = legacy_config();
    config.binding.http_mut().expect("over HTTP").falls_back = false;
    let mut harness = Harness::new(config);
    harness.connect();
    let post = harness.next_post("initialize");
    harness.status(post.stream, 401);
    harness.client.authorized(harness.now);
    harness.advance(seconds(110));
    assert_eq!(harness.count(is_get), 0);
    harness.agree_legacy("2025-11-25", Some("s-1"));
}

#[test]
fn stream_that_rejects_all_credentials_is_given_up() {
    // The stream of the old transport.
    let mut harness = Harness::new(legacy_config());
    harness.connect();
    let post = harness.next_post("initialize");
    harness.status(post.stream, 405);
    for _ in 0..100 {
        if let Some(get) = harness.find(is_get) {
            harness.status(get.stream, 401);
        }
        harness.client.authorized(harness.now);
        harness.advance(seconds(1));
        if harness.client.state() != State::Handshaking {
            break;
        }
    }
    assert!(
        harness.challenges() <= 5,
        "asked {} times",
        harness.challenges()
    );
    assert_eq!(harness.client.failures(), 0);
    // The rest of a reply.
    let mut harness = Harness::legacy();
    let patient = CallOptions::new()
        .with_idle(Limit::Never)
        .with_total(Limit::Never);
    let call = harness.call_with("tools/call", json!({"name": "add"}), patient);
    let post = harness.next_post("tools/call");
    harness.begin_stream(post.stream);
    harness.bytes(post.stream, b"id: e-1\ndata:\n\n");
    harness.end(post.stream);
    for _ in 0..100 {
        harness.advance(seconds(1));
        if let Some(get) = harness.find(is_get) {
            harness.status(get.stream, 401);
        }
        harness.client.authorized(harness.now);
        harness.pump();
    }
    assert!(
        harness.challenges() <= 5,
        "asked {} times",
        harness.challenges()
    );
    assert_eq!(harness.failure(call).delivery, Delivery::Unknown);
}

/// The ping belongs to the session that the link gives up.
#[test]
fn unanswered_ping_after_lost_contact_is_aborted_2_s_after_its_timeout() {
    let mut harness = after_lost_contact();
    let ping = harness.next_post("ping");
    harness.advance(seconds(3));
    harness.next_post("initialize");
    assert!(harness.is_open(ping.stream));
    harness.advance(seconds(2));
    assert!(!harness.is_open(ping.stream));
}

/// Anything but a reply, an unknown method or an unavailable server means that the session does not continue.
#[test]
fn refused_ping_after_lost_contact_leads_to_a_handshake_in_the_same_epoch() {
    let mut harness = after_lost_contact();
    let ping = harness.next_post("ping");
    harness.status(ping.stream, 405);
    let delete = harness.next_exchange(Verb::Delete);
    assert_eq!(delete.field("mcp-session-id"), Some("s-1"));
    harness.agree_legacy("2025-11-25", Some("s-2"));
    assert_eq!((harness.epochs_opened, harness.client.failures()), (2, 1));
}

/// Some servers end when a request is cancelled that they have refused.
#[test]
fn refused_ping_is_not_cancelled_before_the_next_one() {
    for (status, code) in [(500, None), (404, Some(-32_601)), (400, Some(-32_600))] {
        let mut harness = Harness::new(legacy_config());
        harness.connect();
        harness.agree_legacy("2025-11-25", None);
        let mut pings = 0;
        while pings < 3 {
            harness.advance(seconds(1));
            while let Some(ping) = harness.find(|exchange| exchange.method() == "ping") {
                match code {
                    Some(code) => harness.json(ping.stream, status, &error(&ping, code)),
                    None => harness.status(ping.stream, status),
                }
                pings += 1;
            }
        }
        assert!(
            harness.exchanges_of("notifications/cancelled").is_empty(),
            "{status}"
        );
        assert_eq!(harness.epochs_opened, 1);
    }
}

/// The server may have been replaced by one of another era, which may be slow to answer the probe.
#[test]
fn server_that_changed_its_era_is_initialized_if_it_ignores_the_probe() {
    let mut harness = Harness::modern();
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.status(post.stream, 404);
    harness.failure(call);
    let probe = harness.next_post("server/discover");
    harness.json(probe.stream, 200, &error(&probe, -32_601));
    assert_ne!(harness.client.state(), State::Ready);
    assert_eq!(harness.client.era(), None);
    harness.advance(seconds(2));
    harness.next_post("server/discover");
    harness.advance(seconds(3));
    harness.next_post("initialize");
}

/// A setting that is being changed delays only others of its kind. The limit applies all the same.
#[test]
fn call_over_the_in_flight_limit_waits_while_a_setting_is_changed() {
    let mut config = config();
    config.limits.calls_in_flight = 1;
    let mut harness = Harness::legacy_with(config, "2025-11-25");
    harness.watch(Watch::lists().and_uri("a:b"));
    harness.next_post("resources/subscribe");
    for _ in 0..2 {
        harness.call("tools/call", json!({"name": "add"}));
    }
    let post = harness.next_post("tools/call");
    assert_eq!(harness.exchanges_of("tools/call").len(), 1);
    harness.serve(&post);
    assert_eq!(harness.exchanges_of("tools/call").len(), 2);
}

/// The reply may be lost with its exchange. The watch does not wait for its whole timeout then.
#[test]
fn subscription_without_a_response_is_requested_again_after_15_s() {
    let mut config = config();
    config.policy.watch_timeout = seconds(60);
    let mut harness = Harness::legacy_with(config, "2025-11-25");
    harness.watch(Watch::lists().and_uri("a:b"));
    harness.next_post("resources/subscribe");
    harness.advance(seconds(14));
    assert_eq!(harness.exchanges_of("resources/subscribe").len(), 1);
    harness.advance(seconds(1));
    assert_eq!(harness.exchanges_of("resources/subscribe").len(), 2);
}

/// An ask stops the time of calls in flight, because it may be for any of them. A call that goes back to the queue is in flight no more.
#[test]
fn call_that_goes_back_to_the_queue_times_out_while_an_ask_is_open() {
    let mut config = legacy_config();
    config.capabilities = ClientCapabilities::default().with_roots(false);
    config.policy.keepalive = None;
    let mut harness = Harness::new(config);
    harness.connect();
    harness.agree_legacy_awaiting_listen("2025-11-25", Some("s-1"));
    let listen = harness.next_exchange(Verb::Get);
    harness.begin_stream(listen.stream);
    let calls = [(); 3].map(|()| harness.call("tools/call", json!({"name": "add"})));
    let posts = [(); 3].map(|()| harness.next_post("tools/call"));
    harness.advance(seconds(1));
    let ask = client_http::ask_message(1, "roots/list", &json!({}));
    harness.event(listen.stream, None, &ask);
    // The time of the calls stands still for 69 s.
    harness.advance(seconds(69));
    harness.respond(posts[0].stream, 429, &[("retry-after", "200")], "");
    harness.respond(posts[1].stream, 307, &[("location", "/v2")], "");
    harness.advance(seconds(58));
    assert!(calls.iter().all(|call| !harness.is_settled(*call)));
    harness.advance(seconds(1));
    for call in &calls[..2] {
        let kind = harness.failure(*call).kind;
        assert!(matches!(kind, FailureKind::TimedOut { .. }), "{kind}");
    }
    assert!(!harness.is_settled(calls[2]), "it is in flight");
}
