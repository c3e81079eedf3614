//! Tool arguments marked with `x-mcp-header`, which the header fields of a call repeat: which marks are valid, and which
//! field values are accepted.

use crate::server_http::{Harness, HttpRequest, config, modern, payload};
use everlink::StreamId;
use serde_json::{Value, json};

const MISMATCH: (u16, i64) = (400, -32020);

/// A harness with a tool `add` that has these properties.
fn with_tool(properties: &Value) -> Harness {
    let mut harness = Harness::new(config());
    let list = list(properties);
    harness.with_server(|server, now| server.tools(now, &payload(&list)));
    harness
}

fn list(properties: &Value) -> Value {
    json!({"tools": [{
        "name": "add", "inputSchema": {"type": "object", "properties": properties},
    }]})
}

fn call(arguments: &Value) -> HttpRequest {
    modern(
        7,
        "tools/call",
        json!({"name": "add", "arguments": arguments}),
    )
}

fn region() -> Value {
    json!({"region": {"type": "string", "x-mcp-header": "Region"}})
}

/// Checks that a call of this tool is served without any extra field.
fn assert_no_field_required(properties: &Value, arguments: &Value) {
    let mut harness = with_tool(properties);
    let shown = properties.to_string();
    let sent = harness.send(call(arguments));
    assert!(!harness.is_answered(sent), "{shown}");
    harness.finish();
}

#[test]
fn s_xhdr_03_mark_that_is_no_unique_valid_field_name_is_ignored() {
    for mark in [
        json!(""),
        json!("a b"),
        json!("a:b"),
        json!("é"),
        json!("a\r\nb"),
        json!("a\u{0}"),
        json!(7),
        json!(null),
    ] {
        let marked = json!({"region": {"type": "string", "x-mcp-header": mark}});
        assert_no_field_required(&marked, &json!({"region": "eu"}));
    }
    let twice = json!({
        "a": {"type": "string", "x-mcp-header": "Region"},
        "b": {"type": "string", "x-mcp-header": "rEGION"},
    });
    assert_no_field_required(&twice, &json!({"a": "1", "b": "2"}));
    // All characters that a field name may have.
    let marked = json!({"x": {"type": "string", "x-mcp-header": "!#$%&'*+-.^_`|~09aZ"}});
    let mut harness = with_tool(&marked);
    assert_eq!(harness.send_refused(call(&json!({"x": "eu"}))), MISMATCH);
    harness.send_accepted(call(&json!({"x": "eu"})).with("mcp-param-!#$%&'*+-.^_`|~09aZ", "eu"));
    harness.finish();
}

#[test]
fn s_xhdr_04_mark_counts_only_on_string_integer_or_boolean() {
    for value_type in [
        json!("number"),
        json!("array"),
        json!("object"),
        json!("null"),
        json!(["string", "null"]),
        json!(null),
    ] {
        let marked = json!({"x": {"type": value_type, "x-mcp-header": "X"}});
        assert_no_field_required(&marked, &json!({"x": 1}));
    }
    for (value_type, value, field) in [
        ("string", json!("eu"), "eu"),
        ("integer", json!(-3), "-3"),
        ("boolean", json!(false), "false"),
    ] {
        let mut harness = with_tool(&json!({"x": {"type": value_type, "x-mcp-header": "X"}}));
        let arguments = json!({"x": value});
        assert_eq!(
            harness.send_refused(call(&arguments)),
            MISMATCH,
            "{value_type}"
        );
        harness.send_accepted(call(&arguments).with("mcp-param-x", field));
        harness.finish();
    }
}

/// S-XHDR-04: an integer beyond 2^53 - 1 cannot be compared safely and is refused, whatever the field says.
#[test]
fn s_xhdr_04_integer_that_a_double_cannot_hold_exactly_is_refused() {
    let marked = json!({"x": {"type": "integer", "x-mcp-header": "X"}});
    let mut harness = with_tool(&marked);
    let max = 9_007_199_254_740_991_i64;
    for value in [max, -max] {
        let http_request = call(&json!({"x": value})).with("mcp-param-x", value.to_string());
        harness.send_accepted(http_request);
    }
    let http_request = call(&json!({"x": max + 1})).with("mcp-param-x", (max + 2).to_string());
    assert_eq!(
        harness.send_refused(http_request),
        MISMATCH,
        "two large integers are not taken for equal"
    );
    harness.finish();
}

