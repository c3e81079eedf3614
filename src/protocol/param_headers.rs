//! Handles the tool arguments that a modern request repeats in its header fields: finds them, writes the fields, and compares both.
//! Does not know the caller, nor the form of a refusal.
//!
//! A tool marks a property of its input schema with `x-mcp-header`. Only a property that is reached through a chain of `properties` can be
//! marked. So its value is found in the arguments of a call without a schema validator. A tool that breaks a rule is *unfit*: a client
//! drops it (S-XHDR-06), and a server must not offer it.

use alloc::{
    borrow::Cow, boxed::Box, collections::BTreeSet, format, string::String, vec, vec::Vec,
};
use core::mem::size_of;

use memchr::memchr2;

use crate::http::{Fields, value};
use crate::json::object::{self, Sought};
use crate::json::{Json, Payload};
use crate::wire::Id;

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
        Id::Text(_) => None,
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

/// A search for marks in a schema. It reads every byte once and does not recurse.
#[derive(Default)]
struct Search<'a> {
    /// The objects and lists that are open, the innermost last.
    open: Vec<Open<'a>>,
    /// The names in the marks, in lower case.
    names: BTreeSet<String>,
    /// Whether a key that matters for marks occurred twice.
    is_ambiguous: bool,
    found: Vec<Property>,
}

/// An object or a list that is open.
struct Open<'a> {
    role: Role,
    /// The key just read; empty in a list.
    key: Cow<'a, str>,
    /// The keys that must not occur again.
    seen: BTreeSet<Cow<'a, str>>,
    /// The name in its own mark.
    mark: Option<Cow<'a, str>>,
    /// Whether its type can be marked.
    is_markable: bool,
    /// Whether it is only a reference to a schema. Then its own `properties` do not describe it.
    is_reference: bool,
    /// The properties found in it.
    found: Vec<Property>,
}

/// The role of an object or a list in a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// A value, whose keys have no meaning here.
    Data,
    /// A list of schemas.
    List,
    /// Schemas by name. `is_reached`: a chain of `properties` leads here.
    Names { is_reached: bool },
    /// A schema.
    Schema { is_reached: bool },
}

impl<'a> Search<'a> {
    /// Finds the marks in a schema.
    fn over(mut self, schema: &'a str) -> Result<Mirrored, Unfit> {
        for token in Tokens(schema) {
            match token {
                Token::Close => self.close()?,
                Token::Key(key) => self.key(key)?,
                Token::Open { is_list } => self.open(is_list)?,
                Token::Value(value) => self.value(value)?,
            }
        }
        if self.is_ambiguous && !self.found.is_empty() {
            return Err(Unfit::Ambiguous);
        }
        Ok(Mirrored(self.found.into()))
    }

    fn open(&mut self, is_list: bool) -> Result<(), Unfit> {
        if self.open.len() == DEPTH_LIMIT {
            return Err(Unfit::Deep);
        }
        let role = match self.open.last() {
            None => Role::Schema { is_reached: true },
            Some(outer) => outer.role.of_member(&outer.key),
        };
        if self.is_at_mark() {
            return Err(Unfit::Name {
                at: self.path_to_mark(),
            });
        }
        self.open.push(Open {
            role: if is_list { role.of_list() } else { role },
            key: Cow::Borrowed(""),
            seen: BTreeSet::new(),
            mark: None,
            is_markable: false,
            is_reference: false,
            found: Vec::new(),
        });
        Ok(())
    }

    fn key(&mut self, key: Cow<'a, str>) -> Result<(), Unfit> {
        let is_root = self.open.len() == 1;
        let Some(open) = self.open.last_mut() else {
            return Ok(());
        };
        open.key = key;
        let is_decisive = match (open.role, &*open.key) {
            (Role::Schema { is_reached }, MARK) if is_root || !is_reached => {
                return Err(Unfit::Place {
                    at: self.path_to_mark(),
                });
            }
            (Role::Schema { is_reached: true }, "$dynamicRef" | "$ref") => {
                open.is_reference = true;
                false
            }
            (Role::Schema { is_reached: true }, MARK | "properties" | "type") => true,
            (Role::Names { is_reached }, _) => is_reached,
            (Role::Data | Role::List | Role::Schema { .. }, _) => false,
        };
        self.is_ambiguous |= is_decisive && !open.seen.insert(open.key.clone());
        Ok(())
    }

