//! What the models accept, refuse and keep.

use everlink_types::{
    CallToolResult, Completion, Content, CreateMessageParams, CreateMessageResult, ElicitParams,
    ElicitResult, Id, InputRequest, ListRootsResult, ListToolsResult, Members, ProgressParams,
    PromptMessage, ResourceContents, Root, SamplingMessage, Tool, ToolAnnotations,
};
use serde_json::{Value, from_value, json, to_value};

#[test]
fn content_of_an_unknown_type_is_kept() {
    let block = json!({"type": "hologram", "depth": 7});
    let content: Content = from_value(block.clone()).expect("unknown types are allowed");
    assert!(matches!(content, Content::Other(_)));
    assert_eq!(to_value(&content).expect("it serializes"), block);
}

#[test]
fn content_of_a_known_type_with_a_wrong_member_is_refused_with_the_type_and_the_member() {
    let error = from_value::<Content>(json!({"type": "image", "data": "AA=="}));
    let text = error.expect_err("the media type is missing").to_string();
    assert!(
        text.contains("`image`") && text.contains("mimeType"),
        "{text}"
    );
}

#[test]
fn content_without_a_type_is_refused() {
    for block in [json!({"text": "a"}), json!({"type": 7}), json!("a")] {
        assert!(from_value::<Content>(block.clone()).is_err(), "{block}");
    }
}

#[test]
fn tool_of_2025_11_25_keeps_its_execution() {
    let tool = json!({"name": "a", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}});
    let read: Tool = from_value(tool.clone()).expect("it is a tool");
    assert!(
        read.execution
            .as_ref()
            .is_some_and(|it| it.task_support.is_some())
    );
    assert_eq!(to_value(read).expect("it serializes"), tool);
}

#[test]
fn built_tool_has_only_the_members_that_were_set() {
    let tool = Tool::new("add")
        .with_description("Adds")
        .with_annotations(ToolAnnotations::read_only());
    let expected = json!({
        "name": "add",
        "description": "Adds",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": true, "openWorldHint": false},
    });
    assert_eq!(to_value(tool).expect("it serializes"), expected);
}

#[test]
fn structured_content_is_read_as_a_type_and_its_absence_is_an_error() {
    let result = CallToolResult::default().with_structured_content(json!({"sum": 3}));
    let sum: Value = result.structured().expect("it is there");
    assert_eq!(sum, json!({"sum": 3}));
    let error = CallToolResult::default().structured::<Value>();
    let text = error.expect_err("there is none").to_string();
    assert!(text.contains("structuredContent"), "{text}");
}

#[test]
fn structured_content_that_is_null_is_kept() {
    let result = json!({"content": [], "structuredContent": null});
    let read: CallToolResult = from_value(result.clone()).expect("null is a value");
    assert_eq!(read.structured_content, Some(Value::Null));
    assert_eq!(read.structured::<Option<u8>>().expect("a value"), None);
    assert_eq!(to_value(read).expect("it serializes"), result);
    let absent: CallToolResult = from_value(json!({"content": []})).expect("a result");
    assert_eq!(absent.structured_content, None);

    let block =
        json!({"type": "tool_result", "toolUseId": "a", "content": [], "structuredContent": null});
    let read: Content = from_value(block.clone()).expect("null is a value");
    assert_eq!(to_value(read).expect("it serializes"), block);
}

#[test]
fn result_without_content_reads_as_empty() {
    let result: CallToolResult =
        from_value(json!({"structuredContent": 1})).expect("some servers do this");
    assert!(result.content.is_empty() && !result.is_error());
    assert!(CallToolResult::error("no").is_error());
}

#[test]
fn text_of_a_result_joins_the_blocks_of_text() {
    let link = Content::link("file:///a", "a");
    let result = CallToolResult::new(vec!["one".into(), link, "two".into()]);
    assert_eq!(result.text(), "one\ntwo");
}

#[test]
fn whole_numbers_are_written_without_a_fraction() {
    let progress = json!({"progressToken": 7, "progress": 50, "total": 62.5});
    let read: ProgressParams = from_value(progress.clone()).expect("it is a report");
    assert_eq!(read.progress_token, Id::from(7));
    assert_eq!(to_value(read).expect("it serializes"), progress);
    let huge: ProgressParams =
        from_value(json!({"progressToken": "a", "progress": 1e300})).expect("it is a number");
    assert_eq!(
        to_value(huge).expect("it serializes")["progress"],
        json!(1e300)
    );
}

