//! The error codes that a server over HTTP uses, the codes that it denies to the application, and the types of its
//! results.

use crate::server_http::{
    self, Ask, LEGACY, Site, config, declaring, everything, modern, offering, payload, post,
    seconds,
};
use everlink::ErrorObject;
use everlink::protocol::ServerCapabilities;
use everlink::server::{Misuse, Unanswered, missing_capability};
use serde_json::{Value, json};

const DEFINED: [i64; 8] = [
    -32700, -32600, -32601, -32602, -32603, -32020, -32021, -32022,
];

fn call(id: u64) -> Ask {
    modern(id, "tools/call", json!({"name": "add"}))
}

/// S-ERR-02, S-ERR-05, S-ERR-06: a modern server does not send a reserved code, even if the application uses it.
#[test]
fn s_err_05_reserved_codes_are_not_used() {
    let mut site = Site::new(config());
    for code in -32_099..=-32_000 {
        let (stream, request) = site.taken(call(1));
        site.fail(request, code, "no");
        let told = site.answer(stream)["error"]["code"].as_i64();
        let told = told.expect("an integer");
        let is_kept = (-32_099..=-32_000).contains(&told);
        assert!(!is_kept || DEFINED.contains(&told) || told == code);
        match code {
            -32_022..=-32_020 => assert_eq!(told, code),
            -32_099..=-32_020 | -32_002 => {
                assert!(!is_kept, "S-ERR-05, S-ERR-06: {code} became {told}");
            }
            _ => {}
        }
    }
    site.finish();
}

/// S-ERR-02, S-ERR-03: every refusal by the server itself has a defined code.
#[test]
fn s_err_03_the_servers_own_codes_are_defined() {
    let mut tight = config();
    tight.limits.requests = 2;
    tight.limits.watched_uris = 1;
    tight.limits.sessions = 1;
    let mut site = Site::new(tight);
    let session = site.session("2025-11-25");
    let uris = json!({"notifications": {"resourceSubscriptions": ["a:1"]}});
    let state = json!({"name": "add", "requestState": "everlink.9.9.ff", "inputResponses": {}});
    let level = json!({"name": "add", "_meta": {"io.modelcontextprotocol/logLevel": "loud"}});
    let odd = json!({"name": "add", "_meta": {"io.modelcontextprotocol/clientCapabilities": 7}});
    let watching = site.send(modern(1, "subscriptions/listen", uris.clone()));
    assert!(!site.is_over(watching));
    let (_, _) = site.taken(call(1));
    let (_, request) = site.taken(session.post(1, "tools/call", json!({"name": "slow"})));
    let mut codes = Vec::new();
    for ask in [
        modern(2, "subscriptions/listen", uris),
        modern(2, "subscriptions/listen", json!({"notifications": 7})),
        modern(2, "tools/call", state),
        modern(2, "tools/call", level),
        modern(2, "tools/call", odd),
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
        codes.push(site.refused(ask));
    }
    site.respond(request, json!({"content": []}));
    site.shutdown();
    codes.push(site.refused(call(2)));
    codes.push(site.refused(session.post(4, "tools/list", Value::Null)));
    for (status, code) in codes {
        assert!(DEFINED.contains(&code), "{status} {code}");
    }
    site.finish();
}

/// S-ERR-06, S-ERR-13: only 2025-11-25 has a code for "URL elicitation required". Other versions do not send it.
#[test]
fn s_err_13_a_visit_that_is_needed_first_has_its_own_error() {
    let elicitation =
        json!({"mode": "url", "elicitationId": "e", "url": "https://example.com", "message": "?"});
    let data = json!({"elicitations": [elicitation]});
    let error = || {
        let mut error = ErrorObject::new(-32_042, "sign in first");
        error.data = Some(payload(&data));
        error
    };
    for version in LEGACY {
        let mut site = Site::new(config());
        let session = site.session(version);
        let (stream, request) = site.taken(session.post(1, "tools/call", json!({"name": "asks"})));
        site.verb(|server, now| server.fail(now, request, error()))
            .expect("an answer");
        let told = site.answer(stream)["error"].clone();
        let has_it = version == "2025-11-25";
        assert_eq!(told["code"] == -32_042, has_it, "{version}");
        if has_it {
            assert_eq!(told["data"], data);
        }
        site.finish();
    }
    let mut site = Site::new(config());
    let (stream, request) = site.taken(call(1));
    site.verb(|server, now| server.fail(now, request, error()))
        .expect("an answer");
    assert_ne!(site.answer(stream)["error"]["code"], -32_042, "S-ERR-06");
    site.finish();
}

/// S-ERR-09: the outcome of an ask distinguishes errors of the client from errors of the server.
#[test]
fn s_err_09_local_errors_are_not_those_of_the_client() {
    let mut config = config();
    config.ask_timeout = seconds(10);
    let mut site = Site::new(config);
    let session = site.session("2025-11-25");
    let (_, request) = site.taken(session.post(1, "tools/call", json!({"name": "asks"})));
    let asks = [(); 3].map(|()| site.ask(request, "roots/list", Value::Null));
    let words = "the client did not answer in time";
    let error = json!({"code": -32_001, "message": words});
    let id = site.asked("roots/list")[0].clone();
    site.send(session.say(&json!({"jsonrpc": "2.0", "id": id, "error": error})));
    site.verb(|server, now| server.withdraw(now, asks[1], None))
        .expect("it is open");
    site.pass(seconds(10));
    let said = ErrorObject::new(-32_001, words);
    assert_eq!(site.outcome(asks[0]), Some(Err(Unanswered::Error(said))));
    assert_eq!(site.outcome(asks[1]), Some(Err(Unanswered::Withdrawn)));
    assert_eq!(site.outcome(asks[2]), Some(Err(Unanswered::TimedOut)));
    site.finish();
}

