//! Tests of the event stream reader and writer: chunks do not change the events, and written events can be read back.

use alloc::{
    borrow::ToOwned,
    format,
    string::{String, ToString},
    vec,
    vec::Vec,
};
use core::time::Duration;

use proptest::{collection, prelude::*};

use super::{ID_LIMIT, NAME_LIMIT, SseEvent, SseReader, begin, comment, end, prime};
use crate::wire::{Id, buffer::KEPT_CAPACITY, encode};

/// An item of the stream, and the last id after it.
type Report = (Owned, Option<String>);

/// An event that outlives its reader.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Owned {
    Message(String, String),
    NotUtf8,
    Oversized(u64, Option<Id>, bool),
    Primed,
    Retry(Duration),
}

impl From<SseEvent<'_>> for Owned {
    fn from(event: SseEvent<'_>) -> Self {
        match event {
            SseEvent::Message { name, data } => Self::Message(name.to_owned(), data.to_owned()),
            SseEvent::NotUtf8 => Self::NotUtf8,
            SseEvent::Oversized(skimmed) => {
                Self::Oversized(skimmed.len, skimmed.id, skimmed.is_response)
            }
            SseEvent::Primed => Self::Primed,
            SseEvent::Retry(wait) => Self::Retry(wait),
        }
    }
}

fn message(data: &str) -> Owned {
    named("message", data)
}

fn named(name: &str, data: &str) -> Owned {
    Owned::Message(name.to_owned(), data.to_owned())
}

fn oversized(len: u64, id: Option<i64>) -> Owned {
    Owned::Oversized(len, id.map(Id::Number), id.is_some())
}

fn retry(millis: u64) -> Owned {
    Owned::Retry(Duration::from_millis(millis))
}

/// Reads chunks to the end of the stream, and checks that the reader keeps to its limits.
fn read<'c>(limit: usize, chunks: impl IntoIterator<Item = &'c [u8]>) -> Vec<Report> {
    let mut reader = SseReader::new(limit);
    let mut reports = Vec::new();
    for mut chunk in chunks {
        while let Some(event) = reader.next(&mut chunk).map(Owned::from) {
            reports.push((event, reader.last_id().map(ToOwned::to_owned)));
        }
        assert!(chunk.is_empty());
        assert!(reader.buffered() <= limit + NAME_LIMIT + 2 * ID_LIMIT);
    }
    reports
}

/// Reads a stream, split into chunks in every way that can matter.
fn events(limit: usize, stream: impl AsRef<[u8]>) -> Vec<Owned> {
    let stream = stream.as_ref();
    let whole = read(limit, [stream]);
    assert_eq!(read(limit, stream.chunks(1)), whole, "byte by byte");
    if stream.len() < 1000 {
        for at in 0..=stream.len() {
            let (head, tail) = stream.split_at(at);
            assert_eq!(read(limit, [head, tail]), whole, "cut at {at}");
        }
    }
    whole.into_iter().map(|(event, _)| event).collect()
}

/// The last id after the stream was read.
fn last_id(stream: impl AsRef<[u8]>) -> Option<String> {
    let mut reader = SseReader::new(64);
    let mut chunk = stream.as_ref();
    while reader.next(&mut chunk).is_some() {}
    reader.last_id().map(ToOwned::to_owned)
}

/// S-INH-01
#[test]
fn lines_end_with_lf_cr_or_crlf() {
    for [first, second] in [
        ["\n", "\n"],
        ["\r", "\r"],
        ["\r\n", "\r\n"],
        ["\n", "\r\n"],
        ["\r\n", "\n"],
        ["\r\n", "\r"],
        ["\n", "\r"],
    ] {
        let stream = format!("data: a{first}data: b{first}{second}data: c{second}{second}");
        assert_eq!(
            events(64, &stream),
            [message("a\nb"), message("c")],
            "{stream:?}"
        );
    }
    // A CR and an LF are one line end, so there is no blank line.
    assert_eq!(events(64, "data: a\r\n"), []);
}

