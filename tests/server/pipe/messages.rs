//! Input that a server end accepts as a message, and messages that it writes: lines, JSON-RPC, ids, batches.

use crate::server_pipe::{
    self, Chunking, Host, NOTHING, config, every_chunking, every_era, every_version, is_modern,
    meta, notification, request, with_meta,
};
use everlink::protocol::Version;
use everlink::server::Config;
use everlink::wire::TEXT_ID_LIMIT;
use everlink::{Change, List};
use serde_json::{Value, json};

/// Whether an error reply in this version may have no id (S-RPC-10). In the other versions a message without an id gets
/// no reply (S-RPC-11).
fn can_complain(version: Version) -> bool {
    version >= Version::V2025_11_25
}

/// Sends a line that is no message, checks that the server still serves, and returns the error replies.
#[track_caller]
fn complaint_about(version: Version, line: &[u8]) -> Vec<Value> {
    let mut host = Host::new(config()).speaking(version);
    let before = host.heard().len();
    host.raw(line);
    host.raw(b"\n");
    let complaints = host.heard()[before..].to_vec();
    let served = host.served("tools/list", Value::Null, json!({"tools": []}));
    assert_eq!(served["tools"], json!([]), "it does not serve any more");
    assert_eq!(host.noise(), [1], "it is told, once");
    host.finish();
    complaints
}

/// Checks in every version that this line gets an error reply with this code and without an id. If the version requires an
/// id, there must be no reply.
#[track_caller]
fn is_answered_without_id(line: &[u8], code: i64) {
    for version in Version::ALL {
        let complaints = complaint_about(*version, line);
        if can_complain(*version) {
            assert_eq!(complaints.len(), 1, "{version}: {complaints:?}");
            assert_eq!(complaints[0]["error"]["code"], code, "{version}");
            assert_eq!(complaints[0].get("id"), None, "the id is absent, not null");
        } else {
            assert_eq!(complaints, NOTHING, "{version}");
        }
    }
}

/// Checks in every version that this invalid request with the id 77 gets an error reply with this code.
#[track_caller]
fn is_answered_with_id(line: &str, code: i64) {
    for version in Version::ALL {
        let mut host = Host::new(config()).speaking(*version);
        host.line(line);
        assert_eq!(host.code(&json!(77)), code, "{version}: {line}");
        host.finish();
    }
}

