//! Input that a server end accepts as a message, and messages that it writes: lines, JSON-RPC, ids, batches.

use crate::server_pipe::{
    self, Chunking, Harness, NO_MESSAGES, config, every_chunking, every_era, every_version,
    is_modern, meta, notification, request, value, with_meta,
};
use everlink::internal::wire::TEXT_ID_LIMIT;
use everlink::protocol::Version;
use everlink::server::Config;
use everlink::{Change, List};
use serde_json::{Value, json};

/// Whether an error reply in this version may have no id (S-RPC-10). In the other versions a message without an id gets
/// no reply (S-RPC-11).
fn allows_error_without_id(version: Version) -> bool {
    version >= Version::V2025_11_25
}

/// Sends a line that is no message, checks that the server still serves, and returns the error replies.
#[track_caller]
fn replies_to_line(version: Version, line: &[u8]) -> Vec<Value> {
    let mut harness = Harness::new(config()).with_version(version);
    let before = harness.received().len();
    harness.send_bytes(line);
    harness.send_bytes(b"\n");
    let replies = harness.received()[before..].to_vec();
    let served = harness.call_and_respond("tools/list", Value::Null, json!({"tools": []}));
    assert_eq!(served["tools"], json!([]), "the server still serves");
    assert_eq!(harness.noise(), [1], "the line is reported once");
    harness.finish();
    replies
}

/// Checks in every version that this line gets an error reply with this code and without an id. If the version requires an
/// id, there must be no reply.
#[track_caller]
fn assert_error_without_id(line: &[u8], code: i64) {
    for version in Version::ALL {
        let errors = replies_to_line(*version, line);
        if allows_error_without_id(*version) {
            assert_eq!(errors.len(), 1, "{version}: {errors:?}");
            assert_eq!(errors[0]["error"]["code"], code, "{version}");
            assert_eq!(errors[0].get("id"), None, "the id is absent, not null");
        } else {
            assert_eq!(errors, NO_MESSAGES, "{version}");
        }
    }
}

/// Checks in every version that this invalid request with the id 77 gets an error reply with this code.
#[track_caller]
fn assert_error_with_id(line: &str, code: i64) {
    for version in Version::ALL {
        let mut harness = Harness::new(config()).with_version(*version);
        harness.send_line(line);
        assert_eq!(harness.code(&json!(77)), code, "{version}: {line}");
        harness.finish();
    }
}

