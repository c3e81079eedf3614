//! Failures over HTTP of streams, of servers with the transport of 2024-11-05, and of the version agreement. Each test is named
//! after its row in the catalogue of failures.

use core::time::Duration;

use crate::client_http::{self, Exchange, Harness, complete, config, error, result, seconds};
use everlink::client::{Cause, Delivery, Event, FailureKind, State};
use everlink::http::Verb;
use everlink::protocol::{ClientCapabilities, Era};
use everlink::{Config, Dialect, FaultKind, Instant};
use serde_json::{Value, json};

/// A configuration with only the legacy era.
fn legacy_config() -> Config {
    let mut config = config();
    config.dialect = Dialect::Legacy;
    config
}

/// Like `legacy_config`, without the fallback to the transport of 2024-11-05.
fn legacy_config_without_fallback() -> Config {
    let mut config = legacy_config();
    config.binding.http_mut().expect("over HTTP").falls_back = false;
    config
}

fn is_get(exchange: &Exchange) -> bool {
    exchange.verb == Verb::Get
}

fn is_initialize(exchange: &Exchange) -> bool {
    exchange.method() == "initialize"
}

/// A call whose response has begun as a stream with one event to resume from.
fn call_with_stream(harness: &mut Harness) -> (everlink::CallId, Exchange) {
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.begin_stream(post.stream);
    harness.bytes(post.stream, b"id: e-1\ndata:\n\n");
    (call, post)
}

/// The reason why the newest epoch ended.
fn refusal(harness: &Harness) -> String {
    match harness.client.last_end().map(|ended| &ended.cause) {
        Some(Cause::HandshakeRefused { why }) => why.to_string(),
        other => panic!("{other:?} is no refusal"),
    }
}

#[test]
fn f_038_refused_listen_stream_keeps_the_link_ready_and_is_rarely_retried() {
    for status in [400, 403, 404, 405, 406, 408, 410, 425, 429, 501, 503] {
        let mut harness = Harness::legacy_awaiting_listen();
        for _ in 0..600 {
            while let Some(get) = harness.find(is_get) {
                harness.status(get.stream, status);
            }
            harness.advance_serving(seconds(1));
        }
        let gets = harness.count(is_get);
        let is_temporary = status >= 500 || [408, 425, 429].contains(&status);
        let expected = if is_temporary { 9 } else { 1 };
        assert_eq!(gets, expected, "status {status}");
        assert_eq!(harness.client.state(), State::Ready);
        assert_eq!(harness.client.failures(), 0);
        assert_eq!(harness.epochs_opened, 1);
    }
}

#[test]
fn f_039_listen_response_that_is_no_event_stream_is_not_retried() {
    for (kind, body) in [
        ("text/html", "<html>"),
        ("application/json", "{}"),
        ("text/plain", ""),
    ] {
        let mut harness = Harness::legacy_awaiting_listen();
        let get = harness.next_exchange(Verb::Get);
        harness.respond(get.stream, 200, &[("content-type", kind)], body);
        harness.advance_serving(seconds(3_600));
        assert_eq!(harness.count(is_get), 1);
        assert_eq!(harness.client.state(), State::Ready);
    }
}

#[test]
fn f_039_listen_stream_with_only_event_ids_is_requested_with_backoff() {
    for primed in ["id: 1\ndata:\n\n", "retry: 0\nid: 1\ndata:\n\n"] {
        let mut harness = Harness::legacy_awaiting_listen();
        for _ in 0..3_600 {
            while let Some(get) = harness.find(is_get) {
                harness.begin_stream(get.stream);
                harness.bytes(get.stream, primed.as_bytes());
                harness.end(get.stream);
            }
            harness.advance_serving(seconds(1));
        }
        let gets = harness.count(is_get);
        assert!(gets <= 60, "{gets} in an hour");
        assert!(gets >= 12, "{gets} in an hour: it was given up");
    }
}

