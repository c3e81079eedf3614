//! Encodes texts as field values, and decodes them.
//!
//! A value is visible ASCII. A text with other characters is sent in Base64, between two marks (S-HDR-04).

use alloc::{borrow::Cow, string::String, vec::Vec};

/// The mark before the Base64 of a text, spelled exactly like this (S-HDR-06).
const OPENING: &str = "=?base64?";
/// The mark after it.
const CLOSING: &str = "?=";

/// The digits of Base64, by their value.
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes a text as a field value: the text itself if that is safe, else its Base64.
pub(crate) fn encode(text: &str) -> Cow<'_, str> {
    // A reader would strip whitespace at either end, and would decode a text that looks marked (S-HDR-05).
    let is_padded = text.starts_with([' ', '\t']) || text.ends_with([' ', '\t']);
    let looks_marked = text.starts_with(OPENING) && text.ends_with(CLOSING);
    if is_plain(text.as_bytes()) && !is_padded && !looks_marked {
        return Cow::Borrowed(text);
    }
    let digits = text.len().div_ceil(3).saturating_mul(4);
    let mut value = String::with_capacity(OPENING.len() + digits + CLOSING.len());
    value.push_str(OPENING);
    push_base64(&mut value, text.as_bytes());
    value.push_str(CLOSING);
    Cow::Owned(value)
}

/// The Base64 of these bytes, padded.
pub(crate) fn base64(bytes: &[u8]) -> String {
    let mut value = String::new();
    push_base64(&mut value, bytes);
    value
}

fn push_base64(value: &mut String, bytes: &[u8]) {
    for three in bytes.chunks(3) {
        push_digits(value, three);
    }
}

/// Decodes a field value. Returns `None` if the value is invalid (S-HDR-07, S-HDR-09).
///
/// The caller has stripped the whitespace around the value.
pub(crate) fn decode(value: &[u8]) -> Option<Cow<'_, str>> {
    let marked = value
        .strip_prefix(OPENING.as_bytes())
        .and_then(|rest| rest.strip_suffix(CLOSING.as_bytes()));
    match marked {
        Some(base64) => String::from_utf8(bytes(base64)?).ok().map(Cow::Owned),
        None if is_plain(value) => core::str::from_utf8(value).ok().map(Cow::Borrowed),
        None => None,
    }
}

/// Whether the value contains only visible ASCII, spaces and tabs.
fn is_plain(value: &[u8]) -> bool {
    value.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~'))
}

/// Writes up to three bytes as four digits, padded.
fn push_digits(value: &mut String, three: &[u8]) {
    let mut bits = [0; 4];
    bits[1..=three.len()].copy_from_slice(three);
    let bits = u32::from_be_bytes(bits);
    for place in 0..4 {
        let digit = (bits >> (18 - 6 * place)) & 0x3F;
        let is_padding = place > three.len();
        value.push(if is_padding {
            '='
        } else {
            char::from(DIGITS[digit as usize])
        });
    }
}

/// Decodes Base64. It must be padded, have only valid digits and no leftover bits, so that each text has exactly one spelling.
fn bytes(base64: &[u8]) -> Option<Vec<u8>> {
    let digits = base64
        .strip_suffix(b"==")
        .or_else(|| base64.strip_suffix(b"="))
        .unwrap_or(base64);
    if base64.len() % 4 != 0 {
        return None;
    }
    let mut bytes = Vec::with_capacity(base64.len() / 4 * 3);
    // All chunks but the last have four digits, and the last has at least two.
    for four in digits.chunks(4) {
        let mut bits = 0;
        for digit in four {
            bits = bits << 6 | u32::from(digit_value(*digit)?);
        }
        let [_, three @ ..] = (bits << (6 * (4 - four.len()))).to_be_bytes();
        let (whole, left_over) = three.split_at(four.len() - 1);
        if left_over.iter().any(|bits| *bits != 0) {
            return None;
        }
        bytes.extend_from_slice(whole);
    }
    Some(bytes)
}

