//! Reads the arguments of a tool as a type, and says what is wrong with them.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::check::{has_limits, problems};
use crate::schema::Shape;

/// How the arguments of a tool are read.
pub(crate) struct ArgumentRules {
    schema: Value,
    /// Whether the type is `()`.
    is_unit: bool,
    /// Whether the schema says more than serde checks.
    is_checked: bool,
}

impl ArgumentRules {
    /// Rules for a type of this shape and a schema, which was written by hand or made from the type.
    pub(crate) fn new(schema: Value, shape: Shape, is_by_hand: bool) -> ArgumentRules {
        ArgumentRules {
            is_unit: shape == Shape::Null,
            is_checked: is_by_hand || has_limits(&schema),
            schema,
        }
    }

    /// Reads the arguments. The error says what is wrong with which of them.
    pub(crate) fn read<T: DeserializeOwned>(
        &self,
        arguments: Option<&RawValue>,
    ) -> Result<T, String> {
        let text = arguments.map_or("{}", RawValue::get);
        if self.is_checked || self.is_unit {
            let problems = problems(&self.schema, &parse(text)?);
            if !problems.is_empty() {
                return Err(problems.join("; "));
            }
        }
        let text = if self.is_unit { "null" } else { text };
        serde_json::from_str(text).map_err(|error| {
            let problems = parse(text).map(|value| problems(&self.schema, &value));
            match problems {
                Ok(problems) if !problems.is_empty() => problems.join("; "),
                _ => without_position(&error),
            }
        })
    }
}

fn parse(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| without_position(&error))
}

/// The text of an error, without the line and column, which mean nothing to a model.
fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}