/// S-INH-01: an event is returned without waiting whether an LF follows its CR.
#[test]
fn event_is_returned_at_the_cr_that_ends_it() {
    let mut reader = SseReader::new(64);
    let mut chunk: &[u8] = b"data: a\r\n\r";
    assert_eq!(reader.next(&mut chunk).map(Owned::from), Some(message("a")));
    assert_eq!(reader.next(&mut chunk), None);
    let mut chunk: &[u8] = b"\ndata: b\r\r";
    assert_eq!(reader.next(&mut chunk).map(Owned::from), Some(message("b")));
}

/// S-INH-01
#[test]
fn one_byte_order_mark_is_stripped_at_the_start() {
    let marked = |rest: &str| events(64, format!("\u{FEFF}{rest}"));
    assert_eq!(marked("data: a\n\n"), [message("a")]);
    assert_eq!(marked("\ndata: a\n\n"), [message("a")]);
    assert_eq!(marked("\u{FEFF}data: a\n\n"), []);
    assert_eq!(events(64, "\n\u{FEFF}data: a\n\n"), []);
    assert_eq!(events(64, "data: a\n\n\u{FEFF}data: b\n\n"), [message("a")]);
    assert_eq!(
        events(64, "data: \u{FEFF}a\n\n"),
        [message("\u{FEFF}a")],
        "a mark in a value"
    );
    assert_eq!(
        events(64, b"\xEF\xBBdata: a\n\ndata: b\n\n"),
        [message("b")]
    );
    assert_eq!(events(64, b"\xEF\ndata: b\n\n"), [message("b")]);
}

/// S-INH-02
#[test]
fn fields_are_read_as_in_the_standard() {
    #[rustfmt::skip]
    let table: &[(&str, &[Owned])] = &[
        ("data: a\ndata:b\ndata:  c\ndata\ndata:\n\n", &[message("a\nb\n c\n\n")]),
        ("data\ndata\n\n", &[message("\n")]),
        ("data: a: b:c\n\n", &[message("a: b:c")]),
        ("data:\ta\n\n", &[message("\ta")]),
        ("data: żółć 🦀 \0\n\n", &[message("żółć 🦀 \0")]),
        ("event: e\ndata: a\n\ndata: b\n\n", &[named("e", "a"), message("b")]),
        ("data: a\nevent: e\n\n", &[named("e", "a")]),
        ("event: e\nevent: f g\ndata: a\n\n", &[named("f g", "a")]),
        ("event: e\nevent\ndata: a\n\n", &[message("a")]),
        ("event: e\n\ndata: a\n\n", &[message("a")]),
        ("retry: 10\ndata: a\n\n", &[retry(10), message("a")]),
        ("data: a\nretry:00020\nretry: 3\n\n", &[retry(20), retry(3), message("a")]),
        ("retry: 4\n", &[retry(4)]),
        ("retry: 99999999999999999999999\n\n", &[retry(u64::MAX)]),
        ("retry: 1x\nretry\nretry: 1x\nretry: 2\n\n", &[retry(2)]),
        ("retry\nretry:\nretry: \nretry: -1\nretry: 1.5\nretry:  1\nretry: 1 \nretry: 1s\n\n", &[]),
        ("Data: a\nDATA: a\n data: a\ndata : a\ndatas: a\ndat: a\nfoo\nfoo: bar\n\ndata: b\n\n", &[message("b")]),
    ];
    for (stream, expected) in table {
        assert_eq!(events(64, stream), *expected, "{stream:?}");
    }
}

/// S-INH-02
#[test]
fn last_id_stays_until_the_next_valid_id() {
    for (stream, id) in [
        ("data: a\n\n", None),
        ("id: 1\ndata: a\n\n", Some("1")),
        ("id: 1\ndata: a\n\ndata: b\n\n", Some("1")),
        ("id: 1\nid:2\ndata: a\n\n", Some("2")),
        ("id: 1\n\nid: \u{17C}  \n\n", Some("\u{17C}  ")),
        ("id: 1\n\nid\n\n", None),
        ("id: 1\n\nid:\ndata: a\n\n", None),
        ("id: 1\n\nid: \n\n", None),
        ("id: 1\n\nid: 2\0\n\n", Some("1")),
        ("id: 1\nid: 2\0\n\n", Some("1")),
        ("id: 1\n\nid: 2\ndata: b", Some("1")),
        ("id: 1\n\nid: 2\n", Some("1")),
    ] {
        assert_eq!(last_id(stream).as_deref(), id, "{stream:?}");
    }
    assert_eq!(last_id(b"id: 1\n\nid: \xFF\n\n").as_deref(), Some("1"));
}

