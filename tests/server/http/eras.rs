//! Both eras side by side over HTTP: the `_meta` that a modern request must have, the result of `server/discover`, and versions.

use crate::server_http::{
    self, Harness, HttpRequest, config, declaring, full_offer, initialize, modern, notification,
    offering, payload, post,
};
use everlink::protocol::{ServerCapabilities, ServerFeature, Version, Versions, meta};
use everlink::server::{Config, Misuse};
use everlink::{Change, List};
use serde_json::{Value, json};

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// A call with exactly this `_meta`.
fn call_with_meta(meta: &Value) -> HttpRequest {
    let message = json!({
        "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "add", "_meta": meta},
    });
    post(&message)
        .with("mcp-protocol-version", "2026-07-28")
        .with("mcp-method", "tools/call")
        .with("mcp-name", "add")
}

fn modern_only() -> Config {
    let mut config = config();
    config.versions = Versions::MODERN;
    config
}

fn call() -> HttpRequest {
    modern(7, "tools/call", json!({"name": "add"}))
}

#[test]
fn s_meta_03_request_without_version_or_capabilities_is_refused() {
    for config in [config(), modern_only()] {
        let mut harness = Harness::new(config);
        for lacking in [
            json!({}),
            json!({VERSION: "2026-07-28"}),
            json!({CAPABILITIES: {}}),
            json!({VERSION: 7, CAPABILITIES: {}}),
            json!({VERSION: "2026-07-28", CAPABILITIES: []}),
            json!({VERSION: "2026-07-28", CAPABILITIES: null}),
        ] {
            assert_eq!(
                harness.send_refused(call_with_meta(&lacking)),
                (400, -32602),
                "{lacking}"
            );
        }
        let bare = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/list"});
        let bare = post(&bare)
            .with("mcp-protocol-version", "2026-07-28")
            .with("mcp-method", "tools/list");
        assert_eq!(harness.send_refused(bare), (400, -32602));
        harness.finish();
    }
}

#[test]
fn s_meta_04_client_info_is_optional() {
    let mut harness = Harness::new(config());
    harness.send_accepted(call_with_meta(
        &json!({VERSION: "2026-07-28", CAPABILITIES: {}}),
    ));
    assert!(harness.requests()[0].peer.client.is_none());
    let invalid_info = json!({
        VERSION: "2026-07-28", CAPABILITIES: {}, "io.modelcontextprotocol/clientInfo": 7,
    });
    harness.send_accepted(call_with_meta(&invalid_info));
    harness.finish();
}

/// S-META-05, S-META-08: each request has only its own version and capabilities, not those of an earlier one.
#[test]
fn s_meta_05_capabilities_of_earlier_requests_do_not_apply() {
    let mut harness = Harness::new(config());
    let declared = json!({"roots": {}, "sampling": {}});
    harness.send_accepted(modern(
        1,
        "tools/call",
        declaring(&declared, json!({"name": "a"})),
    ));
    let undeclared = declaring(&json!({}), json!({"name": "b"}));
    let (_, request) = harness.send_accepted(modern(2, "tools/call", undeclared));
    let asked = harness.with_server(|server, now| server.ask(now, request, "roots/list", None));
    assert!(matches!(asked, Err(Misuse::Unaskable { .. })), "{asked:?}");
    let session = harness.open_session("2025-11-25");
    let bare = call_with_meta(&json!({}));
    assert_eq!(harness.send_refused(bare), (400, -32602));
    let undeclared = declaring(&json!({}), json!({"name": "b"}));
    let undeclared = modern(2, "tools/call", undeclared).with("mcp-session-id", &session.id);
    let (_, request) = harness.send_accepted(undeclared);
    let asked = harness.with_server(|server, now| server.ask(now, request, "roots/list", None));
    assert!(matches!(asked, Err(Misuse::Unaskable { .. })), "S-META-08");
    harness.finish();
}

