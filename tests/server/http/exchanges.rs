//! The server end over HTTP: exchanges, sessions, streams, in both eras.

use everlink::protocol::{LogLevel, Version, Versions};
use everlink::server::{Cancelled, Http, Misuse, Replay, SessionRecord, SsePaths, State};
use everlink::{Change, Input, List, StreamId};
use serde_json::{Value, json};

use crate::server_http::{
    self, Harness, HttpRequest, NO_MESSAGES, Session, Store, config, delete, get, http_config,
    initialize, modern, notification, payload, post, seconds, stored_http,
};

/// A call that asks for progress and for log messages.
fn call_with_progress_and_logs(id: u64) -> HttpRequest {
    let meta = json!({"progressToken": "p", "io.modelcontextprotocol/logLevel": "debug"});
    modern(id, "tools/call", json!({"name": "slow", "_meta": meta}))
}

fn call(session: &Session, id: u64) -> HttpRequest {
    session.post(id, "tools/call", json!({"name": "slow"}))
}

/// S-HTTP-11: a reply without any earlier message is JSON.
#[test]
fn a_modern_request_is_answered_with_json() {
    let mut harness = Harness::new(config());
    let call = harness.send(modern(1, "tools/call", json!({"name": "add"})));
    let request = harness.newest_request();
    assert!(!harness.is_answered(call));
    harness.respond(request, json!({"content": []}));
    assert_eq!(harness.status(call), 200);
    assert_eq!(harness.json(call)["id"], 1);
    assert_eq!(harness.json(call)["result"]["content"], json!([]));
    assert_eq!(harness.field(call, "mcp-session-id"), None, "S-HTTP-37");
    assert_eq!(harness.field(call, "retry-after"), None);
    harness.finish();
}

/// S-HTTP-13, S-HTTP-15, S-HTTP-18, S-HTTP-21: a message before the reply makes the response an event stream. Its events have no
/// ids, and it ends with the reply.
#[test]
fn progress_before_the_reply_makes_the_response_a_stream() {
    let mut harness = Harness::new(config());
    let call = harness.send(call_with_progress_and_logs(1));
    let request = harness.newest_request();
    harness.progress(request, 1.0);
    let data = payload(&json!("half way"));
    harness
        .with_server(|server, now| server.log(now, Some(request), LogLevel::Info, None, data))
        .unwrap();
    assert!(!harness.is_over(call));
    harness.respond(request, json!({"content": []}));
    assert!(harness.is_over(call));
    assert_eq!(harness.field(call, "x-accel-buffering"), Some("no"));
    assert_eq!(harness.field(call, "cache-control"), Some("no-cache"));
    let events = harness.sse(call);
    let mut named = events.iter().filter(|e| e.id.is_some() || e.name.is_some());
    assert_eq!(named.next(), None);
    let methods: Vec<Value> = harness
        .messages(call)
        .iter()
        .map(|m| m["method"].clone())
        .collect();
    let expected = json!(["notifications/progress", "notifications/message", null]);
    assert_eq!(Value::from(methods), expected);
    harness.finish();
}

/// S-INH-05: the server does not send a content type that the client does not accept.
#[test]
fn response_uses_only_content_types_that_the_client_accepts() {
    let mut harness = Harness::new(config());
    let call = harness.send(call_with_progress_and_logs(1).with("accept", "application/json"));
    let request = harness.newest_request();
    harness.progress(request, 1.0);
    harness.respond(request, json!({"content": []}));
    assert_eq!(harness.json(call)["result"]["content"], json!([]));
    let call = harness.send(call_with_progress_and_logs(1).with("accept", "text/event-stream"));
    let request = harness.newest_request();
    harness.respond(request, json!({"content": []}));
    assert_eq!(harness.sse(call).len(), 1);
    let watch = json!({"notifications": {"toolsListChanged": true}});
    let watch = modern(2, "subscriptions/listen", watch).with("accept", "application/json");
    let watch = harness.send(watch);
    assert_eq!(harness.status(watch), 406);
    harness.finish();
}

/// S-SUB-03, S-HTTP-17: a watch is a stream until one side ends it.
#[test]
fn each_watch_is_a_stream_until_either_side_ends_it() {
    let mut harness = Harness::new(config());
    let watch = |id| {
        let wanted = json!({"notifications": {"toolsListChanged": true}});
        modern(id, "subscriptions/listen", wanted)
    };
    let (one, other) = (harness.send(watch(1)), harness.send(watch(1)));
    harness.publish(Change::List(List::Tools));
    for stream in [one, other] {
        let messages = harness.messages(stream);
        assert_eq!(
            messages[0]["method"],
            "notifications/subscriptions/acknowledged"
        );
        assert_eq!(messages[1]["method"], "notifications/tools/list_changed");
        assert!(!harness.is_over(stream));
    }
    harness.disconnect(one);
    harness.publish(Change::List(List::Tools));
    assert_eq!(harness.messages(one).len(), 2);
    assert_eq!(harness.messages(other).len(), 3);
    harness.shutdown();
    assert_eq!(
        harness.messages(other)[3]["result"]["resultType"],
        "complete"
    );
    assert!(harness.is_over(other));
    harness.finish();
}

