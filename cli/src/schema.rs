//! Reads the parameters and their types from a JSON schema. Checks no values.

use serde_json::Value;

/// The maximum number of references that are followed one after the other, and of types within each other. 8 is more than people write, and it ends a
/// cycle.
const MAX_DEPTH: usize = 8;

/// The maximum number of choices that are shown.
const MAX_CHOICES: usize = 12;

/// A parameter of a tool or a prompt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Parameter<'a> {
    pub(crate) name: &'a str,
    /// The type, in words.
    pub(crate) kind: String,
    pub(crate) is_required: bool,
    pub(crate) about: Option<&'a str>,
    pub(crate) default: Option<&'a Value>,
}

/// Returns the parameters in the schema of a tool, required parameters first.
pub(crate) fn parameters(schema: &Value) -> Vec<Parameter<'_>> {
    let required = schema["required"].as_array();
    let is_required =
        |name: &str| required.is_some_and(|required| required.iter().any(|it| it == name));
    let properties = schema["properties"].as_object().into_iter().flatten();
    let mut parameters: Vec<_> = properties
        .map(|(name, property)| {
            let target = resolved(schema, property);
            let text_of = |key: &str| property[key].as_str().or_else(|| target[key].as_str());
            Parameter {
                name,
                kind: kind(schema, property, MAX_DEPTH),
                is_required: is_required(name),
                about: text_of("description").or_else(|| text_of("title")),
                default: property.get("default"),
            }
        })
        .collect();
    parameters.sort_by_key(|parameter| !parameter.is_required);
    parameters
}

/// Returns the parameters of a prompt. A prompt lists them without a schema, and all of them are text.
pub(crate) fn prompt_parameters(arguments: &Value) -> Vec<Parameter<'_>> {
    let arguments = arguments.as_array().into_iter().flatten();
    let parameter = |argument| {
        let argument: &Value = argument;
        Some(Parameter {
            name: argument["name"].as_str()?,
            kind: "string".to_owned(),
            is_required: argument["required"] == true,
            about: argument["description"].as_str(),
            default: None,
        })
    };
    arguments.filter_map(parameter).collect()
}

/// Returns the variables of a URI template (RFC 6570). All of them are text, and those of a query (`{?a,b}`, `{&c}`) may be left out.
pub(crate) fn template_parameters(template: &str) -> Vec<Parameter<'_>> {
    let expressions = template.split('{').skip(1);
    let expressions = expressions.filter_map(|rest| Some(rest.split_once('}')?.0));
    let variables = expressions.flat_map(|expression| {
        let is_required = !expression.starts_with(['?', '&']);
        let names = expression.trim_start_matches(['+', '#', '.', '/', ';', '?', '&']);
        names.split(',').map(move |name| (name, is_required))
    });
    variables
        .map(|(name, is_required)| Parameter {
            // `*` and `:3` say how a value is written.
            name: name.split(['*', ':']).next().unwrap_or_default(),
            kind: "string".to_owned(),
            is_required,
            about: None,
            default: None,
        })
        .collect()
}

/// Whether the schema allows text, but no type that fits `value`. False if the schema does not say.
pub(crate) fn wants_text(schema: &Value, name: &str, value: &Value) -> bool {
    let mut types = Vec::new();
    collect_types(schema, &schema["properties"][name], MAX_DEPTH, &mut types);
    let fits = |kind: &&str| match value {
        Value::Number(number) => *kind == "number" || *kind == "integer" && !number.is_f64(),
        value => *kind == type_of(value),
    };
    types.contains(&"string") && !types.iter().any(fits)
}

/// Collects all types that this part of a schema allows. Collects none if the schema does not say.
fn collect_types<'a>(root: &'a Value, part: &'a Value, depth: usize, types: &mut Vec<&'a str>) {
    if depth == 0 {
        return;
    }
    if let Some(target) = target(root, part) {
        collect_types(root, target, depth - 1, types);
    }
    match &part["type"] {
        Value::String(kind) => types.push(kind),
        Value::Array(kinds) => types.extend(kinds.iter().filter_map(Value::as_str)),
        _ => {
            let choices = part["enum"].as_array().into_iter().flatten();
            types.extend(choices.chain(part.get("const")).map(|it| type_of(it)));
        }
    }
    for alternative in alternatives(part) {
        collect_types(root, alternative, depth - 1, types);
    }
}

/// Describes the type of this part of a schema in words.
fn kind(root: &Value, part: &Value, depth: usize) -> String {
    let part = resolved(root, part);
    if depth == 0 {
        return "any".to_owned();
    }
    if let Some(choices) = part["enum"].as_array() {
        return one_of(choices.iter().map(as_text));
    }
    if let Some(only) = part.get("const") {
        return as_text(only);
    }
    let alternatives: Vec<_> = alternatives(part)
        .map(|alternative| kind(root, alternative, depth - 1))
        .collect();
    if !alternatives.is_empty() {
        return joined(alternatives);
    }
    match &part["type"] {
        Value::String(name) if name == "array" && part["items"].is_object() => {
            format!("array of {}", kind(root, &part["items"], depth - 1))
        }
        Value::String(name) => name.clone(),
        Value::Array(names) => joined(names.iter().map(as_text).collect()),
        _ if part["properties"].is_object() => "object".to_owned(),
        _ => "any".to_owned(),
    }
}

