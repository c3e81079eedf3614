//! Shows the form of an elicitation at the terminal, and reads a person's answers line by line. Does not depend on a link.

use std::io::{self, BufRead, Write, stderr, stdin};

use everlink::client::Ask;
use everlink::{ErrorObject, Payload};
use serde_json::{Map, Value, json};

use crate::output::single_line;
use crate::system::{END_OF_INPUT_KEY, discard_typed_input};

/// Asks the person for each field, and whether the answers may be sent. Only what they type after the question counts.
pub(super) fn ask_person(ask: &Ask) -> Result<Payload, ErrorObject> {
    let params = ask.params.as_ref();
    let params = params.and_then(|params| params.parse::<Value>().ok());
    let params = params.unwrap_or_default();
    let mut input = stdin().lock();
    // An empty line accepts the form. It may be a second Enter after the URL of a sign-in.
    discard_typed_input(&input);
    let answer = Form(&params).fill(&mut input, &mut stderr());
    // If the terminal fails, the form counts as cancelled.
    let answer = answer.unwrap_or_else(|_| json!({"action": "cancel"}));
    Payload::of(&answer).map_err(|error| ErrorObject::new(-32603, error.to_string()))
}

/// The parameters of the ask: a message and the schema of the answer.
struct Form<'a>(&'a Value);

impl Form<'_> {
    fn fill(&self, input: &mut dyn BufRead, output: &mut dyn Write) -> io::Result<Value> {
        let message = self.0["message"].as_str().unwrap_or("something");
        writeln!(output, "\nThe server asks: {}", single_line(message))?;
        writeln!(output, "({END_OF_INPUT_KEY} cancels)")?;
        let schema = &self.0["requestedSchema"];
        let required = schema["required"].as_array();
        let is_required =
            |name: &str| required.is_some_and(|required| required.iter().any(|it| it == name));
        let mut content = Map::new();
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let field = Field {
                name,
                schema: field,
                is_required: is_required(name),
            };
            match field.fill(input, output)? {
                FieldAnswer::Cancelled => return Ok(json!({"action": "cancel"})),
                FieldAnswer::Value(value) => drop(content.insert(name.clone(), value)),
                FieldAnswer::Skipped => {}
            }
        }
        loop {
            write!(output, "  Send this? [Y/n] ")?;
            output.flush()?;
            let Some(line) = read_line(input)? else {
                return Ok(json!({"action": "cancel"}));
            };
            match line.trim().to_ascii_lowercase().as_str() {
                "" | "y" | "yes" => return Ok(json!({"action": "accept", "content": content})),
                "n" | "no" => return Ok(json!({"action": "decline"})),
                _ => writeln!(output, "  Not understood. Expected: yes or no")?,
            }
        }
    }
}

struct Field<'a> {
    name: &'a str,
    schema: &'a Value,
    is_required: bool,
}

enum FieldAnswer {
    Cancelled,
    Skipped,
    Value(Value),
}

impl Field<'_> {
    /// Asks until the answer fits the schema.
    fn fill(&self, input: &mut dyn BufRead, output: &mut dyn Write) -> io::Result<FieldAnswer> {
        let about = self.schema["description"].as_str();
        let about = about.or(self.schema["title"].as_str());
        let about = about.map(|about| format!(", {about}")).unwrap_or_default();
        let default = self.schema.get("default");
        let default_hint = match default {
            Some(default) => format!(" [{default}]"),
            None if self.is_required => String::new(),
            None => " [none]".to_owned(),
        };
        let kind = self.kind();
        let prompt = single_line(&format!("{} ({kind}){about}{default_hint}", self.name));
        loop {
            write!(output, "  {prompt}: ")?;
            output.flush()?;
            let Some(line) = read_line(input)? else {
                return Ok(FieldAnswer::Cancelled);
            };
            match (line.as_str(), default) {
                ("", Some(default)) => return Ok(FieldAnswer::Value(default.clone())),
                ("", None) if !self.is_required => return Ok(FieldAnswer::Skipped),
                (line, _) => match self.parse(line) {
                    Some(value) => return Ok(FieldAnswer::Value(value)),
                    None => writeln!(output, "  Not understood. Expected: {}", single_line(&kind))?,
                },
            }
        }
    }

    /// Describes the accepted values in words.
    fn kind(&self) -> String {
        match (self.choices(), self.schema["type"].as_str()) {
            (Some(choices), Some("array")) => {
                format!("any of {}, separated by commas", choices.join(", "))
            }
            (Some(choices), _) => format!("one of {}", choices.join(", ")),
            (None, Some("boolean")) => "yes or no".to_owned(),
            (None, Some("string") | None) => "text".to_owned(),
            (None, Some(kind)) => kind.to_owned(),
        }
    }

    /// Returns the choices of an `enum`, or of titled alternatives. For an array, returns the choices of its items.
    fn choices(&self) -> Option<Vec<&str>> {
        let schema = match self.schema.get("items") {
            Some(items) => items,
            None => self.schema,
        };
        let titled = schema.get("oneOf").or(schema.get("anyOf"));
        let plain = schema.get("enum").and_then(Value::as_array);
        let choices = match (plain, titled.and_then(Value::as_array)) {
            (Some(plain), _) => plain.iter().filter_map(Value::as_str).collect(),
            (None, Some(titled)) => titled
                .iter()
                .filter_map(|it| it["const"].as_str())
                .collect(),
            (None, None) => return None,
        };
        Some(choices)
    }

    /// Converts a line to the type of the field. Returns `None` if it does not fit.
    fn parse(&self, line: &str) -> Option<Value> {
        let word = line.trim();
        match (self.choices(), self.schema["type"].as_str()) {
            (Some(choices), Some("array")) => {
                let mut words = word.split(',').map(str::trim);
                let all: Vec<_> = words.clone().collect();
                let fits = words.all(|word| choices.contains(&word));
                fits.then(|| json!(all))
            }
            (Some(choices), _) => choices.contains(&word).then(|| json!(word)),
            (None, Some("boolean")) => match word.to_ascii_lowercase().as_str() {
                "y" | "yes" | "true" => Some(json!(true)),
                "n" | "no" | "false" => Some(json!(false)),
                _ => None,
            },
            (None, Some("integer")) => word.parse::<i64>().ok().map(Value::from),
            (None, Some("number")) => {
                let number = serde_json::from_str::<serde_json::Number>(word);
                number.ok().map(Value::from)
            }
            (None, _) => Some(json!(line)),
        }
    }
}

