//! A tool with the types of its arguments and its result: makes its schemas, reads its arguments and writes its result.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use everlink::ErrorObject;
use everlink::Payload;
use everlink::protocol::{Version, code};
use everlink_types::{CallToolResult, Tool};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::json;
use serde_json::value::RawValue;

use crate::arguments::ArgumentRules;
use crate::check::has_limits;
use crate::context::Context;
use crate::dispatch::written;
use crate::error::Error;
use crate::function::{Answer, Started};
use crate::output::{Output, OutputShape};
use crate::registry::ToolEntry;
use crate::schema::{self, Shape};

/// A tool with arguments of type `A` and results of type `R`.
pub(crate) struct TypedTool<A, R> {
    tool: Tool,
    rules: ArgumentRules,
    output: Shape,
    /// Whether the output schema says more than the type ensures.
    is_output_checked: bool,
    types: PhantomData<fn(A) -> R>,
}

impl<A, R> TypedTool<A, R> {
    pub(crate) fn name(&self) -> &str {
        &self.tool.name
    }
}

impl<A: DeserializeOwned + JsonSchema, R: Output> TypedTool<A, R> {
    /// A tool with this description. Its schemas are made from the types, unless it has some.
    pub(crate) fn new(mut tool: Tool) -> TypedTool<A, R> {
        let is_by_hand = tool.input_schema != json!({"type": "object"});
        let (input, shape) = schema::of_arguments::<A>(&tool.name);
        if !is_by_hand {
            tool.input_schema = input;
        }
        let mut output = R::describe();
        let is_output_by_hand = tool.output_schema.is_some();
        match &tool.output_schema {
            // A tool with an output schema must return structured content, also if it is a text.
            Some(by_hand) => {
                output.shape = match Shape::of(by_hand) {
                    Shape::Object => Shape::Object,
                    _ => Shape::Other,
                }
            }
            None => tool.output_schema = output.schema,
        }
        let is_output_checked =
            is_output_by_hand || tool.output_schema.as_ref().is_some_and(has_limits);
        TypedTool {
            rules: ArgumentRules::new(tool.input_schema.clone(), shape, is_by_hand),
            output: output.shape,
            is_output_checked,
            tool,
            types: PhantomData,
        }
    }

    /// Makes the entry of an `async` function.
    pub(crate) fn asynchronous<F, Fut>(self, function: F) -> ToolEntry
    where
        F: Fn(A, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Error>> + Send + 'static,
        A: 'static,
    {
        self.entry(move |arguments, context, output| {
            let result = function(arguments, context);
            Started::Future(Box::pin(async move { finish(result.await, output) }))
        })
    }

    /// Makes the entry of a function that may block.
    pub(crate) fn blocking<F>(self, function: F) -> ToolEntry
    where
        F: Fn(A, Context) -> Result<R, Error> + Send + Sync + 'static,
        A: Send + 'static,
    {
        let function = Arc::new(function);
        self.entry(move |arguments, context, output| {
            let function = Arc::clone(&function);
            Started::Blocking(Box::new(move || {
                finish(function(arguments, context), output)
            }))
        })
    }

    fn entry(
        self,
        start: impl Fn(A, Context, OutputShape) -> Started + Send + Sync + 'static,
    ) -> ToolEntry
    where
        A: 'static,
    {
        let listed = Payload::of(&self.tool).expect("a tool has only texts as keys");
        // Before 2026-07-28, structured content is always an object.
        let listed_legacy = (self.output == Shape::Other).then(|| {
            let mut tool = self.tool.clone();
            tool.output_schema = None;
            Payload::of(&tool).expect("a tool has only texts as keys")
        });
        let (name, rules, shape) = (self.tool.name, self.rules, self.output);
        let is_output_checked = self.is_output_checked;
        let output_schema = self.tool.output_schema.map(Arc::new);
        let call = move |arguments: Option<&RawValue>, context: Context| {
            let version = context.peer().version;
            match rules.read(arguments) {
                Ok(arguments) => {
                    let output = OutputShape {
                        shape,
                        era: version.era(),
                        schema: output_schema.clone(),
                        is_checked: is_output_checked,
                    };
                    start(arguments, context, output)
                }
                Err(problem) => Started::Done(bad_arguments(&name, &problem, version)),
            }
        };
        ToolEntry {
            listed,
            listed_legacy,
            call: Arc::new(call),
        }
    }
}

/// Answers a call with bad arguments. Since 2025-11-25 the model reads the problem in a result, so that it can correct itself. In earlier versions it is a
/// protocol error.
fn bad_arguments(name: &str, problem: &str, version: Version) -> Answer {
    let text = format!("Invalid arguments for tool {name}: {problem}");
    if version < Version::V2025_11_25 {
        return Err(ErrorObject::new(code::INVALID_PARAMS, text));
    }
    written(&CallToolResult::error(text))
}

/// Converts what a function returned to an answer.
fn finish<R: Output>(result: Result<R, Error>, output: OutputShape) -> Answer {
    match result.and_then(|value| value.into_reply(output)) {
        Ok(reply) => reply.into_response(),
        Err(error) => written(&error.into_tool_result()?),
    }
}