#[test]
fn f_041_last_event_id_is_kept_across_failed_resumes() {
    let mut harness = Harness::legacy();
    let (call, post) = call_with_stream(&mut harness);
    harness.fail(post.stream, FaultKind::Reset);
    for attempt in 0..4 {
        harness.advance(seconds(10));
        let get = harness.next_exchange(Verb::Get);
        assert_eq!(get.field("last-event-id"), Some("e-1"), "{attempt}");
        match attempt {
            0 => harness.status(get.stream, 502),
            1 => {
                harness.begin_stream(get.stream);
                harness.end(get.stream);
            }
            2 => {
                // An event without an id keeps the last id.
                harness.begin_stream(get.stream);
                harness.bytes(get.stream, b": hello\n\nid: e-2\ndata: {\"jsonrpc\"");
                harness.fail(get.stream, FaultKind::Reset);
            }
            _ => {
                harness.begin_stream(get.stream);
                harness.event(get.stream, Some("e-2"), &result(&post, json!({})));
            }
        }
    }
    assert!(harness.reply(call).is_ok());
}

#[test]
fn f_042_replayed_reply_settles_its_call_once() {
    let mut harness = Harness::legacy_awaiting_listen();
    let listen = harness.next_exchange(Verb::Get);
    harness.begin_stream(listen.stream);
    let (call, post) = call_with_stream(&mut harness);
    let reply = result(&post, json!({"content": []}));
    harness.event(post.stream, Some("e-2"), &reply);
    assert!(harness.reply(call).is_ok());
    // On the call's own stream, and on the listen stream.
    harness.event(post.stream, Some("e-3"), &reply);
    harness.event(listen.stream, None, &reply);
    harness.event(listen.stream, None, &reply);
    assert!(!harness.is_settled(call));
    assert_eq!(harness.client.stats().late_replies, 2);
    assert_eq!(harness.client.state(), State::Ready);
}

#[test]
fn f_042_replayed_ask_reaches_the_application_once() {
    let mut config = config();
    config.capabilities = root_capabilities();
    let mut harness = Harness::legacy_with(config, "2025-11-25");
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.begin_stream(post.stream);
    let messages = [7, 8].map(|id| client_http::ask_message(id, "roots/list", &json!({})));
    for message in &messages {
        harness.event(post.stream, Some("e-1"), message);
        let ask = harness.ask();
        harness.answer(&ask, Ok(json!({"roots": []})));
    }
    harness.fail(post.stream, FaultKind::Reset);
    harness.advance(seconds(1));
    let resumed = harness.next_exchange(Verb::Get);
    harness.begin_stream(resumed.stream);
    for message in &messages {
        harness.event(resumed.stream, Some("e-1"), message);
    }
    harness.event(resumed.stream, Some("e-2"), &result(&post, json!({})));
    assert!(harness.reply(call).is_ok());
    assert!(harness.find_ask().is_none());
    assert_eq!(harness.client.stats().late_replies, 2);
}

fn root_capabilities() -> ClientCapabilities {
    serde_json::from_str(r#"{"roots": {}}"#).expect("capabilities")
}

#[test]
fn f_043_listen_stream_or_watch_cut_after_silence_is_requested_again() {
    // Legacy: the listen stream is resumed after its last event.
    let mut harness = Harness::legacy_awaiting_listen();
    let get = harness.next_exchange(Verb::Get);
    harness.begin_stream(get.stream);
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    harness.event(get.stream, Some("n-1"), &changed);
    harness.advance_serving(seconds(125));
    harness.fail(get.stream, FaultKind::Reset);
    assert_eq!(harness.client.state(), State::Ready);
    harness.advance_serving(seconds(2));
    let get = harness.next_exchange(Verb::Get);
    assert_eq!(get.field("last-event-id"), Some("n-1"));
    assert_eq!(harness.client.failures(), 0);
    // Modern: the link opens a new watch and reports its grant.
    let mut harness = Harness::modern();
    let is_listen = |exchange: &Exchange| exchange.method() == "subscriptions/listen";
    let listen = harness
        .exchanges
        .iter()
        .find(|exchange| is_listen(exchange))
        .cloned();
    let listen = listen.expect("a watch");
    harness.advance_serving(seconds(125));
    let events_before = harness.events.len();
    harness.fail(listen.stream, FaultKind::Reset);
    assert_eq!(harness.client.state(), State::Ready);
    harness.advance(seconds(10));
    let again = harness.next_post("subscriptions/listen");
    assert_ne!(again.body["id"], listen.body["id"]);
    harness.begin_stream(again.stream);
    let acknowledged = json!({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": {
        "_meta": {"io.modelcontextprotocol/subscriptionId": again.body["id"]},
        "notifications": again.body["params"]["notifications"]}});
    harness.event(again.stream, None, &acknowledged);
    let new = &harness.events[events_before..];
    assert!(new.iter().any(|e| matches!(e, Event::Watching { .. })));
}

