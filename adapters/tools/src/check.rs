//! Compares a value with a JSON Schema, and says what is wrong with which part.
//!
//! Knows the keywords that `schemars` writes, and of `patternProperties` those for integers. It ignores others, so a value without problems may still not
//! fit.

use std::borrow::Cow;
use std::cell::Cell;

use serde_json::Value;

use crate::schema::resolve;

/// The most problems that one text lists.
const MAX_PROBLEMS: usize = 5;

/// The most comparisons of any value with a schema, and how many more there may be for each value inside. A client that nests choices could otherwise double the
/// work with each level.
const MIN_STEPS: usize = 100_000;
const STEPS_PER_VALUE: usize = 16;

/// The most comparisons inside of each other. A schema that refers to itself could otherwise overflow the stack. Values have at most 128 levels.
const MAX_DEPTH: u32 = 400;

/// The longest text of a client in an error, in characters.
const MAX_QUOTED: usize = 100;

/// The end of a problem of a result that has null in place of a number. `serde_json` writes numbers that are not finite as null.
pub(crate) const NOT_FINITE: &str = "not null (which NaN and infinity become)";

/// The value that is compared with a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Arguments,
    Result,
}

/// Lists what is wrong with arguments. Each problem names the part, such as `points[2].x`.
pub(crate) fn problems(schema: &Value, value: &Value) -> Vec<String> {
    problems_of(Subject::Arguments, schema, value)
}

/// Lists what is wrong with a value, like [`problems`].
pub(crate) fn problems_of(subject: Subject, schema: &Value, value: &Value) -> Vec<String> {
    let steps = MIN_STEPS + STEPS_PER_VALUE * count_values(value);
    let steps_left = Cell::new(steps);
    let mut check = Check {
        root: schema,
        subject,
        steps_left: &steps_left,
        depth: 0,
        problems: Vec::new(),
    };
    check.value(schema, value, "");
    if steps_left.get() == 0 {
        return vec![match subject {
            Subject::Arguments => "the arguments: are too complex to be checked".to_owned(),
            Subject::Result => "it is too complex to be checked".to_owned(),
        }];
    }
    check.problems
}

fn count_values(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count_values).sum(),
        Value::Object(members) => members.values().map(count_values).sum::<usize>(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// Shortens a text of a client for an error.
pub(crate) fn short(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(MAX_QUOTED) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}

/// Whether a schema says more than the type that it was made from checks when serde reads it.
pub(crate) fn has_limits(schema: &Value) -> bool {
    const LIMITS: [&str; 9] = [
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
    ];
    match schema {
        Value::Object(members) => {
            // The format of an integer type implies its range, which serde checks.
            let is_sized = members
                .get("format")
                .and_then(Value::as_str)
                .is_some_and(|format| format.starts_with("uint") || format.starts_with("int"));
            members.iter().any(|(key, member)| {
                (LIMITS.contains(&&**key)
                    && member.is_number()
                    && !is_implied(is_sized, key, member))
                    || has_limits(member)
            })
        }
        Value::Array(items) => items.iter().any(has_limits),
        _ => false,
    }
}

/// Whether a limit follows from the format of an integer type.
fn is_implied(is_sized: bool, key: &str, limit: &Value) -> bool {
    let ranges = [u64::from(u8::MAX), u64::from(u16::MAX), 127, 32_767];
    is_sized
        && match key {
            "minimum" => [Some(0), Some(-128), Some(-32_768)].contains(&limit.as_i64()),
            "maximum" => limit.as_u64().is_some_and(|limit| ranges.contains(&limit)),
            _ => false,
        }
}

struct Check<'a> {
    root: &'a Value,
    subject: Subject,
    /// Zero if the comparison was given up.
    steps_left: &'a Cell<usize>,
    depth: u32,
    problems: Vec<String>,
}

