//! Writes messages as compact JSON into the caller's buffer.
//!
//! Every function only appends, and allocates nothing but that buffer. No raw CR or LF is ever written, so a message is one line
//! (S-STDIO-01). In strings they are escaped. Between the tokens of values that arrived as text they become spaces, which is safe because a
//! JSON string cannot hold them raw. A message ends *without* a newline, because not every transport wants one: see [`line_end`].

use alloc::vec::Vec;
use core::fmt::{self, Write as _};

use super::id::Id;
use crate::json::Json;
use crate::json::skip::plain_end;
use memchr::memchr2;

/// Appends a request. `params` adds the members of its parameters. If it adds none, the request has no `params`.
pub fn request(buf: &mut Vec<u8>, id: &Id, method: &str, params: impl FnOnce(&mut Object<'_>)) {
    let mut message = envelope_of(buf, id);
    message.json_key(r#""method":"#);
    write_text(message.buf, method);
    message.params(params);
    message.close();
}

/// Appends a notification. `params` adds the members of its parameters. If it adds none, the notification has no `params`.
pub fn notification(buf: &mut Vec<u8>, method: &str, params: impl FnOnce(&mut Object<'_>)) {
    let mut message = envelope(buf);
    message.json_key(r#""method":"#);
    write_text(message.buf, method);
    message.params(params);
    message.close();
}

/// Appends the reply to a request that succeeded. `result` adds the members of the result; it may add none.
pub fn result(buf: &mut Vec<u8>, id: &Id, result: impl FnOnce(&mut Object<'_>)) {
    let mut message = envelope_of(buf, id);
    message.json_key(r#""result":"#);
    message.nested(result);
    message.close();
}

/// Appends the reply to a request that failed. Without an `id` the member is left out (S-RPC-10).
pub fn error(buf: &mut Vec<u8>, id: Option<&Id>, code: i64, text: &str, data: Option<Json<'_>>) {
    let mut message = envelope(buf);
    if let Some(id) = id {
        message.id("id", id);
    }
    message.object("error", |error| {
        error.integer("code", code).text("message", text);
        if let Some(data) = data {
            error.raw("data", data.as_str());
        }
    });
    message.close();
}

/// Ends the line that holds a message.
pub fn line_end(buf: &mut Vec<u8>) {
    buf.push(b'\n');
}

/// A JSON object being written: one method per kind of member, commas included.
///
/// The caller must use distinct keys; they are not checked.
#[must_use = "an object that is not closed is not JSON"]
pub struct Object<'b> {
    buf: &'b mut Vec<u8>,
    empty: bool,
    /// Whether members of a given object were added, although it may have had none.
    is_given: bool,
}

impl<'b> Object<'b> {
    /// Begins an object at the end of `buf`.
    pub fn open(buf: &'b mut Vec<u8>) -> Self {
        buf.push(b'{');
        Self {
            buf,
            empty: true,
            is_given: false,
        }
    }

    /// Ends the object.
    pub fn close(self) {
        self.buf.push(b'}');
    }

    /// Adds a boolean.
    pub fn boolean(&mut self, key: &str, value: bool) -> &mut Self {
        self.key(key);
        let literal: &[u8] = if value { b"true" } else { b"false" };
        self.buf.extend_from_slice(literal);
        self
    }

    /// Adds an id, in its own JSON type (S-RPC-07).
    pub fn id(&mut self, key: &str, id: &Id) -> &mut Self {
        match id {
            Id::Number(number) => self.integer(key, *number),
            Id::Text(text) => self.text(key, text),
            Id::LongNumber(digits) => self.raw(key, digits),
        }
    }

    /// Adds an integer.
    pub fn integer(&mut self, key: &str, value: i64) -> &mut Self {
        self.key(key);
        write_integer(self.buf, value);
        self
    }

    /// Adds a number, which must be finite.
    pub fn number(&mut self, key: &str, value: f64) -> &mut Self {
        let whole = value as i64;
        if whole as f64 == value && whole.unsigned_abs() < 1 << 53 {
            return self.integer(key, whole);
        }
        self.key(key);
        // Writing to memory cannot fail, and the shortest text that reads back as the same number is JSON.
        let _ = write!(Digits(self.buf), "{value:?}");
        self
    }

    /// Adds an object. `fill` adds its members.
    pub fn object(&mut self, key: &str, fill: impl FnOnce(&mut Object<'_>)) -> &mut Self {
        self.key(key);
        self.nested(fill);
        self
    }

    fn nested(&mut self, fill: impl FnOnce(&mut Object<'_>)) {
        let mut object = Object::open(self.buf);
        fill(&mut object);
        object.close();
    }

    /// Writes a key that is already JSON and includes its colon.
    fn json_key(&mut self, key: &'static str) {
        self.comma();
        self.buf.extend_from_slice(key.as_bytes());
    }

    /// Adds an integer under a key that is already JSON.
    pub(crate) fn named_integer(&mut self, key: &'static str, value: i64) {
        self.json_key(key);
        write_integer(self.buf, value);
    }

    /// Adds an object under a key that is already JSON. `fill` adds its members.
    pub(crate) fn named_object(&mut self, key: &'static str, fill: impl FnOnce(&mut Object<'_>)) {
        self.json_key(key);
        self.nested(fill);
    }

    /// Adds a value that is already JSON. The caller must ensure that it is one valid JSON value.
    pub fn raw(&mut self, key: &str, json: &str) -> &mut Self {
        self.key(key);
        write_without_line_breaks(self.buf, json);
        self
    }

    /// Adds all members of an object that is already JSON. The caller must ensure that it is one valid JSON object, and that no key occurs
    /// in this object already.
    pub fn splice(&mut self, object: &str) -> &mut Self {
        let inner = object
            .trim_ascii()
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'))
            .map_or("", str::trim_ascii);
        if !inner.is_empty() {
            self.comma();
            write_without_line_breaks(self.buf, inner);
        }
        self.is_given = true;
        self
    }

    /// Adds a string.
    pub fn text(&mut self, key: &str, value: &str) -> &mut Self {
        self.key(key);
        write_text(self.buf, value);
        self
    }

    /// Adds an array of strings.
    pub fn texts<'t>(&mut self, key: &str, values: impl IntoIterator<Item = &'t str>) -> &mut Self {
        self.key(key);
        self.buf.push(b'[');
        for (index, value) in values.into_iter().enumerate() {
            if index > 0 {
                self.buf.push(b',');
            }
            write_text(self.buf, value);
        }
        self.buf.push(b']');
        self
    }

    /// Adds members that are already JSON without line breaks, such as those that this crate writes itself.
    pub(crate) fn paste(&mut self, members: &str) -> &mut Self {
        self.paste_bytes(members.as_bytes())
    }

    /// The same, for text that is known to be ASCII.
    pub(crate) fn paste_bytes(&mut self, members: &[u8]) -> &mut Self {
        self.comma();
        self.buf.extend_from_slice(members);
        self
    }

    /// Adds the `params` object, or removes its key again if `fill` added nothing, not even an empty object.
    fn params(&mut self, fill: impl FnOnce(&mut Object<'_>)) {
        let (len, empty) = (self.buf.len(), self.empty);
        self.json_key(r#""params":"#);
        let mut object = Object::open(self.buf);
        fill(&mut object);
        if object.empty && !object.is_given {
            self.buf.truncate(len);
            self.empty = empty;
        } else {
            object.close();
        }
    }

    fn key(&mut self, key: &str) {
        self.buf.reserve(key.len() + 4);
        self.comma();
        write_text(self.buf, key);
        self.buf.push(b':');
    }

    fn comma(&mut self) {
        if !self.empty {
            self.buf.push(b',');
        }
        self.empty = false;
    }
}

/// Shows the length of the buffer, and none of its content.
impl fmt::Debug for Object<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object(in a buffer of {} bytes)", self.buf.len())
    }
}

/// Begins a message with an id.
#[inline]
fn envelope_of<'b>(buf: &'b mut Vec<u8>, id: &Id) -> Object<'b> {
    buf.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    match id {
        Id::Number(number) => write_integer(buf, *number),
        Id::Text(text) => write_text(buf, text),
        Id::LongNumber(digits) => buf.extend_from_slice(digits.as_bytes()),
    }
    Object {
        buf,
        empty: false,
        is_given: false,
    }
}

fn envelope(buf: &mut Vec<u8>) -> Object<'_> {
    buf.extend_from_slice(br#"{"jsonrpc":"2.0""#);
    Object {
        buf,
        empty: false,
        is_given: false,
    }
}

pub(super) fn write_integer(buf: &mut Vec<u8>, value: i64) {
    if value < 0 {
        buf.push(b'-');
    }
    let mut digits = [0; 20];
    let mut start = digits.len();
    let mut rest = value.unsigned_abs();
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    buf.extend_from_slice(&digits[start..]);
}

struct Digits<'b>(&'b mut Vec<u8>);

impl fmt::Write for Digits<'_> {
    fn write_str(&mut self, digits: &str) -> fmt::Result {
        self.0.extend_from_slice(digits.as_bytes());
        Ok(())
    }
}

fn write_text(buf: &mut Vec<u8>, text: &str) {
    buf.reserve(text.len() + 2);
    buf.push(b'"');
    let mut rest = text.as_bytes();
    loop {
        let at = plain_end(rest);
        buf.extend_from_slice(&rest[..at]);
        let Some(&byte) = rest.get(at) else {
            break;
        };
        write_escape(buf, byte);
        rest = &rest[at + 1..];
    }
    buf.push(b'"');
}

fn write_escape(buf: &mut Vec<u8>, byte: u8) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let short = match byte {
        b'"' | b'\\' => byte,
        0x08 => b'b',
        0x0C => b'f',
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        _ => {
            buf.extend_from_slice(b"\\u00");
            buf.push(HEX[usize::from(byte >> 4)]);
            buf.push(HEX[usize::from(byte & 0xF)]);
            return;
        }
    };
    buf.extend_from_slice(&[b'\\', short]);
}

