//! Answers the questions of the server without a user or a model: a form returns its defaults, and sampling returns a fixed text.

use everlink::{ErrorObject, Payload};
use everlink_tokio::OpenAsk;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Answers a question.
pub fn answer(ask: OpenAsk) {
    let answer = result(&ask);
    ask.answer(answer);
}

fn result(ask: &OpenAsk) -> Result<Payload, ErrorObject> {
    let answer = match ask.method() {
        "elicitation/create" => accept(ask.params())?,
        "roots/list" => json!({ "roots": [] }),
        "sampling/createMessage" => json!({
            "role": "assistant",
            "content": { "type": "text", "text": "So be it." },
            "model": "none",
        }),
        other => {
            return Err(ErrorObject::new(
                -32601,
                format!("there is no `{other}` here"),
            ));
        }
    };
    Payload::of(&answer).map_err(|error| ErrorObject::new(-32603, error.to_string()))
}

/// Accepts a form: each field has its default, if it has one.
fn accept(params: Option<&Payload>) -> Result<Value, ErrorObject> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Form {
        requested_schema: Schema,
    }
    #[derive(Deserialize)]
    struct Schema {
        properties: Map<String, Value>,
    }
    let form = params.map(Payload::parse::<Form>);
    let Some(Ok(form)) = form else {
        return Err(ErrorObject::new(-32602, "this is no form"));
    };
    let fields = form.requested_schema.properties.into_iter();
    let filled: Map<String, Value> = fields
        .filter_map(|(name, mut field)| Some((name, field.get_mut("default")?.take())))
        .collect();
    Ok(json!({ "action": "accept", "content": filled }))
}