#[test]
fn f_043_listen_stream_that_brings_a_message_each_time_is_resumed_each_time() {
    let mut harness = Harness::legacy_awaiting_listen();
    for resumed in 0..20 {
        assert_eq!(harness.client.stats().resumes, resumed);
        let get = harness.next_exchange(Verb::Get);
        harness.begin_stream(get.stream);
        let message = client_http::notification("notifications/strange", &json!({}));
        harness.event(get.stream, None, &message);
        harness.end(get.stream);
        harness.advance(seconds(1));
    }
}

#[test]
fn f_043_listen_stream_cut_every_125_s_is_open_most_of_the_time() {
    let mut harness = Harness::legacy_awaiting_listen();
    let mut open = None;
    let mut open_seconds = 0;
    for _ in 0..7_200 {
        if let Some(get) = harness.find(is_get) {
            harness.begin_stream(get.stream);
            open = Some(get);
        }
        if let Some(get) = open.take_if(|get| get.at + seconds(125) <= harness.now) {
            harness.fail(get.stream, FaultKind::Reset);
        }
        open_seconds += u32::from(open.is_some());
        harness.advance_serving(seconds(1));
    }
    assert!(open_seconds > 6_500, "{open_seconds} of 7,200 seconds");
}

#[test]
fn f_044_retry_delay_of_the_server_is_clamped_to_250_ms_and_300_s() {
    for (retry, least, most) in [
        ("0", 250, 250),
        ("1", 250, 250),
        ("700", 700, 700),
        ("18446744073709551615", 300_000, 300_000),
        ("99999999999999999999999999", 1, 300_000),
        ("-1", 1_000, 1_000),
        ("soon", 1_000, 1_000),
    ] {
        let mut config = config();
        config.policy.call_idle = everlink::Limit::Never;
        let mut harness = Harness::legacy_with(config, "2025-11-25");
        let (_, post) = call_with_stream(&mut harness);
        harness.bytes(post.stream, format!("retry: {retry}\n\n").as_bytes());
        harness.end(post.stream);
        let cut = harness.now;
        harness.advance_serving(seconds(301));
        let waited = harness.next_exchange(Verb::Get).at.since(cut);
        let within = Duration::from_millis(least)..=Duration::from_millis(most);
        assert!(within.contains(&waited), "{retry}: {waited:?}");
    }
}

#[test]
fn f_045_failing_resumes_back_off_and_then_the_call_fails_as_cut() {
    let mut config = config();
    config.policy.call_idle = everlink::Limit::Never;
    config.policy.call_total = everlink::Limit::Never;
    let mut harness = Harness::legacy_with(config, "2025-11-25");
    let (call, post) = call_with_stream(&mut harness);
    harness.end(post.stream);
    let mut requested_at = vec![harness.now];
    while !harness.is_settled(call) {
        while let Some(get) = harness.find(is_get) {
            requested_at.push(get.at);
            harness.status(get.stream, 503);
        }
        harness.advance_serving(seconds(1));
        assert!(harness.now < Instant::ZERO + seconds(7_200));
    }
    let pauses: Vec<Duration> = requested_at
        .windows(2)
        .map(|two| two[1].since(two[0]))
        .collect();
    assert!(pauses.windows(2).all(|two| two[0] <= two[1]), "{pauses:?}");
    assert!(pauses.iter().all(|pause| *pause <= seconds(300)));
    let failure = harness.failure(call);
    assert_eq!(failure.kind, FailureKind::Cut);
    assert_eq!(failure.delivery, Delivery::Unknown);
    assert_eq!(harness.client.state(), State::Ready);
}

#[test]
fn f_045_100000_listen_streams_in_a_row_leave_at_most_one_exchange_open() {
    let mut config = legacy_config();
    let http = config.binding.http_mut().expect("over HTTP");
    http.resumes = u32::MAX;
    http.resume_most = http.resume_least;
    let pause = http.resume_least;
    config.policy.keepalive = None;
    let mut harness = Harness::new(config);
    harness.connect();
    harness.agree_legacy_awaiting_listen("2025-11-25", Some("s-1"));
    for _ in 0..100_000 {
        let get = harness.next_exchange(Verb::Get);
        harness.begin_stream(get.stream);
        harness.end(get.stream);
        harness.advance(pause);
    }
    assert_eq!(harness.client.state(), State::Ready);
    assert!(harness.open_exchanges() <= 1);
}

