//! The exact boundaries of limits on a byte stream, and what the counters count.

use everlink::protocol::{LogLevel, ServerCapabilities, Version};
use everlink::server::{Config, Event, Limits, Misuse, Offer, Progress, Server, State};
use everlink::{Change, ErrorObject, Fault, Input, Instant, StreamId};
use serde_json::{Value, json};

use crate::server_pipe::{
    Harness, config, default_capabilities, full_offer, notification, payload, request, seconds,
    with_meta,
};

/// The longest message in these tests.
const MOST: usize = 1_000;

/// An object of so many bytes.
fn object(bytes: usize) -> Value {
    json!({"a": "x".repeat(bytes - r#"{"a":""}"#.len())})
}

#[test]
fn message_of_the_application_may_have_exactly_the_most_bytes() {
    for (bytes, expected) in [
        (MOST, Ok(())),
        (MOST + 1, Err(Misuse::TooLarge { bytes: MOST + 1 })),
    ] {
        let mut config = config();
        config.limits.message_bytes = MOST;
        let mut harness = Harness::legacy(config, "2025-11-25");
        let (_, request) = harness.call_tool("slow");
        let (_, other) = harness.call_tool("slow");
        let logger = "x".repeat(500);
        let data = payload(&json!("x".repeat(bytes - 502)));
        let (method, params) = ("notifications/x", object(bytes - 15));
        let uri = "x".repeat(bytes).into();
        let progress = Progress::new(1.0).with_message("x".repeat(bytes));
        let error = ErrorObject {
            data: Some(payload(&object(bytes - 4))),
            ..ErrorObject::new(1, "what")
        };
        let results = harness.with_server(|server, now| {
            [
                server.log(now, None, LogLevel::Error, Some(&logger), data),
                server.notify(now, method, Some(payload(&params))),
                server.publish(now, Change::Resource { uri }),
                server.progress(now, request, progress),
                server.respond(now, request, payload(&object(bytes))),
                server.fail(now, other, error),
            ]
        });
        for (at, result) in results.into_iter().enumerate() {
            assert_eq!(result, expected, "{at}");
        }
        harness.finish();
    }
}

#[test]
fn ask_may_have_exactly_the_most_bytes() {
    let mut config = config();
    config.limits.message_bytes = MOST;
    let mut harness = Harness::legacy(config, "2025-11-25");
    let (_, request) = harness.call_tool("asks");
    let too_large = Misuse::TooLarge { bytes: MOST + 1 };
    for (bytes, expected) in [(MOST, None), (MOST + 1, Some(too_large))] {
        let refused = harness.try_ask(request, "roots/list", object(bytes)).err();
        assert_eq!(refused, expected);
        let refused = harness.try_ask_unbidden("roots/list", object(bytes)).err();
        assert_eq!(refused, expected);
    }
    harness.finish();
}

#[test]
fn input_is_wanted_until_unpolled_events_reach_exactly_the_limit() {
    let message = notification("notifications/x", json!({"a": 1}));
    let held = size_of::<Event>() + "notifications/x".len() + r#"{"a":1}"#.len();
    for (limit, is_wanted) in [(held, false), (held + 1, true)] {
        let mut config = config();
        config.limits.undelivered_bytes = limit;
        let mut server = Server::new(config);
        let line = format!("{message}\n");
        server.handle(Instant::ZERO, Input::bytes(line.as_bytes()));
        assert_eq!(server.wants_input(StreamId::DUPLEX), is_wanted);
    }
}

#[test]
fn report_that_nothing_was_sent_does_not_extend_the_flush_time() {
    let mut config = config();
    config.limits.write_window = 1;
    config.drain = seconds(20);
    config.flush = seconds(3);
    let mut harness = Harness::modern(config);
    harness.fill_pipe();
    let watch = json!({"notifications": {"toolsListChanged": true}});
    harness.modern_call("subscriptions/listen", watch);
    harness.shutdown();
    for _ in 0..2 {
        harness.advance(seconds(1));
        harness.with_server(|server, now| server.handle(now, Input::sent(0)));
    }
    assert_eq!(harness.server.state(), State::Draining);
    harness.advance(seconds(1));
    assert_eq!(harness.server.state(), State::Closed);
    harness.finish();
}

#[test]
fn each_message_that_is_understood_counts_and_each_other_one_is_noise() {
    let mut harness = Harness::legacy(config(), "2025-11-25");
    let counts = |harness: &Harness| {
        let stats = harness.server.stats();
        (stats.messages_in, stats.noise, stats.refused)
    };
    let (before, noise, refused) = counts(&harness);
    assert_eq!((before, noise, refused), (2, 0, 0), "the handshake");
    let (_, request) = harness.call_tool("asks");
    assert_eq!(counts(&harness), (3, 0, 0));
    harness.ask(request, "roots/list", Value::Null);
    let id = harness.messages_with("roots/list")[0]["id"].clone();
    harness.answer(&id, json!({"roots": []}));
    assert_eq!(counts(&harness), (4, 0, 0));
    harness.notify("notifications/x", json!({}));
    assert_eq!(counts(&harness), (5, 0, 0));
    // It is understood, and answers nothing.
    harness.answer(&json!(99), json!({}));
    assert_eq!(counts(&harness), (6, 1, 0));
    harness.send(json!({"jsonrpc": "2.0", "error": {"code": 1, "message": "what"}}));
    assert_eq!(counts(&harness).1, 2);
    for line in ["{", "[]", r#"{"jsonrpc":"2.0"}"#] {
        let (_, noise, refused) = counts(&harness);
        harness.send_line(line);
        let (_, more_noise, more_refused) = counts(&harness);
        assert_eq!(
            (more_noise, more_refused),
            (noise + 1, refused + 1),
            "{line}"
        );
    }
    harness.finish();
}

/// Sends one line, and returns the messages that the server writes.
fn messages_after(server: &mut Server, line: &str) -> Vec<Value> {
    let mut written = Vec::new();
    server.handle(Instant::ZERO, Input::bytes(line.as_bytes()));
    server.handle(Instant::ZERO, Input::bytes(&b"\n"[..]));
    while server.poll_output(&mut written).is_some() {}
    let text = String::from_utf8(written).expect("messages are text");
    let messages = text.lines().map(serde_json::from_str);
    messages.collect::<Result<_, _>>().expect("each is JSON")
}

/// The client would take the error for the reply to the other request.
#[test]
fn error_for_an_oversized_line_does_not_name_a_request_that_is_open() {
    let mut config = config();
    config.limits.message_bytes = 4_096;
    let mut server = Server::new(config);
    let params = with_meta(json!({"name": "slow"}), default_capabilities());
    let open = request(7, "tools/call", params).to_string();
    assert!(messages_after(&mut server, &open).is_empty());
    let long = request(7, "tools/call", object(6_000)).to_string();
    let refused = messages_after(&mut server, &long);
    assert_eq!(refused.len(), 1);
    assert!(refused[0]["error"].is_object() && refused[0].get("id").is_none());
    let free = request(8, "tools/call", object(6_000)).to_string();
    assert_eq!(messages_after(&mut server, &free)[0]["id"], 8);
}

#[test]
fn request_is_away_from_the_written_question_to_the_next_round() {
    let mut harness = Harness::modern(config());
    let (id, request) = harness.call_tool("asks");
    assert!(!harness.server.is_away(request));
    harness.ask(request, "roots/list", Value::Null);
    assert!(harness.server.is_away(request));
    let result = harness.result(&id);
    let key = result["inputRequests"].as_object().expect("questions");
    let key = key.keys().next().expect("a question");
    let params = json!({
        "name": "asks", "requestState": result["requestState"], "inputResponses": {key: {"roots": []}},
    });
    harness.modern_call("tools/call", params);
    assert!(!harness.server.is_away(request));
    harness.respond(request, json!({"content": []}));
    harness.finish();
}

#[test]
fn resource_is_watched_if_a_client_subscribed_to_it_or_to_what_it_lies_below() {
    let mut harness = Harness::legacy(config(), "2025-11-25");
    harness.call("resources/subscribe", json!({"uri": "file:///a"}));
    for (uri, is_watched) in [
        ("file:///a", true),
        ("file:///a/b", true),
        ("file:///b", false),
    ] {
        assert_eq!(harness.server.is_watched(uri), is_watched, "{uri}");
    }
    harness.finish();
}

/// Its client was not told in the handshake that there are such notifications.
#[test]
fn client_whose_handshake_offered_no_subscriptions_is_not_told_of_changes() {
    let without = ServerCapabilities::default().with_resources(true, false);
    let mut config = config();
    config.offer = Some(Offer::new("site", "1").with_capabilities(without));
    let mut harness = Harness::new(config).with_version(Version::LATEST_LEGACY);
    harness.with_server(|server, now| server.offer(now, full_offer()));
    harness.call("resources/subscribe", json!({"uri": "file:///a"}));
    harness.publish(Change::Resource {
        uri: "file:///a".into(),
    });
    let updated = harness.messages_with("notifications/resources/updated");
    assert!(updated.is_empty(), "{updated:?}");
    harness.finish();
}

#[test]
fn input_of_a_server_over_http_is_stale_on_a_byte_stream() {
    let mut server = Server::new(config());
    let line = format!("{}\n", request(1, "ping", json!({})));
    let stream = StreamId::new(5);
    let bytes = line.as_bytes().into();
    server.handle(Instant::ZERO, Input::Bytes { stream, bytes });
    let note = "a note".into();
    server.handle(Instant::ZERO, Input::Note { note });
    let stats = server.stats();
    assert_eq!((stats.stale_inputs, stats.bytes_in), (2, 0));
    assert!(messages_after(&mut server, "").is_empty());
}

/// The documentation gives these reasons for the defaults.
#[test]
fn default_limits_hold_as_many_messages_and_clients_as_documented() {
    let limits = Limits::default();
    assert_eq!(limits.body_bytes, 4 * limits.message_bytes);
    assert_eq!(limits.all_queued_bytes, 8 * limits.queued_bytes);
    assert_eq!(limits.requests, 2 * limits.requests_each);
    assert_eq!(limits.undelivered_bytes, 4 * 1_024 * 1_024);
    assert_eq!(limits.write_window, 4 * 64 * 1_024, "four full pipes");
}

#[test]
fn line_after_the_end_of_the_input_is_not_read() {
    let mut server = Server::new(config());
    let params = with_meta(json!({"name": "slow"}), default_capabilities());
    let open = request(7, "tools/call", params).to_string();
    assert!(messages_after(&mut server, &open).is_empty());
    let faults = (&[] as &[Fault]).into();
    let stream = StreamId::DUPLEX;
    server.handle(Instant::ZERO, Input::End { stream, faults });
    assert_eq!(server.state(), State::Draining);
    let ping = request(8, "ping", json!({})).to_string();
    assert!(messages_after(&mut server, &ping).is_empty());
    assert_eq!(server.stats().messages_in, 1);
}

/// A server that does not know its offer yet.
fn without_offer() -> Config {
    let mut config = config();
    config.offer = None;
    config
}

/// A call with a name of so many bytes, and the bytes of its params.
fn call_of(id: u64, bytes: usize) -> (String, usize) {
    let params = with_meta(json!({"name": "x".repeat(bytes)}), default_capabilities());
    let len = params.to_string().len();
    (request(id, "tools/call", params).to_string(), len)
}

#[test]
fn long_requests_wait_for_the_offer_up_to_exactly_the_limit_of_a_queue() {
    let (first, len) = call_of(1, 70_000);
    let (second, third) = (call_of(2, 70_000).0, call_of(4, 70_000).0);
    let both = 2 * (len + "tools/call".len());
    for (limit, is_refused) in [(both, false), (both - 1, true), (10, true)] {
        let mut config = without_offer();
        config.limits.queued_bytes = limit;
        let mut server = Server::new(config);
        assert!(messages_after(&mut server, &first).is_empty());
        let replies = messages_after(&mut server, &second);
        assert_eq!(replies.len(), usize::from(is_refused));
        if is_refused {
            assert_eq!(replies[0]["error"]["code"], -32603);
            // A request that is cancelled makes room.
            let cancel = notification("notifications/cancelled", json!({"requestId": 1}));
            assert!(messages_after(&mut server, &cancel.to_string()).is_empty());
            assert!(messages_after(&mut server, &third).is_empty());
        }
        assert!(server.is_deferring());
    }
}

#[test]
fn short_request_waits_for_the_offer_beside_any_other() {
    let short = 64 * 1_024;
    let around = call_of(2, 0).1;
    let mut config = without_offer();
    config.limits.queued_bytes = 10;
    let mut server = Server::new(config);
    for (id, bytes, replies) in [(1, 70_000, 0), (2, short, 0), (3, short + 1, 1)] {
        let (call, len) = call_of(id, bytes - around);
        assert_eq!(len, bytes);
        assert_eq!(messages_after(&mut server, &call).len(), replies, "{bytes}");
    }
}

#[test]
fn watch_that_waited_for_the_offer_until_the_input_ended_ends_at_once() {
    let mut server = Server::new(without_offer());
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    let params = with_meta(wanted, default_capabilities());
    let listen = request(1, "subscriptions/listen", params).to_string();
    assert!(messages_after(&mut server, &listen).is_empty());
    let faults = (&[] as &[Fault]).into();
    let stream = StreamId::DUPLEX;
    server.handle(Instant::ZERO, Input::End { stream, faults });
    server.offer(Instant::ZERO, full_offer());
    let messages = messages_after(&mut server, "");
    let last = messages.last().expect("messages");
    assert_eq!(
        (&last["id"], last.get("result").is_some()),
        (&json!(1), true)
    );
}

#[test]
fn handshake_with_the_id_of_a_modern_request_or_watch_is_refused() {
    let mut server = Server::new(config());
    for (id, method, params) in [
        (1, "tools/call", json!({"name": "slow"})),
        (2, "subscriptions/listen", json!({"notifications": {}})),
    ] {
        let params = with_meta(params, default_capabilities());
        messages_after(&mut server, &request(id, method, params).to_string());
        let handshake = json!({
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "scripted", "version": "1"},
        });
        let handshake = request(id, "initialize", handshake).to_string();
        let replies = messages_after(&mut server, &handshake);
        assert_eq!(replies.len(), 1);
        assert_eq!(replies[0]["error"]["code"], -32600, "{method}");
    }
}

#[test]
fn application_is_told_from_which_level_modern_requests_want_log_messages() {
    let mut harness = Harness::modern(config());
    assert_eq!(harness.server.watched().logs, None);
    for (level, least) in [
        ("error", LogLevel::Error),
        ("info", LogLevel::Info),
        ("alert", LogLevel::Info),
    ] {
        let meta = json!({"io.modelcontextprotocol/logLevel": level});
        harness.modern_call("tools/call", json!({"name": "slow", "_meta": meta}));
        assert_eq!(harness.server.watched().logs, Some(least));
    }
    harness.finish();
}