    /// Handles a value that is neither an object nor a list.
    fn value(&mut self, json: &'a str) -> Result<(), Unfit> {
        let name = if self.is_at_mark() {
            let name = unquoted(json).filter(|name| is_token(name));
            Some(name.ok_or_else(|| Unfit::Name {
                at: self.path_to_mark(),
            })?)
        } else {
            None
        };
        match self.open.last_mut() {
            Some(open) if name.is_some() => open.mark = name,
            Some(open) if open.key == "type" => {
                open.is_markable = unquoted(json).as_deref().is_some_and(is_markable);
            }
            Some(_) | None => {}
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), Unfit> {
        let Some(mut closed) = self.open.pop() else {
            return Ok(());
        };
        let mark = match closed.mark.take() {
            Some(name) => Some(self.mark(&name, &closed)?),
            None => None,
        };
        let Some(outer) = self.open.last_mut() else {
            self.found = closed.found;
            return Ok(());
        };
        match (closed.role, outer.role) {
            (Role::Names { .. }, _) => {
                closed.found.sort_by(|one, other| one.name.cmp(&other.name));
                outer.found.append(&mut closed.found);
            }
            (Role::Schema { .. }, Role::Names { .. })
                if mark.is_some() || !closed.found.is_empty() =>
            {
                outer.found.push(Property {
                    name: (*outer.key).into(),
                    mark,
                    children: closed.found.into(),
                });
            }
            (Role::Data | Role::List | Role::Schema { .. }, _) => {}
        }
        Ok(())
    }

    /// Creates the mark with this name for this property.
    fn mark(&mut self, name: &str, property: &Open<'_>) -> Result<Mark, Unfit> {
        if property.is_reference {
            return Err(Unfit::Place {
                at: self.path_to_mark(),
            });
        }
        if !property.is_markable {
            return Err(Unfit::Type {
                at: self.path_to_mark(),
            });
        }
        if !self.names.insert(name.to_ascii_lowercase()) {
            let name = shown(name.chars());
            return Err(Unfit::Duplicate { name });
        }
        let field = format!("Mcp-Param-{name}").into();
        Ok(Mark { field })
    }

    /// Whether the next value is that of a mark.
    fn is_at_mark(&self) -> bool {
        let is_schema = |open: &&Open<'_>| matches!(open.role, Role::Schema { .. });
        let open = self.open.last().filter(is_schema);
        open.is_some_and(|open| open.key == MARK)
    }

    /// The path to the current mark, or to the property that was read last.
    fn path_to_mark(&self) -> Box<str> {
        let depth = self.open.len() - usize::from(self.is_at_mark());
        let keys = self.open[..depth].iter().map(|open| &*open.key);
        let path = keys.filter(|key| !key.is_empty());
        let path = path.flat_map(|key| "/".chars().chain(key.chars()));
        shown("inputSchema".chars().chain(path))
    }
}

impl Role {
    /// The role of a member's value.
    fn of_member(self, key: &str) -> Role {
        match self {
            Role::Data => Role::Data,
            Role::List => Role::Schema { is_reached: false },
            Role::Names { is_reached } => Role::Schema { is_reached },
            Role::Schema { is_reached } => match key {
                "properties" => Role::Names { is_reached },
                "$defs" | "definitions" | "dependencies" | "dependentSchemas"
                | "patternProperties" => Role::Names { is_reached: false },
                "const" | "default" | "dependentRequired" | "enum" | "examples" => Role::Data,
                // Schemas occur in many places. Unknown keywords are searched like known ones.
                _ => Role::Schema { is_reached: false },
            },
        }
    }

    /// The role of the value if it is a list.
    fn of_list(self) -> Role {
        match self {
            Role::Data => Role::Data,
            Role::List | Role::Names { .. } | Role::Schema { .. } => Role::List,
        }
    }
}

/// Splits a valid JSON text into tokens.
struct Tokens<'a>(&'a str);

enum Token<'a> {
    Close,
    Key(Cow<'a, str>),
    Open { is_list: bool },
    Value(&'a str),
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        const BETWEEN: [char; 6] = [' ', '\t', '\n', '\r', ',', ':'];
        let rest = self.0.trim_start_matches(BETWEEN);
        let first = *rest.as_bytes().first()?;
        let len = match first {
            b'{' | b'[' | b'}' | b']' => 1,
            b'"' => string_len(rest),
            _ => rest
                .find(|next| BETWEEN.contains(&next) || matches!(next, '}' | ']'))
                .unwrap_or(rest.len()),
        };
        let (token, rest) = rest.split_at(len);
        self.0 = rest.trim_start_matches([' ', '\t', '\n', '\r']);
        Some(match first {
            b'{' | b'[' => Token::Open {
                is_list: first == b'[',
            },
            b'}' | b']' => Token::Close,
            // A key that is not valid Unicode has no meaning here, and equals only itself.
            b'"' if self.0.starts_with(':') => Token::Key(unquoted(token).unwrap_or(token.into())),
            _ => Token::Value(token),
        })
    }
}

/// The length of the string at the beginning of a text, quotes included.
fn string_len(text: &str) -> usize {
    let mut at = 1;
    while let Some(ahead) = text.as_bytes().get(at..) {
        match memchr2(b'"', b'\\', ahead) {
            Some(len) if ahead[len] == b'"' => return at + len + 1,
            Some(len) => at += len + 2,
            None => break,
        }
    }
    text.len()
}

/// The content of a JSON string, if it is one and valid Unicode.
fn unquoted(json: &str) -> Option<Cow<'_, str>> {
    let inner = json.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        return serde_json::from_str(json).ok().map(Cow::Owned);
    }
    Some(Cow::Borrowed(inner))
}