#[test]
fn f_046_oversized_reply_fails_only_its_call() {
    let large = |post: &Exchange| {
        let text = "x".repeat(10_000);
        result(post, json!({"resultType": "complete", "content": text}))
    };
    for is_stream in [false, true] {
        let mut config = config();
        config.limits.message_bytes = 4_000;
        for mut harness in [
            Harness::modern_with(config.clone()),
            Harness::legacy_with(config, "2025-11-25"),
        ] {
            let gets = harness.count(is_get);
            let big = harness.call("tools/call", json!({"name": "big"}));
            let small = harness.call("tools/call", json!({"name": "small"}));
            let (post, other) = (
                harness.next_post("tools/call"),
                harness.next_post("tools/call"),
            );
            if is_stream {
                harness.begin_stream(post.stream);
                harness.event(post.stream, Some("e-1"), &large(&post));
            } else {
                harness.json(post.stream, 200, &large(&post));
            }
            let failure = harness.failure(big);
            let FailureKind::TooLarge { bytes } = failure.kind else {
                panic!("{failure}");
            };
            assert!(bytes > 10_000);
            harness.end(post.stream);
            harness.serve(&other);
            assert!(harness.reply(small).is_ok());
            harness.advance_serving(seconds(60));
            assert_eq!(harness.count(is_get), gets, "no stream is requested again");
            assert_eq!((harness.epochs_opened, harness.client.failures()), (1, 0));
        }
    }
}

#[test]
fn f_046_unfinished_bodies_share_one_byte_limit() {
    let mut config = config();
    config.limits.unfinished_bytes = 10_000;
    let mut harness = Harness::modern_with(config);
    let calls: Vec<_> = (0..4)
        .map(|_| harness.call("tools/call", json!({"name": "add"})))
        .collect();
    for _ in 0..4 {
        let post = harness.next_post("tools/call");
        harness.head(post.stream, 200, &[("content-type", "application/json")]);
        harness.bytes(post.stream, &[b' '; 4_000]);
    }
    let failed = calls
        .iter()
        .filter(|call| harness.is_settled(**call))
        .count();
    assert_eq!(failed, 2, "two fit");
    assert_eq!(harness.aborted.len(), 2);
    assert_eq!(harness.client.state(), State::Ready);
}

#[test]
fn f_046_unfinished_body_may_be_as_long_as_the_limit() {
    for excess in [0, 1] {
        let mut config = config();
        config.limits.unfinished_bytes = 4_000;
        let mut harness = Harness::modern_with(config);
        let call = harness.call("tools/call", json!({"name": "add"}));
        let post = harness.next_post("tools/call");
        let mut body = complete(&post, json!({"content": []})).to_string();
        body.extend(core::iter::repeat_n(' ', 4_000 + excess - body.len()));
        let fields = [("content-type", "application/json")];
        harness.respond(post.stream, 200, &fields, &body);
        if excess == 0 {
            assert!(harness.reply(call).is_ok());
        } else {
            let is_too_large = matches!(harness.failure(call).kind, FailureKind::TooLarge { .. });
            assert!(is_too_large);
        }
    }
}

#[test]
fn f_047_sse2024_server_without_an_endpoint_event_is_refused_within_10_s() {
    for text in [
        "",
        ": hello\n\n",
        "data: {}\n\n",
        "event: endpont\ndata: /m\n\n",
    ] {
        let mut harness = Harness::new(legacy_config());
        harness.connect();
        let post = harness.next_post("initialize");
        harness.status(post.stream, 405);
        let get = harness.next_exchange(Verb::Get);
        harness.begin_stream(get.stream);
        harness.bytes(get.stream, text.as_bytes());
        let started = harness.now;
        while harness.client.state() == State::Handshaking {
            harness.advance(seconds(1));
            assert!(harness.now.since(started) <= seconds(10));
        }
        assert!(refusal(&harness).contains("where messages go"));
    }
}

