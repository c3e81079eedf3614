//! The exact boundaries of limits on a byte stream, and what the counters count.

use everlink::protocol::{LogLevel, ServerCapabilities, Version};
use everlink::server::{Event, Misuse, Offer, Progress, Server, State};
use everlink::{Change, ErrorObject, Input, Instant, StreamId};
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
