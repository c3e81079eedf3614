//! What a tool returns, and how it becomes a result.

use std::sync::Arc;

use everlink::protocol::Era;
use everlink::server::InputRequired;
use everlink::{ErrorObject, Payload};
use everlink_handle::Response;
use everlink_types::{CallToolResult, Content};
use memchr::memmem;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::check::{NOT_FINITE, Subject, problems_of};
use crate::error::Error;
use crate::schema::{self, Shape};

/// What a tool can return: any type that serde writes and `schemars` describes, [`WithText`], and [`Reply`].
pub trait Output: Send + 'static {
    /// Describes the values of this type.
    #[doc(hidden)]
    fn describe() -> OutputDescription;

    /// Converts the value, whose schema has this shape, to a reply.
    #[doc(hidden)]
    fn into_reply(self, shape: OutputShape) -> Result<Reply, Error>;
}

/// What is known of a tool's output before it is called. Only for [`Output`].
#[derive(Clone, Debug)]
pub struct OutputDescription {
    /// The schema of the structured content, if there is any.
    pub(crate) schema: Option<Value>,
    pub(crate) shape: Shape,
}

/// The shape of a tool's output, and the era of its client. Only for [`Output`].
#[derive(Clone, Debug)]
pub struct OutputShape {
    pub(crate) shape: Shape,
    pub(crate) era: Era,
    /// The schema that is listed.
    pub(crate) schema: Option<Arc<Value>>,
    /// Whether the schema says more than the type ensures.
    pub(crate) is_checked: bool,
}

impl OutputShape {
    /// Fails if structured content does not fit the schema. A client would refuse it.
    fn check(&self, json: &RawValue) -> Result<(), Error> {
        let json = json.get();
        let problems = |schema| -> Result<Vec<String>, Error> {
            let value = serde_json::from_str(json)?;
            Ok(problems_of(Subject::Result, schema, &value))
        };
        let found = match &self.schema {
            Some(schema) if self.is_checked => problems(schema)?,
            _ if self.shape == Shape::Object && !json.starts_with('{') => {
                vec!["it is no object".to_owned()]
            }
            // The type ensures all but that its numbers are finite.
            Some(schema) if memmem::find(json.as_bytes(), b"null").is_some() => {
                let mut found = problems(schema)?;
                found.retain(|problem| problem.ends_with(NOT_FINITE));
                found
            }
            _ => return Ok(()),
        };
        match found.is_empty() {
            true => Ok(()),
            false => Err(mismatch(&found.join("; "))),
        }
    }
}

fn mismatch(problem: &str) -> Error {
    Error::new(format!(
        "The result of the tool does not fit its output schema: {problem}"
    ))
}

impl<T: Serialize + JsonSchema + Send + 'static> Output for T {
    fn describe() -> OutputDescription {
        let mut schema = schema::of_output::<T>();
        let shape = Shape::of(&schema);
        let schema = match shape {
            Shape::Text | Shape::Null | Shape::Any => None,
            Shape::Object => {
                schema["type"] = "object".into();
                Some(schema)
            }
            Shape::Other => Some(schema),
        };
        OutputDescription { schema, shape }
    }

    fn into_reply(self, output: OutputShape) -> Result<Reply, Error> {
        match output.shape {
            Shape::Text => match serde_json::to_value(&self)? {
                Value::String(text) => Ok(Content::from(text).into()),
                other => Ok(Content::text(other.to_string()).into()),
            },
            Shape::Null => Ok(Vec::new().into()),
            _ => {
                let json = to_raw_value(&self)?;
                structured(json.get(), &json, &output)
            }
        }
    }
}

/// A value for programs, with a text for the model that is not just its JSON.
///
/// ```
/// # use everlink_tools::{JsonSchema, Result, WithText};
/// #[derive(serde::Serialize, JsonSchema)]
/// struct Weather {
///     celsius: f64,
/// }
///
/// async fn weather((): (), _: everlink_tools::Context) -> Result<WithText<Weather>> {
///     Ok(WithText::new(Weather { celsius: 21.5 }, "It is warm"))
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithText<T> {
    value: T,
    text: String,
}