/// S-HTTP-23, S-HTTP-24: a modern client that closes its connection cancels its request.
#[test]
fn disconnect_of_a_modern_client_cancels_its_request() {
    for is_reset in [false, true] {
        let mut harness = Harness::new(config());
        let call = harness.send(call_with_progress_and_logs(1));
        let request = harness.newest_request();
        harness.progress(request, 1.0);
        if is_reset {
            harness.reset(call);
        } else {
            harness.disconnect(call);
        }
        assert_eq!(harness.cancellations(), [(request, Cancelled::PeerGone)]);
        let result = payload(&json!({"content": []}));
        let late = harness.with_server(|server, now| server.respond(now, request, result));
        assert_eq!(late, Err(Misuse::UnknownRequest));
        let before = harness.server.stats().stale_inputs;
        harness.end(call);
        assert_eq!(harness.server.stats().stale_inputs, before + 1);
        harness.finish();
    }
}

/// F-099: many clients choose the same ids, and each gets its own reply.
#[test]
fn same_id_from_many_clients_is_answered_separately() {
    let mut harness = Harness::new(config());
    let (a, b) = (
        harness.open_session("2025-11-25"),
        harness.open_session("2025-11-25"),
    );
    let mut calls = Vec::new();
    for http_request in [
        modern(1, "tools/call", json!({"name": "slow"})),
        modern(1, "tools/call", json!({"name": "slow"})),
        call(&a, 1),
        call(&b, 1),
    ] {
        let stream = harness.send(http_request);
        calls.push((stream, harness.newest_request()));
    }
    let twice = harness.send(call(&a, 1));
    assert_eq!(
        harness.code(twice),
        -32600,
        "one client cannot reuse an open id"
    );
    assert_eq!(harness.status(twice), 200);
    for (at, (_, request)) in calls.iter().enumerate().rev() {
        harness.respond(*request, json!({"content": [], "at": at}));
    }
    for (at, (stream, _)) in calls.iter().enumerate() {
        let messages = harness.messages(*stream);
        assert_eq!(messages[0]["result"]["at"], at);
        assert_eq!(messages.len(), 1);
    }
    harness.finish();
}

/// S-SESS-01 to S-SESS-05: a handshake opens a session. All later requests name it, and the client can end it.
#[test]
fn legacy_requests_need_the_session_of_their_handshake() {
    for version in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut harness = Harness::new(config());
        let session = harness.open_session(version);
        assert_eq!(session.id.len(), 32);
        let pong = harness.send(session.post(1, "ping", Value::Null));
        assert_eq!(harness.json(pong)["result"], json!({}));
        let lost = harness.send(
            session
                .post(2, "ping", Value::Null)
                .without("mcp-session-id"),
        );
        assert_eq!((harness.status(lost), harness.code(lost)), (400, -32600));
        assert_eq!(harness.json(lost)["id"], 2, "S-HTTP-33");
        let foreign = session.post(2, "ping", Value::Null);
        let foreign = harness.send(foreign.with("mcp-session-id", "0123"));
        assert_eq!(harness.status(foreign), 404);
        let unknown_version = session.post(2, "ping", Value::Null);
        let unknown_version =
            harness.send(unknown_version.with("mcp-protocol-version", "1999-01-01"));
        // S-LHTTP-22, S-LHTTP-23: 2025-03-26 does not know the field.
        let refused = if version == "2025-03-26" { 200 } else { 400 };
        assert_eq!(harness.status(unknown_version), refused, "{version}");
        let running = harness.send(call(&session, 3));
        let request = harness.newest_request();
        let stream = harness.send(session.get());
        let ended = harness.send(session.delete());
        assert_eq!(harness.status(ended), 204);
        assert!(harness.is_over(stream) && harness.is_over(running));
        assert_eq!(harness.cancellations(), [(request, Cancelled::PeerGone)]);
        for http_request in [
            session.post(4, "ping", Value::Null),
            session.get(),
            session.delete(),
        ] {
            let late = harness.send(http_request);
            assert_eq!(harness.status(late), 404);
        }
        assert_eq!(harness.server.sessions(), 0);
        harness.finish();
    }
}

/// A GET gets an event stream, even if a newer GET replaces it before the first byte.
#[test]
fn stream_that_is_replaced_before_it_begins_is_an_empty_stream() {
    for http in [Http::new(), stored_http(1)] {
        let mut harness = Harness::with_store(http_config(http), &Store::default());
        let session = harness.open_session("2025-11-25");
        let first = harness.send(session.get());
        harness.publish(Change::List(List::Tools));
        let begun = harness
            .sse(first)
            .remove(0)
            .id
            .expect("the first event has an id");
        harness.disconnect(first);
        // The older has all messages. The newer waits for the store, if there is one.
        let older = harness.begin(&session.get());
        let newer = harness.begin(&session.resume(&begun));
        harness.end_together(&[older, newer]);
        assert!(harness.is_over(older) && !harness.is_over(newer));
        for stream in [older, newer] {
            assert_eq!(harness.status(stream), 200);
            let kind = harness.field(stream, "content-type");
            assert_eq!(kind, Some("text/event-stream"));
        }
        assert_eq!(harness.messages(newer).len(), 1);
        harness.finish();
    }
}

