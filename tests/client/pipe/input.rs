//! Bad input and limits: a bad message from a server affects at most itself, and nothing grows without bound. Rows
//! F-106 and F-109 of the failures, and every way in which a line can be wrong.

use everlink::client::{CallOptions, Cause, Client, Event, FailureKind, Misuse, Outcome, State};
use everlink::{CallId, Input, Instant, Limits, List, Output, StreamId, Watch};
use serde_json::{Value, json};

use crate::client_pipe::{
    Act, Chunking, Harness, Peer, ask, config, every_chunking, every_era, notify, payload, reply,
    seconds,
};
use crate::eras::{BOTH_ERAS, config_with_asks, legacy, ready};

/// Exactly this line.
fn line(text: &str) -> Act {
    Act::Raw(format!("{text}\n").into_bytes())
}

fn noises(harness: &Harness) -> Vec<&str> {
    harness.pick_events(|event| match event {
        Event::Noise(noise) => Some(&*noise.what),
        _ => None,
    })
}

/// Checks that the link still works.
fn check_link_works(harness: &mut Harness) {
    assert_eq!((harness.state(), harness.epoch_number()), (State::Ready, 1));
    let call = harness.call("completion/complete", json!({}));
    let request = harness.last_message("completion/complete");
    harness.perform(reply(&request, json!({"completion": {"values": []}})));
    assert!(matches!(harness.outcome(call), Outcome::Reply(_)));
}

fn invalid_reason(harness: &Harness, call: CallId) -> &str {
    match &harness.failure(call).kind {
        FailureKind::Invalid { why } => why,
        other => panic!("{call} is not invalid: {other}"),
    }
}

#[test]
fn f_106_unknown_notification_is_passed_to_the_application() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), server);
        harness.perform(notify("notifications/of/the/future", json!({"a": [1]})));
        harness.perform(Act::Message(
            json!({"jsonrpc": "2.0", "method": "vendor/thing", "extra": true}),
        ));
        let received = harness.pick_events(|event| match event {
            Event::Notified { method, params, .. } => {
                Some((&**method, params.as_ref().map(everlink::Payload::as_str)))
            }
            _ => None,
        });
        assert_eq!(
            received,
            [
                ("notifications/of/the/future", Some(r#"{"a":[1]}"#)),
                ("vendor/thing", None),
            ]
        );
        assert!(noises(&harness).is_empty());
        check_link_works(&mut harness);
        harness.finish();
    }
}

#[test]
fn f_106_known_notification_with_malformed_params_keeps_the_link_ready() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), server);
        for method in [
            "notifications/cancelled",
            "notifications/message",
            "notifications/progress",
            "notifications/resources/updated",
            "notifications/subscriptions/acknowledged",
            "notifications/initialized",
            "notifications/roots/list_changed",
        ] {
            for params in [
                json!({}),
                json!({"level": 7, "data": null, "uri": [], "requestId": {}, "progressToken": []}),
                json!({"_meta": 7}),
                json!({"_meta": {"io.modelcontextprotocol/subscriptionId": {}}}),
            ] {
                harness.perform(notify(method, params));
            }
            harness.perform(Act::Message(json!({"jsonrpc": "2.0", "method": method})));
        }
        check_link_works(&mut harness);
        harness.finish();
    }
}

