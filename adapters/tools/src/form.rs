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
        members.insert(
            "items".to_owned(),
            match items.get("oneOf") {
                Some(choices) => json!({"anyOf": choices}),
                None => json!({"type": "string", "enum": items.get("enum")?}),
            },
        );
        members.remove("uniqueItems");
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

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Default, Deserialize, Serialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    enum Plain {
        #[default]
        Red,
        Blue,
    }

    #[derive(Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    enum Described {
        /// A cat
        Cat,
        /// A dog
        Dog,
    }

    fn seven() -> u8 {
        7
    }

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Wide {
        #[schemars(extend("format" = "email"))]
        mail: String,
        #[schemars(extend("format" = "uuid"))]
        id: String,
        #[serde(default)]
        note: Option<String>,
        #[serde(default = "seven")]
        count: u8,
        /// The colour
        plain: Option<Plain>,
        #[serde(default)]
        first: Plain,
        described: Option<Described>,
        plains: BTreeSet<Number>,
        describeds: Vec<Described>,
    }

    #[derive(PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    enum Number {
        One,
        Two,
    }

    #[test]
    fn fields_have_one_type_and_only_what_a_form_may_have() {
        let asked = form::<Wide>("?").expect("all fields are plain");
        let asked = serde_json::to_value(asked.requested_schema).expect("JSON");
        let animals =
            json!([{"const": "cat", "title": "A cat"}, {"const": "dog", "title": "A dog"}]);
        let fields = json!({
            "mail": {"type": "string", "format": "email"},
            "id": {"type": "string"},
            "note": {"type": "string"},
            "count": {"type": "integer", "minimum": 0, "maximum": 255, "default": 7},
            "plain": {"type": "string", "description": "The colour", "enum": ["red", "blue"]},
            "first": {"type": "string", "enum": ["red", "blue"], "default": "red"},
            "described": {"type": "string", "oneOf": animals},
            "plains": {"type": "array", "items": {"type": "string", "enum": ["one", "two"]}},
            "describeds": {"type": "array", "items": {"anyOf": animals}},
        });
        assert_eq!(asked["properties"], fields);
        let required = json!(["mail", "id", "plains", "describeds"]);
        assert_eq!(asked["required"], required);
    }

    #[test]
    fn form_without_required_fields_names_none() {
        #[derive(Deserialize, JsonSchema)]
        #[expect(dead_code, reason = "only its schema is used")]
        struct Optional {
            note: Option<String>,
        }
        let asked = form::<Optional>("?").expect("its field is plain");
        assert_eq!(asked.requested_schema.required, None);
    }

    #[test]
    fn types_without_named_fields_are_no_form() {
        let error = form::<BTreeMap<String, String>>("?").err();
        assert!(matches!(error, Some(FormError::NoObject(_))), "{error:?}");
        let error = form::<Vec<u8>>("?").err();
        assert!(matches!(error, Some(FormError::NoObject(_))), "{error:?}");
    }

    #[test]
    fn field_of_several_types_is_refused() {
        #[derive(Deserialize, JsonSchema)]
        #[serde(untagged)]
        #[expect(dead_code, reason = "only its schema is used")]
        enum Either {
            Number(u8),
            Text(String),
        }
        #[derive(Deserialize, JsonSchema)]
        #[expect(dead_code, reason = "only its schema is used")]
        struct Mixed {
            either: Either,
        }
        let error = form::<Mixed>("?").err();
        assert_eq!(error, Some(FormError::Field("either".to_owned())));
    }
}