/// S-LHTTP-13, S-LHTTP-19: messages that belong to no request go to the session's stream, or wait for it.
#[test]
fn messages_without_a_request_go_to_the_session_stream() {
    for replay in [Replay::default(), Replay::new(0, 0)] {
        let mut http = Http::new();
        http.replay = replay;
        let mut harness = Harness::new(http_config(http));
        let session = harness.open_session("2025-11-25");
        harness.publish(Change::List(List::Tools));
        let stream = harness.send(session.get());
        assert_eq!(harness.messages(stream).len(), 1);
        harness.publish(Change::List(List::Prompts));
        assert_eq!(harness.messages(stream).len(), 2);
        let newer = harness.send(session.get());
        assert!(harness.is_over(stream), "a newer stream replaces the older");
        assert_eq!(harness.messages(newer), NO_MESSAGES);
        harness.publish(Change::List(List::Resources));
        assert_eq!(harness.messages(newer).len(), 1);
        assert_eq!(harness.messages(stream).len(), 2);
        let ids = harness.sse(newer).iter().any(|event| event.id.is_some());
        assert_eq!(ids, replay.events > 0);
        harness.finish();
    }
}

/// S-RES-03, S-RES-04, S-LHTTP-08: a client whose stream broke gets the rest of it, and of no other stream.
#[test]
fn broken_stream_can_be_resumed_with_its_own_events() {
    let mut harness = Harness::new(config());
    let session = harness.open_session("2025-11-25");
    let params = json!({"name": "slow", "_meta": {"progressToken": "p"}});
    let broken = harness.send(session.post(1, "tools/call", params));
    let request = harness.newest_request();
    let primer = harness.sse(broken).remove(0);
    assert_eq!(primer.retry, Some(1_000));
    assert_eq!(primer.data.unwrap_or_default(), "");
    harness.progress(request, 1.0);
    let seen = harness.last_event_id(broken);
    harness.disconnect(broken);
    harness.progress(request, 2.0);
    harness.publish(Change::List(List::Tools));
    assert_eq!(
        harness.cancellations(),
        [],
        "S-CANC: a disconnect cancels nothing"
    );

    let resumed = harness.send(session.resume(&seen));
    let messages = harness.messages(resumed);
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0]["params"]["progress"], 2);
    harness.progress(request, 3.0);
    harness.disconnect(resumed);
    harness.respond(request, json!({"content": []}));

    // By now everything was sent, but nobody has read it.
    let rest = harness.send(session.resume(&seen));
    let messages = harness.messages(rest);
    assert_eq!(messages.len(), 3);
    assert_eq!(messages[2]["result"]["content"], json!([]));
    assert!(harness.is_over(rest));
    let ids: Vec<_> = harness
        .sse(rest)
        .into_iter()
        .map(|event| event.id)
        .collect();
    assert!(ids.iter().all(Option::is_some));
    for unknown in ["", "x", "1-2", "ffff-0"] {
        let unknown = harness.send(session.resume(unknown));
        assert_eq!(harness.status(unknown), 400);
    }
    harness.finish();
}

/// S-S2C-01: an ask goes out on the stream of its request, and only the asked client can answer it.
#[test]
fn only_the_asked_client_can_answer_an_ask() {
    let mut harness = Harness::new(config());
    let (session, other) = (
        harness.open_session("2025-11-25"),
        harness.open_session("2025-11-25"),
    );
    let stream = harness.send(call(&session, 1));
    let request = harness.newest_request();
    let ask = harness.ask(request, "roots/list", Value::Null);
    let ask_request = harness.messages(stream).remove(0);
    assert_eq!(ask_request["method"], "roots/list");
    let foreign = harness.send(other.answer(&ask_request["id"], json!({"roots": ["mine"]})));
    assert_eq!(harness.status(foreign), 202);
    assert_eq!(harness.outcome(ask), None);
    let modern = harness.send(post(
        &json!({"jsonrpc": "2.0", "id": ask_request["id"], "result": {}}),
    ));
    assert_eq!(
        (harness.status(modern), harness.code(modern)),
        (400, -32600)
    );
    let broken = json!({"jsonrpc": "1.0", "id": ask_request["id"], "method": "ping"});
    assert_eq!(
        harness.send_refused(session.post_message(&broken)),
        (400, -32600)
    );
    assert_eq!(harness.outcome(ask), None, "the message is no response");
    let answer = harness.send(session.answer(&ask_request["id"], json!({"roots": []})));
    assert_eq!(harness.status(answer), 202);
    assert_eq!(harness.outcome(ask), Some(Ok(json!({"roots": []}))));
    harness.respond(request, json!({"content": []}));
    assert!(harness.is_over(stream));
    harness.finish();
}

/// S-MRTR-04, S-HTTP-14, S-HTTP-16: a modern client gets the ask in place of the reply, and answers in another exchange.
#[test]
fn modern_client_answers_an_ask_in_another_exchange() {
    let mut harness = Harness::new(config());
    let first = modern(1, "tools/call", json!({"name": "slow"})).by(Some("ann"));
    let first = harness.send(first);
    let request = harness.newest_request();
    assert_eq!(harness.requests()[0].user.as_deref(), Some("ann"));
    let ask = harness.ask(request, "roots/list", Value::Null);
    let result = harness.json(first)["result"].clone();
    assert_eq!(result["resultType"], "input_required");
    let (key, _) = result["inputRequests"]
        .as_object()
        .unwrap()
        .iter()
        .next()
        .unwrap();
    let answers = json!({
        "name": "slow", "requestState": result["requestState"], "inputResponses": {key: {"roots": []}},
    });
    let eve = modern(1, "tools/call", answers.clone()).by(Some("eve"));
    let eve = harness.send(eve);
    assert_eq!((harness.status(eve), harness.code(eve)), (400, -32602));
    let second = harness.send(modern(1, "tools/call", answers).by(Some("ann")));
    assert_eq!(harness.outcome(ask), Some(Ok(json!({"roots": []}))));
    harness.respond(request, json!({"content": []}));
    assert_eq!(harness.json(second)["result"]["content"], json!([]));
    harness.finish();
}

