//! Finds the values at a path in a JSON value, in one pass over its text.

use super::object::Walk;
use super::scan::between;
use super::skip::{skip_space, skip_value};
use super::value::Json;

/// One step of a path: from a value to values inside it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Step<'k> {
    /// To every element of an array.
    Each,
    /// To the members of an object with this name.
    Member(&'k str),
}

impl<'a> Json<'a> {
    /// Calls `visit` with every value at a path, in the order of the text. An empty path leads to the value itself. A step that does not
    /// fit the kind of the value leads nowhere. A member that occurs twice is visited twice.
    pub fn visit(self, path: &[Step<'_>], mut visit: impl FnMut(Json<'a>)) {
        let text = self.as_str();
        descend(text, text.as_bytes(), path, &mut visit);
    }
}

/// Visits the values at the path in the value that begins here. Returns the text after that value.
fn descend<'a>(
    text: &'a str,
    start: &'a [u8],
    path: &[Step<'_>],
    visit: &mut dyn FnMut(Json<'a>),
) -> &'a [u8] {
    let end = match (path, start) {
        ([], _) => {
            let rest = skip_value(start);
            visit(Json::checked(between(text, start, rest)));
            return rest;
        }
        ([Step::Each, path @ ..], [b'[', inner @ ..]) => {
            let mut rest = skip_space(inner);
            while !matches!(rest, [] | [b']', ..]) {
                rest = skip_space(descend(text, rest, path, visit));
                if let [b',', more @ ..] = rest {
                    rest = skip_space(more);
                }
            }
            rest
        }
        ([Step::Member(name), path @ ..], [b'{', inner @ ..]) => {
            let mut walk = Walk::within(text, inner);
            while let Some(key) = walk.key() {
                if key == *name {
                    walk.rest = descend(text, walk.rest, path, visit);
                } else {
                    walk.value();
                }
            }
            skip_space(walk.rest)
        }
        ([_, ..], _) => return skip_value(start),
    };
    // Skips the closing bracket.
    end.get(1..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::{Json, Step};

    const TEXTS: &[Step<'_>] = &[Step::Member("content"), Step::Each, Step::Member("text")];

    fn at<'a>(path: &[Step<'_>], text: &'a str) -> Vec<&'a str> {
        let mut found = Vec::new();
        let json = Json::read(text).expect(text);
        json.visit(path, |value| found.push(value.as_str()));
        found
    }

    #[test]
    fn every_value_at_a_path_is_visited_in_text_order() {
        let results: [(&str, &[&str]); 8] = [
            (r#"{"content":[{"type":"text","text":"a"}]}"#, &["\"a\""]),
            (
                r#" { "a" : [{"text":0}] , "content" : [ {"text" : 1, "x":{}} , { "text":[2 ] } ] , "b" : 3 } "#,
                &["1", "[2 ]"],
            ),
            (
                r#"{"content":[{"x":[]},7,"]",[{"text":1}],{"text":null}]}"#,
                &["null"],
            ),
            (
                r#"{"content":[{"text":1,"text":2}],"content":[{"text":3}]}"#,
                &["1", "2", "3"],
            ),
            (r#"{"\u0063ontent":[{"te\u0078t":"\"}]"}]}"#, &[r#""\"}]""#]),
            (r#"{"content":{"text":1}}"#, &[]),
            (r#"{"content":[ ],"content":[{}]}"#, &[]),
            (r#"[{"content":[{"text":1}]}]"#, &[]),
        ];
        for (result, texts) in results {
            assert_eq!(at(TEXTS, result), texts, "{result}");
        }
    }

    #[test]
    fn empty_path_leads_to_the_value_itself() {
        assert_eq!(at(&[], " [1, 2] "), ["[1, 2]"]);
    }

    #[test]
    fn every_element_of_an_array_is_visited() {
        let each = &[Step::Each];
        let array = r#"[ "],[" , {"a":[1,2]},[[ ]] ,null , -1e3]"#;
        let elements = ["\"],[\"", r#"{"a":[1,2]}"#, "[[ ]]", "null", "-1e3"];
        assert_eq!(at(each, array), elements);
        for without in ["[]", " [\n] ", "{}", "null", r#""[1]""#] {
            assert!(at(each, without).is_empty(), "{without}");
        }
    }
}
