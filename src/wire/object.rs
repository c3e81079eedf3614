//! The members of a JSON object that is kept as text; knows no member by name.

use alloc::{borrow::Cow, format, string::String, vec::Vec};
use core::{fmt, ops::Range};

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::payload::Payload;

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

/// Where in `object` the value of its top-level member `key` lies, as a range of bytes.
///
/// Keys are compared after unescaping.
///
/// # Errors
///
/// When the text is not one JSON object, or has the member twice.
pub fn member(object: &str, key: &str) -> Result<Option<Range<usize>>, ObjectError> {
    let mut found = None;
    let mut twice = false;
    members(object, |name, value| {
        if name == key {
            let start = value.get().as_ptr().addr() - object.as_ptr().addr();
            twice |= found.replace(start..start + value.get().len()).is_some();
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
/// When the text is not one JSON object; the members before the flaw have been shown.
pub fn members<'a>(
    object: &'a str,
    mut visit: impl FnMut(Cow<'a, str>, &'a RawValue),
) -> Result<(), ObjectError> {
    let mut members = Members::of(object)?;
    while let Some(key) = members.key()? {
        visit(key, members.value()?);
    }
    Ok(())
}

/// The object without the members whose keys `is_unwanted` picks, in the order of the text.
///
/// # Errors
///
/// When the text is not one JSON object.
pub fn without(
    object: &str,
    mut is_unwanted: impl FnMut(&str) -> bool,
) -> Result<Payload, ObjectError> {
    replaced(object, |key, value| (!is_unwanted(key)).then_some(value))
}

/// The object with each value as `replace` has it, and without the members for which it has none.
///
/// # Errors
///
/// When the text is not one JSON object.
pub fn replaced<'a>(
    object: &'a str,
    mut replace: impl FnMut(&str, &'a RawValue) -> Option<&'a RawValue>,
) -> Result<Payload, ObjectError> {
    let mut kept = Vec::new();
    let mut walk = Members::of(object)?;
    while let Some(key) = walk.key()? {
        let spelling = walk.spelling;
        if let Some(value) = replace(&key, walk.value()?) {
            kept.push((key, spelling, value));
        }
    }
    if kept.iter().all(|(key, ..)| matches!(key, Cow::Borrowed(_))) {
        // Serialised rather than pasted: what comes out of a serialiser need not be checked once more.
        return Payload::of(&Plain(&kept)).map_err(|_| ObjectError::NotAnObject);
    }
    Payload::from_text(pasted(&kept)).map_err(|_| ObjectError::NotAnObject)
}

/// A member that is kept: its key, how that is spelled, its value.
type Kept<'a> = (Cow<'a, str>, &'a str, &'a RawValue);

/// Members whose keys have no escapes.
struct Plain<'k, 'a>(&'k [Kept<'a>]);

impl Serialize for Plain<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, _, value)| (key, value)))
    }
}

/// The members with their keys as they were spelled: one that is no Unicode text could not be spelled again.
fn pasted(kept: &[Kept<'_>]) -> String {
    let members: Vec<String> = kept
        .iter()
        .map(|(_, spelling, value)| format!("{spelling}:{}", value.get()))
        .collect();
    format!("{{{}}}", members.join(","))
}

/// A walk over the members of an object: a key, its value, the next key.
///
/// It steps through the object itself and leaves the values to `serde_json`: a visitor for `serde_json` took a third
/// more instructions to read a short message.
pub(super) struct Members<'a> {
    /// What is ahead, without leading whitespace.
    rest: &'a str,
    first: bool,
    /// The key just read, as it is spelled, quotes included.
    spelling: &'a str,
}

impl<'a> Members<'a> {
    pub(super) fn of(object: &'a str) -> Result<Self, ObjectError> {
        let mut members = Self {
            rest: trim_start(object),
            first: true,
            spelling: "",
        };
        members.eat(b'{')?;
        Ok(members)
    }

    /// The next key, or `None` at the end of the object, which must be the end of the text too.
    pub(super) fn key(&mut self) -> Result<Option<Cow<'a, str>>, ObjectError> {
        if self.eat(b'}').is_ok() {
            return if self.rest.is_empty() {
                Ok(None)
            } else {
                Err(ObjectError::NotAnObject)
            };
        }
        if !self.first {
            self.eat(b',')?;
        }
        self.first = false;
        let key = match self.plain_string() {
            Some(string) => {
                self.spelling = string;
                Cow::Borrowed(&string[1..string.len() - 1])
            }
            None if self.rest.starts_with('"') => {
                let string = self.value()?;
                self.spelling = string.get();
                unescaped(string)
            }
            None => return Err(ObjectError::NotAnObject),
        };
        self.eat(b':')?;
        Ok(Some(key))
    }

    /// The value of the key just read.
    pub(super) fn value(&mut self) -> Result<&'a RawValue, ObjectError> {
        let mut reader = serde_json::Deserializer::from_str(self.rest);
        let value = <&RawValue>::deserialize(&mut reader).map_err(|_| ObjectError::NotAnObject)?;
        self.skip(value.get().len());
        Ok(value)
    }

    /// The text of the value of the key just read; cheap for the plain strings and numbers that ids are.
    pub(super) fn value_text(&mut self) -> Result<&'a str, ObjectError> {
        match self.plain_string().or_else(|| self.plain_integer()) {
            Some(text) => Ok(text),
            None => self.value().map(RawValue::get),
        }
    }

    /// Takes a string without escapes, with its quotes.
    fn plain_string(&mut self) -> Option<&'a str> {
        let [b'"', inner @ ..] = self.rest.as_bytes() else {
            return None;
        };
        for (len, byte) in inner.iter().enumerate() {
            match byte {
                b'"' => return Some(self.skip(len + 2)),
                b'\\' | b'\0'..b' ' => return None,
                _ => {}
            }
        }
        None
    }

    /// Takes a positive integer that has nothing but digits.
    fn plain_integer(&mut self) -> Option<&'a str> {
        let bytes = self.rest.as_bytes();
        let len = bytes.iter().position(|byte| !byte.is_ascii_digit())?;
        let plain = len > 0 && bytes[0] != b'0' && matches!(bytes[len], b',' | b'}');
        plain.then(|| self.skip(len))
    }

    #[inline]
    fn eat(&mut self, byte: u8) -> Result<(), ObjectError> {
        if self.rest.as_bytes().first() != Some(&byte) {
            return Err(ObjectError::NotAnObject);
        }
        self.skip(1);
        Ok(())
    }

    #[inline]
    fn skip(&mut self, len: usize) -> &'a str {
        let (skipped, rest) = self.rest.split_at(len);
        self.rest = trim_start(rest);
        skipped
    }
}

/// Takes off the whitespace that JSON knows, which is less than ASCII's. Compact JSON has none.
#[inline]
fn trim_start(text: &str) -> &str {
    match text.as_bytes() {
        [b'\0'..=b' ', ..] => text.trim_start_matches([' ', '\t', '\n', '\r']),
        _ => text,
    }
}

/// The content of a string with escapes. It is read as bytes, because as `str` one odd key would cost the whole object.
fn unescaped(string: &RawValue) -> Cow<'_, str> {
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

    serde_json::Deserializer::from_str(string.get())
        .deserialize_bytes(Lossy)
        .map_or(Cow::Borrowed(string.get()), Cow::Owned)
}