#[test]
fn s_meta_06_every_result_names_the_server_unless_disabled() {
    for names_itself in [true, false] {
        let mut config = config();
        config.names_itself = names_itself;
        let mut harness = Harness::new(config);
        let served = harness.send_and_respond(call(), json!({"content": []}));
        let discovered = harness.send(modern(1, "server/discover", json!({})));
        let (asking, request) = harness.send_accepted(call());
        harness.ask(request, "roots/list", Value::Null);
        for stream in [served, discovered, asking] {
            let named = harness.result(stream)["_meta"][meta::SERVER_INFO].clone();
            let expected = json!({"name": "site", "version": "1"});
            assert_eq!(named == expected, names_itself, "{named}");
        }
        harness.finish();
    }
}

#[test]
fn s_meta_07_client_name_does_not_affect_the_reply() {
    let mut harness = Harness::new(config());
    let mut replies = Vec::new();
    for name in ["scripted", "claude", "root", ""] {
        let client_info = json!({"name": name, "version": "1"});
        let meta = json!({
            VERSION: "2026-07-28", CAPABILITIES: {}, "io.modelcontextprotocol/clientInfo": client_info,
        });
        let stream = harness.send_and_respond(call_with_meta(&meta), json!({"content": []}));
        replies.push(harness.json(stream));
    }
    replies.dedup();
    assert_eq!(replies.len(), 1);
    harness.finish();
}

#[test]
fn s_meta_09_missing_client_capability_is_named() {
    let mut offer = full_offer();
    offer.capabilities = offer.capabilities.with(ServerFeature::TasksExtension);
    let mut tasks = config();
    tasks.offer = Some(offer);
    let mut harness = Harness::new(tasks);
    let http_request = modern(7, "tasks/get", json!({"taskId": "t"})).with("mcp-name", "t");
    let sent = harness.send(http_request);
    assert_eq!((harness.status(sent), harness.code(sent)), (400, -32021));
    let needed = harness.json(sent)["error"]["data"]["requiredCapabilities"].clone();
    assert_eq!(
        needed,
        json!({"extensions": {meta::TASKS_EXTENSION: {}}}),
        "an object of capabilities"
    );
    harness.finish();
}

/// S-META-10, S-META-11: the keys that a server puts into `_meta` are well formed, and those with a reserved prefix are defined.
#[test]
fn s_meta_10_meta_keys_of_the_server_are_valid_and_defined() {
    let defined = [meta::SERVER_INFO, meta::SUBSCRIPTION_ID];
    let mut harness = Harness::new(config());
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    let mut streams = vec![
        harness.send(modern(1, "subscriptions/listen", wanted)),
        harness.send(modern(1, "server/discover", json!({}))),
        harness.send_and_respond(modern(1, "tools/list", json!({})), json!({"tools": []})),
    ];
    let (asking, request) = harness.send_accepted(call());
    harness.ask(request, "roots/list", Value::Null);
    let session = harness.open_session("2025-11-25");
    streams.extend([asking, harness.send(session.get())]);
    harness.publish(Change::List(List::Tools));
    let mut seen = 0;
    for message in streams.iter().flat_map(|stream| harness.messages(*stream)) {
        for part in ["params", "result"] {
            let keys = message[part]["_meta"].as_object();
            for key in keys.into_iter().flat_map(|keys| keys.keys()) {
                assert!(meta::is_valid_key(key), "{key}");
                assert!(defined.contains(&key.as_str()), "S-META-11: {key}");
                seen += 1;
            }
        }
    }
    assert!(seen >= 5);
    harness.finish();
}

#[test]
fn s_meta_13_unknown_meta_keys_pass_unchanged() {
    let unknown = json!({
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "com.example/key": {"a": [1, null]},
        "io.modelcontextprotocol/whatever": 7,
        "not a / valid key": true,
    });
    let mut harness = Harness::new(config());
    let session = harness.open_session("2025-11-25");
    let params = json!({"name": "add", "_meta": unknown});
    for http_request in [
        modern(1, "tools/call", params.clone()),
        session.post(1, "tools/call", params),
    ] {
        let (stream, request) = harness.send_accepted(http_request);
        let delivered = harness
            .requests()
            .pop()
            .and_then(|request| request.params.clone());
        let delivered: Value = delivered.expect("params").parse().expect("JSON");
        assert_eq!(delivered["_meta"], unknown);
        harness.respond(request, json!({"content": [], "_meta": unknown}));
        let mut received_meta = harness.result(stream)["_meta"].clone();
        received_meta
            .as_object_mut()
            .expect("an object")
            .remove(meta::SERVER_INFO);
        assert_eq!(received_meta, unknown);
    }
    harness.finish();
}

