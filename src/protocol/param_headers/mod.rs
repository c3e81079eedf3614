//! Handles the tool arguments that a modern request repeats in its header fields: finds them, writes the fields, and compares both.
//! Does not know the caller, nor the form of a refusal.
//!
//! A tool marks a property of its input schema with `x-mcp-header`. Only a property that is reached through a chain of `properties` can be
//! marked. So its value is found in the arguments of a call without a schema validator. A tool that breaks a rule is *unfit*: a client
//! drops it (S-XHDR-06), and a server must not offer it.

use alloc::{borrow::Cow, boxed::Box, format, string::String, vec, vec::Vec};
use core::mem::size_of;

mod schema;

use crate::http::{Fields, value};
use crate::json::object::{self, Sought};
use crate::json::{Json, Payload};
use crate::wire::Id;
use schema::Search;

/// The schema keyword that marks a property.
const MARK: &str = "x-mcp-header";
const SOUGHT: Sought = Sought::new(MARK);

/// The maximum depth of a schema that is searched: the depth that `serde_json` reads.
const DEPTH_LIMIT: usize = 128;

/// The largest integer that every JSON reader holds exactly, 2 to the power of 53 minus 1 (S-XHDR-04).
const LARGEST_INTEGER: i64 = (1 << 53) - 1;

/// How many characters of a name that the tool chose are shown.
const SHOWN_LIMIT: usize = 64;

/// The marked properties of one tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mirrored(Box<[Property]>);

/// A property that is marked, or that contains marked properties.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Property {
    name: Box<str>,
    mark: Option<Mark>,
    /// The properties inside it, sorted by name.
    children: Box<[Property]>,
}

/// The content of a mark: the field for the value.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mark {
    /// The name of the field.
    field: Box<str>,
}

/// Why the marks of a tool are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unfit {
    /// A member occurs twice, and readers differ on which one counts.
    #[error("the tool has an x-mcp-header, and a part that this depends on more than once")]
    Ambiguous,
    /// The schema is nested too deeply to be searched.
    #[error("the input schema may have an x-mcp-header deeper than {DEPTH_LIMIT} levels")]
    Deep,
    /// Two properties have the same field name, ignoring case.
    #[error("two properties share the x-mcp-header {name:?}")]
    Duplicate {
        /// The name.
        name: Box<str>,
    },
    /// The name is not valid for a header field.
    #[error("the x-mcp-header at {at:?} is not a name for a header")]
    Name {
        /// The path in the schema.
        at: Box<str>,
    },
    /// The marked schema is not reached through a chain of `properties`.
    #[error("the x-mcp-header at {at:?} is not on a property that is reached by properties alone")]
    Place {
        /// The path in the schema.
        at: Box<str>,
    },
    /// The type of the property cannot be repeated in a field.
    #[error("the x-mcp-header at {at:?} is not on a boolean, an integer or a string")]
    Type {
        /// The path in the schema.
        at: Box<str>,
    },
}

impl Mirrored {
    /// Reads the marked properties of a tool, as it occurs in a list of tools (S-XHDR-03, S-XHDR-04, S-XHDR-05).
    pub(crate) fn read(tool: Json<'_>) -> Result<Mirrored, Unfit> {
        if !object::may_have(tool.as_str(), [SOUGHT; 2]) {
            return Ok(Mirrored::default());
        }
        let mut schemas = Vec::new();
        // A tool that is not an object has no schema.
        let _ = object::members(tool, |key, value| {
            if key == "inputSchema" {
                schemas.push(value.as_str());
            }
        });
        if let [schema] = schemas[..] {
            return Search::default().over(schema);
        }
        let is_plain = |schema| Search::default().over(schema) == Ok(Mirrored::default());
        if schemas.into_iter().all(is_plain) {
            Ok(Mirrored::default())
        } else {
            Err(Unfit::Ambiguous)
        }
    }

    /// Whether no property is marked.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of bytes of memory in use.
    pub(crate) fn bytes(&self) -> usize {
        self.0.iter().map(Property::bytes).sum()
    }

