//! Header fields of a modern request that repeat its message: the name, and the arguments that a tool marks.

use crate::client_http::{self, Begun, Web, error, every_chunking, result};
use everlink::List;
use everlink::client::{Delivery, Event, FailureKind, State};
use everlink::protocol::ClientCapabilities;
use serde_json::{Value, json};

/// A call of a tool with this name, as it is sent.
fn named(name: &str) -> Begun {
    let mut web = Web::modern();
    web.call("tools/call", json!({"name": name}));
    web.posted("tools/call")
}

#[test]
fn s_hdr_02_what_a_request_is_about_is_in_its_fields() {
    let mut web = Web::modern();
    for (method, params, name) in [
        ("tools/call", json!({"name": "add"}), Some("add")),
        ("prompts/get", json!({"name": "greet"}), Some("greet")),
        (
            "resources/read",
            json!({"uri": "file:///a?b=c#d"}),
            Some("file:///a?b=c#d"),
        ),
        ("tools/list", json!({"name": "no", "uri": "no"}), None),
        ("completion/complete", json!({"name": "no"}), None),
    ] {
        web.call(method, params);
        assert_eq!(web.posted(method).field("mcp-name"), name, "{method}");
    }
}

#[test]
fn s_hdr_03_what_is_asked_of_a_task_names_the_task() {
    let mut config = client_http::config();
    config.capabilities =
        ClientCapabilities::default().with(everlink::protocol::ClientFeature::TasksExtension);
    let mut web = Web::new(config);
    web.connect();
    let probe = web.posted("server/discover");
    let mut found = client_http::discovery();
    found["capabilities"]["extensions"] = json!({"io.modelcontextprotocol/tasks": {}});
    web.json(probe.stream, 200, &result(&probe, found));
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        web.call(method, json!({"taskId": "t-1"}));
        assert_eq!(
            web.posted(method).field("mcp-name"),
            Some("t-1"),
            "{method}"
        );
    }
}

#[test]
fn s_hdr_04_what_is_no_plain_ascii_is_wrapped() {
    for (name, field) in [
        ("add", "add"),
        ("a b~!\"%", "a b~!\"%"),
        ("añadir", "=?base64?YcOxYWRpcg==?="),
        ("数", "=?base64?5pWw?="),
        (" a", "=?base64?IGE=?="),
        ("a\t", "=?base64?YQk=?="),
        ("a\r\nx: y", "=?base64?YQ0KeDogeQ==?="),
        ("a\u{0}", "=?base64?YQA=?="),
        ("a\u{7f}", "=?base64?YX8=?="),
    ] {
        assert_eq!(named(name).field("mcp-name"), Some(field), "{name:?}");
    }
}

#[test]
fn s_hdr_05_what_looks_wrapped_is_wrapped() {
    for (name, field) in [
        ("=?base64?YQ==?=", "=?base64?PT9iYXNlNjQ/WVE9PT89?="),
        ("=?base64??=", "=?base64?PT9iYXNlNjQ/Pz0=?="),
    ] {
        assert_eq!(named(name).field("mcp-name"), Some(field));
    }
}

#[test]
fn s_hdr_06_what_only_resembles_the_markers_is_text() {
    for name in [
        "=?BASE64?YQ==?=",
        "=?base64?YQ==",
        "x=?base64?YQ==?=",
        "=?Base64?YQ==?=",
    ] {
        assert_eq!(named(name).field("mcp-name"), Some(name));
    }
}

/// S-HDR-08: names of header fields are case-insensitive, values are not.
#[test]
fn s_hdr_08_the_case_of_names_says_nothing_and_that_of_values_everything() {
    let post = named("Add");
    assert_eq!(post.field("MCP-NAME"), Some("Add"));
    let mut web = Web::modern();
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    let body = client_http::complete(&post, json!({"content": []})).to_string();
    web.respond(
        post.stream,
        200,
        &[("CONTENT-TYPE", "Application/JSON; charset=UTF-8")],
        &body,
    );
    assert!(web.reply(call).is_ok());
    // The session field is found in any spelling, and its value is sent back unchanged.
    let mut config = client_http::config();
    config.dialect = everlink::Dialect::Legacy;
    let mut web = Web::new(config);
    web.connect();
    let post = web.posted("initialize");
    let fields = [
        ("content-type", "application/json"),
        ("MCP-SESSION-ID", "AbC"),
    ];
    let body = result(&post, client_http::introduction("2025-11-25")).to_string();
    web.respond(post.stream, 200, &fields, &body);
    assert_eq!(
        web.posted("notifications/initialized")
            .field("mcp-session-id"),
        Some("AbC")
    );
}

/// A tool with these properties.
fn tool(name: &str, properties: &Value) -> Value {
    json!({"name": name, "inputSchema": {"type": "object", "properties": properties}})
}

