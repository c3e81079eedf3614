//! Header fields: an ordered list of names and values.

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::fmt;

/// The header fields of a request or a response.
///
/// Names are compared without regard to case. Values are bytes. The debug output shows only their lengths.
///
/// ```
/// use everlink::http::Fields;
///
/// let fields = Fields::new().and("Content-Type", "application/json ");
/// assert_eq!(fields.get("content-type"), Some("application/json"));
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Fields<'a>(Vec<(Cow<'a, str>, Cow<'a, [u8]>)>);

impl<'a> Fields<'a> {
    /// An empty list.
    #[must_use]
    pub const fn new() -> Fields<'a> {
        Fields(Vec::new())
    }

    /// Adds a field whose value is text.
    #[must_use]
    pub fn and(
        mut self,
        name: impl Into<Cow<'a, str>>,
        value: impl Into<Cow<'a, str>>,
    ) -> Fields<'a> {
        self.push(name, value);
        self
    }

    /// Adds a field whose value is text.
    pub fn push(&mut self, name: impl Into<Cow<'a, str>>, value: impl Into<Cow<'a, str>>) {
        let value = match value.into() {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        };
        self.0.push((name.into(), value));
    }

    /// Adds a field with the value as it came.
    pub fn push_bytes(&mut self, name: impl Into<Cow<'a, str>>, value: impl Into<Cow<'a, [u8]>>) {
        self.0.push((name.into(), value.into()));
    }

    /// Adds all of these fields.
    pub(crate) fn extend(&mut self, more: Fields<'a>) {
        self.0.extend(more.0);
    }

    /// The value of the first field with this name, without the whitespace around it. Also `None` if the value is not visible ASCII.
    #[must_use]
    pub fn get<'s>(&'s self, name: &str) -> Option<&'s str> {
        self.all(name).next().and_then(text)
    }

    /// The values of all fields with this name, without the whitespace around them.
    pub fn all<'s>(&'s self, name: &str) -> impl Iterator<Item = &'s [u8]> {
        let named = self
            .0
            .iter()
            .filter(move |(of, _)| of.eq_ignore_ascii_case(name));
        named.map(|(_, value)| trimmed(value))
    }

    /// Whether there is a field with this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.all(name).next().is_some()
    }

    /// All fields, in order and unchanged.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// The number of bytes in all names and values.
    pub(crate) fn bytes(&self) -> usize {
        self.iter()
            .map(|(name, value)| name.len() + value.len())
            .sum()
    }
}

impl<'a, N: Into<Cow<'a, str>>, V: Into<Cow<'a, [u8]>>> FromIterator<(N, V)> for Fields<'a> {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(fields: I) -> Fields<'a> {
        let fields = fields.into_iter();
        Fields(
            fields
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }
}

/// Shows no values, because they may be secrets.
impl fmt::Debug for Fields<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lengths = self.iter().map(|(name, value)| (name, value.len()));
        f.debug_map().entries(lengths).finish()
    }
}

/// Strips the optional whitespace around a value.
fn trimmed(value: &[u8]) -> &[u8] {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = value.iter().position(|byte| !is_space(byte));
    let end = value.iter().rposition(|byte| !is_space(byte));
    match (start, end) {
        (Some(start), Some(end)) => &value[start..=end],
        (_, _) => &[],
    }
}

/// The value as text, if it is visible ASCII with spaces and tabs in between.
pub(crate) fn text(value: &[u8]) -> Option<&str> {
    // Most values are text. A loop without an early exit is faster for them.
    let is_plain = value.iter().fold(true, |so_far, byte| {
        so_far & matches!(byte, b'\t' | b' '..=b'~')
    });
    let value = is_plain.then_some(value)?;
    core::str::from_utf8(value).ok()
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    #[test]
    fn names_ignore_case_and_values_are_trimmed() {
        let fields = Fields::new()
            .and("MCP-Session-Id", " \tabc \t")
            .and("a", "");
        assert_eq!(fields.get("mcp-session-id"), Some("abc"));
        assert_eq!(fields.get("A"), Some(""));
        assert!(!fields.has("b"));
    }

    #[test]
    fn get_returns_none_for_a_value_that_is_not_ascii_text() {
        for value in ["\u{e9}", "a\0b", "a\u{7f}", "a\nb", "\u{1}b"] {
            assert_eq!(Fields::new().and("a", value).get("a"), None, "{value:?}");
        }
        assert_eq!(Fields::new().and("a", "b\tc").get("a"), Some("b\tc"));
        let mut fields = Fields::from_iter([("a", &b"\xff"[..])]);
        fields.push_bytes("a", &b"b"[..]);
        assert!(fields.has("a"));
        assert_eq!(fields.get("a"), None);
        assert_eq!(fields.all("a").count(), 2);
    }

    #[test]
    fn iter_returns_values_unchanged() {
        let mut fields = Fields::new();
        fields.push_bytes("a", &b" \xff"[..]);
        let kept: Vec<(&str, &[u8])> = fields.iter().collect();
        assert_eq!(kept, [("a", &b" \xff"[..])]);
    }

    #[test]
    fn debug_shows_no_value() {
        let fields = Fields::new().and("authorization", "hunter2");
        assert_eq!(format!("{fields:?}"), r#"{"authorization": 7}"#);
    }
}