    /// The fields of a call with these arguments (S-XHDR-09, S-XHDR-10).
    ///
    /// A value of the wrong type is written according to its own type. The tool itself must reject it.
    pub(crate) fn fields(&self, arguments: Option<Json<'_>>) -> Vec<(String, String)> {
        let found = self.find(arguments).into_iter();
        found
            .filter_map(|(mark, found)| {
                let text = match found {
                    Found::Value(argument) => field_text(argument)?,
                    Found::Absent | Found::Twice => return None,
                };
                Some((mark.field.clone().into(), value::encode(&text).into_owned()))
            })
            .collect()
    }

    /// Whether the fields of a call match its arguments (S-XHDR-13, S-XHDR-14, S-XHDR-15). If not, the error names a field that differs.
    pub(crate) fn check(
        &self,
        fields: &Fields<'_>,
        arguments: Option<Json<'_>>,
    ) -> Result<(), Box<str>> {
        for (mark, found) in self.find(arguments) {
            let mut sent = fields.all(&mark.field);
            let flaw = match (sent.next(), found) {
                (None, Found::Absent) => continue,
                (None, Found::Value(_)) => "is missing",
                (Some(_), Found::Absent) => "is there and its argument is not",
                // A reader that takes the other occurrence would act on a value that was not compared.
                (_, Found::Twice) => "stands for an argument that is there more than once",
                (Some(_), _) if sent.next().is_some() => "is there more than once",
                (Some(sent), Found::Value(argument)) => match value::decode(sent) {
                    Some(sent) if matches_argument(&sent, argument) => continue,
                    Some(_) => "differs from its argument",
                    None => "cannot be decoded",
                },
            };
            return Err(format!("the header {} {flaw}", mark.field).into());
        }
        Ok(())
    }

    /// Returns every mark with the argument at exactly its path.
    fn find<'a>(&self, arguments: Option<Json<'a>>) -> Vec<(&Mark, Found<'a>)> {
        let mut marks = Vec::new();
        let mut pending = vec![(&*self.0, arguments.map_or(Found::Absent, Found::Value))];
        while let Some((properties, object)) = pending.pop() {
            for (property, found) in properties.iter().zip(object.members(properties)) {
                if let Some(mark) = &property.mark {
                    marks.push((mark, found.unless_null()));
                }
                if !property.children.is_empty() {
                    pending.push((&*property.children, found));
                }
            }
        }
        marks
    }
}

impl Property {
    /// The recursion is at most as deep as a schema is searched.
    fn bytes(&self) -> usize {
        let field = self.mark.as_ref().map_or(0, |mark| mark.field.len());
        let children: usize = self.children.iter().map(Property::bytes).sum();
        size_of::<Property>() + self.name.len() + field + children
    }
}

/// Whether a property of this type can be marked (S-XHDR-04).
fn is_markable(schema_type: &str) -> bool {
    matches!(schema_type, "boolean" | "integer" | "string")
}

/// The argument as text, if both ends agree on its spelling.
fn field_text(argument: Json<'_>) -> Option<Cow<'_, str>> {
    let json = argument.as_str();
    match json.as_bytes().first() {
        Some(b'"') => unquoted(json),
        Some(b'-' | b'0'..=b'9') => integer(json).map(|integer| Cow::Owned(format!("{integer}"))),
        _ => matches!(json, "true" | "false").then_some(Cow::Borrowed(json)),
    }
}

/// Whether a text equals an argument. The type of the argument decides how they are compared. The tool itself checks whether that type fits
/// the schema.
fn matches_argument(text: &str, argument: Json<'_>) -> bool {
    let json = argument.as_str();
    match json.as_bytes().first() {
        Some(b'"') => unquoted(json).is_some_and(|argument| argument == text),
        Some(b'-' | b'0'..=b'9') => integer(json).is_some_and(|of| integer(text) == Some(of)),
        _ => matches!(json, "true" | "false") && json == text,
    }
}

/// Reads an integer in any JSON spelling, if all readers agree on its value (S-XHDR-04, S-XHDR-15).
fn integer(json: &str) -> Option<i64> {
    match Id::from_json(json)? {
        Id::Number(integer) => {
            let is_exact = integer.unsigned_abs() <= LARGEST_INTEGER.unsigned_abs();
            // A decoded text may end with whitespace, which is not part of a number.
            let is_bare = json.ends_with(|last: char| last.is_ascii_digit());
            (is_exact && is_bare).then_some(integer)
        }
        Id::Text(_) | Id::LongNumber(_) => None,
    }
}

/// The argument at a path in a call.
#[derive(Clone, Copy)]
enum Found<'a> {
    Absent,
    /// The argument, or a value around it, occurs more than once.
    Twice,
    Value(Json<'a>),
}

impl<'a> Found<'a> {
    /// Looks up each of these properties in the value.
    fn members(self, properties: &[Property]) -> Vec<Found<'a>> {
        let object = match self {
            Found::Value(object) => object,
            Found::Absent | Found::Twice => return vec![self; properties.len()],
        };
        let mut members = vec![Found::Absent; properties.len()];
        // A value that is not an object has no members.
        let _ = object::members(object, |key, value| {
            let at = properties.binary_search_by(|property| (*property.name).cmp(&*key));
            if let Ok(at) = at {
                members[at] = match members[at] {
                    Found::Absent => Found::Value(value),
                    Found::Twice | Found::Value(_) => Found::Twice,
                };
            }
        });
        members
    }

    /// A null counts as absent (S-XHDR-09).
    fn unless_null(self) -> Found<'a> {
        match self {
            Found::Value(value) if value.is_null() => Found::Absent,
            Found::Absent | Found::Twice | Found::Value(_) => self,
        }
    }
}