/// Lines that are no message and have no id, each with a part of the report about it.
const INVALID_LINES: &[(&str, &str)] = &[
    ("Server listening on stdio", "not JSON"),
    ("{\"jsonrpc\":\"2.0\",", "not JSON"),
    ("{} {}", "not JSON"),
    ("null", "not an object"),
    ("7", "not an object"),
    ("\"text\"", "not an object"),
    ("[]", "batch"),
    ("{}", "jsonrpc"),
    (r#"{"jsonrpc":"2.0"}"#, "neither"),
    (r#"{"jsonrpc":"2.0","method":7}"#, "method"),
    (
        r#"{"jsonrpc":"2.0","method":"notifications/a","params":[]}"#,
        "params",
    ),
    (
        r#"{"jsonrpc":"2.0","method":"notifications/a","params":7}"#,
        "params",
    ),
    (r#"{"jsonrpc":"2.0","result":{}}"#, "id"),
    (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, "null"),
    (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, "id"),
    (r#"{"jsonrpc":"2.0","id":1.5,"result":{}}"#, "id"),
    (r#"{"jsonrpc":"1.0","method":"notifications/a"}"#, "jsonrpc"),
    (r#"{"method":"notifications/a"}"#, "jsonrpc"),
    (r#"{"jsonrpc":"2.0","method":"a","method":"b"}"#, "twice"),
    (r#"{"jsonrpc":"2.0","method":"\ud800"}"#, "method"),
];

#[test]
fn invalid_line_is_reported_as_noise_and_skipped() {
    every_era(|chunking, peer| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .served_by(move |_| peer());
        harness.until_ready();
        for (text, _) in INVALID_LINES {
            harness.perform(line(text));
        }
        assert_eq!(harness.link().stats().noise, INVALID_LINES.len() as u64);
        check_link_works(&mut harness);
        harness
    });
    for (text, expected) in INVALID_LINES {
        let mut harness = ready(config(), legacy);
        harness.perform(line(text));
        let [what] = noises(&harness)[..] else {
            panic!("{text} is noise, once: {:?}", noises(&harness));
        };
        assert!(what.contains(expected), "{text}: {what}");
        harness.finish();
    }
}

/// Unusable replies, with `$id` in place of the id.
const MALFORMED_REPLIES: &[&str] = &[
    r#"{"jsonrpc":"2.0","id":$id,"result":7}"#,
    r#"{"jsonrpc":"2.0","id":$id,"result":null}"#,
    r#"{"jsonrpc":"2.0","id":$id,"result":[]}"#,
    r#"{"jsonrpc":"2.0","id":$id,"error":7}"#,
    r#"{"jsonrpc":"2.0","id":$id,"error":{}}"#,
    r#"{"jsonrpc":"2.0","id":$id,"error":{"code":"x","message":"y"}}"#,
    r#"{"jsonrpc":"2.0","id":$id,"result":{},"error":{"code":1,"message":"y"}}"#,
    r#"{"jsonrpc":"2.0","id":$id,"result":{},"result":{}}"#,
    r#"{"jsonrpc":"1.0","id":$id,"result":{}}"#,
    r#"{"id":$id,"result":{}}"#,
    r#"{"jsonrpc":"2.0","id":$id}"#,
    r#"{"jsonrpc":"2.0","id":$id,"result":{"rate":NaN}}"#,
    "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"text\":\"\u{1}\"}}",
];

#[test]
fn malformed_reply_fails_only_its_call_as_invalid() {
    for server in BOTH_ERAS {
        for malformed in MALFORMED_REPLIES {
            let mut harness = ready(config(), move || server().ignores("tools/call"));
            let (call, other) = (harness.call_tool("broken"), harness.call_tool("other"));
            let id = harness.messages_with("tools/call")[0]["id"].to_string();
            harness.perform(line(&malformed.replace("$id", &id)));
            assert_ne!(invalid_reason(&harness, call), "");
            assert!(!harness.is_done(other));
            check_link_works(&mut harness);
            harness.finish();
        }
    }
}

#[test]
fn malformed_page_fails_the_list_as_invalid_and_keeps_the_link_ready() {
    for server in BOTH_ERAS {
        for malformed in MALFORMED_REPLIES {
            let mut harness = ready(config(), move || server().ignores("tools/list"));
            let list = harness.list(List::Tools);
            let id = harness.last_message("tools/list")["id"].to_string();
            harness.perform(line(&malformed.replace("$id", &id)));
            assert_ne!(invalid_reason(&harness, list), "");
            check_link_works(&mut harness);
            harness.finish();
        }
    }
}

#[test]
fn malformed_request_of_a_server_is_answered_in_the_legacy_era_only() {
    for server in BOTH_ERAS {
        let mut harness = ready(config_with_asks(), server);
        harness.perform(line(
            r#"{"jsonrpc":"2.0","id":"q","method":"roots/list","params":[]}"#,
        ));
        let answers = harness.ask_replies();
        let legacy = harness.messages_with("subscriptions/listen").is_empty();
        if legacy {
            assert_eq!(answers[0]["id"], "q");
            assert_eq!(answers[0]["error"]["code"], -32600);
        }
        assert_eq!(answers.len(), usize::from(legacy));
        check_link_works(&mut harness);
        harness.finish();
    }
}

#[test]
fn error_reply_without_a_message_gets_a_default_message() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || {
            server().on("tools/call", |request| {
                let id = &request["id"];
                vec![line(&format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-5}}}}"#
                ))]
            })
        });
        let call = harness.call_tool("terse");
        let Outcome::Error(error) = harness.outcome(call) else {
            panic!("an error outcome");
        };
        assert_eq!(error.code, -5);
        assert_ne!(error.message, "");
        harness.finish();
    }
}

