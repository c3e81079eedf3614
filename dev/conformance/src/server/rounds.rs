//! The tools that want something of a modern client first. Most of them keep nothing between two rounds: what the client gives stands in the
//! next request, and what is missing is asked again. The last three use questions instead, as a tool would that has begun something; then
//! the server holds what was asked, under a state that nobody can make up.

use everlink::ErrorObject;
use everlink::protocol::ClientFeature;
use everlink::server::InputRequired;
use serde_json::{Value, json};

use super::{Order, Said, payload, text};

pub(super) async fn call(order: Order) -> Said {
    match &*order.name {
        "test_input_required_result_elicitation" => match field(&order, "user_name", "name") {
            Some(name) => text(format!("Hello, {name}!")),
            None => form("user_name", "What is your name?", "name"),
        },
        "test_input_required_result_sampling" => {
            match sampled(&order.answers["capital_question"]) {
                Some(words) => text(words),
                None => need(&[Need::sampling(
                    "capital_question",
                    "What is the capital of France?",
                )]),
            }
        }
        "test_input_required_result_list_roots" => {
            match order.answers["client_roots"]["roots"].as_array() {
                Some(roots) => text(format!("There are {} roots.", roots.len())),
                None => need(&[Need::roots("client_roots")]),
            }
        }
        "test_input_required_result_multiple_inputs" => several(&order),
        "test_input_required_result_capabilities" => whatever_can_be_asked(&order),
        "test_input_required_result_request_state"
        | "test_input_required_result_tampered_state" => {
            let form = one_field("Shall it be so?", "ok", "boolean");
            let answer = order.ask("elicitation/create", form).await?;
            text(format!("state-ok: {answer}"))
        }
        "test_input_required_result_multi_round" => {
            let first = one_field("What is your name?", "name", "string");
            let first = order.ask("elicitation/create", first).await?;
            let second = one_field("Which colour do you like?", "color", "string");
            let second = order.ask("elicitation/create", second).await?;
            let (name, colour) = (&first["content"]["name"], &second["content"]["color"]);
            text(format!("{name} likes {colour}."))
        }
        _ => order.unknown(),
    }
}

/// What the client filled in under a name, if it did.
pub(super) fn field<'a>(order: &'a Order, key: &str, field: &str) -> Option<&'a str> {
    order.answers[key]["content"][field].as_str()
}

/// Asks for one field of a form.
pub(super) fn form(key: &'static str, message: &str, field: &str) -> Said {
    need(&[Need::form(key, message, field)])
}

fn several(order: &Order) -> Said {
    let name = field(order, "user_name", "name");
    let greeting = sampled(&order.answers["greeting"]);
    let roots = order.answers["client_roots"]["roots"].as_array();
    if let (Some(name), Some(greeting), Some(roots)) = (name, greeting, roots) {
        return text(format!("{name} has {} roots: {greeting}", roots.len()));
    }
    let needs = [
        Need::form("user_name", "What is your name?", "name"),
        Need::sampling("greeting", "Greet somebody."),
        Need::roots("client_roots"),
    ];
    // Nothing is decided by it: only that it comes back is of interest.
    Ok(require(&needs)?.with_state("several").into())
}

/// Asks for what the client declared, and for nothing else.
fn whatever_can_be_asked(order: &Order) -> Said {
    if let Some(answers) = order.answers.as_object().filter(|it| !it.is_empty()) {
        return text(format!("There are {} answers.", answers.len()));
    }
    let declares = |feature| order.peer.capabilities.declares(feature);
    let mut needs = Vec::new();
    if declares(ClientFeature::ElicitationForm) {
        needs.push(Need::form("elicited", "What shall it be?", "value"));
    }
    if declares(ClientFeature::Sampling) {
        needs.push(Need::sampling("sampled", "What shall it be?"));
    }
    if needs.is_empty() {
        return text("The client can be asked nothing.");
    }
    need(&needs)
}

fn sampled(answer: &Value) -> Option<&str> {
    answer["content"]["text"].as_str()
}

/// One question, and what its answer is called.
struct Need {
    key: &'static str,
    method: &'static str,
    params: Value,
}

impl Need {
    fn form(key: &'static str, message: &str, field: &str) -> Need {
        Need {
            key,
            method: "elicitation/create",
            params: one_field(message, field, "string"),
        }
    }

    fn roots(key: &'static str) -> Need {
        Need {
            key,
            method: "roots/list",
            params: json!({}),
        }
    }

    fn sampling(key: &'static str, prompt: &str) -> Need {
        Need {
            key,
            method: "sampling/createMessage",
            params: prompting(prompt),
        }
    }
}

fn need(needs: &[Need]) -> Said {
    Ok(require(needs)?.into())
}

fn require(needs: &[Need]) -> Result<InputRequired, ErrorObject> {
    let add = |input: InputRequired, need: &Need| {
        Ok(input.and_ask(need.key, need.method, Some(payload(&need.params)?)))
    };
    needs.iter().try_fold(InputRequired::new(), add)
}

/// A form with one field that must be filled in.
pub(super) fn one_field(message: &str, field: &str, kind: &str) -> Value {
    let schema =
        json!({"type": "object", "properties": {field: {"type": kind}}, "required": [field]});
    json!({"message": message, "requestedSchema": schema})
}

/// A prompt for the client's model.
pub(super) fn prompting(prompt: &str) -> Value {
    let message = json!({"role": "user", "content": {"type": "text", "text": prompt}});
    json!({"messages": [message], "maxTokens": 100})
}
