//! Both eras side by side over HTTP: the `_meta` that a modern request must have, the result of `server/discover`, and versions.

use crate::server_http::{
    self, Ask, Site, config, declaring, everything, initialize, modern, notice, offering, payload,
    post,
};
use everlink::protocol::{ServerCapabilities, ServerFeature, Version, Versions, meta};
use everlink::server::{Config, Misuse};
use everlink::{Change, List};
use serde_json::{Value, json};

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// A call with exactly this `_meta`.
fn with(meta: &Value) -> Ask {
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

fn call() -> Ask {
    modern(7, "tools/call", json!({"name": "add"}))
}

#[test]
fn s_meta_03_a_request_brings_its_terms() {
    for config in [config(), modern_only()] {
        let mut site = Site::new(config);
        for lacking in [
            json!({}),
            json!({VERSION: "2026-07-28"}),
            json!({CAPABILITIES: {}}),
            json!({VERSION: 7, CAPABILITIES: {}}),
            json!({VERSION: "2026-07-28", CAPABILITIES: []}),
            json!({VERSION: "2026-07-28", CAPABILITIES: null}),
        ] {
            assert_eq!(site.refused(with(&lacking)), (400, -32602), "{lacking}");
        }
        let bare = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/list"});
        let bare = post(&bare)
            .with("mcp-protocol-version", "2026-07-28")
            .with("mcp-method", "tools/list");
        assert_eq!(site.refused(bare), (400, -32602));
        site.finish();
    }
}

#[test]
fn s_meta_04_nobody_must_say_who_it_is() {
    let mut site = Site::new(config());
    site.taken(with(&json!({VERSION: "2026-07-28", CAPABILITIES: {}})));
    assert!(site.requests()[0].peer.client.is_none());
    let odd = json!({
        VERSION: "2026-07-28", CAPABILITIES: {}, "io.modelcontextprotocol/clientInfo": 7,
    });
    site.taken(with(&odd));
    site.finish();
}

/// S-META-05, S-META-08: each request has only its own version and capabilities, not those of an earlier one.
#[test]
fn s_meta_05_nothing_is_known_from_earlier_requests() {
    let mut site = Site::new(config());
    let able = json!({"roots": {}, "sampling": {}});
    site.taken(modern(
        1,
        "tools/call",
        declaring(&able, json!({"name": "a"})),
    ));
    let unable = declaring(&json!({}), json!({"name": "b"}));
    let (_, request) = site.taken(modern(2, "tools/call", unable));
    let asked = site.verb(|server, now| server.ask(now, request, "roots/list", None));
    assert!(matches!(asked, Err(Misuse::Unaskable { .. })), "{asked:?}");
    let session = site.session("2025-11-25");
    let bare = with(&json!({}));
    assert_eq!(site.refused(bare), (400, -32602));
    let unable = declaring(&json!({}), json!({"name": "b"}));
    let unable = modern(2, "tools/call", unable).with("mcp-session-id", &session.id);
    let (_, request) = site.taken(unable);
    let asked = site.verb(|server, now| server.ask(now, request, "roots/list", None));
    assert!(matches!(asked, Err(Misuse::Unaskable { .. })), "S-META-08");
    site.finish();
}

#[test]
fn s_meta_06_every_result_names_the_server_unless_it_is_not_to() {
    for names_itself in [true, false] {
        let mut config = config();
        config.names_itself = names_itself;
        let mut site = Site::new(config);
        let served = site.served(call(), json!({"content": []}));
        let discovered = site.send(modern(1, "server/discover", json!({})));
        let (asking, request) = site.taken(call());
        site.ask(request, "roots/list", Value::Null);
        for stream in [served, discovered, asking] {
            let named = site.result(stream)["_meta"][meta::SERVER_INFO].clone();
            let expected = json!({"name": "site", "version": "1"});
            assert_eq!(named == expected, names_itself, "{named}");
        }
        site.finish();
    }
}

#[test]
fn s_meta_07_who_a_client_says_it_is_changes_nothing() {
    let mut site = Site::new(config());
    let mut answers = Vec::new();
    for name in ["scripted", "claude", "root", ""] {
        let who = json!({"name": name, "version": "1"});
        let meta = json!({
            VERSION: "2026-07-28", CAPABILITIES: {}, "io.modelcontextprotocol/clientInfo": who,
        });
        let stream = site.served(with(&meta), json!({"content": []}));
        answers.push(site.json(stream));
    }
    answers.dedup();
    assert_eq!(answers.len(), 1);
    site.finish();
}

#[test]
fn s_meta_09_what_a_client_lacks_is_named() {
    let mut offer = everything();
    offer.capabilities = offer.capabilities.with(ServerFeature::TasksExtension);
    let mut tasks = config();
    tasks.offer = Some(offer);
    let mut site = Site::new(tasks);
    let ask = modern(7, "tasks/get", json!({"taskId": "t"})).with("mcp-name", "t");
    let sent = site.send(ask);
    assert_eq!((site.status(sent), site.code(sent)), (400, -32021));
    let needed = site.json(sent)["error"]["data"]["requiredCapabilities"].clone();
    assert_eq!(
        needed,
        json!({"extensions": {meta::TASKS_EXTENSION: {}}}),
        "an object of capabilities"
    );
    site.finish();
}

/// S-META-10, S-META-11: the keys that a server puts into `_meta` are well formed, and those with a reserved prefix are defined.
#[test]
fn s_meta_10_the_keys_of_the_server_are_well_formed_and_defined() {
    let defined = [meta::SERVER_INFO, meta::SUBSCRIPTION_ID];
    let mut site = Site::new(config());
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    let mut streams = vec![
        site.send(modern(1, "subscriptions/listen", wanted)),
        site.send(modern(1, "server/discover", json!({}))),
        site.served(modern(1, "tools/list", json!({})), json!({"tools": []})),
    ];
    let (asking, request) = site.taken(call());
    site.ask(request, "roots/list", Value::Null);
    let session = site.session("2025-11-25");
    streams.extend([asking, site.send(session.get())]);
    site.publish(Change::List(List::Tools));
    let mut seen = 0;
    for message in streams.iter().flat_map(|stream| site.messages(*stream)) {
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
    site.finish();
}

#[test]
fn s_meta_13_strange_keys_go_through_untouched() {
    let strange = json!({
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "com.example/key": {"a": [1, null]},
        "io.modelcontextprotocol/whatever": 7,
        "not a / valid key": true,
    });
    let mut site = Site::new(config());
    let session = site.session("2025-11-25");
    let params = json!({"name": "add", "_meta": strange});
    for ask in [
        modern(1, "tools/call", params.clone()),
        session.post(1, "tools/call", params),
    ] {
        let (stream, request) = site.taken(ask);
        let given = site.requests().pop().and_then(|asked| asked.params.clone());
        let given: Value = given.expect("params").parse().expect("JSON");
        assert_eq!(given["_meta"], strange);
        site.respond(request, json!({"content": [], "_meta": strange}));
        let mut told = site.result(stream)["_meta"].clone();
        told.as_object_mut()
            .expect("an object")
            .remove(meta::SERVER_INFO);
        assert_eq!(told, strange);
    }
    site.finish();
}

#[test]
fn s_meta_15_unrelated_requests_go_on_side_by_side() {
    let mut site = Site::new(config());
    let session = site.session("2025-06-18");
    let mut open = Vec::new();
    for at in 0..6 {
        let params = json!({"name": "slow", "at": at});
        let ask = if at % 3 == 2 {
            session.post(at, "tools/call", params)
        } else {
            modern(1, "tools/call", params)
        };
        open.push((at, site.taken(ask)));
    }
    open.rotate_left(2);
    for (at, (_, request)) in open.iter().rev() {
        site.respond(*request, json!({"content": [at]}));
    }
    for (at, (stream, _)) in open {
        assert_eq!(site.result(stream)["content"], json!([at]));
    }
    site.finish();
}

/// S-VER-01: a version that is switched off is refused like an unknown one.
#[test]
fn s_ver_01_a_version_that_is_not_spoken_is_refused() {
    let mut site = Site::new(config());
    for wanted in ["2025-11-25", "2024-11-05", "1999-01-01", "2027-01-01"] {
        let terms = json!({VERSION: wanted, CAPABILITIES: {}});
        let sent = site.send(with(&terms).with("mcp-protocol-version", wanted));
        assert_eq!(
            (site.status(sent), site.code(sent)),
            (400, -32022),
            "{wanted}"
        );
        let data = site.json(sent)["error"]["data"].clone();
        assert_eq!(data["requested"], wanted);
        // The list names no version that would be refused if it were chosen.
        assert_eq!(data["supported"], json!(["2026-07-28"]), "{wanted}");
        let found = site.send(modern(2, "server/discover", json!({})));
        let found = site.result(found);
        assert_eq!(data["supported"], found["supportedVersions"]);
    }
    site.finish();
    let mut legacy = config();
    legacy.versions = Versions::LEGACY;
    let mut site = Site::new(legacy);
    let refused = site.send(call());
    assert_eq!(site.status(refused), 400);
    assert!(site.requests().is_empty());
    site.finish();
}

#[test]
fn s_ver_03_a_server_can_be_discovered() {
    let mut config = config();
    let offer = everything().with_instructions("be gentle");
    config.offer = Some(offer);
    let mut site = Site::new(config);
    let stream = site.send(modern(1, "server/discover", json!({})));
    let found = site.result(stream);
    let versions = found["supportedVersions"].as_array().expect("a list");
    assert!(versions.contains(&json!("2026-07-28")));
    assert_eq!(found["capabilities"]["tools"], json!({"listChanged": true}));
    assert_eq!(found["resultType"], "complete");
    assert!(found["ttlMs"].is_u64());
    assert!(["public", "private"].contains(&found["cacheScope"].as_str().expect("a text")));
    assert_eq!(found["instructions"], "be gentle");
    assert!(site.requests().is_empty());
    site.finish();
}

/// S-VER-05, S-VER-06, S-VER-07: the server supports all versions at once. A request with modern `_meta` is modern; a handshake is
/// legacy.
#[test]
fn s_ver_06_both_eras_are_served_at_one_place() {
    let mut site = Site::new(config());
    let sessions = server_http::LEGACY.map(|version| site.session(version));
    let (modern_call, modern_request) = site.taken(call());
    let mut calls = Vec::new();
    for session in &sessions {
        let ask = session.post(7, "tools/call", json!({"name": "add"}));
        calls.push((site.taken(ask), session.version.clone()));
    }
    for ((_, request), version) in &calls {
        let asked = site.requests();
        let asked = asked.iter().find(|asked| asked.request == *request);
        let peer = asked.expect("it arrived").peer.version;
        assert_eq!(peer.as_str(), version);
        site.respond(*request, json!({"content": []}));
    }
    site.respond(modern_request, json!({"content": []}));
    assert_eq!(site.result(modern_call)["resultType"], "complete");
    for ((stream, _), version) in calls {
        assert_eq!(site.result(stream), json!({"content": []}), "{version}");
    }
    // A modern request stays modern within a session.
    let inside = sessions[3]
        .own(call())
        .with("mcp-protocol-version", "2026-07-28");
    let inside = site.served(inside, json!({"content": []}));
    assert_eq!(site.result(inside)["resultType"], "complete", "S-VER-07");
    site.finish();
}

#[test]
fn s_ver_08_a_handshake_with_modern_terms_is_none() {
    let mut site = Site::new(config());
    let params = json!({
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"},
    });
    let sent = site.send(modern(1, "initialize", params));
    assert_eq!((site.status(sent), site.code(sent)), (404, -32601));
    assert_eq!(site.field(sent, "mcp-session-id"), None);
    assert_eq!(site.server.sessions(), 0);
    site.finish();
}

#[test]
fn s_ver_12_a_modern_server_names_its_versions_to_who_wants_a_handshake() {
    let mut site = Site::new(modern_only());
    for version in server_http::LEGACY {
        let sent = site.send(initialize(version));
        assert!(site.status(sent) >= 400);
        let told = site.text(sent);
        assert!(told.contains("2026-07-28"), "{told}");
    }
    site.finish();
}

#[test]
fn s_ver_14_extensions_are_offered_under_identifiers_with_a_prefix() {
    let settings = |value: &Value| payload(value).into_raw();
    let with =
        |id: &str, value: &Value| ServerCapabilities::default().with_extension(id, settings(value));
    assert!(with("plain", &json!({})).is_err());
    assert!(with("com.example/x", &json!([])).is_err());
    let offered = with("com.example/x", &json!({"a": 1}));
    let offered = offered.and_then(|c| c.with_extension("dev.example/y", settings(&json!({}))));
    let mut site = Site::new(offering(offered.expect("well formed")));
    let found = site.send(modern(1, "server/discover", json!({})));
    let extensions = json!({"com.example/x": {"a": 1}, "dev.example/y": {}});
    assert_eq!(site.result(found)["capabilities"]["extensions"], extensions);
    site.finish();
}

/// S-VER-15, S-VER-16: an extension is used only if both sides have it, and nothing is active by default.
#[test]
fn s_ver_15_an_extension_takes_two() {
    let tasks = json!({"extensions": {meta::TASKS_EXTENSION: {}}});
    let task = json!({"resultType": "task", "taskId": "t", "status": "working", "ttlMs": null});
    for (offers, declares) in [(false, true), (true, false), (true, true)] {
        let mut config = config();
        if offers {
            let mut offer = everything();
            offer.capabilities = offer.capabilities.with(ServerFeature::TasksExtension);
            config.offer = Some(offer);
        }
        let mut site = Site::new(config);
        let found = site.send(modern(1, "server/discover", json!({})));
        let extensions = site.result(found)["capabilities"]["extensions"].clone();
        assert_eq!(extensions.is_object(), offers, "S-VER-16: {extensions}");
        let declared = if declares { tasks.clone() } else { json!({}) };
        let params = declaring(&declared, json!({"name": "long"}));
        let (stream, request) = site.taken(modern(1, "tools/call", params));
        let done = site.verb(|server, now| server.respond(now, request, payload(&task)));
        assert_eq!(done.is_ok(), offers && declares);
        if done.is_err() {
            site.respond(request, json!({"content": []}));
            assert_eq!(site.result(stream)["resultType"], "complete");
        }
        site.finish();
    }
}

/// The application is told once of each new client.
#[test]
fn the_application_meets_each_client() {
    let mut site = Site::new(config());
    site.session("2025-11-25");
    site.session("2025-11-25");
    site.taken(call());
    site.send(notice(
        "notifications/custom",
        server_http::with_meta(json!({})),
    ));
    let met = site.met();
    let legacy = Version::V2025_11_25;
    assert_eq!(met, [legacy, legacy, Version::V2026_07_28]);
    site.finish();
}