#[test]
fn binary_line_counts_as_one_noise_line() {
    every_chunking(|chunking| {
        let mut harness = Harness::new(config()).chunked(chunking);
        harness.until_ready();
        harness.perform(Act::Raw(b"\xff\xfe\x00 binary\n".to_vec()));
        harness.perform(Act::Raw(
            b"{\"jsonrpc\":\"2.0\",\"method\":\"a\xc3\"}\n".to_vec(),
        ));
        harness.perform(Act::Raw(b"\0\0\0\0\n".to_vec()));
        assert_eq!(harness.link().stats().noise, 3);
        check_link_works(&mut harness);
        harness
    });
}

#[test]
fn byte_order_mark_crlf_and_blank_lines_are_not_noise() {
    every_chunking(|chunking| {
        let mut harness = Harness::new(config()).chunked(chunking);
        harness.until_ready();
        let ping = r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#;
        harness.perform(Act::Raw(format!("\u{feff}{ping}\r\n").into_bytes()));
        harness.perform(Act::Raw(b"\r\n\n  \t\n".to_vec()));
        harness.perform(Act::Raw(format!("  {ping}  \n").into_bytes()));
        assert_eq!(harness.ask_replies().len(), 2);
        assert_eq!(harness.link().stats().noise, 0);
        harness
    });
}

#[test]
fn deeply_nested_json_and_huge_numbers_keep_the_link_ready() {
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let unfinished = "[".repeat(100_000);
    let digits = "9".repeat(10_000);
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || server().ignores("tools/call"));
        let call = harness.call_tool("deep");
        let id = harness.last_message("tools/call")["id"].to_string();
        harness.perform(line(&unfinished));
        harness.perform(line(&format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/a","params":{{"a":{deep}}}}}"#
        )));
        harness.perform(line(&format!(
            r#"{{"jsonrpc":"2.0","id":{digits},"result":{{}}}}"#
        )));
        harness.perform(line(&format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{id},"progress":{digits}}}}}"#
        )));
        assert!(!harness.is_done(call));
        harness.perform(line(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"a":{deep}}}}}"#
        )));
        assert!(matches!(harness.outcome(call), Outcome::Reply(_)));
        check_link_works(&mut harness);
        harness.finish();
    }
}

#[test]
fn batch_is_accepted_only_in_2025_03_26() {
    for (version, allowed) in [
        ("2024-11-05", false),
        ("2025-03-26", true),
        ("2025-06-18", false),
        ("2025-11-25", false),
    ] {
        let mut harness = ready(config(), move || {
            Peer::legacy(version).on("tools/call", |request| {
                vec![Act::Message(json!([
                    {"jsonrpc": "2.0", "method": "notifications/a"},
                    7,
                    {"jsonrpc": "2.0", "id": request["id"], "result": {"content": []}},
                ]))]
            })
        });
        let call = harness.call_tool("batched");
        assert_eq!(harness.is_done(call), allowed, "{version}");
        assert_eq!(noises(&harness).len(), 1);
        harness.finish();
    }
}

/// A client that accepts no longer line than this.
fn config_with_line_limit(bytes: usize) -> everlink::Config {
    let mut config = config_with_asks();
    config.limits.message_bytes = bytes;
    config
}

#[test]
fn oversized_reply_fails_only_its_call_wherever_the_id_is() {
    let large = "x".repeat(10_000);
    for server in BOTH_ERAS {
        for shape in [
            r#"{"jsonrpc":"2.0","id":$id,"result":{"a":"$large"}}"#,
            r#"{"result":{"id":7,"a":"$large"},"jsonrpc":"2.0","id":$id}"#,
            r#"{"jsonrpc":"2.0","error":{"code":1,"message":"$large"},"id":$id}"#,
        ] {
            every_chunking(|chunking| {
                let mut harness = Harness::new(config_with_line_limit(2_000))
                    .chunked(chunking)
                    .served_by(move |_| server().ignores("tools/call"));
                harness.until_ready();
                let (call, other) = (harness.call_tool("large"), harness.call_tool("other"));
                let id = harness.messages_with("tools/call")[0]["id"].to_string();
                let text = shape.replace("$id", &id).replace("$large", &large);
                harness.perform(line(&text));
                let bytes = text.len() as u64;
                assert_eq!(harness.failure(call).kind, FailureKind::TooLarge { bytes });
                assert!(!harness.is_done(other));
                check_link_works(&mut harness);
                harness
            });
        }
    }
}

#[test]
fn oversized_page_fails_the_list_and_keeps_the_link_ready() {
    for server in BOTH_ERAS {
        let mut harness = ready(config_with_line_limit(2_000), move || {
            server().replies("tools/list", |_| json!({"tools": ["x".repeat(10_000)]}))
        });
        let list = harness.list(List::Tools);
        assert!(matches!(
            harness.failure(list).kind,
            FailureKind::TooLarge { bytes } if bytes > 10_000
        ));
        check_link_works(&mut harness);
        harness.finish();
    }
}

