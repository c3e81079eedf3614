//! Reads the arguments of a tool or a prompt from the command line: JSON objects, `key=value` and `key:=json`. Does not depend on a link.

use std::collections::BTreeMap;
use std::fmt::Display;

use everlink::Payload;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::schema::wants_text;
use crate::{Failure, usage_error};

/// A hint for arguments that cannot be parsed.
const HINT: &str = r#"arguments look like '{"name":"value"}' or name=value"#;

/// Arguments as the user wrote them.
#[derive(Debug)]
pub(super) struct Arguments {
    members: BTreeMap<String, ArgumentValue>,
    /// The only argument, if it is a JSON object: it is sent exactly as written.
    only_object: Option<Payload>,
}

/// The value of an argument. JSON is kept as text because a number may have more digits than a machine word holds.
#[derive(Debug)]
enum ArgumentValue {
    Json(Box<RawValue>),
    /// Either plain text or JSON; the schema decides.
    Text(String),
}

impl Arguments {
    pub(super) fn read(words: &[String]) -> Result<Arguments, Failure> {
        let mut arguments = Arguments {
            members: BTreeMap::new(),
            only_object: None,
        };
        for word in words {
            match word.split_once('=') {
                Some((key, value)) if !word.trim_start().starts_with('{') => {
                    arguments.add_pair(word, key, value)?;
                }
                _ => arguments.add_object(word)?,
            }
        }
        if let [word] = words {
            arguments.only_object = word.parse().ok().filter(Payload::is_object);
        }
        Ok(arguments)
    }

    fn add_object(&mut self, word: &str) -> Result<(), Failure> {
        let members = serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(word);
        let members = members.map_err(|error| not_an_object(word, &error))?;
        for (key, value) in members {
            self.add(key, ArgumentValue::Json(value))?;
        }
        Ok(())
    }

    fn add_pair(&mut self, word: &str, key: &str, value: &str) -> Result<(), Failure> {
        let (key, value) = match key.strip_suffix(':') {
            Some(key) => {
                let json = RawValue::from_string(value.trim().to_owned());
                let json = json.map_err(|error| {
                    usage_error(format!(
                        "`{word}`: the value after `:=` is not JSON: {error}"
                    ))
                })?;
                (key, ArgumentValue::Json(json))
            }
            None => (key, ArgumentValue::Text(value.to_owned())),
        };
        if key.is_empty() {
            return Err(usage_error(format!(
                "`{word}` has no name before `=`; {HINT}"
            )));
        }
        self.add(key.to_owned(), value)
    }

    fn add(&mut self, key: String, value: ArgumentValue) -> Result<(), Failure> {
        if self.members.contains_key(&key) {
            return Err(usage_error(format!("the argument `{key}` is given twice")));
        }
        self.members.insert(key, value);
        Ok(())
    }

    /// Whether only the schema of the tool can tell if a value is JSON or text.
    pub(super) fn are_ambiguous(&self) -> bool {
        let is_ambiguous = |value: &ArgumentValue| match value {
            ArgumentValue::Json(_) => false,
            ArgumentValue::Text(word) => serde_json::from_str::<Value>(word).is_ok(),
        };
        self.members.values().any(is_ambiguous)
    }

    /// Builds the arguments for a tool with this input schema.
    pub(super) fn for_tool(&self, schema: &Value) -> Result<Payload, Failure> {
        self.build(|key, word| match serde_json::from_str::<Value>(word) {
            Ok(value) if !wants_text(schema, key, &value) => word.trim().to_owned(),
            _ => Value::from(word).to_string(),
        })
    }

    /// Builds the arguments for a prompt. All of them are text.
    pub(super) fn for_prompt(&self) -> Result<Payload, Failure> {
        self.build(|_, word| Value::from(word).to_string())
    }

