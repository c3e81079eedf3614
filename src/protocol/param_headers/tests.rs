//! Which marks are valid, which fields they give, and which fields agree with the arguments.

use alloc::{borrow::ToOwned, string::ToString};

use super::*;

fn raw(json: &str) -> Payload {
    json.parse().unwrap()
}

/// A tool with this schema.
fn tool(schema: &str) -> Payload {
    raw(&format!(r#"{{"name":"t","inputSchema":{schema}}}"#))
}

/// A schema with these properties.
fn of(properties: &str) -> String {
    format!(r#"{{"type":"object","properties":{{{properties}}}}}"#)
}

fn read(schema: &str) -> Result<Mirrored, Unfit> {
    Mirrored::read(tool(schema).json())
}

fn fields(mirrored: &Mirrored, arguments: &str) -> Vec<(String, String)> {
    mirrored.fields(Some(raw(arguments).json()))
}

/// The fields of a call, as text.
fn sent(mirrored: &Mirrored, arguments: &str) -> Vec<String> {
    let fields = fields(mirrored, arguments).into_iter();
    fields
        .map(|(name, value)| format!("{name}: {value}"))
        .collect()
}

/// One property of each kind, and one that is nested.
fn all_kinds() -> Mirrored {
    read(&of(r#""region":{"type":"string","x-mcp-header":"Region"},
        "count":{"x-mcp-header":"Count","type":"integer"},
        "dry":{"type":"boolean","x-mcp-header":"Dry-Run"},
        "plain":{"type":"string"},
        "where":{"type":"object","properties":{
            "deep":{"properties":{"zone":{"type":"string","x-mcp-header":"zone"}}}}}"#))
    .unwrap()
}

#[test]
fn marked_arguments_are_sent_as_header_fields() {
    // S-XHDR-02, S-XHDR-09, S-XHDR-10.
    let tool = all_kinds();
    for (arguments, expected) in [
        (
            r#"{"region":"us-west1","count":42,"dry":true,"plain":"x","where":{"deep":{"zone":"b"}}}"#,
            &[
                "Mcp-Param-Count: 42",
                "Mcp-Param-Dry-Run: true",
                "Mcp-Param-Region: us-west1",
                "Mcp-Param-zone: b",
            ][..],
        ),
        (r#"{"region":""}"#, &["Mcp-Param-Region: "]),
        (r#"{"dry":false}"#, &["Mcp-Param-Dry-Run: false"]),
        (
            r#"{"region":"\u4e16"}"#,
            &["Mcp-Param-Region: =?base64?5LiW?="],
        ),
        (r#"{"region":" a"}"#, &["Mcp-Param-Region: =?base64?IGE=?="]),
        (
            r#"{"region":"=?base64?YQ==?="}"#,
            &["Mcp-Param-Region: =?base64?PT9iYXNlNjQ/WVE9PT89?="],
        ),
        (r#"{"r\u0065gion":"a"}"#, &["Mcp-Param-Region: a"]),
        // Integers in any spelling.
        (r#"{"count":42.0}"#, &["Mcp-Param-Count: 42"]),
        (r#"{"count":4.2e1}"#, &["Mcp-Param-Count: 42"]),
        (r#"{"count":-0}"#, &["Mcp-Param-Count: 0"]),
        (
            r#"{"count":9007199254740991}"#,
            &["Mcp-Param-Count: 9007199254740991"],
        ),
        (
            r#"{"count":-9007199254740991.0}"#,
            &["Mcp-Param-Count: -9007199254740991"],
        ),
        (r#"{"count":9007199254740992}"#, &[]),
        (r#"{"count":-9007199254740992}"#, &[]),
        (r#"{"count":1.5}"#, &[]),
        (r#"{"count":1e400}"#, &[]),
        // Absent, null, or of another type.
        ("{}", &[]),
        (
            r#"{"region":null,"count":null,"dry":null,"where":null}"#,
            &[],
        ),
        (
            r#"{"region":1,"count":"1","dry":"true","where":{"deep":{"zone":true}}}"#,
            &[
                "Mcp-Param-Count: 1",
                "Mcp-Param-Dry-Run: true",
                "Mcp-Param-Region: 1",
                "Mcp-Param-zone: true",
            ],
        ),
        (
            r#"{"region":["a"],"count":[1],"dry":{"a":true},"where":[]}"#,
            &[],
        ),
        (r#"{"region":"\ud800"}"#, &[]),
        // A value at another path.
        (
            r#"{"zone":"b","deep":{"zone":"b"},"where":{"zone":"b"},"x":{"region":"a"}}"#,
            &[],
        ),
        // Readers differ on which one counts.
        (r#"{"region":"a","region":"b"}"#, &[]),
        (r#"{"where":{"deep":{"zone":"b"}},"where":{}}"#, &[]),
        ("[]", &[]),
        ("null", &[]),
    ] {
        assert_eq!(sent(&tool, arguments), expected, "{arguments}");
    }
    assert_eq!(tool.fields(None), []);
}

#[test]
fn fields_are_compared_with_the_arguments() {
    // S-XHDR-13, S-XHDR-14, S-XHDR-15.
    let tool = all_kinds();
    for (fields, arguments, flaw) in [
        (&[][..], "{}", None),
        (&[("mcp-param-region", "a")], r#"{"region":"a"}"#, None),
        (&[("MCP-PARAM-REGION", " a ")], r#"{"region":"a"}"#, None),
        (&[("Mcp-Param-Region", "")], r#"{"region":""}"#, None),
        (
            &[("Mcp-Param-Region", "=?base64?5LiW?=")],
            r#"{"region":"世"}"#,
            None,
        ),
        (
            &[("Mcp-Param-Region", "=?base64?YQ==?=")],
            r#"{"region":"a"}"#,
            None,
        ),
        (
            &[("Mcp-Param-Zone", "b")],
            r#"{"where":{"deep":{"zone":"b"}}}"#,
            None,
        ),
        (&[("Mcp-Param-Dry-Run", "false")], r#"{"dry":false}"#, None),
        (&[("Mcp-Param-Count", "42")], r#"{"count":42}"#, None),
        (&[("Mcp-Param-Count", "42.0")], r#"{"count":42}"#, None),
        (&[("Mcp-Param-Count", "42")], r#"{"count":42.0}"#, None),
        (&[("Mcp-Param-Count", "42e0")], r#"{"count":4.2e1}"#, None),
        // A field that belongs to no property is ignored.
        (&[("Mcp-Param-Other", "\u{1}")], "{}", None),
        // The tool itself checks the type.
        (&[("Mcp-Param-Region", "1")], r#"{"region":1}"#, None),
        // Null and absent are the same.
        (&[], r#"{"region":null}"#, None),
        (
            &[("Mcp-Param-Region", "a")],
            r#"{"region":null}"#,
            Some("is there and its argument is not"),
        ),
        (
            &[("Mcp-Param-Region", "null")],
            "{}",
            Some("is there and its argument is not"),
        ),
        (
            &[("Mcp-Param-Zone", "b")],
            r#"{"where":3}"#,
            Some("is there and its argument is not"),
        ),
        (&[], r#"{"region":"a"}"#, Some("is missing")),
        (&[], r#"{"region":""}"#, Some("is missing")),
        (&[], r#"{"region":{}}"#, Some("is missing")),
        (
            &[("Mcp-Param-Region", "A")],
            r#"{"region":"a"}"#,
            Some("differs from its argument"),
        ),
        (
            &[("Mcp-Param-Region", "")],
            r#"{"region":"a"}"#,
            Some("differs from its argument"),
        ),
        (
            &[("Mcp-Param-Region", "1.0")],
            r#"{"region":"1"}"#,
            Some("differs from its argument"),
        ),
        (
            &[("Mcp-Param-Region", "{}")],
            r#"{"region":{}}"#,
            Some("differs from its argument"),
        ),
        (
            &[("Mcp-Param-Region", "=?BASE64?YQ==?=")],
            r#"{"region":"a"}"#,
            Some("differs from its argument"),
        ),
        (
            &[("Mcp-Param-Dry-Run", "True")],
            r#"{"dry":true}"#,
            Some("differs from its argument"),
        ),
        (
            &[("Mcp-Param-Dry-Run", "1")],
            r#"{"dry":true}"#,
            Some("differs from its argument"),
        ),
        (
            &[("Mcp-Param-Count", "43")],
            r#"{"count":42}"#,
            Some("differs from its argument"),
        ),
        (
            &[("Mcp-Param-Count", "042")],
            r#"{"count":42}"#,
            Some("differs from its argument"),
        ),
        (
            &[("Mcp-Param-Count", "+42")],
            r#"{"count":42}"#,
            Some("differs from its argument"),
        ),
        (
            &[("Mcp-Param-Count", "\"42\"")],
            r#"{"count":42}"#,
            Some("differs from its argument"),
        ),
        (
            &[("Mcp-Param-Count", "=?base64?NDIg?=")],
            r#"{"count":42}"#,
            Some("differs from its argument"),
        ),
        (
            &[("Mcp-Param-Count", "1.5")],
            r#"{"count":1.5}"#,
            Some("differs from its argument"),
        ),
        (
            &[("Mcp-Param-Count", "x")],
            r#"{"count":1.5}"#,
            Some("differs from its argument"),
        ),
        (
            &[("Mcp-Param-Region", "=?base64?YQ=?=")],
            r#"{"region":"a"}"#,
            Some("cannot be decoded"),
        ),
        (
            &[("Mcp-Param-Region", "\u{e9}")],
            r#"{"region":"\u00e9"}"#,
            Some("cannot be decoded"),
        ),
        (
            &[("Mcp-Param-Region", "a\u{1}")],
            r#"{"region":"a\u0001"}"#,
            Some("cannot be decoded"),
        ),
        (
            &[("Mcp-Param-Region", "a"), ("mcp-param-region", "a")],
            r#"{"region":"a"}"#,
            Some("is there more than once"),
        ),
        (
            &[("Mcp-Param-Region", "a")],
            r#"{"region":"a","region":"b"}"#,
            Some("stands for an argument that is there more than once"),
        ),
        (
            &[("Mcp-Param-Region", "b")],
            r#"{"region":"a","r\u0065gion":"b"}"#,
            Some("stands for an argument that is there more than once"),
        ),
        (
            &[],
            r#"{"where":{"deep":{"zone":"b"}},"where":{}}"#,
            Some("stands for an argument that is there more than once"),
        ),
    ] {
        let fields: Fields<'_> = fields
            .iter()
            .map(|(name, value)| (*name, value.as_bytes()))
            .collect();
        let checked = tool.check(&fields, Some(raw(arguments).json()));
        let checked = checked.as_ref().map_err(|error| {
            let words = error.strip_prefix("the header Mcp-Param-").unwrap();
            words.split_once(' ').unwrap().1
        });
        assert_eq!(checked.err(), flaw, "{fields:?} {arguments}");
    }
    assert_eq!(tool.check(&Fields::new(), None), Ok(()));
    let stray = Fields::new().and("Mcp-Param-Region", "hunter2");
    let error = tool.check(&stray, None).unwrap_err();
    assert_eq!(
        &*error,
        "the header Mcp-Param-Region is there and its argument is not"
    );
}

#[test]
fn server_accepts_the_fields_that_a_client_sends() {
    let tool = all_kinds();
    for region in ["", " ", "a", "é\n\"", "=?base64??=", "\u{7f}", "世界"] {
        for count in [0, 7, -LARGEST_INTEGER, LARGEST_INTEGER] {
            let region = serde_json::to_string(region).unwrap();
            let arguments = format!(r#"{{"region":{region},"count":{count},"dry":true}}"#);
            let sent: Fields<'_> = fields(&tool, &arguments)
                .into_iter()
                .map(|(name, value)| (name, value.into_bytes()))
                .collect();
            assert_eq!(sent.iter().count(), 3);
            assert_eq!(tool.check(&sent, Some(raw(&arguments).json())), Ok(()));
        }
    }
}

#[test]
fn memory_grows_by_the_length_of_the_names() {
    let bytes = |name: &str, mark: &str| {
        let schema = format!(r#""{name}":{{"type":"string","x-mcp-header":"{mark}"}}"#);
        read(&of(&schema)).unwrap().bytes()
    };
    let short = bytes("abc", "X");
    assert_eq!(bytes("abcd", "X"), short + 1);
    assert_eq!(bytes("abc", "Xy"), short + 1);
    assert_eq!(short - size_of::<Property>(), "abcMcp-Param-X".len());
}

#[test]
fn mark_needs_a_valid_and_unique_name() {
    // S-XHDR-03.
    for name in ["Region", "a", "0", "!#$%&'*+-.^_`|~", "R\\u0065gion"] {
        let schema = of(&format!(
            r#""p":{{"type":"string","x-mcp-header":"{name}"}}"#
        ));
        assert!(!read(&schema).unwrap().is_empty(), "{name}");
    }
    for name in [
        r#""""#,
        r#"" ""#,
        r#""a b""#,
        r#""a:b""#,
        r#""a\tb""#,
        r#""a\r\nb""#,
        r#""a\u0000""#,
        r#""é""#,
        r#""(a)""#,
        r#""a,b""#,
        r#""a/b""#,
        r#""\ud800""#,
        "1",
        "true",
        "null",
        r#"["Region"]"#,
        r#"{"a":"Region"}"#,
    ] {
        let schema = of(&format!(r#""p":{{"type":"string","x-mcp-header":{name}}}"#));
        let at = "inputSchema/properties/p".into();
        assert_eq!(read(&schema), Err(Unfit::Name { at }), "{name}");
    }
    let twice = of(r#""a":{"type":"string","x-mcp-header":"Region"},
        "b":{"properties":{"c":{"type":"integer","x-mcp-header":"REGION"}}}"#);
    let name = "REGION".into();
    assert_eq!(read(&twice), Err(Unfit::Duplicate { name }));
}

#[test]
fn only_booleans_integers_and_strings_can_be_marked() {
    // S-XHDR-04.
    for kind in ["boolean", "integer", "string"] {
        // The name of a type under another keyword does not change the type.
        for members in [
            format!(r#""x-mcp-header":"P","type":"{kind}""#),
            format!(r#""x-mcp-header":"P","type":"{kind}","title":"number""#),
        ] {
            let schema = of(&format!(r#""p":{{{members}}}"#));
            assert!(!read(&schema).unwrap().is_empty(), "{members}");
        }
    }
    for kind in [
        r#""type":"number","#,
        r#""type":"array","#,
        r#""type":"object","#,
        r#""type":"null","#,
        r#""type":"String","#,
        r#""type":["string"],"#,
        r#""type":["string","null"],"#,
        r#""type":{"type":"string"},"#,
        r#""type":true,"#,
        r#""title":"string","#,
        "",
    ] {
        let schema = of(&format!(r#""p":{{{kind}"x-mcp-header":"P"}}"#));
        let at = "inputSchema/properties/p".into();
        assert_eq!(read(&schema), Err(Unfit::Type { at }), "{kind}");
    }
}

#[test]
fn mark_must_be_reached_through_properties_only() {
    // S-XHDR-05.
    let marked = r#"{"type":"string","x-mcp-header":"P"}"#;
    for (schema, at) in [
        (marked.to_owned(), ""),
        (format!(r#"{{"items":{marked}}}"#), "/items"),
        (format!(r#"{{"prefixItems":[{marked}]}}"#), "/prefixItems"),
        (format!(r#"{{"anyOf":[{{}},{marked}]}}"#), "/anyOf"),
        (
            format!(r#"{{"oneOf":[{{"properties":{{"p":{marked}}}}}]}}"#),
            "/oneOf/properties/p",
        ),
        (
            format!(r#"{{"allOf":[{{"properties":{{"p":{marked}}}}}]}}"#),
            "/allOf/properties/p",
        ),
        (
            format!(r#"{{"not":{{"properties":{{"p":{marked}}}}}}}"#),
            "/not/properties/p",
        ),
        (
            format!(r#"{{"if":{{"properties":{{"p":{marked}}}}}}}"#),
            "/if/properties/p",
        ),
        (
            format!(r#"{{"then":{{"properties":{{"p":{marked}}}}}}}"#),
            "/then/properties/p",
        ),
        (
            format!(r#"{{"else":{{"properties":{{"p":{marked}}}}}}}"#),
            "/else/properties/p",
        ),
        (format!(r#"{{"$defs":{{"d":{marked}}}}}"#), "/$defs/d"),
        (
            format!(r#"{{"definitions":{{"default":{marked}}}}}"#),
            "/definitions/default",
        ),
        (
            format!(r#"{{"additionalProperties":{marked}}}"#),
            "/additionalProperties",
        ),
        (
            format!(r#"{{"patternProperties":{{"^a":{marked}}}}}"#),
            "/patternProperties/^a",
        ),
        (
            format!(r#"{{"dependentSchemas":{{"a":{marked}}}}}"#),
            "/dependentSchemas/a",
        ),
        (format!(r#"{{"properties":[{marked}]}}"#), "/properties"),
        (
            format!(r#"{{"properties":{{"p":[{marked}]}}}}"#),
            "/properties/p",
        ),
        (
            format!(r#"{{"x-unheard-of":{{"a":[[{marked}]]}}}}"#),
            "/x-unheard-of/a",
        ),
        (
            of(&format!(r#""p":{{"items":{marked}}}"#)),
            "/properties/p/items",
        ),
        (
            of(&format!(
                r#""p":{{"items":{}}}"#,
                of(&format!(r#""q":{marked}"#))
            )),
            "/properties/p/items/properties/q",
        ),
        (
            of(r##""p":{"type":"string","x-mcp-header":"P","$ref":"#/$defs/d"}"##),
            "/properties/p",
        ),
        (
            of(r##""p":{"$ref":"#/$defs/d","type":"string","x-mcp-header":"P"}"##),
            "/properties/p",
        ),
        // Escapes do not hide a mark.
        (
            r#"{"items":{"type":"string","x-mcp-he\u0061der":"P"}}"#.to_owned(),
            "/items",
        ),
    ] {
        let at = format!("inputSchema{at}").into();
        assert_eq!(read(&schema), Err(Unfit::Place { at }), "{schema}");
    }
}

#[test]
fn a_property_may_have_any_name() {
    let plain = of(r#""x-mcp-header":{"type":"string"},"items":{"type":"string"}"#);
    assert!(read(&plain).unwrap().is_empty());
    for name in [
        "x-mcp-header",
        "items",
        "$ref",
        "type",
        "properties",
        "anyOf",
        "default",
    ] {
        let nested = of(&format!(
            r#""{name}":{}"#,
            of(&format!(
                r#""{name}":{{"type":"integer","x-mcp-header":"P"}}"#
            ))
        ));
        let mirrored = read(&nested).unwrap();
        let arguments = format!(r#"{{"{name}":{{"{name}":3}}}}"#);
        assert_eq!(sent(&mirrored, &arguments), ["Mcp-Param-P: 3"]);
    }
    // Data and names are not marks.
    for schema in [
        r#"{"default":{"x-mcp-header":1}}"#,
        r#"{"const":{"x-mcp-header":1},"enum":[{"x-mcp-header":1}],"examples":[[{"x-mcp-header":1}]]}"#,
        r#"{"required":["x-mcp-header"],"description":"x-mcp-header: \"a\"","title":"x-mcp-header"}"#,
        r#"{"items":{"properties":{"x-mcp-header":{}}},"$defs":{"x-mcp-header":{}}}"#,
        r#"{"dependentRequired":{"x-mcp-header":["a"]}}"#,
        r#"{"properties":{"a":true,"b":{"x-mcp-headers":"P","X-MCP-Header":"P"}}}"#,
        r#"[]"#,
        r#""x-mcp-header""#,
    ] {
        assert_eq!(read(schema), Ok(Mirrored::default()), "{schema}");
    }
    for odd in [
        r#"{"x-mcp-header":1}"#,
        "[\"x-mcp-header\"]",
        r#""x-mcp-header""#,
    ] {
        assert_eq!(Mirrored::read(raw(odd).json()), Ok(Mirrored::default()));
    }
}

#[test]
fn marked_property_may_contain_marked_properties() {
    let tool = read(&of(
        r#""a":{"type":"string","x-mcp-header":"A","properties":{
        "b":{"type":"string","x-mcp-header":"B"}}}"#,
    ))
    .unwrap();
    assert_eq!(sent(&tool, r#"{"a":"x"}"#), ["Mcp-Param-A: x"]);
    assert_eq!(sent(&tool, r#"{"a":{"b":"y"}}"#), ["Mcp-Param-B: y"]);
}

#[test]
fn duplicate_members_make_the_marks_ambiguous() {
    let (a, b) = (
        r#"{"type":"string","x-mcp-header":"A"}"#,
        r#"{"type":"string"}"#,
    );
    for schema in [
        of(&format!(r#""p":{a},"p":{b}"#)),
        of(&format!(r#""p":{b},"\u0070":{a}"#)),
        format!(r#"{{"properties":{{"p":{a}}},"properties":{{"p":{b}}}}}"#),
        of(r#""p":{"type":"string","x-mcp-header":"A","x-mcp-header":"B"}"#),
        of(r#""p":{"type":"string","x-mcp-header":"A","type":"integer"}"#),
        of(r#""p":{"type":"string","x-mcp-header":"A","type":"string","type":"integer"}"#),
    ] {
        assert_eq!(read(&schema), Err(Unfit::Ambiguous), "{schema}");
    }
    let marked = of(&format!(r#""p":{a}"#));
    let two = raw(&format!(r#"{{"inputSchema":{marked},"inputSchema":{{}}}}"#));
    assert_eq!(Mirrored::read(two.json()), Err(Unfit::Ambiguous));
    // Without a mark, the ambiguity does not matter.
    let plain =
        raw(r#"{"title":"\u0061","inputSchema":{"properties":{"p":{},"p":{}}},"inputSchema":{}}"#);
    assert_eq!(Mirrored::read(plain.json()), Ok(Mirrored::default()));
}

#[test]
fn schema_depth_is_limited() {
    let nested = |depth: usize| {
        let marked = r#"{"type":"string","x-mcp-header":"P"}"#.to_owned();
        (0..depth).fold(marked, |inner, _| of(&format!(r#""p":{inner}"#)))
    };
    let deepest = read(&nested(63)).unwrap();
    let arguments = (0..63).fold("\"x\"".to_owned(), |inner, _| format!(r#"{{"p":{inner}}}"#));
    assert_eq!(sent(&deepest, &arguments), ["Mcp-Param-P: x"]);
    assert_eq!(deepest.clone(), deepest);
    assert_eq!(read(&nested(64)), Err(Unfit::Deep));
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(
        read(&of(&format!(r#""x-mcp-header":{{"default":{deep}}}"#))),
        Err(Unfit::Deep)
    );
    // A text that cannot contain a mark is not searched.
    assert_eq!(
        read(&of(&format!(r#""p":{{"default":{deep}}}"#))),
        Ok(Mirrored::default())
    );
    assert_eq!(sent(&deepest, &deep), [""; 0]);
}

#[test]
fn memory_is_bounded_by_the_size_of_the_schema() {
    let name = "n".repeat(10_000);
    let marks: Vec<String> = (0..1000)
        .map(|mark| format!(r#""{mark}":{{"type":"string","x-mcp-header":"{mark}"}}"#))
        .collect();
    let schema = of(&format!(r#""{name}":{}"#, of(&marks.join(","))));
    let bytes = read(&schema).unwrap().bytes();
    assert!(bytes > name.len() + 1000 * size_of::<Property>(), "{bytes}");
    assert!(bytes < 3 * schema.len(), "{bytes}");
    assert_eq!(Mirrored::default().bytes(), 0);
}

#[test]
fn errors_are_short_and_show_no_values() {
    let long = "n".repeat(10_000);
    let schema = of(&format!(r#""{long}":{{"x-mcp-header":"hunter2 "}}"#));
    let error = read(&schema).unwrap_err().to_string();
    assert!(error.len() < 150, "{error}");
    assert!(!error.contains("hunter2"), "{error}");
    let odd = of(r#""a\u001b\n":{"x-mcp-header":"A"}"#);
    assert_eq!(
        read(&odd).unwrap_err().to_string(),
        r#"the x-mcp-header at "inputSchema/properties/a\u{1b}\n" is not on a boolean, an integer or a string"#
    );
}

#[test]
fn truncated_schema_does_not_panic() {
    let schema =
        of(r#""é\"\\":{"type":"string","x-mcp-header":"P","a":[1,{"b":null}]},"c":{"items":[]}"#);
    for (start, _) in schema.char_indices() {
        for (end, _) in schema.char_indices().filter(|(end, _)| *end >= start) {
            let _ = Search::default().over(&schema[start..end]);
        }
    }
}

#[test]
fn tool_list_reports_marked_and_unfit_tools() {
    // S-XHDR-06, S-XHDR-07.
    let fit =
        r#"{"name":"fit","inputSchema":{"properties":{"p":{"type":"string","x-mcp-header":"P"}}}}"#;
    let plain = r#"{ "name" : "plain", "inputSchema":{"type":"object"}}"#;
    let unfit = r#"{"inputSchema":{"items":{"x-mcp-header":"P"}},"name":"un\u0066it"}"#;
    let nameless = r#"{"inputSchema":{"x-mcp-header":"P"}}"#;
    let result = raw(&format!(
        r#"{{"_meta":{{"a":1.50}},"tools":[{fit},{unfit},{plain},{nameless},7],"nextCursor":"c"}}"#
    ));
    let survey = survey(result.json());
    let names: Vec<&str> = survey.tools.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["fit"]);
    assert_eq!(sent(&survey.tools[0].1, r#"{"p":"x"}"#), ["Mcp-Param-P: x"]);
    let place = |at: &str| Unfit::Place { at: at.into() };
    assert_eq!(
        survey.dropped,
        [
            ("unfit".into(), place("inputSchema/items")),
            ("".into(), place("inputSchema")),
        ]
    );
    let rest = format!(r#"{{"_meta":{{"a":1.50}},"tools":[{fit},{plain},7],"nextCursor":"c"}}"#);
    assert_eq!(survey.rest.unwrap().as_str(), rest);
}

#[test]
fn tool_list_without_unfit_tools_is_unchanged() {
    for (result, tools) in [
        (
            r#"{"tools":[{"name":"a","inputSchema":{"type":"object"}}]}"#,
            0,
        ),
        (
            r#"{"tools":[{"name":"a","description":"x-mcp-header"}]}"#,
            0,
        ),
        (r#"{"tools":[{"name":"\u0061","inputSchema":{}}]}"#, 0),
        (r#"{"tools":{"x-mcp-header":"P"},"x-mcp-header":"P"}"#, 0),
        (r#"["x-mcp-header"]"#, 0),
        (
            r#"{"t\u006fols":[{"name":"\u0061","inputSchema":{"properties":{"p":{"type":"string","x-mcp-he\u0061der":"P"}}}}]}"#,
            1,
        ),
        // A tool without a name cannot be called.
        (
            r#"{"tools":[{"name":1,"inputSchema":{"properties":{"p":{"type":"string","x-mcp-header":"P"}}}}]}"#,
            0,
        ),
    ] {
        let survey = survey(raw(result).json());
        assert_eq!(survey.tools.len(), tools, "{result}");
        assert!(survey.dropped.is_empty(), "{result}");
        assert!(survey.rest.is_none(), "{result}");
    }
}

#[test]
fn unfit_tool_is_dropped_despite_escapes_or_duplicates() {
    let unfit = r#"{"name":"u","inputSchema":{"it\u0065ms":{"\u0078-mcp-header":"P"}}}"#;
    let fit = r#"{"name":"f","inputSchema":{}}"#;
    let two_names = r#"{"name":"a","name":"b","inputSchema":{"properties":{"p":{"type":"string","x-mcp-header":"P"}}}}"#;
    for (result, rest) in [
        (
            format!(r#"{{"tools":[{unfit}]}}"#),
            r#"{"tools":[]}"#.to_owned(),
        ),
        (
            format!(r#"{{"tools":[{fit}],"\u0074ools":[{unfit},{fit}]}}"#),
            format!(r#"{{"tools":[{fit}],"\u0074ools":[{fit}]}}"#),
        ),
        (
            format!(r#"{{"tools":[{two_names},{fit}]}}"#),
            format!(r#"{{"tools":[{fit}]}}"#),
        ),
    ] {
        let survey = survey(raw(&result).json());
        assert_eq!(survey.dropped.len(), 1, "{result}");
        assert_eq!(survey.rest.unwrap().as_str(), rest);
    }
}