#[test]
fn oversized_message_that_is_no_reply_is_reported_as_noise() {
    for server in BOTH_ERAS {
        let mut harness = ready(config_with_line_limit(2_000), server);
        harness.perform(notify("notifications/a", json!({"a": "x".repeat(10_000)})));
        harness.perform(line(&"x".repeat(10_000)));
        harness.perform(reply(&json!({"id": 999}), json!({"a": "x".repeat(10_000)})));
        assert_eq!(noises(&harness).len(), 3);
        assert!(
            noises(&harness)
                .iter()
                .all(|what| what.contains("too large"))
        );
        check_link_works(&mut harness);
        harness.finish();
    }
}

#[test]
fn input_of_an_unknown_stream_is_counted_as_stale_and_dropped() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), server);
        let epoch = harness.link().epoch();
        let stream = StreamId::new(7);
        let bytes = b"{\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n";
        for input in [
            Input::Bytes {
                stream,
                bytes: bytes.into(),
            },
            Input::End {
                stream,
                faults: (&[]).into(),
            },
            Input::WriteFailed {
                stream,
                faults: (&[]).into(),
            },
        ] {
            let events_before = harness.events().len();
            harness.feed_input(epoch, input);
            harness.pump();
            assert_eq!(harness.state(), State::Ready);
            assert_eq!(harness.events().len(), events_before);
        }
        assert_eq!(harness.link().stats().stale_inputs, 3);
        check_link_works(&mut harness);
        harness.finish();
    }
}

#[test]
fn line_far_over_the_limit_is_skipped() {
    let mut harness = ready(config_with_line_limit(2_000), || {
        legacy().ignores("tools/call")
    });
    let call = harness.call_tool("endless");
    for _ in 0..1_000 {
        harness.perform(Act::Raw(vec![b'x'; 10_000]));
    }
    assert_eq!(harness.state(), State::Ready);
    assert!(!harness.is_done(call));
    harness.perform(line(""));
    check_link_works(&mut harness);
    harness.finish();
}

#[test]
fn noise_closes_the_transport_only_if_noise_run_is_set() {
    let mut harness = ready(config(), legacy);
    for _ in 0..10_000 {
        harness.perform(line("still compiling"));
    }
    assert!(noises(&harness).len() < 30, "noise is reported as a sample");
    assert_eq!(harness.link().stats().noise, 10_000);
    check_link_works(&mut harness);
    harness.finish();

    let mut config = config();
    config.limits.noise_run = Some(10);
    let mut harness = ready(config, legacy);
    for _ in 0..5 {
        harness.perform_all(vec![line("chatter"); 10]);
        harness.perform(notify("notifications/a", json!({})));
    }
    assert_eq!(
        harness.epoch_number(),
        1,
        "a message in between resets the count"
    );
    harness.perform_all(vec![line("chatter"); 11]);
    let causes = harness.pick_events(|event| match event {
        Event::Closing { cause, .. } => Some(cause.clone()),
        _ => None,
    });
    assert_eq!(causes, [Cause::Noise]);
    harness.finish();
}

#[test]
fn any_usable_message_resets_the_count_of_noise_lines() {
    let mut config = config();
    config.limits.noise_run = Some(2);
    let mut harness = ready(config, || legacy().ignores("tools/call"));
    let late = harness.call("tools/call", json!({"name": "add"}));
    let request = harness.last_message("tools/call");
    harness.cancel(late, "not needed");
    for message in [
        notify("notifications/a", json!({})),
        ask(7, "ping", json!({})),
        reply(&request, json!({"content": []})),
    ] {
        harness.perform_all(vec![line("chatter"); 2]);
        harness.perform(message);
        assert_eq!(harness.epoch_number(), 1);
    }
    harness.perform_all(vec![line("chatter"); 2]);
    assert_eq!(harness.state(), State::Ready);
    // An error without an id is one line of noise, and ends the run before it.
    let nameless = json!({"jsonrpc": "2.0", "error": {"code": -32_600, "message": "what?"}});
    harness.perform(line(&nameless.to_string()));
    harness.perform(line("chatter"));
    assert_eq!(harness.state(), State::Ready);
    harness.perform(line("chatter"));
    assert_ne!(harness.state(), State::Ready);
    harness.finish();
}