#[test]
fn s_xhdr_05_mark_counts_only_under_nested_properties() {
    let mark = json!({"type": "string", "x-mcp-header": "X"});
    for properties in [
        json!({"xs": {"type": "array", "items": mark}}),
        json!({"xs": {"anyOf": [{"type": "object", "properties": {"x": mark}}]}}),
        json!({"xs": {"if": {"properties": {"x": mark}}, "then": {"properties": {"x": mark}}}}),
        json!({"xs": {"$ref": "#/$defs/x", "$defs": {"x": mark}}}),
        json!({"xs": {"type": "object", "additionalProperties": mark}}),
    ] {
        assert_no_field_required(&properties, &json!({"xs": {"x": "eu"}}));
    }
    let deep = json!({"at": {"type": "object", "properties": {"x": {"type": "object", "properties": {"y": mark}}}}});
    let mut harness = with_tool(&deep);
    let arguments = json!({"at": {"x": {"y": "eu"}}, "y": "us"});
    assert_eq!(harness.send_refused(call(&arguments)), MISMATCH);
    assert_eq!(
        harness.send_refused(call(&arguments).with("mcp-param-x", "us")),
        MISMATCH
    );
    harness.send_accepted(call(&arguments).with("mcp-param-x", "eu"));
    harness.finish();
}

#[test]
fn s_xhdr_13_present_marked_arguments_need_a_field_and_absent_ones_do_not() {
    let mut harness = with_tool(&region());
    assert_eq!(
        harness.send_refused(call(&json!({"region": "eu"}))),
        MISMATCH
    );
    assert_eq!(harness.send_refused(call(&json!({"region": ""}))), MISMATCH);
    for arguments in [json!({}), json!({"region": null}), json!({"other": "eu"})] {
        harness.send_accepted(call(&arguments));
    }
    harness.send_accepted(modern(7, "tools/call", json!({"name": "add"})));
    harness.send_accepted(call(&json!({"region": ""})).with("mcp-param-region", ""));
    harness.finish();
}

#[test]
fn s_xhdr_14_field_value_must_match_the_argument() {
    let mut harness = with_tool(&region());
    let call = || call(&json!({"region": "eu"}));
    for field in [
        &b"us"[..],
        b"EU",
        b"",
        b"eu\xff",
        b"e\x01u",
        b"=?base64?!?=",
        b"=?base64?dXM=?=",
    ] {
        let http_request = call().with("mcp-param-region", field);
        assert_eq!(harness.send_refused(http_request), MISMATCH, "{field:?}");
    }
    let twice = call()
        .with("mcp-param-region", "eu")
        .append("Mcp-Param-Region", "eu");
    assert_eq!(harness.send_refused(twice), MISMATCH);
    for field in ["eu", " eu ", "=?base64?ZXU=?="] {
        harness.send_accepted(call().with("MCP-PARAM-REGION", field));
    }
    // A field without a mark is ignored.
    harness.send_accepted(
        call()
            .with("mcp-param-region", "eu")
            .with("mcp-param-else", "x"),
    );
    harness.finish();
}

#[test]
fn s_xhdr_15_integers_are_compared_as_numbers() {
    let mut harness = with_tool(&json!({"x": {"type": "integer", "x-mcp-header": "X"}}));
    for (argument, field) in [
        ("42", "42"),
        ("42.0", "42"),
        ("42", "42.0"),
        ("4.2e1", "42"),
        ("-0", "0"),
    ] {
        let argument: Value = serde_json::from_str(argument).expect("a number");
        harness.send_accepted(call(&json!({"x": argument})).with("mcp-param-x", field));
    }
    for (argument, field) in [(42, "43"), (42, "x"), (42, ""), (42, "42.5")] {
        let http_request = call(&json!({"x": argument})).with("mcp-param-x", field);
        assert_eq!(harness.send_refused(http_request), MISMATCH, "{field}");
    }
    harness.finish();
}

/// S-XHDR-13: the newest list of a tool counts, whether a client asked for it or the application set it.
#[test]
fn s_xhdr_13_newest_tool_list_defines_the_required_fields() {
    let mut harness = with_tool(&region());
    let plain = json!({"region": {"type": "string"}});
    let listed = |harness: &mut Harness, properties: &Value| -> StreamId {
        harness.send_and_respond(modern(1, "tools/list", json!({})), list(properties))
    };
    let call = || call(&json!({"region": "eu"}));
    assert_eq!(harness.send_refused(call()), MISMATCH);
    listed(&mut harness, &plain);
    harness.send_accepted(call());
    listed(&mut harness, &region());
    assert_eq!(harness.send_refused(call()), MISMATCH);
    // Legacy clients have no such fields.
    let session = harness.open_session("2025-11-25");
    let arguments = json!({"name": "add", "arguments": {"region": "eu"}});
    harness.send_accepted(session.post(1, "tools/call", arguments));
    harness.finish();
}

/// No client has seen the list.
#[test]
fn list_of_tools_that_is_too_large_teaches_the_server_nothing() {
    let mut config = config();
    config.limits.message_bytes = 2_000;
    let mut harness = Harness::new(config);
    let (_, request) = harness.send_accepted(modern(1, "tools/list", json!({})));
    let mut long = list(&region());
    long["tools"][0]["description"] = "x".repeat(2_000).into();
    let refused = harness.with_server(|server, now| server.respond(now, request, payload(&long)));
    assert!(refused.is_err(), "it is too large");
    harness.respond(request, json!({"tools": []}));
    harness.send_accepted(call(&json!({"region": "eu"})));
    harness.finish();
}
