//! Resources, templates, prompts, completion, other methods, and the capabilities that follow from them.

use everlink::protocol::{ServerFeature, Version, code};
use everlink_tools::types::{
    GetPromptResult, PromptMessage, ReadResourceResult, Resource, ResourceContents,
};
use everlink_tools::{Error, JsonSchema, Tools};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::support::{Served, call, run, serve, try_call};

#[derive(Deserialize)]
struct Page {
    book: String,
    number: u32,
}

fn library() -> Tools {
    let logo = Resource::new("lib://logo", "logo").with_mime_type("image/png");
    Tools::new("library", "1.0")
        .resource("lib://motto", "motto", async |_| Ok("Read!"))
        .resource_as(logo, async |_| Ok(vec![1, 2, 255]))
        .template(
            "lib://{book}/{number}",
            "pages",
            async |page: Page, _| match page.number {
                0 => Err(Error::resource_not_found("lib://nowhere")),
                number => Ok(format!("page {number} of {}", page.book)),
            },
        )
}

#[test]
fn text_and_bytes_of_resources_are_read_with_their_uri_and_media_type() {
    run(async {
        let link = serve(&library()).await;
        let motto = link.read_resource("lib://motto").await.expect("it exists");
        let motto: ReadResourceResult = motto.parse().expect("contents");
        assert_eq!(
            motto.contents,
            [ResourceContents::text("lib://motto", "Read!")]
        );
        let logo = link.read_resource("lib://logo").await.expect("it exists");
        let logo: ReadResourceResult = logo.parse().expect("contents");
        let expected = ResourceContents::blob("lib://logo", "AQL/").with_mime_type("image/png");
        assert_eq!(logo.contents, [expected]);
    });
}

#[test]
fn variables_of_a_template_are_typed() {
    run(async {
        let link = serve(&library()).await;
        let read =
            async |uri: &'static str| try_call(&link, "resources/read", json!({"uri": uri})).await;
        let page = read("lib://moby%20dick/7").await.expect("it exists");
        assert_eq!(page["contents"][0]["text"], "page 7 of moby dick");
        assert_eq!(page["contents"][0]["uri"], "lib://moby%20dick/7");
        let error = read("lib://moby/seven")
            .await
            .expect_err("`seven` is no number");
        assert_eq!(error.code, code::INVALID_PARAMS);
        assert!(error.text().contains("`number`"), "{}", error.text());
    });
}

#[test]
fn missing_resource_has_the_code_of_its_era_and_names_the_uri() {
    run(async {
        let served = Served::new(&library()).await;
        let versions = [
            (Version::V2025_11_25, code::RESOURCE_NOT_FOUND),
            (Version::V2026_07_28, code::INVALID_PARAMS),
        ];
        for (version, code) in versions {
            for uri in ["other://a", "lib://moby/0"] {
                let link = served.link(version);
                let error = try_call(&link, "resources/read", json!({"uri": uri})).await;
                let error = error.expect_err("there is no such resource");
                assert_eq!(error.code, code, "{version} {uri}");
                assert!(error.data.is_some(), "{version} {uri}");
            }
        }
    });
}

#[test]
#[should_panic(expected = "`{/path}` is not supported")]
fn template_with_another_expression_is_refused_at_registration() {
    let _ = Tools::new("tests", "1.0").template("lib://a{/path}", "a", async |_: Page, _| Ok(""));
}

#[test]
#[should_panic(expected = "`{?q}` must be at the end")]
fn template_with_a_query_that_is_not_at_the_end_is_refused_at_registration() {
    let _ = Tools::new("tests", "1.0").template("lib://a{?q}/b", "a", async |_: Page, _| Ok(""));
}

#[derive(Deserialize, JsonSchema)]
struct Review {
    /// The code to review
    code: String,
    lines: Option<u32>,
}

fn prompts() -> Tools {
    Tools::new("prompts", "1.0")
        .prompt("review", "Reviews code", async |args: Review, _| {
            Ok(vec![
                PromptMessage::user(args.code),
                PromptMessage::assistant(format!("{:?}", args.lines)),
            ])
        })
        .prompt("hello", "Greets", async |(): (), _| Ok("Hello!"))
        .complete_prompt("review", "code", async |typed, _| {
            Ok(typed.matching(["fn main", "fn test", "struct"]))
        })
}