#[test]
fn stats_count_every_message_that_is_understood() {
    let mut harness = ready(config(), legacy);
    for message in [
        notify("notifications/a", json!({})),
        ask(7, "ping", json!({})),
        line(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#),
    ] {
        let before = harness.link().stats().messages_in;
        harness.perform(message);
        assert_eq!(harness.link().stats().messages_in, before + 1);
    }
    let before = harness.link().stats().messages_in;
    harness.perform(line("chatter"));
    assert_eq!(harness.link().stats().messages_in, before);
    harness.finish();
}

/// The subscription may be one that is over, or one that never was.
#[test]
fn message_on_a_watch_that_is_over_counts_as_late_and_on_an_unknown_one_as_noise() {
    let mut harness = ready(config(), Peer::modern);
    let changed = |id: u64| {
        let meta = json!({"io.modelcontextprotocol/subscriptionId": id});
        notify("notifications/tools/list_changed", json!({"_meta": meta}))
    };
    let late = harness.link().stats().late_replies;
    // The first request was that of the handshake.
    let first = harness.lines_of(1)[0]["id"].as_u64().expect("an id");
    for count in 1..=2 {
        harness.perform(changed(first));
        assert_eq!(harness.link().stats().late_replies, late + count);
    }
    assert_eq!(harness.link().stats().noise, 0);
    harness.perform(changed(999));
    let stats = harness.link().stats();
    assert_eq!((stats.late_replies, stats.noise), (late + 2, 1));
    harness.finish();
}

#[test]
fn f_109_call_queue_is_bounded_by_bytes_and_by_number() {
    let mut config = config();
    config.limits.queued_bytes = 10_000;
    config.limits.queued_calls = 20;
    let mut harness = Harness::new(config).served_by(|_| Peer::silent().on_open(Vec::new()));
    let large = json!({"name": "x", "arguments": {"a": "x".repeat(4_000)}});
    let small = json!({"name": "x"});
    let try_tool_call = |harness: &mut Harness, params: &Value| {
        harness.try_call("tools/call", params.clone(), CallOptions::new())
    };
    let calls = [
        try_tool_call(&mut harness, &large),
        try_tool_call(&mut harness, &large),
    ];
    assert!(calls.iter().all(Result::is_ok));
    assert!(matches!(
        try_tool_call(&mut harness, &large),
        Err(Misuse::QueueFull { calls: 2, bytes }) if bytes > 8_000
    ));
    for _ in 2..20 {
        assert!(try_tool_call(&mut harness, &small).is_ok());
    }
    assert!(matches!(
        try_tool_call(&mut harness, &small),
        Err(Misuse::QueueFull { calls: 20, .. })
    ));
    let listed = harness.with_link(|link, now| link.list(now, List::Tools, CallOptions::new()));
    assert!(matches!(listed, Err(Misuse::QueueFull { .. })));
    // A finished call makes room.
    harness.cancel(
        calls[0].clone().expect("the call was accepted"),
        "never mind",
    );
    assert!(try_tool_call(&mut harness, &small).is_ok());
    harness.finish();
}

#[test]
fn f_109_requests_of_the_link_itself_use_no_room_in_the_call_queue() {
    let mut config = config();
    config.limits.queued_calls = 20;
    config.limits.write_window = 1_000;
    let mut harness = ready(config, || {
        legacy().replies("resources/subscribe", |_| json!({}))
    });
    harness.peer_stops_reading();
    let uris = (0..100).map(|n| format!("file:///{n}"));
    harness.watch(uris.fold(Watch::none(), Watch::and_uri));
    assert!(
        harness.messages_with("resources/subscribe").len() < 20,
        "the other requests wait"
    );
    let accepted = harness.try_call("tools/call", json!({"name": "add"}), CallOptions::new());
    assert!(accepted.is_ok(), "{accepted:?}");
    harness.finish();
}

#[test]
fn f_109_limit_of_zero_does_not_block_calls() {
    let zeros: [fn(&mut Limits); 3] = [
        |limits| limits.calls_in_flight = 0,
        |limits| limits.undelivered_bytes = 0,
        |limits| limits.write_window = 0,
    ];
    for server in BOTH_ERAS {
        for zero in zeros {
            let mut config = config();
            zero(&mut config.limits);
            let mut harness = ready(config, server);
            assert!(harness.link().wants_input(StreamId::DUPLEX));
            let calls: Vec<CallId> = (0..3).map(|_| harness.call_tool("add")).collect();
            let list = harness.list(List::Tools);
            for call in calls {
                assert_eq!(harness.result(call)["content"][0]["text"], "add");
            }
            assert!(matches!(harness.outcome(list), Outcome::Listed(_)));
            harness.finish();
        }
    }
}

#[test]
fn f_109_oversized_call_or_notification_is_refused_as_misuse() {
    let mut harness = ready(config_with_line_limit(2_000), legacy);
    let large = json!({"name": "x", "arguments": {"a": "x".repeat(4_000)}});
    let refused = harness.try_call("tools/call", large.clone(), CallOptions::new());
    assert!(matches!(refused, Err(Misuse::TooLarge { bytes }) if bytes > 4_000));
    let refused =
        harness.with_link(|link, now| link.notify(now, "vendor/thing", Some(payload(&large))));
    assert!(matches!(refused, Err(Misuse::TooLarge { .. })));
    check_link_works(&mut harness);
    harness.finish();
}

#[test]
fn f_109_bytes_written_to_a_server_that_does_not_read_are_bounded() {
    for server in BOTH_ERAS {
        let mut config = config();
        config.limits.write_window = 10_000;
        let mut harness = ready(config, server);
        harness.peer_stops_reading();
        let before = harness.link().stats().bytes_out;
        for _ in 0..500 {
            harness.call("tools/call", json!({"name": "x".repeat(1_000)}));
        }
        let written = harness.link().stats().bytes_out - before;
        assert!(written < 12_500, "{written} bytes are under way");
        harness.finish();
    }
}

#[test]
fn f_109_answers_kept_for_a_server_that_does_not_read_are_bounded() {
    let mut config = config_with_asks();
    config.limits.write_window = 10_000;
    config.limits.queued_bytes = 100_000;
    let mut harness = ready(config, legacy);
    harness.peer_stops_reading();
    let roots = json!({"roots": ["x".repeat(10_000)]});
    let mut answered = 0;
    for id in 0..1_000 {
        let asks_before = harness.asks().len();
        harness.perform(ask(id, "roots/list", json!({})));
        if let Some(ask_id) = harness.asks().get(asks_before) {
            let answer = payload(&roots);
            let ask_id = *ask_id;
            answered += u32::from(
                harness
                    .with_link(|link, now| link.answer(now, ask_id, Ok(answer)))
                    .is_ok(),
            );
        }
    }
    // Now the server reads everything that was queued for it.
    let before = harness.link().stats().bytes_out;
    harness.perform(Act::Sent(usize::MAX));
    for _ in 0..1_000 {
        harness.perform(Act::Sent(usize::MAX));
    }
    let kept = harness.link().stats().bytes_out - before;
    assert!(
        kept <= 300_000,
        "{kept} bytes were kept for {answered} answers"
    );
    assert_eq!(harness.state(), State::Ready);
    harness.finish();
}

#[test]
fn f_109_only_one_probe_is_kept_for_a_server_that_does_not_read() {
    for server in BOTH_ERAS {
        let mut config = config();
        config.limits.write_window = 1;
        let mut harness = ready(config, server);
        harness.peer_stops_reading();
        harness.call_tool("add");
        let before = harness.link().stats();
        for _ in 0..100 {
            harness.wake();
            // Any byte shows that the server is there, so the next wake probes again.
            harness.perform(line(""));
        }
        assert_eq!(harness.link().stats().probes - before.probes, 100);
        for _ in 0..200 {
            harness.perform(Act::Sent(usize::MAX));
        }
        let written = harness.link().stats().messages_out - before.messages_out;
        assert_eq!(written, 1, "one probe was kept");
        harness.finish();
    }
}

#[test]
fn f_109_unpolled_notifications_over_the_byte_limit_stop_reading() {
    for server in BOTH_ERAS {
        let mut config = config();
        config.limits.undelivered_bytes = 100_000;
        let mut harness = ready(config, server);
        let wants = |harness: &Harness| harness.link().wants_input(StreamId::DUPLEX);
        let flood = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/a","params":{{"a":"{}"}}}}{}"#,
            "x".repeat(1_000),
            "\n"
        );
        let mut fed = 0;
        while wants(&harness) {
            harness.feed_unpolled(&Act::Raw(flood.clone().into_bytes()));
            fed += 1;
            assert!(fed < 1_000, "the link never stops reading");
        }
        assert!(fed >= 90, "the link stops reading after {fed}");
        harness.pump();
        assert!(
            wants(&harness),
            "reading resumes after the events are polled"
        );
        check_link_works(&mut harness);
        harness.finish();
    }
}