/// Whether a text can be a part of a field name: RFC 9110, section 5.6.2 (S-XHDR-03).
fn is_token(name: &str) -> bool {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_fit)
}

/// The first [`SHOWN_LIMIT`] characters of a text.
fn shown(text: impl Iterator<Item = char>) -> Box<str> {
    let shown: String = text.take(SHOWN_LIMIT).collect();
    shown.into()
}

#[cfg(test)]
mod tests {
    use alloc::{borrow::ToOwned, string::ToString};

    use super::*;

    fn raw(json: &str) -> Payload {
        json.parse().unwrap()
    }

    /// A tool with this schema.
    fn tool(schema: &str) -> Payload {
        raw(&format!(r#"{{"name":"t","inputSchema":{schema}}}"#))
    }

    /// A schema with these properties.
    fn of(properties: &str) -> String {
        format!(r#"{{"type":"object","properties":{{{properties}}}}}"#)
    }

    fn read(schema: &str) -> Result<Mirrored, Unfit> {
        Mirrored::read(tool(schema).json())
    }

    fn fields(mirrored: &Mirrored, arguments: &str) -> Vec<(String, String)> {
        mirrored.fields(Some(raw(arguments).json()))
    }

    /// The fields of a call, as text.
    fn sent(mirrored: &Mirrored, arguments: &str) -> Vec<String> {
        let fields = fields(mirrored, arguments).into_iter();
        fields
            .map(|(name, value)| format!("{name}: {value}"))
            .collect()
    }

    /// One property of each kind, and one that is nested.
    fn all_kinds() -> Mirrored {
        read(&of(r#""region":{"type":"string","x-mcp-header":"Region"},
            "count":{"x-mcp-header":"Count","type":"integer"},
            "dry":{"type":"boolean","x-mcp-header":"Dry-Run"},
            "plain":{"type":"string"},
            "where":{"type":"object","properties":{
                "deep":{"properties":{"zone":{"type":"string","x-mcp-header":"zone"}}}}}"#))
        .unwrap()
    }

    #[test]
    fn marked_arguments_are_sent_as_header_fields() {
        // S-XHDR-02, S-XHDR-09, S-XHDR-10.
        let tool = all_kinds();
        for (arguments, expected) in [
            (
                r#"{"region":"us-west1","count":42,"dry":true,"plain":"x","where":{"deep":{"zone":"b"}}}"#,
                &[
                    "Mcp-Param-Count: 42",
                    "Mcp-Param-Dry-Run: true",
                    "Mcp-Param-Region: us-west1",
                    "Mcp-Param-zone: b",
                ][..],
            ),
            (r#"{"region":""}"#, &["Mcp-Param-Region: "]),
            (r#"{"dry":false}"#, &["Mcp-Param-Dry-Run: false"]),
            (
                r#"{"region":"\u4e16"}"#,
                &["Mcp-Param-Region: =?base64?5LiW?="],
            ),
            (r#"{"region":" a"}"#, &["Mcp-Param-Region: =?base64?IGE=?="]),
            (
                r#"{"region":"=?base64?YQ==?="}"#,
                &["Mcp-Param-Region: =?base64?PT9iYXNlNjQ/WVE9PT89?="],
            ),
            (r#"{"r\u0065gion":"a"}"#, &["Mcp-Param-Region: a"]),
            // Integers in any spelling.
            (r#"{"count":42.0}"#, &["Mcp-Param-Count: 42"]),
            (r#"{"count":4.2e1}"#, &["Mcp-Param-Count: 42"]),
            (r#"{"count":-0}"#, &["Mcp-Param-Count: 0"]),
            (
                r#"{"count":9007199254740991}"#,
                &["Mcp-Param-Count: 9007199254740991"],
            ),
            (
                r#"{"count":-9007199254740991.0}"#,
                &["Mcp-Param-Count: -9007199254740991"],
            ),
            (r#"{"count":9007199254740992}"#, &[]),
            (r#"{"count":-9007199254740992}"#, &[]),
            (r#"{"count":1.5}"#, &[]),
            (r#"{"count":1e400}"#, &[]),
            // Absent, null, or of another type.
            ("{}", &[]),
            (
                r#"{"region":null,"count":null,"dry":null,"where":null}"#,
                &[],
            ),
            (
                r#"{"region":1,"count":"1","dry":"true","where":{"deep":{"zone":true}}}"#,
                &[
                    "Mcp-Param-Count: 1",
                    "Mcp-Param-Dry-Run: true",
                    "Mcp-Param-Region: 1",
                    "Mcp-Param-zone: true",
                ],
            ),
            (
                r#"{"region":["a"],"count":[1],"dry":{"a":true},"where":[]}"#,
                &[],
            ),
            (r#"{"region":"\ud800"}"#, &[]),
            // A value at another path.
            (
                r#"{"zone":"b","deep":{"zone":"b"},"where":{"zone":"b"},"x":{"region":"a"}}"#,
                &[],
            ),
            // Readers differ on which one counts.
            (r#"{"region":"a","region":"b"}"#, &[]),
            (r#"{"where":{"deep":{"zone":"b"}},"where":{}}"#, &[]),
            ("[]", &[]),
            ("null", &[]),
        ] {
            assert_eq!(sent(&tool, arguments), expected, "{arguments}");
        }
        assert_eq!(tool.fields(None), []);
    }

    #[test]
    fn fields_are_compared_with_the_arguments() {
        // S-XHDR-13, S-XHDR-14, S-XHDR-15.
        let tool = all_kinds();
        for (fields, arguments, flaw) in [
            (&[][..], "{}", None),
            (&[("mcp-param-region", "a")], r#"{"region":"a"}"#, None),
            (&[("MCP-PARAM-REGION", " a ")], r#"{"region":"a"}"#, None),
            (&[("Mcp-Param-Region", "")], r#"{"region":""}"#, None),
            (
                &[("Mcp-Param-Region", "=?base64?5LiW?=")],
                r#"{"region":"世"}"#,
                None,
            ),
            (
                &[("Mcp-Param-Region", "=?base64?YQ==?=")],
                r#"{"region":"a"}"#,
                None,
            ),
            (
                &[("Mcp-Param-Zone", "b")],
                r#"{"where":{"deep":{"zone":"b"}}}"#,
                None,
            ),
            (&[("Mcp-Param-Dry-Run", "false")], r#"{"dry":false}"#, None),
            (&[("Mcp-Param-Count", "42")], r#"{"count":42}"#, None),
            (&[("Mcp-Param-Count", "42.0")], r#"{"count":42}"#, None),
            (&[("Mcp-Param-Count", "42")], r#"{"count":42.0}"#, None),
            (&[("Mcp-Param-Count", "42e0")], r#"{"count":4.2e1}"#, None),
            // A field that belongs to no property is ignored.
            (&[("Mcp-Param-Other", "\u{1}")], "{}", None),
            // The tool itself checks the type.
            (&[("Mcp-Param-Region", "1")], r#"{"region":1}"#, None),
            // Null and absent are the same.
            (&[], r#"{"region":null}"#, None),
            (
                &[("Mcp-Param-Region", "a")],
                r#"{"region":null}"#,
                Some("is there and its argument is not"),
            ),
            (
                &[("Mcp-Param-Region", "null")],
                "{}",
                Some("is there and its argument is not"),
            ),
            (
                &[("Mcp-Param-Zone", "b")],
                r#"{"where":3}"#,
                Some("is there and its argument is not"),
            ),
            (&[], r#"{"region":"a"}"#, Some("is missing")),
            (&[], r#"{"region":""}"#, Some("is missing")),
            (&[], r#"{"region":{}}"#, Some("is missing")),
            (
                &[("Mcp-Param-Region", "A")],
                r#"{"region":"a"}"#,
                Some("differs from its argument"),
            ),
            (
                &[("Mcp-Param-Region", "")],
                r#"{"region":"a"}"#,
                Some("differs from its argument"),
            ),
            (
                &[("Mcp-Param-Region", "1.0")],
                r#"{"region":"1"}"#,
                Some("differs from its argument"),
            ),
            (
                &[("Mcp-Param-Region", "{}")],
                r#"{"region":{}}"#,
                Some("differs from its argument"),
            ),
            (
                &[("Mcp-Param-Region", "=?BASE64?YQ==?=")],
                r#"{"region":"a"}"#,
                Some("differs from its argument"),
            ),
            (
                &[("Mcp-Param-Dry-Run", "True")],
                r#"{"dry":true}"#,
                Some("differs from its argument"),
            ),
            (
                &[("Mcp-Param-Dry-Run", "1")],
                r#"{"dry":true}"#,
                Some("differs from its argument"),
            ),
            (
                &[("Mcp-Param-Count", "43")],
                r#"{"count":42}"#,
                Some("differs from its argument"),
            ),
            (
                &[("Mcp-Param-Count", "042")],
                r#"{"count":42}"#,
                Some("differs from its argument"),
            ),
            (
                &[("Mcp-Param-Count", "+42")],
                r#"{"count":42}"#,
                Some("differs from its argument"),
            ),
            (
                &[("Mcp-Param-Count", "\"42\"")],
                r#"{"count":42}"#,
                Some("differs from its argument"),
            ),
            (
                &[("Mcp-Param-Count", "=?base64?NDIg?=")],
                r#"{"count":42}"#,
                Some("differs from its argument"),
            ),
            (
                &[("Mcp-Param-Count", "1.5")],
                r#"{"count":1.5}"#,
                Some("differs from its argument"),
            ),
            (
                &[("Mcp-Param-Count", "x")],
                r#"{"count":1.5}"#,
                Some("differs from its argument"),
            ),
            (
                &[("Mcp-Param-Region", "=?base64?YQ=?=")],
                r#"{"region":"a"}"#,
                Some("cannot be decoded"),
            ),
            (
                &[("Mcp-Param-Region", "\u{e9}")],
                r#"{"region":"\u00e9"}"#,
                Some("cannot be decoded"),
            ),
            (
                &[("Mcp-Param-Region", "a\u{1}")],
                r#"{"region":"a\u0001"}"#,
                Some("cannot be decoded"),
            ),
            (
                &[("Mcp-Param-Region", "a"), ("mcp-param-region", "a")],
                r#"{"region":"a"}"#,
                Some("is there more than once"),
            ),
            (
                &[("Mcp-Param-Region", "a")],
                r#"{"region":"a","region":"b"}"#,
                Some("stands for an argument that is there more than once"),
            ),
            (
                &[("Mcp-Param-Region", "b")],
                r#"{"region":"a","r\u0065gion":"b"}"#,
                Some("stands for an argument that is there more than once"),
            ),
            (
                &[],
                r#"{"where":{"deep":{"zone":"b"}},"where":{}}"#,
                Some("stands for an argument that is there more than once"),
            ),
        ] {
            let fields: Fields<'_> = fields
                .iter()
                .map(|(name, value)| (*name, value.as_bytes()))
                .collect();
            let checked = tool.check(&fields, Some(raw(arguments).json()));
            let checked = checked.as_ref().map_err(|error| {
                let words = error.strip_prefix("the header Mcp-Param-").unwrap();
                words.split_once(' ').unwrap().1
            });
            assert_eq!(checked.err(), flaw, "{fields:?} {arguments}");
        }
        assert_eq!(tool.check(&Fields::new(), None), Ok(()));
        let stray = Fields::new().and("Mcp-Param-Region", "hunter2");
        let error = tool.check(&stray, None).unwrap_err();
        assert_eq!(
            &*error,
            "the header Mcp-Param-Region is there and its argument is not"
        );
    }

    #[test]
    fn server_accepts_the_fields_that_a_client_sends() {
        let tool = all_kinds();
        for region in ["", " ", "a", "é\n\"", "=?base64??=", "\u{7f}", "世界"] {
            for count in [0, 7, -LARGEST_INTEGER, LARGEST_INTEGER] {
                let region = serde_json::to_string(region).unwrap();
                let arguments = format!(r#"{{"region":{region},"count":{count},"dry":true}}"#);
                let sent: Fields<'_> = fields(&tool, &arguments)
                    .into_iter()
                    .map(|(name, value)| (name, value.into_bytes()))
                    .collect();
                assert_eq!(sent.iter().count(), 3);
                assert_eq!(tool.check(&sent, Some(raw(&arguments).json())), Ok(()));
            }
        }
    }

    #[test]
    fn memory_grows_by_the_length_of_the_names() {
        let bytes = |name: &str, mark: &str| {
            let schema = format!(r#""{name}":{{"type":"string","x-mcp-header":"{mark}"}}"#);
            read(&of(&schema)).unwrap().bytes()
        };
        let short = bytes("abc", "X");
        assert_eq!(bytes("abcd", "X"), short + 1);
        assert_eq!(bytes("abc", "Xy"), short + 1);
        assert_eq!(short - size_of::<Property>(), "abcMcp-Param-X".len());
    }

    #[test]
    fn mark_needs_a_valid_and_unique_name() {
        // S-XHDR-03.
        for name in ["Region", "a", "0", "!#$%&'*+-.^_`|~", "R\\u0065gion"] {
            let schema = of(&format!(
                r#""p":{{"type":"string","x-mcp-header":"{name}"}}"#
            ));
            assert!(!read(&schema).unwrap().is_empty(), "{name}");
        }
        for name in [
            r#""""#,
            r#"" ""#,
            r#""a b""#,
            r#""a:b""#,
            r#""a\tb""#,
            r#""a\r\nb""#,
            r#""a\u0000""#,
            r#""é""#,
            r#""(a)""#,
            r#""a,b""#,
            r#""a/b""#,
            r#""\ud800""#,
            "1",
            "true",
            "null",
            r#"["Region"]"#,
            r#"{"a":"Region"}"#,
        ] {
            let schema = of(&format!(r#""p":{{"type":"string","x-mcp-header":{name}}}"#));
            let at = "inputSchema/properties/p".into();
            assert_eq!(read(&schema), Err(Unfit::Name { at }), "{name}");
        }
        let twice = of(r#""a":{"type":"string","x-mcp-header":"Region"},
            "b":{"properties":{"c":{"type":"integer","x-mcp-header":"REGION"}}}"#);
        let name = "REGION".into();
        assert_eq!(read(&twice), Err(Unfit::Duplicate { name }));
    }

    #[test]
    fn only_booleans_integers_and_strings_can_be_marked() {
        // S-XHDR-04.
        for kind in ["boolean", "integer", "string"] {
            // The name of a type under another keyword does not change the type.
            for members in [
                format!(r#""x-mcp-header":"P","type":"{kind}""#),
                format!(r#""x-mcp-header":"P","type":"{kind}","title":"number""#),
            ] {
                let schema = of(&format!(r#""p":{{{members}}}"#));
                assert!(!read(&schema).unwrap().is_empty(), "{members}");
            }
        }
        for kind in [
            r#""type":"number","#,
            r#""type":"array","#,
            r#""type":"object","#,
            r#""type":"null","#,
            r#""type":"String","#,
            r#""type":["string"],"#,
            r#""type":["string","null"],"#,
            r#""type":{"type":"string"},"#,
            r#""type":true,"#,
            r#""title":"string","#,
            "",
        ] {
            let schema = of(&format!(r#""p":{{{kind}"x-mcp-header":"P"}}"#));
            let at = "inputSchema/properties/p".into();
            assert_eq!(read(&schema), Err(Unfit::Type { at }), "{kind}");
        }
    }

    #[test]
    fn mark_must_be_reached_through_properties_only() {
        // S-XHDR-05.
        let marked = r#"{"type":"string","x-mcp-header":"P"}"#;
        for (schema, at) in [
            (marked.to_owned(), ""),
            (format!(r#"{{"items":{marked}}}"#), "/items"),
            (format!(r#"{{"prefixItems":[{marked}]}}"#), "/prefixItems"),
            (format!(r#"{{"anyOf":[{{}},{marked}]}}"#), "/anyOf"),
            (
                format!(r#"{{"oneOf":[{{"properties":{{"p":{marked}}}}}]}}"#),
                "/oneOf/properties/p",
            ),
            (
                format!(r#"{{"allOf":[{{"properties":{{"p":{marked}}}}}]}}"#),
                "/allOf/properties/p",
            ),
            (
                format!(r#"{{"not":{{"properties":{{"p":{marked}}}}}}}"#),
                "/not/properties/p",
            ),
            (
                format!(r#"{{"if":{{"properties":{{"p":{marked}}}}}}}"#),
                "/if/properties/p",
            ),
            (
                format!(r#"{{"then":{{"properties":{{"p":{marked}}}}}}}"#),
                "/then/properties/p",
            ),
            (
                format!(r#"{{"else":{{"properties":{{"p":{marked}}}}}}}"#),
                "/else/properties/p",
            ),
            (format!(r#"{{"$defs":{{"d":{marked}}}}}"#), "/$defs/d"),
            (
                format!(r#"{{"definitions":{{"default":{marked}}}}}"#),
                "/definitions/default",
            ),
            (
                format!(r#"{{"additionalProperties":{marked}}}"#),
                "/additionalProperties",
            ),
            (
                format!(r#"{{"patternProperties":{{"^a":{marked}}}}}"#),
                "/patternProperties/^a",
            ),
            (
                format!(r#"{{"dependentSchemas":{{"a":{marked}}}}}"#),
                "/dependentSchemas/a",
            ),
            (format!(r#"{{"properties":[{marked}]}}"#), "/properties"),
            (
                format!(r#"{{"properties":{{"p":[{marked}]}}}}"#),
                "/properties/p",
            ),
            (
                format!(r#"{{"x-unheard-of":{{"a":[[{marked}]]}}}}"#),
                "/x-unheard-of/a",
            ),
            (
                of(&format!(r#""p":{{"items":{marked}}}"#)),
                "/properties/p/items",
            ),
            (
                of(&format!(
                    r#""p":{{"items":{}}}"#,
                    of(&format!(r#""q":{marked}"#))
                )),
                "/properties/p/items/properties/q",
            ),
            (
                of(r##""p":{"type":"string","x-mcp-header":"P","$ref":"#/$defs/d"}"##),
                "/properties/p",
            ),
            (
                of(r##""p":{"$ref":"#/$defs/d","type":"string","x-mcp-header":"P"}"##),
                "/properties/p",
            ),
            // Escapes do not hide a mark.
            (
                r#"{"items":{"type":"string","x-mcp-he\u0061der":"P"}}"#.to_owned(),
                "/items",
            ),
        ] {
            let at = format!("inputSchema{at}").into();
            assert_eq!(read(&schema), Err(Unfit::Place { at }), "{schema}");
        }
    }

    #[test]
    fn a_property_may_have_any_name() {
        let plain = of(r#""x-mcp-header":{"type":"string"},"items":{"type":"string"}"#);
        assert!(read(&plain).unwrap().is_empty());
        for name in [
            "x-mcp-header",
            "items",
            "$ref",
            "type",
            "properties",
            "anyOf",
            "default",
        ] {
            let nested = of(&format!(
                r#""{name}":{}"#,
                of(&format!(
                    r#""{name}":{{"type":"integer","x-mcp-header":"P"}}"#
                ))
            ));
            let mirrored = read(&nested).unwrap();
            let arguments = format!(r#"{{"{name}":{{"{name}":3}}}}"#);
            assert_eq!(sent(&mirrored, &arguments), ["Mcp-Param-P: 3"]);
        }
        // Data and names are not marks.
        for schema in [
            r#"{"default":{"x-mcp-header":1}}"#,
            r#"{"const":{"x-mcp-header":1},"enum":[{"x-mcp-header":1}],"examples":[[{"x-mcp-header":1}]]}"#,
            r#"{"required":["x-mcp-header"],"description":"x-mcp-header: \"a\"","title":"x-mcp-header"}"#,
            r#"{"items":{"properties":{"x-mcp-header":{}}},"$defs":{"x-mcp-header":{}}}"#,
            r#"{"dependentRequired":{"x-mcp-header":["a"]}}"#,
            r#"{"properties":{"a":true,"b":{"x-mcp-headers":"P","X-MCP-Header":"P"}}}"#,
            r#"[]"#,
            r#""x-mcp-header""#,
        ] {
            assert_eq!(read(schema), Ok(Mirrored::default()), "{schema}");
        }
        for odd in [
            r#"{"x-mcp-header":1}"#,
            "[\"x-mcp-header\"]",
            r#""x-mcp-header""#,
        ] {
            assert_eq!(Mirrored::read(raw(odd).json()), Ok(Mirrored::default()));
        }
    }

    #[test]
    fn marked_property_may_contain_marked_properties() {
        let tool = read(&of(
            r#""a":{"type":"string","x-mcp-header":"A","properties":{
            "b":{"type":"string","x-mcp-header":"B"}}}"#,
        ))
        .unwrap();
        assert_eq!(sent(&tool, r#"{"a":"x"}"#), ["Mcp-Param-A: x"]);
        assert_eq!(sent(&tool, r#"{"a":{"b":"y"}}"#), ["Mcp-Param-B: y"]);
    }

    #[test]
    fn duplicate_members_make_the_marks_ambiguous() {
        let (a, b) = (
            r#"{"type":"string","x-mcp-header":"A"}"#,
            r#"{"type":"string"}"#,
        );
        for schema in [
            of(&format!(r#""p":{a},"p":{b}"#)),
            of(&format!(r#""p":{b},"\u0070":{a}"#)),
            format!(r#"{{"properties":{{"p":{a}}},"properties":{{"p":{b}}}}}"#),
            of(r#""p":{"type":"string","x-mcp-header":"A","x-mcp-header":"B"}"#),
            of(r#""p":{"type":"string","x-mcp-header":"A","type":"integer"}"#),
        ] {
            assert_eq!(read(&schema), Err(Unfit::Ambiguous), "{schema}");
        }
        let marked = of(&format!(r#""p":{a}"#));
        let two = raw(&format!(r#"{{"inputSchema":{marked},"inputSchema":{{}}}}"#));
        assert_eq!(Mirrored::read(two.json()), Err(Unfit::Ambiguous));
        // Without a mark, the ambiguity does not matter.
        let plain = raw(
            r#"{"title":"\u0061","inputSchema":{"properties":{"p":{},"p":{}}},"inputSchema":{}}"#,
        );
        assert_eq!(Mirrored::read(plain.json()), Ok(Mirrored::default()));
    }

    #[test]
    fn schema_depth_is_limited() {
        let nested = |depth: usize| {
            let marked = r#"{"type":"string","x-mcp-header":"P"}"#.to_owned();
            (0..depth).fold(marked, |inner, _| of(&format!(r#""p":{inner}"#)))
        };
        let deepest = read(&nested(63)).unwrap();
        let arguments = (0..63).fold("\"x\"".to_owned(), |inner, _| format!(r#"{{"p":{inner}}}"#));
        assert_eq!(sent(&deepest, &arguments), ["Mcp-Param-P: x"]);
        assert_eq!(deepest.clone(), deepest);
        assert_eq!(read(&nested(64)), Err(Unfit::Deep));
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(
            read(&of(&format!(r#""x-mcp-header":{{"default":{deep}}}"#))),
            Err(Unfit::Deep)
        );
        // A text that cannot contain a mark is not searched.
        assert_eq!(
            read(&of(&format!(r#""p":{{"default":{deep}}}"#))),
            Ok(Mirrored::default())
        );
        assert_eq!(sent(&deepest, &deep), [""; 0]);
    }

    #[test]
    fn memory_is_bounded_by_the_size_of_the_schema() {
        let name = "n".repeat(10_000);
        let marks: Vec<String> = (0..1000)
            .map(|mark| format!(r#""{mark}":{{"type":"string","x-mcp-header":"{mark}"}}"#))
            .collect();
        let schema = of(&format!(r#""{name}":{}"#, of(&marks.join(","))));
        let bytes = read(&schema).unwrap().bytes();
        assert!(bytes > name.len() + 1000 * size_of::<Property>(), "{bytes}");
        assert!(bytes < 3 * schema.len(), "{bytes}");
        assert_eq!(Mirrored::default().bytes(), 0);
    }

    #[test]
    fn errors_are_short_and_show_no_values() {
        let long = "n".repeat(10_000);
        let schema = of(&format!(r#""{long}":{{"x-mcp-header":"hunter2 "}}"#));
        let error = read(&schema).unwrap_err().to_string();
        assert!(error.len() < 150, "{error}");
        assert!(!error.contains("hunter2"), "{error}");
        let odd = of(r#""a\u001b\n":{"x-mcp-header":"A"}"#);
        assert_eq!(
            read(&odd).unwrap_err().to_string(),
            r#"the x-mcp-header at "inputSchema/properties/a\u{1b}\n" is not on a boolean, an integer or a string"#
        );
    }

    #[test]
    fn truncated_schema_does_not_panic() {
        let schema = of(
            r#""é\"\\":{"type":"string","x-mcp-header":"P","a":[1,{"b":null}]},"c":{"items":[]}"#,
        );
        for (start, _) in schema.char_indices() {
            for (end, _) in schema.char_indices().filter(|(end, _)| *end >= start) {
                let _ = Search::default().over(&schema[start..end]);
            }
        }
    }

    #[test]
    fn tool_list_reports_marked_and_unfit_tools() {
        // S-XHDR-06, S-XHDR-07.
        let fit = r#"{"name":"fit","inputSchema":{"properties":{"p":{"type":"string","x-mcp-header":"P"}}}}"#;
        let plain = r#"{ "name" : "plain", "inputSchema":{"type":"object"}}"#;
        let unfit = r#"{"inputSchema":{"items":{"x-mcp-header":"P"}},"name":"un\u0066it"}"#;
        let nameless = r#"{"inputSchema":{"x-mcp-header":"P"}}"#;
        let result = raw(&format!(
            r#"{{"_meta":{{"a":1.50}},"tools":[{fit},{unfit},{plain},{nameless},7],"nextCursor":"c"}}"#
        ));
        let survey = survey(result.json());
        let names: Vec<&str> = survey.tools.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["fit"]);
        assert_eq!(sent(&survey.tools[0].1, r#"{"p":"x"}"#), ["Mcp-Param-P: x"]);
        let place = |at: &str| Unfit::Place { at: at.into() };
        assert_eq!(
            survey.dropped,
            [
                ("unfit".into(), place("inputSchema/items")),
                ("".into(), place("inputSchema")),
            ]
        );
        let rest =
            format!(r#"{{"_meta":{{"a":1.50}},"tools":[{fit},{plain},7],"nextCursor":"c"}}"#);
        assert_eq!(survey.rest.unwrap().as_str(), rest);
    }

    #[test]
    fn tool_list_without_unfit_tools_is_unchanged() {
        for (result, tools) in [
            (
                r#"{"tools":[{"name":"a","inputSchema":{"type":"object"}}]}"#,
                0,
            ),
            (
                r#"{"tools":[{"name":"a","description":"x-mcp-header"}]}"#,
                0,
            ),
            (r#"{"tools":[{"name":"\u0061","inputSchema":{}}]}"#, 0),
            (r#"{"tools":{"x-mcp-header":"P"},"x-mcp-header":"P"}"#, 0),
            (r#"["x-mcp-header"]"#, 0),
            (
                r#"{"t\u006fols":[{"name":"\u0061","inputSchema":{"properties":{"p":{"type":"string","x-mcp-he\u0061der":"P"}}}}]}"#,
                1,
            ),
            // A tool without a name cannot be called.
            (
                r#"{"tools":[{"name":1,"inputSchema":{"properties":{"p":{"type":"string","x-mcp-header":"P"}}}}]}"#,
                0,
            ),
        ] {
            let survey = survey(raw(result).json());
            assert_eq!(survey.tools.len(), tools, "{result}");
            assert!(survey.dropped.is_empty(), "{result}");
            assert!(survey.rest.is_none(), "{result}");
        }
    }

    #[test]
    fn unfit_tool_is_dropped_despite_escapes_or_duplicates() {
        let unfit = r#"{"name":"u","inputSchema":{"it\u0065ms":{"\u0078-mcp-header":"P"}}}"#;
        let fit = r#"{"name":"f","inputSchema":{}}"#;
        let two_names = r#"{"name":"a","name":"b","inputSchema":{"properties":{"p":{"type":"string","x-mcp-header":"P"}}}}"#;
        for (result, rest) in [
            (
                format!(r#"{{"tools":[{unfit}]}}"#),
                r#"{"tools":[]}"#.to_owned(),
            ),
            (
                format!(r#"{{"tools":[{fit}],"\u0074ools":[{unfit},{fit}]}}"#),
                format!(r#"{{"tools":[{fit}],"\u0074ools":[{fit}]}}"#),
            ),
            (
                format!(r#"{{"tools":[{two_names},{fit}]}}"#),
                format!(r#"{{"tools":[{fit}]}}"#),
            ),
        ] {
            let survey = survey(raw(&result).json());
            assert_eq!(survey.dropped.len(), 1, "{result}");
            assert_eq!(survey.rest.unwrap().as_str(), rest);
        }
    }
}
