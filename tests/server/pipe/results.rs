//! Results and errors at a server end: their codes, the members of every modern result, and the end of service.

use core::time::Duration;

use crate::server_pipe::{
    Host, NOTHING, config, every_chunking, every_era, every_version, is_modern, offering, payload,
    seconds,
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
fn others() -> [(&'static str, Value, Value); 3] {
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
fn a_result_is_any_object() {
    every_version(|version| {
        let mut host = Host::new(config()).speaking(version);
        for given in [
            json!({}),
            json!({"deep": {"er": [null, 1.5, "x", {"a": []}]}}),
            json!({"isError": true, "content": [{"type": "text", "text": "no"}]}),
            json!({"result": 1, "error": 2, "id": 3, "jsonrpc": 4}),
        ] {
            let mut told = host.served("tools/call", json!({"name": "add"}), given.clone());
            if is_modern(version) {
                let told = told.as_object_mut().unwrap();
                assert_eq!(told.remove("resultType"), Some(json!("complete")));
                told.remove("_meta");
            }
            assert_eq!(told, given, "{version}");
        }
        host
    });
}

/// S-RPC-17: a result that is not an object is refused, and the request stays open.
#[test]
fn what_is_no_object_is_no_result() {
    every_version(|version| {
        let mut host = Host::new(config()).speaking(version);
        let (id, request) = host.tool("add");
        for given in [json!(null), json!(7), json!("text"), json!([]), json!(true)] {
            let done = host.verb(|server, now| server.respond(now, request, payload(&given)));
            assert!(
                matches!(done, Err(Misuse::NotAnObject { .. })),
                "{given}: {done:?}"
            );
        }
        assert_eq!(host.replies(&id).len(), 0);
        host.respond(request, json!({}));
        assert_eq!(host.replies(&id).len(), 1);
        host
    });
}

/// S-RPC-08, S-RPC-09: a request gets one reply, a result or an error. A second one is refused and not written.
#[test]
fn a_request_has_one_answer() {
    every_era(|chunking, version| {
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        for first_fails in [false, true] {
            let (id, request) = host.tool("add");
            if first_fails {
                host.fail(request, 7, "no");
            } else {
                host.respond(request, json!({"content": []}));
            }
            let error = ErrorObject::new(8, "twice");
            let done = host.verb(|server, now| server.fail(now, request, error));
            assert_eq!(done, Err(Misuse::UnknownRequest));
            let done = host.verb(|server, now| server.respond(now, request, payload(&json!({}))));
            assert_eq!(done, Err(Misuse::UnknownRequest));
            let reply = host.reply(&id);
            assert_eq!(reply.get("error").is_some(), first_fails);
            assert_eq!(reply.get("result").is_some(), !first_fails);
        }
        host
    });
}

/// S-RPC-12, S-RPC-13: an error has a code, a message, and optional data of any type.
#[test]
fn an_error_says_what_it_was_given() {
    every_version(|version| {
        let mut host = Host::new(config()).speaking(version);
        for data in [
            json!(null),
            json!(1.5),
            json!("x"),
            json!([1]),
            json!({"a": 1}),
            json!(false),
        ] {
            let (id, request) = host.tool("add");
            let mut error = ErrorObject::new(-5, "it\n\"failed\"");
            error.data = Some(payload(&data));
            host.verb(|server, now| server.fail(now, request, error))
                .expect("an answer");
            assert_eq!(
                host.error(&id),
                json!({"code": -5, "message": "it\n\"failed\"", "data": data})
            );
        }
        let (id, request) = host.tool("add");
        host.fail(request, i64::MAX, "no");
        assert_eq!(
            host.error(&id),
            json!({"code": i64::MAX, "message": "no"}),
            "no data is none"
        );
        host
    });
}

/// S-RPC-18, S-META-06: every modern result names its type and its server, including empty results and results of the server
/// itself. No legacy result does.
#[test]
fn every_modern_result_says_its_kind_and_its_server() {
    every_version(|version| {
        let mut host = Host::new(config()).speaking(version);
        let before = host.heard().len();
        for (method, params, result) in cacheable().into_iter().chain(others()) {
            host.served(method, params.clone(), result);
            host.served(method, params, json!({}));
        }
        host.call("server/discover", Value::Null);
        let (first, request) = host.tool("add");
        host.ask(request, "roots/list", Value::Null);
        let listen = host.call("subscriptions/listen", json!({"notifications": {}}));
        if is_modern(version) {
            assert_eq!(host.result(&first)["resultType"], "input_required");
        }
        host.shutdown();
        if is_modern(version) {
            assert_eq!(
                host.result(&listen)["resultType"],
                "complete",
                "a watch that ends"
            );
        }
        let results: Vec<_> = host.heard()[before..]
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
        host
    });
}

/// S-META-06: the server's name can be switched off, and the application's own value is kept.
#[test]
fn the_server_need_not_name_itself() {
    let mut shy = config();
    shy.names_itself = false;
    let mut host = Host::modern(shy);
    let told = host.served("tools/list", Value::Null, json!({"tools": []}));
    assert_eq!(told.get("_meta"), None);
    let id = host.call("server/discover", Value::Null);
    assert_eq!(host.result(&id)["_meta"].get(meta::SERVER_INFO), None);
    host.finish();

    let mut host = Host::modern(config());
    let own = json!({"content": [], "_meta": {"com.example/x": 1, meta::SERVER_INFO: {"name": "behind", "version": "0"}}});
    let told = host.served("tools/call", json!({"name": "add"}), own.clone());
    assert_eq!(told["_meta"], own["_meta"]);
    let mixed = json!({"content": [], "_meta": {"com.example/x": 1}});
    let told = host.served("tools/call", json!({"name": "add"}), mixed);
    assert_eq!(told["_meta"]["com.example/x"], 1);
    assert_eq!(told["_meta"][meta::SERVER_INFO]["name"], "host");
    host.finish();
}

/// S-CACHE-01: complete cacheable results have a lifetime and a scope. Other results and all legacy results have neither.
#[test]
fn what_can_be_held_says_for_how_long_and_for_whom() {
    every_version(|version| {
        let mut config = config();
        config.cache = Cache::new(Duration::from_millis(2_500), true);
        let mut host = Host::new(config).speaking(version);
        for (method, params, result) in cacheable() {
            let told = host.served(method, params, result.clone());
            if is_modern(version) {
                assert_eq!(told["ttlMs"], 2_500, "{method}");
                assert_eq!(told["cacheScope"], "public", "{method}");
            } else {
                assert_eq!(told, result, "{method}");
            }
        }
        for (method, params, result) in others() {
            let told = host.served(method, params, result);
            assert_eq!(told.get("ttlMs"), None, "{method}");
            assert_eq!(told.get("cacheScope"), None, "{method}");
        }
        let id = host.call("server/discover", Value::Null);
        if is_modern(version) {
            assert_eq!(host.result(&id)["ttlMs"], 2_500);
            assert_eq!(host.result(&id)["cacheScope"], "public");
        }
        host
    });
}

/// S-CACHE-01: by default the lifetime is 0 and the scope is private. Values of the application are kept.
#[test]
fn what_the_application_says_of_freshness_is_left() {
    let mut host = Host::modern(config());
    for (method, params, mut result) in cacheable() {
        let told = host.served(method, params.clone(), result.clone());
        assert_eq!(
            (&told["ttlMs"], &told["cacheScope"]),
            (&json!(0), &json!("private")),
            "{method}"
        );
        result["ttlMs"] = json!(7);
        let told = host.served(method, params.clone(), result.clone());
        assert_eq!(
            (&told["ttlMs"], &told["cacheScope"]),
            (&json!(7), &json!("private")),
            "{method}"
        );
        result["cacheScope"] = json!("public");
        let told = host.served(method, params, result);
        assert_eq!(
            (&told["ttlMs"], &told["cacheScope"]),
            (&json!(7), &json!("public")),
            "{method}"
        );
    }
    host.finish();
}

/// S-CACHE-01: even the longest lifetime is written as an integer.
#[test]
fn a_very_long_time_is_an_integer() {
    let mut config = config();
    config.cache = Cache::new(Duration::MAX, false);
    let mut host = Host::modern(config);
    let told = host.served("tools/list", Value::Null, json!({"tools": []}));
    assert!(told["ttlMs"].is_u64(), "{told}");
    host.finish();
}

/// S-CACHE-02: a result that asks for input has no cache lifetime.
#[test]
fn a_result_that_wants_input_is_not_to_be_held() {
    let mut config = config();
    config.cache = Cache::new(Duration::from_secs(1), true);
    let mut host = Host::modern(config);
    let stateless = host.call("resources/read", json!({"uri": "file:///a"}));
    let request = host.newest();
    let input = InputRequired::new()
        .and_ask("where", "roots/list", None)
        .with_state("s");
    host.verb(|server, now| server.require_input(now, request, input))
        .expect("it may be asked");
    let stateful = host.call("resources/read", json!({"uri": "file:///a"}));
    let request = host.newest();
    host.ask(request, "roots/list", Value::Null);
    for id in [stateless, stateful] {
        let told = host.result(&id);
        assert_eq!(told["resultType"], "input_required");
        assert_eq!(told.get("ttlMs"), None);
        assert_eq!(told.get("cacheScope"), None);
    }
    host.finish();
}

/// S-ERR-01: unknown methods and names of notifications are refused.
#[test]
fn a_method_that_there_is_not_is_refused() {
    every_version(|version| {
        let mut host = Host::new(config()).speaking(version);
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
            let id = host.call(method, json!({"requestId": 1}));
            assert_eq!(host.code(&id), -32601, "{version}: {method:?}");
        }
        assert_eq!(host.requests().len(), 0);
        host
    });
}

/// S-ERR-01: an application may receive methods that the protocol does not know.
#[test]
fn an_application_may_have_methods_of_its_own() {
    every_version(|version| {
        let mut config = config();
        config.unknown_methods = UnknownMethods::Delivered;
        let mut host = Host::new(config).speaking(version);
        let told = host.served("com.example/sum", json!({"a": 1}), json!({"sum": 2}));
        assert_eq!(told["sum"], 2);
        assert_eq!(host.requests()[0].method, "com.example/sum");
        host
    });
}

/// S-ERR-10: methods of a capability that is not offered are not found, also for modern clients. A missing capability of the
/// client has another code.
#[test]
fn a_capability_that_is_not_offered_has_no_methods() {
    let only_tools = offering(ServerCapabilities::default().with_tools(false));
    let mut host = Host::modern(only_tools).declaring(json!({}));
    for (method, params, _) in cacheable().into_iter().chain(others()) {
        let is_offered = method.starts_with("tools/");
        let id = host.call(method, params);
        if is_offered {
            assert_eq!(host.replies(&id).len(), 0, "{method}");
        } else {
            assert_eq!(host.code(&id), -32601, "{method}");
        }
    }
    let (id, request) = host.tool("add");
    let error = everlink::server::missing_capability(everlink::protocol::ClientFeature::Roots);
    host.verb(|server, now| server.fail(now, request, error))
        .expect("an answer");
    assert_eq!(host.code(&id), -32021);
    host.finish();
}

/// S-ERR-02, S-ERR-05, S-ERR-06: a modern server does not send a reserved code, even if the application uses it. A legacy client
/// gets the codes of its version.
#[test]
fn reserved_codes_are_not_used() {
    every_version(|version| {
        let mut host = Host::new(config()).speaking(version);
        for code in -32_099..=-32_000 {
            let (id, request) = host.tool("add");
            host.fail(request, code, "no");
            let told = host.code(&id);
            match code {
                // Only 2025-11-25 has this code (S-ERR-13).
                -32_042 => assert_eq!(told == code, version == Version::V2025_11_25, "{version}"),
                // To a legacy client these codes would prove a modern server (S-VER-09).
                -32_022..=-32_020 => assert_eq!(told == code, is_modern(version), "{version}"),
                _ if !is_modern(version) => assert_eq!(told, code, "{version}"),
                -32_002 => assert_eq!(told, -32_602, "a resource that there is not (S-ERR-11)"),
                -32_099..=-32_020 => {
                    assert!(!(-32_099..=-32_020).contains(&told), "{code} became {told}");
                }
                _ => assert!(
                    told == code || !(-32_099..=-32_000).contains(&told),
                    "{code} became {told}"
                ),
            }
        }
        host
    });
}

/// S-ERR-11, S-ERR-12: a missing resource has the code of the version.
#[test]
fn a_resource_that_there_is_not_has_the_code_of_the_version() {
    every_version(|version| {
        let mut host = Host::new(config()).speaking(version);
        let id = host.call("resources/read", json!({"uri": "file:///none"}));
        let mut error = ErrorObject::new(-32_002, "there is no such resource");
        error.data = Some(payload(&json!({"uri": "file:///none"})));
        let request = host.newest();
        host.verb(|server, now| server.fail(now, request, error))
            .expect("an answer");
        let expected = if is_modern(version) { -32_602 } else { -32_002 };
        assert_eq!(host.code(&id), expected, "{version}");
        assert_eq!(host.error(&id)["data"]["uri"], "file:///none");
        host
    });
}

/// S-ERR-13: in 2025-11-25 an error may ask for a URL elicitation first, with all its data.
#[test]
fn an_error_may_send_the_user_elsewhere() {
    let mut host = Host::legacy(config(), "2025-11-25");
    let (id, request) = host.tool("add");
    let data = json!({"elicitations": [{"mode": "url", "message": "?", "url": "https://example.com/", "elicitationId": "1"}]});
    let mut error = ErrorObject::new(-32_042, "go there first");
    error.data = Some(payload(&data));
    host.verb(|server, now| server.fail(now, request, error))
        .expect("an answer");
    assert_eq!(
        host.error(&id),
        json!({"code": -32_042, "message": "go there first", "data": data})
    );
    host.finish();
}

/// S-ERR-03, S-ERR-05: every refusal by the server itself has a code that the specification defines.
#[test]
fn the_servers_own_codes_are_defined() {
    const DEFINED: [i64; 8] = [
        -32_700, -32_600, -32_601, -32_602, -32_603, -32_020, -32_021, -32_022,
    ];
    every_version(|version| {
        let mut config = config();
        config.limits.requests = 2;
        config.limits.message_bytes = 2_000;
        config.limits.listens = 1;
        config.limits.watched_uris = 1;
        let mut host = Host::new(config).speaking(version);
        // Too many, too long, unknown, malformed, of an unknown version, too much to watch, too late.
        let watch =
            json!({"notifications": {"resourceSubscriptions": ["a:1", "a:2"]}, "uri": "a:1"});
        host.call("subscriptions/listen", watch);
        host.call("subscriptions/listen", json!({"notifications": {}}));
        host.call("subscriptions/listen", json!({"notifications": {}}));
        host.call("subscriptions/listen", json!({"notifications": 7}));
        host.call("resources/subscribe", json!({"uri": "a:1"}));
        host.call("resources/subscribe", json!({"uri": "a:2"}));
        host.call("resources/subscribe", json!({"uri": 7}));
        host.call("tools/call", json!({"name": "x".repeat(3_000)}));
        host.call("no/such", Value::Null);
        host.line("{");
        host.line("[]");
        host.call(
            "tools/call",
            json!({"_meta": {meta::PROTOCOL_VERSION: "1999-01-01"}}),
        );
        host.call("tools/call", json!({"_meta": {meta::LOG_LEVEL: "loud"}}));
        host.call("tools/call", json!({"_meta": {"progressToken": {}}}));
        host.call(
            "tools/call",
            json!({"name": "add", "requestState": 7, "inputResponses": 7}),
        );
        host.call(
            "tools/call",
            json!({"name": "add", "requestState": "everlink.9.9.ff", "inputResponses": {}}),
        );
        for _ in 0..4 {
            host.call("tools/call", json!({"name": "add"}));
        }
        host.shutdown();
        host.call("tools/call", json!({"name": "add"}));
        host.pass(seconds(60));
        let mut errors = 0;
        for error in host
            .heard()
            .iter()
            .filter_map(|message| message.get("error"))
        {
            let code = error["code"].as_i64().expect("an integer");
            assert!(DEFINED.contains(&code), "{version}: {error}");
            let text = error["message"].as_str().expect("a text");
            assert!(
                !text.is_empty() && !text.contains('\n'),
                "{text:?} (S-RPC-14)"
            );
            errors += 1;
        }
        assert!(errors >= 9, "{version}: {errors}");
        host
    });
}

/// S-ERR-01, S-ERR-03: a request over the limit is refused with the code for internal errors. A finished request makes room.
#[test]
fn one_request_too_many_is_refused() {
    every_era(|chunking, version| {
        let mut config = config();
        config.limits.requests = 2;
        let mut host = Host::new(config).chunked(chunking).speaking(version);
        let (_, first) = host.tool("first");
        let (_, _second) = host.tool("second");
        let third = host.call("tools/call", json!({"name": "third"}));
        assert_eq!(host.code(&third), -32_603);
        assert_eq!(host.requests().len(), 2);
        host.respond(first, json!({"content": []}));
        let (_, fourth) = host.tool("fourth");
        assert_eq!(host.requests().len(), 3, "{fourth}");
        host
    });
}

/// S-ERR-09: the outcome of an ask distinguishes errors of the client from errors of the server end.
#[test]
fn local_errors_are_not_those_of_the_client() {
    let mut config = config();
    config.ask_timeout = seconds(10);
    let mut host = Host::new(config).speaking(Version::V2025_11_25);
    let (_, request) = host.tool("add");
    let refused = host.ask(request, "roots/list", Value::Null);
    let ignored = host.ask(request, "roots/list", Value::Null);
    let withdrawn = host.ask(request, "roots/list", Value::Null);
    let asked = host.said("roots/list")[0]["id"].clone();
    // The same text that other implementations use for a timeout.
    let error =
        json!({"code": -32_001, "message": "the client did not answer in time", "data": [1]});
    host.say(json!({"jsonrpc": "2.0", "id": asked, "error": error}));
    host.verb(|server, now| server.withdraw(now, withdrawn, None))
        .expect("it is open");
    host.pass(seconds(10));
    let mut said = ErrorObject::new(-32_001, "the client did not answer in time");
    said.data = Some(payload(&json!([1])));
    assert_eq!(host.outcome(refused), Some(Err(Unanswered::Error(said))));
    assert_eq!(host.outcome(ignored), Some(Err(Unanswered::TimedOut)));
    assert_eq!(host.outcome(withdrawn), Some(Err(Unanswered::Withdrawn)));
    let over = host.ask(request, "roots/list", Value::Null);
    host.respond(request, json!({"content": []}));
    assert_eq!(host.outcome(over), Some(Err(Unanswered::RequestOver)));
    let gone = host.try_ask_unbidden("roots/list", Value::Null);
    let gone = gone.expect("it may be asked");
    host.write_fails(&[]);
    assert_eq!(host.outcome(gone), Some(Err(Unanswered::PeerGone)));
    host.finish();
}

/// S-RPC-26, S-CAP-06: while a request runs, its client gets progress and log messages; after the reply it gets none.
#[test]
fn a_request_is_accompanied_until_it_is_answered() {
    every_era(|chunking, version| {
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        let terms = json!({"progressToken": "p", meta::LOG_LEVEL: "info"});
        let id = host.call("tools/call", json!({"name": "add", "_meta": terms}));
        let request = host.newest();
        assert!(host.requests()[0].wants_progress);
        let before = host.heard().len();
        host.progress(request, 1.0);
        log(&mut host, request, LogLevel::Warning).expect("it runs");
        host.progress(request, 2.0);
        host.respond(request, json!({"content": []}));
        let told: Vec<String> = host.heard()[before..]
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
        assert_eq!(told, expected);
        let progress = everlink::server::Progress::new(3.0);
        let late = host.verb(|server, now| server.progress(now, request, progress));
        assert_eq!(late, Err(Misuse::UnknownRequest));
        assert_eq!(
            log(&mut host, request, LogLevel::Warning),
            Err(Misuse::UnknownRequest)
        );
        assert_eq!(host.heard().len(), before + 4);
        host.result(&id);
        host
    });
}

fn log(host: &mut Host, request: everlink::RequestId, level: LogLevel) -> Result<(), Misuse> {
    let data = payload(&json!({"text": "hello"}));
    host.verb(|server, now| server.log(now, Some(request), level, None, data))
}

/// S-CAP-05, S-CAP-06: a modern request without a level gets no log messages; one with a level gets those from it up.
#[test]
fn a_modern_request_hears_logs_from_its_level_on() {
    let mut host = Host::modern(config());
    let (_, quiet) = host.tool("add");
    for level in LogLevel::ALL {
        log(&mut host, quiet, *level).expect("it is only not sent");
    }
    assert_eq!(host.heard(), NOTHING);
    for (at, wanted) in LogLevel::ALL.iter().enumerate() {
        let terms = json!({meta::LOG_LEVEL: wanted.as_str()});
        host.call("tools/call", json!({"name": "add", "_meta": terms}));
        assert_eq!(
            host.requests().pop().expect("a request").log_level,
            Some(*wanted)
        );
        let request = host.newest();
        for (level, named) in LogLevel::ALL.iter().enumerate() {
            let before = host.heard().len();
            log(&mut host, request, *named).expect("it runs");
            assert_eq!(
                host.heard().len() - before,
                usize::from(level >= at),
                "{named} for {wanted}"
            );
            // The other request still gets nothing.
            log(&mut host, quiet, *named).expect("it is only not sent");
            assert_eq!(host.heard().len() - before, usize::from(level >= at));
        }
        host.respond(request, json!({"content": []}));
    }
    host.finish();
}

/// S-CAP-05, S-CAP-07: a watch gets no log messages, and neither does a modern client without a request that asks for them.
#[test]
fn a_watch_hears_no_logs() {
    let mut host = Host::modern(config());
    let everything =
        json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true});
    let terms = json!({meta::LOG_LEVEL: "debug"});
    host.call(
        "subscriptions/listen",
        json!({"notifications": everything, "_meta": terms}),
    );
    let before = host.heard().len();
    let data = payload(&json!("text"));
    let logged = host.verb(|server, now| server.log(now, None, LogLevel::Emergency, None, data));
    logged.expect("it is offered");
    let (_, quiet) = host.tool("add");
    log(&mut host, quiet, LogLevel::Emergency).expect("it is offered");
    assert_eq!(host.heard().len(), before);
    host.finish();
}

