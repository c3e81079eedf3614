//! Reads the head of a modern result: whether it is complete, or which input is missing. It knows no calls.

use alloc::borrow::Cow;
use alloc::boxed::Box;

use crate::json::Json;
use crate::json::object::{self, Sought};
use crate::protocol::round;

const TYPE: Sought = Sought::new(round::RESULT_TYPE);

/// The longest beginning of a result that is remembered, in bytes.
const LONGEST: usize = 1 << 10;

/// The members that describe a modern result. A null counts as absent.
#[derive(Default)]
pub(in crate::client) struct ResultHead<'a> {
    pub(in crate::client) result_type: Option<Cow<'a, str>>,
    pub(in crate::client) input_requests: Option<Json<'a>>,
    pub(in crate::client) request_state: Option<Json<'a>>,
}

/// The members with which the server begins complete results. Most servers repeat the same ones each time, including their own name. Such a result is
/// checked and read only from their end on.
#[derive(Debug, Default)]
pub(in crate::client) struct KnownPrefix(Box<str>);

impl KnownPrefix {
    /// The members that need no further check. Empty if none are known.
    pub(in crate::client) fn text(&self) -> &str {
        &self.0
    }

    /// Reads the head of a result. `None` if the type is not a string, or a member that is read occurs twice.
    pub(in crate::client) fn read<'a>(&mut self, result: Json<'a>) -> Option<ResultHead<'a>> {
        // S-RPC-19: a result without a type is complete, and then the other members have no meaning.
        let rest = self.behind(result).unwrap_or(result.as_str());
        if !object::may_have(rest, [TYPE; 2]) {
            return Some(ResultHead::default());
        }
        let head = ResultHead::read(result)?;
        if head.result_type.as_deref() == Some(round::COMPLETE) {
            self.remember(result);
        }
        Some(head)
    }

    /// The rest of a result that begins with the remembered members.
    fn behind<'a>(&self, result: Json<'a>) -> Option<&'a str> {
        result.as_str().strip_prefix('{')?.strip_prefix(&*self.0)
    }

    fn remember(&mut self, result: Json<'_>) {
        // Servers rarely change how they begin their results. This test skips the search for those that begin in another way.
        let starts = [r#"{"resultType""#, r#"{"_meta""#];
        if !starts
            .iter()
            .any(|start| result.as_str().starts_with(start))
        {
            return;
        }
        let with_meta = |key: &str| matches!(key, round::RESULT_TYPE | "_meta");
        let run = object::run_of(result, with_meta)
            .or_else(|| object::run_of(result, |key| key == round::RESULT_TYPE));
        let is_its_start = |run: &&str| result.as_str()[1..].starts_with(run);
        if let Some(run) = run.filter(is_its_start).filter(|run| run.len() <= LONGEST) {
            self.0 = run.into();
        }
    }
}

