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
        serde_json::from_str(text).or_else(|error| {
            let Ok(value) = parse(text) else {
                return Err(without_position(&error));
            };
            let problems = problems(&self.schema, &value);
            if !problems.is_empty() {
                return Err(problems.join("; "));
            }
            read_with_integers(value, error).map_err(|error| without_position(&error))
        })
    }
}

/// Reads a value that fits its schema and could not be read. Some clients write an integer as `5.0`, which is one in JSON Schema but not for serde. Returns
/// this error if the value has no such number.
pub(crate) fn read_with_integers<T: DeserializeOwned>(
    mut value: Value,
    error: serde_json::Error,
) -> Result<T, serde_json::Error> {
    match make_integers(&mut value) {
        true => serde_json::from_value(value),
        false => Err(error),
    }
}

/// Replaces numbers such as 5.0 by integers. Returns whether there was one. Fields that are no integers take integers, too.
fn make_integers(value: &mut Value) -> bool {
    // A larger number may have been rounded when it was read.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) if number.is_f64() => {
            let whole = number.as_f64();
            let whole = whole.filter(|it| it.fract() == 0.0 && it.abs() < EXACT);
            #[expect(
                clippy::cast_possible_truncation,
                reason = "the number is an integer in range"
            )]
            if let Some(whole) = whole {
                *number = (whole as i64).into();
            }
            whole.is_some()
        }
        // All of them, not only the first.
        Value::Array(items) => items
            .iter_mut()
            .fold(false, |found, item| make_integers(item) | found),
        Value::Object(members) => members
            .values_mut()
            .fold(false, |found, member| make_integers(member) | found),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
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

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};
    use std::fmt::Debug;
    use std::num::{NonZeroI16, NonZeroU8};
    use std::ops::Bound;
    use std::time::Duration;

    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};
    use serde_json::{Map, json};

    use super::*;
    use crate::schema;

    #[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    struct Arguments<T> {
        value: T,
    }

    /// Reads this JSON as arguments with this value. All of it is compared with the schema.
    fn read<T: DeserializeOwned + JsonSchema>(json: &str) -> Result<T, String> {
        let json: Box<RawValue> =
            serde_json::from_str(&format!(r#"{{"value": {json}}}"#)).expect("JSON");
        let (schema, shape) = schema::of_arguments::<Arguments<T>>("t");
        let rules = ArgumentRules::new(schema, shape, true);
        rules.read(Some(&json)).map(|it: Arguments<T>| it.value)
    }

    /// Fails unless a value fits the schemas of its type, and is read as it was written.
    #[track_caller]
    fn is_kept<T>(value: T)
    where
        T: Debug + PartialEq + Serialize + DeserializeOwned + JsonSchema,
    {
        let json = serde_json::to_string(&value).expect("JSON");
        let parsed = serde_json::from_str(&json).expect("JSON");
        let found = problems(&schema::of_output::<T>(), &parsed);
        assert_eq!(found, [""; 0], "{json}");
        assert_eq!(read(&json), Ok(value), "{json}");
    }

    #[derive(Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
    enum Plain {
        Red,
        Blue,
    }

    #[derive(Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
    enum Described {
        /// The first
        One,
        /// The second
        Two,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(untagged)]
    enum Untagged {
        Number(i64),
        Text(String),
        Pair(f64, Option<bool>),
        Named { x: u8 },
        Nothing,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    enum External {
        Unit,
        New(u8),
        Pair(u8, String),
        Named { x: Option<u8> },
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(tag = "t")]
    enum Internal {
        Unit,
        Named { x: Option<u8> },
        New(Defaults),
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(tag = "t", content = "c")]
    enum Adjacent {
        Unit,
        New(u8),
        Named { x: Option<u8> },
    }

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(default, deny_unknown_fields)]
    struct Defaults {
        a: u8,
        b: Option<String>,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    struct Flat<T> {
        own: u8,
        #[serde(flatten)]
        rest: T,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    struct List {
        head: u8,
        next: Option<Box<List>>,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    struct Unit;

    #[test]
    fn maps_with_all_kinds_of_keys_fit_their_schema() {
        is_kept(HashMap::from([(7_u32, "a".to_owned())]));
        is_kept(BTreeMap::from([(-7_i64, 1.5), (3, 1.0)]));
        is_kept(HashMap::from([(u128::MAX, 1)]));
        is_kept(HashMap::from([(NonZeroU8::MIN, 1)]));
        is_kept(HashMap::from([(NonZeroI16::MIN, 1)]));
        is_kept(HashMap::from([('c', 1)]));
        is_kept(HashMap::from([(true, 1)]));
        is_kept(HashMap::from([(Plain::Red, 1)]));
        is_kept(HashMap::from([(Described::Two, 1)]));
        is_kept(HashMap::from([("a".to_owned(), Some(1))]));
        is_kept(Map::from_iter([("a".to_owned(), json!(null))]));
        let error = read::<HashMap<u32, u8>>(r#"{"x": 1}"#);
        let known = "`value.x` is unknown; known are integers that are not negative";
        assert_eq!(error, Err(known.to_owned()));
    }

    #[test]
    fn values_of_other_types_fit_their_schema() {
        is_kept((Some(1), None::<u8>, "a".to_owned()));
        is_kept([Some(1), None]);
        is_kept([(); 0]);
        is_kept((u128::MAX, i128::MIN, u64::MAX, i64::MIN));
        is_kept(['ß', '\u{1F600}']);
        is_kept((NonZeroI16::MIN, NonZeroU8::MAX));
        is_kept(Duration::MAX);
        is_kept((Bound::Included(1), Bound::Unbounded::<u8>, 1..2));
        is_kept([Ok(1), Err("a".to_owned())]);
        is_kept(json!([1, null, {"a": 1.5}]));
        is_kept((Unit, None::<Unit>, Some(Plain::Blue), None::<Described>));
        is_kept(List {
            head: 1,
            next: Some(Box::new(List {
                head: 2,
                next: None,
            })),
        });
    }

    #[test]
    fn enums_and_flattened_values_fit_their_schema() {
        is_kept([Untagged::Number(1), Untagged::Text("a".to_owned())]);
        is_kept([Untagged::Pair(1.0, None), Untagged::Named { x: 1 }]);
        is_kept([Untagged::Nothing]);
        is_kept([
            External::Unit,
            External::New(1),
            External::Named { x: None },
        ]);
        is_kept([External::Pair(1, "a".to_owned())]);
        is_kept([Internal::Unit, Internal::Named { x: None }]);
        is_kept([Internal::New(Defaults::default())]);
        is_kept([
            Adjacent::Unit,
            Adjacent::New(1),
            Adjacent::Named { x: None },
        ]);
        let own = 1;
        for rest in [External::New(1), External::Named { x: Some(1) }] {
            is_kept(Flat { own, rest });
        }
        let rest = Internal::Named { x: Some(1) };
        is_kept(Flat { own, rest });
        let rest = Untagged::Named { x: 1 };
        is_kept(Flat { own, rest });
        let rest = None::<List>;
        is_kept(Flat { own, rest });
        let rest = HashMap::from([("a".to_owned(), 7)]);
        is_kept(Flat { own, rest });
    }

    #[test]
    fn whole_numbers_with_a_fraction_are_integers() {
        assert_eq!(read("5.0"), Ok(5_u8));
        assert_eq!(read("-5e0"), Ok(NonZeroI16::new(-5)));
        assert_eq!(read("[1e3, 0.5, 2.0]"), Ok((1_000_i64, 0.5, 2.0)));
        let nested = read::<Vec<Flat<HashMap<String, u64>>>>(r#"[{"own": 1.0, "a": 2.0}]"#);
        let rest = HashMap::from([("a".to_owned(), 2)]);
        assert_eq!(nested, Ok(vec![Flat { own: 1, rest }]));
        // A value that needs no integer is kept as it is.
        assert_eq!(read("5.0"), Ok(json!(5.0)));
        let fraction = read::<u8>("5.5");
        assert_eq!(
            fraction,
            Err("`value` must be an integer, not 5.5".to_owned())
        );
        // This is 9007199254740993, and would be read as 9007199254740992.
        let rounded = read::<u64>("9007199254740993.0");
        assert!(rounded.is_err_and(|error| error.contains("expected u64")));
    }
}
