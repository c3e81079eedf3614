//! Tool arguments marked with `x-mcp-header`, which the header fields of a call repeat: which marks are valid, and which
//! field values are accepted.

use crate::server_http::{Ask, Site, config, modern, payload};
use everlink::StreamId;
use serde_json::{Value, json};

const MISMATCH: (u16, i64) = (400, -32020);

/// A site with a tool `add` that has these properties.
fn with_tool(properties: &Value) -> Site {
    let mut site = Site::new(config());
    let list = list(properties);
    site.verb(|server, now| server.tools(now, &payload(&list)));
    site
}

fn list(properties: &Value) -> Value {
    json!({"tools": [{
        "name": "add", "inputSchema": {"type": "object", "properties": properties},
    }]})
}

fn call(arguments: &Value) -> Ask {
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
fn expects_nothing(properties: &Value, arguments: &Value) {
    let mut site = with_tool(properties);
    let shown = properties.to_string();
    let sent = site.send(call(arguments));
    assert!(!site.is_answered(sent), "{shown}");
    site.finish();
}

#[test]
fn s_xhdr_03_a_mark_that_is_no_name_of_a_field_counts_for_nothing() {
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
        expects_nothing(&marked, &json!({"region": "eu"}));
    }
    let twice = json!({
        "a": {"type": "string", "x-mcp-header": "Region"},
        "b": {"type": "string", "x-mcp-header": "rEGION"},
    });
    expects_nothing(&twice, &json!({"a": "1", "b": "2"}));
    // All characters that a field name may have.
    let marked = json!({"x": {"type": "string", "x-mcp-header": "!#$%&'*+-.^_`|~09aZ"}});
    let mut site = with_tool(&marked);
    assert_eq!(site.refused(call(&json!({"x": "eu"}))), MISMATCH);
    site.taken(call(&json!({"x": "eu"})).with("mcp-param-!#$%&'*+-.^_`|~09aZ", "eu"));
    site.finish();
}

#[test]
fn s_xhdr_04_a_mark_is_on_a_text_an_integer_or_a_flag() {
    for kind in [
        json!("number"),
        json!("array"),
        json!("object"),
        json!("null"),
        json!(["string", "null"]),
        json!(null),
    ] {
        let marked = json!({"x": {"type": kind, "x-mcp-header": "X"}});
        expects_nothing(&marked, &json!({"x": 1}));
    }
    for (kind, value, field) in [
        ("string", json!("eu"), "eu"),
        ("integer", json!(-3), "-3"),
        ("boolean", json!(false), "false"),
    ] {
        let mut site = with_tool(&json!({"x": {"type": kind, "x-mcp-header": "X"}}));
        let arguments = json!({"x": value});
        assert_eq!(site.refused(call(&arguments)), MISMATCH, "{kind}");
        site.taken(call(&arguments).with("mcp-param-x", field));
        site.finish();
    }
}

/// S-XHDR-04: an integer beyond 2^53 - 1 cannot be compared safely and is refused, whatever the field says.
#[test]
fn s_xhdr_04_an_integer_is_one_that_everybody_can_hold() {
    let marked = json!({"x": {"type": "integer", "x-mcp-header": "X"}});
    let mut site = with_tool(&marked);
    let most = 9_007_199_254_740_991_i64;
    for value in [most, -most] {
        let ask = call(&json!({"x": value})).with("mcp-param-x", value.to_string());
        site.taken(ask);
    }
    let ask = call(&json!({"x": most + 1})).with("mcp-param-x", (most + 2).to_string());
    assert_eq!(
        site.refused(ask),
        MISMATCH,
        "nor are two of them taken for one"
    );
    site.finish();
}

