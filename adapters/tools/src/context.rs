//! What a function sees of its request: the client, the user, and typed questions to both.

use std::ops::Deref;
use std::sync::Arc;

use everlink::Payload;
use everlink::protocol::{ClientFeature, LogLevel};
use everlink::server::{Peer, Request, Supplied, missing_capability};
use everlink_handle::{Context as RequestContext, ServiceError};
use everlink_types::{
    CreateMessageParams, CreateMessageResult, ElicitAction, ElicitFormParams, ElicitResult,
    ElicitUrlParams, ListRootsResult, Members, Root,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::arguments::read_with_integers;
use crate::check::{has_limits, problems};
use crate::error::Error;
use crate::form::{FormError, form};
use crate::schema;

/// The request of a function. It derefs to the [`Context`](RequestContext) of the handler, which has progress, cancellation, logs and the service.
///
/// A blocking function waits for a question with `everlink_handle::wait(context.elicit(..))`.
#[derive(Clone, Debug)]
pub struct Context {
    inner: RequestContext,
    peer: Arc<Peer>,
    user: Option<Box<str>>,
    input: Option<Supplied>,
}

impl Deref for Context {
    type Target = RequestContext;

    fn deref(&self) -> &RequestContext {
        &self.inner
    }
}

impl Context {
    /// Splits a request into its parameters and its context.
    pub(crate) fn of(request: Request, inner: RequestContext) -> (Option<Payload>, Context) {
        let context = Context {
            inner,
            peer: request.peer,
            user: request.user,
            input: request.input,
        };
        (request.params, context)
    }

    /// Returns the client, with its version and capabilities.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Returns the authenticated user. Only over HTTP, if the server checks tokens.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Whether the client declared this capability.
    #[must_use]
    pub fn declares(&self, feature: ClientFeature) -> bool {
        self.peer.capabilities.declares(feature)
    }

    /// Fails with the protocol error that names this capability, unless the client declared it.
    ///
    /// # Errors
    ///
    /// When the client did not declare the capability.
    pub fn require(&self, feature: ClientFeature) -> Result<(), Error> {
        match self.declares(feature) {
            true => Ok(()),
            false => Err(Error::protocol(missing_capability(feature))),
        }
    }

    /// Logs a text for this request, if its client asked for logs and the server [offers](crate::Tools::with_logging) them.
    pub fn log_text(&self, level: LogLevel, text: &str) {
        if let Ok(data) = Payload::of(text) {
            self.inner.log(level, None, data);
        }
    }

    /// Asks the user to fill in a form with the fields of `T`, and waits for the answer.
    ///
    /// A form has plain fields only: texts, numbers, booleans, choices of texts, and lists of choices. Doc comments describe the fields, and `Option` makes
    /// them optional.
    ///
    /// # Errors
    ///
    /// When the client cannot be asked, or `T` is no form, or the answer does not fit.
    pub async fn elicit<T>(&self, message: impl Into<String>) -> Result<Elicited<T>, AskFailure>
    where
        T: DeserializeOwned + JsonSchema,
    {
        let answer = self.elicit_form(&form::<T>(message)?).await?;
        Ok(match answer.action {
            ElicitAction::Accept => Elicited::Accepted(read_form(answer.content)?),
            ElicitAction::Decline => Elicited::Declined,
            _ => Elicited::Cancelled,
        })
    }

    /// Asks the user to fill in a form that is made at run time, and waits for the answer. The content is not compared with the form.
    ///
    /// # Errors
    ///
    /// When the client cannot be asked, or its answer cannot be read.
    pub async fn elicit_form(&self, params: &ElicitFormParams) -> Result<ElicitResult, AskFailure> {
        self.ask_typed("elicitation/create", Some(params)).await
    }

    /// Asks the user to visit a page, and waits for the answer.
    ///
    /// # Errors
    ///
    /// When the client cannot be asked, or its answer cannot be read.
    pub async fn elicit_url(&self, params: ElicitUrlParams) -> Result<ElicitAction, AskFailure> {
        let answer: ElicitResult = self.ask_typed("elicitation/create", Some(&params)).await?;
        Ok(answer.action)
    }

    /// Asks the client's model, and waits for the answer.
    ///
    /// # Errors
    ///
    /// When the client cannot be asked, or its answer cannot be read.
    pub async fn sample(
        &self,
        params: CreateMessageParams,
    ) -> Result<CreateMessageResult, AskFailure> {
        self.ask_typed("sampling/createMessage", Some(&params))
            .await
    }

    /// Asks the client for its roots, and waits for the answer.
    ///
    /// # Errors
    ///
    /// When the client cannot be asked, or its answer cannot be read.
    pub async fn roots(&self) -> Result<Vec<Root>, AskFailure> {
        let answer: ListRootsResult = self.ask_typed("roots/list", None::<&()>).await?;
        Ok(answer.roots)
    }

    async fn ask_typed<T: DeserializeOwned>(
        &self,
        method: &'static str,
        params: Option<&impl Serialize>,
    ) -> Result<T, AskFailure> {
        let params = params.map(Payload::of).transpose()?;
        let answer = self.inner.ask(method, params).await?;
        Ok(answer.parse()?)
    }

    /// Reads the form with this key that the user filled in after [`Questions`](crate::Questions). `None` if the user did not, or if the answer does not fit.
    #[must_use]
    pub fn accepted<T: DeserializeOwned + JsonSchema>(&self, key: &str) -> Option<T> {
        let answer: ElicitResult = self.answer(key)?;
        let is_accepted = answer.action == ElicitAction::Accept;
        is_accepted.then(|| read_form(answer.content).ok())?
    }

    /// Reads the answer with this key that the client sent after [`Questions`](crate::Questions) (modern era). `None` if there is none, or if it is not a `T`.
    #[must_use]
    pub fn answer<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        let answers: Value = self.input.as_ref()?.answers.as_ref()?.parse().ok()?;
        T::deserialize(answers.get(key)?).ok()
    }

    /// Returns the state that the client returned after [`Questions`](crate::Questions) (modern era). The client may have tampered with it.
    #[must_use]
    pub fn state(&self) -> Option<&str> {
        self.input.as_ref()?.state.as_deref()
    }
}