/// S-CAP-08: an unknown level is refused with the code for invalid parameters.
#[test]
fn a_level_that_there_is_not_is_refused() {
    for level in [
        json!("loud"),
        json!("INFO"),
        json!(""),
        json!(3),
        json!(null),
        json!({}),
    ] {
        for method in ["tools/call", "server/discover", "subscriptions/listen"] {
            let mut host = Host::modern(config());
            let terms = json!({meta::LOG_LEVEL: level});
            let id = host.call(
                method,
                json!({"name": "add", "notifications": {}, "_meta": terms}),
            );
            assert_eq!(host.code(&id), -32_602, "{method}: {level}");
            assert_eq!(host.requests().len(), 0);
            host.finish();
        }
    }
}

/// S-RPC-23, S-STDIO-10: a modern client never gets a request. It gets an ask only in place of a reply.
#[test]
fn a_modern_client_is_never_sent_a_request() {
    every_chunking(|chunking| {
        let mut host = Host::modern(config()).chunked(chunking);
        let unbidden = host.try_ask_unbidden("roots/list", Value::Null);
        assert_eq!(unbidden, Err(Misuse::NoLegacyPeer));
        let (id, request) = host.tool("add");
        host.ask(request, "roots/list", Value::Null);
        assert_eq!(host.result(&id)["resultType"], "input_required");
        let ping = host.verb(|server, now| server.notify(now, "ping", None));
        assert!(ping.is_err(), "{ping:?}");
        host.pass(seconds(3_600));
        // The same holds beside a legacy client, which did not make the request.
        let mut host = host.speaking(Version::V2025_11_25);
        let id = host.modern_call("tools/call", json!({"name": "add"}));
        let request = host.newest();
        host.ask(request, "roots/list", Value::Null);
        assert_eq!(host.result(&id)["resultType"], "input_required");
        for message in host.heard() {
            assert!(
                message.get("method").is_none() || message.get("id").is_none(),
                "{message}"
            );
        }
        host
    });
}

