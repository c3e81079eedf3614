//! Extensions of the modern era over HTTP, including tasks: only those that both ends declare are used.

use crate::client_http::{self, Exchange, Harness, config, initialize_result, result};
use everlink::client::{FailureKind, State};
use everlink::protocol::{ClientCapabilities, ClientFeature, Version, meta};
use everlink::{CallId, Dialect};
use serde_json::value::RawValue;
use serde_json::{Value, json};

const TASKS: &str = "io.modelcontextprotocol/tasks";

/// A link with these capabilities to a modern server with these extensions.
fn modern(declared: ClientCapabilities, extensions: &Value) -> Harness {
    let mut settings = config();
    settings.capabilities = declared;
    settings.watch = everlink::Watch::none();
    let mut harness = Harness::new(settings);
    harness.connect();
    let probe = harness.next_post("server/discover");
    let mut discover = client_http::discover_result();
    discover["capabilities"]["extensions"] = extensions.clone();
    harness.json(probe.stream, 200, &result(&probe, discover));
    harness
}

fn with_extension() -> ClientCapabilities {
    ClientCapabilities::default().with(ClientFeature::TasksExtension)
}

fn raw(value: &Value) -> Box<RawValue> {
    RawValue::from_string(value.to_string()).expect("JSON")
}

fn start_call(harness: &mut Harness, method: &'static str, params: Value) -> (CallId, Exchange) {
    let call = harness.call(method, params);
    (call, harness.next_post(method))
}

/// S-TASKX-01: every modern request declares the extension, and no legacy request does.
#[test]
fn s_taskx_01_extension_is_declared_in_every_modern_request_and_no_legacy_one() {
    let mut harness = modern(with_extension(), &json!({TASKS: {}}));
    start_call(&mut harness, "tools/call", json!({"name": "add"}));
    assert!(harness.exchanges.len() >= 2);
    for post in &harness.exchanges {
        assert_eq!(
            post.meta("clientCapabilities")["extensions"],
            json!({TASKS: {}})
        );
    }
    let mut settings = config();
    settings.dialect = Dialect::Legacy;
    settings.capabilities = with_extension();
    let mut harness = Harness::new(settings);
    harness.connect();
    let post = harness.next_post("initialize");
    assert_eq!(post.body["params"]["capabilities"], json!({}));
    let mut init = initialize_result("2025-11-25");
    init["capabilities"]["extensions"] = json!({TASKS: {}});
    harness.json(post.stream, 200, &result(&post, init));
    let post = harness.next_post("notifications/initialized");
    harness.status(post.stream, 202);
    let call = harness.call("tasks/get", json!({"taskId": "t"}));
    assert!(matches!(
        harness.failure(call).kind,
        FailureKind::NotOffered { .. }
    ));
}

/// S-TASKX-03, S-RPC-21: only a tool call may return a task.
#[test]
fn s_taskx_03_task_result_is_valid_only_for_tool_calls_with_the_extension() {
    let task = json!({"resultType": "task", "taskId": "t", "status": "working"});
    for (declared, method, params, is_result) in [
        (with_extension(), "tools/call", json!({"name": "add"}), true),
        (
            with_extension(),
            "prompts/get",
            json!({"name": "add"}),
            false,
        ),
        (with_extension(), "tools/list", json!({}), false),
        (
            ClientCapabilities::default(),
            "tools/call",
            json!({"name": "add"}),
            false,
        ),
    ] {
        let mut harness = modern(declared, &json!({TASKS: {}}));
        let (call, post) = start_call(&mut harness, method, params.clone());
        harness.json(post.stream, 200, &result(&post, task.clone()));
        if is_result {
            assert_eq!(harness.reply(call), Ok(task.clone()));
        } else {
            assert!(
                matches!(harness.failure(call).kind, FailureKind::Invalid { .. }),
                "{method}"
            );
        }
        let (call, post) = start_call(&mut harness, method, params);
        harness.reply_with(&post, json!({"content": [], "tools": [], "messages": []}));
        assert!(harness.reply(call).is_ok(), "{method}");
    }
}

