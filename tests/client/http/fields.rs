//! Header fields of a modern request that repeat its message: the name, and the arguments that a tool marks.

use crate::client_http::{self, Exchange, Harness, error, every_chunking, result, seconds};
use everlink::client::{Delivery, Event, FailureKind, State};
use everlink::protocol::ClientCapabilities;
use everlink::{FaultKind, List};
use serde_json::{Value, json};

/// A call of a tool with this name, as it is sent.
fn call_named(name: &str) -> Exchange {
    let mut harness = Harness::modern();
    harness.call("tools/call", json!({"name": name}));
    harness.next_post("tools/call")
}

#[test]
fn s_hdr_02_mcp_name_header_holds_the_tool_prompt_or_resource() {
    let mut harness = Harness::modern();
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
        harness.call(method, params);
        assert_eq!(
            harness.next_post(method).field("mcp-name"),
            name,
            "{method}"
        );
    }
}

#[test]
fn s_hdr_03_mcp_name_header_of_a_task_request_is_the_task_id() {
    let mut config = client_http::config();
    config.capabilities =
        ClientCapabilities::default().with(everlink::protocol::ClientFeature::TasksExtension);
    let mut harness = Harness::new(config);
    harness.connect();
    let probe = harness.next_post("server/discover");
    let mut discover = client_http::discover_result();
    discover["capabilities"]["extensions"] = json!({"io.modelcontextprotocol/tasks": {}});
    harness.json(probe.stream, 200, &result(&probe, discover));
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        harness.call(method, json!({"taskId": "t-1"}));
        assert_eq!(
            harness.next_post(method).field("mcp-name"),
            Some("t-1"),
            "{method}"
        );
    }
}

#[test]
fn s_hdr_04_name_that_is_no_plain_ascii_is_base64_encoded() {
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
        assert_eq!(call_named(name).field("mcp-name"), Some(field), "{name:?}");
    }
}

#[test]
fn s_hdr_05_name_that_looks_encoded_is_encoded() {
    for (name, field) in [
        ("=?base64?YQ==?=", "=?base64?PT9iYXNlNjQ/WVE9PT89?="),
        ("=?base64??=", "=?base64?PT9iYXNlNjQ/Pz0=?="),
    ] {
        assert_eq!(call_named(name).field("mcp-name"), Some(field));
    }
}

#[test]
fn s_hdr_06_name_that_only_resembles_the_markers_is_sent_as_it_is() {
    for name in [
        "=?BASE64?YQ==?=",
        "=?base64?YQ==",
        "x=?base64?YQ==?=",
        "=?Base64?YQ==?=",
    ] {
        assert_eq!(call_named(name).field("mcp-name"), Some(name));
    }
}

/// S-HDR-08: names of header fields are case-insensitive, values are not.
#[test]
fn s_hdr_08_header_names_are_case_insensitive_and_values_keep_their_case() {
    let post = call_named("Add");
    assert_eq!(post.field("MCP-NAME"), Some("Add"));
    let mut harness = Harness::modern();
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    let body = client_http::complete(&post, json!({"content": []})).to_string();
    harness.respond(
        post.stream,
        200,
        &[("CONTENT-TYPE", "Application/JSON; charset=UTF-8")],
        &body,
    );
    assert!(harness.reply(call).is_ok());
    // The session field is found in any spelling, and its value is sent back unchanged.
    let mut config = client_http::config();
    config.dialect = everlink::Dialect::Legacy;
    let mut harness = Harness::new(config);
    harness.connect();
    let post = harness.next_post("initialize");
    let fields = [
        ("content-type", "application/json"),
        ("MCP-SESSION-ID", "AbC"),
    ];
    let body = result(&post, client_http::initialize_result("2025-11-25")).to_string();
    harness.respond(post.stream, 200, &fields, &body);
    assert_eq!(
        harness
            .next_post("notifications/initialized")
            .field("mcp-session-id"),
        Some("AbC")
    );
}

/// A tool with these properties.
fn tool(name: &str, properties: &Value) -> Value {
    json!({"name": name, "inputSchema": {"type": "object", "properties": properties}})
}

