//! The terms of a request: its version, the capabilities of its client, and both eras side by side.

use crate::server_pipe::{
    self, Host, NOTHING, able, config, every_chunking, every_version, notification, offering,
    payload, request, value, with_meta,
};
use everlink::protocol::{ServerCapabilities, Version, Versions, code, meta};
use everlink::server::{Config, Event, Misuse, Offer};
use serde_json::{Value, json};

const VERSION: &str = meta::PROTOCOL_VERSION;
const CAPABILITIES: &str = meta::CLIENT_CAPABILITIES;
const CLIENT: &str = meta::CLIENT_INFO;

/// A server that supports these versions.
fn speaking(versions: Versions) -> Config {
    let mut config = config();
    config.versions = versions;
    config
}

/// S-META-03: a request without a version or without client capabilities is refused with the code for invalid parameters.
#[test]
fn a_request_without_its_terms_is_refused() {
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
                let mut host = Host::modern(speaking(versions));
                let params = json!({"name": "add", "notifications": {}, "_meta": meta});
                let id = host.plain_call(method, params);
                assert_eq!(host.code(&id), -32602, "{method} with {meta}");
                assert_eq!(host.requests().len(), 0);
                host.finish();
            }
        }
    }
}

/// S-META-03: the client's name is optional. A second client may repeat the terms of the first and add its name.
#[test]
fn a_client_that_says_more_than_the_one_before_is_served() {
    let terms = format!(r#""{VERSION}":"2026-07-28","{CAPABILITIES}":{{}}"#);
    let client = format!(r#""{CLIENT}":{{"name":"second","version":"1"}}"#);
    for meta in [format!("{terms},{client}"), format!("{client},{terms}")] {
        let mut host = Host::modern(config());
        for (id, meta) in [(1, &terms), (2, &meta)] {
            host.line(&format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"add","_meta":{{{meta}}}}}}}"#
            ));
        }
        let requests = host.requests();
        let names = requests.iter().map(|request| {
            let client = request.peer.client.as_ref();
            client.map(|client| client.name().to_owned())
        });
        let names: Vec<_> = names.collect();
        assert_eq!(names, [None, Some("second".to_owned())], "{meta}");
        host.finish();
    }
}

/// S-META-03: a modern server also refuses a request without any terms.
#[test]
fn a_request_without_any_terms_is_refused_by_a_modern_server() {
    for params in [
        Value::Null,
        json!({}),
        json!({"name": "add"}),
        json!({"_meta": {}}),
        json!({"_meta": null}),
        json!({"_meta": 7}),
        json!({"_meta": {"progressToken": 7}}),
    ] {
        let mut host = Host::modern(speaking(Versions::MODERN));
        let id = host.plain_call("tools/call", params.clone());
        assert_eq!(host.code(&id), -32602, "{params}");
        let text = host.error(&id)["message"].to_string();
        assert!(text.contains("protocolVersion"), "{text}");
        assert_eq!(host.requests().len(), 0);
        host.finish();
    }
}