/// S-INH-03
#[test]
fn event_without_data_is_reported_only_if_it_has_an_id() {
    let nothing: &[Owned] = &[];
    for (stream, expected) in [
        ("id: 1\n\n", &[Owned::Primed][..]),
        ("id: 1\ndata:\n\n", &[Owned::Primed]),
        ("data\nid: 1\n\n", &[Owned::Primed]),
        ("id: 1\nretry: 5\ndata: \n\n", &[retry(5), Owned::Primed]),
        ("id\n\n", &[Owned::Primed]),
        ("id: 1\0\n\n", nothing),
        ("event: e\ndata:\n\n", nothing),
        ("data:\n\n", nothing),
        ("\n\n\n", nothing),
    ] {
        assert_eq!(events(64, stream), expected, "{stream:?}");
        let after = [expected, &[message("a")]].concat();
        assert_eq!(events(64, format!("{stream}data: a\n\n")), after);
    }
}

/// S-INH-03
#[test]
fn unfinished_event_at_the_end_is_not_reported() {
    for stream in [
        "data: a",
        "data: a\n",
        "data: a\r\n",
        "id: 1",
        "id: 1\n",
        "id: 1\ndata: a\n: ",
        "retry: 1",
    ] {
        assert_eq!(events(64, stream), [], "{stream:?}");
        assert_eq!(last_id(stream), None, "{stream:?}");
    }
}

/// S-HTTP-20
#[test]
fn comments_are_ignored() {
    assert_eq!(
        events(
            64,
            b":\n: data: a\n:data: a\ndata: a\n:\xFF\ndata: b\n:\n\n:\n\n:\n"
        ),
        [message("a\nb")]
    );
}

/// S-INH-01
#[test]
fn event_that_is_not_utf8_is_reported_and_the_next_is_read() {
    assert_eq!(
        events(
            64,
            b"data: a\n\nid: 7\ndata: \xFF\n\nevent: \xC5\ndata: b\n\nevent: \xC5\nevent: e\ndata: c\n\n\xFF: \xFF\ndata: d\n\n"
        ),
        [message("a"), Owned::NotUtf8, Owned::NotUtf8, named("e", "c"), message("d")]
    );
    assert_eq!(
        last_id(b"id: 7\ndata: \xFF\n\n").as_deref(),
        Some("7"),
        "its id counts"
    );
    // Two halves of a character, separated by a line end, are not a character.
    assert_eq!(events(64, b"data: \xC5\ndata: \xBC\n\n"), [Owned::NotUtf8]);
}

/// S-INH-06
#[test]
fn event_over_the_limit_is_skimmed_and_skipped() {
    let fits = "0123456789ABCDEF";
    assert_eq!(events(16, format!("data: {fits}\n\n")), [message(fits)]);
    assert_eq!(
        events(16, format!("data: {fits}!\n\ndata: a\n\n")),
        [oversized(17, None), message("a")]
    );
    assert_eq!(
        events(16, "data: 01234567\ndata: 9ABCDEF\n\n"),
        [message("01234567\n9ABCDEF")]
    );
    assert_eq!(
        events(16, "data: 01234567\ndata: 9ABCDEF0\n\n"),
        [oversized(17, None)]
    );
    assert_eq!(
        events(16, "data: 0123456789ABCDEF\ndata\n\n"),
        [oversized(17, None)]
    );
    let split = "id: 7\ndata: {\"result\":{\"id\":1,\ndata: \"text\":\"long\"},\nevent: e\ndata: \"id\":7}\n\n";
    assert_eq!(events(16, split), [oversized(42, Some(7))]);
    assert_eq!(
        last_id(split.replace("long", &"long".repeat(40))).as_deref(),
        Some("7")
    );
    // The next event is skimmed separately.
    assert_eq!(
        events(
            0,
            "data: {\"id\":7,\"result\":0}\n\ndata: {\"id\":8,\"result\":0}\n\ndata:\n\n"
        ),
        [oversized(19, Some(7)), oversized(19, Some(8))]
    );
}