/// Makes the link read a list of these tools.
fn learn(web: &mut Web, tools: &[Value]) -> Vec<Value> {
    let call = web.call("tools/list", json!({}));
    let post = web.posted("tools/list");
    web.reply_with(
        &post,
        json!({"tools": tools, "ttlMs": 0, "cacheScope": "private"}),
    );
    let reply = web.reply(call).expect("a list");
    reply["tools"].as_array().expect("tools").clone()
}

fn called(web: &mut Web, name: &str, arguments: &Value) -> Begun {
    web.call("tools/call", json!({"name": name, "arguments": arguments}));
    web.posted("tools/call")
}

fn marked() -> Value {
    json!({
        "region": {"type": "string", "x-mcp-header": "Region"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
        "dry": {"type": "boolean", "x-mcp-header": "Dry-Run"},
        "where": {"type": "object", "properties": {"zone": {"type": "string", "x-mcp-header": "Zone"}}},
        "secret": {"type": "string"},
    })
}

#[test]
fn s_xhdr_02_what_a_tool_has_marked_is_in_the_fields_of_its_calls() {
    every_chunking(|chunking| {
        let mut web = Web::modern().chunked(chunking);
        learn(
            &mut web,
            &[tool("query", &marked()), tool("other", &json!({}))],
        );
        let arguments =
            json!({"region": "eu", "count": 3, "dry": true, "where": {"zone": "a"}, "secret": "x"});
        let post = called(&mut web, "query", &arguments);
        for (name, value) in [
            ("Region", "eu"),
            ("Count", "3"),
            ("Dry-Run", "true"),
            ("Zone", "a"),
        ] {
            assert_eq!(post.field(&format!("Mcp-Param-{name}")), Some(value));
        }
        assert_eq!(
            post.body["params"]["arguments"], arguments,
            "the message is whole"
        );
        let mirrored = |post: &Begun| {
            post.fields()
                .filter(|(name, _)| name.to_ascii_lowercase().starts_with("mcp-param-"))
                .count()
        };
        assert_eq!(mirrored(&post), 4);
        assert_eq!(mirrored(&called(&mut web, "other", &arguments)), 0);
        // A prompt of the same name has no marks.
        web.call(
            "prompts/get",
            json!({"name": "query", "arguments": {"region": "eu"}}),
        );
        assert_eq!(mirrored(&web.posted("prompts/get")), 0);
    });
}

/// S-XHDR-09: a same-named argument elsewhere and a null value make no field.
#[test]
fn s_xhdr_09_only_the_very_place_is_read_and_nothing_makes_no_field() {
    let mut web = Web::modern();
    learn(&mut web, &[tool("query", &marked())]);
    let post = called(
        &mut web,
        "query",
        &json!({"region": null, "zone": "b", "where": {"region": "c"}}),
    );
    for name in ["region", "count", "zone", "dry-run"] {
        assert_eq!(post.field(&format!("mcp-param-{name}")), None, "{name}");
    }
    web.call("tools/call", json!({"name": "query"}));
    assert_eq!(web.posted("tools/call").field("mcp-param-region"), None);
}

#[test]
fn s_xhdr_10_each_kind_of_value_has_its_form() {
    let mut web = Web::modern();
    learn(&mut web, &[tool("query", &marked())]);
    for (argument, field, value) in [
        (json!({"region": ""}), "region", ""),
        (json!({"region": "EU west"}), "region", "EU west"),
        (json!({"region": "数"}), "region", "=?base64?5pWw?="),
        (json!({"region": " eu"}), "region", "=?base64?IGV1?="),
        (
            json!({"region": "=?base64?YQ==?="}),
            "region",
            "=?base64?PT9iYXNlNjQ/WVE9PT89?=",
        ),
        (json!({"count": 0}), "count", "0"),
        (
            json!({"count": -9_007_199_254_740_991_i64}),
            "count",
            "-9007199254740991",
        ),
        (json!({"dry": false}), "dry-run", "false"),
    ] {
        let post = called(&mut web, "query", &argument);
        assert_eq!(
            post.field(&format!("mcp-param-{field}")),
            Some(value),
            "{argument}"
        );
    }
}

#[test]
fn s_xhdr_06_07_a_tool_that_breaks_the_rules_is_left_out_and_named() {
    let text = |mark: Value| json!({"a": {"type": "string", "x-mcp-header": mark}});
    let typed = |kind: &str| json!({"a": {"type": kind, "x-mcp-header": "A"}});
    let bad = [
        ("empty", text(json!(""))),
        ("spaced", text(json!("a b"))),
        ("control", text(json!("a\n"))),
        ("foreign", text(json!("ä"))),
        ("no-text", text(json!(1))),
        ("number", typed("number")),
        ("array", typed("array")),
        ("object", typed("object")),
        ("null", typed("null")),
        (
            "twice",
            json!({"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}}),
        ),
        (
            "items",
            json!({"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}}),
        ),
        (
            "composed",
            json!({"a": {"anyOf": [{"type": "string", "x-mcp-header": "A"}]}}),
        ),
    ];
    let mut tools: Vec<_> = bad
        .iter()
        .map(|(name, properties)| tool(name, properties))
        .collect();
    tools.insert(3, tool("good", &marked()));
    tools.push(tool("plain", &json!({})));
    for is_verb in [false, true] {
        let mut web = Web::modern();
        let left = if is_verb {
            let call = web.list(List::Tools);
            let post = web.posted("tools/list");
            web.reply_with(
                &post,
                json!({"tools": tools, "ttlMs": 0, "cacheScope": "private"}),
            );
            web.listed(call)
        } else {
            learn(&mut web, &tools)
        };
        let names: Vec<_> = left.iter().map(|tool| tool["name"].as_str()).collect();
        assert_eq!(names, [Some("good"), Some("plain")]);
        for (name, _) in &bad {
            let is_named = |event: &Event| matches!(event, Event::ToolDropped { tool, why } if **tool == **name && !why.is_empty());
            assert!(web.was_told(is_named), "{name}");
        }
    }
    // A legacy link repeats nothing in fields, so it drops no tool.
    let mut web = Web::legacy();
    assert_eq!(learn(&mut web, &tools).len(), tools.len());
}

/// S-XHDR-11: the newest schema counts; without a schema there are no fields.
#[test]
fn s_xhdr_11_the_newest_schema_says_what_goes_into_the_fields() {
    let mut web = Web::modern();
    let arguments = json!({"region": "eu"});
    let post = called(&mut web, "query", &arguments);
    assert_eq!(
        post.field("mcp-param-region"),
        None,
        "nothing is known of it"
    );
    learn(&mut web, &[tool("query", &marked())]);
    assert_eq!(
        called(&mut web, "query", &arguments).field("mcp-param-region"),
        Some("eu")
    );
    let other = json!({"region": {"type": "string", "x-mcp-header": "Place"}});
    learn(&mut web, &[tool("query", &other)]);
    let post = called(&mut web, "query", &arguments);
    assert_eq!(post.field("mcp-param-place"), Some("eu"));
    assert_eq!(post.field("mcp-param-region"), None);
    learn(&mut web, &[]);
    assert_eq!(
        called(&mut web, "query", &arguments).field("mcp-param-place"),
        None
    );
}

/// S-XHDR-11: all pages of a list count as equally new.
#[test]
fn s_xhdr_11_all_pages_of_a_list_count() {
    let mut web = Web::modern();
    let call = web.list(List::Tools);
    for (name, next) in [("a", json!("2")), ("b", json!(null))] {
        let post = web.posted("tools/list");
        let mut page =
            json!({"tools": [tool(name, &marked())], "ttlMs": 0, "cacheScope": "private"});
        if next.is_string() {
            page["nextCursor"] = next;
        }
        web.reply_with(&post, page);
    }
    assert_eq!(web.listed(call).len(), 2);
    for name in ["a", "b"] {
        let post = called(&mut web, name, &json!({"region": "eu"}));
        assert_eq!(post.field("mcp-param-region"), Some("eu"), "{name}");
    }
}

/// S-XHDR-12: a call that is refused for its fields is sent again once, with a fresh schema.
#[test]
fn s_xhdr_12_a_call_whose_fields_lack_something_is_made_anew_once() {
    let mut web = Web::modern();
    let call = web.call(
        "tools/call",
        json!({"name": "query", "arguments": {"region": "eu"}}),
    );
    let first = web.posted("tools/call");
    web.json(first.stream, 400, &error(&first, -32_020));
    assert!(!web.is_settled(call));
    let list = web.posted("tools/list");
    web.reply_with(
        &list,
        json!({"tools": [tool("query", &marked())], "ttlMs": 0, "cacheScope": "private"}),
    );
    let second = web.posted("tools/call");
    assert_eq!(second.field("mcp-param-region"), Some("eu"));
    assert_ne!(second.body["id"], first.body["id"]);
    web.json(second.stream, 400, &error(&second, -32_020));
    assert_eq!(web.reply(call), Err(-32_020));
    assert_eq!(web.unseen(), 0);
}

/// S-XHDR-16: a request that is too large is refused, and only this call fails.
#[test]
fn s_xhdr_16_a_request_that_is_too_large_is_the_end_of_that_call_alone() {
    for status in [413, 431] {
        let mut web = Web::modern();
        let call = web.call("tools/call", json!({"name": "a".repeat(9_000)}));
        let post = web.posted("tools/call");
        web.respond(
            post.stream,
            status,
            &[("content-type", "text/plain")],
            "too large",
        );
        let failure = web.failure(call);
        assert_eq!(failure.kind, FailureKind::Status { status, said: None });
        assert_eq!(failure.delivery, Delivery::NotSent, "it was not run");
        assert_eq!(web.client.state(), State::Ready);
        assert_eq!(web.unseen(), 0, "the same again would be as large");
    }
}