/// The marks in a list of tools.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// The tools with marked properties, by name.
    pub(crate) tools: Vec<(Box<str>, Mirrored)>,
    /// The unfit tools, by name, with the reason (S-XHDR-07).
    pub(crate) dropped: Vec<(Box<str>, Unfit)>,
    /// The result without the unfit tools, if there are any (S-XHDR-06).
    pub(crate) rest: Option<Payload>,
}

/// Reads the marks in the result of a `tools/list`.
pub(crate) fn survey(result: Json<'_>) -> Survey {
    let mut survey = Survey::default();
    if !object::may_have(result.as_str(), [SOUGHT; 2]) {
        return survey;
    }
    let mut lists = Vec::new();
    // A result that is not an object has no tools.
    let _ = object::members(result, |key, value| {
        if key == "tools" {
            lists.push(survey.filter_list(value));
        }
    });
    if !survey.dropped.is_empty() {
        let mut lists = lists.iter();
        let rest = object::replaced(result, |key, value| {
            let list = (key == "tools").then(|| lists.next()?.as_ref()).flatten();
            Some(list.map_or(value, Payload::json))
        });
        survey.rest = rest.ok();
    }
    survey
}

impl Survey {
    /// Records the tools of a list. Returns the list without the unfit ones, if there are any.
    fn filter_list(&mut self, list: Json<'_>) -> Option<Payload> {
        let tools: Vec<Json<'_>> = list.parse().ok()?;
        let kept: Vec<_> = tools
            .iter()
            .filter(|tool| self.record_tool(**tool))
            .collect();
        if kept.len() == tools.len() {
            return None;
        }
        Payload::of(&kept).ok()
    }

    /// Records a tool. Returns whether it is fit.
    fn record_tool(&mut self, tool: Json<'_>) -> bool {
        let fit = match Mirrored::read(tool) {
            Ok(mirrored) if mirrored.is_empty() => return true,
            fit => fit,
        };
        let name = tool.member("name").map(|name| name?.text());
        match (name, fit) {
            (Ok(name), Err(unfit)) => {
                self.dropped.push((name.unwrap_or_default().into(), unfit));
                false
            }
            (Err(_), _) => {
                self.dropped.push((Box::default(), Unfit::Ambiguous));
                false
            }
            (Ok(name), Ok(mirrored)) => {
                // A tool without a name cannot be called.
                let named = name.map(|name| (name.into(), mirrored));
                self.tools.extend(named);
                true
            }
        }
    }
}

/// The content of a JSON string, if it is one and valid Unicode.
fn unquoted(json: &str) -> Option<Cow<'_, str>> {
    let inner = json.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        return serde_json::from_str(json).ok().map(Cow::Owned);
    }
    Some(Cow::Borrowed(inner))
}

#[cfg(test)]
mod tests;
