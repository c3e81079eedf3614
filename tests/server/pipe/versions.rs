//! The terms of a request: its version, the capabilities of its client, and both eras side by side.

use crate::server_pipe::{
    self, Harness, NO_MESSAGES, config, default_capabilities, every_chunking, every_version,
    notification, offering, payload, request, value, with_meta,
};
use everlink::protocol::{ServerCapabilities, Version, Versions, code, meta};
use everlink::server::{Config, Event, Misuse, Offer};
use serde_json::{Value, json};

const VERSION: &str = meta::PROTOCOL_VERSION;
const CAPABILITIES: &str = meta::CLIENT_CAPABILITIES;
const CLIENT: &str = meta::CLIENT_INFO;

/// A server that supports these versions.
fn supporting(versions: Versions) -> Config {
    let mut config = config();
    config.versions = versions;
    config
}

/// S-META-03: a request without a version or without client capabilities is refused with the code for invalid parameters.
#[test]
fn request_without_version_or_capabilities_is_refused() {
    let object = json!({});
    for versions in [Versions::ALL, Versions::MODERN] {
        for meta in [
            json!({VERSION: "2026-07-28"}),
            json!({VERSION: "2026-07-28", CAPABILITIES: null}),
            json!({VERSION: "2026-07-28", CAPABILITIES: []}),
            json!({VERSION: "2026-07-28", CAPABILITIES: "none"}),
            json!({CAPABILITIES: object}),
            json!({VERSION: null, CAPABILITIES: object}),
            json!({VERSION: 20_260_728, CAPABILITIES: object}),
            json!({VERSION: ["2026-07-28"], CAPABILITIES: object}),
        ] {
            for method in [
                "tools/call",
                "server/discover",
                "subscriptions/listen",
                "no/such",
            ] {
                let mut harness = Harness::modern(supporting(versions));
                let params = json!({"name": "add", "notifications": {}, "_meta": meta});
                let id = harness.plain_call(method, params);
                assert_eq!(harness.code(&id), -32602, "{method} with {meta}");
                assert_eq!(harness.requests().len(), 0);
                harness.finish();
            }
        }
    }
}

/// S-META-03: the client's name is optional. A second client may repeat the terms of the first and add its name.
#[test]
fn second_client_may_add_its_name_to_the_same_meta() {
    let required_meta = format!(r#""{VERSION}":"2026-07-28","{CAPABILITIES}":{{}}"#);
    let client = format!(r#""{CLIENT}":{{"name":"second","version":"1"}}"#);
    for meta in [
        format!("{required_meta},{client}"),
        format!("{client},{required_meta}"),
    ] {
        let mut harness = Harness::modern(config());
        for (id, meta) in [(1, &required_meta), (2, &meta)] {
            harness.send_line(&format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"add","_meta":{{{meta}}}}}}}"#
            ));
        }
        let requests = harness.requests();
        let names = requests.iter().map(|request| {
            let client = request.peer.client.as_ref();
            client.map(|client| client.name().to_owned())
        });
        let names: Vec<_> = names.collect();
        assert_eq!(names, [None, Some("second".to_owned())], "{meta}");
        harness.finish();
    }
}

/// S-META-03: a modern server also refuses a request without any terms.
#[test]
fn request_without_meta_is_refused_by_a_modern_server() {
    for params in [
        Value::Null,
        json!({}),
        json!({"name": "add"}),
        json!({"_meta": {}}),
        json!({"_meta": null}),
        json!({"_meta": 7}),
        json!({"_meta": {"progressToken": 7}}),
    ] {
        let mut harness = Harness::modern(supporting(Versions::MODERN));
        let id = harness.plain_call("tools/call", params.clone());
        assert_eq!(harness.code(&id), -32602, "{params}");
        let text = harness.error(&id)["message"].to_string();
        assert!(text.contains("protocolVersion"), "{text}");
        assert_eq!(harness.requests().len(), 0);
        harness.finish();
    }
}