#[test]
fn s_meta_15_unrelated_requests_run_concurrently() {
    let mut harness = Harness::new(config());
    let session = harness.open_session("2025-06-18");
    let mut open = Vec::new();
    for at in 0..6 {
        let params = json!({"name": "slow", "at": at});
        let http_request = if at % 3 == 2 {
            session.post(at, "tools/call", params)
        } else {
            modern(1, "tools/call", params)
        };
        open.push((at, harness.send_accepted(http_request)));
    }
    open.rotate_left(2);
    for (at, (_, request)) in open.iter().rev() {
        harness.respond(*request, json!({"content": [at]}));
    }
    for (at, (stream, _)) in open {
        assert_eq!(harness.result(stream)["content"], json!([at]));
    }
    harness.finish();
}

/// S-VER-01: a version that is switched off is refused like an unknown one.
#[test]
fn s_ver_01_unsupported_version_error_lists_the_supported_versions() {
    let mut harness = Harness::new(config());
    for wanted in ["2025-11-25", "2024-11-05", "1999-01-01", "2027-01-01"] {
        let request_meta = json!({VERSION: wanted, CAPABILITIES: {}});
        let sent = harness.send(call_with_meta(&request_meta).with("mcp-protocol-version", wanted));
        assert_eq!(
            (harness.status(sent), harness.code(sent)),
            (400, -32022),
            "{wanted}"
        );
        let data = harness.json(sent)["error"]["data"].clone();
        assert_eq!(data["requested"], wanted);
        // The list names no version that would be refused if it were chosen.
        assert_eq!(data["supported"], json!(["2026-07-28"]), "{wanted}");
        let discovered = harness.send(modern(2, "server/discover", json!({})));
        let discovered = harness.result(discovered);
        assert_eq!(data["supported"], discovered["supportedVersions"]);
    }
    harness.finish();
    let mut legacy = config();
    legacy.versions = Versions::LEGACY;
    let mut harness = Harness::new(legacy);
    let refused = harness.send(call());
    assert_eq!(harness.status(refused), 400);
    assert!(harness.requests().is_empty());
    harness.finish();
}

#[test]
fn s_ver_03_discover_result_has_all_required_members() {
    let mut config = config();
    let offer = full_offer().with_instructions("be gentle");
    config.offer = Some(offer);
    let mut harness = Harness::new(config);
    let stream = harness.send(modern(1, "server/discover", json!({})));
    let discovered = harness.result(stream);
    let versions = discovered["supportedVersions"].as_array().expect("a list");
    assert!(versions.contains(&json!("2026-07-28")));
    assert_eq!(
        discovered["capabilities"]["tools"],
        json!({"listChanged": true})
    );
    assert_eq!(discovered["resultType"], "complete");
    assert!(discovered["ttlMs"].is_u64());
    assert!(["public", "private"].contains(&discovered["cacheScope"].as_str().expect("a string")));
    assert_eq!(discovered["instructions"], "be gentle");
    assert!(harness.requests().is_empty());
    harness.finish();
}

/// S-VER-05, S-VER-06, S-VER-07: the server supports all versions at once. A request with modern `_meta` is modern; a handshake is
/// legacy.
#[test]
fn s_ver_06_both_eras_are_served_at_one_endpoint() {
    let mut harness = Harness::new(config());
    let sessions = server_http::LEGACY.map(|version| harness.open_session(version));
    let (modern_call, modern_request) = harness.send_accepted(call());
    let mut calls = Vec::new();
    for session in &sessions {
        let http_request = session.post(7, "tools/call", json!({"name": "add"}));
        calls.push((harness.send_accepted(http_request), session.version.clone()));
    }
    for ((_, request), version) in &calls {
        let delivered = harness.requests();
        let delivered = delivered
            .iter()
            .find(|delivered| delivered.request == *request);
        let peer = delivered.expect("the request arrived").peer.version;
        assert_eq!(peer.as_str(), version);
        harness.respond(*request, json!({"content": []}));
    }
    harness.respond(modern_request, json!({"content": []}));
    assert_eq!(harness.result(modern_call)["resultType"], "complete");
    for ((stream, _), version) in calls {
        assert_eq!(harness.result(stream), json!({"content": []}), "{version}");
    }
    // A modern request stays modern within a session.
    let inside = sessions[3]
        .in_session(call())
        .with("mcp-protocol-version", "2026-07-28");
    let inside = harness.send_and_respond(inside, json!({"content": []}));
    assert_eq!(harness.result(inside)["resultType"], "complete", "S-VER-07");
    harness.finish();
}

