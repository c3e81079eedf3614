//! Results and errors at a server end: their codes, the members of every modern result, and the end of service.

use core::time::Duration;

use crate::server_pipe::{
    Harness, NO_MESSAGES, config, every_chunking, every_era, every_version, is_modern, offering,
    payload, seconds,
};
use everlink::protocol::{LogLevel, ServerCapabilities, Version, meta};
use everlink::server::{
    Cache, Cancelled, Config, Event, InputRequired, Misuse, State, Unanswered, UnknownMethods,
};
use everlink::{ErrorObject, Payload};
use serde_json::{Value, json};

/// The methods whose complete results have a cache lifetime, with parameters and results.
fn cacheable() -> [(&'static str, Value, Value); 5] {
    [
        ("tools/list", Value::Null, json!({"tools": []})),
        ("prompts/list", Value::Null, json!({"prompts": []})),
        (
            "resources/list",
            json!({"cursor": "x"}),
            json!({"resources": []}),
        ),
        (
            "resources/templates/list",
            Value::Null,
            json!({"resourceTemplates": []}),
        ),
        (
            "resources/read",
            json!({"uri": "file:///a"}),
            json!({"contents": []}),
        ),
    ]
}

/// Methods whose results have no cache lifetime.
fn uncacheable() -> [(&'static str, Value, Value); 3] {
    [
        ("tools/call", json!({"name": "add"}), json!({"content": []})),
        ("prompts/get", json!({"name": "p"}), json!({"messages": []})),
        (
            "completion/complete",
            json!({"ref": {}, "argument": {}}),
            json!({"completion": {"values": []}}),
        ),
    ]
}

/// S-RPC-09, S-RPC-17: a result is any object, and it arrives unchanged.
#[test]
fn result_object_arrives_unchanged() {
    every_version(|version| {
        let mut harness = Harness::new(config()).with_version(version);
        for result in [
            json!({}),
            json!({"deep": {"er": [null, 1.5, "x", {"a": []}]}}),
            json!({"isError": true, "content": [{"type": "text", "text": "no"}]}),
            json!({"result": 1, "error": 2, "id": 3, "jsonrpc": 4}),
        ] {
            let mut received =
                harness.call_and_respond("tools/call", json!({"name": "add"}), result.clone());
            if is_modern(version) {
                let received = received.as_object_mut().unwrap();
                assert_eq!(received.remove("resultType"), Some(json!("complete")));
                received.remove("_meta");
            }
            assert_eq!(received, result, "{version}");
        }
        harness
    });
}

/// S-RPC-17: a result that is not an object is refused, and the request stays open.
#[test]
fn result_that_is_no_object_is_refused_and_the_request_stays_open() {
    every_version(|version| {
        let mut harness = Harness::new(config()).with_version(version);
        let (id, request) = harness.call_tool("add");
        for result in [json!(null), json!(7), json!("text"), json!([]), json!(true)] {
            let done =
                harness.with_server(|server, now| server.respond(now, request, payload(&result)));
            assert!(
                matches!(done, Err(Misuse::NotAnObject { .. })),
                "{result}: {done:?}"
            );
        }
        assert_eq!(harness.replies(&id).len(), 0);
        harness.respond(request, json!({}));
        assert_eq!(harness.replies(&id).len(), 1);
        harness
    });
}

/// S-RPC-08, S-RPC-09: a request gets one reply, a result or an error. A second one is refused and not written.
#[test]
fn second_reply_to_a_request_is_refused() {
    every_era(|chunking, version| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        for first_fails in [false, true] {
            let (id, request) = harness.call_tool("add");
            if first_fails {
                harness.fail(request, 7, "no");
            } else {
                harness.respond(request, json!({"content": []}));
            }
            let error = ErrorObject::new(8, "twice");
            let done = harness.with_server(|server, now| server.fail(now, request, error));
            assert_eq!(done, Err(Misuse::UnknownRequest));
            let done = harness
                .with_server(|server, now| server.respond(now, request, payload(&json!({}))));
            assert_eq!(done, Err(Misuse::UnknownRequest));
            let reply = harness.reply(&id);
            assert_eq!(reply.get("error").is_some(), first_fails);
            assert_eq!(reply.get("result").is_some(), !first_fails);
        }
        harness
    });
}

/// S-RPC-12, S-RPC-13: an error has a code, a message, and optional data of any type.
#[test]
fn error_code_message_and_data_arrive_unchanged() {
    every_version(|version| {
        let mut harness = Harness::new(config()).with_version(version);
        for data in [
            json!(null),
            json!(1.5),
            json!("x"),
            json!([1]),
            json!({"a": 1}),
            json!(false),
        ] {
            let (id, request) = harness.call_tool("add");
            let mut error = ErrorObject::new(-5, "it\n\"failed\"");
            error.data = Some(payload(&data));
            harness
                .with_server(|server, now| server.fail(now, request, error))
                .expect("the server accepts the reply");
            assert_eq!(
                harness.error(&id),
                json!({"code": -5, "message": "it\n\"failed\"", "data": data})
            );
        }
        let (id, request) = harness.call_tool("add");
        harness.fail(request, i64::MAX, "no");
        assert_eq!(
            harness.error(&id),
            json!({"code": i64::MAX, "message": "no"}),
            "an error without data has no member for it"
        );
        harness
    });
}

/// S-RPC-18, S-META-06: every modern result names its type and its server, including empty results and results of the server
/// itself. No legacy result does.
#[test]
fn every_modern_result_has_its_type_and_server_info() {
    every_version(|version| {
        let mut harness = Harness::new(config()).with_version(version);
        let before = harness.received().len();
        for (method, params, result) in cacheable().into_iter().chain(uncacheable()) {
            harness.call_and_respond(method, params.clone(), result);
            harness.call_and_respond(method, params, json!({}));
        }
        harness.call("server/discover", Value::Null);
        let (first, request) = harness.call_tool("add");
        harness.ask(request, "roots/list", Value::Null);
        let listen = harness.call("subscriptions/listen", json!({"notifications": {}}));
        if is_modern(version) {
            assert_eq!(harness.result(&first)["resultType"], "input_required");
        }
        harness.shutdown();
        if is_modern(version) {
            assert_eq!(
                harness.result(&listen)["resultType"],
                "complete",
                "a watch that ends"
            );
        }
        let results: Vec<_> = harness.received()[before..]
            .iter()
            .filter_map(|m| m.get("result"))
            .collect();
        assert!(results.len() >= 16, "{version}: {}", results.len());
        for result in results {
            let server = &result["_meta"][meta::SERVER_INFO];
            if is_modern(version) {
                assert!(result["resultType"].is_string(), "{result}");
                assert_eq!(server, &json!({"name": "host", "version": "1"}), "{result}");
            } else {
                assert_eq!(result.get("resultType"), None, "{result}");
                assert_eq!(result.get("_meta"), None, "{result}");
            }
        }
        harness
    });
}

/// S-META-06: the server's name can be switched off, and the application's own value is kept.
#[test]
fn server_info_can_be_disabled_or_set_by_the_application() {
    let mut unnamed = config();
    unnamed.names_itself = false;
    let mut harness = Harness::modern(unnamed);
    let result = harness.call_and_respond("tools/list", Value::Null, json!({"tools": []}));
    assert_eq!(result.get("_meta"), None);
    let id = harness.call("server/discover", Value::Null);
    assert_eq!(harness.result(&id)["_meta"].get(meta::SERVER_INFO), None);
    harness.finish();

    let mut harness = Harness::modern(config());
    let own = json!({"content": [], "_meta": {"com.example/x": 1, meta::SERVER_INFO: {"name": "behind", "version": "0"}}});
    let result = harness.call_and_respond("tools/call", json!({"name": "add"}), own.clone());
    assert_eq!(result["_meta"], own["_meta"]);
    let mixed = json!({"content": [], "_meta": {"com.example/x": 1}});
    let result = harness.call_and_respond("tools/call", json!({"name": "add"}), mixed);
    assert_eq!(result["_meta"]["com.example/x"], 1);
    assert_eq!(result["_meta"][meta::SERVER_INFO]["name"], "host");
    harness.finish();
}

/// S-CACHE-01: complete cacheable results have a lifetime and a scope. Other results and all legacy results have neither.
#[test]
fn cacheable_modern_results_have_lifetime_and_scope() {
    every_version(|version| {
        let mut config = config();
        config.cache = Cache::new(Duration::from_millis(2_500), true);
        let mut harness = Harness::new(config).with_version(version);
        for (method, params, result) in cacheable() {
            let received = harness.call_and_respond(method, params, result.clone());
            if is_modern(version) {
                assert_eq!(received["ttlMs"], 2_500, "{method}");
                assert_eq!(received["cacheScope"], "public", "{method}");
            } else {
                assert_eq!(received, result, "{method}");
            }
        }
        for (method, params, result) in uncacheable() {
            let received = harness.call_and_respond(method, params, result);
            assert_eq!(received.get("ttlMs"), None, "{method}");
            assert_eq!(received.get("cacheScope"), None, "{method}");
        }
        let id = harness.call("server/discover", Value::Null);
        if is_modern(version) {
            assert_eq!(harness.result(&id)["ttlMs"], 2_500);
            assert_eq!(harness.result(&id)["cacheScope"], "public");
        }
        harness
    });
}

/// S-CACHE-01: by default the lifetime is 0 and the scope is private. Values of the application are kept.
#[test]
fn application_cache_values_replace_the_defaults() {
    let mut harness = Harness::modern(config());
    for (method, params, mut result) in cacheable() {
        let received = harness.call_and_respond(method, params.clone(), result.clone());
        assert_eq!(
            (&received["ttlMs"], &received["cacheScope"]),
            (&json!(0), &json!("private")),
            "{method}"
        );
        result["ttlMs"] = json!(7);
        let received = harness.call_and_respond(method, params.clone(), result.clone());
        assert_eq!(
            (&received["ttlMs"], &received["cacheScope"]),
            (&json!(7), &json!("private")),
            "{method}"
        );
        result["cacheScope"] = json!("public");
        let received = harness.call_and_respond(method, params, result);
        assert_eq!(
            (&received["ttlMs"], &received["cacheScope"]),
            (&json!(7), &json!("public")),
            "{method}"
        );
    }
    harness.finish();
}

/// S-CACHE-01: even the longest lifetime is written as an integer.
#[test]
fn longest_cache_lifetime_is_written_as_an_integer() {
    let mut config = config();
    config.cache = Cache::new(Duration::MAX, false);
    let mut harness = Harness::modern(config);
    let result = harness.call_and_respond("tools/list", Value::Null, json!({"tools": []}));
    assert!(result["ttlMs"].is_u64(), "{result}");
    harness.finish();
}

/// S-CACHE-02: a result that asks for input has no cache lifetime.
#[test]
fn input_required_result_has_no_cache_lifetime() {
    let mut config = config();
    config.cache = Cache::new(Duration::from_secs(1), true);
    let mut harness = Harness::modern(config);
    let stateless = harness.call("resources/read", json!({"uri": "file:///a"}));
    let request = harness.newest_request();
    let input = InputRequired::new()
        .and_ask("where", "roots/list", None)
        .with_state("s");
    harness
        .with_server(|server, now| server.require_input(now, request, input))
        .expect("the client can be asked");
    let stateful = harness.call("resources/read", json!({"uri": "file:///a"}));
    let request = harness.newest_request();
    harness.ask(request, "roots/list", Value::Null);
    for id in [stateless, stateful] {
        let result = harness.result(&id);
        assert_eq!(result["resultType"], "input_required");
        assert_eq!(result.get("ttlMs"), None);
        assert_eq!(result.get("cacheScope"), None);
    }
    harness.finish();
}

/// S-ERR-01: unknown methods and names of notifications are refused.
#[test]
fn unknown_method_is_refused() {
    every_version(|version| {
        let mut harness = Harness::new(config()).with_version(version);
        for method in [
            "no/such",
            "Tools/list",
            "tools/list ",
            "",
            "notifications/cancelled",
            "notifications/initialized",
            "roots/list",
            "sampling/createMessage",
        ] {
            let id = harness.call(method, json!({"requestId": 1}));
            assert_eq!(harness.code(&id), -32601, "{version}: {method:?}");
        }
        assert_eq!(harness.requests().len(), 0);
        harness
    });
}

/// S-ERR-01: an application may receive methods that the protocol does not know.
#[test]
fn unknown_methods_can_be_delivered_to_the_application() {
    every_version(|version| {
        let mut config = config();
        config.unknown_methods = UnknownMethods::Delivered;
        let mut harness = Harness::new(config).with_version(version);
        let result =
            harness.call_and_respond("com.example/sum", json!({"a": 1}), json!({"sum": 2}));
        assert_eq!(result["sum"], 2);
        assert_eq!(harness.requests()[0].method, "com.example/sum");
        harness
    });
}

/// S-ERR-10: methods of a capability that is not offered are not found, also for modern clients. A missing capability of the
/// client has another code.
#[test]
fn methods_of_an_unoffered_capability_are_not_found() {
    let only_tools = offering(ServerCapabilities::default().with_tools(false));
    let mut harness = Harness::modern(only_tools).declaring(json!({}));
    for (method, params, _) in cacheable().into_iter().chain(uncacheable()) {
        let is_offered = method.starts_with("tools/");
        let id = harness.call(method, params);
        if is_offered {
            assert_eq!(harness.replies(&id).len(), 0, "{method}");
        } else {
            assert_eq!(harness.code(&id), -32601, "{method}");
        }
    }
    let (id, request) = harness.call_tool("add");
    let error = everlink::server::missing_capability(everlink::protocol::ClientFeature::Roots);
    harness
        .with_server(|server, now| server.fail(now, request, error))
        .expect("the server accepts the reply");
    assert_eq!(harness.code(&id), -32021);
    harness.finish();
}

/// S-ERR-02, S-ERR-05, S-ERR-06: a modern server does not send a reserved code, even if the application uses it. A legacy client
/// gets the codes of its version.
#[test]
fn reserved_error_codes_are_not_sent() {
    every_version(|version| {
        let mut harness = Harness::new(config()).with_version(version);
        for code in -32_099..=-32_000 {
            let (id, request) = harness.call_tool("add");
            harness.fail(request, code, "no");
            let sent_code = harness.code(&id);
            match code {
                // Only 2025-11-25 has this code (S-ERR-13).
                -32_042 => assert_eq!(
                    sent_code == code,
                    version == Version::V2025_11_25,
                    "{version}"
                ),
                // To a legacy client these codes would prove a modern server (S-VER-09).
                -32_022..=-32_020 => assert_eq!(sent_code == code, is_modern(version), "{version}"),
                _ if !is_modern(version) => assert_eq!(sent_code, code, "{version}"),
                -32_002 => assert_eq!(sent_code, -32_602, "a missing resource (S-ERR-11)"),
                -32_099..=-32_020 => {
                    assert!(
                        !(-32_099..=-32_020).contains(&sent_code),
                        "{code} became {sent_code}"
                    );
                }
                _ => assert!(
                    sent_code == code || !(-32_099..=-32_000).contains(&sent_code),
                    "{code} became {sent_code}"
                ),
            }
        }
        harness
    });
}

/// S-ERR-11, S-ERR-12: a missing resource has the code of the version.
#[test]
fn missing_resource_error_has_the_code_of_the_version() {
    every_version(|version| {
        let mut harness = Harness::new(config()).with_version(version);
        let id = harness.call("resources/read", json!({"uri": "file:///none"}));
        let mut error = ErrorObject::new(-32_002, "there is no such resource");
        error.data = Some(payload(&json!({"uri": "file:///none"})));
        let request = harness.newest_request();
        harness
            .with_server(|server, now| server.fail(now, request, error))
            .expect("the server accepts the reply");
        let expected = if is_modern(version) { -32_602 } else { -32_002 };
        assert_eq!(harness.code(&id), expected, "{version}");
        assert_eq!(harness.error(&id)["data"]["uri"], "file:///none");
        harness
    });
}

/// S-ERR-13: in 2025-11-25 an error may ask for a URL elicitation first, with all its data.
#[test]
fn url_elicitation_required_error_arrives_with_its_data() {
    let mut harness = Harness::legacy(config(), "2025-11-25");
    let (id, request) = harness.call_tool("add");
    let data = json!({"elicitations": [{"mode": "url", "message": "?", "url": "https://example.com/", "elicitationId": "1"}]});
    let mut error = ErrorObject::new(-32_042, "go there first");
    error.data = Some(payload(&data));
    harness
        .with_server(|server, now| server.fail(now, request, error))
        .expect("the server accepts the reply");
    assert_eq!(
        harness.error(&id),
        json!({"code": -32_042, "message": "go there first", "data": data})
    );
    harness.finish();
}

/// S-ERR-03, S-ERR-05: every refusal by the server itself has a code that the specification defines.
#[test]
fn errors_of_the_server_itself_have_defined_codes() {
    const DEFINED_CODES: [i64; 8] = [
        -32_700, -32_600, -32_601, -32_602, -32_603, -32_020, -32_021, -32_022,
    ];
    every_version(|version| {
        let mut config = config();
        config.limits.requests = 2;
        config.limits.message_bytes = 2_000;
        config.limits.listens = 1;
        config.limits.watched_uris = 1;
        let mut harness = Harness::new(config).with_version(version);
        // Too many, too long, unknown, malformed, of an unknown version, too much to watch, too late.
        let watch =
            json!({"notifications": {"resourceSubscriptions": ["a:1", "a:2"]}, "uri": "a:1"});
        harness.call("subscriptions/listen", watch);
        harness.call("subscriptions/listen", json!({"notifications": {}}));
        harness.call("subscriptions/listen", json!({"notifications": {}}));
        harness.call("subscriptions/listen", json!({"notifications": 7}));
        harness.call("resources/subscribe", json!({"uri": "a:1"}));
        harness.call("resources/subscribe", json!({"uri": "a:2"}));
        harness.call("resources/subscribe", json!({"uri": 7}));
        harness.call("tools/call", json!({"name": "x".repeat(3_000)}));
        harness.call("no/such", Value::Null);
        harness.send_line("{");
        harness.send_line("[]");
        harness.call(
            "tools/call",
            json!({"_meta": {meta::PROTOCOL_VERSION: "1999-01-01"}}),
        );
        harness.call("tools/call", json!({"_meta": {meta::LOG_LEVEL: "loud"}}));
        harness.call("tools/call", json!({"_meta": {"progressToken": {}}}));
        harness.call(
            "tools/call",
            json!({"name": "add", "requestState": 7, "inputResponses": 7}),
        );
        harness.call(
            "tools/call",
            json!({"name": "add", "requestState": "everlink.9.9.ff", "inputResponses": {}}),
        );
        for _ in 0..4 {
            harness.call("tools/call", json!({"name": "add"}));
        }
        harness.shutdown();
        harness.call("tools/call", json!({"name": "add"}));
        harness.advance(seconds(60));
        let mut errors = 0;
        for error in harness
            .received()
            .iter()
            .filter_map(|message| message.get("error"))
        {
            let code = error["code"].as_i64().expect("an integer");
            assert!(DEFINED_CODES.contains(&code), "{version}: {error}");
            let text = error["message"].as_str().expect("a string");
            assert!(
                !text.is_empty() && !text.contains('\n'),
                "{text:?} (S-RPC-14)"
            );
            errors += 1;
        }
        assert!(errors >= 9, "{version}: {errors}");
        harness
    });
}

/// S-ERR-01, S-ERR-03: a request over the limit is refused with the code for internal errors. A finished request makes room.
#[test]
fn request_over_the_limit_gets_an_internal_error() {
    every_era(|chunking, version| {
        let mut config = config();
        config.limits.requests = 2;
        let mut harness = Harness::new(config).chunked(chunking).with_version(version);
        let (_, first) = harness.call_tool("first");
        let (_, _second) = harness.call_tool("second");
        let third = harness.call("tools/call", json!({"name": "third"}));
        assert_eq!(harness.code(&third), -32_603);
        assert_eq!(harness.requests().len(), 2);
        harness.respond(first, json!({"content": []}));
        let (_, fourth) = harness.call_tool("fourth");
        assert_eq!(harness.requests().len(), 3, "{fourth}");
        harness
    });
}

/// S-ERR-09: the outcome of an ask distinguishes errors of the client from errors of the server end.
#[test]
fn ask_outcome_distinguishes_client_errors_from_local_ones() {
    let mut config = config();
    config.ask_timeout = seconds(10);
    let mut harness = Harness::new(config).with_version(Version::V2025_11_25);
    let (_, request) = harness.call_tool("add");
    let refused = harness.ask(request, "roots/list", Value::Null);
    let ignored = harness.ask(request, "roots/list", Value::Null);
    let withdrawn = harness.ask(request, "roots/list", Value::Null);
    let ask_id = harness.messages_with("roots/list")[0]["id"].clone();
    // The same text that other implementations use for a timeout.
    let error =
        json!({"code": -32_001, "message": "the client did not answer in time", "data": [1]});
    harness.send(json!({"jsonrpc": "2.0", "id": ask_id, "error": error}));
    harness
        .with_server(|server, now| server.withdraw(now, withdrawn, None))
        .expect("the ask is open");
    harness.advance(seconds(10));
    let mut client_error = ErrorObject::new(-32_001, "the client did not answer in time");
    client_error.data = Some(payload(&json!([1])));
    assert_eq!(
        harness.outcome(refused),
        Some(Err(Unanswered::Error(client_error)))
    );
    assert_eq!(harness.outcome(ignored), Some(Err(Unanswered::TimedOut)));
    assert_eq!(harness.outcome(withdrawn), Some(Err(Unanswered::Withdrawn)));
    let ended = harness.ask(request, "roots/list", Value::Null);
    harness.respond(request, json!({"content": []}));
    assert_eq!(harness.outcome(ended), Some(Err(Unanswered::RequestOver)));
    let gone = harness.try_ask_unbidden("roots/list", Value::Null);
    let gone = gone.expect("the client can be asked");
    harness.fail_writes(&[]);
    assert_eq!(harness.outcome(gone), Some(Err(Unanswered::PeerGone)));
    harness.finish();
}

/// S-RPC-26, S-CAP-06: while a request runs, its client gets progress and log messages; after the reply it gets none.
#[test]
fn progress_and_logs_are_sent_until_the_reply() {
    every_era(|chunking, version| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        let request_meta = json!({"progressToken": "p", meta::LOG_LEVEL: "info"});
        let id = harness.call("tools/call", json!({"name": "add", "_meta": request_meta}));
        let request = harness.newest_request();
        assert!(harness.requests()[0].wants_progress);
        let before = harness.received().len();
        harness.progress(request, 1.0);
        log(&mut harness, request, LogLevel::Warning).expect("the request is running");
        harness.progress(request, 2.0);
        harness.respond(request, json!({"content": []}));
        let kinds: Vec<String> = harness.received()[before..]
            .iter()
            .map(|message| {
                message["method"]
                    .as_str()
                    .unwrap_or("the answer")
                    .to_owned()
            })
            .collect();
        let expected = [
            "notifications/progress",
            "notifications/message",
            "notifications/progress",
            "the answer",
        ];
        assert_eq!(kinds, expected);
        let progress = everlink::server::Progress::new(3.0);
        let late = harness.with_server(|server, now| server.progress(now, request, progress));
        assert_eq!(late, Err(Misuse::UnknownRequest));
        assert_eq!(
            log(&mut harness, request, LogLevel::Warning),
            Err(Misuse::UnknownRequest)
        );
        assert_eq!(harness.received().len(), before + 4);
        harness.result(&id);
        harness
    });
}