/// S-META-03: a duplicate term is refused, because its meaning is ambiguous.
#[test]
fn duplicate_meta_member_is_refused() {
    let required_meta = format!(r#""{VERSION}":"2026-07-28","{CAPABILITIES}":{{}}"#);
    for params in [
        format!(r#"{{"_meta":{{{required_meta},"{VERSION}":"2026-07-28"}}}}"#),
        format!(r#"{{"_meta":{{{required_meta},"{CAPABILITIES}":{{"roots":{{}}}}}}}}"#),
        format!(r#"{{"_meta":{{{required_meta}}},"_meta":{{{required_meta}}}}}"#),
    ] {
        let mut harness = Harness::modern(config());
        harness.send_line(&format!(
            r#"{{"jsonrpc":"2.0","id":5,"method":"tools/list","params":{params}}}"#
        ));
        assert_eq!(harness.code(&json!(5)), -32602, "{params}");
        harness.finish();
    }
}

/// S-META-03: a server of both eras refuses such a request, too, unless a handshake has set the terms.
#[test]
fn request_without_meta_or_handshake_is_refused() {
    for method in ["tools/call", "server/discover", "subscriptions/listen"] {
        let mut harness = Harness::new(config());
        let id = harness.plain_call(method, json!({"name": "add", "notifications": {}}));
        assert_eq!(harness.code(&id), -32602, "{method}");
        // For methods of the modern era only, the error does not suggest a handshake.
        let text = harness.error(&id)["message"].to_string();
        let is_of_both = method == "tools/call";
        assert_eq!(text.contains("initialize"), is_of_both, "{text}");
        assert_eq!(harness.requests().len(), 0);
        harness.finish();
    }
}

/// S-META-04: the client's name is optional.
#[test]
fn client_info_is_optional() {
    let mut harness = Harness::modern(config());
    let meta = json!({VERSION: "2026-07-28", CAPABILITIES: {}});
    let id = harness.plain_call("tools/list", json!({"_meta": meta}));
    assert_eq!(harness.requests()[0].peer.client, None);
    harness.respond(harness.newest_request(), json!({"tools": []}));
    assert_eq!(harness.result(&id)["tools"], json!([]));
    harness.finish();
}

/// The application is told of a client once, whatever the order of members in its capabilities.
#[test]
fn client_is_reported_once_whatever_its_member_order() {
    let mut harness = Harness::modern(config());
    let mut met = Vec::new();
    for capabilities in [
        r#"{"roots":{},"sampling":{}}"#,
        r#"{"sampling":{},"roots":{}}"#,
        r#"{"roots":{}}"#,
    ] {
        harness.send_line(&format!(
            r#"{{"jsonrpc":"2.0","id":{},"method":"server/discover","params":{{"_meta":{{"{VERSION}":"2026-07-28","{CAPABILITIES}":{capabilities}}}}}}}"#,
            met.len()
        ));
        met.push(harness.met().len());
    }
    assert_eq!(met, [1, 1, 2]);
    harness.finish();
}

/// S-META-05, S-META-08: version, client and capabilities of an earlier request do not apply to a later one.
#[test]
fn each_request_is_served_by_its_own_version_and_capabilities() {
    every_chunking(|chunking| {
        let mut harness = Harness::modern(config()).chunked(chunking);
        let params = with_meta(json!({"name": "add"}), default_capabilities());
        harness.plain_call("tools/call", params);
        let first = harness.newest_request();

        // The second request has its own client and capabilities, and those count.
        let meta = json!({VERSION: "2026-07-28", CAPABILITIES: {"roots": {}}, CLIENT: {"name": "other", "version": "2"}});
        harness.plain_call("tools/call", json!({"name": "add", "_meta": meta}));
        let second = harness.newest_request();
        let peers: Vec<_> = harness.requests().iter().map(|r| r.peer.clone()).collect();
        let names: Vec<_> = peers
            .iter()
            .map(|p| p.client.as_ref().unwrap().name().to_owned())
            .collect();
        assert_eq!(names, ["scripted", "other"]);
        let form = json!({"message": "?", "requestedSchema": {"type": "object", "properties": {}}});
        let refused = harness.try_ask(second, "elicitation/create", form.clone());
        assert!(
            matches!(refused, Err(Misuse::Unaskable { .. })),
            "{refused:?}"
        );
        harness.ask(second, "roots/list", Value::Null);
        harness.ask(first, "elicitation/create", form);

        // Terms that differ in one member are different.
        let same = with_meta(json!({"name": "add"}), json!({"roots": {}}));
        for (key, other) in [
            (CLIENT, json!({"name": "third", "version": "3"})),
            (CAPABILITIES, json!({})),
        ] {
            harness.plain_call("tools/call", same.clone());
            let mut params = same.clone();
            params["_meta"][key] = other;
            harness.plain_call("tools/call", params);
            let peers: Vec<_> = harness.requests().iter().map(|r| r.peer.clone()).collect();
            assert_ne!(peers[peers.len() - 1], peers[peers.len() - 2], "{key}");
        }
        harness.plain_call("tools/call", same.clone());
        let mut params = same;
        params["_meta"][VERSION] = json!("1999-01-01");
        let id = harness.plain_call("tools/call", params);
        assert_eq!(harness.code(&id), -32022);

        // A request without terms is refused, whatever the earlier ones had.
        let id = harness.plain_call(
            "tools/call",
            json!({"name": "add", "_meta": {CAPABILITIES: {}}}),
        );
        assert_eq!(harness.code(&id), -32602);
        let id = harness.plain_call(
            "tools/call",
            json!({"name": "add", "_meta": {VERSION: "2026-07-28"}}),
        );
        assert_eq!(harness.code(&id), -32602);
        harness
    });
}

/// S-META-05: a legacy handshake on the same stream does not affect modern requests, or the other way round.
#[test]
fn handshake_does_not_affect_modern_requests() {
    let mut harness = Harness::legacy(config(), "2025-06-18");
    harness.modern_call("tools/call", json!({"name": "add"}));
    assert_eq!(harness.requests()[0].peer.version, Version::V2026_07_28);
    harness.plain_call("tools/call", json!({"name": "add"}));
    assert_eq!(harness.requests()[1].peer.version, Version::V2025_06_18);
    let id = harness.plain_call(
        "tools/call",
        json!({"name": "add", "_meta": {VERSION: "2026-07-28"}}),
    );
    assert_eq!(
        harness.code(&id),
        -32602,
        "the handshake declared capabilities, this request none"
    );
    harness.finish();
}

/// S-META-07: the names of client and server have no effect.
#[test]
fn client_and_server_names_do_not_affect_replies() {
    let replies_for = |client: Value, server: &str| {
        let mut offer = server_pipe::full_offer();
        offer.server = everlink::protocol::Implementation::new(server, "9");
        let mut config = Config::new(offer, [7; 16]);
        config.names_itself = false;
        let mut harness = Harness::modern(config);
        let meta = json!({VERSION: "2026-07-28", CAPABILITIES: {}, CLIENT: client});
        for method in ["tools/list", "no/such", "server/discover"] {
            harness.plain_call(method, json!({"_meta": meta}));
        }
        harness.respond(harness.newest_request(), json!({"tools": []}));
        let replies: Vec<Value> = harness.received().to_vec();
        harness.finish();
        replies
    };
    let plain = replies_for(json!({"name": "a", "version": "1"}), "one");
    assert_eq!(plain.len(), 3);
    assert_eq!(
        plain,
        replies_for(json!({"name": "root\u{0}", "version": ""}), "two")
    );
}

/// S-META-09, S-META-08: the error for a missing client capability names what is missing.
#[test]
fn missing_capability_error_names_the_capability() {
    use everlink::protocol::ClientFeature;
    for (feature, needed) in [
        (ClientFeature::Elicitation, json!({"elicitation": {}})),
        (ClientFeature::Roots, json!({"roots": {}})),
        (ClientFeature::Sampling, json!({"sampling": {}})),
    ] {
        let mut harness = Harness::modern(config()).declaring(json!({}));
        let (id, request) = harness.call_tool("add");
        let error = everlink::server::missing_capability(feature);
        let done = harness.with_server(|server, now| server.fail(now, request, error));
        done.expect("the server accepts the reply");
        let error = harness.error(&id);
        assert_eq!(error["code"], -32021);
        assert_eq!(error["data"]["requiredCapabilities"], needed);
        harness.finish();
    }
}

/// S-META-08: the server sends no ask that the request did not declare, in any of the three kinds.
#[test]
fn undeclared_asks_are_refused_in_ask_and_require_input() {
    let form = json!({"message": "?", "requestedSchema": {"type": "object", "properties": {}}});
    let url =
        json!({"mode": "url", "message": "?", "url": "https://example.com/", "elicitationId": "1"});
    let sample = json!({"messages": [], "maxTokens": 1});
    for (declared, method, params) in [
        (json!({}), "roots/list", Value::Null),
        (json!({}), "elicitation/create", form.clone()),
        (json!({}), "sampling/createMessage", sample),
        (
            json!({"elicitation": {}}),
            "elicitation/create",
            url.clone(),
        ),
        (
            json!({"elicitation": {"form": {}}}),
            "elicitation/create",
            url,
        ),
        (
            json!({"elicitation": {"url": {}}}),
            "elicitation/create",
            form,
        ),
    ] {
        let mut harness = Harness::modern(config()).declaring(declared.clone());
        let (_, request) = harness.call_tool("add");
        let asked = harness.try_ask(request, method, params.clone());
        assert!(
            matches!(asked, Err(Misuse::Unaskable { .. })),
            "{declared}: {asked:?}"
        );
        let params = (!params.is_null()).then(|| payload(&params));
        let input = everlink::server::InputRequired::new().and_ask("key", method, params);
        let required = harness.with_server(|server, now| server.require_input(now, request, input));
        assert!(
            matches!(required, Err(Misuse::Unaskable { .. })),
            "{declared}: {required:?}"
        );
        assert_eq!(harness.received(), NO_MESSAGES);
        harness.finish();
    }
}

/// S-META-10, S-META-11: every key that the server puts into `_meta` follows the grammar. Keys with a reserved prefix are
/// defined by the specification.
#[test]
fn meta_keys_of_the_server_are_valid_and_defined() {
    let defined = [meta::SERVER_INFO, meta::SUBSCRIPTION_ID];
    let mut seen = 0;
    every_version(|version| {
        let mut harness = Harness::new(config()).with_version(version);
        harness.call(
            "subscriptions/listen",
            json!({"notifications": {"toolsListChanged": true}}),
        );
        harness.publish(everlink::Change::List(everlink::List::Tools));
        harness.call("server/discover", Value::Null);
        harness.call_and_respond("tools/list", Value::Null, json!({"tools": []}));
        let (_, request) = harness.call_tool("add");
        harness.ask(request, "roots/list", Value::Null);
        let messages = harness.received().iter();
        for message in messages {
            for part in ["params", "result"] {
                let Some(keys) = message[part]["_meta"].as_object() else {
                    continue;
                };
                for key in keys.keys() {
                    assert!(meta::is_valid_key(key), "{key}");
                    assert!(defined.contains(&key.as_str()), "{key}");
                    seen += 1;
                }
            }
        }
        harness
    });
    assert!(seen >= 5, "at least five keys were checked");
}

/// S-META-13: other `_meta` members pass unchanged in both directions, even under reserved keys.
#[test]
fn unknown_meta_keys_pass_unchanged() {
    every_version(|version| {
        let mut harness = Harness::new(config()).with_version(version);
        let unknown = json!({
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "com.example/key": {"a": [1, null]},
            "io.modelcontextprotocol/whatever": 7,
            "dev.mcp/x": "y",
            "not a / valid key": true,
        });
        let params = json!({"name": "add", "_meta": unknown});
        let id = harness.call("tools/call", params.clone());
        let delivered = value(harness.requests()[0].params.as_ref().unwrap());
        assert_eq!(delivered["_meta"], unknown, "{version}");
        harness.respond(
            harness.newest_request(),
            json!({"content": [], "_meta": unknown}),
        );
        let mut received_meta = harness.result(&id)["_meta"].clone();
        received_meta
            .as_object_mut()
            .unwrap()
            .remove(meta::SERVER_INFO);
        assert_eq!(received_meta, unknown, "{version}");
        harness
    });
}

/// S-META-15: requests of unrelated clients run side by side and may be answered in any order.
#[test]
fn unrelated_requests_run_concurrently() {
    every_chunking(|chunking| {
        let mut harness = Harness::new(config()).chunked(chunking);
        let mut open = Vec::new();
        for (number, capabilities) in [json!({}), default_capabilities(), json!({"roots": {}})]
            .into_iter()
            .enumerate()
        {
            let params = with_meta(json!({"name": number.to_string()}), capabilities.clone());
            let id = harness.plain_call("tools/call", params);
            open.push((id, harness.newest_request(), number));
            assert_eq!(
                harness.requests()[number]
                    .peer
                    .capabilities
                    .member("roots")
                    .is_some(),
                number > 0
            );
        }
        let id = harness.initialize("2025-11-25");
        assert_eq!(harness.result(&id)["protocolVersion"], "2025-11-25");
        harness.send(notification("notifications/initialized", Value::Null));
        let id = harness.plain_call("tools/call", json!({"name": "3"}));
        open.push((id, harness.newest_request(), 3));
        open.rotate_left(1);
        for (_, request, number) in open.iter().rev() {
            harness.respond(*request, json!({"content": [number]}));
        }
        for (id, _, number) in &open {
            assert_eq!(harness.result(id)["content"], json!([number]));
            // Each reply has the form of its own era.
            assert_eq!(harness.result(id).get("resultType").is_some(), *number < 3);
        }
        harness
    });
}

/// S-VER-01: the error for an unsupported version lists the supported versions and the requested one.
#[test]
fn unsupported_version_error_lists_the_supported_versions() {
    for wanted in [
        "1900-01-01",
        "2026-07-29",
        "2099-12-31",
        "",
        "latest",
        "2026-07-28 ",
    ] {
        for method in ["tools/call", "server/discover", "no/such", "initialize"] {
            let mut harness = Harness::modern(config());
            let id =
                harness.modern_call(method, json!({"name": "add", "_meta": {VERSION: wanted}}));
            let error = harness.error(&id);
            assert_eq!(error["code"], -32022, "{wanted}: {method}");
            assert_eq!(error["data"]["requested"], wanted);
            let supported = error["data"]["supported"].as_array().expect("a list");
            assert!(supported.contains(&json!("2026-07-28")), "{supported:?}");
            assert!(supported.iter().all(Value::is_string), "{supported:?}");
            assert_eq!(harness.requests().len(), 0);
            harness.finish();
        }
    }
}

/// S-VER-01: a legacy version is refused without its handshake.
#[test]
fn legacy_version_in_meta_is_refused() {
    for wanted in Version::LEGACY {
        let mut harness = Harness::modern(config());
        let meta = json!({VERSION: wanted.as_str()});
        let id = harness.modern_call("tools/list", json!({"_meta": meta}));
        let error = harness.error(&id);
        assert_eq!(error["code"], -32022);
        assert_eq!(error["data"]["requested"], wanted.as_str());
        harness.finish();
    }
}

/// S-VER-01: a server without modern versions does not send the modern error, which would prove a modern server
/// (S-VER-09).
#[test]
fn legacy_server_sends_no_modern_error_code() {
    let mut harness = Harness::modern(supporting(Versions::LEGACY));
    for method in ["server/discover", "tools/list"] {
        let id = harness.modern_call(method, Value::Null);
        let code = harness.code(&id);
        assert!(!code::is_modern_evidence(code), "{code}");
    }
    let id = harness.initialize("2025-11-25");
    assert_eq!(harness.result(&id)["protocolVersion"], "2025-11-25");
    let id = harness.modern_call("server/discover", Value::Null);
    assert_eq!(harness.code(&id), -32601);
    harness.finish();
}

/// S-VER-03, S-CACHE-01: the result of `server/discover` has everything that the schema requires.
#[test]
fn discover_result_has_all_required_members() {
    every_chunking(|chunking| {
        let tools = ServerCapabilities::default().with_tools(true);
        let offer = Offer::new("docs", "1.2")
            .with_capabilities(tools)
            .with_instructions("Be kind.");
        let mut harness = Harness::modern(Config::new(offer, [7; 16])).chunked(chunking);
        let id = harness.call("server/discover", Value::Null);
        let result = harness.result(&id);
        let supported = result["supportedVersions"].as_array().expect("a list");
        assert!(supported.contains(&json!("2026-07-28")), "{supported:?}");
        assert_eq!(
            result["capabilities"],
            json!({"tools": {"listChanged": true}})
        );
        assert_eq!(result["resultType"], "complete");
        assert!(result["ttlMs"].is_u64(), "{result}");
        assert!(["public", "private"].contains(&result["cacheScope"].as_str().unwrap()));
        assert_eq!(result["instructions"], "Be kind.");
        assert_eq!(
            result["_meta"][meta::SERVER_INFO],
            json!({"name": "docs", "version": "1.2"})
        );
        assert_eq!(
            harness.requests().len(),
            0,
            "the application is not involved"
        );
        harness
    });
    let mut harness = Harness::modern(offering(ServerCapabilities::default()));
    let id = harness.call("server/discover", Value::Null);
    assert_eq!(harness.result(&id).get("instructions"), None);
    assert_eq!(harness.result(&id)["capabilities"], json!({}));
    harness.finish();
}

/// S-VER-03: `server/discover` waits until the server has its offer.
#[test]
fn discover_waits_for_the_offer() {
    every_chunking(|chunking| {
        let mut harness = Harness::modern(Config::deferred([7; 16])).chunked(chunking);
        let early = harness.call("server/discover", Value::Null);
        harness.advance(server_pipe::seconds(60));
        assert_eq!(harness.received(), NO_MESSAGES);
        let tools = ServerCapabilities::default().with_tools(false);
        let offer = Offer::new("late", "1").with_capabilities(tools);
        harness.with_server(|server, now| server.offer(now, offer));
        assert_eq!(harness.result(&early)["capabilities"], json!({"tools": {}}));
        harness
    });
}

/// S-VER-05: the server supports exactly the configured versions.
#[test]
fn server_supports_exactly_the_configured_versions() {
    for only in Version::LEGACY {
        let mut harness = Harness::new(supporting(Versions::only(*only)));
        for wanted in Version::ALL {
            let id = harness.initialize(wanted.as_str());
            assert_eq!(harness.result(&id)["protocolVersion"], only.as_str());
        }
        harness.finish();
    }
    every_version(|version| {
        let mut harness = Harness::new(supporting(Versions::only(version))).with_version(version);
        let served = harness.call_and_respond("tools/list", Value::Null, json!({"tools": []}));
        assert_eq!(served["tools"], json!([]));
        assert_eq!(harness.requests()[0].peer.version, version);
        harness
    });
}

/// S-VER-06, S-VER-07: both eras are served on one stream, each request by its own terms.
#[test]
fn both_eras_are_served_on_one_stream() {
    every_chunking(|chunking| {
        let mut harness = Harness::new(config()).chunked(chunking);
        let before = harness.modern_call("tools/list", Value::Null);
        let first = harness.newest_request();
        let handshake = harness.initialize("2025-06-18");
        harness.send(notification("notifications/initialized", Value::Null));
        assert_eq!(harness.result(&handshake)["protocolVersion"], "2025-06-18");
        let legacy = harness.plain_call("tools/list", Value::Null);
        let second = harness.newest_request();
        let after = harness.modern_call("tools/list", Value::Null);
        let third = harness.newest_request();
        for request in [third, second, first] {
            harness.respond(request, json!({"tools": []}));
        }
        for modern in [&before, &after] {
            assert_eq!(harness.result(modern)["resultType"], "complete");
            assert!(harness.result(modern)["ttlMs"].is_u64());
        }
        assert_eq!(harness.result(&legacy), json!({"tools": []}));
        let ping = harness.plain_call("ping", Value::Null);
        assert_eq!(harness.result(&ping), json!({}));
        let ping = harness.modern_call("ping", Value::Null);
        assert_eq!(
            harness.code(&ping),
            -32601,
            "the modern era has no ping (S-TIME-11)"
        );
        harness
    });
}

/// S-VER-08: an `initialize` with modern terms is a modern request for an unknown method.
#[test]
fn initialize_with_modern_meta_is_an_unknown_method() {
    for before in [false, true] {
        let mut harness = Harness::new(config());
        if before {
            harness = harness.with_version(Version::V2025_06_18);
        }
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}});
        let id = harness.modern_call("initialize", params);
        assert_eq!(harness.code(&id), -32601);
        let version = harness.server.legacy_peer().map(|peer| peer.version);
        assert_eq!(version, before.then_some(Version::V2025_06_18));
        harness.finish();
    }
}

/// S-VER-12: a server without the legacy era names its versions in the refusal of a handshake.
#[test]
fn modern_server_lists_its_versions_when_it_refuses_a_handshake() {
    for wanted in Version::ALL {
        let mut harness = Harness::new(supporting(Versions::MODERN));
        let id = harness.initialize(wanted.as_str());
        let error = harness.error(&id);
        assert_eq!(error["data"]["supported"], json!(["2026-07-28"]), "{error}");
        assert!(harness.server.legacy_peer().is_none());
        assert_eq!(
            harness
                .pick_events(|event| matches!(event, Event::Met(_)).then_some(()))
                .len(),
            0
        );
        // A later `initialized` does not change that.
        harness.send(notification("notifications/initialized", Value::Null));
        let id = harness.plain_call("tools/list", Value::Null);
        assert_eq!(harness.code(&id), -32602);
        harness.finish();
    }
}

/// S-VER-14: an extension has an identifier with a prefix, and its settings are an object.
#[test]
fn extension_needs_a_prefixed_identifier_and_object_settings() {
    let raw = |text: &str| serde_json::value::RawValue::from_string(text.to_owned()).unwrap();
    let with =
        |id: &str, settings: &str| ServerCapabilities::default().with_extension(id, raw(settings));
    for id in ["", "plain", "/name", "-com/x", "com..x/y", "com.example/-x"] {
        assert!(with(id, "{}").is_err(), "{id:?}");
    }
    for settings in ["[]", "true", "7", "null"] {
        assert!(with("com.example/x", settings).is_err(), "{settings}");
    }
    let offered = with("com.example/x", r#"{"a":1}"#)
        .and_then(|c| c.with_extension("dev.example/y", raw("{}")));
    let mut harness = Harness::modern(offering(offered.expect("both are well-formed")));
    let id = harness.call("server/discover", Value::Null);
    let extensions = json!({"com.example/x": {"a": 1}, "dev.example/y": {}});
    assert_eq!(
        harness.result(&id)["capabilities"]["extensions"],
        extensions
    );
    harness.finish();
}

/// S-VER-15, S-VER-16: an extension is active only if both sides declare it. None is offered by default, one that only the
/// client declares is ignored, and one that it does not declare is not used.
#[test]
fn extension_is_active_only_if_both_sides_declare_it() {
    // Only the client has the extension.
    let tasks = json!({"extensions": {meta::TASKS_EXTENSION: {}, "com.example/x": {"deep": [1]}}});
    let mut harness = Harness::modern(config()).declaring(tasks);
    let id = harness.call("server/discover", Value::Null);
    assert_eq!(harness.result(&id)["capabilities"].get("extensions"), None);
    let (id, request) = harness.call_tool("add");
    let result =
        harness.with_server(|server, now| server.respond(now, request, payload(&task_result())));
    assert!(
        matches!(result, Err(Misuse::InvalidResultType { .. })),
        "{result:?}"
    );
    harness.respond(request, json!({"content": []}));
    assert_eq!(
        harness.result(&id)["resultType"],
        "complete",
        "without the extension the result is complete"
    );
    for method in ["tasks/get", "tasks/cancel", "tasks/update", "com.example/x"] {
        let id = harness.call(method, json!({"taskId": "1"}));
        assert_eq!(harness.code(&id), -32601, "{method}");
    }
    harness.finish();

    // Only the server has the extension.
    let mut harness = Harness::modern(with_tasks()).declaring(json!({}));
    let (id, request) = harness.call_tool("add");
    let result =
        harness.with_server(|server, now| server.respond(now, request, payload(&task_result())));
    assert!(
        matches!(result, Err(Misuse::InvalidResultType { .. })),
        "{result:?}"
    );
    harness.respond(request, json!({"content": []}));
    assert_eq!(harness.result(&id)["resultType"], "complete");
    harness.finish();

    // Both have it.
    let tasks = json!({"extensions": {meta::TASKS_EXTENSION: {}}});
    let mut harness = Harness::modern(with_tasks()).declaring(tasks);
    let (id, request) = harness.call_tool("add");
    harness.respond(request, task_result());
    assert_eq!(harness.result(&id)["resultType"], "task");
    harness.finish();
}

fn task_result() -> Value {
    json!({"resultType": "task", "taskId": "1", "status": "working", "createdAt": "2026-01-01T00:00:00Z",
        "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttlMs": null})
}

fn with_tasks() -> Config {
    let settings = serde_json::value::RawValue::from_string("{}".to_owned()).unwrap();
    let capabilities = ServerCapabilities::default().with_tools(false);
    offering(
        capabilities
            .with_extension(meta::TASKS_EXTENSION, settings)
            .expect("well-formed"),
    )
}

/// S-RPC-21, S-RPC-22: result types are those of the protocol, and those of extensions that both ends have.
#[test]
fn result_types_are_limited_to_those_that_both_ends_have() {
    for kind in ["task", "partial", "Complete", "", "input-required"] {
        let mut harness = Harness::modern(config());
        let (id, request) = harness.call_tool("add");
        let reply = payload(&json!({"content": [], "resultType": kind}));
        let result = harness.with_server(|server, now| server.respond(now, request, reply));
        assert!(
            matches!(result, Err(Misuse::InvalidResultType { .. })),
            "{kind}: {result:?}"
        );
        harness.respond(request, json!({"content": [], "resultType": "complete"}));
        assert_eq!(harness.result(&id)["resultType"], "complete");
        harness.finish();
    }
    // With the tasks extension at both ends there is one more type, only for tool calls.
    let tasks = json!({"extensions": {meta::TASKS_EXTENSION: {}}});
    let mut harness = Harness::modern(with_tasks()).declaring(tasks);
    harness.call("tools/list", Value::Null);
    let request = harness.newest_request();
    let result =
        harness.with_server(|server, now| server.respond(now, request, payload(&task_result())));
    assert!(
        matches!(result, Err(Misuse::InvalidResultType { .. })),
        "{result:?}"
    );
    let (id, request) = harness.call_tool("add");
    harness.respond(request, task_result());
    assert_eq!(harness.result(&id)["resultType"], "task");
    harness.finish();
}

/// S-RPC-22: an extension that both ends have may bring its own result types.
#[test]
fn shared_extension_may_use_its_own_result_types() {
    let with_extension = || {
        let settings = serde_json::value::RawValue::from_string("{}".to_owned()).unwrap();
        let tools = ServerCapabilities::default().with_tools(false);
        offering(
            tools
                .with_extension("com.example/x", settings)
                .expect("well-formed"),
        )
    };
    let declared = json!({"extensions": {"com.example/x": {}}});
    let only_tasks = json!({"extensions": {meta::TASKS_EXTENSION: {}}});
    for (config, declared, is_allowed) in [
        (with_extension(), declared.clone(), true),
        (with_extension(), json!({}), false),
        (with_extension(), only_tasks, false),
        (config(), declared.clone(), false),
        (with_tasks(), declared, false),
    ] {
        let mut harness = Harness::modern(config).declaring(declared.clone());
        let (id, request) = harness.call_tool("add");
        let result = payload(&json!({"resultType": "com.example/kind", "x": 1}));
        let done = harness.with_server(|server, now| server.respond(now, request, result));
        if is_allowed {
            done.expect("both sides have the extension");
            assert_eq!(harness.result(&id)["resultType"], "com.example/kind");
        } else {
            assert!(
                matches!(done, Err(Misuse::InvalidResultType { .. })),
                "{declared}"
            );
            assert_eq!(harness.replies(&id).len(), 0);
        }
        harness.finish();
    }
}

/// S-RPC-21: the application cannot send an `input_required` result with `respond`, because the server must know the
/// asks.
#[test]
fn respond_refuses_an_input_required_result() {
    for method in ["tools/call", "tools/list"] {
        let mut harness = Harness::modern(config());
        harness.call(method, json!({"name": "add"}));
        let request = harness.newest_request();
        let by_hand = json!({"resultType": "input_required", "inputRequests": {"a": {"method": "roots/list"}}});
        let done =
            harness.with_server(|server, now| server.respond(now, request, payload(&by_hand)));
        assert!(
            matches!(done, Err(Misuse::OwnedByLink { .. })),
            "{method}: {done:?}"
        );
        assert_eq!(harness.received(), NO_MESSAGES);
        harness.finish();
    }
}

/// S-RPC-27: plain requests, requests in several rounds, and watches work on one stream.
#[test]
fn plain_requests_rounds_and_watches_work_on_one_stream() {
    every_chunking(|chunking| {
        let mut harness = Harness::modern(config()).chunked(chunking);
        let watch = json!({"notifications": {"toolsListChanged": true}});
        let listen = harness.call("subscriptions/listen", watch);
        assert_eq!(
            harness
                .messages_with("notifications/subscriptions/acknowledged")
                .len(),
            1
        );

        let (first, tool) = harness.call_tool("add");
        let ask = harness.ask(tool, "roots/list", Value::Null);
        let round = harness.result(&first);
        assert_eq!(round["resultType"], "input_required");

        assert_eq!(
            harness.call_and_respond("tools/list", Value::Null, json!({"tools": []}))["tools"],
            json!([])
        );
        harness.publish(everlink::Change::List(everlink::List::Tools));
        let changes = harness.messages_with("notifications/tools/list_changed");
        assert_eq!(changes[0]["params"]["_meta"][meta::SUBSCRIPTION_ID], listen);

        let keys = round["inputRequests"].as_object().unwrap().keys();
        let mut answers = json!({});
        for key in keys {
            answers[key] = json!({"roots": []});
        }
        let again = json!({"name": "add", "inputResponses": answers, "requestState": round["requestState"]});
        let second = harness.call("tools/call", again);
        assert_eq!(harness.outcome(ask), Some(Ok(json!({"roots": []}))));
        harness.respond(tool, json!({"content": [3]}));
        assert_eq!(harness.result(&second)["content"], json!([3]));
        harness
    });
}

/// S-RPC-25: a reply without an ask is dropped and counted.
#[test]
fn reply_without_an_ask_is_dropped_and_counted() {
    let mut harness = Harness::modern(config());
    let (id, request) = harness.call_tool("add");
    harness.send(json!({"jsonrpc": "2.0", "id": id, "result": {"content": ["mine"]}}));
    assert_eq!(harness.received(), NO_MESSAGES);
    assert_eq!(harness.noise(), [1]);
    harness.respond(request, json!({"content": []}));
    assert_eq!(harness.result(&id)["content"], json!([]));
    harness.finish();
}

/// S-RPC-03: an id may be used again after its request is over.
#[test]
fn id_may_be_reused_after_its_request_is_over() {
    let mut harness = Harness::modern(config());
    for _ in 0..3 {
        let params = with_meta(json!({"name": "add"}), json!({}));
        harness.send(request(7, "tools/call", params));
        let newest = harness.newest_request();
        harness.respond(newest, json!({"content": []}));
    }
    assert_eq!(harness.replies(&json!(7)).len(), 3);
    harness.finish();
}