#[test]
fn f_109_unpolled_small_messages_stop_reading_too() {
    let small: [fn() -> Act; 4] = [
        || notify("notifications/a", json!({})),
        || {
            notify(
                "notifications/resources/updated",
                json!({"uri": "file:///a"}),
            )
        },
        || line("x"),
        || ask("p", "roots/list", json!({})),
    ];
    for act in small {
        let mut config = config_with_asks();
        config.limits.undelivered_bytes = 10_000;
        let mut harness = ready(config, legacy);
        let mut fed = 0;
        let act = act();
        while harness.link().wants_input(StreamId::DUPLEX) && fed < 100_000 {
            harness.feed_unpolled(&act);
            fed += 1;
        }
        let events = harness.events().len();
        harness.pump();
        let waited = harness.events().len() - events;
        assert!(
            waited < 10_000,
            "{waited} events waited after {act:?} came {fed} times"
        );
        check_link_works(&mut harness);
        harness.finish();
    }
}

#[test]
fn calls_over_the_in_flight_limit_wait_in_the_queue() {
    for server in BOTH_ERAS {
        let mut config = config();
        config.limits.calls_in_flight = 3;
        let mut harness = ready(config, move || {
            server().on("tools/call", |request| {
                vec![reply(request, json!({"content": []})).after(seconds(1))]
            })
        });
        let calls: Vec<CallId> = (0..10).map(|_| harness.call_tool("slow")).collect();
        assert_eq!(harness.messages_with("tools/call").len(), 3);
        harness.advance(seconds(4));
        assert!(calls.iter().all(|call| harness.is_done(*call)));
        harness.finish();
    }
}

