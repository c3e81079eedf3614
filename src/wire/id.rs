//! The id that pairs a request with its reply. Does not know which side chose it.

use alloc::{boxed::Box, string::String};
use core::fmt;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::json::scan::{checked_number, count};

/// The longest text id that is accepted, in bytes. Ids are stored as long as a request runs, so their size is bounded.
pub const TEXT_ID_LIMIT: usize = 1024;

/// 2 to the power of 53. Above it, a peer that stores every number as a float cannot tell two neighbouring integers apart.
const EXACT_FLOAT_LIMIT: u64 = 1 << 53;

/// A JSON-RPC id: its value and its JSON type, because `"1"` is not `1`.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Id {
    /// An integer.
    Number(i64),
    /// A string.
    Text(Box<str>),
    /// An integer that does not fit into an `i64`, as its digits. It is never equal to a [`Number`](Id::Number).
    LongNumber(Box<str>),
}

impl Id {
    /// Reads an id from the text of one JSON value.
    ///
    /// Returns `None` for anything but an integer or a string of at most [`TEXT_ID_LIMIT`] bytes. Some peers
    /// store every number as a float, so `1.0` and `1e0` are read as the integer 1. An integer above 2^53 must be written with its digits alone.
    #[must_use]
    pub fn from_json(json: &str) -> Option<Self> {
        match json.as_bytes().first()? {
            b'"' => text(json),
            b'-' | b'0'..=b'9' => match integer(json) {
                Some(number) => Some(Self::Number(number)),
                None => long_number(json),
            },
            _ => None,
        }
    }
}

impl Id {
    /// The bytes of its text or digits. The peer chooses them, so they count for the limits of queues.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Number(_) => 0,
            Self::Text(text) | Self::LongNumber(text) => text.len(),
        }
    }

    /// The counter value of our own request, if this id can be one. Some peers answer `1` as `"1"`, and the SDKs in use accept that. No
    /// other spelling of a number is accepted in a string.
    pub(crate) fn counted(&self) -> Option<u64> {
        match self {
            Self::Number(number) => u64::try_from(*number).ok(),
            Self::Text(text) => match count(text.as_bytes())? {
                (number, []) => u64::try_from(number).ok(),
                (_, _) => None,
            },
            Self::LongNumber(_) => None,
        }
    }
}

/// Reads a JSON number that has an integral value.
pub(super) fn integer(json: &str) -> Option<i64> {
    if let Some((number, [])) = count(json.as_bytes()) {
        return Some(number);
    }
    let digits = json.strip_prefix('-').unwrap_or(json);
    if digits == "0" || digits.starts_with(|first| matches!(first, '1'..='9')) {
        if let Ok(number) = json.parse() {
            return Some(number);
        }
    }
    integral_value(json)
}

/// Reads a JSON number with a fraction or an exponent, if its value is an integer. Works digit by digit, so that nothing is rounded.
fn integral_value(json: &str) -> Option<i64> {
    if !checked_number(json.as_bytes()).ok()?.is_empty() {
        return None;
    }
    let (mantissa, exponent) = json.split_once(['e', 'E']).unwrap_or((json, "0"));
    let (before, behind) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = before.trim_start_matches('-').bytes().chain(behind.bytes());
    let (mut number, mut zeros) = (0_u64, 0_u32);
    for digit in digits {
        // Zeros only count once another digit follows them.
        zeros += 1;
        if digit != b'0' {
            let power = 10_u64.checked_pow(zeros).or((number == 0).then_some(0))?;
            number = number
                .checked_mul(power)?
                .checked_add((digit - b'0').into())?;
            zeros = 0;
        }
    }
    if number == 0 {
        return Some(0);
    }
    let places = i64::try_from(behind.len()).ok()?;
    let power = exponent.parse::<i32>().ok()?;
    let power = i64::from(power) - places + i64::from(zeros);
    let number = number.checked_mul(10_u64.checked_pow(power.try_into().ok()?)?)?;
    let number = i64::try_from(number)
        .ok()
        .filter(|_| number <= EXACT_FLOAT_LIMIT)?;
    Some(if json.starts_with('-') {
        -number
    } else {
        number
    })
}