/// Reads one line. Returns `None` at the end of input.
fn read_line(input: &mut dyn BufRead) -> io::Result<Option<String>> {
    let mut line = String::new();
    let len = input.read_line(&mut line)?;
    Ok((len > 0).then(|| line.trim_end_matches(['\r', '\n']).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill_form(schema: &Value, lines: &str) -> (Value, String) {
        let params = json!({"message": "Who?\x1b[2J", "requestedSchema": schema});
        let mut output = Vec::new();
        let answer = Form(&params).fill(&mut lines.as_bytes(), &mut output);
        let output = String::from_utf8(output).expect("text");
        (answer.expect("no I/O error"), output)
    }

    #[test]
    fn each_field_is_asked_for_until_its_answer_fits_the_schema() {
        let schema = json!({
            "properties": {
                "age": {"type": "integer", "description": "in years"},
                "colour": {"type": "string", "enum": ["red", "blue"]},
                "likes": {"type": "array", "items": {"anyOf": [{"const": "a"}, {"const": "b"}]}},
                "member": {"type": "boolean"},
                "name": {"type": "string", "default": "Ada"},
                "nick": {"type": "string"},
            },
            "required": ["age", "colour", "member"],
        });
        let lines = "\nold\n36\ngreen\nblue\na, b\nperhaps\nyes\n\n\n\n";
        let (answer, output) = fill_form(&schema, lines);
        let content = json!({
            "age": 36, "colour": "blue", "likes": ["a", "b"], "member": true, "name": "Ada",
        });
        assert_eq!(answer, json!({"action": "accept", "content": content}));
        assert!(output.contains("age (integer), in years: "), "{output}");
        assert!(output.contains("colour (one of red, blue): "), "{output}");
        assert!(output.contains("name (text) [\"Ada\"]: "), "{output}");
        assert_eq!(output.matches("Not understood").count(), 4, "{output}");
        // The message of the server cannot emit control characters.
        assert!(!output.contains('\x1b'), "{output}");
    }

    #[test]
    fn confirmation_is_understood_in_any_case_and_asked_again_otherwise() {
        for (lines, action, times) in [
            ("Ada\nYes\n", "accept", 1),
            ("Ada\nYES \n", "accept", 1),
            ("Ada\nNo\n", "decline", 1),
            ("Ada\nyess\nok\ny\n", "accept", 3),
            ("Ada\nperhaps\n", "cancel", 2),
        ] {
            let schema = json!({"properties": {"name": {"type": "string"}}});
            let (answer, output) = fill_form(&schema, lines);
            assert_eq!(answer["action"], action, "{lines}");
            assert_eq!(output.matches("Send this?").count(), times, "{output}");
        }
    }

    #[test]
    fn form_is_declined_with_n_and_cancelled_at_the_end_of_input() {
        let schema = json!({"properties": {"name": {"type": "string"}}});
        assert_eq!(fill_form(&schema, "Ada\nn\n").0["action"], "decline");
        assert_eq!(fill_form(&schema, "Ada\n").0["action"], "cancel");
        assert_eq!(fill_form(&schema, "").0["action"], "cancel");
    }
}