impl<'a> ResultHead<'a> {
    fn read(result: Json<'a>) -> Option<ResultHead<'a>> {
        let mut head = ResultHead::default();
        let (mut kind, mut is_kind_twice, mut is_rest_twice) = (None, false, false);
        object::members(result, |key, value| match &*key {
            round::RESULT_TYPE => is_kind_twice |= kind.replace(value).is_some(),
            round::INPUT_REQUESTS => is_rest_twice |= head.input_requests.replace(value).is_some(),
            round::REQUEST_STATE => is_rest_twice |= head.request_state.replace(value).is_some(),
            _ => {}
        })
        .ok()?;
        let is_there = |value: &Json<'_>| !value.is_null();
        head.input_requests = head.input_requests.filter(is_there);
        head.request_state = head.request_state.filter(is_there);
        if let Some(kind) = kind.filter(is_there) {
            head.result_type = Some(kind.text()?);
        }
        // In a complete result only the type is read, whether or not its beginning is remembered.
        let kind = head.result_type.as_deref();
        let is_rest_read = kind.is_some_and(|kind| kind != round::COMPLETE);
        let is_ambiguous = is_kind_twice || (is_rest_read && is_rest_twice);
        (!is_ambiguous).then_some(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head<'a>(known_prefix: &mut KnownPrefix, result: &'a str) -> Option<Option<Cow<'a, str>>> {
        let head = known_prefix.read(Json::read(result).expect("it is JSON"))?;
        Some(head.result_type)
    }

    #[test]
    fn the_same_words_are_read_once_and_others_are_read_anew() {
        const COMPLETE: &str = r#"{"resultType":"complete","_meta":{"a":1},"content":[]}"#;
        let mut known_prefix = KnownPrefix::default();
        assert_eq!(known_prefix.text(), "");
        let said = head(&mut known_prefix, COMPLETE).expect("it can be read");
        assert_eq!(said.as_deref(), Some(round::COMPLETE));
        assert_eq!(
            known_prefix.text(),
            r#""resultType":"complete","_meta":{"a":1}"#
        );
        // A remembered beginning gives the same result as no type.
        assert_eq!(head(&mut known_prefix, COMPLETE), Some(None));
        let other = r#"{"resultType":"input_required","_meta":{"a":1}}"#;
        let said = head(&mut known_prefix, other).expect("it can be read");
        assert_eq!(said.as_deref(), Some(round::INPUT_REQUIRED));
        let twice = r#"{"resultType":"complete","_meta":{"a":1},"resultType":"task"}"#;
        assert_eq!(head(&mut known_prefix, twice), None);
        let spelt = r#"{"resultType":"complete","_meta":{"a":1},"\u0072esultType":"task"}"#;
        assert_eq!(head(&mut known_prefix, spelt), None);
    }

    #[test]
    fn what_is_missing_matters_only_where_something_is() {
        let twice = r#""inputRequests":{},"inputRequests":{}"#;
        let complete = alloc::format!(r#"{{"resultType":"complete",{twice}}}"#);
        let mut known_prefix = KnownPrefix::default();
        let said = head(&mut known_prefix, &complete).expect("it can be read");
        assert_eq!(said.as_deref(), Some(round::COMPLETE));
        assert_eq!(head(&mut known_prefix, &complete), Some(None), "as before");
        let incomplete = alloc::format!(r#"{{"resultType":"input_required",{twice}}}"#);
        assert_eq!(head(&mut known_prefix, &incomplete), None);
    }

    #[test]
    fn only_a_short_beginning_that_tells_the_type_is_remembered() {
        for result in [
            r#"{"content":[],"resultType":"complete"}"#,
            r#"{"_meta":{"a":1},"content":[],"resultType":"complete"}"#,
            r#"{ "resultType":"complete"}"#,
            r#"{"content":[]}"#,
        ] {
            let mut known_prefix = KnownPrefix::default();
            assert!(head(&mut known_prefix, result).is_some(), "{result}");
            assert_eq!(known_prefix.text(), "", "{result}");
        }
        let mut known_prefix = KnownPrefix::default();
        let apart = r#"{"resultType":"complete","content":[],"_meta":{}}"#;
        assert!(head(&mut known_prefix, apart).is_some());
        assert_eq!(known_prefix.text(), r#""resultType":"complete""#);
        let long = "x".repeat(LONGEST);
        let long = alloc::format!(r#"{{"resultType":"complete","_meta":"{long}"}}"#);
        let mut known_prefix = KnownPrefix::default();
        assert!(head(&mut known_prefix, &long).is_some());
        assert_eq!(known_prefix.text(), "");
    }

    /// It is not clear which of them counts.
    #[test]
    fn result_that_repeats_a_member_is_not_read() {
        let kind = r#""resultType":"input_required""#;
        for (member, is_there) in [
            (kind, ""),
            (r#""inputRequests":{}"#, kind),
            (r#""requestState":"a""#, kind),
        ] {
            for times in 1..=4 {
                let mut members = alloc::vec![member; times];
                members.extend(Some(is_there).filter(|it| !it.is_empty()));
                let result = alloc::format!("{{{}}}", members.join(","));
                let mut known_prefix = KnownPrefix::default();
                let is_read = head(&mut known_prefix, &result).is_some();
                assert_eq!(is_read, times == 1, "{result}");
            }
        }
    }

    #[test]
    fn beginning_of_1024_bytes_is_remembered_and_a_longer_one_is_not() {
        let empty = r#""resultType":"complete","_meta":"""#.len();
        for (len, is_remembered) in [(LONGEST, true), (LONGEST + 1, false)] {
            let long = "x".repeat(len - empty);
            let result = alloc::format!(r#"{{"resultType":"complete","_meta":"{long}","a":1}}"#);
            let mut known_prefix = KnownPrefix::default();
            assert!(head(&mut known_prefix, &result).is_some());
            assert_eq!(known_prefix.text().len() == len, is_remembered, "{len}");
        }
    }
}