/// Reads the content of a form that the user accepted. The client may not have compared it with the form.
fn read_form<T: DeserializeOwned + JsonSchema>(content: Option<Members>) -> Result<T, AskFailure> {
    let content = Value::Object(content.unwrap_or_default());
    let schema = schema::of_input::<T>();
    if has_limits(&schema) {
        let problems = problems(&schema, &content);
        if !problems.is_empty() {
            return Err(AskFailure::Answer(serde::de::Error::custom(
                problems.join("; "),
            )));
        }
    }
    Ok(T::deserialize(&content).or_else(|error| read_with_integers(content, error))?)
}

/// What the user did with a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Elicited<T> {
    /// Filled it in.
    Accepted(T),
    /// Went away without a choice.
    Cancelled,
    /// Refused to fill it in.
    Declined,
}

impl<T> Elicited<T> {
    /// Returns the form, if the user filled it in.
    pub fn accepted(self) -> Option<T> {
        match self {
            Elicited::Accepted(form) => Some(form),
            Elicited::Cancelled | Elicited::Declined => None,
        }
    }
}

/// The reason why a question has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskFailure {
    /// The client cannot be asked, or did not answer.
    #[error(transparent)]
    Ask(#[from] ServiceError),
    /// The answer does not have the form that was asked for, or the question cannot be written.
    #[error("the answer of the client cannot be read: {0}")]
    Answer(#[from] serde_json::Error),
    /// The type is no form.
    #[error(transparent)]
    Form(#[from] FormError),
}

impl AskFailure {
    pub(crate) fn service_error(&self) -> Option<&ServiceError> {
        match self {
            AskFailure::Ask(error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_accepted_form_is_returned() {
        assert_eq!(Elicited::Accepted(7).accepted(), Some(7));
        assert_eq!(Elicited::<u8>::Declined.accepted(), None);
        assert_eq!(Elicited::<u8>::Cancelled.accepted(), None);
    }
}