/// Reads an integer of any size that is written with its digits alone. There is one way to write it, so equal numbers have equal digits.
fn long_number(json: &str) -> Option<Id> {
    let digits = json.strip_prefix('-').unwrap_or(json);
    let is_whole = digits.starts_with(|first| matches!(first, '1'..='9'))
        && digits.bytes().all(|digit| digit.is_ascii_digit());
    (is_whole && json.len() <= TEXT_ID_LIMIT).then(|| Id::LongNumber(json.into()))
}

fn text(json: &str) -> Option<Id> {
    let text: String = serde_json::from_str(json).ok()?;
    (text.len() <= TEXT_ID_LIMIT).then(|| Id::Text(text.into_boxed_str()))
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::LongNumber(digits) => f.write_str(digits),
        }
    }
}

impl From<i64> for Id {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(number) => serializer.serialize_i64(*number),
            Self::Text(text) => serializer.serialize_str(text),
            Self::LongNumber(digits) => serde_json::from_str::<&RawValue>(digits)
                .map_err(serde::ser::Error::custom)?
                .serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::{format, string::ToString};

    use super::{Id, TEXT_ID_LIMIT};

    #[test]
    fn integers_are_read_in_any_spelling() {
        for (json, number) in [
            ("0", 0),
            ("-0", 0),
            ("7", 7),
            ("-7", -7),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808", i64::MIN),
            ("1.0", 1),
            ("-0.0", 0),
            ("1e3", 1000),
            ("1500e-2", 15),
            ("0.0015E+4", 15),
            ("0e999999999999", 0),
            ("0.000000000000000000000000000001e30", 1),
            ("9007199254740992.0", 1 << 53),
            ("-9007199254740992.0", -(1 << 53)),
        ] {
            assert_eq!(Id::from_json(json), Some(Id::Number(number)), "{json}");
        }
    }

    #[test]
    fn invalid_ids_are_refused() {
        for json in [
            "",
            "null",
            "true",
            "{}",
            "[1]",
            "1.5",
            "1e-1",
            "1.00000000000000000000000000000000001",
            "1e-400",
            "1e999999999999",
            "9223372036854775808.0",
            "9007199254740994.0",
            "1e400",
            "01",
            "-",
            "+1",
            "1 2",
            "--1",
            "0x1",
            "\"a",
            r#""\ud800""#,
        ] {
            assert_eq!(Id::from_json(json), None, "{json}");
        }
    }

    #[test]
    fn long_integers_keep_their_digits() {
        for json in [
            "9223372036854775808",
            "-9223372036854775809",
            "1".repeat(60).as_str(),
        ] {
            let id = Id::from_json(json).expect("an id");
            assert_eq!(id, Id::LongNumber(json.into()));
            assert_eq!((id.counted(), id.bytes()), (None, json.len()));
            assert_eq!(id.to_string(), json);
            assert_eq!(serde_json::to_string(&id).unwrap(), json);
            assert_ne!(id, Id::Text(json.into()));
        }
        let longest = "7".repeat(TEXT_ID_LIMIT);
        assert!(Id::from_json(&longest).is_some());
        assert_eq!(Id::from_json(&format!("{longest}7")), None);
    }

    #[test]
    fn texts_are_bounded_after_unescaping() {
        let longest = "x".repeat(TEXT_ID_LIMIT);
        assert_eq!(
            Id::from_json(&format!("\"{longest}\"")),
            Some(Id::Text(longest.clone().into()))
        );
        assert_eq!(
            Id::from_json(&format!("\"{}\"", "\\u0078".repeat(TEXT_ID_LIMIT))),
            Some(Id::Text(longest.clone().into()))
        );
        assert_eq!(Id::from_json(&format!("\"{longest}x\"")), None);
    }

    #[test]
    fn type_is_part_of_the_id() {
        let number = Id::from(1);
        let text = Id::Text("1".into());
        assert_ne!(number, text);
        assert_eq!(number.to_string(), "1");
        assert_eq!(text.to_string(), "\"1\"");
        assert_eq!(
            serde_json::to_string(&[number, text]).unwrap(),
            r#"[1,"1"]"#
        );
    }
}
