//! Reads arguments that are texts as a type: those of prompts, and the variables of URI templates.
//!
//! A field that is a number or a boolean is parsed from its text. Fields inside of `#[serde(flatten)]`, or of an enum with a tag, must be texts, because serde
//! reads those before it knows their types.

use std::fmt::Display;
use std::vec;

use serde::de::value::StringDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess,
    Visitor,
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
}

impl serde::de::Error for TextError {
    fn custom<T: Display>(text: T) -> TextError {
        TextError::Other(text.to_string())
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

/// Reads these arguments as a `T`. Without arguments, `T` may be `()`.
pub(crate) fn read<T: DeserializeOwned>(arguments: Vec<(String, String)>) -> Result<T, TextError> {
    T::deserialize(Texts(arguments))
}

struct Texts(Vec<(String, String)>);

impl<'de> Deserializer<'de> for Texts {
    type Error = TextError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TextError> {
        visitor.visit_map(Entries {
            rest: self.0.into_iter(),
            current: None,
        })
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TextError> {
        match self.0.first() {
            None => visitor.visit_unit(),
            Some((name, _)) => Err(TextError::unknown_field(name, &[])),
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
        match &*self.0 {
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
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf seq tuple tuple_struct map struct enum
        identifier ignored_any
    }
}

struct Entries {
    rest: vec::IntoIter<(String, String)>,
    current: Option<(String, String)>,
}

impl<'de> MapAccess<'de> for Entries {
    type Error = TextError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, TextError> {
        self.current = self.rest.next();
        let key = self.current.as_ref().map(|(name, _)| name.clone());
        let key: Option<StringDeserializer<TextError>> = key.map(String::into_deserializer);
        key.map(|key| seed.deserialize(key)).transpose()
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, TextError> {
        let (name, text) = self.current.take().unwrap_or_default();
        let value = seed.deserialize(Text(text));
        value.map_err(|error| {
            let is_value = matches!(error, TextError::Value { .. });
            TextError::Other(format!(
                "`{name}`{} {error}",
                if is_value { "" } else { ":" }
            ))
        })
    }
}

/// One argument.
struct Text(String);

impl Text {
    fn parse<T: std::str::FromStr>(&self, wanted: &str) -> Result<T, TextError> {
        let parsed = self.0.trim().parse();
        parsed.map_err(|_| TextError::Value {
            wanted: wanted.to_owned(),
            text: short(&self.0).into_owned(),
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

impl<'de> Deserializer<'de> for Text {
    type Error = TextError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TextError> {
        visitor.visit_string(self.0)
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
        visitor.visit_enum(self.0.into_deserializer())
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
    use serde::Deserialize;

    use super::*;

    #[test]
    fn types_without_fields_take_no_arguments() {
        #[derive(Debug, Deserialize)]
        struct Unit;
        read::<()>(Vec::new()).expect("nothing is needed");
        read::<Unit>(Vec::new()).expect("nothing is needed");
        assert!(read::<Option<Unit>>(Vec::new()).is_ok_and(|unit| unit.is_none()));
        let one = || vec![("a".to_owned(), "1".to_owned())];
        let errors = [
            read::<Unit>(one()).map(drop),
            read::<Option<Unit>>(one()).map(drop),
        ];
        for error in errors {
            let error = error.expect_err("there is no `a`").to_string();
            assert_eq!(error, "`a` is unknown: there are no arguments");
        }
    }
}