fn log(harness: &mut Harness, request: everlink::RequestId, level: LogLevel) -> Result<(), Misuse> {
    let data = payload(&json!({"text": "hello"}));
    harness.with_server(|server, now| server.log(now, Some(request), level, None, data))
}

/// S-CAP-05, S-CAP-06: a modern request without a level gets no log messages; one with a level gets those from it up.
#[test]
fn modern_request_gets_logs_only_from_its_level_up() {
    let mut harness = Harness::modern(config());
    let (_, quiet) = harness.call_tool("add");
    for level in LogLevel::ALL {
        log(&mut harness, quiet, *level).expect("the call succeeds, although nothing is sent");
    }
    assert_eq!(harness.received(), NO_MESSAGES);
    for (at, wanted) in LogLevel::ALL.iter().enumerate() {
        let request_meta = json!({meta::LOG_LEVEL: wanted.as_str()});
        harness.call("tools/call", json!({"name": "add", "_meta": request_meta}));
        assert_eq!(
            harness.requests().pop().expect("a request").log_level,
            Some(*wanted)
        );
        let request = harness.newest_request();
        for (level, named) in LogLevel::ALL.iter().enumerate() {
            let before = harness.received().len();
            log(&mut harness, request, *named).expect("the request is running");
            assert_eq!(
                harness.received().len() - before,
                usize::from(level >= at),
                "{named} for {wanted}"
            );
            // The other request still gets nothing.
            log(&mut harness, quiet, *named).expect("the call succeeds, although nothing is sent");
            assert_eq!(harness.received().len() - before, usize::from(level >= at));
        }
        harness.respond(request, json!({"content": []}));
    }
    harness.finish();
}