#[test]
fn integers_may_have_a_fraction_that_is_zero() {
    let list = |ttl: Value| from_value::<ListToolsResult>(json!({"tools": [], "ttlMs": ttl}));
    for (ttl, read) in [
        (json!(5000.0), Some(5_000)),
        (json!(5), Some(5)),
        (json!(u64::MAX), Some(u64::MAX)),
        (json!(null), None),
    ] {
        assert_eq!(list(ttl.clone()).expect("an integer").ttl_ms, read, "{ttl}");
    }
    for ttl in [json!(5.5), json!(-5), json!(-5.0), json!(1e300), json!("5")] {
        assert!(list(ttl.clone()).is_err(), "{ttl}");
    }
    let params: CreateMessageParams =
        from_value(json!({"messages": [], "maxTokens": 100.0})).expect("an integer");
    assert_eq!(params.max_tokens, 100);
    let written = to_value(params).expect("it serializes");
    assert_eq!(written, json!({"messages": [], "maxTokens": 100}));
}

#[test]
fn elicitation_with_a_url_is_no_form() {
    let url = json!({"mode": "url", "message": "a", "url": "https://example.com"});
    assert!(matches!(from_value(url), Ok(ElicitParams::Url(_))));
    let form = json!({"message": "a", "requestedSchema": {"type": "object", "properties": {}}});
    assert!(matches!(from_value(form), Ok(ElicitParams::Form(_))));
}

#[test]
fn roots_can_be_asked_for_without_parameters() {
    let absent = json!({"method": "roots/list"});
    for request in [
        absent.clone(),
        json!({"method": "roots/list", "params": null}),
    ] {
        let read: InputRequest = from_value(request).expect("parameters are optional");
        let (params, other) = (None, Members::new());
        assert_eq!(read, InputRequest::ListRoots { params, other });
        assert_eq!(to_value(read).expect("it serializes"), absent);
    }
}

#[test]
fn unknown_members_of_a_question_are_kept() {
    let form = json!({"type": "object", "properties": {}});
    let requests = [
        json!({"method": "roots/list", "x": 1}),
        json!({"method": "roots/list", "params": {"_meta": {"a": 1}}, "x": 1}),
        json!({"method": "elicitation/create", "params": {"message": "a", "requestedSchema": form}, "x": 1}),
        json!({"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1, "temperature": 0.5}, "x": null}),
    ];
    for request in requests {
        let read: InputRequest = from_value(request.clone()).expect("it is a question");
        assert_eq!(to_value(read).expect("it serializes"), request);
    }
    let error = from_value::<InputRequest>(json!({"method": "elicitation/create"}));
    let text = error.expect_err("the question is missing").to_string();
    assert!(text.contains("params"), "{text}");
}

#[test]
fn completion_is_cut_to_100_values_and_says_so() {
    let completion = Completion::new((0..101).map(|number| number.to_string()).collect());
    assert_eq!(completion.values.len(), 100);
    assert_eq!(
        (completion.total, completion.has_more),
        (Some(101), Some(true))
    );
    let all = Completion::new(vec!["a".to_owned()]);
    assert_eq!((all.total, all.has_more), (Some(1), Some(false)));
}

#[test]
fn messages_are_built_from_texts() {
    let params = CreateMessageParams::new(vec![SamplingMessage::user("Hello")], 100);
    let expected = json!({"messages": [{"role": "user", "content": {"type": "text", "text": "Hello"}}], "maxTokens": 100});
    assert_eq!(to_value(params).expect("it serializes"), expected);
    let message = PromptMessage::assistant(Content::resource(ResourceContents::text("a:b", "c")));
    let expected = json!({"role": "assistant", "content": {"type": "resource", "resource": {"uri": "a:b", "text": "c"}}});
    assert_eq!(to_value(message).expect("it serializes"), expected);
}

#[test]
fn answers_of_a_client_can_be_made() {
    let roots = ListRootsResult::new(vec![Root::new("file:///srv")]);
    let written = to_value(&roots).expect("JSON");
    assert_eq!(written, json!({"roots": [{"uri": "file:///srv"}]}));

    let message = CreateMessageResult::new("none", "So be it.");
    let written = to_value(&message).expect("JSON");
    let content = json!({"type": "text", "text": "So be it."});
    assert_eq!(
        written,
        json!({"role": "assistant", "content": content, "model": "none"})
    );

    let accepted = ElicitResult::accepted(&json!({"sure": true})).expect("an object");
    let written = to_value(&accepted).expect("JSON");
    assert_eq!(
        written,
        json!({"action": "accept", "content": {"sure": true}})
    );
    assert!(ElicitResult::accepted(&7).is_err());
}
