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
        Shape::inside(schema, schema, &[]).unwrap_or(Shape::Any)
    }

    /// The shape of a part of a schema, which was reached through these references. `None` if one of them is that part: it adds no type.
    fn inside(schema: &Value, root: &Value, through: &[&str]) -> Option<Shape> {
        if let Some(kind) = schema.get("type") {
            return Some(match kind.as_str() {
                Some("null") => Shape::Null,
                Some("object") => Shape::Object,
                Some("string") => Shape::Text,
                _ => Shape::Other,
            });
        }
        let branches = ["oneOf", "anyOf"]
            .iter()
            .find_map(|key| schema.get(*key)?.as_array());
        if let Some(branches) = branches {
            let shapes = branches
                .iter()
                .filter_map(|branch| Shape::inside(branch, root, through));
            return shapes.reduce(|one, other| if one == other { one } else { Shape::Other });
        }
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            if through.contains(&reference) {
                return None;
            }
            return match target(schema, root) {
                Some(target) => Shape::inside(target, root, &[through, &[reference]].concat()),
                None => Some(Shape::Any),
            };
        }
        let is_chosen = schema.get("enum").is_some() || schema.get("const").is_some();
        Some(if is_chosen { Shape::Other } else { Shape::Any })
    }
}

/// The most references that lead from one schema to another.
const MAX_REFERENCES: usize = 16;

/// Follows the `$ref` of a schema inside its root, also from one to the next.
pub(crate) fn resolve<'a>(mut schema: &'a Value, root: &'a Value) -> &'a Value {
    for _ in 0..MAX_REFERENCES {
        match target(schema, root) {
            Some(target) => schema = target,
            None => break,
        }
    }
    schema
}

/// The target of the `$ref` of a schema.
fn target<'a>(schema: &Value, root: &'a Value) -> Option<&'a Value> {
    root.pointer(schema.get("$ref")?.as_str()?.strip_prefix('#')?)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shape_of_a_recursive_type_is_that_of_its_other_parts() {
        #[derive(schemars::JsonSchema)]
        #[schemars(untagged)]
        #[expect(dead_code, reason = "only its schema is used")]
        enum Node {
            Leaf { name: String },
            Inner(Box<Node>),
        }
        assert_eq!(Shape::of(&of_output::<Node>()), Shape::Object);
        assert_eq!(Shape::of(&json!({"$ref": "#"})), Shape::Any);
        let schema = json!({"$ref": "#/$defs/a", "$defs": {"a": {"oneOf": [{"$ref": "#/$defs/a"}, {"type": "string"}]}}});
        assert_eq!(Shape::of(&schema), Shape::Text);
    }

    #[test]
    fn shape_of_choices_is_the_one_that_all_have() {
        let shape = |schema: Value| Shape::of(&schema);
        let (text, object) = (json!({"type": "string"}), json!({"type": "object"}));
        assert_eq!(shape(json!({"anyOf": [text, text]})), Shape::Text);
        assert_eq!(shape(json!({"oneOf": [object, object]})), Shape::Object);
        assert_eq!(shape(json!({"oneOf": [text, object]})), Shape::Other);
        assert_eq!(shape(json!({"type": ["string", "null"]})), Shape::Other);
        assert_eq!(shape(json!({"type": "null"})), Shape::Null);
        assert_eq!(shape(json!({"enum": ["a"]})), Shape::Other);
        assert_eq!(shape(json!({"const": "a"})), Shape::Other);
        assert_eq!(shape(json!({"$ref": "#/$defs/none"})), Shape::Any);
        assert_eq!(shape(json!(true)), Shape::Any);
    }

    #[test]
    fn title_that_is_not_the_name_of_the_type_is_kept() {
        #[derive(schemars::JsonSchema)]
        struct Plain {}
        #[derive(schemars::JsonSchema)]
        #[schemars(title = "A title")]
        struct Titled {}
        assert_eq!(of_input::<Plain>().get("title"), None);
        assert_eq!(of_input::<Titled>()["title"], "A title");
    }
}