/// S-HTTP-32, S-HTTP-33: errors of a modern request are reported in this order, with the request's id and the right status.
#[test]
fn modern_request_with_mismatched_header_fields_is_refused() {
    let mut harness = Harness::new(config());
    let good = || modern(7, "tools/call", json!({"name": "add"}));
    let bare = |method: &str, params: Value| {
        let message = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        post(&message).with("mcp-protocol-version", "2026-07-28")
    };
    let lacking = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2025-11-25"}});
    let future = json!({"_meta": {
        "io.modelcontextprotocol/protocolVersion": "2099-01-01",
        "io.modelcontextprotocol/clientCapabilities": {},
    }});
    for (http_request, status, code) in [
        (good().without("mcp-protocol-version"), 400, -32020),
        (good().with("mcp-protocol-version", b"\xff"), 400, -32020),
        (bare("tools/call", lacking), 400, -32602),
        (bare("tools/call", json!({})), 400, -32602),
        (
            good().with("mcp-protocol-version", "2025-11-25"),
            400,
            -32020,
        ),
        (bare("tools/call", future.clone()), 400, -32020),
        (
            bare("x", future).with("mcp-protocol-version", "2099-01-01"),
            400,
            -32022,
        ),
        (good().without("mcp-method"), 400, -32020),
        (good().with("mcp-method", "Tools/Call"), 400, -32020),
        (good().without("mcp-name"), 400, -32020),
        (good().with("mcp-name", "sub"), 400, -32020),
        (good().with("mcp-name", "=?base64?!?="), 400, -32020),
        (modern(7, "no/such", json!({})), 404, -32601),
        (modern(7, "initialize", json!({})), 404, -32601),
        (modern(7, "ping", json!({})), 404, -32601),
        (
            modern(7, "tasks/get", json!({"taskId": "1"})).with("mcp-name", "1"),
            404,
            -32601,
        ),
    ] {
        let shown = http_request.to_string();
        let refused = harness.send(http_request);
        assert_eq!(
            (harness.status(refused), harness.code(refused)),
            (status, code),
            "{shown}"
        );
        assert_eq!(harness.json(refused)["id"], 7, "{shown}");
    }
    let encoded = good()
        .with("mcp-name", "=?base64?YWRk?=")
        .with("mcp-method", " tools/call ");
    harness.send(encoded);
    assert_eq!(harness.requests().len(), 1);
    harness.finish();
}

/// S-XHDR-13, S-XHDR-14: the header fields of a call repeat the arguments that its tool marks.
#[test]
fn call_must_repeat_marked_arguments_in_header_fields() {
    let marked = json!({"tools": [{"name": "add", "inputSchema": {
        "type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
    }}]});
    for is_listed in [false, true] {
        let mut harness = Harness::new(config());
        if is_listed {
            harness.send(modern(1, "tools/list", json!({})));
            let request = harness.newest_request();
            harness.respond(request, marked.clone());
        } else {
            harness.with_server(|server, now| server.tools(now, &payload(&marked)));
        }
        let call = |region: Value| {
            modern(
                2,
                "tools/call",
                json!({"name": "add", "arguments": {"region": region}}),
            )
        };
        for (http_request, is_good) in [
            (call(json!("eu")).with("mcp-param-region", "eu"), true),
            (call(json!("eu")), false),
            (call(json!("eu")).with("mcp-param-region", "us"), false),
            (call(Value::Null), true),
        ] {
            let shown = http_request.to_string();
            let sent = harness.send(http_request);
            assert_eq!(harness.is_answered(sent), !is_good, "{shown}");
            if !is_good {
                assert_eq!((harness.status(sent), harness.code(sent)), (400, -32020));
            }
        }
        harness.finish();
    }
}

/// S-HTTP-02, S-HTTP-03, S-HTTP-36: requests that are refused before their message is read.
#[test]
fn invalid_requests_are_refused_with_their_http_status() {
    let mut harness = Harness::new(config());
    let good = || modern(1, "server/discover", json!({}));
    for (http_request, status) in [
        (good(), 200),
        (good().with("origin", "http://localhost:3000"), 200),
        (good().with("origin", "https://evil.example"), 403),
        (good().with("host", "evil.example"), 403),
        (good().with("content-type", "text/plain"), 415),
        (good().with("accept", "text/html"), 406),
        (post(&json!("nothing")), 400),
        (post(&json!([])), 400),
        (post(&json!({"jsonrpc": "2.0", "result": {}, "id": 1})), 400),
        (notification("notifications/custom", json!({})), 400),
        (get(), 400),
        (delete(), 400),
    ] {
        let shown = http_request.to_string();
        let sent = harness.send(http_request);
        assert_eq!(harness.status(sent), status, "{shown}");
        assert_eq!(harness.messages(sent).len(), 1, "{shown}");
    }
    let mut broken = post(&json!({}));
    broken.body = b"{\"jsonrpc\"".to_vec();
    let broken = harness.send(broken);
    assert_eq!(
        (harness.status(broken), harness.code(broken)),
        (400, -32700)
    );
    assert!(harness.json(broken).get("id").is_none());
    let valid = notification("notifications/custom", server_http::with_meta(json!({})));
    let accepted = harness.send(valid);
    assert_eq!(
        (harness.status(accepted), harness.text(accepted)),
        (202, "")
    );
    harness.finish();

    let mut modern_only = config();
    modern_only.versions = Versions::MODERN;
    let mut harness = Harness::new(modern_only);
    for http_request in [get(), delete()] {
        let sent = harness.send(http_request.with("mcp-session-id", "1"));
        assert_eq!(harness.status(sent), 405);
        assert_eq!(harness.field(sent, "allow"), Some("POST"));
    }
    let without_version = post(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}));
    let without_version = harness.send(without_version.with("mcp-session-id", "1"));
    assert_eq!(
        (
            harness.status(without_version),
            harness.code(without_version)
        ),
        (400, -32020),
        "S-HTTP-31"
    );
    harness.finish();
}