#[test]
fn invalid_calls_are_refused_as_misuse() {
    let mut harness = ready(config(), legacy);
    let mut refused = |method: &'static str, params: Value| {
        harness
            .try_call(method, params, CallOptions::new())
            .expect_err(method)
    };
    assert!(matches!(
        refused("tools/call", json!([])),
        Misuse::NotAnObject { .. }
    ));
    assert!(matches!(
        refused("tools/call", json!("x")),
        Misuse::NotAnObject { .. }
    ));
    assert!(matches!(
        refused("tools/call", json!({"_meta": 7})),
        Misuse::NotAnObject { .. }
    ));
    for member in ["requestState", "inputResponses"] {
        let params = json!({"name": "x", member: {}});
        assert_eq!(
            refused("tools/call", params),
            Misuse::ReservedMember { member }
        );
    }
    for key in ["progressToken", "io.modelcontextprotocol/protocolVersion"] {
        let params = json!({"name": "x", "_meta": {key: 1}});
        assert_eq!(
            refused("tools/call", params),
            Misuse::ReservedMember { member: key }
        );
    }
    for owned in [
        "initialize",
        "ping",
        "server/discover",
        "subscriptions/listen",
        "resources/subscribe",
        "resources/unsubscribe",
        "logging/setLevel",
    ] {
        assert!(matches!(
            refused(owned, json!({})),
            Misuse::OwnedByLink { .. }
        ));
    }
    check_link_works(&mut harness);
    harness.finish();
}

#[test]
fn conversation_with_noise_is_the_same_with_every_chunking() {
    every_era(|chunking: Chunking, peer| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .served_by(move |_| {
                peer().on("tools/call", |request| {
                    vec![
                        line("about to reply"),
                        reply(request, json!({"content": ["é 😀 \u{2028}"]})),
                        line("replied"),
                    ]
                })
            });
        harness.until_ready();
        for _ in 0..3 {
            let call = harness.call_tool("chatty");
            assert_eq!(harness.result(call)["content"][0], "é 😀 \u{2028}");
        }
        assert_eq!(harness.link().stats().noise, 6);
        harness
    });
}

#[test]
fn f_109_calls_in_flight_use_no_room_in_the_queue() {
    let mut config = config();
    config.limits.queued_calls = 3;
    let mut harness = ready(config, || legacy().ignores("tools/call"));
    for _ in 0..10 {
        harness.call_tool("sent at once");
    }
    harness.finish();
}

/// A call that leaves the queue frees exactly its own bytes.
#[test]
fn f_109_call_that_leaves_the_queue_frees_its_bytes() {
    let mut config = config();
    config.limits.queued_bytes = 130;
    let mut link = Client::new(config);
    let now = Instant::ZERO;
    // With its method, each call counts as 60 bytes.
    let params = payload(&json!({"name": "x".repeat(39)}));
    let call =
        |link: &mut Client| link.call(now, "tools/call", Some(params.clone()), CallOptions::new());
    let first = call(&mut link).expect("60 fit");
    call(&mut link).expect("120 fit");
    assert!(matches!(call(&mut link), Err(Misuse::QueueFull { .. })));
    link.cancel(now, first, None).expect("the call is queued");
    call(&mut link).expect("120 fit again");
    let refused = call(&mut link);
    assert!(matches!(refused, Err(Misuse::QueueFull { bytes: 120, .. })));
}

