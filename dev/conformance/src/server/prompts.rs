//! The prompts.

use serde_json::{Value, json};

use super::media::{picture, resource};
use super::{Answer, Invocation, result, rounds};

pub(super) fn list() -> Value {
    let argument = |name: &str, description: &str| json!({"name": name, "description": description, "required": true});
    json!({"prompts": [
        {"name": "test_simple_prompt", "description": "A prompt of one sentence"},
        {
            "name": "test_prompt_with_arguments",
            "description": "A prompt that repeats what it is given",
            "arguments": [argument("arg1", "The first"), argument("arg2", "The second")],
        },
        {
            "name": "test_prompt_with_embedded_resource",
            "description": "A prompt that brings a resource along",
            "arguments": [argument("resourceUri", "Which resource")],
        },
        {"name": "test_prompt_with_image", "description": "A prompt that brings a picture along"},
        {"name": "test_input_required_result_prompt", "description": "A prompt that asks for its context first"},
    ]})
}

pub(super) fn get(invocation: Invocation) -> Answer {
    let text = |text: &str| json!({"type": "text", "text": text});
    let contents = match &*invocation.name {
        "test_simple_prompt" => vec![text("This is a simple prompt.")],
        "test_prompt_with_arguments" => {
            let (one, two) = (invocation.argument("arg1"), invocation.argument("arg2"));
            vec![text(&format!("The first is `{one}`, the second `{two}`."))]
        }
        "test_prompt_with_embedded_resource" => {
            let uri = invocation.argument("resourceUri");
            vec![
                resource(uri, "text/plain", "This is what the resource holds."),
                text("What does the resource say?"),
            ]
        }
        "test_prompt_with_image" => vec![picture(), text("What is in the picture?")],
        "test_input_required_result_prompt" => {
            match rounds::field(&invocation, "user_context", "context") {
                Some(context) => vec![text(&format!("Mind that {context}."))],
                None => return rounds::form("user_context", "In which context?", "context"),
            }
        }
        _ => return invocation.unknown(),
    };
    let message = |content: Value| json!({"role": "user", "content": content});
    let messages: Vec<_> = contents.into_iter().map(message).collect();
    result(json!({"messages": messages}))
}