impl<'a> Check<'a> {
    fn value(&mut self, schema: &'a Value, value: &Value, path: &str) {
        if self.depth == MAX_DEPTH {
            self.steps_left.set(0);
        }
        let is_enough = self.problems.len() == MAX_PROBLEMS;
        match self.steps_left.get().checked_sub(1) {
            Some(left) if !is_enough => self.steps_left.set(left),
            _ => return,
        }
        self.depth += 1;
        self.keywords(schema, value, path);
        self.depth -= 1;
    }

    fn keywords(&mut self, schema: &'a Value, value: &Value, path: &str) {
        let schema = resolve(schema, self.root);
        let Some(keywords) = schema.as_object() else {
            if *schema == Value::Bool(false) {
                self.add(path, "is not allowed");
            }
            return;
        };
        if let Some(kind) = keywords.get("type") {
            if !has_type(value, kind) {
                let wanted = type_names(kind);
                let takes_fractions = has_type(&0.5.into(), kind);
                let found = match self.subject {
                    Subject::Result if value.is_null() && takes_fractions => NOT_FINITE.to_owned(),
                    _ => format!("not {}", describe(value)),
                };
                return self.add(path, &format!("must be {wanted}, {found}"));
            }
        }
        if let Some(only) = keywords.get("const") {
            if !is_same(only, value) {
                self.add(path, &format!("must be {only}, not {}", describe(value)));
            }
        }
        if let Some(Value::Array(choices)) = keywords.get("enum") {
            self.choice(choices.iter(), value, path);
        }
        self.branches(schema, value, path);
        match value {
            Value::Number(number) => self.number(schema, number.as_f64().unwrap_or(0.0), path),
            Value::String(text) => {
                self.size(
                    schema,
                    text.chars().count(),
                    ("minLength", "maxLength", "characters"),
                    path,
                );
            }
            Value::Array(items) => {
                self.size(schema, items.len(), ("minItems", "maxItems", "items"), path);
                self.items(schema, items, path);
            }
            Value::Object(_) => self.object(schema, value, path),
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// Checks the combinations of schemas. If no branch of a choice fits, reports the problems of the one that fits best.
    fn branches(&mut self, schema: &'a Value, value: &Value, path: &str) {
        for branch in schema["allOf"].as_array().into_iter().flatten() {
            self.value(branch, value, path);
        }
        for key in ["anyOf", "oneOf"] {
            let Some(branches) = schema[key].as_array() else {
                continue;
            };
            // An enum whose variants have descriptions has a branch for each.
            let constants = || branches.iter().filter_map(|branch| branch.get("const"));
            if constants().count() == branches.len() {
                self.choice(constants(), value, path);
                continue;
            }
            let problems = branches.iter().map(|branch| {
                let mut check = Check {
                    root: self.root,
                    subject: self.subject,
                    steps_left: self.steps_left,
                    depth: self.depth,
                    problems: Vec::new(),
                };
                check.value(branch, value, path);
                let is_other_type = check.problems.iter().any(|it| it.contains("must be null"));
                (is_other_type, check.problems)
            });
            let best = problems.min_by_key(|(is_other_type, found)| {
                (!found.is_empty(), *is_other_type, found.len())
            });
            let room = MAX_PROBLEMS - self.problems.len();
            let found = best.into_iter().flat_map(|(_, found)| found);
            self.problems.extend(found.take(room));
        }
    }

    fn choice<'c>(
        &mut self,
        mut choices: impl Iterator<Item = &'c Value> + Clone,
        value: &Value,
        path: &str,
    ) {
        let all = choices.clone();
        if !choices.any(|choice| is_same(choice, value)) {
            let names: Vec<_> = all.map(Value::to_string).collect();
            let names = names.join(", ");
            self.add(
                path,
                &format!("must be one of {names}, not {}", describe(value)),
            );
        }
    }

    fn number(&mut self, schema: &Value, number: f64, path: &str) {
        let limit = |key: &str| schema[key].as_f64();
        let limits = [
            (limit("minimum").filter(|limit| number < *limit), "at least"),
            (limit("maximum").filter(|limit| number > *limit), "at most"),
            (
                limit("exclusiveMinimum").filter(|limit| number <= *limit),
                "more than",
            ),
            (
                limit("exclusiveMaximum").filter(|limit| number >= *limit),
                "less than",
            ),
            (
                limit("multipleOf").filter(|of| !is_multiple(number, *of)),
                "a multiple of",
            ),
        ];
        for (limit, words) in limits {
            if let Some(limit) = limit {
                self.add(path, &format!("must be {words} {limit}, not {number}"));
            }
        }
    }

    fn size(&mut self, schema: &Value, len: usize, keys: (&str, &str, &str), path: &str) {
        let (least, most, unit) = keys;
        let limit = |key: &str| schema[key].as_u64().and_then(|it| usize::try_from(it).ok());
        if let Some(least) = limit(least).filter(|least| len < *least) {
            self.add(
                path,
                &format!("must have at least {least} {unit}, not {len}"),
            );
        }
        if let Some(most) = limit(most).filter(|most| len > *most) {
            self.add(path, &format!("must have at most {most} {unit}, not {len}"));
        }
    }

    fn items(&mut self, schema: &'a Value, items: &[Value], path: &str) {
        let prefix = schema["prefixItems"]
            .as_array()
            .map_or(&[][..], Vec::as_slice);
        for (index, item) in items.iter().enumerate() {
            if let Some(schema) = prefix.get(index).or_else(|| schema.get("items")) {
                self.value(schema, item, &format!("{path}[{index}]"));
            }
        }
    }

    fn object(&mut self, schema: &'a Value, value: &Value, path: &str) {
        let join = |name: &str| match path {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        };
        for name in schema["required"].as_array().into_iter().flatten() {
            let name = name.as_str().unwrap_or_default();
            if value.get(name).is_none() {
                self.add(&join(name), "is missing");
            }
        }
        let known = schema["properties"].as_object();
        let patterns = schema["patternProperties"].as_object();
        for (name, member) in value.as_object().into_iter().flatten() {
            let mut is_known = false;
            if let Some(schema) = known.and_then(|known| known.get(name)) {
                is_known = true;
                self.value(schema, member, &join(name));
            }
            for (pattern, schema) in patterns.into_iter().flatten() {
                match fits_pattern(name, pattern) {
                    Some(true) => self.value(schema, member, &join(name)),
                    Some(false) => continue,
                    None => {}
                }
                is_known = true;
            }
            match schema.get("additionalProperties") {
                _ if is_known => {}
                Some(Value::Bool(false)) => {
                    let problem = match &*known_names(schema) {
                        "" => "is unknown: there are no arguments".to_owned(),
                        names => format!("is unknown; known are {names}"),
                    };
                    self.add(&join(name), &problem);
                }
                Some(schema) => self.value(schema, member, &join(name)),
                None => {}
            }
        }
    }

    fn add(&mut self, path: &str, problem: &str) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(match path {
                "" if self.subject == Subject::Result => format!("it {problem}"),
                "" => format!("the arguments: {problem}"),
                path => format!("`{}` {problem}", short(path)),
            });
        }
    }
}

