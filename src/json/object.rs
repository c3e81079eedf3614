//! Reads and edits the members of a JSON object that is kept as text.

use alloc::{borrow::Cow, string::String};

use memchr::{memchr_iter, memchr2_iter, memchr3_iter};

use super::{
    payload::Payload,
    scan::{Cursor, NotJson, between, content},
    skip::{skip_space, skip_string, skip_value},
    value::Json,
};

/// Why the members of a text cannot be read.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// The requested member occurs more than once, and readers differ on which one counts.
    #[error("the object has the member more than once")]
    Duplicate,
    /// The text is not one JSON object.
    #[error("the text is not a JSON object")]
    NotAnObject,
}

/// The value of the top-level member `key` of `object`.
///
/// Keys are compared after unescaping.
///
/// # Errors
///
/// When the value is not an object, or has the member twice.
pub fn member<'a>(object: Json<'a>, key: &str) -> Result<Option<Json<'a>>, ObjectError> {
    let mut found = None;
    let mut twice = false;
    members(object, |name, value| {
        if name == key {
            twice |= found.replace(value).is_some();
        }
    })?;
    if twice {
        Err(ObjectError::Duplicate)
    } else {
        Ok(found)
    }
}

/// The value of the first top-level member `key`. Reads no further, so a second one is not noticed.
pub(crate) fn first_member<'a>(object: Json<'a>, key: &str) -> Option<Json<'a>> {
    let mut walk = Walk::over(object).ok()?;
    while let Some(found) = walk.key() {
        let value = walk.value();
        if found == key {
            return Some(value);
        }
    }
    None
}

/// Calls `visit` with every top-level member of `object`, in the order of the text and with the unescaped key.
///
/// Only keys with escapes are copied, and no depth of nesting exhausts the stack. A lone surrogate that is escaped in a key becomes a
/// replacement character.
///
/// # Errors
///
/// When the value is not an object.
pub fn members<'a>(
    object: Json<'a>,
    mut visit: impl FnMut(Cow<'a, str>, Json<'a>),
) -> Result<(), ObjectError> {
    each_member(object, &mut visit)
}

/// The loop of [`members`]. It is not generic, because the walk is long and each use would get a copy of it.
fn each_member<'a>(
    object: Json<'a>,
    visit: &mut dyn FnMut(Cow<'a, str>, Json<'a>),
) -> Result<(), ObjectError> {
    let mut walk = Walk::over(object)?;
    while let Some(key) = walk.key() {
        visit(key, walk.value());
    }
    Ok(())
}

/// Selects the parts of an object that are visited while it is validated.
#[derive(Clone, Copy)]
pub(crate) struct Plan<'k> {
    /// The member whose own members are visited, too.
    pub(crate) nested: &'k str,
    /// Members that were validated before (see [`run_of`]). If the nested object contains exactly this text again, it is visited as one
    /// part.
    pub(crate) run: &'k str,
}

/// A part of an object that is visited.
pub(crate) enum Part<'a> {
    /// A member of the object itself.
    Member(Cow<'a, str>, Json<'a>),
    /// The nested object, with its key and without. It comes after all of its parts.
    Nest(&'a str, Json<'a>),
    /// A member of the nested object.
    Nested(Cow<'a, str>, Json<'a>),
    /// The known run of members in the nested object (see [`Plan::run`]).
    Run,
}

/// Calls `visit` with the parts of a value, if it is an object.
pub(crate) fn show<'a>(json: Json<'a>, plan: Plan<'_>, mut visit: impl FnMut(Part<'a>)) {
    if json.is_object() {
        // The text was validated before, so this cannot fail.
        let _ = checked(&mut Cursor::new(json.as_str()), plan, &mut visit);
    }
}

/// Validates the object that is next, and calls `visit` with its members on the way.
#[inline]
pub(crate) fn checked<'a>(
    cursor: &mut Cursor<'a>,
    plan: Plan<'_>,
    visit: &mut impl FnMut(Part<'a>),
) -> Result<Json<'a>, NotJson> {
    let start = cursor.rest();
    let mut has_more = cursor.take_opening(*b"{}");
    while has_more {
        let member = cursor.rest();
        let key = cursor.key()?;
        if key == plan.nested && cursor.is_at_object() {
            let value = nested(cursor, plan.run, visit)?;
            visit(Part::Nest(cursor.since(member), value));
        } else {
            let value = cursor.value()?;
            visit(Part::Member(key, Json::checked(value)));
        }
        has_more = cursor.take_separator(b'}')?;
    }
    Ok(Json::checked(cursor.since(start)))
}