/// S-INH-06
#[test]
fn names_and_ids_over_their_limits_are_ignored() {
    let name = "n".repeat(NAME_LIMIT);
    assert_eq!(
        events(64, format!("event: {name}\ndata: a\n\n")),
        [named(&name, "a")]
    );
    assert_eq!(
        events(64, format!("event: e\nevent: {name}n\ndata: a\n\n")),
        [named("e", "a")]
    );
    let id = "i".repeat(ID_LIMIT);
    let stream = format!("id: {id}\n\n");
    assert_eq!(events(64, &stream), [Owned::Primed]);
    assert_eq!(last_id(stream), Some(id.clone()));
    let stream = format!("id: 1\nid: {id}i\n\n");
    assert_eq!(events(64, &stream), [Owned::Primed]);
    assert_eq!(last_id(stream).as_deref(), Some("1"));
    assert_eq!(events(64, format!("id: {id}i\n\n")), []);
}

/// S-INH-06
#[test]
fn memory_stays_within_the_limits_and_is_freed() {
    const LIMIT: usize = 1 << 20;
    let mut reader = SseReader::new(LIMIT);
    let piece = vec![b'x'; 1000];
    for field in ["data:", "event:", "id:", "retry:", ":", "other:", ""] {
        assert_eq!(reader.next(&mut field.as_bytes()), None);
        for _ in 0..2 * LIMIT / piece.len() {
            assert_eq!(reader.next(&mut &piece[..]), None);
            assert!(reader.data.capacity() <= LIMIT);
            assert!(reader.field_buf.capacity() <= ID_LIMIT);
        }
        assert_eq!(reader.buffered(), 0, "{field:?}");
        let mut chunk: &[u8] = b"\n\n";
        while reader.next(&mut chunk).is_some() {}
    }

    let long = format!("data: {}\n\nd", "x".repeat(LIMIT));
    let (head, tail) = long.split_at(9);
    assert_eq!(reader.next(&mut head.as_bytes()), None);
    let mut chunk = tail.as_bytes();
    assert!(
        matches!(reader.next(&mut chunk), Some(SseEvent::Message { data, .. }) if data.len() == LIMIT)
    );
    assert_eq!(reader.buffered(), 0);
    assert_eq!(reader.next(&mut chunk), None);
    assert_eq!(reader.buffered(), 1);
    assert!(reader.data.capacity() <= KEPT_CAPACITY);
}

#[test]
fn data_of_one_line_in_the_chunk_is_not_copied() {
    let stream = b"event: e\ndata: {}\n\n";
    let mut reader = SseReader::new(64);
    match reader.next(&mut &stream[..]) {
        Some(SseEvent::Message { data, .. }) => assert_eq!(data.as_ptr(), stream[15..].as_ptr()),
        other => panic!("{other:?}"),
    }
    assert_eq!(reader.data.capacity(), 0);
    // Nor if it is as long as the limit.
    let mut reader = SseReader::new(2);
    assert!(reader.next(&mut &stream[..]).is_some());
    assert_eq!(reader.data.capacity(), 0);
}

#[test]
fn resumed_stream_starts_with_the_id_that_it_continues_after() {
    let mut reader = SseReader::resuming(64, "7");
    assert_eq!(reader.last_id(), Some("7"));
    assert_eq!(reader.next(&mut &b"data: a\n"[..]), None);
    assert_eq!(reader.last_id(), Some("7"));
}

#[test]
fn reader_is_between_events_unless_a_field_of_the_next_was_read() {
    for (stream, is_between) in [
        ("", true),
        ("data: a\n\n", true),
        ("data: a\n\n: comment\n", true),
        ("data: a\n", false),
        ("id: 1\n", false),
        ("event: e\n", false),
        ("data: a\n\nid: 1\n", false),
        ("data: a\n\nda", false),
    ] {
        let mut reader = SseReader::new(64);
        let mut chunk = stream.as_bytes();
        while reader.next(&mut chunk).is_some() {}
        assert_eq!(reader.is_between_events(), is_between, "{stream:?}");
    }
}

