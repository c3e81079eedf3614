//! The error of a function, which decides how the client learns of it.

use std::error::Error as StdError;
use std::fmt;

use everlink::protocol::code;
use everlink::{ErrorObject, Payload};
use everlink_handle::ServiceError;
use everlink_types::CallToolResult;
use serde_json::json;

use crate::context::AskFailure;

/// The error of a function.
///
/// Every error converts to it with `?`. The model reads the text of the error and of its sources, in a result with `isError`. An [`ErrorObject`] stays a
/// protocol error, and a failed question to a client becomes one that names the capability that the client lacks. Like `anyhow::Error`, this type is no [`std::error::Error`] itself.
///
/// ```
/// use everlink_tools::{Error, Result};
///
/// async fn parse(text: String) -> Result<f64> {
///     let number: f64 = text.parse()?;
///     if number < 0.0 {
///         return Err(Error::new("the number must not be negative"));
///     }
///     Ok(number)
/// }
/// ```
pub struct Error(Kind);

enum Kind {
    /// The function failed. The model reads why.
    Failed(String),
    /// The request failed. The program at the other end reads why.
    Protocol(Box<ErrorObject>),
}

impl Error {
    /// An error with this text for the model.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Error {
        Error(Kind::Failed(text.into()))
    }

    /// A protocol error: the request is answered with it instead of a result.
    #[must_use]
    pub fn protocol(error: ErrorObject) -> Error {
        Error(Kind::Protocol(Box::new(error)))
    }

    /// The protocol error for parameters that cannot be used, with this text.
    #[must_use]
    pub fn invalid_params(text: impl Into<String>) -> Error {
        Error::protocol(ErrorObject::new(code::INVALID_PARAMS, text))
    }

    /// The protocol error for a resource that does not exist.
    #[must_use]
    pub fn resource_not_found(uri: &str) -> Error {
        let mut error = ErrorObject::new(
            code::RESOURCE_NOT_FOUND,
            format!("Resource not found: {uri}"),
        );
        error.data = Payload::of(&json!({"uri": uri})).ok();
        Error::protocol(error)
    }

    /// Converts the error of a tool to its result, or to a protocol error.
    pub(crate) fn into_tool_result(self) -> Result<CallToolResult, ErrorObject> {
        match self.0 {
            Kind::Failed(text) => Ok(CallToolResult::error(text)),
            Kind::Protocol(error) => Err(*error),
        }
    }

    /// Converts the error of any other function: requests without a place for a failure fail with a protocol error.
    pub(crate) fn into_error_object(self) -> ErrorObject {
        match self.0 {
            Kind::Failed(text) => ErrorObject::new(code::INTERNAL_ERROR, text),
            Kind::Protocol(error) => *error,
        }
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for Error {
    fn from(error: E) -> Error {
        let this: &(dyn StdError + 'static) = &error;
        if let Some(error) = this.downcast_ref::<ErrorObject>() {
            return Error::protocol(error.clone());
        }
        let ask = this.downcast_ref::<ServiceError>();
        let ask = ask.or_else(|| this.downcast_ref().and_then(AskFailure::service_error));
        if let Some(ask) = ask {
            return Error::protocol(ErrorObject::from(ask.clone()));
        }
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            // Many errors repeat their source in their own text.
            if !text.ends_with(&cause_text) {
                text = format!("{text}: {cause_text}");
            }
            source = cause.source();
        }
        Error::new(text)
    }
}

/// The protocol error for a request that is no call of a tool, and for a task: a failure that a model would read becomes an internal error.
impl From<Error> for ErrorObject {
    fn from(error: Error) -> ErrorObject {
        error.into_error_object()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Failed(text) => f.write_str(text),
            Kind::Protocol(error) => f.write_str(error.text()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Failed(text) => f.debug_tuple("Failed").field(text).finish(),
            Kind::Protocol(error) => f.debug_tuple("Protocol").field(error).finish(),
        }
    }
}
