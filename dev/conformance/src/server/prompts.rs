//! The prompts.

use everlink_tools::types::{Content, PromptMessage};
use everlink_tools::{JsonSchema, Messages, Questions, Tools};
use serde::Deserialize;

use super::media::{picture, resource};

#[derive(Deserialize, JsonSchema)]
struct TwoArguments {
    /// The first
    arg1: String,
    /// The second
    arg2: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ResourceArgument {
    /// Which resource
    resource_uri: String,
}

#[derive(Deserialize, JsonSchema)]
struct Situation {
    context: String,
}

pub(super) fn add_to(tools: Tools) -> Tools {
    let with_arguments = "test_prompt_with_arguments";
    tools
        .prompt("test_simple_prompt", "One sentence", async |(): (), _| {
            Ok("This is a simple prompt.")
        })
        .prompt(
            with_arguments,
            "Repeats its arguments",
            async |args: TwoArguments, _| {
                Ok(format!(
                    "The first is `{}`, the second `{}`.",
                    args.arg1, args.arg2
                ))
            },
        )
        .complete_prompt(with_arguments, "arg1", async |typed, _| {
            Ok(typed.matching(["paris", "park", "party", "testament"]))
        })
        .prompt(
            "test_prompt_with_embedded_resource",
            "Has a resource",
            async |args: ResourceArgument, _| {
                let resource = resource(
                    &args.resource_uri,
                    "text/plain",
                    "The text of the resource.",
                );
                Ok(messages([resource, "What does the resource say?".into()]))
            },
        )
        .prompt(
            "test_prompt_with_image",
            "Has a picture",
            async |(): (), _| Ok(messages([picture(), "What is in the picture?".into()])),
        )
        .prompt(
            "test_input_required_result_prompt",
            "Asks for its context first",
            async |(): (), context| {
                Ok(match context.accepted::<Situation>("user_context") {
                    Some(situation) => {
                        Messages::from(format!("Consider that {}.", situation.context))
                    }
                    None => Questions::new()
                        .form::<Situation>("user_context", "In which context?")?
                        .into(),
                })
            },
        )
}

fn messages(contents: [Content; 2]) -> Vec<PromptMessage> {
    contents.map(PromptMessage::user).into()
}
