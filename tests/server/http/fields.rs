//! Header fields of a modern request: they must agree with the message, and a request with other values is refused.

use crate::server_http::{Harness, HttpRequest, config, full_offer, initialize, modern, post};
use everlink::protocol::{ServerFeature, Version, Versions};
use everlink::server::Config;
use serde_json::{Value, json};

const MISMATCH: (u16, i64) = (400, -32020);
const VERSION: &str = "mcp-protocol-version";

fn call(name: &str) -> HttpRequest {
    modern(7, "tools/call", json!({"name": name}))
}

/// A call with this `_meta`, and a header field with this version.
fn call_with_version(field: &str, meta: &Value) -> HttpRequest {
    let message = json!({
        "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "add", "_meta": meta},
    });
    post(&message)
        .with(VERSION, field)
        .with("mcp-method", "tools/call")
        .with("mcp-name", "add")
}

/// The required `_meta` of a modern request.
fn required_meta(version: &str) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

fn modern_only() -> Config {
    let mut config = config();
    config.versions = Versions::MODERN;
    config
}

#[test]
fn s_http_27_version_field_must_match_the_message() {
    for config in [config(), modern_only()] {
        let mut harness = Harness::new(config);
        for (field, meta) in [
            ("2025-11-25", "2026-07-28"),
            ("2026-07-28", "2025-11-25"),
            ("2026-07-28", "2099-01-01"),
            ("2099-01-01", "2026-07-28"),
            ("2026-07-28", "2026-07-28 "),
        ] {
            let refused = harness.send_refused(call_with_version(field, &required_meta(meta)));
            assert_eq!(refused, MISMATCH, "{field} and {meta}");
        }
        let twice = call("add").append(VERSION, "2026-07-28");
        assert_eq!(harness.send_refused(twice), MISMATCH);
        harness.send_accepted(call_with_version(
            "2026-07-28",
            &required_meta("2026-07-28"),
        ));
        harness.finish();
    }
}

#[test]
fn s_http_28_unsupported_version_error_lists_supported_versions() {
    for config in [config(), modern_only()] {
        let versions = config.versions;
        let mut harness = Harness::new(config);
        for wanted in ["2099-01-01", "2026-07-29", "latest"] {
            let sent = harness.send(call_with_version(wanted, &required_meta(wanted)));
            assert_eq!(harness.status(sent), 400, "{wanted}");
            let error = harness.json(sent)["error"].clone();
            assert_eq!(error["code"], -32022, "{wanted}");
            assert_eq!(error["data"]["requested"], wanted);
            let supported: Vec<&str> = versions.iter().map(Version::as_str).collect();
            let listed: Vec<&str> = error["data"]["supported"]
                .as_array()
                .expect("a list")
                .iter()
                .map(|version| version.as_str().expect("a string"))
                .collect();
            assert!(listed.iter().all(|version| supported.contains(version)));
            assert!(listed.contains(&"2026-07-28"));
        }
        harness.finish();
    }
}

#[test]
fn s_http_29_unknown_method_gets_404() {
    let mut harness = Harness::new(config());
    for method in [
        "no/such",
        "initialize",
        "ping",
        "logging/setLevel",
        "tasks/result",
    ] {
        let sent = harness.send(modern(7, method, json!({})));
        assert_eq!(
            (harness.status(sent), harness.code(sent)),
            (404, -32601),
            "{method}"
        );
        assert_eq!(harness.json(sent)["id"], 7);
    }
    harness.finish();
}

#[test]
fn s_http_31_modern_server_refuses_a_request_without_version_field() {
    let mut harness = Harness::new(modern_only());
    for http_request in [
        call("add").without(VERSION),
        post(&json!({"jsonrpc": "2.0", "id": 7, "method": "tools/list"})),
        post(&json!({"jsonrpc": "2.0", "id": 7, "method": "tools/list"}))
            .with("mcp-session-id", "1"),
    ] {
        assert_eq!(harness.send_refused(http_request), MISMATCH);
    }
    harness.finish();
    // `initialize` has no version field.
    let mut harness = Harness::new(config());
    let begun = harness.send(initialize("2025-11-25"));
    assert_eq!(harness.status(begun), 200);
    harness.finish();
}