fn digit_value(digit: u8) -> Option<u8> {
    match digit {
        b'A'..=b'Z' => Some(digit - b'A'),
        b'a'..=b'z' => Some(digit - b'a' + 26),
        b'0'..=b'9' => Some(digit - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use alloc::{format, string::ToString};

    use super::*;

    fn wrapped(base64: &str) -> String {
        format!("=?base64?{base64}?=")
    }

    /// The test vectors of RFC 4648, section 10.
    const VECTORS: [(&str, &str); 7] = [
        ("", ""),
        ("f", "Zg=="),
        ("fo", "Zm8="),
        ("foo", "Zm9v"),
        ("foob", "Zm9vYg=="),
        ("fooba", "Zm9vYmE="),
        ("foobar", "Zm9vYmFy"),
    ];

    #[test]
    fn every_base64_digit_has_its_value() {
        for (value, digit) in (0..).zip(DIGITS) {
            assert_eq!(digit_value(*digit), Some(value));
        }
    }

    #[test]
    fn base64_matches_the_vectors_of_the_rfc() {
        for (text, base64) in VECTORS {
            let mut digits = String::new();
            for three in text.as_bytes().chunks(3) {
                push_digits(&mut digits, three);
            }
            assert_eq!(digits, base64);
            assert_eq!(decode(wrapped(base64).as_bytes()).as_deref(), Some(text));
        }
    }

    #[test]
    fn safe_text_is_sent_unchanged() {
        for text in [
            "",
            "a",
            "us-west1",
            "file:///a/b?c=d#e",
            "two words\tand a tab",
            "~!\"$%&'()*+,/:;<=>?@[\\]^_`{|}",
            // Only a text with both marks, exactly spelled, looks marked (S-HDR-05, S-HDR-06).
            "=?base64?",
            "=?base64?SGk=",
            "SGk=?=",
            "=?BASE64?SGk=?=",
            "=?Base64?SGk=?=",
            "x=?base64?SGk=?=",
        ] {
            assert_eq!(encode(text), Cow::Borrowed(text));
            assert_eq!(decode(text.as_bytes()), Some(Cow::Borrowed(text)));
        }
    }

    #[test]
    fn unsafe_text_is_sent_in_base64() {
        // S-HDR-04, S-HDR-05.
        for (text, base64) in [
            (" ", "IA=="),
            ("\t", "CQ=="),
            (" padded ", "IHBhZGRlZCA="),
            ("tail\t", "dGFpbAk="),
            ("Hello, 世界", "SGVsbG8sIOS4lueVjA=="),
            ("line1\nline2", "bGluZTEKbGluZTI="),
            ("\u{7f}", "fw=="),
            ("\0", "AA=="),
            ("=?base64?SGk=?=", "PT9iYXNlNjQ/U0drPT89"),
            ("=?base64?literal?=", "PT9iYXNlNjQ/bGl0ZXJhbD89"),
        ] {
            assert_eq!(encode(text), wrapped(base64), "{text:?}");
            assert_eq!(decode(wrapped(base64).as_bytes()).as_deref(), Some(text));
        }
        // If the marks overlap, readers may disagree about them, so the text is not sent as it is.
        assert_eq!(encode("=?base64?="), wrapped("PT9iYXNlNjQ/PQ=="));
        assert_eq!(decode(b"=?base64?=").as_deref(), Some("=?base64?="));
    }

    #[test]
    fn invalid_values_are_refused() {
        for base64 in [
            "SGk", "SGk==", "SG=k", "S===", "====", "==", "=", "A", "SGk=\n", "SGk =", " SGk",
            "SG-_", "SGl=", "Zh==", "Zm9=", "SGk=SGk=", "/w==", "7aCA", "世",
        ] {
            assert_eq!(decode(wrapped(base64).as_bytes()), None, "{base64}");
        }
        for value in ["caf\u{e9}", "a\nb", "\r", "\0", "\u{7f}"] {
            assert_eq!(decode(value.as_bytes()), None, "{value:?}");
        }
        assert_eq!(decode(b"\xff"), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes Miri too long")]
    fn every_text_round_trips() {
        let letters = ['a', ' ', '\t', '\n', 'é', '世', '🦀', '=', '?', '\0'];
        for number in 0..100_000_u32 {
            let digits = number.to_string();
            let text: String = digits
                .bytes()
                .map(|digit| letters[usize::from(digit - b'0')])
                .collect();
            let value = encode(&text);
            assert!(
                value
                    .bytes()
                    .all(|byte| matches!(byte, b'\t' | b' '..=b'~'))
            );
            assert_eq!(value.trim_matches([' ', '\t']), value);
            assert_eq!(decode(value.as_bytes()).as_deref(), Some(&*text));
        }
    }

    #[test]
    fn each_text_has_only_one_base64_spelling() {
        // Any four digits that can be decoded are encoded as the same digits again.
        let letters = [b'A', b'Q', b'g', b'w', b'B', b'/', b'=', b'-'];
        for number in 0..8_usize.pow(4) {
            let base64: Vec<u8> = (0..4)
                .map(|place| letters[number >> (3 * place) & 7])
                .collect();
            let Some(bytes) = bytes(&base64) else {
                continue;
            };
            let mut again = String::new();
            push_digits(&mut again, &bytes);
            assert_eq!(again.as_bytes(), base64);
        }
    }
}