/// S-META-03: a duplicate term is refused, because its meaning is ambiguous.
#[test]
fn a_term_that_is_there_twice_is_refused() {
    let terms = format!(r#""{VERSION}":"2026-07-28","{CAPABILITIES}":{{}}"#);
    for params in [
        format!(r#"{{"_meta":{{{terms},"{VERSION}":"2026-07-28"}}}}"#),
        format!(r#"{{"_meta":{{{terms},"{CAPABILITIES}":{{"roots":{{}}}}}}}}"#),
        format!(r#"{{"_meta":{{{terms}}},"_meta":{{{terms}}}}}"#),
    ] {
        let mut host = Host::modern(config());
        host.line(&format!(
            r#"{{"jsonrpc":"2.0","id":5,"method":"tools/list","params":{params}}}"#
        ));
        assert_eq!(host.code(&json!(5)), -32602, "{params}");
        host.finish();
    }
}

/// S-META-03: a server of both eras refuses such a request, too, unless a handshake has set the terms.
#[test]
fn a_request_without_any_terms_and_without_a_handshake_is_refused() {
    for method in ["tools/call", "server/discover", "subscriptions/listen"] {
        let mut host = Host::new(config());
        let id = host.plain_call(method, json!({"name": "add", "notifications": {}}));
        assert_eq!(host.code(&id), -32602, "{method}");
        // For methods of the modern era only, the error does not suggest a handshake.
        let text = host.error(&id)["message"].to_string();
        let is_of_both = method == "tools/call";
        assert_eq!(text.contains("initialize"), is_of_both, "{text}");
        assert_eq!(host.requests().len(), 0);
        host.finish();
    }
}

/// S-META-04: the client's name is optional.
#[test]
fn a_client_need_not_say_who_it_is() {
    let mut host = Host::modern(config());
    let meta = json!({VERSION: "2026-07-28", CAPABILITIES: {}});
    let id = host.plain_call("tools/list", json!({"_meta": meta}));
    assert_eq!(host.requests()[0].peer.client, None);
    host.respond(host.newest(), json!({"tools": []}));
    assert_eq!(host.result(&id)["tools"], json!([]));
    host.finish();
}

/// The application is told of a client once, whatever the order of members in its capabilities.
#[test]
fn a_client_is_met_once() {
    let mut host = Host::modern(config());
    let mut met = Vec::new();
    for capabilities in [
        r#"{"roots":{},"sampling":{}}"#,
        r#"{"sampling":{},"roots":{}}"#,
        r#"{"roots":{}}"#,
    ] {
        host.line(&format!(
            r#"{{"jsonrpc":"2.0","id":{},"method":"server/discover","params":{{"_meta":{{"{VERSION}":"2026-07-28","{CAPABILITIES}":{capabilities}}}}}}}"#,
            met.len()
        ));
        met.push(host.met().len());
    }
    assert_eq!(met, [1, 1, 2]);
    host.finish();
}

/// S-META-05, S-META-08: version, client and capabilities of an earlier request do not apply to a later one.
#[test]
fn a_request_is_served_by_its_own_terms_alone() {
    every_chunking(|chunking| {
        let mut host = Host::modern(config()).chunked(chunking);
        let rich = with_meta(json!({"name": "add"}), able());
        host.plain_call("tools/call", rich);
        let first = host.newest();

        // The second request has its own client and capabilities, and those count.
        let meta = json!({VERSION: "2026-07-28", CAPABILITIES: {"roots": {}}, CLIENT: {"name": "other", "version": "2"}});
        host.plain_call("tools/call", json!({"name": "add", "_meta": meta}));
        let second = host.newest();
        let peers: Vec<_> = host.requests().iter().map(|r| r.peer.clone()).collect();
        let names: Vec<_> = peers
            .iter()
            .map(|p| p.client.as_ref().unwrap().name().to_owned())
            .collect();
        assert_eq!(names, ["scripted", "other"]);
        let form = json!({"message": "?", "requestedSchema": {"type": "object", "properties": {}}});
        let refused = host.try_ask(second, "elicitation/create", form.clone());
        assert!(
            matches!(refused, Err(Misuse::Unaskable { .. })),
            "{refused:?}"
        );
        host.ask(second, "roots/list", Value::Null);
        host.ask(first, "elicitation/create", form);

        // Terms that differ in one member are different.
        let same = with_meta(json!({"name": "add"}), json!({"roots": {}}));
        for (key, other) in [
            (CLIENT, json!({"name": "third", "version": "3"})),
            (CAPABILITIES, json!({})),
        ] {
            host.plain_call("tools/call", same.clone());
            let mut params = same.clone();
            params["_meta"][key] = other;
            host.plain_call("tools/call", params);
            let peers: Vec<_> = host.requests().iter().map(|r| r.peer.clone()).collect();
            assert_ne!(peers[peers.len() - 1], peers[peers.len() - 2], "{key}");
        }
        host.plain_call("tools/call", same.clone());
        let mut params = same;
        params["_meta"][VERSION] = json!("1999-01-01");
        let id = host.plain_call("tools/call", params);
        assert_eq!(host.code(&id), -32022);

        // A request without terms is refused, whatever the earlier ones had.
        let id = host.plain_call(
            "tools/call",
            json!({"name": "add", "_meta": {CAPABILITIES: {}}}),
        );
        assert_eq!(host.code(&id), -32602);
        let id = host.plain_call(
            "tools/call",
            json!({"name": "add", "_meta": {VERSION: "2026-07-28"}}),
        );
        assert_eq!(host.code(&id), -32602);
        host
    });
}

/// S-META-05: a legacy handshake on the same stream does not affect modern requests, or the other way round.
#[test]
fn the_handshake_says_nothing_of_modern_requests() {
    let mut host = Host::legacy(config(), "2025-06-18");
    host.modern_call("tools/call", json!({"name": "add"}));
    assert_eq!(host.requests()[0].peer.version, Version::V2026_07_28);
    host.plain_call("tools/call", json!({"name": "add"}));
    assert_eq!(host.requests()[1].peer.version, Version::V2025_06_18);
    let id = host.plain_call(
        "tools/call",
        json!({"name": "add", "_meta": {VERSION: "2026-07-28"}}),
    );
    assert_eq!(
        host.code(&id),
        -32602,
        "the handshake declared capabilities, this request none"
    );
    host.finish();
}

/// S-META-07: the names of client and server have no effect.
#[test]
fn names_change_nothing() {
    let told = |client: Value, server: &str| {
        let mut offer = server_pipe::everything();
        offer.server = everlink::protocol::Implementation::new(server, "9");
        let mut config = Config::new(offer, [7; 16]);
        config.names_itself = false;
        let mut host = Host::modern(config);
        let meta = json!({VERSION: "2026-07-28", CAPABILITIES: {}, CLIENT: client});
        for method in ["tools/list", "no/such", "server/discover"] {
            host.plain_call(method, json!({"_meta": meta}));
        }
        host.respond(host.newest(), json!({"tools": []}));
        let told: Vec<Value> = host.heard().to_vec();
        host.finish();
        told
    };
    let plain = told(json!({"name": "a", "version": "1"}), "one");
    assert_eq!(plain.len(), 3);
    assert_eq!(
        plain,
        told(json!({"name": "root\u{0}", "version": ""}), "two")
    );
}

/// S-META-09, S-META-08: the error for a missing client capability names what is missing.
#[test]
fn a_missing_capability_is_named() {
    use everlink::protocol::ClientFeature;
    for (feature, needed) in [
        (ClientFeature::Elicitation, json!({"elicitation": {}})),
        (ClientFeature::Roots, json!({"roots": {}})),
        (ClientFeature::Sampling, json!({"sampling": {}})),
    ] {
        let mut host = Host::modern(config()).declaring(json!({}));
        let (id, request) = host.tool("add");
        let error = everlink::server::missing_capability(feature);
        let done = host.verb(|server, now| server.fail(now, request, error));
        done.expect("the answer is taken");
        let error = host.error(&id);
        assert_eq!(error["code"], -32021);
        assert_eq!(error["data"]["requiredCapabilities"], needed);
        host.finish();
    }
}

/// S-META-08: the server sends no ask that the request did not declare, in any of the three kinds.
#[test]
fn a_client_is_not_asked_what_its_request_did_not_declare() {
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
        let mut host = Host::modern(config()).declaring(declared.clone());
        let (_, request) = host.tool("add");
        let asked = host.try_ask(request, method, params.clone());
        assert!(
            matches!(asked, Err(Misuse::Unaskable { .. })),
            "{declared}: {asked:?}"
        );
        let params = (!params.is_null()).then(|| payload(&params));
        let input = everlink::server::InputRequired::new().and_ask("key", method, params);
        let wanted = host.verb(|server, now| server.require_input(now, request, input));
        assert!(
            matches!(wanted, Err(Misuse::Unaskable { .. })),
            "{declared}: {wanted:?}"
        );
        assert_eq!(host.heard(), NOTHING);
        host.finish();
    }
}

/// S-META-10, S-META-11: every key that the server puts into `_meta` follows the grammar. Keys with a reserved prefix are
/// defined by the specification.
#[test]
fn the_keys_of_the_server_are_well_formed_and_defined() {
    let defined = [meta::SERVER_INFO, meta::SUBSCRIPTION_ID];
    let mut seen = 0;
    every_version(|version| {
        let mut host = Host::new(config()).speaking(version);
        host.call(
            "subscriptions/listen",
            json!({"notifications": {"toolsListChanged": true}}),
        );
        host.publish(everlink::Change::List(everlink::List::Tools));
        host.call("server/discover", Value::Null);
        host.served("tools/list", Value::Null, json!({"tools": []}));
        let (_, request) = host.tool("add");
        host.ask(request, "roots/list", Value::Null);
        let messages = host.heard().iter();
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
        host
    });
    assert!(seen >= 5, "there was something to see");
}

/// S-META-13: other `_meta` members pass unchanged in both directions, even under reserved keys.
#[test]
fn strange_keys_go_through_untouched() {
    every_version(|version| {
        let mut host = Host::new(config()).speaking(version);
        let strange = json!({
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "com.example/key": {"a": [1, null]},
            "io.modelcontextprotocol/whatever": 7,
            "dev.mcp/x": "y",
            "not a / valid key": true,
        });
        let params = json!({"name": "add", "_meta": strange});
        let id = host.call("tools/call", params.clone());
        let given = value(host.requests()[0].params.as_ref().unwrap());
        assert_eq!(given["_meta"], strange, "{version}");
        host.respond(host.newest(), json!({"content": [], "_meta": strange}));
        let mut told = host.result(&id)["_meta"].clone();
        told.as_object_mut().unwrap().remove(meta::SERVER_INFO);
        assert_eq!(told, strange, "{version}");
        host
    });
}

/// S-META-15: requests of unrelated clients run side by side and may be answered in any order.
#[test]
fn unrelated_requests_go_on_side_by_side() {
    every_chunking(|chunking| {
        let mut host = Host::new(config()).chunked(chunking);
        let mut open = Vec::new();
        for (number, capabilities) in [json!({}), able(), json!({"roots": {}})]
            .into_iter()
            .enumerate()
        {
            let params = with_meta(json!({"name": number.to_string()}), capabilities.clone());
            let id = host.plain_call("tools/call", params);
            open.push((id, host.newest(), number));
            assert_eq!(
                host.requests()[number]
                    .peer
                    .capabilities
                    .member("roots")
                    .is_some(),
                number > 0
            );
        }
        let id = host.initialize("2025-11-25");
        assert_eq!(host.result(&id)["protocolVersion"], "2025-11-25");
        host.say(notification("notifications/initialized", Value::Null));
        let id = host.plain_call("tools/call", json!({"name": "3"}));
        open.push((id, host.newest(), 3));
        open.rotate_left(1);
        for (_, request, number) in open.iter().rev() {
            host.respond(*request, json!({"content": [number]}));
        }
        for (id, _, number) in &open {
            assert_eq!(host.result(id)["content"], json!([number]));
            // Each reply has the form of its own era.
            assert_eq!(host.result(id).get("resultType").is_some(), *number < 3);
        }
        host
    });
}

/// S-VER-01: the error for an unsupported version lists the supported versions and the requested one.
#[test]
fn a_version_that_is_not_spoken_is_refused() {
    for wanted in [
        "1900-01-01",
        "2026-07-29",
        "2099-12-31",
        "",
        "latest",
        "2026-07-28 ",
    ] {
        for method in ["tools/call", "server/discover", "no/such", "initialize"] {
            let mut host = Host::modern(config());
            let id = host.modern_call(method, json!({"name": "add", "_meta": {VERSION: wanted}}));
            let error = host.error(&id);
            assert_eq!(error["code"], -32022, "{wanted}: {method}");
            assert_eq!(error["data"]["requested"], wanted);
            let supported = error["data"]["supported"].as_array().expect("a list");
            assert!(supported.contains(&json!("2026-07-28")), "{supported:?}");
            assert!(supported.iter().all(Value::is_string), "{supported:?}");
            assert_eq!(host.requests().len(), 0);
            host.finish();
        }
    }
}

/// S-VER-01: a legacy version is refused without its handshake.
#[test]
fn a_version_that_cannot_be_spoken_so_is_refused() {
    for wanted in Version::LEGACY {
        let mut host = Host::modern(config());
        let meta = json!({VERSION: wanted.as_str()});
        let id = host.modern_call("tools/list", json!({"_meta": meta}));
        let error = host.error(&id);
        assert_eq!(error["code"], -32022);
        assert_eq!(error["data"]["requested"], wanted.as_str());
        host.finish();
    }
}

/// S-VER-01: a server without modern versions does not send the modern error, which would prove a modern server
/// (S-VER-09).
#[test]
fn a_legacy_server_is_not_taken_for_a_modern_one() {
    let mut host = Host::modern(speaking(Versions::LEGACY));
    for method in ["server/discover", "tools/list"] {
        let id = host.modern_call(method, Value::Null);
        let code = host.code(&id);
        assert!(!code::is_modern_evidence(code), "{code}");
    }
    let id = host.initialize("2025-11-25");
    assert_eq!(host.result(&id)["protocolVersion"], "2025-11-25");
    let id = host.modern_call("server/discover", Value::Null);
    assert_eq!(host.code(&id), -32601);
    host.finish();
}

/// S-VER-03, S-CACHE-01: the result of `server/discover` has everything that the schema requires.
#[test]
fn a_server_can_be_discovered() {
    every_chunking(|chunking| {
        let tools = ServerCapabilities::default().with_tools(true);
        let offer = Offer::new("docs", "1.2")
            .with_capabilities(tools)
            .with_instructions("Be kind.");
        let mut host = Host::modern(Config::new(offer, [7; 16])).chunked(chunking);
        let id = host.call("server/discover", Value::Null);
        let result = host.result(&id);
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
            host.requests().len(),
            0,
            "the application has no part in it"
        );
        host
    });
    let mut host = Host::modern(offering(ServerCapabilities::default()));
    let id = host.call("server/discover", Value::Null);
    assert_eq!(host.result(&id).get("instructions"), None);
    assert_eq!(host.result(&id)["capabilities"], json!({}));
    host.finish();
}

/// S-VER-03: `server/discover` waits until the server has its offer.
#[test]
fn a_discovery_waits_for_the_offer() {
    every_chunking(|chunking| {
        let mut host = Host::modern(Config::deferred([7; 16])).chunked(chunking);
        let early = host.call("server/discover", Value::Null);
        host.pass(server_pipe::seconds(60));
        assert_eq!(host.heard(), NOTHING);
        let tools = ServerCapabilities::default().with_tools(false);
        let offer = Offer::new("late", "1").with_capabilities(tools);
        host.verb(|server, now| server.offer(now, offer));
        assert_eq!(host.result(&early)["capabilities"], json!({"tools": {}}));
        host
    });
}

/// S-VER-05: the server supports exactly the configured versions.
#[test]
fn each_version_that_is_configured_is_spoken() {
    for only in Version::LEGACY {
        let mut host = Host::new(speaking(Versions::only(*only)));
        for wanted in Version::ALL {
            let id = host.initialize(wanted.as_str());
            assert_eq!(host.result(&id)["protocolVersion"], only.as_str());
        }
        host.finish();
    }
    every_version(|version| {
        let mut host = Host::new(speaking(Versions::only(version))).speaking(version);
        let served = host.served("tools/list", Value::Null, json!({"tools": []}));
        assert_eq!(served["tools"], json!([]));
        assert_eq!(host.requests()[0].peer.version, version);
        host
    });
}

/// S-VER-06, S-VER-07: both eras are served on one stream, each request by its own terms.
#[test]
fn both_eras_are_served_on_one_stream() {
    every_chunking(|chunking| {
        let mut host = Host::new(config()).chunked(chunking);
        let before = host.modern_call("tools/list", Value::Null);
        let first = host.newest();
        let hello = host.initialize("2025-06-18");
        host.say(notification("notifications/initialized", Value::Null));
        assert_eq!(host.result(&hello)["protocolVersion"], "2025-06-18");
        let legacy = host.plain_call("tools/list", Value::Null);
        let second = host.newest();
        let after = host.modern_call("tools/list", Value::Null);
        let third = host.newest();
        for request in [third, second, first] {
            host.respond(request, json!({"tools": []}));
        }
        for modern in [&before, &after] {
            assert_eq!(host.result(modern)["resultType"], "complete");
            assert!(host.result(modern)["ttlMs"].is_u64());
        }
        assert_eq!(host.result(&legacy), json!({"tools": []}));
        let ping = host.plain_call("ping", Value::Null);
        assert_eq!(host.result(&ping), json!({}));
        let ping = host.modern_call("ping", Value::Null);
        assert_eq!(
            host.code(&ping),
            -32601,
            "there is no such thing any more (S-TIME-11)"
        );
        host
    });
}

/// S-VER-08: an `initialize` with modern terms is a modern request for an unknown method.
#[test]
fn an_initialize_with_modern_terms_is_no_handshake() {
    for before in [false, true] {
        let mut host = Host::new(config());
        if before {
            host = host.speaking(Version::V2025_06_18);
        }
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}});
        let id = host.modern_call("initialize", params);
        assert_eq!(host.code(&id), -32601);
        let version = host.server.legacy_peer().map(|peer| peer.version);
        assert_eq!(version, before.then_some(Version::V2025_06_18));
        host.finish();
    }
}

