//! One JSON value, borrowed as its text. Does not know the meaning of the value.

use alloc::borrow::{Cow, ToOwned};
use core::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::Error as _};
use serde_json::value::RawValue;

use super::object::{self, ObjectError};
use super::payload::Payload;
use super::scan::Cursor;
use super::skip::plain_end;
use super::unescape;

/// A valid JSON value, exactly as it was written. [`Payload`] is the same, owned.
///
/// The text is already validated, so searching in it is cheap. Two values are equal if their texts are equal. `Debug` shows only the
/// length, because payloads hold what users type and what servers answer.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct Json<'a>(&'a str);

/// The error for a text that is not exactly one JSON value.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the text is not one JSON value")]
pub struct NotJson;

impl<'a> Json<'a> {
    /// An object without members.
    pub const EMPTY: Json<'static> = Json("{}");

    /// Checks that a text is one JSON value, and strips the whitespace around it.
    ///
    /// Nesting of any depth is accepted, and cannot exhaust the stack.
    ///
    /// # Errors
    ///
    /// When the text is not JSON, or holds more than one value.
    pub fn read(text: &'a str) -> Result<Self, NotJson> {
        let mut cursor = Cursor::new(text);
        let value = cursor.value().map_err(|_| NotJson)?;
        if cursor.is_at_end() {
            Ok(Self(value))
        } else {
            Err(NotJson)
        }
    }

    /// Wraps a text that is already validated.
    #[inline]
    pub(crate) const fn checked(text: &'a str) -> Self {
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

    /// Whether the value is null, which some peers write for an absent value.
    #[must_use]
    #[inline]
    pub fn is_null(self) -> bool {
        self.0 == "null"
    }

    /// The content, if the value is a string of valid Unicode. It is copied only if it contains escapes.
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
    /// When the value is not an object, or has the member twice.
    pub fn member(self, key: &str) -> Result<Option<Json<'a>>, ObjectError> {
        object::member(self, key)
    }

    /// Reads the value as a `T`, which may borrow from the text.
    ///
    /// The error of `serde_json` can quote the offending value. Do not log it where payloads are secret.
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

/// `serde_json` writes only its own raw values verbatim, so this validates the text once more.
impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = self.parse().map_err(S::Error::custom)?;
        raw.serialize(serializer)
    }
}
