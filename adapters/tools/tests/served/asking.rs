//! Questions of functions to the client: forms, samples, roots, and input that is required first.

use everlink::Payload;
use everlink::protocol::{ClientCapabilities, Version, code};
use everlink::server::InputRequired;
use everlink_tools::types::{CreateMessageParams, ElicitResult, ElicitUrlParams, SamplingMessage};
use everlink_tools::{Elicited, JsonSchema, Reply, Tools, form};
use serde::Deserialize;
use serde_json::json;

use crate::support::{Served, answer_with, call_tool, run, serve, text, try_call};

const ERAS: [Version; 2] = [Version::V2025_11_25, Version::V2026_07_28];

#[derive(Debug, Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its `Debug` is used")]
struct Person {
    /// The full name
    name: String,
    age: Option<u8>,
    colour: Colour,
    pets: Vec<Pet>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Colour {
    Green,
    Red,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Pet {
    /// A cat
    Cat,
    /// A dog
    Dog,
}

fn registry() -> Tools {
    Tools::new("tests", "1.0").tool("register", "", async |(): (), context| {
        Ok(match context.elicit::<Person>("Who are you?").await? {
            Elicited::Accepted(person) => format!("{person:?}"),
            other => format!("{other:?}"),
        })
    })
}

#[test]
fn form_has_the_fields_of_the_type_and_its_answer_is_read_as_the_type() {
    run(async {
        let served = Served::new(&registry()).await;
        for version in ERAS {
            let link = served.link(version);
            let content = json!({"name": "Ada", "colour": "red", "pets": ["dog"]});
            let asked = answer_with(&link, json!({"action": "accept", "content": content}));
            let result = call_tool(&link, "register", json!({})).await;
            let expected = "Person { name: \"Ada\", age: None, colour: Red, pets: [Dog] }";
            assert_eq!(text(&result), expected, "{version}");
            let asked = asked.await.expect("it asked");
            assert_eq!(asked["message"], "Who are you?");
            let schema = json!({
                "type": "object",
                "properties": {
                    "name": {"type": "string", "description": "The full name"},
                    "age": {"type": "integer", "minimum": 0, "maximum": 255},
                    "colour": {"type": "string", "enum": ["green", "red"]},
                    "pets": {"type": "array", "items": {"anyOf": [
                        {"const": "cat", "title": "A cat"}, {"const": "dog", "title": "A dog"},
                    ]}},
                },
                "required": ["name", "colour", "pets"],
            });
            assert_eq!(asked["requestedSchema"], schema, "{version}");
        }
    });
}

#[test]
fn integer_of_a_form_may_have_a_fraction_that_is_zero() {
    run(async {
        let link = serve(&registry()).await;
        let content = json!({"name": "Ada", "age": 36.0, "colour": "red", "pets": []});
        let asked = answer_with(&link, json!({"action": "accept", "content": content}));
        let result = call_tool(&link, "register", json!({})).await;
        let expected = "Person { name: \"Ada\", age: Some(36), colour: Red, pets: [] }";
        assert_eq!(text(&result), expected);
        asked.await.expect("it asked");
    });
}

#[test]
fn declined_form_is_no_error() {
    run(async {
        let link = serve(&registry()).await;
        let asked = answer_with(&link, json!({"action": "decline"}));
        assert_eq!(
            text(&call_tool(&link, "register", json!({})).await),
            "Declined"
        );
        asked.await.expect("it asked");
    });
}

#[test]
fn answer_that_does_not_fit_the_form_fails_the_tool_with_a_reason() {
    run(async {
        let link = serve(&registry()).await;
        let asked = answer_with(
            &link,
            json!({"action": "accept", "content": {"name": "Ada"}}),
        );
        let result = call_tool(&link, "register", json!({})).await;
        assert_eq!(result["isError"], true);
        assert!(text(&result).contains("colour"), "{result}");
        asked.await.expect("it asked");
    });
}

#[test]
fn client_that_cannot_be_asked_gets_a_protocol_error_that_names_the_capability() {
    run(async {
        let served = Served::new(&registry()).await;
        let link = served.link_with(Version::V2026_07_28, |config| {
            config.capabilities = ClientCapabilities::default();
        });
        let error = try_call(&link, "tools/call", json!({"name": "register"})).await;
        let error = error.expect_err("it declared no elicitation");
        assert_eq!(error.code, code::MISSING_REQUIRED_CLIENT_CAPABILITY);
    });
}

#[test]
fn type_that_is_no_form_is_refused_with_the_field() {
    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Nested {
        inner: Vec<String>,
    }
    let error = form::<Nested>("?").expect_err("a list of any texts is no field");
    assert!(error.to_string().contains("`inner`"), "{error}");
    let error = form::<String>("?").expect_err("a text is no form");
    assert!(error.to_string().contains("struct"), "{error}");
}

#[test]
fn model_of_the_client_is_asked() {
    run(async {
        let tools = Tools::new("tests", "1.0").tool("ask", "", async |(): (), context| {
            let params = CreateMessageParams::new(vec![SamplingMessage::user("Capital?")], 10);
            Ok(context.sample(params).await?.content.text())
        });
        let link = serve(&tools).await;
        let answer = json!({"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "m"});
        let asked = answer_with(&link, answer);
        assert_eq!(text(&call_tool(&link, "ask", json!({})).await), "Paris");
        assert_eq!(asked.await.expect("it asked")["maxTokens"], 10);
    });
}

#[test]
fn roots_of_the_client_are_asked_for() {
    run(async {
        let tools = Tools::new("tests", "1.0").tool("ask", "", async |(): (), context| {
            Ok(context.roots().await?.len().to_string())
        });
        let link = serve(&tools).await;
        let asked = answer_with(
            &link,
            json!({"roots": [{"uri": "file:///a"}, {"uri": "file:///b"}]}),
        );
        assert_eq!(text(&call_tool(&link, "ask", json!({})).await), "2");
        asked.await.expect("it asked");
    });
}

#[test]
fn input_that_is_required_first_comes_with_the_next_call() {
    run(async {
        let tools = Tools::new("tests", "1.0").tool("greet", "", async |(): (), context| {
            if let Some(answer) = context.answer::<ElicitResult>("who") {
                let name = answer
                    .content
                    .and_then(|content| content.get("name").cloned());
                let state = context.state().unwrap_or_default();
                return Ok(Reply::from(vec![format!("{name:?} {state}").into()]));
            }
            let params = Payload::of(&form::<Name>("Who?")?)?;
            let input = InputRequired::new().and_ask("who", "elicitation/create", Some(params));
            Ok(input.with_state("kept").into())
        });
        let link = serve(&tools).await;
        let asked = answer_with(
            &link,
            json!({"action": "accept", "content": {"name": "Ada"}}),
        );
        let result = call_tool(&link, "greet", json!({})).await;
        assert_eq!(text(&result), "Some(String(\"Ada\")) kept");
        asked.await.expect("it asked");
    });
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Name {
    name: String,
}

#[test]
fn user_is_asked_to_visit_a_page() {
    run(async {
        let tools = Tools::new("tests", "1.0").tool("ask", "", async |(): (), context| {
            let page = ElicitUrlParams::new("Sign in", "https://example.com/");
            Ok(format!("{:?}", context.elicit_url(page).await?))
        });
        let served = Served::new(&tools).await;
        let link = served.link_with(Version::V2026_07_28, |config| {
            config.capabilities = ClientCapabilities::default().with_elicitation_url();
        });
        for (action, expected) in [("accept", "Accept"), ("cancel", "Cancel")] {
            let asked = answer_with(&link, json!({"action": action}));
            assert_eq!(text(&call_tool(&link, "ask", json!({})).await), expected);
            assert_eq!(
                asked.await.expect("it asked")["url"],
                "https://example.com/"
            );
        }
    });
}