/// S-VER-12: a server without the legacy era names its versions in the refusal of a handshake.
#[test]
fn a_modern_server_names_its_versions_to_who_wants_a_handshake() {
    for wanted in Version::ALL {
        let mut host = Host::new(speaking(Versions::MODERN));
        let id = host.initialize(wanted.as_str());
        let error = host.error(&id);
        assert_eq!(error["data"]["supported"], json!(["2026-07-28"]), "{error}");
        assert!(host.server.legacy_peer().is_none());
        assert_eq!(
            host.picked(|event| matches!(event, Event::Met(_)).then_some(()))
                .len(),
            0
        );
        // A later `initialized` does not change that.
        host.say(notification("notifications/initialized", Value::Null));
        let id = host.plain_call("tools/list", Value::Null);
        assert_eq!(host.code(&id), -32602);
        host.finish();
    }
}

/// S-VER-14: an extension has an identifier with a prefix, and its settings are an object.
#[test]
fn extensions_are_offered_under_identifiers_with_a_prefix() {
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
    let mut host = Host::modern(offering(offered.expect("both are well-formed")));
    let id = host.call("server/discover", Value::Null);
    let extensions = json!({"com.example/x": {"a": 1}, "dev.example/y": {}});
    assert_eq!(host.result(&id)["capabilities"]["extensions"], extensions);
    host.finish();
}