/// Appends JSON, with each line break between tokens replaced by a space.
fn write_without_line_breaks(buf: &mut Vec<u8>, json: &str) {
    let mut rest = json.as_bytes();
    while let Some(at) = memchr2(b'\n', b'\r', rest) {
        buf.extend_from_slice(&rest[..at]);
        buf.push(b' ');
        rest = &rest[at + 1..];
    }
    buf.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::Object;

    fn written(fill: impl FnOnce(&mut Object<'_>)) -> Vec<u8> {
        let mut buf = Vec::new();
        let mut object = Object::open(&mut buf);
        fill(&mut object);
        object.close();
        buf
    }

    #[test]
    fn control_characters_are_written_with_their_shortest_escapes() {
        let object = written(|object| {
            object.text("a", "\"\\/\u{8}\u{c}\n\r\t\0\u{1f}\u{7f}");
        });
        let expected = "{\"a\":\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u001f\u{7f}\"}";
        assert_eq!(object, expected.as_bytes());
    }

    #[test]
    fn whole_number_has_no_fraction_while_every_integer_up_to_it_is_exact() {
        let limit = (1_u64 << 53) as f64;
        let object = written(|object| {
            object.number("a", limit - 1.0).number("b", limit);
            object.number("c", 1.0 - limit).number("d", 0.5);
        });
        let expected =
            r#"{"a":9007199254740991,"b":9007199254740992.0,"c":-9007199254740991,"d":0.5}"#;
        assert_eq!(object, expected.as_bytes());
    }
}