#[test]
fn debug_shows_no_byte_of_an_event() {
    let mut reader = SseReader::new(64);
    let mut chunk: &[u8] = b"event: hunter2\nid: hunter2\ndata: hunter2\n\ndata: hunter2";
    assert_eq!(
        format!("{:?}", reader.next(&mut chunk)),
        "Some(Message(name of 7 bytes, 7 bytes))"
    );
    assert_eq!(reader.next(&mut chunk), None);
    assert_eq!(
        format!("{reader:?}"),
        "SseReader { limit: 64, buffered: 7, .. }"
    );
    for (event, shown) in [
        (SseEvent::NotUtf8, "NotUtf8"),
        (SseEvent::Primed, "Primed"),
        (SseEvent::Retry(Duration::from_secs(1)), "Retry(1s)"),
    ] {
        assert_eq!(format!("{event:?}"), shown);
    }
}

/// S-INH-04: one message is one line of data. It has a name only if one is given.
#[test]
fn written_events_read_back() {
    let mut buf = Vec::new();
    comment(&mut buf);
    prime(&mut buf, "s/0", Some(Duration::from_micros(1_500_999)));
    begin(&mut buf, Some("s/1"), None);
    encode::notification(&mut buf, "n", |params| {
        params.raw("broken", "[1,\r\n2]").text("text", "\r\n");
    });
    end(&mut buf);
    begin(&mut buf, None, Some("message"));
    encode::result(&mut buf, &Id::Number(1), |_| {});
    end(&mut buf);
    prime(&mut buf, " ", None);
    assert_eq!(
        String::from_utf8(buf.clone()).unwrap(),
        [
            ":\n\n",
            "id: s/0\nretry: 1500\ndata:\n\n",
            "id: s/1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"n\",\"params\":{\"broken\":[1,  2],\"text\":\"\\r\\n\"}}\n\n",
            "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n",
            "id:  \ndata:\n\n",
        ]
        .concat()
    );
    assert_eq!(
        read(256, [&buf[..]]),
        [
            (retry(1500), None),
            (Owned::Primed, Some("s/0".to_string())),
            (
                message(
                    r#"{"jsonrpc":"2.0","method":"n","params":{"broken":[1,  2],"text":"\r\n"}}"#
                ),
                Some("s/1".to_string())
            ),
            (
                message(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#),
                Some("s/1".to_string())
            ),
            (Owned::Primed, Some(" ".to_string())),
        ]
    );
}

#[test]
fn ids_and_names_with_line_breaks_or_nul_are_left_out() {
    let mut buf = Vec::new();
    for odd in ["a\nb", "a\rb", "\0"] {
        begin(&mut buf, Some(odd), Some(odd));
        buf.extend_from_slice(b"{}");
        end(&mut buf);
        prime(&mut buf, odd, Some(Duration::MAX));
    }
    let once = "data: {}\n\nretry: 9223372036854775807\ndata:\n\n";
    assert_eq!(String::from_utf8(buf).unwrap(), once.repeat(3));
}

/// Pieces with a meaning in event streams. The test joins them and splits them anywhere.
fn piece() -> impl Strategy<Value = &'static [u8]> {
    const PIECES: &[&[u8]] = &[
        b"\n",
        b"\r",
        b"\r\n",
        b"\n\n",
        b"data",
        b"data:",
        b"data: ",
        b"event: ",
        b"id: ",
        b"id\n",
        b"retry: ",
        b":",
        b" ",
        b"1",
        b"23",
        b"a",
        b"{\"id\":7,\"result\":0}",
        b"\0",
        b"\xC5\xBC",
        b"\xFF",
        b"\xEF\xBB\xBF",
        b"e",
        b"d",
    ];
    (0..PIECES.len()).prop_map(|index| PIECES[index])
}

proptest! {
    /// S-INH-01
    #[test]
    fn events_do_not_depend_on_the_chunks(
        pieces in collection::vec(piece(), 0..60),
        sizes in collection::vec(1..12usize, 1..8),
        limit in 0..24usize,
    ) {
        let stream = pieces.concat();
        let whole = read(limit, [&stream[..]]);
        let mut rest = &stream[..];
        let chunks = sizes.iter().cycle().map_while(|&size| {
            let (chunk, after) = rest.split_at(size.min(rest.len()));
            rest = after;
            (!chunk.is_empty()).then_some(chunk)
        });
        prop_assert_eq!(read(limit, chunks), whole);
    }
}
