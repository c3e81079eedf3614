//! Encodes and decodes texts as `application/x-www-form-urlencoded`, for the bodies of requests and the queries of URLs.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;

/// A list of names and values, encoded.
#[derive(Clone, Default)]
pub(super) struct Form(String);

impl Form {
    /// Adds a name and its value.
    pub(super) fn push(&mut self, name: &str, value: &str) {
        if !self.0.is_empty() {
            self.0.push('&');
        }
        encode(name, &mut self.0);
        self.0.push('=');
        encode(value, &mut self.0);
    }

    /// Adds a name and its value, if there is one.
    pub(super) fn push_some(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.push(name, value);
        }
    }

    pub(super) fn into_string(self) -> String {
        self.0
    }
}

/// Encodes everything but unreserved characters. A space becomes `%20`, which every decoder understands.
pub(super) fn encode(text: &str, encoded: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
}

/// Decodes names and values. A sequence that is not valid UTF-8 becomes the replacement character.
pub(super) fn decode(form: &str) -> impl Iterator<Item = (String, String)> {
    let pairs = form.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode_text(name), decode_text(value))
    })
}

fn decode_text(text: &str) -> String {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let (byte, next) = match (first, after) {
            (b'%', [high, low, next @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, next),
                (_, _) => (b'%', after),
            },
            (b'+', _) => (b' ', after),
            (_, _) => (*first, after),
        };
        decoded.push(byte);
        rest = next;
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

fn hex(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_unchanged() {
        let texts = [("a", "b c"), ("é&=", "%+?#/"), ("", ""), ("x", "\u{0}\n")];
        let mut form = Form::default();
        for (name, value) in texts {
            form.push(name, value);
        }
        let decoded: Vec<_> = decode(&form.into_string()).collect();
        let expected = texts.map(|(name, value)| (name.into(), value.into()));
        assert_eq!(decoded, expected);
    }

    #[test]
    fn damaged_escapes_stay_as_they_are() {
        let decoded: Vec<_> = decode("a=%&b=%4&c=%zz&d=%C3&e+f").collect();
        let values: Vec<_> = decoded.iter().map(|(_, value)| value.as_str()).collect();
        assert_eq!(values, ["%", "%4", "%zz", "\u{FFFD}", ""]);
        assert_eq!(decoded[4].0, "e f");
    }
}