/// S-HTTP-31: only clients before 2025-06-18 may leave out the field. If the server does not support them, the field is
/// required.
#[test]
fn s_http_31_version_field_is_required_if_older_versions_are_not_supported() {
    let mut recent = config();
    recent.versions = Versions::since(Version::V2025_06_18);
    let mut harness = Harness::new(recent);
    let begun = harness.send(initialize("2025-11-25"));
    assert_eq!(
        harness.status(begun),
        200,
        "a handshake needs no version field"
    );
    let bare = post(&json!({"jsonrpc": "2.0", "id": 7, "method": "tools/list"}));
    assert_eq!(harness.send_refused(bare), MISMATCH);
    harness.finish();
}

/// S-HTTP-32: of two errors, the earlier check is reported.
#[test]
fn s_http_32_first_failed_check_is_reported() {
    let mut offer = full_offer();
    offer.capabilities = offer.capabilities.with(ServerFeature::TasksExtension);
    let mut tasks = config();
    tasks.offer = Some(offer);
    tasks.versions = Versions::MODERN;
    let mut harness = Harness::new(tasks);
    let missing = json!({"io.modelcontextprotocol/protocolVersion": "2099-01-01"});
    let task_request = |method| modern(7, method, json!({"taskId": "t"}));
    for (what, http_request, refused) in [
        (
            "no field and no terms",
            call_with_version("x", &json!({})).without(VERSION),
            (400, -32020),
        ),
        (
            "no capabilities and another version",
            call_with_version("2026-07-28", &missing),
            (400, -32602),
        ),
        (
            "another version and an unknown one",
            call_with_version("2026-07-28", &required_meta("2099-01-01")),
            (400, -32020),
        ),
        (
            "an unknown version and another method",
            call_with_version("2099-01-01", &required_meta("2099-01-01")).with("mcp-method", "no"),
            (400, -32022),
        ),
        (
            "another method and an unknown one",
            modern(7, "no/such", json!({})).with("mcp-method", "no"),
            (400, -32020),
        ),
        (
            "another name and a lack",
            task_request("tasks/get").with("mcp-name", "u"),
            (400, -32020),
        ),
        (
            "an unknown method and a lack",
            task_request("tasks/list").with("mcp-name", "t"),
            (404, -32601),
        ),
        (
            "a lack",
            task_request("tasks/get").with("mcp-name", "t"),
            (400, -32021),
        ),
    ] {
        assert_eq!(harness.send_refused(http_request), refused, "{what}");
    }
    harness.finish();
}

