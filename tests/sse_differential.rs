//! Compares the event stream reader of everlink with another one; both must agree.
//!
//! Intended differences between `sse-core` and everlink:
//!
//! - An event with empty data is a message by the standard and in `sse-core`; in everlink it is none (S-INH-03).
//! - `sse-core` ignores a retry delay that does not fit in 32 bits; everlink accepts it, up to a much higher limit.
//! - `sse-core` repairs invalid UTF-8, like the standard; everlink refuses it. The generated streams are all UTF-8.
//! - The size limits differ. The generated streams stay below all of them.

#![allow(
    clippy::std_instead_of_core,
    clippy::wildcard_enum_match_arm,
    reason = "a test that matches only the events that it expects"
)]

use std::time::Duration;

use everlink::internal::wire::{SseEvent, SseReader};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use sse_core::SseDecoder;

/// An item that a reader reports.
#[derive(Debug, PartialEq)]
enum Report {
    Message {
        name: String,
        data: String,
        id: Option<String>,
    },
    Retry(Duration),
    /// The last event id at the end of a chunk.
    Id(Option<String>),
}

const LONGEST_WAIT: Duration = Duration::from_millis(u32::MAX as u64);

/// The number of generated streams.
const CASES: u32 = 2_000;

fn by_everlink(chunks: &[&[u8]]) -> Vec<Report> {
    let mut reader = SseReader::new(1 << 20);
    let mut reports = Vec::new();
    for mut chunk in chunks.iter().copied() {
        while let Some(event) = reader.next(&mut chunk) {
            match event {
                SseEvent::Message { name, data } => {
                    let (name, data) = (name.into(), data.into());
                    let id = reader.last_id().map(Into::into);
                    reports.push(Report::Message { name, data, id });
                }
                SseEvent::Primed => {}
                SseEvent::Retry(wait) if wait > LONGEST_WAIT => {}
                SseEvent::Retry(wait) => reports.push(Report::Retry(wait)),
                other => panic!("{other:?}"),
            }
        }
        reports.push(Report::Id(reader.last_id().map(Into::into)));
    }
    reports
}

fn by_sse_core(chunks: &[&[u8]]) -> Vec<Report> {
    let mut decoder = SseDecoder::new();
    let mut reports = Vec::new();
    for mut chunk in chunks.iter().copied() {
        while let Some(event) = decoder.next(&mut chunk) {
            match event.expect("an event within the limits") {
                sse_core::SseEvent::Message(message) if message.data.is_empty() => {}
                sse_core::SseEvent::Message(message) => reports.push(Report::Message {
                    name: message.event.into(),
                    data: message.data,
                    id: message.last_event_id.as_deref().map(Into::into),
                }),
                sse_core::SseEvent::Retry(millis) => {
                    reports.push(Report::Retry(Duration::from_millis(millis.into())));
                }
            }
        }
        reports.push(Report::Id(decoder.last_event_id().map(|id| (**id).into())));
    }
    reports
}

/// A line without its end: mostly valid fields, sometimes lookalikes.
fn line() -> impl Strategy<Value = String> {
    let plain = select(vec![
        "data: a",
        "data: {}",
        "data",
        "id: 7",
        "id: 8",
        "id:",
        "event: e",
        "retry: 20",
        ": b",
    ]);
    let name = select(vec![
        "data", "data", "data", "event", "id", "id", "retry", "", "Data", "dat", "data ", "other",
    ]);
    let colon = select(vec![": ", ": ", ":", ":  ", ":\t", " :", "::", ""]);
    let value = prop_oneof![
        select(vec![
            "",
            "a",
            "message",
            "{\"a\":[1,2]}",
            "żółć",
            "\u{FEFF}",
            "\0",
            "a\0b",
            "🦀 "
        ])
        .prop_map(String::from),
        "[0-9]{1,12}",
        "[ -~]{0,20}",
        "\\PC{0,6}",
    ];
    prop_oneof![
        3 => Just(String::new()),
        3 => plain.prop_map(String::from),
        4 => (name, colon, value).prop_map(|(name, colon, value)| format!("{name}{colon}{value}")),
    ]
}

/// A whole stream, with several kinds of line ends, and perhaps cut short.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let end = select(vec!["\n", "\n", "\n", "\r\n", "\r\n", "\r", "\n\n"]);
    let mark = select(vec!["", "", "", "\u{FEFF}", "\u{FEFF}\u{FEFF}"]);
    let one_end = (vec(line(), 0..30), end.clone())
        .prop_map(|(lines, end)| lines.into_iter().map(|line| line + end).collect::<String>());
    let any_ends = vec((line(), end), 0..30)
        .prop_map(|lines| lines.into_iter().map(|(line, end)| line + end).collect());
    (mark, prop_oneof![one_end, any_ends], 0..4usize).prop_map(|(mark, lines, short)| {
        let stream = format!("{mark}{lines}").into_bytes();
        stream[..stream.len().saturating_sub(short)].to_vec()
    })
}

fn cut<'s>(stream: &'s [u8], sizes: &[usize]) -> Vec<&'s [u8]> {
    let mut rest = stream;
    let mut sizes = sizes.iter().cycle();
    let mut chunks = Vec::new();
    while !rest.is_empty() {
        let size = sizes
            .next()
            .map_or(rest.len(), |size| rest.len().min(*size));
        let (chunk, after) = rest.split_at(size);
        chunks.push(chunk);
        rest = after;
    }
    chunks
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    /// S-INH-01, S-INH-02, S-INH-03, S-HTTP-20
    #[test]
    fn both_readers_report_the_same_events(stream in stream(), sizes in vec(1..40usize, 0..6)) {
        let chunks = cut(&stream, &sizes);
        prop_assert_eq!(by_everlink(&chunks), by_sse_core(&chunks));
    }
}

/// Checks that the generated streams contain at least 20 of each interesting case.
#[test]
fn generated_streams_contain_every_interesting_case() {
    let mut runner = TestRunner::deterministic();
    let (mut messages, mut named, mut joined, mut waits, mut resets) = (0, 0, 0, 0, 0);
    for _ in 0..CASES {
        let stream = stream().new_tree(&mut runner).unwrap().current();
        let mut last_id = None;
        for report in by_everlink(&[&stream]) {
            match report {
                Report::Message { name, data, id } => {
                    messages += 1;
                    named += usize::from(name != "message");
                    joined += usize::from(data.contains('\n'));
                    resets += usize::from(id.is_none() && last_id.is_some());
                    last_id = id;
                }
                Report::Retry(_) => waits += 1,
                Report::Id(_) => {}
            }
        }
    }
    let seen = [messages, named, joined, waits, resets];
    assert!(seen.iter().all(|count| *count >= 20), "{seen:?}");
}