/// S-CAP-05, S-CAP-07: a watch gets no log messages, and neither does a modern client without a request that asks for them.
#[test]
fn watch_receives_no_logs() {
    let mut harness = Harness::modern(config());
    let all_lists =
        json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true});
    let request_meta = json!({meta::LOG_LEVEL: "debug"});
    harness.call(
        "subscriptions/listen",
        json!({"notifications": all_lists, "_meta": request_meta}),
    );
    let before = harness.received().len();
    let data = payload(&json!("text"));
    let logged =
        harness.with_server(|server, now| server.log(now, None, LogLevel::Emergency, None, data));
    logged.expect("logging is offered");
    let (_, quiet) = harness.call_tool("add");
    log(&mut harness, quiet, LogLevel::Emergency).expect("logging is offered");
    assert_eq!(harness.received().len(), before);
    harness.finish();
}

/// S-CAP-08: an unknown level is refused with the code for invalid parameters.
#[test]
fn unknown_log_level_is_refused_for_every_method() {
    for level in [
        json!("loud"),
        json!("INFO"),
        json!(""),
        json!(3),
        json!(null),
        json!({}),
    ] {
        for method in ["tools/call", "server/discover", "subscriptions/listen"] {
            let mut harness = Harness::modern(config());
            let request_meta = json!({meta::LOG_LEVEL: level});
            let id = harness.call(
                method,
                json!({"name": "add", "notifications": {}, "_meta": request_meta}),
            );
            assert_eq!(harness.code(&id), -32_602, "{method}: {level}");
            assert_eq!(harness.requests().len(), 0);
            harness.finish();
        }
    }
}