/// S-STDIO-14: after a cancellation no message about the request is sent, and the application stops.
#[test]
fn a_cancelled_request_is_heard_of_no_more() {
    every_era(|chunking, version| {
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        let terms = json!({"progressToken": 7, meta::LOG_LEVEL: "debug"});
        let id = host.call("tools/call", json!({"name": "add", "_meta": terms}));
        let request = host.newest();
        host.progress(request, 1.0);
        let before = host.heard().len();
        host.notify(
            "notifications/cancelled",
            json!({"requestId": id, "reason": "enough"}),
        );
        let why = host.picked(|event| match event {
            Event::Cancelled { request: of, why } if *of == request => Some(why.clone()),
            _ => None,
        });
        let reason = Some("enough".into());
        assert_eq!(why, [Cancelled::ByPeer { reason, meta: None }]);
        let progress = everlink::server::Progress::new(2.0);
        let told = host.verb(|server, now| server.progress(now, request, progress));
        assert_eq!(told, Err(Misuse::UnknownRequest));
        assert_eq!(
            log(&mut host, request, LogLevel::Error),
            Err(Misuse::UnknownRequest)
        );
        let answer = payload(&json!({"content": []}));
        let told = host.verb(|server, now| server.respond(now, request, answer));
        assert_eq!(told, Err(Misuse::UnknownRequest));
        let told = host.verb(|server, now| server.fail(now, request, ErrorObject::new(1, "no")));
        assert_eq!(told, Err(Misuse::UnknownRequest));
        assert!(host.try_ask(request, "roots/list", Value::Null).is_err());
        host.pass(seconds(3_600));
        assert_eq!(host.heard()[before..], NOTHING);
        host
    });
}

