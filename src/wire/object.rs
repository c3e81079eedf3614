//! The members of a JSON object that is kept as text; knows no member by name.

use alloc::{borrow::Cow, string::String};
use core::fmt;

use serde::de::{Deserializer, Error, Visitor};

use super::{
    json::Json,
    payload::Payload,
    scan::{Cursor, NotJson},
};

/// Why the members of a text cannot be told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum ObjectError {
    /// The member asked for is there more than once, and readers differ on which one counts.
    Duplicate,
    /// The text is not one JSON object.
    NotAnObject,
}

impl fmt::Display for ObjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Duplicate => "the object has the member more than once",
            Self::NotAnObject => "the text is not a JSON object",
        })
    }
}

impl core::error::Error for ObjectError {}

impl From<NotJson> for ObjectError {
    fn from(_: NotJson) -> Self {
        Self::NotAnObject
    }
}

/// The value of the top-level member `key` of `object`.
///
/// Keys are compared after unescaping.
///
/// # Errors
///
/// When the value is no object, or has the member twice.
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

/// Shows every top-level member of `object` to `visit`, in the order of the text and with its unescaped key.
///
/// No key is copied but those that hold escapes, and no depth of nesting exhausts the stack. A key that is no Unicode
/// text (an escaped lone surrogate) has replacement characters in their place.
///
/// # Errors
///
/// When the value is no object.
pub fn members<'a>(
    object: Json<'a>,
    mut visit: impl FnMut(Cow<'a, str>, Json<'a>),
) -> Result<(), ObjectError> {
    let mut members = Members::of(object)?;
    while let Some(key) = members.key()? {
        visit(key, members.value()?);
    }
    Ok(())
}

/// Shows every top-level member of `object` to `visit`, and before its member `nested` each member of that: in one walk. Whether it is
/// such a one is shown first. Returns the member `nested` as it is written, key and all.
///
/// # Errors
///
/// When the value is no object.
pub(crate) fn members_of_both<'a>(
    object: Json<'a>,
    nested: &str,
    mut visit: impl FnMut(bool, Cow<'a, str>, Json<'a>),
) -> Result<Option<&'a str>, ObjectError> {
    let mut found = None;
    let mut walk = Members::of(object)?;
    while let Some(key) = walk.key()? {
        let value = if key == nested {
            let start = walk.start;
            let value = walk.object(|key, value| visit(true, key, value))?;
            found = Some(walk.cursor.since(start).trim_ascii_end());
            value
        } else {
            walk.value()?
        };
        visit(false, key, value);
    }
    Ok(found)
}

/// The object without a member of it, which is a part of its text.
pub(crate) fn cut(object: Json<'_>, member: &str) -> Payload {
    let whole = object.as_str();
    let start = member.as_ptr().addr() - whole.as_ptr().addr();
    let before = whole[..start].trim_ascii_end();
    let after = whole[start + member.len()..].trim_ascii_start();
    // One of the commas around it goes with it.
    let (before, after) = match before.strip_suffix(',') {
        Some(before) => (before, after),
        None => (before, after.strip_prefix(',').unwrap_or(after)),
    };
    let mut rest = String::with_capacity(before.len() + after.len());
    rest.push_str(before);
    rest.push_str(after);
    Payload::checked(rest.into_boxed_str())
}

/// The object without the members whose keys `is_unwanted` picks, in the order of the text.
///
/// # Errors
///
/// When the value is no object.
pub fn without(
    object: Json<'_>,
    mut is_unwanted: impl FnMut(&str) -> bool,
) -> Result<Payload, ObjectError> {
    replaced(object, |key, value| (!is_unwanted(key)).then_some(value))
}

/// The object with each value as `replace` has it, and without the members for which it has none. Keys stay as they are
/// spelled.
///
/// # Errors
///
/// When the value is no object.
pub fn replaced<'a>(
    object: Json<'a>,
    mut replace: impl FnMut(&str, Json<'a>) -> Option<Json<'a>>,
) -> Result<Payload, ObjectError> {
    let mut kept = String::with_capacity(object.as_str().len());
    kept.push('{');
    let mut walk = Members::of(object)?;
    while let Some(key) = walk.key()? {
        let spelling = &object.as_str()[walk.start..walk.spelling_end];
        if let Some(value) = replace(&key, walk.value()?) {
            if kept.len() > 1 {
                kept.push(',');
            }
            for piece in [spelling, ":", value.as_str()] {
                kept.push_str(piece);
            }
        }
    }
    kept.push('}');
    // Valid keys and valid values in their places are a valid object.
    Ok(Payload::checked(kept.into_boxed_str()))
}