/// S-RPC-23, S-STDIO-10: a modern client never gets a request. It gets an ask only in place of a reply.
#[test]
fn a_modern_client_is_never_sent_a_request() {
    every_chunking(|chunking| {
        let mut harness = Harness::modern(config()).chunked(chunking);
        let unbidden = harness.try_ask_unbidden("roots/list", Value::Null);
        assert_eq!(unbidden, Err(Misuse::NoLegacyPeer));
        let (id, request) = harness.call_tool("add");
        harness.ask(request, "roots/list", Value::Null);
        assert_eq!(harness.result(&id)["resultType"], "input_required");
        let ping = harness.with_server(|server, now| server.notify(now, "ping", None));
        assert!(ping.is_err(), "{ping:?}");
        harness.advance(seconds(3_600));
        // The same holds beside a legacy client, which did not make the request.
        let mut harness = harness.with_version(Version::V2025_11_25);
        let id = harness.modern_call("tools/call", json!({"name": "add"}));
        let request = harness.newest_request();
        harness.ask(request, "roots/list", Value::Null);
        assert_eq!(harness.result(&id)["resultType"], "input_required");
        for message in harness.received() {
            assert!(
                message.get("method").is_none() || message.get("id").is_none(),
                "{message}"
            );
        }
        harness
    });
}