/// The patterns that `schemars` writes for the names of a map whose keys are integers.
const UNSIGNED: &str = r"^\d+$";
const SIGNED: &str = r"^-?\d+$";

/// Whether a name fits a pattern for integers. `None` for any other pattern: regular expressions are not known here.
fn fits_pattern(name: &str, pattern: &str) -> Option<bool> {
    let digits = match pattern {
        UNSIGNED => name,
        SIGNED => name.strip_prefix('-').unwrap_or(name),
        _ => return None,
    };
    // The `\d` of JSON Schema means ASCII digits.
    Some(!digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Lists the names that the members of an object may have, for an error.
fn known_names(schema: &Value) -> String {
    let names = schema["properties"].as_object().into_iter().flatten();
    let names = names.map(|(name, _)| format!("`{name}`"));
    let patterns = schema["patternProperties"]
        .as_object()
        .into_iter()
        .flatten();
    let patterns = patterns.map(|(pattern, _)| match &**pattern {
        UNSIGNED => "integers that are not negative".to_owned(),
        // With any other pattern, all names are allowed.
        _ => "integers".to_owned(),
    });
    names.chain(patterns).collect::<Vec<_>>().join(", ")
}

/// Whether a number is a multiple of another, such as 0.3 of 0.1, whose quotient is 2.9999999999999996.
fn is_multiple(number: f64, of: f64) -> bool {
    let quotient = number / of;
    (quotient - quotient.round()).abs() <= quotient.abs() * 4.0 * f64::EPSILON
}

/// Whether two values are the same in JSON Schema, where 5 and 5.0 are.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) if one.is_f64() != other.is_f64() => {
            one.as_f64() == other.as_f64()
        }
        _ => one == other,
    }
}

