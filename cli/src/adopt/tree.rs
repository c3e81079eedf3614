//! Reads JSON and TOML into one kind of tree, in which every value has its place in the text. Changes no text and knows no host.

use std::fmt;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::hosts::Syntax;

/// How deep the tree is read. No shape is deeper; values below are [`Kind::Other`].
const MAX_DEPTH: usize = 8;

const BYTE_ORDER_MARK: char = '\u{feff}';

/// A value, and where it is in the text.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) range: Range<usize>,
    pub(super) kind: Kind,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Bool(bool),
    List(Vec<Node>),
    /// The null of JSON.
    Null,
    Other,
    Table(Vec<Member>),
    Text(String),
}

/// A key with its value. A key of JSON can be there more than once.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) key: String,
    pub(super) key_range: Range<usize>,
    pub(super) value: Node,
}

impl Node {
    pub(super) fn members(&self) -> &[Member] {
        match &self.kind {
            Kind::Table(members) => members,
            _ => &[],
        }
    }

    /// Returns the last member with this key, which is the one that hosts use.
    pub(super) fn member(&self, key: &str) -> Option<&Member> {
        let members = self.members().iter();
        members.rev().find(|member| member.key == key)
    }

    pub(super) fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// Why a text cannot be read, and where. Lines and columns count from 1; columns count characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SyntaxError {
    pub(super) line: usize,
    pub(super) column: usize,
    pub(super) message: String,
}

impl SyntaxError {
    fn at(text: &str, offset: usize, message: &str) -> SyntaxError {
        let mut offset = offset.min(text.len());
        while !text.is_char_boundary(offset) {
            offset -= 1;
        }
        let before = &text[..offset];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        SyntaxError {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            message: message.to_owned(),
        }
    }
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SyntaxError {
            line,
            column,
            message,
        } = self;
        write!(f, "line {line}, column {column}: {message}")
    }
}

/// Reads a text. An empty text is an empty table, as it is for most hosts.
pub(super) fn parse(text: &str, syntax: Syntax) -> Result<Node, SyntaxError> {
    // Spaces in place of a byte order mark keep the places of all values.
    let without_mark = text
        .strip_prefix(BYTE_ORDER_MARK)
        .map(|rest| " ".repeat(BYTE_ORDER_MARK.len_utf8()) + rest);
    let text = without_mark.as_deref().unwrap_or(text);
    match syntax {
        Syntax::Json => parse_json(text),
        Syntax::Toml => parse_toml(text),
    }
}

fn parse_json(text: &str) -> Result<Node, SyntaxError> {
    let mut bytes = text.as_bytes().to_vec();
    let is_stripped = json_strip_comments::strip_slice(&mut bytes).is_ok();
    // The parser reports what is wrong with a comment, because it knows the place.
    let plain = match String::from_utf8(bytes) {
        Ok(plain) if is_stripped => plain,
        _ => text.to_owned(),
    };
    if plain.trim().is_empty() {
        return Ok(Node {
            range: 0..0,
            kind: Kind::Table(Vec::new()),
        });
    }
    let root: &RawValue = serde_json::from_str(&plain).map_err(|error| {
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or_default();
        SyntaxError::at(text, offset_of(&plain, &error), message)
    })?;
    Ok(json_node(root, &plain, 0))
}

/// Where the parser of JSON stopped. `plain` has the length of the text, but no newlines inside comments.
fn offset_of(plain: &str, error: &serde_json::Error) -> usize {
    let mut line_start = 0;
    for _ in 1..error.line() {
        let newline = plain[line_start..].find('\n');
        line_start += newline.map_or(0, |newline| newline + 1);
    }
    // The column is that of the byte before the place, so it counts from 1. It is 0 at the start of a line.
    line_start + error.column().saturating_sub(1)
}

/// The members of a JSON object, with repeated keys.
struct JsonMembers<'a>(Vec<(&'a RawValue, &'a RawValue)>);

impl<'de> Deserialize<'de> for JsonMembers<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = JsonMembers<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(JsonMembers(members))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// Converts a value that borrows from `plain`. The address of a part tells its place.
fn json_node(raw: &RawValue, plain: &str, depth: usize) -> Node {
    let range = |raw: &RawValue| {
        let start = raw.get().as_ptr().addr() - plain.as_ptr().addr();
        start..start + raw.get().len()
    };
    let text = raw.get();
    let kind = match text.as_bytes().first() {
        _ if depth > MAX_DEPTH => None,
        Some(b'{') => serde_json::from_str(text).ok().map(|JsonMembers(members)| {
            let member = |(key, value): (&RawValue, &RawValue)| {
                Some(Member {
                    key: serde_json::from_str(key.get()).ok()?,
                    key_range: range(key),
                    value: json_node(value, plain, depth + 1),
                })
            };
            Kind::Table(members.into_iter().filter_map(member).collect())
        }),
        Some(b'[') => serde_json::from_str(text)
            .ok()
            .map(|items: Vec<&RawValue>| {
                let items = items.into_iter();
                Kind::List(
                    items
                        .map(|item| json_node(item, plain, depth + 1))
                        .collect(),
                )
            }),
        Some(b'"') => serde_json::from_str(text).ok().map(Kind::Text),
        Some(b't') => Some(Kind::Bool(true)),
        Some(b'f') => Some(Kind::Bool(false)),
        Some(b'n') => Some(Kind::Null),
        _ => None,
    };
    Node {
        range: range(raw),
        kind: kind.unwrap_or(Kind::Other),
    }
}