/// S-RPC-01: a message is an object with `jsonrpc` "2.0".
#[test]
fn a_message_is_an_object_of_json_rpc_2() {
    is_answered_without_id(b"17", -32600);
    is_answered_without_id(br#""ping""#, -32600);
    is_answered_without_id(b"null", -32600);
    is_answered_without_id(b"{}", -32600);
    is_answered_without_id(br#"{"jsonrpc":"2.0"}"#, -32600);
    is_answered_with_id(r#"{"id":77,"method":"ping"}"#, -32600);
    is_answered_with_id(r#"{"jsonrpc":"1.0","id":77,"method":"ping"}"#, -32600);
    is_answered_with_id(r#"{"jsonrpc":2.0,"id":77,"method":"ping"}"#, -32600);
    is_answered_with_id(r#"{"jsonrpc":null,"id":77,"method":"ping"}"#, -32600);
}

/// S-RPC-02: bytes that are not UTF-8 are no message, and the next line is read.
#[test]
fn what_is_no_text_is_no_message() {
    is_answered_without_id(
        b"{\"jsonrpc\":\"2.0\",\"id\":77,\"method\":\"\xff\"}",
        -32700,
    );
    is_answered_without_id(b"\xc3(", -32700);
    is_answered_without_id(b"\xed\xa0\x80", -32700);
}

/// S-RPC-02: non-ASCII text passes unchanged, however it is cut.
#[test]
fn text_goes_through_unharmed() {
    every_era(|chunking, version| {
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        let name = "Grüße 世界 🌍 \u{7f}\u{2028}\\\"";
        let id = host.call("tools/call", json!({"name": name}));
        let params = host.requests()[0].params.clone().expect("parameters");
        assert_eq!(server_pipe::value(&params)["name"], name);
        host.respond(host.newest(), json!({"said": name}));
        assert_eq!(host.result(&id)["said"], name);
        host
    });
}

/// S-RPC-03, S-RPC-04: an id is a string or an integer. A request with any other id gets an error reply without an id.
#[test]
fn an_id_is_a_text_or_an_integer() {
    for id in ["null", "1.5", "true", "{}", "[7]", "1e300"] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#);
        is_answered_without_id(line.as_bytes(), -32600);
    }
    let long = "x".repeat(TEXT_ID_LIMIT + 1);
    let line = format!(r#"{{"jsonrpc":"2.0","id":"{long}","method":"tools/list"}}"#);
    is_answered_without_id(line.as_bytes(), -32600);
}

/// S-RPC-07: a reply has the id of its request, with the same value and type.
#[test]
fn a_response_has_the_id_of_its_request() {
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
        let mut host = Host::new(config()).speaking(version);
        let params = host.terms(json!({}));
        // All requests are open at once: `1` and `"1"` are different ids.
        let mut requests = Vec::new();
        for id in &ids {
            if !is_modern(version) && *id == json!(1) {
                continue; // The handshake used this id.
            }
            host.say(request(id.clone(), "tools/list", params.clone()));
            requests.push((id.clone(), host.newest()));
        }
        for (at, (_, name)) in requests.iter().enumerate().rev() {
            host.respond(*name, json!({"tools": [], "at": at}));
        }
        for (at, (id, _)) in requests.iter().enumerate() {
            assert_eq!(host.result(id)["at"], at, "{id}");
        }
        host.finish();
    }
}

/// S-RPC-07: replies of the server itself, including errors, also have the exact id.
#[test]
fn the_answers_of_the_server_itself_have_the_id_of_their_request() {
    let mut host = Host::modern(config());
    for id in [json!("7"), json!(7)] {
        let params = with_meta(Value::Null, json!({}));
        host.say(request(id.clone(), "server/discover", params));
        assert!(host.result(&id)["supportedVersions"].is_array());
    }
    for id in [json!("8"), json!(8)] {
        let params = with_meta(Value::Null, json!({}));
        host.say(request(id.clone(), "no/such", params));
        assert_eq!(host.code(&id), -32601);
    }
    host.finish();
}

/// S-RPC-10, S-RPC-11, S-ERR-01: an unreadable line gets an error reply without an id, or none if the version requires an
/// id.
#[test]
fn what_cannot_be_read_is_answered_without_an_id_or_not_at_all() {
    is_answered_without_id(b"hello", -32700);
    is_answered_without_id(br#"{"jsonrpc":"2.0","id":77,"method":"pi"#, -32700);
    is_answered_without_id(br#"{"jsonrpc":"2.0","id":77,"method":"ping"} x"#, -32700);
    is_answered_without_id(br#"{"jsonrpc":"2.0","id":77,"method":"ping",}"#, -32700);
    is_answered_without_id(b"\0", -32700);
}

/// S-RPC-10, S-ERR-01: an invalid request with a readable id gets an error reply with that id, in every version.
#[test]
fn an_invalid_request_is_answered_with_its_id() {
    is_answered_with_id(r#"{"jsonrpc":"2.0","id":77}"#, -32600);
    is_answered_with_id(r#"{"jsonrpc":"2.0","id":77,"method":7}"#, -32600);
    is_answered_with_id(r#"{"jsonrpc":"2.0","id":77,"method":null}"#, -32600);
    is_answered_with_id(
        r#"{"jsonrpc":"2.0","id":77,"method":"ping","result":{}}"#,
        -32600,
    );
    is_answered_with_id(
        r#"{"jsonrpc":"2.0","id":77,"method":"ping","params":7}"#,
        -32600,
    );
    is_answered_with_id(
        r#"{"jsonrpc":"2.0","id":77,"method":"ping","params":[]}"#,
        -32600,
    );
}

/// S-RPC-10, S-ERR-01: an oversized request is refused with its id, and the rest of its line is skipped.
#[test]
fn a_request_that_is_too_long_is_answered_with_its_id() {
    every_era(|chunking, version| {
        let mut config = config();
        config.limits.message_bytes = 1_000;
        let mut host = Host::new(config).chunked(chunking).speaking(version);
        let long = "x".repeat(2_000);
        let id = host.call(
            "tools/call",
            json!({"name": "add", "arguments": {"long": long}}),
        );
        assert_eq!(host.code(&id), -32600);
        assert_eq!(host.requests().len(), 0);
        let served = host.served("tools/list", Value::Null, json!({"tools": []}));
        assert_eq!(served["tools"], json!([]));
        host
    });
}

/// S-RPC-15: notifications and replies are never answered.
#[test]
fn a_notification_is_never_answered() {
    every_era(|chunking, version| {
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        let before = host.heard().len();
        host.lines(&[
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
        assert_eq!(host.heard()[before..], NOTHING);
        assert_eq!(host.requests().len(), 0);
        host
    });
}

/// S-RPC-15: an oversized reply is not answered either, although its id is readable.
#[test]
fn a_response_that_is_too_long_is_not_answered() {
    every_era(|chunking, version| {
        let mut config = config();
        config.limits.message_bytes = 1_000;
        let mut host = Host::new(config).chunked(chunking).speaking(version);
        let before = host.heard().len();
        host.say(json!({"jsonrpc": "2.0", "id": 99, "result": {"long": "x".repeat(2_000)}}));
        assert_eq!(host.heard()[before..], NOTHING);
        assert!(!host.noise().is_empty());
        host
    });
}

/// S-RPC-07: two replies with one id could not be distinguished. A request with an open id is therefore refused, and the
/// first one is served.
#[test]
fn an_id_that_is_in_use_is_refused() {
    every_era(|chunking, version| {
        let mut config = config();
        config.limits.message_bytes = 1_000;
        let mut host = Host::new(config).chunked(chunking).speaking(version);
        let (id, request) = host.tool("first");
        let params = host.terms(json!({"name": "second"}));
        host.say(server_pipe::request(id.clone(), "tools/call", params));
        assert_eq!(host.requests().len(), 1);
        host.respond(request, json!({"content": ["first"]}));
        let told = host.replies(&id);
        assert_eq!(told.len(), 2, "the refusal and the answer");
        assert_eq!(told[0]["error"]["code"], -32600);
        assert_eq!(told[1]["result"]["content"], json!(["first"]));
        host
    });
}

/// S-RPC-07: the ids of watches and of requests that wait for the offer count as open.
#[test]
fn the_id_of_what_waits_is_in_use() {
    let mut host = Host::new(Config::deferred([7; 16]));
    let params = host.terms(json!({"notifications": {"toolsListChanged": true}}));
    host.say(server_pipe::request(5, "server/discover", params.clone()));
    host.say(server_pipe::request(6, "server/discover", params.clone()));
    host.say(server_pipe::request(5, "server/discover", params.clone()));
    assert_eq!(host.code(&json!(5)), -32600);
    host.verb(|server, now| server.offer(now, server_pipe::everything()));
    assert_eq!(host.replies(&json!(5)).len(), 2);
    assert_eq!(host.replies(&json!(6)).len(), 1);

    host.say(server_pipe::request(
        7,
        "subscriptions/listen",
        params.clone(),
    ));
    host.say(server_pipe::request(7, "tools/list", params));
    assert_eq!(host.code(&json!(7)), -32600);
    assert_eq!(host.requests().len(), 0);
    host.finish();
}

/// S-RPC-15: a notification with invalid parameters is not answered, either.
#[test]
fn a_notification_with_strange_parameters_is_never_answered() {
    every_version(|version| {
        let mut host = Host::new(config()).speaking(version);
        let before = host.heard().len();
        for method in ["notifications/cancelled", "notifications/no/such", "ping"] {
            for params in ["[1]", "7", "null", r#""text""#] {
                host.line(&format!(
                    r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#
                ));
            }
        }
        assert_eq!(host.heard()[before..], NOTHING);
        host
    });
}

/// S-RPC-08, S-RPC-09, S-RPC-12, S-RPC-16, S-RPC-18, S-STDIO-03: every message of the server has what its schema requires.
/// The rules of every script check each line; this script contains all kinds of messages.
#[test]
fn every_kind_of_message_has_what_its_schema_requires() {
    every_version(|version| {
        let mut host = one_of_each(version);
        let kinds: Vec<String> = host.heard().iter().map(kind).collect();
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
        host.pass(server_pipe::seconds(1));
        host
    });
}

/// A client of this version that has received one message of every kind.
fn one_of_each(version: Version) -> Host {
    let mut host = Host::new(config()).speaking(version);
    host.call("no/such", Value::Null);
    host.served("tools/list", Value::Null, json!({"tools": []}));
    let watch = json!({"notifications": {"toolsListChanged": true, "resourceSubscriptions": ["file:///a"]}});
    if is_modern(version) {
        host.call("subscriptions/listen", watch);
    } else {
        host.call("resources/subscribe", json!({"uri": "file:///a"}));
    }
    let meta = json!({"progressToken": "t", "io.modelcontextprotocol/logLevel": "debug"});
    host.call("tools/call", json!({"name": "add", "_meta": meta}));
    let request = host.newest();
    host.progress(request, 1.0);
    host.publish(Change::List(List::Tools));
    host.publish(Change::Resource {
        uri: "file:///a".into(),
    });
    let data = server_pipe::payload(&json!("text"));
    let level = everlink::protocol::LogLevel::Error;
    let logged = host.verb(|server, now| server.log(now, Some(request), level, None, data));
    logged.expect("logging is offered");
    host.ask(request, "roots/list", Value::Null);
    if !is_modern(version) {
        host.pass(server_pipe::seconds(601));
        host.respond(request, json!({"content": []}));
    }
    host
}

/// Checks that the message has what its schema requires, and returns its kind.
#[track_caller]
fn kind(message: &Value) -> String {
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
        other => panic!("nobody expected {other}"),
    }
    method.to_owned()
}

/// S-STDIO-01: a message is one line, and line breaks in strings are escaped.
#[test]
fn a_message_is_one_line() {
    every_era(|chunking, version| {
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        let (id, request) = host.tool("add");
        let text = "one\ntwo\r\nthree";
        // The application's payload may contain line breaks.
        let result = format!("{{\n  \"content\": [],\r\n  \"text\": {}\n}}", json!(text));
        let result = result.parse().expect("JSON");
        let done = host.verb(|server, now| server.respond(now, request, result));
        done.expect("an answer");
        assert_eq!(host.result(&id)["text"], text);

        let (id, request) = host.tool("add");
        host.fail(request, 7, text);
        assert_eq!(host.error(&id)["message"], text);
        host
    });
}

/// S-STDIO-01: lines may end with LF or CRLF and may be empty, and the last one needs no line break.
#[test]
fn a_line_may_end_as_it_likes() {
    every_era(|chunking, version| {
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        let before = host.heard().len();
        let params = host.terms(json!({}));
        let one = request("one", "no/such", params.clone());
        let two = request("two", "no/such", params.clone());
        let three = request("three", "no/such", params);
        host.raw(format!("\n\r\n   \n{one}\r\n\n  {two}  \n{three}").as_bytes());
        assert_eq!(host.code(&json!("one")), -32601);
        assert_eq!(host.code(&json!("two")), -32601);
        assert_eq!(
            host.heard().len(),
            before + 2,
            "blank lines are no messages"
        );
        host.eof();
        assert_eq!(host.code(&json!("three")), -32601);
        host
    });
}

/// S-STDIO-29, S-STDIO-31: the input is a byte stream, so reads may join and cut messages anywhere.
#[test]
fn reads_may_be_cut_anywhere() {
    every_era(|chunking, version| {
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        let mut messages = Vec::new();
        for number in 100..110 {
            let params = host.terms(json!({"name": "é"}));
            messages.push(request(number, "tools/call", params));
            messages.push(notification("notifications/no/such", json!({"n": number})));
        }
        host.say_all(&messages);
        let requests: Vec<_> = host.requests().iter().map(|r| r.request).collect();
        assert_eq!(requests.len(), 10);
        for request in requests {
            host.respond(request, json!({"content": []}));
        }
        assert_eq!(host.replies(&json!(105)).len(), 1);
        host
    });
}

/// S-STDIO-02, S-BATCH-07: in every version but one, a batch is no message and none of its elements is served.
#[test]
fn an_array_is_no_message() {
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
            let complaints = complaint_about(*version, batch.to_string().as_bytes());
            if can_complain(*version) {
                assert_eq!(complaints.len(), 1, "{version}: {batch}");
                assert_eq!(complaints[0]["error"]["code"], -32600, "{version}: {batch}");
            } else {
                // This version has no error without an id (S-RPC-11).
                assert_eq!(complaints, NOTHING, "{version}: {batch}");
            }
        }
    }
}

/// S-BATCH-07: before a handshake there are no batches, either.
#[test]
fn an_array_is_no_message_before_a_handshake() {
    let mut host = Host::new(config());
    host.say(json!([request(70, "ping", Value::Null)]));
    assert_eq!(host.replies(&json!(70)).len(), 0);
    assert_eq!(host.complaints().len(), 1);
    assert_eq!(host.complaints()[0]["error"]["code"], -32600);
    host.finish();
}

/// S-BATCH-01, S-BATCH-02, S-BATCH-08: in 2025-03-26 a line may be a batch, whose elements are handled like separate lines.
#[test]
fn a_batch_is_as_good_as_its_elements() {
    every_chunking(|chunking| {
        let host = Host::new(config()).chunked(chunking);
        let mut host = host.speaking(Version::V2025_03_26);
        host.say(json!([
            request(70, "ping", Value::Null),
            notification("notifications/no/such", json!({"n": 1})),
            request(71, "tools/list", Value::Null),
            7,
            {"jsonrpc": "2.0", "id": 72},
            request(73, "no/such", Value::Null),
            request("71", "tools/call", json!({"name": "add"})),
        ]));
        assert_eq!(host.result(&json!(70)), json!({}));
        assert_eq!(host.code(&json!(72)), -32600);
        assert_eq!(host.code(&json!(73)), -32601);
        assert_eq!(host.notified(), ["notifications/no/such"]);
        let requests: Vec<_> = host.requests().iter().map(|r| r.request).collect();
        assert_eq!(requests.len(), 2);
        host.respond(requests[1], json!({"content": [1]}));
        host.respond(requests[0], json!({"tools": [2]}));
        assert_eq!(host.result(&json!(71))["tools"], json!([2]));
        assert_eq!(host.result(&json!("71"))["content"], json!([1]));
        host
    });
}

/// S-BATCH-08: a batch of notifications gets no reply, and an empty batch counts as one invalid request.
#[test]
fn a_batch_that_asks_nothing_gets_nothing() {
    let mut host = Host::legacy(config(), "2025-03-26");
    let before = host.heard().len();
    let news = notification("notifications/no/such", Value::Null);
    host.say(json!([news, news]));
    assert_eq!(host.heard()[before..], NOTHING);
    assert_eq!(host.notified().len(), 2);
    host.finish();

    // The schema of this version has no error without an id (S-RPC-11), so the batch is only reported as noise.
    assert_eq!(complaint_about(Version::V2025_03_26, b"[]"), NOTHING);
}

/// S-BATCH-01: replies in a batch count as replies.
#[test]
fn answers_may_come_in_a_batch() {
    let mut host = Host::legacy(config(), "2025-03-26");
    let (_, request) = host.tool("add");
    let one = host.ask(request, "roots/list", Value::Null);
    let two = host.ask(request, "roots/list", Value::Null);
    let asked: Vec<Value> = host
        .said("roots/list")
        .iter()
        .map(|m| m["id"].clone())
        .collect();
    host.say(json!([
        {"jsonrpc": "2.0", "id": asked[1], "result": {"roots": [2]}},
        {"jsonrpc": "2.0", "id": asked[0], "result": {"roots": [1]}},
    ]));
    assert_eq!(host.outcome(one), Some(Ok(json!({"roots": [1]}))));
    assert_eq!(host.outcome(two), Some(Ok(json!({"roots": [2]}))));
    host.finish();
}

/// S-STDIO-11: there are no header fields: a request carries all its terms in its body.
#[test]
fn all_terms_are_in_the_body() {
    let mut host = Host::modern(config()).chunked(Chunking::Whole);
    let line = json!({"jsonrpc": "2.0", "id": 5, "method": "tools/list", "params": {"_meta": meta(json!({}))}});
    host.say(line);
    host.respond(host.newest(), json!({"tools": []}));
    assert_eq!(host.result(&json!(5))["resultType"], "complete");
    host.finish();
}