#[test]
fn f_047_endpoint_event_sets_the_post_target_within_the_same_origin() {
    for endpoint in ["/messages", "messages", "https://mcp.example/messages"] {
        let mut harness = Harness::new(legacy_config());
        harness.connect();
        let post = harness.next_post("initialize");
        harness.status(post.stream, 405);
        let get = harness.next_exchange(Verb::Get);
        harness.begin_stream(get.stream);
        assert_eq!(harness.unseen_count(), 0, "no message is sent before");
        harness.bytes(
            get.stream,
            format!("event: endpoint\ndata: {endpoint}\n\n").as_bytes(),
        );
        let post = harness.next_post("initialize");
        assert_eq!(post.target, "https://mcp.example/messages");
        assert_eq!(harness.client.stats().noise, 0);
    }
    // A path at another server is refused.
    for endpoint in [
        "https://evil.example/m",
        "//evil.example",
        "http://mcp.example/m",
        "",
    ] {
        let mut harness = Harness::new(legacy_config());
        harness.connect();
        let post = harness.next_post("initialize");
        harness.status(post.stream, 405);
        let get = harness.next_exchange(Verb::Get);
        harness.begin_stream(get.stream);
        harness.bytes(
            get.stream,
            format!("event: endpoint\ndata: {endpoint}\n\n").as_bytes(),
        );
        assert_eq!(harness.count(is_initialize), 1, "{endpoint}");
    }
}

#[test]
fn f_048_refusal_text_names_the_failures_of_both_transports() {
    let mut harness = Harness::new(legacy_config());
    harness.connect();
    let post = harness.next_post("initialize");
    harness.json(post.stream, 400, &error(&post, -32_602));
    let get = harness.next_exchange(Verb::Get);
    harness.status(get.stream, 418);
    let why = refusal(&harness);
    for part in ["400", "-32602", "418", "2024-11-05"] {
        assert!(why.contains(part), "{part}: {why}");
    }
}

#[test]
fn f_048_only_a_refused_initialize_falls_back_to_sse2024() {
    for status in [500, 503, 429] {
        let mut harness = Harness::new(legacy_config());
        harness.connect();
        let post = harness.next_post("initialize");
        harness.status(post.stream, status);
        assert_eq!(harness.count(is_get), 0);
        let cause = harness.client.last_end().map(|ended| ended.cause.clone());
        assert_eq!(cause, Some(Cause::Unavailable { status }));
    }
    let mut harness = Harness::new(legacy_config());
    harness.connect();
    let post = harness.next_post("initialize");
    harness.fail(post.stream, FaultKind::Refused);
    assert_eq!(harness.count(is_get), 0);
    let cause = harness.client.last_end().map(|ended| ended.cause.clone());
    assert_eq!(cause, Some(Cause::Unreachable));
    // A server that replies does not use the old transport, even if it replies with an error.
    let mut harness = Harness::new(legacy_config());
    harness.connect();
    let post = harness.next_post("initialize");
    harness.json(post.stream, 200, &error(&post, -32_603));
    assert_eq!(harness.count(is_get), 0);
    assert!(refusal(&harness).contains("-32603"));
}

#[test]
fn f_049_unanswered_initialize_falls_back_to_sse2024() {
    let mut harness = Harness::new(legacy_config());
    harness.connect();
    harness.next_post("initialize");
    harness.advance(seconds(61));
    harness.agree_sse2024();
    assert_eq!(harness.client.state(), State::Ready);
    assert_eq!((harness.epochs_opened, harness.client.failures()), (1, 0));
}

/// A session of the present transport does not carry over to the older one, even if it was only half opened.
#[test]
fn f_049_initialize_over_sse2024_has_no_session_id() {
    let mut harness = Harness::new(legacy_config());
    harness.connect();
    let post = harness.next_post("initialize");
    let fields = [
        ("content-type", "text/event-stream"),
        ("mcp-session-id", "s-1"),
    ];
    harness.head(post.stream, 200, &fields);
    harness.bytes(post.stream, b"id: 1\ndata:\n\n");
    harness.fail(post.stream, FaultKind::Reset);
    harness.advance(seconds(1));
    let resumed = harness.next_exchange(Verb::Get);
    harness.begin_stream(resumed.stream);
    harness.advance(seconds(60));
    let sse_stream = harness.next_exchange(Verb::Get);
    harness.begin_stream(sse_stream.stream);
    harness.bytes(sse_stream.stream, b"event: endpoint\ndata: /messages\n\n");
    let post = harness.next_post("initialize");
    assert_eq!(post.target, "https://mcp.example/messages");
    assert_eq!(post.field("mcp-session-id"), None);
}