/// Makes the link read a list of these tools.
fn list_tools(harness: &mut Harness, tools: &[Value]) -> Vec<Value> {
    let call = harness.call("tools/list", json!({}));
    let post = harness.next_post("tools/list");
    harness.reply_with(
        &post,
        json!({"tools": tools, "ttlMs": 0, "cacheScope": "private"}),
    );
    let reply = harness.reply(call).expect("a list");
    reply["tools"].as_array().expect("tools").clone()
}

fn start_call(harness: &mut Harness, name: &str, arguments: &Value) -> Exchange {
    harness.call("tools/call", json!({"name": name, "arguments": arguments}));
    harness.next_post("tools/call")
}

fn marked_properties() -> Value {
    json!({
        "region": {"type": "string", "x-mcp-header": "Region"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
        "dry": {"type": "boolean", "x-mcp-header": "Dry-Run"},
        "where": {"type": "object", "properties": {"zone": {"type": "string", "x-mcp-header": "Zone"}}},
        "secret": {"type": "string"},
    })
}

#[test]
fn s_xhdr_02_marked_arguments_are_sent_as_mcp_param_headers() {
    every_chunking(|chunking| {
        let mut harness = Harness::modern().chunked(chunking);
        list_tools(
            &mut harness,
            &[
                tool("query", &marked_properties()),
                tool("other", &json!({})),
            ],
        );
        let arguments =
            json!({"region": "eu", "count": 3, "dry": true, "where": {"zone": "a"}, "secret": "x"});
        let post = start_call(&mut harness, "query", &arguments);
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
            "the message is unchanged"
        );
        let param_headers = |post: &Exchange| {
            post.fields()
                .filter(|(name, _)| name.to_ascii_lowercase().starts_with("mcp-param-"))
                .count()
        };
        assert_eq!(param_headers(&post), 4);
        assert_eq!(
            param_headers(&start_call(&mut harness, "other", &arguments)),
            0
        );
        // A prompt of the same name has no marks.
        harness.call(
            "prompts/get",
            json!({"name": "query", "arguments": {"region": "eu"}}),
        );
        assert_eq!(param_headers(&harness.next_post("prompts/get")), 0);
    });
}

/// S-XHDR-09: a same-named argument elsewhere and a null value make no field.
#[test]
fn s_xhdr_09_absent_or_null_argument_makes_no_header() {
    let mut harness = Harness::modern();
    list_tools(&mut harness, &[tool("query", &marked_properties())]);
    let post = start_call(
        &mut harness,
        "query",
        &json!({"region": null, "zone": "b", "where": {"region": "c"}}),
    );
    for name in ["region", "count", "zone", "dry-run"] {
        assert_eq!(post.field(&format!("mcp-param-{name}")), None, "{name}");
    }
    harness.call("tools/call", json!({"name": "query"}));
    assert_eq!(
        harness.next_post("tools/call").field("mcp-param-region"),
        None
    );
}

#[test]
fn s_xhdr_10_strings_integers_and_booleans_are_encoded_as_specified() {
    let mut harness = Harness::modern();
    list_tools(&mut harness, &[tool("query", &marked_properties())]);
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
        let post = start_call(&mut harness, "query", &argument);
        assert_eq!(
            post.field(&format!("mcp-param-{field}")),
            Some(value),
            "{argument}"
        );
    }
}

#[test]
fn s_xhdr_06_07_tool_with_an_invalid_header_mark_is_dropped_and_reported() {
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
    tools.insert(3, tool("good", &marked_properties()));
    tools.push(tool("plain", &json!({})));
    for uses_list_call in [false, true] {
        let mut harness = Harness::modern();
        let left = if uses_list_call {
            let call = harness.list(List::Tools);
            let post = harness.next_post("tools/list");
            harness.reply_with(
                &post,
                json!({"tools": tools, "ttlMs": 0, "cacheScope": "private"}),
            );
            harness.listed(call)
        } else {
            list_tools(&mut harness, &tools)
        };
        let names: Vec<_> = left.iter().map(|tool| tool["name"].as_str()).collect();
        assert_eq!(names, [Some("good"), Some("plain")]);
        for (name, _) in &bad {
            let is_named = |event: &Event| matches!(event, Event::ToolDropped { tool, why } if **tool == **name && !why.is_empty());
            assert!(harness.has_event(is_named), "{name}");
        }
    }
    // A legacy link repeats nothing in fields, so it drops no tool.
    let mut harness = Harness::legacy();
    assert_eq!(list_tools(&mut harness, &tools).len(), tools.len());
}