/// A walk over the members of an object: a key, its value, the next key.
pub(super) struct Members<'a> {
    cursor: Cursor<'a>,
    /// Whether the text was checked before.
    is_checked: bool,
    is_first: bool,
    /// Where the member begins whose key was just read.
    start: usize,
    /// Where the key just read ends.
    spelling_end: usize,
}

impl<'a> Members<'a> {
    /// A walk over a value.
    #[inline]
    pub(super) fn of(object: Json<'a>) -> Result<Self, ObjectError> {
        Self::begin(Cursor::in_checked(object.as_str()), true)
    }

    /// A walk over a text of which nothing is known; it is checked on the way, to its end.
    #[inline]
    pub(super) fn of_text(text: &'a str) -> Result<Self, ObjectError> {
        Self::begin(Cursor::new(text), false)
    }

    #[inline]
    fn begin(mut cursor: Cursor<'a>, is_checked: bool) -> Result<Self, ObjectError> {
        cursor.space();
        if !cursor.eat(b'{') {
            return Err(ObjectError::NotAnObject);
        }
        Ok(Self {
            cursor,
            is_checked,
            is_first: true,
            start: 0,
            spelling_end: 0,
        })
    }

    /// Passes over the first member, if it is spelled exactly like this, with the comma and the quote of the next one behind it.
    #[inline]
    pub(super) fn skip_first(&mut self, spelling: &str) -> bool {
        self.cursor.eat_up_to_last(spelling)
    }

    /// The next key, or `None` at the end of the object, which must be the end of the text too.
    #[inline]
    pub(super) fn key(&mut self) -> Result<Option<Cow<'a, str>>, ObjectError> {
        let key = self.next_key()?;
        if key.is_none() && !self.cursor.is_at_end() {
            return Err(ObjectError::NotAnObject);
        }
        Ok(key)
    }

    /// The next key, or `None` behind the end of the object.
    #[inline]
    fn next_key(&mut self) -> Result<Option<Cow<'a, str>>, ObjectError> {
        if self.cursor.eat(b'}') {
            return Ok(None);
        }
        if !self.is_first && !self.cursor.eat(b',') || self.cursor.peek() != Some(b'"') {
            return Err(ObjectError::NotAnObject);
        }
        self.is_first = false;
        self.start = self.cursor.at();
        let is_plain = if self.is_checked {
            self.cursor.pass_string()
        } else {
            self.cursor.string()?
        };
        let key = if is_plain {
            Cow::Borrowed(self.cursor.within(self.start))
        } else {
            unescaped(self.cursor.since(self.start))
        };
        self.spelling_end = self.cursor.at();
        self.cursor.space();
        if !self.cursor.eat(b':') {
            return Err(ObjectError::NotAnObject);
        }
        Ok(Some(key))
    }

    /// The value of the key just read. If it is an object, its members are shown.
    #[inline]
    fn object(
        &mut self,
        mut visit: impl FnMut(Cow<'a, str>, Json<'a>),
    ) -> Result<Json<'a>, ObjectError> {
        let start = self.cursor.at();
        if !self.cursor.eat(b'{') {
            return self.value();
        }
        self.is_first = true;
        while let Some(key) = self.next_key()? {
            visit(key, self.value()?);
        }
        self.is_first = false;
        Ok(Json::checked(self.cursor.since(start).trim_ascii_end()))
    }

    /// The value of the key just read.
    #[inline]
    pub(super) fn value(&mut self) -> Result<Json<'a>, ObjectError> {
        let start = self.cursor.at();
        if self.is_checked {
            self.cursor.pass();
        } else {
            self.cursor.value()?;
        }
        let value = self.cursor.since(start);
        self.cursor.space();
        Ok(Json::checked(value))
    }
}

/// The content of a string with escapes. It is read as bytes, because as `str` one odd key would cost the whole object.
fn unescaped(string: &str) -> Cow<'_, str> {
    struct Lossy;

    impl Visitor<'_> for Lossy {
        type Value = String;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string")
        }

        fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<String, E> {
            Ok(String::from_utf8_lossy(bytes).into_owned())
        }
    }

    serde_json::Deserializer::from_str(string)
        .deserialize_bytes(Lossy)
        .map_or(Cow::Borrowed(string), Cow::Owned)
}
