//! Tests across the files of `wire`: chunks do not change the framing, and messages survive a round trip.

use alloc::{
    borrow::ToOwned,
    format,
    string::{String, ToString},
    vec,
    vec::Vec,
};

use super::{
    Id, Inbound, Line, LineReader, Malformed, MalformedKind, Message, TEXT_ID_LIMIT, encode, parse,
    parse_visiting,
};
use crate::json::Json;
use crate::json::object::{self, ObjectError, Part, Plan, Sought};

/// A line that outlives its reader.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Owned {
    NotUtf8(Vec<u8>),
    Oversized(u64, Option<Id>, bool),
    Text(String),
}

impl From<Line<'_>> for Owned {
    fn from(line: Line<'_>) -> Self {
        match line {
            Line::NotUtf8(bytes) => Self::NotUtf8(bytes.to_owned()),
            Line::Oversized(skimmed) => {
                Self::Oversized(skimmed.len, skimmed.id, skimmed.is_response)
            }
            Line::Text(text) => Self::Text(text.to_owned()),
        }
    }
}

fn text(line: &str) -> Owned {
    Owned::Text(line.to_owned())
}

fn oversized(len: u64, id: Option<Id>, is_response: bool) -> Owned {
    Owned::Oversized(len, id, is_response)
}

/// Reads chunks to the end of the stream, and checks that the reader keeps to its limit.
fn read<'c>(limit: usize, chunks: impl IntoIterator<Item = &'c [u8]>) -> Vec<Owned> {
    let mut reader = LineReader::new(limit);
    let mut lines = Vec::new();
    for mut chunk in chunks {
        while let Some(line) = reader.next(&mut chunk) {
            lines.push(line.into());
        }
        assert!(chunk.is_empty());
        assert!(reader.buffered() <= limit);
    }
    lines.extend(reader.finish().map(Owned::from));
    assert_eq!(reader.buffered(), 0);
    assert_eq!(reader.finish(), None);
    lines
}

fn read_whole(limit: usize, bytes: &[u8]) -> Vec<Owned> {
    read(limit, [bytes])
}

/// A small xorshift generator: the same numbers on every run.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// All difficult cases of framing, in one stream.
fn difficult_lines() -> Vec<u8> {
    let mut script = Vec::new();
    for line in [
        "\u{FEFF}first\n".as_bytes(),
        b"\r\n",
        b"  \t \r\n",
        b"\xEF\xBB\xBF\r\n",
        b"\n\n\n",
        b"crlf\r\n",
        b"two crs\r\r\n",
        b"cr\rinside\n",
        "\u{FEFF}\u{FEFF}two marks\n".as_bytes(),
        "mark \u{FEFF} inside\n".as_bytes(),
        "żółć 🦀\n".as_bytes(),
        b"cut \xF0\x9F\xA6\n",
        b"\xFF\xFE\r\n",
        b"\xEF\xBB\n",
        b"\0nul\0\n",
        "\u{FEFF}{\"id\":7,\"result\":{\"text\":\"a line that is over the limit\"}}\r\n".as_bytes(),
        "{\"result\":{\"id\":1,\"t\":\"\\\\\\\"id\\\":2 ż\"},\"\\u0069d\":\"sev\\u0065n\"}\n"
            .as_bytes(),
        b"{\"method\":\"m\",\"params\":{\"a\":[[1],{}]},\"id\":-3          }\n",
        b"\xEF\xBBgarbage that is over the limit as well, and no JSON\n",
        b"                                              \n",
        b"exactly thirty-two bytes, no LF.\n",
        b"exactly thirty-three bytes, no LF\n",
        b"exactly thirty-two with the CR.\r\n",
        b"unfinished\r",
    ] {
        script.extend_from_slice(line);
    }
    script
}

