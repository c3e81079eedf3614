//! One JSON value, borrowed as the text that it was written in; knows nothing of what the value means.

use alloc::borrow::{Cow, ToOwned};
use core::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::Error as _};
use serde_json::value::RawValue;

use super::object::{self, ObjectError};
use super::payload::Payload;
use super::scan::{Cursor, plain_end};
use super::unescape;

/// A valid JSON value, exactly as it was written. [`Payload`] is the same, owned.
///
/// Whoever has one need not check the text again: to look for something in it costs little. Two are equal when their texts
/// are. `Debug` tells the length and nothing else, because payloads hold what users type and servers answer.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct Json<'a>(&'a str);

/// A text is not one JSON value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NotJson;

impl fmt::Display for NotJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the text is not one JSON value")
    }
}

impl core::error::Error for NotJson {}

impl<'a> Json<'a> {
    /// An object without members.
    pub const EMPTY: Json<'static> = Json("{}");

    /// Checks that a text is one JSON value, and takes off the whitespace around it.
    ///
    /// No depth of nesting is refused, and none exhausts the stack.
    ///
    /// # Errors
    ///
    /// When the text is not JSON, or more than one value.
    pub fn read(text: &'a str) -> Result<Self, NotJson> {
        let mut cursor = Cursor::new(text);
        let value = cursor.value().map_err(|_| NotJson)?;
        if cursor.is_at_end() {
            Ok(Self(value))
        } else {
            Err(NotJson)
        }
    }

    /// A value whose text was checked.
    #[inline]
    pub(super) const fn checked(text: &'a str) -> Self {
        Self(text)
    }

    /// The JSON text.
    #[must_use]
    #[inline]
    pub const fn as_str(self) -> &'a str {
        self.0
    }

    /// Whether the value is a JSON object.
    #[must_use]
    #[inline]
    pub fn is_object(self) -> bool {
        self.0.starts_with('{')
    }

    /// Whether the value is null, which some peers write where they mean nothing.
    #[must_use]
    #[inline]
    pub fn is_null(self) -> bool {
        self.0 == "null"
    }

    /// The content, if the value is a string of Unicode text. Copied only where it holds escapes.
    #[must_use]
    pub fn text(self) -> Option<Cow<'a, str>> {
        let inner = self.0.strip_prefix('"')?.strip_suffix('"')?;
        if plain_end(inner.as_bytes()) == inner.len() {
            Some(Cow::Borrowed(inner))
        } else {
            unescape::text(inner).map(Cow::Owned)
        }
    }

    /// The value of the member `key`; see [`object::member`].
    ///
    /// # Errors
    ///
    /// When the value is no object, or has the member twice.
    pub fn member(self, key: &str) -> Result<Option<Json<'a>>, ObjectError> {
        object::member(self, key)
    }

    /// Reads the value as a `T`, which may borrow from the text.
    ///
    /// The error of `serde_json` can quote the value it stumbled over: do not log it where payloads are secret.
    ///
    /// # Errors
    ///
    /// When the value is not a `T`, or is nested deeper than `serde_json` reads (128 levels).
    pub fn parse<T: Deserialize<'a>>(self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.0)
    }
}

impl fmt::Debug for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Json({} bytes)", self.0.len())
    }
}

impl<'a> From<&'a Payload> for Json<'a> {
    fn from(payload: &'a Payload) -> Self {
        payload.json()
    }
}

impl<'a> From<&'a RawValue> for Json<'a> {
    fn from(raw: &'a RawValue) -> Self {
        Self(raw.get())
    }
}

impl From<Json<'_>> for Payload {
    fn from(json: Json<'_>) -> Self {
        Self::checked(json.0.to_owned().into_boxed_str())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Json<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&RawValue>::deserialize(deserializer).map(Self::from)
    }
}

/// `serde_json` writes only its own raw values as they are, so the text is checked once more on the way.
impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = self.parse().map_err(S::Error::custom)?;
        raw.serialize(serializer)
    }
}