/// S-XHDR-11: the newest schema counts; without a schema there are no fields.
#[test]
fn s_xhdr_11_newest_schema_determines_the_headers() {
    let mut harness = Harness::modern();
    let arguments = json!({"region": "eu"});
    let post = start_call(&mut harness, "query", &arguments);
    assert_eq!(
        post.field("mcp-param-region"),
        None,
        "the schema is unknown"
    );
    list_tools(&mut harness, &[tool("query", &marked_properties())]);
    assert_eq!(
        start_call(&mut harness, "query", &arguments).field("mcp-param-region"),
        Some("eu")
    );
    let other = json!({"region": {"type": "string", "x-mcp-header": "Place"}});
    list_tools(&mut harness, &[tool("query", &other)]);
    let post = start_call(&mut harness, "query", &arguments);
    assert_eq!(post.field("mcp-param-place"), Some("eu"));
    assert_eq!(post.field("mcp-param-region"), None);
    list_tools(&mut harness, &[]);
    assert_eq!(
        start_call(&mut harness, "query", &arguments).field("mcp-param-place"),
        None
    );
}

/// S-XHDR-11: all pages of a list count as equally new.
#[test]
fn s_xhdr_11_schemas_of_all_pages_of_a_list_count() {
    let mut harness = Harness::modern();
    let call = harness.list(List::Tools);
    for (name, next) in [("a", json!("2")), ("b", json!(null))] {
        let post = harness.next_post("tools/list");
        let mut page = json!({"tools": [tool(name, &marked_properties())], "ttlMs": 0, "cacheScope": "private"});
        if next.is_string() {
            page["nextCursor"] = next;
        }
        harness.reply_with(&post, page);
    }
    assert_eq!(harness.listed(call).len(), 2);
    for name in ["a", "b"] {
        let post = start_call(&mut harness, name, &json!({"region": "eu"}));
        assert_eq!(post.field("mcp-param-region"), Some("eu"), "{name}");
    }
}

/// S-XHDR-12: a call that is refused for its fields is sent again once, with a fresh schema.
#[test]
fn s_xhdr_12_call_refused_for_its_headers_is_sent_again_once_with_a_fresh_schema() {
    let mut harness = Harness::modern();
    let call = harness.call(
        "tools/call",
        json!({"name": "query", "arguments": {"region": "eu"}}),
    );
    let first = harness.next_post("tools/call");
    harness.json(first.stream, 400, &error(&first, -32_020));
    assert!(!harness.is_settled(call));
    let list = harness.next_post("tools/list");
    harness.reply_with(
        &list,
        json!({"tools": [tool("query", &marked_properties())], "ttlMs": 0, "cacheScope": "private"}),
    );
    let second = harness.next_post("tools/call");
    assert_eq!(second.field("mcp-param-region"), Some("eu"));
    assert_ne!(second.body["id"], first.body["id"]);
    harness.json(second.stream, 400, &error(&second, -32_020));
    assert_eq!(harness.reply(call), Err(-32_020));
    assert_eq!(harness.unseen_count(), 0);
}

/// The refused call did not run, whatever becomes of the list that it waits for.
#[test]
fn call_that_waits_for_its_schema_was_not_sent_when_pages_of_the_list_are_lost() {
    let mut harness = Harness::modern();
    let call = harness.call("tools/call", json!({"name": "query"}));
    let post = harness.next_post("tools/call");
    harness.json(post.stream, 400, &error(&post, -32_020));
    while !harness.is_settled(call) {
        let list = harness.next_post("tools/list");
        harness.begin_stream(list.stream);
        harness.end(list.stream);
    }
    let failure = harness.failure(call);
    assert_eq!(failure.kind, FailureKind::Cut);
    assert_eq!(failure.delivery, Delivery::NotSent);
}

