//! The tools that answer at once. `rounds` has those that ask the client first, and `tasks` those that take long.

use std::sync::Arc;
use std::time::Duration;

use everlink::protocol::{ClientFeature, LogLevel};
use everlink::server::{Progress, missing_capability};
use everlink::{Change, ErrorObject, List};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::media::{picture, resource, sound};
use super::resources::WATCHED;
use super::rounds::{self, form_with_field, sampling_params};
use super::tasks::{self, Tasks};
use super::{Answer, Invocation, payload, result, text};

/// The duration of each step of a tool.
const STEP: Duration = Duration::from_millis(50);

/// The tools without arguments, and what each does.
#[rustfmt::skip]
const PLAIN: &[(&str, &str)] = &[
    ("test_simple_text", "Says something"),
    ("test_image_content", "Shows a picture"),
    ("test_audio_content", "Plays a sound"),
    ("test_embedded_resource", "Brings a resource along"),
    ("test_multiple_content_types", "Says something, shows a picture and brings a resource along"),
    ("test_tool_with_logging", "Logs what it does"),
    ("test_tool_with_progress", "Tells how far it is"),
    ("test_error_handling", "Fails, always"),
    ("test_reconnection", "Lets go of its client, who comes back for the result"),
    ("test_elicitation_sep1034_defaults", "Asks the user with a form that is filled in already"),
    ("test_elicitation_sep1330_enums", "Asks the user to choose, in every way there is"),
    ("test_missing_capability", "Needs a client with a model"),
    ("test_streaming_elicitation", "Tells how far it is, and then asks the user"),
    ("test_logging_tool", "Logs one line, for who wants to hear it"),
    ("test_trigger_tool_change", "Says that the list of tools changed"),
    ("test_trigger_prompt_change", "Says that the list of prompts changed"),
    ("test_trigger_resource_update", "Says that the watched resource changed"),
    ("test_input_required_result_elicitation", "Wants a name of the user first"),
    ("test_input_required_result_sampling", "Wants some words of the client's model first"),
    ("test_input_required_result_list_roots", "Wants the roots of the client first"),
    ("test_input_required_result_multiple_inputs", "Wants all three first"),
    ("test_input_required_result_capabilities", "Wants first whatever the client can give"),
    ("test_input_required_result_request_state", "Wants a word of the user first"),
    ("test_input_required_result_tampered_state", "Wants a word of the user first, for the question that it asked"),
    ("test_input_required_result_multi_round", "Wants a name of the user first, and then a colour"),
];

pub(super) fn list() -> Value {
    let plain = PLAIN
        .iter()
        .map(|(name, description)| tool(name, description, json!({"type": "object"})));
    let others = [
        tool(
            "test_sampling",
            "Asks the client's model",
            one_text("prompt"),
        ),
        tool("test_elicitation", "Asks the user", one_text("message")),
        tool(
            "test_repeated_argument",
            "Says where it is, which the client repeats in a field",
            header_schema(),
        ),
        tool(
            "json_schema_2020_12_tool",
            "Takes arguments that it takes many words to describe",
            detailed_schema(),
        ),
    ];
    let tools: Vec<_> = plain.chain(others).chain(tasks::list()).collect();
    json!({"tools": tools})
}

pub(super) fn tool(name: &str, description: &str, schema: Value) -> Value {
    json!({"name": name, "description": description, "inputSchema": schema})
}