/// S-TASKX-09: a task is cancelled with a request, and the reply only confirms that it was received.
#[test]
fn s_taskx_09_task_is_cancelled_only_by_tasks_cancel() {
    let mut harness = modern(with_extension(), &json!({TASKS: {}}));
    let (call, post) = start_call(&mut harness, "tools/call", json!({"name": "add"}));
    harness.json(
        post.stream,
        200,
        &result(
            &post,
            json!({"resultType": "task", "taskId": "t", "status": "working"}),
        ),
    );
    assert!(harness.reply(call).is_ok());
    assert!(harness.client.cancel(harness.now, call, None).is_err());
    harness.pump();
    assert!(harness.aborted.is_empty() && harness.unseen_count() == 0);
    let (cancel, post) = start_call(&mut harness, "tasks/cancel", json!({"taskId": "t"}));
    harness.reply_with(&post, json!({}));
    assert!(harness.reply(cancel).is_ok());
    let (get, post) = start_call(&mut harness, "tasks/get", json!({"taskId": "t"}));
    harness.reply_with(&post, json!({"taskId": "t", "status": "completed"}));
    assert_eq!(
        harness.reply(get).expect("a reply")["status"],
        "completed",
        "the task completed anyway"
    );
    assert!(harness.exchanges_of("notifications/cancelled").is_empty());
}

/// S-VER-14: an extension identifier has a prefix, and its settings are an object.
#[test]
fn s_ver_14_16_invalid_extension_is_refused_and_none_is_declared_by_default() {
    for (id, settings) in [
        ("plain", json!({})),
        ("a b/c", json!({})),
        ("/x", json!({})),
        ("com.example/x", json!(true)),
        ("com.example/x", json!(null)),
    ] {
        let declared = ClientCapabilities::default().with_extension(id, raw(&settings));
        assert!(declared.is_err(), "{id} {settings}");
    }
    let declared =
        ClientCapabilities::default().with_extension("com.example/x", raw(&json!({"a": 1})));
    let mut harness = modern(declared.expect("an extension"), &json!({}));
    let (_, post) = start_call(&mut harness, "tools/call", json!({"name": "add"}));
    assert_eq!(
        post.meta("clientCapabilities")["extensions"],
        json!({"com.example/x": {"a": 1}})
    );
    // S-VER-16: the link declares no extension by default.
    let mut harness = modern(
        ClientCapabilities::default(),
        &json!({TASKS: {}, "com.example/x": {}}),
    );
    let (_, post) = start_call(&mut harness, "tools/call", json!({"name": "add"}));
    assert_eq!(*post.meta("clientCapabilities"), json!({}));
}

/// S-VER-15, S-RPC-22: an extension counts only if both sides have it.
#[test]
fn s_ver_15_extension_counts_only_if_both_sides_declare_it() {
    let strange = || {
        ClientCapabilities::default()
            .with_extension("com.example/x", raw(&json!({})))
            .expect("an extension")
    };
    for (declared, offered, is_shared) in [
        (strange(), json!({"com.example/x": {}}), true),
        (strange(), json!({}), false),
        (
            ClientCapabilities::default(),
            json!({"com.example/x": {}}),
            false,
        ),
    ] {
        let mut harness = modern(declared, &offered);
        let (call, post) = start_call(&mut harness, "tools/call", json!({"name": "add"}));
        harness.json(
            post.stream,
            200,
            &result(&post, json!({"resultType": "com.example/kind"})),
        );
        if is_shared {
            assert!(harness.reply(call).is_ok());
        } else {
            assert!(
                matches!(harness.failure(call).kind, FailureKind::Invalid { .. }),
                "{offered}"
            );
        }
    }
    let mut harness = modern(with_extension(), &json!({}));
    let call = harness.call("tasks/get", json!({"taskId": "t"}));
    assert!(matches!(
        harness.failure(call).kind,
        FailureKind::NotOffered { .. }
    ));
    assert_eq!(harness.client.state(), State::Ready);
}

/// S-META-10, S-META-11: the link's keys in `_meta` follow the grammar and use their reserved prefix.
#[test]
fn s_meta_10_11_meta_keys_of_the_link_are_valid_and_reserved() {
    let mut harness = modern(with_extension(), &json!({TASKS: {}}));
    start_call(&mut harness, "tools/call", json!({"name": "add"}));
    let mut keys = 0;
    for post in &harness.exchanges {
        for key in post.body["params"]["_meta"]
            .as_object()
            .expect("meta")
            .keys()
        {
            assert!(meta::is_valid_key(key), "{key}");
            let is_own = meta::is_reserved_prefix(Version::V2026_07_28, key);
            assert!(is_own || key == "progressToken", "{key}");
            keys += 1;
        }
    }
    assert!(keys > 6);
}