/// S-STDIO-14: queued messages about a cancelled request are not sent, either.
#[test]
fn a_cancelled_request_is_heard_of_no_more_even_if_its_answer_waited() {
    let mut config = config();
    config.limits.write_window = 100;
    let mut host = Host::modern(config);
    let (_, first) = host.tool("first");
    let terms = json!({"progressToken": 7, meta::LOG_LEVEL: "debug"});
    let id = host.call("tools/call", json!({"name": "second", "_meta": terms}));
    let second = host.newest();
    host.stops_reading();
    host.respond(first, json!({"content": ["x".repeat(200)]}));
    let before = host.heard().len();
    host.progress(second, 1.0);
    log(&mut host, second, LogLevel::Error).expect("it runs");
    host.respond(second, json!({"content": []}));
    assert_eq!(host.heard().len(), before, "the pipe is full");
    host.cancel(&id);
    host.reads_again();
    assert_eq!(host.replies(&id).len(), 0);
    assert_eq!(host.said("notifications/progress").len(), 0);
    assert_eq!(host.said("notifications/message").len(), 0);
    host.finish();
}

/// S-STDIO-17: without open requests, the server closes at once when its input ends.
#[test]
fn the_end_of_input_is_the_end() {
    every_era(|chunking, version| {
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        host.served("tools/list", Value::Null, json!({"tools": []}));
        host.eof();
        assert_eq!(host.server.state(), State::Closed);
        host
    });
}

