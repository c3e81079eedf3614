//! The error codes that a server over HTTP uses, the codes that it denies to the application, and the types of its
//! results.

use crate::server_http::{
    self, Harness, HttpRequest, LEGACY, config, declaring, full_offer, modern, offering, payload,
    post, seconds,
};
use everlink::ErrorObject;
use everlink::protocol::ServerCapabilities;
use everlink::server::{Misuse, Unanswered, missing_capability};
use serde_json::{Value, json};

const DEFINED_CODES: [i64; 8] = [
    -32700, -32600, -32601, -32602, -32603, -32020, -32021, -32022,
];

fn call(id: u64) -> HttpRequest {
    modern(id, "tools/call", json!({"name": "add"}))
}

/// S-ERR-02, S-ERR-05, S-ERR-06: a modern server does not send a reserved code, even if the application uses it.
#[test]
fn s_err_05_reserved_codes_are_not_sent() {
    let mut harness = Harness::new(config());
    for code in -32_099..=-32_000 {
        let (stream, request) = harness.send_accepted(call(1));
        harness.fail(request, code, "no");
        let sent_code = harness.reply(stream)["error"]["code"].as_i64();
        let sent_code = sent_code.expect("an integer");
        let is_reserved = (-32_099..=-32_000).contains(&sent_code);
        assert!(!is_reserved || DEFINED_CODES.contains(&sent_code) || sent_code == code);
        match code {
            -32_022..=-32_020 => assert_eq!(sent_code, code),
            -32_099..=-32_020 | -32_002 => {
                assert!(
                    !is_reserved,
                    "S-ERR-05, S-ERR-06: {code} became {sent_code}"
                );
            }
            _ => {}
        }
    }
    harness.finish();
}

/// S-ERR-02, S-ERR-03: every refusal by the server itself has a defined code.
#[test]
fn s_err_03_errors_of_the_server_itself_have_defined_codes() {
    let mut tight = config();
    tight.limits.requests = 2;
    tight.limits.watched_uris = 1;
    tight.limits.sessions = 1;
    let mut harness = Harness::new(tight);
    let session = harness.open_session("2025-11-25");
    let uris = json!({"notifications": {"resourceSubscriptions": ["a:1"]}});
    let more_uris = json!({"notifications": {"resourceSubscriptions": ["a:2"]}});
    let state = json!({"name": "add", "requestState": "everlink.9.9.ff", "inputResponses": {}});
    let level = json!({"name": "add", "_meta": {"io.modelcontextprotocol/logLevel": "loud"}});
    let invalid_capabilities =
        json!({"name": "add", "_meta": {"io.modelcontextprotocol/clientCapabilities": 7}});
    let watching = harness.send(modern(1, "subscriptions/listen", uris));
    assert!(!harness.is_over(watching));
    let (_, _) = harness.send_accepted(call(1));
    let (_, request) =
        harness.send_accepted(session.post(1, "tools/call", json!({"name": "slow"})));
    let mut codes = Vec::new();
    for http_request in [
        modern(2, "subscriptions/listen", more_uris),
        modern(2, "subscriptions/listen", json!({"notifications": 7})),
        modern(2, "tools/call", state),
        modern(2, "tools/call", level),
        modern(2, "tools/call", invalid_capabilities),
        call(2),
        call(2).with("mcp-name", "x"),
        modern(2, "no/such", json!({})),
        session.post(1, "tools/call", json!({"name": "slow"})),
        session.post(3, "tools/call", json!({"name": "slow"})),
        session.post(3, "resources/subscribe", json!({})),
        session
            .post(3, "ping", Value::Null)
            .with("mcp-session-id", "x"),
        server_http::initialize("2025-11-25"),
        post(&json!([])),
    ] {
        codes.push(harness.send_refused(http_request));
    }
    harness.respond(request, json!({"content": []}));
    harness.shutdown();
    codes.push(harness.send_refused(call(2)));
    codes.push(harness.send_refused(session.post(4, "tools/list", Value::Null)));
    for (status, code) in codes {
        assert!(DEFINED_CODES.contains(&code), "{status} {code}");
    }
    harness.finish();
}