/// S-HTTP-34: the application's errors come with status 200, except those codes that have their own status.
#[test]
fn application_errors_have_the_right_http_status() {
    let mut harness = Harness::new(config());
    for (code, status) in [
        (-32602, 200),
        (-32603, 200),
        (7, 200),
        (-32601, 404),
        (-32021, 400),
    ] {
        let call = harness.send(modern(1, "tools/call", json!({"name": "add"})));
        let request = harness.newest_request();
        harness.fail(request, code, "no");
        assert_eq!((harness.status(call), harness.code(call)), (status, code));
    }
    let session = harness.open_session("2025-11-25");
    let unknown = harness.send(session.post(1, "no/such", Value::Null));
    assert_eq!(
        (harness.status(unknown), harness.code(unknown)),
        (200, -32601)
    );
    let failed = call(&session, 2).with("accept", "application/json");
    let (failed, request) = harness.send_accepted(failed);
    harness.fail(request, -32601, "no");
    assert_eq!(
        (harness.status(failed), harness.code(failed)),
        (200, -32601)
    );
    harness.finish();
}

/// S-BATCH-07: only a session of 2025-03-26 accepts a batch, and each of its requests gets a reply.
#[test]
fn batch_is_accepted_only_in_a_2025_03_26_session() {
    let mut harness = Harness::new(config());
    let session = harness.open_session("2025-03-26");
    let batch = json!([
        {"jsonrpc": "2.0", "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "add"}},
        {"jsonrpc": "2.0", "method": "notifications/custom"},
    ]);
    let sent = harness.send(session.post_message(&batch));
    let request = harness.newest_request();
    assert!(!harness.is_over(sent));
    harness.respond(request, json!({"content": []}));
    let ids: Vec<Value> = harness
        .messages(sent)
        .iter()
        .map(|m| m["id"].clone())
        .collect();
    assert_eq!(ids, [1, 2]);
    let response = harness
        .send(session.post_message(&json!([{"jsonrpc": "2.0", "method": "notifications/custom"}])));
    assert_eq!(harness.status(response), 202);
    let newer = harness.open_session("2025-06-18");
    let refused = harness.send(newer.post_message(&batch));
    assert_eq!(
        (harness.status(refused), harness.code(refused)),
        (400, -32600)
    );
    harness.finish();
}

/// F-043, S-HTTP-19: a stream or a slow request carries keepalive comments, so that no proxy takes it for dead.
#[test]
fn idle_streams_and_slow_requests_get_keepalive_comments() {
    let mut harness = Harness::new(config());
    let session = harness.open_session("2025-06-18");
    let stream = harness.send(session.get());
    let slow = harness.send(modern(1, "tools/call", json!({"name": "slow"})));
    let request = harness.newest_request();
    harness.advance(seconds(14));
    assert!(!harness.is_answered(slow));
    let before = harness.sse(stream).len();
    harness.advance(seconds(1));
    assert!(harness.is_answered(slow));
    assert_eq!(harness.sse(stream).len(), before + 1);
    harness.advance(seconds(30));
    assert_eq!(harness.sse(slow).len(), 3);
    assert!(harness.sse(slow).iter().all(|event| event.is_comment));
    harness.respond(request, json!({"content": []}));
    assert_eq!(harness.messages(slow).len(), 1);
    harness.finish();
}

/// F-036, F-110: idle sessions expire, and the number of sessions is limited.
#[test]
fn idle_sessions_expire_and_their_number_is_limited() {
    let mut few = config();
    few.limits.sessions = 2;
    let mut harness = Harness::new(few);
    let (other, busy) = (
        harness.open_session("2025-11-25"),
        harness.open_session("2025-11-25"),
    );
    let (stream, of_other) = (harness.send(busy.get()), harness.send(other.get()));
    let refused = harness.send(initialize("2025-11-25"));
    assert_eq!(
        harness.status(refused),
        503,
        "both sessions have an open stream"
    );
    assert!(harness.field(refused, "retry-after").is_some());
    harness.disconnect(of_other);
    let idle = harness.open_session("2025-11-25");
    let late = harness.send(other.post(1, "ping", Value::Null));
    assert_eq!(harness.status(late), 404, "the idle session was replaced");
    harness.advance(seconds(31 * 60));
    assert_eq!(harness.server.sessions(), 1);
    let late = harness.send(idle.post(1, "ping", Value::Null));
    assert_eq!(harness.status(late), 404);
    assert!(!harness.is_over(stream));
    harness.disconnect(stream);
    harness.advance(seconds(31 * 60));
    assert_eq!(harness.server.sessions(), 0);
    harness.finish();
}

/// F-115, S-SESS-09: a session belongs to the user that opened it.
#[test]
fn session_is_not_found_for_another_user() {
    let mut harness = Harness::new(config());
    let session = harness.open_session_by("2025-11-25", Some("ann"));
    for user in [None, Some("eve")] {
        let sent = harness.send(session.post(1, "ping", Value::Null).by(user));
        assert_eq!(harness.status(sent), 404);
        let sent = harness.send(session.get().by(user));
        assert_eq!(harness.status(sent), 404);
    }
    let sent = harness.send(session.post(1, "ping", Value::Null));
    assert_eq!(harness.status(sent), 200);
    harness.finish();
}

/// S-SSE-01, S-SSE-02, S-SSE-06: a client of 2024-11-05 has one stream, and its requests are cancelled with it.
#[test]
fn sse_transport_of_2024_11_05_works_when_enabled() {
    let mut harness = Harness::new(http_config(Http::new().with_sse(SsePaths::default())));
    let stream = harness.send(get().to("/sse"));
    let endpoint = harness.sse(stream).remove(0);
    assert_eq!(endpoint.name.as_deref(), Some("endpoint"));
    let endpoint = endpoint.data.unwrap();
    assert!(endpoint.starts_with("/messages?session="));
    let post_accepted = |harness: &mut Harness, http_request: HttpRequest| {
        let posted = harness.send(http_request.to(&endpoint));
        assert_eq!((harness.status(posted), harness.text(posted)), (202, ""));
    };
    post_accepted(&mut harness, initialize("2024-11-05"));
    post_accepted(
        &mut harness,
        notification("notifications/initialized", Value::Null),
    );
    let call =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "add"}});
    post_accepted(&mut harness, post(&call));
    let request = harness.newest_request();
    harness.respond(request, json!({"content": []}));
    let messages = harness.messages(stream);
    assert_eq!(messages[0]["result"]["protocolVersion"], "2024-11-05");
    assert_eq!(messages[1]["result"]["content"], json!([]));
    let named = |event: &server_http::Sse| event.name.as_deref() == Some("message");
    assert!(harness.sse(stream)[1..].iter().all(named));
    post_accepted(&mut harness, post(&call));
    let request = harness.newest_request();
    harness.disconnect(stream);
    assert_eq!(harness.cancellations(), [(request, Cancelled::PeerGone)]);
    let late = harness.send(post(&call).to(&endpoint));
    assert_eq!(harness.status(late), 404);
    assert_eq!(harness.server.sessions(), 0);
    let open = harness.send(get().to("/sse"));
    harness.shutdown();
    assert!(harness.is_over(open) && !harness.exchange(open).is_aborted());
    harness.finish();
}