/// S-RPC-01: a message is an object with `jsonrpc` "2.0".
#[test]
fn line_that_is_no_jsonrpc_2_object_gets_invalid_request() {
    assert_error_without_id(b"17", -32600);
    assert_error_without_id(br#""ping""#, -32600);
    assert_error_without_id(b"null", -32600);
    assert_error_without_id(b"{}", -32600);
    assert_error_without_id(br#"{"jsonrpc":"2.0"}"#, -32600);
    assert_error_with_id(r#"{"id":77,"method":"ping"}"#, -32600);
    assert_error_with_id(r#"{"jsonrpc":"1.0","id":77,"method":"ping"}"#, -32600);
    assert_error_with_id(r#"{"jsonrpc":2.0,"id":77,"method":"ping"}"#, -32600);
    assert_error_with_id(r#"{"jsonrpc":null,"id":77,"method":"ping"}"#, -32600);
}

/// S-RPC-02: bytes that are not UTF-8 are no message, and the next line is read.
#[test]
fn invalid_utf8_gets_a_parse_error() {
    assert_error_without_id(
        b"{\"jsonrpc\":\"2.0\",\"id\":77,\"method\":\"\xff\"}",
        -32700,
    );
    assert_error_without_id(b"\xc3(", -32700);
    assert_error_without_id(b"\xed\xa0\x80", -32700);
}

/// S-RPC-02: non-ASCII text passes unchanged, however it is cut.
#[test]
fn non_ascii_text_passes_unchanged() {
    every_era(|chunking, version| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        let name = "Grüße 世界 🌍 \u{7f}\u{2028}\\\"";
        let id = harness.call("tools/call", json!({"name": name}));
        let params = harness.requests()[0].params.clone().expect("parameters");
        assert_eq!(server_pipe::value(&params)["name"], name);
        harness.respond(harness.newest_request(), json!({"said": name}));
        assert_eq!(harness.result(&id)["said"], name);
        harness
    });
}

/// S-RPC-03, S-RPC-04: an id is a string or an integer. A request with any other id gets an error reply without an id.
#[test]
fn request_id_that_is_no_short_string_or_integer_is_refused() {
    for id in ["null", "1.5", "true", "{}", "[7]", "1e300"] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#);
        assert_error_without_id(line.as_bytes(), -32600);
    }
    let long = "x".repeat(TEXT_ID_LIMIT + 1);
    let line = format!(r#"{{"jsonrpc":"2.0","id":"{long}","method":"tools/list"}}"#);
    assert_error_without_id(line.as_bytes(), -32600);
}

/// S-RPC-07: a reply has the id of its request, with the same value and type.
#[test]
fn reply_has_the_id_of_its_request_with_value_and_type() {
    let ids = [
        json!(1),
        json!("1"),
        json!(0),
        json!(-7),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(""),
        json!("a \"quoted\" \\ line\n"),
        json!("é"),
        json!("x".repeat(TEXT_ID_LIMIT)),
    ];
    for version in [Version::LATEST_LEGACY, Version::LATEST_MODERN] {
        let mut harness = Harness::new(config()).with_version(version);
        let params = harness.versioned_params(json!({}));
        // All requests are open at once: `1` and `"1"` are different ids.
        let mut requests = Vec::new();
        for id in &ids {
            if !is_modern(version) && *id == json!(1) {
                continue; // The handshake used this id.
            }
            harness.send(request(id.clone(), "tools/list", params.clone()));
            requests.push((id.clone(), harness.newest_request()));
        }
        for (at, (_, name)) in requests.iter().enumerate().rev() {
            harness.respond(*name, json!({"tools": [], "at": at}));
        }
        for (at, (id, _)) in requests.iter().enumerate() {
            assert_eq!(harness.result(id)["at"], at, "{id}");
        }
        harness.finish();
    }
}

/// S-RPC-07: replies of the server itself, including errors, also have the exact id.
#[test]
fn replies_of_the_server_itself_have_the_exact_id() {
    let mut harness = Harness::modern(config());
    for id in [json!("7"), json!(7)] {
        let params = with_meta(Value::Null, json!({}));
        harness.send(request(id.clone(), "server/discover", params));
        assert!(harness.result(&id)["supportedVersions"].is_array());
    }
    for id in [json!("8"), json!(8)] {
        let params = with_meta(Value::Null, json!({}));
        harness.send(request(id.clone(), "no/such", params));
        assert_eq!(harness.code(&id), -32601);
    }
    harness.finish();
}

/// S-RPC-10, S-RPC-11, S-ERR-01: an unreadable line gets an error reply without an id, or none if the version requires an
/// id.
#[test]
fn unreadable_line_gets_a_parse_error_without_id_where_allowed() {
    assert_error_without_id(b"hello", -32700);
    assert_error_without_id(br#"{"jsonrpc":"2.0","id":77,"method":"pi"#, -32700);
    assert_error_without_id(br#"{"jsonrpc":"2.0","id":77,"method":"ping"} x"#, -32700);
    assert_error_without_id(br#"{"jsonrpc":"2.0","id":77,"method":"ping",}"#, -32700);
    assert_error_without_id(b"\0", -32700);
}

/// S-RPC-10, S-ERR-01: an invalid request with a readable id gets an error reply with that id, in every version.
#[test]
fn invalid_request_gets_an_error_with_its_id() {
    assert_error_with_id(r#"{"jsonrpc":"2.0","id":77}"#, -32600);
    assert_error_with_id(r#"{"jsonrpc":"2.0","id":77,"method":7}"#, -32600);
    assert_error_with_id(r#"{"jsonrpc":"2.0","id":77,"method":null}"#, -32600);
    assert_error_with_id(
        r#"{"jsonrpc":"2.0","id":77,"method":"ping","result":{}}"#,
        -32600,
    );
    assert_error_with_id(
        r#"{"jsonrpc":"2.0","id":77,"method":"ping","params":7}"#,
        -32600,
    );
    assert_error_with_id(
        r#"{"jsonrpc":"2.0","id":77,"method":"ping","params":[]}"#,
        -32600,
    );
}

/// S-RPC-10, S-ERR-01: an oversized request is refused with its id, and the rest of its line is skipped.
#[test]
fn oversized_request_gets_an_error_with_its_id() {
    every_era(|chunking, version| {
        let mut config = config();
        config.limits.message_bytes = 1_000;
        let mut harness = Harness::new(config).chunked(chunking).with_version(version);
        let long = "x".repeat(2_000);
        let id = harness.call(
            "tools/call",
            json!({"name": "add", "arguments": {"long": long}}),
        );
        assert_eq!(harness.code(&id), -32600);
        assert_eq!(harness.requests().len(), 0);
        let served = harness.call_and_respond("tools/list", Value::Null, json!({"tools": []}));
        assert_eq!(served["tools"], json!([]));
        harness
    });
}

/// S-RPC-15: notifications and replies are never answered.
#[test]
fn notifications_and_replies_are_never_answered() {
    every_era(|chunking, version| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        let before = harness.received().len();
        harness.send_lines(&[
            r#"{"jsonrpc":"2.0","method":"notifications/no/such"}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/no/such","params":{"_meta":{}}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/initialized","params":{"a":1}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":null}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":"x"}}"#,
            r#"{"jsonrpc":"2.0","method":"tools/list"}"#,
            r#"{"jsonrpc":"2.0","method":"ping"}"#,
            r#"{"jsonrpc":"2.0","method":"initialize","params":{}}"#,
            r#"{"jsonrpc":"2.0","method":"no/such"}"#,
            r#"{"jsonrpc":"2.0","id":99,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":99,"result":7}"#,
            r#"{"jsonrpc":"2.0","id":99,"error":{"code":-32601,"message":"no"}}"#,
            r#"{"jsonrpc":"2.0","id":99,"error":7}"#,
            r#"{"jsonrpc":"2.0","id":99,"result":{},"error":{"code":1,"message":""}}"#,
            r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"what?"}}"#,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}"#,
        ]);
        assert_eq!(harness.received()[before..], NO_MESSAGES);
        assert_eq!(harness.requests().len(), 0);
        harness
    });
}

/// S-RPC-15: an oversized reply is not answered either, although its id is readable.
#[test]
fn oversized_reply_is_not_answered() {
    every_era(|chunking, version| {
        let mut config = config();
        config.limits.message_bytes = 1_000;
        let mut harness = Harness::new(config).chunked(chunking).with_version(version);
        let before = harness.received().len();
        harness.send(json!({"jsonrpc": "2.0", "id": 99, "result": {"long": "x".repeat(2_000)}}));
        assert_eq!(harness.received()[before..], NO_MESSAGES);
        assert!(!harness.noise().is_empty());
        harness
    });
}

/// S-RPC-15: neither is an oversized notification, nor an oversized reply without a usable id.
#[test]
fn oversized_notification_is_not_answered() {
    every_era(|chunking, version| {
        let mut config = config();
        config.limits.message_bytes = 1_000;
        let mut harness = Harness::new(config).chunked(chunking).with_version(version);
        let before = harness.received().len();
        let long = "x".repeat(2_000);
        for message in [
            json!({"jsonrpc": "2.0", "method": "notifications/x", "params": {"long": long}}),
            json!({"jsonrpc": "2.0", "method": "tools/call", "params": {"long": long}}),
            json!({"jsonrpc": "2.0", "error": {"code": -32700, "message": long}}),
            json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32700, "message": long}}),
        ] {
            harness.send(message);
        }
        assert_eq!(harness.received()[before..], NO_MESSAGES);
        assert!(!harness.noise().is_empty());
        harness
    });
}

/// S-RPC-07: two replies with one id could not be distinguished. A request with an open id is therefore refused, and the
/// first one is served.
#[test]
fn request_with_an_open_id_is_refused() {
    every_era(|chunking, version| {
        let mut config = config();
        config.limits.message_bytes = 1_000;
        let mut harness = Harness::new(config).chunked(chunking).with_version(version);
        let (id, request) = harness.call_tool("first");
        let params = harness.versioned_params(json!({"name": "second"}));
        harness.send(server_pipe::request(id.clone(), "tools/call", params));
        assert_eq!(harness.requests().len(), 1);
        harness.respond(request, json!({"content": ["first"]}));
        let replies = harness.replies(&id);
        assert_eq!(replies.len(), 2, "the refusal and the answer");
        assert_eq!(replies[0]["error"]["code"], -32600);
        assert_eq!(replies[1]["result"]["content"], json!(["first"]));
        harness
    });
}

/// S-RPC-07: the ids of watches and of requests that wait for the offer count as open.
#[test]
fn ids_of_watches_and_waiting_requests_count_as_open() {
    let mut harness = Harness::new(Config::deferred([7; 16]));
    let params = harness.versioned_params(json!({"notifications": {"toolsListChanged": true}}));
    harness.send(server_pipe::request(5, "server/discover", params.clone()));
    harness.send(server_pipe::request(6, "server/discover", params.clone()));
    harness.send(server_pipe::request(5, "server/discover", params.clone()));
    assert_eq!(harness.code(&json!(5)), -32600);
    harness.with_server(|server, now| server.offer(now, server_pipe::full_offer()));
    assert_eq!(harness.replies(&json!(5)).len(), 2);
    assert_eq!(harness.replies(&json!(6)).len(), 1);

    harness.send(server_pipe::request(
        7,
        "subscriptions/listen",
        params.clone(),
    ));
    harness.send(server_pipe::request(7, "tools/list", params));
    assert_eq!(harness.code(&json!(7)), -32600);
    assert_eq!(harness.requests().len(), 0);
    harness.finish();
}

/// S-RPC-15: a notification with invalid parameters is not answered, either.
#[test]
fn notification_with_invalid_params_is_not_answered() {
    every_version(|version| {
        let mut harness = Harness::new(config()).with_version(version);
        let before = harness.received().len();
        for method in ["notifications/cancelled", "notifications/no/such", "ping"] {
            for params in ["[1]", "7", "null", r#""text""#] {
                harness.send_line(&format!(
                    r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#
                ));
            }
        }
        assert_eq!(harness.received()[before..], NO_MESSAGES);
        harness
    });
}

/// S-RPC-08, S-RPC-09, S-RPC-12, S-RPC-16, S-RPC-18, S-STDIO-03: every message of the server has what its schema requires.
/// The rules of every script check each line; this script contains all kinds of messages.
#[test]
fn every_kind_of_message_has_what_its_schema_requires() {
    every_version(|version| {
        let mut harness = harness_after_every_message_kind(version);
        let kinds: Vec<String> = harness.received().iter().map(checked_kind).collect();
        let mut expected = vec!["error", "notifications/message", "notifications/progress"];
        expected.extend(["notifications/tools/list_changed", "result"]);
        expected.push("notifications/resources/updated");
        expected.extend(if is_modern(version) {
            ["notifications/subscriptions/acknowledged", "input_required"]
        } else {
            ["notifications/cancelled", "roots/list"]
        });
        for kind in expected {
            assert!(
                kinds.iter().any(|seen| seen == kind),
                "{version}: there was no {kind}"
            );
        }
        harness.advance(server_pipe::seconds(1));
        harness
    });
}

/// A client of this version that has received one message of every kind.
fn harness_after_every_message_kind(version: Version) -> Harness {
    let mut harness = Harness::new(config()).with_version(version);
    harness.call("no/such", Value::Null);
    harness.call_and_respond("tools/list", Value::Null, json!({"tools": []}));
    let watch = json!({"notifications": {"toolsListChanged": true, "resourceSubscriptions": ["file:///a"]}});
    if is_modern(version) {
        harness.call("subscriptions/listen", watch);
    } else {
        harness.call("resources/subscribe", json!({"uri": "file:///a"}));
    }
    let meta = json!({"progressToken": "t", "io.modelcontextprotocol/logLevel": "debug"});
    harness.call("tools/call", json!({"name": "add", "_meta": meta}));
    let request = harness.newest_request();
    harness.progress(request, 1.0);
    harness.publish(Change::List(List::Tools));
    harness.publish(Change::Resource {
        uri: "file:///a".into(),
    });
    let data = server_pipe::payload(&json!("text"));
    let level = everlink::protocol::LogLevel::Error;
    let logged =
        harness.with_server(|server, now| server.log(now, Some(request), level, None, data));
    logged.expect("logging is offered");
    harness.ask(request, "roots/list", Value::Null);
    if !is_modern(version) {
        harness.advance(server_pipe::seconds(601));
        harness.respond(request, json!({"content": []}));
    }
    harness
}

/// Checks that the message has what its schema requires, and returns its kind.
#[track_caller]
fn checked_kind(message: &Value) -> String {
    let Some(method) = message["method"].as_str() else {
        if let Some(error) = message.get("error") {
            assert!(error["code"].is_i64(), "{message}");
            assert!(error["message"].is_string(), "{message}");
            assert_eq!(message.get("result"), None, "{message}");
            return "error".to_owned();
        }
        let result = &message["result"];
        assert!(result.is_object(), "{message}");
        let kind = result["resultType"].as_str().unwrap_or("result");
        if kind == "input_required" {
            let asked = &result["inputRequests"];
            assert!(
                asked.is_object() || result["requestState"].is_string(),
                "{message}"
            );
        }
        return kind.replace("complete", "result");
    };
    let params = &message["params"];
    let is_request = message.get("id").is_some();
    assert_eq!(
        is_request,
        !method.starts_with("notifications/"),
        "{message}"
    );
    match method {
        "notifications/message" => {
            assert!(params["level"].is_string(), "{message}");
            assert!(params.get("data").is_some(), "{message}");
        }
        "notifications/progress" => {
            assert!(params["progressToken"].is_string(), "{message}");
            assert!(params["progress"].is_number(), "{message}");
        }
        "notifications/cancelled" => assert!(params.get("requestId").is_some(), "{message}"),
        "notifications/resources/updated" => assert!(params["uri"].is_string(), "{message}"),
        "notifications/subscriptions/acknowledged" => {
            assert!(params["notifications"].is_object(), "{message}");
        }
        "notifications/tools/list_changed" | "roots/list" => {}
        other => panic!("unexpected method {other}"),
    }
    method.to_owned()
}

/// S-STDIO-01: a message is one line, and line breaks in strings are escaped.
#[test]
fn each_written_message_is_one_line() {
    every_era(|chunking, version| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        let (id, request) = harness.call_tool("add");
        let text = "one\ntwo\r\nthree";
        // The application's payload may contain line breaks.
        let result = format!("{{\n  \"content\": [],\r\n  \"text\": {}\n}}", json!(text));
        let result = result.parse().expect("JSON");
        let done = harness.with_server(|server, now| server.respond(now, request, result));
        done.expect("the server accepts the reply");
        assert_eq!(harness.result(&id)["text"], text);

        let (id, request) = harness.call_tool("add");
        harness.fail(request, 7, text);
        assert_eq!(harness.error(&id)["message"], text);
        harness
    });
}

/// S-STDIO-01: lines may end with LF or CRLF and may be blank, and the last one needs no line break.
#[test]
fn lines_may_end_with_lf_crlf_or_end_of_input() {
    every_era(|chunking, version| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        let before = harness.received().len();
        let params = harness.versioned_params(json!({}));
        let one = request("one", "no/such", params.clone());
        let two = request("two", "no/such", params.clone());
        let three = request("three", "no/such", params);
        harness.send_bytes(format!("\n\r\n   \n{one}\r\n\n  {two}  \n{three}").as_bytes());
        assert_eq!(harness.code(&json!("one")), -32601);
        assert_eq!(harness.code(&json!("two")), -32601);
        assert_eq!(
            harness.received().len(),
            before + 2,
            "blank lines are not messages"
        );
        harness.eof();
        assert_eq!(harness.code(&json!("three")), -32601);
        harness
    });
}

/// S-STDIO-29, S-STDIO-31: the input is a byte stream, so reads may join and cut messages anywhere.
#[test]
fn messages_may_be_cut_or_joined_across_reads() {
    every_era(|chunking, version| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        let mut messages = Vec::new();
        for number in 100..110 {
            let params = harness.versioned_params(json!({"name": "é"}));
            messages.push(request(number, "tools/call", params));
            messages.push(notification("notifications/no/such", json!({"n": number})));
        }
        harness.send_all(&messages);
        let requests: Vec<_> = harness.requests().iter().map(|r| r.request).collect();
        assert_eq!(requests.len(), 10);
        for request in requests {
            harness.respond(request, json!({"content": []}));
        }
        for number in 100..110 {
            assert_eq!(harness.replies(&json!(number)).len(), 1, "{number}");
        }
        harness
    });
}

/// S-STDIO-02, S-BATCH-07: in every version but one, a batch is no message and none of its elements is served.
#[test]
fn batch_is_refused_except_in_2025_03_26() {
    for version in Version::ALL {
        if *version == Version::V2025_03_26 {
            continue;
        }
        let params = with_meta(Value::Null, json!({}));
        for batch in [
            json!([]),
            json!([7]),
            json!([notification("notifications/no/such", Value::Null)]),
            json!([
                request(70, "tools/list", params),
                request(71, "ping", Value::Null)
            ]),
        ] {
            let errors = replies_to_line(*version, batch.to_string().as_bytes());
            if allows_error_without_id(*version) {
                assert_eq!(errors.len(), 1, "{version}: {batch}");
                assert_eq!(errors[0]["error"]["code"], -32600, "{version}: {batch}");
            } else {
                // This version has no error without an id (S-RPC-11).
                assert_eq!(errors, NO_MESSAGES, "{version}: {batch}");
            }
        }
    }
}

/// S-BATCH-07: before a handshake there are no batches, either.
#[test]
fn batch_before_the_handshake_is_refused() {
    let mut harness = Harness::new(config());
    harness.send(json!([request(70, "ping", Value::Null)]));
    assert_eq!(harness.replies(&json!(70)).len(), 0);
    assert_eq!(harness.errors_without_id().len(), 1);
    assert_eq!(harness.errors_without_id()[0]["error"]["code"], -32600);
    harness.finish();
}

/// S-BATCH-01, S-BATCH-02, S-BATCH-08: in 2025-03-26 a line may be a batch, whose elements are handled like separate lines.
#[test]
fn batch_elements_are_handled_like_separate_lines() {
    every_chunking(|chunking| {
        let harness = Harness::new(config()).chunked(chunking);
        let mut harness = harness.with_version(Version::V2025_03_26);
        harness.send(json!([
            request(70, "ping", Value::Null),
            notification("notifications/no/such", json!({"n": 1})),
            request(71, "tools/list", Value::Null),
            7,
            {"jsonrpc": "2.0", "id": 72},
            request(73, "no/such", Value::Null),
            request("71", "tools/call", json!({"name": "add"})),
        ]));
        assert_eq!(harness.result(&json!(70)), json!({}));
        assert_eq!(harness.code(&json!(72)), -32600);
        assert_eq!(harness.code(&json!(73)), -32601);
        assert_eq!(harness.notified(), ["notifications/no/such"]);
        let requests: Vec<_> = harness.requests().iter().map(|r| r.request).collect();
        assert_eq!(requests.len(), 2);
        harness.respond(requests[1], json!({"content": [1]}));
        harness.respond(requests[0], json!({"tools": [2]}));
        assert_eq!(harness.result(&json!(71))["tools"], json!([2]));
        assert_eq!(harness.result(&json!("71"))["content"], json!([1]));
        harness
    });
}

/// S-BATCH-08: a batch of notifications gets no reply, and an empty batch counts as one invalid request.
#[test]
fn batch_of_notifications_and_empty_batch_get_no_reply() {
    let mut harness = Harness::legacy(config(), "2025-03-26");
    let before = harness.received().len();
    let message = notification("notifications/no/such", Value::Null);
    harness.send(json!([message, message]));
    assert_eq!(harness.received()[before..], NO_MESSAGES);
    assert_eq!(harness.notified().len(), 2);
    harness.finish();

    // The schema of this version has no error without an id (S-RPC-11), so the batch is only reported as noise.
    assert_eq!(replies_to_line(Version::V2025_03_26, b"[]"), NO_MESSAGES);
}

/// S-BATCH-01: replies in a batch count as replies.
#[test]
fn batched_answers_are_matched_by_id() {
    let mut harness = Harness::legacy(config(), "2025-03-26");
    let (_, request) = harness.call_tool("add");
    let one = harness.ask(request, "roots/list", Value::Null);
    let two = harness.ask(request, "roots/list", Value::Null);
    let ask_ids: Vec<Value> = harness
        .messages_with("roots/list")
        .iter()
        .map(|m| m["id"].clone())
        .collect();
    harness.send(json!([
        {"jsonrpc": "2.0", "id": ask_ids[1], "result": {"roots": [2]}},
        {"jsonrpc": "2.0", "id": ask_ids[0], "result": {"roots": [1]}},
    ]));
    assert_eq!(harness.outcome(one), Some(Ok(json!({"roots": [1]}))));
    assert_eq!(harness.outcome(two), Some(Ok(json!({"roots": [2]}))));
    harness.finish();
}

/// S-STDIO-11: there are no header fields: a request carries all its terms in its body.
#[test]
fn request_carries_version_and_capabilities_in_its_body() {
    let mut harness = Harness::modern(config()).chunked(Chunking::Whole);
    let line = json!({"jsonrpc": "2.0", "id": 5, "method": "tools/list", "params": {"_meta": meta(json!({}))}});
    harness.send(line);
    harness.respond(harness.newest_request(), json!({"tools": []}));
    assert_eq!(harness.result(&json!(5))["resultType"], "complete");
    harness.finish();
}

/// The server remembers the terms of its last client as they were written, if they name the client. It finds a second value also beside them.
#[test]
fn request_with_two_values_of_one_member_is_refused() {
    let version = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;
    let unnamed = format!(r#"{version},"io.modelcontextprotocol/clientCapabilities":{{}}"#);
    let client = r#""io.modelcontextprotocol/clientInfo":{"name":"a","version":"1"}"#;
    for terms in [unnamed.clone(), format!("{unnamed},{client}")] {
        let mut harness = Harness::modern(config());
        let mut send = |id: u64, params: &str| {
            let head = format!(r#""jsonrpc":"2.0","id":{id},"method":"tools/call""#);
            harness.send_line(&format!(
                "{{{head},\"params\":{{\"name\":\"a\",{params}}}}}"
            ));
            let reply = harness.replies(&json!(id)).pop().cloned();
            reply.map(|reply| reply["error"]["code"].clone())
        };
        let meta = format!("\"_meta\":{{{terms}}}");
        assert_eq!(send(1, &meta), None, "it is served");
        assert_eq!(send(2, &meta), None, "it is served again");
        for (id, params) in (3..).zip([
            format!("\"_meta\":{{{terms},{version}}}"),
            format!("\"_meta\":{{{terms},{client},{client}}}"),
            format!("\"_meta\":{{{terms},{terms},{client}}}"),
            format!("\"_meta\":{{{terms},{terms},{terms}}}"),
            format!("\"_meta\":1,{meta}"),
            format!("{meta},{meta}"),
            format!("{meta},\"name\":\"b\""),
        ]) {
            assert_eq!(send(id, &params), Some(json!(-32602)), "{params}");
        }
        harness.finish();
    }
}

/// They mean something only where a modern request can wait for input.
#[test]
fn members_of_a_round_reach_the_application_of_a_legacy_request() {
    let mut harness = Harness::legacy(config(), "2025-11-25");
    let params = json!({
        "name": "add", "inputResponses": {}, "requestState": "s", "_meta": {"com.example/x": 1},
    });
    harness.call("tools/call", params.clone());
    let received = harness.requests()[0].params.as_ref().map(value);
    assert_eq!(received, Some(params));
    harness.finish();
}

/// S-RPC-03: an id may be any integer.
#[test]
fn s_rpc_03_request_with_an_integer_above_64_bits_is_answered_under_its_id() {
    every_version(|version| {
        let mut harness = Harness::new(config()).with_version(version);
        let id = json!(9_223_372_036_854_775_808_u64);
        let token = json!(18_446_744_073_709_551_615_u64);
        let params = json!({"name": "slow", "_meta": {"progressToken": token}});
        let params = harness.versioned_params(params);
        harness.send(request(id.clone(), "tools/call", params));
        let running = harness.requests().last().expect("a request").request;
        harness.progress(running, 1.0);
        harness.respond(running, json!({"content": []}));
        assert_eq!(harness.result(&id)["content"], json!([]));
        let told = harness.messages_with("notifications/progress");
        assert_eq!(told[0]["params"]["progressToken"], token);
        harness
    });
}
