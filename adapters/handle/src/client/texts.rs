//! All text in the content of a result, put together while it is read. Knows nothing else of a result.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The texts of all pieces of a content, a line between two.
#[derive(Default)]
pub(super) struct Texts(pub(super) String);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Texts, D::Error> {
        let mut all = Joined::default();
        deserializer.deserialize_seq(Content(&mut all))?;
        Ok(Texts(all.text))
    }
}

#[derive(Default)]
struct Joined {
    text: String,
    /// Something was put in, be it an empty text.
    has_any: bool,
}

struct Content<'a>(&'a mut Joined);

impl<'de> Visitor<'de> for Content<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("pieces of content")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut pieces: A) -> Result<(), A::Error> {
        while pieces.next_element_seed(Piece(self.0))?.is_some() {}
        Ok(())
    }
}

struct Piece<'a>(&'a mut Joined);

/// What a piece has.
#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum Member {
    Text,
    #[serde(other)]
    Other,
}

impl<'de> DeserializeSeed<'de> for Piece<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Piece<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a piece of content")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(member) = members.next_key()? {
            match member {
                Member::Text => members.next_value_seed(Text(self.0))?,
                Member::Other => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// A text, or null.
struct Text<'a>(&'a mut Joined);

impl<'de> DeserializeSeed<'de> for Text<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for Text<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        let Text(joined) = self;
        if joined.has_any {
            joined.text.push('\n');
        }
        joined.text.push_str(text);
        joined.has_any = true;
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }
}