#[test]
fn f_051_loss_of_the_sse2024_stream_ends_the_epoch() {
    let (mut harness, stream) = Harness::sse2024();
    let acts = harness.call("tools/call", json!({"name": "act"}));
    let reads = harness.call("resources/read", json!({"uri": "file:///a"}));
    for method in ["tools/call", "resources/read"] {
        let post = harness.next_post(method);
        assert_eq!(post.target, "https://mcp.example/messages");
        harness.status(post.stream, 202);
    }
    harness.fail(stream, FaultKind::Reset);
    assert_ne!(harness.client.state(), State::Ready);
    let failure = harness.failure(acts);
    assert_eq!(failure.kind, FailureKind::Lost);
    assert_eq!(failure.delivery, Delivery::Unknown);
    harness.advance(seconds(1));
    assert!(!harness.is_settled(reads));
    let initializes = harness.count(is_initialize);
    let stream = harness.agree_sse2024();
    assert_eq!(harness.count(is_initialize), initializes + 1);
    let post = harness.next_post("resources/read");
    harness.status(post.stream, 202);
    harness.event(stream, None, &result(&post, json!({"contents": []})));
    assert!(harness.reply(reads).is_ok());
}

#[test]
fn f_051_silent_sse2024_stream_ends_the_epoch_as_unresponsive() {
    let (mut harness, _) = Harness::sse2024();
    harness.advance_serving(seconds(60));
    harness.call("tools/call", json!({"name": "add"}));
    while harness.client.state() == State::Ready {
        harness.advance_serving(seconds(1));
        assert!(harness.now < Instant::ZERO + seconds(120));
    }
    let is_unresponsive = |event: &Event| {
        let Event::Ended(ended) = event else {
            return false;
        };
        matches!(ended.cause, Cause::Unresponsive { .. })
    };
    assert!(harness.has_event(is_unresponsive));
}

#[test]
fn f_052_unanswered_initialize_times_out_and_its_exchange_is_closed() {
    let mut harness = Harness::new(legacy_config_without_fallback());
    harness.connect();
    for attempt in 1..=4 {
        harness.next_post("initialize");
        assert_eq!(harness.open_exchanges(), 1);
        let started = harness.now;
        harness.advance(seconds(119));
        assert_eq!(harness.client.state(), State::Handshaking);
        harness.advance(seconds(1));
        assert_eq!(harness.open_exchanges(), 0, "no exchange is left open");
        assert_eq!(harness.client.failures(), attempt);
        let ended = harness.client.last_end().expect("an end");
        assert_eq!(ended.cause, Cause::HandshakeTimedOut);
        assert!(harness.now.since(started) <= seconds(120));
        while harness.epochs_opened == attempt {
            harness.advance(seconds(1));
        }
    }
}

#[test]
fn f_053_server_that_answers_initialize_after_110_s_is_used() {
    let mut harness = Harness::new(legacy_config_without_fallback());
    harness.connect();
    let call = harness.call_with(
        "tools/call",
        json!({"name": "add"}),
        everlink::client::CallOptions::new().with_idle(everlink::Limit::Never),
    );
    harness.advance(seconds(110));
    assert!(harness.has_event(|event| matches!(event, Event::Slow { .. })));
    harness.agree_legacy("2025-11-25", Some("s-1"));
    let post = harness.next_post("tools/call");
    harness.serve(&post);
    assert!(harness.reply(call).is_ok());
    assert_eq!((harness.epochs_opened, harness.client.failures()), (1, 0));
}

