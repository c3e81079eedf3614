//! Makes the JSON Schemas of types (2020-12). Does not know what they are used for.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

/// The schema of a value that is read: without references where possible, because some hosts do not resolve them.
pub(crate) fn of_input<T: JsonSchema>() -> Value {
    root_schema::<T>(SchemaSettings::draft2020_12().for_deserialize())
}

/// The schema of a value that is written.
pub(crate) fn of_output<T: JsonSchema>() -> Value {
    root_schema::<T>(SchemaSettings::draft2020_12().for_serialize())
}

fn root_schema<T: JsonSchema>(settings: SchemaSettings) -> Value {
    let settings = settings.with(|settings| {
        // 2020-12 is what the protocol assumes.
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let mut schema = settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value();
    if let Some(members) = schema.as_object_mut() {
        // The name of the Rust type means nothing to a model.
        if members
            .get("title")
            .is_some_and(|title| *title == *T::schema_name())
        {
            members.remove("title");
        }
    }
    schema
}

/// The JSON type that a schema allows, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Any value.
    Any,
    /// Only null.
    Null,
    /// Only objects.
    Object,
    /// Another type, or several.
    Other,
    /// Only texts.
    Text,
}

impl Shape {
    pub(crate) fn of(schema: &Value) -> Shape {
        if let Some(kind) = schema.get("type") {
            return match kind.as_str() {
                Some("null") => Shape::Null,
                Some("object") => Shape::Object,
                Some("string") => Shape::Text,
                _ => Shape::Other,
            };
        }
        let branches = ["oneOf", "anyOf"]
            .iter()
            .find_map(|key| schema.get(*key)?.as_array());
        match branches {
            Some(branches) => {
                let mut shapes = branches.iter().map(Shape::of);
                let first = shapes.next().unwrap_or(Shape::Any);
                if shapes.all(|shape| shape == first) {
                    first
                } else {
                    Shape::Other
                }
            }
            None if schema.get("$ref").is_some() => Shape::of(resolve(schema, schema)),
            None if schema.get("enum").is_some() || schema.get("const").is_some() => Shape::Other,
            None => Shape::Any,
        }
    }
}

/// Follows the `$ref` of a schema inside its root.
pub(crate) fn resolve<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    let target = schema.get("$ref").and_then(Value::as_str);
    target
        .and_then(|target| root.pointer(target.strip_prefix('#')?))
        .unwrap_or(schema)
}

/// The schema of the arguments of a tool: always an object.
///
/// # Panics
///
/// When the type is no object.
pub(crate) fn of_arguments<T: JsonSchema>(tool: &str) -> (Value, Shape) {
    let mut schema = of_input::<T>();
    let shape = Shape::of(&schema);
    match shape {
        Shape::Null => schema = json!({"type": "object", "additionalProperties": false}),
        Shape::Any => schema = json!({"type": "object"}),
        Shape::Object => schema["type"] = "object".into(),
        Shape::Other | Shape::Text => panic!(
            "the arguments of the tool `{tool}` are not an object: `{}` cannot have named arguments",
            T::schema_name()
        ),
    }
    (schema, shape)
}