#[test]
fn difficult_lines_are_framed_correctly() {
    assert_eq!(
        read_whole(32, &difficult_lines()),
        [
            text("first"),
            text("crlf"),
            text("two crs\r"),
            text("cr\rinside"),
            text("\u{FEFF}two marks"),
            text("mark \u{FEFF} inside"),
            text("żółć 🦀"),
            Owned::NotUtf8(b"cut \xF0\x9F\xA6".to_vec()),
            Owned::NotUtf8(b"\xFF\xFE".to_vec()),
            Owned::NotUtf8(b"\xEF\xBB".to_vec()),
            text("\0nul\0"),
            oversized(62, Some(Id::Number(7)), true),
            oversized(62, Some(Id::Text("seven".into())), true),
            oversized(56, Some(Id::Number(-3)), false),
            oversized(53, None, false),
            oversized(46, None, false),
            text("exactly thirty-two bytes, no LF."),
            oversized(33, None, false),
            text("exactly thirty-two with the CR."),
            text("unfinished"),
        ]
    );
}

#[test]
#[cfg_attr(miri, ignore = "takes Miri too long")]
fn lines_do_not_depend_on_the_chunks() {
    let script = difficult_lines();
    for limit in [0, 1, 2, 3, 5, 10, 31, 32, 33, 60, 1024] {
        let whole = read_whole(limit, &script);
        assert_eq!(read(limit, script.chunks(1)), whole, "limit {limit}");
        for at in 0..=script.len() {
            let (head, tail) = script.split_at(at);
            assert_eq!(read(limit, [head, tail]), whole, "limit {limit}, cut {at}");
        }
    }
}

#[test]
fn random_bytes_in_random_chunks_match_a_naive_reader() {
    const ALPHABET: &[u8] = b"\n\n\n\r\r \t{}[]\"\":,\\id12\xEF\xBB\xBF\xC5\xBC";
    let mut rng = Rng(0x9E37_79B9_7F4A_7C15);
    for _ in 0..2_000 {
        let len = rng.below(120);
        let script: Vec<u8> = (0..len)
            .map(|_| ALPHABET[rng.below(ALPHABET.len())])
            .collect();
        let limit = rng.below(16);
        let whole = read_whole(limit, &script);
        let mut chunks = Vec::new();
        let mut rest = &script[..];
        while !rest.is_empty() {
            let (chunk, after) = rest.split_at(1 + rng.below(rest.len()));
            chunks.push(chunk);
            rest = after;
        }
        assert_eq!(read(limit, chunks), whole, "{script:?} limit {limit}");
        assert_eq!(
            whole,
            naive_lines(limit, &script),
            "{script:?} limit {limit}"
        );
    }
}

/// The same rules, implemented without chunks.
fn naive_lines(limit: usize, script: &[u8]) -> Vec<Owned> {
    let mut lines = Vec::new();
    for raw in script.split(|&byte| byte == b'\n') {
        let line = raw.strip_suffix(b"\r").unwrap_or(raw);
        let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        if raw.len() > limit {
            let mut terminated = raw.to_vec();
            terminated.push(b'\n');
            lines.extend(read_whole(0, &terminated));
        } else if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        } else if let Ok(line) = core::str::from_utf8(line) {
            lines.push(text(line));
        } else {
            lines.push(Owned::NotUtf8(line.to_vec()));
        }
    }
    lines
}

#[test]
fn whole_line_is_not_copied_and_a_long_line_is_freed() {
    let mut reader = LineReader::new(1 << 20);
    let whole = b"whole\n".to_vec();
    let mut chunk = &whole[..];
    match reader.next(&mut chunk) {
        Some(Line::Text(line)) => assert_eq!(line.as_ptr(), whole.as_ptr()),
        other => panic!("{other:?}"),
    }
    let long = vec![b'x'; 1 << 20];
    let mut chunk = &long[..];
    assert_eq!(reader.next(&mut chunk), None);
    assert_eq!(reader.buffered(), 1 << 20);
    let mut chunk: &[u8] = b"\nnext";
    assert!(matches!(reader.next(&mut chunk), Some(Line::Text(line)) if line.len() == 1 << 20));
    assert_eq!(reader.buffered(), 0);
    assert_eq!(reader.next(&mut chunk), None);
    assert_eq!(reader.buffered(), 4);
    reader.clear();
    assert_eq!(reader.finish(), None);
}