#[test]
fn arguments_of_prompts_are_listed_and_parsed() {
    run(async {
        let link = serve(&prompts()).await;
        let listed = call(&link, "prompts/list", json!({})).await;
        let expected = json!([
            {"name": "code", "description": "The code to review", "required": true},
            {"name": "lines", "required": false},
        ]);
        assert_eq!(listed["prompts"][0]["arguments"], expected);
        assert_eq!(listed["prompts"][1].get("arguments"), None);
        let prompt = link
            .get_prompt("review", json!({"code": "x", "lines": "3"}))
            .await;
        let prompt: GetPromptResult = prompt.expect("it exists").parse().expect("a prompt");
        assert_eq!(prompt.messages[0].content.as_text(), Some("x"));
        assert_eq!(prompt.messages[1].content.as_text(), Some("Some(3)"));
        let hello = link
            .get_prompt("hello", json!({}))
            .await
            .expect("it exists");
        assert!(hello.as_str().contains("Hello!"));
    });
}

#[test]
fn bad_arguments_of_a_prompt_and_unknown_prompts_are_protocol_errors() {
    run(async {
        let link = serve(&prompts()).await;
        let cases = [
            (
                json!({"name": "review"}),
                "Invalid arguments for prompt review: `code` is missing",
            ),
            (
                json!({"name": "review", "arguments": {"code": "", "lines": "many"}}),
                "`lines` must be an integer that is not negative, not the text \"many\"",
            ),
            (json!({"name": "other"}), "Unknown prompt: other"),
        ];
        for (params, expected) in cases {
            let error = try_call(&link, "prompts/get", params)
                .await
                .expect_err(expected);
            assert_eq!(error.code, code::INVALID_PARAMS);
            assert!(error.text().contains(expected), "{}", error.text());
        }
    });
}

#[test]
fn arguments_are_completed_where_there_is_a_function() {
    run(async {
        let link = serve(&prompts()).await;
        let complete = async |name: &str, argument: &str| {
            let params = json!({"ref": {"type": "ref/prompt", "name": name}, "argument": {"name": argument, "value": "fn"}});
            try_call(&link, "completion/complete", params).await
        };
        let found = complete("review", "code").await.expect("it exists");
        let expected = json!({"values": ["fn main", "fn test"], "total": 2, "hasMore": false});
        assert_eq!(found["completion"], expected);
        let nothing = complete("review", "lines").await.expect("it exists");
        assert_eq!(nothing["completion"]["values"], json!([]));
        let error = complete("other", "code")
            .await
            .expect_err("there is no such prompt");
        assert_eq!(error.code, code::INVALID_PARAMS);
    });
}

#[test]
fn arguments_may_be_a_struct_without_fields() {
    #[derive(Deserialize, JsonSchema)]
    struct Unit;
    run(async {
        let tools = Tools::new("tests", "1.0")
            .prompt("unit", "", async |_: Unit, _| Ok("Hello!"))
            .template("lib://unit", "unit", async |_: Unit, _| Ok("empty"));
        let link = serve(&tools).await;
        let prompt = call(&link, "prompts/get", json!({"name": "unit"})).await;
        assert_eq!(prompt["messages"][0]["content"]["text"], "Hello!");
        let read = call(&link, "resources/read", json!({"uri": "lib://unit"})).await;
        assert_eq!(read["contents"][0]["text"], "empty");
    });
}

#[test]
fn capabilities_follow_from_what_is_registered() {
    let offers = |tools: &Tools, feature| tools.offer().capabilities.offers(feature);
    let empty = Tools::new("tests", "1.0").with_instructions("Be kind.");
    assert_eq!(empty.offer().instructions.as_deref(), Some("Be kind."));
    let features = [
        ServerFeature::Tools,
        ServerFeature::Resources,
        ServerFeature::Prompts,
        ServerFeature::Completions,
        ServerFeature::Logging,
        ServerFeature::ResourcesSubscribe,
    ];
    assert!(features.iter().all(|feature| !offers(&empty, *feature)));
    let all = prompts()
        .tool("ping", "", async |(): (), _| Ok(()))
        .resource("a:b", "c", async |_| Ok("d"))
        .with_logging()
        .with_resource_updates();
    assert!(features.iter().all(|feature| offers(&all, *feature)));
    assert!(offers(&all, ServerFeature::ToolsListChanged));
    assert!(!offers(&library(), ServerFeature::Prompts));
}

#[test]
fn lists_are_paged_and_a_wrong_cursor_is_refused() {
    run(async {
        let mut tools = Tools::new("tests", "1.0").with_page_size(2);
        for number in 0..5 {
            tools = tools.tool(format!("t{number}"), "", async |(): (), _| Ok(()));
        }
        let link = serve(&tools).await;
        let names = |page: &Value| {
            let tools = page["tools"].as_array().expect("a list").iter();
            tools
                .map(|tool| tool["name"].as_str().expect("a name").to_owned())
                .collect::<Vec<_>>()
        };
        let first = call(&link, "tools/list", json!({})).await;
        assert_eq!(names(&first), ["t0", "t1"]);
        // A change between two pages neither skips nor repeats others.
        assert!(tools.remove_tool("t1"));
        let second = call(&link, "tools/list", json!({"cursor": first["nextCursor"]})).await;
        assert_eq!(names(&second), ["t2", "t3"]);
        let last = call(&link, "tools/list", json!({"cursor": second["nextCursor"]})).await;
        assert_eq!(
            (names(&last), last.get("nextCursor")),
            (vec!["t4".to_owned()], None)
        );
        for cursor in ["x", "99", "0", ""] {
            let error = try_call(&link, "tools/list", json!({"cursor": cursor})).await;
            assert_eq!(
                error.expect_err("a wrong cursor").code,
                code::INVALID_PARAMS,
                "{cursor}"
            );
        }
    });
}

