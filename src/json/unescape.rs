//! Decodes JSON strings with escapes.

use alloc::{borrow::Cow, string::String};
use core::fmt;

use memchr::memchr;
use serde::de::{Deserializer, Error, Visitor};

/// Decodes the inside of a checked string. Returns `None` if it is not valid Unicode: half of a surrogate pair stands alone.
pub(super) fn text(inner: &str) -> Option<String> {
    let (mut text, mut rest) = (String::with_capacity(inner.len()), inner);
    while let Some(slash) = memchr(b'\\', rest.as_bytes()) {
        let (plain, escape) = rest.split_at(slash);
        text.push_str(plain);
        let (character, behind) = character(escape)?;
        text.push(character);
        rest = behind;
    }
    text.push_str(rest);
    Some(text)
}

/// Decodes a string, with replacement characters for invalid Unicode. It is decoded as bytes, because with `str` one invalid key would fail
/// the whole object.
#[inline(never)]
pub(super) fn lossy(string: &str) -> Cow<'_, str> {
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

    serde_json::Deserializer::from_str(string)
        .deserialize_bytes(Lossy)
        .map_or(Cow::Borrowed(string), Cow::Owned)
}

/// Decodes one escape, or two that form a surrogate pair. Returns the character and the text after it.
fn character(escape: &str) -> Option<(char, &str)> {
    let (letter, behind) = escape.split_at_checked(2)?;
    let character = match letter.as_bytes()[1] {
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => return code_point(behind),
        other => char::from(other),
    };
    Some((character, behind))
}

/// Decodes the code point of a `\u` escape, which may be the first half of a surrogate pair.
fn code_point(digits: &str) -> Option<(char, &str)> {
    let (first, behind) = unit(digits)?;
    if let Some(character) = char::from_u32(u32::from(first)) {
        return Some((character, behind));
    }
    let (second, behind) = unit(behind.strip_prefix("\\u")?)?;
    let pair = char::decode_utf16([first, second]).next()?.ok()?;
    Some((pair, behind))
}

fn unit(digits: &str) -> Option<(u16, &str)> {
    let (digits, behind) = digits.split_at_checked(4)?;
    let unit = u16::from_str_radix(digits, 16).ok()?;
    Some((unit, behind))
}

#[cfg(test)]
mod tests {
    use alloc::{format, string::String};

    use proptest::prelude::*;

    #[test]
    fn every_escape_decodes_as_in_serde_json() {
        for inner in [
            "",
            r#"\"\\\/\b\f\n\r\t"#,
            r"a\u0000\u001f\u007f\u00e9\u20AC\uffffz",
            r"\ud83d\ude00\uD83D\uDE00",
            r"\n\n\\n\\",
            "é\\né",
        ] {
            let expected: String = serde_json::from_str(&format!("\"{inner}\"")).expect(inner);
            assert_eq!(super::text(inner), Some(expected), "{inner}");
        }
    }

    #[test]
    fn lone_surrogate_is_refused() {
        for inner in [
            r"\ud83d",
            r"\ud83dx",
            r"\ud83d\n",
            r"\ude00",
            r"\ude00\ud83d",
            r"\ud83d\ud83d",
            r"\ud83d\u0041",
        ] {
            let judged = serde_json::from_str::<String>(&format!("\"{inner}\""));
            assert!(judged.is_err(), "{inner}");
            assert_eq!(super::text(inner), None, "{inner}");
        }
    }

    fn escaped_string() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            r"\\u[0-9a-fA-F]{4}",
            r"\\u[dD][89abAB][0-9a-f]{2}",
            r"\\u[dD][c-f][0-9a-f]{2}",
            r#"\\["\\/bfnrt]"#,
            "[a-z é€]{0,9}",
        ];
        prop::collection::vec(piece, 0..9).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        #[cfg_attr(miri, ignore = "takes Miri too long")]
        fn random_escapes_decode_as_in_serde_json(inner in escaped_string()) {
            let expected: Option<String> = serde_json::from_str(&format!("\"{inner}\"")).ok();
            prop_assert_eq!(super::text(&inner), expected);
        }
    }
}