/// S-RPC-07 requires the same type. Servers in use reply with the number as a string, and the SDKs accept it.
#[test]
fn reply_whose_id_is_the_number_as_a_string_is_accepted() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || server().ignores("tools/call"));
        let call = harness.call_tool("add");
        let id = harness.last_message("tools/call")["id"].to_string();
        for strange in [format!("0{id}"), format!("+{id}"), format!("{id} ")] {
            harness.perform(Act::Message(
                json!({"jsonrpc": "2.0", "id": strange, "result": {"content": []}}),
            ));
            assert!(!harness.is_done(call), "{strange:?}");
        }
        harness.perform(Act::Message(
            json!({"jsonrpc": "2.0", "id": id, "result": {"content": []}}),
        ));
        assert!(matches!(harness.outcome(call), Outcome::Reply(_)));
        check_link_works(&mut harness);
    }
}

/// The error may belong to any request, but its message may help a person.
#[test]
fn error_without_an_id_is_reported_as_noise_with_its_message() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), server);
        harness.perform(line(
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"unexpected token"}}"#,
        ));
        let samples = harness.pick_events(|event| match event {
            Event::Noise(noise) => Some(&*noise.sample),
            _ => None,
        });
        assert_eq!(samples, ["unexpected token"]);
        check_link_works(&mut harness);
    }
}

#[test]
fn stats_count_every_byte_of_input() {
    for peer in BOTH_ERAS {
        let mut harness = ready(config(), peer);
        let before = harness.link().stats().bytes_in;
        harness.perform(Act::Raw(b"no message\n".to_vec()));
        harness.perform(Act::Raw(b"unfinished".to_vec()));
        assert_eq!(harness.link().stats().bytes_in, before + 21);
        harness.finish();
    }
}

#[test]
fn stats_count_every_byte_of_output() {
    let mut link = Client::new(config());
    link.connect(Instant::ZERO);
    let (mut buf, mut written) = (Vec::new(), 0);
    while let Some(output) = link.poll_output(&mut buf) {
        match output {
            Output::Open { epoch } => link.handle(Instant::ZERO, epoch, Input::Opened),
            Output::Write { len, .. } => written += len,
            _ => {}
        }
    }
    assert!(written > 0);
    assert_eq!(link.stats().bytes_out, written as u64);
}

/// The most bytes of unpolled events at which the link, with this many notifications, still wants no input.
fn most_that_stop_reading(notifications: usize) -> usize {
    let stops = |limit: usize| {
        let mut config = config();
        config.limits.undelivered_bytes = limit;
        let mut harness = ready(config, legacy);
        for _ in 0..notifications {
            harness.feed_unpolled(&notify("notifications/a", json!({})));
        }
        !harness.link().wants_input(StreamId::DUPLEX)
    };
    let (mut least, mut most) = (1, 1 << 20);
    while most - least > 1 {
        let middle = usize::midpoint(least, most);
        if stops(middle) {
            least = middle;
        } else {
            most = middle;
        }
    }
    least
}

/// The limit is inclusive, so twice as many events stop reading at exactly twice the limit.
#[test]
fn unpolled_events_of_exactly_the_limit_stop_reading() {
    assert_eq!(most_that_stop_reading(2), 2 * most_that_stop_reading(1));
}

/// The limits are inclusive.
#[test]
fn calls_are_accepted_up_to_the_limits_of_their_size_and_number() {
    let mut config = config();
    config.limits.message_bytes = 200;
    config.limits.queued_calls = 2;
    let mut harness = Harness::new(config).served_by(|_| Peer::silent());
    let around = "tools/call".len() + json!({"name": ""}).to_string().len();
    let mut call_of = |bytes: usize| {
        let params = json!({"name": "x".repeat(bytes - around)});
        harness.try_call("tools/call", params, CallOptions::new())
    };
    for bytes in [201, 300] {
        assert_eq!(call_of(bytes), Err(Misuse::TooLarge { bytes }));
    }
    assert!(call_of(200).is_ok());
    assert!(call_of(100).is_ok());
    let full = call_of(100).expect_err("the queue is full");
    assert!(
        matches!(
            full,
            Misuse::QueueFull {
                calls: 2,
                bytes: 300
            }
        ),
        "{full}"
    );
    harness.finish();
}

/// Rule 8. The line is a request that cannot be read, and it is also the one too many.
#[test]
fn request_that_ends_a_server_is_not_answered_to_the_next_one() {
    let mut config = config();
    config.limits.noise_run = Some(0);
    let mut harness = ready(config, legacy);
    harness.perform(line(r#"{"jsonrpc":"2.0","id":7,"method":5}"#));
    harness.until("the next server", |harness| harness.epoch_number() == 2);
    harness.until_ready();
    let methods = harness.methods_of(2);
    assert!(!methods.contains(&""), "no reply is written: {methods:?}");
    harness.finish();
}