#[test]
fn other_methods_are_answered_and_unknown_ones_refused() {
    run(async {
        let tools =
            Tools::new("tests", "1.0").method("x-tests/double", async |params: Value, _| {
                let number = params["number"].as_i64().unwrap_or_default();
                Ok(json!({"double": number * 2}))
            });
        let link = serve(&tools).await;
        let result = call(&link, "x-tests/double", json!({"number": 4})).await;
        assert_eq!(result["double"], 8);
        let error = try_call(&link, "x-tests/triple", json!({})).await;
        assert_eq!(error.expect_err("unknown").code, code::METHOD_NOT_FOUND);
    });
}

#[test]
fn resources_and_templates_are_listed_until_they_are_removed() {
    run(async {
        let tools = library();
        let link = serve(&tools).await;
        let listed = async |method: &'static str, key: &str, member: &str| {
            let listed = call(&link, method, json!({})).await;
            let items = listed[key].as_array().expect("a list").iter();
            items
                .map(|item| item[member].as_str().expect("a text").to_owned())
                .collect::<Vec<_>>()
        };
        let resources = listed("resources/list", "resources", "uri").await;
        assert_eq!(resources, ["lib://motto", "lib://logo"]);
        let (method, key) = ("resources/templates/list", "resourceTemplates");
        let templates = listed(method, key, "uriTemplate").await;
        assert_eq!(templates, ["lib://{book}/{number}"]);
        for is_there in [true, false] {
            assert_eq!(tools.remove_resource("lib://logo"), is_there);
            assert_eq!(tools.remove_template("lib://{book}/{number}"), is_there);
        }
        for uri in ["lib://logo", "lib://moby/7"] {
            let error = try_call(&link, "resources/read", json!({"uri": uri})).await;
            error.expect_err("it is removed");
        }
    });
}

#[test]
fn prompt_can_be_removed_once() {
    run(async {
        let tools = prompts();
        let link = serve(&tools).await;
        assert!(tools.remove_prompt("hello"));
        assert!(!tools.remove_prompt("hello"));
        let error = try_call(&link, "prompts/get", json!({"name": "hello"})).await;
        assert_eq!(error.expect_err("removed").text(), "Unknown prompt: hello");
    });
}

#[test]
fn resources_are_offered_with_a_resource_or_a_template() {
    let is_offered = |tools: Tools| tools.offer().capabilities.offers(ServerFeature::Resources);
    let empty = || Tools::new("tests", "1.0");
    assert!(is_offered(empty().resource("a:b", "c", async |_| Ok("d"))));
    let template = empty().template("a:{book}/{number}", "c", async |_: Page, _| Ok("d"));
    assert!(is_offered(template));
    assert!(!is_offered(empty().tool("t", "", async |(): (), _| Ok(()))));
}

#[test]
fn variables_of_a_template_are_completed() {
    run(async {
        let template = "lib://{book}/{number}";
        let tools = library().complete_template(template, "book", async |typed, _| {
            Ok(typed.matching(["moby dick", "emma"]))
        });
        let link = serve(&tools).await;
        let complete = async |uri: &str| {
            let params = json!({"ref": {"type": "ref/resource", "uri": uri}, "argument": {"name": "book", "value": "mo"}});
            try_call(&link, "completion/complete", params).await
        };
        let found = complete(template).await.expect("it exists");
        assert_eq!(found["completion"]["values"], json!(["moby dick"]));
        let error = complete("lib://{other}").await.expect_err("there is none");
        assert_eq!(error.text(), "Unknown resource template: lib://{other}");
    });
}

/// The specification allows only texts.
#[test]
fn numbers_as_arguments_of_a_prompt_are_read_as_their_text_and_null_as_absent() {
    run(async {
        let link = serve(&prompts()).await;
        for (lines, expected) in [(json!(3), "Some(3)"), (json!(null), "None")] {
            let arguments = json!({"code": "x", "lines": lines});
            let params = json!({"name": "review", "arguments": arguments});
            let prompt = call(&link, "prompts/get", params).await;
            assert_eq!(prompt["messages"][1]["content"]["text"], expected);
        }
    });
}