#[test]
fn oversized_line_reports_its_id_in_any_member_order() {
    const SEVEN: Option<&str> = Some("7");
    /// `~` stands for a long text; the id is given as JSON.
    #[rustfmt::skip]
    const TABLE: &[(&str, Option<&str>, bool)] = &[
        (r#"{"jsonrpc":"2.0","id":7,"result":{"t":"~"}}"#, SEVEN, true),
        (r#"{"result":{"t":"~"},"id":7,"jsonrpc":"2.0"}"#, SEVEN, true),
        (r#"{ "error" : {"t":"~"} , "id" : 7 } "#, SEVEN, true),
        (r#"{"id":7.0,"params":{"t":"~"},"method":"m"}"#, SEVEN, false),
        (r#"{"id":7,"result":{"t":"~"},"method":"m"}"#, SEVEN, false),
        (r#"{"id":7,"t":"~"}"#, SEVEN, false),
        (r#"{"id":"7","result":["~"]}"#, Some(r#""7""#), true),
        (r#"{"id":"a\"}\u002c\\","error":"~"}"#, Some(r#""a\"},\\""#), true),
        (r#"{"result":{"id":8,"t":"\"id\":9,~"},"id":7}"#, SEVEN, true),
        (r#"{"result":[[{"id":8}],"~\\"],"id":7}"#, SEVEN, true),
        (r#"{"":{},"id":7,"iD":8,"\u0072esult":"~"}"#, SEVEN, true),
        (r#"{"id":7,"result":{"cut off":"~"#, SEVEN, true),
        (r#"{"result":{"t":"~"},"id":7"#, None, false),
        (r#"{"id":7,"id":7,"result":"~"}"#, None, false),
        (r#"{"id":7,"result":"~","\u0069d":8}"#, None, false),
        (r#"{"result":{"id":7},"t":"~"}"#, None, false),
        (r#"{"result":"\"id\":7,~"}"#, None, false),
        (r#"{"id":null,"result":"~"}"#, None, false),
        (r#"{"id":{"id":7},"result":"~"}"#, None, false),
        (r#"{"id":7.5,"result":"~"}"#, None, false),
        (r#"{"id":7 8,"result":"~"}"#, None, false),
        (r#"{"id":7,"result":"~"}{}"#, None, false),
        (r#"{"id":7,"result":"~"]"#, None, false),
        (r#"{"id":7,"result":"~",x}"#, None, false),
        (r#"[{"id":7,"result":"~"}]"#, None, false),
        (r#""{\"id\":7,\"result\":~}""#, None, false),
        (r#"{"id":"~","result":1}"#, None, false),
        (r#"{"~":1,"id":7,"result":1}"#, SEVEN, true),
        ("\u{FEFF}{\"id\":7,\"result\":\"~\"}", SEVEN, true),
    ];
    let long = "p".repeat(9_000);
    for &(line, id, is_response) in TABLE {
        let line = line.replace('~', &long);
        let stream = format!("before\n{line}\nafter\n");
        let skimmed = oversized(line.len() as u64, id.and_then(Id::from_json), is_response);
        assert_eq!(
            read(32, stream.as_bytes().chunks(13)),
            [text("before"), skimmed, text("after")],
            "{line}"
        );
    }
}

#[test]
fn longest_id_is_found_in_an_oversized_line_even_if_all_of_it_is_escaped() {
    let longest = "x".repeat(TEXT_ID_LIMIT);
    let escaped = "\\u0078".repeat(TEXT_ID_LIMIT);
    let line = format!(r#"{{"id":"{escaped}","result":"{longest}"}}"#);
    let id = Id::Text(longest.into());
    assert_eq!(
        read_whole(32, line.as_bytes()),
        [oversized(line.len() as u64, Some(id), true)]
    );
}

#[test]
fn interrupted_byte_order_mark_makes_an_oversized_line_unreadable() {
    let line = [
        b"\xEF \xBB\xBF",
        &br#"{"id":7,"result":"long enough to be too long"}"#[..],
    ]
    .concat();
    assert_eq!(
        read_whole(32, &line),
        [oversized(line.len() as u64, None, false)]
    );
}

#[test]
fn skimming_deep_nesting_does_not_exhaust_the_stack() {
    let nested = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    let line = format!(r#"{{"result":{nested},"id":7}}"#);
    assert_eq!(
        read_whole(32, line.as_bytes()),
        [oversized(line.len() as u64, Some(Id::Number(7)), true)]
    );
}

#[test]
fn written_requests_read_back() {
    let controls: String = (0..0x20u8)
        .map(char::from)
        .chain("\"\\/\u{7F}\u{2028}\u{FEFF}ż🦀".chars())
        .collect();
    for id in [
        Id::Number(0),
        Id::Number(i64::MIN),
        Id::Number(i64::MAX),
        Id::Text(controls.clone().into()),
        Id::Text("".into()),
    ] {
        let mut buf = Vec::new();
        encode::request(&mut buf, &id, &controls, |params| {
            params
                .text(&controls, &controls)
                .texts("texts", ["", "a", &controls])
                .texts("none", [])
                .boolean("yes", true)
                .boolean("no", false)
                .raw("raw", "{\r\n\t\"a\": [1,\n2]\r}")
                .splice(" {\n \"b\" : 1 ,\r\n\"c\":\"}\" }\n")
                .splice(" { \n } ")
                .object("empty", |_| {})
                .id("same", &id);
        });
        assert!(!buf.contains(&b'\n') && !buf.contains(&b'\r'));
        let text = core::str::from_utf8(&buf).unwrap();
        let Ok(Inbound::One(Message::Request {
            id: read_id,
            method,
            params,
        })) = parse(text)
        else {
            panic!("not a request: {text}");
        };
        assert_eq!(read_id, id);
        assert_eq!(method, controls);
        let params: serde_json::Value = serde_json::from_str(params.unwrap().as_str()).unwrap();
        let expected = serde_json::json!({
            controls.as_str(): controls, "texts": ["", "a", controls], "none": [], "yes": true, "no": false,
            "raw": {"a": [1, 2]}, "b": 1, "c": "}", "empty": {}, "same": id,
        });
        assert_eq!(params, expected);
    }
}

#[test]
fn messages_are_written_compactly() {
    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut buf = b"kept ".to_vec();
        write(&mut buf);
        String::from_utf8(buf).unwrap()
    }
    let id = Id::Number(-10);
    assert_eq!(
        written(|buf| encode::request(buf, &id, "m", |_| {})),
        r#"kept {"jsonrpc":"2.0","id":-10,"method":"m"}"#
    );
    assert_eq!(
        written(|buf| encode::notification(buf, "n", |params| {
            params.integer("a", 100);
        })),
        r#"kept {"jsonrpc":"2.0","method":"n","params":{"a":100}}"#
    );
    assert_eq!(
        written(|buf| encode::result(buf, &id, |_| {})),
        r#"kept {"jsonrpc":"2.0","id":-10,"result":{}}"#
    );
    let data = "[1,\n2]".parse::<crate::json::Payload>().unwrap();
    assert_eq!(
        written(|buf| {
            encode::error(buf, Some(&id), -32_601, "no\n", Some(data.json()));
            encode::line_end(buf);
        }),
        "kept {\"jsonrpc\":\"2.0\",\"id\":-10,\"error\":{\"code\":-32601,\"message\":\"no\\n\",\"data\":[1, 2]}}\n"
    );
    assert_eq!(
        written(|buf| encode::error(buf, None, 1, "x", None)),
        r#"kept {"jsonrpc":"2.0","error":{"code":1,"message":"x"}}"#
    );
}

#[test]
fn members_are_found_by_their_unescaped_key() {
    let json = |text| Json::read(text).unwrap();
    let object = "{ \"a\\u0062\" :\t[1, {\"_meta\":0}] ,\"_meta\": {\"x\":1}\n, \"n\":-1.5e3 }";
    for (key, value) in [
        ("ab", Some("[1, {\"_meta\":0}]")),
        ("_meta", Some("{\"x\":1}")),
        ("n", Some("-1.5e3")),
        ("x", None),
        ("a\\u0062", None),
    ] {
        let found = json(object).member(key).unwrap();
        assert_eq!(found.map(Json::as_str), value, "{key}");
    }
    assert_eq!(json("{}").member("a"), Ok(None));
    assert_eq!(
        json(r#"{"a":1,"\u0061":2}"#).member("a"),
        Err(ObjectError::Duplicate)
    );
    assert_eq!(json("[]").member("a"), Err(ObjectError::NotAnObject));
    let odd = "{\"\\ud800\":1,\"a\":2}";
    let found = json(odd).member("a").unwrap();
    assert_eq!(found.map(Json::as_str), Some("2"));
}

#[test]
fn nested_object_is_visited_and_can_be_removed() {
    for (text, left) in [
        (r#"{"_meta":{"x":1}}"#, "{}"),
        (r#"{ "_meta" : {"x" : 1} }"#, "{}"),
        (r#"{"_meta":{"x":1},"a":[{}]}"#, r#"{"a":[{}]}"#),
        (r#"{"a":[{}] , "_meta":{ "x":1 } }"#, r#"{"a":[{}] }"#),
        (r#"{"a":1,"_meta":{"x":1} ,"b":2}"#, r#"{"a":1,"b":2}"#),
    ] {
        let json = Json::read(text).unwrap();
        let (mut seen, mut member) = (Vec::new(), None);
        object::show(json, META, |part| match part {
            Part::Nested(key, value) => seen.push((key.into_owned(), value.as_str())),
            Part::Nest(text, _) => member = Some(text),
            Part::Member(..) | Part::Run => {}
        });
        assert_eq!(seen, [("x".to_string(), "1")], "{text}");
        let rest = object::cut(json, member.unwrap());
        let same = |text: &str| text.replace(' ', "");
        assert_eq!(same(rest.as_str()), same(left), "{text}");
        assert!(Json::read(rest.as_str()).is_ok(), "{text}");
    }
}

const META: Plan<'static> = Plan {
    nested: "_meta",
    run: "",
};

#[test]
fn known_run_of_members_is_visited_as_one_part() {
    const RUN: &str = r#""a":1,"b":{"c":"d"}"#;
    let plan = Plan { run: RUN, ..META };
    for (text, nested) in [
        (r#"{"_meta":{"a":1,"b":{"c":"d"}}}"#, "run"),
        (r#"{"_meta":{"t":2,"a":1,"b":{"c":"d"},"u":3}}"#, "t run u"),
        (r#"{"_meta":{ "a":1,"b":{"c":"d"} , "u":3}}"#, "run u"),
        // Spelled differently, incomplete, elsewhere, and twice.
        (r#"{"_meta":{"a": 1,"b":{"c":"d"}}}"#, "a b"),
        (r#"{"_meta":{"a":1,"b":{"c":"e"}}}"#, "a b"),
        (r#"{"_meta":{"a":1}}"#, "a"),
        (r#"{"a":1,"b":{"c":"d"},"_meta":{}}"#, ""),
        (r#"{"_meta":{"x":{"a":1,"b":{"c":"d"}}}}"#, "x"),
        (
            r#"{"_meta":{"a":1,"b":{"c":"d"},"a":1,"b":{"c":"d"}}}"#,
            "run run",
        ),
    ] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{text}}}"#);
        let mut seen = Vec::new();
        let mut whole = None;
        let message = parse_visiting(&line, plan, |part| match part {
            Part::Nested(key, _) => seen.push(key.into_owned()),
            Part::Run => seen.push("run".to_string()),
            Part::Nest(_, value) => whole = Some(value.as_str()),
            Part::Member(..) => {}
        });
        let Ok(Inbound::One(Message::Request { params, .. })) = message else {
            panic!("{text} is no request");
        };
        assert_eq!(params.map(Json::as_str), Some(text));
        assert_eq!(seen.join(" "), nested, "{text}");
        assert!(whole.is_some_and(|whole| text.contains(whole)), "{text}");
    }
    for wrong in [
        r#"{"_meta":{"a":1,"b":{"c":"d"}"e":1}}"#,
        r#"{"_meta":{"a":1,"b":{"c":"d"},}}"#,
        r#"{"_meta":{"a":1,"b":{"c":"d"}1}}"#,
        r#"{"_meta":{"a":1,"b":{"c":"d"}"#,
    ] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{wrong}}}"#);
        let kind = parse_visiting(&line, plan, |_| {}).map_err(|malformed| malformed.kind);
        assert_eq!(kind.map(drop), Err(MalformedKind::NotJson), "{wrong}");
    }
}

#[test]
fn run_is_all_wanted_members_in_a_row_with_an_unambiguous_end() {
    for (text, run) in [
        (r#"{"a":"1","b":"2"}"#, Some(r#""a":"1","b":"2""#)),
        (
            r#"{"x":0,"a":"1" , "b":{},"y":0}"#,
            Some(r#""a":"1" , "b":{}"#),
        ),
        (r#"{"a":"1","x":0,"b":"2"}"#, None),
        (r#"{"\u0061":[1]}"#, Some(r#""\u0061":[1]"#)),
        // `1` could be the beginning of `12`.
        (r#"{"a":"1","b":1}"#, None),
        (r#"{"x":0}"#, None),
        ("{}", None),
    ] {
        let json = Json::read(text).unwrap();
        assert_eq!(
            object::run_of(json, |key| matches!(key, "a" | "b")),
            run,
            "{text}"
        );
    }
}

/// The walk over an object must accept and reject the same texts as `serde_json`.
#[test]
#[cfg_attr(miri, ignore = "takes Miri too long")]
fn validation_agrees_with_serde_json() {
    const SEEDS: &[&str] = &[
        r#"{"jsonrpc":"2.0","id":12,"result":{"a":[1,2,{"b":null}],"c":"d\n"}}"#,
        "{ \"a\" : -0.5e-3 ,\t\"\\u00e9\" : [ true , false ] ,\r\n\"\" : \"\" } ",
        r#"{"a":{},"b":[],"c":0,"d":10,"e":"\ud83e\udd80 ż"}"#,
        r#"{"params":{"_meta":{"a":"a longer text","b":{}},"c":[0]},"method":"m"}"#,
    ];
    const BYTES: &[u8] = b"{}[]\",:\\u0019.eE+-tfn \t\n\r\x0B\x0C\x00x";
    let mut rng = Rng(0x2545_F491_4F6C_DD1D);
    let mut accepted = 0;
    for _ in 0..30_000 {
        let mut bytes = SEEDS[rng.below(SEEDS.len())].as_bytes().to_vec();
        for _ in 0..=rng.below(2) {
            let at = rng.below(bytes.len());
            match rng.below(3) {
                0 => drop(bytes.remove(at)),
                1 => bytes[at] = BYTES[rng.below(BYTES.len())],
                _ => bytes.insert(at, BYTES[rng.below(BYTES.len())]),
            }
        }
        let Ok(text) = core::str::from_utf8(&bytes) else {
            continue;
        };
        let is_json = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
        let expected = text.trim_start().starts_with('{') && is_json;
        accepted += usize::from(expected);
        let judged = Json::read(text);
        assert_eq!(judged.is_ok(), is_json, "{text:?}");
        let walked = judged.is_ok_and(|json| object::members(json, |_, _| {}).is_ok());
        assert_eq!(walked, expected, "{text:?}");
        let is_not_json = |read: Result<Inbound<'_>, Malformed>| {
            read.is_err_and(|malformed| malformed.kind == MalformedKind::NotJson)
        };
        let not_json = is_not_json(parse(text));
        let shown = parse_visiting(text, META, |_| {});
        assert_eq!(is_not_json(shown), not_json, "{text:?}");
        assert!(
            not_json || expected || !text.trim_start().starts_with('{'),
            "{text:?}"
        );
        assert!(!(not_json && expected), "{text:?}");
    }
    assert!(accepted > 3_000, "only {accepted} texts were objects");
}

/// Skimming a message finds the same id and kind as parsing it.
#[test]
fn skimming_agrees_with_parsing() {
    const IDS: &[&str] = &[
        "1",
        "-1",
        "1.0",
        "\"a\"",
        "\"\\u0061\\\"\"",
        "null",
        "1.5",
        "{}",
        "\"\\ud800\"",
    ];
    let mut rng = Rng(0xD1B5_4A32_D192_ED03);
    for _ in 0..2_000 {
        let mut members = vec![r#""jsonrpc":"2.0""#.to_string()];
        if rng.below(4) > 0 {
            members.push(format!("\"id\":{}", IDS[rng.below(IDS.len())]));
        }
        let kind = rng.below(3);
        members.push(match kind {
            0 => r#""method" : "id""#.to_string(),
            1 => r#""result":{"id":9,"x":["\"id\":"]}"#.to_string(),
            _ => r#""error":{"code":1,"message":"\\","data":{"method":1}}"#.to_string(),
        });
        members.push(r#""extra":[{"id":8},"}",{"method":"x"}]"#.to_string());
        for at in (1..members.len()).rev() {
            members.swap(at, rng.below(at + 1));
        }
        let line = format!("{{{}}}", members.join(","));
        let (id, is_response, needs_no_answer) = match parse(&line) {
            Ok(Inbound::One(Message::Notification { .. })) => (None, false, true),
            Ok(Inbound::One(Message::Request { id, .. })) => (Some(id), false, false),
            Ok(Inbound::One(Message::Response { id, .. })) => (id.clone(), id.is_some(), true),
            Ok(Inbound::Batch(_)) => panic!("{line}"),
            Err(malformed) => {
                let is_unanswered = malformed.is_response || malformed.is_notification;
                (malformed.id, false, is_unanswered)
            }
        };
        let mut reader = LineReader::new(0);
        assert!(reader.next(&mut line.as_bytes()).is_none());
        let Some(Line::Oversized(skimmed)) = reader.finish() else {
            panic!("{line}");
        };
        assert_eq!(skimmed.needs_no_answer, needs_no_answer, "{line}");
        // The rest of a message that was cut short may have its id.
        let mut cut = &line.as_bytes()[..line.len() - 1];
        assert!(reader.next(&mut cut).is_none());
        let is_reply = match reader.finish() {
            Some(Line::Oversized(skimmed)) => skimmed.needs_no_answer,
            _ => false,
        };
        assert_eq!(is_reply, needs_no_answer && kind > 0, "{line}");
        assert_eq!(
            read_whole(0, line.as_bytes()),
            [oversized(line.len() as u64, id, is_response)],
            "{line}"
        );
    }
}

/// `may_have` is true for every text that contains the name, short or long.
#[test]
fn may_have_is_true_for_every_text_with_the_name() {
    const SOUGHT: [Sought; 2] = [Sought::new("_meta"), Sought::new("resultType")];
    for padding in [0, 1_000] {
        let padding = r"x\n_T".repeat(padding);
        let may_have = |member: &str| {
            let text = format!(r#"{{"p":"{padding}",{member}:1}}"#);
            assert_eq!(object::is_short(&text), padding.is_empty());
            object::may_have(&text, SOUGHT)
        };
        for there in [
            r#""_meta""#,
            r#""resultType""#,
            r#""\u005fmeta""#,
            r#""a\\_meta""#,
        ] {
            assert!(may_have(there), "{there}");
        }
        for other in [r#""_met""#, r#""resulttype""#, r#""\\""#, r#""Type""#] {
            assert!(!may_have(other), "{other}");
        }
    }
    assert!(!object::may_have("T", SOUGHT) && !object::may_have("", SOUGHT));
}
