//! Numbers and ids as JSON writes them. Does not know where they stand.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Number;

/// The largest number below which every integer is exact in an `f64`.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Writes a number without a fraction as an integer, as most programs do: `50` and not `50.0`.
pub(crate) fn serialize<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if number.fract() == 0.0 && number.abs() < EXACT {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the number is an integer in range"
        )]
        serializer.serialize_i64(*number as i64)
    } else {
        serializer.serialize_f64(*number)
    }
}

/// Writes an optional number like [`serialize`].
pub(crate) fn serialize_option<S: Serializer>(
    number: &Option<f64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match number {
        Some(number) => serialize(number, serializer),
        None => serializer.serialize_none(),
    }
}

/// Reads an integer that is not negative. Some programs write one as `5.0`, which is an integer in JSON Schema.
pub(crate) fn unsigned<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let number = Number::deserialize(deserializer)?;
    let whole = || {
        let whole = number.as_f64()?;
        let is_exact = whole.fract() == 0.0 && (0.0..EXACT).contains(&whole);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the number is an integer in range"
        )]
        is_exact.then_some(whole as u64)
    };
    number.as_u64().or_else(whole).ok_or_else(|| {
        let wanted = "expected an integer that is not negative";
        D::Error::custom(format!("invalid value: {number}, {wanted}"))
    })
}

/// Reads an optional integer like [`unsigned`].
pub(crate) fn unsigned_option<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    struct Unsigned(#[serde(deserialize_with = "unsigned")] u64);
    let number = Option::<Unsigned>::deserialize(deserializer)?;
    Ok(number.map(|Unsigned(number)| number))
}

/// An id of a request, or a token of a progress report: an integer or a text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Id {
    /// An integer.
    Number(i64),
    /// A text.
    Text(String),
}

impl From<i64> for Id {
    fn from(number: i64) -> Id {
        Id::Number(number)
    }
}

impl From<&str> for Id {
    fn from(text: &str) -> Id {
        Id::Text(text.to_owned())
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Id::Number(number) => number.fmt(f),
            Id::Text(text) => text.fmt(f),
        }
    }
}
