//! The trace context of a message: `traceparent` and `tracestate`, in the format of W3C Trace Context.

use alloc::boxed::Box;
use alloc::string::String;
use core::ops::Range;

use super::meta;

/// The longest `tracestate` that is used. W3C Trace Context asks for at least 512.
const MOST_STATE_BYTES: usize = 512;

/// The span that sent a message, and the trace that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceContext {
    /// The trace. Never 0.
    pub trace_id: u128,
    /// The span. Never 0.
    pub span_id: u64,
    /// Whether the sender exports its spans.
    pub is_sampled: bool,
    /// The `tracestate`, as received.
    pub state: Option<Box<str>>,
}

impl TraceContext {
    pub(crate) const fn new(
        trace_id: u128,
        span_id: u64,
        is_sampled: bool,
        state: Option<Box<str>>,
    ) -> TraceContext {
        TraceContext {
            trace_id,
            span_id,
            is_sampled,
            state,
        }
    }

    /// Parses the values of `traceparent` and `tracestate`. `None` if the parent is invalid. A version after 00 may have further parts, which are
    /// ignored, and a state that is too long is left out.
    #[must_use]
    pub fn parse(parent: &str, state: Option<&str>) -> Option<TraceContext> {
        let bytes = parent.as_bytes();
        let is_dashed = [2, 35, 52].iter().all(|at| bytes.get(*at) == Some(&b'-'));
        let version = lower_hex(parent.get(..2)?)?;
        let is_whole = match bytes.get(55) {
            None => bytes.len() == 55,
            Some(next) => version > 0 && *next == b'-',
        };
        if !is_dashed || !is_whole || version == 0xff {
            return None;
        }
        let span_id = u64::try_from(lower_hex(parent.get(36..52)?)?).ok()?;
        let context = TraceContext {
            trace_id: lower_hex(parent.get(3..35)?)?,
            span_id,
            is_sampled: lower_hex(parent.get(53..55)?)? & 1 == 1,
            state: state
                .filter(|state| !state.is_empty() && state.len() <= MOST_STATE_BYTES)
                .map(Into::into),
        };
        (context.trace_id != 0 && span_id != 0).then_some(context)
    }

    /// The value of `traceparent`.
    #[must_use]
    pub fn parent(&self) -> String {
        // All of it is ASCII.
        let member = self.parent_member();
        member[VALUE].iter().copied().map(char::from).collect()
    }

    /// The member `traceparent` of a `_meta`, as JSON. It is written for each request that a relay traces, so it is not formatted with `format!`.
    pub(crate) fn parent_member(&self) -> [u8; 71] {
        let mut member =
            *br#""traceparent":"00-00000000000000000000000000000000-0000000000000000-00""#;
        let start = VALUE.start;
        write_hex(
            &mut member[start + 3..start + 35],
            &self.trace_id.to_be_bytes(),
        );
        write_hex(
            &mut member[start + 36..start + 52],
            &self.span_id.to_be_bytes(),
        );
        member[start + 54] += u8::from(self.is_sampled);
        member
    }

    /// The bytes that it adds to a message, roughly.
    pub(crate) fn bytes(&self) -> usize {
        55 + self.state.as_ref().map_or(0, |state| state.len())
    }

    /// Whether this member of `_meta` is a part of the trace context.
    pub(crate) fn has_member(key: &str) -> bool {
        matches!(key, meta::TRACEPARENT | meta::TRACESTATE)
    }
}

/// Where the value is in a member.
const VALUE: Range<usize> = 15..70;

/// The two digits of each byte.
const HEX: [[u8; 2]; 256] = {
    let mut table = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = [
            b"0123456789abcdef"[byte >> 4],
            b"0123456789abcdef"[byte & 15],
        ];
        byte += 1;
    }
    table
};

fn write_hex(digits: &mut [u8], bytes: &[u8]) {
    for (two, byte) in digits.chunks_exact_mut(2).zip(bytes) {
        two.copy_from_slice(&HEX[usize::from(*byte)]);
    }
}

fn lower_hex(text: &str) -> Option<u128> {
    let is_lower = text
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_lower.then(|| u128::from_str_radix(text, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn parent_is_written_as_it_was_read() {
        let context = TraceContext::parse(PARENT, Some("a=b")).expect("it is valid");
        assert_eq!(context.trace_id, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!(context.span_id, 0x00f0_67aa_0ba9_02b7);
        assert!(context.is_sampled);
        assert_eq!(context.state.as_deref(), Some("a=b"));
        assert_eq!(context.parent(), PARENT);
    }

    #[test]
    fn invalid_parents_are_refused() {
        for (from, to) in [
            ("00-", "ff-"),
            ("00-", "0-"),
            (
                "4bf92f3577b34da6a3ce929d0e0e4736",
                "00000000000000000000000000000000",
            ),
            ("00f067aa0ba902b7", "0000000000000000"),
            ("4bf9", "4BF9"),
            ("-01", "_01"),
            ("-01", "-01-more"),
            ("-01", "-0"),
            ("4736", "47\u{e9}"),
        ] {
            let parent = PARENT.replacen(from, to, 1);
            assert_eq!(TraceContext::parse(&parent, None), None, "{parent}");
        }
        assert_eq!(TraceContext::parse("", None), None);
    }

    #[test]
    fn later_version_may_have_further_parts_and_an_unset_flag_is_kept() {
        let later = PARENT.replacen("00-", "01-", 1) + "-more";
        assert!(TraceContext::parse(&later, None).is_some());
        let unsampled = PARENT.replace("-01", "-00");
        let context = TraceContext::parse(&unsampled, Some(&"x".repeat(513)));
        let context = context.expect("it is valid");
        assert!(!context.is_sampled);
        assert_eq!(context.state, None);
        let longest = "x".repeat(512);
        let context = TraceContext::parse(PARENT, Some(&longest)).expect("it is valid");
        assert_eq!(context.state.as_deref(), Some(longest.as_str()));
    }

    #[test]
    fn two_members_of_meta_are_parts_of_the_context() {
        let is_part = ["traceparent", "tracestate", "baggage"].map(TraceContext::has_member);
        assert_eq!(is_part, [true, true, false]);
    }
}