impl<T> WithText<T> {
    /// This value and this text.
    #[must_use]
    pub fn new(value: T, text: impl Into<String>) -> WithText<T> {
        WithText {
            value,
            text: text.into(),
        }
    }
}

impl<T: Serialize + JsonSchema + Send + 'static> Output for WithText<T> {
    fn describe() -> OutputDescription {
        <T as Output>::describe()
    }

    fn into_reply(self, output: OutputShape) -> Result<Reply, Error> {
        structured(&self.text, &to_raw_value(&self.value)?, &output)
    }
}

/// A result with a text and a structured content. A legacy client knows only objects as structured content.
fn structured(text: &str, json: &RawValue, output: &OutputShape) -> Result<Reply, Error> {
    output.check(json)?;
    #[derive(Serialize)]
    struct Text<'a> {
        r#type: &'static str,
        text: &'a str,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Structured<'a> {
        content: [Text<'a>; 1],
        #[serde(skip_serializing_if = "Option::is_none")]
        structured_content: Option<&'a RawValue>,
    }
    let is_understood = match output.shape {
        Shape::Object => true,
        Shape::Other => output.era == Era::Modern,
        Shape::Any => json.get().starts_with('{'),
        Shape::Null | Shape::Text => false,
    };
    let result = Structured {
        content: [Text {
            r#type: "text",
            text,
        }],
        structured_content: is_understood.then_some(json),
    };
    Ok(Payload::of(&result)?.into())
}

/// The reply of a tool that has content blocks, or needs input first.
///
/// ```
/// # use everlink_tools::{Reply, Result, types::Content};
/// async fn screenshot((): (), _: everlink_tools::Context) -> Result<Reply> {
///     Ok(vec![Content::text("This is the screen:"), Content::image("iVBORw0KGgo=", "image/png")].into())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Reply(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Input(InputRequired),
    Payload(Payload),
    Result(Box<CallToolResult>),
}

impl Reply {
    pub(crate) fn into_response(self) -> Result<Response, ErrorObject> {
        match self.0 {
            Kind::Input(input) => Ok(input.into()),
            Kind::Payload(payload) => Ok(payload.into()),
            Kind::Result(result) => match Payload::of(&result) {
                Ok(payload) => Ok(payload.into()),
                Err(error) => Err(Error::from(error).into_error_object()),
            },
        }
    }
}

impl From<CallToolResult> for Reply {
    fn from(result: CallToolResult) -> Reply {
        Reply(Kind::Result(Box::new(result)))
    }
}

impl From<Vec<Content>> for Reply {
    fn from(content: Vec<Content>) -> Reply {
        CallToolResult::new(content).into()
    }
}

impl From<&str> for Reply {
    fn from(text: &str) -> Reply {
        Content::from(text).into()
    }
}

impl From<String> for Reply {
    fn from(text: String) -> Reply {
        Content::from(text).into()
    }
}

impl From<Content> for Reply {
    fn from(content: Content) -> Reply {
        vec![content].into()
    }
}

/// The client must send this input first (modern era). The tool is then called again; see [`Context::answer`](crate::Context::answer).
impl From<InputRequired> for Reply {
    fn from(input: InputRequired) -> Reply {
        Reply(Kind::Input(input))
    }
}

/// A whole result that is already written, for example that of another server.
impl From<Payload> for Reply {
    fn from(payload: Payload) -> Reply {
        Reply(Kind::Payload(payload))
    }
}

impl Output for Reply {
    fn describe() -> OutputDescription {
        OutputDescription {
            schema: None,
            shape: Shape::Any,
        }
    }

    /// Only a result that the function made itself is compared with a schema: one that is already written is not read again.
    fn into_reply(mut self, output: OutputShape) -> Result<Reply, Error> {
        if let Kind::Result(result) = &mut self.0 {
            match &result.structured_content {
                Some(content) => {
                    output.check(&to_raw_value(content)?)?;
                    // A legacy client knows only objects.
                    if output.era == Era::Legacy && !content.is_object() {
                        result.structured_content = None;
                    }
                }
                None if output.schema.is_some() && !result.is_error() => {
                    return Err(mismatch("it has no structured content"));
                }
                None => {}
            }
        }
        Ok(self)
    }
}
