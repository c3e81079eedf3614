//! What a prompt returns, and how its arguments are listed.

use everlink::Payload;
use everlink::server::InputRequired;
use everlink_handle::Response;
use everlink_types::{GetPromptResult, PromptArgument, PromptMessage};
use serde_json::Value;

use crate::error::Error;

/// The messages of a prompt. A text is a message of the user.
#[derive(Clone, Debug)]
pub struct Messages(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Input(InputRequired),
    Result(GetPromptResult),
}

impl Messages {
    pub(crate) fn into_response(self) -> Result<Response, Error> {
        match self.0 {
            Kind::Input(input) => Ok(input.into()),
            Kind::Result(result) => Ok(Payload::of(&result)?.into()),
        }
    }
}

impl From<&str> for Messages {
    fn from(text: &str) -> Messages {
        PromptMessage::user(text).into()
    }
}

impl From<String> for Messages {
    fn from(text: String) -> Messages {
        PromptMessage::user(text).into()
    }
}

impl From<PromptMessage> for Messages {
    fn from(message: PromptMessage) -> Messages {
        vec![message].into()
    }
}

impl From<Vec<PromptMessage>> for Messages {
    fn from(messages: Vec<PromptMessage>) -> Messages {
        GetPromptResult::new(messages).into()
    }
}

impl From<GetPromptResult> for Messages {
    fn from(result: GetPromptResult) -> Messages {
        Messages(Kind::Result(result))
    }
}

/// The client must send this input first (modern era). The prompt is then requested again; see [`Context::answer`](crate::Context::answer).
impl From<InputRequired> for Messages {
    fn from(input: InputRequired) -> Messages {
        Messages(Kind::Input(input))
    }
}

/// Lists the fields of a schema as arguments of a prompt.
pub(crate) fn prompt_arguments(schema: &Value) -> Vec<PromptArgument> {
    let required = schema["required"].as_array();
    let properties = schema["properties"].as_object().into_iter().flatten();
    let arguments = properties.map(|(name, property)| {
        let text = |key: &str| property.get(key).and_then(Value::as_str).map(str::to_owned);
        let is_required = required.is_some_and(|required| required.iter().any(|it| it == name));
        let mut argument = PromptArgument::new(name).with_required(is_required);
        argument.title = text("title");
        argument.description = text("description");
        argument
    });
    arguments.collect()
}
