//! The tools that answer at once. `rounds` has those that ask the client first, and `tasks` those that take long.

use std::future::ready;
use std::time::Duration;

use everlink::protocol::{ClientFeature, LogLevel};
use everlink::server::Progress;
use everlink::{Change, List};
use everlink_tools::types::{Content, Tool};
use everlink_tools::{Context, Error, JsonSchema, Reply, Result, Tools};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::media::{picture, resource, sound};
use super::resources::WATCHED;
use super::rounds::{Agreement, prompt};

/// The duration of each step of a tool.
const STEP: Duration = Duration::from_millis(50);

#[derive(Deserialize, JsonSchema)]
struct Prompt {
    prompt: String,
}

#[derive(Deserialize, JsonSchema)]
struct Message {
    message: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its `Debug` is used")]
struct User {
    username: String,
    email: Option<String>,
}

pub(super) fn add_to(tools: Tools) -> Tools {
    add_others(add_asking(add_contents(tools)))
}

/// Adds the tools whose result is always the same.
fn add_contents(tools: Tools) -> Tools {
    let text = resource("test://embedded-resource", "text/plain", "A resource.");
    let data = json!({"test": "data", "value": 123}).to_string();
    let data = resource("test://mixed-content-resource", "application/json", &data);
    let mixed = vec![Content::text("Three contents:"), picture(), data];
    let contents = [
        (
            "test_simple_text",
            "A text",
            vec!["This is a simple text.".into()],
        ),
        ("test_image_content", "A picture", vec![picture()]),
        ("test_audio_content", "A sound", vec![sound()]),
        ("test_embedded_resource", "A resource", vec![text]),
        (
            "test_multiple_content_types",
            "A text, a picture and a resource",
            mixed,
        ),
    ];
    contents
        .into_iter()
        .fold(tools, |tools, (name, about, content)| {
            tools.tool(name, about, move |(): (), _| {
                ready(Ok(Reply::from(content.clone())))
            })
        })
}

/// Adds the tools that ask the client and wait for the answer.
fn add_asking(tools: Tools) -> Tools {
    tools
        .tool(
            "test_sampling",
            "Asks the client's model",
            async |args: Prompt, context| {
                let answer = context.sample(prompt(&args.prompt)).await?;
                Ok(format!("LLM response: {}", answer.content.text()))
            },
        )
        .tool(
            "test_elicitation",
            "Asks the user",
            async |args: Message, context| {
                Ok(format!("{:?}", context.elicit::<User>(args.message).await?))
            },
        )
        .tool(
            "test_elicitation_sep1034_defaults",
            "A form with defaults",
            async |(): (), context| elicit(&context, form_with_defaults()).await,
        )
        .tool(
            "test_elicitation_sep1330_enums",
            "A form with choices",
            async |(): (), context| elicit(&context, form_with_choices()).await,
        )
        .tool(
            "test_streaming_elicitation",
            "Reports progress, and asks",
            async |(): (), context| {
                context.progress(Progress::new(1.0).of(2.0));
                Ok(format!(
                    "{:?}",
                    context.elicit::<Agreement>("Continue?").await?
                ))
            },
        )
        .tool(
            "test_missing_capability",
            "Needs a client with a model",
            async |(): (), context| {
                context.require(ClientFeature::Sampling)?;
                Ok("The client has a model.")
            },
        )
}

/// Adds the tools that send notifications, and those with schemas that are written by hand.
fn add_others(tools: Tools) -> Tools {
    let changes = [
        ("test_trigger_tool_change", Change::List(List::Tools)),
        ("test_trigger_prompt_change", Change::List(List::Prompts)),
        (
            "test_trigger_resource_update",
            Change::Resource {
                uri: WATCHED.into(),
            },
        ),
    ];
    let tools = changes.into_iter().fold(tools, |tools, (name, change)| {
        tools.tool(name, "Reports a change", move |(): (), context| {
            drop(context.service().publish(change.clone()));
            ready(Ok("All clients that watch it are notified."))
        })
    });
    let region = json!({"type": "string", "x-mcp-header": "Region"});
    let region = json!({"type": "object", "properties": {"region": region}});
    let by_hand = |name: &str, schema: Value| {
        let tool = Tool::new(name).with_description("Returns its arguments");
        tool.with_input_schema(schema)
    };
    let repeated = by_hand("test_repeated_argument", region);
    let detailed = by_hand("json_schema_2020_12_tool", detailed_schema());
    tools
        .tool("test_error_handling", "Fails", async |(): (), _| {
            Err::<(), _>(Error::new("This tool always fails."))
        })
        .tool(
            "test_tool_with_logging",
            "Logs its steps",
            async |(): (), context| {
                for text in ["It has begun.", "It continues.", "It is done."] {
                    context.log_text(LogLevel::Info, text);
                    sleep(STEP).await;
                }
                Ok("It was logged.")
            },
        )
        .tool(
            "test_logging_tool",
            "Logs one message",
            async |(): (), context| {
                context.log_text(LogLevel::Info, "It was called.");
                Ok("It was logged.")
            },
        )
        .tool(
            "test_tool_with_progress",
            "Reports its progress",
            async |(): (), context| {
                for done in [0.0, 50.0, 100.0] {
                    context.progress(Progress::new(done).of(100.0));
                    sleep(STEP).await;
                }
                Ok("It is done.")
            },
        )
        .tool(
            "test_reconnection",
            "Closes the stream",
            async |(): (), context| {
                context.hang_up();
                sleep(2 * STEP).await;
                Ok("The client is back.")
            },
        )
        .tool_as(repeated, async |args: Value, _| Ok(args.to_string()))
        .tool_as(detailed, async |args: Value, _| Ok(args.to_string()))
}

async fn elicit(context: &Context, form: Value) -> Result<String> {
    let answer = context.elicit_form(&serde_json::from_value(form)?).await?;
    Ok(format!("{:?}: {:?}", answer.action, answer.content))
}

/// A schema with many keywords that an implementation might lose.
fn detailed_schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$defs": {"address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }},
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": false,
    })
}

/// A form with a default of every kind.
fn form_with_defaults() -> Value {
    json!({"message": "Is this right?", "requestedSchema": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "default": "John Doe"},
            "age": {"type": "integer", "default": 30},
            "score": {"type": "number", "default": 95.5},
            "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
            "verified": {"type": "boolean", "default": true},
        },
    }})
}

/// A form with a choice of every kind.
fn form_with_choices() -> Value {
    let titled = |values: [(&str, &str); 3]| {
        values.map(|(value, title)| json!({"const": value, "title": title}))
    };
    let options = ["option1", "option2", "option3"];
    let single = [
        ("value1", "The first"),
        ("value2", "The second"),
        ("value3", "The third"),
    ];
    json!({"message": "Which do you take?", "requestedSchema": {
        "type": "object",
        "properties": {
            "untitledSingle": {"type": "string", "enum": options},
            "titledSingle": {"type": "string", "oneOf": titled(single)},
            "legacyEnum": {
                "type": "string",
                "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["The first", "The second", "The third"],
            },
            "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
            "titledMulti": {"type": "array", "items": {"anyOf": titled(single)}},
        },
    }})
}