/// S-XHDR-16: a request that is too large is refused, and only this call fails.
#[test]
fn s_xhdr_16_request_refused_as_too_large_fails_only_its_call() {
    for status in [413, 431] {
        let mut harness = Harness::modern();
        let call = harness.call("tools/call", json!({"name": "a".repeat(9_000)}));
        let post = harness.next_post("tools/call");
        harness.respond(
            post.stream,
            status,
            &[("content-type", "text/plain")],
            "too large",
        );
        let failure = harness.failure(call);
        assert_eq!(failure.kind, FailureKind::Status { status, said: None });
        assert_eq!(failure.delivery, Delivery::NotSent, "the call did not run");
        assert_eq!(harness.client.state(), State::Ready);
        assert_eq!(harness.unseen_count(), 0, "a resend would be as large");
    }
}

/// The next server may have other tools of the same names.
#[test]
fn param_headers_of_a_tool_are_cleared_with_the_epoch() {
    let mut harness = Harness::modern();
    list_tools(&mut harness, &[tool("query", &marked_properties())]);
    let post = start_call(&mut harness, "query", &json!({"region": "eu"}));
    assert_eq!(post.field("mcp-param-region"), Some("eu"));
    harness.fail(post.stream, FaultKind::Reset);
    harness.advance(seconds(5));
    harness.agree_modern();
    let post = start_call(&mut harness, "query", &json!({"region": "eu"}));
    assert_eq!(post.field("mcp-param-region"), None);
}

/// The first page of a new list replaces what an earlier list said.
#[test]
fn param_headers_of_a_tool_are_cleared_at_the_start_of_a_new_list() {
    let mut harness = Harness::modern();
    for (properties, field) in [(marked_properties(), Some("eu")), (json!({}), None)] {
        let list = harness.list(List::Tools);
        for (name, cursor) in [("query", Some("2")), ("other", None)] {
            let post = harness.next_post("tools/list");
            let mut page = json!({"tools": [tool(name, &properties)], "ttlMs": 0});
            page["cacheScope"] = json!("private");
            if let Some(cursor) = cursor {
                page["nextCursor"] = json!(cursor);
            }
            harness.reply_with(&post, page);
        }
        assert_eq!(harness.listed(list).len(), 2);
        for name in ["query", "other"] {
            let post = start_call(&mut harness, name, &json!({"region": "eu"}));
            assert_eq!(post.field("mcp-param-region"), field, "{name}");
        }
    }
}

/// Only pages of tools say which fields there are, and only the first page begins a new list.
#[test]
fn s_xhdr_11_other_lists_and_later_pages_keep_the_fields_of_a_tool() {
    let mut harness = Harness::modern();
    let page = |name: &str| json!({"tools": [tool(name, &marked_properties())], "ttlMs": 0, "cacheScope": "private"});
    for (name, params) in [("a", json!({})), ("b", json!({"cursor": "2"}))] {
        harness.call("tools/list", params);
        let post = harness.next_post("tools/list");
        harness.reply_with(&post, page(name));
    }
    let call = harness.list(List::Prompts);
    let post = harness.next_post("prompts/list");
    harness.reply_with(
        &post,
        json!({"prompts": [], "ttlMs": 0, "cacheScope": "private"}),
    );
    assert!(harness.listed(call).is_empty());
    for name in ["a", "b"] {
        let post = start_call(&mut harness, name, &json!({"region": "eu"}));
        assert_eq!(post.field("mcp-param-region"), Some("eu"), "{name}");
    }
}

/// The refusal shows that the cached list is out of date.
#[test]
fn s_xhdr_12_cached_tools_are_not_used_while_they_are_read_again_for_a_call() {
    let mut harness = Harness::modern();
    let page = || json!({"tools": [tool("query", &marked_properties())], "ttlMs": 600_000, "cacheScope": "private"});
    let list = harness.list(List::Tools);
    let post = harness.next_post("tools/list");
    harness.reply_with(&post, page());
    assert_eq!(harness.listed(list).len(), 1);
    let post = start_call(&mut harness, "query", &json!({}));
    harness.json(post.stream, 400, &error(&post, -32_020));
    let post = harness.next_post("tools/list");
    let list = harness.list(List::Tools);
    assert!(!harness.is_settled(list));
    harness.reply_with(&post, page());
    assert_eq!(harness.listed(list).len(), 1);
}