#[inline]
fn nested<'a>(
    cursor: &mut Cursor<'a>,
    run: &str,
    visit: &mut impl FnMut(Part<'a>),
) -> Result<Json<'a>, NotJson> {
    let start = cursor.rest();
    let mut has_more = cursor.take_opening(*b"{}");
    while has_more {
        if cursor.eat_run(run) {
            visit(Part::Run);
        } else {
            let key = cursor.key()?;
            visit(Part::Nested(key, Json::checked(cursor.value()?)));
        }
        has_more = cursor.take_separator(b'}')?;
    }
    Ok(Json::checked(cursor.since(start)))
}

/// The text of all members that `is_wanted` picks, if they stand in a row. `None` if there are none, or if the text alone does not show
/// where the last one ends.
pub(crate) fn run_of(object: Json<'_>, is_wanted: impl Fn(&str) -> bool) -> Option<&str> {
    let (mut start, mut run, mut is_over) = (None, None, false);
    let mut walk = Walk::over(object).ok()?;
    while let Some(key) = walk.key() {
        let member = walk.member;
        walk.value();
        match is_wanted(&key) {
            true if is_over => return None,
            true => run = Some(walk.since(start.get_or_insert(member))),
            false => is_over = start.is_some(),
        }
    }
    run.filter(|run| run.ends_with(['"', '}', ']']))
}

/// A name to search for. It contains no slashes.
#[derive(Clone, Copy)]
pub(crate) struct Sought {
    name: &'static [u8],
    /// The index of its rarest character: its capital, or a character that is not a letter.
    rarest: usize,
}

impl Sought {
    pub(crate) const fn new(name: &'static str) -> Self {
        let name = name.as_bytes();
        let mut rarest = 0;
        while name[rarest].is_ascii_lowercase() && rarest + 1 < name.len() {
            rarest += 1;
        }
        Self { name, rarest }
    }

    const fn letter(self) -> u8 {
        self.name[self.rarest]
    }

    /// Whether the name is in `bytes`, with its rarest character at `at`.
    fn is_at(self, bytes: &[u8], at: usize) -> bool {
        let start = at.checked_sub(self.rarest);
        start.is_some_and(|start| bytes[start..].starts_with(self.name))
    }
}

/// Whether a text may contain one of these names: it is there literally, or the text has a `\u` escape that could spell it. For short
/// texts, this costs less than reading the members; see [`is_short`].
#[inline]
pub(crate) fn may_have(text: &str, [one, other]: [Sought; 2]) -> bool {
    let bytes = text.as_bytes();
    let is_escaped = |at: usize| bytes.get(at + 1) == Some(&b'u');
    let is_there = |at: usize| one.is_at(bytes, at) || other.is_at(bytes, at);
    if is_short(text) {
        let mut hits = memchr3_iter(one.letter(), other.letter(), b'\\', bytes);
        return hits.any(|at| match bytes[at] {
            b'\\' => is_escaped(at),
            _ => is_there(at),
        });
    }
    // Long texts have many escapes. Two searches then cost less than telling escapes from letters at every hit.
    memchr2_iter(one.letter(), other.letter(), bytes).any(is_there)
        || memchr_iter(b'\\', bytes).any(is_escaped)
}

/// Whether [`may_have`] costs less than a walk over the members. Long objects are mostly long strings, which a walk skips quickly.
pub(crate) const fn is_short(object: &str) -> bool {
    object.len() <= 512
}

/// Removes a member from the object. `member` must be a slice of the object's text.
pub(crate) fn cut(object: Json<'_>, member: &str) -> Payload {
    let whole = object.as_str();
    let start = member.as_ptr().addr() - whole.as_ptr().addr();
    let before = whole[..start].trim_ascii_end();
    let after = whole[start + member.len()..].trim_ascii_start();
    // One of the commas around the member goes with it.
    let (before, after) = match before.strip_suffix(',') {
        Some(before) => (before, after),
        None => (before, after.strip_prefix(',').unwrap_or(after)),
    };
    let mut rest = String::with_capacity(before.len() + after.len());
    rest.push_str(before);
    rest.push_str(after);
    Payload::checked(rest.into_boxed_str())
}