    /// Builds the JSON object. `write` turns the name and text of each ambiguous value into JSON.
    fn build(&self, write: impl Fn(&str, &str) -> String) -> Result<Payload, Failure> {
        if let Some(only_object) = &self.only_object {
            return Ok(only_object.clone());
        }
        let member = |(key, value): (&String, &ArgumentValue)| {
            let value = match value {
                ArgumentValue::Json(json) => json.get().to_owned(),
                ArgumentValue::Text(word) => write(key, word),
            };
            format!("{}:{value}", Value::from(key.as_str()))
        };
        let members: Vec<_> = self.members.iter().map(member).collect();
        let object = format!("{{{}}}", members.join(","));
        object
            .parse()
            .map_err(|error| not_an_object(&object, &error))
    }
}

fn not_an_object(word: &str, why: &dyn Display) -> Failure {
    usage_error(format!("`{word}` is not a JSON object: {why}; {HINT}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(words: &[&str]) -> Result<Arguments, String> {
        let words: Vec<_> = words.iter().map(ToString::to_string).collect();
        Arguments::read(&words).map_err(|error| error.to_string())
    }

    fn tool(words: &[&str], schema: &Value) -> String {
        let arguments = read(words).expect("valid arguments");
        let payload = arguments.for_tool(schema).expect("an object");
        payload.as_str().to_owned()
    }

    #[test]
    fn pair_value_is_json_if_it_parses_and_text_otherwise() {
        let words = [
            "name=Ada",
            "count=3",
            "big=123456789012345678901234567890",
            "on=true",
            "empty=",
            "x=a=b",
            "tags:=[1]",
        ];
        let payload = tool(&words, &Value::Null);
        assert_eq!(
            payload,
            r#"{"big":123456789012345678901234567890,"count":3,"empty":"","name":"Ada","on":true,"tags":[1],"x":"a=b"}"#
        );
        assert_eq!(tool(&[], &Value::Null), "{}");
    }

    #[test]
    fn schema_decides_whether_an_ambiguous_value_is_text_or_a_number() {
        let schema =
            json!({"properties": {"id": {"type": "string"}, "count": {"type": "integer"}}});
        let payload = tool(&["id=007", "count=3"], &schema);
        assert_eq!(payload, r#"{"count":3,"id":"007"}"#);
        let payload = tool(&["id=7", "count=3"], &schema);
        assert_eq!(payload, r#"{"count":3,"id":"7"}"#);
        // `:=` marks JSON, whatever the schema says.
        assert_eq!(tool(&["id:=7"], &schema), r#"{"id":7}"#);
    }

    #[test]
    fn only_a_plain_pair_whose_value_parses_as_json_is_ambiguous() {
        let cases: [(&[&str], bool); 4] = [
            (&["name=Ada"], false),
            (&["count:=3"], false),
            (&[r#"{"count":3}"#], false),
            (&["name=Ada", "count=3"], true),
        ];
        for (words, is_ambiguous) in cases {
            let arguments = read(words).expect("valid arguments");
            assert_eq!(arguments.are_ambiguous(), is_ambiguous, "{words:?}");
        }
    }

    #[test]
    fn single_object_is_sent_unchanged_and_merged_with_a_pair_otherwise() {
        let object = r#"{"b": 1.50, "a":"x"}"#;
        assert_eq!(tool(&[object], &Value::Null), object);
        let both = tool(&[object, "c=3"], &Value::Null);
        assert_eq!(both, r#"{"a":"x","b":1.50,"c":3}"#);
    }

    #[test]
    fn prompt_arguments_are_always_text() {
        let arguments = read(&["count=3", "name=Ada"]).expect("valid arguments");
        let payload = arguments.for_prompt().expect("an object");
        assert_eq!(payload.as_str(), r#"{"count":"3","name":"Ada"}"#);
    }

    #[test]
    fn invalid_argument_is_refused_with_a_hint() {
        let cases: [(&[&str], &str); 7] = [
            (&["Ada"], "name=value"),
            (&["[1]"], "not a JSON object"),
            (&["{not json"], "not a JSON object"),
            (&["=3"], "no name"),
            (&["a:=x"], "not JSON"),
            (&["a=1", "a=2"], "twice"),
            (&[r#"{"a":1}"#, "a=2"], "twice"),
        ];
        for (words, hint) in cases {
            let error = read(words).expect_err("invalid arguments");
            assert!(error.contains(hint), "{error}");
        }
    }
}
