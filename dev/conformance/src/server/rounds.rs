//! The tools that ask a modern client first.
//!
//! Most of them keep no state between two rounds: the next request carries the answers, and they ask again for what is missing. The last
//! three use `ask`, as a tool does that has started work. The server then keeps the question under a sealed request state.

use everlink::ErrorObject;
use everlink::protocol::ClientFeature;
use everlink::server::InputRequired;
use serde_json::{Value, json};

use super::{Answer, Invocation, payload, text};

pub(super) async fn call(invocation: Invocation) -> Answer {
    match &*invocation.name {
        "test_input_required_result_elicitation" => match field(&invocation, "user_name", "name") {
            Some(name) => text(format!("Hello, {name}!")),
            None => form("user_name", "What is your name?", "name"),
        },
        "test_input_required_result_sampling" => {
            match sampled(&invocation.answers["capital_question"]) {
                Some(answer) => text(answer),
                None => ask_for(&[Question::sampling(
                    "capital_question",
                    "What is the capital of France?",
                )]),
            }
        }
        "test_input_required_result_list_roots" => {
            match invocation.answers["client_roots"]["roots"].as_array() {
                Some(roots) => text(format!("There are {} roots.", roots.len())),
                None => ask_for(&[Question::roots("client_roots")]),
            }
        }
        "test_input_required_result_multiple_inputs" => ask_all(&invocation),
        "test_input_required_result_capabilities" => ask_declared(&invocation),
        "test_input_required_result_request_state"
        | "test_input_required_result_tampered_state" => {
            let form = form_with_field("Shall it be so?", "ok", "boolean");
            let answer = invocation.ask("elicitation/create", form).await?;
            text(format!("state-ok: {answer}"))
        }
        "test_input_required_result_multi_round" => {
            let first = form_with_field("What is your name?", "name", "string");
            let first = invocation.ask("elicitation/create", first).await?;
            let second = form_with_field("Which colour do you like?", "color", "string");
            let second = invocation.ask("elicitation/create", second).await?;
            let (name, colour) = (&first["content"]["name"], &second["content"]["color"]);
            text(format!("{name} likes {colour}."))
        }
        _ => invocation.unknown(),
    }
}

/// The value that the client entered for a field, if it did.
pub(super) fn field<'a>(invocation: &'a Invocation, key: &str, field: &str) -> Option<&'a str> {
    invocation.answers[key]["content"][field].as_str()
}

/// Asks for one field of a form.
pub(super) fn form(key: &'static str, message: &str, field: &str) -> Answer {
    ask_for(&[Question::form(key, message, field)])
}

fn ask_all(invocation: &Invocation) -> Answer {
    let name = field(invocation, "user_name", "name");
    let greeting = sampled(&invocation.answers["greeting"]);
    let roots = invocation.answers["client_roots"]["roots"].as_array();
    if let (Some(name), Some(greeting), Some(roots)) = (name, greeting, roots) {
        return text(format!("{name} has {} roots: {greeting}", roots.len()));
    }
    let questions = [
        Question::form("user_name", "What is your name?", "name"),
        Question::sampling("greeting", "Greet somebody."),
        Question::roots("client_roots"),
    ];
    // The state has no meaning. The suite checks only that it comes back.
    Ok(input_required(&questions)?.with_state("several").into())
}

/// Asks only for what the client declared.
fn ask_declared(invocation: &Invocation) -> Answer {
    if let Some(answers) = invocation.answers.as_object().filter(|it| !it.is_empty()) {
        return text(format!("There are {} answers.", answers.len()));
    }
    let declares = |feature| invocation.peer.capabilities.declares(feature);
    let mut questions = Vec::new();
    if declares(ClientFeature::ElicitationForm) {
        questions.push(Question::form("elicited", "What shall it be?", "value"));
    }
    if declares(ClientFeature::Sampling) {
        questions.push(Question::sampling("sampled", "What shall it be?"));
    }
    if questions.is_empty() {
        return text("The client can be asked nothing.");
    }
    ask_for(&questions)
}

fn sampled(answer: &Value) -> Option<&str> {
    answer["content"]["text"].as_str()
}

/// A question, and the key of its answer.
struct Question {
    key: &'static str,
    method: &'static str,
    params: Value,
}

impl Question {
    fn form(key: &'static str, message: &str, field: &str) -> Question {
        Question {
            key,
            method: "elicitation/create",
            params: form_with_field(message, field, "string"),
        }
    }

    fn roots(key: &'static str) -> Question {
        Question {
            key,
            method: "roots/list",
            params: json!({}),
        }
    }

    fn sampling(key: &'static str, prompt: &str) -> Question {
        Question {
            key,
            method: "sampling/createMessage",
            params: sampling_params(prompt),
        }
    }
}

fn ask_for(questions: &[Question]) -> Answer {
    Ok(input_required(questions)?.into())
}

fn input_required(questions: &[Question]) -> Result<InputRequired, ErrorObject> {
    let add = |input: InputRequired, question: &Question| {
        Ok(input.and_ask(
            question.key,
            question.method,
            Some(payload(&question.params)?),
        ))
    };
    questions.iter().try_fold(InputRequired::new(), add)
}

/// A form with one required field.
pub(super) fn form_with_field(message: &str, field: &str, kind: &str) -> Value {
    let schema =
        json!({"type": "object", "properties": {field: {"type": kind}}, "required": [field]});
    json!({"message": message, "requestedSchema": schema})
}

/// The parameters of a request to the client's model.
pub(super) fn sampling_params(prompt: &str) -> Value {
    let message = json!({"role": "user", "content": {"type": "text", "text": prompt}});
    json!({"messages": [message], "maxTokens": 100})
}