pub(super) async fn call(invocation: Invocation, tasks: &Arc<Tasks>) -> Answer {
    if let Some(answer) = fixed_content(&invocation.name) {
        return answer;
    }
    let context = &invocation.context;
    match &*invocation.name {
        "test_tool_with_logging" => {
            for text in ["It has begun.", "It goes on.", "It is done."] {
                log(&invocation, text)?;
                sleep(STEP).await;
            }
            text("It was logged.")
        }
        "test_tool_with_progress" => {
            for done in [0.0, 50.0, 100.0] {
                context.progress(Progress::new(done).of(100.0));
                sleep(STEP).await;
            }
            text("It is done.")
        }
        "test_reconnection" => {
            context.hang_up();
            sleep(2 * STEP).await;
            text("Here you are again.")
        }
        "test_sampling" => {
            let prompt = sampling_params(invocation.argument("prompt"));
            let answer = invocation.ask("sampling/createMessage", prompt).await?;
            let reply = answer["content"]["text"].as_str();
            text(format!("LLM response: {}", reply.unwrap_or_default()))
        }
        "test_elicitation" => {
            let mut form = form_with_field(invocation.argument("message"), "username", "string");
            form["requestedSchema"]["properties"]["email"] = json!({"type": "string"});
            elicit(&invocation, form).await
        }
        "test_elicitation_sep1034_defaults" => elicit(&invocation, form_with_defaults()).await,
        "test_elicitation_sep1330_enums" => elicit(&invocation, form_with_choices()).await,
        "test_missing_capability" => {
            let capabilities = &invocation.peer.capabilities;
            if !capabilities.declares(ClientFeature::Sampling) {
                return Err(missing_capability(ClientFeature::Sampling));
            }
            text("The client has a model.")
        }
        "test_streaming_elicitation" => {
            context.progress(Progress::new(1.0).of(2.0));
            let form = form_with_field("Shall it go on?", "ok", "boolean");
            elicit(&invocation, form).await
        }
        "test_logging_tool" => {
            log(&invocation, "It was called.").and_then(|()| text("It was logged."))
        }
        "test_trigger_tool_change" => publish(&invocation, Change::List(List::Tools)).await,
        "test_trigger_prompt_change" => publish(&invocation, Change::List(List::Prompts)).await,
        "test_trigger_resource_update" => {
            let uri = WATCHED.into();
            publish(&invocation, Change::Resource { uri }).await
        }
        "test_repeated_argument" => text(format!("It is in {}.", invocation.argument("region"))),
        "json_schema_2020_12_tool" => text(invocation.arguments.to_string()),
        name if tasks::is_task_tool(name) => tasks::call(invocation, tasks).await,
        _ => rounds::call(invocation).await,
    }
}

/// Answers a tool whose result is always the same. Returns `None` for any other tool.
fn fixed_content(name: &str) -> Option<Answer> {
    Some(match name {
        "test_simple_text" => text("This is a simple text."),
        "test_image_content" => result(json!({"content": [picture()]})),
        "test_audio_content" => result(json!({"content": [sound()]})),
        "test_embedded_resource" => {
            let text = "This is what the resource holds.";
            let resource = resource("test://embedded-resource", "text/plain", text);
            result(json!({"content": [resource]}))
        }
        "test_multiple_content_types" => {
            let content = json!({"type": "text", "text": "There is more than this:"});
            let data = json!({"test": "data", "value": 123}).to_string();
            let resource = resource("test://mixed-content-resource", "application/json", &data);
            result(json!({"content": [content, picture(), resource]}))
        }
        "test_error_handling" => {
            let text = "This tool fails, always.";
            result(json!({"content": [{"type": "text", "text": text}], "isError": true}))
        }
        _ => return None,
    })
}

fn log(invocation: &Invocation, text: &str) -> Result<(), ErrorObject> {
    let text = payload(&text.into())?;
    invocation
        .context
        .log(LogLevel::Info, Some("conformance"), text);
    Ok(())
}

async fn elicit(invocation: &Invocation, form: Value) -> Answer {
    let answer = invocation.ask("elicitation/create", form).await?;
    text(format!(
        "The user says {}: {}",
        answer["action"], answer["content"]
    ))
}

async fn publish(invocation: &Invocation, change: Change) -> Answer {
    invocation.context.service().publish(change).await?;
    text("All who want to know are told.")
}

fn one_text(name: &str) -> Value {
    json!({"type": "object", "properties": {name: {"type": "string"}}, "required": [name]})
}

fn header_schema() -> Value {
    let region = json!({"type": "string", "x-mcp-header": "Region"});
    json!({"type": "object", "properties": {"region": region}})
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
