//! The questions of a function that keeps no state between two rounds: the client sends the request again, with the answers.

use everlink::Payload;
use everlink::server::InputRequired;
use everlink_types::{CreateMessageParams, ElicitFormParams, ElicitUrlParams};
use schemars::JsonSchema;
use serde::Serialize;

use crate::form::{FormError, form};
use crate::output::Reply;
use crate::prompting::Messages;

/// Questions that a client answers before it sends its request again (modern era). Each has a key, with which the function finds the answer.
///
/// ```
/// # use everlink_tools::{Context, JsonSchema, Questions, Reply, Result};
/// #[derive(serde::Deserialize, JsonSchema)]
/// struct Name {
///     name: String,
/// }
///
/// async fn greet((): (), context: Context) -> Result<Reply> {
///     match context.accepted::<Name>("who") {
///         Some(Name { name }) => Ok(format!("Hello, {name}!").into()),
///         None => Ok(Questions::new().form::<Name>("who", "What is your name?")?.into()),
///     }
/// }
/// ```
#[derive(Clone, Debug)]
#[must_use = "the client must get the questions"]
pub struct Questions(InputRequired);

impl Questions {
    /// No questions yet.
    pub fn new() -> Questions {
        Questions(InputRequired::new())
    }

    /// Asks the user to fill in a form with the fields of `T`; see [`Context::accepted`](crate::Context::accepted).
    ///
    /// # Errors
    ///
    /// When `T` is no form.
    pub fn form<T: JsonSchema>(
        self,
        key: &str,
        message: impl Into<String>,
    ) -> Result<Questions, FormError> {
        Ok(self.form_with(key, &form::<T>(message)?))
    }

    /// Asks the user to fill in this form.
    pub fn form_with(self, key: &str, params: &ElicitFormParams) -> Questions {
        self.ask(key, "elicitation/create", params)
    }

    /// Asks the user to visit a page.
    pub fn url(self, key: &str, params: &ElicitUrlParams) -> Questions {
        self.ask(key, "elicitation/create", params)
    }

    /// Asks the client's model.
    pub fn sample(self, key: &str, params: &CreateMessageParams) -> Questions {
        self.ask(key, "sampling/createMessage", params)
    }

    /// Asks for the client's roots.
    pub fn roots(self, key: &str) -> Questions {
        self.ask(key, "roots/list", &serde_json::json!({}))
    }

    /// Sets a text that the client returns with its answers; see [`Context::state`](crate::Context::state).
    pub fn with_state(self, state: &str) -> Questions {
        Questions(self.0.with_state(state))
    }

    fn ask(self, key: &str, method: &'static str, params: &impl Serialize) -> Questions {
        let params = Payload::of(params).expect("parameters have only texts as keys");
        Questions(self.0.and_ask(key, method, Some(params)))
    }
}

impl Default for Questions {
    fn default() -> Questions {
        Questions::new()
    }
}

impl From<Questions> for Reply {
    fn from(questions: Questions) -> Reply {
        questions.0.into()
    }
}

impl From<Questions> for Messages {
    fn from(questions: Questions) -> Messages {
        questions.0.into()
    }
}

#[cfg(test)]
mod tests {
    use everlink_types::SamplingMessage;

    use super::*;

    #[test]
    fn each_question_asks_with_its_key_its_method_and_its_parameters() {
        let page = ElicitUrlParams::new("Sign in", "https://example.com/");
        let sample = CreateMessageParams::new(vec![SamplingMessage::user("Capital?")], 10);
        let questions = Questions::new()
            .url("page", &page)
            .sample("capital", &sample)
            .roots("where");
        let expected = InputRequired::new()
            .and_ask("page", "elicitation/create", Payload::of(&page).ok())
            .and_ask(
                "capital",
                "sampling/createMessage",
                Payload::of(&sample).ok(),
            )
            .and_ask("where", "roots/list", "{}".parse().ok());
        assert!(questions.0 == expected, "{questions:?}");
    }
}