fn has_type(value: &Value, kind: &Value) -> bool {
    match kind {
        Value::Array(kinds) => kinds.iter().any(|kind| has_type(value, kind)),
        kind => match kind.as_str().unwrap_or_default() {
            "null" => value.is_null(),
            "boolean" => value.is_boolean(),
            "integer" => {
                value.is_i64()
                    || value.is_u64()
                    || value.as_f64().is_some_and(|it| it.fract() == 0.0)
            }
            "number" => value.is_number(),
            "string" => value.is_string(),
            "array" => value.is_array(),
            "object" => value.is_object(),
            _ => true,
        },
    }
}

fn type_names(kind: &Value) -> String {
    match kind {
        Value::Array(kinds) => {
            let kinds = kinds.iter().filter(|kind| *kind != "null");
            kinds.map(type_names).collect::<Vec<_>>().join(" or ")
        }
        kind => match kind.as_str().unwrap_or_default() {
            "boolean" => "true or false".to_owned(),
            "integer" => "an integer".to_owned(),
            "number" => "a number".to_owned(),
            "string" => "a text".to_owned(),
            "array" => "a list".to_owned(),
            "object" => "an object".to_owned(),
            other => other.to_owned(),
        },
    }
}

/// Describes a value in a few words.
fn describe(value: &Value) -> String {
    match value {
        Value::String(text) if text.chars().nth(40).is_some() => {
            format!("the text {:?}…", text.chars().take(40).collect::<String>())
        }
        Value::String(text) => format!("the text {text:?}"),
        Value::Array(items) => format!("a list of {} items", items.len()),
        Value::Object(_) => "an object".to_owned(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nested_choices_are_given_up_after_a_bounded_number_of_steps() {
        let branch = |name: &str| json!({"properties": {"kind": {"const": name}, "next": {"$ref": "#/$defs/node"}}, "required": ["kind"]});
        let node = json!({"type": "object", "oneOf": [branch("a"), branch("b")]});
        let schema = json!({"$ref": "#/$defs/node", "$defs": {"node": node}});
        let mut value = json!({"kind": "c"});
        for _ in 0..100 {
            value = json!({"kind": "c", "next": value});
        }
        let problems = problems(&schema, &value);
        assert_eq!(problems, ["the arguments: are too complex to be checked"]);
    }

    #[test]
    fn all_choices_are_named_with_and_without_descriptions() {
        let plain = json!({"properties": {"to": {"enum": ["a", "b"]}}});
        let described = json!({"properties": {"to": {"oneOf": [
            {"const": "a", "description": "The first"},
            {"const": "b", "description": "The second"},
        ]}}});
        for schema in [plain, described] {
            assert_eq!(problems(&schema, &json!({"to": "b"})), [""; 0]);
            let found = problems(&schema, &json!({"to": "c"}));
            let named = "`to` must be one of \"a\", \"b\", not the text \"c\"";
            assert_eq!(found, [named]);
        }
    }

    #[test]
    fn large_values_are_checked_to_the_end() {
        let schema = json!({"properties": {"n": {"items": {"type": "integer", "minimum": 1}}}});
        let mut numbers = vec![1; 300_000];
        assert_eq!(problems(&schema, &json!({"n": numbers})), [""; 0]);
        numbers[299_999] = 0;
        let found = problems(&schema, &json!({"n": numbers}));
        assert_eq!(found, ["`n[299999]` must be at least 1, not 0"]);
    }

    #[test]
    fn names_that_are_integers_fit_their_pattern() {
        let schema = |pattern: &str| json!({"additionalProperties": false, "properties": {"all": true}, "patternProperties": {pattern: {"type": "string"}}});
        let (signed, unsigned) = (schema(SIGNED), schema(UNSIGNED));
        let good = json!({"0": "a", "340282366920938463463374607431768211455": "b", "all": 1});
        assert_eq!(problems(&unsigned, &good), [""; 0]);
        assert_eq!(problems(&signed, &json!({"-7": "a", "7": "b"})), [""; 0]);
        let value = problems(&signed, &json!({"-7": 1}));
        assert_eq!(value, ["`-7` must be a text, not 1"]);
        for name in ["-7", "7a", "+7", "٣"] {
            let found = problems(&unsigned, &json!({name: "a"}));
            let known = "is unknown; known are `all`, integers that are not negative";
            assert_eq!(found, [format!("`{name}` {known}")]);
        }
        for name in ["-", "--7", "7-"] {
            let found = problems(&signed, &json!({name: "a"}));
            let known = "is unknown; known are `all`, integers";
            assert_eq!(found, [format!("`{name}` {known}")]);
        }
    }

    #[test]
    fn names_are_allowed_if_there_is_a_pattern_that_is_not_known() {
        let schema = json!({"additionalProperties": false, "patternProperties": {"^[a-z]{2}$": {"type": "string"}}});
        assert_eq!(problems(&schema, &json!({"de": "a", "DE": 1})), [""; 0]);
    }

    #[test]
    fn numbers_are_the_same_with_and_without_a_fraction() {
        let schema = json!({"items": {"enum": [1, 2, "a"]}, "prefixItems": [{"const": 5}]});
        assert_eq!(problems(&schema, &json!([5.0, 1.0, 2, "a"])), [""; 0]);
        let found = problems(&schema, &json!([5.5]));
        assert_eq!(found, ["`[0]` must be 5, not 5.5"]);
    }

    #[test]
    fn only_the_first_problems_are_listed_and_long_names_are_cut() {
        let schema = json!({"additionalProperties": false, "properties": {"n": {"items": {"type": "string"}}}});
        assert_eq!(problems(&schema, &json!({"n": vec![1; 10_000]})).len(), 5);
        let long = problems(&schema, &json!({"x".repeat(1 << 20): 1}));
        assert!(long[0].len() < 200, "{}", long[0].len());
    }

    #[test]
    fn schema_that_refers_to_itself_is_given_up() {
        let schemas = [
            json!({"allOf": [{"$ref": "#"}]}),
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}}),
        ];
        for schema in schemas {
            let given_up = ["the arguments: are too complex to be checked"];
            assert_eq!(problems(&schema, &json!({"a": 1})), given_up);
        }
        assert_eq!(problems(&json!({"$ref": "#"}), &json!({})), [""; 0]);
        let chain = json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"required": ["x"]}}});
        assert_eq!(problems(&chain, &json!({})), ["`x` is missing"]);
    }

    #[test]
    fn multiples_of_fractions_are_recognised() {
        let schema = json!({"multipleOf": 0.1});
        for number in [0.0, 0.3, 1.1, 123_456.7] {
            assert_eq!(problems(&schema, &json!(number)), [""; 0], "{number}");
        }
        assert_eq!(problems(&schema, &json!(0.35)).len(), 1);
    }

    #[test]
    fn limits_that_follow_from_an_integer_type_are_not_checked_twice() {
        assert!(!has_limits(
            &json!({"type": "integer", "format": "uint8", "minimum": 0, "maximum": 255})
        ));
        assert!(has_limits(
            &json!({"type": "integer", "format": "uint8", "minimum": 1, "maximum": 255})
        ));
        assert!(has_limits(
            &json!({"properties": {"a": {"items": {"maxLength": 3}}}})
        ));
        assert!(!has_limits(
            &json!({"properties": {"maximum": {"type": "string"}}})
        ));
    }

    #[test]
    fn problem_of_an_optional_value_names_its_other_type() {
        let schema = json!({"properties": {"a": {"anyOf": [{"type": "object", "required": ["b"]}, {"type": "null"}]}}});
        assert_eq!(problems(&schema, &json!({"a": {}})), ["`a.b` is missing"]);
        assert_eq!(problems(&schema, &json!({"a": null})), [""; 0]);
    }

    #[test]
    fn values_at_a_limit_fit_and_those_beyond_it_are_named() {
        let cases = [
            (
                json!({"minimum": 2}),
                json!(2),
                json!(1),
                "must be at least 2, not 1",
            ),
            (
                json!({"maximum": 2}),
                json!(2),
                json!(3),
                "must be at most 2, not 3",
            ),
            (
                json!({"exclusiveMinimum": 2}),
                json!(3),
                json!(2),
                "must be more than 2, not 2",
            ),
            (
                json!({"exclusiveMaximum": 2}),
                json!(1),
                json!(2),
                "must be less than 2, not 2",
            ),
            (
                json!({"multipleOf": 3}),
                json!(-6),
                json!(7),
                "must be a multiple of 3, not 7",
            ),
            (
                json!({"minLength": 2}),
                json!("äö"),
                json!("ä"),
                "must have at least 2 characters, not 1",
            ),
            (
                json!({"maxLength": 2}),
                json!("äö"),
                json!("äöü"),
                "must have at most 2 characters, not 3",
            ),
            (
                json!({"minItems": 1}),
                json!([0]),
                json!([]),
                "must have at least 1 items, not 0",
            ),
            (
                json!({"maxItems": 1}),
                json!([0]),
                json!([0, 0]),
                "must have at most 1 items, not 2",
            ),
        ];
        for (schema, good, bad, problem) in cases {
            assert_eq!(problems(&schema, &good), [""; 0], "{schema}");
            let expected = [format!("the arguments: {problem}")];
            assert_eq!(problems(&schema, &bad), expected, "{schema}");
        }
    }

    #[test]
    fn type_takes_its_own_values_and_names_those_of_others() {
        let values = [
            json!(null),
            json!(true),
            json!(1),
            json!(-1),
            json!(2.0),
            json!(1.5),
            json!("a"),
            json!([1]),
            json!({"a": 1}),
        ];
        let found = [
            "null",
            "true",
            "1",
            "-1",
            "2.0",
            "1.5",
            "the text \"a\"",
            "a list of 1 items",
            "an object",
        ];
        let cases: [(Value, &[usize], &str); 9] = [
            (json!("null"), &[0], "null"),
            (json!("boolean"), &[1], "true or false"),
            (json!("integer"), &[2, 3, 4], "an integer"),
            (json!("number"), &[2, 3, 4, 5], "a number"),
            (json!("string"), &[6], "a text"),
            (json!("array"), &[7], "a list"),
            (json!("object"), &[8], "an object"),
            (json!("other"), &[0, 1, 2, 3, 4, 5, 6, 7, 8], ""),
            (
                json!(["string", "null", "integer"]),
                &[0, 2, 3, 4, 6],
                "a text or an integer",
            ),
        ];
        for (kind, fitting, wanted) in cases {
            for (index, value) in values.iter().enumerate() {
                let problem = format!("the arguments: must be {wanted}, not {}", found[index]);
                let expected = Vec::from_iter((!fitting.contains(&index)).then_some(problem));
                let problems = problems(&json!({"type": kind}), value);
                assert_eq!(problems, expected, "{kind} {value}");
            }
        }
    }

    #[test]
    fn steps_grow_with_the_number_of_values() {
        let schema = json!({"items": {"allOf": vec![json!({"minimum": 1}); 5]}});
        let mut numbers = vec![1; 30_000];
        numbers[29_999] = 0;
        let found = problems(&schema, &json!(numbers));
        let last = "`[29999]` must be at least 1, not 0";
        assert_eq!(found, [last; 5]);
    }

    #[test]
    fn longest_texts_that_are_quoted_are_kept_whole() {
        let text = |len: usize| "ä".repeat(len);
        assert_eq!(short(&text(100)), text(100));
        assert_eq!(short(&text(101)), format!("{}…", text(100)));
        let found = |len: usize| problems(&json!({"type": "null"}), &json!(text(len)));
        let expected = |quoted: &str| {
            [format!(
                "the arguments: must be null, not the text {quoted}"
            )]
        };
        assert_eq!(found(40), expected(&format!("\"{}\"", text(40))));
        assert_eq!(found(41), expected(&format!("\"{}\"…", text(40))));
    }

    #[test]
    fn no_more_than_five_members_are_named_as_missing() {
        let schema = json!({"required": ["a", "b", "c", "d", "e", "f", "g"]});
        let expected = ["a", "b", "c", "d", "e"].map(|name| format!("`{name}` is missing"));
        assert_eq!(problems(&schema, &json!({})), expected);
    }

    #[test]
    fn ranges_of_integer_types_are_no_limits_of_other_types() {
        let ranges = [
            ("uint8", 0, 255),
            ("uint16", 0, 65_535),
            ("int8", -128, 127),
            ("int16", -32_768, 32_767),
        ];
        for (format, least, most) in ranges {
            let schema =
                |format: &str| json!({"format": format, "minimum": least, "maximum": most});
            assert!(!has_limits(&schema(format)), "{format}");
            assert!(has_limits(&schema("double")), "{format}");
            assert!(
                has_limits(&json!({"format": format, "minimum": least + 1})),
                "{format}"
            );
            assert!(
                has_limits(&json!({"format": format, "maximum": most - 1})),
                "{format}"
            );
            assert!(
                has_limits(&json!({"format": format, "exclusiveMinimum": 0})),
                "{format}"
            );
        }
        assert!(has_limits(&json!({"minimum": 0})));
        assert!(has_limits(&json!([{"maximum": 255}])));
        assert!(!has_limits(&json!("minimum")));
    }

    #[test]
    fn branch_with_the_fewest_problems_is_reported() {
        let schema = json!({"anyOf": [{"required": ["a", "b"]}, {"required": ["c"]}, {"required": ["d", "e", "f"]}]});
        assert_eq!(problems(&schema, &json!({})), ["`c` is missing"]);
        let schema = json!({"oneOf": [{"type": "null"}, {"required": ["a", "b"]}]});
        let found = problems(&schema, &json!({}));
        assert_eq!(found, ["`a` is missing", "`b` is missing"]);
    }

    #[test]
    fn further_members_and_items_have_the_schema_of_the_rest() {
        let schema = json!({
            "properties": {"a": {"type": "string"}},
            "additionalProperties": {"type": "integer"},
        });
        assert_eq!(problems(&schema, &json!({"a": "b", "c": 1})), [""; 0]);
        let found = problems(&schema, &json!({"a": "b", "c": {"d": 1}}));
        assert_eq!(found, ["`c` must be an integer, not an object"]);
        let schema =
            json!({"prefixItems": [{"type": "string"}], "items": {"properties": {"a": false}}});
        let found = problems(&schema, &json!([1, 2, {"a": {}}]));
        let expected = ["`[0]` must be a text, not 1", "`[2].a` is not allowed"];
        assert_eq!(found, expected);
    }

    #[test]
    fn problems_of_choices_count_among_the_most_that_are_listed() {
        let branches = json!([{"type": "object", "required": ["p", "q"]}, {"type": "null"}]);
        let schema = json!({"items": {"anyOf": branches}});
        let found = problems(&schema, &json!(vec![json!({}); 1_000]));
        assert_eq!(found.len(), MAX_PROBLEMS);
    }
}
