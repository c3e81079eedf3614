//! One JSON value, owned as its text. Does not know the meaning of the value.

use alloc::{boxed::Box, string::String};
use core::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::value::Json;

/// The initial buffer size for serialising. Most values are not longer.
const INITIAL_CAPACITY: usize = 512;

/// A valid JSON value, kept exactly as it was received or serialised.
///
/// Two payloads are equal if their texts are equal, so `{"a":1}` and `{ "a": 1 }` differ. `Debug` shows only the length, because payloads
/// hold what users type and what servers answer.
#[derive(Clone, Eq, PartialEq)]
pub struct Payload(Box<str>);

impl Payload {
    /// Serialises `value`.
    ///
    /// # Errors
    ///
    /// When `value` fails to serialise, or has map keys that are not strings.
    pub fn of(value: &(impl Serialize + ?Sized)) -> Result<Self, serde_json::Error> {
        let text = to_text(value)?;
        Ok(Self(match text.capacity() {
            // A copy costs less than shrinking the allocation, and does not fragment the heap.
            INITIAL_CAPACITY => Box::from(&*text),
            _ => text.into_boxed_str(),
        }))
    }

    /// Takes ownership of a text after checking that it is one JSON value.
    ///
    /// # Errors
    ///
    /// When the text is not JSON, or holds more than one value.
    pub fn from_text(text: String) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text).map(Self::from)
    }

    /// Wraps a text that is already validated.
    pub(crate) const fn checked(text: Box<str>) -> Self {
        Self(text)
    }

    /// The JSON text.
    #[must_use]
    #[inline]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The same value, borrowed.
    #[must_use]
    #[inline]
    pub(crate) fn json(&self) -> Json<'_> {
        Json::checked(&self.0)
    }

    /// Converts the value to the raw value of `serde_json`, which validates the text once more.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "what a payload holds is JSON")]
    pub fn into_raw(self) -> Box<RawValue> {
        RawValue::from_string(self.0.into_string()).expect("a payload is JSON")
    }

    /// Reads the value as a `T`, which may borrow from the payload.
    ///
    /// The error of `serde_json` can quote the offending value. Do not log it where payloads are secret.
    ///
    /// # Errors
    ///
    /// When the value is not a `T`, or is nested deeper than `serde_json` reads (128 levels).
    pub fn parse<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        self.json().parse()
    }

    /// Whether the value is a JSON object.
    #[must_use]
    #[inline]
    pub fn is_object(&self) -> bool {
        self.json().is_object()
    }
}

#[cfg(feature = "std")]
fn to_text(value: &(impl Serialize + ?Sized)) -> Result<String, serde_json::Error> {
    let mut text = alloc::vec::Vec::with_capacity(INITIAL_CAPACITY);
    value.serialize(&mut serde_json::Serializer::new(&mut text))?;
    String::from_utf8(text).map_err(serde::ser::Error::custom)
}

/// Without `std`, `serde_json` itself decides how much it allocates.
#[cfg(not(feature = "std"))]
fn to_text(value: &(impl Serialize + ?Sized)) -> Result<String, serde_json::Error> {
    serde_json::to_string(value)
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.as_str().len())
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Self::from)
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.json().serialize(serializer)
    }
}

impl From<Box<RawValue>> for Payload {
    fn from(raw: Box<RawValue>) -> Self {
        Self(raw.into())
    }
}

impl From<&RawValue> for Payload {
    fn from(raw: &RawValue) -> Self {
        Self::from(Json::from(raw))
    }
}

impl FromStr for Payload {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        serde_json::from_str(text)
    }
}

#[cfg(test)]
mod tests {
    use alloc::{borrow::ToOwned, format, string::ToString, vec, vec::Vec};

    use super::Payload;

    #[test]
    fn debug_shows_only_the_length() {
        let payload: Payload = r#"{"token":"hunter2"}"#.parse().unwrap();
        assert_eq!(format!("{payload:?}"), "Payload(19 bytes)");
    }

    #[test]
    fn text_is_kept_without_outer_whitespace() {
        let payload = Payload::from_text(" {\n\"a\" : 1e0 } \n".to_owned()).unwrap();
        assert_eq!(payload.as_str(), "{\n\"a\" : 1e0 }");
        assert_eq!(payload, "{\n\"a\" : 1e0 }".parse().unwrap());
        assert_ne!(payload, r#"{"a":1e0}"#.parse().unwrap());
        assert!(payload.is_object());
        assert!(!"[{}]".parse::<Payload>().unwrap().is_object());
    }

    #[test]
    fn anything_but_one_valid_value_is_refused() {
        for bad in ["", " ", "{", "{}{}", "tru", "'a'", "[1,]", "01"] {
            assert!(bad.parse::<Payload>().is_err(), "{bad}");
            assert!(Payload::from_text(bad.to_string()).is_err(), "{bad}");
        }
    }

    #[test]
    fn payload_parses_with_borrows_and_serialises_as_its_text() {
        let payload = Payload::of(&vec!["a", "b"]).unwrap();
        assert_eq!(payload.parse::<Vec<&str>>().unwrap(), ["a", "b"]);
        let nested = Payload::of(&[&payload]).unwrap();
        assert_eq!(nested.as_str(), r#"[["a","b"]]"#);
        assert_eq!(nested.parse::<[Payload; 1]>().unwrap()[0], payload);
        assert_eq!(
            Payload::from(nested.json()).into_raw().get(),
            nested.as_str()
        );
    }
}