#[test]
fn s_xhdr_05_a_mark_is_where_nothing_but_properties_leads() {
    let mark = json!({"type": "string", "x-mcp-header": "X"});
    for around in [
        json!({"xs": {"type": "array", "items": mark}}),
        json!({"xs": {"anyOf": [{"type": "object", "properties": {"x": mark}}]}}),
        json!({"xs": {"if": {"properties": {"x": mark}}, "then": {"properties": {"x": mark}}}}),
        json!({"xs": {"$ref": "#/$defs/x", "$defs": {"x": mark}}}),
        json!({"xs": {"type": "object", "additionalProperties": mark}}),
    ] {
        expects_nothing(&around, &json!({"xs": {"x": "eu"}}));
    }
    let deep = json!({"at": {"type": "object", "properties": {"x": {"type": "object", "properties": {"y": mark}}}}});
    let mut site = with_tool(&deep);
    let arguments = json!({"at": {"x": {"y": "eu"}}, "y": "us"});
    assert_eq!(site.refused(call(&arguments)), MISMATCH);
    assert_eq!(
        site.refused(call(&arguments).with("mcp-param-x", "us")),
        MISMATCH
    );
    site.taken(call(&arguments).with("mcp-param-x", "eu"));
    site.finish();
}

#[test]
fn s_xhdr_13_what_is_there_is_repeated_and_what_is_not_there_is_not_expected() {
    let mut site = with_tool(&region());
    assert_eq!(site.refused(call(&json!({"region": "eu"}))), MISMATCH);
    assert_eq!(site.refused(call(&json!({"region": ""}))), MISMATCH);
    for arguments in [json!({}), json!({"region": null}), json!({"other": "eu"})] {
        site.taken(call(&arguments));
    }
    site.taken(modern(7, "tools/call", json!({"name": "add"})));
    site.taken(call(&json!({"region": ""})).with("mcp-param-region", ""));
    site.finish();
}

#[test]
fn s_xhdr_14_a_field_says_what_the_argument_says() {
    let mut site = with_tool(&region());
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
        let ask = call().with("mcp-param-region", field);
        assert_eq!(site.refused(ask), MISMATCH, "{field:?}");
    }
    let twice = call()
        .with("mcp-param-region", "eu")
        .and("Mcp-Param-Region", "eu");
    assert_eq!(site.refused(twice), MISMATCH);
    for field in ["eu", " eu ", "=?base64?ZXU=?="] {
        site.taken(call().with("MCP-PARAM-REGION", field));
    }
    // A field without a mark is ignored.
    site.taken(
        call()
            .with("mcp-param-region", "eu")
            .with("mcp-param-else", "x"),
    );
    site.finish();
}

#[test]
fn s_xhdr_15_integers_are_compared_as_numbers() {
    let mut site = with_tool(&json!({"x": {"type": "integer", "x-mcp-header": "X"}}));
    for (argument, field) in [
        ("42", "42"),
        ("42.0", "42"),
        ("42", "42.0"),
        ("4.2e1", "42"),
        ("-0", "0"),
    ] {
        let argument: Value = serde_json::from_str(argument).expect("a number");
        site.taken(call(&json!({"x": argument})).with("mcp-param-x", field));
    }
    for (argument, field) in [(42, "43"), (42, "x"), (42, ""), (42, "42.5")] {
        let ask = call(&json!({"x": argument})).with("mcp-param-x", field);
        assert_eq!(site.refused(ask), MISMATCH, "{field}");
    }
    site.finish();
}

/// S-XHDR-13: the newest list of a tool counts, whether a client asked for it or the application set it.
#[test]
fn s_xhdr_13_the_newest_list_counts() {
    let mut site = with_tool(&region());
    let plain = json!({"region": {"type": "string"}});
    let listed = |site: &mut Site, properties: &Value| -> StreamId {
        site.served(modern(1, "tools/list", json!({})), list(properties))
    };
    let call = || call(&json!({"region": "eu"}));
    assert_eq!(site.refused(call()), MISMATCH);
    listed(&mut site, &plain);
    site.taken(call());
    listed(&mut site, &region());
    assert_eq!(site.refused(call()), MISMATCH);
    // Legacy clients have no such fields.
    let session = site.session("2025-11-25");
    let arguments = json!({"name": "add", "arguments": {"region": "eu"}});
    site.taken(session.post(1, "tools/call", arguments));
    site.finish();
}