fn parse_toml(text: &str) -> Result<Node, SyntaxError> {
    let root = DeTable::parse(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        SyntaxError::at(text, offset, error.message())
    })?;
    Ok(Node {
        range: 0..text.len(),
        kind: toml_table(root.get_ref(), 0),
    })
}

fn toml_node(value: &Spanned<DeValue<'_>>, depth: usize) -> Node {
    let kind = match value.get_ref() {
        _ if depth > MAX_DEPTH => Kind::Other,
        DeValue::String(text) => Kind::Text(text.to_string()),
        DeValue::Boolean(value) => Kind::Bool(*value),
        DeValue::Array(items) => {
            let items = items.iter();
            Kind::List(items.map(|item| toml_node(item, depth + 1)).collect())
        }
        DeValue::Table(table) => toml_table(table, depth),
        DeValue::Integer(_) | DeValue::Float(_) | DeValue::Datetime(_) => Kind::Other,
    };
    Node {
        range: value.span(),
        kind,
    }
}

fn toml_table(table: &DeTable<'_>, depth: usize) -> Kind {
    let members = table.iter().map(|(key, value)| Member {
        key: key.get_ref().to_string(),
        key_range: key.span(),
        value: toml_node(value, depth + 1),
    });
    let mut members: Vec<Member> = members.collect();
    // The parser sorts by key.
    members.sort_by_key(|member| member.key_range.start);
    Kind::Table(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_values_are_those_of_the_text_with_comments() {
        let text = "{ // é, \"no\": 1\n  \"a\": /* ü */ [\"b\\u0063\", true,],\n  \"a\": null,\n}";
        let root = parse(text, Syntax::Json).expect("valid");
        let members = root.members();
        assert_eq!(members.len(), 2);
        assert_eq!(&text[members[0].key_range.clone()], "\"a\"");
        let Kind::List(items) = &members[0].value.kind else {
            panic!("{members:?}");
        };
        assert_eq!(&text[items[0].range.clone()], "\"b\\u0063\"");
        assert_eq!(items[0].text(), Some("bc"));
        assert_eq!(&text[items[1].range.clone()], "true");
        assert!(matches!(root.member("a").unwrap().value.kind, Kind::Null));
    }

    #[test]
    fn toml_members_are_in_the_order_of_the_text() {
        let text = "# first\n[z.b]\nx = 'one'\n[z.a]\nx = [ \"two\", 3 ]\ny = { k = 1 }\n";
        let root = parse(text, Syntax::Toml).expect("valid");
        let tables = root.member("z").expect("a table").value.members();
        let names: Vec<&str> = tables.iter().map(|member| member.key.as_str()).collect();
        assert_eq!(names, ["b", "a"]);
        let one = &tables[0].value.member("x").unwrap().value;
        assert_eq!(&text[one.range.clone()], "'one'");
        let list = &tables[1].value.member("x").unwrap().value;
        assert_eq!(&text[list.range.clone()], "[ \"two\", 3 ]");
        let table = &tables[1].value.member("y").unwrap().value;
        assert_eq!(&text[table.range.clone()], "{ k = 1 }");
    }

    #[test]
    fn errors_have_the_place_in_the_text() {
        let error = |text, syntax| {
            let error = parse(text, syntax).expect_err("invalid");
            (error.line, error.column)
        };
        assert_eq!(error("{\n  \"a\": 1\n  \"b\": 2\n}", Syntax::Json), (3, 3));
        assert_eq!(error("/* é\n\n */ {\n  'a': 1}", Syntax::Json), (4, 3));
        assert_eq!(error("{\"é\": x}", Syntax::Json), (1, 7));
        assert_eq!(error("{\"a\": 1", Syntax::Json), (1, 7));
        assert_eq!(error("{} /x", Syntax::Json), (1, 4));
        assert_eq!(error("a = 1\nb = é\n", Syntax::Toml), (2, 5));
        assert_eq!(error("[a]\nx = 1\nx = 2\n", Syntax::Toml), (3, 1));
    }

    #[test]
    fn deep_text_is_read_without_recursion() {
        let text = format!("{{\"a\": {}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(parse(&text, Syntax::Json).is_ok());
        assert!(parse(&"[".repeat(100_000), Syntax::Json).is_err());
        let text = format!("a = {}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(parse(&text, Syntax::Toml).is_err());
    }

    #[test]
    fn byte_order_mark_is_skipped() {
        for (text, syntax) in [
            ("\u{feff}{\"a\": 1}", Syntax::Json),
            ("\u{feff}a = 1", Syntax::Toml),
        ] {
            let root = parse(text, syntax).expect("valid");
            let value = &root.member("a").expect("a member").value;
            assert_eq!(&text[value.range.clone()], "1");
        }
    }

    #[test]
    fn empty_text_is_an_empty_table() {
        for text in ["", " \r\n", "// nothing\n"] {
            assert!(
                parse(text, Syntax::Json)
                    .expect("valid")
                    .members()
                    .is_empty()
            );
        }
        assert!(parse("", Syntax::Toml).expect("valid").members().is_empty());
    }
}