/// S-VER-15, S-VER-16: an extension is active only if both sides declare it. None is offered by default, one that only the
/// client declares is ignored, and one that it does not declare is not used.
#[test]
fn an_extension_takes_two() {
    // Only the client has the extension.
    let tasks = json!({"extensions": {meta::TASKS_EXTENSION: {}, "com.example/x": {"deep": [1]}}});
    let mut host = Host::modern(config()).declaring(tasks);
    let id = host.call("server/discover", Value::Null);
    assert_eq!(host.result(&id)["capabilities"].get("extensions"), None);
    let (id, request) = host.tool("add");
    let result = host.verb(|server, now| server.respond(now, request, payload(&a_task())));
    assert!(
        matches!(result, Err(Misuse::InvalidResultType { .. })),
        "{result:?}"
    );
    host.respond(request, json!({"content": []}));
    assert_eq!(
        host.result(&id)["resultType"],
        "complete",
        "it falls back to what all have"
    );
    for method in ["tasks/get", "tasks/cancel", "tasks/update", "com.example/x"] {
        let id = host.call(method, json!({"taskId": "1"}));
        assert_eq!(host.code(&id), -32601, "{method}");
    }
    host.finish();

    // Only the server has the extension.
    let mut host = Host::modern(with_tasks()).declaring(json!({}));
    let (id, request) = host.tool("add");
    let result = host.verb(|server, now| server.respond(now, request, payload(&a_task())));
    assert!(
        matches!(result, Err(Misuse::InvalidResultType { .. })),
        "{result:?}"
    );
    host.respond(request, json!({"content": []}));
    assert_eq!(host.result(&id)["resultType"], "complete");
    host.finish();

    // Both have it.
    let tasks = json!({"extensions": {meta::TASKS_EXTENSION: {}}});
    let mut host = Host::modern(with_tasks()).declaring(tasks);
    let (id, request) = host.tool("add");
    host.respond(request, a_task());
    assert_eq!(host.result(&id)["resultType"], "task");
    host.finish();
}