/// S-ERR-10: a method that is not offered is not found; a capability that the client lacks is named.
#[test]
fn s_err_10_what_is_not_offered_is_not_found() {
    let tools = ServerCapabilities::default().with_tools(false);
    let mut site = Site::new(offering(tools));
    for (method, params) in [
        ("prompts/list", json!({})),
        ("prompts/get", json!({"name": "x"})),
        ("resources/list", json!({})),
        ("resources/read", json!({"uri": "x:"})),
        ("completion/complete", json!({})),
    ] {
        assert_eq!(
            site.refused(modern(1, method, params)),
            (404, -32601),
            "{method}"
        );
    }
    let (stream, request) = site.taken(call(1));
    let lack = missing_capability(everlink::protocol::ClientFeature::ElicitationUrl);
    site.verb(|server, now| server.fail(now, request, lack))
        .expect("an answer");
    assert_eq!((site.status(stream), site.code(stream)), (400, -32021));
    site.finish();
}

#[test]
fn s_rpc_18_every_result_says_of_which_kind_it_is() {
    let mut site = Site::new(config());
    let discovered = site.send(modern(1, "server/discover", json!({})));
    assert_eq!(site.result(discovered)["resultType"], "complete");
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
        let stream = site.served(modern(1, method, params), json!({}));
        assert_eq!(site.result(stream)["resultType"], "complete", "{method}");
    }
    let wanted = json!({"notifications": {}});
    let watching = site.send(modern(1, "subscriptions/listen", wanted));
    let (asking, request) = site.taken(call(1));
    site.ask(request, "roots/list", Value::Null);
    assert_eq!(site.result(asking)["resultType"], "input_required");
    site.shutdown();
    assert_eq!(site.result(watching)["resultType"], "complete");
    // A legacy client does not know result types.
    let mut site = Site::new(config());
    let session = site.session("2025-11-25");
    let stream = site.served(session.post(1, "tools/list", Value::Null), json!({}));
    assert_eq!(site.result(stream), json!({}));
    site.finish();
}

/// S-RPC-21, S-RPC-22: a result type is one of the specification, or one of an extension that both sides have.
#[test]
fn s_rpc_21_a_kind_of_result_takes_two() {
    const FRUIT: &str = "com.example/fruit";
    let declared = json!({"extensions": {FRUIT: {}}});
    let mut offer = everything();
    let settings = payload(&json!({})).into_raw();
    let capabilities = offer.capabilities.with_extension(FRUIT, settings);
    offer.capabilities = capabilities.expect("an extension");
    let fruit = json!({"resultType": "banana", "content": []});
    for (offers, declares) in [(true, true), (true, false), (false, true)] {
        let mut config = config();
        if offers {
            config.offer = Some(offer.clone());
        }
        let mut site = Site::new(config);
        let capabilities = if declares { &declared } else { &json!({}) };
        let params = declaring(capabilities, json!({"name": "odd"}));
        let (stream, request) = site.taken(modern(1, "tools/call", params));
        let done = site.verb(|server, now| server.respond(now, request, payload(&fruit)));
        if offers && declares {
            assert_eq!(done, Ok(()));
            assert_eq!(site.result(stream)["resultType"], "banana", "S-RPC-22");
        } else {
            let kind = "banana".into();
            assert_eq!(done, Err(Misuse::InvalidResultType { kind }));
            assert!(!site.is_answered(stream));
        }
        site.finish();
    }
}

/// S-RPC-27: a plain request, a request that asks its client for input, and a watch.
#[test]
fn s_rpc_27_a_server_has_all_three_patterns() {
    let mut site = Site::new(config());
    let plain = site.served(call(1), json!({"content": []}));
    assert_eq!(site.result(plain)["content"], json!([]));
    let (first, request) = site.taken(call(1));
    let ask = site.ask(request, "roots/list", Value::Null);
    let asked = site.result(first);
    let key = asked["inputRequests"].as_object().expect("questions");
    let key = key.keys().next().expect("one").clone();
    let answers = json!({
        "name": "add", "requestState": asked["requestState"], "inputResponses": {key: {"roots": []}},
    });
    let second = site.send(modern(2, "tools/call", answers));
    assert_eq!(site.outcome(ask), Some(Ok(json!({"roots": []}))));
    site.respond(request, json!({"content": []}));
    assert_eq!(site.result(second)["content"], json!([]));
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    let watching = site.send(modern(3, "subscriptions/listen", wanted));
    site.publish(everlink::Change::List(everlink::List::Tools));
    assert_eq!(site.messages(watching).len(), 2);
    site.finish();
}

/// S-RPC-28, S-TIME-08: a legacy client does its handshake, sends requests, and pings at any time.
#[test]
fn s_rpc_28_a_legacy_client_has_its_handshake_and_its_pings() {
    for version in LEGACY {
        let mut site = Site::new(config());
        let begun = site.send(server_http::initialize(version));
        assert_eq!(site.result(begun)["protocolVersion"], version);
        let id = site
            .field(begun, "mcp-session-id")
            .expect("an id")
            .to_owned();
        let session = server_http::Session::new(id, version);
        let early = site.send(session.post(1, "ping", Value::Null));
        assert_eq!(site.result(early), json!({}));
        site.send(session.notice("notifications/initialized", Value::Null));
        let (running, request) = site.taken(session.post(2, "tools/call", json!({"name": "slow"})));
        let pong = site.send(session.post(3, "ping", json!({})));
        assert_eq!(site.result(pong), json!({}), "S-TIME-08");
        site.respond(request, json!({"content": []}));
        assert_eq!(site.result(running)["content"], json!([]));
        site.finish();
    }
}