#[test]
fn f_053_resumed_initialize_keeps_its_session_id() {
    let mut harness = Harness::new(legacy_config());
    harness.connect();
    let post = harness.next_post("initialize");
    let fields = [
        ("content-type", "text/event-stream"),
        ("mcp-session-id", "s-1"),
    ];
    harness.head(post.stream, 200, &fields);
    harness.bytes(post.stream, b"id: 1\ndata:\n\n");
    harness.fail(post.stream, FaultKind::Reset);
    harness.advance(seconds(1));
    let resumed = harness.next_exchange(Verb::Get);
    assert_eq!(resumed.field("mcp-session-id"), Some("s-1"));
    harness.status(resumed.stream, 502);
    harness.advance(seconds(5));
    let resumed = harness.next_exchange(Verb::Get);
    harness.begin_stream(resumed.stream);
    let reply = result(&post, client_http::initialize_result("2025-11-25"));
    harness.event(resumed.stream, None, &reply);
    let post = harness.next_post("notifications/initialized");
    assert_eq!(post.field("mcp-session-id"), Some("s-1"));
}

#[test]
fn f_047_endpoint_event_on_another_stream_is_ignored() {
    let mut harness = Harness::new(legacy_config());
    harness.connect();
    let post = harness.next_post("initialize");
    harness.begin_stream(post.stream);
    harness.advance(seconds(61));
    harness.next_exchange(Verb::Get);
    harness.bytes(post.stream, b"event: endpoint\ndata: /messages\n\n");
    assert_eq!(harness.unseen_count(), 0);
    let reply = result(&post, client_http::initialize_result("2025-11-25"));
    harness.event(post.stream, None, &reply);
    assert_eq!(
        harness.next_post("notifications/initialized").target,
        client_http::URL
    );
}

#[test]
fn f_053_slow_server_without_sse2024_is_still_accepted() {
    // The link asks for the old transport meanwhile, and the server has none.
    let mut harness = Harness::new(legacy_config());
    harness.connect();
    harness.advance(seconds(90));
    if let Some(get) = harness.find(is_get) {
        harness.status(get.stream, 405);
    }
    harness.advance(seconds(20));
    harness.agree_legacy("2025-11-25", Some("s-1"));
    // The server does not answer.
    let mut harness = Harness::new(legacy_config());
    harness.connect();
    harness.advance(seconds(110));
    harness.agree_legacy("2025-11-25", Some("s-1"));
    assert_eq!((harness.epochs_opened, harness.client.failures()), (1, 0));
    // The server answers after all, while the link waits for the old transport.
    let mut harness = Harness::new(legacy_config());
    harness.connect();
    harness.advance(seconds(65));
    let sse_stream = harness.next_exchange(Verb::Get);
    harness.agree_legacy_awaiting_listen("2025-11-25", Some("s-1"));
    assert!(
        !harness.is_open(sse_stream.stream),
        "the request for the old transport is aborted"
    );
    harness.refuse_listen();
    harness.call("tools/call", json!({"name": "add"}));
    assert_eq!(harness.next_post("tools/call").target, client_http::URL);
}

#[test]
fn f_055_known_legacy_era_is_not_probed_again_after_a_reconnect() {
    let mut harness = Harness::new(config());
    harness.connect();
    let probe = harness.next_post("server/discover");
    harness.status(probe.stream, 405);
    harness.agree_legacy("2025-11-25", Some("s-1"));
    assert_eq!(harness.client.era(), Some(Era::Legacy));
    for _ in 0..3 {
        harness
            .client
            .reconnect(harness.now, harness.client.epoch(), "asked to");
        harness.advance(seconds(5));
        harness.agree_legacy("2025-11-25", Some("s-2"));
    }
    assert_eq!(
        harness.count(|exchange| exchange.method() == "server/discover"),
        1
    );
}

#[test]
fn f_056_late_reply_to_an_ignored_probe_is_counted_and_dropped() {
    let mut harness = Harness::new(config());
    harness.connect();
    let probe = harness.next_post("server/discover");
    harness.advance(seconds(3));
    harness.agree_legacy("2025-11-25", Some("s-1"));
    let late = harness.client.stats().late_replies;
    harness.json(
        probe.stream,
        200,
        &result(&probe, client_http::discover_result()),
    );
    assert_eq!(harness.client.stats().late_replies, late + 1);
    assert_eq!(harness.client.state(), State::Ready);
    let era = harness
        .client
        .session()
        .map(|session| session.version.era());
    assert_eq!(era, Some(Era::Legacy));
    harness.call("tools/call", json!({"name": "add"}));
    assert_eq!(
        harness.next_post("tools/call").field("mcp-session-id"),
        Some("s-1")
    );
}