fn a_task() -> Value {
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
fn the_kinds_of_results_are_those_that_both_ends_know() {
    for kind in ["task", "partial", "Complete", "", "input-required"] {
        let mut host = Host::modern(config());
        let (id, request) = host.tool("add");
        let strange = payload(&json!({"content": [], "resultType": kind}));
        let result = host.verb(|server, now| server.respond(now, request, strange));
        assert!(
            matches!(result, Err(Misuse::InvalidResultType { .. })),
            "{kind}: {result:?}"
        );
        host.respond(request, json!({"content": [], "resultType": "complete"}));
        assert_eq!(host.result(&id)["resultType"], "complete");
        host.finish();
    }
    // With the tasks extension at both ends there is one more type, only for tool calls.
    let tasks = json!({"extensions": {meta::TASKS_EXTENSION: {}}});
    let mut host = Host::modern(with_tasks()).declaring(tasks);
    host.call("tools/list", Value::Null);
    let request = host.newest();
    let result = host.verb(|server, now| server.respond(now, request, payload(&a_task())));
    assert!(
        matches!(result, Err(Misuse::InvalidResultType { .. })),
        "{result:?}"
    );
    let (id, request) = host.tool("add");
    host.respond(request, a_task());
    assert_eq!(host.result(&id)["resultType"], "task");
    host.finish();
}

/// S-RPC-22: an extension that both ends have may bring its own result types.
#[test]
fn an_extension_may_bring_kinds_of_results() {
    let strange = || {
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
        (strange(), declared.clone(), true),
        (strange(), json!({}), false),
        (strange(), only_tasks, false),
        (config(), declared.clone(), false),
        (with_tasks(), declared, false),
    ] {
        let mut host = Host::modern(config).declaring(declared.clone());
        let (id, request) = host.tool("add");
        let result = payload(&json!({"resultType": "com.example/kind", "x": 1}));
        let done = host.verb(|server, now| server.respond(now, request, result));
        if is_allowed {
            done.expect("both have it");
            assert_eq!(host.result(&id)["resultType"], "com.example/kind");
        } else {
            assert!(
                matches!(done, Err(Misuse::InvalidResultType { .. })),
                "{declared}"
            );
            assert_eq!(host.replies(&id).len(), 0);
        }
        host.finish();
    }
}

/// S-RPC-21: the application cannot send an `input_required` result with `respond`, because the server must know the
/// asks.
#[test]
fn a_result_that_wants_input_has_a_verb_of_its_own() {
    for method in ["tools/call", "tools/list"] {
        let mut host = Host::modern(config());
        host.call(method, json!({"name": "add"}));
        let request = host.newest();
        let by_hand = json!({"resultType": "input_required", "inputRequests": {"a": {"method": "roots/list"}}});
        let done = host.verb(|server, now| server.respond(now, request, payload(&by_hand)));
        assert!(
            matches!(done, Err(Misuse::OwnedByLink { .. })),
            "{method}: {done:?}"
        );
        assert_eq!(host.heard(), NOTHING);
        host.finish();
    }
}

/// S-RPC-27: plain requests, requests in several rounds, and watches work on one stream.
#[test]
fn the_three_patterns_work_side_by_side() {
    every_chunking(|chunking| {
        let mut host = Host::modern(config()).chunked(chunking);
        let watch = json!({"notifications": {"toolsListChanged": true}});
        let listen = host.call("subscriptions/listen", watch);
        assert_eq!(
            host.said("notifications/subscriptions/acknowledged").len(),
            1
        );

        let (first, tool) = host.tool("add");
        let ask = host.ask(tool, "roots/list", Value::Null);
        let asked = host.result(&first);
        assert_eq!(asked["resultType"], "input_required");

        assert_eq!(
            host.served("tools/list", Value::Null, json!({"tools": []}))["tools"],
            json!([])
        );
        host.publish(everlink::Change::List(everlink::List::Tools));
        let told = host.said("notifications/tools/list_changed");
        assert_eq!(told[0]["params"]["_meta"][meta::SUBSCRIPTION_ID], listen);

        let keys = asked["inputRequests"].as_object().unwrap().keys();
        let mut answers = json!({});
        for key in keys {
            answers[key] = json!({"roots": []});
        }
        let again = json!({"name": "add", "inputResponses": answers, "requestState": asked["requestState"]});
        let second = host.call("tools/call", again);
        assert_eq!(host.outcome(ask), Some(Ok(json!({"roots": []}))));
        host.respond(tool, json!({"content": [3]}));
        assert_eq!(host.result(&second)["content"], json!([3]));
        host
    });
}

/// S-RPC-25: a reply without an ask is dropped and counted.
#[test]
fn a_response_to_nothing_is_dropped() {
    let mut host = Host::modern(config());
    let (id, request) = host.tool("add");
    host.say(json!({"jsonrpc": "2.0", "id": id, "result": {"content": ["mine"]}}));
    assert_eq!(host.heard(), NOTHING);
    assert_eq!(host.noise(), [1]);
    host.respond(request, json!({"content": []}));
    assert_eq!(host.result(&id)["content"], json!([]));
    host.finish();
}

/// S-RPC-03: an id may be used again after its request is over.
#[test]
fn ids_may_come_again_when_they_are_free() {
    let mut host = Host::modern(config());
    for _ in 0..3 {
        let params = with_meta(json!({"name": "add"}), json!({}));
        host.say(request(7, "tools/call", params));
        let newest = host.newest();
        host.respond(newest, json!({"content": []}));
    }
    assert_eq!(host.replies(&json!(7)).len(), 3);
    host.finish();
}