/// S-ERR-06, S-ERR-13: only 2025-11-25 has a code for "URL elicitation required". Other versions do not send it.
#[test]
fn s_err_13_url_elicitation_required_code_is_sent_only_in_2025_11_25() {
    let elicitation =
        json!({"mode": "url", "elicitationId": "e", "url": "https://example.com", "message": "?"});
    let data = json!({"elicitations": [elicitation]});
    let error = || {
        let mut error = ErrorObject::new(-32_042, "sign in first");
        error.data = Some(payload(&data));
        error
    };
    for version in LEGACY {
        let mut harness = Harness::new(config());
        let session = harness.open_session(version);
        let (stream, request) =
            harness.send_accepted(session.post(1, "tools/call", json!({"name": "asks"})));
        harness
            .with_server(|server, now| server.fail(now, request, error()))
            .expect("the server accepts the reply");
        let sent_error = harness.reply(stream)["error"].clone();
        let has_it = version == "2025-11-25";
        assert_eq!(sent_error["code"] == -32_042, has_it, "{version}");
        if has_it {
            assert_eq!(sent_error["data"], data);
        }
        harness.finish();
    }
    let mut harness = Harness::new(config());
    let (stream, request) = harness.send_accepted(call(1));
    harness
        .with_server(|server, now| server.fail(now, request, error()))
        .expect("the server accepts the reply");
    assert_ne!(harness.reply(stream)["error"]["code"], -32_042, "S-ERR-06");
    harness.finish();
}

/// S-ERR-09: the outcome of an ask distinguishes errors of the client from errors of the server.
#[test]
fn s_err_09_ask_outcome_distinguishes_client_errors_from_local_ones() {
    let mut config = config();
    config.ask_timeout = seconds(10);
    let mut harness = Harness::new(config);
    let session = harness.open_session("2025-11-25");
    let (_, request) =
        harness.send_accepted(session.post(1, "tools/call", json!({"name": "asks"})));
    let asks = [(); 3].map(|()| harness.ask(request, "roots/list", Value::Null));
    let text = "the client did not answer in time";
    let error = json!({"code": -32_001, "message": text});
    let id = harness.ask_ids("roots/list")[0].clone();
    harness.send(session.post_message(&json!({"jsonrpc": "2.0", "id": id, "error": error})));
    harness
        .with_server(|server, now| server.withdraw(now, asks[1], None))
        .expect("the ask is open");
    harness.advance(seconds(10));
    let client_error = ErrorObject::new(-32_001, text);
    assert_eq!(
        harness.outcome(asks[0]),
        Some(Err(Unanswered::Error(client_error)))
    );
    assert_eq!(harness.outcome(asks[1]), Some(Err(Unanswered::Withdrawn)));
    assert_eq!(harness.outcome(asks[2]), Some(Err(Unanswered::TimedOut)));
    harness.finish();
}

/// S-ERR-10: a method that is not offered is not found; a capability that the client lacks is named.
#[test]
fn s_err_10_methods_of_an_unoffered_capability_are_not_found() {
    let tools = ServerCapabilities::default().with_tools(false);
    let mut harness = Harness::new(offering(tools));
    for (method, params) in [
        ("prompts/list", json!({})),
        ("prompts/get", json!({"name": "x"})),
        ("resources/list", json!({})),
        ("resources/read", json!({"uri": "x:"})),
        ("completion/complete", json!({})),
    ] {
        assert_eq!(
            harness.send_refused(modern(1, method, params)),
            (404, -32601),
            "{method}"
        );
    }
    let (stream, request) = harness.send_accepted(call(1));
    let error = missing_capability(everlink::protocol::ClientFeature::ElicitationUrl);
    harness
        .with_server(|server, now| server.fail(now, request, error))
        .expect("the server accepts the reply");
    assert_eq!(
        (harness.status(stream), harness.code(stream)),
        (400, -32021)
    );
    harness.finish();
}

#[test]
fn s_rpc_18_every_modern_result_has_a_result_type() {
    let mut harness = Harness::new(config());
    let discovered = harness.send(modern(1, "server/discover", json!({})));
    assert_eq!(harness.result(discovered)["resultType"], "complete");
    for (method, params) in [
        ("tools/list", json!({})),
        ("tools/call", json!({"name": "add"})),
        ("prompts/list", json!({})),
        ("prompts/get", json!({"name": "greet"})),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("resources/read", json!({"uri": "file:///a"})),
        ("completion/complete", json!({})),
    ] {
        let stream = harness.send_and_respond(modern(1, method, params), json!({}));
        assert_eq!(harness.result(stream)["resultType"], "complete", "{method}");
    }
    let wanted = json!({"notifications": {}});
    let watching = harness.send(modern(1, "subscriptions/listen", wanted));
    let (asking, request) = harness.send_accepted(call(1));
    harness.ask(request, "roots/list", Value::Null);
    assert_eq!(harness.result(asking)["resultType"], "input_required");
    harness.shutdown();
    assert_eq!(harness.result(watching)["resultType"], "complete");
    // A legacy client does not know result types.
    let mut harness = Harness::new(config());
    let session = harness.open_session("2025-11-25");
    let stream = harness.send_and_respond(session.post(1, "tools/list", Value::Null), json!({}));
    assert_eq!(harness.result(stream), json!({}));
    harness.finish();
}