/// F-101, F-102: after shutdown the server accepts nothing new and ends its streams. Open requests have a grace
/// period and then fail.
#[test]
fn shutdown_refuses_new_requests_and_drains_open_ones() {
    let mut harness = Harness::new(config());
    let session = harness.open_session("2025-11-25");
    let stream = harness.send(session.get());
    let done = harness.send(modern(1, "tools/call", json!({"name": "slow"})));
    let request = harness.newest_request();
    let cut = harness.send(modern(2, "tools/call", json!({"name": "slow"})));
    let legacy = harness.send(call(&session, 3));
    harness.shutdown();
    assert!(harness.is_over(stream));
    for http_request in [
        modern(4, "tools/list", json!({})),
        session.post(4, "tools/list", Value::Null),
        initialize("2025-11-25"),
        session.get(),
    ] {
        let refused = harness.send(http_request);
        assert_eq!(harness.status(refused), 503);
        assert_eq!(harness.all_values(refused, "retry-after"), ["5"]);
    }
    harness.respond(request, json!({"content": []}));
    assert_eq!(harness.json(done)["result"]["content"], json!([]));
    assert_eq!(harness.server.state(), State::Draining);
    harness.advance(seconds(6));
    assert_eq!((harness.status(cut), harness.code(cut)), (200, -32603));
    assert_eq!(harness.messages(legacy)[0]["error"]["code"], -32603);
    assert_eq!(harness.server.state(), State::Closed);
    harness.finish();
}

/// F-102: the last messages have a grace period to be read. Unread ones are then aborted. A stream of 2024-11-05, which has no reply
/// of its own, is finished.
#[test]
fn shutdown_waits_for_unread_output_and_then_aborts_it() {
    let mut small_window = http_config(Http::new().with_sse(SsePaths::default()));
    small_window.limits.write_window = 1;
    let mut harness = Harness::new(small_window);
    let stream = harness.send(get().to("/sse"));
    let post_path = harness.sse(stream).remove(0).data.unwrap();
    harness.stop_reading(stream);
    harness.send(initialize("2024-11-05").to(&post_path));
    let (cut, request) = harness.send_accepted(call_with_progress_and_logs(1));
    harness.stop_reading(cut);
    harness.progress(request, 1.0);
    harness.shutdown();
    harness.respond(request, json!({"content": []}));
    assert_eq!(harness.server.state(), State::Draining);
    harness.disconnect(cut);
    assert_eq!(
        harness.server.state(),
        State::Draining,
        "one stream is still unread"
    );
    harness.resume_reading(stream);
    assert_eq!(harness.server.state(), State::Closed);
    assert!(!harness.exchange(stream).is_aborted());
    harness.finish();

    let mut small_window = config();
    small_window.limits.write_window = 1;
    let mut harness = Harness::new(small_window);
    let (cut, request) = harness.send_accepted(call_with_progress_and_logs(1));
    harness.stop_reading(cut);
    harness.progress(request, 1.0);
    harness.shutdown();
    harness.respond(request, json!({"content": []}));
    harness.advance(seconds(6));
    assert!(harness.exchange(cut).is_aborted());
    harness.finish();

    // The same holds for a response that is written whole.
    let mut harness = Harness::new(config());
    let (unread, request) = harness.send_accepted(call_with_progress_and_logs(1));
    harness.stop_reading(unread);
    harness.respond(request, json!({"content": []}));
    harness.shutdown();
    assert_eq!(harness.server.state(), State::Draining);
    harness.resume_reading(unread);
    assert_eq!(harness.server.state(), State::Closed);
    harness.finish();
}

