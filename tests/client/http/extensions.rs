//! Extensions of the modern era over HTTP, including tasks: only those that both ends declare are used.

use crate::client_http::{self, Begun, Web, config, introduction, result};
use everlink::client::{FailureKind, State};
use everlink::protocol::{ClientCapabilities, ClientFeature, Version, meta};
use everlink::{CallId, Dialect};
use serde_json::value::RawValue;
use serde_json::{Value, json};

const TASKS: &str = "io.modelcontextprotocol/tasks";

/// A link with these capabilities to a modern server with these extensions.
fn modern(declared: ClientCapabilities, extensions: &Value) -> Web {
    let mut settings = config();
    settings.capabilities = declared;
    settings.watch = everlink::Watch::none();
    let mut web = Web::new(settings);
    web.connect();
    let probe = web.posted("server/discover");
    let mut found = client_http::discovery();
    found["capabilities"]["extensions"] = extensions.clone();
    web.json(probe.stream, 200, &result(&probe, found));
    web
}

fn with_extension() -> ClientCapabilities {
    ClientCapabilities::default().with(ClientFeature::TasksExtension)
}

fn raw(value: &Value) -> Box<RawValue> {
    RawValue::from_string(value.to_string()).expect("JSON")
}

fn called(web: &mut Web, method: &'static str, params: Value) -> (CallId, Begun) {
    let call = web.call(method, params);
    (call, web.posted(method))
}

/// S-TASKX-01: every modern request declares the extension, and no legacy request does.
#[test]
fn s_taskx_01_the_extension_is_declared_with_every_request() {
    let mut web = modern(with_extension(), &json!({TASKS: {}}));
    called(&mut web, "tools/call", json!({"name": "add"}));
    assert!(web.all.len() >= 2);
    for post in &web.all {
        assert_eq!(
            post.meta("clientCapabilities")["extensions"],
            json!({TASKS: {}})
        );
    }
    let mut settings = config();
    settings.dialect = Dialect::Legacy;
    settings.capabilities = with_extension();
    let mut web = Web::new(settings);
    web.connect();
    let post = web.posted("initialize");
    assert_eq!(post.body["params"]["capabilities"], json!({}));
    let mut terms = introduction("2025-11-25");
    terms["capabilities"]["extensions"] = json!({TASKS: {}});
    web.json(post.stream, 200, &result(&post, terms));
    let post = web.posted("notifications/initialized");
    web.status(post.stream, 202);
    let call = web.call("tasks/get", json!({"taskId": "t"}));
    assert!(matches!(
        web.failure(call).kind,
        FailureKind::NotOffered { .. }
    ));
}

/// S-TASKX-03, S-RPC-21: only a tool call may return a task.
#[test]
fn s_taskx_03_a_task_is_a_result_of_tools_where_it_was_declared() {
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
        let mut web = modern(declared, &json!({TASKS: {}}));
        let (call, post) = called(&mut web, method, params.clone());
        web.json(post.stream, 200, &result(&post, task.clone()));
        if is_result {
            assert_eq!(web.reply(call), Ok(task.clone()));
        } else {
            assert!(
                matches!(web.failure(call).kind, FailureKind::Invalid { .. }),
                "{method}"
            );
        }
        let (call, post) = called(&mut web, method, params);
        web.reply_with(&post, json!({"content": [], "tools": [], "messages": []}));
        assert!(web.reply(call).is_ok(), "{method}");
    }
}

/// S-TASKX-09: a task is cancelled with a request, and the reply only confirms that it was received.
#[test]
fn s_taskx_09_a_task_is_cancelled_by_a_request_alone() {
    let mut web = modern(with_extension(), &json!({TASKS: {}}));
    let (call, post) = called(&mut web, "tools/call", json!({"name": "add"}));
    web.json(
        post.stream,
        200,
        &result(
            &post,
            json!({"resultType": "task", "taskId": "t", "status": "working"}),
        ),
    );
    assert!(web.reply(call).is_ok());
    assert!(web.client.cancel(web.now, call, None).is_err());
    web.pump();
    assert!(web.aborted.is_empty() && web.unseen() == 0);
    let (cancel, post) = called(&mut web, "tasks/cancel", json!({"taskId": "t"}));
    web.reply_with(&post, json!({}));
    assert!(web.reply(cancel).is_ok());
    let (get, post) = called(&mut web, "tasks/get", json!({"taskId": "t"}));
    web.reply_with(&post, json!({"taskId": "t", "status": "completed"}));
    assert_eq!(
        web.reply(get).expect("a reply")["status"],
        "completed",
        "it went on all the same"
    );
    assert!(web.carrying("notifications/cancelled").is_empty());
}

/// S-VER-14: an extension identifier has a prefix, and its settings are an object.
#[test]
fn s_ver_14_16_an_extension_is_declared_by_name_and_properly() {
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
    let mut web = modern(declared.expect("an extension"), &json!({}));
    let (_, post) = called(&mut web, "tools/call", json!({"name": "add"}));
    assert_eq!(
        post.meta("clientCapabilities")["extensions"],
        json!({"com.example/x": {"a": 1}})
    );
    // S-VER-16: the link declares no extension by default.
    let mut web = modern(
        ClientCapabilities::default(),
        &json!({TASKS: {}, "com.example/x": {}}),
    );
    let (_, post) = called(&mut web, "tools/call", json!({"name": "add"}));
    assert_eq!(*post.meta("clientCapabilities"), json!({}));
}

/// S-VER-15, S-RPC-22: an extension counts only if both sides have it.
#[test]
fn s_ver_15_an_extension_that_one_side_has_is_none() {
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
        let mut web = modern(declared, &offered);
        let (call, post) = called(&mut web, "tools/call", json!({"name": "add"}));
        web.json(
            post.stream,
            200,
            &result(&post, json!({"resultType": "com.example/kind"})),
        );
        if is_shared {
            assert!(web.reply(call).is_ok());
        } else {
            assert!(
                matches!(web.failure(call).kind, FailureKind::Invalid { .. }),
                "{offered}"
            );
        }
    }
    let mut web = modern(with_extension(), &json!({}));
    let call = web.call("tasks/get", json!({"taskId": "t"}));
    assert!(matches!(
        web.failure(call).kind,
        FailureKind::NotOffered { .. }
    ));
    assert_eq!(web.client.state(), State::Ready);
}

/// S-META-10, S-META-11: the link's keys in `_meta` follow the grammar and use their reserved prefix.
#[test]
fn s_meta_10_11_the_keys_of_the_link_are_proper_ones() {
    let mut web = modern(with_extension(), &json!({TASKS: {}}));
    called(&mut web, "tools/call", json!({"name": "add"}));
    let mut keys = 0;
    for post in &web.all {
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
