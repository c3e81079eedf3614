//! Reads arguments that are texts as a type: those of prompts, and the variables of URI templates.
//!
//! A field that is a number or a boolean is parsed from its text.

use std::fmt::Display;
use std::slice;
use std::str::FromStr;

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, Expected, IntoDeserializer,
    MapAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;

use crate::check::short;

/// The error of an argument: what is wrong with which one. Its words are those of the errors of tools.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TextError {
    #[error("{0}")]
    Other(String),
    /// The value of the argument that is being read.
    #[error("must be {wanted}, not the text {text:?}")]
    Value { wanted: String, text: String },
    /// A text that was read before serde knew what it should be, with its address.
    #[error("{text}")]
    Kept { address: usize, text: String },
}

impl serde::de::Error for TextError {
    fn custom<T: Display>(text: T) -> TextError {
        TextError::Other(text.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, wanted: &dyn Expected) -> TextError {
        let text = format!("invalid type: {found}, expected {wanted}");
        match found {
            Unexpected::Str(kept) => TextError::Kept {
                address: kept.as_ptr().addr(),
                text,
            },
            _ => TextError::Other(text),
        }
    }

    fn missing_field(name: &'static str) -> TextError {
        TextError::Other(format!("`{name}` is missing"))
    }

    fn unknown_field(name: &str, known: &'static [&'static str]) -> TextError {
        let name = short(name);
        let known: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
        TextError::Other(match &*known.join(", ") {
            "" => format!("`{name}` is unknown: there are no arguments"),
            known => format!("`{name}` is unknown; known are {known}"),
        })
    }

    fn unknown_variant(text: &str, known: &'static [&'static str]) -> TextError {
        let known: Vec<String> = known.iter().map(|name| format!("{name:?}")).collect();
        TextError::Value {
            wanted: format!("one of {}", known.join(", ")),
            text: short(text).into_owned(),
        }
    }
}

/// The most values that serde keeps as texts and a type needs as numbers or booleans.
const MAX_TYPED: usize = 32;

/// Reads these arguments as a `T`. Without arguments, `T` may be `()`.
///
/// serde keeps the values of `#[serde(flatten)]` and of enums with a tag before it knows their types. It says which text should not have been one, so that
/// text is parsed in the next attempt.
pub(crate) fn read<T: DeserializeOwned>(arguments: Vec<(String, String)>) -> Result<T, TextError> {
    let mut entries: Vec<_> = arguments
        .iter()
        .map(|(name, text)| Entry {
            name,
            text: Text {
                text,
                is_typed: false,
            },
        })
        .collect();
    for _ in 0..MAX_TYPED {
        let (address, error) = match T::deserialize(Texts(&entries)) {
            Err(TextError::Kept { address, text }) => (address, text),
            read => return read,
        };
        let mut entries = entries.iter_mut();
        match entries.find(|it| it.text.has_address(address)) {
            Some(it) if it.text.plain().is_some() && !it.text.is_typed => it.text.is_typed = true,
            Some(it) => return Err(TextError::Other(format!("`{}`: {error}", it.name))),
            None => return Err(TextError::Other(error)),
        }
    }
    T::deserialize(Texts(&entries))
}

/// An argument.
#[derive(Clone, Copy)]
struct Entry<'de> {
    name: &'de str,
    text: Text<'de>,
}

struct Texts<'a, 'de>(&'a [Entry<'de>]);

