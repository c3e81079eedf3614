//! The members of a JSON object that is kept as text; knows no member by name.

use alloc::{borrow::Cow, string::String};
use core::{fmt, ops::Range};

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Why the members of a text cannot be told.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// The member asked for is there more than once, and readers differ on which one counts.
    #[error("the object has the member more than once")]
    Duplicate,
    /// The text is not one JSON object.
    #[error("the text is not a JSON object")]
    NotAnObject,
}

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
/// Nothing is allocated but the keys that hold escapes, and no depth of nesting exhausts the stack. A key that is no
/// Unicode text (an escaped lone surrogate) has replacement characters in their place.
///
/// # Errors
///
/// When the text is not one JSON object; the members before the flaw have been shown.
pub fn members<'a>(
    object: &'a str,
    visit: impl FnMut(Cow<'a, str>, &'a RawValue),
) -> Result<(), ObjectError> {
    let mut reader = serde_json::Deserializer::from_str(object);
    reader
        .deserialize_map(Members(visit))
        .and_then(|()| reader.end())
        .map_err(|_| ObjectError::NotAnObject)
}

struct Members<F>(F);

impl<'a, F: FnMut(Cow<'a, str>, &'a RawValue)> Visitor<'a> for Members<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some((Key(key), value)) = map.next_entry()? {
            (self.0)(key, value);
        }
        Ok(())
    }
}

/// A key that borrows where it can. It is read as bytes, because as `str` one odd key would cost the whole object.
struct Key<'a>(Cow<'a, str>);

impl<'a> Deserialize<'a> for Key<'a> {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;

        impl<'a> Visitor<'a> for KeyVisitor {
            type Value = Key<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_borrowed_bytes<E>(self, key: &'a [u8]) -> Result<Key<'a>, E> {
                Ok(Key(String::from_utf8_lossy(key)))
            }

            fn visit_bytes<E>(self, key: &[u8]) -> Result<Key<'a>, E> {
                Ok(Key(Cow::Owned(String::from_utf8_lossy(key).into_owned())))
            }
        }

        deserializer.deserialize_bytes(KeyVisitor)
    }
}