fn one_of(choices: impl ExactSizeIterator<Item = String>) -> String {
    let more = choices.len().saturating_sub(MAX_CHOICES);
    let mut choices: Vec<_> = choices.take(MAX_CHOICES).collect();
    if more > 0 {
        choices.push(format!("{more} more"));
    }
    format!("one of {}", choices.join(", "))
}

fn joined(mut kinds: Vec<String>) -> String {
    let mut seen = Vec::new();
    kinds.retain(|kind| {
        let is_new = !seen.contains(kind);
        seen.push(kind.clone());
        is_new
    });
    kinds.join(" or ")
}

fn alternatives(part: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["anyOf", "oneOf"].into_iter();
    lists.filter_map(|key| part[key].as_array()).flatten()
}

/// Follows the references from this part of the schema, up to the maximum.
fn resolved<'a>(root: &'a Value, part: &'a Value) -> &'a Value {
    let mut part = part;
    for _ in 0..MAX_DEPTH {
        match target(root, part) {
            Some(target) => part = target,
            None => break,
        }
    }
    part
}

/// Returns the part of the same schema that this part refers to.
fn target<'a>(root: &'a Value, part: &Value) -> Option<&'a Value> {
    root.pointer(part["$ref"].as_str()?.strip_prefix('#')?)
}

fn as_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

const fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Array(_) => "array",
        Value::Bool(_) => "boolean",
        Value::Null => "null",
        Value::Number(_) => "number",
        Value::Object(_) => "object",
        Value::String(_) => "string",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        json!({
            "type": "object",
            "$defs": {
                "Colour": {"enum": ["red", "blue"], "description": "a colour"},
                "Loop": {"$ref": "#/$defs/Loop"},
                "Tree": {"type": "array", "items": {"$ref": "#/$defs/Tree"}},
            },
            "properties": {
                "colour": {"$ref": "#/$defs/Colour"},
                "count": {"type": "integer", "default": 3},
                "loop": {"$ref": "#/$defs/Loop"},
                "name": {"type": "string", "description": "who"},
                "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "odd": true,
                "tags": {"type": "array", "items": {"type": "string"}},
                "tree": {"$ref": "#/$defs/Tree"},
                "zip": {"type": ["string", "null"]},
            },
            "required": ["name"],
        })
    }

    #[test]
    fn parameters_have_a_type_and_required_ones_come_first() {
        let schema = schema();
        let parameters = parameters(&schema);
        let kinds: Vec<_> = parameters
            .iter()
            .map(|it| (it.name, it.kind.as_str(), it.is_required))
            .collect();
        assert_eq!(kinds[0], ("name", "string", true));
        assert_eq!(kinds[1], ("colour", "one of red, blue", false));
        assert_eq!(kinds[2], ("count", "integer", false));
        assert_eq!(kinds[3], ("loop", "any", false));
        assert_eq!(kinds[4], ("note", "string or null", false));
        assert_eq!(kinds[5], ("odd", "any", false));
        assert_eq!(kinds[6], ("tags", "array of string", false));
        assert!(kinds[7].1.starts_with("array of array of"), "{kinds:?}");
        assert_eq!(kinds[8], ("zip", "string or null", false));
        assert_eq!(parameters[1].about, Some("a colour"));
        assert_eq!(parameters[2].default, Some(&json!(3)));
    }

    #[test]
    fn wants_text_is_true_if_the_schema_allows_text_and_no_type_fits_the_value() {
        let schema = schema();
        let cases = [
            ("name", json!(3), true),
            ("name", json!("x"), false),
            ("count", json!(3), false),
            ("zip", json!(12345), true),
            ("zip", json!(null), false),
            ("note", json!(true), true),
            ("colour", json!(7), true),
            ("loop", json!(7), false),
            ("odd", json!(7), false),
            ("unknown", json!(7), false),
        ];
        for (name, value, expected) in cases {
            assert_eq!(
                wants_text(&schema, name, &value),
                expected,
                "{name} {value}"
            );
        }
    }

    #[test]
    fn list_of_choices_shows_at_most_12_and_counts_the_rest() {
        let choices: Vec<_> = (0..20).map(|it| json!(it)).collect();
        let schema = json!({"properties": {"one": {"enum": choices}}});
        let kind = &parameters(&schema)[0].kind;
        assert!(kind.ends_with("10, 11, 8 more"), "{kind}");
    }

    #[test]
    fn template_parameters_are_the_variables_and_a_query_is_optional() {
        let found = template_parameters("x:{a}/{+b:3}{?c,d*}{");
        let found: Vec<_> = found.iter().map(|it| (it.name, it.is_required)).collect();
        assert_eq!(
            found,
            [("a", true), ("b", true), ("c", false), ("d", false)]
        );
        assert!(template_parameters("x:y").is_empty());
    }
}
