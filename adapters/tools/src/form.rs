//! Makes the form of a type: the restricted schema that clients can show to a user.

use everlink_types::{ElicitFormParams, Field, Form};
use schemars::JsonSchema;
use serde_json::{Map, Value, json};

use crate::schema::{self, Shape, resolve};

/// The formats of texts that a form may have.
const FORMATS: [&str; 4] = ["date", "date-time", "email", "uri"];

/// The reason why a type is no form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormError {
    /// A field is not a plain value.
    #[error(
        "the field `{0}` cannot be shown in a form: use a text, a number, a boolean, an enum without data or a list of such enums"
    )]
    Field(String),
    /// The type is no struct.
    #[error("`{0}` is no form: use a struct with named fields")]
    NoObject(String),
}

/// Makes a question with the form of `T`, for [`Context::elicit`](crate::Context::elicit) and for a [`Reply`](crate::Reply) that requires input.
///
/// # Errors
///
/// When `T` is no struct, or a field is not a plain value.
pub fn form<T: JsonSchema>(message: impl Into<String>) -> Result<ElicitFormParams, FormError> {
    let schema = schema::of_input::<T>();
    let properties = schema["properties"].as_object();
    if Shape::of(&schema) != Shape::Object || properties.is_none() {
        return Err(FormError::NoObject(T::schema_name().into_owned()));
    }
    let mut form = Form::new();
    for (name, property) in properties.into_iter().flatten() {
        let field = field(property, &schema).ok_or_else(|| FormError::Field(name.clone()))?;
        form = form.with_field(name, field);
    }
    let required = schema["required"].as_array().into_iter().flatten();
    let required: Vec<_> = required
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    form.required = (!required.is_empty()).then_some(required);
    Ok(ElicitFormParams::new(message, form))
}

/// Makes the schema of a field. `None` if it is not a plain value.
fn field(property: &Value, root: &Value) -> Option<Field> {
    let mut members = plain(property, root)?;
    if members.get("type")? == "array" {
        let items = plain(members.get("items")?, root)?;
        let is_choice = items.contains_key("enum") || items.contains_key("oneOf");
        members.insert(
            "items".to_owned(),
            match items.get("oneOf") {
                Some(choices) => json!({"anyOf": choices}),
                None => json!({"type": "string", "enum": items.get("enum")?}),
            },
        );
        members.remove("uniqueItems");
        is_choice.then_some(())?;
    }
    serde_json::from_value(Value::Object(members)).ok()
}

/// Reduces a schema to what a form may have: one type, without null.
fn plain(property: &Value, root: &Value) -> Option<Map<String, Value>> {
    let mut members = resolve(property, root).as_object()?.clone();
    members.remove("$ref");
    // What is optional is not required; the form has no null.
    for key in ["anyOf", "oneOf"] {
        let branches = members.get(key).and_then(Value::as_array);
        let mut others = branches
            .into_iter()
            .flatten()
            .filter(|it| it["type"] != "null");
        if let (Some(only), None) = (others.next(), others.next()) {
            let inner = plain(only, root)?;
            members.remove(key);
            members.extend(inner.into_iter().filter(|(key, _)| key != "description"));
        }
    }
    if let Some(Value::Array(kinds)) = members.get("type") {
        let mut kinds = kinds.iter().filter(|kind| *kind != "null");
        let kind = kinds.next()?.clone();
        kinds.next().is_none().then_some(())?;
        members.insert("type".to_owned(), kind);
    }
    if let Some(Value::Array(choices)) = members.get_mut("enum") {
        choices.retain(|choice| !choice.is_null());
    }
    if let Some(Value::Array(choices)) = members.get("oneOf") {
        let titled = choices.iter().map(|choice| {
            let value = choice.get("const")?.as_str()?;
            let title = choice.get("title").or(choice.get("description"));
            Some(json!({"const": value, "title": title.and_then(Value::as_str).unwrap_or(value)}))
        });
        let titled = titled.collect::<Option<Vec<_>>>()?;
        members.insert("type".to_owned(), "string".into());
        members.insert("oneOf".to_owned(), titled.into());
    }
    members.retain(|key, value| match &**key {
        "format" => value
            .as_str()
            .is_some_and(|format| FORMATS.contains(&format)),
        "default" => !value.is_null(),
        _ => true,
    });
    Some(members)
}