#[test]
fn s_ver_08_initialize_with_modern_meta_is_an_unknown_method() {
    let mut harness = Harness::new(config());
    let params = json!({
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"},
    });
    let sent = harness.send(modern(1, "initialize", params));
    assert_eq!((harness.status(sent), harness.code(sent)), (404, -32601));
    assert_eq!(harness.field(sent, "mcp-session-id"), None);
    assert_eq!(harness.server.sessions(), 0);
    harness.finish();
}

#[test]
fn s_ver_12_modern_server_lists_its_versions_when_it_refuses_a_handshake() {
    let mut harness = Harness::new(modern_only());
    for version in server_http::LEGACY {
        let sent = harness.send(initialize(version));
        assert!(harness.status(sent) >= 400);
        let text = harness.text(sent);
        assert!(text.contains("2026-07-28"), "{text}");
    }
    harness.finish();
}

#[test]
fn s_ver_14_extension_needs_a_prefixed_identifier_and_object_settings() {
    let settings = |value: &Value| payload(value).into_raw();
    let with =
        |id: &str, value: &Value| ServerCapabilities::default().with_extension(id, settings(value));
    assert!(with("plain", &json!({})).is_err());
    assert!(with("com.example/x", &json!([])).is_err());
    let offered = with("com.example/x", &json!({"a": 1}));
    let offered = offered.and_then(|c| c.with_extension("dev.example/y", settings(&json!({}))));
    let mut harness = Harness::new(offering(offered.expect("well formed")));
    let discovered = harness.send(modern(1, "server/discover", json!({})));
    let extensions = json!({"com.example/x": {"a": 1}, "dev.example/y": {}});
    assert_eq!(
        harness.result(discovered)["capabilities"]["extensions"],
        extensions
    );
    harness.finish();
}

/// S-VER-15, S-VER-16: an extension is used only if both sides have it, and nothing is active by default.
#[test]
fn s_ver_15_extension_is_active_only_if_both_sides_have_it() {
    let tasks = json!({"extensions": {meta::TASKS_EXTENSION: {}}});
    let task = json!({"resultType": "task", "taskId": "t", "status": "working", "ttlMs": null});
    for (offers, declares) in [(false, true), (true, false), (true, true)] {
        let mut config = config();
        if offers {
            let mut offer = full_offer();
            offer.capabilities = offer.capabilities.with(ServerFeature::TasksExtension);
            config.offer = Some(offer);
        }
        let mut harness = Harness::new(config);
        let discovered = harness.send(modern(1, "server/discover", json!({})));
        let extensions = harness.result(discovered)["capabilities"]["extensions"].clone();
        assert_eq!(extensions.is_object(), offers, "S-VER-16: {extensions}");
        let declared = if declares { tasks.clone() } else { json!({}) };
        let params = declaring(&declared, json!({"name": "long"}));
        let (stream, request) = harness.send_accepted(modern(1, "tools/call", params));
        let done = harness.with_server(|server, now| server.respond(now, request, payload(&task)));
        assert_eq!(done.is_ok(), offers && declares);
        if done.is_err() {
            harness.respond(request, json!({"content": []}));
            assert_eq!(harness.result(stream)["resultType"], "complete");
        }
        harness.finish();
    }
}

/// The application is told once of each new client.
#[test]
fn each_new_client_is_reported_once() {
    let mut harness = Harness::new(config());
    harness.open_session("2025-11-25");
    harness.open_session("2025-11-25");
    harness.send_accepted(call());
    harness.send(notification(
        "notifications/custom",
        server_http::with_meta(json!({})),
    ));
    let met = harness.met();
    let legacy = Version::V2025_11_25;
    assert_eq!(met, [legacy, legacy, Version::V2026_07_28]);
    harness.finish();
}