#[test]
fn s_http_33_every_error_has_the_id_of_its_request() {
    let mut harness = Harness::new(config());
    for id in [
        json!(0),
        json!(-1),
        json!("a"),
        json!(""),
        json!(9_007_199_254_740_993_i64),
    ] {
        let call = || modern(id.clone(), "tools/call", json!({"name": "add"}));
        let http_requests = [
            call().without(VERSION),
            call().with(VERSION, "2025-11-25"),
            call().without("mcp-method"),
            call().with("mcp-name", "sub"),
            modern(id.clone(), "no/such", json!({})),
            modern(id.clone(), "subscriptions/listen", json!({})),
            modern(id.clone(), "subscriptions/listen", json!({}))
                .with("accept", "application/json"),
            post(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": 7})),
            post(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call"})),
        ];
        for http_request in http_requests {
            let shown = http_request.to_string();
            let sent = harness.send(http_request);
            assert!(harness.status(sent) >= 400, "{shown}");
            assert_eq!(harness.json(sent)["id"], id, "{shown}");
        }
    }
    harness.finish();
}

/// S-HTTP-34: an invalid request gets an HTTP error status, even if the client accepts only event streams.
#[test]
fn s_http_34_invalid_request_gets_an_error_status_before_a_stream_begins() {
    let mut harness = Harness::new(config());
    for (http_request, status) in [
        (call("add").with("mcp-method", "no"), 400),
        (
            call_with_version("2099-01-01", &required_meta("2099-01-01")),
            400,
        ),
        (call_with_version("2026-07-28", &json!({})), 400),
        (modern(7, "no/such", json!({})), 404),
    ] {
        let shown = http_request.to_string();
        let refused = harness.send_refused(http_request.with("accept", "text/event-stream"));
        assert_eq!(refused.0, status, "{shown}");
    }
    harness.finish();
}

/// S-HTTP-34: an error of the application comes with status 200. After the start of a stream no other status is possible.
#[test]
fn s_http_34_application_errors_come_with_status_200() {
    let mut harness = Harness::new(config());
    for code in [-32602, -32603, 1] {
        let (sent, request) = harness.send_accepted(call("add"));
        harness.fail(request, code, "no");
        assert_eq!((harness.status(sent), harness.code(sent)), (200, code));
    }
    let params = json!({"name": "add", "_meta": {"progressToken": 1}});
    let (sent, request) = harness.send_accepted(modern(7, "tools/call", params));
    harness.progress(request, 1.0);
    harness.fail(request, -32601, "no");
    assert_eq!(harness.status(sent), 200);
    assert_eq!(harness.reply(sent)["error"]["code"], -32601);
    assert!(harness.is_over(sent));
    harness.finish();
}

#[test]
fn s_hdr_06_text_that_only_resembles_base64_markers_is_not_decoded() {
    let mut harness = Harness::new(config());
    for name in [
        "=?BASE64?YWRk?=",
        "=?base64?YWRk",
        "x=?base64?YWRk?=",
        "=?Base64?YWRk?=",
    ] {
        harness.send_accepted(call(name));
        assert_eq!(
            harness.send_refused(call("add").with("mcp-name", name)),
            MISMATCH,
            "{name}"
        );
    }
    harness.finish();
}

#[test]
fn s_hdr_07_base64_field_value_is_decoded_before_comparison() {
    let mut harness = Harness::new(config());
    for (name, field) in [
        ("add", "=?base64?YWRk?="),
        ("añadir", "=?base64?YcOxYWRpcg==?="),
        (" a", "=?base64?IGE=?="),
        ("", "=?base64??="),
        ("=?base64?YQ==?=", "=?base64?PT9iYXNlNjQ/WVE9PT89?="),
    ] {
        harness.send_accepted(call(name).with("mcp-name", field));
        assert_eq!(
            harness.send_refused(call("other").with("mcp-name", field)),
            MISMATCH,
            "{field}"
        );
    }
    let read = json!({"uri": "file:///é"});
    harness.send_accepted(
        modern(7, "resources/read", read).with("mcp-name", "=?base64?ZmlsZTovLy/DqQ==?="),
    );
    for field in [
        "=?base64?!?=",
        "=?base64?YWR?=",
        "=?base64?YW Rk?=",
        "=?base64?/w==?=",
    ] {
        assert_eq!(
            harness.send_refused(call("add").with("mcp-name", field)),
            MISMATCH,
            "{field}"
        );
    }
    harness.finish();
}

#[test]
fn s_hdr_08_field_names_are_case_insensitive_and_values_case_sensitive() {
    let mut harness = Harness::new(config());
    let uppercased = |http_request: HttpRequest| {
        let mut http_request = http_request;
        for (name, _) in &mut http_request.fields {
            *name = name.to_ascii_uppercase();
        }
        http_request
    };
    harness.send_accepted(uppercased(call("add")));
    assert_eq!(
        harness.send_refused(uppercased(call("add").with("mcp-name", "Add"))),
        MISMATCH
    );
    assert_eq!(
        harness.send_refused(call("add").with("mcp-method", "Tools/Call")),
        MISMATCH
    );
    assert_eq!(
        harness.send_refused(call("add").with("mcp-name", "ADD")),
        MISMATCH
    );
    // The name of the session field is case-insensitive; the session id is case-sensitive.
    let session = harness.open_session("2025-11-25");
    let ping = session.post(1, "ping", Value::Null);
    let pong = harness.send(uppercased(ping.clone()));
    assert_eq!(harness.status(pong), 200);
    let other = harness.send(ping.with("mcp-session-id", session.id.to_uppercase()));
    assert_eq!(harness.status(other), 404);
    harness.finish();
}

#[test]
fn s_hdr_09_missing_wrong_or_repeated_fields_are_refused() {
    let mut harness = Harness::new(config());
    let prompt = || modern(7, "prompts/get", json!({"name": "greet"}));
    let read = || modern(7, "resources/read", json!({"uri": "file:///a"}));
    for http_request in [
        call("add").without("mcp-method"),
        call("add").with("mcp-method", "tools/list"),
        call("add").append("mcp-method", "tools/call"),
        call("add").with("mcp-method", b"tools/call\xff"),
        call("add").without("mcp-name"),
        call("add").with("mcp-name", "sub"),
        call("add").with("mcp-name", ""),
        call("add").append("mcp-name", "add"),
        call("add").with("mcp-name", b"a\xffd"),
        call("add").with("mcp-name", b"a\x01d"),
        call("é").with("mcp-name", "é"),
        prompt().without("mcp-name"),
        prompt().with("mcp-name", "other"),
        read().without("mcp-name"),
        read().with("mcp-name", "file:///b"),
    ] {
        let shown = http_request.to_string();
        assert_eq!(harness.send_refused(http_request), MISMATCH, "{shown}");
    }
    // If the message names nothing, the field is ignored.
    for http_request in [
        modern(7, "tools/list", json!({})),
        modern(7, "tools/list", json!({})).with("mcp-name", "x"),
        prompt(),
        read(),
    ] {
        harness.send_accepted(http_request);
    }
    harness.finish();
}

#[test]
fn s_hdr_10_whitespace_around_field_values_is_ignored() {
    let mut harness = Harness::new(config());
    let spaced = call("add")
        .with("mcp-method", " tools/call\t")
        .with("mcp-name", "\t add ")
        .with(VERSION, " 2026-07-28 ");
    harness.send_accepted(spaced);
    harness.finish();
}

#[test]
fn s_lhttp_22_unknown_version_field_in_a_session_gets_400() {
    let mut harness = Harness::new(config());
    for version in ["2025-06-18", "2025-11-25"] {
        let session = harness.open_session(version);
        let http_requests = [
            session.post(1, "ping", Value::Null),
            session.notification("notifications/custom", Value::Null),
            session.get(),
            session.delete(),
        ];
        for unknown in ["1999-01-01", "", "latest"] {
            for http_request in &http_requests {
                let sent = harness.send(http_request.clone().with(VERSION, unknown));
                assert_eq!(harness.status(sent), 400, "{unknown}: {http_request}");
            }
        }
        let twice = harness.send(http_requests[0].clone().append(VERSION, version));
        assert_eq!(harness.status(twice), 400);
        let pong = harness.send(http_requests[0].clone());
        assert_eq!(harness.status(pong), 200, "the session is unchanged");
    }
    assert!(harness.notified().is_empty());
    harness.finish();
}

#[test]
fn trace_context_in_the_header_reaches_the_application_unless_the_message_has_one() {
    let mut harness = Harness::new(config());
    let parent =
        |span: char| format!("00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333{span}-01");
    let plain = json!({"name": "add"});
    let with_own = json!({"name": "add", "_meta": {"traceparent": parent('2')}});
    for (params, expected) in [(plain, '1'), (with_own, '2')] {
        let http_request = modern(1, "tools/call", params)
            .with("traceparent", parent('1'))
            .with("tracestate", "a=b");
        harness.send_accepted(http_request);
        let trace = harness.requests().pop().and_then(|it| it.trace.as_deref());
        let trace = trace.expect("the request has a trace context");
        assert_eq!(trace.parent(), parent(expected));
    }
    harness.finish();
}