/// S-STDIO-14: after a cancellation no message about the request is sent, and the application stops.
#[test]
fn no_message_follows_a_cancellation() {
    every_era(|chunking, version| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        let request_meta = json!({"progressToken": 7, meta::LOG_LEVEL: "debug"});
        let id = harness.call("tools/call", json!({"name": "add", "_meta": request_meta}));
        let request = harness.newest_request();
        harness.progress(request, 1.0);
        let before = harness.received().len();
        harness.notify(
            "notifications/cancelled",
            json!({"requestId": id, "reason": "enough"}),
        );
        let why = harness.pick_events(|event| match event {
            Event::Cancelled { request: of, why } if *of == request => Some(why.clone()),
            _ => None,
        });
        let reason = Some("enough".into());
        assert_eq!(why, [Cancelled::ByPeer { reason, meta: None }]);
        let progress = everlink::server::Progress::new(2.0);
        let late = harness.with_server(|server, now| server.progress(now, request, progress));
        assert_eq!(late, Err(Misuse::UnknownRequest));
        assert_eq!(
            log(&mut harness, request, LogLevel::Error),
            Err(Misuse::UnknownRequest)
        );
        let answer = payload(&json!({"content": []}));
        let late = harness.with_server(|server, now| server.respond(now, request, answer));
        assert_eq!(late, Err(Misuse::UnknownRequest));
        let late =
            harness.with_server(|server, now| server.fail(now, request, ErrorObject::new(1, "no")));
        assert_eq!(late, Err(Misuse::UnknownRequest));
        assert!(harness.try_ask(request, "roots/list", Value::Null).is_err());
        harness.advance(seconds(3_600));
        assert_eq!(harness.received()[before..], NO_MESSAGES);
        harness
    });
}