/// S-INH-06: the size, number and duration of incoming requests are limited.
#[test]
fn size_number_and_duration_of_incoming_requests_are_limited() {
    let mut tight = config();
    tight.limits.message_bytes = 1_000;
    tight.limits.body_bytes = 1_500;
    tight.limits.exchanges = 3;
    let mut harness = Harness::new(tight);
    let http_request = modern(1, "server/discover", json!({}));
    let long = harness.begin(&http_request);
    harness.body(long, &[b' '; 1_000]);
    assert!(!harness.is_answered(long));
    harness.body(long, b" ");
    assert_eq!(harness.status(long), 413);
    let streams = [(); 3].map(|()| harness.begin(&http_request));
    harness.body(streams[0], &[b' '; 900]);
    harness.body(streams[1], &[b' '; 900]);
    assert_eq!(harness.status(streams[1]), 503);
    let fourth = harness.begin(&http_request);
    let fifth = harness.begin(&http_request);
    assert_eq!(harness.status(streams[0]), 503, "the oldest is refused");
    harness.advance(seconds(61));
    for stream in [streams[2], fourth, fifth] {
        assert_eq!(harness.status(stream), 408);
    }
    harness.finish();
}

/// While a client does not read, repeated changes to one list are merged. The client gets each merged change once.
#[test]
fn client_that_does_not_read_does_not_delay_other_clients() {
    let mut small_window = config();
    small_window.limits.write_window = 1;
    let mut harness = Harness::new(small_window);
    let watch = |id| {
        let wanted =
            json!({"notifications": {"toolsListChanged": true, "promptsListChanged": true}});
        modern(id, "subscriptions/listen", wanted)
    };
    let (slow, quick) = (harness.send(watch(1)), harness.send(watch(1)));
    harness.stop_reading(slow);
    for _ in 0..9 {
        harness.publish(Change::List(List::Tools));
        harness.publish(Change::List(List::Prompts));
    }
    let (acknowledgement, changes, lists) = (1, 2 * 9, 2);
    let all = acknowledgement + changes;
    assert_eq!(harness.messages(quick).len(), all, "no change is merged");
    let written = acknowledgement + 1;
    assert_eq!(harness.messages(slow).len(), written, "the first change");
    harness.resume_reading(slow);
    assert_eq!(
        harness.messages(slow).len(),
        written + lists,
        "the other 17 changes became one per list"
    );
    harness.finish();
}

/// A session from a shared store continues at this server.
#[test]
fn session_is_restored_from_a_shared_store() {
    let store = Store::default();
    let mut record = SessionRecord::new("abc", Version::V2025_11_25);
    record.is_initialized = true;
    record.user = Some("ann".into());
    record.uris.insert("file:///a".into());
    store.put(record);
    let mut harness = Harness::with_store(http_config(stored_http(1)), &store);
    let session = Session::new("abc", "2025-11-25").by(Some("ann"));
    let other_user = harness.send(session.get().by(Some("eve")));
    assert_eq!(harness.status(other_user), 404);
    let stream = harness.send(session.get());
    harness.publish(Change::Resource {
        uri: "file:///a".into(),
    });
    assert_eq!(harness.messages(stream).len(), 1);
    let deleted = harness.send(session.delete());
    assert_eq!(harness.status(deleted), 204);
    let late = harness.send(session.get());
    assert_eq!(harness.status(late), 404);
    harness.finish();
}

/// S-CANC-05: a legacy client cancels a request with a notification in another exchange. The request's exchange ends without a
/// reply.
#[test]
fn legacy_client_cancels_a_request_from_another_exchange() {
    let mut harness = Harness::new(config());
    let session = harness.open_session("2025-11-25");
    for accept in ["application/json", "application/json, text/event-stream"] {
        let running = harness.send(call(&session, 1).with("accept", accept));
        let request = harness.newest_request();
        let other = harness.open_session("2025-11-25");
        for (sender, is_owner) in [(&other, false), (&session, true)] {
            let cancelled = json!({"requestId": 1});
            let response = harness.send(sender.notification("notifications/cancelled", cancelled));
            assert_eq!(harness.status(response), 202);
            assert_eq!(harness.is_over(running), is_owner);
        }
        let why = Cancelled::ByPeer {
            reason: None,
            meta: None,
        };
        assert_eq!(harness.cancellations().pop(), Some((request, why)));
        assert_eq!(harness.messages(running), NO_MESSAGES);
    }
    harness.finish();
}