/// S-RPC-21, S-RPC-22: a result type is one of the specification, or one of an extension that both sides have.
#[test]
fn s_rpc_21_extension_result_type_needs_the_extension_on_both_sides() {
    const EXTENSION: &str = "com.example/fruit";
    let declared = json!({"extensions": {EXTENSION: {}}});
    let mut offer = full_offer();
    let settings = payload(&json!({})).into_raw();
    let capabilities = offer.capabilities.with_extension(EXTENSION, settings);
    offer.capabilities = capabilities.expect("an extension");
    let result = json!({"resultType": "banana", "content": []});
    for (offers, declares) in [(true, true), (true, false), (false, true)] {
        let mut config = config();
        if offers {
            config.offer = Some(offer.clone());
        }
        let mut harness = Harness::new(config);
        let capabilities = if declares { &declared } else { &json!({}) };
        let params = declaring(capabilities, json!({"name": "odd"}));
        let (stream, request) = harness.send_accepted(modern(1, "tools/call", params));
        let done =
            harness.with_server(|server, now| server.respond(now, request, payload(&result)));
        if offers && declares {
            assert_eq!(done, Ok(()));
            assert_eq!(harness.result(stream)["resultType"], "banana", "S-RPC-22");
        } else {
            let kind = "banana".into();
            assert_eq!(done, Err(Misuse::InvalidResultType { kind }));
            assert!(!harness.is_answered(stream));
        }
        harness.finish();
    }
}

/// S-RPC-27: a plain request, a request that asks its client for input, and a watch.
#[test]
fn s_rpc_27_plain_requests_rounds_and_watches_work() {
    let mut harness = Harness::new(config());
    let plain = harness.send_and_respond(call(1), json!({"content": []}));
    assert_eq!(harness.result(plain)["content"], json!([]));
    let (first, request) = harness.send_accepted(call(1));
    let ask = harness.ask(request, "roots/list", Value::Null);
    let round = harness.result(first);
    let key = round["inputRequests"].as_object().expect("asks");
    let key = key.keys().next().expect("a key").clone();
    let answers = json!({
        "name": "add", "requestState": round["requestState"], "inputResponses": {key: {"roots": []}},
    });
    let second = harness.send(modern(2, "tools/call", answers));
    assert_eq!(harness.outcome(ask), Some(Ok(json!({"roots": []}))));
    harness.respond(request, json!({"content": []}));
    assert_eq!(harness.result(second)["content"], json!([]));
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    let watching = harness.send(modern(3, "subscriptions/listen", wanted));
    harness.publish(everlink::Change::List(everlink::List::Tools));
    assert_eq!(harness.messages(watching).len(), 2);
    harness.finish();
}

/// S-RPC-28, S-TIME-08: a legacy client does its handshake, sends requests, and pings at any time.
#[test]
fn s_rpc_28_legacy_client_can_ping_during_handshake_and_requests() {
    for version in LEGACY {
        let mut harness = Harness::new(config());
        let begun = harness.send(server_http::initialize(version));
        assert_eq!(harness.result(begun)["protocolVersion"], version);
        let id = harness
            .field(begun, "mcp-session-id")
            .expect("an id")
            .to_owned();
        let session = server_http::Session::new(id, version);
        let early = harness.send(session.post(1, "ping", Value::Null));
        assert_eq!(harness.result(early), json!({}));
        harness.send(session.notification("notifications/initialized", Value::Null));
        let (running, request) =
            harness.send_accepted(session.post(2, "tools/call", json!({"name": "slow"})));
        let pong = harness.send(session.post(3, "ping", json!({})));
        assert_eq!(harness.result(pong), json!({}), "S-TIME-08");
        harness.respond(request, json!({"content": []}));
        assert_eq!(harness.result(running)["content"], json!([]));
        harness.finish();
    }
}