/// S-STDIO-17: after the end of the input, open requests have 5 s. The server closes as soon as none is left.
#[test]
fn the_end_of_input_leaves_a_while_for_what_is_in_flight() {
    every_era(|chunking, version| {
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        let (quick, first) = host.tool("quick");
        let (slow, second) = host.tool("slow");
        host.eof();
        assert_eq!(host.server.state(), State::Draining);
        host.pass(seconds(1));
        host.respond(first, json!({"content": []}));
        host.result(&quick);
        host.pass(seconds(3));
        assert_eq!(host.server.state(), State::Draining);
        host.pass(seconds(1));
        assert_eq!(host.server.state(), State::Closed, "five seconds are over");
        assert_eq!(host.cancellations(), [second]);
        host.error(&slow);
        host
    });
}

/// S-STDIO-18: a server may end by itself: it refuses new requests, answers open ones, and releases the stream.
#[test]
fn a_server_may_end_by_itself() {
    every_era(|chunking, version| {
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        let (id, request) = host.tool("add");
        host.shutdown();
        assert_eq!(host.server.state(), State::Draining);
        let late = host.call("tools/list", Value::Null);
        host.error(&late);
        host.respond(request, json!({"content": []}));
        host.result(&id);
        assert_eq!(
            host.server.state(),
            State::Closed,
            "without an end of input"
        );
        host
    });
}

/// S-RPC-09: an oversized reply is refused, and the request stays open.
#[test]
fn an_answer_that_is_too_large_is_refused() {
    every_version(|version| {
        let mut config: Config = config();
        config.limits.message_bytes = 1_000;
        let mut host = Host::new(config).speaking(version);
        let (id, request) = host.tool("add");
        let long = "x".repeat(2_000);
        let large: Payload = payload(&json!({"content": [long]}));
        let done = host.verb(|server, now| server.respond(now, request, large));
        assert!(matches!(done, Err(Misuse::TooLarge { .. })), "{done:?}");
        let done = host.verb(|server, now| server.fail(now, request, ErrorObject::new(1, long)));
        assert!(matches!(done, Err(Misuse::TooLarge { .. })), "{done:?}");
        host.respond(request, json!({"content": []}));
        host.result(&id);
        host
    });
}