/// S-STDIO-14: queued messages about a cancelled request are not sent, either.
#[test]
fn queued_reply_progress_and_logs_are_dropped_on_cancellation() {
    let mut config = config();
    config.limits.write_window = 100;
    let mut harness = Harness::modern(config);
    let (_, first) = harness.call_tool("first");
    let request_meta = json!({"progressToken": 7, meta::LOG_LEVEL: "debug"});
    let id = harness.call(
        "tools/call",
        json!({"name": "second", "_meta": request_meta}),
    );
    let second = harness.newest_request();
    harness.stop_reading();
    harness.respond(first, json!({"content": ["x".repeat(200)]}));
    let before = harness.received().len();
    harness.progress(second, 1.0);
    log(&mut harness, second, LogLevel::Error).expect("the request is running");
    harness.respond(second, json!({"content": []}));
    assert_eq!(harness.received().len(), before, "the pipe is full");
    harness.cancel(&id);
    harness.resume_reading();
    assert_eq!(harness.replies(&id).len(), 0);
    assert_eq!(harness.messages_with("notifications/progress").len(), 0);
    assert_eq!(harness.messages_with("notifications/message").len(), 0);
    harness.finish();
}

/// S-STDIO-17: without open requests, the server closes at once when its input ends.
#[test]
fn end_of_input_closes_an_idle_server() {
    every_era(|chunking, version| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        harness.call_and_respond("tools/list", Value::Null, json!({"tools": []}));
        harness.eof();
        assert_eq!(harness.server.state(), State::Closed);
        harness
    });
}

