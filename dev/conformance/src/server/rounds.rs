//! The tools that need input from a modern client before they return a result.
//!
//! Most of them keep no state between two rounds: the client's next request carries the answers, and the tool asks again for what is
//! missing. The last three await the answers, and go on running between two rounds. The server holds their requests, and gives the client
//! a `requestState` that names the request and cannot be forged.

use everlink::protocol::ClientFeature;
use everlink_tools::types::{
    CreateMessageParams, CreateMessageResult, ListRootsResult, SamplingMessage,
};
use everlink_tools::{Context, Elicited, JsonSchema, Questions, Reply, Result, Tools};
use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Name {
    pub(super) name: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Colour {
    color: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its `Debug` is used")]
pub(super) struct Agreement {
    ok: bool,
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "the answer is only counted")]
struct Anything {
    value: String,
}

pub(super) fn add_to(tools: Tools) -> Tools {
    let prefix = |name: &str| format!("test_input_required_result_{name}");
    tools
        .tool(
            prefix("elicitation"),
            "Needs a name of the user first",
            async |(): (), context| {
                Ok(match context.accepted::<Name>("user_name") {
                    Some(Name { name }) => Reply::from(format!("Hello, {name}!")),
                    None => ask_name()?,
                })
            },
        )
        .tool(
            prefix("sampling"),
            "Needs an answer of the client's model first",
            async |(): (), context| {
                Ok(match sampled(&context, "capital_question") {
                    Some(answer) => Reply::from(answer),
                    None => Questions::new()
                        .sample(
                            "capital_question",
                            &prompt("What is the capital of France?"),
                        )
                        .into(),
                })
            },
        )
        .tool(
            prefix("list_roots"),
            "Needs the roots of the client first",
            async |(): (), context| {
                Ok(match context.answer::<ListRootsResult>("client_roots") {
                    Some(answer) => Reply::from(format!("There are {} roots.", answer.roots.len())),
                    None => Questions::new().roots("client_roots").into(),
                })
            },
        )
        .tool(prefix("multiple_inputs"), "Needs all three first", ask_all)
        .tool(
            prefix("capabilities"),
            "Asks for all that the client declared",
            ask_declared,
        )
        .tool(
            prefix("request_state"),
            "Needs the agreement of the user first",
            agreed,
        )
        .tool(
            prefix("tampered_state"),
            "Needs the agreement to its own question first",
            agreed,
        )
        .tool(
            prefix("multi_round"),
            "Needs a name of the user first, and then a colour",
            async |(): (), context| {
                let name = context.elicit::<Name>("What is your name?").await?;
                let colour = context
                    .elicit::<Colour>("Which colour do you like?")
                    .await?;
                Ok(match (name, colour) {
                    (Elicited::Accepted(name), Elicited::Accepted(colour)) => {
                        format!("{} likes {}.", name.name, colour.color)
                    }
                    _ => "The user does not say.".to_owned(),
                })
            },
        )
}

pub(super) fn ask_name() -> Result<Reply> {
    Ok(Questions::new()
        .form::<Name>("user_name", "What is your name?")?
        .into())
}

/// A question to the client's model.
pub(super) fn prompt(text: &str) -> CreateMessageParams {
    CreateMessageParams::new(vec![SamplingMessage::user(text)], 100)
}

fn sampled(context: &Context, key: &str) -> Option<String> {
    let answer: CreateMessageResult = context.answer(key)?;
    Some(answer.content.text())
}

async fn agreed((): (), context: Context) -> Result<String> {
    let answer = context.elicit::<Agreement>("Do you agree?").await?;
    Ok(format!("state-ok: {answer:?}"))
}

async fn ask_all((): (), context: Context) -> Result<Reply> {
    let name = context.accepted::<Name>("user_name");
    let (greeting, roots) = (
        sampled(&context, "greeting"),
        context.answer::<ListRootsResult>("client_roots"),
    );
    if let (Some(Name { name }), Some(greeting), Some(answer)) = (name, greeting, roots) {
        return Ok(format!("{name} has {} roots: {greeting}", answer.roots.len()).into());
    }
    let questions = Questions::new().form::<Name>("user_name", "What is your name?")?;
    let questions = questions
        .sample("greeting", &prompt("Greet somebody."))
        .roots("client_roots");
    // The state has no meaning. The suite checks only that it comes back.
    Ok(questions.with_state("several").into())
}

async fn ask_declared((): (), context: Context) -> Result<Reply> {
    let answers = ["elicited", "sampled"]
        .iter()
        .filter(|key| context.answer::<Value>(key).is_some());
    let (answers, mut questions) = (answers.count(), Questions::new());
    let forms = context.declares(ClientFeature::ElicitationForm);
    let models = context.declares(ClientFeature::Sampling);
    if forms {
        questions = questions.form::<Anything>("elicited", "Which value?")?;
    }
    if models {
        questions = questions.sample("sampled", &prompt("Which value?"));
    }
    Ok(match (answers, forms || models) {
        (0, true) => questions.into(),
        (answers, _) => format!("There are {answers} answers.").into(),
    })
}
