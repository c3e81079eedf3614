//! Parses media types and `Accept` fields.

use core::str;

use super::{Fields, names};

/// The `Accept` value for both media types that a response to a message can have (S-HTTP-07).
pub(crate) const BOTH_KINDS: &str = "application/json, text/event-stream";

/// Whether a `Content-Type` is this type, regardless of its parameters and case (S-INH-05).
pub(crate) fn is(value: &str, essence: &str) -> bool {
    let named = value.split(';').next().unwrap_or_default();
    trimmed(named).eq_ignore_ascii_case(essence)
}

/// Whether the client accepts bodies of this type. A client without an `Accept` field accepts any.
///
/// The most specific range decides, so `*/*, text/html;q=0` means everything but HTML. Invalid ranges are ignored.
pub(crate) fn accepts(fields: &Fields<'_>, essence: &str) -> bool {
    if !fields.has(names::ACCEPT) {
        return true;
    }
    fields
        .all(names::ACCEPT)
        .flat_map(|list| split_unquoted(list, b','))
        .filter_map(|element| Range::read(str::from_utf8(element).ok()?))
        .filter_map(|range| Some((range.specificity(essence)?, range.is_wanted)))
        .max()
        .is_some_and(|(_, is_wanted)| is_wanted)
}

/// Whether the client accepts both types in the spelling that most clients use. This is a fast check.
pub(crate) fn accepts_both(fields: &Fields<'_>) -> bool {
    let mut accepted = fields.all(names::ACCEPT);
    accepted.next() == Some(BOTH_KINDS.as_bytes()) && accepted.next().is_none()
}

/// How specific the match between a range and a type is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Specificity {
    Anything,
    Family,
    Exact,
}

/// An element of an `Accept` field.
struct Range<'a> {
    essence: &'a str,
    /// Whether its weight is above zero.
    is_wanted: bool,
}

impl<'a> Range<'a> {
    fn read(element: &'a str) -> Option<Range<'a>> {
        let mut parts = split_unquoted(element.as_bytes(), b';').map(str::from_utf8);
        let essence = parts.next()?.ok()?;
        let weight = parts.find_map(|parameter| {
            let (name, weight) = parameter.ok()?.split_once('=')?;
            let is_weight = trimmed(name).eq_ignore_ascii_case("q");
            is_weight.then(|| trimmed(weight))
        });
        Some(Range {
            essence: trimmed(essence),
            is_wanted: weight.map_or(Some(true), is_positive)?,
        })
    }

    fn specificity(&self, essence: &str) -> Option<Specificity> {
        let family = essence.split('/').next().unwrap_or_default();
        match self.essence.strip_suffix("/*") {
            Some("*") => Some(Specificity::Anything),
            Some(range) if range.eq_ignore_ascii_case(family) => Some(Specificity::Family),
            None if self.essence.eq_ignore_ascii_case(essence) => Some(Specificity::Exact),
            Some(_) | None => None,
        }
    }
}

/// Whether a weight is above zero; `None` if it is not a weight. `.2`, which some libraries send, is accepted.
fn is_positive(weight: &str) -> Option<bool> {
    let is_number = weight
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let has_digit = weight.bytes().any(|byte| byte.is_ascii_digit());
    (is_number && has_digit).then(|| weight.contains(|digit| matches!(digit, '1'..='9')))
}

/// The parts of a value, between separators outside of quoted strings.
fn split_unquoted(value: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    value.split(move |byte| {
        let was_escaped = core::mem::take(&mut is_escaped);
        match byte {
            _ if was_escaped => false,
            b'\\' => {
                is_escaped = is_quoted;
                false
            }
            b'"' => {
                is_quoted = !is_quoted;
                false
            }
            byte => *byte == separator && !is_quoted,
        }
    })
}

fn trimmed(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = "application/json";
    const EVENTS: &str = "text/event-stream";

    #[test]
    fn media_type_is_compared_without_parameters_and_case() {
        // S-INH-05.
        for value in [
            "application/json",
            "Application/JSON",
            "application/json;charset=utf-8",
            " application/json ; charset=utf-8",
            "application/json;",
        ] {
            assert!(is(value, JSON), "{value}");
        }
        for value in [
            "",
            ";",
            "application/jsonp",
            "application/json, text/html",
            "application/json-rpc",
            "text/json",
            "*/*",
            "text/html;application/json",
        ] {
            assert!(!is(value, JSON), "{value}");
        }
    }

    #[test]
    fn most_specific_range_decides_what_is_accepted() {
        for (accept, json, events) in [
            ("application/json, text/event-stream", true, true),
            ("text/event-stream", false, true),
            ("APPLICATION/json;charset=utf-8 , text/html", true, false),
            ("*/*", true, true),
            ("application/*", true, false),
            ("text/*;q=0.5", false, true),
            ("*/*;q=0", false, false),
            ("*/*;q=0.000", false, false),
            ("*/*;q=0.001", true, true),
            ("*/*, application/json;q=0", false, true),
            ("application/json;q=0, */*", false, true),
            ("application/*;q=0, application/json", true, false),
            ("*/*;q=0, text/event-stream", false, true),
            ("text/*;Q=0, */*", true, false),
            // One library sends a single asterisk, and weights without a leading zero.
            ("text/html, *; q=.2, */*; q=.2", true, true),
            // Invalid elements are ignored. A list of only invalid elements accepts nothing.
            ("", false, false),
            (",,;,=,q=1, application/json", true, false),
            ("application/json;q=high", false, false),
            ("application/json;q=high1", false, false),
            ("application/json;q=", false, false),
            ("application/json;q=.", false, false),
            ("application/json;q=1x", false, false),
            ("application", false, false),
            ("*/json", false, false),
            // A comma in quotes does not separate.
            ("text/html;a=\", application/json, \"", false, false),
            // Nor does a semicolon.
            ("text/*;a=\";q=0\"", false, true),
            ("text/*;a=\";q=high\";q=0", false, false),
            ("text/html;a=\"\\\", application/json\"", false, false),
            ("text/html;a=\"\\\", application/json, \"", false, false),
            ("text/html;a=\"\\\\\", application/json", true, false),
            ("text/html;a=\", application/json", false, false),
            ("a\\\"b, application/json", false, false),
        ] {
            let fields = Fields::new().and("Accept", accept);
            assert_eq!(accepts(&fields, JSON), json, "{accept}");
            assert_eq!(accepts(&fields, EVENTS), events, "{accept}");
        }
    }

    #[test]
    fn request_without_accept_accepts_any_type() {
        assert!(accepts(&Fields::new(), JSON));
    }

    #[test]
    fn several_accept_fields_form_one_list() {
        let fields = Fields::new().and("accept", JSON).and("ACCEPT", EVENTS);
        assert!(accepts(&fields, JSON));
        assert!(accepts(&fields, EVENTS));
        assert!(!accepts(&fields, "text/html"));
    }

    #[test]
    fn bytes_that_are_not_text_invalidate_only_their_element() {
        let fields = Fields::from_iter([("accept", &b"\xff, application/json"[..])]);
        assert!(accepts(&fields, JSON));
        assert!(!accepts(&fields, EVENTS));
    }
}