impl<'de> Deserializer<'de> for Texts<'_, 'de> {
    type Error = TextError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TextError> {
        visitor.visit_map(Entries {
            rest: self.0.iter(),
            current: None,
        })
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TextError> {
        match self.0.first() {
            None => visitor.visit_unit(),
            Some(entry) => Err(TextError::unknown_field(entry.name, &[])),
        }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, TextError> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TextError> {
        match self.0 {
            [] => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, TextError> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf seq tuple tuple_struct map struct enum identifier
        ignored_any
    }
}

struct Entries<'a, 'de> {
    rest: slice::Iter<'a, Entry<'de>>,
    current: Option<Entry<'de>>,
}

impl<'de> MapAccess<'de> for Entries<'_, 'de> {
    type Error = TextError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, TextError> {
        self.current = self.rest.next().copied();
        let key = self.current.map(|entry| entry.name);
        key.map(|key| seed.deserialize(BorrowedStrDeserializer::new(key)))
            .transpose()
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, TextError> {
        let Some(Entry { name, text }) = self.current.take() else {
            return Err(TextError::custom("a value is read before its name"));
        };
        let value = seed.deserialize(text);
        value.map_err(|error| {
            let is_value = matches!(error, TextError::Value { .. });
            TextError::Other(format!(
                "`{name}`{} {error}",
                if is_value { "" } else { ":" }
            ))
        })
    }
}

/// The value of an argument.
#[derive(Clone, Copy)]
struct Text<'de> {
    text: &'de str,
    /// Whether it is a number or a boolean if serde does not say what it should be.
    is_typed: bool,
}

/// A number or a boolean.
enum Plain {
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
}

impl Text<'_> {
    /// Whether this is the text at an address. Empty texts may share theirs.
    fn has_address(self, address: usize) -> bool {
        !self.text.is_empty() && self.text.as_ptr().addr() == address
    }

    /// Parses the text as a number or a boolean.
    fn plain(self) -> Option<Plain> {
        let text = self.text.trim();
        let unsigned = || text.parse().map(Plain::Unsigned);
        let signed = || text.parse().map(Plain::Signed);
        let float = || text.parse().map(Plain::Float).ok();
        let bool = text.parse().map(Plain::Bool).ok();
        bool.or_else(|| unsigned().or_else(|_| signed()).ok())
            .or_else(float)
    }

    fn parse<T: FromStr>(self, wanted: &str) -> Result<T, TextError> {
        let parsed = self.text.trim().parse();
        parsed.map_err(|_| TextError::Value {
            wanted: wanted.to_owned(),
            text: short(self.text).into_owned(),
        })
    }
}

macro_rules! parsed {
    ($($method:ident => $visit:ident: $wanted:literal;)+) => {
        $(
            fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TextError> {
                visitor.$visit(self.parse($wanted)?)
            }
        )+
    };
}

impl<'de> Deserializer<'de> for Text<'de> {
    type Error = TextError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TextError> {
        match self.plain().filter(|_| self.is_typed) {
            Some(Plain::Bool(value)) => visitor.visit_bool(value),
            Some(Plain::Unsigned(value)) => visitor.visit_u64(value),
            Some(Plain::Signed(value)) => visitor.visit_i64(value),
            Some(Plain::Float(value)) => visitor.visit_f64(value),
            None => visitor.visit_borrowed_str(self.text),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TextError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, TextError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, TextError> {
        visitor.visit_enum(self.text.into_deserializer())
    }

    parsed! {
        deserialize_bool => visit_bool: "true or false";
        deserialize_i8 => visit_i8: "an integer";
        deserialize_i16 => visit_i16: "an integer";
        deserialize_i32 => visit_i32: "an integer";
        deserialize_i64 => visit_i64: "an integer";
        deserialize_i128 => visit_i128: "an integer";
        deserialize_u8 => visit_u8: "an integer that is not negative";
        deserialize_u16 => visit_u16: "an integer that is not negative";
        deserialize_u32 => visit_u32: "an integer that is not negative";
        deserialize_u64 => visit_u64: "an integer that is not negative";
        deserialize_u128 => visit_u128: "an integer that is not negative";
        deserialize_f32 => visit_f32: "a number";
        deserialize_f64 => visit_f64: "a number";
    }

    forward_to_deserialize_any! {
        char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    fn read_all<T: DeserializeOwned>(arguments: &[(&str, &str)]) -> Result<T, String> {
        let owned = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        read(arguments.iter().map(owned).collect()).map_err(|error| error.to_string())
    }

    #[test]
    fn types_without_fields_take_no_arguments() {
        #[derive(Debug, PartialEq, Deserialize)]
        struct Unit;
        assert_eq!(read_all(&[]), Ok(()));
        assert_eq!(read_all(&[]), Ok(Unit));
        assert_eq!(read_all(&[]), Ok(None::<Unit>));
        let unknown = "`a` is unknown: there are no arguments";
        let error = read_all::<Unit>(&[("a", "1")]).expect_err("there is no `a`");
        assert_eq!(error, unknown);
        let error = read_all::<Option<Unit>>(&[("a", "1")]).expect_err("there is no `a`");
        assert_eq!(error, unknown);
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Range {
        text: String,
        from: u32,
        to: Option<i8>,
        scale: f64,
        is_open: bool,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Flat<T> {
        own: u8,
        #[serde(flatten)]
        rest: T,
    }

    const ARGUMENTS: [(&str, &str); 6] = [
        ("text", "7"),
        ("from", "7"),
        ("to", "-7"),
        ("scale", "7"),
        ("is_open", "true"),
        ("own", "7"),
    ];

    fn range() -> Range {
        Range {
            text: "7".to_owned(),
            from: 7,
            to: Some(-7),
            scale: 7.0,
            is_open: true,
        }
    }

    #[test]
    fn flattened_numbers_and_booleans_are_parsed_and_texts_stay_texts() {
        let rest = range();
        assert_eq!(read_all(&ARGUMENTS), Ok(Flat { own: 7, rest }));
        let map: Flat<BTreeMap<String, f64>> =
            read_all(&[("a", "0.5"), ("own", "1"), ("b", "2")]).expect("they are numbers");
        assert_eq!(map.rest.into_values().collect::<Vec<_>>(), [0.5, 2.0]);
    }

    #[test]
    fn numbers_and_booleans_of_an_enum_with_a_tag_are_parsed() {
        #[derive(Debug, PartialEq, Deserialize)]
        #[serde(tag = "kind", rename_all = "lowercase")]
        enum Kind {
            Range(Range),
        }
        let arguments = [&ARGUMENTS[..], &[("kind", "range")]].concat();
        assert_eq!(read_all(&arguments), Ok(Kind::Range(range())));
    }

    #[test]
    fn flattened_value_that_cannot_be_parsed_is_named() {
        let mut arguments = ARGUMENTS;
        arguments[1].1 = "seven";
        let error = read_all::<Flat<Range>>(&arguments).expect_err("`seven` is no number");
        assert_eq!(
            error,
            "`from`: invalid type: string \"seven\", expected u32"
        );
        arguments[1].1 = "";
        assert!(read_all::<Flat<Range>>(&arguments).is_err());
        let many: Vec<_> = (0..100).map(|number| number.to_string()).collect();
        let many: Vec<_> = many.iter().map(|it| (it.as_str(), it.as_str())).collect();
        let many = read_all::<Flat<BTreeMap<String, u8>>>(&many);
        assert!(many.is_err(), "the attempts are limited");
    }
}