/// The object without the members whose keys `is_unwanted` picks. The others keep their order.
///
/// # Errors
///
/// When the value is not an object.
pub fn without(
    object: Json<'_>,
    mut is_unwanted: impl FnMut(&str) -> bool,
) -> Result<Payload, ObjectError> {
    replaced(object, |key, value| (!is_unwanted(key)).then_some(value))
}

/// The object with each value replaced by the result of `replace`, and without the members for which that is `None`. Keys keep their
/// spelling.
///
/// # Errors
///
/// When the value is not an object.
pub fn replaced<'a>(
    object: Json<'a>,
    mut replace: impl FnMut(&str, Json<'a>) -> Option<Json<'a>>,
) -> Result<Payload, ObjectError> {
    replace_each(object, &mut replace)
}

/// The loop of [`replaced`], not generic for the same reason as [`each_member`].
fn replace_each<'a>(
    object: Json<'a>,
    replace: &mut dyn FnMut(&str, Json<'a>) -> Option<Json<'a>>,
) -> Result<Payload, ObjectError> {
    let mut kept = String::with_capacity(object.as_str().len());
    kept.push('{');
    let mut walk = Walk::over(object)?;
    while let Some(key) = walk.key() {
        let value = walk.value();
        if let Some(value) = replace(&key, value) {
            if kept.len() > 1 {
                kept.push(',');
            }
            for piece in [walk.spelling(), ":", value.as_str()] {
                kept.push_str(piece);
            }
        }
    }
    kept.push('}');
    // Valid keys and valid values in their places make a valid object.
    Ok(Payload::checked(kept.into_boxed_str()))
}

/// Walks over the members of an object: a key, its value, the next key. The text must be validated.
pub(super) struct Walk<'a> {
    text: &'a str,
    /// The text ahead.
    pub(super) rest: &'a [u8],
    /// The text from the member whose key was just read.
    member: &'a [u8],
    /// The text after that key.
    spelling_end: &'a [u8],
}

impl<'a> Walk<'a> {
    #[inline]
    fn over(object: Json<'a>) -> Result<Self, ObjectError> {
        let text = object.as_str();
        let [b'{', rest @ ..] = text.as_bytes() else {
            return Err(ObjectError::NotAnObject);
        };
        Ok(Self::within(text, rest))
    }

    /// Walks over an object inside the text. `rest` begins after its opening bracket.
    #[inline]
    pub(super) const fn within(text: &'a str, rest: &'a [u8]) -> Self {
        Self {
            text,
            rest,
            member: rest,
            spelling_end: rest,
        }
    }

    /// The next key; `None` at the end of the object.
    #[inline(always)]
    pub(super) fn key(&mut self) -> Option<Cow<'a, str>> {
        let member = match skip_space(self.rest) {
            [b',', rest @ ..] => skip_space(rest),
            rest => rest,
        };
        let [b'"', string @ ..] = member else {
            return None;
        };
        let (rest, is_plain) = skip_string(string);
        self.member = member;
        self.spelling_end = rest;
        if let [b':', rest @ ..] = skip_space(rest) {
            self.rest = skip_space(rest);
        }
        Some(content(self.text, member, rest, is_plain))
    }

    /// The value of the key just read.
    #[inline(always)]
    pub(super) fn value(&mut self) -> Json<'a> {
        let start = self.rest;
        self.rest = skip_value(start);
        Json::checked(self.since(start))
    }

    /// The text between an earlier position and this one.
    #[inline]
    fn since(&self, start: &[u8]) -> &'a str {
        between(self.text, start, self.rest)
    }

    /// The key just read, as it is spelled.
    fn spelling(&self) -> &'a str {
        between(self.text, self.member, self.spelling_end)
    }
}

#[cfg(test)]
mod tests {
    use super::{ObjectError, member};
    use crate::json::Payload;

    #[test]
    fn member_that_occurs_more_than_once_is_refused() {
        for (object, is_refused) in [
            (r#"{"a":1}"#, false),
            (r#"{"a":1,"a":2}"#, true),
            (r#"{"a":1,"a":2,"\u0061":3}"#, true),
            (r#"{"a":1,"a":2,"a":3,"a":4}"#, true),
        ] {
            let object: Payload = object.parse().expect("it is JSON");
            let found = member(object.json(), "a");
            assert_eq!(matches!(found, Err(ObjectError::Duplicate)), is_refused);
        }
    }
}