#[test]
fn f_056_modern_error_to_initialize_triggers_one_more_probe() {
    let mut harness = Harness::new(config());
    harness.connect();
    harness.next_post("server/discover");
    harness.advance(seconds(3));
    let post = harness.next_post("initialize");
    let data = json!({"supported": ["2026-07-28"], "requested": "2025-11-25"});
    let refused = json!({"jsonrpc": "2.0", "id": post.body["id"],
        "error": {"code": -32_022, "message": "no", "data": data}});
    harness.json(post.stream, 400, &refused);
    harness.agree_modern();
    assert_eq!((harness.epochs_opened, harness.count(is_get)), (1, 0));
}

#[test]
fn f_057_any_answer_to_the_probe_that_is_not_modern_leads_to_initialize() {
    let body = |code: i64| -> Option<i64> { Some(code) };
    for (status, code) in [
        (400, None),
        (404, None),
        (405, None),
        (406, None),
        (415, None),
        (422, None),
        (400, body(-32_000)),
        (400, body(-32_600)),
        (400, body(-32_602)),
        (404, body(-32_601)),
        (200, body(-32_601)),
        (200, body(-32_602)),
        (200, body(-32_603)),
        (200, body(0)),
    ] {
        let mut harness = Harness::new(config());
        harness.connect();
        let probe = harness.next_post("server/discover");
        match code {
            Some(code) => harness.json(probe.stream, status, &error(&probe, code)),
            None => harness.status(probe.stream, status),
        }
        harness.agree_legacy("2025-11-25", Some("s-1"));
        assert_eq!(harness.client.failures(), 0, "{status} {code:?}");
    }
    // An unreadable response counts as a refusal.
    for (kind, body) in [
        ("text/html", "<html>"),
        ("application/json", "{"),
        ("application/json", ""),
    ] {
        let mut harness = Harness::new(config());
        harness.connect();
        let probe = harness.next_post("server/discover");
        harness.respond(probe.stream, 200, &[("content-type", kind)], body);
        harness.agree_legacy("2025-11-25", Some("s-1"));
    }
    // Errors that only a modern server sends.
    for code in [-32_020, -32_021, -32_022] {
        let mut harness = Harness::new(config());
        harness.connect();
        let probe = harness.next_post("server/discover");
        harness.json(probe.stream, 400, &error(&probe, code));
        assert_eq!(harness.count(is_initialize), 0, "{code}");
    }
}

/// Only an error that no legacy server sends proves a modern one. Otherwise the link tries the old transport.
#[test]
fn f_057_refused_initialize_leads_to_another_probe_or_to_sse2024() {
    for (status, code, is_modern) in [
        (404, -32_601, true),
        (400, -32_601, false),
        (404, -32_000, false),
        (400, -32_022, true),
    ] {
        let mut harness = Harness::new(config());
        harness.connect();
        let probe = harness.next_post("server/discover");
        harness.status(probe.stream, 400);
        let post = harness.next_post("initialize");
        harness.json(post.stream, status, &error(&post, code));
        let probes = harness.count(|exchange| exchange.method() == "server/discover");
        let actual = (probes, harness.count(is_get));
        let expected = if is_modern { (2, 0) } else { (1, 1) };
        assert_eq!(actual, expected, "{status} with {code}");
    }
}

#[test]
fn f_058_probe_takes_at_most_half_of_a_short_handshake_timeout() {
    let mut config = config();
    config.policy.handshake_timeout = seconds(4);
    let mut harness = Harness::new(config);
    harness.connect();
    harness.next_post("server/discover");
    harness.advance(seconds(2));
    let post = harness.next_post("initialize");
    assert_eq!(post.at, Instant::ZERO + seconds(2));
    harness.advance(Duration::from_millis(900));
    let body: Value = result(&post, client_http::initialize_result("2025-11-25"));
    harness.json(post.stream, 200, &body);
    assert_eq!(harness.client.state(), State::Ready);
}

#[test]
fn f_058_probe_repeated_with_credentials_has_its_own_timeout() {
    let mut harness = Harness::new(config());
    harness.connect();
    let probe = harness.next_post("server/discover");
    harness.status(probe.stream, 401);
    harness.advance(seconds(60));
    harness.client.authorized(harness.now);
    harness.pump();
    harness.next_post("server/discover");
    harness.advance(seconds(3));
    harness.agree_legacy("2025-11-25", Some("s-1"));
}