/// S-STDIO-17: after the end of the input, open requests have 5 s. The server closes as soon as none is left.
#[test]
fn open_requests_have_5_s_after_the_end_of_input() {
    every_era(|chunking, version| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        let (quick, first) = harness.call_tool("quick");
        let (slow, second) = harness.call_tool("slow");
        harness.eof();
        assert_eq!(harness.server.state(), State::Draining);
        harness.advance(seconds(1));
        harness.respond(first, json!({"content": []}));
        harness.result(&quick);
        harness.advance(seconds(3));
        assert_eq!(harness.server.state(), State::Draining);
        harness.advance(seconds(1));
        assert_eq!(
            harness.server.state(),
            State::Closed,
            "five seconds are over"
        );
        assert_eq!(harness.cancellations(), [second]);
        harness.error(&slow);
        harness
    });
}

/// S-STDIO-18: a server may end by itself: it refuses new requests, answers open ones, and releases the stream.
#[test]
fn shutdown_answers_open_requests_and_closes_without_end_of_input() {
    every_era(|chunking, version| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        let (id, request) = harness.call_tool("add");
        harness.shutdown();
        assert_eq!(harness.server.state(), State::Draining);
        let late = harness.call("tools/list", Value::Null);
        harness.error(&late);
        harness.respond(request, json!({"content": []}));
        harness.result(&id);
        assert_eq!(
            harness.server.state(),
            State::Closed,
            "the server closes without an end of input"
        );
        harness
    });
}

/// S-RPC-09: an oversized reply is refused, and the request stays open.
#[test]
fn oversized_reply_is_refused_and_the_request_stays_open() {
    every_version(|version| {
        let mut config: Config = config();
        config.limits.message_bytes = 1_000;
        let mut harness = Harness::new(config).with_version(version);
        let (id, request) = harness.call_tool("add");
        let long = "x".repeat(2_000);
        let large: Payload = payload(&json!({"content": [long]}));
        let done = harness.with_server(|server, now| server.respond(now, request, large));
        assert!(matches!(done, Err(Misuse::TooLarge { .. })), "{done:?}");
        let done =
            harness.with_server(|server, now| server.fail(now, request, ErrorObject::new(1, long)));
        assert!(matches!(done, Err(Misuse::TooLarge { .. })), "{done:?}");
        harness.respond(request, json!({"content": []}));
        harness.result(&id);
        harness
    });
}
