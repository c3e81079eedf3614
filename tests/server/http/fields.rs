//! Header fields of a modern request: they must agree with the message, and a request with other values is refused.

use crate::server_http::{Ask, Site, config, everything, initialize, modern, post};
use everlink::protocol::{ServerFeature, Version, Versions};
use everlink::server::Config;
use serde_json::{Value, json};

const MISMATCH: (u16, i64) = (400, -32020);
const VERSION: &str = "mcp-protocol-version";

fn call(name: &str) -> Ask {
    modern(7, "tools/call", json!({"name": name}))
}

/// A call with this `_meta`, and a header field with this version.
fn on_terms(field: &str, meta: &Value) -> Ask {
    let message = json!({
        "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "add", "_meta": meta},
    });
    post(&message)
        .with(VERSION, field)
        .with("mcp-method", "tools/call")
        .with("mcp-name", "add")
}

/// The required `_meta` of a modern request.
fn terms(version: &str) -> Value {
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
fn s_http_27_the_field_names_the_version_that_the_message_names() {
    for config in [config(), modern_only()] {
        let mut site = Site::new(config);
        for (field, meta) in [
            ("2025-11-25", "2026-07-28"),
            ("2026-07-28", "2025-11-25"),
            ("2026-07-28", "2099-01-01"),
            ("2099-01-01", "2026-07-28"),
            ("2026-07-28", "2026-07-28 "),
        ] {
            let refused = site.refused(on_terms(field, &terms(meta)));
            assert_eq!(refused, MISMATCH, "{field} and {meta}");
        }
        let twice = call("add").and(VERSION, "2026-07-28");
        assert_eq!(site.refused(twice), MISMATCH);
        site.taken(on_terms("2026-07-28", &terms("2026-07-28")));
        site.finish();
    }
}

#[test]
fn s_http_28_a_version_that_is_not_spoken_is_refused_with_those_that_are() {
    for config in [config(), modern_only()] {
        let versions = config.versions;
        let mut site = Site::new(config);
        for wanted in ["2099-01-01", "2026-07-29", "latest"] {
            let sent = site.send(on_terms(wanted, &terms(wanted)));
            assert_eq!(site.status(sent), 400, "{wanted}");
            let error = site.json(sent)["error"].clone();
            assert_eq!(error["code"], -32022, "{wanted}");
            assert_eq!(error["data"]["requested"], wanted);
            let spoken: Vec<&str> = versions.iter().map(Version::as_str).collect();
            let told: Vec<&str> = error["data"]["supported"]
                .as_array()
                .expect("a list")
                .iter()
                .map(|version| version.as_str().expect("a text"))
                .collect();
            assert!(told.iter().all(|version| spoken.contains(version)));
            assert!(told.contains(&"2026-07-28"));
        }
        site.finish();
    }
}

#[test]
fn s_http_29_a_method_that_there_is_not_is_not_found() {
    let mut site = Site::new(config());
    for method in [
        "no/such",
        "initialize",
        "ping",
        "logging/setLevel",
        "tasks/result",
    ] {
        let sent = site.send(modern(7, method, json!({})));
        assert_eq!(
            (site.status(sent), site.code(sent)),
            (404, -32601),
            "{method}"
        );
        assert_eq!(site.json(sent)["id"], 7);
    }
    site.finish();
}

#[test]
fn s_http_31_a_request_that_names_no_version_is_refused_where_nobody_may() {
    let mut site = Site::new(modern_only());
    for ask in [
        call("add").without(VERSION),
        post(&json!({"jsonrpc": "2.0", "id": 7, "method": "tools/list"})),
        post(&json!({"jsonrpc": "2.0", "id": 7, "method": "tools/list"}))
            .with("mcp-session-id", "1"),
    ] {
        assert_eq!(site.refused(ask), MISMATCH);
    }
    site.finish();
    // `initialize` has no version field.
    let mut site = Site::new(config());
    let begun = site.send(initialize("2025-11-25"));
    assert_eq!(site.status(begun), 200);
    site.finish();
}

/// S-HTTP-31: only clients before 2025-06-18 may leave out the field. If the server does not support them, the field is
/// required.
#[test]
fn s_http_31_the_field_is_needed_where_the_clients_without_it_are_not_served() {
    let mut recent = config();
    recent.versions = Versions::since(Version::V2025_06_18);
    let mut site = Site::new(recent);
    let begun = site.send(initialize("2025-11-25"));
    assert_eq!(site.status(begun), 200, "a handshake is exempt");
    let bare = post(&json!({"jsonrpc": "2.0", "id": 7, "method": "tools/list"}));
    assert_eq!(site.refused(bare), MISMATCH);
    site.finish();
}

/// S-HTTP-32: of two errors, the earlier check is reported.
#[test]
fn s_http_32_what_is_wrong_is_told_in_order() {
    let mut offer = everything();
    offer.capabilities = offer.capabilities.with(ServerFeature::TasksExtension);
    let mut tasks = config();
    tasks.offer = Some(offer);
    tasks.versions = Versions::MODERN;
    let mut site = Site::new(tasks);
    let missing = json!({"io.modelcontextprotocol/protocolVersion": "2099-01-01"});
    let get = |method| modern(7, method, json!({"taskId": "t"}));
    for (what, ask, refused) in [
        (
            "no field and no terms",
            on_terms("x", &json!({})).without(VERSION),
            (400, -32020),
        ),
        (
            "no capabilities and another version",
            on_terms("2026-07-28", &missing),
            (400, -32602),
        ),
        (
            "another version and an unknown one",
            on_terms("2026-07-28", &terms("2099-01-01")),
            (400, -32020),
        ),
        (
            "an unknown version and another method",
            on_terms("2099-01-01", &terms("2099-01-01")).with("mcp-method", "no"),
            (400, -32022),
        ),
        (
            "another method and an unknown one",
            modern(7, "no/such", json!({})).with("mcp-method", "no"),
            (400, -32020),
        ),
        (
            "another name and a lack",
            get("tasks/get").with("mcp-name", "u"),
            (400, -32020),
        ),
        (
            "an unknown method and a lack",
            get("tasks/list").with("mcp-name", "t"),
            (404, -32601),
        ),
        (
            "a lack",
            get("tasks/get").with("mcp-name", "t"),
            (400, -32021),
        ),
    ] {
        assert_eq!(site.refused(ask), refused, "{what}");
    }
    site.finish();
}

#[test]
fn s_http_33_every_error_has_the_id_of_its_request() {
    let mut site = Site::new(config());
    for id in [
        json!(0),
        json!(-1),
        json!("a"),
        json!(""),
        json!(9_007_199_254_740_993_i64),
    ] {
        let call = || modern(id.clone(), "tools/call", json!({"name": "add"}));
        let asks = [
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
        for ask in asks {
            let shown = ask.to_string();
            let sent = site.send(ask);
            assert!(site.status(sent) >= 400, "{shown}");
            assert_eq!(site.json(sent)["id"], id, "{shown}");
        }
    }
    site.finish();
}

/// S-HTTP-34: an invalid request gets an HTTP error status, even if the client accepts only event streams.
#[test]
fn s_http_34_a_request_is_looked_at_before_a_stream_begins() {
    let mut site = Site::new(config());
    for (ask, status) in [
        (call("add").with("mcp-method", "no"), 400),
        (on_terms("2099-01-01", &terms("2099-01-01")), 400),
        (on_terms("2026-07-28", &json!({})), 400),
        (modern(7, "no/such", json!({})), 404),
    ] {
        let shown = ask.to_string();
        let refused = site.refused(ask.with("accept", "text/event-stream"));
        assert_eq!(refused.0, status, "{shown}");
    }
    site.finish();
}

/// S-HTTP-34: an error of the application comes with status 200. After the start of a stream no other status is possible.
#[test]
fn s_http_34_the_applications_errors_come_with_success() {
    let mut site = Site::new(config());
    for code in [-32602, -32603, 1] {
        let (sent, request) = site.taken(call("add"));
        site.fail(request, code, "no");
        assert_eq!((site.status(sent), site.code(sent)), (200, code));
    }
    let curious = json!({"name": "add", "_meta": {"progressToken": 1}});
    let (sent, request) = site.taken(modern(7, "tools/call", curious));
    site.progress(request, 1.0);
    site.fail(request, -32601, "no");
    assert_eq!(site.status(sent), 200);
    assert_eq!(site.answer(sent)["error"]["code"], -32601);
    assert!(site.is_over(sent));
    site.finish();
}

#[test]
fn s_hdr_06_what_only_resembles_the_markers_is_text() {
    let mut site = Site::new(config());
    for name in [
        "=?BASE64?YWRk?=",
        "=?base64?YWRk",
        "x=?base64?YWRk?=",
        "=?Base64?YWRk?=",
    ] {
        site.taken(call(name));
        assert_eq!(
            site.refused(call("add").with("mcp-name", name)),
            MISMATCH,
            "{name}"
        );
    }
    site.finish();
}

#[test]
fn s_hdr_07_what_is_wrapped_is_unwrapped_before_it_is_compared() {
    let mut site = Site::new(config());
    for (name, field) in [
        ("add", "=?base64?YWRk?="),
        ("añadir", "=?base64?YcOxYWRpcg==?="),
        (" a", "=?base64?IGE=?="),
        ("", "=?base64??="),
        ("=?base64?YQ==?=", "=?base64?PT9iYXNlNjQ/WVE9PT89?="),
    ] {
        site.taken(call(name).with("mcp-name", field));
        assert_eq!(
            site.refused(call("other").with("mcp-name", field)),
            MISMATCH,
            "{field}"
        );
    }
    let read = json!({"uri": "file:///é"});
    site.taken(modern(7, "resources/read", read).with("mcp-name", "=?base64?ZmlsZTovLy/DqQ==?="));
    for field in [
        "=?base64?!?=",
        "=?base64?YWR?=",
        "=?base64?YW Rk?=",
        "=?base64?/w==?=",
    ] {
        assert_eq!(
            site.refused(call("add").with("mcp-name", field)),
            MISMATCH,
            "{field}"
        );
    }
    site.finish();
}

#[test]
fn s_hdr_08_the_case_of_names_says_nothing_and_that_of_values_everything() {
    let mut site = Site::new(config());
    let shouted = |ask: Ask| {
        let mut ask = ask;
        for (name, _) in &mut ask.fields {
            *name = name.to_ascii_uppercase();
        }
        ask
    };
    site.taken(shouted(call("add")));
    assert_eq!(
        site.refused(shouted(call("add").with("mcp-name", "Add"))),
        MISMATCH
    );
    assert_eq!(
        site.refused(call("add").with("mcp-method", "Tools/Call")),
        MISMATCH
    );
    assert_eq!(site.refused(call("add").with("mcp-name", "ADD")), MISMATCH);
    // The name of the session field is case-insensitive; the session id is case-sensitive.
    let session = site.session("2025-11-25");
    let ping = session.post(1, "ping", Value::Null);
    let pong = site.send(shouted(ping.clone()));
    assert_eq!(site.status(pong), 200);
    let other = site.send(ping.with("mcp-session-id", session.id.to_uppercase()));
    assert_eq!(site.status(other), 404);
    site.finish();
}

#[test]
fn s_hdr_09_what_the_fields_must_say_they_say_once_and_rightly() {
    let mut site = Site::new(config());
    let prompt = || modern(7, "prompts/get", json!({"name": "greet"}));
    let read = || modern(7, "resources/read", json!({"uri": "file:///a"}));
    for ask in [
        call("add").without("mcp-method"),
        call("add").with("mcp-method", "tools/list"),
        call("add").and("mcp-method", "tools/call"),
        call("add").with("mcp-method", b"tools/call\xff"),
        call("add").without("mcp-name"),
        call("add").with("mcp-name", "sub"),
        call("add").with("mcp-name", ""),
        call("add").and("mcp-name", "add"),
        call("add").with("mcp-name", b"a\xffd"),
        call("add").with("mcp-name", b"a\x01d"),
        call("é").with("mcp-name", "é"),
        prompt().without("mcp-name"),
        prompt().with("mcp-name", "other"),
        read().without("mcp-name"),
        read().with("mcp-name", "file:///b"),
    ] {
        let shown = ask.to_string();
        assert_eq!(site.refused(ask), MISMATCH, "{shown}");
    }
    // If the message names nothing, the field is ignored.
    for ask in [
        modern(7, "tools/list", json!({})),
        modern(7, "tools/list", json!({})).with("mcp-name", "x"),
        prompt(),
        read(),
    ] {
        site.taken(ask);
    }
    site.finish();
}

#[test]
fn s_hdr_10_the_space_around_a_value_is_none_of_it() {
    let mut site = Site::new(config());
    let spaced = call("add")
        .with("mcp-method", " tools/call\t")
        .with("mcp-name", "\t add ")
        .with(VERSION, " 2026-07-28 ");
    site.taken(spaced);
    site.finish();
}

#[test]
fn s_lhttp_22_a_session_is_not_spoken_to_in_a_version_that_there_is_not() {
    let mut site = Site::new(config());
    for version in ["2025-06-18", "2025-11-25"] {
        let session = site.session(version);
        let asks = [
            session.post(1, "ping", Value::Null),
            session.notice("notifications/custom", Value::Null),
            session.get(),
            session.delete(),
        ];
        for strange in ["1999-01-01", "", "latest"] {
            for ask in &asks {
                let sent = site.send(ask.clone().with(VERSION, strange));
                assert_eq!(site.status(sent), 400, "{strange}: {ask}");
            }
        }
        let twice = site.send(asks[0].clone().and(VERSION, version));
        assert_eq!(site.status(twice), 400);
        let pong = site.send(asks[0].clone());
        assert_eq!(site.status(pong), 200, "the session is as it was");
    }
    assert!(site.notified().is_empty());
    site.finish();
}