/// Input for an exchange that is over or never began is counted and dropped.
#[test]
fn stale_input_is_counted_and_dropped() {
    let mut harness = Harness::new(config());
    let done = harness.send(modern(1, "server/discover", json!({})));
    assert!(harness.is_over(done));
    let before = harness.server.stats().stale_inputs;
    harness.end(done);
    harness.body(done, b"more");
    harness.feed(Input::bytes(&b"a line\n"[..]));
    let stream = StreamId::new(99);
    harness.feed(Input::Sent { stream, len: 1 });
    assert_eq!(harness.server.stats().stale_inputs, before + 4);
    // A second start of the same exchange is dropped, too, while the first arrives, is served or is not fully read.
    let http_request = modern(2, "server/discover", json!({}));
    let arriving = harness.begin(&http_request);
    let (served, _) = harness.send_accepted(modern(3, "tools/call", json!({"name": "slow"})));
    let unread = harness.begin(&http_request);
    harness.stop_reading(unread);
    harness.body(unread, &http_request.body);
    harness.end(unread);
    for stream in [arriving, served, unread] {
        let head = Box::new(http_request.head());
        harness.feed(Input::Request { stream, head });
    }
    assert_eq!(harness.server.stats().stale_inputs, before + 7);
    harness.finish();
}

/// The statistics count answered, refused, cancelled and dropped requests, and bytes.
#[test]
fn stats_count_requests_replies_refusals_and_bytes() {
    let mut harness = Harness::new(config());
    let http_request = modern(1, "tools/call", json!({"name": "slow"}));
    let bytes_in = http_request.body.len();
    let call = harness.send_and_respond(http_request.clone(), json!({"content": []}));
    let bytes_out = harness.text(call).len();
    let stats = harness.server.stats();
    assert_eq!(stats.bytes_in, bytes_in as u64);
    assert_eq!(stats.bytes_out, bytes_out as u64);
    assert_eq!((stats.messages_in, stats.messages_out), (1, 1));
    assert_eq!((stats.requests, stats.answered), (1, 1));
    assert_eq!((stats.refused, stats.cancelled), (0, 0));
    // Refused by the head, by the header fields, by the method.
    for http_request in [
        http_request.clone().with("accept", "text/html"),
        http_request.clone().with("mcp-name", "another"),
        modern(2, "no/such/method", json!({})),
    ] {
        harness.send_refused(http_request);
    }
    assert_eq!(harness.server.stats().refused, 3);
    let (abandoned, _) = harness.send_accepted(http_request);
    harness.disconnect(abandoned);
    let stats = harness.server.stats();
    assert_eq!((stats.requests, stats.answered), (2, 1));
    assert_eq!((stats.refused, stats.cancelled), (3, 1));
    assert_eq!(stats.answers_dropped, 0);
    harness.finish();
}

/// S-HTTP-15: a stream ends with its reply, even if the client does not read it.
#[test]
fn stream_ends_with_its_reply_even_if_unread() {
    let mut harness = Harness::new(config());
    let (begun, request) = harness.send_accepted(call_with_progress_and_logs(1));
    harness.stop_reading(begun);
    harness.progress(request, 1.0);
    harness.respond(request, json!({"content": []}));
    assert!(harness.is_over(begun));
    let http_request = call_with_progress_and_logs(2).with("accept", "text/event-stream");
    let (whole, request) = harness.send_accepted(http_request);
    harness.stop_reading(whole);
    harness.respond(request, json!({"content": []}));
    assert!(harness.is_over(whole));
    harness.finish();
}

/// S-S2C-04: over HTTP there are many clients, so an ask without a request is refused.
#[test]
fn ask_without_a_request_is_refused_over_http() {
    let mut harness = Harness::new(config());
    harness.open_session("2025-11-25");
    let asked = harness.with_server(|server, now| server.ask_unbidden(now, "roots/list", None));
    assert_eq!(asked, Err(Misuse::NoLegacyPeer));
    harness.finish();
}

/// The application may make its offer late. Clients that connect before that wait for it, in each era and on each transport.
#[test]
fn clients_wait_for_the_offer() {
    let mut late = config();
    let offer = late.offer.take().unwrap();
    late.http = Some(Http::new().with_sse(SsePaths::default()));
    let mut harness = Harness::new(late);
    let discovery = harness.send(modern(1, "server/discover", json!({})));
    let gone = harness.send(modern(1, "tools/call", json!({"name": "slow"})));
    let handshake = harness.send(initialize("2025-11-25"));
    let dropped = harness.send(initialize("2025-11-25"));
    let stream = harness.send(get().to("/sse"));
    let post_path = harness.sse(stream).remove(0).data.unwrap();
    harness.send(initialize("2024-11-05").to(&post_path));
    harness.send(notification("notifications/initialized", Value::Null).to(&post_path));
    let leaving = harness.send(get().to("/sse"));
    let leaving_path = harness.sse(leaving).remove(0).data.unwrap();
    harness.send(initialize("2024-11-05").to(&leaving_path));
    for stream in [leaving, gone, dropped] {
        harness.disconnect(stream);
    }
    harness.with_server(|server, now| server.offer(now, offer));
    assert_eq!(harness.json(discovery)["id"], 1);
    assert!(harness.field(handshake, "mcp-session-id").is_some());
    assert_eq!(harness.messages(stream).len(), 1);
    assert_eq!(harness.requests().len(), 0);
    assert_eq!(harness.server.sessions(), 2);
    harness.publish(Change::List(List::Tools));
    assert_eq!(
        harness.messages(stream).len(),
        2,
        "the handshake is complete"
    );
    harness.finish();
}
